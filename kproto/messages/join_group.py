"""JoinGroup (key 11): join a group, and wait until all members have joined."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Bytes, Int16, Int32, String


class JoinGroupRequest(Message, api_key=11, versions="0-9", flexible="6+"):
    group_id: String
    session_timeout_ms: Int32
    # The time in ms that members have to rejoin in a rebalance. v0 has no such field: the session timeout
    # applies.
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    # The member id; empty on the first request. From v4 on, a dynamic member that sends an empty id receives
    # MEMBER_ID_REQUIRED and an id, with which it joins again (KIP-394).
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String
    # The protocols (assignors) that the member supports, preferred ones first. The coordinator selects the
    # protocol by a vote of the members.
    protocols: list[JoinGroupRequestProtocol]
    # The reason why the member joins or rejoins (KIP-800).
    reason: String | None = field("8+", default=None, ignorable=True)


class JoinGroupRequestProtocol(Struct):
    name: String = field(map_key=True)
    metadata: Bytes


class JoinGroupResponse(Message, api_key=11, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16
    generation_id: Int32 = -1
    # The group's protocol type, "consumer" for consumers (KIP-559).
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    # The selected protocol. In a response with an error, the protocol is null from v7 on, and empty before.
    protocol_name: String | None = field(nullable="7+")
    leader: String
    # True if the leader must not compute an assignment, because the leader is static and has restarted, and
    # the group keeps its assignment (KIP-814).
    skip_assignment: Bool = field("9+", default=False)
    member_id: String
    # The members of the group and their metadata. Empty unless the receiver is the leader.
    members: list[JoinGroupResponseMember]


class JoinGroupResponseMember(Struct):
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("5+", default=None, ignorable=True)
    metadata: Bytes
