"""Delays signal handlers while the state of the engine is being changed.

If Ctrl-C could interrupt a change of this state, such as the handling of a response, it would leave the
engine in an inconsistent state.

Python calls signal handlers in the main thread between any two instructions, and some handlers raise. So
during a change, the application's handlers are replaced by one that records the signal. At the end of the
change, a few microseconds later, the application's handlers are set again, and the handlers of the recorded
signals are called. (asyncio's Runner replaces the handler of SIGINT in a similar way.)
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

# The C module behind `signal`. Its functions return ints instead of enums, so they are faster than the
# functions of `signal`. Each call of a client uses them for many signals.
_signal: Any = import_module("_signal")

# The signals of a crash, such as SIGSEGV, and the signals that cannot be handled.
_FATAL = {"SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGKILL", "SIGSEGV", "SIGSTOP", "SIGSYS", "SIGTRAP"}
# The numbers of all signals.
EVERY = tuple(sorted(map(int, signal.valid_signals())))

_NAMED = {int(number) for number in signal.Signals if number.name not in _FATAL}
# The signals that `Held` delays by default.
#
# Each call of a client queries the handlers of these signals, and one query takes 0.04 microseconds. So the
# signals between SIGRTMIN and SIGRTMAX are omitted: they are half of all signals, and few programs use them.
# When a client is created and when a call waits, `look` adds the omitted signals that have a handler.
_delayed = tuple(number for number in EVERY if number in _NAMED)
_NAMELESS = tuple(sorted({*EVERY} - {*map(int, signal.Signals)}))


def look() -> None:
    """Find the signals without a name, such as SIGRTMIN+1, that have a handler.

    `Held` objects that are created after this call delay these handlers, too, unless they get `numbers`.
    """
    global _delayed
    handled = [n for n in _NAMELESS if n not in _delayed and callable(_signal.getsignal(n))]
    if handled:
        _delayed = (*_delayed, *handled)


class Held:
    """A block in which no signal handler is called. The handlers of signals that arrive in the block are
    called at its end, and may raise there.

    `on_signal` is called when a signal arrives, so that it can end a wait inside the block. `numbers` are the
    signals to delay, by default `_delayed`. The block has no effect in threads other than the main thread,
    because Python calls no signal handlers in them.
    """

    __slots__ = ("_arrived", "_handlers", "_numbers", "_on_signal")

    def __init__(
        self, on_signal: Callable[[], object] | None = None, numbers: tuple[int, ...] | None = None
    ) -> None:
        self._on_signal = on_signal
        self._numbers = _delayed if numbers is None else numbers

    def __enter__(self) -> None:
        self._handlers: list[tuple[int, Any]] = []
        self._arrived: list[tuple[int, FrameType | None]] = []
        if threading.get_ident() != threading.main_thread().ident:
            return
        try:
            for number in self._numbers:
                handler = _signal.getsignal(number)
                # Default handlers and handlers of C code are not callable, so they are not replaced.
                if callable(handler):
                    self._handlers.append((number, handler))
                    _signal.signal(number, self._record_signal)
        except BaseException as error:
            _call_for_each(_signal.signal, self._handlers)
            # A ValueError means that this is a subinterpreter, in which no signal handlers run.
            if not isinstance(error, ValueError):
                raise

    def _record_signal(self, number: int, frame: FrameType | None) -> None:
        self._arrived.append((number, frame))
        if self._on_signal is not None:
            self._on_signal()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for number_and_handler in self._handlers:
                _signal.signal(*number_and_handler)
        # A signal arrived during the loop. Its handler, which the loop had already restored, raised an
        # exception before the loop had restored the remaining handlers.
        except BaseException:
            _call_for_each(_signal.signal, self._handlers)
            raise
        finally:
            if self._arrived:
                handlers = dict(self._handlers)
                _call_for_each(lambda number, frame: handlers[number](number, frame), self._arrived)


def _call_for_each(function: Callable[[int, Any], object], arguments: list[tuple[int, Any]]) -> None:
    """Call `function` once for each pair in `arguments`, even if some of the calls raise."""
    if arguments:
        try:
            function(*arguments[0])
        finally:
            _call_for_each(function, arguments[1:])
