"""librdkafka's properties are translated into options of the model, or rejected by name."""

from __future__ import annotations

import pytest

from kproto.errors import ConfigError
from kproto.models import librdkafka
from kproto.models.librdkafka import conf


def test_properties_become_options_of_the_model() -> None:
    config = conf.read(
        {
            "group.id": "g",
            "client.id": "c",
            "session.timeout.ms": "6000",
            "enable.auto.commit": "f",
            "enable.auto.offset.store": 0,
            "enable.partition.eof": True,
            "auto.offset.reset": "smallest",
            "partition.assignment.strategy": "range, cooperative-sticky",
        }
    ).config
    state = librdkafka.start(config)
    assert (config.group_id, config.client_id, config.assignors) == (
        "g",
        "c",
        ("range", "cooperative-sticky"),
    )
    assert (state.session_ms, state.auto_commit, state.auto_store, state.partition_eof) == (
        6_000,
        False,
        False,
        True,
    )
    assert state.reset == librdkafka.start(conf.read({"auto.offset.reset": "earliest"}).config).reset


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("a", (("a", 9092),)),
        ("a:1,b:2", (("a", 1), ("b", 2))),
        ("sasl_plaintext://a:1, b", (("a", 1), ("b", 9092))),
    ],
)
def test_brokers_without_a_port_get_9092(text: str, addresses: object) -> None:
    assert conf.read({"bootstrap.servers": text}).bootstrap == addresses
    assert conf.read({"metadata.broker.list": text}).bootstrap == addresses


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("group_id", "g"),
        ("bootstrap.servers", ""),
        ("bootstrap.servers", "a:b"),
        ("bootstrap.servers", 9092),
        ("session.timeout.ms", 0),
        ("session.timeout.ms", "6s"),
        ("session.timeout.ms", True),
        ("enable.auto.commit", "yes"),
        ("auto.offset.reset", "newest"),
        ("partition.assignment.strategy", "range,sticky"),
        ("security.protocol", "sasl"),
        ("sasl.username", None),
        ("debug", "all,everything"),
    ],
)
def test_errors_name_the_property_that_is_not_allowed(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        conf.read({name: value})


@pytest.mark.parametrize("value", [0, -1])
def test_the_metadata_refresh_can_be_switched_off(value: int) -> None:
    assert conf.read({"topic.metadata.refresh.interval.ms": value}).config.metadata_ms == conf.NEVER_MS


def test_as_options_returns_what_differs_from_the_defaults() -> None:
    checked = conf.read({"group.id": "g", "client.id": "c", "heartbeat.interval.ms": 100})
    assert conf.as_options(checked) == {"client_id": "c", "group_id": "g", "heartbeat_ms": 100}


def test_an_invalid_subscription_is_an_error_and_changes_nothing() -> None:
    from kproto.models import contract as c

    state = librdkafka.start(conf.read({"group.id": "g", "client.id": "c"}).config)
    for topics in (("",), ("t", "t")):
        actions = librdkafka.step(state, c.SubscribeCalled(topics), 0)
        assert [line.name for line in actions if isinstance(line, c.Notify)] == ["_INVALID_ARG"]
        assert state.subscription is None
