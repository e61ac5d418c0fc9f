"""`highest` limits the versions that a broker serves, so that it acts as an older Kafka."""

from __future__ import annotations

import pytest

from consumer import Admin, Consumer, Producer
from kproto.broker.apis.table import APIS
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, UnsupportedVersion
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from tests.broker.stage import Socket

OLD = {
    "ApiVersions": 2,
    "Fetch": 11,
    "Produce": 7,
    "Metadata": 5,
    "JoinGroup": 4,
    "OffsetCommit": 6,
    "OffsetFetch": 5,
}


def test_no_version_above_highest_is_advertised() -> None:
    with running(highest=OLD) as server, Admin(server.bootstrap) as cluster:
        answer = cluster.request(ApiVersionsRequest(client_software_name="", client_software_version=""))
        assert isinstance(answer, ApiVersionsResponse)
        advertised = {api.api_key: api.max_version for api in answer.api_keys}
    assert (advertised[1], advertised[3], advertised[11]) == (11, 5, 4)


def test_the_client_library_works_with_older_versions() -> None:
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with running(topics={"t": 2}, settings=settings, highest=OLD) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(20):
                producer.send("t", b"%d" % number)
        with Consumer(server.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["t"])
            values: list[bytes | None] = []
            while len(values) < 20:
                values += [record.value for record in consumer.poll(5.0)]
            consumer.commit()
    assert sorted(int(value or b"-1") for value in values) == list(range(20))


# The telemetry APIs, which a broker without a receiver for client metrics does not serve (`served_versions`).
TELEMETRY = (71, 72)


def test_an_api_that_an_older_kafka_does_not_have_is_left_out() -> None:
    """An API that `highest` excludes is not advertised.

    As in Kafka, the broker closes a connection on which it receives a request of an excluded API. kproto's
    client raises UnsupportedVersion instead of sending such a request.
    """
    with (
        running(highest={"DescribeCluster": -1, "EndTxn": -1}) as server,
        Admin(server.bootstrap) as cluster,
    ):
        answer = cluster.request(ApiVersionsRequest(client_software_name="a", client_software_version="1"))
        assert isinstance(answer, ApiVersionsResponse)
        advertised = {api.api_key for api in answer.api_keys}
        assert {key for key in APIS if key not in advertised} == {26, 60, *TELEMETRY}
        assert answer.finalized_features == []
        with pytest.raises(UnsupportedVersion, match="DescribeCluster"):
            cluster.request(DescribeClusterRequest(include_cluster_authorized_operations=False))
        socket = Socket(server.bootstrap)
        socket.send(DescribeClusterRequest(include_cluster_authorized_operations=False), 0)
        with pytest.raises(ConnectionError):
            socket.answer(DescribeClusterResponse, 0)


@pytest.mark.parametrize("highest", [{"Nonsense": 1}, {"Fetch": 3}, {"Fetch": 99}, {"ApiVersions": -1}])
def test_an_unknown_api_or_version_in_highest_is_refused(highest: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="allowed"):
        Server(highest=highest)
