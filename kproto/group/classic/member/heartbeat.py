"""Heartbeats, and the reactions to the responses to Heartbeat, OffsetCommit and DescribeGroups."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol import CommitAnswered, Purpose, Received, Send
from . import leadership
from .membership import fence, lose_coordinator, reset, reset_after
from .reasons import (
    ALREADY_REBALANCING,
    COMMIT_WHILE_REBALANCING,
    EMPTY_BY_MISTAKE,
    METADATA_CHANGED,
    NO_ANSWER,
)
from .state import (
    Actions,
    Member,
    S,
    is_current,
    keeps_partitions,
    request_rejoin,
    restart_session,
    retry_heartbeat,
)


def send_heartbeat(member: Member, now: int, out: Actions) -> None:
    """Send a Heartbeat and schedule the next; while JoinGroup is in flight, use another connection."""
    assert member.generation is not None
    request = HeartbeatRequest(
        group_id=member.config.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
    )
    member.heartbeat_request = request
    member.heartbeat_at = now + member.config.heartbeat_interval_ms
    out.append(Send(request, urgent=member.state is S.JOINING, purpose=Purpose.HEARTBEAT))


def on_heartbeat_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Restart the session timeout, rejoin, reset the membership or retry, as the response requires.

    On success the session timeout restarts (M56). If a restarted static leader or a follower without
    partitions has to check its assignment, it then sends DescribeGroups (see `on_describe_response`).

    On REBALANCE_IN_PROGRESS a stable member rejoins (M14). UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION reset the
    membership, and FENCED_INSTANCE_ID stops the member (M59). After any other error the next Heartbeat is
    sent after a backoff (M57, M59).

    An error for an earlier generation or member id is ignored (M3). During a rebalance, REBALANCE_IN_PROGRESS
    only restarts the session timeout (M15).
    """
    request, response = event.request, event.response
    assert isinstance(request, HeartbeatRequest)
    assert isinstance(response, HeartbeatResponse)
    if request is member.heartbeat_request:
        member.heartbeat_request = None
    code = response.error_code
    if code == ErrorCode.NONE:
        restart_session(member, now)
        if (member.inherits_assignment or member.checks_empty) and member.state is S.STABLE:
            out.append(Send(DescribeGroupsRequest(groups=[member.config.group_id])))
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        retry_heartbeat(member, now)
        lose_coordinator(member, now)
    elif not is_current(member, request.generation_id, request.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        restart_session(member, now)
        if member.state in (S.STABLE, S.ADOPTING):
            request_rejoin(member, ALREADY_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "Heartbeat", out)
    elif code == ErrorCode.ILLEGAL_GENERATION and member.state is S.JOINING and keeps_partitions(member):
        # The Heartbeat was sent with the previous generation, and the group has begun a new generation since
        # then. The membership is kept, because the JoinGroup response will arrive soon.
        retry_heartbeat(member, now)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        reset_after(member, code, "HEARTBEAT", out)
    else:
        retry_heartbeat(member, now)


def on_session_timeout(member: Member, now: int, out: Actions) -> None:
    """Look the coordinator up again, because the session has timed out (M20).

    With `Policy.lose_on_session_timeout` the member also loses all partitions (M111).
    """
    if member.policy.lose_on_session_timeout:
        reset(member, NO_ANSWER, out, keep_id=True)
    lose_coordinator(member, now)


def on_commit_answered(member: Member, event: CommitAnswered, now: int, out: Actions) -> None:
    """After a failed OffsetCommit, look up the coordinator, rejoin or reset the membership (M61)."""
    code = event.error_code
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT):
        lose_coordinator(member, now)
    elif not is_current(member, event.generation, event.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        if member.state in (S.STABLE, S.ADOPTING):
            request_rejoin(member, COMMIT_WHILE_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        # With `fenced_join_again`, only the commit fails, as in Java. The next Heartbeat fails with the same
        # error code, and then the member is fenced.
        if not member.policy.fenced_join_again:
            fence(member, "OffsetCommit", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        reset_after(member, code, "OFFSET_COMMIT", out)


def on_describe_response(member: Member, event: Received, now: int, out: Actions) -> None:
    """Rejoin if the DescribeGroups response shows that the group's assignment is wrong.

    A restarted static leader, which has taken over the group's assignment from its former process (KIP-814),
    rejoins unless every partition is assigned. A follower with an empty assignment
    rejoins if `leadership.is_empty_by_mistake` returns true.
    """
    assert isinstance(event.response, DescribeGroupsResponse)
    if member.checks_empty:
        member.checks_empty, member.has_checked_empty = False, True
        existing_topics = {topic for topic in member.topics if member.metadata.partitions.get(topic)}
        if existing_topics and leadership.is_empty_by_mistake(
            event.response, member.member_id, existing_topics
        ):
            request_rejoin(member, EMPTY_BY_MISTAKE)
    if not member.inherits_assignment:
        return
    topics = leadership.topics_of(member.subscriptions)
    if leadership.is_complete(event.response, topics, member.metadata):
        member.inherits_assignment = False
    else:
        request_rejoin(member, METADATA_CHANGED)
