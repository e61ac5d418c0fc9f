"""Lets threads wait: each blocks until another thread reports a change."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Generator

from ..clock import now
from .signals import Held, look


class ThreadWaiters:
    """A counter of changes, and the threads that wait for the next change."""

    def __init__(self) -> None:
        self.changes = 0
        self.reset()

    def reset(self) -> None:
        """Forget all waiting threads, and replace the lock, in the child process after a fork.

        Threads of the parent may hold the old locks. These threads do not exist in the child, so they would
        never release the locks.
        """
        self.lock = threading.RLock()
        # One lock for each waiting thread, which waits until `notify` releases this lock. (A Condition is not
        # used: after Ctrl-C has interrupted `Condition.wait`, the thread does not always hold its lock.)
        self._locks: set[threading.Lock] = set()

    def __bool__(self) -> bool:
        """Return whether any thread is waiting."""
        return bool(self._locks)

    def wait(self, last_change: int, deadline: int, poll: Callable[[int, float], bool] | None = None) -> bool:
        """Block until `changes` differs from `last_change`. Return False if the deadline (ms) passes first.

        `last_change` is the value of `changes` that the caller read before it checked its condition.

        `poll(last_change, seconds)` may read the sockets in the calling thread. It returns False if another
        thread reads them.
        """
        look()
        lock = threading.Lock()
        lock.acquire()
        try:
            self._locks.add(lock)
            while self.changes == last_change:
                ms = deadline - now()
                if ms <= 0:
                    return False
                if poll is None or not poll(last_change, ms / 1000):
                    lock.acquire(timeout=min(ms / 1000, threading.TIMEOUT_MAX))
        finally:
            self._locks.discard(lock)
        return True

    def notify(self) -> None:
        """Increase `changes`, and wake all waiting threads."""
        self.changes += 1
        for lock in list(self._locks):
            # A RuntimeError means that the lock was already released.
            with contextlib.suppress(RuntimeError):
                lock.release()

    @contextlib.contextmanager
    def locked(self) -> Generator[None]:
        """Hold the lock, and delay signal handlers until it is released."""
        with self.lock, Held():
            yield
