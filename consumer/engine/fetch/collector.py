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
        if opened is not None and (not state.fetches or state.fetches[0] is not opened[1]):
            del self._open[partition]
        if state.fetches and state.is_deliverable:
            self._loaded.setdefault(partition, state)
        else:
            self._loaded.pop(partition, None)
        if state.error is None or state.released:
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
        """Return at most `limit` records, taking turns between the partitions that have some."""
        records: list[ConsumerRecord] = []
        while self._loaded and len(records) < limit:
            state = self._next()
            topic, partition = state.partition
            while state.fetches and len(records) < limit:
                fetch = state.fetches[0]
                self._open.pop(state.partition, None)
                self._open[state.partition] = state, fetch
                try:
                    records += fetch.rows(topic, partition, limit - len(records))
                except KprotoError as error:
                    state.fail(error)
                state.on_records_taken(fetch)
                if state.error is not None or fetch.exhausted:
                    self._open.pop(state.partition, None)
                if state.error is not None:
                    break
            if state.error is not None or not state.fetches:
                self._loaded.pop(state.partition, None)
        self.begun = None
        return records

    @property
    def ready(self) -> bool:
        """Whether records are buffered, and no error of a partition has to be raised first."""
        return bool(self._loaded) and not self._untold

    def _next(self) -> PartitionState:
        """Return the partition whose turn it is, and move it to the end of the line."""
        state = next(iter(self._loaded.values()))
        if len(self._open) >= BEGUN_AT_ONCE and state.partition not in self._open:
            state = self._opened_or(state)
        self.begun = state
        del self._loaded[state.partition]
        self._loaded[state.partition] = state
        return state

    def _opened_or(self, first: PartitionState) -> PartitionState:
        """Return `first` if a paused partition can make room for it, else one that is being decoded."""
        for partition, (_, chunk) in self._open.items():
            if partition not in self._loaded:
                chunk.fold()
                del self._open[partition]
                return first
        return next(state for state, _ in self._open.values())

    def columns(self) -> list[ColumnBatch]:
        """What is buffered, one batch of columns for each fetched piece, until they are `AT_ONCE` together:
        what is compressed may take a hundred times the room."""
        found: list[ColumnBatch] = []
        room = AT_ONCE
        while self._loaded and room > 0:
            state = self._next()
            topic, partition = state.partition
            while state.fetches and state.error is None and room > 0:
                chunk = state.fetches[0]
                try:
                    columns = chunk.columns()
                except KprotoError as error:
                    state.fail(error)
                    break
                if columns is not None:
                    room -= columns.nbytes
                    found.append(ColumnBatch(topic, partition, columns))
                state.on_records_taken(chunk)
            if state.error is not None or not state.fetches:
                self._loaded.pop(state.partition, None)
        self.begun = None
        return found
