"""Configs in the admin API: describe, change and list, on the embedded broker and with prepared responses."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AlterConfigOp, AsyncAdmin, ConfigResource
from consumer.engine.admin import configs as config_plans
from consumer.engine.admin.configs import name_of
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, PartialFailure, UnknownTopic, UnsupportedVersion
from kproto.messages.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kproto.messages.list_config_resources import ConfigResource as Listed
from kproto.messages.list_config_resources import ListConfigResourcesResponse
from tests.consumer.engine.admin.stage import clock, play, view_of

TOPIC, MISSING = ConfigResource("topic", "t"), ConfigResource("topic", "missing")


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


def test_a_changed_config_has_its_value_and_its_source(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        before = admin.describe_configs([TOPIC])[TOPIC]["retention.ms"]
        admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", "1000")]})
        described = admin.describe_configs([TOPIC], names=["retention.ms"], include_synonyms=True)
        entry = described[TOPIC]["retention.ms"]
        assert before.is_default
        assert list(described[TOPIC]) == ["retention.ms"]
        assert (entry.value, entry.source, entry.type) == ("1000", "dynamic_topic_config", "long")
        assert (entry.synonyms[0].value, entry.synonyms[0].source) == ("1000", "dynamic_topic_config")
        assert not entry.is_default


def test_append_subtract_and_delete_change_single_configs(server: Server) -> None:
    with Admin(server.bootstrap) as admin:

        def value_after(*changes: AlterConfigOp) -> str | None:
            admin.incremental_alter_configs({TOPIC: changes})
            return admin.describe_configs([TOPIC])[TOPIC]["cleanup.policy"].value

        assert value_after(AlterConfigOp("cleanup.policy", "compact", "append")) == "delete,compact"
        assert value_after(AlterConfigOp("cleanup.policy", "delete", "subtract")) == "compact"
        assert value_after(AlterConfigOp("cleanup.policy", operation="delete")) == "delete"


def test_validate_only_changes_nothing(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", "1")]}, validate_only=True)
        assert admin.describe_configs([TOPIC])[TOPIC]["retention.ms"].is_default


def test_a_topic_that_does_not_exist_does_not_hide_the_configs_of_the_others(server: Server) -> None:
    with Admin(server.bootstrap) as admin, pytest.raises(PartialFailure) as caught:
        admin.describe_configs([TOPIC, MISSING])
    assert caught.value.succeeded.keys() == {TOPIC}
    assert isinstance(caught.value.failed[MISSING], UnknownTopic)
    assert "1 of 2 items: DescribeConfigs: UNKNOWN_TOPIC" in str(caught.value)


def test_an_invalid_value_fails_with_the_message_of_the_broker(server: Server) -> None:
    with Admin(server.bootstrap) as admin, pytest.raises(PartialFailure, match=r"retention\.ms"):
        admin.incremental_alter_configs({TOPIC: [AlterConfigOp("retention.ms", "soon")]})


def test_a_broker_describes_its_own_configs(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        [node] = admin.metadata().brokers
        resource = ConfigResource("broker", str(node))
        assert admin.describe_configs([resource])[resource]["node.id"].value == str(node)


def test_the_asyncio_client_describes_configs(server: Server) -> None:
    async def main() -> Any:
        async with AsyncAdmin(server.bootstrap) as admin:
            return await admin.describe_configs([TOPIC])

    assert "retention.ms" in asyncio.run(main())[TOPIC]


def test_brokers_get_the_requests_about_themselves() -> None:
    """As in KafkaAdminClient.describeConfigs, any broker may describe the cluster-wide defaults."""
    resources = [ConfigResource("broker", name) for name in ("2", "", "3")]
    plan = config_plans.describe_configs(
        view_of(1),
        [*resources, TOPIC],
        clock,
        names=None,
        include_synonyms=False,
        include_documentation=False,
    )
    assert [ask.node for ask in next(plan)] == [2, None, 3]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("resource", "words"),
    [
        (ConfigResource("broker", "x"), "the name of a broker must be its node id"),
        (ConfigResource("topics", "t"), "allowed: .*'topic'"),
    ],
)
def test_the_error_for_an_invalid_resource_says_which_value_is_allowed(
    resource: ConfigResource, words: str
) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match=words) as caught:
        admin.describe_configs([resource])
    assert repr(resource) in str(caught.value)


def test_codes_of_a_later_release_are_named_by_their_number() -> None:
    entry = DescribeConfigsResourceResult(
        name="new", value="1", read_only=False, config_source=99, is_sensitive=True, synonyms=[]
    )
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[entry]
    )
    plan = config_plans.describe_configs(
        view_of(1), [TOPIC], clock, names=None, include_synonyms=False, include_documentation=False
    )
    configs, _ = play(plan, DescribeConfigsResponse(throttle_time_ms=0, results=[result]))
    assert configs[TOPIC]["new"].source == "unknown (99)"
    assert configs[TOPIC]["new"].type == "unknown"
    assert name_of(-1, {}) == "unknown"


def test_resources_with_configs_are_listed_in_order() -> None:
    resources = [
        Listed(resource_name="t", resource_type=2),
        Listed(resource_name="m", resource_type=16),
    ]
    response = ListConfigResourcesResponse(throttle_time_ms=0, error_code=0, config_resources=resources)
    plan = config_plans.list_config_resources(view_of(1), [], clock)
    assert play(plan, response)[0] == [ConfigResource("client_metrics", "m"), TOPIC]


def test_version_0_lists_only_client_metrics() -> None:
    plan = config_plans.list_config_resources(view_of(1), ["topic"], clock)
    [ask] = next(plan)  # type: ignore[misc]
    with pytest.raises(UnsupportedVersion, match=r"Kafka 4\.1"):
        ask.request.build(0)  # type: ignore[union-attr]
    assert ask.request.build(1).resource_types == [2]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({TOPIC: [AlterConfigOp("a", None)]}, 'only "delete" takes no value'),
        ({TOPIC: [AlterConfigOp("a", "1", "delete")]}, 'only "delete" takes no value'),
        ({TOPIC: [AlterConfigOp("a", "1", "replace")]}, "allowed operations: set, delete"),
        ({ConfigResource("user", "a"): []}, "ConfigResource"),
        ({ConfigResource("broker", "one"): []}, "ConfigResource"),
        ({"t": []}, "ConfigResource"),
        ([TOPIC], "ConfigResource"),
    ],
)
def test_invalid_changes_are_rejected_before_a_request(changes: Any, words: str) -> None:
    with Admin("127.0.0.1:1") as admin, pytest.raises(ConfigError, match=words):
        admin.incremental_alter_configs(changes)
