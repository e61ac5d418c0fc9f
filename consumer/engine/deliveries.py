"""Handing out what was fetched.

Rules that hold here:

* The next poll takes up where the last one stopped, so that no partition starves behind a busy one.
* An error of a partition is raised as soon as everything before it was handed out, however much there is of
  other partitions, and again by every poll that has nothing else, until a seek passes it; the others are read
  on.
* Ctrl-C may come between any two lines, and who decodes is where it mostly comes: what was taken out of a
  partition then, and not handed out, is in `begun`.
"""

from __future__ import annotations

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ..records import ColumnBatch, ConsumerRecord
from .positions import PartitionState


class Deliveries:
    """The partitions that have something to hand out, the next one first."""

    def __init__(self) -> None:
        self._loaded: dict[TopicPartition, PartitionState] = {}
        self._broken: dict[TopicPartition, KprotoError] = {}
        self._untold: dict[TopicPartition, KprotoError] = {}
        # The partition that records are just being taken from.
        self.begun: PartitionState | None = None

    def look(self, state: PartitionState) -> None:
        """Something about this partition changed."""
        partition = state.partition
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
        state = next(iter(self._loaded.values()), None)
        return state is not None and state.chunks[0].holds(limit)

    def held(self, limit: int) -> list[ConsumerRecord]:
        """These; of what was fetched nothing is used up, so nobody has to look at the partition."""
        partition, state = next(iter(self._loaded.items()))
        self.begun = state
        del self._loaded[partition]
        self._loaded[partition] = state
        chunk = state.chunks[0]
        found = chunk.rows(partition.topic, partition.partition, limit)
        state.moved(chunk)
        self.begun = None
        return found

    def _next(self) -> PartitionState:
        """The partition whose turn it is; it goes to the end of the line if something is left of it."""
        self.begun = state = next(iter(self._loaded.values()))
        del self._loaded[state.partition]
        state.touch()
        return state

    def _rows_of(self, state: PartitionState, limit: int, found: list[ConsumerRecord]) -> None:
        topic, partition = state.partition
        while state.chunks and len(found) < limit:
            chunk = state.chunks[0]
            try:
                found += chunk.rows(topic, partition, limit - len(found))
            except KprotoError as error:
                state.fail(error)
            state.moved(chunk)
            if state.error is not None:
                return

    def columns(self) -> list[ColumnBatch]:
        """Everything that is buffered, one batch of columns for each fetched piece."""
        found: list[ColumnBatch] = []
        while self._loaded:
            state = self._next()
            topic, partition = state.partition
            while state.chunks and state.error is None:
                chunk = state.chunks[0]
                try:
                    columns = chunk.columns()
                except KprotoError as error:
                    state.fail(error)
                    break
                if columns is not None:
                    found.append(ColumnBatch(topic, partition, columns))
                state.moved(chunk)
        self.begun = None
        return found
