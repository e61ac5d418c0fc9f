"""ListGroups (key 16): list the groups that this broker coordinates."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    # List only groups in these states; empty for all groups (KIP-518).
    states_filter: list[String] = field("4+", default=[])
    # List only groups of these types; empty for all groups (KIP-848).
    types_filter: list[String] = field("5+", default=[])


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    # The state of the group (KIP-518).
    group_state: String = field("4+", default="", ignorable=True)
    # The type of the group (KIP-848).
    group_type: String = field("5+", default="", ignorable=True)
