"""Detects log truncation (KIP-320): validates positions before records are fetched.

Rules (Java's OffsetsForLeaderEpochUtils and SubscriptionState, M140 and M149 to M152):

* A committed offset with a leader epoch is validated before the first fetch. A position after a record with a
  known epoch is validated when the partition gets a leader with a newer epoch.

* A position from a reset, or from a seek without an epoch, is not validated (M141).

* The leader returns the end offset of the position's epoch in its log. If this offset is below the position,
  the log was truncated, for example by an unclean leader election.

* After a truncation, some records that the consumer has read no longer exist, and other records may have the
  same offsets.

* M151: if a validation gets a retriable error or no response, the client requests metadata, and validates the
  partition again after a backoff.

* Every truncation is raised or reported. If the reset policy is "none", poll raises `LogTruncated` with the
  diverging offset: the first offset at which the log is known to differ from what was read. With any other
  policy the truncation is reported, and the partition continues at the diverging offset. If this offset is
  unknown, the position is reset.

* Before Kafka 2.3, OffsetForLeaderEpoch requires the permission ClusterAction, which is meant for brokers.
  With brokers before Kafka 2.3, positions are therefore not validated.
"""

from __future__ import annotations

from kproto.error_codes import describe
from kproto.errors import LogTruncated, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kproto.wire.message import Message

from ...consumer_options import ConsumerOptions
from ..core import ClientCore
from ..error_actions import EPOCHS, ErrorAction, action_for
from ..metadata.updater import MetadataUpdater
from ..network.call import Call, Outcome, Prepared
from ..requests import by_topic, consistent_values
from .offset_lookup import OffsetLookup
from .partition_states import FetchState, PartitionState

# The lowest version of OffsetForLeaderEpoch that clients send. Brokers that support only lower versions
# require the permission ClusterAction, which is meant for brokers (KIP-320).
LOWEST_VERSION = 3


class PositionValidator:
    """Validates the positions of partitions after an assignment, a seek or a change of the leader."""

    def __init__(
        self, core: ClientCore[ConsumerOptions], metadata: MetadataUpdater, offset_lookup: OffsetLookup
    ) -> None:
        self._core = core
        self._metadata = metadata
        self._offset_lookup = offset_lookup
        # The partitions that wait for validation and for which no request is in flight.
        self._to_validate: dict[TopicPartition, PartitionState] = {}

    def visit(self, state: PartitionState) -> None:
        """Update the pending validations after the state or the leader of this partition has changed."""
        if state.state is FetchState.FETCHING and not state.released and state.error is None:
            self._validate_against_leader(state)
        needs_request = (
            state.state is FetchState.AWAIT_VALIDATION
            and not state.released
            and not state.lookup_pending
            and state.error is None
            and state.retry_at <= self._core.now
        )
        if needs_request:
            self._to_validate[state.partition] = state
        else:
            self._to_validate.pop(state.partition, None)

    def _validate_against_leader(self, state: PartitionState) -> None:
        """Start validation if the leader's epoch is newer than `state.validated`."""
        leader = self._core.view.partition(state.partition)
        epoch = leader.leader_epoch if leader is not None else None
        if epoch is None or (state.validated is not None and epoch <= state.validated):
            return
        if state.validated is not None and state.leader_epoch is not None:
            state.await_validation()
        else:
            state.validated = epoch

    def pump(self) -> None:
        """Send OffsetForLeaderEpoch for the partitions that wait for validation."""
        if not self._to_validate:
            return
        core = self._core
        by_leader: dict[int, dict[TopicPartition, PartitionState]] = {}
        for partition, state in list(self._to_validate.items()):
            leader = core.view.leader(partition)
            if leader is None:
                # The leader is unknown. The next Metadata response marks all partitions dirty, so this
                # partition is validated then.
                self._metadata.need()
                del self._to_validate[partition]
            else:
                by_leader.setdefault(leader, {})[partition] = state
        for node, states in by_leader.items():
            self._send_request(node, states)

    def _send_request(self, node: int, states: dict[TopicPartition, PartitionState]) -> None:
        """Send OffsetForLeaderEpoch for these partitions to their leader."""
        view = self._core.view
        leader_epochs: dict[TopicPartition, int | None] = {}
        for partition in states:
            partition_view = view.partition(partition)
            leader_epochs[partition] = partition_view.leader_epoch if partition_view is not None else None
        topics = [
            OffsetForLeaderTopic(
                topic=topic,
                partitions=[
                    OffsetForLeaderPartition(
                        partition=partition.partition,
                        current_leader_epoch=_encode_epoch(leader_epochs[partition]),
                        leader_epoch=_encode_epoch(states[partition].leader_epoch),
                    )
                    for partition in partitions
                ],
            )
            for topic, partitions in by_topic(states).items()
        ]

        def build(version: int) -> Message:
            if version < LOWEST_VERSION:
                raise UnsupportedVersion("OffsetForLeaderEpoch", version, f"{LOWEST_VERSION} and above")
            return OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)

        requested_states = [(state, state.epoch) for state in states.values()]

        def on_response(call: Call) -> None:
            unchanged_states = {
                state.partition: state
                for state, epoch in requested_states
                if state.epoch == epoch and not state.released
            }
            for state in unchanged_states.values():
                state.lookup_pending = False
            self._on_response(unchanged_states, leader_epochs, call)

        self._core.send(Prepared(OffsetForLeaderEpochRequest, build), on_response, node=node)
        # `lookup_pending` is set after the send. So if Ctrl-C interrupts the send, the next step sends the
        # request.
        for partition, state in states.items():
            state.lookup_pending = True
            self._to_validate.pop(partition, None)

    def _on_response(
        self,
        states: dict[TopicPartition, PartitionState],
        leader_epochs: dict[TopicPartition, int | None],
        call: Call,
    ) -> None:
        """Handle the response for the partitions whose state epoch has not changed since the request.

        `leader_epochs` contains the current leader epoch that the request gave for each partition.
        """
        core = self._core
        if not isinstance(call.response, OffsetForLeaderEpochResponse):
            for partition, state in states.items():
                if call.outcome is Outcome.NOT_SENT:
                    # The broker supports only versions below `LOWEST_VERSION`, so nothing is validated.
                    state.on_validated(leader_epochs[partition])
                elif call.outcome is Outcome.UNAUTHENTICATED:
                    state.back_off_until(core.now + core.options.retry_backoff_max_ms)
                else:
                    core.view.forget_leader(partition)
                    self._report_and_retry(state, str(call.error))
            if call.outcome is Outcome.UNAUTHENTICATED and call.error is not None:
                core.queue_error(call.error)
            self._metadata.need()
            return
        entries = consistent_values(
            (TopicPartition(topic.topic, entry.partition), entry)
            for topic in call.response.topics
            for entry in topic.partitions
        )
        errors: dict[TopicPartition, int] = {}
        unanswered = dict(states)
        for partition, entry in entries.items():
            if partition in unanswered:
                state = unanswered.pop(partition)
                self._on_epoch_end_offset(state, entry, leader_epochs[partition], errors)
        core.queue_errors("OffsetForLeaderEpoch", errors)
        for state in unanswered.values():
            self._report_and_retry(state, "the response does not contain it")

    def _on_epoch_end_offset(
        self,
        state: PartitionState,
        entry: EpochEndOffset,
        leader_epoch: int | None,
        errors: dict[TopicPartition, int],
    ) -> None:
        """Handle the response for one partition.

        If the partition has an error that poll must raise, the error code is added to `errors`.
        """
        core = self._core
        action = action_for(EPOCHS, entry.error_code)
        if action is ErrorAction.RAISE:
            state.back_off_until(core.now + core.options.retry_backoff_max_ms)
            errors[state.partition] = entry.error_code
        elif action is not ErrorAction.USE:
            core.view.forget_leader(state.partition)
            self._metadata.need()
            self._report_and_retry(state, describe(entry.error_code))
        elif entry.end_offset < 0 or entry.leader_epoch < 0:
            self._on_truncation(state, diverging_offset=None, diverging_epoch=None, leader_epoch=leader_epoch)
        elif entry.end_offset < state.position:
            self._on_truncation(
                state,
                diverging_offset=entry.end_offset,
                diverging_epoch=entry.leader_epoch,
                leader_epoch=leader_epoch,
            )
        else:
            state.on_validated(leader_epoch)
        core.wake_poll()

    def _on_truncation(
        self,
        state: PartitionState,
        *,
        diverging_offset: int | None,
        diverging_epoch: int | None,
        leader_epoch: int | None,
    ) -> None:
        """Move the position to the diverging offset after a truncation.

        `diverging_offset` is None if the log contains no record of the position's epoch or an earlier epoch.
        In this case the position is reset. With the reset policy "none" the position does not change in any
        case, and poll raises LogTruncated.
        """
        core, options = self._core, self._core.options
        policy = options.on_out_of_range or options.auto_offset_reset
        if policy == "none":
            state.fail(LogTruncated(str(state.partition), state.position, diverging_offset))
            return
        position = state.position
        if diverging_offset is None:
            cause = f"it contains nothing of epoch {state.leader_epoch}"
            why = f"the log was truncated below the position {position}: {cause}"
            self._offset_lookup.reset_out_of_range(state, why)
            return
        reason = f"the log was truncated at {diverging_offset}, below the position {position}"
        committed = state.committed
        state.set_position(diverging_offset, diverging_epoch)
        state.validated = leader_epoch
        if committed is not None:
            state.on_committed(committed)
        core.report("truncated", [state.partition], reason=reason, offset=diverging_offset, before=position)

    def _report_and_retry(self, state: PartitionState, why: str) -> None:
        """Report a failed attempt, and validate the partition again later."""
        self._core.report_failure("OffsetForLeaderEpoch", why, state.partition, repeated=state.failures > 0)
        self._retry_later(state)

    def _retry_later(self, state: PartitionState) -> None:
        """Retry after the backoff."""
        state.back_off_until(self._core.next_retry_at(state.failures))
        state.failures += 1


def _encode_epoch(epoch: int | None) -> int:
    """Return the epoch as Kafka encodes it: -1 for None."""
    return -1 if epoch is None else epoch
