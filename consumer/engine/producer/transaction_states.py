"""Where a producer of transactions can be, and what may be called there: the table of `transactions`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum

import msgspec

from kproto.errors import KprotoError
from kproto.records.builder import UnnumberedBatch

from ...delivery import Delivery
from .accumulator import RecordAccumulator
from .batches import Headers, ProducerBatch


class TransactionState(Enum):
    """Where a producer of transactions is."""

    new = "it has no id yet"
    naming = "it waits for its id"
    ready = "no transaction is open"
    open = "a transaction is open"
    spoiled = "the transaction can only be aborted"
    committing = "the transaction is being committed"
    aborting = "the transaction is being aborted"
    lost = "this producer can do nothing any more"


S = TransactionState

CALLS: Mapping[TransactionState, Mapping[str, TransactionState]] = {
    S.new: {"begin": S.naming},
    S.naming: {"begin": S.naming},
    S.ready: {"begin": S.open},
    S.open: {"send": S.open, "send_offsets": S.open, "commit": S.committing, "abort": S.aborting},
    S.spoiled: {"abort": S.aborting},
    S.committing: {"commit": S.committing},
    S.aborting: {"abort": S.aborting},
    S.lost: {},
}
"""What the application may call, and where that leads. Anything else is IllegalState, or the error that
spoiled the transaction or lost the producer. Who calls again what is under way waits on, and who had stopped
waiting is told how it ended."""

EDGES: Mapping[TransactionState, frozenset[TransactionState]] = {
    S.new: frozenset({S.naming, S.lost}),
    S.naming: frozenset({S.open, S.lost}),
    S.ready: frozenset({S.open, S.lost}),
    S.open: frozenset({S.committing, S.aborting, S.spoiled, S.lost}),
    S.spoiled: frozenset({S.aborting, S.lost}),
    S.committing: frozenset({S.ready, S.spoiled, S.lost}),
    S.aborting: frozenset({S.ready, S.lost}),
    S.lost: frozenset(),
}
"""Where it may go from where; `Transactions.move` is the only one that goes."""


class PendingCall(msgspec.Struct):
    """What the application asked for: `done` turns true once, with an error or without one.

    Who waits for that is in `waiting`; `told` says that somebody knows it.
    """

    what: str
    done: bool = False
    error: KprotoError | None = None
    waiting: set[object] = msgspec.field(default_factory=set[object])
    told: bool = False

    @property
    def unheard(self) -> KprotoError | None:
        """What a commit failed by, if nobody knows."""
        return self.error if self.what == "commit" and self.done and not self.told else None


class TransactionalAppends(RecordAccumulator):
    """An accumulator that takes records only where `gate`, called with the guard held, doesn't raise."""

    gate: Callable[[], None]
    gated = True

    def take(
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
            return super().take(topic, key, value, partition, timestamp, headers)

    def put(
        self, topic: str, partition: int | None, made: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        self.gate()
        return super().put(topic, partition, made, timestamps)

    def count(self, topic: str) -> int | None:
        self.gate()
        return super().count(topic)
