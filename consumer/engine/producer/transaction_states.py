"""The states of a transactional producer, and the calls that each state allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from kproto.errors import KprotoError
from kproto.machine import Edges
from kproto.records.builder import UnnumberedBatch

from ...delivery import Delivery
from .accumulator import RecordAccumulator
from .batches import Headers, ProducerBatch


class ProducerTransactionState(Enum):
    """A transactional producer's state (Java's TransactionManager.State), as text for error messages."""

    UNINITIALIZED = "it has no producer id yet"
    INITIALIZING = "it waits for its producer id"
    READY = "no transaction is open"
    IN_TRANSACTION = "a transaction is open"
    ABORTABLE_ERROR = "the transaction can only be aborted"
    COMMITTING_TRANSACTION = "the transaction is being committed"
    ABORTING_TRANSACTION = "the transaction is being aborted"
    FATAL_ERROR = "this producer has failed"


S = ProducerTransactionState

# The application's calls that each state allows, and the state to which each call leads. Any other call
# raises the error of the failed transaction or producer, or IllegalState if neither has failed. A repeated
# call waits for the operation that is in progress, or returns the result of the operation that has ended.
CALLS: Mapping[ProducerTransactionState, Mapping[str, ProducerTransactionState]] = {
    S.UNINITIALIZED: {"begin": S.INITIALIZING},
    S.INITIALIZING: {"begin": S.INITIALIZING},
    S.READY: {"begin": S.IN_TRANSACTION},
    S.IN_TRANSACTION: {
        "send": S.IN_TRANSACTION,
        "send_offsets": S.IN_TRANSACTION,
        "commit": S.COMMITTING_TRANSACTION,
        "abort": S.ABORTING_TRANSACTION,
    },
    S.ABORTABLE_ERROR: {"abort": S.ABORTING_TRANSACTION},
    S.COMMITTING_TRANSACTION: {"commit": S.COMMITTING_TRANSACTION},
    S.ABORTING_TRANSACTION: {"abort": S.ABORTING_TRANSACTION},
    S.FATAL_ERROR: {},
}

# The allowed transitions of the state. Only `TransactionManager.move` changes the state.
EDGES: Edges[ProducerTransactionState] = {
    S.UNINITIALIZED: frozenset({S.INITIALIZING, S.FATAL_ERROR}),
    S.INITIALIZING: frozenset({S.IN_TRANSACTION, S.FATAL_ERROR}),
    S.READY: frozenset({S.IN_TRANSACTION, S.FATAL_ERROR}),
    S.IN_TRANSACTION: frozenset(
        {S.COMMITTING_TRANSACTION, S.ABORTING_TRANSACTION, S.ABORTABLE_ERROR, S.FATAL_ERROR}
    ),
    S.ABORTABLE_ERROR: frozenset({S.ABORTING_TRANSACTION, S.FATAL_ERROR}),
    S.COMMITTING_TRANSACTION: frozenset({S.READY, S.ABORTABLE_ERROR, S.FATAL_ERROR}),
    S.ABORTING_TRANSACTION: frozenset({S.READY, S.FATAL_ERROR}),
    S.FATAL_ERROR: frozenset(),
}


class PendingCall(msgspec.Struct):
    """A pending operation: begin, commit or abort. `done` is set when it has ended, with or without an error.

    `waiting` contains the callers that wait for the operation. `reported` is set when one of these callers
    has received the result of the operation.
    """

    name: str
    done: bool = False
    error: KprotoError | None = None
    waiting: set[object] = msgspec.field(default_factory=set[object])
    reported: bool = False

    @property
    def unreported_error(self) -> KprotoError | None:
        """The error of a failed commit if no caller has received it yet, otherwise None."""
        return self.error if self.name == "commit" and self.done and not self.reported else None


class TransactionalAccumulator(RecordAccumulator):
    """A RecordAccumulator that calls `gate` before it accepts a record.

    `gate` raises an error to reject the record. `append` holds the lock `guard` while it calls `gate` and
    adds the record.
    """

    gate: Callable[[], None]
    # Callers must append every record through `append`, which calls `gate`.
    append_is_guarded = True

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        with self.guard:
            self.gate()
            return super().append(topic, key, value, partition, timestamp, headers)

    def append_batch(
        self, topic: str, partition: int | None, encoded: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        self.gate()
        return super().append_batch(topic, partition, encoded, timestamps)

    def partition_count(self, topic: str) -> int | None:
        self.gate()
        return super().partition_count(topic)
