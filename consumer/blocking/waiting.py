"""How a thread waits: it blocks, until another one tells that something changed."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..calls import finished, waits
from ..clock import now
from ..waiting import Waiting


class InThreads(Waiting):
    """A client whose methods block."""

    def _nobody_waits(self) -> None:
        """As it is made, and again in the child of a fork: locks may be held by threads of the parent."""
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiting = 0

    async def _wait(self, seen: int, deadline: int) -> bool:
        with self._lock:
            self._waiting += 1
            try:
                while self._changes == seen:
                    left = deadline - now()
                    if left <= 0:
                        return False
                    self._changed.wait(min(left / 1000, threading.TIMEOUT_MAX))
            finally:
                self._waiting -= 1
        return True

    def _me(self) -> object:
        return threading.get_ident()

    async def _breathe(self) -> None:
        pass

    def _locked(self) -> AbstractContextManager[Any]:
        return self._lock

    def _notify(self) -> None:
        if self._waiting:
            with self._lock:
                self._changed.notify_all()

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
