"""DescribeCluster returns the broker, its cluster id and the controller."""

from __future__ import annotations

import pytest

from kproto.messages.describe_cluster import DescribeClusterRequest
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


def test_the_cluster_is_described(client: Client) -> None:
    response = client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
    assert (response.error_code, response.controller_id, response.cluster_id) == (
        0,
        1,
        "kproto-embedded-broker",
    )
    assert [(node.broker_id, node.port) for node in response.brokers] == [(1, 9092)]
