"""The race of document 000 as a table: one program, subscribed and asked at other times, and how each ends.

A program subscribes, waits, and assigns, seeks and polls in each of its requests (`Handler`). What its last
request saw depends on where the group's join was by then, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from .offset_minus_1000 import Handler, Request
from .scenario import Parameters, ScenarioRun


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Times are milliseconds. A member's next join takes `rejoin_ms`; None: no time, as with any broker."""

    join_ms: int = 3_000
    rejoin_ms: int | None = None
    inside: bool = False  # Each request subscribes; else the program does, at its beginning.
    sleep_ms: int = 0  # Between subscribe and seek; nobody polls in it.
    waits: tuple[int, ...] = (0,)  # Before each request.
    polls: int = 4


PROGRAMS: Final = {
    "A: subscribed before, still joining": Program(),
    "B: the same, four seconds later": Program(waits=(0, 4_000)),
    "C: the same, asked after five seconds": Program(waits=(5_000,)),
    "D: the third request, all is answered": Program(waits=(0, 4_000, 4_000)),
    "E: subscribes inside, first request": Program(inside=True),
    "F: the second one, a join takes long": Program(inside=True, rejoin_ms=5_000, waits=(0, 4_000)),
    "F on a broker: it takes no time": Program(inside=True, waits=(0, 4_000)),
    "G: the join ends while it polls": Program(inside=True, polls=20),
    "H: the join takes no time": Program(join_ms=0, inside=True, sleep_ms=20),
    "I: sleeps 100 ms, the join takes longer": Program(inside=True, sleep_ms=100),
    "J: a later request behind such a sleep": Program(inside=True, sleep_ms=100, waits=(0, 4_000)),
}


def played(program: Program, seed: int = 7) -> tuple[Handler, Request]:
    """The application when all is over, and what its last request saw."""
    run = ScenarioRun(Parameters(rejoin_after_ms=program.rejoin_ms, seed=seed))
    handler = Handler(run, join_ms=program.join_ms)
    if not program.inside:
        handler.subscribe()
    last_request: Request | None = None
    for wait in program.waits:
        handler.wait(wait)
        if program.inside:
            handler.subscribe()
            handler.wait(program.sleep_ms)
        last_request = handler.request(program.polls)
    assert last_request is not None  # each program asks once at least
    return handler, last_request


def races(seed: int = 7) -> Iterator[tuple[str, Request]]:
    """What each program is, and what its last request saw."""
    for name, program in PROGRAMS.items():
        yield name, played(program, seed)[1]
