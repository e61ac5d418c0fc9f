"""The transaction coordinator: which producer owns a transactional id, and how its transactions end.

`step` is in `table`, which also lists the states and the rules. The coordinator writes no log: the markers
that end a transaction are an action, and the event `MarkersWritten` reports that they have been written.
"""

from __future__ import annotations

from .settings import Settings
from .state import (
    EDGES,
    Action,
    Coordinator,
    Event,
    MarkersWritten,
    Partition,
    Received,
    Reply,
    Tick,
    Topics,
    Transaction,
    TransactionState,
    WriteMarkers,
)
from .table import REQUESTS, TABLE, Cell, Kind, next_deadline, step

__all__ = [
    "EDGES",
    "REQUESTS",
    "TABLE",
    "Action",
    "Cell",
    "Coordinator",
    "Event",
    "Kind",
    "MarkersWritten",
    "Partition",
    "Received",
    "Reply",
    "Settings",
    "Tick",
    "Topics",
    "Transaction",
    "TransactionState",
    "WriteMarkers",
    "next_deadline",
    "step",
]
