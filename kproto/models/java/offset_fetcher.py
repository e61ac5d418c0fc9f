"""Positions: committed offsets, resets and validation (OffsetFetcher, SubscriptionState).

* M138: A position is unknown, valid, waiting for a reset, or waiting for validation.

* M139: Each poll validates positions, fetches committed offsets, then applies the reset policy.

* M140, M149: A position with an epoch is validated before the first fetch, and again after a leader change.

* M150: If the position is beyond the end of its epoch in the leader's log, the log was truncated. The
  position then moves to the end of that epoch.

* M151: After a failed validation, the client requests metadata, and validates again after a backoff.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.list_offsets import ListOffsetsResponse
from ...messages.offset_fetch import OffsetFetchResponse
from ...messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse
from ..common import (
    EARLIEST,
    LATEST,
    PartitionLeader,
    list_offsets_request,
    offset_fetch_request,
    offset_for_leader_epoch_request,
    parse_list_offsets,
    parse_offset_fetch,
    parse_offset_for_leader_epoch,
)
from . import coordinator_lookup
from .release import exception_name
from .state import (
    RETRIABLE,
    RETRY_BACKOFF_MS,
    FetchStates,
    InFlightRequest,
    JavaState,
    Out,
    TopicPartitionState,
    move_position,
    node_address,
    request_version,
    send_request,
)

REQUEST_MS = 30_000
# Error codes of an OffsetFetch response that kafka-clients 2.6 retries. 4.3 retries every retriable error.
_RETRIABLE_IN_2_6 = {E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR}


def update_fetch_positions(state: JavaState, out: Out) -> None:
    """Validate positions, fetch committed offsets or reset positions, as each position requires (M139).

    updateFetchPositions.
    """
    if state.committed_refreshed:
        # Java's updateFetchPositions returns when the committed offsets arrive. Only the next call validates
        # the positions that were set from them.
        state.committed_refreshed = False
        _reset_offsets(state, out)
    _validate_offsets(state, out)
    without_position = [
        tp for tp, partition in state.assigned.items() if partition.state is FetchStates.INITIALIZING
    ]
    if without_position:
        _fetch_committed_offsets(state, without_position, out)
        return
    _reset_offsets(state, out)
    state.positions_settled = all(
        partition.state is FetchStates.FETCHING for partition in state.assigned.values()
    )


def seek_partition(partition: TopicPartitionState, offset: int, epoch: int = -1) -> None:
    """Set the position of a partition. A position with an epoch is validated before the next Fetch."""
    partition.offset, partition.epoch, partition.request_open, partition.retry_at = offset, epoch, False, 0
    move_position(partition, FetchStates.AWAIT_VALIDATION if epoch >= 0 else FetchStates.FETCHING)


def request_offset_reset(partition: TopicPartitionState, timestamp: int) -> None:
    """Make the partition wait for ListOffsets with `timestamp`."""
    move_position(partition, FetchStates.AWAIT_RESET)
    partition.timestamp, partition.offset, partition.epoch = timestamp, -1, -1
    partition.request_open, partition.retry_at = False, 0


def reset_by_policy(state: JavaState, tp: TopicPartition) -> None:
    """Apply auto.offset.reset to a partition.

    The function follows resetInitializingPositions. A position for which a Fetch failed with
    OFFSET_OUT_OF_RANGE is reset in the same way.
    """
    policy = state.config.reset or "latest"
    state.positions_settled = False
    if policy == "none":
        move_position(state.assigned[tp], FetchStates.INITIALIZING)
        text = f"Undefined offset with no reset policy for partitions: [{tp}]"
        state.pending_exception = ("NoOffsetForPartitionException", text)
    else:
        request_offset_reset(state.assigned[tp], EARLIEST if policy == "earliest" else LATEST)


# -- the committed offsets of the group


def _fetch_committed_offsets(state: JavaState, partitions: list[TopicPartition], out: Out) -> None:
    """Send an OffsetFetch, unless one is in flight, the coordinator is unknown or all partitions back off."""
    if state.offset_fetch_in_flight:
        return
    coordinator_lookup.lookup_coordinator(state, out)
    if state.coordinator is None:
        return
    if state.now < min(state.assigned[tp].retry_at for tp in partitions):
        return
    state.offset_fetch_in_flight = True
    request = offset_fetch_request(state.config.group_id, partitions, request_version(state, 9), stable=True)
    send_request(state, state.coordinator, request, out, tuple(partitions))


def on_offset_fetch_response(
    state: JavaState, entry: InFlightRequest, response: OffsetFetchResponse | None, out: Out
) -> None:
    """Handle an OffsetFetch response (None for a lost connection).

    A partition seeks to its committed offset. The reset policy applies to a partition without one. Follows
    OffsetFetchResponseHandler and refreshCommittedOffsetsIfNeeded.
    """
    state.offset_fetch_in_flight = False
    requested = cast("tuple[TopicPartition, ...]", entry.context)
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        _delay_retry(state, requested)
        return
    error, offsets = parse_offset_fetch(response)
    partition_error = next((committed.error for committed in offsets.values() if committed.error), 0)
    is_retriable = error in _RETRIABLE_IN_2_6 if state.release.commits_synchronously else error in RETRIABLE
    if error and is_retriable:
        if error in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
            coordinator_lookup.mark_coordinator_unknown(state, out)
        _delay_retry(state, requested)
    elif partition_error == E.UNSTABLE_OFFSET_COMMIT and not error:
        _delay_retry(state, requested)
    elif error or partition_error:
        is_unexpected = error != E.GROUP_AUTHORIZATION_FAILED
        name = "KafkaException" if is_unexpected else exception_name(error)
        state.pending_exception = (
            name,
            f"Unexpected error in fetch offset response: {exception_name(error or partition_error)}",
        )
    else:
        state.committed_refreshed = True
        for tp, committed in offsets.items():
            partition = state.assigned.get(tp)
            if partition is None or partition.state is not FetchStates.INITIALIZING:
                continue
            if committed.offset < 0:
                reset_by_policy(state, tp)
            else:
                seek_partition(partition, committed.offset, committed.epoch)


def _delay_retry(state: JavaState, partitions: tuple[TopicPartition, ...]) -> None:
    for tp in partitions:
        if tp in state.assigned:
            state.assigned[tp].retry_at = state.now + RETRY_BACKOFF_MS


# -- resets


def _reset_offsets(state: JavaState, out: Out) -> None:
    """Send each leader a ListOffsets for its partitions in AWAIT_RESET (resetOffsetsIfNeeded)."""
    requests: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, partition in sorted(state.assigned.items()):
        if (
            partition.state is not FetchStates.AWAIT_RESET
            or partition.request_open
            or partition.retry_at > state.now
        ):
            continue
        leader = state.cluster.leader(tp)
        if leader is None:
            state.metadata_update_requested = True
            continue
        requests.setdefault(leader.node, {})[tp] = (partition.timestamp, leader.epoch)
        partition.request_open = True
    for node, partitions in requests.items():
        request = list_offsets_request(partitions, isolation=state.isolation, timeout_ms=REQUEST_MS)
        send_request(
            state,
            node_address(state, node),
            request,
            out,
            {tp: timestamp for tp, (timestamp, _) in partitions.items()},
        )


def on_list_offsets_response(
    state: JavaState, entry: InFlightRequest, response: ListOffsetsResponse | None, out: Out
) -> None:
    """Handle a ListOffsets response (None for a lost connection).

    A partition seeks to its listed offset. A partition with an error or without a result is retried after the
    backoff, and new metadata is requested. Partitions that no longer wait for this reset are ignored.
    """
    requested = cast("dict[TopicPartition, int]", entry.context)
    listed_offsets = parse_list_offsets(response) if response is not None else {}
    for tp, timestamp in requested.items():
        partition = state.assigned.get(tp)
        if (
            partition is None
            or partition.state is not FetchStates.AWAIT_RESET
            or partition.timestamp != timestamp
        ):
            continue
        partition.request_open = False
        listed = listed_offsets.get(tp)
        if listed is None or listed.error:
            partition.retry_at, state.metadata_update_requested = state.now + RETRY_BACKOFF_MS, True
        else:
            seek_partition(partition, listed.offset)


# -- validation


def _validate_offsets(state: JavaState, out: Out) -> None:
    """Send OffsetForLeaderEpoch for positions that have an epoch.

    Follows validateOffsetsIfNeeded (M140).
    """
    requests: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, partition in sorted(state.assigned.items()):
        if (
            partition.state is not FetchStates.AWAIT_VALIDATION
            or partition.request_open
            or partition.retry_at > state.now
        ):
            continue
        leader = state.cluster.leader(tp)
        if leader is not None:
            requests.setdefault(leader.node, {})[tp] = (partition.epoch, leader.epoch)
            partition.request_open = True
    for node, partitions in requests.items():
        positions = {tp: state.assigned[tp].offset for tp in partitions}
        send_request(
            state, node_address(state, node), offset_for_leader_epoch_request(partitions), out, positions
        )


def on_offset_for_epoch_response(
    state: JavaState, entry: InFlightRequest, response: OffsetForLeaderEpochResponse | None, out: Out
) -> None:
    """Handle an OffsetForLeaderEpoch response (OffsetForEpochHandler, M150, M151).

    Keep the position if the leader's log contains it. Otherwise seek to the offset at which the logs diverge.
    If the broker does not know the offset of the divergence, apply the reset policy.
    """
    requested = cast("dict[TopicPartition, int]", entry.context)
    epoch_ends = parse_offset_for_leader_epoch(response) if response is not None else {}
    for tp, offset in requested.items():
        partition = state.assigned.get(tp)
        if (
            partition is None
            or partition.state is not FetchStates.AWAIT_VALIDATION
            or partition.offset != offset
        ):
            continue
        partition.request_open = False
        epoch_end = epoch_ends.get(tp)
        if epoch_end is None or epoch_end.error:
            partition.retry_at, state.metadata_update_requested = state.now + RETRY_BACKOFF_MS, True
        elif epoch_end.offset < 0 or epoch_end.epoch < 0:
            reset_by_policy(state, tp)
        elif epoch_end.offset < partition.offset:
            seek_partition(partition, epoch_end.offset, epoch_end.epoch)
        else:
            move_position(partition, FetchStates.FETCHING)


def revalidate_changed_leaders(
    state: JavaState, old_leaders: Mapping[str, Mapping[int, PartitionLeader]]
) -> None:
    """Revalidate each position that has an epoch, if the epoch of its leader has increased (M149)."""
    for tp, partition in state.assigned.items():
        old = old_leaders.get(tp.topic, {}).get(tp.partition)
        new = state.cluster.leader(tp)
        is_newer = old is not None and new is not None and new.epoch > old.epoch
        if is_newer and partition.state is FetchStates.FETCHING and partition.epoch >= 0:
            move_position(partition, FetchStates.AWAIT_VALIDATION)
            partition.request_open = state.positions_settled = False
