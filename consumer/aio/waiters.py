"""Lets tasks wait: each waits for its own future, which completes at the next change."""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left, insort
from collections.abc import Hashable

from ..clock import now

# Time (s) after which a task whose calls never have to wait lets other tasks run.
MAX_HOG_S = 0.001


class TaskWaiters:
    """A counter of changes, and the tasks that wait for the next change."""

    def __init__(self) -> None:
        self.changes = 0
        # A dict, so that each of thousands of tasks removes its future without a search.
        self._futures: dict[asyncio.Future[None], None] = {}
        # A line is a queue of tasks of which each change wakes only the first. The dict maps the key of each
        # line to its waiting tasks: (place, future) in the order of places.
        self._lines: dict[Hashable, list[tuple[int, asyncio.Future[None]]]] = {}
        # The monotonic time before which `pause` returns immediately. It is initially -inf and not 0, because
        # the monotonic clock is near 0 after a boot.
        self._pause_at = -math.inf

    async def wait(self, last_change: int, deadline: int) -> bool:
        """Wait until `changes` differs from `last_change`. Return False if the deadline (ms) passes first."""
        loop = asyncio.get_running_loop()
        while self.changes == last_change:
            remaining_ms = deadline - now()
            if remaining_ms <= 0:
                return False
            future: asyncio.Future[None] = loop.create_future()
            self._futures[future] = None
            timer = loop.call_later(remaining_ms / 1000, _complete, future)
            try:
                await future
            finally:
                timer.cancel()
                self._futures.pop(future, None)
        return True

    async def wait_in_line(self, line: Hashable, last_change: int, deadline: int, *, place: int) -> bool:
        """Wait as `wait` does, but also until all tasks before this one in `line` have been woken.

        Each task has its own `place`, and those with lower places are woken first. After its last wait in
        a line, a task must call `leave_line`.
        """
        remaining_ms = deadline - now()
        if self.changes != last_change or remaining_ms <= 0:
            return self.changes != last_change
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        futures = self._lines.setdefault(line, [])
        insort(futures, (place, future))
        timer = loop.call_later(remaining_ms / 1000, _complete, future)
        try:
            await future
        finally:
            timer.cancel()
            index = bisect_left(futures, place, key=_place)
            has_timed_out = index < len(futures) and futures[index][1] is future
            if has_timed_out:
                del futures[index]
            if not futures and self._lines.get(line) is futures:
                del self._lines[line]
        return not has_timed_out

    def leave_line(self, line: Hashable) -> None:
        """Wake the next two tasks in `line`.

        A woken task that no longer has to wait also calls `leave_line`, which wakes two more tasks. If the
        first call woke all tasks, most of them would have to wait again.
        """
        _wake(self._lines.get(line, []), 2)

    def notify(self) -> None:
        """Increase `changes`. Wake all tasks that wait outside of lines, and the first task of each line."""
        self.changes += 1
        for futures_in_line in self._lines.values():
            _wake(futures_in_line, 1)
        futures, self._futures = self._futures, {}
        for future in futures:
            _complete(future)

    async def pause(self, *, delivering: bool) -> None:
        """Let other tasks run, unless the last pause was less than `MAX_HOG_S` ago.

        `delivering` says whether the last poll of the client returned records.
        """
        at = time.monotonic()
        if at < self._pause_at:
            return
        # A task that repeatedly polls without receiving records sleeps for MAX_HOG_S. After `sleep(0)` the
        # loop would only check its sockets and continue, so threads that wait for the GIL, such as the
        # resolver's, would not get it.
        is_spinning = not delivering and at < self._pause_at + MAX_HOG_S
        await asyncio.sleep(MAX_HOG_S if is_spinning else 0)
        self._pause_at = time.monotonic() + MAX_HOG_S


def current_task() -> asyncio.Task[None] | None:
    """Return the calling task, or None in a forked child process, where no loop runs."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def _place(entry: tuple[int, asyncio.Future[None]]) -> int:
    return entry[0]


def _wake(futures: list[tuple[int, asyncio.Future[None]]], count: int) -> None:
    """Wake the first `count` tasks of a line."""
    woken = futures[:count]
    del futures[:count]
    for _, future in woken:
        _complete(future)


def _complete(future: asyncio.Future[None]) -> None:
    if not future.done() and not future.get_loop().is_closed():
        future.set_result(None)
