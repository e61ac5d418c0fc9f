"""Format exchanges and generations as JSON lines, for `kproto watch --json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..error_codes import ErrorCode
from ..messages.api_versions import ApiVersionsResponse
from ..messages.json_form import Base64, base64_text, one_line, write_one_line
from ..messages.json_form import to_json as json_form
from .exchanges import LARGE_FRAME, Exchange
from .timeline import GroupEvent


def write_json_line(exchange: Exchange, write: Callable[[str], object]) -> None:
    """Write the exchange as one line of JSON, without a line break at its end.

    To save memory, an exchange of more than `LARGE_FRAME` bytes is passed to `write` in pieces.
    """
    if exchange.size > LARGE_FRAME:
        write_one_line(to_json(exchange, binary=Base64), write)
    else:
        write(one_line(to_json(exchange)))


def to_json(exchange: Exchange, *, binary: Callable[[bytes], object] = base64_text) -> dict[str, Any]:
    """Return the exchange in Kafka's JSON form, with times in milliseconds.

    `binary` converts the values of fields that contain bytes; the default returns base64 text.
    """
    result: dict[str, Any] = {
        "at": exchange.asked_at,
        "ms": exchange.ms,
        "connection": exchange.connection,
        "peer": exchange.peer,
        "client": exchange.client,
        **({"principal": exchange.principal} if exchange.principal else {}),
        "api": exchange.api,
        "version": exchange.version,
    }
    if exchange.request is not None:
        result["request"] = json_form(exchange.request, exchange.version, binary=binary)
    if exchange.response is not None:
        response = exchange.response
        is_rejection = (
            isinstance(response, ApiVersionsResponse) and response.error_code == ErrorCode.UNSUPPORTED_VERSION
        )
        # A broker rejects an unknown version of ApiVersions with a response of version 0 (KIP-511).
        result["response"] = json_form(response, 0 if is_rejection else exchange.version, binary=binary)
    if exchange.trouble:
        result["trouble"] = exchange.trouble
    return result


def generation_json(group: str, event: GroupEvent) -> dict[str, Any]:
    """Return the start of a generation as a JSON object, with its cause. The time is in milliseconds."""
    return {"at": event.at, "group": group, "generation": event.generation, "cause": event.reason}
