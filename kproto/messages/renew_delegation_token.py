"""RenewDelegationToken (key 39): extend the lifetime of a token (KIP-48)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Bytes, Int16, Int32, Int64


class RenewDelegationTokenRequest(Message, api_key=39, versions="1-2", flexible="2+"):
    hmac: Bytes
    renew_period_ms: Int64


class RenewDelegationTokenResponse(Message, api_key=39, versions="1-2", flexible="2+"):
    error_code: Int16
    expiry_timestamp_ms: Int64
    throttle_time_ms: Int32
