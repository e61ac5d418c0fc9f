"""Configs of client metrics resources: a real Kafka and the embedded broker respond alike."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kproto.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kproto.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.stage import PATIENCE, Socket
from tests.conformance.document_programs import eventually
from tests.conformance.socket_pair import Pair

pytestmark = pytest.mark.kafka

CLIENT_METRICS = 16
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID = {
    "metrics": ("a,,b", None),
    "interval.ms": ("99", "3600001", "x", "", "99999999999"),
    "match": ("client_id", "foo=1", "client_id=[", "client_id=a=b", "client_id=", "=a", "client_id=a,,"),
    "foo": ("1",),
}
CHANGES: list[tuple[int, str, str | None]] = [
    *((SET, config, value) for config, values in INVALID.items() for value in values),
    (SET, "metrics", "*"),
    (SET, "interval.ms", " 500 "),
    (SET, "match", ""),
    (SET, "match", " client_id = b.* , client_software_name=x="),
    (APPEND, "metrics", "org.a"),
    (SUBTRACT, "metrics", "org.a"),
    (APPEND, "interval.ms", "1"),
    (APPEND, "foo", "1"),
    (SET, "metrics", "a,a"),
    (SET, "metrics", " a , b "),
    (SET, "metrics", ""),
    (DELETE, "foo", None),
    (DELETE, "match", None),
    (DELETE, "metrics", None),
    (DELETE, "interval.ms", None),
]


def alter(client: Socket, name: str, change: tuple[int, str, str | None]) -> list[Any]:
    operation, config, value = change
    resource = AlterConfigsResource(
        resource_type=CLIENT_METRICS,
        resource_name=name,
        configs=[AlterableConfig(name=config, config_operation=operation, value=value)],
    )
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
    return [(response.error_code, response.error_message) for response in answer.responses]


def describe(client: Socket, name: str) -> list[Any]:
    resource = DescribeConfigsResource(
        resource_type=CLIENT_METRICS, resource_name=name, configuration_keys=None
    )
    answer = client.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)
    return [(result.error_code, result.error_message, result.configs) for result in answer.results]


def resources(client: Socket, *types: int, version: int = 1) -> tuple[int, list[tuple[str, int]]]:
    answer = client.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    names = [(resource.resource_name, resource.resource_type) for resource in answer.config_resources]
    return answer.error_code, sorted(names)


def test_both_brokers_alter_client_metrics_alike(pair: Pair) -> None:
    for change in CHANGES:
        kafkas, ours = (alter(client, "one", change) for client in pair)
        assert kafkas == ours, change
        # Kafka may respond before its brokers receive the changes from the controller.
        assert eventually(lambda: describe(pair[0], "one") == describe(pair[1], "one"), PATIENCE), change


@pytest.mark.parametrize("name", ["", "odd name/é"])
def test_both_brokers_name_client_metrics_alike(pair: Pair, name: str) -> None:
    for change in ((SET, "metrics", "*"), (DELETE, "metrics", None)):
        kafkas, ours = (alter(client, name, change) for client in pair)
        assert kafkas == ours
    kafkas, ours = (describe(client, name) for client in pair)
    assert kafkas == ours


def test_both_brokers_list_client_metrics_alike(pair: Pair) -> None:
    for client in pair:
        alter(client, "two", (SET, "metrics", "*"))
    lists: list[tuple[tuple[int, ...], int]] = [((16,), 1), ((), 0), ((32, 16), 1), ((0,), 1), ((99, 16), 1)]
    for types, version in lists:
        assert eventually(
            lambda types=types, version=version: (  # type: ignore[misc]
                resources(pair[0], *types, version=version) == resources(pair[1], *types, version=version)
            ),
            PATIENCE,
        ), types
    for client in pair:
        alter(client, "two", (DELETE, "metrics", None))
