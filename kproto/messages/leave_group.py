"""LeaveGroup (key 13): leave a group without waiting for the session timeout."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class LeaveGroupRequest(Message, api_key=13, versions="0-5", flexible="4+"):
    group_id: String
    # The id of the leaving member. From v3 on, `members` replaces this field, so that an admin can remove
    # several members (KIP-345).
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default=[])


class MemberIdentity(Struct):
    # The id of the member that leaves. Empty if an admin removes a static member by its instance id.
    member_id: String
    group_instance_id: String | None = None
    # The reason why the member leaves (KIP-800).
    reason: String | None = field("5+", default=None, ignorable=True)


class LeaveGroupResponse(Message, api_key=13, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    # One result for each member of the request, with its own error code.
    members: list[MemberResponse] = field("3+", default=[])


class MemberResponse(Struct):
    member_id: String
    group_instance_id: String | None
    error_code: Int16
