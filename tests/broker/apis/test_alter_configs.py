"""AlterConfigs: a request replaces all configs of a resource."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode as E
from kproto.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.broker.stage import Client, Stage, batch_of

TOPIC, BROKER = 2, 4


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 1}, message_max_bytes=5000)


def replace_configs(
    client: Client,
    configs: dict[str, str | None],
    kind: int = TOPIC,
    name: str = "t",
    *,
    only: bool = False,
    version: int = 2,
) -> tuple[int, str | None]:
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[AlterableConfig(name=config, value=value) for config, value in configs.items()],
    )
    request = AlterConfigsRequest(resources=[resource], validate_only=only)
    [result] = client.ask(request, version).responses
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result.error_code, result.error_message


def own_configs(client: Client, kind: int = TOPIC, name: str = "t") -> dict[str, str | None]:
    """Return the configs that are set on a topic or on a broker."""
    source = {TOPIC: 1, BROKER: 2}[kind]
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
    configs = client.ask(DescribeConfigsRequest(resources=[resource])).results[0].configs
    return {config.name: config.value for config in configs if config.config_source == source}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_topic_has_exactly_the_configs_of_the_request(client: Client, version: int) -> None:
    assert replace_configs(client, {"retention.ms": "1000", "retention.bytes": "5"}, version=version) == (
        0,
        None,
    )
    assert own_configs(client) == {"retention.ms": "1000", "retention.bytes": "5"}
    assert replace_configs(client, {"retention.bytes": "7"}, version=version) == (0, None)
    assert own_configs(client) == {"retention.bytes": "7"}
    assert replace_configs(client, {}, version=version) == (0, None)
    assert own_configs(client) == {}


def test_validate_only_changes_nothing(client: Client) -> None:
    assert replace_configs(client, {"retention.ms": "1000"})[0] == 0
    assert replace_configs(client, {"retention.bytes": "7"}, only=True) == (0, None)
    assert own_configs(client) == {"retention.ms": "1000"}


def test_a_refused_request_removes_no_config(client: Client) -> None:
    assert replace_configs(client, {"retention.ms": "1000"})[0] == 0
    assert replace_configs(client, {"retention.bytes": "many"})[0] == E.INVALID_CONFIG
    assert replace_configs(client, {"retention.bytes": None})[0] == E.INVALID_REQUEST
    assert own_configs(client) == {"retention.ms": "1000"}


def test_a_duplicate_resource_is_refused_twice(client: Client) -> None:
    twice = [AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[]) for _ in range(2)]
    answer = client.ask(AlterConfigsRequest(resources=twice, validate_only=False))
    assert [response.error_code for response in answer.responses] == [E.INVALID_REQUEST] * 2


def test_a_broker_has_exactly_the_dynamic_configs_of_the_request(client: Client) -> None:
    large = batch_of(b"x" * 6000)
    assert (
        replace_configs(client, {"message.max.bytes": "9000", "log.retention.bytes": "5"}, BROKER, "1")[0]
        == 0
    )
    assert client.produce(large).error_code == 0
    assert replace_configs(client, {"log.retention.bytes": "5"}, BROKER, "1")[0] == 0
    assert own_configs(client, BROKER, "1") == {"log.retention.bytes": "5"}
    assert client.produce(large).error_code == E.MESSAGE_TOO_LARGE
