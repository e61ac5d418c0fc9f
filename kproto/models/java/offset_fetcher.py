"""Positions: committed offsets, resets, validation (M138 to M152)."""

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
    node_address,
    request_version,
    send_request,
)

REQUEST_MS = 30_000
_RETRIABLE_IN_2_6 = {E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR}
"""What 2.6 expects as the error of a whole OffsetFetch, and tries again; 4.3 whatever is retriable."""


def update_fetch_positions(state: JavaState, out: Out) -> None:
    """updateFetchPositions, in its order: validate, committed offsets, default reset, ListOffsets."""
    if (
        state.committed_refreshed
    ):  # the same call goes on behind the committed offsets; validation is the next one's
        state.committed_refreshed = False
        _reset_offsets(state, out)
    _validate_offsets(state, out)
    new = [tp for tp, one in state.assigned.items() if one.fetch_state is FetchStates.INITIALIZING]
    if new:
        _fetch_committed_offsets(state, new, out)
        return
    _reset_offsets(state, out)
    state.positions_settled = all(one.fetch_state is FetchStates.FETCHING for one in state.assigned.values())


def seek_partition(one: TopicPartitionState, offset: int, epoch: int = -1) -> None:
    one.offset, one.epoch, one.request_open, one.retry_at = offset, epoch, False, 0
    one.fetch_state = FetchStates.AWAIT_VALIDATION if epoch >= 0 else FetchStates.FETCHING


def request_offset_reset(one: TopicPartitionState, timestamp: int) -> None:
    one.fetch_state, one.timestamp, one.offset, one.epoch = FetchStates.AWAIT_RESET, timestamp, -1, -1
    one.request_open, one.retry_at = False, 0


def reset_by_policy(state: JavaState, tp: TopicPartition) -> None:
    """resetInitializingPositions, and what is out of range."""
    policy = state.config.reset or "latest"
    state.positions_settled = False
    if policy == "none":
        state.assigned[tp].fetch_state = FetchStates.INITIALIZING
        text = f"Undefined offset with no reset policy for partitions: [{tp}]"
        state.pending_exception = ("NoOffsetForPartitionException", text)
    else:
        request_offset_reset(state.assigned[tp], EARLIEST if policy == "earliest" else LATEST)


# -- what the group committed


def _fetch_committed_offsets(state: JavaState, new: list[TopicPartition], out: Out) -> None:
    if state.offset_fetch_in_flight:
        return
    coordinator_lookup.lookup_coordinator(state, out)
    if state.coordinator is None:
        return
    if state.now < min(state.assigned[tp].retry_at for tp in new):
        return
    state.offset_fetch_in_flight = True
    request = offset_fetch_request(state.config.group_id, new, request_version(state, 9), stable=True)
    send_request(state, state.coordinator, request, out, tuple(new))


def on_offset_fetch_response(
    state: JavaState, entry: InFlightRequest, response: OffsetFetchResponse | None, out: Out
) -> None:
    """OffsetFetchResponseHandler and refreshCommittedOffsetsIfNeeded."""
    state.offset_fetch_in_flight = False
    asked = cast("tuple[TopicPartition, ...]", entry.context)
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        _retry_later(state, asked)
        return
    error, offsets = parse_offset_fetch(response)
    inner = next((one.error for one in offsets.values() if one.error), 0)
    passes = error in _RETRIABLE_IN_2_6 if state.release.commits_synchronously else error in RETRIABLE
    if error and passes:
        if error in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
            coordinator_lookup.mark_coordinator_unknown(state, out)
        _retry_later(state, asked)
    elif inner == E.UNSTABLE_OFFSET_COMMIT and not error:
        _retry_later(state, asked)
    elif error or inner:
        unexpected = error != E.GROUP_AUTHORIZATION_FAILED
        name = "KafkaException" if unexpected else exception_name(error)
        state.pending_exception = (
            name,
            f"Unexpected error in fetch offset response: {exception_name(error or inner)}",
        )
    else:
        state.committed_refreshed = True
        for tp, one in offsets.items():
            found = state.assigned.get(tp)
            if found is None or found.fetch_state is not FetchStates.INITIALIZING:
                continue
            if one.offset < 0:
                reset_by_policy(state, tp)
            else:
                seek_partition(found, one.offset, one.epoch)


def _retry_later(state: JavaState, partitions: tuple[TopicPartition, ...]) -> None:
    for tp in partitions:
        if tp in state.assigned:
            state.assigned[tp].retry_at = state.now + RETRY_BACKOFF_MS


# -- resets


def _reset_offsets(state: JavaState, out: Out) -> None:
    """resetOffsetsIfNeeded: one ListOffsets for each leader."""
    asked: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, one in sorted(state.assigned.items()):
        if one.fetch_state is not FetchStates.AWAIT_RESET or one.request_open or one.retry_at > state.now:
            continue
        found = state.cluster.leader(tp)
        if found is None:
            state.metadata_wanted = True
            continue
        asked.setdefault(found.node, {})[tp] = (one.timestamp, found.epoch)
        one.request_open = True
    for number, partitions in asked.items():
        request = list_offsets_request(partitions, isolation=state.isolation, timeout_ms=REQUEST_MS)
        send_request(
            state, node_address(state, number), request, out, {tp: at for tp, (at, _) in partitions.items()}
        )


def on_list_offsets_response(
    state: JavaState, entry: InFlightRequest, response: ListOffsetsResponse | None, out: Out
) -> None:
    asked = cast("dict[TopicPartition, int]", entry.context)
    got = parse_list_offsets(response) if response is not None else {}
    for tp, timestamp in asked.items():
        one = state.assigned.get(tp)
        if one is None or one.fetch_state is not FetchStates.AWAIT_RESET or one.timestamp != timestamp:
            continue
        one.request_open = False
        answered = got.get(tp)
        if answered is None or answered.error:
            one.retry_at, state.metadata_wanted = state.now + RETRY_BACKOFF_MS, True
        else:
            seek_partition(one, answered.offset)


# -- validation


def _validate_offsets(state: JavaState, out: Out) -> None:
    """validateOffsetsIfNeeded: OffsetForLeaderEpoch for positions that came with an epoch (M140)."""
    asked: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, one in sorted(state.assigned.items()):
        if (
            one.fetch_state is not FetchStates.AWAIT_VALIDATION
            or one.request_open
            or one.retry_at > state.now
        ):
            continue
        found = state.cluster.leader(tp)
        if found is not None:
            asked.setdefault(found.node, {})[tp] = (one.epoch, found.epoch)
            one.request_open = True
    for number, partitions in asked.items():
        positions = {tp: state.assigned[tp].offset for tp in partitions}
        send_request(
            state, node_address(state, number), offset_for_leader_epoch_request(partitions), out, positions
        )


def on_offset_for_epoch_response(
    state: JavaState, entry: InFlightRequest, response: OffsetForLeaderEpochResponse | None, out: Out
) -> None:
    """OffsetForEpochHandler (M150)."""
    asked = cast("dict[TopicPartition, int]", entry.context)
    got = parse_offset_for_leader_epoch(response) if response is not None else {}
    for tp, offset in asked.items():
        one = state.assigned.get(tp)
        if one is None or one.fetch_state is not FetchStates.AWAIT_VALIDATION or one.offset != offset:
            continue
        one.request_open = False
        found = got.get(tp)
        if found is None or found.error:
            one.retry_at, state.metadata_wanted = state.now + RETRY_BACKOFF_MS, True
        elif found.offset < 0 or found.epoch < 0:
            reset_by_policy(state, tp)
        elif found.offset < one.offset:
            seek_partition(one, found.offset, found.epoch)
        else:
            one.fetch_state = FetchStates.FETCHING


def revalidate_changed_leaders(state: JavaState, before: Mapping[str, Mapping[int, PartitionLeader]]) -> None:
    """A newer leader epoch: positions that have one are validated again (M149)."""
    for tp, one in state.assigned.items():
        was = before.get(tp.topic, {}).get(tp.partition)
        now = state.cluster.leader(tp)
        changed = was is not None and now is not None and now.epoch > was.epoch
        if changed and one.fetch_state is FetchStates.FETCHING and one.epoch >= 0:
            one.fetch_state, one.request_open, state.positions_settled = (
                FetchStates.AWAIT_VALIDATION,
                False,
                False,
            )
