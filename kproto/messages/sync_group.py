"""SyncGroup (key 14): the leader sends all assignments, and each member receives its own."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bytes, Int16, Int32, String


class SyncGroupRequest(Message, api_key=14, versions="0-5", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("3+", default=None)
    # The group's protocol type. The coordinator rejects a protocol type or name that differs from the group's
    # (KIP-559).
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    # The assignments of all members. Empty unless the sender is the leader.
    assignments: list[SyncGroupRequestAssignment]


class SyncGroupRequestAssignment(Struct):
    member_id: String
    assignment: Bytes


class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    # The group's protocol type (KIP-559).
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignment: Bytes
