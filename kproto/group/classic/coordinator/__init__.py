"""The classic group coordinator: `step` is in `table`, which also lists the states and the rules."""

from __future__ import annotations

from .settings import Settings
from .state import (
    EDGES,
    Action,
    Committed,
    Coordinator,
    Emptied,
    Event,
    Group,
    GroupMember,
    GroupState,
    Rebalancing,
    Received,
    Reply,
    Settled,
    Tick,
    Topics,
    TopicsDeleted,
    TransactionEnded,
)
from .table import REQUESTS, TABLE, Kind, next_deadline, step

__all__ = [
    "EDGES",
    "REQUESTS",
    "TABLE",
    "Action",
    "Committed",
    "Coordinator",
    "Emptied",
    "Event",
    "Group",
    "GroupMember",
    "GroupState",
    "Kind",
    "Rebalancing",
    "Received",
    "Reply",
    "Settings",
    "Settled",
    "Tick",
    "Topics",
    "TopicsDeleted",
    "TransactionEnded",
    "next_deadline",
    "step",
]
