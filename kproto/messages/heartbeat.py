"""Heartbeat (key 12): keep the membership alive, and detect a rebalance."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Int16, Int32, String


class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
    group_id: String
    generation_id: Int32
    member_id: String
    # The instance id of a static member (KIP-345).
    group_instance_id: String | None = field("3+", default=None)


class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16
