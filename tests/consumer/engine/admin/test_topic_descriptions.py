"""Topics in the admin API: list and describe, on the embedded broker and with prepared responses."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from consumer import Admin, TopicPartitionInfo
from consumer.engine.admin import topic_descriptions as plans
from kproto.broker.server import Server, running
from kproto.errors import PartialFailure, UnknownTopic, UnsupportedVersion
from kproto.messages.describe_topic_partitions import (
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kproto.messages.metadata import MetadataRequest
from tests.consumer.engine.admin.stage import clock, cluster_of, play, view_of


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2, "a": 1}) as server:
        yield server


def test_topics_are_listed_in_order_with_their_ids(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        listings = admin.list_topics()
        assert list(listings) == ["a", "t"]
        assert listings["a"].topic_id is not None
        assert listings["a"].topic_id != listings["t"].topic_id


def test_internal_topics_are_listed_on_request(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        admin.coordinator("g")
        admin.commit_offsets("g", {})
        listed, all_listed = admin.list_topics(), admin.list_topics(include_internal=True)
        assert listed.keys() == {name for name, topic in all_listed.items() if not topic.is_internal}


def test_a_described_topic_has_its_partitions_and_replicas(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        [node] = admin.metadata().brokers
        description = admin.describe_topics(["t"])["t"]
        assert description.topic_id == admin.list_topics()["t"].topic_id
        assert [info.partition for info in description.partitions] == [0, 1]
        assert description.partitions[0].leader == node
        assert description.partitions[0].replicas == description.partitions[0].isr == (node,)
        assert description.authorized_operations is None


def test_the_operations_of_the_client_are_described_on_request(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        description = admin.describe_topics(["t"], include_authorized_operations=True)["t"]
        assert description.authorized_operations is not None
        assert {"read", "write", "alter_configs"} <= description.authorized_operations


def test_a_missing_topic_is_not_created_and_does_not_hide_the_others(server: Server) -> None:
    with Admin(server.bootstrap) as admin:
        with pytest.raises(PartialFailure, match="1 of 2 items: Metadata") as caught:
            admin.describe_topics(["missing", "t"])
        assert isinstance(caught.value.failed["missing"], UnknownTopic)
        assert caught.value.succeeded.keys() == {"t"}
        assert "missing" not in admin.list_topics()


UNSUPPORTED = UnsupportedVersion("DescribeTopicPartitions", -1, "the broker does not support this request")


def test_a_partition_without_a_leader_is_described() -> None:
    plan = plans.describe_topics(view_of(1), ["t"], clock, include_authorized_operations=False)
    descriptions, _ = play(plan, cluster_of(-1), UNSUPPORTED)
    assert descriptions["t"].partitions == (TopicPartitionInfo(0, None, (), ()),)


def eligible(cursor: int | None, *partitions: int) -> DescribeTopicPartitionsResponse:
    """Return a response for partitions of the topic t. `cursor` is the first partition of the next page."""
    described = [
        DescribeTopicPartitionsResponsePartition(
            error_code=0,
            partition_index=number,
            leader_id=1,
            replica_nodes=[1],
            isr_nodes=[1],
            eligible_leader_replicas=[2],
            last_known_elr=[3],
            offline_replicas=[],
        )
        for number in partitions
    ]
    topic = DescribeTopicPartitionsResponseTopic(
        error_code=0, name="t", topic_id=UUID(int=1), partitions=described
    )
    following = (
        None
        if cursor is None
        else DescribeTopicPartitionsResponseCursor(topic_name="t", partition_index=cursor)
    )
    return DescribeTopicPartitionsResponse(throttle_time_ms=0, topics=[topic], next_cursor=following)


@pytest.mark.parametrize("last", [None, 0], ids=["the end", "a cursor that does not advance"])
def test_eligible_leaders_are_read_page_by_page(last: int | None) -> None:
    plan = plans.describe_topics(view_of(1), ["t"], clock, include_authorized_operations=False)
    descriptions, log = play(plan, cluster_of(1), eligible(0), eligible(last, 0))
    [partition] = descriptions["t"].partitions
    assert (partition.elr, partition.last_known_elr) == ((2,), (3,))
    assert log == ["Metadata", "DescribeTopicPartitions", "DescribeTopicPartitions"]


def test_a_request_in_version_0_lists_all_topics_with_an_empty_list() -> None:
    [ask] = next(plans.list_topics(view_of(1), clock, include_internal=False))  # type: ignore[misc]

    assert ask.request.build(0) == MetadataRequest(topics=[], allow_auto_topic_creation=True)  # type: ignore[union-attr]
    assert ask.request.build(4).topics is None  # type: ignore[union-attr]
