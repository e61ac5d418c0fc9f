"""DeleteTopics (key 20): delete topics by name or, from v6, by id."""

from __future__ import annotations

from ..wire.message import Message, Struct, field
from ..wire.types import ZERO_UUID, Int16, Int32, String, Uuid


class DeleteTopicsRequest(Message, api_key=20, versions="1-6", flexible="4+"):
    topics: list[DeleteTopicState] = field("6+", default=[])
    topic_names: list[String] = field("1-5", default=[], ignorable=True)
    timeout_ms: Int32


class DeleteTopicState(Struct):
    # The topic name. Null if `topic_id` is set.
    name: String | None = None
    # The topic id (KIP-516).
    topic_id: Uuid


class DeleteTopicsResponse(Message, api_key=20, versions="1-6", flexible="4+"):
    throttle_time_ms: Int32
    responses: list[DeletableTopicResult]


class DeletableTopicResult(Struct):
    name: String | None = field(nullable="6+", map_key=True)
    topic_id: Uuid = field("6+", default=ZERO_UUID, ignorable=True)  # The topic id (KIP-516).
    error_code: Int16
    error_message: String | None = field("5+", default=None, ignorable=True)
