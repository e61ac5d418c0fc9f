"""The assignment: what the application (or the default answer) told the library to consume.

rdkafka_assignment.c. Four lists: `all` of it, `pending` partitions that aren't started, `queried` ones whose
committed offset is asked for, `removed` ones that have to stop. `serve` moves them on:

* Removals first: the fetcher stops; with enable.auto.commit the stored offsets are committed (unless the
  assignment is lost), and are forgotten in any case.
* Nothing starts while commits are open: their offsets may be where to start.
* STORED (-1000) asks the group; without a commit it is INVALID (-1001), which means auto.offset.reset.
* At most one OffsetFetch is open. One that fails for good leaves its partitions waiting for ever.
* When nothing is under way the group goes on (`done`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.offset_fetch import OffsetFetchResponse
from ..common import offset_fetch_request, parse_offset_fetch
from . import offset_store, toppar
from .constants import BEGINNING, CONFLICT, END, INVALID, STORED, TAIL_BASE, err2name, is_logical
from .request import ErrAction, err_action, retry_request, send_request
from .state import (
    INVALID_POS,
    CgrpState,
    ErrorOp,
    FetchPos,
    InternalOp,
    LibrdkafkaState,
    Out,
    RequestBuf,
    ensure_toppar,
)

UNLIMITED = 2**31


def add(state: LibrdkafkaState, partitions: Mapping[TopicPartition, int]) -> tuple[str, str] | None:
    """rd_kafka_assignment_add; answers what is wrong with them."""
    for tp, offset in partitions.items():
        if offset not in (BEGINNING, END, STORED, INVALID) and TAIL_BASE < offset < 0:
            return ("_INVALID_ARG", f"{tp.topic} [{tp.partition}] has invalid start offset {offset}")
        if tp in state.assignment:
            return (CONFLICT[0], f"{tp.topic} [{tp.partition}] is already part of the current assignment")
    for tp, offset in sorted(partitions.items()):
        start = STORED if offset == INVALID else offset
        one = ensure_toppar(state, tp)
        one.assigned, one.stored_position = True, INVALID_POS
        state.assignment[tp] = start
        state.pending[tp] = FetchPos(start)
    state.assignment = dict(sorted(state.assignment.items()))
    state.assignment_version += 1
    return None


def clear(state: LibrdkafkaState) -> int:
    """rd_kafka_assignment_clear; answers how many were there."""
    count = len(state.assignment)
    if count:
        state.pending, state.queried = {}, set()
        state.removed += state.assignment
        state.assignment = {}
        state.assignment_version += 1
    return count


def subtract(state: LibrdkafkaState, partitions: Iterable[TopicPartition]) -> tuple[str, str] | None:
    """rd_kafka_assignment_subtract."""
    gone = list(partitions)
    for tp in gone:
        if tp not in state.assignment:
            text = (
                f"{tp.topic} [{tp.partition}] can't be unassigned since it is not in the current assignment"
            )
            return ("_INVALID_ARG", text)
    for tp in gone:
        del state.assignment[tp]
        state.pending.pop(tp, None)
        state.queried.discard(tp)
    state.removed += gone
    state.assignment_version += 1
    return None


def is_in_progress(state: LibrdkafkaState) -> bool:
    """rd_kafka_assignment_in_progress."""
    return bool(state.wait_commits or state.pending or state.queried or state.removed)


def serve(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_assignment_serve."""
    if state.removed:
        _serve_removals(state, out)
    if not state.wait_commits and state.pending:
        _serve_pending(state, out)
    if not (state.wait_commits or state.pending or state.queried):
        state.internal_ops.append(InternalOp.ASSIGNMENT_DONE)


def _serve_removals(state: LibrdkafkaState, out: Out) -> None:
    offsets: dict[TopicPartition, FetchPos] = {}
    for tp in state.removed:
        one = ensure_toppar(state, tp)
        state.pending.pop(tp, None)
        state.queried.discard(tp)
        if one.started:
            toppar.stop(state, one)
        one.paused_by_library = False
        if not is_logical(one.stored_position.offset):
            offsets[tp] = one.stored_position
        one.stored_position, one.assigned = INVALID_POS, False
    state.removed = []
    if offsets and state.auto_commit:
        offset_store.commit_removed(state, offsets, out)


def _serve_pending(state: LibrdkafkaState, out: Out) -> None:
    can_query = state.coord_state is CgrpState.UP and not state.wait_commits and not state.queried
    query: list[TopicPartition] = []
    for tp, position in reversed(list(state.pending.items())):
        if position.offset != STORED:
            del state.pending[tp]
            toppar.start(state, ensure_toppar(state, tp), position, out)
        elif can_query:
            del state.pending[tp]
            query.append(tp)
    if query and state.coordinator is not None:
        state.queried.update(query)
        request = offset_fetch_request(
            state.config.group_id,
            query,
            _offset_fetch_version(state),
            stable=state.isolation == 1 and not _lacks_require_stable(state),
        )
        send_request(state, state.coordinator, request, out, (state.assignment_version, tuple(query)))


def _offset_fetch_version(state: LibrdkafkaState) -> int:
    offered = state.offered.get(9)
    return min(state.versions[9], offered[1]) if offered else state.versions[9]


def _lacks_require_stable(state: LibrdkafkaState) -> bool:
    return _offset_fetch_version(state) < 7


def on_offset_fetch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetFetchResponse | None, code: int, out: Out
) -> None:
    """rd_kafka_assignment_handle_OffsetFetch; `code` is the error of a request that got no answer."""
    version, asked = cast("tuple[int, tuple[TopicPartition, ...]]", entry.context)
    error, offsets = (code, {}) if response is None else parse_offset_fetch(response)
    unstable = any(one.error == E.UNSTABLE_OFFSET_COMMIT for one in offsets.values())
    do = err_action(error)
    if ErrAction.REFRESH in do:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    again = ErrAction.RETRY in do or unstable
    if again and version == state.assignment_version and retry_request(state, entry, UNLIMITED):
        return
    if error:
        name = err2name(error)
        state.queue.append(
            ErrorOp(name, f"Failed to fetch committed offsets for {len(asked)} partition(s): {name}")
        )
    for tp in asked:
        if tp not in state.queried:
            continue  # unassigned meanwhile
        state.queried.discard(tp)
        one = offsets.get(tp)
        if one is None or error not in (E.NONE, E.UNSTABLE_OFFSET_COMMIT):
            continue
        if one.error == E.UNSTABLE_OFFSET_COMMIT:
            state.pending[tp] = FetchPos(STORED)
        elif one.error:
            name = err2name(one.error)
            state.queue.append(ErrorOp(name, f"Failed to fetch committed offset for {tp}: {name}"))
        else:
            offset = INVALID if one.offset < 0 else one.offset
            ensure_toppar(state, tp).committed_position = FetchPos(offset, one.epoch)
            state.pending[tp] = FetchPos(offset, one.epoch)
    serve(state, out)


def pause(state: LibrdkafkaState) -> None:
    """rd_kafka_assignment_pause: nothing is given out while a rebalance event waits for its answer."""
    for tp in state.assignment:
        toppar.pause(state, ensure_toppar(state, tp), library=True)


def resume(state: LibrdkafkaState) -> None:
    """rd_kafka_assignment_resume."""
    for tp in state.assignment:
        toppar.resume(state, ensure_toppar(state, tp), library=True)
