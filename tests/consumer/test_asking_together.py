"""Partitions that are refused in one answer ask again in one request, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from kproto.error_codes import ErrorCode
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.consumer.world import Client, Consumer, World, tp

MANY = 50
CODES = [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.UNKNOWN_LEADER_EPOCH]


def refused_once(world: World, kind: type, code: ErrorCode) -> None:
    left = [code]

    def once(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, kind) or not isinstance(client, Consumer) or not left:
            return None
        return refusal(request, left.pop())

    world.tamper = once


def refusal(request: Any, code: ErrorCode) -> Any:
    if isinstance(request, ListOffsetsRequest):
        listed = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=one.partition_index, error_code=code)
                    for one in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=listed)
    ends = [
        OffsetForLeaderTopicResult(
            topic=topic.topic,
            partitions=[EpochEndOffset(partition=one.partition, error_code=code) for one in topic.partitions],
        )
        for topic in request.topics
    ]
    return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=ends)


@pytest.mark.parametrize("code", CODES)
def test_offsets_that_a_leader_does_not_tell_are_asked_for_together_again(code: ErrorCode) -> None:
    """As Java's: one request for each leader."""
    world = World({"t": MANY})
    refused_once(world, ListOffsetsRequest, code)
    a = world.consumer(auto_offset_reset="earliest", group_id="g")
    a.assign(dict.fromkeys(tp("t", one) for one in range(MANY)))
    assert world.run(until=lambda: all(s.known for s in a.engine.core.partitions.states.values()))
    assert [len(one.topics[0].partitions) for one in world.asked(a, ListOffsetsRequest)] == [MANY, MANY]


@pytest.mark.parametrize("code", CODES)
def test_positions_that_a_leader_does_not_check_are_checked_together_again(code: ErrorCode) -> None:
    world = World({"t": MANY})
    every = [tp("t", one) for one in range(MANY)]
    before = world.consumer(group_id="g")
    before.assign(dict.fromkeys(every, 0))
    before.do(ev.Commit("c", dict.fromkeys(every, (0, 0, "")), 5000))
    assert world.run(until=lambda: "c" in before.done)
    refused_once(world, OffsetForLeaderEpochRequest, code)
    a = world.consumer(group_id="g")
    a.assign(dict.fromkeys(every))
    world.run(3000)
    asked = world.asked(a, OffsetForLeaderEpochRequest)
    assert [len(one.topics[0].partitions) for one in asked] == [MANY, MANY]
