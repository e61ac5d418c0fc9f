"""The offset store and its commits (rdkafka_offset.c, offsets_commit of rdkafka_cgrp.c).

The *stored* offset of a partition is the next offset to commit. With enable.auto.offset.store, the delivery
of a record stores the offset after it. Otherwise the application stores offsets itself.

An offset is *committed* when the group's coordinator has accepted it (M126).

* The auto-commit timer commits stored offsets that are newer than the committed ones. It runs only if
  enable.auto.commit is true and auto.commit.interval.ms is above 0. For a member of a group, the timer
  commits only in STEADY.

* When partitions are removed from the assignment, all their stored offsets are committed, even offsets that
  are not newer than the committed ones (`assignment`).

* Offsets of a lost assignment are not committed. A manual commit fails with _ASSIGNMENT_LOST.

* A commit fails with _NO_OFFSET if it has no offsets, or only logical ones.

* If the coordinator is unknown, a commit waits for it, at most once and for at most session.timeout.ms. The
  same applies after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE and lost connections.

* After UNKNOWN_MEMBER_ID the member loses its whole assignment. ILLEGAL_GENERATION has the same effect
  outside a rebalance. During a rebalance only the commit fails, because it was sent with the previous
  generation.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...error_codes import ErrorCode as E
from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from ..common import OffsetToCommit, commit_errors, offset_commit_request
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
from .err_texts import err2str
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
    """Store offsets, or return an error (rd_kafka_offsets_store).

    If enable.auto.offset.store is true, the call is rejected. If some partition is not assigned, the offsets
    of the other partitions are stored, and an error is returned.
    """
    if state.auto_store:
        return INVALID_ARG
    error = None
    for tp, offset in offsets.items():
        toppar_state = ensure_toppar(state, tp)
        if not toppar_state.assigned:
            error = STATE
        else:
            toppar_state.stored_position = FetchPos(offset)
    return error


def commit(
    state: LibrdkafkaState, token: object, offsets: Mapping[TopicPartition, int] | None, wait: bool, out: Out
) -> None:
    """Commit `offsets`; if it is None, commit the stored offsets of the assignment (rd_kafka_commit).

    If `wait` is false, the commit is reported to the application as successful before it is sent.
    """
    operation = OffsetCommitOp({}, token, reply_to_application=wait)
    if not wait:
        out.append(FinishCommit(token))
    if offsets is not None:
        operation.offsets = {tp: FetchPos(offset) for tp, offset in offsets.items()}
        _send_commit(state, operation, out)
    else:
        _commit_stored(state, operation, out)


def commit_on_timer(state: LibrdkafkaState, out: Out) -> None:
    """Commit the stored offsets that are newer than the committed ones.

    Follows rd_kafka_cgrp_offset_commit_tmr_cb.
    """
    if state.subscription is not None and state.state is not CgrpJoinState.STEADY:
        return
    if not state.assignment_lost:
        _commit_stored(state, OffsetCommitOp({}), out)


def commit_removed(state: LibrdkafkaState, offsets: dict[TopicPartition, FetchPos], out: Out) -> None:
    """Commit the offsets of partitions that leave the assignment (rd_kafka_cgrp_assigned_offsets_commit)."""
    if not state.assignment_lost:
        _send_commit(state, OffsetCommitOp(dict(sorted(offsets.items()))), out)


def _commit_stored(state: LibrdkafkaState, operation: OffsetCommitOp, out: Out) -> None:
    """Commit the stored offsets of the assignment that are newer than the committed ones.

    If the assignment is lost, the commit fails with _ASSIGNMENT_LOST.
    """
    if state.assignment and state.assignment_lost:
        state.wait_commits += 1
        state.refused.append((operation, ASSIGNMENT_LOST))
        return
    for tp in state.assignment:
        toppar_state = ensure_toppar(state, tp)
        if _is_newer(toppar_state.stored_position, toppar_state.committed_position):
            operation.offsets[tp] = toppar_state.stored_position
    _send_commit(state, operation, out)


def _is_newer(stored: FetchPos, committed: FetchPos) -> bool:
    """Return whether the stored position is after the committed one (rd_kafka_fetch_pos_cmp).

    Positions are compared by leader epoch, then by offset.
    """
    if stored.offset == INVALID:
        return False
    return (stored.epoch, stored.offset) > (committed.epoch, committed.offset)


def _send_commit(
    state: LibrdkafkaState, operation: OffsetCommitOp, out: Out, *, is_retry: bool = False
) -> None:
    """Send a commit; without a coordinator, defer it once, then refuse it (rd_kafka_cgrp_offsets_commit).

    A commit that is refused is queued in `state.refused`, and `fail_unsent` fails it. Logical offsets are
    omitted from the request.
    """
    if not is_retry:
        state.wait_commits += 1
    offsets = {tp: position for tp, position in operation.offsets.items() if not is_logical(position.offset)}
    if state.fatal is not None and state.is_static:
        state.refused.append((operation, FATAL))
    elif not offsets:
        state.refused.append((operation, NO_OFFSET))
    elif state.coord.state is not CgrpState.UP or state.coordinator is None:
        if not _defer_commit(state, operation):
            state.refused.append((operation, WAIT_COORD))
    else:
        request = offset_commit_request(
            state.config.group_id,
            state.generation,
            state.member_id,
            state.config.instance,
            {tp: OffsetToCommit(position.offset, position.epoch, "") for tp, position in offsets.items()},
        )
        send_request(state, state.coordinator, request, out, operation)


def _defer_commit(state: LibrdkafkaState, operation: OffsetCommitOp) -> bool:
    """Defer a commit until a coordinator is known. Return False if the commit has already been deferred once.

    The function follows rd_kafka_cgrp_defer_offset_commit.
    """
    if operation.deferred_until is not None:
        return False
    operation.deferred_until = state.now + state.session_ms
    state.deferred.append(operation)
    return True


def send_deferred(state: LibrdkafkaState, out: Out) -> None:
    """Send deferred commits when a coordinator is known, and fail those whose wait has expired."""
    deferred, state.deferred = state.deferred, []
    for operation in deferred:
        if state.coord.state is CgrpState.UP:
            _send_commit(state, operation, out, is_retry=True)
        elif operation.deferred_until is not None and operation.deferred_until <= state.now:
            state.refused.append((operation, WAIT_COORD))
        else:
            state.deferred.append(operation)


def fail_unsent(state: LibrdkafkaState, out: Out) -> None:
    """Fail the commits that were rejected without being sent."""
    while state.refused:
        operation, error = state.refused.popleft()
        _finish_commit(state, operation, error, out)


def on_offset_commit_response(
    state: LibrdkafkaState, entry: RequestBuf, response: OffsetCommitResponse | None, out: Out
) -> None:
    """Handle an OffsetCommit response or a lost connection (rd_kafka_cgrp_op_handle_OffsetCommit).

    `response` is None if the connection was lost.
    """
    operation = entry.context
    assert isinstance(operation, OffsetCommitOp)
    errors = commit_errors(response) if response is not None else {}
    failed = {tp: code for tp, code in errors.items() if code}
    # The error of the last failed partition is the error of the commit.
    code = TRANSPORT if response is None else next(reversed(failed.values()), 0)
    all_failed = bool(failed) and len(failed) == len(errors)
    if _handle_commit_error(state, entry, operation, code, all_failed, out):
        return
    for tp, position in operation.offsets.items():
        if not failed.get(tp) and response is not None:
            ensure_toppar(state, tp).committed_position = position
    error = None if code == 0 else (err2name(code), f"Commit failed: {err2str(code)}")
    _finish_commit(state, operation, error, out)


def _handle_commit_error(
    state: LibrdkafkaState,
    entry: RequestBuf,
    operation: OffsetCommitOp,
    code: int,
    all_failed: bool,
    out: Out,
) -> bool:
    """Handle a commit's error; return True if the commit is retried or deferred."""
    if code == 0:
        return False
    if code in _COORDINATOR_ERRORS:
        state.internal_ops.append(InternalOp.COORDINATOR_DEAD)
    elif code == E.REQUEST_TIMED_OUT:
        state.internal_ops.append(InternalOp.QUERY_COORDINATOR)
    is_retriable = (
        code in _RETRIABLE_ERRORS and code not in _COORDINATOR_ERRORS and all_failed
    ) or code == TRANSPORT
    if is_retriable and retry_request(state, entry):
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
        return _defer_commit(state, operation)
    return False


def _finish_commit(
    state: LibrdkafkaState, operation: OffsetCommitOp, error: tuple[str, str] | None, out: Out
) -> None:
    """Report the result of a commit if the application waits for it.

    If this was the last commit in flight, also serve the assignment.
    """
    state.wait_commits -= 1
    if operation.reply_to_application:
        out.append(FinishCommit(operation.token, error))
    if not state.wait_commits:
        state.internal_ops.append(InternalOp.SERVE_ASSIGNMENT)
