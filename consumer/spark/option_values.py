"""Parses option values, which Spark passes as strings.

Each parser takes the name of an option and its value as a string. It raises ConfigError with the name, the
value and the allowed values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import cast

from kproto.errors import ConfigError


def boolean(name: str, value: str) -> bool:
    """Parse ``true`` or ``false``, in upper or lower case."""
    if value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ConfigError(name, value, 'allowed: "true" or "false"')


def integer(least: int, most: int = (1 << 63) - 1) -> Callable[[str, str], int]:
    """Return a parser of integers from `least` to `most`."""

    def read(name: str, value: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]+", value.strip()) and least <= int(value) <= most:
            return int(value)
        allowed = f"from {least} to {most}" if most < (1 << 63) - 1 else f"of at least {least}"
        raise ConfigError(name, value, f"allowed: a whole number {allowed}")

    return read


def parse_timestamp_ms(name: str, value: str) -> int:
    """Parse a timestamp in ms since 1970. Dates are not allowed, because they depend on a time zone."""
    try:
        return integer(0)(name, value)
    except ConfigError:
        raise ConfigError(name, value, "allowed: milliseconds since 1970, such as 1700000000000") from None


def one_of(*allowed: str) -> Callable[[str, str], str]:
    """Return a parser that accepts one of the values in `allowed`, in upper or lower case."""

    def read(name: str, value: str) -> str:
        if value.strip().lower() in allowed:
            return value.strip().lower()
        raise ConfigError(name, value, f"allowed: {', '.join(allowed)}")

    return read


def text(name: str, value: str) -> str:
    """Return the string without surrounding whitespace. Raises ConfigError for a blank string."""
    if value.strip():
        return value.strip()
    raise ConfigError(name, value, "set it to a text that is not blank")


# The length of each unit of time in microseconds.
_UNITS_US = {
    "us": 1, "ms": 1_000, "": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000,
}  # fmt: skip


def duration_ms(name: str, value: str) -> int:
    """Parse a duration in Spark's syntax: ``500ms``, ``30s``, ``15m``, ``2h``, ``1d``.

    A number without a unit is in ms.
    """
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower())
    if match and match[2] in _UNITS_US:
        return int(match[1]) * _UNITS_US[match[2]] // 1_000
    raise ConfigError(name, value, "allowed: a time such as 500ms, 30s, 15m, 2h or 1d")


def json_object(name: str, value: str, shape: str) -> dict[str, object]:
    """Parse a JSON object in which no name appears twice. Error messages show `shape` as an example."""
    try:
        parsed: object = json.loads(value, object_pairs_hook=_without_duplicates)
    except ValueError as error:
        raise ConfigError(
            name, value, f"the JSON cannot be read ({error}); allowed: JSON such as {shape}"
        ) from None
    if not isinstance(parsed, dict):
        raise ConfigError(name, value, f"allowed: JSON such as {shape}")
    return cast("dict[str, object]", parsed)


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object as a dict. Raises ValueError if a name appears twice."""
    result: dict[str, object] = {}
    for name, value in pairs:
        if name in result:
            raise ValueError(f"{name!r} appears twice")
        result[name] = value
    return result
