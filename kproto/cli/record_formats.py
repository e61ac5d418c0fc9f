"""The formats of keys and values in `kproto consume` and `kproto produce`."""

from __future__ import annotations

import json
import sys
from base64 import b64decode, b64encode
from typing import Any

from ..printable import escape_unprintable

FORMATS = ("string", "hex", "base64", "json")


def formatted(data: bytes | None, form: str) -> str:
    """Return a key or value as text. None is the text null, as in Kafka's tools.

    On a terminal, unprintable characters of a string are escaped. Raises ValueError for invalid JSON.
    """
    if data is None:
        return "null"
    if form == "hex":
        return data.hex()
    if form == "base64":
        return b64encode(data).decode()
    if form == "json":
        return json.dumps(json.loads(data), ensure_ascii=False, separators=(",", ":"))
    text = data.decode("utf-8", errors="backslashreplace")
    return escape_unprintable(text) if sys.stdout.isatty() else text


def json_value(data: bytes | None, form: str) -> Any:
    """Return a key or value for a JSON line: null, the value of its JSON, or a string."""
    if data is not None and form == "json":
        return json.loads(data)
    return None if data is None else formatted(data, form)


def parsed(text: str, form: str) -> bytes:
    """Return the bytes of a key or value that was given as text. Raises ValueError."""
    if form == "hex":
        return bytes.fromhex(text)
    if form == "base64":
        return b64decode(text, validate=True)
    if form == "json":
        json.loads(text)  # The text itself is sent, so it must be valid JSON.
    return text.encode("utf-8", errors="surrogateescape")
