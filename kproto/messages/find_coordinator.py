"""FindCoordinator (key 10): find the coordinator of a group, a transactional id or a share partition."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: String = field("0-3", default="")
    # The type of the keys: 0 for groups, 1 for transactional ids, 2 for share partitions. The key of a share
    # partition is "group:topic id:partition" (KIP-932).
    key_type: Int8 = field("1+", default=0)
    # The keys to look up. This field replaces `key` (KIP-699).
    coordinator_keys: list[String] = field("4+", default=[])


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    # One coordinator for each key of the request. This field replaces the fields above (KIP-699).
    coordinators: list[Coordinator] = field("4+", default=[])


class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None
