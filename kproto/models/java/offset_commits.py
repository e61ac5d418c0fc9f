"""Offset commits: auto commit, onJoinPrepare, commitSync, commitAsync, close.

Follows ConsumerCoordinator.

* M122: Auto commit runs inside poll, at every interval, even if no position changed.

* M123: An auto commit with a retriable error is retried after retry.backoff.ms. After any other error, the
  next commit is sent at the next interval (doAutoCommitOffsetsAsync).

* commitSync retries after retriable errors until it times out. Without a generation it fails immediately.

* M95: During a rebalance a commit fails with RebalanceInProgressException. Before the member has joined, or
  after it has lost its membership, a commit fails with CommitFailedException.

* M130: After an asynchronous commit has failed with FENCED_INSTANCE_ID, every poll and commit throws this
  error.

* M61: The error code of a commit decides whether the generation and the member id are reset, and whether the
  member rejoins.
"""

from __future__ import annotations

from ...error_codes import ErrorCode as E
from ...group.classic.member.reasons import COMMIT_WHILE_REBALANCING
from ...group.subscription import TopicPartition
from ...messages.offset_commit import OffsetCommitResponse
from .. import contract as c
from ..common import OffsetToCommit, commit_errors, offset_commit_request
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
    """Return every valid position as (offset, leader epoch) (SubscriptionState.allConsumed).

    In 2.6, positions that wait for validation count as valid, too.
    """
    valid_states = (
        (FetchStates.FETCHING, FetchStates.AWAIT_VALIDATION)
        if state.release.commits_synchronously
        else (FetchStates.FETCHING,)
    )
    return {
        tp: (partition.offset, partition.epoch)
        for tp, partition in state.assigned.items()
        if partition.state in valid_states and partition.offset >= 0
    }


def maybe_auto_commit_async(state: JavaState, out: Out) -> None:
    """Commit all positions if the interval has passed (maybeAutoCommitOffsetsAsync)."""
    if state.auto_commit and state.now >= state.auto_commit_at:
        state.auto_commit_at = state.now + state.auto_commit_ms
        offsets = all_consumed(state)
        if offsets:
            send_offset_commit(state, CommitOperation(offsets, auto=True), out)


def send_offset_commit(state: JavaState, commit: CommitOperation, out: Out) -> None:
    """Send an OffsetCommit if the coordinator is known and a commit is allowed (sendOffsetCommitRequest).

    If the coordinator is unknown, the commit may be retried after retry.backoff.ms, and an auto commit
    completes with a retriable error. If the member is not stable, a commit is not allowed and fails.
    """
    commit.result, commit.exception, commit.retry_at = None, None, None
    if not commit.offsets:
        commit.result = 0
        _complete_commit(state, commit)
        return
    if state.coordinator is None:
        coordinator_lookup.lookup_coordinator(state, out)
        commit.retry_at = state.now + RETRY_BACKOFF_MS
        if commit.auto:
            commit.result, commit.retriable = DISCONNECTED, True
            _complete_commit(state, commit)
        return
    generation = JavaGeneration()
    if state.auto_assigned:
        if state.state is not M.STABLE:
            commit.exception = REBALANCE_IN_PROGRESS if state.rebalancing else COMMIT_FAILED
            commit.result, commit.retriable = DISCONNECTED, False
            _complete_commit(state, commit)
            return
        generation = state.generation
    request = offset_commit_request(
        state.config.group_id,
        generation.number,
        generation.member_id,
        state.config.instance if state.auto_assigned else None,
        {tp: OffsetToCommit(offset, epoch, "") for tp, (offset, epoch) in commit.offsets.items()},
    )
    commit.open = True
    send_request(state, state.coordinator, request, out, commit)


def on_offset_commit_response(
    state: JavaState, entry: InFlightRequest, response: OffsetCommitResponse | None, out: Out
) -> None:
    """Handle an OffsetCommit response, or None if the connection was lost. Only the first error in a response
    has an effect (M61).

    OffsetCommitResponseHandler.
    """
    commit = entry.context
    assert isinstance(commit, CommitOperation)
    commit.open = False
    errors = commit_errors(response) if response is not None else {}
    code = DISCONNECTED if response is None else next((error for error in errors.values() if error), 0)
    is_same_generation = entry.generation == state.generation
    commit.result, commit.retriable = code, False
    if response is None:
        coordinator_lookup.mark_coordinator_unknown(state, out, disconnected=True)
        commit.retriable = True
    elif code in _COORDINATOR_ERRORS:
        coordinator_lookup.mark_coordinator_unknown(state, out)
        commit.retriable = True
    elif code in _RETRIABLE_ERRORS:
        commit.retriable = True
    elif code:
        _handle_commit_error(state, commit, code, is_same_generation)
    else:
        committed = {tp: offset for tp, (offset, _) in commit.offsets.items()}
        plugins.on_commit(state.interceptors, committed, out)
    _complete_commit(state, commit)


def _handle_commit_error(
    state: JavaState, commit: CommitOperation, code: int, is_same_generation: bool
) -> None:
    """Set the exception of a commit that failed with a fatal error, and rejoin if the error requires it.

    `is_same_generation` is whether the member is still in the generation with which the commit was sent.
    """
    commit.exception = (exception_name(code), f"Unexpected error in commit: {exception_name(code)}")
    if code == E.REBALANCE_IN_PROGRESS:
        request_rejoin(state, COMMIT_WHILE_REBALANCING)
        commit.exception = REBALANCE_IN_PROGRESS
    elif code == E.FENCED_INSTANCE_ID:
        commit.fenced = is_same_generation and not commit.synchronous
        if not is_same_generation:
            commit.exception = (
                REBALANCE_IN_PROGRESS if state.state is M.PREPARING_REBALANCE else COMMIT_FAILED
            )
    elif code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
        if not is_same_generation and state.state is M.PREPARING_REBALANCE:
            commit.exception = REBALANCE_IN_PROGRESS
        else:
            if is_same_generation or state.release.forgets_member_id:
                reset_after_error(state, code, "OFFSET_COMMIT")
            commit.exception = COMMIT_FAILED


def _complete_commit(state: JavaState, commit: CommitOperation) -> None:
    """Queue a completed asynchronous commit, whose callback the application's thread runs later."""
    if commit.auto or not commit.synchronous:
        state.completed_commits.append(commit)


def commit_error(commit: CommitOperation) -> tuple[str, str] | None:
    """Return the exception of a completed commit as (name, text), or None if the commit succeeded."""
    if commit.result == 0:
        return None
    if commit.exception is not None:
        return commit.exception
    name = "RetriableCommitFailedException" if commit.retriable else exception_name(commit.result or 0)
    return (name, "Offset commit failed with a retriable exception. You should retry committing.")


# -- commits of the application


def invoke_completed_callbacks(state: JavaState, out: Out) -> None:
    """Run the callbacks of completed asynchronous commits.

    After a retriable error of an auto commit, the next auto commit is due after retry.backoff.ms. A fenced
    commit sets `commit_fenced`.

    Follows invokeCompletedOffsetCommitCallbacks.
    """
    while state.completed_commits:
        commit = state.completed_commits.popleft()
        state.commit_fenced = state.commit_fenced or commit.fenced
        if commit.auto:
            if commit.retriable:
                state.auto_commit_at = state.now + RETRY_BACKOFF_MS
        else:
            out.append(c.FinishCommit(commit.token, commit_error(commit)))


def commit(state: JavaState, event: c.CommitCalled, out: Out) -> None:
    """Begin a commit of the application: commitSync if `event.wait` is true, otherwise commitAsync."""
    offsets = all_consumed(state)
    if event.offsets is not None:
        offsets = {tp: (offset, -1) for tp, offset in event.offsets.items()}
    operation = CommitOperation(offsets, event.token, synchronous=event.wait, deadline=state.now + 60_000)
    invoke_completed_callbacks(state, out)
    if state.commit_fenced:
        out.append(c.FinishCommit(event.token, COMMIT_FENCED))
        return
    send_offset_commit(state, operation, out)
    if event.wait and state.wakeup_pending:
        state.wakeup_pending = False
        out.append(c.FinishCommit(event.token, WAKEUP))
        return
    if event.wait:
        state.commits.append(operation)
    if not event.wait and operation.retry_at is not None:
        state.commits.append(operation)


def continue_commits(state: JavaState, out: Out) -> None:
    """Complete or retry the application's commits.

    commitSync is retried after retriable errors until it times out. commitAsync is retried only if it was not
    sent because the coordinator was unknown.
    """
    for operation in list(state.commits):
        if operation.open:
            continue
        has_failed = operation.result is not None and not operation.retriable
        if operation.result == 0 or has_failed or state.now >= operation.deadline:
            state.commits.remove(operation)
            if operation.synchronous:
                invoke_completed_callbacks(state, out)
                out.append(c.FinishCommit(operation.token, commit_error(operation)))
        elif not operation.synchronous and operation.retriable:
            state.commits.remove(operation)
        elif operation.retriable and operation.retry_at is None:
            operation.retry_at = state.now + RETRY_BACKOFF_MS
        elif state.coordinator is None:
            coordinator_lookup.lookup_coordinator(state, out)
        elif operation.retry_at is not None and operation.retry_at <= state.now:
            send_offset_commit(state, operation, out)
