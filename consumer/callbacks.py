"""Where a producer's delivery callbacks run: in a thread of their own, one after the other.

So a callback may wait, send, flush and close, and the thread that moves the bytes never waits for it. What a
callback raises is logged, and the next one is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from inspect import iscoroutine
from queue import SimpleQueue

from .logs import log


class Callbacks:
    """The thread is started by the first callback."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.RLock()  # a signal handler may close, too
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, callback: Callable[[], object]) -> None:
        with self._lock:
            if not self._closed:
                try:
                    self._start()
                except RuntimeError:  # no more threads, or the interpreter ends: the caller has to do it
                    log.warning("no thread for delivery callbacks: they hold the producer up")
                else:
                    self._queue.put(callback)
                    return
        run_callback(callback, BaseException)

    def _start(self) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def close(self, timeout: float) -> None:
        """Waits until what was put has been called, at most `timeout` seconds; from a callback not at all."""
        with self._lock:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run(self) -> None:
        while (callback := self._queue.get()) is not None:
            run_callback(callback, BaseException)
            del callback  # it may hold a producer that nobody else has


def run_callback(callback: Callable[[], object], what: type[BaseException] = Exception) -> None:
    """Calls back; what that raises is logged: whoever waits for the next callback has no part in this one.
    More than an Exception is logged on a thread of our own only: the application has to hear of Ctrl-C."""
    try:
        answer = callback()
        if iscoroutine(answer):
            answer.close()
            log.error("a delivery callback returned the coroutine %r, which nobody awaits", answer)
    except what:
        log.exception("a delivery callback failed")
