"""Measure what an hour of a group costs in a `World`, the simulated cluster of `kproto.testing`.

    python -m benchmarks.world [--rounds 3] [--minutes 60] [--members 3]

The members read one topic of three partitions from one broker. The clock starts when the group is stable. The
results are seconds of CPU time for an hour of virtual time, scaled up if `--minutes` is less than 60, and the
number of turns (events) in that hour. The worlds:

    idle             no records. Each member fetches twice and polls once per second (the defaults).
    idle, long polls `fetch_max_wait_ms` and `poll_timeout_ms` are 10 s: a member sends one heartbeat every
                     3 s, and one fetch every 10 s.
    idle, traced     as "idle", with `trace=True`, the default of `World`: requests and responses are kept.
    3 records/s      another producer writes three batches per second, of one record each.

Results on a Xeon with two busy cores, Python 3.11, measured in slices of 30 s to 2 min of virtual time, in s:

    world               median    minimum
    idle                   5.7        4.3
    idle, long polls       1.0        0.9
    idle, traced           5.0        4.4
    3 records/s           12.6       10.2

No single part dominates: a turn without records costs 45 to 60 us. For each idle fetch the request is
encoded, decoded and delayed by the broker, and the response is encoded and decoded. Brokers and clients are
those that also run on sockets.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from kproto.testing.world import World

from .report import header, machine, row

HOUR_MS = 3_600_000
LONG_POLL_MS = 10_000
# The goal for a world with long polls, in seconds of CPU per hour.
GOAL_S = 1.0


def create_idle_world(members: int, *, trace: bool = False, **options: Any) -> World:
    world = World({"flights": 3}, seed=7, trace=trace)
    for number in range(members):
        world.join(f"member{number}", topics=["flights"], group_id="g", **options)
    return world


def create_world_with_long_polls(members: int) -> World:
    world = create_idle_world(members, fetch_max_wait_ms=LONG_POLL_MS)
    for client in world.clients.values():
        client.poll_timeout_ms = LONG_POLL_MS  # type: ignore[attr-defined]
    return world


def create_world_with_records(members: int) -> World:
    world = create_idle_world(members)
    count = 0

    def write() -> None:
        nonlocal count
        world.write("flights", count % 3, f"value {count}")
        count += 1
        world.call_later(1000 // 3, write)

    world.call_later(0, write)
    return world


WORLDS: dict[str, Callable[[int], World]] = {
    "idle": create_idle_world,
    "idle, long polls": create_world_with_long_polls,
    "idle, traced": lambda members: create_idle_world(members, trace=True),
    "3 records/s": create_world_with_records,
}


def measure_hour(world: World, minutes: int) -> tuple[float, int]:
    """Return the seconds of CPU time and the turns of an hour, of which `minutes` are measured."""
    assert world.run(60_000, until=lambda: world.is_stable("g"))
    world.run(2 * LONG_POLL_MS)
    scale, turns, start = 60 / minutes, world.turns, time.thread_time()
    world.run(HOUR_MS * minutes // 60)
    return (time.thread_time() - start) * scale, round((world.turns - turns) * scale)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=int, default=60)
    parser.add_argument("--members", type=int, default=3)
    arguments = parser.parse_args()
    print(machine("kproto"))
    print(f"{arguments.members} members; CPU seconds per virtual hour, median and minimum")
    header("world", "CPU s", "minimum", "turns", "us per turn", f"below {GOAL_S:g} s")
    for name, create_world in WORLDS.items():
        results = [
            measure_hour(create_world(arguments.members), arguments.minutes) for _ in range(arguments.rounds)
        ]
        seconds, turns = [result[0] for result in results], results[0][1]
        median = statistics.median(seconds)
        reached = "yes" if median < GOAL_S else "NO"
        row(name, median, min(seconds), turns, f"{median / turns * 1e6:.0f}", reached)


if __name__ == "__main__":
    main()
