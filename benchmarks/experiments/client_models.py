"""How many events a second the clients' machines take, alone and in a world.

    python -m benchmarks.experiments.client_models [--rounds 5] [--minutes 3]

Two members of a group live for some virtual minutes before the embedded broker: records come at 10 a second,
both commit each second, the topic grows once, and one member comes later than the other. An event is whatever
enters a machine's `step`: answers (with the records in them, decoded by the machine), polls, ticks, the
application's wishes. None is left out, and none is made up.

* step: the same life told once more to fresh machines: all CPU of a loop around `step` and `next_deadline`,
  without that of the loop itself. What the machines do there is held against what they did in the life.
* world: all CPU of the life, with broker, network, codecs and application, for each of its events.

Of both the median over the rounds. A ratio is that of a round to kafka-go's in the same round. The goal is
that a machine steps 100,000 events a second.

Thousands of events a second on an EPYC with two cores while ten processes of others wanted them, too, Python
3.11, 2 rounds of half a minute, step and (world): java 99 (13), java-2.6 101 (14), sarama 96 (12),
sarama-cluster 113 (12), kafka-go 110 (10), librdkafka 104 (12). An event takes 35,000 to 47,000 instructions
on average, a fetch's answer with the next request several times that.
"""

from __future__ import annotations

import argparse
import gc
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from time import thread_time_ns
from typing import Any

from msgspec import structs

from kproto.models import contract as c
from kproto.models.index import load_model, model_names
from kproto.testing.world import World

from .. import report

GOAL = 100_000
YARDSTICK = "kafka-go"
# An event, when it was, which of the machine's requests it answers, and what the machine did.
Step = tuple[c.ModelEvent, int, int | None, list[c.ModelAction]]


@dataclass
class Life:
    """What one member lived through."""

    config: c.ModelConfig
    random: Callable[[], Callable[[], float]]  # A fresh source of what the member drew.
    steps: list[Step] = field(default_factory=list)
    # By identity: which of its requests it is. The steps keep them alive.
    requests: dict[int, int] = field(default_factory=dict)


class Recorder:
    """A client's module that keeps what enters and leaves its machine."""

    def __init__(self, machine: Any, seed: int) -> None:
        self.machine = machine
        self.VERSIONS = machine.VERSIONS
        self.HEARS_DISCONNECTS = getattr(machine, "HEARS_DISCONNECTS", False)
        self.next_deadline = machine.next_deadline
        self.seed = seed
        self.lives: dict[int, Life] = {}
        self.states: list[Any] = []

    def start(self, config: c.ModelConfig) -> Any:
        def drawn() -> Callable[[], float]:
            return Random(f"{self.seed}/{config.client_id}").random

        state = self.machine.start(replace(config, random=drawn()))
        self.states.append(state)
        self.lives[id(state)] = Life(config, drawn)
        return state

    def step(self, state: Any, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
        life = self.lives[id(state)]
        answers = (
            life.requests[id(event.request)]
            if isinstance(event, (c.ResponseReceived, c.RequestFailed))
            else None
        )
        actions: list[c.ModelAction] = self.machine.step(state, event, now)
        for action in actions:
            if isinstance(action, c.SendRequest):
                life.requests[id(action.request)] = len(life.requests)
        life.steps.append((event, now, answers, actions))
        return actions


def lived(name: str, minutes: float, seed: int) -> tuple[Recorder, float]:
    """A group's life, and the ns of CPU that its world took."""
    recorder = Recorder(load_model(name), seed)
    world = World({"t": 4}, seed=seed, trace=False)
    said: dict[str, Any] = {"topics": ["t"], "group_id": "g", "reset": "earliest", "auto_commit_ms": 1_000}
    begun = thread_time_ns()
    world.join("a", recorder, **said)
    for tenth in range(int(minutes * 600)):
        if tenth == 100:
            world.join("b", recorder, **said)
        if tenth == 400:
            world.grow("t", 6)
        world.write("t", tenth % 4, "x")
        world.run(100)
    return recorder, thread_time_ns() - begun


class Silent:
    """A machine that does what was done, and nothing for it: what telling costs by itself."""

    def __init__(self, life: Life) -> None:
        self.did = [actions for *_, actions in life.steps]

    def start(self, config: c.ModelConfig) -> Any:
        return iter(self.did)

    @staticmethod
    def step(state: Any, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
        actions: list[c.ModelAction] = next(state)
        return actions

    @staticmethod
    def next_deadline(state: Any) -> None:
        return None


def told(machine: Any, life: Life) -> float:
    """The ns of CPU of the same life in a fresh machine."""
    step, next_deadline = machine.step, machine.next_deadline
    state = machine.start(replace(life.config, random=life.random()))
    requests: list[Any] = []
    begun = thread_time_ns()
    for event, now, answers, _ in life.steps:
        actions = step(state, event if answers is None else addressed(event, requests[answers]), now)
        next_deadline(state)
        for action in actions:
            if type(action) is c.SendRequest:
                requests.append(action.request)
    return thread_time_ns() - begun


def stepped(machine: Any, life: Life) -> float:
    """The same without the loop around it."""
    return told(machine, life) - told(Silent(life), life)


def is_the_same(machine: Any, life: Life) -> bool:
    """Whether a fresh machine does in the same life what the first one did."""
    state = machine.start(replace(life.config, random=life.random()))
    requests: list[Any] = []
    for event, now, answers, did in life.steps:
        told = event if answers is None else addressed(event, requests[answers])
        actions = machine.step(state, told, now)
        requests += [action.request for action in actions if isinstance(action, c.SendRequest)]
        if actions != did:
            return False
    return True


def addressed(event: Any, request: Any) -> c.ModelEvent:
    """An answer, or a failure, of a request that the fresh machine itself sent."""
    if type(event) is c.ResponseReceived:
        return c.ResponseReceived(request, event.response, event.version)
    return structs.replace(event, request=request)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=3, help="of virtual time")
    given = parser.parse_args()
    names = model_names()
    alone: dict[str, list[float]] = {name: [] for name in names}
    whole: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(given.rounds):
        for name in names:
            recorder, taken = lived(name, given.minutes, seed)
            lives = recorder.lives.values()
            events = sum(len(life.steps) for life in lives)
            if not all(is_the_same(recorder.machine, life) for life in lives):
                raise AssertionError(f"{name}: told again, the machine did something else")
            gc.freeze()
            whole[name].append(events / taken * 1e9)
            alone[name].append(events / sum(stepped(recorder.machine, life) for life in lives) * 1e9)
    print(report.machine("kproto"))
    print()
    report.header("client", "step, events/s", "us an event", f"x {YARDSTICK}", "goal", "world, events/s")
    for name in names:
        rate = statistics.median(alone[name])
        ratio = statistics.median(
            own / other for own, other in zip(alone[name], alone[YARDSTICK], strict=True)
        )
        reached = "reached" if rate >= GOAL else f"{rate / GOAL:.2f} of it"
        world = f"{statistics.median(whole[name]):,.0f}"
        report.row(name, f"{rate:,.0f}", f"{1e6 / rate:.1f}", ratio, reached, world)


if __name__ == "__main__":
    main()
