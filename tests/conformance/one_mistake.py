"""Message declarations with one mistake each. A test against Kafka must fail with each declaration."""

from __future__ import annotations

from kproto.wire.message import Message, field
from kproto.wire.types import Bytes, Int16, Int32, Int64, String


class OneMistake:
    """Declarations of Kafka messages, with one mistake in each."""

    class HeartbeatRequest(Message, api_key=12, versions="0-4", flexible="4+"):
        member_id: String  # Before generation_id.
        group_id: String
        generation_id: Int32
        group_instance_id: String | None = field("3+", default=None)

    class HeartbeatResponse(Message, api_key=12, versions="0-4", flexible="3+"):  # One version too early.
        throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
        error_code: Int16

    class SyncGroupResponse(Message, api_key=14, versions="0-5", flexible="4+"):
        throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)  # One version too late.
        error_code: Int16
        protocol_type: String | None = field("5+", default=None, ignorable=True)
        protocol_name: String | None = field("5+", default=None, ignorable=True)
        assignment: Bytes

    class ApiVersionsRequest(Message, api_key=18, versions="0-4", flexible="3+"):
        client_software_name: String = field("3+", default="x", tag=0)  # Tagged.
        client_software_version: String = field("3+", default="", ignorable=True)

    class EndTxnMarker(Message, versions="0"):
        coordinator_epoch: Int64  # Too wide.
