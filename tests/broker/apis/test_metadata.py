"""Metadata describes the cluster and the requested topics, and creates missing topics if this is enabled."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.topics import NO_ID
from kproto.error_codes import ErrorCode
from kproto.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.broker.apis.stage import create_topic
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


def metadata_request(*names: str, create: bool = True, **fields: Any) -> MetadataRequest:
    topics = [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create, **fields)


@pytest.mark.parametrize("version", range(14))
def test_metadata_describes_the_node_and_the_topic_in_every_version(client: Client, version: int) -> None:
    answer: MetadataResponse = client.ask(metadata_request("t"), version)
    assert [(node.node_id, node.host, node.port) for node in answer.brokers] == [(1, "localhost", 9092)]
    [topic] = answer.topics
    assert (topic.error_code, topic.name) == (0, "t")
    assert [(p.partition_index, p.leader_id, p.isr_nodes) for p in topic.partitions] == [
        (0, 1, [1]),
        (1, 1, [1]),
    ]


@pytest.mark.parametrize("version", range(1, 14))
def test_null_requests_all_topics_and_an_empty_list_none(client: Client, version: int) -> None:
    assert [topic.name for topic in client.ask(MetadataRequest(topics=None), version).topics] == ["t", "u"]
    assert client.ask(MetadataRequest(topics=[]), version).topics == []


def test_in_v0_an_empty_list_requests_all_topics(client: Client) -> None:
    assert [topic.name for topic in client.ask(MetadataRequest(topics=[]), 0).topics] == ["t", "u"]


def test_a_topic_can_be_requested_by_its_id(stage: Stage, client: Client) -> None:
    wanted = MetadataRequestTopic(name=None, topic_id=stage.topic("u").id)
    [topic] = client.ask(MetadataRequest(topics=[wanted])).topics
    assert (topic.error_code, topic.name) == (0, "u")


def test_an_unknown_id_is_answered_with_that_id(stage: Stage, client: Client) -> None:
    unknown = stage.random_id()
    [topic] = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=unknown)])).topics
    assert (topic.error_code, topic.name, topic.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, None, unknown)


@pytest.mark.parametrize("version", [10, 11])
def test_v10_and_v11_refuse_ids_although_they_have_the_field(
    stage: Stage, client: Client, version: int
) -> None:
    wanted = MetadataRequestTopic(name=None, topic_id=stage.topic("u").id)
    [topic] = client.ask(MetadataRequest(topics=[wanted]), version).topics
    assert (topic.error_code, topic.name) == (ErrorCode.INVALID_REQUEST, "")


def test_a_topic_that_is_requested_by_name_is_auto_created() -> None:
    stage = Stage(num_partitions=4)
    [topic] = stage.client().ask(metadata_request("new")).topics
    assert (topic.error_code, len(topic.partitions)) == (0, 4)
    assert topic.topic_id == stage.topic("new").id != NO_ID


def test_no_topic_is_created_if_the_client_disables_it(stage: Stage, client: Client) -> None:
    [topic] = client.ask(metadata_request("new", create=False)).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage.broker.topics.named("new") is None


@pytest.mark.parametrize(("existing", "name"), [("a.b", "a_b"), ("t", "__cluster_metadata")])
def test_an_invalid_topic_is_not_auto_created(existing: str, name: str) -> None:
    """Metadata does not create a topic whose name the controller rejects.

    The response has UNKNOWN_TOPIC_OR_PARTITION for the topic, as in Kafka.
    """
    stage = Stage({existing: 1})
    [topic] = stage.client().ask(metadata_request(name)).topics
    assert (topic.error_code, topic.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert [topic.name for topic in stage.broker.topics] == [existing]


def test_no_topic_is_created_if_the_setting_disables_it() -> None:
    stage = Stage(auto_create_topics_enable="false")
    [topic] = stage.client().ask(metadata_request("new")).topics
    assert topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250])
def test_an_invalid_name_is_refused_by_metadata_and_create_topics(client: Client, name: str) -> None:
    assert client.ask(metadata_request(name)).topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert create_topic(client, name=name).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_authorized_operations_are_returned_on_request_only(client: Client) -> None:
    topic = client.ask(metadata_request("t", include_topic_authorized_operations=True)).topics[0]
    assert topic.topic_authorized_operations == 3576
    assert client.ask(metadata_request("t")).topics[0].topic_authorized_operations == -(2**31)
