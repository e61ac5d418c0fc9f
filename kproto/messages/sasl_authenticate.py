"""SaslAuthenticate (key 36): perform one step of a SASL exchange (KIP-152)."""

from __future__ import annotations

from ..wire.message import Message, field
from ..wire.types import Bytes, Int16, Int64, String


class SaslAuthenticateRequest(Message, api_key=36, versions="0-2", flexible="2+"):
    auth_bytes: Bytes

    def __repr__(self) -> str:
        # The repr omits the bytes: with PLAIN they contain the password, which logs and debuggers would show.
        return f"SaslAuthenticateRequest(auth_bytes=<{len(self.auth_bytes)} bytes>)"


class SaslAuthenticateResponse(Message, api_key=36, versions="0-2", flexible="2+"):
    error_code: Int16
    error_message: String | None
    auth_bytes: Bytes
    # The time in ms within which to authenticate again; 0 for no limit (KIP-368).
    session_lifetime_ms: Int64 = field("1+", default=0, ignorable=True)
