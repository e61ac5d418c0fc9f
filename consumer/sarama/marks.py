"""The offsets that the handlers of a member have marked, and whether they are committed.

* A mark is never lowered, except by a reset.

* A mark that `setup` makes is unverified: the group's committed offset, with which it must be compared, has
  not been fetched yet.

* An offset that is marked while a commit is in flight is committed by the next commit.

* `Marks` is thread-safe: handlers mark offsets in their threads, while the event loop sends commits.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import msgspec

from kproto.group.subscription import TopicPartition

from ..engine.requests import CommittedOffset

Offsets = dict[TopicPartition, tuple[int, str]]


class _Mark(msgspec.Struct):
    offset: int
    metadata: str
    unverified: bool
    committed: int | None  # The last offset that this session has committed for the partition.
    dirty: bool = True  # Whether the mark still has to be committed.


class Marks:
    """The marks of the claimed partitions."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, _Mark] = {}
        self._lock = threading.Lock()

    def mark(
        self, partition: TopicPartition, start: int | None, offset: int, metadata: str, *, reset: bool
    ) -> None:
        """Mark `offset` if it is higher than the last mark, or than the claim's start if nothing is marked.

        `start` is the offset at which the claim began, or None in `setup`, before the claim begins.

        With `reset`, every `offset` is marked, even one below the last mark or below the claim's start.
        """
        with self._lock:
            mark = self._marks.get(partition)
            lower_bound = start if mark is None else mark.offset
            if reset or lower_bound is None or offset > lower_bound:
                unverified = not reset and (start is None if mark is None else mark.unverified)
                committed = None if mark is None else mark.committed
                self._marks[partition] = _Mark(offset, metadata, unverified, committed)

    def offset(self, partition: TopicPartition) -> int | None:
        """Return the marked offset of a partition, or None if nothing is marked."""
        mark = self._marks.get(partition)
        return None if mark is None else mark.offset

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset that this session has committed for a partition; None without a commit."""
        mark = self._marks.get(partition)
        return None if mark is None else mark.committed

    def unverified(self) -> set[TopicPartition]:
        """Return the partitions with unverified marks. `verify` needs their committed offsets."""
        with self._lock:
            return {partition for partition, mark in self._marks.items() if mark.unverified}

    def verify(self, committed: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Drop each unverified mark that is not above its partition's committed offset.

        The other marks of these partitions become verified.
        """
        with self._lock:
            for partition, committed_offset in committed.items():
                mark = self._marks.get(partition)
                if mark is None or not mark.unverified:
                    continue
                mark.unverified = False
                if committed_offset is not None and mark.offset <= committed_offset.offset:
                    del self._marks[partition]

    def uncommitted(self, partitions: Collection[TopicPartition] | None) -> Offsets:
        """Return the uncommitted marks of these partitions, or of all partitions if `partitions` is None."""
        with self._lock:
            return {
                partition: (mark.offset, mark.metadata)
                for partition, mark in self._marks.items()
                if mark.dirty and (partitions is None or partition in partitions)
            }

    def on_committed(self, offsets: Offsets) -> None:
        """Record that these offsets were committed."""
        with self._lock:
            for partition, (offset, metadata) in offsets.items():
                mark = self._marks.get(partition)
                if mark is None:
                    continue
                mark.committed = offset
                # A mark that differs from the committed one was made during the commit, and stays
                # uncommitted.
                if (mark.offset, mark.metadata) == (offset, metadata):
                    mark.dirty = False

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the marks of these partitions."""
        with self._lock:
            for partition in partitions:
                self._marks.pop(partition, None)
