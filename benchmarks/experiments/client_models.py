"""Measure how many events per second the models of other clients process.

    python -m benchmarks.experiments.client_models [--rounds 5] [--minutes 3]

Two members of a group run for `--minutes` virtual minutes against the embedded broker. 10 records arrive per
second, both members commit every second, the topic grows once, and the second member joins later. An event is
any input of a model's `step`: responses, whose records the model decodes, polls, ticks and calls of the
application.

* step: the CPU time of `step` and `next_deadline` while new members replay the recorded events, without that
  of the replay loop. The actions must equal the recorded ones.
* world: all CPU time of the recorded run, with broker, network, codecs and application.

Rates are medians over the rounds. A ratio compares a model with kafka-go's in the same round. The goal is
100,000 events per second for `step`.

Results in thousands of events per second, on an EPYC with two busy cores, Python 3.11, 2 rounds of half a
minute:

    model     java    java-2.6    sarama    sarama-cluster    kafka-go    librdkafka
    step      99      101         96        113               110         104
    world     13      14          12        12                10          12

An event takes 35,000 to 47,000 instructions on average. A Fetch response, with the next request, takes
several times that.
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
REFERENCE = "kafka-go"
# An event, its time, the index of the request that it answers (or None), and the actions of the model.
Step = tuple[c.ModelEvent, int, int | None, list[c.ModelAction]]


@dataclass
class Recording:
    """The recorded steps of one member."""

    config: c.ModelConfig
    new_random: Callable[
        [], Callable[[], float]
    ]  # Returns a new source of the same random numbers that the member used.
    steps: list[Step] = field(default_factory=list)
    # id() of each request -> its index. The steps keep the requests alive, so that no id is reused.
    requests: dict[int, int] = field(default_factory=dict)


class Recorder:
    """A client model that records the events and actions of its members."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model = model
        self.VERSIONS = model.VERSIONS
        self.HEARS_DISCONNECTS = getattr(model, "HEARS_DISCONNECTS", False)
        self.next_deadline = model.next_deadline
        self.seed = seed
        self.recordings: dict[int, Recording] = {}
        self.states: list[Any] = []

    def start(self, config: c.ModelConfig) -> Any:
        def new_random() -> Callable[[], float]:
            return Random(f"{self.seed}/{config.client_id}").random

        state = self.model.start(replace(config, random=new_random()))
        self.states.append(state)
        self.recordings[id(state)] = Recording(config, new_random)
        return state

    def step(self, state: Any, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
        recording = self.recordings[id(state)]
        request_index = (
            recording.requests[id(event.request)]
            if isinstance(event, (c.ResponseReceived, c.RequestFailed))
            else None
        )
        actions: list[c.ModelAction] = self.model.step(state, event, now)
        for action in actions:
            if isinstance(action, c.SendRequest):
                recording.requests[id(action.request)] = len(recording.requests)
        recording.steps.append((event, now, request_index, actions))
        return actions


def record_group(name: str, minutes: float, seed: int) -> tuple[Recorder, float]:
    """Run a group of two members; return the recorder and the CPU time of the whole world in ns."""
    recorder = Recorder(load_model(name), seed)
    world = World({"t": 4}, seed=seed, trace=False)
    options: dict[str, Any] = {"topics": ["t"], "group_id": "g", "reset": "earliest", "auto_commit_ms": 1_000}
    begun = thread_time_ns()
    world.join("a", recorder, **options)
    for tenth in range(int(minutes * 600)):
        if tenth == 100:
            world.join("b", recorder, **options)
        if tenth == 400:
            world.grow("t", 6)
        world.write("t", tenth % 4, "x")
        world.run(100)
    return recorder, thread_time_ns() - begun


class EmptyModel:
    """A model that returns the recorded actions without any work, to measure the replay loop itself."""

    def __init__(self, recording: Recording) -> None:
        self.recorded_actions = [actions for *_, actions in recording.steps]

    def start(self, config: c.ModelConfig) -> Any:
        return iter(self.recorded_actions)

    @staticmethod
    def step(state: Any, event: c.ModelEvent, now: int) -> list[c.ModelAction]:
        actions: list[c.ModelAction] = next(state)
        return actions

    @staticmethod
    def next_deadline(state: Any) -> None:
        return None


def time_replay(model: Any, recording: Recording) -> float:
    """Return the CPU time in ns of the recorded steps with a new member."""
    step, next_deadline = model.step, model.next_deadline
    state = model.start(replace(recording.config, random=recording.new_random()))
    requests: list[Any] = []
    begun = thread_time_ns()
    for event, now, request_index, _ in recording.steps:
        if request_index is not None:
            event = readdress(event, requests[request_index])
        actions = step(state, event, now)
        next_deadline(state)
        for action in actions:
            if type(action) is c.SendRequest:
                requests.append(action.request)
    return thread_time_ns() - begun


def time_steps(model: Any, recording: Recording) -> float:
    """Return the CPU time in ns of the recorded steps, without that of the replay loop."""
    return time_replay(model, recording) - time_replay(EmptyModel(recording), recording)


def is_deterministic(model: Any, recording: Recording) -> bool:
    """Return whether a new member answers the recorded events with the recorded actions."""
    state = model.start(replace(recording.config, random=recording.new_random()))
    requests: list[Any] = []
    for event, now, request_index, recorded_actions in recording.steps:
        if request_index is not None:
            event = readdress(event, requests[request_index])
        actions = model.step(state, event, now)
        requests += [action.request for action in actions if isinstance(action, c.SendRequest)]
        if actions != recorded_actions:
            return False
    return True


def readdress(event: Any, request: Any) -> c.ModelEvent:
    """Return a copy of the recorded response or failure that belongs to this request of the new member."""
    if type(event) is c.ResponseReceived:
        return c.ResponseReceived(request, event.response, event.version)
    return structs.replace(event, request=request)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=3, help="minutes of virtual time (default: 3)")
    arguments = parser.parse_args()
    names = model_names()
    step_rates: dict[str, list[float]] = {name: [] for name in names}
    world_rates: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(arguments.rounds):
        for name in names:
            recorder, world_ns = record_group(name, arguments.minutes, seed)
            recordings = recorder.recordings.values()
            events = sum(len(recording.steps) for recording in recordings)
            if not all(is_deterministic(recorder.model, recording) for recording in recordings):
                raise AssertionError(f"{name}: the replay differs from the recording")
            gc.freeze()
            world_rates[name].append(events / world_ns * 1e9)
            steps_ns = sum(time_steps(recorder.model, recording) for recording in recordings)
            step_rates[name].append(events / steps_ns * 1e9)
    print(report.machine("kproto"))
    print()
    report.header("client", "step, events/s", "us per event", f"x {REFERENCE}", "goal", "world, events/s")
    for name in names:
        rate = statistics.median(step_rates[name])
        ratio = statistics.median(
            own / reference for own, reference in zip(step_rates[name], step_rates[REFERENCE], strict=True)
        )
        reached = "reached" if rate >= GOAL else f"missed, {rate / GOAL:.2f} of it"
        world = f"{statistics.median(world_rates[name]):,.0f}"
        report.row(name, f"{rate:,.0f}", f"{1e6 / rate:.1f}", ratio, reached, world)


if __name__ == "__main__":
    main()
