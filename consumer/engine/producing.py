"""A producer without I/O: batches become Produce requests, answers become offsets.

Rules that hold here:

* A batch goes out when it is full, has waited linger.ms, or a flush asks. While its leader has enough under
  way it goes on taking records.
* Batches of a partition are sent in order and keep that order through retries: after a failure nothing new
  goes out for the partition until everything that was under way is back, then it goes out again in its old
  order. Nothing that happens to one partition holds another one up.
* With idempotence every batch has an identity and a sequence number (`identity`), so that the broker drops
  what it has already. When a batch is given up whose fate is unknown, what has no number yet goes out under
  the next epoch, after all that has one; when the broker says that one is missing, it and all after it are
  not in the log, and are numbered anew (as Java does since KIP-360).
* Every record's delivery ends: with an offset, or an error that says why, at the latest after
  delivery.timeout.ms, also while its request is open.
* An event costs what it is about: lanes stand in their leader's queue, among those that have no leader, or on
  a heap of times, and are looked at when something happened to them.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from kproto.error_codes import ErrorCode, describe
from kproto.errors import (
    AuthenticationFailed,
    BrokerError,
    EncodeError,
    KprotoError,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.group.subscription import TopicPartition
from kproto.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kproto.records import renumber
from kproto.wire.message import Message

from ..delivery import Delivery
from ..errors import broker_error
from ..options import ProducerOptions
from .accumulator import Accumulator
from .answers import METADATA, PRODUCE, Do, to_do
from .batches import Headers, Lane, OutBatch, divided
from .connection import Call, Prepared
from .core import Core, MetadataKeeper
from .events import Action, CallBack, Tick
from .identity import Numbering
from .metadata import NO_TOPIC_ID
from .network import Network, NetworkEvent
from .plans import PATIENCE

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
        network = Network(
            bootstrap,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=options.socket_connection_setup_timeout_ms,
            random=random,
            security=options.security,
        )
        self.options = options
        self.core: Core[ProducerOptions] = Core(options, network, wall, random)
        self.metadata = MetadataKeeper(self.core, self._metadata_changed)
        self.records = Accumulator(options, random, clock or self.core.clock, guard)
        self._queues: dict[int, dict[Lane, None]] = {}
        self._astray: dict[str, dict[Lane, None]] = {}
        self._times: list[tuple[int, int, Lane]] = []
        self._ticket = count()
        self._open: dict[int, int] = {}
        self._ids: dict[str, UUID | None] = {}
        self._numbering = Numbering(self.core, self._give_up_all)

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

    def fail(self, error: KprotoError) -> None:
        """The end: every delivery that is still open ends with this error."""
        for batch in list(self.records.open):
            batch.error = error
            self._end(batch)

    # ---- what the application did

    def _hear(self) -> None:
        news = self.records.news()
        if news is None:
            return
        for topic in news.unknown:
            self.metadata.look_up(topic)
        for batch in news.begun:
            if not batch.done:
                batch.lane.waiting.append(batch)
                self._place(batch.lane)
        for lane in news.ripe:
            self._place(lane)

    # ---- where a lane belongs

    def _place(self, lane: Lane) -> None:
        """Puts a lane where it belongs: into its leader's queue, among the leaderless, or to a later time."""
        if lane.halted and not lane.under_way:
            self._go_on(lane)
        if not lane.waiting:
            return
        head = lane.waiting[0]
        if lane.late_at is None:
            self._look_at(lane, head.deadline, late=True)
        if not self._free(lane, head):
            return  # until an answer comes
        at = head.retry_at
        if not head.sealed:
            at = max(at, head.created + self.options.linger_ms)
        if at > self.core.now:
            self._look_at(lane, at)
            return
        leader = self.core.view.leader(lane.partition)
        if leader is None:
            head.why = head.why or "the partition has no leader"
            self._astray.setdefault(lane.partition.topic, {})[lane] = None
            self.metadata.look_up(lane.partition.topic)
        else:
            self._queues.setdefault(leader, {})[lane] = None

    def _free(self, lane: Lane, head: OutBatch) -> bool:
        """May this batch go out, as far as those that are under way are concerned?"""
        if lane.halted:
            return False
        first = not lane.known or (lane.renew and head.sequence < 0)
        if self.options.enable_idempotence and first and lane.under_way:
            return False
        return len(lane.under_way) < self.options.max_in_flight_requests_per_connection

    def _go_on(self, lane: Lane) -> None:
        """All that was under way is back after a failure."""
        lane.halted = False
        if lane.unnumber:
            lane.unnumber = False
            lane.renew = True
            for batch in lane.waiting:
                batch.sequence = -1

    def _look_at(self, lane: Lane, at: int, *, late: bool = False) -> None:
        if late:
            lane.late_at = at
        elif lane.soon_at is not None and lane.soon_at <= at:
            return
        else:
            lane.soon_at = at
        heapq.heappush(self._times, (at, next(self._ticket), lane))

    def _look(self) -> None:
        """Looks at the lanes whose time has come."""
        now = self.core.now
        while self._times and self._times[0][0] <= now:
            _, _, lane = heapq.heappop(self._times)
            if lane.soon_at is not None and lane.soon_at <= now:
                lane.soon_at = None
            if lane.late_at is not None and lane.late_at <= now:
                lane.late_at = None
                self._expire(lane)
            self._place(lane)

    def _expire(self, lane: Lane) -> None:
        timeout = self.options.delivery_timeout_ms
        batches = lane.open()
        for batch in batches:
            if batch.deadline <= self.core.now:
                detail = f"{batch.partition}, {len(batch)} records: {self.excuse(batch)}"
                self._give_up(batch, RequestTimedOut("Produce", timeout, detail))
        left = [batch.deadline for batch in batches if not batch.done]
        if left:
            self._look_at(lane, min(left), late=True)

    def excuse(self, batch: OutBatch) -> str:
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
        if not self._queues or not self._numbering.found():
            return
        most = self.options.max_in_flight_requests_per_connection
        for node in list(self._queues):
            while node in self._queues and self._open.get(node, 0) < most:
                batches = self._drain(node)
                if batches:
                    self._send(node, batches)

    def _drain(self, node: int) -> list[OutBatch]:
        """What goes into one request: one batch of each lane, up to max.request.size."""
        queue = self._queues.pop(node)
        size = 0
        found: list[OutBatch] = []
        again: dict[Lane, None] = {}
        for lane in queue:
            if not lane.waiting or not self._free(lane, lane.waiting[0]):
                continue
            head = lane.waiting[0]
            if self.core.view.leader(lane.partition) != node or head.retry_at > self.core.now:
                self._place(lane)
                continue
            if found and size + head.size > self.options.max_request_size:
                again[lane] = None
                continue
            if not self._make(lane, head):
                continue
            size += head.size
            lane.waiting.popleft()
            lane.under_way.append(head)
            found.append(head)
        if again:
            self._queues[node] = {**again, **self._queues.get(node, {})}
        for batch in found:
            self._place(batch.lane)
        return found

    def _make(self, lane: Lane, batch: OutBatch) -> bool:
        """Makes the batch's bytes; False when they have to wait for an identity."""
        options = self.options
        if not batch.sealed:
            with self.records.guard:
                self.records.seal(batch)
        unnumbered = options.enable_idempotence and batch.sequence < 0
        if unnumbered and not self._numbering.number(lane, batch):
            self._look_at(lane, self.core.now)
            return False
        if batch.data is None:
            try:
                batch.encode(options.compression_type, options.compression_level)
            except Exception as error:  # what the door let through by mistake harms only its own batch
                self._give_up(batch, EncodeError("RecordBatch", 2, "records", f"{error!r}"))
                return False
        elif unnumbered and batch.identity is not None:
            batch.data = renumber(batch.data, *batch.identity, batch.sequence)
        return True

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
                batch.attempts += 1
            return ProduceRequest(
                acks=options.acks, timeout_ms=options.request_timeout_ms, topic_data=list(topics.values())
            )

        named = any(core.view.topic_id(batch.partition.topic) is None for batch in batches)
        ids = {core.view.topic_id(batch.partition.topic): batch.partition.topic for batch in batches}

        def answered(call: Call) -> None:
            self._answered(node, batches, ids, call)

        self._open[node] = self._open.get(node, 0) + 1
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
        elif isinstance(call.response, ProduceResponse):
            answers: dict[tuple[str, int], PartitionProduceResponse] = {}
            for topic in call.response.responses:
                name = ids.get(topic.topic_id, "") if call.version >= TOPIC_IDS_FROM else topic.name
                for entry in topic.partition_responses:
                    answers[name, entry.index] = entry
            for batch in batches:
                self._decide(batch, answers.get((batch.partition.topic, batch.partition.partition)))
        else:
            error = call.error or RequestTimedOut("Produce", call.timeout_ms)
            for batch in batches:
                self._unanswered(batch, error)
        for batch in batches:
            self._place(batch.lane)

    def _unanswered(self, batch: OutBatch, error: KprotoError) -> None:
        batch.lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = str(error)
        if isinstance(error, UnsupportedVersion | EncodeError | AuthenticationFailed):
            self._give_up(batch, error)
        else:
            self.core.view.forget_leader(batch.partition)
            self._retry(batch)

    def _decide(self, batch: OutBatch, answer: PartitionProduceResponse | None) -> None:
        lane = batch.lane
        if answer is None:
            lane.under_way.remove(batch)
            if not batch.done:
                batch.why = "the broker's answer doesn't mention the partition"
                self._retry(batch)
            return
        what = to_do(PRODUCE, answer.error_code)
        if what is Do.take:
            self._succeed(batch, answer.base_offset, answer.log_append_time_ms)
            return
        lane.under_way.remove(batch)
        if batch.done:
            return
        batch.why = f"the broker answers {describe(answer.error_code)}"
        if answer.error_message:
            batch.why += f": {answer.error_message}"
        if what is Do.divide and len(batch) > 1:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])
        elif what is Do.sort_out and len(batch) > 1:
            self._sort_out(batch, answer)
        elif what is Do.renumber and self.options.enable_idempotence:
            self._renumber(batch)
        elif what is Do.retry or what is Do.refresh:
            if what is Do.refresh:
                self._led(batch, answer)
            self._retry(batch)
        else:
            self._give_up(batch, self._error(batch, answer))

    def _led(self, batch: OutBatch, answer: PartitionProduceResponse) -> None:
        """Another broker leads now; the answer may say which (KIP-951)."""
        view = self.core.view
        view.forget_leader(batch.partition)
        leader = answer.current_leader
        if leader.leader_id in view.brokers and leader.leader_epoch >= 0:
            view.led(batch.partition, leader.leader_id, leader.leader_epoch)
        else:
            self.metadata.look_up(batch.partition.topic)
        if answer.error_code != ErrorCode.NOT_LEADER_OR_FOLLOWER:
            batch.lane.known = False  # perhaps it is another topic of that name, soon

    def _error(self, batch: OutBatch, answer: PartitionProduceResponse, index: int = -1) -> BrokerError:
        words = answer.error_message or ""
        for one in answer.record_errors:
            if index in (-1, one.batch_index):
                words = f"{words} record {one.batch_index}: {one.batch_index_error_message or ''}".strip()
                break
        detail = f"{batch.partition}, {len(batch)} records" + (f": {words}" if words else "")
        return broker_error(answer.error_code, "Produce", detail)

    def _succeed(self, batch: OutBatch, offset: int | None, append_time: int) -> None:
        lane = batch.lane
        lane.under_way.remove(batch)
        if batch.identity == lane.identity:
            lane.known = True
        if batch.done:
            return
        batch.base_offset = offset if offset is not None and offset >= 0 else None
        batch.log_append_time = append_time if append_time >= 0 else None
        self._end(batch)

    def _retry(self, batch: OutBatch, *, innocent: bool = False) -> None:
        """Back into the queue, in the old order; the lane waits until all is back.

        An `innocent` batch failed only because the one before it did: it waits for no backoff of its own.
        """
        lane = batch.lane
        lane.halted = True
        if not innocent:
            batch.retry_at = self.core.now + self.core.backoff.after(batch.failures)
            batch.failures += 1
        lane.put_back(batch)

    def _renumber(self, batch: OutBatch) -> None:
        """The broker doesn't expect this number: the batch before it is not there yet, or never will be."""
        lane = batch.lane
        if any(other.order < batch.order for other in (*lane.under_way, *lane.waiting)):
            self._retry(batch, innocent=True)
        else:
            lane.unnumber = True
            self._retry(batch)

    def _give_up(self, batch: OutBatch, error: KprotoError) -> None:
        batch.error = error
        self.core.report("undelivered", [batch.partition], reason=f"{len(batch)} records: {error}")
        lane = batch.lane
        if batch.sequence >= 0:
            lane.renew = True  # its numbers are a hole now, or not: nobody knows
        if batch in lane.waiting:
            lane.waiting.remove(batch)
        self._end(batch)

    def _give_up_all(self, error: KprotoError) -> None:
        """Everything that could be sent now never can."""
        for queue in list(self._queues.values()):
            for lane in queue:
                for batch in lane.open():
                    self._give_up(batch, error)

    def _end(self, batch: OutBatch) -> None:
        for callback in self.records.end(batch):
            self.core.actions.append(CallBack(callback))
        self.core.wake()

    # ---- what the broker doesn't take

    def _sort_out(self, batch: OutBatch, answer: PartitionProduceResponse) -> None:
        """Some records are bad. The broker may say which: then the others go on alone; else halves do."""
        bad = {one.batch_index for one in answer.record_errors} & set(range(len(batch)))
        good = [index for index in range(len(batch)) if index not in bad]
        if bad and not good:
            self._give_up(batch, self._error(batch, answer))
        elif bad:
            parts = self._divide(batch, [good, *([index] for index in sorted(bad))])
            for index, part in zip(sorted(bad), parts[1:], strict=True):
                self._give_up(part, self._error(part, answer, index))
        else:
            half = len(batch) // 2
            self._divide(batch, [range(half), range(half, len(batch))])

    def _divide(self, batch: OutBatch, groups: Sequence[Sequence[int]]) -> list[OutBatch]:
        """The records go on in several batches, each with those of a group, in the place of this one.

        None of them is in the log, nor is what was sent after them: all of that is numbered anew.
        """
        lane = batch.lane
        parts, places = divided(batch, groups)
        self.records.divided(batch, parts, places)
        lane.halted = True
        lane.unnumber = self.options.enable_idempotence
        for part in parts:
            lane.put_back(part)
        return parts

    # ---- metadata

    def _metadata_changed(self, asked: frozenset[str] | None) -> None:
        for topic in sorted(self.metadata.topics if asked is None else asked):
            view = self.core.view.topics.get(topic)
            code, looks = self.metadata.refusals.get(topic, (0, 0))
            if view is not None and view.partitions and not view.error_code:
                led = [
                    index for index in sorted(view.partitions) if view.partitions[index].leader is not None
                ]
                if self._ids.get(topic) != view.id:
                    self._ids[topic] = view.id
                    for index in view.partitions:
                        lane = self.records.lanes.get(TopicPartition(topic, index))
                        if lane is not None:
                            lane.known = False
                self.records.route(topic, max(view.partitions) + 1, led)
            elif code:
                self.records.forget(topic)
                for_good = to_do(METADATA, code) is Do.told
                if for_good or looks >= PATIENCE:
                    self._refuse(topic, code, for_good)
            for lane in self._astray.pop(topic, {}):
                self._place(lane)
        for node in list(self._queues):
            if self._open.get(node):
                for lane in list(self._queues[node]):
                    if self.core.view.leader(lane.partition) != node:
                        del self._queues[node][lane]
                        self._place(lane)
        self.core.wake()

    def _refuse(self, topic: str, code: int, for_good: bool) -> None:
        """Nobody can write to this topic. What was sent to it waits, unless it will never be taken."""
        error = broker_error(code, "Metadata", f"topic {topic!r}")
        self.records.refuse(topic, error)
        stray = list(self._astray.get(topic, ()))
        if for_good:
            for lane in stray:
                for batch in lane.open():
                    self._give_up(batch, error)
        elif not stray:
            self.metadata.forget(topic)

    def _let_in_nowhere(self, error: AuthenticationFailed) -> None:
        """Who waits for metadata would wait in vain: tell whoever sends, and give up what was sent."""
        for topic in self.metadata.topics:
            self.records.refuse(topic, error)
            for lane in list(self._astray.get(topic, ())):
                for batch in lane.open():
                    self._give_up(batch, error)

    # ---- time

    def settle(self) -> None:
        core = self.core
        for error in core.errors:
            if isinstance(error, AuthenticationFailed):
                self._let_in_nowhere(error)
        core.errors.clear()  # who sends is told, from what the metadata says
        self._hear()
        self._look()
        while True:
            self._pump()
            if not core.network.finished:
                return
            finished, core.network.finished = core.network.finished, []
            for call in finished:
                if call.purpose is not None:
                    call.purpose(call)

    def due(self) -> int | None:
        """When to call `step` with a Tick, if nothing happens before."""
        times = [self.core.network.next_deadline(), self.metadata.due()]
        if self.records.changed():
            times.append(self.core.now)
        if self._times:
            times.append(self._times[0][0])
        if self._queues:
            times.append(self._numbering.due())
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
