"""Envelope (key 58): forward a client's request to the controller (KIP-590)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Bytes, Int16


class EnvelopeRequest(Message, api_key=58, versions="0", flexible="0+"):
    request_data: Bytes
    request_principal: Bytes | None
    client_host_address: Bytes


class EnvelopeResponse(Message, api_key=58, versions="0", flexible="0+"):
    response_data: Bytes | None = None
    error_code: Int16
