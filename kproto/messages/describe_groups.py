"""DescribeGroups (key 15): get the state, members and assignments of groups."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Bool, Bytes, Int16, Int32, String


class DescribeGroupsRequest(Message, api_key=15, versions="0-6", flexible="5+"):
    groups: list[String]
    # Whether to include the operations allowed on each group (KIP-430).
    include_authorized_operations: Bool = field("3+", default=False)


class DescribeGroupsResponse(Message, api_key=15, versions="0-6", flexible="5+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup]


class DescribedGroup(Struct):
    error_code: Int16
    error_message: String | None = field("6+", default=None)
    group_id: String
    group_state: String
    protocol_type: String
    protocol_data: String
    members: list[DescribedGroupMember]
    # The operations allowed on the group, one bit per AclOperation; -2147483648 if not requested (KIP-430).
    authorized_operations: Int32 = field("3+", default=-0x80000000)


class DescribedGroupMember(Struct):
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("4+", default=None, ignorable=True)
    client_id: String
    client_host: String
    member_metadata: Bytes
    member_assignment: Bytes
