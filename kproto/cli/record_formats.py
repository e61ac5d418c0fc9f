"""The formats of keys and values in `kproto consume` and `kproto produce`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from base64 import b64decode, b64encode
from typing import Any, NoReturn

from ..printable import escape_unprintable
from .schema_formats import KINDS, add_registry

TEXT_FORMATS = ("string", "hex", "base64")
FORMATS = (*TEXT_FORMATS, "json", *KINDS)


def add_formats(parser: argparse.ArgumentParser) -> None:
    """Add the options `--key-format`, `--value-format` and `--registry`."""
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-format",
            choices=FORMATS,
            default="string",
            metavar="FORMAT",
            help=f"one of {', '.join(FORMATS)}; default: string",
        )
    add_registry(parser)


def format_value(value: Any, form: str) -> str:
    """Return the text to print for a key or value that `json_value` returned; None becomes "null".

    On a terminal, unprintable characters are escaped.
    """
    if form not in TEXT_FORMATS:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    else:
        text = "null" if value is None else value
    return escape_unprintable(text) if sys.stdout.isatty() else text


def json_value(data: bytes | None, form: str, *, lossless: bool = False) -> Any:
    r"""Return a key or value for a JSON line: null, the parsed JSON, or a string.

    A byte that is not valid UTF-8 is written as an escape such as `\xff`. If `lossless` is set, a value that
    contains such bytes is written as {"base64": TEXT}, which `bytes_in_json` reads.

    Raises ValueError for invalid JSON.
    """
    match form:
        case _ if data is None:
            return None
        case "hex":
            return data.hex()
        case "base64":
            return b64encode(data).decode()
        case "json":
            return parse_json(data)
        case _:
            text = data.decode("utf-8", errors="backslashreplace")
            if lossless and text.encode() != data:
                return {"base64": b64encode(data).decode()}
            return text


def parse_json(text: str | bytes) -> Any:
    """Parse JSON. Raises ValueError also for NaN and infinity, which Python's parser accepts."""
    return json.loads(text, parse_constant=_reject_number, parse_float=_parse_finite)


def _parse_finite(text: str) -> float:
    number = float(text)
    return number if math.isfinite(number) else _reject_number(text)


def _reject_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a JSON number that fits in a 64-bit float")


def bytes_in_json(value: object) -> bytes | None:
    """Return the bytes of {"base64": TEXT}; None for any other value.

    Raises ValueError if TEXT is not base64.
    """
    match value:
        case {"base64": str(text)} if value == {"base64": text}:
            try:
                return b64decode(text, validate=True)
            except ValueError as error:
                raise ValueError(f'{{"base64": TEXT}}, where TEXT is bytes in base64 ({error})') from None
        case _:
            return None


def encode_text(text: str, form: str) -> bytes:
    """Return the bytes of a key or value that was given as text, in a format without a schema.

    Raises ValueError if the text is not in the format.
    """
    if form == "hex":
        return bytes.fromhex(text)
    if form == "base64":
        return b64decode(text, validate=True)
    if form == "json":
        parse_json(text)  # The bytes are sent unchanged, so the text must be valid JSON.
    return text.encode("utf-8", errors="surrogateescape")
