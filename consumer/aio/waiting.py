"""How a task waits: on a future of its own, which is done when something changed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from ..calls import waits
from ..clock import now
from ..waiting import Waiting

BREATH_S = 0.001
"""So long, in seconds, others may have to wait for their turn while calls find all that they want."""


class InTasks(Waiting):
    """A client whose methods are awaited."""

    def _nobody_waits(self) -> None:
        self._waiters: list[asyncio.Future[None]] = []
        self._breathes_at = -math.inf  # a machine that has just started counts from 0

    async def _wait(self, seen: int, deadline: int) -> bool:
        loop = asyncio.get_running_loop()
        while self._changes == seen:
            left = deadline - now()
            if left <= 0:
                return False
            waiter: asyncio.Future[None] = loop.create_future()
            self._waiters.append(waiter)
            timer = loop.call_later(left / 1000, _release, waiter)
            try:
                await waiter
            finally:
                timer.cancel()
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        return True

    def _me(self) -> object:
        try:
            return asyncio.current_task()
        except RuntimeError:  # in the child of a fork no loop runs
            return None

    async def _breathe(self) -> None:
        at = time.monotonic()
        if at < self._breathes_at:
            return
        # Where polls that find nothing follow each other, the loop only glances at its sockets in between.
        # Threads that wait for the interpreter don't get it in so short a time: one of them looks up names.
        spins = not self._handing and at < self._breathes_at + BREATH_S
        await asyncio.sleep(BREATH_S if spins else 0)
        self._breathes_at = time.monotonic() + BREATH_S

    def _locked(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            _release(waiter)

    @staticmethod
    def _spelled(name: str, method: waits[Any, Any], door: Callable[..., Any]) -> Callable[..., Any]:
        story, serves = method.story, method.serves

        @functools.wraps(story)
        async def awaited(self: Any, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = door(args, kwargs)
            entered = self._enter(name, waits=True, serves=serves)
            try:
                return await story(self, *args, **kwargs)
            finally:
                self._leave(entered)

        return awaited


def _release(waiter: asyncio.Future[None]) -> None:
    if not waiter.done() and not waiter.get_loop().is_closed():
        waiter.set_result(None)
