"""CreatePartitions: partitions are added, never removed."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tests.broker.stage import Client, Stage, batch_of


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


def test_at_most_ten_thousand_partitions_are_added_at_once(stage: Stage, client: Client) -> None:
    topics = [CreatePartitionsTopic(name="t", count=10_003, assignments=None)]
    response = client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=False))
    assert response.results[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert len(stage.topic("t").partitions) == 2
    topics[0].count = 10_002
    response = client.ask(CreatePartitionsRequest(topics=topics, timeout_ms=1_000, validate_only=True))
    assert response.results[0].error_code == 0


def add_partitions(client: Client, count: int, name: str = "t", added: list[list[int]] | None = None) -> int:
    assignments = None if added is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in added]
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    response = client.ask(CreatePartitionsRequest(topics=[topic], timeout_ms=1, validate_only=False))
    code: int = response.results[0].error_code
    return code


def test_partitions_are_added(stage: Stage, client: Client) -> None:
    client.produce(batch_of(b"a"), partition=1)
    assert add_partitions(client, 5) == 0
    assert [partition.log.end_offset for partition in stage.topic("t").partitions] == [0, 1, 0, 0, 0]


def test_partitions_are_never_removed(client: Client) -> None:
    assert [add_partitions(client, count) for count in (2, 1, 0)] == [ErrorCode.INVALID_PARTITIONS] * 3


def test_an_unknown_topic_is_refused(client: Client) -> None:
    assert add_partitions(client, 5, "none") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_manual_assignment_must_name_the_only_node(client: Client) -> None:
    assert add_partitions(client, 3, added=[[1]]) == 0
    assert add_partitions(client, 4, added=[[2]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert add_partitions(client, 4, added=[[1], [1]]) == ErrorCode.INVALID_REPLICA_ASSIGNMENT
