"""SaslAuthenticate (key 36): one step of a SASL exchange, inside Kafka's own framing (KIP-152)."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes

    def __repr__(self) -> str:
        # With PLAIN it is the password itself, and messages are looked at in logs and debuggers.
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    # KIP-368: log in again before it ends; 0 = never
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
