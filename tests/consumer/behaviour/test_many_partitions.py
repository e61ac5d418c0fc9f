"""Many partitions, most of them without new records, cost few requests and few function calls."""

from __future__ import annotations

import sys
from typing import Any

from kproto.messages.fetch import FetchRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
)
from tests.consumer.engine.stage import (
    GROUP,
)
from tests.consumer.stage import Client, World, tp


def test_the_initial_positions_of_all_partitions_are_saved_by_one_commit() -> None:
    world = World({"t": 300})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(2000)
    assert len(world.requests_of(a, OffsetCommitRequest)) == 1
    assert [world.committed("g", tp("t", index)) for index in range(300)] == [0] * 300
    assert len(world.requests_of(a, JoinGroupRequest)) == 2


def test_a_broker_that_ignores_the_initial_commit_only_delays_reading() -> None:
    world = World({"t": 500})
    a = world.consumer(**GROUP, request_timeout_ms=1000)

    def drop_commits(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetCommitRequest):
            world.cut(client)
        return None

    world.tamper = drop_commits
    a.subscribe("t")
    world.run(10_000)
    world.tamper = None
    world.write("t", 499, "x")
    assert world.run(20_000, until=lambda: a.values() == ["x"])


def calls_for_one_record(partitions: int) -> int:
    """Count the calls of the engine's functions between the append of a record and its delivery."""
    world = World({"t": partitions})
    a = world.consumer(**GROUP, fetch_max_wait_ms=60_000, request_timeout_ms=70_000)
    a.subscribe("t")
    assert world.run(60_000, until=lambda: len(a.owns()) == partitions)
    world.run(3_000)
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        if event == "call" and "/consumer/engine/" in frame.f_code.co_filename:
            calls += 1

    for number in range(3):
        world.write("t", 0, str(number))
        if number == 2:
            sys.setprofile(count)
        try:
            assert world.run(100, until=lambda number=number: len(a.records) == number + 1)  # type: ignore[misc]
        finally:
            sys.setprofile(None)
    return calls


def test_a_record_costs_no_more_with_a_thousand_idle_partitions() -> None:
    assert calls_for_one_record(1000) <= 1.2 * calls_for_one_record(1)


def test_a_stalled_fetch_connection_is_replaced_within_seconds() -> None:
    """A fetch connection on which the broker answers only ApiVersions is replaced within seconds."""
    world = World({"t": 1})
    world.write("t", 0, "x")
    stalled: list[Any] = []

    def stall(client: Client, request: Any, version: int) -> None:
        if isinstance(request, FetchRequest) and not stalled:
            stalled.append(max(world.network.wires.values(), key=lambda wire: wire.conn))
            stalled[0].up.lost = stalled[0].down.lost = True

    world.tamper = stall
    reader = world.join("c", topics=["t"], group_id="g", auto_offset_reset="earliest")
    started_at = world.now
    assert world.run(60_000, until=lambda: reader.values() == ["x"])
    assert world.now - started_at < 7_000
    assert stalled
