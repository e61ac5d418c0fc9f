"""What is told to whoever listens, in the event loop: errors, and messages that were sent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Outlet(Generic[T]):
    """`async for item in outlet` ends with it. The last `most` are kept for who comes late; None: all."""

    def __init__(self, most: int | None = 256) -> None:
        self.kept: deque[T] = deque(maxlen=most)
        self.ended = False
        self._told = asyncio.Event()
        self._taken = asyncio.Event()

    def put(self, item: T) -> None:
        self.kept.append(item)
        self._told.set()

    def end(self) -> None:
        self.ended = True
        self._told.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while True:
            while self.kept:
                item = self.kept.popleft()
                self._taken.set()
                yield item
            if self.ended:
                return
            self._told.clear()
            await self._told.wait()

    def rest(self) -> Iterator[T]:
        """What is kept, for who comes when the event loop has ended."""
        while self.kept:
            yield self.kept.popleft()

    async def room(self, most: int) -> None:
        """Waits until fewer than `most` are kept."""
        while len(self.kept) >= most:
            self._taken.clear()
            await self._taken.wait()
