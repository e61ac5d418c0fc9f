"""Simulated clusters, members and responses that the tests of the client engine share."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.consumer.stage import Client, Consumer, World

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1000,
    "partition_assignment_strategy": "cooperative-sticky",
    "enable_auto_commit": False,
}


AUTO = {**GROUP, "enable_auto_commit": True}


def numbers(*ends: int) -> list[str]:
    """Return the numbers of a range as strings, the values of test records."""
    return [str(number) for number in range(*ends)]


def caught_up_member(world: World, records: int = 10, **options: Any) -> Consumer:
    """Add a member that has read all records. Only its initial positions are committed."""
    a = world.consumer(**{**GROUP, **options})
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == records)
    return a


def lose_commits_and_member(world: World) -> None:
    """Break the connection at each commit, and answer heartbeats with UNKNOWN_MEMBER_ID."""

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest):
            world.cut(client)
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return None

    world.tamper = tamper


def world_with_records(partitions: int = 1, records: int = 10) -> World:
    """Return a simulated cluster whose topic `t` has records in partition 0."""
    world = World({"t": partitions})
    world.write("t", 0, *numbers(0, records))
    return world


def answer_commits(world: World, code: int) -> None:
    """Answer each commit of an offset above 0 with `code`."""

    def refuse(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, OffsetCommitRequest) or all(
            entry.committed_offset == 0 for topic in request.topics for entry in topic.partitions
        ):
            return None
        topics = [
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=entry.partition_index, error_code=code)
                    for entry in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return OffsetCommitResponse(throttle_time_ms=0, topics=topics)

    world.tamper = refuse


def forget_member(world: World, code: int = ErrorCode.UNKNOWN_MEMBER_ID) -> None:
    """Answer the next heartbeat with `code`."""

    def forget(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, HeartbeatRequest):
            world.tamper = None
            return HeartbeatResponse(error_code=code)
        return None

    world.tamper = forget
