"""What a member's handlers have marked as done, and what of it is committed.

* A mark never goes back but by a reset. One that setup makes is measured by what the group has committed,
  which has to be asked for first: until then it is in doubt.
* What was marked while a commit was on its way is still to be committed.
* Safe for threads: handlers mark in theirs, commits go out in the event loop.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import msgspec

from kproto.group.subscription import TopicPartition

from ..engine.requests import CommittedOffset

Sent = dict[TopicPartition, tuple[int, str]]


class _Mark(msgspec.Struct):
    offset: int
    metadata: str
    in_doubt: bool
    kept: int | None
    """The last offset that was committed of this partition by this session."""
    dirty: bool = True


class Marks:
    """The marks of the partitions that are claimed."""

    def __init__(self) -> None:
        self._marks: dict[TopicPartition, _Mark] = {}
        self._lock = threading.Lock()

    def mark(
        self, place: TopicPartition, start: int | None, offset: int, metadata: str, *, back: bool
    ) -> None:
        """`start` is where the claim began; None: it hasn't, which is so in setup."""
        with self._lock:
            mark = self._marks.get(place)
            least = start if mark is None else mark.offset
            if back or least is None or offset > least:
                in_doubt = not back and (least is None if mark is None else mark.in_doubt)
                kept = None if mark is None else mark.kept
                self._marks[place] = _Mark(offset, metadata, in_doubt, kept)

    def offset(self, place: TopicPartition) -> int | None:
        """Where the partition was marked; None: nowhere."""
        mark = self._marks.get(place)
        return None if mark is None else mark.offset

    def kept(self, place: TopicPartition) -> int | None:
        """What was committed of it; None: nothing by this session."""
        mark = self._marks.get(place)
        return None if mark is None else mark.kept

    def in_doubt(self) -> set[TopicPartition]:
        """Whose commit has to be known before their marks count."""
        with self._lock:
            return {place for place, mark in self._marks.items() if mark.in_doubt}

    def settle(self, committed: Mapping[TopicPartition, CommittedOffset | None]) -> None:
        """Drops the marks that would go back behind these."""
        with self._lock:
            for place, found in committed.items():
                mark = self._marks.get(place)
                if mark is None or not mark.in_doubt:
                    continue
                mark.in_doubt = False
                if found is not None and mark.offset <= found.offset:
                    del self._marks[place]

    def dirty(self, places: Collection[TopicPartition] | None) -> Sent:
        """What is to be committed of these, or of all."""
        with self._lock:
            return {
                place: (mark.offset, mark.metadata)
                for place, mark in self._marks.items()
                if mark.dirty and (places is None or place in places)
            }

    def committed(self, sent: Sent) -> None:
        """These have been committed."""
        with self._lock:
            for place, (offset, metadata) in sent.items():
                mark = self._marks.get(place)
                if mark is None:
                    continue
                mark.kept = offset
                if (mark.offset, mark.metadata) == (offset, metadata):  # else marked again meanwhile
                    mark.dirty = False

    def forget(self, places: Collection[TopicPartition]) -> None:
        """They are somebody else's now, or begin anew."""
        with self._lock:
            for place in places:
                self._marks.pop(place, None)
