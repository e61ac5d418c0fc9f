"""UnregisterController (key 94): remove the registration of a controller that no longer exists."""

from __future__ import annotations

from ..wire.message import Message
from ..wire.types import Int16, Int32, String


class UnregisterControllerRequest(Message, api_key=94, versions="0", flexible="0+"):
    controller_id: Int32


class UnregisterControllerResponse(Message, api_key=94, versions="0", flexible="0+"):
    throttle_time_ms: Int32
    error_code: Int16
    error_message: String | None
