"""What an option's value looks like, read from the text that Spark hands over.

Each reader takes the option's name and the text, and raises ConfigError with both and with what is allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import cast

from kproto.errors import ConfigError


def boolean(name: str, value: str) -> bool:
    """``true`` or ``false``, in any case."""
    if value.strip().lower() in ("true", "false"):
        return value.strip().lower() == "true"
    raise ConfigError(name, value, 'allowed: "true" or "false"')


def whole(least: int, most: int = (1 << 63) - 1) -> Callable[[str, str], int]:
    """A reader of whole numbers from `least` to `most`."""

    def read(name: str, value: str) -> int:
        if re.fullmatch(r"[+-]?[0-9]+", value.strip()) and least <= int(value) <= most:
            return int(value)
        limit = f"from {least} to {most}" if most < (1 << 63) - 1 else f"of at least {least}"
        raise ConfigError(name, value, f"allowed: a whole number {limit}")

    return read


def moment_ms(name: str, value: str) -> int:
    """A time as Kafka's records have it; no date, as a date is in a zone."""
    try:
        return whole(0)(name, value)
    except ConfigError:
        raise ConfigError(name, value, "allowed: milliseconds since 1970, such as 1700000000000") from None


def one_of(*allowed: str) -> Callable[[str, str], str]:
    """A reader of one of some words, in any case."""

    def read(name: str, value: str) -> str:
        if value.strip().lower() in allowed:
            return value.strip().lower()
        raise ConfigError(name, value, f"allowed: {', '.join(allowed)}")

    return read


def text(name: str, value: str) -> str:
    """Anything but blanks; what surrounds it is left out."""
    if value.strip():
        return value.strip()
    raise ConfigError(name, value, "it must not be empty")


_UNITS_US = {
    "us": 1, "ms": 1_000, "": 1_000, "s": 1_000_000, "m": 60_000_000, "min": 60_000_000, "h": 3_600_000_000,
    "d": 86_400_000_000,
}  # fmt: skip


def duration_ms(name: str, value: str) -> int:
    """A time as Spark writes it: ``500ms``, ``30s``, ``15m``, ``2h``, ``1d``; a bare number is ms."""
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", value.strip().lower())
    if match and match[2] in _UNITS_US:
        return int(match[1]) * _UNITS_US[match[2]] // 1_000
    raise ConfigError(name, value, "allowed: a time such as 500ms, 30s, 15m, 2h or 1d")


def json_object(name: str, value: str, shape: str) -> dict[str, object]:
    """A JSON object without a name that is there twice; `shape` shows the user one."""
    try:
        read: object = json.loads(value, object_pairs_hook=_no_twice)
    except ValueError as e:
        raise ConfigError(name, value, f"allowed: JSON such as {shape} ({e})") from None
    if not isinstance(read, dict):
        raise ConfigError(name, value, f"allowed: JSON such as {shape}")
    return cast("dict[str, object]", read)


def _no_twice(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"{name!r} is there twice")
        found[name] = value
    return found
