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

    __slots__ = ("_entries", "_heap", "_set_count")

    def __init__(self) -> None:
        self._set_count = 0  # The number of calls of `set`.
        # A heap of entries: (due time, value of `_set_count` when the key was set, key). The count orders
        # keys with equal times. The heap also contains obsolete entries, of keys that were set again or
        # dropped.
        self._heap: list[tuple[int, int, K]] = []
        self._entries: dict[K, tuple[int, int, K]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def of(self, key: K) -> int | None:
        """Return the due time of `key`, or None if no deadline is set."""
        deadline = self._entries.get(key)
        return None if deadline is None else deadline[0]

    def set(self, key: K, at: int) -> None:
        """Set the due time of `key` to `at`, in place of the previous one."""
        self._set_count += 1
        entry = self._entries[key] = at, self._set_count, key
        heappush(self._heap, entry)
        self._compact()

    def drop(self, key: K) -> None:
        """Remove the due time of `key`, if it has one."""
        if self._entries.pop(key, None) is not None:
            self._compact()

    def earliest(self) -> int | None:
        """Return the earliest due time, or None if no key has one."""
        if not self._heap:
            return None
        self._drop_obsolete_entries()
        return self._heap[0][0] if self._heap else None

    def take(self, now: int) -> Iterator[K]:
        """Remove and yield the keys that are due at `now`, earliest first.

        A yielded key may be set again during the iteration.
        """
        while (at := self.earliest()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._entries[key]
            yield key

    def _drop_obsolete_entries(self) -> None:
        """Remove the obsolete entries of moved and dropped deadlines from the front of the heap."""
        heap, entries = self._heap, self._entries
        while heap and entries.get(heap[0][2]) is not heap[0]:
            heappop(heap)

    def _compact(self) -> None:
        """Rebuild the heap from the current entries if it has too many obsolete ones."""
        if len(self._heap) > _SLACK + 2 * len(self._entries):
            self._heap = list(self._entries.values())
            heapify(self._heap)
