"""Durations are read as Java's Duration.parse reads them. The expected values are Java's."""

from __future__ import annotations

import pytest

from kproto.durations import iso_duration_ms


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("PT1H30M", 5_400_000),
        ("P1DT2H", 93_600_000),
        ("P2D", 172_800_000),
        ("PT24H60M", 90_000_000),
        ("pt1h", 3_600_000),
        ("+PT1H", 3_600_000),
        ("PT1H-30M", 1_800_000),
        ("-PT-1H", 3_600_000),
        ("-PT1H", -3_600_000),
        ("PT1.5S", 1_500),
        ("PT1,5S", 1_500),
        ("PT1.S", 1_000),
        ("PT0.123456789S", 123),
        ("PT-1.5S", -1_500),
        ("PT0S", 0),
    ],
)
def test_the_forms_of_java_are_durations(text: str, ms: int) -> None:
    assert iso_duration_ms(text) == ms


@pytest.mark.parametrize(
    "text",
    [
        "",
        "P",
        "PT",
        "P1DT",
        "P1W",
        "P1M",
        "1H",
        " PT1H",
        "PT1H ",
        "PT1H\n",
        "PT1.1234567891S",
        "PT1S1H",
        "PT\u0661S",
        "PT1\u017f",
        "PT" + "9" * 5000 + "S",
    ],
)
def test_other_texts_are_no_durations(text: str) -> None:
    assert iso_duration_ms(text) is None
