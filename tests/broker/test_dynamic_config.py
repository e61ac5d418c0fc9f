"""Dynamic broker configs (KIP-226) take effect immediately, and survive a restart."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.apis.table import served_versions
from kproto.broker.broker import Broker
from kproto.broker.call import Node
from kproto.broker.cluster import BrokerCluster
from kproto.broker.dynamic_config import DYNAMIC
from kproto.broker.settings import Settings
from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.error_codes import ErrorCode as E
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.broker.stage import Client, Stage, batch_of

SET, DELETE, APPEND, SUBTRACT = range(4)


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, message_max_bytes=5000)


def alter_config(
    client: Client, name: str, value: str | None, *, broker: str = "1", how: int = SET, only: bool = False
) -> tuple[int, str]:
    change = AlterableConfig(name=name, config_operation=how, value=value)
    resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=[change])
    [result] = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=only)).responses
    return result.error_code, result.error_message or ""


def describe_configs(client: Client, broker: str = "1", kind: int = 4) -> dict[str, Any]:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=broker, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    return {config.name: config for config in client.ask(request).results[0].configs}


def test_a_dynamic_config_takes_effect_and_can_be_removed(client: Client) -> None:
    large = batch_of(b"x" * 6000)
    assert client.produce(large).error_code == E.MESSAGE_TOO_LARGE
    assert alter_config(client, "message.max.bytes", " 9000 ")[0] == 0
    assert client.produce(large).error_code == 0
    assert alter_config(client, "message.max.bytes", None, how=DELETE)[0] == 0
    assert client.produce(large).error_code == E.MESSAGE_TOO_LARGE


def test_the_timestamp_type_takes_effect_immediately(stage: Stage, client: Client) -> None:
    alter_config(client, "log.message.timestamp.type", "LogAppendTime", broker="")
    assert client.produce(batch_of(b"x")).log_append_time_ms == stage.now


def test_log_segment_bytes_takes_effect_immediately(stage: Stage, client: Client) -> None:
    alter_config(client, "log.segment.bytes", "2000000", broker="")
    assert describe_configs(client, "t", kind=2)["segment.bytes"].value == "2000000"
    assert stage.topic("t").limits(stage.broker.settings).size == 2_000_000


def test_a_value_for_one_broker_has_precedence(client: Client) -> None:
    values: list[tuple[str, str]] = [("", "7000"), ("1", "8000")]
    for broker, value in values:
        alter_config(client, "message.max.bytes", value, broker=broker)
    config = describe_configs(client)["message.max.bytes"]
    assert (config.value, config.config_source, config.read_only) == ("8000", 2, False)
    assert [(synonym.source, synonym.value) for synonym in config.synonyms] == [
        (2, "8000"), (3, "7000"), (4, "5000"), (5, "1048588"),
    ]  # fmt: skip
    topic = describe_configs(client, "t", kind=2)["max.message.bytes"]
    assert (topic.value, topic.config_source) == ("8000", 2)
    assert topic.synonyms[0].name == "message.max.bytes"


def test_configs_for_all_brokers_are_described_if_they_are_set(client: Client) -> None:
    assert describe_configs(client, "") == {}
    alter_config(client, "message.max.bytes", "7000", broker="")
    (config,) = describe_configs(client, "").values()
    assert (config.value, config.config_source, [synonym.source for synonym in config.synonyms]) == (
        "7000",
        3,
        [3],
    )


def test_static_configs_are_read_only(client: Client) -> None:
    for name, config in describe_configs(client).items():
        # DescribeConfigs returns no value for a secret.
        code, why = alter_config(client, name, config.value or "", only=True)
        assert (code, config.read_only) == ((0, False) if name in DYNAMIC else (E.INVALID_REQUEST, True))
        assert code == 0 or why.startswith(f"Cannot update these configs dynamically: {name};")


@pytest.mark.parametrize(
    ("name", "value", "broker", "how", "code"),
    [
        ("message.max.bytes", "-1", "1", SET, E.INVALID_REQUEST),
        ("message.max.bytes", "many", "", SET, E.INVALID_REQUEST),
        ("log.message.timestamp.type", "Never", "1", SET, E.INVALID_REQUEST),
        ("producer.id.expiration.ms", "0", "1", SET, E.INVALID_REQUEST),
        ("message.max.bytes", "1", "1", APPEND, E.INVALID_CONFIG),
        ("message.max.bytes", "1", "2", SET, E.INVALID_REQUEST),
        ("message.max.bytes", "1", "x", SET, E.INVALID_REQUEST),
        ("log.retention.ms", "0", "1", SET, E.INVALID_REQUEST),
        ("log.cleanup.policy", "shred", "1", SET, E.INVALID_REQUEST),
        ("super.users", "User:a", "1", APPEND, E.INVALID_CONFIG),
        ("log.roll.ms", "1000", "1", SET, E.INVALID_REQUEST),
        ("no.such", "1", "", SET, E.INVALID_REQUEST),
        ("num.partitions", None, "1", DELETE, E.NONE),
    ],
)
def test_an_invalid_dynamic_change_is_refused(
    client: Client, name: str, value: str | None, broker: str, how: int, code: E
) -> None:
    before = describe_configs(client)
    assert alter_config(client, name, value, broker=broker, how=how)[0] == code
    assert describe_configs(client) == before


def test_append_and_subtract_change_a_list_of_a_broker(client: Client) -> None:
    """APPEND and SUBTRACT on a broker change the value of this broker only. If the broker has no value of
    its own, the operations start from Kafka's default, even if a cluster-wide value exists.
    """
    for broker, how, item, expected in (
        ("1", APPEND, "compact,delete", "delete,compact"),
        ("1", SUBTRACT, "delete", "compact"),
        ("1", DELETE, None, "delete"),
        ("", SET, "compact", "compact"),
        ("1", APPEND, "delete", "delete"),
    ):
        assert alter_config(client, "log.cleanup.policy", item, broker=broker, how=how)[0] == 0
        assert describe_configs(client)["log.cleanup.policy"].value == expected
    assert alter_config(client, "log.cleanup.policy", "shred", how=APPEND)[0] == E.INVALID_REQUEST


def test_validate_only_changes_no_broker_config(client: Client) -> None:
    assert alter_config(client, "message.max.bytes", "7000", only=True)[0] == 0
    assert describe_configs(client)["message.max.bytes"].value == "5000"


def test_a_restarted_broker_uses_the_dynamic_configs() -> None:
    settings, node = Settings.from_properties({}), Node(1, "one", 9092)
    cluster = BrokerCluster(settings, [node])
    cluster.dynamic.set("1", {"message.max.bytes": "7000"})
    assert Broker(settings, node, served_versions(), cluster=cluster).settings.message_max_bytes == 7000


def test_producer_expiration_is_dynamic(stage: Stage, client: Client) -> None:
    client.produce(batch_of(b"x", producer_id=7, producer_epoch=0, base_sequence=0))
    alter_config(client, "producer.id.expiration.ms", "1")
    stage.wait(2 * 600_000)
    client.produce(batch_of(b"y"))
    assert stage.topic("t").partitions[0].producers.active() == []


def test_the_documentation_says_whether_a_config_has_an_effect(client: Client) -> None:
    """DescribeConfigs says "has no effect" in the documentation of a config that the broker ignores."""
    for kind, name in ((2, "t"), (4, "1")):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        request = DescribeConfigsRequest(resources=[resource], include_documentation=True)
        documentation = {
            config.name: config.documentation for config in client.ask(request).results[0].configs
        }
        idle = {name for name, words in documentation.items() if "has no effect" in words}
        assert idle == (
            {name for name, config in TOPIC_CONFIGS.items() if not config.acts} if kind == 2 else set()
        )
        without = client.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs
        assert {entry.documentation for entry in without} == {None}
