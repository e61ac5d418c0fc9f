"""The lookup of start offsets: its backoff, seeks and revocations during a lookup, and new partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import UnsupportedVersion
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from tests.consumer.engine.stage import numbers, world_with_records
from tests.consumer.stage import Client, World, tp

T0 = tp("t", 0)


@pytest.mark.rule("I8")
def test_a_seek_before_the_committed_offset_is_looked_up_is_final() -> None:
    """A partition that is sought while the coordinator is unknown needs no committed offset."""
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


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_an_offset_fetch_that_another_broker_has_to_answer_looks_up_the_coordinator(code: ErrorCode) -> None:
    world = World({"t": 1})
    answers = [code]

    def answer(client: Client, request: Any, version: int) -> OffsetFetchResponse | None:
        if not isinstance(request, OffsetFetchRequest) or not answers:
            return None
        group = OffsetFetchResponseGroup(group_id="g", topics=[], error_code=answers.pop())
        return OffsetFetchResponse(groups=[group])

    world.tamper = answer
    consumer = world.consumer(group_id="g", auto_offset_reset="earliest")
    consumer.assign({T0: None})
    world.write("t", 0, "x")
    assert world.run(until=lambda: consumer.values() == ["x"])
    kinds = [
        type(request)
        for _, request, _ in world.requests
        if isinstance(request, (FindCoordinatorRequest, OffsetFetchRequest))
    ]
    assert kinds == [FindCoordinatorRequest, OffsetFetchRequest] * 2


def test_in_the_first_generation_no_partition_is_new() -> None:
    """In the first generation `auto_offset_reset` applies to each partition without a commit.

    The assignor "sticky" sends no counts of partitions, so the follower only knows the commits of the topic.
    """
    world = World({"t": 8}, settings={"group.initial.rebalance.delay.ms": 3000})
    for partition in range(8):
        world.write("t", partition, "old")
    operator = world.consumer(group_id="g", enable_auto_commit=False)
    operator.assign({T0: 0})
    operator.commit({T0: 1})
    assert world.run(until=lambda: world.committed("g", T0) == 1)
    operator.close()
    world.run(1000)
    members = [
        world.consumer(group_id="g", auto_offset_reset="latest", partition_assignment_strategy="sticky")
        for _ in range(2)
    ]
    for member in members:
        member.subscribe("t")
    assert world.run(until=lambda: all(len(member.owned) == 4 for member in members))
    world.run(2000)
    assert [member.values() for member in members] == [[], []]


def test_a_lookup_that_the_broker_does_not_support_is_retried_after_the_longest_backoff() -> None:
    world = World({"t": 1}, highest={"ListOffsets": -1})
    consumer = world.consumer(auto_offset_reset="earliest", retry_backoff_ms=100, retry_backoff_max_ms=10_000)
    consumer.assign({T0: None})
    world.run(35_000)
    assert all(isinstance(error, UnsupportedVersion) for error in consumer.errors)
    assert len(consumer.errors) == 4
