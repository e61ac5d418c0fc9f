"""Answers that the operator wants to be errors: what a request hears that is allowed nothing, with another
code.

So each API says no in its own way, one error for each partition, group or topic that was asked for, and
nothing of the request is done. An answer without room for an error, such as a list, is empty.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..wire.message import Message, Struct


def fail(response: Message, code: ErrorCode, version: int) -> None:
    """Makes every error of an answer this one; one that has none yet gets it where the whole may have one."""
    whole: Any = response
    room = any(one.name == "error_code" and version in one.versions for one in response.__fields__)
    if not _say(response, code) and room:
        whole.error_code = code


def _say(part: Any, code: ErrorCode) -> bool:
    """Whether there was an error in this part."""
    whole: Any = part
    if isinstance(part, list):
        return max([_say(one, code) for one in whole], default=False)
    said = False
    if isinstance(part, Struct):
        for name in whole.__struct_fields__:
            value = getattr(whole, name)
            if name == "error_code":
                if value:
                    whole.error_code, said = code, True
            elif name == "error_message":
                whole.error_message = None
            else:
                said = _say(value, code) or said
    return said
