"""Loss of the membership or of the coordinator: resets, errors for the application, fencing."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....errors import BrokerError, Fenced, IllegalState, KprotoError, NotAuthorized
from ...assignors import Assignor
from ...protocol import Fatal
from .reasons import ENCOUNTERED, FAILED_WITH, GENERATION_RESET, JAVA_EXCEPTIONS
from .revocation import lose_all
from .state import Actions, Member, S, move, request_rejoin


def forget_membership(member: Member, reason: str, *, keep_id: bool) -> None:
    """Reset the generation, and the member id unless `keep_id` is true; request a rejoin (M13).

    `reason` is sent with the next JoinGroup (KIP-800). After an unreadable assignment, the member id is
    always reset, and the reason is GENERATION_RESET (Java's AbstractCoordinator.joinGroupIfNeeded).
    """
    if member.assignment_error is not None:
        reason, keep_id = GENERATION_RESET.format(member.member_id if keep_id else ""), False
        member.assignment_error = None
    member.generation, member.protocol = None, None
    member.was_reset = member.config.group_instance_id is not None
    if not keep_id:
        member.member_id = ""
    request_rejoin(member, reason)
    member.is_prepared = True
    member.rebalance_request, member.heartbeat_request, member.pending_assignment = None, None, None
    member.heartbeat_at = member.session_ends_at = member.poll_ends_at = member.join_at = None
    member.is_leader, member.subscriptions, member.assignment_snapshot = False, {}, None


def reset(member: Member, reason: str, out: Actions, *, keep_id: bool) -> None:
    """Lose the membership and all partitions, then join again (M13, M76).

    A member that unsubscribes or closes does not join again.
    """
    forget_membership(member, reason, keep_id=keep_id)
    lose_all(member, reason, out)
    if member.state in (S.UNSUBSCRIBING, S.CLOSING):
        return
    move(member, S.UNJOINED if member.unreleased is None else S.RELEASING)


def reset_after(member: Member, code: int, request: str, out: Actions) -> None:
    """Reset the membership: the coordinator does not know this generation or member id (M59)."""
    if member.state is S.JOINING and not member.owned:
        # The membership is kept: the member has no partitions to lose, and the response to the JoinGroup in
        # flight will report the same error.
        return
    reason = ENCOUNTERED.format(ErrorCode(code).name, request)
    reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)


def fail(member: Member, error: KprotoError, reason: str, out: Actions) -> None:
    """Report an error that the application has to resolve, and lose all partitions.

    The member joins again at the next poll, with the same member id.

    The member stops its heartbeats, so the group will reassign its partitions. Therefore the member loses
    them immediately. Java keeps the partitions.
    """
    failed_generation = member.generation
    forget_membership(member, FAILED_WITH.format(reason), keep_id=True)
    lose_all(member, member.rejoin_reason, out)
    if not member.policy.forget_failed_generation:
        member.generation = failed_generation
    move(member, S.FAILED)
    out.append(Fatal(error))


def fence(member: Member, request: str, out: Actions) -> None:
    """Stop the member, because another process has joined with its group.instance.id (FENCED_INSTANCE_ID).

    With `Policy.fenced_join_again` the member joins again at the next poll and fences that process, as in
    Java.
    """
    code = ErrorCode.FENCED_INSTANCE_ID
    final = not member.policy.fenced_join_again
    reason = FAILED_WITH.format(JAVA_EXCEPTIONS[code])
    # Java keeps its member id after a fenced JoinGroup or SyncGroup (M42, M51), but not after a fenced
    # Heartbeat (M59).
    in_rebalance = request != "Heartbeat"
    if not final and not in_rebalance:
        reason = ENCOUNTERED.format(code.name, "HEARTBEAT")
    forget_membership(member, reason, keep_id=not final and in_rebalance)
    lose_all(member, member.rejoin_reason, out)
    if member.state is S.CLOSING:
        pass  # The member closes as soon as the partitions are released.
    elif final:
        move(member, S.FENCED)
    elif member.state is not S.UNSUBSCRIBING:
        move(member, S.FAILED)
    detail = (
        f"another process joined as group.instance.id {member.config.group_instance_id!r}; this one must stop"
    )
    out.append(Fatal(Fenced(code, request, detail), final=final))


def join_later(member: Member, reason: str, now: int, backoff_ms: int) -> None:
    """Cancel the current join and start another one after `backoff_ms`; the generation is kept (M22)."""
    request_rejoin(member, FAILED_WITH.format(reason))
    member.rebalance_request = None
    member.join_at = now + backoff_ms if backoff_ms else None
    move(member, S.UNJOINED)


def lose_coordinator(member: Member, now: int) -> None:
    """Drop the coordinator, so that it is looked up again, but keep the membership (M20, M26)."""
    member.coordinator, member.heartbeat_request, member.rebalance_request = None, None, None
    if member.is_rebalancing:
        join_later(member, "DisconnectException", now, member.config.retry_backoff_ms)


def broker_error(code: int, request: str, member: Member) -> BrokerError:
    """Return the exception for an error code of a group request."""
    config = member.config
    detail = f"group {config.group_id!r}"
    if code == ErrorCode.INVALID_SESSION_TIMEOUT:
        limits = "its group.min.session.timeout.ms and group.max.session.timeout.ms"
        detail += (
            f", session.timeout.ms={config.session_timeout_ms}: the broker allows values between {limits}"
        )
    elif code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        names = ",".join(assignor.name for assignor in member.assignors)
        detail += f", partition.assignment.strategy={names}: all members need one assignor in common"
    elif code == ErrorCode.GROUP_MAX_SIZE_REACHED:
        detail += ": the group has as many members as the broker's group.max.size allows"
    error_class = NotAuthorized if code == ErrorCode.GROUP_AUTHORIZATION_FAILED else BrokerError
    return error_class(code, request, detail)


def assignor_failed(member: Member, assignor: Assignor, error: Exception, out: Actions) -> None:
    """Report an exception that an assignor raised. The application may have defined the assignor (M55)."""
    failure = IllegalState(f"the assignor {assignor.name!r} failed: {error!r}")
    failure.__cause__ = error
    fail(member, failure, type(error).__name__, out)
