"""Looks up start offsets: the committed offset of the group, or the offset that a reset policy chooses.

Rules:

* An error never counts as a missing commit. The reset policy applies only if a response says that the
  partition has no committed offset (I7).

* A partition without a committed offset starts where `auto_offset_reset` says (M139, M147).

* If a partition without a committed offset was created after the group's first assignment, it starts where
  `on_new_partition` says. The default is the earliest offset (M206).

* The user data of an assignment contains the number of partitions that each topic had at the group's first
  assignment. After the first generation, this number may be unknown for a topic. A partition without a
  committed offset then counts as new if other partitions of the topic have committed offsets.

* Each reset computes the timestamp of its policy once, so retries look up the same timestamp.

* The start offset that a policy chose is committed before any record is returned (`group.initial_commits`).

* After OFFSET_OUT_OF_RANGE, the option `on_out_of_range`, if set, replaces the reset policy.

* Every reset is reported with its reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from kproto.error_codes import ErrorCode, describe
from kproto.errors import NoOffsetForPartition, OffsetOutOfRange, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.list_offsets import ListOffsetsResponse
from kproto.messages.offset_fetch import OffsetFetchResponse

from ...consumer_options import ConsumerOptions
from ...errors import broker_error
from ...option_checks import duration_ms
from ..core import ClientCore, Then
from ..error_actions import (
    LIST_OFFSETS,
    OFFSET_FETCH,
    ErrorAction,
    action_for,
)
from ..group.commits import Committer
from ..group.coordinator import CoordinatorLookup
from ..metadata.cluster import is_local
from ..metadata.updater import MetadataUpdater
from ..network.call import Call, Outcome
from ..network.client import FETCH as FETCH_LANE
from ..requests import (
    EARLIEST,
    ISOLATION_LEVELS,
    LAST_VERSION_WITH_NAMES,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    CommittedOffset,
    consistent_values,
    list_offsets_request,
    offset_fetch_request,
    offset_fetch_result,
    version_limit,
)
from .partition_states import FetchState, OffsetReset, PartitionState

States = dict[TopicPartition, PartitionState]

NOT_IN_RESPONSE = "the response does not contain it"
NO_TIMESTAMPS = "the topic's messages have no timestamps (message format before 0.10): latest"
# Special timestamp -> the timestamp to look up next if the leader returns no offset for the special one. A
# log without records has no maximum timestamp. A log without tiered segments has no latest tiered offset.
SUBSTITUTES = {MAX_TIMESTAMP: LATEST, LATEST_TIERED: EARLIEST}


class OffsetLookup:
    """Looks up the positions of the partitions whose state is INITIALIZING or AWAIT_RESET."""

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        coordinator: CoordinatorLookup,
        committer: Committer,
    ) -> None:
        self._core = core
        self._metadata = metadata
        self._coordinator = coordinator
        self._committer = committer
        # The partitions whose next OffsetFetch or ListOffsets has not been sent.
        self._to_fetch: States = {}
        self._to_list: States = {}
        # Whether the last assignment belongs to the group's first generation, and the number of partitions
        # that each topic had in that generation. Partitions beyond this number are new.
        self.is_first_generation = False
        self.initial_counts: Mapping[str, int] = {}

    def visit(self, state: PartitionState) -> None:
        """Update the pending lookups after the state of this partition has changed."""
        may_send = not (
            state.released
            or state.lookup_pending
            or state.error is not None
            or state.retry_at > self._core.now
        )
        for fetch_state, waiting in (
            (FetchState.INITIALIZING, self._to_fetch),
            (FetchState.AWAIT_RESET, self._to_list),
        ):
            if may_send and state.state is fetch_state:
                waiting[state.partition] = state
            else:
                waiting.pop(state.partition, None)

    def pump(self) -> None:
        """Send the lookups of committed offsets (OffsetFetch) and of offsets for resets (ListOffsets)."""
        if self._to_fetch:
            if self._core.options.group_id is None:
                states, self._to_fetch = list(self._to_fetch.values()), {}
                for state in states:
                    self._reset_without_commit(state, others_committed=False)
            else:
                self._send_offset_fetch()
        if self._to_list:
            self._send_list_offsets()

    def _send_offset_fetch(self) -> None:
        """Send an OffsetFetch for the partitions that need their committed offset."""
        core = self._core
        node = self._coordinator.require()
        if node is None:
            return
        group = core.options.group_id
        assert group is not None
        states = dict(self._to_fetch)
        topics = {partition.topic for partition in states}
        requested = set(states)
        if core.options.on_new_partition != core.options.auto_offset_reset:
            # If other partitions of a topic have committed offsets, a partition without one may count as new.
            # So the committed offsets of all partitions are requested.
            for topic in topics:
                view = core.view.topics.get(topic)
                if view is not None:
                    requested.update(TopicPartition(topic, index) for index in view.partitions)
        self._connect_leaders(states)
        core.send(
            offset_fetch_request(group, requested, core.view),
            self._response_handler(states, self._on_offset_fetch_response),
            node=node,
            max_version=LAST_VERSION_WITH_NAMES
            if core.options.as_java
            else version_limit(core.view, topics, LAST_VERSION_WITH_NAMES),
        )
        self._mark_in_flight(states, self._to_fetch)

    def _connect_leaders(self, states: States) -> None:
        """Open the connections on which the partitions will be fetched after the lookup."""
        core = self._core
        for leader in dict.fromkeys(map(core.view.leader, states)):
            if leader is not None:
                core.network.connect(leader, core.now, lane=FETCH_LANE)

    @staticmethod
    def _response_handler(states: States, then: Callable[[States, Call], None]) -> Then:
        """Return a response handler.

        The handler calls `then` with the partitions whose `PartitionState.epoch` has not changed since the
        request.
        """
        states_and_epochs = [(state, state.epoch) for state in states.values()]

        def on_response(call: Call) -> None:
            unchanged = {
                state.partition: state
                for state, epoch in states_and_epochs
                if state.epoch == epoch and state.lookup_pending and not state.released
            }
            for state in unchanged.values():
                state.lookup_pending = False
            then(unchanged, call)

        return on_response

    @staticmethod
    def _mark_in_flight(states: States, waiting: States) -> None:
        """Mark the lookups as in flight.

        This method is called after the request was sent. If Ctrl-C interrupts the send, the next step sends
        the lookups again.
        """
        for partition, state in states.items():
            state.lookup_pending = True
            waiting.pop(partition, None)

    def _on_offset_fetch_response(self, states: States, call: Call) -> None:
        """Handle the OffsetFetch response."""
        core = self._core
        if not isinstance(call.response, OffsetFetchResponse):
            self._report_and_retry(states.values(), "OffsetFetch", str(call.error))
            if call.outcome is Outcome.NO_RESPONSE:
                self._coordinator.report_lost(call.node, str(call.error))
            elif call.error is not None:
                self._back_off_longest(states.values())
                core.queue_error(call.error)
            return
        group = core.options.group_id
        result = offset_fetch_result(core.view, call.response, call.version, group or "")
        if result is None:
            self._report_and_retry(states.values(), "OffsetFetch", "the response does not contain the group")
            return
        code, offsets = result
        action = action_for(OFFSET_FETCH, code)
        if action is not ErrorAction.USE:
            self._report_and_retry(states.values(), "OffsetFetch", describe(code))
            if action is ErrorAction.FIND_COORDINATOR:
                self._coordinator.report_lost(
                    call.node, f"OffsetFetch was answered with {ErrorCode(code).name}"
                )
            elif action is ErrorAction.RAISE:
                self._back_off_longest(states.values())
                core.queue_error(broker_error(code, "OffsetFetch", f"group {group!r}"))
            return
        self._coordinator.confirm()
        topics_with_commits = {p.topic for p, value in offsets.items() if isinstance(value, CommittedOffset)}
        errors: dict[TopicPartition, int] = {}
        for partition, state in states.items():
            if partition not in offsets:
                self._report_and_retry([state], "OffsetFetch", NOT_IN_RESPONSE)
                self._metadata.need()
                continue
            value = offsets[partition]
            if isinstance(value, CommittedOffset):
                state.set_position(value.offset, value.leader_epoch)
                state.on_committed(value.offset)
                if value.leader_epoch is not None:
                    state.await_validation()
            elif value is None:
                self._reset_without_commit(state, others_committed=partition.topic in topics_with_commits)
            else:
                self._report_and_retry([state], "OffsetFetch", describe(value))
                self._metadata.need()
                if action_for(OFFSET_FETCH, value) is ErrorAction.RAISE:
                    self._back_off_longest([state])
                    errors[partition] = value
        core.queue_errors("OffsetFetch", errors)
        core.wake_poll()  # position() may be waiting

    def _report_and_retry(self, states: Iterable[PartitionState], request: str, why: str) -> None:
        """Report a failed lookup of these partitions, and retry it later."""
        states = list(states)
        for state in states:
            self._core.report_failure(request, why, state.partition, repeated=state.failures > 0)
        self._retry_later(states)

    def _retry_later(self, states: Iterable[PartitionState]) -> None:
        """Retry after the backoff."""
        for state in states:
            at = self._core.next_retry_at(state.failures)
            state.failures += 1
            state.back_off_until(at)

    def _back_off_longest(self, states: Iterable[PartitionState]) -> None:
        """Retry these partitions after `retry_backoff_max_ms`.

        Poll raises the error. A retry after a shorter backoff would probably fail, because the application
        has to fix the cause of the error first.
        """
        until = self._core.now + self._core.options.retry_backoff_max_ms
        for state in states:
            state.back_off_until(until)

    def _reset_without_commit(self, state: PartitionState, *, others_committed: bool) -> None:
        """Reset a partition that has no committed offset, according to the policy that applies to it.

        `others_committed` says whether other partitions of the topic have a committed offset.
        """
        options = self._core.options
        if self._is_new(state, others_committed):
            policy, reason = options.on_new_partition, "a new partition without a commit"
        else:
            policy, reason = options.auto_offset_reset, "no committed offset"
        if policy == "none":
            why = f"{reason}, and the policy is none: seek, or choose another policy"
            state.fail(NoOffsetForPartition(str(state.partition), why))
            self._core.wake_poll()
            return
        state.await_reset(
            OffsetReset(self._reset_timestamp(policy), f"{reason}: {policy}", self._must_commit_start())
        )

    def _must_commit_start(self) -> bool:
        """Return whether the start offset that a reset policy chooses has to be committed (M206)."""
        options = self._core.options
        return self._core.group_status.in_group and options.group_id is not None and not options.as_java

    def _is_new(self, state: PartitionState, others_committed: bool) -> bool:
        """Return whether the partition was created after the group's first assignment."""
        if not self._core.group_status.in_group:
            return False
        if state.is_new:
            return True
        initial_count = self.initial_counts.get(state.partition.topic)
        if initial_count is not None:
            return state.partition.partition >= initial_count
        return others_committed and not self.is_first_generation

    def _reset_timestamp(self, policy: str) -> int:
        """Return the timestamp that ListOffsets has to look up for a reset policy."""
        duration = duration_ms(policy)
        if duration is not None:
            return max(0, self._core.wall() - duration)
        return EARLIEST if policy == "earliest" else LATEST

    def reset_out_of_range(self, state: PartitionState, why: str = "") -> None:
        """Reset a partition after OFFSET_OUT_OF_RANGE. Its buffer must be empty.

        `why` replaces the text "offset ... is out of range" in the reported reason of the reset. With the
        policy "none", the partition is not reset, and poll raises OffsetOutOfRange.

        If the fetch after the previous reset failed with OFFSET_OUT_OF_RANGE again, the lookup waits for a
        backoff. Each further reset increases the backoff.
        """
        options = self._core.options
        policy = options.on_out_of_range or options.auto_offset_reset
        if policy == "none":
            detail = f"{state.partition} has no offset {state.position} (any more, or yet)"
            state.fail(OffsetOutOfRange(ErrorCode.OFFSET_OUT_OF_RANGE, "Fetch", detail))
            self._core.wake_poll()
            return
        reason = f"{why or f'offset {state.position} is out of range'}: {policy}"
        state.await_reset(OffsetReset(self._reset_timestamp(policy), reason, before=state.position))
        if state.reset_count:
            state.back_off_until(self._core.next_retry_at(state.reset_count - 1))
        state.reset_count += 1

    def reset_recreated(self, state: PartitionState) -> None:
        """Reset a partition of a re-created topic, because its position belongs to the old topic (M206)."""
        policy = self._core.options.on_new_partition
        is_at_unread_commit = (
            state.has_position and not state.has_returned and state.has_committed(state.position)
        )
        may_have_commit = self._core.group_status.in_group and (
            state.state is FetchState.INITIALIZING
            or is_local(state.topic_id)
            or (is_at_unread_commit and policy != "none")
        )
        if may_have_commit:
            # First look up the committed offset: another owner of the partition may already have committed an
            # offset in the re-created topic. Without topic ids, it is also possible that the topic was not
            # re-created.
            state.on_topic_recreated()
            state.is_new = True
            state.await_committed_offset()
            return
        if policy == "none":
            policy = "earliest"
        reason = f"the topic was re-created: {policy}"
        before = state.position if state.has_position else None
        state.on_topic_recreated()
        state.await_reset(
            OffsetReset(self._reset_timestamp(policy), reason, self._must_commit_start(), before)
        )

    def _send_list_offsets(self) -> None:
        """Send ListOffsets requests to the leaders of the partitions that await a reset."""
        core = self._core
        to_list = dict(self._to_list)
        # (Leader, special timestamp) -> partitions. The special timestamp is None for the timestamps that
        # every leader knows: earliest, latest, and times in ms. Any other timestamp needs a separate request,
        # because the leader may reject it.
        requests: dict[tuple[int, int | None], States] = {}
        for partition, state in to_list.items():
            leader = core.view.leader(partition)
            if leader is None:
                # The leader is unknown. The next Metadata response marks all partitions dirty, so this
                # partition is looked up again.
                self._metadata.need()
                self._to_list.pop(partition, None)
            else:
                timestamp = state.reset.timestamp if state.reset is not None else EARLIEST
                special_timestamp = timestamp if timestamp < EARLIEST else None
                requests.setdefault((leader, special_timestamp), {})[partition] = state
        isolation_level = ISOLATION_LEVELS[core.options.isolation_level]
        for (node, _), states in requests.items():
            timestamps = {p: s.reset.timestamp for p, s in states.items() if s.reset is not None}
            self._connect_leaders(states)
            core.send(
                list_offsets_request(core.view, timestamps, isolation_level, core.options.request_timeout_ms),
                self._response_handler(states, self._on_list_offsets_response),
                node=node,
            )
            self._mark_in_flight(states, self._to_list)

    def _on_list_offsets_response(self, states: States, call: Call) -> None:
        """Handle a ListOffsets response."""
        core = self._core
        if not isinstance(call.response, ListOffsetsResponse):
            timestamps = [state.reset.timestamp for state in states.values() if state.reset is not None]
            if isinstance(call.error, UnsupportedVersion) and min(timestamps, default=0) < EARLIEST:
                # The leader does not support this special timestamp, so a retry would fail as well.
                for pending in states.values():
                    pending.fail(call.error)
                core.wake_poll()
                return
            self._report_and_retry(states.values(), "ListOffsets", str(call.error))
            if call.outcome is Outcome.NO_RESPONSE:
                for partition in states:
                    core.view.forget_leader(partition)
                self._metadata.need()
            elif call.error is not None:
                self._back_off_longest(states.values())
                core.queue_error(call.error)
            return
        entries = consistent_values(
            (TopicPartition(topic.name, entry.partition_index), entry)
            for topic in call.response.topics
            for entry in topic.partitions
        )
        missing, errors = dict(states), dict[TopicPartition, int]()
        for partition, entry in entries.items():
            state = missing.pop(partition, None)
            if state is None or state.reset is None:
                continue
            if entry.error_code == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                self._apply_listed_offset(
                    state, msgspec.structs.replace(state.reset, reason=NO_TIMESTAMPS), offset=-1
                )
                continue
            action = action_for(LIST_OFFSETS, entry.error_code)
            if action is ErrorAction.USE:
                self._apply_listed_offset(state, state.reset, entry.offset)
            elif action is ErrorAction.RAISE:
                self._back_off_longest([state])
                errors[partition] = entry.error_code
            else:
                self._report_and_retry([state], "ListOffsets", describe(entry.error_code))
                if action is ErrorAction.REFRESH_METADATA:
                    core.view.forget_leader(partition)
                    self._metadata.need()
        core.queue_errors("ListOffsets", errors)
        self._report_and_retry(missing.values(), "ListOffsets", NOT_IN_RESPONSE)

    def _apply_listed_offset(self, state: PartitionState, reset: OffsetReset, offset: int) -> None:
        """Apply the offset that a leader returned for a reset.

        If the offset is -1, the log has no offset for the reset's timestamp. The reset then continues with a
        substitute timestamp. If the timestamp has no substitute, the lookup is retried.
        """
        if offset < 0:
            # No record has the requested timestamp or a later one, so the partition starts at the end, as
            # with Kafka's reset policy `by_duration`.
            substitute = LATEST if reset.timestamp >= 0 else SUBSTITUTES.get(reset.timestamp)
            if substitute is None:
                self._report_and_retry([state], "ListOffsets", "the leader returned no offset")
            else:
                state.await_reset(OffsetReset(substitute, reset.reason, reset.commits_start, reset.before))
            return
        was_retried = state.failures > 0
        state.set_position(offset)
        if reset.reason:
            self._core.report(
                "reset", [state.partition], reason=reset.reason, offset=offset, before=reset.before
            )
        if reset.commits_start:
            state.start_offset = offset
            self._committer.initial_commits.add(state, was_retried=was_retried)
        self._core.wake_poll()
