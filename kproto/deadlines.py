"""What is due when, kept in order: neither looking at the next one nor moving one searches the others."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# Times that were moved stay in the heap until they are most of it.
_SLACK: Final = 64


class Deadlines(Generic[K]):
    """Keys, each with the time at which it is due. Of equal times the one that was set first comes first."""

    __slots__ = ("_count", "_heap", "_times")

    def __init__(self) -> None:
        self._count = 0
        self._heap: list[tuple[int, int, K]] = []
        self._times: dict[K, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def of(self, key: K) -> int | None:
        """When it is due; None if it isn't."""
        found = self._times.get(key)
        return None if found is None else found[0]

    def set(self, key: K, at: int) -> None:
        """Let it be due then, and at no other time."""
        self._count += 1
        self._times[key] = at, self._count
        heappush(self._heap, (at, self._count, key))
        self._tidy()

    def drop(self, key: K) -> None:
        """Let it not be due at all."""
        if self._times.pop(key, None) is not None:
            self._tidy()

    def earliest(self) -> int | None:
        """When the next one is due; None where nothing is."""
        self._skip()
        return self._heap[0][0] if self._heap else None

    def take(self, now: int) -> Iterator[K]:
        """All that is due at `now`, oldest first; what is let go of so may be set again meanwhile."""
        while (at := self.earliest()) is not None and at <= now:
            _, _, key = heappop(self._heap)
            del self._times[key]
            yield key

    def _skip(self) -> None:
        """Let go of what was moved or dropped, as far as it is in front."""
        heap, times = self._heap, self._times
        while heap and times.get(heap[0][2]) != heap[0][:2]:
            heappop(heap)

    def _tidy(self) -> None:
        if len(self._heap) > _SLACK + 2 * len(self._times):
            self._heap = [(at, count, key) for key, (at, count) in self._times.items()]
            heapify(self._heap)
