"""Returns fetched records to the application (Java's FetchCollector).

Rules:

* A poll takes records from the partitions in turn, beginning after the partition at which the last poll
  ended. So no partition starves the others.

* At most `MAX_OPEN_FETCHES` fetches are decoded at a time, because decoded records may need much more memory
  than fetched bytes. Polls return records from these fetches in turn.

* If `MAX_OPEN_FETCHES` fetches are decoded, the decoded records of a paused partition are freed before
  another fetch is decoded. They are decoded again later.

* An error of a partition is raised as soon as the records before it have been returned.

* Later polls return the records of other partitions. A poll that has no records to return raises the error
  again, until the application seeks in the failed partition.

* Ctrl-C may interrupt any line, most likely during decoding. `reading` is then the partition whose records
  were taken from the buffer but not returned.
"""

from __future__ import annotations

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ...records import ColumnBatch, ConsumerRecord
from ..positions.partition_states import PartitionState
from .batch_headers import locate_error
from .buffers import MAX_DECODED_BYTES, CompletedFetch

# Maximum number of partitions whose fetched records are decoded at a time. If it were one, as in Java, polls
# would return a partition's few records only after another partition's many records.
MAX_OPEN_FETCHES = 8


class FetchCollector:
    """The partitions with buffered records, and the partition errors that poll has to raise."""

    def __init__(self) -> None:
        # The partitions with buffered records, in the order in which polls return their records.
        self.ready: dict[TopicPartition, PartitionState] = {}
        # The errors of all failed partitions. `unraised` contains those that no poll has raised yet.
        self._errors: dict[TopicPartition, KprotoError] = {}
        self.unraised: dict[TopicPartition, KprotoError] = {}
        # The partitions whose first buffered fetch is decoded; the most recently used partition is last.
        self._decoded: dict[TopicPartition, tuple[PartitionState, CompletedFetch]] = {}
        # The partition from which a poll is taking records; None between polls.
        self.reading: PartitionState | None = None

    def visit(self, state: PartitionState) -> None:
        """Update the ready partitions and the errors after the partition's state has changed."""
        partition = state.partition
        _, decoded_fetch = self._decoded.get(partition, (None, None))
        if decoded_fetch is not None and (not state.fetches or state.fetches[0] is not decoded_fetch):
            del self._decoded[partition]
        if state.fetches and state.is_deliverable:
            self.ready.setdefault(partition, state)
        else:
            self.ready.pop(partition, None)
        if state.error is None or state.released:
            self._errors.pop(partition, None)
            self.unraised.pop(partition, None)
        elif self._errors.get(partition) is not state.error:
            self._errors[partition] = self.unraised[partition] = state.error

    def next_error(self, *, include_raised: bool) -> KprotoError | None:
        """Return a partition's error that poll has not raised yet; None if there is no such error.

        The returned error counts as raised from now on. With `include_raised`, an error that poll has raised
        before is returned instead of None.
        """
        if self.unraised:
            return self.unraised.pop(next(iter(self.unraised)))
        return next(iter(self._errors.values()), None) if include_raised else None

    def rows(self, limit: int) -> list[ConsumerRecord]:
        """Return at most `limit` records. Partitions with buffered records take turns."""
        records: list[ConsumerRecord] = []
        while self.ready and len(records) < limit:
            state = self._start_next_partition()
            topic, partition = state.partition
            while state.fetches and len(records) < limit:
                fetch = state.fetches[0]
                # `pop` moves the partition to the end of `_decoded`, as the most recently used one.
                self._decoded.pop(state.partition, None)
                self._decoded[state.partition] = state, fetch
                earlier_count = len(records)
                try:
                    records += fetch.rows(topic, partition, limit - earlier_count)
                except KprotoError as error:
                    state.fail(locate_error(error, state.partition, fetch.error_offset, fetch.fetched))
                exhausted = state.on_records_taken(fetch, len(records) - earlier_count)
                if state.error is not None:
                    self._decoded.pop(state.partition, None)
                    break
                if exhausted:
                    self._decoded.pop(state.partition, None)
            if state.error is not None or not state.fetches:
                self.ready.pop(state.partition, None)
        self.reading = None
        return records

    def _start_next_partition(self) -> PartitionState:
        """Return the partition that poll reads next, and move it to the end of `ready`.

        `reading` is set to this partition.
        """
        state = next(iter(self.ready.values()))
        if len(self._decoded) >= MAX_OPEN_FETCHES and state.partition not in self._decoded:
            state = self._limit_decoded(state)
        self.reading = state
        del self.ready[state.partition]
        self.ready[state.partition] = state
        return state

    def _limit_decoded(self, first: PartitionState) -> PartitionState:
        """Return the partition to read next, so that at most `MAX_OPEN_FETCHES` fetches are decoded.

        The caller calls this method when the limit is reached and the next fetch would exceed it.
        `first` is the partition whose turn it is. If a decoded fetch belongs to a partition that is not
        ready, for example a paused one, discard the decoded records of this fetch and return `first`.
        Otherwise return the partition whose decoded fetch was used least recently.
        """
        for partition, (_, fetch) in self._decoded.items():
            if partition not in self.ready:
                fetch.discard_decoded()
                del self._decoded[partition]
                return first
        return next(state for state, _ in self._decoded.values())

    def columns(self) -> list[ColumnBatch]:
        """Return the buffered records, one column batch per fetch, until they reach `MAX_DECODED_BYTES`.

        Decompressed records may be a hundred times larger than the fetched bytes. If a fetch is decoded in
        parts, the call ends after one part of the fetch.
        """
        batches: list[ColumnBatch] = []
        bytes_left = MAX_DECODED_BYTES
        while self.ready and bytes_left > 0:
            state = self._start_next_partition()
            topic, partition = state.partition
            while state.fetches and state.error is None and bytes_left > 0:
                fetch = state.fetches[0]
                try:
                    columns = fetch.columns()
                except KprotoError as error:
                    state.fail(locate_error(error, state.partition, fetch.error_offset, fetch.fetched))
                    break
                if columns is not None:
                    bytes_left -= columns.nbytes
                    batches.append(ColumnBatch(topic, partition, columns))
                if fetch.decodes_in_parts:
                    bytes_left = 0  # Millions of records may remain in the fetch; later calls return them.
                state.on_records_taken(fetch, 0 if columns is None else len(columns))
            if state.error is not None or not state.fetches:
                self.ready.pop(state.partition, None)
        self.reading = None
        return batches
