"""Handlers of signals have their turn before the engine is changed, or behind it: what Ctrl-C divides in the
middle, a join or a fetch, nobody could make whole again.

Python calls them in its main thread, wherever that is, and some raise. So a handler that the application set
is called at the end of a change, some microseconds later (asyncio's Runner does that, too); afterwards all
handlers are what they were.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

# What `signal` makes enums around: this is asked in each call of a client.
_signal: Any = import_module("_signal")

# Nobody goes on behind these, and some nobody hears of.
_ENDS = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSTOP", "SIGSYS", "SIGTRAP"}
EVERY = tuple(sorted(map(int, signal.valid_signals())))
"""Those of all signals. To ask for each takes 0.04 microseconds, and those between SIGRTMIN and SIGRTMAX, of
which hardly a program has heard, are as many as the others: each call asks only for those that somebody
handled when a client was last made, or waited (`look`)."""

_NAMED = {int(one) for one in signal.Signals if one.name not in _ENDS}
_numbers = tuple(number for number in EVERY if number in _NAMED)
_NAMELESS = tuple(sorted({*EVERY} - {*map(int, signal.Signals)}))


def look() -> None:
    """Note which signals without a name somebody handles: they are held from now on, too."""
    global _numbers
    new = [one for one in _NAMELESS if one not in _numbers and callable(_signal.getsignal(one))]
    if new:
        _numbers = (*_numbers, *new)


class Held:
    """In this block no handler is called; those that were due are called at its end, and may raise there.

    Where the block waits, `came` ends that: it is called when a signal has come.
    """

    __slots__ = ("_came", "_due", "_handlers", "_numbers")

    def __init__(
        self, came: Callable[[], object] | None = None, numbers: tuple[int, ...] | None = None
    ) -> None:
        self._came = came
        self._numbers = _numbers if numbers is None else numbers

    def __enter__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._due: list[tuple[int, FrameType | None]] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in self._numbers:
                handler = _signal.getsignal(number)
                if callable(handler):  # and not the system's, or C's
                    self._handlers.append((number, handler))
                    _signal.signal(number, self._happened)
        except BaseException as error:
            _each(_signal.signal, self._handlers)
            if not isinstance(error, ValueError):  # of Python's other interpreters none hears of signals
                raise

    def _happened(self, number: int, frame: FrameType | None) -> None:
        self._due.append((number, frame))
        if self._came is not None:
            self._came()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for one in self._handlers:
                _signal.signal(*one)
        except BaseException:  # raised by a handler that is back, and others are not
            _each(_signal.signal, self._handlers)
            raise
        finally:
            if self._due:
                handlers = dict(self._handlers)
                _each(lambda number, frame: handlers[number](number, frame), self._due)


def _each(do: Callable[[int, Any], object], what: list[tuple[int, Any]]) -> None:
    """With every one of them, whatever the others raise."""
    if what:
        try:
            do(*what[0])
        finally:
            _each(do, what[1:])
