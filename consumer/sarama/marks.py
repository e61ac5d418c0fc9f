"""The offsets that the handlers of a member have marked, and which of them are committed.

* A mark is never lowered, except by a reset. A mark that `setup` makes is compared with the group's
  committed offset, which has to be fetched first: until then the mark is unverified.
* A mark that was made while a commit was in flight is committed by the next one.
* Thread-safe: handlers mark in their threads, commits are sent in the event loop.
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
    committed: int | None  # The last offset of the partition that this session has committed.
    dirty: bool = True


class Marks:
    """The marks of the claimed partitions."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, _Mark] = {}
        self._lock = threading.Lock()

    def mark(
        self, partition: TopicPartition, start: int | None, offset: int, metadata: str, *, reset: bool
    ) -> None:
        """Mark `offset`. `start` is the offset at which the claim began; None in `setup`, before it begins.

        With `reset`, the mark may be lower than the previous one.
        """
        with self._lock:
            mark = self._marks.get(partition)
            least = start if mark is None else mark.offset
            if reset or least is None or offset > least:
                unverified = not reset and (least is None if mark is None else mark.unverified)
                committed = None if mark is None else mark.committed
                self._marks[partition] = _Mark(offset, metadata, unverified, committed)

    def offset(self, partition: TopicPartition) -> int | None:
        """Return the mark of a partition; None if it has none."""
        mark = self._marks.get(partition)
        return None if mark is None else mark.offset

    def committed_offset(self, partition: TopicPartition) -> int | None:
        """Return the offset that this session has committed for a partition, or None."""
        mark = self._marks.get(partition)
        return None if mark is None else mark.committed

    def unverified(self) -> set[TopicPartition]:
        """Return the partitions whose committed offset has to be known before their marks count."""
        with self._lock:
            return {partition for partition, mark in self._marks.items() if mark.unverified}

    def verify(self, committed: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Drop the unverified marks that are not above these committed offsets."""
        with self._lock:
            for partition, offset in committed.items():
                mark = self._marks.get(partition)
                if mark is None or not mark.unverified:
                    continue
                mark.unverified = False
                if offset is not None and mark.offset <= offset.offset:
                    del self._marks[partition]

    def uncommitted(self, partitions: Collection[TopicPartition] | None) -> Offsets:
        """Return the marks of these partitions, or of all, that are to be committed."""
        with self._lock:
            return {
                partition: (mark.offset, mark.metadata)
                for partition, mark in self._marks.items()
                if mark.dirty and (partitions is None or partition in partitions)
            }

    def on_committed(self, offsets: Offsets) -> None:
        """These offsets were committed."""
        with self._lock:
            for partition, (offset, metadata) in offsets.items():
                mark = self._marks.get(partition)
                if mark is None:
                    continue
                mark.committed = offset
                # Otherwise the partition was marked again during the commit.
                if (mark.offset, mark.metadata) == (offset, metadata):
                    mark.dirty = False

    def remove(self, partitions: Collection[TopicPartition]) -> None:
        """Remove the marks of partitions that were revoked, or whose position was moved."""
        with self._lock:
            for partition in partitions:
                self._marks.pop(partition, None)
