"""A producer's batches, and the lanes in which they travel: one lane per partition.

Rules that hold here:

* A batch's records share one fate, unless the broker refuses what is in it: then `places` says where each of
  them went on. Whoever asks for a record's fate looks it up there (`fate`).
* Batches of a lane have an order that never changes; parts of a divided batch stand where it stood.
* What a batch was given is kept until its bytes are made, then forgotten; a delivery's timestamp stays.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise, repeat
from typing import Any, NamedTuple

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition
from kproto.records import rows as read_rows
from kproto.records.builder import UnnumberedBatch
from kproto.records.list_encoder import unnumbered

from ..requests import ProducerIdAndEpoch

Headers = Sequence[tuple[str, bytes | None]]

COLUMNS = 4  # of a row: timestamp, key, value, headers
LAST_SEQUENCE = 2**31 - 1
LAST_EPOCH = 2**15 - 1


class BrokerConnection(NamedTuple):
    """One of the connections to a broker."""

    node: int
    lane: int  # one of the network's


class DeliveryFailures(msgspec.Struct):
    """What was not delivered since the application was last told."""

    count: int = 0
    first: KprotoError | None = None


NO_MOMENT = -(2**62)  # of a batch that has no record yet


class ProducerBatch:
    """Records of one partition, on their way together."""

    __slots__ = (
        "attempts",
        "base_offset",
        "callbacks",
        "count",
        "created",
        "data",
        "deadline",
        "done",
        "error",
        "failures",
        "identity",
        "lane",
        "ledger",
        "left",
        "log_append_time",
        "made",
        "moment",
        "moments",
        "number",
        "order",
        "places",
        "retry_at",
        "rows",
        "sealed",
        "seen",
        "sequence",
        "size",
        "timestamps",
        "why",
    )

    def __init__(
        self, lane: PartitionQueue, size: int, created: int, deadline: int, order: tuple[int, ...]
    ) -> None:
        self.lane = lane
        # Bytes of buffer.memory that it has, and how many of them are free; -1 when it takes nothing more.
        self.size = size
        self.left = size
        self.created = created
        self.deadline = deadline
        self.order = order
        self.count = 0
        # Until `data` is made: timestamp, key, value and headers of each record, one after the other, if
        # `moment` is None. Else they have nothing but a value, and only that stands here: `moments` says from
        # which index on they are of which ms, and `moment` is the last of these.
        self.rows: list[Any] = []
        self.moments: list[tuple[int, int]] = []
        self.moment: int | None = NO_MOMENT
        # Or the records of a table, encoded as they came.
        self.made: UnnumberedBatch | None = None
        self.timestamps: Sequence[int] = ()
        self.sealed = False
        self.data: bytes | None = None
        self.identity: ProducerIdAndEpoch | None = None
        self.sequence = -1
        self.number = 0  # how many of its lane were numbered before
        self.attempts = 0
        self.failures = 0
        self.retry_at = 0
        self.why = ""
        self.done = False
        self.error: KprotoError | None = None
        self.base_offset: int | None = None
        self.log_append_time: int | None = None
        self.places: list[tuple[ProducerBatch, int]] | None = None
        # What to call when a record's fate is decided, by the record's index.
        self.callbacks: list[tuple[int, Callable[[], object]]] | None = None
        # Where its failure is counted, and the records whose failure somebody has looked at.
        self.ledger: DeliveryFailures | None = None
        self.seen: set[int] | None = None

    def __len__(self) -> int:
        return self.count

    @property
    def partition(self) -> TopicPartition:
        return self.lane.partition

    def encode(self, compression: str, level: int | None, *, transactional: bool = False) -> None:
        """Makes the bytes, under the batch's numbers if it has any; its rows are forgotten."""
        producer_id, epoch = self.identity or (-1, -1)
        made = self.made
        if made is None and self.moment is not None:
            self.timestamps = self._times()
            nothing = [None] * self.count
            made = unnumbered(self.timestamps, nothing, self.rows, compression=compression, level=level)
        elif made is None:
            columns = [self.rows[column::COLUMNS] for column in range(COLUMNS)]
            self.timestamps = columns[0]
            made = unnumbered(*columns, compression=compression, level=level)
        self.data = made.numbered(producer_id, epoch, self.sequence, is_transactional=transactional)
        self.made, self.rows = None, []

    def begin_moment(self, moment: int) -> bool:
        """From the next record on it is this ms; False where each record has its timestamp, or better had.

        With the guard held. What is called here may let a signal handler or a finalizer in, which sends.
        """
        if 8 * len(self.moments) > self.count + 64:
            return False
        self.moments.append((self.count, moment))
        if self.moment is None or self.sealed:
            return False
        self.moment = moment
        return True

    def widen(self) -> None:
        """From the next record on they may have more than a value.

        With the guard held; others may add a record meanwhile, but none between the look at their number and
        the change, as nothing is called there.
        """
        while self.moment is not None:
            count = self.count
            rows: list[Any] = []
            for timestamp, value in zip(self._times(), self.rows, strict=False):
                rows += (timestamp, None, value, ())
            if self.sealed:
                return
            if self.count == count:
                self.rows = rows
                self.moment = None

    def _times(self) -> list[int]:
        """The timestamps of records that have nothing else but a value."""
        found: list[int] = []
        for (first, moment), (end, _) in pairwise([*sorted(self.moments), (self.count, 0)]):
            found += repeat(moment, end - first)
        return found

    def __repr__(self) -> str:
        state = f"failed: {self.error}" if self.error else "done" if self.done else "open"
        return f"<OutBatch of {len(self)} for {self.partition}: {state}>"


def fate(batch: ProducerBatch, index: int) -> tuple[ProducerBatch, int]:
    """The batch in which a record goes on now, and its index there."""
    while batch.places is not None:
        batch, index = batch.places[index]
    return batch, index


def divided(
    batch: ProducerBatch, groups: Sequence[Sequence[int]]
) -> tuple[list[ProducerBatch], list[tuple[ProducerBatch, int]]]:
    """A batch for the records of each group, and where each record of this one is then."""
    assert batch.data is not None
    found = read_rows(batch.data, max_decompressed=LAST_SEQUENCE)
    places: list[tuple[ProducerBatch, int]] = [(batch, 0)] * len(found)
    parts: list[ProducerBatch] = []
    for number, group in enumerate(groups):
        size = batch.size * len(group) // len(found) if number else 0
        part = ProducerBatch(batch.lane, size, batch.created, batch.deadline, (*batch.order, number))
        for index in group:
            record = found[index]
            places[index] = part, len(part)
            part.rows += (batch.timestamps[index], record.key, record.value, record.headers)
            part.count += 1
        part.left, part.sealed, part.moment = -1, True, None
        part.failures, part.why = batch.failures, batch.why
        parts.append(part)
    parts[0].size = batch.size - sum(part.size for part in parts)
    return parts, places


NOWHERE = BrokerConnection(-1, -1)


class PartitionQueue:
    """One partition's batches: those that wait, in order, and those that are under way."""

    __slots__ = (
        "batches",
        "filling",
        "halted",
        "identity",
        "known",
        "late_at",
        "next_sequence",
        "numbered",
        "owner",
        "partition",
        "renew",
        "soon_at",
        "under_way",
        "unexpected",
        "unnumber",
        "waiting",
        "way",
    )

    def __init__(self, partition: TopicPartition, owner: Any) -> None:
        self.partition = partition
        # Whose deliveries these are.
        self.owner = owner
        self.filling: ProducerBatch = NO_BATCH
        self.waiting: deque[ProducerBatch] = deque()
        self.under_way: list[ProducerBatch] = []
        # The connection that those were sent through.
        self.way = NOWHERE
        self.batches = 0
        # A batch failed: nothing goes out until nothing is under way any more.
        self.halted = False
        # When it is looked at again by itself: for a batch that lingers or backs off, and for a deadline.
        self.soon_at: int | None = None
        self.late_at: int | None = None
        self.identity: ProducerIdAndEpoch | None = None
        self.next_sequence = 0
        # How many batches had a number so far.
        self.numbered = 0
        # The partition's leader has taken a batch of this identity. Until then any sequence number would do
        # for it: a second batch could slip in before a first one that has to be sent again, and shut it out.
        self.known = False
        # A batch was given up, and perhaps the log has it, perhaps not: what has no number yet needs an
        # identity of its own. What has one keeps it: only with it the broker knows what it has already.
        self.renew = False
        # The broker said that the batch of this order, and so all after it, is not in the log: those may be
        # numbered anew, and not what is before it.
        self.unnumber: tuple[int, ...] | None = None
        # What the broker said so of, while others are under way: theirs may tell that it is there.
        self.unexpected: list[ProducerBatch] = []

    def oldest(self) -> int | None:
        """When its oldest open batch began; for any thread."""
        for batches in (self.under_way, self.waiting):
            with suppress(IndexError):  # the sender took it away meanwhile
                return batches[0].created
        return None if self.filling is NO_BATCH else self.filling.created

    def open(self) -> list[ProducerBatch]:
        """All batches that are not decided, in order."""
        return sorted(
            (batch for batch in (*self.under_way, *self.waiting) if not batch.done),
            key=lambda batch: batch.order,
        )

    def number(self, batch: ProducerBatch) -> None:
        """Gives the batch the next sequence number of the lane's identity."""
        batch.identity, batch.sequence, batch.number = self.identity, self.next_sequence, self.numbered
        self.next_sequence = (self.next_sequence + len(batch)) & LAST_SEQUENCE
        self.numbered += 1

    def put_back(self, batch: ProducerBatch) -> None:
        """Into the queue again, where its order wants it."""
        at = 0
        while at < len(self.waiting) and self.waiting[at].order < batch.order:
            at += 1
        self.waiting.insert(at, batch)

    def go_on(self) -> None:
        """All that was under way is back after a failure."""
        self.halted = False
        self.unexpected.clear()
        since, self.unnumber = self.unnumber, None
        if since is not None:
            self.renew = True
            for batch in self.waiting:
                if batch.order >= since:
                    batch.sequence = -1

    def not_there(self, since: tuple[int, ...]) -> None:
        """Of the batches from this order on none is in the log."""
        self.unnumber = since if self.unnumber is None else min(since, self.unnumber)

    def __repr__(self) -> str:
        return f"<Lane {self.partition}: {len(self.waiting)} wait, {len(self.under_way)} under way>"


NO_BATCH: ProducerBatch = ProducerBatch.__new__(ProducerBatch)
"""What a lane fills that fills none: it never has room."""
NO_BATCH.left = -1
NO_BATCH.sealed = True
NO_BATCH.done = True
