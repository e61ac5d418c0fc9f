"""Records are not returned after the session or the poll interval has expired (M16, M111)."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.messages.fetch import FetchRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from tests.consumer.engine.stage import (
    GROUP,
    caught_up_member,
    world_with_records,
)
from tests.consumer.stage import Client, World, tp


@pytest.mark.rule("M164")
def test_a_reading_consumer_closes_its_fetch_session() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(100)
    a.close()
    assert world.run(2000, until=lambda: not a.alive)
    assert world.requests_of(a, FetchRequest)[-1].session_epoch == -1


def test_after_a_freeze_beyond_the_session_timeout_no_buffered_record_is_returned() -> None:
    """The test only advances the clock: an engine has no other way to detect a suspension (SIGSTOP)."""
    world = world_with_records()
    a = world.consumer(**GROUP)
    a.limit = 3
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 3)
    a.alive = False
    world.now += 10_000
    a.alive = True
    a.poll()
    assert len(a.records) == 3
    assert ("lost", (tp("t", 0),)) in a.calls


def test_after_a_freeze_beyond_max_poll_interval_ms_no_buffered_record_is_returned() -> None:
    world = world_with_records()
    a = world.consumer(**{**GROUP, "session_timeout_ms": 60_000}, max_poll_interval_ms=2000)
    a.limit = 3
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 3)
    a.pause_polling()
    a.alive = False
    world.now += 10_000
    a.alive = True
    a.poll()
    assert len(a.records) == 3
    assert ("lost", (tp("t", 0),)) in a.calls


@pytest.mark.rule("M111")
def test_partitions_are_lost_when_the_coordinator_is_silent_for_the_session_timeout() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.down = True
    assert world.run(3600, until=lambda: bool(a.changes_of("lost")))


@pytest.mark.parametrize("requests_arrive", [True, False])
def test_a_member_whose_joins_are_lost_drops_its_partitions_before_they_are_reassigned(
    requests_arrive: bool,
) -> None:
    """A member whose JoinGroup requests are lost drops its partitions before the group reassigns them.

    The test drops either requests and responses, or only the responses.

    Regression (chaos seed 9170): the removed member continued to read records that another member had already
    read and committed.
    """
    world = World({"t": 2})
    options = {**GROUP, "partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 6_000}
    a = world.consumer(**options)
    a.subscribe("t")
    assert world.run(20_000, until=lambda: len(a.owned) == 2)
    swallowed: list[Any] = []

    def swallow(client: Client, request: Any, version: int) -> None:
        started = bool(swallowed) or isinstance(request, JoinGroupRequest)
        if client is a and started and isinstance(request, JoinGroupRequest | HeartbeatRequest):
            swallowed.append(request)
            for wire in world.network.wires.values():
                if wire.client is a:
                    wire.up.lost, wire.down.lost = not requests_arrive, True

    world.tamper = swallow
    b = world.consumer(**options)
    b.subscribe("t")
    assert world.run(60_000, until=lambda: len(b.owned) == 2)
    assert len(a.changes_of("lost")) == 1
    assert a.owned == set()
    assert any(isinstance(request, HeartbeatRequest) for request in swallowed)
