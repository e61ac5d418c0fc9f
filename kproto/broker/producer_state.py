"""What a partition remembers of idempotent producers, so that a retried batch is stored once.

Rules, as Kafka's ProducerStateManager and ProducerAppendInfo:
  * The last five batches of each producer are remembered. A batch with the epoch and the sequences of one
    of them is a duplicate: it is not stored again, and is answered with the offset of the first copy.
  * Otherwise the first sequence must follow the last one stored; sequences go on with 0 after 2**31 - 1.
    Anything else is OUT_OF_ORDER_SEQUENCE_NUMBER.
  * A new epoch starts at sequence 0; an older epoch is INVALID_PRODUCER_EPOCH.
  * A producer that the partition has never seen may start with any sequence: its state may have expired.
  * What a transaction's first batch here was tried with counts until one is stored, or a marker is
    (VerificationStateEntry): no batch may have a higher sequence than the lowest of its epoch that was tried.
    If the first try was one of KIP-890, a producer that was never seen must begin with 0.
  * Who has written nothing for `producer.id.expiration.ms` is forgotten; it is looked for now and then.
  * When a log is cut, its batches say what there is to remember, and so which sequences may come again.
  * The marker of a transaction may bring a new epoch; what comes late in an older one is fenced (X4).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ..error_codes import ErrorCode
from ..records import Batch

REMEMBERED_BATCHES: Final = 5  # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
_SEQUENCES: Final = 2**31


class Stored(NamedTuple):
    """One batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    max_timestamp: int


@dataclass(slots=True)
class ProducerState:
    epoch: int
    batches: deque[Stored] = field(default_factory=lambda: deque(maxlen=REMEMBERED_BATCHES))
    coordinator_epoch: int = -1  # of the last marker
    seen_at: int = -1

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def duplicate(self, first_sequence: int, last_sequence: int) -> Stored | None:
        for stored in self.batches:
            if (stored.first_sequence, stored.last_sequence) == (first_sequence, last_sequence):
                return stored
        return None


@dataclass(slots=True)
class Tried:
    """What a transaction's first batch was tried with."""

    epoch: int
    lowest: int
    from_zero: bool
    at: int


class Producers:
    """The idempotent producers of one partition."""

    __slots__ = ("_states", "_tried")

    def __init__(self) -> None:
        self._states: dict[int, ProducerState] = {}
        self._tried: dict[int, Tried] = {}

    def active(self) -> list[tuple[int, ProducerState]]:
        """All that are remembered, with their ids."""
        return list(self._states.items())

    def state(self, producer_id: int) -> ProducerState | None:
        """What is remembered of a producer; None where nothing is."""
        return self._states.get(producer_id)

    def epoch(self, producer_id: int) -> int:
        """The newest epoch of a producer that was seen here; -1: it never was."""
        state = self._states.get(producer_id)
        return -1 if state is None else state.epoch

    def tries(self, producer_id: int, epoch: int, first_sequence: int, now: int, *, from_zero: bool) -> None:
        """A transaction that has written nothing here is about to; `from_zero`: one of KIP-890."""
        tried = self._tried.setdefault(producer_id, Tried(epoch, first_sequence, from_zero, now))
        if epoch > tried.epoch:
            tried.epoch, tried.lowest = epoch, first_sequence
        elif epoch == tried.epoch:
            tried.lowest = min(tried.lowest, first_sequence)

    def check(
        self, producer_id: int, epoch: int, first_sequence: int, count: int, *, begins: bool = False
    ) -> ErrorCode | Stored:
        """NONE: store the batch, then call `remember`; `Stored`: it is there already; else refuse.

        `begins`: it is of a transaction that has written nothing here yet.
        """
        state = self._states.get(producer_id)
        tried = self._tried.get(producer_id) if begins else None
        above = tried is not None and first_sequence > tried.lowest
        if state is None:
            strange = above or (tried is not None and tried.from_zero and first_sequence != 0)
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if strange else ErrorCode.NONE
        if epoch < state.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if epoch > state.epoch:
            fits = first_sequence == 0 or state.epoch < 0  # who had none may begin anywhere
            return ErrorCode.NONE if fits and not above else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        found = state.duplicate(first_sequence, last_sequence(first_sequence, count))
        if found is not None:
            return found
        if not above and first_sequence == (state.last_sequence + 1) % _SEQUENCES:
            return ErrorCode.NONE
        return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    def remember(self, producer_id: int, epoch: int, stored: Stored) -> None:
        self._tried.pop(producer_id, None)
        state = self._states.get(producer_id)
        if state is None or state.epoch != epoch:
            state = self._states[producer_id] = ProducerState(epoch)
        state.batches.append(stored)
        state.seen_at = stored.max_timestamp

    def marked(self, producer_id: int, epoch: int, coordinator_epoch: int, now: int) -> None:
        """The marker of a producer's transaction is in the log."""
        self._tried.pop(producer_id, None)
        state = self._states.get(producer_id)
        if state is None or epoch > state.epoch:
            state = self._states[producer_id] = ProducerState(epoch)
        state.coordinator_epoch = coordinator_epoch
        state.seen_at = now

    def forget_unused(self, since: int, busy: Container[int]) -> None:
        """Forget those whose last record is of `since` or older, but for the `busy`, which have transactions
        open (ProducerStateManager.removeExpiredProducers).
        """
        for producer_id, state in list(self._states.items()):
            if state.seen_at <= since and producer_id not in busy:
                del self._states[producer_id]
        self._tried = {one: tried for one, tried in self._tried.items() if tried.at > since}

    def read_again(self, left: Iterable[Batch], end: int, coordinator_epoch: int) -> None:
        """The log was cut at `end`: what is left says what there is to remember. What was deleted before, at
        its head, says it no more, and is remembered as it was.
        """
        before, tried = self._states, self._tried
        self._states, self._tried = {}, {}
        for batch in left:
            if batch.is_control and batch.count:  # without, it was compacted
                self.marked(batch.producer_id, batch.producer_epoch, coordinator_epoch, batch.max_timestamp)
            elif batch.producer_id >= 0 and not batch.is_control:
                count = batch.last_offset - batch.base_offset + 1
                last = last_sequence(batch.base_sequence, count)
                stored = Stored(batch.base_sequence, last, batch.base_offset, batch.max_timestamp)
                self.remember(batch.producer_id, batch.producer_epoch, stored)
        self._tried = tried
        for producer_id, state in before.items():
            kept = [stored for stored in state.batches if stored.base_offset < end]
            if kept and producer_id not in self._states:
                state.batches = deque(kept, maxlen=REMEMBERED_BATCHES)
                self._states[producer_id] = state


def last_sequence(first_sequence: int, count: int) -> int:
    """The sequence of the last of `count` records, which may have gone on with 0."""
    return (first_sequence + count - 1) % _SEQUENCES
