"""ListConfigResources returns the names of the resources of the requested types."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.list_config_resources import ListConfigResourcesRequest
from tests.broker.apis.stage import request_metrics
from tests.broker.stage import Client, Stage

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def stage() -> Stage:
    stage = Stage({"t": 1})
    request_metrics(stage, "one", {"metrics": "*"})
    request_metrics(stage, "gone", {"metrics": "*"})
    request_metrics(stage, "gone", {})
    return stage


def list_resources(client: Client, *types: int, version: int = 1) -> list[tuple[str, int]]:
    response = client.ask(ListConfigResourcesRequest(resource_types=list(types)), version)
    assert response.error_code == 0
    return [(resource.resource_name, resource.resource_type) for resource in response.config_resources]


def test_all_types_are_listed_by_default(client: Client) -> None:
    assert list_resources(client) == [("one", CLIENT_METRICS), ("1", BROKER), ("t", TOPIC)]


@pytest.mark.parametrize(
    ("types", "names"),
    [((CLIENT_METRICS,), ["one"]), ((TOPIC, BROKER), ["1", "t"]), ((BROKER_LOGGER, GROUP), [])],
)
def test_only_the_requested_types_are_listed(
    client: Client, types: tuple[int, ...], names: list[str]
) -> None:
    assert [name for name, _ in list_resources(client, *types)] == names


def test_version_0_lists_client_metrics(client: Client) -> None:
    assert list_resources(client, version=0) == [("one", CLIENT_METRICS)]


@pytest.mark.parametrize("resource_type", [0, 1, 99])
def test_an_unknown_type_is_unsupported(client: Client, resource_type: int) -> None:
    request = ListConfigResourcesRequest(resource_types=[CLIENT_METRICS, resource_type])
    assert client.ask(request).error_code == ErrorCode.UNSUPPORTED_VERSION
