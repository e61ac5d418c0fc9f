"""CreateTopics checks names, partition counts, configs, assignments and limits as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.machine import CreateTopic
from kproto.broker.topic_configs import TOPIC_CONFIGS
from kproto.error_codes import ErrorCode
from kproto.messages.create_topics import (
    CreateTopicsRequest,
)
from tests.broker.apis.stage import create_topic, delete_topic, topic_to_create
from tests.broker.stage import Client, Stage, batch_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_in_every_version(stage: Stage, client: Client, version: int) -> None:
    assert create_topic(client, version).error_code == 0
    assert len(stage.topic("new").partitions) == 3


def test_the_response_describes_the_new_topic(stage: Stage, client: Client) -> None:
    result = create_topic(client, count=-1, factor=-1, configs={"retention.ms": "5"})
    assert (result.num_partitions, result.replication_factor) == (1, 1)
    assert result.topic_id == stage.topic("new").id
    configs = {config.name: (config.value, config.config_source) for config in result.configs or []}
    assert set(configs) == set(TOPIC_CONFIGS)
    assert configs["retention.ms"] == ("5", 1)
    assert configs["cleanup.policy"] == ("delete", 5)


def test_validate_only_creates_no_topic(stage: Stage, client: Client) -> None:
    assert create_topic(client, validate=True).error_code == 0
    assert stage.broker.topics.named("new") is None


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ({"name": "t"}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ({"name": "one.two_three"}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ({"count": 0}, ErrorCode.INVALID_PARTITIONS),
        ({"count": -2}, ErrorCode.INVALID_PARTITIONS),
        # A topic may need at most 10,000 metadata records: one for the topic, and one for each partition and
        # config.
        ({"count": 10_000}, ErrorCode.POLICY_VIOLATION),
        ({"count": 9_999, "configs": {"retention.ms": "5"}}, ErrorCode.POLICY_VIOLATION),
        ({"count": 2**31 - 1}, ErrorCode.POLICY_VIOLATION),
        ({"name": "__cluster_metadata"}, ErrorCode.INVALID_REQUEST),
        ({"factor": 2}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ({"configs": {"no.such.config": "1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": "soon"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"retention.ms": None}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"message.timestamp.type": "Never"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"max.message.bytes": "-1"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"preallocate": "maybe"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"min.cleanable.dirty.ratio": "2"}}, ErrorCode.INVALID_CONFIG),
        ({"configs": {"cleanup.policy": "shred"}}, ErrorCode.INVALID_CONFIG),
        (
            {"configs": {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}},
            ErrorCode.INVALID_CONFIG,
        ),
        ({"count": -1, "factor": -1, "assignments": [[1], [2]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({"count": 2, "factor": -1, "assignments": [[1], [1]]}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_invalid_topic_is_refused_with_kafkas_code(
    stage: Stage, client: Client, topic: dict[str, Any], error: ErrorCode
) -> None:
    stage.step(CreateTopic("one_two.three", 1, stage.random_id()))
    result = create_topic(client, **topic)
    assert result.error_code == error
    assert result.error_message
    assert len(stage.broker.topics) == 3


def test_a_name_that_collides_with_a_deleted_topic_is_accepted(stage: Stage, client: Client) -> None:
    assert create_topic(client, name="a.b").error_code == 0
    delete_topic(client, 6, name="a.b")
    assert create_topic(client, name="a_b").error_code == 0


def test_new_names_of_one_request_do_not_collide_with_each_other(stage: Stage, client: Client) -> None:
    response = client.ask(CreateTopicsRequest(topics=[topic_to_create("a.b"), topic_to_create("a_b")]))
    assert [result.error_code for result in response.topics] == [0, 0]
    delete_topic(client, 6, name="a.b")
    assert create_topic(client, name="a.b").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_too_many_partitions_fail_all_topics_of_a_request(stage: Stage, client: Client) -> None:
    topics = [
        topic_to_create("one", count=5_000),
        topic_to_create("..", count=5_000),
        topic_to_create("two", count=1),
    ]
    # A topic that the request contains twice does not count towards the limit of partitions. If the other
    # topics exceed the limit, each entry of the request gets POLICY_VIOLATION. Otherwise the repeated topic
    # gets a single INVALID_REQUEST.
    twice = [topic_to_create("twice", count=9_000)] * 2
    response = client.ask(CreateTopicsRequest(topics=[*topics, *twice]))
    assert [result.error_code for result in response.topics] == [ErrorCode.POLICY_VIOLATION] * 5
    assert len(stage.broker.topics) == 2
    response = client.ask(CreateTopicsRequest(topics=[*topics[:2], *twice], validate_only=True))
    codes = [0, ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.INVALID_REQUEST]
    assert [result.error_code for result in response.topics] == codes


def test_a_manual_assignment_sets_the_partition_count(stage: Stage, client: Client) -> None:
    assert create_topic(client, count=-1, factor=-1, assignments=[[1], [1]]).error_code == 0
    assert len(stage.topic("new").partitions) == 2


def test_a_duplicate_topic_is_not_created(stage: Stage, client: Client) -> None:
    response = client.ask(CreateTopicsRequest(topics=[topic_to_create(), topic_to_create()]))
    assert [result.error_code for result in response.topics] == [ErrorCode.INVALID_REQUEST]
    assert stage.broker.topics.named("new") is None


def test_two_topics_of_one_request_have_different_ids(stage: Stage, client: Client) -> None:
    client.ask(CreateTopicsRequest(topics=[topic_to_create("one"), topic_to_create("two")]))
    assert stage.topic("one").id != stage.topic("two").id


def test_a_config_of_the_topic_applies_to_produce(stage: Stage, client: Client) -> None:
    create_topic(client, configs={"message.timestamp.type": "LogAppendTime"})
    assert client.produce(batch_of(b"a"), "new").log_append_time_ms == stage.now
    assert client.produce(batch_of(b"a"), "t").log_append_time_ms == -1
