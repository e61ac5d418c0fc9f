"""Types of config values: the accepted values, and their format in DescribeConfigs."""

from __future__ import annotations

import pytest

from kproto.broker.config_values import (
    Boolean,
    CleanupPolicy,
    ConfigType,
    Integer,
    Ratio,
    Text,
    ThrottledReplicas,
    ValueType,
    choice,
    invalid_value,
)

LEVEL = Integer(32, -1, 9, (0,), "-1, or from 1 to 9")


@pytest.mark.parametrize(
    ("value_type", "text", "fault"),
    [
        (Boolean(), "TRUE", None),
        (Boolean(), "yes", "one of true, false"),
        (Boolean(refused="false: not here"), "true", "false: not here"),
        (Integer(32), "2147483648", "a 32-bit integer"),
        (Integer(64), "2147483648", None),
        (LEVEL, "-2", "at least -1"),
        (LEVEL, "10", "at most 9"),
        (LEVEL, "0", "-1, or from 1 to 9"),
        (Ratio(), "1.5", "a number from 0 to 1"),
        (Ratio(), "NaN", None),
        (Text(), "anything", None),
        (choice("a", "b"), "A", "one of a, b"),
        (CleanupPolicy(), "", None),
        (CleanupPolicy(), "compact,shred", "compact, delete, or both"),
        (ThrottledReplicas(), "*", None),
        (ThrottledReplicas(), "1", "* or PARTITION:BROKER, with commas in between"),
    ],
)
def test_a_fault_says_what_is_allowed(value_type: ValueType, text: str, fault: str | None) -> None:
    assert value_type.fault(text) == fault


@pytest.mark.parametrize(
    ("value_type", "text", "shown"),
    [
        (Boolean(), "True", "true"),
        (Integer(), "+05", "5"),
        (Ratio(), "5e-1", "0.5"),
        (CleanupPolicy(), "compact , delete,compact", "compact,delete"),
        (ThrottledReplicas(), "1:1 , 2:1", "1:1,2:1"),
        (Text(), "as it is", "as it is"),
    ],
)
def test_a_value_is_shown_as_java_writes_it(value_type: ValueType, text: str, shown: str) -> None:
    assert value_type.shown(text) == shown


def test_integers_of_32_bits_are_int_and_others_long() -> None:
    assert (Integer(32).config_type, Integer(64).config_type) == (ConfigType.INT, ConfigType.LONG)


def test_the_message_for_an_invalid_value_is_kafkas_and_short() -> None:
    message = invalid_value("retention.ms", "x" * 500, Integer())
    assert message == f"Invalid value {'x' * 60} for configuration retention.ms: a 64-bit integer"
    assert invalid_value("retention.ms", " 5 ", Integer()) is None
