"""The configs of client metrics resources, which determine the metrics that clients push (KIP-714).

A resource is a subscription: prefixes of metric names, a push interval, and the clients that it matches
(Kafka's ClientMetricsConfigs).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from ..error_codes import ErrorCode
from ..java_numbers import trimmed, whole_number
from ..patterns import compiled
from .config_values import ConfigType

ALL_METRICS: Final = "*"
METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

DEFAULT_INTERVAL_MS: Final = 300_000
_MIN_INTERVAL_MS: Final = 100
_MAX_INTERVAL_MS: Final = 3_600_000
_COMMA: Final = re.compile(r"\s*,\s*")

# The attributes of a client that `match` may name.
MATCHED: Final = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMetricsConfig(NamedTuple):
    """One config of a client metrics resource."""

    default: str
    type: ConfigType
    documentation: str


CLIENT_METRICS_CONFIGS: Final[Mapping[str, ClientMetricsConfig]] = {
    INTERVAL_MS: ClientMetricsConfig(
        str(DEFAULT_INTERVAL_MS), ConfigType.INT, "The interval of pushes, in milliseconds."
    ),
    MATCH: ClientMetricsConfig(
        "", ConfigType.LIST, "The clients that push: ATTRIBUTE=PATTERN items. Empty for all clients."
    ),
    METRICS: ClientMetricsConfig(
        "", ConfigType.LIST, "Prefixes of the names of metrics, or * for all. Empty for none."
    ),
}


class Subscription(NamedTuple):
    """The parsed configs of a client metrics resource (Kafka's SubscriptionInfo)."""

    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def matches(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the attributes of a client match all patterns."""
        return all(
            name in attributes and pattern.fullmatch(attributes[name]) is not None
            for name, pattern in self.match.items()
        )


def shown(name: str, value: str) -> str:
    """Return a value as DescribeConfigs shows it: without whitespace around numbers and list items."""
    is_list = CLIENT_METRICS_CONFIGS[name].type is ConfigType.LIST
    return ",".join(_split_items(value)) if is_list else trimmed(value)


def check_client_metrics(name: str, configs: Mapping[str, str]) -> tuple[ErrorCode, str] | None:
    """Return the error for an invalid resource, with Kafka's message; None if the resource is valid.

    The checks run in the order of ClientMetricsConfigs.validate.
    """
    if not name:
        return ErrorCode.INVALID_REQUEST, "Subscription name can't be empty"
    for config in configs:
        if config not in CLIENT_METRICS_CONFIGS:
            return ErrorCode.INVALID_REQUEST, f"Unknown client metrics configuration: {config}"
    interval = configs.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS))
    interval_ms = whole_number(trimmed(interval))
    if interval_ms is None:
        message = f"Invalid value {interval:.60} for configuration {INTERVAL_MS}: Not a number of type INT"
        return ErrorCode.INVALID_CONFIG, message
    for config in (MATCH, METRICS):
        if "" in _split_items(configs.get(config, "")):
            return ErrorCode.INVALID_CONFIG, f"Configuration '{config}' values must not be empty."
    if not _MIN_INTERVAL_MS <= interval_ms <= _MAX_INTERVAL_MS:
        message = (
            f"Invalid value {interval_ms} for {INTERVAL_MS}, "
            f"interval must be between {_MIN_INTERVAL_MS} and {_MAX_INTERVAL_MS} (1 hour)"
        )
        return ErrorCode.INVALID_REQUEST, message
    for item in _split_items(configs.get(MATCH, "")):
        if _parse_match_item(item) is None:
            return ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {item:.60}"
    return None


def parse_subscription(configs: Mapping[str, str]) -> Subscription:
    """Return the parsed configs of a resource. `check_client_metrics` must have accepted them before."""
    match_items = (_parse_match_item(item) for item in _split_items(configs.get(MATCH, "")))
    return Subscription(
        metrics=tuple(_split_items(configs.get(METRICS, ""))),
        interval_ms=int(trimmed(configs.get(INTERVAL_MS, str(DEFAULT_INTERVAL_MS)))),
        match=dict(item for item in match_items if item is not None),
    )


def _split_items(value: str) -> list[str]:
    """Return the comma-separated items of `value` without repetitions; an empty value has no items."""
    text = trimmed(value)
    return list(dict.fromkeys(_COMMA.split(text))) if text else []


def _parse_match_item(item: str) -> tuple[str, re.Pattern[str]] | None:
    """Return the attribute and the pattern of ATTRIBUTE=PATTERN, or None if the item is invalid."""
    # Trailing "=" characters are removed, because Java's String.split drops trailing empty strings.
    parts = [trimmed(part) for part in item.rstrip("=").split("=")]
    if len(parts) != 2 or parts[0] not in MATCHED:
        return None
    attribute, pattern = parts
    try:
        return attribute, compiled(pattern)
    except re.error:
        return None
