"""JoinGroup (key 11): ask to be a member, and wait for the group to gather."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Bytes, Int16, Int32, String


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    # Before v1 the coordinator used the session timeout for both.
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    # Empty on the first attempt. From v4 the answer to an empty id is MEMBER_ID_REQUIRED plus the id
    # to come back with (KIP-394).
    member_id: String
    group_instance_id: String | None = field("5+", default=None)  # KIP-345
    protocol_type: String
    # In the order that the member prefers them; the coordinator lets the members vote.
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = field("8+", default=None, ignorable=True)  # KIP-800


class JoinGroupRequestProtocol(Struct):
    name: String = field(map_key=True)
    metadata: Bytes


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    protocol_type: String | None = field("7+", default=None, ignorable=True)  # KIP-559
    # An error has null here from v7 on, and before that an empty string.
    protocol_name: String | None = field(nullable="7+")
    leader: String
    # KIP-814: a static leader came back and the old assignment still holds
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    members: list[JoinGroupResponseMember]  # Empty for everyone but the leader.


class JoinGroupResponseMember(Struct):
    member_id: String
    group_instance_id: String | None = field("5+", default=None, ignorable=True)  # KIP-345
    metadata: Bytes
