"""A producer without I/O: batches become Produce requests, answers become offsets.

Rules that hold here:

* A batch goes out when it is full, has waited linger.ms, or a flush asks. While its leader has enough under
  way it goes on taking records.
* Batches of a partition are sent in order and keep that order through retries (`fates`). Nothing that happens
  to one partition holds another one up.
* With idempotence every batch has an identity and a sequence number (`identity`), so that the broker drops
  what it has already.
* Every record's delivery ends: with an offset, or an error that says why, at the latest after
  delivery.timeout.ms, also while its request is open.
* An event costs what it is about (`schedule`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any
from uuid import UUID

from kproto.errors import AuthenticationFailed, EncodeError, IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kproto.records import renumber
from kproto.wire.message import Message

from ...delivery import Delivery
from ...errors import broker_error
from ...options import ProducerOptions
from ..admin import PATIENCE
from ..core import ClientCore
from ..error_actions import METADATA, ErrorAction, action_for
from ..events import Action, Tick
from ..metadata.cluster import NO_TOPIC_ID
from ..metadata.updater import MetadataUpdater
from ..network.client import NetworkClient
from ..network.connection import Call, Prepared
from ..network.transport import NetworkEvent
from ..requests import said_once
from .accumulator import RecordAccumulator
from .batches import (
    BrokerConnection,
    Headers,
    PartitionQueue,
    ProducerBatch,
)
from .produce_responses import ProduceResponses
from .producer_ids import SequenceNumbers
from .schedule import SendSchedule
from .transaction_states import TransactionalAppends
from .transactions import TransactionManager

TOPIC_IDS_FROM = 13


class ProducerEngine:
    """One producer. `append` is for the application's threads, with the guard held; the rest, and `step`, are
    called by one owner at a time."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        options: ProducerOptions,
        *,
        random: Random,
        wall: Callable[[], int] | None = None,
        guard: AbstractContextManager[Any] | None = None,
        clock: Callable[[], int] | None = None,
    ) -> None:
        network = NetworkClient(
            bootstrap,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=options.socket_connection_setup_timeout_ms,
            recovers=options.recovers,
            random=random,
            security=options.security,
        )
        self.options = options
        self.core: ClientCore[ProducerOptions] = ClientCore(options, network, wall, random)
        self.metadata = MetadataUpdater(self.core, self._metadata_changed)
        self._transactional = options.transactional_id is not None
        accumulator = TransactionalAppends if self._transactional else RecordAccumulator
        self.records = accumulator(options, random, clock or self.core.clock, guard)
        self.schedule = SendSchedule(self.core, self.metadata)
        self.fates = ProduceResponses(self.core, self.records, self.metadata)
        self._open: dict[BrokerConnection, int] = {}
        self._ids: dict[str, UUID | None] = {}
        self.transactions: TransactionManager | None = None
        if isinstance(self.records, TransactionalAppends):
            self.transactions = TransactionManager(
                self.core,
                self.records,
                self.fates,
                busy=lambda: any(self._open.values()),
                queued=self.schedule.queued,
            )
        self._numbering = self.transactions or SequenceNumbers(self.core, self._give_up_all)

    # ---- for the application

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        """See `Accumulator.take`."""
        return self.records.take(topic, key, value, partition, timestamp, headers)

    def flush(self) -> None:
        """Everything that is buffered goes out now."""
        with self.records.guard:
            self.records.seal_all()

    @property
    def open_records(self) -> int:
        return self.records.open_records

    @property
    def buffered(self) -> int:
        return self.records.buffered

    def fail(self, why: str) -> None:
        """The end: every delivery that is still open, and whoever waits for a transaction, is told why."""
        error = IllegalState(f"{why}; this record was not acknowledged")
        for batch in list(self.records.open):
            batch.error = error
            self.fates.end(batch)
        if self.transactions is not None:
            self.transactions.lose(IllegalState(why))

    # ---- what the application did

    def _hear(self) -> None:
        news = self.records.news()
        if news is None:
            return
        for topic in news.unknown:
            self.metadata.look_up(topic, has_waiters=True)
        if news.unknown and self.transactions is None:
            self._numbering.found()  # its id comes while leaders are looked up
        for batch in news.begun:
            if not batch.done:
                batch.lane.waiting.append(batch)
                self.schedule.place(batch.lane)
        for lane in news.ripe:
            self.schedule.place(lane)

    def _expire(self, lane: PartitionQueue) -> None:
        timeout = self.options.delivery_timeout_ms
        batches = lane.open()
        for batch in batches:
            if batch.deadline <= self.core.now:
                detail = f"{batch.partition}, {len(batch)} records: {self.excuse(batch)}"
                self.fates.give_up(batch, RequestTimedOut("Produce", timeout, detail))
        left = [batch.deadline for batch in batches if not batch.done]
        if left:
            self.schedule.look_at(lane, min(left), late=True)

    def excuse(self, batch: ProducerBatch) -> str:
        """Why a batch is still open."""
        if batch.why:
            return batch.why
        if batch in batch.lane.under_way:
            return "the broker has not answered yet"
        if self._numbering.missing:
            return "no broker has given this producer an id yet"
        return "its turn has not come"

    # ---- sending

    def _pump(self) -> None:
        self.metadata.pump()
        if self.transactions is not None:
            self.transactions.pump()
        queues = self.schedule.queues
        if not queues:
            return
        if not self._numbering.found():
            for way in queues:
                self.core.network.connect(way.node, self.core.now, lane=way.lane)
            return
        most = self.options.max_in_flight_requests_per_connection
        ways = list(queues)
        for way in ways:
            if self.core.network.throttled_until(*way) > self.core.now:
                continue  # it asks for quiet; what stands here takes more records meanwhile
            batches: list[ProducerBatch] = []
            while way in queues and self._open.get(way, 0) < most:
                batches = self._drain(way)
                if batches:
                    self._send(way, batches)
            more = way in queues or any(batch.lane.waiting for batch in batches)
            if more and self._open.get(way, 0) >= most and self.schedule.widen(way.node):
                ways += [new for new in self.schedule.ways(way.node) if new in queues]

    def _drain(self, way: BrokerConnection) -> list[ProducerBatch]:
        """What goes into one request: one batch of each lane, up to max.request.size."""
        queue = self.schedule.queues.pop(way)
        size = 0
        found: list[ProducerBatch] = []
        again: dict[PartitionQueue, None] = {}
        for lane in queue:
            if not lane.waiting or not self.schedule.free(lane, lane.waiting[0]):
                continue
            head = lane.waiting[0]
            if self.core.view.leader(lane.partition) != way.node or head.retry_at > self.core.now:
                self.schedule.place(lane)
                continue
            if found and size + head.size > self.options.max_request_size:
                again[lane] = None
                continue
            if not self._make(lane, head):
                continue
            size += head.size
            lane.waiting.popleft()
            lane.under_way.append(head)
            lane.way = way
            found.append(head)
        if again:
            self.schedule.queues[way] = {**again, **self.schedule.queues.get(way, {})}
        for batch in found:
            self.schedule.place(batch.lane)
        return found

    def _make(self, lane: PartitionQueue, batch: ProducerBatch) -> bool:
        """Makes the batch's bytes; False when they have to wait for an identity."""
        options = self.options
        if not batch.sealed:
            with self.records.guard:
                self.records.seal(batch)
        if not batch.count:  # Ctrl-C came before its first record did
            lane.waiting.remove(batch)
            self.fates.end(batch)
            self.schedule.place(lane)
            return False
        unnumbered = options.enable_idempotence and batch.sequence < 0
        if unnumbered and not self._numbering.number(lane, batch):
            self.schedule.look_at(lane, self.core.now)
            return False
        if batch.data is None:
            try:
                level = options.compression_level
                batch.encode(options.compression_type, level, transactional=self._transactional)
            except Exception as error:  # what the door let through by mistake harms only its own batch
                self.fates.give_up(batch, EncodeError("RecordBatch", 2, "records", f"{error!r}"))
                self.schedule.place(lane)  # what stands behind it
                return False
        elif unnumbered and batch.identity is not None:
            producer_id, epoch = batch.identity
            batch.data = renumber(
                batch.data, producer_id, epoch, batch.sequence, is_transactional=self._transactional
            )
        return True

    def _send(self, way: BrokerConnection, batches: list[ProducerBatch]) -> None:
        core, options = self.core, self.options

        def build(version: int) -> Message:
            topics: dict[str, TopicProduceData] = {}
            for batch in batches:
                if batch.done:
                    continue  # given up while the connection was made
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
                batch.attempts += 1
            return ProduceRequest(
                transactional_id=options.transactional_id,
                acks=options.acks,
                timeout_ms=options.request_timeout_ms,
                topic_data=list(topics.values()),
            )

        named = any(core.view.topic_id(batch.partition.topic) is None for batch in batches)
        ids = {core.view.topic_id(batch.partition.topic): batch.partition.topic for batch in batches}

        def answered(call: Call) -> None:
            self._answered(way, batches, ids, call)

        self._open[way] = self._open.get(way, 0) + 1
        core.network.send(
            Prepared(ProduceRequest, build),
            core.now,
            node=way.node,
            lane=way.lane,
            max_version=self._numbering.most(TOPIC_IDS_FROM - 1 if named else None),
            one_way=options.acks == 0,
            purpose=answered,
        )

    # ---- answers

    def _answered(
        self, way: BrokerConnection, batches: list[ProducerBatch], ids: Mapping[UUID | None, str], call: Call
    ) -> None:
        self._open[way] -= 1
        if self.options.acks == 0 and call.error is None:
            for batch in batches:
                self.fates.succeed(batch, None, -1)
        elif isinstance(call.response, ProduceResponse):
            for place in call.response.node_endpoints:
                self.core.view.set_address(place.node_id, place.host, place.port, place.rack)
            answers = said_once(
                (TopicPartition(name, entry.index), entry)
                for topic in call.response.responses
                for name in [ids.get(topic.topic_id, "") if call.version >= TOPIC_IDS_FROM else topic.name]
                for entry in topic.partition_responses
            )
            for batch in batches:
                self.fates.answered(batch, answers.get(batch.partition))
        else:
            error = call.error or RequestTimedOut("Produce", call.timeout_ms)
            for batch in batches:
                self.fates.unanswered(batch, error)
            self.schedule.broke(way)
        for batch in batches:
            self.schedule.place(batch.lane)
        if not any(self._open.get(other) for other in self.schedule.ways(way.node)):
            self.schedule.narrow(way.node)

    def _give_up_all(self, error: KprotoError) -> None:
        """Everything that could be sent now never can."""
        for lane in self.schedule.queued():
            for batch in lane.open():
                self.fates.give_up(batch, error)

    # ---- metadata

    def _metadata_changed(self, asked: frozenset[str] | None) -> None:
        for topic in sorted(self.metadata.topics if asked is None else asked):
            view = self.core.view.topics.get(topic)
            code, looks = self.metadata.topic_errors.get(topic, (0, 0))
            if view is not None and view.partitions and not view.error_code:
                count = len(view.partitions)  # as in Java; they are numbered from 0 on
                led = [index for index in range(count) if self._has_leader(TopicPartition(topic, index))]
                if self._ids.get(topic) != view.id:
                    self._ids[topic] = view.id
                    for index in view.partitions:
                        lane = self.records.lanes.get(TopicPartition(topic, index))
                        if lane is not None:
                            lane.known = False
                self.records.route(topic, count, led)
            elif code:
                self.records.forget(topic)
                for_good = action_for(METADATA, code) is ErrorAction.RAISE
                if for_good or looks >= PATIENCE:
                    self._refuse(topic, code, for_good)
            self.schedule.sought(topic)
        for way in list(self.schedule.queues):
            if self._open.get(way):
                self.schedule.moved(way)
        self.core.wake_poll()

    def _has_leader(self, partition: TopicPartition) -> bool:
        view = self.core.view.partition(partition)
        return view is not None and view.leader is not None

    def _refuse(self, topic: str, code: int, for_good: bool) -> None:
        """Nobody can write to this topic. What was sent to it waits, unless it will never be taken."""
        error = broker_error(code, "Metadata", f"topic {topic!r}")
        self.records.refuse(topic, error)
        stray = self.schedule.astray(topic)
        if for_good:
            for lane in stray:
                for batch in lane.open():
                    self.fates.give_up(batch, error)
        elif not stray:
            self.metadata.forget(topic)

    def _let_in_nowhere(self, error: AuthenticationFailed) -> None:
        """Who waits for metadata would wait in vain: tell whoever sends, and give up what was sent."""
        for topic in self.metadata.topics:
            self.records.refuse(topic, error)
            for lane in self.schedule.astray(topic):
                for batch in lane.open():
                    self.fates.give_up(batch, error)

    # ---- time

    def settle(self, *, look: bool = True) -> None:
        """Draws the consequences of what happened; with `look` also of the time. Answers come first: in a
        process that stood still they have waited longer than the deadlines."""
        core = self.core
        for error in core.errors.values():
            if isinstance(error, AuthenticationFailed):
                self._let_in_nowhere(error)
        core.errors.clear()  # who sends is told, from what the metadata says
        self._hear()
        self._answer()
        if look:
            self.metadata.tick()
            for lane, late in self.schedule.ripe():
                if late:
                    self._expire(lane)
                self.schedule.place(lane)
        self._pump()
        while core.network.finished:
            self._answer()
            self._pump()

    def _answer(self) -> None:
        finished, self.core.network.finished = self.core.network.finished, []
        for call in finished:
            if call.purpose is not None:
                call.purpose(call)

    def due(self) -> int | None:
        """When to call `step` with a Tick, if nothing happens before."""
        times = [self.core.network.next_deadline(), self.metadata.due()]
        if self.records.changed():
            times.append(self.core.now)
        times.append(self.schedule.due())
        free = [self.core.network.throttled_until(*way) for way in self.schedule.queues]
        times += [at for at in free if at > self.core.now]
        if self.schedule.queues or self._transactional:
            times.append(self._numbering.due())
        return min((at for at in times if at is not None), default=None)

    def take_actions(self) -> list[Action]:
        core = self.core
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        actions, core.actions = core.actions, []
        return actions


def step(engine: ProducerEngine, event: NetworkEvent | Tick | None, now: int) -> list[Action]:
    """Lets `event` happen at `now` and returns what to do, in order; None: the application did something.

    A Tick is for whoever has looked at the sockets since it was `now`: only then is a deadline one.
    """
    engine.core.now = now
    if isinstance(event, Tick):
        engine.core.network.tick(now)
    elif event is not None:
        engine.core.network.handle(event, now)
    engine.settle(look=isinstance(event, Tick))
    return engine.take_actions()
