"""Events about the group's coordinator: it is found or lost, and requests to it fail or cannot be sent."""

from __future__ import annotations

from ....messages.describe_groups import DescribeGroupsRequest
from ...protocol import (
    CoordinatorFound,
    CoordinatorLost,
    FindCoordinator,
    MemberEvent,
    SendFailed,
    SendRefused,
)
from .leave import close_now
from .membership import fail, lose_coordinator
from .reasons import METADATA_CHANGED
from .state import Actions, Member, S, backoff, request_rejoin, retry_heartbeat


def find_coordinator(member: Member, event: MemberEvent, now: int, out: Actions) -> None:
    """Look up the coordinator if it is unknown, no lookup is in flight and the backoff has ended (M28)."""
    if member.coordinator is not None or member.is_finding_coordinator:
        return
    if member.lookup_at is None or now >= member.lookup_at:
        member.is_finding_coordinator = True
        out.append(FindCoordinator())


def on_coordinator_found(member: Member, event: CoordinatorFound, now: int, out: Actions) -> None:
    """Use the coordinator that was found. With Java's policy the session timeout restarts (M30)."""
    member.coordinator, member.is_finding_coordinator, member.lookup_at = event.node, False, None
    member.failed_lookups = 0
    if member.session_ends_at is not None and not member.policy.lose_on_session_timeout:
        member.session_ends_at = now + member.config.session_timeout_ms


def on_coordinator_lost(member: Member, event: CoordinatorLost, now: int, out: Actions) -> None:
    """Look the coordinator up again immediately, or after a backoff if a lookup failed (M26, M28)."""
    if member.is_finding_coordinator:
        member.is_finding_coordinator = False
        member.lookup_at = now + backoff(member, member.failed_lookups)
        member.failed_lookups += 1
        return
    lose_coordinator(member, now)


def on_coordinator_lost_leaving(member: Member, event: CoordinatorLost, now: int, out: Actions) -> None:
    """Close the member without waiting for the response to LeaveGroup."""
    close_now(member, out)


def on_failed(member: Member, event: SendFailed, now: int, out: Actions) -> None:
    """Look the coordinator up again, because a request got no response (M26).

    While JoinGroup is in flight, heartbeats are sent on a separate connection. If such a Heartbeat fails, it
    is retried, and the member still waits for the JoinGroup response.

    Only the failure of the Heartbeat, JoinGroup or SyncGroup for which the member still waits has an effect.
    Any other failure is ignored.
    """
    if event.request is member.heartbeat_request:
        retry_heartbeat(member, now)
        if member.state is S.JOINING:
            member.heartbeat_request = None
        else:
            lose_coordinator(member, now)
    elif event.request is member.rebalance_request:
        lose_coordinator(member, now)


def on_refused(member: Member, event: SendRefused, now: int, out: Actions) -> None:
    """Report the error to the application if the refused request is JoinGroup or SyncGroup (M25)."""
    if event.request is member.rebalance_request:
        member.rebalance_request = None
        fail(member, event.error, type(event.error).__name__, out)


def on_describe_refused(member: Member, event: SendRefused, now: int, out: Actions) -> None:
    """Rejoin if a restarted static leader cannot send the DescribeGroups request.

    With this request it checks the assignment that it takes over from the process that it replaces (KIP-814).
    """
    if member.inherits_assignment and isinstance(event.request, DescribeGroupsRequest):
        request_rejoin(member, METADATA_CHANGED)
