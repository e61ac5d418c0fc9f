"""All partitions that failed in one response are retried together, in one request."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from kproto.error_codes import ErrorCode
from kproto.errors import NotAuthorized
from kproto.group.subscription import TopicPartition
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.consumer.stage import Client, Consumer, World, tp

MANY = 50
CODES = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH]


def reject_once(world: World, kind: type, code: ErrorCode) -> None:
    codes = [code]

    def once(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, kind) or not isinstance(client, Consumer) or not codes:
            return None
        return error_response(request, codes.pop())

    world.tamper = once


def error_response(request: Any, code: ErrorCode) -> Any:
    if isinstance(request, ListOffsetsRequest):
        listed = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=listed)
    if isinstance(request, OffsetFetchRequest):
        return offset_fetch_errors(request, code)
    ends = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[
                EpochEndOffset(partition=partition.partition, error_code=code)
                for partition in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=ends)


def offset_fetch_errors(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    groups = [
        OffsetFetchResponseGroup(
            group_id=group.group_id,
            topics=[
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        OffsetFetchResponsePartitions(
                            partition_index=index, committed_offset=-1, metadata="", error_code=code
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in group.topics or ()
            ],
        )
        for group in request.groups
    ]
    return OffsetFetchResponse(groups=groups)


@pytest.mark.parametrize("code", CODES)
def test_failed_list_offsets_are_retried_in_one_request(code: ErrorCode) -> None:
    """Lookups that failed are retried in one request to each leader, as in Java."""
    world = World({"t": MANY})
    reject_once(world, ListOffsetsRequest, code)
    a = world.consumer(auto_offset_reset="earliest", group_id="g")
    a.assign(dict.fromkeys(tp("t", index) for index in range(MANY)))
    assert world.run(until=lambda: all(s.has_position for s in a.engine.core.partitions.states.values()))
    assert [len(request.topics[0].partitions) for request in world.requests_of(a, ListOffsetsRequest)] == [
        MANY,
        MANY,
    ]


def commit_with_epochs(world: World, partitions: list[TopicPartition]) -> None:
    """Commit offsets together with leader epochs. A consumer that starts at such an offset has to validate
    its position.
    """
    before = world.consumer(group_id="g")
    before.assign(dict.fromkeys(partitions, 0))
    before.do(ev.Commit("c", dict.fromkeys(partitions, (0, 0, "")), 5000))
    assert world.run(until=lambda: "c" in before.done)


@pytest.mark.parametrize("code", CODES)
def test_failed_position_validations_are_retried_in_one_request(code: ErrorCode) -> None:
    world = World({"t": MANY})
    partitions = [tp("t", index) for index in range(MANY)]
    commit_with_epochs(world, partitions)
    reject_once(world, OffsetForLeaderEpochRequest, code)
    a = world.consumer(group_id="g")
    a.assign(dict.fromkeys(partitions))
    world.run(3000)
    requests = world.requests_of(a, OffsetForLeaderEpochRequest)
    assert [len(request.topics[0].partitions) for request in requests] == [MANY, MANY]


@pytest.mark.parametrize("kind", [ListOffsetsRequest, OffsetForLeaderEpochRequest, OffsetFetchRequest])
def test_partitions_that_fail_in_one_response_are_one_error(kind: type) -> None:
    """A poll raises one error that names all topics, like Java's TopicAuthorizationException.

    Regression: a poll raised a separate error for each of these partitions.
    """
    world = World({"t": MANY})
    partitions = [tp("t", index) for index in range(MANY)]
    if kind is OffsetForLeaderEpochRequest:
        commit_with_epochs(world, partitions)
    reject_once(world, kind, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    a = world.consumer(auto_offset_reset="earliest", group_id="g", enable_auto_commit=False)
    a.assign(dict.fromkeys(partitions))
    assert world.run(5_000, until=lambda: bool(a.errors))
    world.run(2_000)
    assert [type(error) for error in a.errors] == [NotAuthorized]
    assert f"t-0, t-1, t-2, t-3, t-4, t-5, t-6, t-7, t-8, t-9 and {MANY - 10} more" in str(a.errors[0])
