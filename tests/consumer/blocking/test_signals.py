"""While the engine changes its state, signals are delayed. Their handlers are restored afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Consumer, TopicPartition
from consumer.blocking.signals import Held
from kproto.broker.server import running

RECORDED: list[str] = []


def on_alarm(number: int, frame: object) -> None:
    RECORDED.append("alarm")
    raise TimeoutError("alarm")


def on_term(number: int, frame: object) -> None:
    RECORDED.append("term")
    raise SystemExit(3)


@pytest.fixture(autouse=True)
def handlers() -> Iterator[dict[int, Any]]:
    installed = {signal.SIGINT: signal.default_int_handler, signal.SIGTERM: on_term, signal.SIGALRM: on_alarm}
    previous = {number: signal.signal(number, handler) for number, handler in installed.items()}
    RECORDED.clear()
    yield installed
    after = {number: signal.signal(number, handler) for number, handler in previous.items()}
    assert after == installed  # Every test checks that the handlers are restored.


def held(*steps: int | str | Exception) -> None:
    """Run the steps while signals are delayed.

    A step is the number of a signal to raise, a string to append to RECORDED, or an exception to raise.
    """
    with Held():
        for step in steps:
            if isinstance(step, int):
                signal.raise_signal(step)
            elif isinstance(step, str):
                RECORDED.append(step)
            else:
                raise step


def test_a_signal_within_the_block_is_handled_at_its_end() -> None:
    with pytest.raises(KeyboardInterrupt):
        held(signal.SIGINT, "went on")
    assert RECORDED == ["went on"]


@pytest.mark.parametrize("name", ["SIGUSR1", "SIGUSR2", "SIGQUIT", "SIGPROF", "SIGCHLD", "SIGRTMIN"])
def test_other_common_signals_are_deferred_as_well(name: str) -> None:
    number = getattr(signal, name)
    previous = signal.signal(number, on_alarm)
    try:
        with pytest.raises(TimeoutError):
            held(number, "went on")
        assert RECORDED == ["went on", "alarm"]
    finally:
        signal.signal(number, previous)


NAMELESS = signal.SIGRTMIN + 1 if hasattr(signal, "SIGRTMIN") else None


@pytest.mark.skipif(NAMELESS is None, reason="every signal has a name on this platform")
@pytest.mark.parametrize("number", [NAMELESS, None if NAMELESS is None else NAMELESS + 1])
def test_a_signal_without_a_name_is_deferred_once_a_client_was_created_or_has_waited(number: int) -> None:
    with running({"t": 1}) as server, Consumer(server.bootstrap) as waits:
        previous = signal.signal(number, on_alarm)
        try:
            if number == NAMELESS:
                Consumer(server.bootstrap).close()
            else:
                waits.assign([TopicPartition("t", 0)])
                waits.poll(0.01)
            with pytest.raises(TimeoutError):
                held(number, "went on")
            assert RECORDED == ["went on", "alarm"]
        finally:
            signal.signal(number, previous)


def test_signals_are_handled_in_order_even_if_a_handler_raises() -> None:
    with pytest.raises(TimeoutError) as error_info:
        held(signal.SIGTERM, signal.SIGALRM, "went on")
    assert RECORDED == ["went on", "term", "alarm"]
    assert isinstance(error_info.value.__context__, SystemExit)


def test_an_error_within_the_block_becomes_the_context_of_the_signals_error() -> None:
    with pytest.raises(KeyboardInterrupt) as error_info:
        held(signal.SIGINT, ValueError("mine"))
    assert isinstance(error_info.value.__context__, ValueError)


def test_nested_blocks_defer_signals_until_the_outer_one_ends() -> None:
    def outer() -> None:
        with Held():
            held(signal.SIGINT, "inner")
            RECORDED.append("outer")

    with pytest.raises(KeyboardInterrupt):
        outer()
    assert RECORDED == ["inner", "outer"]


def test_ignored_signals_and_default_handlers_are_left_unchanged() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    with Held():
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
        signal.raise_signal(signal.SIGTERM)
    signal.signal(signal.SIGTERM, on_term)
    signal.signal(signal.SIGALRM, on_alarm)


def test_other_threads_defer_nothing() -> None:
    handlers_seen: list[object] = []

    def work() -> None:
        with Held():
            handlers_seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers_seen == [signal.default_int_handler]
