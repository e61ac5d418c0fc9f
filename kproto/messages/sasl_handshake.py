"""SaslHandshake (key 17): agree on a SASL mechanism."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, String


class SaslHandshakeRequest(Message, api_key=17, versions="0-1"):
    mechanism: String


class SaslHandshakeResponse(Message, api_key=17, versions="0-1"):
    error_code: Int16
    mechanisms: list[String]
