"""The producer without I/O. It sends batches in Produce requests, and handles the responses.

Rules (Java's Sender):

* A batch is sent when it is full, after linger.ms, or at a flush. While its connection has the maximum number
  of requests in flight, the batch waits and accepts more records.

* The batches of a partition are sent in order. With idempotence, retries keep this order
  (`produce_responses`). Partitions do not block each other.

* With idempotence, every batch has a producer id and a sequence number (`producer_ids`), by which the broker
  recognizes duplicates.

* Every delivery ends with an offset or an error, at the latest after delivery.timeout.ms, even if its request
  is still in flight.

* The cost of an event depends only on the partitions that it affects (`schedule`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from random import Random
from typing import Any
from uuid import UUID

import msgspec

from kproto.deadlines import earliest
from kproto.errors import AuthenticationFailed, EncodeError, IllegalState, KprotoError, RequestTimedOut
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

from ...delivery import Delivery
from ...errors import broker_error
from ...producer_options import ProducerOptions
from ..admin.plan import UNKNOWN_TOPIC_RETRIES
from ..core import ClientCore
from ..error_actions import METADATA, ErrorAction, action_for
from ..events import Action, Tick
from ..metadata.cluster import NO_TOPIC_ID, TopicView
from ..metadata.updater import MetadataUpdater
from ..metrics import Metrics, SnapshotBuilder, seconds_since
from ..network.call import Call, Prepared
from ..network.client import NetworkClient
from ..network.transport import NetworkEvent
from ..requests import consistent_values
from ..telemetry.reporter import ClientTelemetry
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
from .sensors import ProducerSensors
from .transaction_states import TransactionalAccumulator
from .transactions import TransactionManager

# The first version of Produce that identifies topics by id.
TOPIC_IDS_FROM = 13


class Purge(msgspec.Struct):
    """A call of `purge`. When `done` is true, `count` is the number of records that were dropped."""

    count: int = 0
    done: bool = False


class ProducerEngine:
    """The engine of one producer.

    Any number of threads may call `append`. All other methods must be called by one thread at a time.
    """

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
            max_throttle_ms=options.metadata_max_age_ms,
            max_response=options.receive_message_max_bytes,
            random=random,
            security=options.security,
            dialer=options.dialer,
        )
        self.options = options
        self.core: ClientCore[ProducerOptions] = ClientCore(options, network, wall, random)
        self.metadata = MetadataUpdater(self.core, self._metadata_changed)
        self._transactional = options.transactional_id is not None
        accumulator = TransactionalAccumulator if self._transactional else RecordAccumulator
        self.records = accumulator(options, random, clock or self.core.clock, guard)
        self.schedule = SendSchedule(self.core, self.metadata)
        self.sensors = ProducerSensors()
        self.responses = ProduceResponses(self.core, self.records, self.metadata, self.sensors)
        self._purges: list[Purge] = []  # The `purge()` calls that wait for the next step.
        self._requests_in_flight: dict[BrokerConnection, int] = {}
        # Topic -> its id in the last metadata. A re-created topic has another id.
        self._topic_ids: dict[str, UUID | None] = {}
        self.transactions: TransactionManager | None = None
        if isinstance(self.records, TransactionalAccumulator):
            self.transactions = TransactionManager(
                self.core,
                self.records,
                self.responses,
                busy=lambda: any(self._requests_in_flight.values()),
                ready_queues=self.schedule.ready_queues,
                need_metadata=self.metadata.need,
            )
        self._sequences = self.transactions or SequenceNumbers(self.core, self._fail_ready_batches)
        self.telemetry: ClientTelemetry | None = None
        if options.enable_metrics_push:
            self.telemetry = ClientTelemetry(
                network,
                clock=self.core.clock,
                wall=self.core.wall,
                random=random,
                snapshot=self.metrics,
                labels=self._telemetry_labels,
            )
        # The state of telemetry after the last step: whether the client has an instance id, and whether its
        # last push has ended. A change wakes the waiting calls of client_instance_id() and close().
        self._telemetry_progress = (False, False)
        # Threads of the application set these flags, and the next step clears them. With `wants_connection`
        # the step connects to a broker, and with `begins_close` it pushes the metrics for the last time.
        self.wants_connection = False
        self.begins_close = False
        # Number of topic errors that `append` has raised or skipped.
        self._seen_topic_errors = 0

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Headers,
    ) -> Delivery | None:
        """Append a record to a batch of its partition, as `RecordAccumulator.append` does.

        A caller that does not wait in a line (`wait_in_line`) repeats the call until the record is appended.
        Each call raises the topic's last metadata error if it occurred after `append` last raised an error.
        """
        records = self.records
        records.seen_topic_errors = self._seen_topic_errors
        try:
            return records.append(topic, key, value, partition, timestamp, headers)
        except KprotoError:
            self._seen_topic_errors = records.topic_error_count
            raise
        finally:
            records.seen_topic_errors = math.inf

    def flush(self) -> None:
        """Let all buffered records be sent without waiting for linger.ms."""
        with self.records.guard:
            self.records.end_linger()

    @property
    def open_records(self) -> int:
        """The number of records whose delivery has not ended."""
        return self.records.open_records

    @property
    def buffered(self) -> int:
        """Bytes of buffer.memory in use."""
        return self.records.buffered_bytes

    def metrics(self, now: int) -> Metrics:
        """Return a snapshot of all metrics at the time `now` (ms)."""
        snapshot = SnapshotBuilder("producer", self.options.client_id, now)
        self.core.network.add_metrics_to(snapshot)
        self.sensors.add_to(
            snapshot,
            buffer_memory=self.options.buffer_memory,
            buffered_bytes=self.buffered,
            requests_in_flight=sum(self._requests_in_flight.values()),
            metadata_age=seconds_since(self.metadata.updated_at, now),
        )
        return snapshot.build()

    def _telemetry_labels(self) -> dict[str, str]:
        """Return the labels that identify this client in its pushed metrics (KIP-714)."""
        transactional_id = self.options.transactional_id
        return {"transactional_id": transactional_id} if transactional_id else {}

    @property
    def has_pushed_last(self) -> bool:
        """Whether the last push of metrics has ended, which the attribute `begins_close` requested."""
        return not self.begins_close and (self.telemetry is None or self.telemetry.has_ended)

    def _pump_telemetry(self, telemetry: ClientTelemetry) -> None:
        """Send a telemetry request if one is due."""
        if self.wants_connection:
            self.wants_connection = False
            if telemetry.client_instance_id is None:
                self.metadata.need()
        if self.begins_close:
            telemetry.begin_close()
            self.begins_close = False
        telemetry.pump()
        progress = (telemetry.client_instance_id is not None, telemetry.has_ended)
        if progress != self._telemetry_progress:
            self._telemetry_progress = progress
            self.core.wake_poll()

    def start_purge(self) -> Purge:
        """Request that the next step drop the unsent records. The lock `guard` must be held."""
        purge = Purge()
        self._purges.append(purge)
        return purge

    def _drop_unsent(self) -> None:
        """Drop the unsent records, and complete the requested purges.

        A batch that was already sent is kept, because the broker may have written it.
        """
        with self.records.guard:
            purges, self._purges = self._purges, []
            unsent = [
                batch
                for batch in list(self.records.open_batches)
                if batch.sequence < 0 and batch.attempts == 0 and batch not in batch.queue.in_flight
            ]
        count = 0
        for batch in unsent:
            batch.error = IllegalState(f"{batch.partition}: purge() dropped this record before it was sent")
            if batch in batch.queue.waiting:
                batch.queue.waiting.remove(batch)
            self.responses.end_batch(batch)
            with self.records.guard:
                # The application has dropped the records itself, so flush does not raise NotDelivered.
                for index in range(len(batch)):
                    self.records.mark_failure_known(batch, index)
            count += len(batch)
            self.schedule.reschedule(batch.queue)
        for purge in purges:
            purge.count, purge.done = count, True
        self.core.wake_poll()

    def fail(self, why: str) -> None:
        """Fail every undelivered record and every waiting call of the transaction, and end the producer."""
        for purge in self._purges:
            purge.done = True
        error = IllegalState(f"{why}; this record was not acknowledged")
        for batch in list(self.records.open_batches):
            batch.error = error
            self.responses.end_batch(batch)
        if self.transactions is not None:
            self.transactions.end(IllegalState(why))

    def close_connections(self) -> None:
        """Forget all connections. The caller closes the sockets itself, so no action is returned.

        Call this after the producer has ended and its deliveries have failed. The results of requests in
        flight are dropped.
        """
        self.core.network.close(self.core.now)
        self.core.network.finished.clear()
        self._requests_in_flight.clear()
        self.take_actions()

    def _handle_notifications(self) -> None:
        """Handle the notifications of the application's threads."""
        notifications = self.records.take_notifications()
        if notifications is None:
            return
        for topic in notifications.unknown_topics:
            self.metadata.look_up(topic, has_waiters=True)
        if notifications.unknown_topics and self.transactions is None:
            # The producer id is requested together with the metadata, which saves a round trip.
            self._sequences.ensure_ready()
        for batch in notifications.new_batches:
            if not batch.done:
                batch.queue.waiting.append(batch)
                self.schedule.reschedule(batch.queue)
        for queue in notifications.queues_to_visit:
            self.schedule.reschedule(queue)

    def _expire_batches(self, queue: PartitionQueue) -> None:
        """Fail each batch of the queue that has exceeded delivery.timeout.ms.

        Then schedule the next visit to the queue at the earliest delivery timeout of the remaining batches.
        """
        timeout_ms = self.options.delivery_timeout_ms
        batches = queue.open_batches()
        for batch in batches:
            if batch.deadline <= self.core.now:
                detail = f"{batch.partition}, {len(batch)} records: {self.open_reason(batch)}"
                self.responses.fail_batch(batch, RequestTimedOut("Produce", timeout_ms, detail))
        deadlines = [batch.deadline for batch in batches if not batch.done]
        if deadlines:
            self.schedule.visit_later(queue, min(deadlines), is_timeout=True)

    def open_reason(self, batch: ProducerBatch) -> str:
        """Return why a batch has not been delivered yet, for the message of a timeout error."""
        if batch.why:
            return batch.why
        if batch in batch.queue.in_flight:
            return "the broker has not answered yet"
        if self._sequences.lacks_producer_id:
            return "this producer has no producer id yet"
        return "it is queued behind other batches"

    def _pump(self) -> None:
        """Send the requests that may be sent now."""
        self.metadata.pump()
        if self.transactions is not None:
            self.transactions.pump()
        queues = self.schedule.queues
        if not queues:
            return
        if not self._sequences.ensure_ready():
            for connection in queues:
                self.core.network.connect(connection.node, self.core.now, lane=connection.lane)
            return
        max_in_flight = self.options.max_in_flight_requests_per_connection
        connections = list(queues)
        for connection in connections:
            if self.core.network.throttled_until(*connection) > self.core.now:
                # The broker throttles the connection. Until the throttling ends, the batches accept more
                # records.
                continue
            batches: list[ProducerBatch] = []
            while connection in queues and self._requests_in_flight.get(connection, 0) < max_in_flight:
                batches = self._collect_batches(connection)
                if batches:
                    self._send_request(connection, batches)
            has_more = connection in queues or any(batch.queue.waiting for batch in batches)
            is_full = self._requests_in_flight.get(connection, 0) >= max_in_flight
            if has_more and is_full and self.schedule.use_all_connections(connection.node):
                # The loop over `connections` also visits the additional connections that are appended here.
                connections += [new for new in self.schedule.connections(connection.node) if new in queues]

    def _collect_batches(self, connection: BrokerConnection) -> list[ProducerBatch]:
        """Return the batches of one request: at most one from each queue.

        Together the batches have at most max.request.size bytes, unless the first batch alone is larger.
        """
        queues = self.schedule.queues.pop(connection)
        size = 0
        batches: list[ProducerBatch] = []
        postponed: dict[PartitionQueue, None] = {}
        for queue in queues:
            if not queue.waiting or not self.schedule.may_send(queue, queue.waiting[0]):
                continue
            head = queue.waiting[0]
            if self.core.view.leader(queue.partition) != connection.node or head.retry_at > self.core.now:
                self.schedule.reschedule(queue)
                continue
            if batches and size + head.size > self.options.max_request_size:
                postponed[queue] = None
                continue
            if not self._prepare_batch(queue, head):
                continue
            size += head.size
            queue.waiting.popleft()
            queue.in_flight.append(head)
            queue.connection = connection
            batches.append(head)
        if postponed:
            self.schedule.queues[connection] = {**postponed, **self.schedule.queues.get(connection, {})}
        for batch in batches:
            self.schedule.reschedule(batch.queue)
        return batches

    def _prepare_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Seal, number and encode `batch`, the first batch of the queue.

        Return False if the batch cannot be sent now. The queue is then rescheduled, and an empty or invalid
        batch is ended.
        """
        options = self.options
        if not batch.sealed:
            with self.records.guard:
                self.records.seal(batch)
        if not batch.count:  # Ctrl-C interrupted the append of the first record.
            queue.waiting.remove(batch)
            self.responses.end_batch(batch)
            self.schedule.reschedule(queue)
            return False
        if not batch.is_complete:
            self.schedule.visit_later(queue, self.core.now + 1)
            return False
        needs_sequence = options.enable_idempotence and batch.sequence < 0
        if needs_sequence and not self._sequences.assign_sequence(queue, batch):
            self.schedule.visit_later(queue, self.core.now)
            return False
        if batch.data is None:
            try:
                level = options.compression_level
                batch.encode(options.compression_type, level, transactional=self._transactional)
            # If a record passed validation but cannot be encoded, only its own batch fails.
            except Exception as error:
                self.responses.fail_batch(batch, EncodeError("RecordBatch", 2, "records", f"{error!r}"))
                self.schedule.reschedule(queue)  # The queue's next batch can now be sent.
                return False
        elif needs_sequence and batch.identity is not None:
            producer_id, epoch = batch.identity
            batch.data = renumber(
                batch.data, producer_id, epoch, batch.sequence, is_transactional=self._transactional
            )
        return True

    def _send_request(self, connection: BrokerConnection, batches: list[ProducerBatch]) -> None:
        """Send these batches in a Produce request."""
        core, options = self.core, self.options
        self.sensors.record_request(batches, core.now)

        def build(version: int) -> Message:
            topics: dict[str, TopicProduceData] = {}
            for batch in batches:
                if batch.done:
                    continue  # The batch failed while the connection was being established.
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

        topics_by_id = {core.view.topic_id(batch.partition.topic): batch.partition.topic for batch in batches}
        lacks_ids = None in topics_by_id

        def on_response(call: Call) -> None:
            self._on_response(connection, batches, topics_by_id, call)

        self._requests_in_flight[connection] = self._requests_in_flight.get(connection, 0) + 1
        core.network.send(
            Prepared(ProduceRequest, build),
            core.now,
            node=connection.node,
            lane=connection.lane,
            max_version=self._sequences.max_produce_version(TOPIC_IDS_FROM - 1 if lacks_ids else None),
            one_way=options.acks == 0,
            purpose=on_response,
        )

    def _on_response(
        self,
        connection: BrokerConnection,
        batches: list[ProducerBatch],
        topics_by_id: Mapping[UUID | None, str],
        call: Call,
    ) -> None:
        """Handle the response to a Produce request, or the failure of the request."""
        self._requests_in_flight[connection] -= 1
        if self.options.acks == 0 and call.error is None:
            for batch in batches:
                self.responses.succeed(batch, offset=None, append_time=-1)
        elif isinstance(call.response, ProduceResponse):
            self.sensors.latency.record(self.core.now - call.created_at, self.core.now)
            self.sensors.throttle.record(call.response.throttle_time_ms, self.core.now)
            for endpoint in call.response.node_endpoints:
                self.core.view.set_address(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
            entries = consistent_values(_response_entries(call.response, call.version, topics_by_id))
            for batch in batches:
                self.responses.on_response(batch, entries.get(batch.partition))
            if self.options.partitioner_rack_aware and call.response.node_endpoints:
                # The response names new leaders (KIP-951).
                for topic in {batch.partition.topic for batch in batches}:
                    self.records.set_candidates(topic, self._partitions_in_rack(topic))
        else:
            error = call.error or RequestTimedOut("Produce", call.timeout_ms)
            for batch in batches:
                self.responses.on_no_response(batch, error)
            self.schedule.on_connection_failed(connection)
        for batch in batches:
            self.schedule.reschedule(batch.queue)
        connections = self.schedule.connections(connection.node)
        if not any(map(self._requests_in_flight.get, connections)):
            self.schedule.use_one_connection(connection.node)

    def _fail_ready_batches(self, error: KprotoError) -> None:
        """Fail all batches that are ready to be sent, because no producer id can be obtained."""
        for queue in self.schedule.ready_queues():
            for batch in queue.open_batches():
                self.responses.fail_batch(batch, error)

    def _metadata_changed(self, requested: frozenset[str] | None) -> None:
        """Update the partitions and leaders of topics after a Metadata response.

        `requested` are the topics of the request; None stands for all topics.
        """
        for topic in sorted(self.metadata.topics if requested is None else requested):
            topic_view = self.core.view.topics.get(topic)
            code, error_count = self.metadata.topic_errors.get(topic, (0, 0))
            if topic_view is not None and topic_view.partitions and not topic_view.error_code:
                self._update_route(topic, topic_view)
            elif code:
                self.records.forget_topic(topic)
                is_final = action_for(METADATA, code) is ErrorAction.RAISE
                if is_final or error_count >= UNKNOWN_TOPIC_RETRIES:
                    self._fail_topic(topic, code, is_final)
            self.schedule.on_metadata(topic)
        for connection in list(self.schedule.queues):
            if self._requests_in_flight.get(connection):
                self.schedule.on_leaders_changed(connection)
        self.core.wake_poll()

    def _update_route(self, topic: str, topic_view: TopicView) -> None:
        """Pass a topic's partitions to the accumulator.

        The accumulator receives the partition count, the partitions that have a leader, and the partitions
        whose leader is in the client's rack.

        If the topic was re-created, the new leaders do not know the producer: `epoch_accepted` of each queue
        becomes false.
        """
        # As in Java, the partitions are assumed to have the numbers from 0 to count - 1.
        count = len(topic_view.partitions)
        with_leader = [index for index in range(count) if self._has_leader(TopicPartition(topic, index))]
        if self._topic_ids.get(topic) != topic_view.id:
            self._topic_ids[topic] = topic_view.id
            for index in topic_view.partitions:
                queue = self.records.queues.get(TopicPartition(topic, index))
                if queue is not None:
                    queue.epoch_accepted = False
        self.records.set_route(topic, count, with_leader, self._partitions_in_rack(topic))

    def _has_leader(self, partition: TopicPartition) -> bool:
        """Return whether the partition has a leader, according to the metadata."""
        view = self.core.view.partition(partition)
        return view is not None and view.leader is not None

    def _partitions_in_rack(self, topic: str) -> list[int]:
        """Return the partitions whose leader is in the client's rack; [] without `partitioner.rack.aware`."""
        options, view = self.options, self.core.view
        topic_view = view.topics.get(topic)
        if not options.partitioner_rack_aware or topic_view is None:
            return []
        nodes = {node for node, broker in view.brokers.items() if broker.rack == options.client_rack}
        count = len(topic_view.partitions)
        partitions = topic_view.partitions
        return sorted(index for index in partitions if index < count and partitions[index].leader in nodes)

    def _fail_topic(self, topic: str, code: int, is_final: bool) -> None:
        """Fail the sends that wait for a topic, because the topic cannot be written to.

        If `is_final` is true, the buffered records of the topic fail, too. Otherwise the buffered records
        wait until the topic is available.
        """
        error = broker_error(code, "Metadata", f"topic {topic!r}")
        self.records.fail_waiting_sends(topic, error)
        queues = self.schedule.leaderless_queues(topic)
        if is_final:
            for queue in queues:
                for batch in queue.open_batches():
                    self.responses.fail_batch(batch, error)
        elif not queues:
            self.metadata.forget(topic)

    def _on_authentication_failed(self, error: AuthenticationFailed) -> None:
        """Fail the sends and batches that wait for metadata."""
        for topic in self.metadata.topics:
            self.records.fail_waiting_sends(topic, error)
            for queue in self.schedule.leaderless_queues(topic):
                for batch in queue.open_batches():
                    self.responses.fail_batch(batch, error)

    def settle(self, *, is_tick: bool = True) -> None:
        """Run all parts of the engine after an event.

        If `is_tick` is true, also handle the deadlines that have passed.

        Responses are handled before deadlines. If the process was paused, a response may have arrived in time
        but be read late.
        """
        core = self.core
        for error in core.errors.values():
            if isinstance(error, AuthenticationFailed):
                self._on_authentication_failed(error)
        # The core's errors are dropped: calls of `send` raise the accumulator's own error for the topic.
        core.errors.clear()
        self._handle_notifications()
        self._handle_finished_calls()
        if self._purges:
            self._drop_unsent()
        if is_tick:
            self.metadata.tick()
            for queue, has_timeout in self.schedule.due_queues():
                if has_timeout:
                    self._expire_batches(queue)
                self.schedule.reschedule(queue)
        self._pump()
        while core.network.finished:
            self._handle_finished_calls()
            self._pump()
        if self.telemetry is not None:
            self._pump_telemetry(self.telemetry)

    def _handle_finished_calls(self) -> None:
        """Pass each finished request to the handler in its `purpose`."""
        finished, self.core.network.finished = self.core.network.finished, []
        for call in finished:
            if call.purpose is not None:
                call.purpose(call)

    def due(self) -> int | None:
        """Return when (ms) to call `step` with a Tick, or None if no time is scheduled."""
        times = [self.core.network.next_deadline(), self.metadata.due()]
        if self.telemetry is not None:
            times.append(self.telemetry.due())
        if self.records.has_notifications():
            times.append(self.core.now)
        times.append(self.schedule.due())
        throttled = [self.core.network.throttled_until(*connection) for connection in self.schedule.queues]
        times += [at for at in throttled if at > self.core.now]
        if self.schedule.queues or self._transactional:
            times.append(self._sequences.due())
        return earliest(*times)

    def take_actions(self) -> list[Action]:
        """Remove and return the actions of this step."""
        core = self.core
        core.actions.extend(core.network.actions)
        core.network.actions.clear()
        actions, core.actions = core.actions, []
        return actions


def _response_entries(
    response: ProduceResponse, version: int, topics_by_id: Mapping[UUID | None, str]
) -> Iterator[tuple[TopicPartition, PartitionProduceResponse]]:
    """Yield each partition of a Produce response with its entry. A topic with an unknown id is named ""."""
    for topic in response.responses:
        name = topics_by_id.get(topic.topic_id, "") if version >= TOPIC_IDS_FROM else topic.name
        for entry in topic.partition_responses:
            yield TopicPartition(name, entry.index), entry


def step(engine: ProducerEngine, event: NetworkEvent | Tick | None, now: int) -> list[Action]:
    """Apply `event` at `now` and return the actions to perform, in order.

    `event` is None if the application has called the producer and no event occurred.

    The caller must read the sockets before a Tick: a response that has arrived must not count as late.
    """
    engine.core.now = now
    if isinstance(event, Tick):
        engine.core.network.tick(now)
    elif event is not None:
        engine.core.network.handle(event, now)
    engine.settle(is_tick=isinstance(event, Tick))
    return engine.take_actions()
