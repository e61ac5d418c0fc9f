"""Types of config values (Kafka's ConfigDef): which strings are valid, and how values are shown.

Values are parsed as in Kafka. White space around a value is ignored. A number must fit its type. Only `true`
and `false` are case-insensitive.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Protocol

from ..java_numbers import double, double_text, trimmed, whole_number

_COMMA: Final = re.compile(r"\s*,\s*")
# One item of a throttled.replicas config. As in Kafka, an item may be empty.
_REPLICA: Final = re.compile(r"([0-9]+:[0-9]+)?")


class ConfigType(IntEnum):
    """The values of DescribeConfigsResponse.ConfigType that this broker uses."""

    UNKNOWN = 0  # Configs of Kafka's authorizer. DescribeConfigs does not show their values.
    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class ValueType(Protocol):
    """The type of a config's value. The methods expect `text` without surrounding whitespace."""

    @property
    def config_type(self) -> ConfigType:
        """The type of the config, as DescribeConfigs reports it."""
        ...

    def fault(self, text: str) -> str | None:
        """Return a description of the allowed values, such as "at least 1"; None if `text` is valid."""

    def value(self, text: str) -> bool | int | float | str:
        """Return the value that `text` represents. `text` must be valid."""
        ...

    def shown(self, text: str) -> str:
        """Return `text` as DescribeConfigs shows it (ConfigDef.convertToString)."""
        ...


@dataclass(frozen=True, slots=True)
class Boolean:
    """The type of booleans. If `refused` is set, the value true is rejected with this message."""

    refused: str | None = None
    config_type: ConfigType = ConfigType.BOOLEAN

    def fault(self, text: str) -> str | None:
        """Return None for "false", and `self.refused` for "true". Case is ignored.

        For any other text, return the allowed values.
        """
        if text.lower() not in ("true", "false"):
            return "one of true, false"
        return self.refused if self.value(text) else None

    def value(self, text: str) -> bool:
        """Return the boolean."""
        return text.lower() == "true"

    def shown(self, text: str) -> str:
        """Return the value in lower case, as Kafka shows it."""
        return text.lower()


@dataclass(frozen=True, slots=True)
class Integer:
    """The type of 32-bit or 64-bit integers, with bounds and excluded values."""

    bits: int = 64
    minimum: int | None = None
    maximum: int | None = None
    # Values between `minimum` and `maximum` that are not allowed. For an excluded value, `fault` returns
    # `allowed`, which describes the allowed values.
    excluded: tuple[int, ...] = ()
    allowed: str = ""

    @property
    def config_type(self) -> ConfigType:
        """INT or LONG."""
        return ConfigType.INT if self.bits == 32 else ConfigType.LONG

    def fault(self, text: str) -> str | None:
        """Return a description of the allowed values; None if `text` is valid."""
        number = whole_number(text, self.bits)
        if number is None:
            return f"a {self.bits}-bit integer"
        if self.minimum is not None and number < self.minimum:
            return f"at least {self.minimum}"
        if self.maximum is not None and number > self.maximum:
            return f"at most {self.maximum}"
        return self.allowed if number in self.excluded else None

    def value(self, text: str) -> int:
        """Return the number."""
        return int(text)

    def shown(self, text: str) -> str:
        """Return the number without a plus sign or leading zeros."""
        return str(self.value(text))


@dataclass(frozen=True, slots=True)
class Ratio:
    """The type of numbers from 0 to 1."""

    config_type: ConfigType = ConfigType.DOUBLE

    def fault(self, text: str) -> str | None:
        """Return a description of the allowed values; None if `text` is valid. As in Kafka, NaN is valid."""
        number = double(text)
        if number is None or number < 0 or number > 1:
            return "a number from 0 to 1"
        return None

    def value(self, text: str) -> float:
        """Return the number."""
        return double(text) or 0.0

    def shown(self, text: str) -> str:
        """Return the number as Java's Double.toString writes it."""
        number = double(text)
        return text if number is None else double_text(number)


@dataclass(frozen=True, slots=True)
class Text:
    """The type of configs whose values are the strings that `check` accepts.

    `check` returns None for a valid string, and otherwise a description of the allowed values.
    """

    check: Callable[[str], str | None] = lambda _: None
    config_type: ConfigType = ConfigType.STRING

    def fault(self, text: str) -> str | None:
        """Return None if `text` is valid, and otherwise the allowed values."""
        return self.check(text)

    def value(self, text: str) -> str:
        """Return the text."""
        return text

    def shown(self, text: str) -> str:
        """Return the text."""
        return text


def choice(*words: str) -> Text:
    """Return the type of a config whose value must be one of `words`."""

    def check(text: str) -> str | None:
        return None if text in words else f"one of {', '.join(words)}"

    return Text(check)


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """The type of cleanup.policy: a list that may contain compact and delete, or be empty."""

    config_type: ConfigType = ConfigType.LIST

    def fault(self, text: str) -> str | None:
        """Return None if `text` is valid, and otherwise the allowed values."""
        policies = _COMMA.split(text) if text else []
        return None if {*policies} <= {"compact", "delete"} else "compact, delete, or both"

    def value(self, text: str) -> str:
        """Return the cleanup policies without duplicates, separated by commas."""
        return ",".join(dict.fromkeys(_COMMA.split(text)))

    def shown(self, text: str) -> str:
        """Return the cleanup policies without duplicates, separated by commas."""
        return self.value(text)


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """The type of throttled.replicas configs: a list of PARTITION:BROKER items, or `*` for all replicas."""

    config_type: ConfigType = ConfigType.LIST

    def fault(self, text: str) -> str | None:
        """Return None if `text` is valid, and otherwise the allowed values."""
        items = _COMMA.split(text)
        is_all_replicas = "".join(items) == "*"
        is_valid = is_all_replicas or all(_REPLICA.fullmatch(item) for item in items)
        return None if is_valid else "* or PARTITION:BROKER, with commas in between"

    def value(self, text: str) -> str:
        """Return the list without white space around its items."""
        return ",".join(_COMMA.split(text))

    def shown(self, text: str) -> str:
        """Return the list without white space around its items."""
        return self.value(text)


def invalid_value(name: str, value: str, value_type: ValueType) -> str | None:
    """Return Kafka's message for an invalid value; None if the value is valid."""
    fault = value_type.fault(trimmed(value))
    return None if fault is None else f"Invalid value {value:.60} for configuration {name}: {fault}"
