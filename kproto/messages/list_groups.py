"""ListGroups (key 16): the groups this broker coordinates."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class ListGroupsRequest(Message, api_key=16, versions="0-5", flexible="3+"):
    states_filter: list[String] = field("4+", default=[])  # KIP-518; empty asks for all
    types_filter: list[String] = field("5+", default=[])  # KIP-848; empty asks for all


class ListGroupsResponse(Message, api_key=16, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
    groups: list[ListedGroup]


class ListedGroup(Struct):
    group_id: String
    protocol_type: String
    group_state: String = field("4+", default="", ignorable=True)  # KIP-518
    group_type: String = field("5+", default="", ignorable=True)  # KIP-848
