"""ISO 8601 durations, in the form that `java.time.Duration.parse` accepts."""

from __future__ import annotations

import re
from typing import Final

_NUMBER: Final = "([-+]?[0-9]{1,30})"
_DURATION: Final = re.compile(
    rf"([-+]?)P(?:{_NUMBER}D)?(?:T(?=.)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}(?:[.,]([0-9]{{0,9}}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def iso_duration_ms(text: str) -> int | None:
    """Return the milliseconds in a duration such as "P1DT2H" or "pt0,5s". For other texts return None.

    Each number may have a sign, and so may the whole duration, so the result may be negative.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not any(match.groups()[1:]):
        return None
    sign, days, hours, minutes, seconds, fraction = (part or "" for part in match.groups())
    whole_seconds = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    whole_seconds += int(seconds or 0)
    fraction_ms = int(fraction[:3].ljust(3, "0"))
    ms = whole_seconds * 1000 + (-fraction_ms if seconds.startswith("-") else fraction_ms)
    return -ms if sign == "-" else ms
