r"""Read bytes from pasted text: hex as tools print it, base64, or Python's b'...'.

    read("000c0004 0000 0007")
    read("00000000: 000c 0004 0000 0007  ........")     # xxd, hexdump -C, od -tx1, Wireshark

Plain hex digits may be separated by spaces, line ends, colons, commas, dashes, braces, quotes, ``0x`` and
``\x``. A dump is recognized by its offsets: each must equal the number of bytes before its line.
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
# A row with several groups of digits. od separates the offset from the digits by one space only.
_ROW_OF_SEVERAL = re.compile(r"\s*([0-9A-Fa-f]{4,16})(?:(:)\s*|\s+|$)(.*)")
_SWAPPED = re.compile(r"0000000( [0-9A-Fa-f]{4})+\s*$", re.MULTILINE)
_TYPED = 12
# A text of at least `_TYPED` characters is treated as mistyped hex if at most one character in `_RARE` is not
# hex. Two in a million base64 texts of that length fulfil this condition.
_RARE = 8
_BETWEEN = re.compile(r"0[xX]|\\x|[\s:,;{}\[\]\"'-]")


def read(text: str) -> bytes | None:
    """Return the bytes that a text encodes, or None. Raises ConfigError for mistyped hex."""
    if _SWAPPED.match(text):
        raise ConfigError("data", _short(text), "hexdump swaps bytes by default; call it as hexdump -C")
    text = text.strip()
    if text.startswith(("b'", 'b"')):
        return _python(text)
    for base in (16, 8):  # od prints octal offsets, so try base 8 as well.
        dumped = _dump(text, base)
        if dumped is not None:
            return dumped
    digits = _BETWEEN.sub("", text)
    if re.fullmatch("[0-9A-Fa-f]*", digits):
        if len(digits) % 2:
            raise ConfigError(
                "data",
                _short(text),
                f"{len(digits)} hex digits are an odd number; a digit is missing or extra",
            )
        return bytes.fromhex(digits)
    wrong = re.findall("[^0-9a-f]", digits)
    # Base64 text of this length contains capitals, so this text is mistyped hex.
    if len(digits) >= _TYPED and len(wrong) * _RARE <= len(digits):
        raise ConfigError("data", _short(text), f"{wrong[0]!r} is not a hex digit")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None


def is_base64(text: str) -> bool:
    """Return whether `read` decodes the text as base64.

    Such a text may also be the name of a file that does not exist.
    """
    return re.fullmatch("[0-9A-Fa-f]*", _BETWEEN.sub("", text)) is None and text[:2] not in ("b'", 'b"')


def _dump(text: str, base: int) -> bytes | None:
    data = bytearray()
    pattern = _ROW_OF_SEVERAL if "\n" in text else _ROW
    previous_row = b""
    repeated = False
    for line in filter(None, text.splitlines()):
        # hexdump prints "*" in place of rows that equal the previous row, up to the next offset.
        if line.strip() == "*":
            repeated = True
            continue
        match = pattern.match(line)
        if match is None:
            return None
        try:
            offset = int(match[1], base)
            row_here = bytes.fromhex(_digits(match[3], xxd=match[2] is not None))
        except ValueError:
            return None
        if repeated and previous_row and offset <= MAX_FRAME_SIZE:
            data += previous_row * ((offset - len(data)) // len(previous_row))
            repeated = False
        if offset != len(data):
            return None
        data += row_here
        previous_row = row_here or previous_row
    return bytes(data) if data else None


def _digits(row: str, xxd: bool) -> str:
    """Cut off the character column.

    It stands after two spaces in xxd's output, and after three spaces or between bars in other tools' output.
    """
    return re.split(r"\s{2}", row)[0] if xxd else re.split(r"\s{3}|\|", row)[0]


def _python(text: str) -> bytes | None:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, bytes) else None


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
