"""DescribeTopicPartitions returns topics page by page (KIP-966)."""

from __future__ import annotations

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsRequestCursor,
    TopicRequest,
)
from tests.broker.stage import Client, Stage


@pytest.fixture
def stage() -> Stage:
    return Stage({"t": 2, "u": 1})


def pages(client: Client, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """Request all pages. Return the topic names and partition indexes of each page."""
    cursor, pages_read = None, []
    while True:
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in names], response_partition_limit=limit, cursor=cursor
        )
        response = client.ask(request)
        pages_read.append([(t.name, [p.partition_index for p in t.partitions]) for t in response.topics])
        if response.next_cursor is None:
            return pages_read
        where = response.next_cursor
        cursor = DescribeTopicPartitionsRequestCursor(
            topic_name=where.topic_name, partition_index=where.partition_index
        )


def test_a_cursor_starts_the_next_page() -> None:
    client = Stage({"b": 3, "a": 2}).client()
    assert pages(client, [], 2000) == [[("a", [0, 1]), ("b", [0, 1, 2])]]
    assert pages(client, ["b", "a"], 2) == [[("a", [0, 1])], [("b", [0, 1])], [("b", [2])]]
    assert pages(client, ["b"], 3) == [[("b", [0, 1, 2])]]


@pytest.mark.parametrize(
    ("requested", "cursor_topic", "partition"),
    [("a", "b", 0), ("a", "missing", 0), ("a", "a", -1)],
)
def test_a_cursor_must_be_at_a_partition_of_a_requested_topic(
    requested: str, cursor_topic: str, partition: int
) -> None:
    """As in Kafka's DescribeTopicPartitionsRequestHandler."""
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=requested)],
        response_partition_limit=10,
        cursor=DescribeTopicPartitionsRequestCursor(topic_name=cursor_topic, partition_index=partition),
    )
    response = Stage({"b": 3, "a": 2}).client().ask(request)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        (requested, ErrorCode.INVALID_REQUEST)
    ]
