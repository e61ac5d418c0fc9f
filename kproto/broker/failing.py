"""Answers that the operator wants to be errors: what a request hears that is allowed nothing, with another
code.

So each API says no in its own way, one error for each partition, group or topic that was asked for, and
nothing of the request is done. An answer without room for an error, such as a list, is empty.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..wire.message import Struct


def say(part: Any, code: ErrorCode) -> None:
    """Makes every error in a part of an answer this one."""
    whole: Any = part
    if isinstance(part, list):
        for one in whole:
            say(one, code)
    elif isinstance(part, Struct):
        for name in whole.__struct_fields__:
            value = getattr(whole, name)
            if name == "error_code" and value:
                whole.error_code = code
            elif name == "error_message":
                whole.error_message = None
            else:
                say(value, code)
