"""A collection of deadlines by key. Finding the earliest deadline and moving a deadline need no search."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)


def earliest(*times: int | None) -> int | None:
    """Return the earliest of these times, or None if all of them are None."""
    result = None
    for at in times:
        if at is not None and (result is None or at < result):
            result = at
    return result


# Obsolete heap entries, left by moved or dropped deadlines, are removed when they outnumber the current
# entries by more than this number.
_SLACK: Final = 64


class Deadlines(Generic[K]):
    """Keys and their due times. Keys with equal times keep the order in which they were set."""

    __slots__ = ("_count", "_heap", "_times")

    def __init__(self) -> None:
        self._count = 0
        self._heap: list[tuple[int, int, K]] = []
        self._times: dict[K, tuple[int, int, K]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def of(self, key: K) -> int | None:
        """Return the due time of `key`, or None if it has none."""
        deadline = self._times.get(key)
        return None if deadline is None else deadline[0]

    def set(self, key: K, at: int) -> None:
        """Set the due time of `key` to `at`, in place of the previous one."""
        self._count += 1
        entry = self._times[key] = at, self._count, key
        heappush(self._heap, entry)
        self._tidy()

    def drop(self, key: K) -> None:
        """Remove the due time of `key`, if it has one."""
        if self._times.pop(key, None) is not None:
            self._tidy()

    def earliest(self) -> int | None:
        """Return the earliest due time, or None if there is none."""
        if not self._heap:
            return None
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take(self, now: int) -> Iterator[K]:
        """Remove and yield the keys that are due at `now`, earliest first.

        A yielded key may be set again during the iteration.
        """
        while (at := self.earliest()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._times[key]
            yield key

    def _skip(self) -> None:
        """Remove obsolete entries, those of moved and dropped deadlines, from the front of the heap."""
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][2]) is not heap[0]:
            heappop(heap)

    def _tidy(self) -> None:
        if len(self._heap) > _SLACK + 2 * len(self._times):
            self._heap = list(self._times.values())
            heapify(self._heap)
