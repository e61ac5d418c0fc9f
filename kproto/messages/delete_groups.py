"""DeleteGroups (key 42): delete empty groups and their committed offsets."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int16, Int32, String


class DeleteGroupsRequest(Message, api_key=42, versions="0-3", flexible="2+"):
    groups_names: list[String]


class DeleteGroupsResponse(Message, api_key=42, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32
    results: list[DeletableGroupResult]


class DeletableGroupResult(Struct):
    group_id: String = field(map_key=True)
    error_code: Int16
    error_message: String | None = field("3+", default=None, ignorable=True)
