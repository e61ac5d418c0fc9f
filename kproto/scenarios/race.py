"""The race of lesson 000 as a table: one program with different timings, and the outcome of each.

A program subscribes and waits. In each HTTP request (`PollingHandler`) it assigns, seeks and polls.

The outcome of the program's last request depends only on the progress of librdkafka's join at that time. The
join consists of JoinGroup, SyncGroup, and the event for the application.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .offset_minus_1000 import PollingHandler, Request
from .parameters import Parameters
from .scenario import ScenarioRun


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceProgram:
    """The timings of the program, in ms. Joins after the first take `rejoin_ms`, or no time if it is None."""

    join_ms: int = 3_000
    rejoin_ms: int | None = None
    # Whether the program subscribes in each HTTP request, instead of once at its start.
    inside: bool = False
    # How long the program sleeps in each HTTP request, between subscribe and seek.
    sleep_ms: int = 0
    # How long the program waits before each HTTP request; one entry per request.
    waits: tuple[int, ...] = (0,)
    polls: int = 4


PROGRAMS: Final = {
    "A: subscribed before, still joining": RaceProgram(),
    "B: the same, four seconds later": RaceProgram(waits=(0, 4_000)),
    "C: the same, asked after five seconds": RaceProgram(waits=(5_000,)),
    "D: the third request, all is answered": RaceProgram(waits=(0, 4_000, 4_000)),
    "E: subscribes inside, first request": RaceProgram(inside=True),
    "F: the second one, a join takes long": RaceProgram(inside=True, rejoin_ms=5_000, waits=(0, 4_000)),
    "F on a broker: it takes no time": RaceProgram(inside=True, waits=(0, 4_000)),
    "G: the join ends while it polls": RaceProgram(inside=True, polls=20),
    "H: the join takes no time": RaceProgram(join_ms=0, inside=True, sleep_ms=20),
    "I: sleeps 100 ms, the join takes longer": RaceProgram(inside=True, sleep_ms=100),
    "J: a later request behind such a sleep": RaceProgram(inside=True, sleep_ms=100, waits=(0, 4_000)),
}


def play_program(program: RaceProgram, seed: int = 7) -> tuple[PollingHandler, Request]:
    """Run the program; return the application in its final state, and the outcome of its last request."""
    run = ScenarioRun(Parameters(rejoin_after_ms=program.rejoin_ms, seed=seed))
    handler = PollingHandler(run, join_ms=program.join_ms)
    if not program.inside:
        handler.subscribe()
    last_request: Request | None = None
    for wait in program.waits:
        handler.wait(wait)
        if program.inside:
            handler.subscribe()
            handler.wait(program.sleep_ms)
        last_request = handler.request(program.polls)
    assert last_request is not None  # `waits` has at least one item.
    return handler, last_request


def races(seed: int = 7) -> Iterator[tuple[str, Request]]:
    """Yield the name of each program and the outcome of its last request."""
    for name, program in PROGRAMS.items():
        yield name, play_program(program, seed)[1]
