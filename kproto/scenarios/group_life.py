"""Draw the picture of a group's life at the top of README, as `kproto show --life FILE` does.

`page(world)` draws the group of any world.

In the picture, a member reads six partitions. Two members join, one of them is killed, and the topic grows.
Time is virtual, so the picture is the same on every machine.
"""

from __future__ import annotations

from typing import Any

from ..errors import IllegalState
from ..inspect import diagrams
from ..testing.world import World
from ..testing.world.state import START
from . import history
from .scenario import Act

_OPTIONS: dict[str, Any] = {
    "group_id": "readers",
    "auto_offset_reset": "earliest",
    "partition_assignment_strategy": "cooperative-sticky",
    "session_timeout_ms": 3_000,
    "heartbeat_interval_ms": 500,
    "metadata_max_age_ms": 1_000,
}


def play_group_life() -> Act:
    """Run a group through joins, a crash and the growth of its topic; return the run as an `Act`."""
    world = World({"flights": 6}, seed=7, settings={"group.initial.rebalance.delay.ms": "0"})
    act = Act(world, world.now)
    world.join("a", topics=["flights"], **_OPTIONS)
    world.run(2_000)
    world.join("b", topics=["flights"], **_OPTIONS)
    world.run(2_000)
    world.join("c", topics=["flights"], **_OPTIONS)
    world.run(3_000)
    world.kill("b")
    world.run(5_000)
    world.grow("flights", 8)
    world.run(3_000)
    return act


def page(world: World, title: str = "A group's life") -> str:
    """Render a world as a page with the group's timeline and the members' requests.

    Raises IllegalState for a world in which no member was started.
    """
    act = Act(world, START)
    events, picked = history.events(act), history.picked(act)
    if not events:
        raise IllegalState("nothing happened in this world; call join() and run() first")
    parts = [diagrams.section(events, 0), *([diagrams.conversation(picked)] if picked else [])]
    return diagrams.page(title, [], parts)


def drawn() -> str:
    """Draw the picture as SVG."""
    return diagrams.picture(history.events(play_group_life()), 820)
