"""Times and durations in arguments of the commands that send requests to a cluster."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from ..durations import iso_duration_ms
from ..errors import ConfigError
from .arguments import duration, parse_digits

# The special offsets. In a ListOffsets request, each of them is a negative timestamp. Kafka's tools write
# hyphens instead of the underscores.
_SPECIAL_OFFSETS = ("earliest", "latest", "max_timestamp", "earliest_local", "latest_tiered")


def offset_time(option: str, text: str) -> str | int:
    """Return the name of a special offset, such as "latest", or a time in ms since 1970."""
    name = text.replace("-", "_")
    if name in _SPECIAL_OFFSETS:
        return name
    if parse_digits(text) >= 0:
        return int(text)
    try:
        return datetime_ms(option, text)
    except ConfigError:
        allowed = (
            f"allowed: {', '.join(_SPECIAL_OFFSETS)}, a time in ms since 1970, or such as 2026-11-28T09:30:00"
        )
        raise ConfigError(option, text, allowed) from None


def datetime_ms(option: str, text: str) -> int:
    """Convert an ISO 8601 time to ms since 1970. A time without a zone is in UTC."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        allowed = "allowed: a time such as 2026-11-28T09:30:00 or 2026-11-28T09:30:00+01:00"
        raise ConfigError(option, text, allowed) from None
    return round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(option: str, text: str) -> int:
    """Return a duration such as 10m, or an ISO 8601 duration such as P7DT2H, in ms."""
    ms = iso_duration_ms(text)
    if ms is not None and ms >= 0:
        return ms
    try:
        return duration(text)
    except argparse.ArgumentTypeError:
        raise ConfigError(option, text, "allowed: a duration such as 10m, 4h or P7D") from None
