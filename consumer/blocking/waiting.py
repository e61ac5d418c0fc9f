"""How a thread waits: it blocks, until another one tells that something changed."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Generator
from typing import Any

from ..calls import finished, waits
from ..clock import now
from ..waiting import Waiting
from .signals import Held, look
from .sockets import Sockets


class InThreads(Waiting):
    """A client whose methods block, and that has a thread of its own."""

    _thread: threading.Thread
    _sockets: Sockets
    _stop: bool

    def _start(self) -> None:
        """Starts the client's thread. Where the system has none, nothing stays open, and it raises."""
        try:
            self._thread.start()
        except BaseException:
            self._stop = True
            self._sockets.close()
            raise

    def _nobody_waits(self) -> None:
        """As it is made, and again in the child of a fork: locks may be held by threads of the parent."""
        self._lock = threading.RLock()
        # Who waits has a lock of its own that he can't take before somebody lets go of it. (A Condition that
        # Ctrl-C interrupts may leave without the lock that it has to give back.)
        self._waiting: set[threading.Lock] = set()

    async def _wait(self, seen: int, deadline: int) -> bool:
        look()
        mine = threading.Lock()
        mine.acquire()
        try:
            self._waiting.add(mine)
            while self._changes == seen:
                left = deadline - now()
                if left <= 0:
                    return False
                if not self._look(seen, left / 1000):
                    mine.acquire(timeout=min(left / 1000, threading.TIMEOUT_MAX))
        finally:
            self._waiting.discard(mine)
        return True

    def _look(self, seen: int, timeout: float) -> bool:
        """Looks itself for what it waits for, while `_changes` is `seen`. False: somebody else does."""
        return False

    def _me(self) -> object:
        return threading.get_ident()

    async def _breathe(self) -> None:
        pass

    @contextlib.contextmanager
    def _locked(self) -> Generator[None]:
        with self._lock, Held():
            yield

    def _notify(self) -> None:
        for waiter in list(self._waiting):
            with contextlib.suppress(RuntimeError):  # somebody else was here, too
                waiter.release()

    @staticmethod
    def _spelled(name: str, method: waits[Any, Any], door: Callable[..., Any]) -> Callable[..., Any]:
        story, serves = method.story, method.serves

        @functools.wraps(story)
        def blocking(self: Any, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = door(args, kwargs)
            entered = self._enter(name, waits=True, serves=serves)
            try:
                try:
                    found = finished(story(self, *args, **kwargs))
                finally:
                    self._leave(entered)
                self._handing = False
                return found
            except BaseException:
                if self._handing:  # Ctrl-C came on the last few lines
                    self._handing = False
                    self._take_back()
                raise

        return blocking
