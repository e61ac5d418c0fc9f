"""Each mutant (the engine with one mistake) breaks its invariant; the original engine breaks none."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kproto.testing import invariants
from kproto.testing.schedules import play
from kproto.testing.world import World, tp
from tests.testing.engine_mutants import MUTANTS

pytestmark = pytest.mark.thorough

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1_000,
    "request_timeout_ms": 2_000,
    "auto_commit_interval_ms": 400,
    "max_poll_interval_ms": 6_000,
}
SEEDS = range(6)


def seeks_and_pauses() -> World:
    """Seek and pause while records are buffered and fetches are in flight."""
    world = World({"t": 1})
    for _ in range(20):
        world.write("t", 0, *["x"] * 5)
    a = world.join("a", topics=["t"], **GROUP, max_poll_records=3)
    a.works_ms = 10
    world.run(until=lambda: len(a.records) > 20)
    for offset in (2, 60, 7):
        a.seek(tp("t", 0), offset)
        world.run(25)
    a.pause(tp("t", 0))
    world.run(200)
    a.resume(tp("t", 0))
    a.limit, a.works_ms = 500, 0
    world.run(3_000)
    a.seek(tp("t", 0), 3)  # Seek while a fetch waits at the end of the log. Then write the next record.
    world.write("t", 0, "z")
    world.run(3_000)
    return world


def a_seek_behind_the_end() -> World:
    """Seek beyond the end of the log, write records after the reset, and seek to a timestamp."""
    world = World({"t": 1})
    a = world.join("a", topics=["t"], **GROUP)
    world.run(until=lambda: bool(a.owned))
    a.seek(tp("t", 0), 5)
    world.run(2_000)
    world.write("t", 0, "x", "y")
    world.run(2_000)
    a.seek_to(world.now + 1, tp("t", 0))
    world.run(2_000)
    world.write("t", 0, "z")
    world.run(2_000)
    return world


def a_calm_handover(*strategies: str) -> World:
    world = World({"t": 4})
    options = {
        **GROUP,
        "partition_assignment_strategy": strategies or ("range",),
        "auto_commit_interval_ms": 60_000,
    }
    a = world.join("a", topics=["t"], **options)
    for partition in range(4):
        world.write("t", partition, "x", "y")
    world.run(3_000)
    b = world.join("b", topics=["t"], **options)
    world.run(5_000)
    for partition in range(4):
        world.write("t", partition, "z")
    world.run(2_000)
    b.close()
    world.run(5_000)
    assert a.alive
    return world


def a_cooperative_handover() -> World:
    world = World({"t": 4})
    options = {**GROUP, "partition_assignment_strategy": "cooperative-sticky"}
    a = world.join("a", topics=["t"], **options)
    world.run(3_000)
    before = world.turns
    owned = {"a": set(a.owned)}
    b = world.join("b", topics=["t"], **options)
    world.run(5_000)
    invariants.a_cooperative_rebalance_takes_two_rounds(world, "g", before)
    invariants.a_cooperative_rebalance_moves_no_more_than_it_must(owned, {"a": a.owned, "b": b.owned})
    return world


def a_coordinator_that_loads() -> World:
    """Fetch committed offsets while the new coordinator still loads them."""
    world = World({"t": 2}, brokers=2)
    a = world.join("a", topics=["t"], **GROUP)
    for partition in range(2):
        world.write("t", partition, "x", "y")
    world.run(3_000)

    def tamper(client: Any, request: Any, version: int) -> Any:
        if type(request).__name__ != "OffsetFetchRequest" or client.name != "b" or len(busy) > 2:
            return None
        busy.append(request)
        return world.cluster.coordinator.error_response(
            request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, version
        )

    from kproto.error_codes import ErrorCode

    busy: list[Any] = []
    world.tamper = tamper
    a.close()
    world.run(500)
    world.join("b", topics=["t"], **GROUP)
    world.run(5_000)
    return world


def error_response(world: World, request: Any, error: Any, version: int) -> Any:
    """Return the coordinator's response that reports only this error."""
    return world.cluster.coordinator.error_response(request, error, version)


def a_silent_cluster() -> World:
    """Stall the cluster forever: each pending call must end at its timeout."""
    world = World({"t": 2})
    a = world.join("a", topics=["t"], **{**GROUP, "auto_commit_interval_ms": 60_000})
    world.write("t", 0, "x")
    world.run(2_000)
    world.write("t", 0, "y")
    world.run(100)
    world.fault("stall")
    a.commit(timeout_ms=300)
    world.run(3_000)
    a.commit(timeout_ms=300)
    world.run(2_000)
    a.close(timeout_ms=500)
    world.run(10_000)
    return world


def a_close_into_silence() -> World:
    world = World({"t": 2})
    a = world.join("a", topics=["t"], **{**GROUP, "auto_commit_interval_ms": 60_000})
    world.run(2_000)
    world.write("t", 0, "x")
    world.run(100)
    world.fault("stall")
    a.close(timeout_ms=500)
    world.run(10_000)
    return world


def an_impossible_topic() -> World:
    world = World({"t": 1})
    world.join("a", topics=["t", "not a topic"], **GROUP)
    world.run(3_000)
    return world


def leaders_that_move() -> World:
    world = World({"t": 3}, brokers=3)
    world.join("a", topics=["t"], **{**GROUP, "metadata_max_age_ms": 60_000})
    world.run(1_000)
    for node in (2, 3, 1):
        for partition in range(3):
            world.elect("t", partition, node)
            world.write("t", partition, "x", "y", "z")
        world.run(1_500)
    world.run(5_000)
    return world


def partitions_that_come_later() -> World:
    world = World({"t": 1})
    world.join("a", topics=["t"], **GROUP)
    world.run(2_000)
    world.grow("t", 3)
    for partition in range(3):
        world.write("t", partition, "x", "y")
    world.run(10_000)
    return world


def a_commit_that_fails_on_the_way_out() -> World:
    world = World({"t": 4}, brokers=2)
    no_auto_commit = {"auto_commit_interval_ms": 60_000}
    a, _ = (world.join(name, topics=["t"], **{**GROUP, **no_auto_commit}) for name in "ab")
    world.run(2_000)
    for partition in range(4):
        world.write("t", partition, "x")
    world.run(500)

    def tamper(client: Any, request: Any, version: int) -> Any:
        is_commit = type(request).__name__ == "OffsetCommitRequest"
        return (
            error_response(world, request, ErrorCode.GROUP_AUTHORIZATION_FAILED, version)
            if is_commit
            else None
        )

    from kproto.error_codes import ErrorCode

    world.tamper, world.had_fault = tamper, True
    a.commit()
    world.join("c", topics=["t"], **GROUP)
    world.run(10_000)
    world.tamper = None
    world.run(20_000)
    return world


def a_long_sleep() -> World:
    world = World({"t": 4})
    a, _ = (world.join(name, topics=["t"], **GROUP) for name in "ab")
    world.run(3_000)
    a.freeze(8_000)
    for partition in range(4):
        world.write("t", partition, "x")
    world.run(30_000)
    return world


def a_commit_that_hangs() -> World:
    """Stall only the coordinator: records that are written during the stall must be read."""
    world = World({"t": 2}, brokers=2)
    for partition in range(2):
        world.elect("t", partition, 1)
    world.move_coordinator("g", 2)
    a = world.join("a", topics=["t"], **{**GROUP, "session_timeout_ms": 30_000, "max_poll_records": 5})
    for partition in range(2):
        world.write("t", partition, "x", "y")
    world.run(3_000)
    world.fault("stall", a, node=2, lasts=3_000)
    a.commit({tp("t", 0): 1}, timeout_ms=10_000)
    for partition in range(2):
        world.write("t", partition, *["z"] * 20)
    world.run(1_500)
    invariants.a_commit_blocks_no_fetch(world, a)
    world.run(15_000)
    return world


def commits_that_meet_a_rebalance() -> World:
    """Commit after the coordinator has started a rebalance, before the member knows about it."""
    world = World({"t": 2})
    a = world.join("a", topics=["t"], **GROUP)
    for partition in range(2):
        world.write("t", partition, *["x"] * 5)
    world.run(3_000)

    def tamper(client: Any, request: Any, version: int) -> Any:
        is_rejected = type(request).__name__ == "OffsetCommitRequest" and len(busy) < 3
        if is_rejected:
            busy.append(request)
        return (
            error_response(world, request, ErrorCode.REBALANCE_IN_PROGRESS, version) if is_rejected else None
        )

    from kproto.error_codes import ErrorCode

    busy: list[Any] = []
    world.tamper = tamper
    a.commit({tp("t", 0): 3})
    world.run(5_000)
    return world


SCHEDULES: list[Callable[[], World]] = [
    seeks_and_pauses,
    a_seek_behind_the_end,
    a_calm_handover,
    a_coordinator_that_loads,
    a_silent_cluster,
    a_close_into_silence,
    an_impossible_topic,
    leaders_that_move,
    partitions_that_come_later,
    a_commit_that_fails_on_the_way_out,
    a_long_sleep,
    a_commit_that_hangs,
    commits_that_meet_a_rebalance,
]
# Schedules after which the world is not stable: invariants that need a stable world are not checked.
NEVER_SETTLED = {an_impossible_topic, a_silent_cluster, a_close_into_silence}


@pytest.mark.rule("I2", "I16")
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: schedule.__name__)
def test_the_original_engine_keeps_every_invariant(schedule: Callable[[], World]) -> None:
    world = schedule()
    invariants.check(world, *invariants.ALWAYS, *invariants.HISTORY)
    if schedule not in NEVER_SETTLED:
        invariants.check(world, *invariants.AT_REST)


def test_a_cooperative_handover_is_short_and_small() -> None:
    invariants.check(a_cooperative_handover())


def is_killed(invariant: invariants.Invariant) -> bool:
    if invariant is invariants.a_cooperative_rebalance_takes_two_rounds:
        return is_broken_by(invariant, a_cooperative_handover)
    return any(is_broken_by(invariant, schedule) for schedule in SCHEDULES) or any(
        is_broken_by(invariant, partial(play, seed, watch=(invariant,))) for seed in SEEDS
    )


def is_broken_by(invariant: invariants.Invariant, schedule: Callable[[], World]) -> bool:
    try:
        world = schedule()
        if invariant in (*invariants.ALWAYS, *invariants.HISTORY, *invariants.AT_REST):
            invariant(world)
    except invariants.InvariantBroken:
        return True
    except TypeError:  # The mutant no longer fits the engine, and must be adapted.
        raise
    except Exception:  # Any other failure of a mutant does not count as a broken invariant.
        return False
    return False


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, invariant = MUTANTS[name]
    change(monkeypatch)
    assert is_killed(invariant), f"{name}: {invariant.__name__} held"
