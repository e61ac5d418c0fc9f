"""Goroutines as state machines: the base classes of sarama's model.

sarama consists of many goroutines that wait for each other. In the model each goroutine is a `Routine`: a
state, and a table that maps each signal and state to a handler. No handler waits. One `Scheduler` runs all
routines in one thread:

* A routine is woken by a signal, such as `wake(routine, "response", response)`. Each signal is one row of the
  routine's table. Signals are handled in the order in which they were sent, after the current handler.

* Goroutines that become ready together run in the order in which they became ready.

* A goroutine runs until it has to wait: a handler that need not wait calls the next handler directly. Go may
  also preempt a goroutine. The model never does.

* A routine that received from a channel runs before a routine that waits for a lock, and before a new
  routine. Go guarantees no order. The model needs a fixed order, because the order of the routines determines
  the order of the requests.

* A `select` is a handler that checks flags. Closing a channel sets its flag, and wakes the routine.

* Every routine has at most one timer. A Go ticker is modelled as a deadline that recurs with a fixed period.
  Several missed ticks count as one, because the ticker's channel holds only one tick.
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
    """The states of one kind of routine. They are hashed by identity, which is fast."""

    __hash__ = object.__hash__


class Scheduler:
    """The queue of ready routines, and the timers of waiting routines.

    `out` collects the actions of the current step.
    """

    def __init__(self) -> None:
        self.now = 0
        self.out: list[ModelAction] = []
        self._ready: deque[tuple[Routine, str, Any]] = deque()
        self._timers: list[tuple[int, int, Routine]] = []
        self._timer_count = 0

    def wake(self, routine: Routine, signal: str, payload: Any = None) -> None:
        """Queue `signal` for `routine`, behind all signals that were sent earlier."""
        self._ready.append((routine, signal, payload))

    def resume(self, routine: Routine, signal: str, payload: Any = None) -> None:
        """Pass a call's result to `routine` immediately, because the call returns in its goroutine."""
        routine.TABLE[signal][routine.state](routine, payload)

    def run(self) -> None:
        """Handle all signals, until every routine waits."""
        ready = self._ready
        while ready:
            routine, signal, payload = ready.popleft()
            routine.TABLE[signal][routine.state](routine, payload)

    def sleep(self, routine: Routine, until: int) -> None:
        """Set the routine's only timer, which wakes it with "timer_elapsed" at `until`."""
        self._timer_count += 1
        routine.timer = self._timer_count
        heapq.heappush(self._timers, (until, self._timer_count, routine))

    def expire(self) -> None:
        """Run the routines whose timers are due, in order of deadline.

        After each routine, run the routines that it wakes."""
        timers = self._timers
        while timers and timers[0][0] <= self.now:
            _, timer_number, routine = heapq.heappop(timers)
            if routine.timer == timer_number:
                routine.timer = 0
                self.wake(routine, "timer_elapsed")
                self.run()

    def next_deadline(self) -> int | None:
        """Return the deadline of the next timer, or None if no timer runs."""
        timers = self._timers
        while timers and timers[0][2].timer != timers[0][1]:
            heapq.heappop(timers)
        return timers[0][0] if timers else None


class Routine:
    """One goroutine. `TABLE` has a handler for each signal and state. `EDGES` maps each state to its next
    states.
    """

    __slots__ = ("state", "timer")
    TABLE: ClassVar[Table]
    EDGES: ClassVar[Edges[Any]]
    state: Any

    def __init__(self, state: Enum) -> None:
        self.state = state
        self.timer = 0  # The number of the current timer, or 0 if no timer runs.

    def move(self, to: Enum) -> None:
        """Change the state, and stop the timer that the old state has set."""
        move(self, to, self.EDGES)
        self.timer = 0


class Ticker:
    """Go's time.Ticker: one tick every `period` ms, the next at `at`. At most one tick is pending."""

    __slots__ = ("at", "period")

    def __init__(self, now: int, period: int) -> None:
        self.at, self.period = now + period, period

    def take_tick(self, now: int) -> bool:
        """Take the pending tick. Return whether one was pending."""
        if now < self.at:
            return False
        self.at += self.period * ((now - self.at) // self.period + 1)
        return True


def ignore(routine: Routine, payload: object) -> None:
    """Do nothing: the signal has no effect in this state."""


def row(states: type[Enum], **handlers_by_state: Handler) -> Mapping[Enum, Handler]:
    """Return one row of a table: the handlers of the named states, and `ignore` for all others."""
    handlers: dict[Enum, Handler] = dict.fromkeys(states, ignore)
    handlers.update({states[name]: handler for name, handler in handlers_by_state.items()})
    return handlers
