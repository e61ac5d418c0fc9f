"""Where records become batches: the part of a producer that its application's threads are in.

Rules that hold here:

* One batch per partition takes records, until it is full, or the sender has come to it. A record is an entry
  in a list, or four; nothing is encoded and nothing is looked through: this is the innermost loop.
* Memory is bounded by buffer.memory, counted before compression, from the record's coming until its answer.
  While half of it is in use, a partition whose oldest record has waited for a second takes no more: so
  what can't be delivered leaves room for what can.
* A record needs no lock to find its place: nothing is called between the look at a batch's room and the
  place in it, so no other thread, signal handler or finalizer has a turn there. They have it anywhere else,
  and may send, too. Without a GIL `take` holds the guard.
* What is seldom holds the guard for a moment: a new batch, one that ends, a topic that isn't known. No code
  of the user's runs inside it, but what runs anywhere.
* Every open batch is in `open`, so that whoever ends this producer finds them all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from random import Random
from typing import Any

import msgspec

from kproto.error_codes import ErrorCode
from kproto.errors import IllegalState, KprotoError
from kproto.group.subscription import TopicPartition
from kproto.records.builder import UnnumberedBatch

from ...delivery import Delivery
from ...errors import broker_error
from ...options import ProducerOptions
from ...validation import topic_name
from ..timing import SENDER_WAKEUP_MS, STALLED_PARTITION_MS
from .batches import (
    NO_BATCH,
    DeliveryFailures,
    Headers,
    PartitionQueue,
    ProducerBatch,
    fate,
)
from .partitioner import Partitioner

# What a record costs besides its bytes, at most: seven varints, and some more in each header.
RECORD_OVERHEAD = 30
HEADER_OVERHEAD = 10
BATCH_OVERHEAD = 61
# A new batch gets so much memory; then it doubles, up to batch.size.
FIRST_BYTES = 4096
# Whether threads change only between instructions that call something.
GIL = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()


class TopicRoute(msgspec.Struct):
    """What a topic's records need: the lanes of its partitions, and those that have a leader."""

    topic: str
    lanes: list[PartitionQueue]
    led: list[PartitionQueue]
    sticky: PartitionQueue
    # How often the topic was looked at.
    version: int = 0
    # Bytes that `sticky` has had since records without a key go there.
    spent: int = 0


class Notifications(msgspec.Struct):
    """What happened here since the sender last looked: batches that began, lanes to look at."""

    begun: list[ProducerBatch] = msgspec.field(default_factory=list[ProducerBatch])
    ripe: list[PartitionQueue] = msgspec.field(default_factory=list[PartitionQueue])
    unknown: dict[str, None] = msgspec.field(default_factory=dict[str, None])


class RecordAccumulator:
    """The records of one producer that are not under way yet."""

    # Whether each record has to go through `take`; else the commonest may find its place as it does.
    gated = not GIL

    def __init__(
        self,
        options: ProducerOptions,
        random: Random,
        clock: Callable[[], int],
        guard: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.guard: AbstractContextManager[Any] = nullcontext() if guard is None else guard
        self.routes: dict[str, TopicRoute] = {}
        self.lanes: dict[TopicPartition, PartitionQueue] = {}
        self.open: dict[ProducerBatch, None] = {}
        self.buffered = 0
        self.ledger = DeliveryFailures()
        self.owner: Any = None
        # Called, with the guard held, when something happened that the sender should know of.
        self.stir: Callable[[], object] = self._note
        # That it did, for who has nobody to wake and looks here after a record.
        self.stirred = False
        self.why = ""
        # Why nothing is taken any more, "" while it is.
        self.closed = ""
        self.partitioner = Partitioner()
        self._hashes = self.partitioner.hashes
        self._options = options
        self._random = random
        self._clock = clock
        self._news = Notifications()
        # Topic -> why it can't be written to, since when; told to whoever waits, and not to who sends later.
        self.refused: dict[str, tuple[KprotoError, int]] = {}
        self._asked: set[str] = set()
        # Partition -> which look at its topic was the last before somebody missed it; when they did last.
        self._sought: dict[TopicPartition, tuple[int, int]] = {}
        if not GIL:
            take = self.take

            def guarded(*record: Any) -> Delivery | None:
                with self.guard:
                    return take(*record)

            setattr(self, "take", guarded)  # noqa: B010

    # ---- for the application's threads

    def take(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        """Takes a record; None when there is no room or no metadata yet, and `why` says which.

        Raises BrokerError for a topic or partition that can't be written to, and for a record above
        max_request_size.
        """
        route = self.routes.get(topic)
        if route is None:
            topic_name(topic)  # one that no request can name would spoil the request for all
            self._ask_for(topic)
            return None
        size = RECORD_OVERHEAD if value is None else RECORD_OVERHEAD + len(value)
        if key is not None:
            size += len(key)
            if partition is None:
                number = self._hashes.get(key)
                if number is None:
                    number = self.partitioner.number(key)
                lanes = route.lanes
                lane = lanes[number % len(lanes)]
            elif partition < len(route.lanes):
                lane = route.lanes[partition]
            else:
                self._missing(route, partition)
                return None
        elif partition is None:
            lane = route.sticky
        elif partition < len(route.lanes):
            lane = route.lanes[partition]
        else:
            self._missing(route, partition)
            return None
        if headers:
            size += sum([HEADER_OVERHEAD + 3 * len(name) + len(content or b"") for name, content in headers])
        row = timestamp, key, value, headers
        plain = key is None and not headers
        batch = lane.filling
        left = batch.left - size
        while left < 0 or not (batch.moment is None or (plain and batch.moment is timestamp)):
            with self.guard:
                if left < 0:
                    found = self._room(route, lane, size, key is None and partition is None)
                    if found is None:
                        return None
                    batch = found
                elif not (plain and batch.begin_moment(timestamp)):
                    batch.widen()
            left = batch.left - size
        batch.left = left
        index = batch.count
        batch.count = index + 1
        if batch.moment is None:
            batch.rows += row
        else:
            batch.rows.append(value)
        return Delivery(batch, index)

    def count(self, topic: str) -> int | None:
        """The number of the topic's partitions; None while it isn't known. Raises as `take`."""
        route = self.routes.get(topic)
        if route is None:
            self._ask_for(topic)
            return None
        return len(route.lanes)

    def put(
        self, topic: str, partition: int | None, made: UnnumberedBatch, timestamps: Sequence[int]
    ) -> ProducerBatch | None:
        """Takes a whole batch, behind all that its partition has had; None as `take`, raises as that does.
        The guard is held."""
        route, options = self.routes.get(topic), self._options
        if route is None:
            self._ask_for(topic)
            return None
        if partition is not None and partition >= len(route.lanes):
            self._missing(route, partition)
            return None
        size = len(made)
        if size > options.max_request_size:
            detail = f"a batch of {size} bytes for {topic!r}; max_request_size is {options.max_request_size}"
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        lane = route.sticky if partition is None else route.lanes[partition]
        if self.buffered and self.buffered + size > options.buffer_memory:
            self._full()
            return None
        if self._crowded(lane):
            return None
        if lane.filling is not NO_BATCH:
            self.seal(lane.filling)
        now = self._clock()
        lane.batches += 1
        batch = ProducerBatch(lane, size, now, now + options.delivery_timeout_ms, (lane.batches,))
        batch.made, batch.timestamps, batch.count = made, timestamps, made.count
        batch.sealed, batch.left = True, -1
        self.buffered += size
        self.open[batch] = None
        self._news.begun.append(batch)
        self._news.ripe.append(lane)
        if partition is None:
            self.move_on(route)
        self.stir()
        return batch

    def _missing(self, route: TopicRoute, partition: int) -> None:
        """The topic has no such partition, or has grown since it was looked at: two more looks decide, as the
        first one may have been on its way before it grew. Looks before somebody came say nothing."""
        place, now = TopicPartition(route.topic, partition), self._clock()
        with self.guard:
            before, last = self._sought.get(place, (route.version, now))
            if now - last > self._options.request_timeout_ms:  # they gave up: who waits comes after each look
                before = route.version
            self._sought[place] = before, now
            if route.version > before + 1:
                del self._sought[place]
                detail = f"{place}: the topic has the partitions 0 to {len(route.lanes) - 1}"
                raise broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "Produce", detail)
            self.why = f"no metadata for {place} yet"
            self._news.unknown[route.topic] = None
            self.stir()

    def _ask_for(self, topic: str) -> None:
        if self.closed:
            raise IllegalState(self.closed)
        with self.guard:
            error, at = self.refused.pop(topic, (None, 0))
            if error is not None and self._clock() - at <= SENDER_WAKEUP_MS:
                raise error
            self.why = f"no metadata for topic {topic!r} yet"
            self._asked.add(topic)
            self._news.unknown[topic] = None
            self.stir()

    def _room(
        self, route: TopicRoute, lane: PartitionQueue, size: int, movable: bool
    ) -> ProducerBatch | None:
        """A batch with room for a record of this size; None when there is no memory. The guard is held."""
        if self.closed:
            raise IllegalState(self.closed)
        options = self._options
        most = max(options.batch_size, size + BATCH_OVERHEAD)
        if size + BATCH_OVERHEAD > options.max_request_size:
            detail = (
                f"a record of {size} bytes for {route.topic!r}; "
                f"max_request_size is {options.max_request_size}, {BATCH_OVERHEAD} of them for the batch"
            )
            raise broker_error(ErrorCode.MESSAGE_TOO_LARGE, "Produce", detail)
        batch = lane.filling
        if batch is not NO_BATCH:
            used = batch.size - batch.left
            if used + size <= options.batch_size:
                return batch if self._grow(batch, used + size) else None
            self.seal(batch)
            if movable:
                if route.sticky is lane:
                    self.move_on(route)
                lane = route.sticky
                if lane.filling.left >= size:
                    return lane.filling
                if lane.filling is not NO_BATCH:
                    return self._room(route, lane, size, movable=False)
        if self._crowded(lane):
            return None
        want = min(most, max(FIRST_BYTES, size + BATCH_OVERHEAD))
        free = options.buffer_memory - self.buffered
        if want > free and self.buffered:
            want = size + BATCH_OVERHEAD
            if want > free:
                self._full()
                return None
        now = self._clock()
        lane.batches += 1
        batch = ProducerBatch(lane, want, now, now + options.delivery_timeout_ms, (lane.batches,))
        batch.left -= BATCH_OVERHEAD
        # In this order, as Ctrl-C may come between any two: what was begun without a record ends by itself.
        self.stir()
        self.buffered += want
        self._news.begun.append(batch)
        self.open[batch] = None
        lane.filling = batch
        return batch

    def _grow(self, batch: ProducerBatch, used: int) -> bool:
        want = min(self._options.batch_size, 2 * batch.size)
        want = max(want, used) - batch.size
        free = self._options.buffer_memory - self.buffered
        if want > free:
            want = used - batch.size
            if want > free:
                self._full()
                return False
        if batch.sealed:
            return True  # by who ran in between; it has no room, and that is seen
        batch.size += want
        batch.left += want
        self.buffered += want
        return True

    def _full(self) -> None:
        self.why = f"the buffer of {self._options.buffer_memory} bytes is full"
        self.seal_all()

    def _crowded(self, lane: PartitionQueue) -> bool:
        """Does this lane hold what others could use? It stands still, and half of the memory is in use."""
        options = self._options
        if self.buffered * 2 <= options.buffer_memory:
            return False
        oldest = lane.oldest()
        if oldest is None or self._clock() - oldest < STALLED_PARTITION_MS + options.linger_ms:
            return False
        self.why = (
            f"{lane.partition} has not been delivered to for {self._clock() - oldest} ms, "
            f"and half of the buffer of {options.buffer_memory} bytes is in use"
        )
        return True

    def move_on(self, route: TopicRoute) -> None:
        """Records without a key go to another partition from now on."""
        led = route.led
        if len(led) > 1 or led[0] is not route.sticky:
            others = [lane for lane in led if lane is not route.sticky]
            route.sticky = others[int(self._random.random() * len(others))]
        route.spent = 0

    def seal(self, batch: ProducerBatch) -> None:
        """The batch takes nothing more; with the guard held."""
        if batch.sealed:
            return
        batch.sealed = True
        lane = batch.lane
        left, batch.left = batch.left, -1
        batch.size -= left
        self.buffered -= left
        if lane.filling is batch:
            lane.filling = NO_BATCH
        route = self.routes.get(lane.partition.topic)
        if route is not None and route.sticky is lane:
            route.spent += batch.size
            if route.spent >= self._options.batch_size:
                self.move_on(route)
        self._news.ripe.append(lane)
        self.stir()

    def seal_all(self) -> None:
        """Everything that is here shall go out now; with the guard held."""
        for batch in [batch for batch in self.open if not batch.sealed]:
            self.seal(batch)

    # ---- for the sender

    def urgent(self) -> bool:
        """Something happened that doesn't wait for linger.ms."""
        return bool(self._news.ripe or self._news.unknown)

    def changed(self) -> bool:
        news = self._news
        return bool(news.begun or news.ripe or news.unknown)

    def news(self) -> Notifications | None:
        """What happened since the last time, None for nothing."""
        if not self.changed():
            return None
        with self.guard:
            news, self._news = self._news, Notifications()
        return news

    def route(self, topic: str, count: int, led: Iterable[int]) -> None:
        """The topic has `count` partitions, and these have a leader."""
        with self.guard:
            if self.closed:
                return
            old = self.routes.get(topic)
            self.refused.pop(topic, None)
            self._asked.discard(topic)
            lanes = [self._lane(topic, index) for index in range(count)]
            able = [lanes[index] for index in led] or lanes
            route = self.routes[topic] = TopicRoute(topic, lanes, able, able[0])
            route.version = 1 if old is None else old.version + 1
            if old is not None and old.sticky in able:
                route.sticky, route.spent = old.sticky, old.spent
            elif len(able) > 1:
                route.sticky = able[int(self._random.random() * len(able))]

    def _lane(self, topic: str, index: int) -> PartitionQueue:
        place = TopicPartition(topic, index)
        lane = self.lanes.get(place)
        if lane is None:
            lane = self.lanes[place] = PartitionQueue(place, self.owner)
        return lane

    def forget(self, topic: str) -> None:
        """The topic isn't known any more: who sends to it waits for metadata."""
        with self.guard:
            self.routes.pop(topic, None)

    def refuse(self, topic: str, error: KprotoError) -> None:
        """Who waits to send to this topic is told so; with nobody there, whoever comes looks anew."""
        with self.guard:
            if topic in self._asked:
                self._asked.remove(topic)
                self.refused[topic] = error, self._clock()

    def divided(
        self, batch: ProducerBatch, parts: list[ProducerBatch], places: list[tuple[ProducerBatch, int]]
    ) -> None:
        """The batch's records go on in these parts, and so do their callbacks."""
        with self.guard:
            self.open.pop(batch, None)
            self.open.update(dict.fromkeys(parts))
            for index, callback in batch.callbacks or ():
                part, at = places[index]
                part.callbacks = [*(part.callbacks or ()), (at, callback)]
            batch.callbacks = None
            batch.data = None
            batch.places = places

    def call_back(self, batch: ProducerBatch, index: int, callback: Callable[[], object]) -> bool:
        """Calls back when the record's fate is decided; False when it is already."""
        with self.guard:
            batch, index = fate(batch, index)
            if batch.done:
                return False
            if batch.callbacks is None:
                batch.callbacks = []
            batch.callbacks.append((index, callback))
            return True

    def looked_at(self, batch: ProducerBatch, index: int) -> None:
        """Somebody knows now that this record was not delivered: `tell` doesn't count it."""
        with self.guard:
            batch, index = fate(batch, index)
            if batch.seen is None:
                batch.seen = set()
            if batch.ledger is not None and index not in batch.seen:
                batch.seen.add(index)
                batch.ledger.count -= 1

    def end(self, batch: ProducerBatch) -> list[Callable[[], object]]:
        """The batch is decided: its memory is free; returns what to call, outside of the guard."""
        with self.guard:
            self.seal(batch)
            batch.done = True
            self.open.pop(batch, None)
            self.buffered -= batch.size
            callbacks, batch.callbacks = batch.callbacks, None
            if batch.error is not None:
                batch.ledger = ledger = self.ledger
                batch.seen = {index for index, _ in callbacks or ()}
                ledger.count += len(batch) - len(batch.seen)
                if ledger.first is None:
                    ledger.first = batch.error
            batch.data = batch.made = None
        return [] if callbacks is None else [callback for _, callback in callbacks]

    def _note(self) -> None:
        self.stirred = True

    def close(self, why: str) -> None:
        """Takes nothing from now on; for any thread."""
        with self.guard:
            self.closed = self.closed or why
            self.routes.clear()

    def tell(self) -> DeliveryFailures:
        """What was not delivered since the last time; with the guard held."""
        ledger, self.ledger = self.ledger, DeliveryFailures()
        return ledger

    @property
    def open_records(self) -> int:
        return sum(map(len, list(self.open)))
