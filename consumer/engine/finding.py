"""Where partitions start: the group's committed offset, else what the reset policies say.

Rules that hold here:

* An error is never taken for "no commit": only an answer that says so leads to a reset (I7).
* A partition without a commit that came into being after the group's first assignment starts where
  on_new_partition says (earliest, unless told otherwise), every other one where auto_offset_reset says
  (M206). What counts as new: the member knows how many partitions the topic had at that first assignment;
  where nobody remembers, other partitions of the topic have commits and this one has none.
* The decision is made once for each partition; retries ask for the same point in time.
* The start that a policy chose for a partition without a commit is committed before its first record is
  handed out, so that a crash between can't turn "the end then" into "the end now" (M203 c).
* Out of range is another question, with another policy, on_out_of_range.
* Every reset is reported, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kproto.errors import OffsetOutOfRange
from kproto.group.subscription import TopicPartition
from kproto.messages.list_offsets import ListOffsetsResponse
from kproto.messages.offset_fetch import OffsetFetchResponse

from ..errors import broker_error, is_retriable
from ..options import ConsumerOptions, duration_ms
from .connection import Call
from .core import Core, MetadataKeeper
from .positions import PartitionState, Phase, Reset
from .requests import (
    EARLIEST,
    ISOLATION,
    LATEST,
    CommittedOffset,
    list_offsets_request,
    most_for_ids,
    offset_fetch_request,
    offset_fetch_result,
)

OFFSET_OUT_OF_RANGE = 1
COORDINATOR_TROUBLE = (14, 15, 16)  # loading, not available, not coordinator
UNKNOWN_TOPIC_OR_PARTITION = 3


class Finder:
    """Moves partitions from finding and listing to ready."""

    def __init__(self, core: Core[ConsumerOptions], metadata: MetadataKeeper) -> None:
        self._core = core
        self._metadata = metadata
        self.coordinator: Callable[[], int | None] = lambda: None
        self.coordinator_lost: Callable[[str], None] = lambda why: None
        self.save: Callable[[PartitionState], None] = lambda state: None
        # Of the last assignment: the group's first generation, and what its topics had then.
        self.first = False
        self.existed: Mapping[str, int] = {}
        self.subscribed = False

    def due(self) -> int | None:
        waiting = [
            state.retry_at
            for state in self._core.partitions.values()
            if state.phase is not Phase.ready and not state.asking and state.retry_at > self._core.now
        ]
        return min(waiting, default=None)

    def pump(self) -> None:
        now = self._core.now
        finding: list[PartitionState] = []
        listing: list[PartitionState] = []
        for state in self._core.partitions.values():
            if state.phase is Phase.ready or state.asking or state.retry_at > now or state.error is not None:
                continue
            (finding if state.phase is Phase.finding else listing).append(state)
        if finding:
            if self._core.options.group_id is None:
                for state in finding:
                    self._without_commit(state, others=False)
                listing = [state for state in finding if state.phase is Phase.listing]
            else:
                self._ask_group(finding)
        if listing:
            self._ask_leaders(listing)

    # ---- the group

    def _ask_group(self, states: list[PartitionState]) -> None:
        core = self._core
        node = self.coordinator()
        if node is None:
            return
        group = core.options.group_id
        assert group is not None
        topics = {state.partition.topic for state in states}
        wanted = {state.partition for state in states}
        for topic in topics:
            known = core.view.topics.get(topic)
            if known is not None:
                wanted.update(TopicPartition(topic, index) for index in known.partitions)
        asked = {state.partition: state.epoch for state in states}
        for state in states:
            state.asking = True
        core.ask(
            offset_fetch_request(group, wanted, core.view),
            lambda call: self._group_answered(asked, call),
            node=node,
            max_version=most_for_ids(core.view, topics, 9),
        )

    def _still(self, asked: Mapping[TopicPartition, int], phase: Phase) -> list[PartitionState]:
        """The states that still wait for this answer."""
        found: list[PartitionState] = []
        for partition, epoch in asked.items():
            state = self._core.partitions.get(partition)
            if state is not None and state.epoch == epoch and state.phase is phase:
                state.asking = False
                found.append(state)
        return found

    def _group_answered(self, asked: Mapping[TopicPartition, int], call: Call) -> None:
        core = self._core
        states = self._still(asked, Phase.finding)
        later = core.now + core.options.retry_backoff_ms
        if not isinstance(call.response, OffsetFetchResponse):
            for state in states:
                state.retry_at = later
            self.coordinator_lost(str(call.error))
            return
        code, found = offset_fetch_result(core.view, call.response, call.version)
        if code:
            for state in states:
                state.retry_at = later
            if code in COORDINATOR_TROUBLE:
                self.coordinator_lost(f"OffsetFetch was answered with error {code}")
            elif not is_retriable(code):
                for state in states:
                    state.retry_at = core.now + core.options.retry_backoff_max_ms
                core.fail(broker_error(code, "OffsetFetch", f"group {core.options.group_id!r}"))
            return
        committed_topics = {
            partition.topic for partition, value in found.items() if isinstance(value, CommittedOffset)
        }
        for state in states:
            value = found.get(state.partition, UNKNOWN_TOPIC_OR_PARTITION)
            if isinstance(value, CommittedOffset):
                state.start_at(value.offset, value.leader_epoch)
                state.committed = value.offset
            elif value is None:
                self._without_commit(state, others=state.partition.topic in committed_topics)
            else:
                state.retry_at = later
                self._metadata.need()
                if not is_retriable(value):
                    state.retry_at = core.now + core.options.retry_backoff_max_ms
                    core.fail(broker_error(value, "OffsetFetch", str(state.partition)))

    # ---- policies

    def _without_commit(self, state: PartitionState, *, others: bool) -> None:
        options = self._core.options
        if self._is_new(state, others):
            policy, reason = options.on_new_partition, "a new partition without a commit"
        else:
            policy, reason = options.auto_offset_reset, "no committed offset"
        if policy == "none":
            detail = f"{state.partition}: {reason}, and the policy is none: seek, or choose another policy"
            state.error = OffsetOutOfRange(OFFSET_OUT_OF_RANGE, "OffsetFetch", detail)
            self._core.wake()
            return
        save = self.subscribed and options.group_id is not None
        state.find_out(Reset(self._timestamp(policy), f"{reason}: {policy}", save))

    def _is_new(self, state: PartitionState, others: bool) -> bool:
        if not self.subscribed:
            return False
        if state.new:
            return True
        known = self.existed.get(state.partition.topic)
        if known is not None:
            return state.partition.partition >= known
        return others and not self.first

    def _timestamp(self, policy: str) -> int:
        duration = duration_ms(policy)
        if duration is not None:
            return max(0, self._core.wall() - duration)
        return EARLIEST if policy == "earliest" else LATEST

    def out_of_range(self, state: PartitionState) -> None:
        """A fetch from the leader said so; nothing is buffered any more."""
        options = self._core.options
        policy = options.on_out_of_range or options.auto_offset_reset
        if policy == "none":
            detail = f"{state.partition} has no offset {state.position} (any more, or yet)"
            state.error = OffsetOutOfRange(OFFSET_OUT_OF_RANGE, "Fetch", detail)
            self._core.wake()
            return
        reason = f"offset {state.position} is out of range: {policy}"
        state.find_out(Reset(self._timestamp(policy), reason))

    def created_anew(self, state: PartitionState) -> None:
        """The topic was deleted and created again: old positions mean nothing in it (M206.6)."""
        policy = self._core.options.on_new_partition
        if policy == "none":
            policy = "earliest"
        reason = f"the topic was created anew: {policy}"
        state.find_out(Reset(self._timestamp(policy), reason, save=self.subscribed))

    # ---- the leaders

    def _ask_leaders(self, states: list[PartitionState]) -> None:
        core = self._core
        nodes: dict[int, list[PartitionState]] = {}
        for state in states:
            leader = core.view.leader(state.partition)
            if leader is None:
                state.retry_at = core.now + core.options.retry_backoff_ms
                self._metadata.need()
            else:
                nodes.setdefault(leader, []).append(state)
        level = ISOLATION[core.options.isolation_level]
        for node, group in nodes.items():
            timestamps = {
                state.partition: state.reset.timestamp for state in group if state.reset is not None
            }
            asked = {state.partition: state.epoch for state in group}
            for state in group:
                state.asking = True
            core.ask(
                list_offsets_request(core.view, timestamps, level, core.options.request_timeout_ms),
                lambda call, asked=asked: self._leader_answered(asked, call),  # type: ignore[misc]
                node=node,
            )

    def _leader_answered(self, asked: Mapping[TopicPartition, int], call: Call) -> None:
        core = self._core
        states = {state.partition: state for state in self._still(asked, Phase.listing)}
        for state in states.values():
            state.retry_at = core.now + core.options.retry_backoff_ms
        if not isinstance(call.response, ListOffsetsResponse):
            for partition in states:
                core.view.forget_leader(partition)
            self._metadata.need()
            return
        for topic in call.response.topics:
            for entry in topic.partitions:
                waiting = states.get(TopicPartition(topic.name, entry.partition_index))
                if waiting is None or waiting.reset is None:
                    continue
                if entry.error_code == 0:
                    self._listed(waiting, waiting.reset, entry.offset)
                elif is_retriable(entry.error_code):
                    core.view.forget_leader(waiting.partition)
                    self._metadata.need()
                else:
                    waiting.retry_at = core.now + core.options.retry_backoff_max_ms
                    core.fail(broker_error(entry.error_code, "ListOffsets", str(waiting.partition)))

    def _listed(self, state: PartitionState, reset: Reset, offset: int) -> None:
        if offset < 0:
            # No record is that young: the end, as Kafka's by_duration has it.
            state.find_out(Reset(LATEST, reset.reason, reset.save))
            return
        state.start_at(offset)
        if reset.reason:
            self._core.report("reset", [state.partition], reason=reset.reason, offset=offset)
        if reset.save:
            state.unsaved = True
            self.save(state)
        self._core.wake()
