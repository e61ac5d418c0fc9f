"""PushTelemetry (key 72): send the client's metrics to the broker (KIP-714)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Bool, Bytes, Int8, Int16, Int32, Uuid


class PushTelemetryRequest(Message, api_key=72, versions="0", flexible="0+"):
    client_instance_id: Uuid
    subscription_id: Int32
    terminating: Bool
    compression_type: Int8
    metrics: Bytes


class PushTelemetryResponse(Message, api_key=72, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
