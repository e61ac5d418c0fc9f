"""Handing out what was fetched.

Rules that hold here:

* The next poll takes up where the last one stopped, so that no partition starves behind a busy one.
* Decoded, what was fetched may take much more memory: no more than BEGUN_AT_ONCE pieces are begun at a time,
  and have their turn until they are used up. One that was paused makes room, and is decoded again.
* An error of a partition is raised as soon as everything before it was handed out, however much there is of
  other partitions, and again by every poll that has nothing else, until a seek passes it; the others are read
  on.
* Ctrl-C may come between any two lines, and who decodes is where it mostly comes: what was taken out of a
  partition then, and not handed out, is in `begun`.
"""

from __future__ import annotations

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ...records import ColumnBatch, ConsumerRecord
from ..positions.partition_states import PartitionState
from .buffers import AT_ONCE, CompletedFetch

BEGUN_AT_ONCE = 8
"""Java's consumer begins the next piece when the last one is used up: whoever has little waits for all of
another's there."""


class FetchCollector:
    """The partitions that have something to hand out, the next one first."""

    def __init__(self) -> None:
        self._loaded: dict[TopicPartition, PartitionState] = {}
        self._broken: dict[TopicPartition, KprotoError] = {}
        self._untold: dict[TopicPartition, KprotoError] = {}
        # Whose first piece is begun, and which that is; the one whose turn was last comes last.
        self._open: dict[TopicPartition, tuple[PartitionState, CompletedFetch]] = {}
        # The partition that records are just being taken from.
        self.begun: PartitionState | None = None

    def look(self, state: PartitionState) -> None:
        """Something about this partition changed."""
        partition = state.partition
        opened = self._open.get(partition)
        if opened is not None and (not state.chunks or state.chunks[0] is not opened[1]):
            del self._open[partition]
        if state.chunks and state.deliverable:
            self._loaded.setdefault(partition, state)
        else:
            self._loaded.pop(partition, None)
        if state.error is None or state.gone:
            self._broken.pop(partition, None)
            self._untold.pop(partition, None)
        elif self._broken.get(partition) is not state.error:
            self._broken[partition] = self._untold[partition] = state.error

    def error(self, *, again: bool) -> KprotoError | None:
        """What stops a partition, if anything does, and wasn't told yet; or (`again`) was."""
        if self._untold:
            return self._untold.pop(next(iter(self._untold)))
        return next(iter(self._broken.values()), None) if again else None

    def rows(self, limit: int) -> list[ConsumerRecord]:
        """At most `limit` records, in turn from the partitions that have some."""
        found: list[ConsumerRecord] = []
        while self._loaded and len(found) < limit:
            self._rows_of(self._next(), limit, found)
        self.begun = None
        return found

    def holds(self, limit: int) -> bool:
        """Whether the partition whose turn it is has more than `limit` records made, and nothing is wrong."""
        if self._untold or limit < 1:
            return False
        return bool(self._loaded) and self._first().chunks[0].holds(limit)

    def held(self, limit: int) -> list[ConsumerRecord]:
        """These; of what was fetched nothing is used up, so nobody has to look at the partition."""
        self.begun = state = self._first()
        partition = state.partition
        del self._loaded[partition]
        self._loaded[partition] = state
        chunk = self._opened(state)
        found = chunk.rows(partition.topic, partition.partition, limit)
        state.moved(chunk)
        self.begun = None
        return found

    def _next(self) -> PartitionState:
        """The partition whose turn it is; it goes to the end of the line if something is left of it."""
        self.begun = state = self._first()
        del self._loaded[state.partition]
        state.touch()
        return state

    def _first(self) -> PartitionState:
        """The first in line; where so many are begun that no other may be, the first of those."""
        first = next(iter(self._loaded.values()))
        if len(self._open) < BEGUN_AT_ONCE or first.partition in self._open:
            return first
        for partition, (_, chunk) in self._open.items():
            if partition not in self._loaded:
                chunk.fold()
                del self._open[partition]
                return first
        return next(state for state, _ in self._open.values())

    def _opened(self, state: PartitionState) -> CompletedFetch:
        """The partition's first piece, to be taken from now."""
        chunk = state.chunks[0]
        self._open.pop(state.partition, None)
        self._open[state.partition] = state, chunk
        return chunk

    def _rows_of(self, state: PartitionState, limit: int, found: list[ConsumerRecord]) -> None:
        topic, partition = state.partition
        while state.chunks and len(found) < limit:
            chunk = self._opened(state)
            try:
                found += chunk.rows(topic, partition, limit - len(found))
            except KprotoError as error:
                state.fail(error)
            state.moved(chunk)
            if chunk.exhausted or state.error is not None:
                self._open.pop(state.partition, None)
            if state.error is not None:
                return

    def columns(self) -> list[ColumnBatch]:
        """What is buffered, one batch of columns for each fetched piece, until they are `AT_ONCE` together:
        what is compressed may take a hundred times the room."""
        found: list[ColumnBatch] = []
        room = AT_ONCE
        while self._loaded and room > 0:
            state = self._next()
            topic, partition = state.partition
            while state.chunks and state.error is None and room > 0:
                chunk = state.chunks[0]
                try:
                    columns = chunk.columns()
                except KprotoError as error:
                    state.fail(error)
                    break
                if columns is not None:
                    room -= columns.nbytes
                    found.append(ColumnBatch(topic, partition, columns))
                state.moved(chunk)
        self.begun = None
        return found
