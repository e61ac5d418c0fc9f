"""Commits of start offsets before the first record is returned, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.broker.machine import FailRequests
from kproto.error_codes import ErrorCode
from kproto.errors import NotAuthorized
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.consumer.engine.stage import GROUP, numbers, world_with_records
from tests.consumer.stage import Client, Consumer, World, tp

T0 = tp("t", 0)


@pytest.mark.rule("I8")
@pytest.mark.parametrize("seeks", [False, True])
def test_an_initial_commit_that_fails_after_a_seek_is_not_raised(seeks: bool) -> None:
    """After the seek, the offset of the failed commit is no longer the position."""
    world = world_with_records()

    def refuse(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        [topic] = request.topics
        partition = OffsetCommitResponsePartition(
            partition_index=0, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED
        )
        return OffsetCommitResponse(
            topics=[
                OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=[partition])
            ]
        )

    world.tamper = refuse
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetCommitRequest)))
    if seeks:
        a.seek(tp("t", 0), 7)
    assert world.run(until=lambda: bool(a.records))
    assert a.values() == numbers(7 if seeks else 0, 10)
    assert [type(error) for error in a.errors] == ([] if seeks else [NotAuthorized])


def fail_requests(world: World, request: Any, code: ErrorCode, times: int = 10**6) -> None:
    world.step(1, FailRequests(request.__api_key__, code, times))


def new_member(world: World) -> Consumer:
    world.write("t", 0, *numbers(10))
    member = world.consumer(**GROUP)
    member.subscribe("t")
    return member


def test_close_does_not_wait_for_an_initial_commit_without_a_coordinator() -> None:
    world = World({"t": 1})
    fail_requests(world, ListOffsetsRequest, ErrorCode.LEADER_NOT_AVAILABLE)

    def lose_coordinator(client: Client, request: Any, version: int) -> HeartbeatResponse | None:
        if not isinstance(request, HeartbeatRequest):
            return None
        fail_requests(world, FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        fail_requests(world, ListOffsetsRequest, ErrorCode.NONE, 0)
        return HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)

    world.tamper = lose_coordinator
    member = new_member(world)
    assert world.run(until=lambda: bool(member.changes_of("reset")))
    world.run(2_000)
    assert world.requests_of(member, OffsetCommitRequest) == []
    member.close()
    assert world.run(1_500, until=lambda: member.is_closed)
    reasons = [change.reason for change in member.changes_of("uncommitted")]
    assert len(reasons) == 1
    assert "the group's coordinator is not known" in reasons[0]


def test_close_sends_an_initial_commit_that_waits_for_an_earlier_commit() -> None:
    world = World({"t": 1}, latency=(5, 5))

    def close_behind_a_commit(client: Client, request: Any, version: int) -> None:
        if isinstance(request, ListOffsetsRequest):
            member.commit({T0: 3})
            world.call_later(7, member.close)

    world.tamper = close_behind_a_commit
    member = new_member(world)
    assert world.run(until=lambda: member.is_closed)
    assert member.changes_of("uncommitted") == []
    assert world.committed("g", T0) == 0
