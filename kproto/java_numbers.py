"""Numbers in texts as Java reads them: Python's own `int` and `float` take other texts for numbers.

Python takes underscores and what it thinks blank; Java takes a letter for the type and digits in hexadecimal
behind a point. Both take the decimal digits of every script for whole numbers.
"""

from __future__ import annotations

import re
from typing import Final

_BLANK: Final = "".join(map(chr, range(33)))  # what Java's String.trim takes off
_WHOLE: Final = re.compile(r"[+-]?\d+")
_DECIMAL: Final = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_WORD: Final = re.compile(r"[+-]?(?:NaN|Infinity)")
_HEX: Final = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?|[0-9a-fA-F]*\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?")
_LONGEST: Final = 400  # Python gives up on longer ones, which fit into no type


def trimmed(text: str) -> str:
    """A text without the blanks around it (String.trim)."""
    return text.strip(_BLANK)


def whole(text: str, bits: int = 32) -> int | None:
    """Integer.parseInt, or Long.parseLong with 64 bits; None for what is no such number."""
    if len(text) > _LONGEST or _WHOLE.fullmatch(text) is None:
        return None
    number = int(text)
    return number if -(1 << bits - 1) <= number < 1 << bits - 1 else None


def double_text(number: float) -> str:
    """Double.toString, for numbers below 10,000,000."""
    if number != number:
        return "NaN"
    if number == 0 or abs(number) >= 1e-3:
        return repr(number)
    short = next(one for n in range(1, 18) if float(one := f"{number:.{n}e}") == number)
    digits, _, exponent = short.partition("e")
    return f"{digits}E{int(exponent)}"


def double(text: str) -> float | None:
    """Double.parseDouble, behind `trimmed`; None for what is no number. `NaN` is one."""
    if _WORD.fullmatch(text) is not None:
        return float(text)
    found = _DECIMAL.fullmatch(text)
    if found is not None:
        return float(found[1])
    found = _HEX.fullmatch(text)
    if found is None:
        return None
    try:
        return float.fromhex(found[1])
    except OverflowError:
        return float("-inf" if text.startswith("-") else "inf")
