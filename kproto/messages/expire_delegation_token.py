"""ExpireDelegationToken (key 40): change a token's expiry time, or expire the token immediately (KIP-48)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Bytes, Int16, Int32, Int64


class ExpireDelegationTokenRequest(Message, api_key=40, versions="1-2", flexible="2+"):
    hmac: Bytes
    expiry_time_period_ms: Int64


class ExpireDelegationTokenResponse(Message, api_key=40, versions="1-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
