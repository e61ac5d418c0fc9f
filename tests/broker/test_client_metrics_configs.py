"""Configs of client metrics resources are accepted and rejected as by a real Kafka 4.4.0."""

from __future__ import annotations

import pytest

from kproto.broker.client_metrics_configs import (
    Subscription,
    check_client_metrics,
    parse_subscription,
    shown,
)
from kproto.error_codes import ErrorCode


@pytest.mark.parametrize(
    ("configs", "code", "message"),
    [
        ({"foo": "1"}, 42, "Unknown client metrics configuration: foo"),
        (
            {"interval.ms": "99"},
            42,
            "Invalid value 99 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        (
            {"interval.ms": "3600001"},
            42,
            "Invalid value 3600001 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
        ),
        ({"interval.ms": "x"}, 40, "Invalid value x for configuration interval.ms: Not a number of type INT"),
        (
            {"interval.ms": "99999999999"},
            40,
            "Invalid value 99999999999 for configuration interval.ms: Not a number of type INT",
        ),
        ({"match": "client_id"}, 40, "Illegal client matching pattern: client_id"),
        ({"match": "foo=1"}, 40, "Illegal client matching pattern: foo=1"),
        ({"match": "client_id=["}, 40, "Illegal client matching pattern: client_id=["),
        ({"match": "client_id=a=b"}, 40, "Illegal client matching pattern: client_id=a=b"),
        ({"match": "client_id="}, 40, "Illegal client matching pattern: client_id="),
        ({"match": "=a"}, 40, "Illegal client matching pattern: =a"),
        ({"match": "client_id=a,,"}, 40, "Configuration 'match' values must not be empty."),
        ({"metrics": "a,,b"}, 40, "Configuration 'metrics' values must not be empty."),
    ],
)
def test_invalid_configs_are_rejected(configs: dict[str, str], code: int, message: str) -> None:
    assert check_client_metrics("one", configs) == (ErrorCode(code), message)


def test_a_resource_needs_a_name() -> None:
    assert check_client_metrics("", {}) == (ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")


@pytest.mark.parametrize(
    ("config", "value", "described"),
    [
        ("interval.ms", " 500 ", "500"),
        ("match", "", ""),
        ("match", " client_id = b.* , client_software_name=x", "client_id = b.*,client_software_name=x"),
        ("metrics", "a,a", "a"),
        ("metrics", " a , b ", "a,b"),
        ("metrics", "*", "*"),
    ],
)
def test_valid_configs_are_described_without_white_space(config: str, value: str, described: str) -> None:
    assert check_client_metrics("one", {config: value}) is None
    assert shown(config, value) == described


def test_a_subscription_is_parsed() -> None:
    parsed = parse_subscription({"metrics": "a, b", "match": "client_id = x.* , client_software_name=y="})
    assert isinstance(parsed, Subscription)
    assert (parsed.metrics, parsed.interval_ms) == (("a", "b"), 300_000)
    patterns = {name: pattern.pattern for name, pattern in parsed.match.items()}
    assert patterns == {"client_id": "x.*", "client_software_name": "y"}
    assert parsed.matches({"client_id": "xyz", "client_software_name": "y"})
    assert not parsed.matches({"client_id": "xyz", "client_software_name": "yy"})
    assert not parsed.matches({"client_id": "xyz"})


def test_an_interval_is_parsed_without_the_characters_that_java_trims() -> None:
    """The control characters around an interval are removed, as by Java's String.trim."""
    configs = {"interval.ms": "\x01500\0"}
    assert check_client_metrics("one", configs) is None
    assert parse_subscription(configs).interval_ms == 500
