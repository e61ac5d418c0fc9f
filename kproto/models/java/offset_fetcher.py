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
    Leader,
    ended_epochs,
    epoch_ends,
    fetched_offsets,
    list_offsets,
    listed_offsets,
    offset_fetch,
)
from . import coordinator_lookup
from .release import exception
from .state import RETRIABLE, RETRY_BACKOFF_MS, Open, Out, Partition, State, Where, node, send, version

REQUEST_MS = 30_000
_PASSES_IN_2_6 = {E.COORDINATOR_LOAD_IN_PROGRESS, E.NOT_COORDINATOR}
"""What 2.6 expects as the error of a whole OffsetFetch, and tries again; 4.3 whatever is retriable."""


def serve(state: State, out: Out) -> None:
    """updateFetchPositions, in its order: validate, committed offsets, default reset, ListOffsets."""
    if state.refreshed:  # the same call goes on behind the committed offsets; validation is the next one's
        state.refreshed = False
        _reset(state, out)
    _validate(state, out)
    new = [tp for tp, one in state.assigned.items() if one.where is Where.initializing]
    if new:
        _ask_committed(state, new, out)
        return
    _reset(state, out)
    state.settled = all(one.where is Where.fetching for one in state.assigned.values())


def seek(one: Partition, offset: int, epoch: int = -1) -> None:
    one.offset, one.epoch, one.asked, one.retry_at = offset, epoch, False, 0
    one.where = Where.awaiting_validation if epoch >= 0 else Where.fetching


def want_reset(one: Partition, timestamp: int) -> None:
    one.where, one.timestamp, one.offset, one.epoch = Where.awaiting_reset, timestamp, -1, -1
    one.asked, one.retry_at = False, 0


def by_policy(state: State, tp: TopicPartition) -> None:
    """resetInitializingPositions, and what is out of range."""
    policy = state.config.reset or "latest"
    state.settled = False
    if policy == "none":
        state.assigned[tp].where = Where.initializing
        text = f"Undefined offset with no reset policy for partitions: [{tp}]"
        state.thrown = ("NoOffsetForPartitionException", text)
    else:
        want_reset(state.assigned[tp], EARLIEST if policy == "earliest" else LATEST)


# -- what the group committed


def _ask_committed(state: State, new: list[TopicPartition], out: Out) -> None:
    if state.committed_open:
        return
    coordinator_lookup.look_up(state, out)
    if state.coordinator is None:
        return
    if state.now < min(state.assigned[tp].retry_at for tp in new):
        return
    state.committed_open = True
    request = offset_fetch(state.config.group_id, new, version(state, 9), stable=True)
    send(state, state.coordinator, request, out, tuple(new))


def committed(state: State, entry: Open, answer: OffsetFetchResponse | None, out: Out) -> None:
    """OffsetFetchResponseHandler and refreshCommittedOffsetsIfNeeded."""
    state.committed_open = False
    asked = cast("tuple[TopicPartition, ...]", entry.about)
    if answer is None:
        coordinator_lookup.unknown(state, out, disconnected=True)
        _later(state, asked)
        return
    error, offsets = fetched_offsets(answer)
    inner = next((one.error for one in offsets.values() if one.error), 0)
    passes = error in _PASSES_IN_2_6 if state.rules.blocking_commit else error in RETRIABLE
    if error and passes:
        if error in (E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR):
            coordinator_lookup.unknown(state, out)
        _later(state, asked)
    elif inner == E.UNSTABLE_OFFSET_COMMIT and not error:
        _later(state, asked)
    elif error or inner:
        unexpected = error != E.GROUP_AUTHORIZATION_FAILED
        name = "KafkaException" if unexpected else exception(error)
        state.thrown = (name, f"Unexpected error in fetch offset response: {exception(error or inner)}")
    else:
        state.refreshed = True
        for tp, one in offsets.items():
            found = state.assigned.get(tp)
            if found is None or found.where is not Where.initializing:
                continue
            if one.offset < 0:
                by_policy(state, tp)
            else:
                seek(found, one.offset, one.epoch)


def _later(state: State, partitions: tuple[TopicPartition, ...]) -> None:
    for tp in partitions:
        if tp in state.assigned:
            state.assigned[tp].retry_at = state.now + RETRY_BACKOFF_MS


# -- resets


def _reset(state: State, out: Out) -> None:
    """resetOffsetsIfNeeded: one ListOffsets for each leader."""
    asked: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, one in sorted(state.assigned.items()):
        if one.where is not Where.awaiting_reset or one.asked or one.retry_at > state.now:
            continue
        found = state.cluster.leader(tp)
        if found is None:
            state.metadata_wanted = True
            continue
        asked.setdefault(found.node, {})[tp] = (one.timestamp, found.epoch)
        one.asked = True
    for number, partitions in asked.items():
        request = list_offsets(partitions, isolation=state.isolation, timeout_ms=REQUEST_MS)
        send(state, node(state, number), request, out, {tp: at for tp, (at, _) in partitions.items()})


def listed(state: State, entry: Open, answer: ListOffsetsResponse | None, out: Out) -> None:
    asked = cast("dict[TopicPartition, int]", entry.about)
    got = listed_offsets(answer) if answer is not None else {}
    for tp, timestamp in asked.items():
        one = state.assigned.get(tp)
        if one is None or one.where is not Where.awaiting_reset or one.timestamp != timestamp:
            continue
        one.asked = False
        answered = got.get(tp)
        if answered is None or answered.error:
            one.retry_at, state.metadata_wanted = state.now + RETRY_BACKOFF_MS, True
        else:
            seek(one, answered.offset)


# -- validation


def _validate(state: State, out: Out) -> None:
    """validateOffsetsIfNeeded: OffsetForLeaderEpoch for positions that came with an epoch (M140)."""
    asked: dict[int, dict[TopicPartition, tuple[int, int]]] = {}
    for tp, one in sorted(state.assigned.items()):
        if one.where is not Where.awaiting_validation or one.asked or one.retry_at > state.now:
            continue
        found = state.cluster.leader(tp)
        if found is not None:
            asked.setdefault(found.node, {})[tp] = (one.epoch, found.epoch)
            one.asked = True
    for number, partitions in asked.items():
        positions = {tp: state.assigned[tp].offset for tp in partitions}
        send(state, node(state, number), epoch_ends(partitions), out, positions)


def validated(state: State, entry: Open, answer: OffsetForLeaderEpochResponse | None, out: Out) -> None:
    """OffsetForEpochHandler (M150)."""
    asked = cast("dict[TopicPartition, int]", entry.about)
    got = ended_epochs(answer) if answer is not None else {}
    for tp, offset in asked.items():
        one = state.assigned.get(tp)
        if one is None or one.where is not Where.awaiting_validation or one.offset != offset:
            continue
        one.asked = False
        found = got.get(tp)
        if found is None or found.error:
            one.retry_at, state.metadata_wanted = state.now + RETRY_BACKOFF_MS, True
        elif found.offset < 0 or found.epoch < 0:
            by_policy(state, tp)
        elif found.offset < one.offset:
            seek(one, found.offset, found.epoch)
        else:
            one.where = Where.fetching


def leaders_changed(state: State, before: Mapping[str, Mapping[int, Leader]]) -> None:
    """A newer leader epoch: positions that have one are validated again (M149)."""
    for tp, one in state.assigned.items():
        was = before.get(tp.topic, {}).get(tp.partition)
        now = state.cluster.leader(tp)
        changed = was is not None and now is not None and now.epoch > was.epoch
        if changed and one.where is Where.fetching and one.epoch >= 0:
            one.where, one.asked, state.settled = Where.awaiting_validation, False, False
