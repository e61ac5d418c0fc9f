"""Commits (M122 to M133): by the timer, in onJoinPrepare, by the application, on close.

* doAutoCommitOffsetsAsync has three results: done; failed and retriable, then the timer is set to
  retry.backoff.ms; failed for good, then the next interval tries again. It commits at each interval, also
  what is committed already, and only when the application polls.
* commitSync tries again what is retriable until its time is over; without a generation it fails at once.
* M95: while a rebalance is under way a commit is RebalanceInProgressException, before a join
  CommitFailedException.
* FENCED_INSTANCE_ID for an asynchronous one is thrown by every poll and commit from then on (M130).
* M61: which error resets what, and asks for which rejoin.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...group.classic.member.reasons import COMMIT_WHILE_REBALANCING
from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from .. import contract as c
from ..common import OffsetToCommit as Wire
from ..common import commit_errors, offset_commit_request
from . import coordinator_lookup, plugins
from .abstract_coordinator import request_rejoin, reset_after_error
from .release import exception_name
from .state import (
    DISCONNECTED,
    RETRY_BACKOFF_MS,
    CommitOperation,
    FetchStates,
    InFlightRequest,
    JavaGeneration,
    JavaMemberState,
    JavaState,
    Out,
    send_request,
)

M = JavaMemberState
WAKEUP = ("WakeupException", "")
COMMIT_FENCED = ("FencedInstanceIdException", "Get fenced exception for group.instance.id by a commit")
REBALANCE_IN_PROGRESS = (
    "RebalanceInProgressException",
    "Offset commit cannot be completed since the consumer is undergoing a rebalance for auto partition"
    " assignment. You can try completing the rebalance by calling poll() and then retry the operation.",
)
COMMIT_FAILED = (
    "CommitFailedException",
    "Offset commit cannot be completed since the consumer is not part of an active group for auto partition"
    " assignment; it is likely that the consumer was kicked out of the group.",
)
_COORDINATOR_ERRORS = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT}
_RETRIABLE_ERRORS = {E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION}


def all_consumed(state: JavaState) -> dict[TopicPartition, tuple[int, int]]:
    """SubscriptionState.allConsumed: every valid position."""
    valid = (
        (FetchStates.FETCHING, FetchStates.AWAIT_VALIDATION)
        if state.release.commits_synchronously
        else (FetchStates.FETCHING,)
    )
    return {
        tp: (one.offset, one.epoch)
        for tp, one in state.assigned.items()
        if one.fetch_state in valid and one.offset >= 0
    }


def maybe_auto_commit_async(state: JavaState, out: Out) -> None:
    """maybeAutoCommitOffsetsAsync."""
    if state.auto_commit and state.now >= state.auto_commit_at:
        state.auto_commit_at = state.now + state.auto_commit_ms
        offsets = all_consumed(state)
        if offsets:
            send_offset_commit(state, CommitOperation(offsets, auto=True), out)


def send_offset_commit(state: JavaState, op: CommitOperation, out: Out) -> None:
    """sendOffsetCommitRequest: sent, or failed at once."""
    op.result, op.exception, op.retry_at = None, None, None
    if not op.offsets:
        op.result = 0
        _complete_commit(state, op)
        return
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        op.retry_at = state.now + RETRY_BACKOFF_MS
        if op.auto:
            op.result, op.retriable = DISCONNECTED, True
            _complete_commit(state, op)
        return
    generation = JavaGeneration()
    if state.auto_assigned:
        if state.state is not M.STABLE:
            op.exception = REBALANCE_IN_PROGRESS if state.rebalancing else COMMIT_FAILED
            op.result = DISCONNECTED
            _complete_commit(state, op)
            return
        generation = state.generation
    request = offset_commit_request(
        state.config.group_id,
        generation.number,
        generation.member_id,
        state.config.instance if state.auto_assigned else None,
        {tp: Wire(offset, epoch, "") for tp, (offset, epoch) in op.offsets.items()},
    )
    op.open = True
    send_request(state, state.coordinator, request, out, op)


def on_offset_commit_response(
    state: JavaState, entry: InFlightRequest, response: OffsetCommitResponse | None, out: Out
) -> None:
    """OffsetCommitResponseHandler: the first error decides."""
    op = entry.context
    assert isinstance(op, CommitOperation)
    op.open = False
    errors = commit_errors(response) if response is not None else {}
    code = DISCONNECTED if response is None else next((one for one in errors.values() if one), 0)
    unchanged = entry.generation == state.generation
    op.result, op.retriable = code, False
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        op.retriable = True
    elif code in _COORDINATOR_ERRORS:
        coordinator_lookup.mark_coordinator_unknown(state, out)
        op.retriable = True
    elif code in _RETRIABLE_ERRORS:
        op.retriable = True
    elif code:
        _handle_commit_error(state, op, code, unchanged)
    else:
        taken = {tp: offset for tp, (offset, _) in op.offsets.items()}
        plugins.on_commit(state.interceptors, taken, out)
    _complete_commit(state, op)


def _handle_commit_error(state: JavaState, op: CommitOperation, code: int, unchanged: bool) -> None:
    op.exception = (exception_name(code), f"Unexpected error in commit: {exception_name(code)}")
    if code == E.REBALANCE_IN_PROGRESS:
        request_rejoin(state, COMMIT_WHILE_REBALANCING)
        op.exception = REBALANCE_IN_PROGRESS
    elif code == E.FENCED_INSTANCE_ID:
        op.fenced = unchanged and not op.synchronous
        if not unchanged:
            op.exception = REBALANCE_IN_PROGRESS if state.state is M.PREPARING_REBALANCE else COMMIT_FAILED
    elif code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
        if not unchanged and state.state is M.PREPARING_REBALANCE:
            op.exception = REBALANCE_IN_PROGRESS
        else:
            if unchanged or state.release.forgets_member_id:
                reset_after_error(state, code, "OFFSET_COMMIT")
            op.exception = COMMIT_FAILED


def _complete_commit(state: JavaState, op: CommitOperation) -> None:
    """An asynchronous one waits until the application's thread asks what became of it."""
    if op.auto or not op.synchronous:
        state.completed_commits.append(op)


def commit_error(op: CommitOperation) -> tuple[str, str] | None:
    if op.result == 0:
        return None
    if op.exception is not None:
        return op.exception
    name = "RetriableCommitFailedException" if op.retriable else exception_name(op.result or 0)
    return (name, "Offset commit failed with a retriable exception. You should retry committing.")


# -- commits of the application


def invoke_completed_callbacks(state: JavaState, out: Out) -> None:
    """invokeCompletedOffsetCommitCallbacks."""
    while state.completed_commits:
        op = state.completed_commits.popleft()
        state.commit_fenced = state.commit_fenced or op.fenced
        if op.auto:
            if op.retriable:
                state.auto_commit_at = state.now + RETRY_BACKOFF_MS
        else:
            out.append(c.FinishCommit(op.token, commit_error(op)))


def commit(state: JavaState, event: c.CommitCalled, out: Out) -> None:
    offsets = all_consumed(state)
    if event.offsets is not None:
        offsets = {tp: (offset, -1) for tp, offset in event.offsets.items()}
    op = CommitOperation(offsets, event.token, synchronous=event.wait, deadline=state.now + 60_000)
    invoke_completed_callbacks(state, out)
    if state.commit_fenced:
        out.append(c.FinishCommit(event.token, COMMIT_FENCED))
        return
    send_offset_commit(state, op, out)
    if event.wait and state.wakeup_pending:
        state.wakeup_pending = False
        out.append(c.FinishCommit(event.token, WAKEUP))
        return
    if event.wait:
        state.commits.append(op)
    if not event.wait and op.retry_at is not None:
        state.commits.append(op)


def continue_commits(state: JavaState, out: Out) -> None:
    """commitSync's loop: again what is retriable, until its time is over."""
    for op in list(state.commits):
        if op.open:
            continue
        waits = op.retry_at is not None or op.retriable
        if op.result == 0 or (op.result is not None and not op.retriable) or state.now >= op.deadline:
            state.commits.remove(op)
            if op.synchronous:
                invoke_completed_callbacks(state, out)
                out.append(c.FinishCommit(op.token, commit_error(op)))
        elif not op.synchronous and op.retriable:
            state.commits.remove(op)
        elif waits and op.retry_at is None:
            op.retry_at = state.now + RETRY_BACKOFF_MS
        elif state.coordinator is None:
            coordinator_lookup.lookup_coordinator(state, out)
        elif op.retry_at is not None and op.retry_at <= state.now:
            send_offset_commit(state, op, out)
