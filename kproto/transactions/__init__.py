"""The transaction coordinator: which producer owns a transactional id, and how its transactions end.

The function `step` of the module `table` runs the coordinator. The docstring of `table` lists the states and
the rules.

The coordinator writes no log. The action `WriteMarkers` requests the markers that end a transaction. The
event `MarkersWritten` reports that they have been written.
"""

from __future__ import annotations

from ..machine import RequestReceived, SendResponse, Tick
from .settings import TransactionSettings
from .state import (
    EDGES,
    MarkersWritten,
    PartitionCounts,
    TransactionAction,
    TransactionCoordinator,
    TransactionEvent,
    TransactionMetadata,
    TransactionPartition,
    TransactionState,
    WriteMarkers,
)
from .table import REQUESTS, TABLE, TransactionEventKind, next_deadline, step

__all__ = [
    "EDGES",
    "REQUESTS",
    "TABLE",
    "MarkersWritten",
    "PartitionCounts",
    "RequestReceived",
    "SendResponse",
    "Tick",
    "TransactionAction",
    "TransactionCoordinator",
    "TransactionEvent",
    "TransactionEventKind",
    "TransactionMetadata",
    "TransactionPartition",
    "TransactionSettings",
    "TransactionState",
    "WriteMarkers",
    "next_deadline",
    "step",
]
