"""What is told to whoever listens, in the event loop: errors, and messages that were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from ..clock import now
from ..engine.timing import ReportIntervals

T = TypeVar("T")

KEPT = 256
"""Errors that are kept for who comes late, and known by their words."""


class Outlet(Generic[T]):
    """`async for item in outlet` ends with it. The last `most` are kept for who comes late; None: all."""

    def __init__(self, most: int | None = KEPT) -> None:
        self.kept: deque[T] = deque(maxlen=most)
        self.ended = False
        self._told = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, item: T) -> None:
        self.kept.append(item)
        self._told.set()

    def last(self) -> T | None:
        """What was put last, if it is kept still: another thread may take it just now."""
        try:
            return self.kept[-1]
        except IndexError:
            return None

    def end(self) -> None:
        self.ended = True
        self._told.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while await self.ready():
            item = self.kept.popleft()
            self._taken.set()
            yield item

    async def ready(self) -> bool:
        """Waits until something is kept. False: it has ended."""
        while not self.kept and not self.ended:
            self._told.clear()
            await self._told.wait()
        return bool(self.kept)

    async def room(self, most: int) -> None:
        """Waits until fewer than `most` are kept."""
        while len(self.kept) >= most:
            self._taken.clear()
            await self._taken.wait()


class News:
    """Of what is tried again and again and fails: the same error is news after growing gaps only. That
    something else works, as another partition, says nothing of it."""

    def __init__(self) -> None:
        self._told: dict[str, ReportIntervals] = {}  # they take turns: each partition may have its own

    def told(self, error: Exception) -> bool:
        """Whether to tell it now."""
        while len(self._told) >= KEPT:
            del self._told[next(iter(self._told))]
        return self._told.setdefault(str(error), ReportIntervals()).is_due(now())
