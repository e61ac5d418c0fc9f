"""Why the records of a partition are not delivered: `Consumer.why`, and the report "stalled".

Before poll returns a record, the group assigns the partition, the assigned callback returns, the position is
looked up, and the leader responds to a fetch.

`DeliveryWatch.status` checks these steps in order, and describes the first one that is not complete.

Rules:

* `status` reads the state of the engine, and changes nothing.

* An assigned partition is stalled if records after its position may exist, and neither its position nor its
  processed offset has changed for `stall_report_ms`.

* Paused partitions never count as stalled.

* Records after the position may exist if the lag is above 0 or unknown.

* A stalled partition is reported once. After progress it may be reported again.

* Four times per `stall_report_ms`, the watch compares all partitions with their previous state. Polls and
  returned records cause no additional work.
"""

from __future__ import annotations

import msgspec

from kproto.error_codes import ErrorCode
from kproto.group.subscription import TopicPartition

from ..consumer_options import ConsumerOptions
from ..records import DeliveryStatus
from .core import ClientCore
from .fetch.fetcher import Fetcher
from .fetch.sessions import BrokerFetches
from .group.coordinator import CoordinatorLookup
from .network.client import FETCH
from .positions.partition_states import FetchState, PartitionState

# Time (ms) without a poll after which buffered records count as waiting for the application.
_SLOW_POLL_MS = 1_000
# How many times the partitions are compared with their earlier state in a period of `stall_report_ms`.
_CHECKS_PER_STALL = 4


class _Obstacle(msgspec.Struct, frozen=True):
    """The reason why poll returns no records of a partition.

    `since` is when the wait began, and `until` is when it ends by itself. Both are in ms of the engine's
    clock.
    """

    reason: str
    detail: str
    since: int | None = None
    until: int | None = None


class DeliveryWatch:
    """Explains why the records of a partition are not delivered, and reports stalled partitions."""

    def __init__(
        self, core: ClientCore[ConsumerOptions], coordinator: CoordinatorLookup, fetcher: Fetcher
    ) -> None:
        self._core = core
        self._coordinator = coordinator
        self._fetcher = fetcher
        # The name of the application's function that poll is calling, and the time (ms) at which the call
        # began. None if no call is running. Rebalance callbacks are not included.
        self.running_function: tuple[str, int] | None = None
        # The time (ms) of the next check. None if `due` has not scheduled it.
        self._next_check_at: int | None = None
        # Partition -> (position, processed offset, time (ms) since which neither has changed).
        self._progress: dict[TopicPartition, tuple[int, int | None, int]] = {}
        # The stalled partitions that have been reported, and have made no progress since.
        self._reported: set[TopicPartition] = set()

    # ---- stalled partitions

    def due(self) -> int | None:
        """Schedule the next check unless it is already scheduled, and return its time (ms).

        Return None if the watch is off or no partition is assigned.
        """
        core, stall_ms = self._core, self._core.options.stall_report_ms
        if stall_ms is None or not core.partitions:
            self._next_check_at = None
        elif self._next_check_at is None:
            self._next_check_at = core.now + max(1, stall_ms // _CHECKS_PER_STALL)
        return self._next_check_at

    def tick(self) -> None:
        """Compare the partitions with their state at the last comparison. Report those that are stalled."""
        core, stall_ms = self._core, self._core.options.stall_report_ms
        if stall_ms is None or self._next_check_at is None or core.now < self._next_check_at:
            return
        self._next_check_at = None
        progress: dict[TopicPartition, tuple[int, int | None, int]] = {}
        stalled: dict[str, list[TopicPartition]] = {}
        for partition, state in core.partitions.states.items():
            if state.paused or _lag(state) == 0:
                continue
            position, processed, since = self._progress.get(partition, (-1, None, 0))
            if (position, processed) != (state.position, state.processed):
                since = core.now
                self._reported.discard(partition)
            elif core.now - since >= stall_ms and partition not in self._reported:
                status = self.status(partition, core.now)
                stalled.setdefault(f"{status.reason}: {status.detail}", []).append(partition)
            progress[partition] = state.position, state.processed, since
        self._progress = progress
        self._reported.intersection_update(progress)
        for why, partitions in stalled.items():
            self._reported.update(partitions)
            core.report("stalled", partitions, reason=f"no record for {stall_ms / 1000:g} s; {why}")

    # ---- why

    def status(self, partition: TopicPartition, now: int) -> DeliveryStatus:
        """Return why the partition's next records are not delivered at the time `now` (ms)."""
        state = self._core.partitions.get(partition)
        obstacle = self._find_obstacle(partition, state, now)
        wall_offset_ms = self._core.wall() - now  # The wall-clock time minus the engine's time.
        return DeliveryStatus(
            partition,
            obstacle.reason,
            obstacle.detail,
            None if obstacle.since is None else wall_offset_ms + obstacle.since,
            None if obstacle.until is None else wall_offset_ms + obstacle.until,
            None if state is None else _lag(state),
        )

    def _find_obstacle(self, partition: TopicPartition, state: PartitionState | None, now: int) -> _Obstacle:
        """Return the first step of delivery that is not complete."""
        error = self._core.group_status.group_error
        if error is not None:
            return _Obstacle("error", f"the membership has ended: {error}")
        error = self._core.group_status.poll_error
        if error is not None:
            return _Obstacle("error", f"the member's assignment cannot be used: {error}")
        if state is None:
            return self._assignment_obstacle(partition.topic)
        return (
            self._group_obstacle(state, now)
            or _application_obstacle(state)
            or self._function_obstacle(now)
            or self._position_obstacle(state, now)
            or self._buffered_obstacle(state, now)
            or _transaction_obstacle(state)
            or self._connection_obstacle(state, now)
            or self._fetch_obstacle(state)
        )

    def _assignment_obstacle(self, topic: str) -> _Obstacle:
        """Return why an unassigned partition of `topic` is not assigned."""
        status = self._core.group_status
        if not status.in_group or status.member is None:
            return _Obstacle("not assigned", "neither assign() nor the group has assigned the partition")
        # The metadata of a topic to which the member no longer subscribes may be outdated.
        if topic in status.member.topics_of_interest and self._is_unknown(topic):
            detail = f"the topic {topic!r} does not exist; create it, or correct the subscription"
            return _Obstacle("no topic", detail)
        if self._coordinator.node is None:
            return _Obstacle("rebalancing", self._describe_missing_coordinator())
        if not status.member.is_stable:
            return _Obstacle("rebalancing", "the group is rebalancing, and the member has no assignment yet")
        return _Obstacle("not assigned", "the group has not assigned the partition to this member")

    def _is_unknown(self, topic: str) -> bool:
        """Return whether the topic does not exist, according to the metadata."""
        view = self._core.view.topics.get(topic)
        return view is not None and view.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _group_obstacle(self, state: PartitionState, now: int) -> _Obstacle | None:
        """Return the callback or commit that delays the records; None if neither is pending."""
        callbacks = self._core.group_status.callbacks
        if callbacks.running is not None:
            seconds = (now - callbacks.started_at) / 1000
            detail = f"the callback `{callbacks.running.kind}` has been running for {seconds:.1f} s"
            return _Obstacle("callback", detail, callbacks.started_at)
        if callbacks.waiting:
            detail = f"the callback `{callbacks.waiting[0].kind}` runs in the next poll"
            return self._obstacle_or_slow_poll("callback", detail, now)
        if state.revoking:
            detail = "the partition is being revoked" + self._describe_failure(state, "OffsetCommit")
            return _Obstacle("revoking", detail)
        if state.awaits_start_commit:
            detail = "the start offset is being committed before the first record is returned"
            return _Obstacle("commit", detail + self._describe_failure(state, "OffsetCommit"))
        return None

    def _function_obstacle(self, now: int) -> _Obstacle | None:
        """Return the deserializer, interceptor or event callback that poll waits for; None if none runs."""
        if self.running_function is None:
            return None
        name, since = self.running_function
        return _Obstacle("callback", f"{name} has been running for {(now - since) / 1000:.1f} s", since)

    def _position_obstacle(self, state: PartitionState, now: int) -> _Obstacle | None:
        """Return the lookup or validation that the position waits for; None if the position is ready."""
        reason = "position"
        if state.state is FetchState.FETCHING:
            return None
        if state.state is FetchState.INITIALIZING:
            request, detail = "OffsetFetch", "the committed offset is being looked up"
            if self._core.options.group_id is not None and self._coordinator.node is None:
                detail += f", but {self._describe_missing_coordinator()}"
        elif state.state is FetchState.AWAIT_RESET:
            request, detail = "ListOffsets", "the start offset is being looked up at the leader"
        else:
            reason, request = "validation", "OffsetForLeaderEpoch"
            detail = "the leader is asked whether its log contains the position"
        view = self._core.view
        if (
            state.state is not FetchState.INITIALIZING
            and state.partition.topic in view.topics
            and view.leader(state.partition) is None
        ):
            return self._without_leader(state, request)
        until = state.retry_at if state.retry_at > now else None
        return _Obstacle(reason, detail + self._describe_failure(state, request), state.changed_at, until)

    def _without_leader(self, state: PartitionState, request: str) -> _Obstacle:
        """Return why the partition has no leader to which `request` could be sent."""
        topic = state.partition.topic
        if self._is_unknown(topic):
            return _Obstacle("no topic", f"the topic {topic!r} does not exist")
        failure = self._describe_failure(state, "Metadata") or self._describe_failure(state, request)
        return _Obstacle("no leader", "the metadata contains no leader" + failure)

    def _describe_missing_coordinator(self) -> str:
        why = self._coordinator.lookup_error
        return "the group's coordinator is unknown" + (f": {why}" if why else "")

    def _buffered_obstacle(self, state: PartitionState, now: int) -> _Obstacle | None:
        """Return an obstacle if records are buffered that poll has not returned yet, else None.

        The obstacle is "poll" if poll has not been called for `_SLOW_POLL_MS`, else "buffered".
        """
        if not state.fetches:
            return None
        detail = "the records are fetched, and the next polls return them"
        return self._obstacle_or_slow_poll("buffered", detail, now)

    def _obstacle_or_slow_poll(self, reason: str, detail: str, now: int) -> _Obstacle:
        """Return the obstacle `reason`, or "poll" if poll has not been called for `_SLOW_POLL_MS`."""
        status = self._core.group_status
        since_poll_ms = now - status.polled_at
        if status.in_poll or since_poll_ms < _SLOW_POLL_MS:
            return _Obstacle(reason, detail)
        detail = f"poll has not been called for {since_poll_ms / 1000:.1f} s: {detail}"
        return _Obstacle("poll", detail, status.polled_at)

    def _connection_obstacle(self, state: PartitionState, now: int) -> _Obstacle | None:
        """Return why no fetch for the partition can be sent; None if a fetch can be sent or is in flight."""
        core = self._core
        failure = self._describe_failure(state, "Fetch")
        if state.retry_at > now:
            detail = "the fetch is retried after a backoff" + failure
            return _Obstacle("backoff", detail, None, state.retry_at)
        node = core.view.leader(state.partition) if state.replica is None else state.replica
        if node is None:
            return self._without_leader(state, "Fetch")
        problem = core.network.connection_problem(node, FETCH, now)
        if problem is not None:
            detail, retry_at = problem
            return _Obstacle("connection", detail, None, retry_at)
        broker = self._fetcher.broker(node)
        if broker is None or broker.has_fetch_in_flight:
            return None
        if broker.not_before > now:
            detail = "fetches to the broker are sent again after a backoff" + failure
            return _Obstacle("backoff", detail, None, broker.not_before)
        if broker.waits_for_buffer_space(core.options.fetch_max_bytes):
            detail = f"{broker.buffered_bytes:,} bytes of the broker's other partitions are buffered"
            return self._obstacle_or_slow_poll("buffer full", detail, now)
        return None

    def _fetch_obstacle(self, state: PartitionState) -> _Obstacle:
        """Return "caught up" if the fetch offset is at the high watermark, else "fetching"."""
        if state.high_watermark is not None and state.fetch_offset >= state.high_watermark:
            return _Obstacle("caught up", f"offset {state.position} is the end of the log")
        node = self._core.view.leader(state.partition) if state.replica is None else state.replica
        broker: BrokerFetches | None = None if node is None else self._fetcher.broker(node)
        detail = f"node {node} has not responded to the fetch yet" + self._describe_failure(state, "Fetch")
        sent_at = broker.last_fetch_at if broker is not None and broker.has_fetch_in_flight else None
        return _Obstacle("fetching", detail, sent_at)

    def _describe_failure(self, state: PartitionState, request: str) -> str:
        """Return "; REQUEST fails: REASON" if the request keeps failing for the partition, else ""."""
        reports, now = self._core.failure_reports, self._core.now
        for subject in (state.partition, state.partition.topic, None):
            why = reports.current_failure(request, subject, now)
            if why is not None:
                return f"; {request} fails: {why}"
        return ""


def _application_obstacle(state: PartitionState) -> _Obstacle | None:
    """Return the obstacle "paused" or "error" (an error that lasts until a seek); None if neither exists."""
    if state.paused:
        return _Obstacle("paused", "pause() was called for the partition; resume() ends the pause")
    if state.error is not None and not state.fetches:
        return _Obstacle("error", f"poll raises this error until a seek: {state.error}")
    return None


def _transaction_obstacle(state: PartitionState) -> _Obstacle | None:
    """Return the open transaction that blocks read_committed fetches; None if none blocks them."""
    stable, end = state.last_stable_offset, state.high_watermark
    if stable is None or end is None or not stable <= state.fetch_offset < end:
        return None
    return _Obstacle(
        "transaction", f"a transaction that contains offset {stable} is open", state.stable_since
    )


def _lag(state: PartitionState) -> int | None:
    """Return the number of offsets from the position to the high watermark, or None if either is unknown.

    Unlike `PartitionState.lag`, the number includes records of open transactions.
    """
    if not state.has_position or state.high_watermark is None:
        return None
    return max(0, state.high_watermark - state.position)
