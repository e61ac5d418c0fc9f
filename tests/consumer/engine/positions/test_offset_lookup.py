"""The lookup of start offsets: its backoff, and seeks and revocations during a lookup."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.offset_fetch import OffsetFetchRequest
from tests.consumer.engine.stage import numbers, world_with_records
from tests.consumer.stage import Client, tp

T0 = tp("t", 0)


@pytest.mark.rule("I8")
def test_a_seek_before_the_committed_offset_is_looked_up_is_final() -> None:
    """After a seek while the coordinator is unknown, the committed offset is not looked up."""
    world = world_with_records()

    def answer(client: Client, request: Any, version: int) -> FindCoordinatorResponse | None:
        if not isinstance(request, FindCoordinatorRequest):
            return None
        return FindCoordinatorResponse(
            error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE, node_id=-1, host="", port=-1
        )

    world.tamper = answer
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.engine.core.network.caps[10] = 3
    a.assign({T0: None})
    world.run(500)
    a.seek(T0, 7)
    world.tamper = None
    assert world.run(until=lambda: len(a.records) == 3)
    world.run(3_000)
    assert a.values() == numbers(7, 10)
    assert world.requests_of(a, OffsetFetchRequest) == []


def test_lookups_without_a_response_back_off_longer_each_time() -> None:
    """The network sends each OffsetFetch twice, because it reconnects once before the request fails."""
    world = world_with_records()
    sent: list[int] = []

    def cut(client: Client, request: Any, version: int) -> None:
        if isinstance(request, OffsetFetchRequest):
            sent.append(world.now)
            if len(sent) <= 6:
                world.cut(client)

    world.tamper = cut
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.assign({T0: None})
    assert world.run(until=lambda: len(a.records) == 10)
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    # Each backoff is up to 20 % shorter or longer at random, and the broken connection takes a millisecond.
    for gap, backoff_ms in zip(gaps[1::2], (100, 200, 400), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 5


@pytest.mark.rule("I8")
def test_a_seek_to_the_end_during_the_lookup_of_the_committed_offset_is_looked_up() -> None:
    world = world_with_records()
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.assign({T0: None})
    assert world.run(until=lambda: bool(world.requests_of(a, OffsetFetchRequest)))
    a.seek_to("latest", T0)
    assert world.run(1_000, until=lambda: a.position(T0) == 10)
    world.write("t", 0, "new")
    assert world.run(1_000, until=lambda: a.values() == ["new"])
