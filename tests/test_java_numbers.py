"""Numbers are read and written as in Java, even if Python reads them differently.

tests/conformance/test_topic_configs_like_kafka.py compares some of the results with a real Kafka's results.
"""

from __future__ import annotations

import math

import pytest

from kproto.java_numbers import double, double_text, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("+7", 7), ("-7", -7), ("007", 7), ("٣", 3), ("2147483647", 2**31 - 1)],
)
def test_whole_numbers_are_read(text: str, number: int) -> None:
    assert whole_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "1_0", " 1", "1 ", "²", "0x1", "1.0", "2147483648", "9" * 5000, "\u00a01", "\U000104a1"]
)
def test_invalid_integers_are_none(text: str) -> None:
    assert whole_number(text) is None


def test_longs_are_longer() -> None:
    assert (whole_number(str(-(2**63)), 64), whole_number(str(2**63), 64)) == (-(2**63), None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.5", 0.5), ("5e-1", 0.5), ("1.", 1.0), (".5", 0.5), ("0.5f", 0.5), ("1d", 1.0), ("1D", 1.0),
        ("0x1p-1", 0.5), ("0x.8p0", 0.5), ("0X1.P0F", 1.0), ("-0", -0.0), ("Infinity", math.inf),
        ("-Infinity", -math.inf), ("0x1p99999", math.inf), ("1e999", math.inf),
    ],
)  # fmt: skip
def test_doubles_are_read(text: str, number: float) -> None:
    assert double(text) == number


def test_not_a_number_is_a_double() -> None:
    assert math.isnan(double("NaN") or 0.0)


@pytest.mark.parametrize(
    "text", ["", "nan", "inf", "infinity", "1_0", "0x10", "0x1", "0xp0", "٣", " 1", "1ff", "."]
)
def test_invalid_doubles_are_none(text: str) -> None:
    assert double(text) is None


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1.0, "1.0"), (0.5, "0.5"), (0.001, "0.001"), (1e-4, "1.0E-4"), (1.25e-5, "1.25E-5"), (0.0, "0.0"),
        (math.nan, "NaN"), (9999999.5, "9999999.5"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"),
        (-math.inf, "-Infinity"), (math.inf, "Infinity"),
    ],
)  # fmt: skip
def test_doubles_are_written_as_java_writes_them(number: float, text: str) -> None:
    assert double_text(number) == text
