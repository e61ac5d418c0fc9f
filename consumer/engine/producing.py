"""A producer without I/O: records become batches, batches become Produce requests, answers become offsets.

Rules that hold here:

* One batch per partition takes records; it goes out when it is full, has waited linger.ms, or a flush asks.
* Batches of a partition are sent in order and keep that order through retries: after a failure nothing new
  goes out for the partition until everything that was under way is back, then it goes out again in its old
  order.
* With idempotence every batch has the producer's id and a sequence number, so that the broker drops what
  it has already (KIP-98). When a batch is given up whose fate is unknown, or the broker doesn't know the
  id any more, a new id is asked for and sequences start again: the rest can't be taken for duplicates then.
* Memory is bounded by buffer.memory, counted before compression, from append until the answer.
* Every record's delivery ends: with an offset, or an error, at the latest after delivery.timeout.ms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from uuid import UUID

from kproto.errors import BatchFull, BrokerError, KprotoError, RequestTimedOut, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kproto.records import BatchBuilder, rows
from kproto.wire.message import Message

from ..errors import broker_error, is_retriable
from ..options import ProducerOptions
from .connection import Call, Prepared
from .core import Core, MetadataKeeper
from .events import Action, Tick
from .metadata import NO_TOPIC_ID
from .network import Network, NetworkEvent
from .partitioning import Partitioner
from .plans import PATIENCE

Header = tuple[str, bytes | None]

MESSAGE_TOO_LARGE = 10
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
DUPLICATE_SEQUENCE_NUMBER = 46
LOST_IDENTITY = (45, 47, 59)  # out of order, invalid epoch, unknown producer id
TOPIC_IDS_FROM = 13
LAST_SEQUENCE = 2**31 - 1
RECORD_OVERHEAD = 70  # Java's estimate of what a record costs besides its bytes, batch header included


class OutBatch:
    """Records of one partition that share one fate. `callbacks` are called when it is decided."""

    __slots__ = (
        "attempts",
        "base_offset",
        "builder",
        "callbacks",
        "closed",
        "created",
        "data",
        "deadline",
        "done",
        "error",
        "failures",
        "log_append_time",
        "order",
        "partition",
        "retry_at",
        "sequence",
        "size",
        "span",
    )

    def __init__(
        self, partition: TopicPartition, builder: BatchBuilder, created: int, deadline: int, order: float
    ) -> None:
        # Where it stands among its partition's batches; the halves of a split one share its `span`.
        self.order = order
        self.span = 1.0
        self.partition = partition
        self.builder = builder
        self.created = created
        self.deadline = deadline
        self.closed = False
        self.done = False
        self.data: bytes | None = None
        self.sequence = -1
        self.size = 0
        self.attempts = 0
        self.failures = 0
        self.retry_at = 0
        self.base_offset: int | None = None
        self.log_append_time: int | None = None
        self.error: KprotoError | None = None
        self.callbacks: list[Callable[[OutBatch], None]] | None = None

    @property
    def count(self) -> int:
        return len(self.builder)


@dataclass(slots=True)
class _Lane:
    """One partition's batches: waiting ones, and those under way, both in order."""

    partition: TopicPartition
    waiting: deque[OutBatch] = field(default_factory=deque[OutBatch])
    under_way: list[OutBatch] = field(default_factory=list[OutBatch])
    next_sequence: int = 0
    batches: int = 0
    # A batch failed: wait until nothing is under way any more.
    halted: bool = False
    # The partition's leader has taken a batch of this producer id. Until then any sequence number would do
    # for it: a second batch could slip in before a first one that has to be sent again, and shut it out.
    known: bool = False


@dataclass(slots=True)
class _Route:
    """What `append` needs of a topic: how many partitions, which have a leader, their lanes."""

    count: int
    led: list[int]
    lanes: dict[int, _Lane] = field(default_factory=dict[int, _Lane])


@dataclass(frozen=True, slots=True)
class Full:
    """The buffer has no room, or the topic isn't known yet: try again when something happened."""

    why: str


class ProducerEngine:
    """One producer. Its methods and `step` are called by one owner at a time; each leaves `take_actions`."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        options: ProducerOptions,
        *,
        random: Random,
        wall_offset_ms: int = 0,
    ) -> None:
        network = Network(
            bootstrap,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=options.socket_connection_setup_timeout_ms,
        )
        self.options = options
        self.core: Core[ProducerOptions] = Core(options, network, wall_offset_ms)
        self.metadata = MetadataKeeper(self.core)
        self.metadata.changed = self._metadata_changed
        self.buffered = 0
        self.open_records = 0
        # A batch became full since the shell last looked: there is something to send at once.
        self.filled = False
        self.closed = False
        self._partitioner = Partitioner(random, options.batch_size)
        self._lanes: dict[TopicPartition, _Lane] = {}
        self._busy: set[TopicPartition] = set()
        self._open: dict[int, int] = {}
        self._routes: dict[str, _Route] = {}
        self._flushing = False
        self._producer_id: int | None = None
        self._producer_epoch = -1
        self._id_call: Call | None = None
        self._id_at = 0
        self._id_stale = False

    # ---- taking records

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Sequence[Header],
    ) -> tuple[OutBatch, int] | Full:
        """Puts a record into its batch: (batch, index in it). Raises BrokerError for a topic that can't be
        written to, and MESSAGE_TOO_LARGE's BrokerError for a record above max_request_size."""
        route = self._routes.get(topic)
        if route is None:
            route = self._know(topic)
            if route is None:
                return Full(f"no metadata for topic {topic!r} yet")
        size = RECORD_OVERHEAD
        if value is not None:
            size += len(value)
        if key is not None:
            size += len(key)
            if partition is None:
                partition = self._partitioner.keyed(key, route.count)
        if self.buffered and self.buffered + size > self.options.buffer_memory:
            return Full(f"the buffer of {self.options.buffer_memory} bytes is full")
        if size > self.options.max_request_size:
            detail = f"a record of {size} bytes; max_request_size is {self.options.max_request_size}"
            raise broker_error(MESSAGE_TOO_LARGE, "Produce", detail)
        if partition is None:
            partition = self._partitioner.unkeyed(topic, size, route.led)
        lane = route.lanes.get(partition) or self._lane(route, topic, partition)
        waiting = lane.waiting
        batch = waiting[-1] if waiting else None
        if batch is None or batch.closed:
            batch = self._new_batch(lane)
        try:
            batch.builder.append(timestamp, key, value, headers)
        except BatchFull:
            batch.closed = True
            self.filled = True
            batch = self._new_batch(lane)
            batch.builder.append(timestamp, key, value, headers)
        batch.size += size
        self.buffered += size
        self.open_records += 1
        return batch, len(batch.builder) - 1

    def _lane(self, route: _Route, topic: str, partition: int) -> _Lane:
        if not 0 <= partition < route.count:
            raise broker_error(3, "Produce", f"{topic}-{partition}: the topic has {route.count} partitions")
        place = TopicPartition(topic, partition)
        lane = self._lanes.get(place)
        if lane is None:
            lane = self._lanes[place] = _Lane(place)
        route.lanes[partition] = lane
        return lane

    def _new_batch(self, lane: _Lane) -> OutBatch:
        options, now = self.options, self.core.now
        builder = BatchBuilder(options.compression_type, options.batch_size, options.compression_level)
        lane.batches += 1
        batch = OutBatch(lane.partition, builder, now, now + options.delivery_timeout_ms, lane.batches)
        lane.waiting.append(batch)
        self._busy.add(lane.partition)
        return batch

    def _know(self, topic: str) -> _Route | None:
        view = self.core.view.topics.get(topic)
        if view is not None and view.partitions and not view.error_code:
            led = [index for index in sorted(view.partitions) if view.partitions[index].leader is not None]
            route = self._routes[topic] = _Route(len(view.partitions), led or sorted(view.partitions))
            self.metadata.watch(self.metadata.topics | {topic})
            return route
        if topic not in self.metadata.topics:
            self.metadata.watch(self.metadata.topics | {topic})
        code, looks = self.metadata.refusals.get(topic, (0, 0))
        if code and (not is_retriable(code) or looks >= PATIENCE):
            self.metadata.watch(self.metadata.topics - {topic})
            raise broker_error(code, "Metadata", f"topic {topic!r}")
        return None

    def _metadata_changed(self, asked: frozenset[str] | None) -> None:
        self._routes.clear()
        self.core.wake()

    # ---- sending

    def flush(self) -> None:
        """Everything that is buffered goes out now; over when `open_records` is 0."""
        self._flushing = True

    def pump(self) -> None:
        self.metadata.pump()
        if not self._busy:
            self._flushing = False
            return
        if self.options.enable_idempotence and not self._identified():
            return
        nodes: dict[int, list[_Lane]] = {}
        for place in self._busy:
            lane = self._lanes[place]
            if self._ready(lane):
                leader = self.core.view.leader(place)
                if leader is None:
                    self.metadata.need()
                else:
                    nodes.setdefault(leader, []).append(lane)
        most = self.options.max_in_flight_requests_per_connection
        for node, lanes in nodes.items():
            while lanes and self._open.get(node, 0) < most:
                batches = self._drain(lanes)
                if not batches:
                    break
                self._send(node, batches)
                lanes = [lane for lane in lanes if self._ready(lane)]

    def _ready(self, lane: _Lane) -> bool:
        if not lane.waiting or len(lane.under_way) >= self._most(lane):
            return False
        if lane.halted:
            if lane.under_way:
                return False
            lane.halted = False
        head = lane.waiting[0]
        if head.retry_at > self.core.now:
            return False
        full = head.closed or len(lane.waiting) > 1 or head.attempts > 0
        late = self.core.now >= head.created + self.options.linger_ms
        return full or late or self._flushing or self.buffered * 2 > self.options.buffer_memory

    def _most(self, lane: _Lane) -> int:
        """How many batches of a partition may be under way."""
        if self.options.enable_idempotence and not lane.known:
            return 1
        return self.options.max_in_flight_requests_per_connection

    def _drain(self, lanes: list[_Lane]) -> list[OutBatch]:
        size = 0
        found: list[OutBatch] = []
        for lane in lanes:
            head = lane.waiting[0]
            if found and size + head.size > self.options.max_request_size:
                continue
            size += head.size
            lane.waiting.popleft()
            lane.under_way.append(head)
            self._finish_batch(lane, head)
            found.append(head)
        return found

    def _finish_batch(self, lane: _Lane, batch: OutBatch) -> None:
        batch.closed = True
        if batch.data is not None:
            return
        if self.options.enable_idempotence:
            batch.sequence = lane.next_sequence
            lane.next_sequence = (lane.next_sequence + batch.count) & LAST_SEQUENCE
            assert self._producer_id is not None
            batch.data = batch.builder.build(
                producer_id=self._producer_id,
                producer_epoch=self._producer_epoch,
                base_sequence=batch.sequence,
            )
        else:
            batch.data = batch.builder.build()

    def _send(self, node: int, batches: list[OutBatch]) -> None:
        core, options = self.core, self.options

        def build(version: int) -> Message:
            topics: dict[str, TopicProduceData] = {}
            for batch in batches:
                name = batch.partition.topic
                topic = topics.get(name)
                if topic is None:
                    if version >= TOPIC_IDS_FROM:
                        topic_id = core.view.topic_id(name) or NO_TOPIC_ID
                        topic = TopicProduceData(topic_id=topic_id, partition_data=[])
                    else:
                        topic = TopicProduceData(name=name, partition_data=[])
                    topics[name] = topic
                entry = PartitionProduceData(index=batch.partition.partition, records=batch.data)
                topic.partition_data.append(entry)
            return ProduceRequest(
                acks=options.acks, timeout_ms=options.request_timeout_ms, topic_data=list(topics.values())
            )

        named = any(core.view.topic_id(batch.partition.topic) is None for batch in batches)
        ids = {core.view.topic_id(batch.partition.topic): batch.partition.topic for batch in batches}

        def answered(call: Call) -> None:
            self._answered(node, batches, ids, call)

        self._open[node] = self._open.get(node, 0) + 1
        for batch in batches:
            batch.attempts += 1
        core.network.ask(
            Prepared(ProduceRequest, build),
            core.now,
            node=node,
            max_version=TOPIC_IDS_FROM - 1 if named else None,
            one_way=options.acks == 0,
            purpose=answered,
        )

    # ---- answers

    def _answered(
        self, node: int, batches: list[OutBatch], ids: Mapping[UUID | None, str], call: Call
    ) -> None:
        self._open[node] -= 1
        if self.options.acks == 0 and call.error is None:
            for batch in batches:
                self._succeed(batch, None, -1)
            return
        if not isinstance(call.response, ProduceResponse):
            error = call.error or RequestTimedOut("Produce", call.timeout_ms)
            self.metadata.need()
            for batch in batches:
                if isinstance(error, UnsupportedVersion):
                    self._give_up(batch, error)
                else:
                    self.core.view.forget_leader(batch.partition)
                    self._retry(batch)
            return
        answers: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in call.response.responses:
            name = ids.get(topic.topic_id, "") if call.version >= TOPIC_IDS_FROM else topic.name
            for entry in topic.partition_responses:
                answers[TopicPartition(name, entry.index)] = entry
        for batch in batches:
            answer = answers.get(batch.partition)
            if answer is None:
                self._retry(batch)
            elif answer.error_code in (0, DUPLICATE_SEQUENCE_NUMBER):
                offset = answer.base_offset if answer.base_offset >= 0 else None
                self._succeed(batch, offset, answer.log_append_time_ms)
            else:
                self._refused(batch, answer)

    def _refused(self, batch: OutBatch, answer: PartitionProduceResponse) -> None:
        code = answer.error_code
        lane = self._lanes[batch.partition]
        if code == MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(lane, batch)
        elif code in LOST_IDENTITY and self.options.enable_idempotence:
            earlier = any(other.order < batch.order for other in (*lane.under_way, *lane.waiting))
            if code == OUT_OF_ORDER_SEQUENCE_NUMBER and earlier:
                self._retry(batch, innocent=True)  # of course: the batch before it is not there yet
            else:
                self._id_stale = True
                if code == OUT_OF_ORDER_SEQUENCE_NUMBER:
                    self._give_up(batch, self._error(code, batch, answer))
                else:
                    self._retry(batch)
        elif is_retriable(code):
            if code in (3, 5, 6, 74, 76, 100):
                self.core.view.forget_leader(batch.partition)
                self.metadata.need()
            self._retry(batch)
        else:
            self._give_up(batch, self._error(code, batch, answer))

    def _error(self, code: int, batch: OutBatch, answer: PartitionProduceResponse) -> BrokerError:
        words = answer.error_message or ""
        if answer.record_errors:
            first = answer.record_errors[0]
            words = f"{words} record {first.batch_index}: {first.batch_index_error_message or ''}".strip()
        detail = f"{batch.partition}, {batch.count} records" + (f": {words}" if words else "")
        return broker_error(code, "Produce", detail)

    def _succeed(self, batch: OutBatch, offset: int | None, append_time: int) -> None:
        self._lanes[batch.partition].known = True
        batch.base_offset = offset
        batch.log_append_time = append_time if append_time >= 0 else None
        self._end(batch)

    def _retry(self, batch: OutBatch, *, innocent: bool = False) -> None:
        """Back into the queue, in the old order; the lane waits until all is back.

        An `innocent` batch failed only because the one before it did: it waits for no backoff of its own.
        """
        lane = self._lanes[batch.partition]
        lane.under_way.remove(batch)
        lane.halted = True
        if not innocent:
            options = self.options
            batch.retry_at = self.core.now + min(
                options.retry_backoff_max_ms, options.retry_backoff_ms << min(batch.failures, 10)
            )
            batch.failures += 1
        self._put_back(lane, batch)

    @staticmethod
    def _put_back(lane: _Lane, batch: OutBatch) -> None:
        at = 0
        while at < len(lane.waiting) and lane.waiting[at].order < batch.order:
            at += 1
        lane.waiting.insert(at, batch)

    def _give_up(self, batch: OutBatch, error: KprotoError) -> None:
        batch.error = error
        self.core.report("undelivered", [batch.partition], reason=f"{batch.count} records: {error}")
        if batch.attempts and self.options.enable_idempotence:
            self._id_stale = True  # its sequence numbers are a hole now
        self._end(batch)

    def _end(self, batch: OutBatch) -> None:
        lane = self._lanes[batch.partition]
        if batch in lane.under_way:
            lane.under_way.remove(batch)
        else:
            lane.waiting.remove(batch)
        if not lane.under_way and not lane.waiting:
            self._busy.discard(batch.partition)
        self.buffered -= batch.size
        self.open_records -= batch.count
        batch.done = True
        batch.data = None
        for callback in batch.callbacks or ():
            callback(batch)
        self.core.wake()

    def _split(self, lane: _Lane, batch: OutBatch) -> None:
        """The broker says the batch is too large: its records go out in two halves, one at a time."""
        assert batch.data is not None
        records = rows(batch.data)
        half = len(records) // 2
        parts: list[OutBatch] = []
        for some in (records[:half], records[half:]):
            builder = BatchBuilder(self.options.compression_type, 2**31 - 1, self.options.compression_level)
            for record in some:
                builder.append(record.timestamp, record.key, record.value, record.headers)
            order = batch.order + len(parts) * batch.span / 2
            part = OutBatch(batch.partition, builder, batch.created, batch.deadline, order)
            part.span = batch.span / 2
            part.closed = True
            part.attempts = 1
            part.size = batch.size * len(some) // len(records)
            parts.append(part)
        parts[1].size = batch.size - parts[0].size
        if self.options.enable_idempotence:
            assert self._producer_id is not None
            for part, sequence in zip(parts, (batch.sequence, batch.sequence + half), strict=True):
                part.sequence = sequence & LAST_SEQUENCE
                part.data = part.builder.build(
                    producer_id=self._producer_id,
                    producer_epoch=self._producer_epoch,
                    base_sequence=part.sequence,
                )
        done = [0]

        def both(part: OutBatch) -> None:
            done[0] += 1
            if done[0] < 2:
                return
            batch.error = parts[0].error or parts[1].error
            batch.base_offset = parts[0].base_offset
            batch.log_append_time = parts[0].log_append_time
            batch.done = True
            for callback in batch.callbacks or ():
                callback(batch)

        for part in parts:
            part.callbacks = [both]
        lane.under_way.remove(batch)
        lane.halted = True
        for part in parts:
            self._put_back(lane, part)

    # ---- the producer's id

    def _identified(self) -> bool:
        core = self.core
        if self._id_stale:
            if any(self._lanes[place].under_way for place in self._busy):
                return False
            self._id_stale = False
            self._producer_id = None
            for lane in self._lanes.values():
                lane.next_sequence = 0
                lane.known = False
                for batch in lane.waiting:
                    batch.data = None
        if self._producer_id is not None:
            return True
        if self._id_call is None and self._id_at <= core.now:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            self._id_call = core.ask(request, self._identity)
        return False

    def _identity(self, call: Call) -> None:
        self._id_call = None
        self._id_at = self.core.now + self.options.retry_backoff_ms
        error = call.error
        if isinstance(call.response, InitProducerIdResponse):
            code = call.response.error_code
            if not code:
                self._producer_id = call.response.producer_id
                self._producer_epoch = call.response.producer_epoch
                return
            error = broker_error(code, "InitProducerId")
            if is_retriable(code):
                return
        elif not isinstance(error, UnsupportedVersion):
            return
        assert error is not None
        for place in list(self._busy):
            for batch in list(self._lanes[place].waiting):
                self._give_up(batch, error)

    # ---- time

    def expire(self) -> None:
        now = self.core.now
        for place in list(self._busy):
            for batch in [batch for batch in self._lanes[place].waiting if batch.deadline <= now]:
                detail = f"{batch.partition}, {batch.count} records"
                self._give_up(batch, RequestTimedOut("Produce", self.options.delivery_timeout_ms, detail))

    def settle(self) -> None:
        core = self.core
        self.expire()
        while True:
            self.pump()
            if not core.network.finished:
                return
            finished, core.network.finished = core.network.finished, []
            for call in finished:
                if call.purpose is not None:
                    call.purpose(call)

    def due(self) -> int | None:
        times = [self.core.network.next_deadline(), self.metadata.due()]
        waiting_for_id = self.options.enable_idempotence and self._producer_id is None
        for place in self._busy:
            lane = self._lanes[place]
            if not lane.waiting:
                continue
            head = lane.waiting[0]
            times.append(head.deadline)
            if waiting_for_id:
                times.append(self._id_at if self._id_call is None else None)
            elif not lane.halted and len(lane.under_way) < self._most(lane):
                at = max(head.retry_at, 0 if head.closed else head.created + self.options.linger_ms)
                if at > self.core.now:
                    times.append(at)
            elif lane.halted and not lane.under_way:
                times.append(head.retry_at)
        return min((at for at in times if at is not None), default=None)

    def take_actions(self) -> list[Action]:
        core = self.core
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        actions, core.actions = core.actions, []
        return actions


def step(engine: ProducerEngine, event: NetworkEvent | Tick, now: int) -> list[Action]:
    """Lets `event` happen at `now` and returns what to do, in order."""
    engine.core.now = now
    if isinstance(event, Tick):
        engine.core.network.tick(now)
    else:
        engine.core.network.happened(event, now)
    engine.settle()
    return engine.take_actions()
