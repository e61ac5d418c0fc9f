"""Worlds (simulated clusters) with a group of two members."""

from __future__ import annotations

from typing import Any

from kproto.testing.world import Consumer, World

GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1_000,
    "request_timeout_ms": 2_000,
    "fetch_max_wait_ms": 1_000,
}


def two_members(**options: Any) -> tuple[World, Consumer, Consumer]:
    """Return a simulated cluster with two members that share four partitions, each with two records."""
    world = World({"t": 4}, **options)
    a, b = (world.join(name, topics=["t"], **GROUP) for name in "ab")
    for partition in range(4):
        world.write("t", partition, "x", "y")
    assert world.run(until=lambda: world.is_stable("g") and len(a.owned) == len(b.owned) == 2)
    return world, a, b


def mixed_run(seed: int) -> World:
    """Return a simulated cluster in which two members have run with faults.

    The faults are a network delay and the crash of a member. In addition, partitions are added, and the
    coordinator and the leader of a partition move.
    """
    world, a, b = two_members(seed=seed, brokers=2, latency=(1, 9))
    world.fault("delay", a, ms=40, chance=0.3, lasts=3_000)
    world.run(2_000)
    world.grow("t", 6)
    world.move_coordinator("g", 1, loading_ms=30)
    world.run(2_000)
    b.commit()
    world.kill(b)
    world.elect("t", 0, 2)
    world.run(6_000)
    a.close()
    world.run(2_000)
    return world
