"""How many events a second the clients' machines take: two members of a group before the embedded broker.

    python -m benchmarks.machines [--rounds 5] [--minutes 3]

Only the CPU time inside of `step` and `next_deadline` counts, not the world around them: what an event costs
is the median over the rounds. An event is whatever a world tells a machine: answers, polls, ticks, the
application's wishes. Records come at 10 a second, both members commit each second, the topic grows once and
one member comes later than the other. A ratio is that of a round to kafka-go's in the same round.

The goal is 100,000 events a second for each: then a year of a quiet group is a coffee break.
"""

from __future__ import annotations

import argparse
import statistics
from time import thread_time_ns
from typing import Any

from kproto.clients.index import available, client
from kproto.testing.world import World

from . import report

GOAL = 100_000
YARDSTICK = "kafka-go"


class Timed:
    """A client's module, with a stop watch around its machine."""

    def __init__(self, machine: Any, watch_ns: float) -> None:
        self.machine = machine
        self.VERSIONS = machine.VERSIONS
        self.HEARS_DISCONNECTS = getattr(machine, "HEARS_DISCONNECTS", False)
        self.start = machine.start
        self.watch_ns = watch_ns
        self.events = 0
        self.ns = 0.0

    def step(self, state: Any, event: Any, now: int) -> Any:
        begun = thread_time_ns()
        actions = self.machine.step(state, event, now)
        self.ns += thread_time_ns() - begun - self.watch_ns
        self.events += 1
        return actions

    def next_deadline(self, state: Any) -> int | None:
        begun = thread_time_ns()
        at: int | None = self.machine.next_deadline(state)
        self.ns += thread_time_ns() - begun - self.watch_ns
        return at


def watch_ns() -> float:
    """What looking at the clock twice costs by itself."""
    found = []
    for _ in range(20_000):
        begun = thread_time_ns()
        found.append(thread_time_ns() - begun)
    return statistics.median(found)


def lived(name: str, minutes: float, seed: int, watch: float) -> Timed:
    """A group's life; the machine with its times."""
    timed = Timed(client(name), watch)
    world = World({"t": 4}, seed=seed, trace=False)
    said: dict[str, Any] = {"topics": ["t"], "group_id": "g", "reset": "earliest", "auto_commit_ms": 1_000}
    world.join("a", timed, **said)
    for tenth in range(int(minutes * 600)):
        if tenth == 100:
            world.join("b", timed, **said)
        if tenth == 400:
            world.grow("t", 6)
        world.write("t", tenth % 4, "x")
        world.run(100)
    return timed


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=3, help="of virtual time")
    given = parser.parse_args()
    watch = watch_ns()
    names = available()
    rates: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(given.rounds):
        for name in names:
            timed = lived(name, given.minutes, seed, watch)
            rates[name].append(timed.events / (timed.ns / 1e9))
    print(report.machine("kproto"))
    print()
    report.header("client", "events/s", "us an event", f"x {YARDSTICK}", "goal")
    for name in names:
        rate = statistics.median(rates[name])
        ratio = statistics.median(
            own / other for own, other in zip(rates[name], rates[YARDSTICK], strict=True)
        )
        reached = "reached" if rate >= GOAL else f"{rate / GOAL:.2f} of it"
        report.row(name, f"{rate:,.0f}", f"{1e6 / rate:.1f}", ratio, reached)


if __name__ == "__main__":
    main()
