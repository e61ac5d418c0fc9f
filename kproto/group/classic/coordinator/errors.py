"""How each group request is told no.

Rules that hold here:

* A refused JoinGroup or SyncGroup says nothing of the group: no generation, no protocol, no leader, no
  members.
* OffsetCommit and TxnOffsetCommit have no error of their own; every partition carries it.
* LeaveGroup before v3 has one member and one error; from v3 on a refusal of the whole names no member.
"""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ....messages.join_group import JoinGroupRequest, JoinGroupResponse
from ....messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from ....messages.offset_commit import OffsetCommitRequest
from ....messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from ....messages.sync_group import SyncGroupRequest, SyncGroupResponse
from ....messages.txn_offset_commit import TxnOffsetCommitRequest
from ....wire.message import Message
from .responses import commit_response, everywhere, txn_commit_response
from .state import Received, Turn


def refuse(turn: Turn, call: Received[Message], code: ErrorCode) -> None:
    """Answer the request with this error and nothing else."""
    turn.reply(call, refusal(call.request, code, call.version))


def refuse_join(turn: Turn, call: Received[JoinGroupRequest], code: ErrorCode, member_id: str) -> None:
    """Answer a JoinGroup with this error and this member id, where it isn't the request's own."""
    turn.reply(call, refused_join(code, member_id, call.version))


def refused_join(code: ErrorCode, member_id: str, version: int) -> JoinGroupResponse:
    """JoinGroup's way of saying no, which names a member id all the same."""
    return JoinGroupResponse(
        error_code=code,
        protocol_name=protocol_name_on_the_wire(None, version),
        leader="",
        member_id=member_id,
        members=[],
    )


def protocol_name_on_the_wire(name: str | None, version: int) -> str | None:
    """JoinGroup's protocol name became nullable in v7; before, no protocol is an empty one (KIP-559)."""
    return name or None if version >= 7 else name or ""


def refusal(request: Message, code: ErrorCode, version: int) -> Message:
    """The response that says no. Raises TypeError for a request that has no such answer."""
    match request:
        case JoinGroupRequest():
            return refused_join(code, request.member_id, version)
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code, assignment=b"")
        case HeartbeatRequest():
            return HeartbeatResponse(error_code=code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case OffsetDeleteRequest():
            return OffsetDeleteResponse(error_code=code, throttle_time_ms=0, topics=[])
        case OffsetCommitRequest():
            return commit_response(request, everywhere(request.topics, code))
        case TxnOffsetCommitRequest():
            return txn_commit_response(request, everywhere(request.topics, code))
        case _:
            raise TypeError(f"{type(request).__name__} has no answer that only says no")
