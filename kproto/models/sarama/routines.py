"""Goroutines as machines: what every part of sarama's model is made of.

Go runs sarama as many small programs that wait for each other. Here each of them is a `Routine`: a state, a
table from what happens to a handler, and nothing that waits. One `Scheduler` runs them all in one thread:

* A routine is woken by name: `wake(routine, "answered", answer)` is one row of its table. Wakes are run in
  the order in which they were made, after the present handler: as goroutines do that become ready together.
* A handler that goes on without waiting goes on at once, before anybody who was woken: so does a goroutine
  that has the processor. Go runs whom a goroutine made ready last before those it had made ready earlier: so
  who waits for a lock, and a goroutine that is new, come one turn later than who was told something over a
  channel. That decides the order of requests.
* A `select` is a handler that looks at flags: whoever closes a channel sets the flag and nudges.
* Every routine has at most one timer. Go's tickers are a deadline that keeps its rhythm: ticks that nobody
  takes are one (the channel holds one).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

from ...machine import Edges, move
from ..contract import ModelAction

Handler = Callable[[Any, Any], None]
Table = Mapping[str, Mapping[Enum, Handler]]


class States(Enum):
    """The states of one kind of routine; compared and hashed as objects, which is quick."""

    __hash__ = object.__hash__


class Scheduler:
    """Who is ready, and who waits for what time. `out` collects the actions of the present step."""

    def __init__(self) -> None:
        self.now = 0
        self.out: list[ModelAction] = []
        self._ready: deque[tuple[Routine, str, Any]] = deque()
        self._timers: list[tuple[int, int, Routine]] = []
        self._timer_count = 0

    def wake(self, routine: Routine, signal: str, payload: Any = None) -> None:
        """Let `signal` happen to `routine` once everybody who was ready before has had a turn."""
        self._ready.append((routine, signal, payload))

    def resume(self, routine: Routine, signal: str, payload: Any = None) -> None:
        """Return from a call to the routine that made it: the same goroutine, which goes on at once."""
        routine.TABLE[signal][routine.state](routine, payload)

    def run(self) -> None:
        """Let everybody who is ready go on, until all wait."""
        ready = self._ready
        while ready:
            routine, signal, payload = ready.popleft()
            routine.TABLE[signal][routine.state](routine, payload)

    def sleep(self, routine: Routine, until: int) -> None:
        """Wake `routine` with "elapsed" at `until`; takes the place of its older timer."""
        self._timer_count += 1
        routine.timer = self._timer_count
        heapq.heappush(self._timers, (until, self._timer_count, routine))

    def expire(self) -> None:
        """Wake everybody whose time has come, in the order of the times."""
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            _, number, routine = heapq.heappop(timers)
            if routine.timer == number:
                routine.timer = 0
                self.wake(routine, "timer_elapsed")
                self.run()

    def next_deadline(self) -> int | None:
        """When the next timer ends."""
        timers = self._timers
        while timers and timers[0][2].timer != timers[0][1]:
            heapq.heappop(timers)
        return timers[0][0] if timers else None


class Routine:
    """One goroutine. `TABLE` says for every signal and state what is done, `EDGES` where a state may go."""

    __slots__ = ("state", "timer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar[Edges[Any]]
    state: Any

    def __init__(self, state: Enum) -> None:
        self.state = state
        self.timer = 0  # the number of the timer that counts; 0: none

    def move(self, to: Enum) -> None:
        """Change the state. A timer belongs to the state that it was set in."""
        move(self, to, self.EDGES)
        self.timer = 0


class Ticker:
    """Go's time.Ticker: one tick every `period` ms, and of those that nobody took, the last."""

    __slots__ = ("at", "period")

    def __init__(self, now: int, period: int) -> None:
        self.at, self.period = now + period, period

    def take_tick(self, now: int) -> bool:
        """Take the tick that is there, if there is one."""
        if now < self.at:
            return False
        self.at += self.period * ((now - self.at) // self.period + 1)
        return True


def ignore(routine: Routine, payload: object) -> None:
    """It changes nothing here."""


def row(states: type[Enum], **special: Handler) -> Mapping[Enum, Handler]:
    """One row of a table: what is done in the named states; nothing in the others."""
    row: dict[Enum, Handler] = dict.fromkeys(states, ignore)
    row.update({states[name]: handler for name, handler in special.items()})
    return row
