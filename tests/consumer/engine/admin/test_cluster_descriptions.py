"""The admin API describes a cluster, even if its brokers do not support DescribeCluster."""

from __future__ import annotations

import pytest

from consumer import Admin, ClusterNode
from consumer.engine.admin import cluster_descriptions as plans
from kproto.broker.server import running
from kproto.errors import UnsupportedVersion
from tests.consumer.engine.admin.stage import clock, cluster_of, known, play

TOO_OLD = UnsupportedVersion("DescribeCluster", -1, "none")


def test_the_embedded_broker_describes_its_cluster() -> None:
    with running() as server, Admin(server.bootstrap) as admin:
        cluster = admin.describe_cluster(include_authorized_operations=True)
        host, _, port = server.bootstrap.rpartition(":")
        assert [(node.host, node.port, node.is_fenced) for node in cluster.nodes] == [
            (host, int(port), False)
        ]
        assert cluster.controller == cluster.nodes[0].id
        assert cluster.cluster_id
        assert "create" in (cluster.authorized_operations or ())
        assert admin.describe_cluster().authorized_operations is None


def test_an_older_broker_describes_its_cluster_with_metadata() -> None:
    plan = plans.describe_cluster(
        known(), clock, include_authorized_operations=False, include_fenced_brokers=False
    )
    cluster, log = play(plan, TOO_OLD, cluster_of(1, brokers=2))
    assert (cluster.cluster_id, cluster.controller) == (None, 1)
    assert cluster.nodes == (ClusterNode(1, "broker-1", 9092), ClusterNode(2, "broker-2", 9092))
    assert log == ["DescribeCluster", "Metadata"]


def test_an_older_broker_cannot_list_fenced_brokers() -> None:
    plan = plans.describe_cluster(
        known(), clock, include_authorized_operations=False, include_fenced_brokers=True
    )
    with pytest.raises(UnsupportedVersion):
        play(plan, TOO_OLD)
