"""Commits of start offsets before the first record is returned, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import NotAuthorized
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.consumer.engine.stage import GROUP, numbers, world_with_records
from tests.consumer.stage import Client, tp


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
