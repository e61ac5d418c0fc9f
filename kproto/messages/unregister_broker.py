"""UnregisterBroker (key 64): remove the registration of a decommissioned broker (KIP-631)."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, Int32, String


class UnregisterBrokerRequest(Message, api_key=64, versions="0", flexible="0+"):
    broker_id: Int32


class UnregisterBrokerResponse(Message, api_key=64, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
