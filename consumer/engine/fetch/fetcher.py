"""Fetches records before the application polls for them.

Rules:

* Each broker has one fetch in flight, which belongs to a fetch session. The fetch requests every partition
  whose buffer has room.

* While a broker delays its response, further partitions may become ready, for example after a seek. A second
  fetch without a session requests them immediately.

* The next records of each partition are fetched while the application processes the previous ones.

* If one of a broker's partitions has a full buffer and none has an empty buffer, the next fetch waits until
  the application takes records. One request can then cover many partitions.

* A broker gets another fetch only while at most `fetch_max_bytes` of its records are buffered. So at most
  twice `fetch_max_bytes` are buffered when the response arrives.

* A fetch requests fewer bytes than `fetch_max_bytes` if the response could otherwise exceed the maximum that
  the connection accepts, because `fetch_max_bytes` does not include the entries of the partitions.

* Records of paused partitions have a separate limit of `fetch_max_bytes`. A partition that would exceed the
  limit loses its buffer, and its records are fetched again after the pause.

* A response is ignored for a partition that was revoked or got a new position after the request. In this
  case, the partition's state is missing or has another `epoch` than the request.

* Errors of a partition are handled when they arrive. They are raised after the records that were buffered
  earlier have been returned.

* No fetch is sent to a broker that throttles the client.

* If a broker repeatedly responds immediately and without records, the client backs off before the next fetch
  from this broker.

* If the leader of a partition has a newer epoch than the one for which the position was validated, the
  position is validated again before the next fetch (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable

from kproto.error_codes import ErrorCode, describe
from kproto.errors import RecordError
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest, FetchResponse, PartitionData
from kproto.wire.message import Message

from ...consumer_options import ConsumerOptions
from ...errors import broker_error
from ..consumer_sensors import FetchSensors
from ..core import ClientCore
from ..error_actions import FETCH, ErrorAction, action_for
from ..metadata.cluster import MAX_OLDER_RESPONSES
from ..metadata.updater import MetadataUpdater
from ..network.call import Call, Outcome, Prepared
from ..network.client import FETCH as FETCH_LANE
from ..network.client import MAIN, SIDE
from ..network.transport import RESPONSE_OVERHEAD_BYTES
from ..positions.offset_lookup import OffsetLookup
from ..positions.partition_states import PartitionState
from ..requests import ISOLATION_LEVELS
from .batch_headers import locate_error
from .buffers import CompletedFetch
from .partition_ends import PartitionEnds
from .replicas import PreferredReplicas
from .sessions import TOPIC_IDS_FROM, BrokerFetches, FetchSessionHandler, FetchTarget

# The client backs off after more than this number of immediate responses without records. A few are normal,
# for example after a log was truncated.
MAX_EMPTY_RESPONSES = 3
# The size (bytes) of a partition's entry in a response, without its records and aborted transactions, and the
# size of a topic's entry, without its name. Both are rounded up.
PARTITION_ENTRY_BYTES = 96
TOPIC_ENTRY_BYTES = 32
# The largest size (bytes) of both entries. The name of a topic has at most 249 bytes.
MAX_ENTRIES_BYTES = PARTITION_ENTRY_BYTES + TOPIC_ENTRY_BYTES + 249
NO_RECORDS = "there are records, but the response contains none"
NOT_REQUESTED = "the response does not fit the request"


class Fetcher:
    """Sends fetches for the partitions that have room in their buffers, and handles the responses."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        offset_lookup: OffsetLookup,
        partition_ends: PartitionEnds,
    ) -> None:
        self._core = core
        self._partition_ends = partition_ends
        self._metadata = metadata
        self._offset_lookup = offset_lookup
        self.sensors = FetchSensors()
        self._replicas = PreferredReplicas(core)
        self._committed_only = core.options.isolation_level == "read_committed"
        self._nodes: dict[int, BrokerFetches] = {}
        # Partition -> the broker whose fetch session requests the partition.
        self._requested_from: dict[TopicPartition, int] = {}
        # Partition -> the broker that receives the next fetch when the partition's buffer has room.
        self._full_on: dict[TopicPartition, int] = {}
        # Partition -> (broker, the part of the broker's `buffered_bytes` that belongs to the partition).
        self._buffered: dict[TopicPartition, tuple[BrokerFetches, int]] = {}
        # Paused partition -> its buffered bytes, which count for no broker.
        self._paused: dict[TopicPartition, int] = {}
        self._paused_bytes = 0
        self.stopped = False

    def visit(self, state: PartitionState) -> None:
        """Update where a partition is fetched from (broker and offset), after its state has changed."""
        partition = state.partition
        node = self._node_for(state)
        previous_node = self._requested_from.get(partition)
        if previous_node is not None and previous_node != node:
            self._nodes[previous_node].forget(partition)
            del self._requested_from[partition]
        if state.fetches or partition in self._buffered or partition in self._paused:
            self._count_buffered(state)
        if state.fetches or partition in self._full_on:
            self._update_full_partitions(state)
        if node is None:
            return
        core = self._core
        metadata = core.view.partition(partition)
        broker = self._nodes.get(node)
        if broker is None:
            broker = self._nodes[node] = BrokerFetches()
        self._requested_from[partition] = node
        target = FetchTarget(
            core.view.topic_id(partition.topic),
            state.fetch_offset,
            core.options.max_partition_fetch_bytes,
            metadata.leader_epoch if metadata is not None else None,
            state.epoch,
        )
        broker.session.set_target(partition, target)
        if state.fetches:
            broker.drained.discard(partition)
        else:
            broker.drained.add(partition)
        if state.has_more:
            broker.with_more_records.add(partition)
        else:
            broker.with_more_records.discard(partition)
        if broker.has_fetch_in_flight and not broker.session.has_requested(partition):
            broker.added[partition] = state

    def on_records_returned(self, state: PartitionState) -> bool:
        """Update a partition after its records were returned; return whether that was possible.

        The method handles only a buffer that has become empty, the most common case. In all other cases it
        changes nothing and returns False, and the caller calls `visit`.
        """
        partition = state.partition
        node = self._requested_from.get(partition)
        if node is None or state.fetches or partition in self._full_on or partition not in self._buffered:
            return False
        buffering_broker, size = self._buffered.pop(partition)
        buffering_broker.buffered_bytes -= size
        self._nodes[node].drained.add(partition)
        return True

    def _count_buffered(self, state: PartitionState) -> None:
        """Count the partition's buffered bytes again after a change of its state.

        The bytes of a paused partition count for all paused partitions together. The bytes of any other
        partition count for its broker. If the buffer of `state` would make the paused partitions exceed
        fetch.max.bytes, this buffer is dropped.
        """
        partition, core = state.partition, self._core
        broker, size = self._buffered.pop(partition, (None, 0))
        if broker is not None:
            broker.buffered_bytes -= size
        self._paused_bytes -= self._paused.pop(partition, 0)
        size = sum(len(chunk.data) for chunk in state.fetches)
        if state.released or state.error is not None or not size:
            return
        if state.paused:
            if self._paused_bytes + size > core.options.fetch_max_bytes:
                state.discard_buffer()
            else:
                self._paused[partition] = size
                self._paused_bytes += size
            return
        node = core.view.leader(partition) if state.replica is None else state.replica
        if node is not None and node in self._nodes:
            broker = self._nodes[node]
            broker.buffered_bytes += size
            self._buffered[partition] = broker, size

    def _update_full_partitions(self, state: PartitionState) -> None:
        """Add the partition to its broker's `full` set if its buffer is full; otherwise remove it."""
        partition = state.partition
        node: int | None = None
        if state.is_full:
            node = self._core.view.leader(partition) if state.replica is None else state.replica
        previous_node = self._full_on.get(partition)
        if previous_node is not None and previous_node != node:
            self._nodes[previous_node].full.discard(partition)
            del self._full_on[partition]
        if node is not None and node in self._nodes:
            self._nodes[node].full.add(partition)
            self._full_on[partition] = node

    def _node_for(self, state: PartitionState) -> int | None:
        """Return the broker from which to fetch the partition, or None if it is not fetched now.

        If the partition could be fetched but has no leader, the method requests metadata and returns None.
        """
        if not state.is_fetchable or state.retry_at > self._core.now:
            return None
        node = self._replicas.select_node(state)
        if node is None:
            # The leader is unknown. `visit` is called again after the next Metadata response, which marks all
            # partitions dirty.
            self._metadata.need()
        return node

    def broker(self, node: int) -> BrokerFetches | None:
        """Return the `BrokerFetches` of a broker; None if no partition has been fetched from it."""
        return self._nodes.get(node)

    def due(self) -> int | None:
        """Return when (ms) the next backoff from a broker ends; None if no backoff delays a fetch."""
        earliest_end = None
        for broker in self._nodes.values():
            backoff_end = broker.not_before
            is_delayed = broker.added if broker.has_fetch_in_flight else broker.session.targets
            if backoff_end > self._core.now and is_delayed:
                earliest_end = backoff_end if earliest_end is None else min(earliest_end, backoff_end)
        return earliest_end

    def pump(self) -> None:
        """Send a fetch to each broker that is ready for one."""
        if self.stopped:
            return
        max_bytes = self._core.options.fetch_max_bytes
        for node, broker in self._nodes.items():
            if broker.not_before > self._core.now:
                continue
            if not broker.has_fetch_in_flight:
                if broker.session.targets and not broker.waits_for_buffer_space(max_bytes):
                    self._send_fetch(node, broker)
            elif (
                broker.added
                and broker.may_wait_at_broker
                and not broker.has_extra_fetch_in_flight
                and not broker.has_full_buffers(max_bytes)
            ):
                self._send_extra_fetch(node, broker)

    def _send_fetch(self, node: int, broker: BrokerFetches) -> None:
        """Send the fetch of a broker's session."""

        def on_response(call: Call) -> None:
            broker.has_fetch_in_flight = False
            self._on_response(node, broker, broker.session, call)

        options = self._core.options
        max_wait_ms = 0 if broker.is_first_fetch and not options.as_java else options.fetch_max_wait_ms
        broker.is_first_fetch = False
        broker.last_fetch_at = self._core.now
        broker.max_delay_ms = max_wait_ms if options.fetch_min_bytes else 0
        broker.may_wait_at_broker = not broker.with_more_records or options.fetch_min_bytes > 1
        try:
            broker.has_fetch_in_flight = True
            self._send(node, FETCH_LANE, broker.session, on_response, max_wait_ms)
        except BaseException:  # Ctrl-C interrupted the send, so no fetch is in flight.
            broker.has_fetch_in_flight = False
            raise
        broker.added = {}

    def _send_extra_fetch(self, node: int, broker: BrokerFetches) -> None:
        """Send a fetch without a session for partitions that the fetch in flight does not contain."""
        added, broker.added = broker.added, {}
        session = FetchSessionHandler(sessionless=True)
        states: list[tuple[PartitionState, int]] = []
        for partition, state in added.items():
            target = broker.session.targets.get(partition)
            if target is not None and state.likely_has_records and state.epoch == target.requested_epoch:
                session.set_target(partition, target)
                states.append((state, state.epoch))
        if not states:
            return

        def on_response(call: Call) -> None:
            broker.has_extra_fetch_in_flight = False
            # A response that throttles the client contains no records, even if the broker has some (KIP-219).
            # The client requests the records again after the throttle time.
            is_omitted = self._core.network.throttled_until(node, SIDE) > self._core.now
            for state, epoch in states:
                if state.epoch == epoch:
                    state.extra_fetch_open = False
                    state.empty_at = -1 if is_omitted else state.fetch_offset
                    state.mark_dirty()
            self._on_response(node, broker, session, call)

        try:
            broker.has_extra_fetch_in_flight = True
            self._send(node, SIDE, session, on_response, max_wait_ms=0)
        except BaseException:  # Ctrl-C interrupted the send, so no fetch is in flight.
            broker.has_extra_fetch_in_flight = False
            raise
        for state, _ in states:
            state.extra_fetch_open = True
            state.mark_dirty()

    def _send(
        self,
        node: int,
        lane: int,
        session: FetchSessionHandler,
        on_response: Callable[[Call], None],
        max_wait_ms: int,
    ) -> None:
        """Send the next fetch of a session."""
        options, plan = self._core.options, session.plan()
        max_bytes = self._max_record_bytes(session)

        def build(version: int) -> Message:
            return plan.request(
                version,
                max_wait_ms=max_wait_ms,
                min_bytes=options.fetch_min_bytes,
                max_bytes=max_bytes,
                isolation_level=ISOLATION_LEVELS[options.isolation_level],
                rack_id=self._replicas.rack(node),
            )

        self._core.send(
            Prepared(FetchRequest, build),
            on_response,
            node=node,
            lane=lane,
            max_version=TOPIC_IDS_FROM - 1 if session.has_unknown_ids else None,
        )

    def _max_record_bytes(self, session: FetchSessionHandler) -> int:
        """Return how many bytes of records the next response of a session may contain."""
        options, partitions = self._core.options, session.targets
        max_entries_bytes = options.max_response_bytes - RESPONSE_OVERHEAD_BYTES - options.fetch_max_bytes
        if len(partitions) * MAX_ENTRIES_BYTES <= max_entries_bytes:  # The usual case.
            return options.fetch_max_bytes
        topics = {partition.topic for partition in partitions}
        entries_bytes = len(partitions) * PARTITION_ENTRY_BYTES + sum(
            TOPIC_ENTRY_BYTES + len(topic.encode()) for topic in topics
        )
        return max(1, options.fetch_max_bytes - max(0, entries_bytes - max_entries_bytes))

    def _on_response(
        self, node: int, broker: BrokerFetches, session: FetchSessionHandler, call: Call
    ) -> None:
        """Handle the response to a fetch, or the failure of the request."""
        core = self._core
        response = call.response
        if not isinstance(response, FetchResponse):
            self._on_request_failed(node, broker, session, call)
            return
        self.sensors.latency.record(core.now - call.created_at, core.now)
        self.sensors.throttle.record(response.throttle_time_ms, core.now)
        for endpoint in response.node_endpoints:
            core.view.set_address(endpoint.node_id, endpoint.host, endpoint.port, endpoint.rack)
        throttled_until = max(
            core.network.throttled_until(node, FETCH_LANE), core.network.throttled_until(node, SIDE)
        )
        broker.not_before = max(broker.not_before, throttled_until)
        if not session.handle_response(response, call.version):
            # A broker that throttles the client sends an empty response (KIP-219).
            if throttled_until <= core.now or response.error_code:
                self._on_unusable_response(broker, response.error_code)
            return
        siblings: list[CompletedFetch] = []
        arrived: dict[str, tuple[int, int]] = {}  # Topic -> (number of bytes, number of records).
        has_records = has_errors = False
        for topic in response.responses:
            name, size, record_count = "", 0, 0
            for entry in topic.partitions:
                has_records = has_records or bool(entry.records)
                has_errors = has_errors or entry.error_code != ErrorCode.NONE
                partition = session.partition_of(
                    topic.topic, topic.topic_id, entry.partition_index, call.version
                )
                if partition is None:
                    continue
                target, state = session.requested[partition], core.partitions.get(partition)
                if (
                    state is not None
                    and state.epoch == target.requested_epoch
                    and state.fetch_offset == target.offset
                    and (not state.extra_fetch_open or session is not broker.session)
                ):
                    chunk = self._on_partition_data(node, state, entry, siblings)
                    if chunk is not None:
                        name = partition.topic
                        size += len(chunk.data)
                        record_count += chunk.record_count
            if size:
                earlier_size, earlier_count = arrived.get(name, (0, 0))
                arrived[name] = earlier_size + size, earlier_count + record_count
        self.sensors.record_arrived(arrived, core.now)
        if has_records or (session is broker.session and session.is_established):
            broker.failures = 0
        if not has_records and throttled_until > core.now:
            return  # The broker throttles the client and may have omitted records (KIP-219).
        if not has_records and session is broker.session:
            # The response has no records at all. So the broker has no more records of any partition, even if
            # the high watermark in an earlier response was after the position.
            broker.with_more_records.clear()
        if session is broker.session and not has_errors:
            self._count_empty_responses(broker, has_records)

    def _on_request_failed(
        self, node: int, broker: BrokerFetches, session: FetchSessionHandler, call: Call
    ) -> None:
        """Back off from the broker after a fetch without a response.

        A broken connection or a timeout is only logged. Partitions whose follower is this broker are then
        fetched from their leaders again. Any other error is raised by poll.
        """
        core = self._core
        session.on_failure()
        if call.outcome is Outcome.NO_RESPONSE:
            core.report_failure("Fetch", str(call.error), repeated=broker.failures > 0)
        self._back_off(broker)
        self._metadata.need()
        if call.outcome is not Outcome.NO_RESPONSE and call.error is not None:
            broker.not_before = core.now + core.options.retry_backoff_max_ms
            core.queue_error(call.error)
        else:
            self._forget_replica(node)

    def _on_unusable_response(self, broker: BrokerFetches, error_code: int) -> None:
        """Back off from the broker after a response whose records must not be used.

        `error_code` is the error code of the whole response. It is 0 if the response reports no error, but
        does not match the request.
        """
        core = self._core
        action = action_for(FETCH, error_code)
        if action is ErrorAction.RAISE:
            core.queue_error(broker_error(error_code, "Fetch"))
        else:
            why = describe(error_code) if error_code else NOT_REQUESTED
            core.report_failure("Fetch", why, repeated=broker.failures > 0)
        if action is ErrorAction.REFRESH_METADATA:
            self._metadata.need()
        self._back_off(broker)

    def _count_empty_responses(self, broker: BrokerFetches, has_records: bool) -> None:
        """Back off from a broker that keeps responding immediately and without records.

        The backoff is at most the maximum wait time (`max_wait_ms`) of the Fetch request.
        """
        core = self._core
        if has_records or core.now - broker.last_fetch_at >= broker.max_delay_ms // 2:
            broker.empty_responses = 0
            return
        broker.empty_responses += 1
        if broker.empty_responses > MAX_EMPTY_RESPONSES:
            pause = min(core.backoff.after(broker.empty_responses - MAX_EMPTY_RESPONSES), broker.max_delay_ms)
            broker.not_before = max(broker.not_before, core.now + pause)
            for partition in broker.session.targets:
                state = core.partitions.get(partition)
                if state is not None and state.has_more and state.retry_at <= core.now:
                    core.report_failure(
                        "Fetch",
                        NO_RECORDS,
                        partition,
                        repeated=broker.empty_responses > MAX_EMPTY_RESPONSES + 1,
                    )

    def _back_off(self, broker: BrokerFetches) -> None:
        """Back off from a broker after a failed fetch."""
        broker.not_before = self._core.now + self._core.backoff.after(broker.failures)
        broker.failures += 1

    def _forget_replica(self, node: int) -> None:
        """Switch the partitions fetched from a failed follower back to their leaders."""
        requested = [partition for partition, source in self._requested_from.items() if source == node]
        for partition in requested:
            state = self._core.partitions.get(partition)
            if state is not None and state.replica == node:
                self._replicas.return_to_leader(state)

    def _on_partition_data(
        self, node: int, state: PartitionState, entry: PartitionData, siblings: list[CompletedFetch]
    ) -> CompletedFetch | None:
        """Handle one partition of a response. Return the records, or None if there are none to return."""
        core = self._core
        if entry.error_code:
            self._on_partition_error(node, state, entry)
            return None
        self._update_log_offsets(state, entry)
        if self._partition_ends.enabled and not entry.records:
            self._partition_ends.visit(state)
        preferred = entry.preferred_read_replica
        if preferred >= 0 and preferred not in core.view.brokers:
            # The metadata does not contain the preferred replica yet. Until it does, the leader would name
            # the same replica again, so the next fetch waits.
            self._metadata.need()
            if not entry.records:
                self._replicas.return_to_leader(state)
                self._retry_later(state, f"node {preferred}, which the leader named, is unknown")
                return None
        elif preferred >= 0 and preferred != node:
            self._replicas.use_follower(state, preferred)
        if not entry.records:
            state.failures = 0
            return None
        self._replicas.on_records(state, node)
        aborted = None
        if self._committed_only:
            aborted = [
                (transaction.producer_id, transaction.first_offset)
                for transaction in entry.aborted_transactions or ()
            ]
        try:
            options = core.options
            chunk = CompletedFetch(
                entry.records,
                state.fetch_offset,
                aborted,
                options.check_crcs,
                max_decompressed=options.max_decompressed_bytes,
                siblings=siblings,
            )
        except RecordError as error:
            # The error is raised after the records before the invalid batch have been returned.
            if state.fetches:
                self._retry_later(state)
            else:
                state.fail(locate_error(error, state.partition, state.fetch_offset, entry.records))
                core.wake_poll()
            return None
        if chunk.end <= state.fetch_offset:
            self._retry_later(state, "the response contains no record at the position or after it")
            return None
        state.add_fetch(chunk)
        core.wake_poll()
        return chunk

    def _update_log_offsets(self, state: PartitionState, entry: PartitionData) -> None:
        """Store the log's offsets from the partition's entry in a response."""
        state.high_watermark = entry.high_watermark if entry.high_watermark >= 0 else None
        # With read_uncommitted, records are read up to the high watermark. The last stable offset, which
        # brokers return in this case too, is ignored.
        stable = entry.last_stable_offset if self._committed_only else -1
        if stable != state.last_stable_offset:
            state.stable_since = self._core.now
        state.last_stable_offset = stable if stable >= 0 else None
        state.log_start_offset = entry.log_start_offset if entry.log_start_offset >= 0 else None

    def _retry_later(self, state: PartitionState, why: str = "") -> None:
        """Retry the partition after a backoff; report the failure if `why` gives its reason."""
        if why:
            self._core.report_failure("Fetch", why, state.partition, repeated=state.failures > 0)
        state.back_off_until(self._core.next_retry_at(state.failures))
        state.failures += 1

    def _on_partition_error(self, node: int, state: PartitionState, entry: PartitionData) -> None:
        """Handle the error code of one partition."""
        core = self._core
        code = entry.error_code
        action = action_for(FETCH, code)
        if action not in (ErrorAction.RESET_OFFSET, ErrorAction.RAISE):
            core.report_failure("Fetch", describe(code), state.partition, repeated=state.failures > 0)
        if state.replica is not None:
            self._replicas.return_to_leader(state)
            self._metadata.need()
            return
        retry_at = core.next_retry_at(state.failures)
        state.failures += 1
        match action:
            case ErrorAction.RESET_OFFSET:
                if state.fetches:
                    # The buffered records are returned first. A later fetch receives the error again.
                    state.back_off_until(retry_at)
                else:
                    self._offset_lookup.reset_out_of_range(state)
            case ErrorAction.REFRESH_METADATA:
                self._on_leader_changed(node, state, entry, retry_at)
            case ErrorAction.RAISE:
                state.back_off_until(core.now + core.options.retry_backoff_max_ms)
                core.queue_error(broker_error(code, "Fetch", str(state.partition)))
            case _:
                state.back_off_until(retry_at)
                self._metadata.need()

    def _on_leader_changed(
        self, node: int, state: PartitionState, entry: PartitionData, retry_at: int
    ) -> None:
        """Fetch from the leader that the response names, or refresh metadata if it names none."""
        view = self._core.view
        leader = entry.current_leader
        if leader.leader_id >= 0:
            view.set_leader(state.partition, leader.leader_id, leader.leader_epoch)
        if view.leader(state.partition) in (None, node):
            # Either the broker has outdated metadata, or the leader epoch in the request does not exist.
            if entry.error_code != ErrorCode.UNKNOWN_LEADER_EPOCH:
                view.forget_leader(state.partition)
            elif state.failures > MAX_OLDER_RESPONSES:
                view.forget_epoch(state.partition)
            state.back_off_until(retry_at)
        elif state.failures > 1:
            # The leader that the previous response named has rejected the fetch as well. Without a backoff,
            # two brokers that name each other would cause an endless series of requests.
            state.back_off_until(retry_at)
        else:
            state.mark_dirty()
        self._metadata.need()

    def close(self, on_closed: Callable[[], None], timeout_ms: int) -> None:
        """Close the fetch sessions at the brokers (M164) within `timeout_ms`, then call `on_closed`."""
        self.stopped = True
        open_sessions = 0

        def on_session_closed(call: Call) -> None:
            nonlocal open_sessions
            open_sessions -= 1
            if not open_sessions:
                on_closed()

        # The request uses the MAIN connection. On the FETCH connection it would wait for the fetch in flight.
        requests = [
            (node, request)
            for node, broker in self._nodes.items()
            if node in self._core.view.brokers and (request := broker.session.close()) is not None
        ]
        open_sessions = len(requests)
        for node, request in requests:
            self._core.send(request, on_session_closed, node=node, lane=MAIN, timeout_ms=timeout_ms)
        if not requests:
            on_closed()
