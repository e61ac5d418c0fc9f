"""sarama's goroutines are modelled as state machines that handle signals in the order in which they were
sent.
"""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kproto.models.sarama.routines import Routine, Scheduler, States, Table, Ticker, row


class LampState(States):
    OFF = "off"
    ON = "on"


class Lamp(Routine):
    """A modelled goroutine that logs the signals that it handles."""

    TABLE: ClassVar[Table]
    EDGES: ClassVar = {LampState.OFF: {LampState.ON}, LampState.ON: {LampState.OFF}}

    def __init__(self, name: str, log: list[str]) -> None:
        super().__init__(LampState.OFF)
        self.name, self.log = name, log


def _log(lamp: Lamp, payload: object) -> None:
    lamp.log.append(f"{lamp.name} {payload}")


def _on_timer(lamp: Lamp, payload: object) -> None:
    lamp.log.append(f"{lamp.name} timer")


Lamp.TABLE = {"press": row(LampState, OFF=_log), "timer_elapsed": row(LampState, OFF=_on_timer, ON=_on_timer)}


def scheduler_with_lamps() -> tuple[Scheduler, Lamp, Lamp, list[str]]:
    log: list[str] = []
    return Scheduler(), Lamp("a", log), Lamp("b", log), log


def test_signals_are_handled_in_the_order_in_which_they_were_sent() -> None:
    scheduler, a, b, log = scheduler_with_lamps()
    scheduler.wake(b, "press", 1)
    scheduler.wake(a, "press", 2)
    scheduler.wake(b, "press", 3)
    scheduler.run()
    assert log == ["b 1", "a 2", "b 3"]


def test_a_resumed_routine_runs_before_routines_that_were_woken() -> None:
    scheduler, a, b, log = scheduler_with_lamps()
    scheduler.wake(a, "press", 1)
    scheduler.resume(b, "press", 2)
    scheduler.run()
    assert log == ["b 2", "a 1"]


def test_a_signal_without_a_handler_in_this_state_has_no_effect() -> None:
    scheduler, a, _, log = scheduler_with_lamps()
    a.move(LampState.ON)
    scheduler.wake(a, "press", 1)
    scheduler.run()
    assert log == []


def test_a_new_timer_replaces_the_one_before() -> None:
    scheduler, a, b, log = scheduler_with_lamps()
    scheduler.sleep(a, 10)
    scheduler.sleep(a, 30)
    scheduler.sleep(b, 20)
    assert scheduler.next_deadline() == 20
    scheduler.now = 20
    scheduler.expire()
    assert log == ["b timer"]
    scheduler.now = 30
    scheduler.expire()
    assert log == ["b timer", "a timer"]
    assert scheduler.next_deadline() is None


def test_a_move_stops_the_timer() -> None:
    scheduler, a, _, log = scheduler_with_lamps()
    scheduler.sleep(a, 10)
    a.move(LampState.ON)
    scheduler.now = 10
    scheduler.expire()
    assert log == []


def test_a_move_without_an_edge_raises() -> None:
    _, a, _, _ = scheduler_with_lamps()
    with pytest.raises(AssertionError, match="cannot move from off to off"):
        a.move(LampState.OFF)


@pytest.mark.parametrize(("now", "ticks", "following"), [(9, 0, 10), (10, 1, 20), (45, 1, 50)])
def test_a_ticker_keeps_one_tick_and_its_rate(now: int, ticks: int, following: int) -> None:
    ticker = Ticker(0, 10)
    taken: list[Any] = [tick for tick in (ticker.take_tick(now), ticker.take_tick(now)) if tick]
    assert (len(taken), ticker.at) == (ticks, following)
