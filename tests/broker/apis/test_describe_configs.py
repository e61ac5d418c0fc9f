"""DescribeConfigs returns the requested configs of topics, brokers and client metrics resources."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.config_values import ConfigType, Text
from kproto.broker.settings import SETTINGS
from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.error_codes import ErrorCode
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


def configs_of(client: Client, kind: int, name: str, keys: list[str] | None = None) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    [result] = client.ask(DescribeConfigsRequest(resources=[resource])).results
    return result


def test_a_topics_configs_are_described(client: Client) -> None:
    result = configs_of(client, 2, "t")
    assert result.error_code == 0
    assert {config.name: config.value for config in result.configs} == {
        name: config.default for name, config in TOPIC_CONFIGS.items()
    }


def test_only_the_requested_configs_are_described(client: Client) -> None:
    assert [config.name for config in configs_of(client, 2, "t", ["retention.ms", "none"]).configs] == [
        "retention.ms"
    ]


def test_a_topic_inherits_the_configs_of_the_broker() -> None:
    client = Stage({"t": 1}, message_max_bytes=7000).client()
    [config] = configs_of(client, 2, "t", ["max.message.bytes"]).configs
    assert (config.value, config.config_source) == ("7000", 4)


@pytest.mark.parametrize(
    ("name", "value", "synonyms"),
    [
        ("max.message.bytes", None, [("message.max.bytes", "1048588", 5)]),
        ("min.cleanable.dirty.ratio", None, [("log.cleaner.min.cleanable.ratio", "0.5", 5)]),
        ("flush.ms", None, []),
        ("retention.ms", None, []),
        ("retention.ms", "7", [("retention.ms", "7", 1)]),
        (
            "preallocate",
            "true",
            [("preallocate", "true", 1), ("log.preallocate", "false", 5)],
        ),
    ],
)
def test_the_default_of_a_topic_config_has_the_name_of_the_broker_config(
    stage: Stage, client: Client, name: str, value: str | None, synonyms: list[tuple[str, str, int]]
) -> None:
    """Kafka's ConfigHelper names the broker config that provides the default, and omits null defaults."""
    topic = stage.broker.topics.named("t")
    assert topic is not None
    topic.configs = {} if value is None else {name: value}
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [config] = client.ask(request).results[0].configs
    assert [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms] == synonyms
    assert config.value == (value or TOPIC_CONFIGS[name].default)
    assert config.config_source == (5 if value is None else 1)


def test_the_brokers_settings_are_described(client: Client) -> None:
    described = {config.name: config.value for config in configs_of(client, 4, "1").configs}
    assert described["auto.create.topics.enable"] == "true"
    assert described["group.min.session.timeout.ms"] == "6000"


def test_a_missing_resource_is_refused(client: Client) -> None:
    assert configs_of(client, 2, "none").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert configs_of(client, 4, "7").error_code == ErrorCode.INVALID_REQUEST
    assert configs_of(client, 99, "").error_code == ErrorCode.INVALID_REQUEST


def test_an_empty_list_requests_all_configs(client: Client) -> None:
    resource = DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=[])
    response = client.ask(DescribeConfigsRequest(resources=[resource]))
    assert len(response.results[0].configs) == len(TOPIC_CONFIGS)


def test_client_metrics_that_do_not_exist_have_the_defaults(client: Client) -> None:
    result = configs_of(client, 16, "one")
    described = [(config.name, config.value, config.config_source) for config in result.configs]
    assert (result.error_code, described) == (
        0,
        [("interval.ms", "300000", 5), ("match", "", 5), ("metrics", "", 5)],
    )


def test_client_metrics_are_described(stage: Stage, client: Client) -> None:
    stage.broker.cluster.client_metrics.set("one", {"metrics": " a , b "})
    [metrics] = configs_of(client, 16, "one", ["metrics"]).configs
    assert (metrics.value, metrics.config_source, metrics.config_type) == ("a,b", 7, 7)


def test_client_metrics_need_a_name(client: Client) -> None:
    result = configs_of(client, 16, "")
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert result.error_message == "Client metrics subscription name must not be empty"


@pytest.mark.parametrize(("key", "sources"), [("", []), ("s3cr3t", [4])])
def test_the_value_of_a_secret_is_not_described(key: str, sources: list[int]) -> None:
    stage = Stage(delegation_token_secret_key=key)
    name = "delegation.token.secret.key"
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [config] = stage.client().ask(request).results[0].configs
    assert (config.name, config.value, config.is_sensitive, config.config_type) == (name, None, True, 9)
    assert [(synonym.source, synonym.value) for synonym in config.synonyms] == [
        (source, None) for source in sources
    ]
    assert "s3cr3t" not in repr(stage.broker.settings)


def test_the_authorizers_configs_are_described_without_values_if_they_are_set() -> None:
    names = ["super.users", "allow.everyone.if.no.acl.found"]
    assert configs_of(Stage().client(), 4, "1", names).configs == []
    stage = Stage(super_users="User:alice")
    resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=names)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [config] = stage.client().ask(request).results[0].configs
    assert (config.name, config.value, config.is_sensitive, config.config_type) == (
        "super.users",
        None,
        True,
        ConfigType.UNKNOWN,
    )
    assert [(synonym.value, synonym.source) for synonym in config.synonyms] == [(None, 4)]


def test_broker_configs_have_the_types_of_their_rows(client: Client) -> None:
    """A config that `SETTINGS` contains has the type of its row. The other configs belong to the coordinators
    and have an integer type.

    tests/conformance/test_dynamic_configs_like_kafka.py compares the types with a real Kafka's types.
    """
    described = {config.name: ConfigType(config.config_type) for config in configs_of(client, 4, "1").configs}
    rows = {name: SETTINGS[name].type.config_type for name in described.keys() & SETTINGS.keys()}
    coordinators = dict.fromkeys(described.keys() - SETTINGS.keys(), ConfigType.INT)
    coordinators["offsets.retention.check.interval.ms"] = ConfigType.LONG
    assert described == rows | coordinators
    assert described["num.partitions"] is described["log.segment.bytes"] is ConfigType.INT
    assert described["sasl.enabled.mechanisms"] is ConfigType.LIST


def test_configs_without_a_default_have_only_the_values_that_are_set() -> None:
    """As in Kafka, broker.rack is null unless it is set, and node.id is always set."""

    def describe(stage: Stage, name: str) -> tuple[Any, ...]:
        resource = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=[name])
        request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
        [config] = stage.client().ask(request).results[0].configs
        synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in config.synonyms]
        return config.value, config.config_source, synonyms

    static, default = 4, 5
    assert describe(Stage(), "broker.rack") == (None, default, [])
    assert describe(Stage(broker_rack="r1"), "broker.rack") == ("r1", static, [("broker.rack", "r1", static)])
    assert describe(Stage(), "node.id") == ("1", static, [("node.id", "1", static)])
    assert describe(Stage(), "sasl.oauthbearer.jwks.endpoint.url") == (None, default, [])


@pytest.mark.parametrize("broker", ["1", ""])
@pytest.mark.parametrize("name", ["broker.rack", "log.retention.bytes", "log.cleanup.policy"])
def test_a_config_whose_row_has_the_type_password_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, name: str, broker: str
) -> None:
    stage = Stage(broker_rack="s3cr3t")
    stage.broker.cluster.dynamic.set("", {name: "s3cr3t"})
    monkeypatch.setitem(SETTINGS, name, SETTINGS[name]._replace(type=Text(config_type=ConfigType.PASSWORD)))
    resource = DescribeConfigsResource(resource_type=4, resource_name=broker, configuration_keys=[name])
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    [config] = stage.client().ask(request).results[0].configs
    assert (config.value, config.is_sensitive, config.config_type) == (None, True, ConfigType.PASSWORD)
    assert config.synonyms
    assert {synonym.value for synonym in config.synonyms} == {None}
