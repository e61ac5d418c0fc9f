"""Parse and format numbers as Java does, where Python's `int` and `float` differ.

Unlike Java, Python accepts underscores in numbers. Unlike Python, Java accepts hexadecimal floating point,
and a type suffix as in `1.5f`. Java and Python trim different white space. In integers,
both accept the decimal digits of many scripts, but Java only those up to U+FFFF.
"""

from __future__ import annotations

import math
import re
from typing import Final

_TRIMMED_CHARACTERS: Final = "".join(map(chr, range(33)))  # The characters that Java's String.trim removes.
# Java's parseInt reads UTF-16 code units, so it rejects digits beyond U+FFFF.
_INTEGER: Final = re.compile(r"[+-]?(?:(?![\U00010000-\U0010ffff])\d)+")
_DECIMAL_DOUBLE: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_NON_FINITE_DOUBLE: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEX_DOUBLE: Final = re.compile(
    r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?"
)
# The maximum length of an integer in characters. A longer integer fits no type, unless it begins with zeros.
# Without this limit, Python's `int` would raise an error for an integer of more than 4,300 digits.
_MAX_INTEGER_LENGTH: Final = 400


def trimmed(text: str) -> str:
    """Remove white space from both ends, as String.trim does."""
    return text.strip(_TRIMMED_CHARACTERS)


def whole_number(text: str, bits: int = 32) -> int | None:
    """Parse an integer as Integer.parseInt (32 bits) or Long.parseLong (64) does.

    Return None if `text` is invalid.
    """
    if len(text) > _MAX_INTEGER_LENGTH or _INTEGER.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def double_text(number: float) -> str:
    """Format a number as Double.toString does."""
    if number != number:
        return "NaN"
    if abs(number) == math.inf:
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    # The text with the fewest digits that is read as the same number.
    shortest = next(text for n in range(1, 18) if float(text := f"{number:.{n}e}") == number)
    digits, _, exponent = shortest.partition("e")
    return f"{digits}E{int(exponent)}"


def double(text: str) -> float | None:
    """Parse a trimmed number as Double.parseDouble does. Return None if `text` is invalid; `NaN` is valid."""
    if _NON_FINITE_DOUBLE.fullmatch(text) is not None:
        return float(text)
    match = _DECIMAL_DOUBLE.fullmatch(text)
    if match is not None:
        return float(match[1])
    match = _HEX_DOUBLE.fullmatch(text)
    if match is None:
        return None
    try:
        return float.fromhex(match[1])
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")
