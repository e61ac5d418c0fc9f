"""Escape text from other programs, so that it is safe to show.

Names, addresses and error messages come from brokers and clients. Their control characters could start new
lines, change colours, or reverse the text direction in a log, a terminal or a page.
"""

from __future__ import annotations

import json
import logging
from typing import Any


def escape_unprintable(line: str) -> str:
    r"""Escape unprintable characters, such as line ends and direction marks, in the form `\u001b`."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else _escape_character(c) for c in line)


def escape_lines(text: str) -> str:
    """Escape the characters that `escape_unprintable` escapes, except line feeds."""
    return "\n".join(map(escape_unprintable, text.split("\n")))


def _escape_character(character: str) -> str:
    return json.dumps(character)[1:-1] if not character.isascii() else f"\\u{ord(character):04x}"


class Log(logging.LoggerAdapter[logging.Logger]):
    """A logger that escapes its arguments, which other programs may have chosen."""

    def log(self, level: int, msg: object, *args: object, stacklevel: int = 1, **more: Any) -> None:
        if self.isEnabledFor(level):
            super().log(level, msg, *map(_escape_argument, args), stacklevel=stacklevel + 1, **more)


def _escape_argument(argument: object) -> object:
    """Return the argument, or its escaped text if it is not printable."""
    text = str(argument)
    return argument if text.isprintable() else escape_unprintable(text)
