"""Handlers of signals wait while the engine is changed, and are what they were afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Consumer, TopicPartition
from consumer.blocking.signals import Held
from kproto.broker.server import running

HEARD: list[str] = []


def on_alarm(number: int, frame: object) -> None:
    HEARD.append("alarm")
    raise TimeoutError("alarm")


def on_term(number: int, frame: object) -> None:
    HEARD.append("term")
    raise SystemExit(3)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, Any]]:
    wanted = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: on_term, signal.SIGALRM: on_alarm}
    before = {number: signal.signal(number, handler) for number, handler in wanted.items()}
    HEARD.clear()
    yield wanted
    after = {number: signal.signal(number, handler) for number, handler in before.items()}
    assert after == wanted  # whatever happened


def held(*steps: int | str | Exception) -> None:
    """A block in which these happen: signals come, a word is heard, an error is raised."""
    with Held():
        for step in steps:
            if isinstance(step, int):
                signal.raise_signal(step)
            elif isinstance(step, str):
                HEARD.append(step)
            else:
                raise step


def test_what_comes_within_is_heard_at_the_end() -> None:
    with pytest.raises(KeyboardInterrupt):
        held(signal.SIGINT, "went on")
    assert HEARD == ["went on"]


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGPROF", "SIGCHLD", "SIGRTMIN"])
def test_so_is_every_other_that_programs_use(name: str) -> None:
    number = getattr(signal, name)
    before = signal.signal(number, on_alarm)
    try:
        with pytest.raises(TimeoutError):
            held(number, "went on")
        assert HEARD == ["went on", "alarm"]
    finally:
        signal.signal(number, before)


NAMELESS = signal.SIGRTMIN + 1 if hasattr(signal, "SIGRTMIN") else None


@pytest.mark.skipif(NAMELESS is None, reason="none of them is without a name here")
@pytest.mark.parametrize("number", [NAMELESS, None if NAMELESS is None else NAMELESS + 1])
def test_one_without_a_name_is_held_once_a_client_was_made_or_has_waited(number: int) -> None:
    with running({"t": 1}) as server, Consumer(server.bootstrap) as waits:
        before = signal.signal(number, on_alarm)
        try:
            if number == NAMELESS:
                Consumer(server.bootstrap).close()
            else:
                waits.assign([TopicPartition("t", 0)])
                waits.poll(0.01)
            with pytest.raises(TimeoutError):
                held(number, "went on")
            assert HEARD == ["went on", "alarm"]
        finally:
            signal.signal(number, before)


def test_each_is_heard_in_the_order_in_which_it_came_though_the_first_one_raises() -> None:
    with pytest.raises(TimeoutError) as told:
        held(signal.SIGTERM, signal.SIGALRM, "went on")
    assert HEARD == ["went on", "term", "alarm"]
    assert isinstance(told.value.__context__, SystemExit)


def test_an_error_within_is_told_beside_the_signal() -> None:
    with pytest.raises(KeyboardInterrupt) as told:
        held(signal.SIGINT, ValueError("mine"))
    assert isinstance(told.value.__context__, ValueError)


def test_a_block_in_a_block_hears_nothing_until_the_outer_one_ends() -> None:
    def outer() -> None:
        with Held():
            held(signal.SIGINT, "inner")
            HEARD.append("outer")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert HEARD == ["inner", "outer"]


def test_signals_that_are_ignored_or_the_systems_stay_so() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with Held():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGALRM, on_alarm)


def test_other_threads_hold_nothing() -> None:
    seen: list[object] = []

    def work() -> None:
        with Held():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
