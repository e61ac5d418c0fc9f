"""The offset store and both ways to commit it: rdkafka_cgrp.c (offsets_commit) and rdkafka_offset.c.

Two layers. *Stored*: what the application has had, plus one (with enable.auto.offset.store, the moment that a
record is handed over; else what it stores by itself). *Committed*: what the group knows.

* The timer (enable.auto.commit and auto.commit.interval.ms > 0) commits what is stored and newer than what is
  committed; not while a subscriber isn't STEADY. With interval 0 there is no timer.
* Removing partitions from the assignment commits what is stored, newer or not (`assignment`).
* A lost assignment is not committed: a manual commit gets _ASSIGNMENT_LOST. Nothing to commit is _NO_OFFSET.
* Without a coordinator, and after NOT_COORDINATOR, a commit waits for one, once, for session.timeout.ms.
* UNKNOWN_MEMBER_ID loses everything; ILLEGAL_GENERATION too, unless a rebalance is under way (then the commit
  carried the old generation and only fails).
"""

from __future__ import annotations

from collections.abc import Mapping

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from ..common import OffsetToCommit as Wire
from ..common import commit_errors, offset_commit_request
from ..contract import FinishCommit
from .constants import (
    ASSIGNMENT_LOST,
    FATAL,
    INVALID,
    INVALID_ARG,
    NO_OFFSET,
    STATE,
    WAIT_COORD,
    err2name,
    is_logical,
)
from .request import TRANSPORT, retry_request, send_request
from .state import (
    CgrpJoinState,
    CgrpState,
    FetchPos,
    InternalOp,
    LibrdkafkaState,
    OffsetCommitOp,
    Out,
    RequestBuf,
    ensure_toppar,
    set_fatal,
)

_RETRIABLE_ERRORS = {
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.UNKNOWN_TOPIC_OR_PARTITION,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.REQUEST_TIMED_OUT,
}
_COORDINATOR_ERRORS = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR}


def store(state: LibrdkafkaState, offsets: Mapping[TopicPartition, int]) -> tuple[str, str] | None:
    """rd_kafka_offsets_store: not allowed beside the automatic store, nor for what isn't assigned."""
    if state.auto_store:
        return INVALID_ARG
    wrong = None
    for tp, offset in offsets.items():
        one = ensure_toppar(state, tp)
        if not one.assigned:
            wrong = STATE
        else:
            one.stored_position = FetchPos(offset)
    return wrong


def commit(
    state: LibrdkafkaState, token: object, offsets: Mapping[TopicPartition, int] | None, wait: bool, out: Out
) -> None:
    """rd_kafka_commit: these offsets, or those that are stored for the assignment."""
    op = OffsetCommitOp({}, token, reply_to_application=wait)
    if not wait:
        out.append(FinishCommit(token))
    if offsets is not None:
        op.offsets = {tp: FetchPos(offset) for tp, offset in offsets.items()}
        _send_commit(state, op, out)
    else:
        _commit_stored(state, op, out)


def commit_on_timer(state: LibrdkafkaState, out: Out) -> None:
    """rd_kafka_cgrp_offset_commit_tmr_cb."""
    if state.subscription is not None and state.state is not CgrpJoinState.STEADY:
        return
    if not state.assignment_lost:
        _commit_stored(state, OffsetCommitOp({}), out)


def commit_removed(state: LibrdkafkaState, offsets: dict[TopicPartition, FetchPos], out: Out) -> None:
    """rd_kafka_cgrp_assigned_offsets_commit for partitions that were just removed."""
    if not state.assignment_lost:
        _send_commit(state, OffsetCommitOp(dict(sorted(offsets.items()))), out)


def _commit_stored(state: LibrdkafkaState, op: OffsetCommitOp, out: Out) -> None:
    if state.assignment and state.assignment_lost:
        state.wait_commits += 1
        state.refused.append((op, ASSIGNMENT_LOST))
        return
    for tp in state.assignment:
        one = ensure_toppar(state, tp)
        if _is_newer(one.stored_position, one.committed_position):
            op.offsets[tp] = one.stored_position
    _send_commit(state, op, out)


def _is_newer(stored: FetchPos, committed: FetchPos) -> bool:
    """rd_kafka_fetch_pos_cmp: by epoch where both have one, then by offset."""
    if stored.offset == INVALID:
        return False
    return (stored.epoch, stored.offset) > (committed.epoch, committed.offset)


def _send_commit(state: LibrdkafkaState, op: OffsetCommitOp, out: Out, *, again: bool = False) -> None:
    """rd_kafka_cgrp_offsets_commit."""
    if not again:
        state.wait_commits += 1
    offsets = {tp: one for tp, one in op.offsets.items() if not is_logical(one.offset)}
    if state.fatal is not None and state.is_static:
        state.refused.append((op, FATAL))
    elif not offsets:
        state.refused.append((op, NO_OFFSET))
    elif state.coord_state is not CgrpState.UP or state.coordinator is None:
        if not _defer_commit(state, op):
            state.refused.append((op, WAIT_COORD))
    else:
        request = offset_commit_request(
            state.config.group_id,
            state.generation,
            state.member_id,
            state.config.instance,
            {tp: Wire(one.offset, one.epoch, "") for tp, one in offsets.items()},
        )
        send_request(state, state.coordinator, request, out, op)


def _defer_commit(state: LibrdkafkaState, op: OffsetCommitOp) -> bool:
    """rd_kafka_cgrp_defer_offset_commit: wait for a coordinator, once."""
    if op.deferred_until is not None:
        return False
    op.deferred_until = state.now + state.session_ms
    state.deferred.append(op)
    return True


def send_deferred(state: LibrdkafkaState, out: Out) -> None:
    """Send what waited for the coordinator; what waited too long fails."""
    waiting, state.deferred = state.deferred, []
    for op in waiting:
        if state.coord_state is CgrpState.UP:
            _send_commit(state, op, out, again=True)
        elif op.deferred_until is not None and op.deferred_until <= state.now:
            state.refused.append((op, WAIT_COORD))
        else:
            state.deferred.append(op)


def fail_unsent(state: LibrdkafkaState, out: Out) -> None:
    """Commits that never went out fail in a turn of their own: nobody is called in the middle of a step."""
    while state.refused:
        op, error = state.refused.popleft()
        _finish_commit(state, op, error, out)


def on_offset_commit_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetCommitResponse | None, out: Out
) -> None:
    """rd_kafka_cgrp_op_handle_OffsetCommit."""
    op = entry.context
    assert isinstance(op, OffsetCommitOp)
    errors = commit_errors(response) if response is not None else {}
    failed = {tp: code for tp, code in errors.items() if code}
    code = TRANSPORT if response is None else next(reversed(failed.values()), 0)
    whole = bool(failed) and len(failed) == len(errors)
    if _handle_commit_error(state, entry, op, code, whole, out):
        return
    for tp, one in op.offsets.items():
        if not failed.get(tp) and response is not None:
            ensure_toppar(state, tp).committed_position = one
    error = None if code == 0 else (err2name(code), f"Commit failed: Broker: {err2name(code)}")
    _finish_commit(state, op, error, out)


def _handle_commit_error(
    state: LibrdkafkaState, entry: RequestBuf, op: OffsetCommitOp, code: int, whole: bool, out: Out
) -> bool:
    """What an error does beside failing; True when the commit isn't over yet."""
    if code == 0:
        return False
    if code in _COORDINATOR_ERRORS:
        state.internal_ops.append(InternalOp.COORDINATOR_DEAD)
    elif code == E.REQUEST_TIMED_OUT:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    again = (code in _RETRIABLE_ERRORS and code not in _COORDINATOR_ERRORS and whole) or code == TRANSPORT
    if again and retry_request(state, entry):
        return True
    if code == E.FENCED_INSTANCE_ID:
        set_fatal(state, code)
    if code == E.UNKNOWN_MEMBER_ID:
        state.member_id = ""
        state.internal_ops.append(InternalOp.REVOKE_AS_LOST)
    elif code == E.ILLEGAL_GENERATION and not state.is_rebalancing:
        state.generation = -1
        state.internal_ops.append(InternalOp.REVOKE_AS_LOST)
    elif code in _COORDINATOR_ERRORS or code == TRANSPORT:
        return _defer_commit(state, op)
    return False


def _finish_commit(
    state: LibrdkafkaState, op: OffsetCommitOp, error: tuple[str, str] | None, out: Out
) -> None:
    state.wait_commits -= 1
    if op.reply_to_application:
        out.append(FinishCommit(op.token, error))
    if not state.wait_commits:
        state.internal_ops.append(InternalOp.SERVE_ASSIGNMENT)
