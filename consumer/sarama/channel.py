"""Channels like Go's, for the event loop: queues of errors and of acknowledged messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Generic, TypeVar

from ..clock import now
from ..engine.timeouts import ReportIntervals

T = TypeVar("T")

# Maximum number of unread errors that a channel keeps, and of error texts that an `ErrorThrottle` tracks.
MAX_ERRORS = 256


class Channel(Generic[T]):
    """A queue of items. `async for item in channel` reads them, until the channel is closed and empty.

    The channel keeps the last `limit` unread items, or all unread items if `limit` is None.
    """

    def __init__(self, limit: int | None = MAX_ERRORS) -> None:
        self.items: deque[T] = deque(maxlen=limit)
        self.closed = False
        self._added = asyncio.Event()
        self._removed = asyncio.Event()

    def put(self, item: T) -> None:
        """Add an item."""
        self.items.append(item)
        self._added.set()

    def last(self) -> T | None:
        """Return the last item, or None if the channel is empty.

        Thread-safe: another thread may remove items at the same time.
        """
        try:
            return self.items[-1]
        except IndexError:
            return None

    def close(self) -> None:
        """Close the channel: an iteration ends after the items that the channel still holds."""
        self.closed = True
        self._added.set()

    async def __aiter__(self) -> AsyncIterator[T]:
        while await self.ready():
            item = self.items.popleft()
            self._removed.set()
            yield item

    async def ready(self) -> bool:
        """Wait for an item. Return False if the channel is closed and empty."""
        while not self.items and not self.closed:
            self._added.clear()
            await self._added.wait()
        return bool(self.items)

    async def wait_for_room(self, limit: int) -> None:
        """Wait until the channel holds fewer than `limit` items."""
        while len(self.items) >= limit:
            self._removed.clear()
            await self._removed.wait()


class ErrorThrottle:
    """A throttle for repeated errors: the interval between two reports of the same error increases.

    Errors with different texts are throttled independently, because the errors of several partitions may
    alternate.
    """

    def __init__(self) -> None:
        self._intervals: dict[str, ReportIntervals] = {}

    def passes(self, error: Exception) -> bool:
        """Return whether to report `error` now. If so, begin the interval to its next report.

        At the limit of tracked texts, the oldest ones are forgotten.
        """
        text = str(error)
        while text not in self._intervals and len(self._intervals) >= MAX_ERRORS:
            del self._intervals[next(iter(self._intervals))]
        return self._intervals.setdefault(text, ReportIntervals()).advance_if_due(now())
