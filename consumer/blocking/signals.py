"""Delays signal handlers while the engine changes. A join or a fetch that Ctrl-C interrupts could not be
repaired.

Python calls signal handlers in its main thread between any two instructions, and some handlers raise. So a
handler that the application has set is called at the end of a change, some microseconds later (asyncio's
Runner does the same). After that, all handlers are set as before.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

# The C module returns ints instead of enums, which is faster. Each call of a client uses it.
_signal: Any = import_module("_signal")

# The process does not survive these signals, or cannot handle them.
_FATAL = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSTOP", "SIGSYS", "SIGTRAP"}
# All signals. Each query takes 0.04 microseconds, and half of the signals are those between SIGRTMIN and
# SIGRTMAX, which few programs use. So each call queries only the signals that had a handler when `look` was
# last called: when a client is created, and when a call waits.
EVERY = tuple(sorted(map(int, signal.valid_signals())))

_named = {int(known) for known in signal.Signals if known.name not in _FATAL}
_numbers = tuple(number for number in EVERY if number in _named)
_NAMELESS = tuple(sorted({*EVERY} - {*map(int, signal.Signals)}))


def look() -> None:
    """Note which signals without a name have a handler. From now on these are delayed as well."""
    global _numbers
    new = [number for number in _NAMELESS if number not in _numbers and callable(_signal.getsignal(number))]
    if new:
        _numbers = (*_numbers, *new)


class Held:
    """Block in which no signal handler is called. Handlers that were due are called at its end, and may raise
    there.

    `on_signal` is called when a signal arrives, so that a wait inside the block can end.
    """

    __slots__ = ("_due", "_handlers", "_numbers", "_on_signal")

    def __init__(
        self, on_signal: Callable[[], object] | None = None, numbers: tuple[int, ...] | None = None
    ) -> None:
        self._on_signal = on_signal
        self._numbers = _numbers if numbers is None else numbers

    def __enter__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._due: list[tuple[int, FrameType | None]] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in self._numbers:
                handler = _signal.getsignal(number)
                if callable(handler):  # Handlers of the system and of C code are left alone.
                    self._handlers.append((number, handler))
                    _signal.signal(number, self._delay)
        except BaseException as error:
            _call_all(_signal.signal, self._handlers)
            if not isinstance(error, ValueError):  # A subinterpreter receives no signals.
                raise

    def _delay(self, number: int, frame: FrameType | None) -> None:
        self._due.append((number, frame))
        if self._on_signal is not None:
            self._on_signal()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number_and_handler in self._handlers:
                _signal.signal(*number_and_handler)
        except BaseException:  # One handler is set again and has raised, while others are not set yet.
            _call_all(_signal.signal, self._handlers)
            raise
        finally:
            if self._due:
                handlers = dict(self._handlers)
                _call_all(lambda number, frame: handlers[number](number, frame), self._due)


def _call_all(function: Callable[[int, Any], object], arguments: list[tuple[int, Any]]) -> None:
    """Call `function` with each pair of arguments, whatever the other calls raise."""
    if arguments:
        try:
            function(*arguments[0])
        finally:
            _call_all(function, arguments[1:])
