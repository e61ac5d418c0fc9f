"""The partitions that the application, or its binding, has assigned (rdkafka_assignment.c).

`assignment` contains all assigned partitions. Partitions in `pending` have not been started. Those in
`queried` wait for their committed offsets. Those in `removed` have to stop. `serve` stops, queries and starts
partitions by these rules:

* Removed partitions and their fetchers are stopped before other partitions start. With enable.auto.commit
  the stored offsets of the removed partitions are committed, unless the assignment is lost. Afterwards these
  stored offsets are dropped, whether they were committed or not.

* While a commit is in flight, no partition starts, because the commit may change the offset at which the
  partition starts.

* STORED (-1000) requests the committed offset. If none exists, the offset becomes INVALID (-1001), and
  auto.offset.reset applies.

* At most one OffsetFetch is in flight. If it fails with an error that is not retried, fetching does not start
  for its partitions.

* The group continues the rebalance when no removal, query, start or commit is in progress
  (`assignment_done`).
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
from .err_texts import err2str
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

UNLIMITED_RETRIES = 2**31


def add(state: LibrdkafkaState, partitions: Mapping[TopicPartition, int]) -> tuple[str, str] | None:
    """Add partitions with their offsets (rd_kafka_assignment_add).

    If an offset is invalid or a partition is already assigned, add nothing, and return the error. Otherwise
    return None.
    """
    for tp, offset in partitions.items():
        if offset not in (BEGINNING, END, STORED, INVALID) and TAIL_BASE < offset < 0:
            return ("_INVALID_ARG", f"{tp.topic} [{tp.partition}] has invalid start offset {offset}")
        if tp in state.assignment:
            return (CONFLICT[0], f"{tp.topic} [{tp.partition}] is already part of the current assignment")
    for tp, offset in sorted(partitions.items()):
        start = STORED if offset == INVALID else offset
        toppar_state = ensure_toppar(state, tp)
        toppar_state.assigned, toppar_state.stored_position = True, INVALID_POS
        state.assignment[tp] = start
        state.pending[tp] = FetchPos(start)
    state.assignment = dict(sorted(state.assignment.items()))
    state.assignment_version += 1
    return None


def clear(state: LibrdkafkaState) -> int:
    """Remove all partitions, and return their number (rd_kafka_assignment_clear)."""
    count = len(state.assignment)
    if count:
        state.pending, state.queried = {}, set()
        state.removed += state.assignment
        state.assignment = {}
        state.assignment_version += 1
    return count


def subtract(state: LibrdkafkaState, partitions: Iterable[TopicPartition]) -> tuple[str, str] | None:
    """Remove `partitions` and return None. If one is not assigned, remove none and return the error.

    Follows rd_kafka_assignment_subtract.
    """
    removed = list(partitions)
    for tp in removed:
        if tp not in state.assignment:
            text = (
                f"{tp.topic} [{tp.partition}] can't be unassigned since it is not in the current assignment"
            )
            return ("_INVALID_ARG", text)
    for tp in removed:
        del state.assignment[tp]
        state.pending.pop(tp, None)
        state.queried.discard(tp)
    state.removed += removed
    state.assignment_version += 1
    return None


def is_in_progress(state: LibrdkafkaState) -> bool:
    """Return whether a removal, query, start or commit is in progress.

    Follows rd_kafka_assignment_in_progress.
    """
    return bool(state.wait_commits or state.pending or state.queried or state.removed)


def serve(state: LibrdkafkaState, out: Out) -> None:
    """Stop removed partitions, start pending ones, and signal completion.

    Follows rd_kafka_assignment_serve.
    """
    if state.removed:
        _serve_removals(state, out)
    if not state.wait_commits and state.pending:
        _serve_pending(state, out)
    if not (state.wait_commits or state.pending or state.queried):
        state.internal_ops.append(InternalOp.ASSIGNMENT_DONE)


def _serve_removals(state: LibrdkafkaState, out: Out) -> None:
    """Stop the removed partitions, and drop their stored offsets.

    With enable.auto.commit, the stored offsets are also committed.
    """
    offsets: dict[TopicPartition, FetchPos] = {}
    for tp in state.removed:
        toppar_state = ensure_toppar(state, tp)
        state.pending.pop(tp, None)
        state.queried.discard(tp)
        if toppar_state.started:
            toppar.stop(state, toppar_state)
        toppar_state.paused_by_library = False
        if not is_logical(toppar_state.stored_position.offset):
            offsets[tp] = toppar_state.stored_position
        toppar_state.stored_position, toppar_state.assigned = INVALID_POS, False
    state.removed = []
    if offsets and state.auto_commit:
        offset_store.commit_removed(state, offsets, out)


def _serve_pending(state: LibrdkafkaState, out: Out) -> None:
    """Start the pending partitions that have an offset, and request the committed offsets of the others.

    Partitions without an offset stay pending while the coordinator is unknown, or while a commit or an
    OffsetFetch is in flight.
    """
    can_query = state.coord.state is CgrpState.UP and not state.wait_commits and not state.queried
    partitions_to_query: list[TopicPartition] = []
    for tp, position in reversed(list(state.pending.items())):
        if position.offset != STORED:
            del state.pending[tp]
            toppar.start(state, ensure_toppar(state, tp), position, out)
        elif can_query:
            del state.pending[tp]
            partitions_to_query.append(tp)
    if partitions_to_query and state.coordinator is not None:
        state.queried.update(partitions_to_query)
        request = offset_fetch_request(
            state.config.group_id,
            partitions_to_query,
            _offset_fetch_version(state),
            stable=state.isolation == 1 and not _lacks_require_stable(state),
        )
        context = (state.assignment_version, tuple(partitions_to_query))
        send_request(state, state.coordinator, request, out, context)


def _offset_fetch_version(state: LibrdkafkaState) -> int:
    offered = state.offered.get(9)
    return min(state.versions[9], offered[1]) if offered else state.versions[9]


def _lacks_require_stable(state: LibrdkafkaState) -> bool:
    return _offset_fetch_version(state) < 7


def on_offset_fetch_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetFetchResponse | None, code: int, out: Out
) -> None:
    """Handle an OffsetFetch response. Without a response, `code` is the error of the request.

    rd_kafka_assignment_handle_OffsetFetch.
    """
    assignment_version, requested = cast("tuple[int, tuple[TopicPartition, ...]]", entry.context)
    error, offsets = (code, {}) if response is None else parse_offset_fetch(response)
    is_unstable = any(
        committed_offset.error == E.UNSTABLE_OFFSET_COMMIT for committed_offset in offsets.values()
    )
    actions = err_action(error)
    if ErrAction.REFRESH in actions:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    is_retriable = ErrAction.RETRY in actions or is_unstable
    is_current = assignment_version == state.assignment_version
    if is_retriable and is_current and retry_request(state, entry, UNLIMITED_RETRIES):
        return
    if error:
        text = (
            f"Failed to fetch committed offsets for {len(requested)} partition(s) in group "
            f'"{state.config.group_id}": {err2str(error)}'
        )
        state.queue.append(ErrorOp(err2name(error), text))
    for tp in requested:
        if tp not in state.queried:
            continue  # The partition was unassigned while the request was in flight.
        state.queried.discard(tp)
        committed_offset = offsets.get(tp)
        if committed_offset is None or error not in (E.NONE, E.UNSTABLE_OFFSET_COMMIT):
            continue
        if committed_offset.error == E.UNSTABLE_OFFSET_COMMIT:
            state.pending[tp] = FetchPos(STORED)
        elif committed_offset.error:
            text = (
                f'Failed to fetch committed offset for group "{state.config.group_id}" '
                f"topic {tp.topic} [{tp.partition}]: {err2str(committed_offset.error)}"
            )
            state.queue.append(ErrorOp(err2name(committed_offset.error), text))
        else:
            offset = INVALID if committed_offset.offset < 0 else committed_offset.offset
            ensure_toppar(state, tp).committed_position = FetchPos(offset, committed_offset.epoch)
            state.pending[tp] = FetchPos(offset, committed_offset.epoch)
    serve(state, out)


def pause(state: LibrdkafkaState) -> None:
    """Pause all partitions while a rebalance event waits for its answer.

    Follows rd_kafka_assignment_pause.
    """
    for tp in state.assignment:
        toppar.pause(state, ensure_toppar(state, tp), library=True)


def resume(state: LibrdkafkaState) -> None:
    """Resume all partitions (rd_kafka_assignment_resume)."""
    for tp in state.assignment:
        toppar.resume(state, ensure_toppar(state, tp), library=True)
