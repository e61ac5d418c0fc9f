"""LeaveGroup (key 13): leave now instead of being missed after the session timeout."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: String
    # v3 replaced it by `members`, so that an admin can remove several (KIP-345).
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


class MemberIdentity(Struct):
    member_id: String  # Empty when an admin removes a static member, which its instance id names.
    group_instance_id: String | None = None
    reason: String | None = field("5+", default=None, ignorable=True)  # KIP-800


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    # One for each of the request's members, whose leaving can fail one by one.
    members: list[MemberResponse] = field("3+", default=[])


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None
    error_code: Int16
