"""FindCoordinator (key 10): which broker coordinates a group or a transaction."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import Int8, Int16, Int32, String


class FindCoordinatorRequest(Message, api_key=10, versions="0-6", flexible="3+"):
    key: String = field("0-3", default="")
    # 0 = group, 1 = transaction, 2 = share partition ("group:topic id:partition", KIP-932)
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default=[])  # KIP-699: many at once, instead of `key`


class FindCoordinatorResponse(Message, api_key=10, versions="0-6", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    # KIP-699: one for each of the request's keys; the fields above are empty then.
    coordinators: list[Coordinator] = field("4+", default=[])


class Coordinator(Struct):
    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16
    error_message: String | None
