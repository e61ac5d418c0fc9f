"""Runs a producer's delivery callbacks in their own thread, one after the other.

A callback may wait, send, flush and close, because the network thread never waits for callbacks.

If a callback raises an exception, the exception is logged and the next callbacks still run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from inspect import iscoroutine
from queue import SimpleQueue

from .logs import log


class Callbacks:
    """A queue of callbacks, and the thread that calls them. The first callback starts the thread."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._lock = threading.RLock()  # Reentrant, because a signal handler may call `close`.
        self._thread: threading.Thread | None = None
        self._closed = False

    def put(self, callback: Callable[[], object]) -> None:
        """Queue a callback. If no thread can start, or after `close`, call it in the caller's thread."""
        with self._lock:
            if not self._closed:
                try:
                    self._ensure_thread()
                except RuntimeError:  # The system cannot start another thread.
                    log.warning("no thread for delivery callbacks: they hold the producer up")
                else:
                    self._queue.put(callback)
                    return
        run_callback(callback, BaseException)

    def _ensure_thread(self) -> None:
        """Start the thread if it does not run yet. Raises RuntimeError if the system cannot start it."""
        if self._thread is None:
            thread = threading.Thread(target=self._run_callbacks, name=self._name, daemon=True)
            thread.start()
            self._thread = thread

    def close(self, timeout: float) -> None:
        """Stop queuing callbacks. Outside a callback, also wait at most `timeout` seconds for the queued
        callbacks.
        """
        with self._lock:
            self._closed = True
            thread = self._thread
            self._queue.put(None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _run_callbacks(self) -> None:
        while (callback := self._queue.get()) is not None:
            run_callback(callback, BaseException)
            # The callback may hold the last reference to a producer, which must not stay alive while this
            # thread waits.
            del callback


def run_callback(callback: Callable[[], object], caught: type[BaseException] = Exception) -> None:
    """Call a delivery callback, and log its exception.

    `caught` is the class of exceptions to log: BaseException in the callbacks' own thread. In other threads
    it is Exception, so that Ctrl-C reaches the application.
    """
    try:
        result = callback()
        if iscoroutine(result):
            result.close()
            log.error("a delivery callback returned the coroutine %r, which nobody awaits", result)
    except caught:
        log.exception("a delivery callback failed")
