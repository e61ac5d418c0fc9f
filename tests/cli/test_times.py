"""Command-line arguments accept times and durations in several formats, and reject others."""

from __future__ import annotations

import pytest

from kproto.cli.times import datetime_ms, duration_ms, offset_time
from kproto.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("earliest", "earliest"),
        ("max-timestamp", "max_timestamp"),
        ("1500", 1500),
        ("1970-01-01T00:00:01.500", 1500),
        ("1970-01-01", 0),
    ],
)
def test_an_offset_is_named_or_has_a_time(text: str, expected: str | int) -> None:
    assert offset_time("--time", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10m", 600_000), ("P1DT2H3M4.5S", 93_784_500), ("PT1S", 1_000), ("400ms", 400)],
)
def test_durations_of_both_forms(text: str, expected: int) -> None:
    assert duration_ms("--by-duration", text) == expected


@pytest.mark.parametrize("text", ["", "P", "PT", "1 day", "P1Y", "-1m"])
def test_an_invalid_duration_is_an_error(text: str) -> None:
    with pytest.raises(ConfigError, match="a duration such as 10m, 4h or P7D"):
        duration_ms("--by-duration", text)


def test_a_time_without_a_zone_is_in_utc() -> None:
    assert datetime_ms("--to", "1970-01-01T01:00:00+01:00") == datetime_ms("--to", "1970-01-01T00:00:00") == 0
    with pytest.raises(ConfigError, match="a time such as 2026-11-28T09:30:00"):
        datetime_ms("--to", "1970-13-01")
