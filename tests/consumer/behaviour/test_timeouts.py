"""Records of an expired session or poll interval are not returned (M164)."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.messages.fetch import FetchRequest
from kproto.messages.heartbeat import HeartbeatRequest
from kproto.messages.join_group import JoinGroupRequest
from tests.consumer.engine.stage import (
    GROUP,
    filled,
    reading,
)
from tests.consumer.stage import Client, World, tp


def test_a_reading_consumer_closes_its_fetch_session() -> None:
    world = filled()
    a = reading(world)
    world.run(100)
    a.close()
    assert world.run(2000, until=lambda: not a.alive)
    assert world.requests_of(a, FetchRequest)[-1].session_epoch == -1


def test_after_a_pause_longer_than_the_session_nothing_that_was_buffered_is_delivered() -> None:
    """SIGSTOP, then SIGCONT: the first thing that happens is that time has passed."""
    world = filled()
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


def test_after_a_pause_longer_than_the_poll_interval_nothing_that_was_buffered_is_delivered() -> None:
    world = filled()
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
def test_a_silent_coordinator_for_longer_than_the_session_loses() -> None:
    world = filled()
    a = reading(world)
    world.down = True
    assert world.run(3600, until=lambda: bool(a.changes_of("lost")))


@pytest.mark.parametrize("reaches", [True, False])
def test_a_member_whose_joins_are_lost_has_let_go_before_another_reads_on(reaches: bool) -> None:
    """Whether its requests reach the coordinator, and only the answers are lost, or not even they do (chaos,
    seed 9170: the one that was put out read on what another had read and committed)."""
    world = World({"t": 2})
    options = {**GROUP, "partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": 6_000}
    a = world.consumer(**options)
    a.subscribe("t")
    assert world.run(20_000, until=lambda: len(a.owned) == 2)
    swallowed: list[Any] = []

    def swallow(client: Client, request: Any, version: int) -> None:
        began = bool(swallowed) or isinstance(request, JoinGroupRequest)
        if client is a and began and isinstance(request, JoinGroupRequest | HeartbeatRequest):
            swallowed.append(request)
            for wire in world.network.wires.values():
                if wire.client is a:
                    wire.up.lost, wire.down.lost = not reaches, True

    world.tamper = swallow
    b = world.consumer(**options)
    b.subscribe("t")
    assert world.run(60_000, until=lambda: len(b.owned) == 2)
    assert len(a.changes_of("lost")) == 1
    assert a.owned == set()
    assert any(isinstance(request, HeartbeatRequest) for request in swallowed)
