"""How a member stays: its heartbeats, and what it learns from the answers to these and to its commits.

The rules are those of `member`.
"""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ...protocol import CommitAnswered, MemberAction, Purpose, Received, Refused, Send
from . import leadership
from .leave import encountered, fence, lose_coordinator, reset
from .reasons import ALREADY_REBALANCING, COMMIT_WHILE_REBALANCING, METADATA_CHANGED, NO_ANSWER
from .state import Member, S, heard, heartbeat_failed, is_present, keeps, want_rejoin

Out = list[MemberAction]


def heartbeat_answered(member: Member, event: Received, now: int, out: Out) -> None:
    request, answer = event.request, event.response
    assert isinstance(request, HeartbeatRequest)
    assert isinstance(answer, HeartbeatResponse)
    if request is member.heartbeat:
        member.heartbeat = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        heard(member, now)
        if member.inherited and member.state is S.stable:
            out.append(Send(DescribeGroupsRequest(groups=[member.config.group_id])))
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        heartbeat_failed(member, now)
        lose_coordinator(member, now)
    elif not is_present(member, request.generation_id, request.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        heard(member, now)
        if member.state in (S.stable, S.adopting):
            want_rejoin(member, ALREADY_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        fence(member, "Heartbeat", out)
    elif code == ErrorCode.ILLEGAL_GENERATION and member.state is S.joining and keeps(member):
        heartbeat_failed(member, now)  # the group has gone on; the JoinGroup's answer says how, if it comes
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        encountered(member, code, "HEARTBEAT", out)
    else:
        heartbeat_failed(member, now)


def plan_described(member: Member, event: Received, now: int, out: Out) -> None:
    """An answer that doesn't show it, an error for instance, is as good as none: all is divided anew."""
    assert isinstance(event.response, DescribeGroupsResponse)
    if not member.inherited:
        return
    if leadership.is_whole(event.response, leadership.topics_of(member.group), member.metadata):
        member.inherited = False
    else:
        want_rejoin(member, METADATA_CHANGED)


def plan_not_described(member: Member, event: Refused, now: int, out: Out) -> None:
    if member.inherited and isinstance(event.request, DescribeGroupsRequest):
        want_rejoin(member, METADATA_CHANGED)


def commit_answered(member: Member, event: CommitAnswered, now: int, out: Out) -> None:
    code = event.error_code
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT):
        lose_coordinator(member, now)
    elif not is_present(member, event.generation, event.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        if member.state in (S.stable, S.adopting):
            want_rejoin(member, COMMIT_WHILE_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        # Java's only has its commit raise: whether it is a member still is the next heartbeat's to say.
        if not member.policy.fenced_join_again:
            fence(member, "OffsetCommit", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        encountered(member, code, "OFFSET_COMMIT", out)


def session_timed_out(member: Member, now: int, out: Out) -> None:
    if member.policy.lose_on_session_timeout:
        reset(member, NO_ANSWER, out, keep_id=True)
    lose_coordinator(member, now)


def beat(member: Member, now: int, out: Out) -> None:
    assert member.generation is not None
    request = HeartbeatRequest(
        group_id=member.config.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
    )
    member.heartbeat = request
    member.heartbeat_at = now + member.config.heartbeat_interval_ms
    out.append(Send(request, urgent=member.state is S.joining, purpose=Purpose.HEARTBEAT))
