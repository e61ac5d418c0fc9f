"""A group whose committed offsets are greater than the end of a truncated log."""

from __future__ import annotations

from typing import Any

from tests.consumer.stage import Consumer, World, tp

T0 = tp("t", 0)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1000,
    "auto_commit_interval_ms": 100,
}


def committed_world() -> World:
    """Return a cluster with ten records of epoch 0. A group has read them, and has committed offset 10."""
    world = World({"t": 1})
    world.write("t", 0, *map(str, range(5)))
    world.write("t", 0, *map(str, range(5, 10)))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: world.committed("g", T0) == 10)
    a.close()
    assert world.run(until=lambda: not a.alive)
    return world


def new_member(world: World, **options: Any) -> Consumer:
    """Add a consumer of the group, subscribed to `t`."""
    b = world.consumer(**{**GROUP, **options})
    b.subscribe("t")
    return b


def truncate(world: World, offset: int) -> None:
    """Truncate the log by an unclean leader election: a new leader epoch begins at this offset."""
    world.truncate("t", 0, offset)
