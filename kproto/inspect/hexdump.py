r"""Bytes out of what people paste: hex as tools print it, base64, or Python's b'...'.

    read("000c0004 0000 0007")
    read("00000000: 000c 0004 0000 0007  ........")     # xxd, hexdump -C, od -tx1, Wireshark

Between the digits of plain hex may stand spaces, line ends, colons, commas, dashes, braces, quotes, ``0x``
and ``\x``. A dump is known by its offsets: each must be the number of bytes in front of its line.
"""

from __future__ import annotations

import ast
import base64
import binascii
import re

from ..errors import ConfigError
from ..wire.frame import MAX_FRAME_SIZE

FORMS = "hex (plain, or as xxd, hexdump -C or Wireshark print it), base64, the name of a file, or - for stdin"

_ROW = re.compile(r"\s*([0-9A-Fa-f]{4,16})(?:(:)\s*|\s{2,}|\s*$)(.*)")
_ROW_OF_SEVERAL = re.compile(r"\s*([0-9A-Fa-f]{4,16})(?:(:)\s*|\s+|$)(.*)")  # od has one space
_SWAPPED = re.compile(r"0000000( [0-9A-Fa-f]{4})+\s*$", re.MULTILINE)
_TYPED = 12
# Text of at least `_TYPED` digits, of which at most one in `_RARE` is none, is mistyped hex: of base64 texts
# that long two in a million are like that.
_RARE = 8
_BETWEEN = re.compile(r"0[xX]|\\x|[\s:,;{}\[\]\"'-]")


def read(text: str) -> bytes | None:
    """The bytes that a text says; None when it says none. Raises ConfigError where it is nearly one."""
    if _SWAPPED.match(text):
        raise ConfigError("data", _short(text), "hexdump swaps bytes unless it is called as hexdump -C")
    text = text.strip()
    if text.startswith(("b'", 'b"')):
        return _python(text)
    for base in (16, 8):  # od counts in octal
        dumped = _dump(text, base)
        if dumped is not None:
            return dumped
    digits = _BETWEEN.sub("", text)
    if re.fullmatch("[0-9A-Fa-f]*", digits):
        if len(digits) % 2:
            raise ConfigError("data", _short(text), f"{len(digits)} hex digits are half a byte too many")
        return bytes.fromhex(digits)
    wrong = re.findall("[^0-9a-f]", digits)
    if len(digits) >= _TYPED and len(wrong) * _RARE <= len(digits):  # base64 has capitals in between
        raise ConfigError("data", _short(text), f"{wrong[0]!r} is no hex digit")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def is_base64(text: str) -> bool:
    """Whether `read` takes it for base64: text that could as well be the name of a file that isn't there."""
    return re.fullmatch("[0-9A-Fa-f]*", _BETWEEN.sub("", text)) is None and text[:2] not in ("b'", 'b"')


def _dump(text: str, base: int) -> bytes | None:
    out = bytearray()
    pattern = _ROW_OF_SEVERAL if "\n" in text else _ROW
    row = b""
    repeated = False
    for line in filter(None, text.splitlines()):
        if line.strip() == "*":  # hexdump's "as above, up to the next offset"
            repeated = True
            continue
        found = pattern.match(line)
        if found is None:
            return None
        try:
            offset = int(found[1], base)
            row_here = bytes.fromhex(_digits(found[3], xxd=found[2] is not None))
        except ValueError:
            return None
        if repeated and row and offset <= MAX_FRAME_SIZE:
            out += row * ((offset - len(out)) // len(row))
            repeated = False
        if offset != len(out):
            return None
        out += row_here
        row = row_here or row
    return bytes(out) if out else None


def _digits(row: str, xxd: bool) -> str:
    """The row without its column of characters: two spaces off in xxd, three elsewhere, or between bars."""
    return re.split(r"\s{2}", row)[0] if xxd else re.split(r"\s{3}|\|", row)[0]


def _python(text: str) -> bytes | None:
    try:
        found: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, bytes) else None


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
