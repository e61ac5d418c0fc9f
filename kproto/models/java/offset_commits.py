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
from ..common import Committing as Wire
from ..common import commit_errors, offset_commit
from . import coordinator_lookup, plugins
from .abstract_coordinator import encountered, want_rejoin
from .release import exception
from .state import (
    DISCONNECTED,
    RETRY_BACKOFF_MS,
    Committing,
    Generation,
    MemberState,
    Open,
    Out,
    State,
    Where,
    send,
)

M = MemberState
WAKEUP = ("WakeupException", "")
COMMIT_FENCED = ("FencedInstanceIdException", "Get fenced exception for group.instance.id by a commit")
REBALANCING = (
    "RebalanceInProgressException",
    "Offset commit cannot be completed since the consumer is undergoing a rebalance for auto partition"
    " assignment. You can try completing the rebalance by calling poll() and then retry the operation.",
)
FAILED = (
    "CommitFailedException",
    "Offset commit cannot be completed since the consumer is not part of an active group for auto partition"
    " assignment; it is likely that the consumer was kicked out of the group.",
)
_UNKNOWN = {E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.REQUEST_TIMED_OUT}
_AGAIN = {E.COORDINATOR_LOAD_IN_PROGRESS, E.UNKNOWN_TOPIC_OR_PARTITION}


def consumed(state: State) -> dict[TopicPartition, tuple[int, int]]:
    """SubscriptionState.allConsumed: every valid position."""
    valid = (Where.fetching, Where.awaiting_validation) if state.rules.blocking_commit else (Where.fetching,)
    return {
        tp: (one.offset, one.epoch)
        for tp, one in state.assigned.items()
        if one.where in valid and one.offset >= 0
    }


def by_timer(state: State, out: Out) -> None:
    """maybeAutoCommitOffsetsAsync."""
    if state.auto_commit and state.now >= state.commit_at:
        state.commit_at = state.now + state.auto_commit_ms
        offsets = consumed(state)
        if offsets:
            try_send(state, Committing(offsets, auto=True), out)


def try_send(state: State, op: Committing, out: Out) -> None:
    """sendOffsetCommitRequest: sent, or failed at once."""
    op.result, op.failed, op.again_at = None, None, None
    if not op.offsets:
        op.result = 0
        _done(state, op)
        return
    if state.coordinator is None:
        coordinator_lookup.look_up(state, out)
        op.again_at = state.now + RETRY_BACKOFF_MS
        if op.auto:
            op.result, op.retriable = DISCONNECTED, True
            _done(state, op)
        return
    generation = Generation()
    if state.automatic:
        if state.state is not M.stable:
            op.failed = REBALANCING if state.rebalancing else FAILED
            op.result = DISCONNECTED
            _done(state, op)
            return
        generation = state.generation
    request = offset_commit(
        state.config.group_id,
        generation.number,
        generation.member_id,
        state.config.instance if state.automatic else None,
        {tp: Wire(offset, epoch, "") for tp, (offset, epoch) in op.offsets.items()},
    )
    op.open = True
    send(state, state.coordinator, request, out, op)


def answered(state: State, entry: Open, answer: OffsetCommitResponse | None, out: Out) -> None:
    """OffsetCommitResponseHandler: the first error decides."""
    op = entry.about
    assert isinstance(op, Committing)
    op.open = False
    errors = commit_errors(answer) if answer is not None else {}
    code = DISCONNECTED if answer is None else next((one for one in errors.values() if one), 0)
    unchanged = entry.generation == state.generation
    op.result, op.retriable = code, False
    if answer is None:
        coordinator_lookup.unknown(state, out, disconnected=True)
        op.retriable = True
    elif code in _UNKNOWN:
        coordinator_lookup.unknown(state, out)
        op.retriable = True
    elif code in _AGAIN:
        op.retriable = True
    elif code:
        _refused(state, op, code, unchanged)
    else:
        taken = {tp: offset for tp, (offset, _) in op.offsets.items()}
        plugins.committed(state.interceptors, taken, out)
    _done(state, op)


def _refused(state: State, op: Committing, code: int, unchanged: bool) -> None:
    op.failed = (exception(code), f"Unexpected error in commit: {exception(code)}")
    if code == E.REBALANCE_IN_PROGRESS:
        want_rejoin(state, COMMIT_WHILE_REBALANCING)
        op.failed = REBALANCING
    elif code == E.FENCED_INSTANCE_ID:
        op.fenced = unchanged and not op.told
        if not unchanged:
            op.failed = REBALANCING if state.state is M.preparing else FAILED
    elif code in (E.UNKNOWN_MEMBER_ID, E.ILLEGAL_GENERATION):
        if not unchanged and state.state is M.preparing:
            op.failed = REBALANCING
        else:
            if unchanged or state.rules.forgetful:
                encountered(state, code, "OFFSET_COMMIT")
            op.failed = FAILED


def _done(state: State, op: Committing) -> None:
    """An asynchronous one waits until the application's thread asks what became of it."""
    if op.auto or not op.told:
        state.finished.append(op)


def error_of(op: Committing) -> tuple[str, str] | None:
    if op.result == 0:
        return None
    if op.failed is not None:
        return op.failed
    name = "RetriableCommitFailedException" if op.retriable else exception(op.result or 0)
    return (name, "Offset commit failed with a retriable exception. You should retry committing.")


# -- commits of the application


def drain(state: State, out: Out) -> None:
    """invokeCompletedOffsetCommitCallbacks."""
    while state.finished:
        op = state.finished.popleft()
        state.commit_fenced = state.commit_fenced or op.fenced
        if op.auto:
            if op.retriable:
                state.commit_at = state.now + RETRY_BACKOFF_MS
        else:
            out.append(c.FinishCommit(op.token, error_of(op)))


def commit(state: State, event: c.CommitCalled, out: Out) -> None:
    offsets = consumed(state)
    if event.offsets is not None:
        offsets = {tp: (offset, -1) for tp, offset in event.offsets.items()}
    op = Committing(offsets, event.token, told=event.wait, until=state.now + 60_000)
    drain(state, out)
    if state.commit_fenced:
        out.append(c.FinishCommit(event.token, COMMIT_FENCED))
        return
    try_send(state, op, out)
    if event.wait and state.woken:
        state.woken = False
        out.append(c.FinishCommit(event.token, WAKEUP))
        return
    if event.wait:
        state.commits.append(op)
    if not event.wait and op.again_at is not None:
        state.commits.append(op)


def serve_commits(state: State, out: Out) -> None:
    """commitSync's loop: again what is retriable, until its time is over."""
    for op in list(state.commits):
        if op.open:
            continue
        waits = op.again_at is not None or op.retriable
        if op.result == 0 or (op.result is not None and not op.retriable) or state.now >= op.until:
            state.commits.remove(op)
            if op.told:
                drain(state, out)
                out.append(c.FinishCommit(op.token, error_of(op)))
        elif not op.told and op.retriable:
            state.commits.remove(op)
        elif waits and op.again_at is None:
            op.again_at = state.now + RETRY_BACKOFF_MS
        elif state.coordinator is None:
            coordinator_lookup.look_up(state, out)
        elif op.again_at is not None and op.again_at <= state.now:
            try_send(state, op, out)
