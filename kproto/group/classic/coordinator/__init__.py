"""The classic group coordinator.

The module `table` contains the protocol's rules, the function `step`, and a handler for each event and state.
A broker uses the class `ClassicCoordinator` of the module `service`.
"""

from __future__ import annotations

from ....machine import RequestReceived, SendResponse, Tick
from ...protocol import (
    CoordinatorAction,
    CoordinatorEvent,
    RebalanceCompleted,
    TopicCatalog,
    TopicsDeleted,
    TransactionEnded,
)
from ...settings import GroupSettings
from .service import ClassicCoordinator
from .state import (
    EDGES,
    ClassicGroup,
    ClassicGroupMember,
    ClassicGroupState,
    GenerationStarted,
    GroupEmptied,
    MemberRemoved,
    RebalanceStarted,
    StoredOffset,
)
from .table import REQUESTS, TABLE, GroupEventKind, next_deadline, step

__all__ = [
    "EDGES",
    "REQUESTS",
    "TABLE",
    "ClassicCoordinator",
    "ClassicGroup",
    "ClassicGroupMember",
    "ClassicGroupState",
    "CoordinatorAction",
    "CoordinatorEvent",
    "GenerationStarted",
    "GroupEmptied",
    "GroupEventKind",
    "GroupSettings",
    "MemberRemoved",
    "RebalanceCompleted",
    "RebalanceStarted",
    "RequestReceived",
    "SendResponse",
    "StoredOffset",
    "Tick",
    "TopicCatalog",
    "TopicsDeleted",
    "TransactionEnded",
    "next_deadline",
    "step",
]
