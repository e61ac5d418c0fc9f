"""Returns fetched records to the application (Java's FetchCollector).

Rules:

* Each poll continues with the partition after the last one, so that no partition starves behind a busy one.
* Decoded records may need much more memory than fetched bytes. At most `MAX_OPEN_FETCHES` fetches are decoded
  at a time, and records are returned from each in turn. If a further fetch needs a place, the records of a
  paused partition are freed and decoded again later.
* An error of a partition is raised once the records before it were returned, regardless of other partitions.
  Every poll without records raises it again, until a seek. The other partitions are still read.
* Ctrl-C may come between any two lines, most likely while decoding. `begun` is the partition whose records
  were taken from the buffer but not returned.
"""

from __future__ import annotations

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ...records import ColumnBatch, ConsumerRecord
from ..positions.partition_states import PartitionState
from .buffers import MAX_DECODED_BYTES, CompletedFetch

# Maximum number of fetches that are decoded at a time. With one, as in Java's consumer, a partition with few
# records waits for a busy one.
MAX_OPEN_FETCHES = 8


class FetchCollector:
    """The partitions with buffered records, the next one first."""

    def __init__(self) -> None:
        self._ready: dict[TopicPartition, PartitionState] = {}
        self._errors: dict[TopicPartition, KprotoError] = {}
        self._unraised: dict[TopicPartition, KprotoError] = {}
        # Partitions whose first fetch is being decoded, the most recently used one last.
        self._decoding: dict[TopicPartition, tuple[PartitionState, CompletedFetch]] = {}
        # The partition from which records are being taken.
        self.begun: PartitionState | None = None

    def visit(self, state: PartitionState) -> None:
        """Update the ready partitions and the errors after a partition has changed."""
        partition = state.partition
        decoding = self._decoding.get(partition)
        if decoding is not None and (not state.fetches or state.fetches[0] is not decoding[1]):
            del self._decoding[partition]
        if state.fetches and state.is_deliverable:
            self._ready.setdefault(partition, state)
        else:
            self._ready.pop(partition, None)
        if state.error is None or state.released:
            self._errors.pop(partition, None)
            self._unraised.pop(partition, None)
        elif self._errors.get(partition) is not state.error:
            self._errors[partition] = self._unraised[partition] = state.error

    def error(self, *, include_raised: bool) -> KprotoError | None:
        """Return a partition's error that was not raised yet; with `include_raised` also one that was."""
        if self._unraised:
            return self._unraised.pop(next(iter(self._unraised)))
        return next(iter(self._errors.values()), None) if include_raised else None

    def rows(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records, taking turns between the partitions that have some."""
        records: list[ConsumerRecord] = []
        while self._ready and len(records) < limit:
            state = self._next()
            topic, partition = state.partition
            while state.fetches and len(records) < limit:
                fetch = state.fetches[0]
                self._decoding.pop(state.partition, None)
                self._decoding[state.partition] = state, fetch
                try:
                    records += fetch.rows(topic, partition, limit - len(records))
                except KprotoError as error:
                    state.fail(error)
                state.on_records_taken(fetch)
                if state.error is not None or fetch.exhausted:
                    self._decoding.pop(state.partition, None)
                if state.error is not None:
                    break
            if state.error is not None or not state.fetches:
                self._ready.pop(state.partition, None)
        self.begun = None
        return records

    @property
    def ready(self) -> bool:
        """Whether records are buffered, and no error of a partition has to be raised first."""
        return bool(self._ready) and not self._unraised

    def _next(self) -> PartitionState:
        """Return the partition that has waited longest, and make it the last one."""
        state = next(iter(self._ready.values()))
        if len(self._decoding) >= MAX_OPEN_FETCHES and state.partition not in self._decoding:
            state = self._make_room_for(state)
        self.begun = state
        del self._ready[state.partition]
        self._ready[state.partition] = state
        return state

    def _make_room_for(self, first: PartitionState) -> PartitionState:
        """Return `first` if a paused partition can free its decoded records, else one being decoded."""
        for partition, (_, fetch) in self._decoding.items():
            if partition not in self._ready:
                fetch.discard_decoded()
                del self._decoding[partition]
                return first
        return next(state for state, _ in self._decoding.values())

    def columns(self) -> list[ColumnBatch]:
        """Return the buffered records, one column batch per fetch, up to `MAX_DECODED_BYTES`.

        The limit is needed because decompressed records may be a hundred times larger than the fetched bytes.
        """
        batches: list[ColumnBatch] = []
        room = MAX_DECODED_BYTES
        while self._ready and room > 0:
            state = self._next()
            topic, partition = state.partition
            while state.fetches and state.error is None and room > 0:
                fetch = state.fetches[0]
                try:
                    columns = fetch.columns()
                except KprotoError as error:
                    state.fail(error)
                    break
                if columns is not None:
                    room -= columns.nbytes
                    batches.append(ColumnBatch(topic, partition, columns))
                state.on_records_taken(fetch)
            if state.error is not None or not state.fetches:
                self._ready.pop(state.partition, None)
        self.begun = None
        return batches
