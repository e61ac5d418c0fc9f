"""Injected errors and throttling of responses (`Server.fail`, `Server.throttle`).

* A request with an injected error is rejected as if its caller had no permission, but with the injected
  error. The response contains the error for each partition, group or topic, as the API defines.

* If the response of an API version has no error field, an injected error results in an empty response.

* A throttled client receives its response immediately, with a throttle time (KIP-219). During the throttle
  time, the broker does not read from the client's connection.

* A throttled Fetch returns no records (`apis.fetch`).
"""

from __future__ import annotations

from typing import Any, cast

from ..error_codes import ErrorCode
from ..wire.message import Message, Struct


def replace_errors(response: Message, error: ErrorCode, version: int) -> None:
    """Replace every nonzero error code in a response with `error`, and remove the error messages.

    If all error codes are 0, the top-level error code becomes `error`. In versions without a top-level error
    code, such a response continues to report no error.
    """
    has_top_level_error = _has_field(response, "error_code", version)
    if not _replace_errors(response, error) and has_top_level_error:
        fields: Any = response
        fields.error_code = error


def _replace_errors(value: Any, error: ErrorCode) -> bool:
    """Replace the nonzero error codes in a response, or in a part of one; return whether it had any.

    All error messages are set to None.
    """
    if isinstance(value, list):
        items = cast("list[object]", value)
        # A list, because `any` with a generator would not reach the items after the first one with an error.
        return max([_replace_errors(item, error) for item in items], default=False)
    replaced = False
    if isinstance(value, Struct):
        part: Any = value
        for name in part.__struct_fields__:
            field = getattr(part, name)
            if name == "error_code":
                if field:
                    part.error_code, replaced = error, True
            elif name == "error_message":
                part.error_message = None
            else:
                replaced = _replace_errors(field, error) or replaced
    return replaced


def set_throttle_time(response: Message, version: int, throttle_ms: int) -> None:
    """Set the throttle time of a response, if this version of the API has the field."""
    if _has_field(response, "throttle_time_ms", version):
        fields: Any = response
        fields.throttle_time_ms = throttle_ms


def _has_field(response: Message, name: str, version: int) -> bool:
    return any(field.name == name and version in field.versions for field in response.__fields__)
