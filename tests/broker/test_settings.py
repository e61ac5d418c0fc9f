"""The table of broker configs: their names, and the values that are accepted, rejected and parsed."""

from __future__ import annotations

import pytest

from kproto.broker.settings import Settings
from kproto.errors import ConfigError


def test_settings_have_kafkas_names() -> None:
    settings = Settings.from_properties(
        {"num.partitions": "4", "auto.create.topics.enable": "False", "group.initial.rebalance.delay.ms": "0"}
    )
    assert (settings.num_partitions, settings.auto_create_topics_enable) == (4, False)
    assert settings.group.group_initial_rebalance_delay_ms == 0


def test_an_unknown_name_is_refused_with_the_known_names() -> None:
    with pytest.raises(ConfigError, match=r"auto\.create\.topics\.enable.*group\.max\.size"):
        Settings.from_properties({"log.roll.ms": "1"})


@pytest.mark.parametrize(
    ("properties", "ms"),
    [
        ({}, None),
        ({"log.retention.hours": "168"}, 604_800_000),
        ({"log.retention.hours": "1", "log.retention.minutes": "2"}, 120_000),
        (
            {"log.retention.hours": "1", "log.retention.minutes": "2", "log.retention.ms": "3000000000"},
            3 * 10**9,
        ),
        ({"log.retention.hours": "-5"}, -1),
        ({"log.retention.minutes": "0", "log.retention.ms": "-1"}, -1),
    ],
)
def test_the_finest_retention_unit_has_precedence(properties: dict[str, str], ms: int | None) -> None:
    settings = Settings.from_properties(properties)
    assert settings.retention_ms == ms
    assert Settings.from_properties(settings.properties()) == settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num.partitions", "many"),
        ("num.partitions", "0"),
        ("num.partitions", "1_0"),
        ("num.partitions", "\u00a01"),
        ("num.partitions", "2147483648"),
        ("group.max.size", "1_0"),
        ("transaction.max.timeout.ms", "1_0"),
        ("fetch.max.bytes", "1023"),
        ("socket.request.max.bytes", "0"),
        ("auto.create.topics.enable", "yes"),
        ("log.message.timestamp.type", "Never"),
        ("log.cleanup.policy", "shred"),
        ("log.retention.bytes", "much"),
        ("log.retention.bytes", "9223372036854775808"),
        ("log.retention.hours", "2147483648"),
        ("log.retention.hours", "0"),
        ("log.retention.ms", "0"),
        ("group.max.size", "0"),
        ("group.max.size", "2147483648"),
        ("offsets.retention.check.interval.ms", "9223372036854775808"),
        ("ssl.client.auth", "always"),
        ("super.users", "alice"),
        ("super.users", "User:alice;bob"),
        ("super.users", "User:"),
        ("authorizer.class.name", "kafka.security.authorizer.AclAuthorizer"),
    ],
)
def test_an_invalid_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name):
        Settings.from_properties({name: value})


@pytest.mark.parametrize(
    "name",
    [
        "connections.max.reauth.ms",
        "log.cleaner.backoff.ms",
        "log.initial.task.delay.ms",
        "log.retention.check.interval.ms",
        "offsets.retention.check.interval.ms",
    ],
)
def test_times_that_are_longs_in_kafka_may_exceed_32_bits(name: str) -> None:
    settings = Settings.from_properties({name: "9223372036854775807"})
    assert settings.properties()[name] == "9223372036854775807"


def test_super_users_are_parsed_as_in_kafka() -> None:
    properties = {
        "super.users": ";  User:bob  ; User:CN=a,O=b:c;",
        "authorizer.class.name": "StandardAuthorizer",
    }
    settings = Settings.from_properties(properties)
    assert (settings.super_users, settings.authorizer_class_name) == tuple(properties.values())


def test_settings_survive_a_round_trip() -> None:
    settings = Settings.from_properties({"broker.rack": "r1", "group.max.size": "9"})
    assert Settings.from_properties(settings.properties()) == settings
