"""The state of each assigned partition: its position, its buffered fetches, and its uncommitted offset.

Rules:

* `position` is the offset of the next record to return. `fetch_offset` is the offset after the last buffered
  record. `processed` is the position at the last poll.

* Automatic commits do not go beyond `processed`: only the next poll confirms that the application has
  processed the returned records.

* With `enable_auto_offset_store=False`, commits contain `stored`, the offset that the application stored
  last, instead of `processed`. An offset that the application commits is stored as well.

* As in librdkafka, a seek keeps the stored offset, and the end of the assignment drops it.

* The committed offset is certain only after the response to the last requested commit. A commit that is
  queued, in flight or timed out may still change the committed offset. Before the response to the last
  commit, the partition counts as uncommitted.

* Every seek, reset and assignment gives the partition a new `epoch` that was never used before. Responses to
  requests of earlier epochs are ignored, so no request in flight overrides the last seek (I8).

* Records are returned only while the partition is FETCHING, is not paused and is not being revoked. They also
  wait for the end of its assigned callback and, if required, for the commit of its start offset
  (`start_uncommitted`, rule M206).

* A paused partition keeps its position. It also keeps its buffered records, unless the buffers of paused
  partitions would exceed `fetch_max_bytes`.

* Every change marks the partition dirty, and the other parts of the engine visit only dirty partitions. So
  the cost of an event depends only on the partitions that it changes.

* A heap orders the scheduled visits by their times.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from math import inf
from uuid import UUID

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition
from kproto.machine import Edges, move

from ..fetch.buffers import CompletedFetch

# Maximum number of fetches that a partition buffers: one whose records are being returned, and the next.
MAX_FETCHES = 2


class FetchState(Enum):
    """What a partition waits for (Java's SubscriptionState.FetchStates)."""

    INITIALIZING = "initializing"  # Waits for the lookup of the group's committed offset.
    AWAIT_RESET = "await reset"  # Waits for the lookup of the offset of a reset policy or seek_to().
    AWAIT_VALIDATION = "await validation"  # Waits for the check that the log was not truncated (KIP-320).
    FETCHING = "fetching"  # Waits for nothing: the partition has a position.


S = FetchState

EDGES: Edges[FetchState] = {
    S.INITIALIZING: frozenset({S.INITIALIZING, S.AWAIT_RESET, S.FETCHING}),
    S.AWAIT_RESET: frozenset({S.INITIALIZING, S.AWAIT_RESET, S.FETCHING}),
    S.AWAIT_VALIDATION: frozenset(S),
    S.FETCHING: frozenset(S),
}


class OffsetReset(msgspec.Struct, frozen=True):
    """A pending reset: the timestamp to look up by ListOffsets, and the reason to report."""

    timestamp: int
    reason: str
    # Whether the offset that the lookup returns is committed before the first record is returned. This is
    # required if the group has no committed offset (M206).
    commits_start: bool = False
    # The position before the reset, for the report. None if the partition had no position, or if the report
    # omits the position.
    before: int | None = None


class PartitionState:
    """One assigned partition. Other modules may read its attributes; only its methods change them."""

    __slots__ = (
        "_largest_lag",
        "_last_lag",
        "_last_lead",
        "_smallest_lead",
        "_subscription",
        "_unrecorded_bytes",
        "_unrecorded_records",
        "announced",
        "changed_at",
        "committed",
        "empty_at",
        "end_reported",
        "epoch",
        "error",
        "extra_fetch_open",
        "failures",
        "fetch_offset",
        "fetches",
        "has_returned",
        "high_watermark",
        "is_new",
        "last_stable_offset",
        "leader_epoch",
        "log_start_offset",
        "lookup_pending",
        "no_rack_until",
        "partition",
        "paused",
        "pending_commit",
        "position",
        "processed",
        "released",
        "replica",
        "replica_failures",
        "replica_until",
        "reset",
        "reset_count",
        "retry_at",
        "revoking",
        "stable_since",
        "start_commit_in_flight",
        "start_offset",
        "start_uncommitted",
        "state",
        "stored",
        "topic_id",
        "validated",
    )

    def __init__(
        self,
        subscription: SubscriptionState,
        partition: TopicPartition,
        topic_id: UUID | None,
        *,
        announced: bool,
        new: bool,
    ) -> None:
        self._subscription = subscription
        self.partition = partition
        self.topic_id = topic_id  # Id of the topic that the position belongs to; None until the id is known.
        self.state = FetchState.INITIALIZING
        self.position = 0
        self.processed: int | None = None
        self.leader_epoch: int | None = None  # The leader epoch of the last record before the position.
        self.validated: int | None = None  # The leader epoch for which the position was validated.
        self.fetch_offset = 0
        self.has_returned = False  # Whether records were returned after the position was set.
        self.committed: int | None = None  # The group's committed offset, as last confirmed by a response.
        # The last requested commit or, if the application has stored an offset after that commit, `stored`.
        # None after the commit has succeeded. Until then, the group's committed offset is uncertain.
        self.pending_commit: object | None = None
        # The offset, leader epoch and metadata that the application stored last. They are kept after they
        # have been committed.
        self.stored: tuple[int, int | None, str] | None = None
        self.reset: OffsetReset | None = None
        # Number of consecutive resets because of OFFSET_OUT_OF_RANGE. The count starts again after two
        # fetches with records.
        self.reset_count = 0
        # The start offset that a reset policy chose, if the group had no committed offset. It is None
        # otherwise, and after a seek. Only the initial commit (M206) commits it.
        self.start_offset: int | None = None
        self.start_uncommitted = False
        # Whether an initial commit of the partition is in flight.
        self.start_commit_in_flight = False
        self.paused = False
        self.revoking = False
        self.announced = announced  # Whether the assigned callback has returned.
        self.is_new = new  # Whether the partition was created after the group's first assignment.
        self.released = False  # Whether the partition is no longer assigned.
        self.epoch = subscription.next_epoch()
        # When (ms) the state `epoch` began. `Consumer.why` reports it as the start of a lookup or validation.
        self.changed_at = subscription.clock()
        self.lookup_pending = False  # Whether a lookup or a validation of the position is in flight.
        self.extra_fetch_open = False  # Whether a fetch without a session is in flight for the partition.
        self.retry_at = 0
        self.failures = 0
        # The offset of the last fetch without a session, if it returned no records; otherwise -1.
        self.empty_at = -1
        # Whether the application knows that the position is the end of the log (see `fetch.partition_ends`).
        self.end_reported = False
        self.error: KprotoError | None = None
        self.fetches: deque[CompletedFetch] = deque()
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        # The time (ms) of the first response with the current `last_stable_offset`.
        self.stable_since = 0
        self.log_start_offset: int | None = None
        # Since the previous `take_lags`: the last and the largest lag. Since the previous `take_leads`: the
        # last and the smallest lead. Lag and lead are measured after each poll that returned records.
        self._last_lag: int | None = None
        self._largest_lag = 0
        self._last_lead: int | None = None
        self._smallest_lead: float = inf
        # Since the last `take_counts`: the number of returned records, and the bytes of the fetches whose
        # records have all been returned.
        self._unrecorded_records = self._unrecorded_bytes = 0
        # `replica` is the follower to fetch from until `replica_until` (KIP-392). Until `no_rack_until`,
        # fetches from the leader omit the rack id. `replica_failures` counts consecutive failures of
        # followers.
        self.replica: int | None = None
        self.replica_until = self.no_rack_until = self.replica_failures = 0

    def set_position(self, offset: int, leader_epoch: int | None = None) -> None:
        """Set the position, and start fetching from it."""
        self._invalidate()
        move(self, FetchState.FETCHING, EDGES)
        self.position = self.fetch_offset = offset
        self.processed = offset
        self.has_returned = False
        self.leader_epoch = leader_epoch
        self.validated = None
        self.end_reported = False
        self._subscription.update_uncommitted(self)

    def await_reset(self, reset: OffsetReset) -> None:
        """Make the partition wait for a lookup of its position by ListOffsets."""
        self._invalidate()
        move(self, FetchState.AWAIT_RESET, EDGES)
        self.reset = reset

    def await_committed_offset(self) -> None:
        """Make the partition wait for the lookup of its committed offset."""
        self._invalidate()
        move(self, FetchState.INITIALIZING, EDGES)

    def await_validation(self) -> None:
        """Make the partition wait until the leader has confirmed that its log contains the position.

        The buffered records are dropped and fetched again, because they may come from a truncated part of the
        log.
        """
        start_uncommitted, start_offset = self.start_uncommitted, self.start_offset
        self._invalidate()
        move(self, FetchState.AWAIT_VALIDATION, EDGES)
        self.start_uncommitted, self.start_offset = start_uncommitted, start_offset
        self.fetch_offset = self.position

    def on_validated(self, leader_epoch: int | None) -> None:
        """Resume fetching, because the leader with this epoch has confirmed the position."""
        move(self, FetchState.FETCHING, EDGES)
        self.validated = leader_epoch
        self.mark_dirty()

    def on_topic_recreated(self) -> None:
        """Forget the offsets and epochs of the deleted topic. Called after the topic was re-created."""
        self.committed = self.high_watermark = self.last_stable_offset = self.log_start_offset = None
        self.leader_epoch = self.replica = self.stored = None

    def _invalidate(self) -> None:
        """Give the partition a new state epoch, so that responses to earlier requests are ignored.

        Drop the partition's buffer, error, retries, reset and start offset.
        """
        self.epoch = self._subscription.next_epoch()
        self.changed_at = self._subscription.clock()
        self.lookup_pending = False
        self.extra_fetch_open = False
        self.retry_at = 0
        self.failures = 0
        self.reset = None
        self.error = None
        self.start_offset = None
        self.start_uncommitted = False
        self.empty_at = -1
        self.fetches.clear()
        self.mark_dirty()

    def mark_dirty(self) -> None:
        """Mark the partition dirty, so that the other parts of the engine visit it."""
        subscription = self._subscription
        # If the partition was released and assigned again, its state is a new object, and this object is
        # obsolete.
        if subscription.states.get(self.partition, self) is self:
            subscription.dirty[self.partition] = self

    def fail(self, error: KprotoError) -> None:
        """Stop fetching until a seek. Poll raises `error` after it has returned the buffered records."""
        self.error = error
        self.mark_dirty()

    def back_off_until(self, until: int) -> None:
        """Send no request for the partition until the time `until` (ms)."""
        self.retry_at = until
        self._subscription.schedule(self, until)
        self.mark_dirty()

    def pause(self, paused: bool) -> None:
        """Pause the partition, or resume it if `paused` is false."""
        self.paused = paused
        self.mark_dirty()

    def revoke(self) -> None:
        """Stop returning records, because the partition is being revoked."""
        self.revoking = True
        self.mark_dirty()

    def announce(self) -> None:
        """Allow records to be returned, because the assigned callback has returned."""
        self.announced = True
        self.mark_dirty()

    def set_start_commit_in_flight(self, in_flight: bool) -> None:
        """Record whether an initial commit of the partition is in flight."""
        self.start_commit_in_flight = in_flight
        self.mark_dirty()

    def on_start_committed(self) -> None:
        """Allow records to be returned, because the start offset is committed."""
        self.start_uncommitted = False
        self.mark_dirty()

    def add_fetch(self, chunk: CompletedFetch) -> None:
        """Add a completed fetch to the buffer. The partition's next fetch starts at the end of `chunk`."""
        if self.fetches or self.has_returned:
            # The last reset was followed by more than one fetch with records, so it has succeeded.
            self.reset_count = 0
        self.fetches.append(chunk)
        self.fetch_offset = chunk.end
        self.failures = 0
        self.mark_dirty()

    def on_records_taken(self, chunk: CompletedFetch, number: int) -> bool:
        """Move the position past the `number` records that were returned from `chunk`.

        `chunk` is the first buffered fetch. Return whether all records of `chunk` were returned.
        """
        self._subscription.returned[self.partition] = self
        self._subscription.unrecorded[self] = None
        self._unrecorded_records += number
        self.position = chunk.position
        epoch = chunk.leader_epoch
        if epoch is not None:
            self.leader_epoch = epoch
        self.has_returned = True
        self.end_reported = False
        end = self.high_watermark if self.last_stable_offset is None else self.last_stable_offset
        if end is not None:
            self._last_lag = lag = end - self.position
            if lag > self._largest_lag:
                self._largest_lag = lag
        if self.log_start_offset is not None:
            self._last_lead = lead = self.position - self.log_start_offset
            if lead < self._smallest_lead:
                self._smallest_lead = lead
        exhausted = chunk.exhausted
        if exhausted and self.fetches:
            self.fetches.popleft()
            self._unrecorded_bytes += len(chunk.data)
            self.mark_dirty()
        return exhausted

    def discard_buffer(self) -> None:
        """Drop the buffer to free memory. The records are fetched again later."""
        self.epoch = self._subscription.next_epoch()
        self.extra_fetch_open = False
        self.empty_at = -1
        self.fetches.clear()
        self.fetch_offset = self.position

    def rewind(self, offset: int) -> None:
        """Set the position back to `offset`, the first record that the application has not received."""
        processed, validated, start_offset = self.processed, self.validated, self.start_offset
        self.set_position(offset, self.leader_epoch)
        self.validated, self.start_offset = validated, start_offset
        self.has_returned = True
        self.processed = processed if processed is None else min(processed, offset)
        self._subscription.update_uncommitted(self)

    def on_commit_sent(self, offset: int, commit: object) -> None:
        """Record that `commit`, which contains `offset`, was requested.

        Until this commit gets a response, the group's committed offset is uncertain. The returned records
        below `offset` count as processed, so no later automatic commit has a smaller offset.
        """
        if self.has_returned and self.has_position and (self.processed or 0) < offset <= self.position:
            self.processed = offset
            self._subscription.update_uncommitted(self)
        if self.pending_commit is not None or self.committed != offset:
            self.pending_commit = commit
            # If the processed and the committed offset differ, the partition is already marked as
            # uncommitted.
            if self.processed == self.committed:
                self._subscription.update_uncommitted(self)

    def on_committed(self, offset: int, commit: object | None = None) -> None:
        """Record that the group has committed `offset`.

        `commit` is the commit that contained the offset; None if this consumer did not commit it.

        If another commit was requested after `commit`, the group's committed offset remains uncertain.
        """
        self.committed = offset
        if self.pending_commit is commit:
            self.pending_commit = None
        self._subscription.update_uncommitted(self)

    def store(self, offset: int, leader_epoch: int | None, metadata: str) -> None:
        """Store the offset that the next commit will contain, with its leader epoch and metadata."""
        stored = offset, leader_epoch, metadata
        if self.stored != stored:
            # A commit of the same offset may have contained another leader epoch or other metadata, so the
            # committed offset counts as uncertain until `stored` is committed.
            self.stored = self.pending_commit = stored
        self._subscription.update_uncommitted(self)

    def has_committed(self, offset: int | None) -> bool:
        """Return whether it is certain that `offset` is the group's committed offset."""
        return self.pending_commit is None and self.committed == offset

    @property
    def has_position(self) -> bool:
        """Whether the position is known."""
        return self.state is FetchState.FETCHING or self.state is FetchState.AWAIT_VALIDATION

    @property
    def needs_commit(self) -> bool:
        """Whether a processed or stored offset has no confirmed commit."""
        if self._subscription.stores_manually:
            return self.stored is not None and not self.has_committed(self.stored[0])
        return (
            self.has_position
            and self.processed is not None
            and not self.is_at_start
            and not self.has_committed(self.processed)
        )

    @property
    def offset_to_commit(self) -> tuple[int, int | None, str]:
        """The offset of the next commit, with its leader epoch and metadata.

        If there is nothing new to commit, return the committed offset. Committing it again keeps it from
        expiring.
        """
        if not self._subscription.stores_manually:
            offset = self.committed if self.is_at_start else self.processed
            return offset or 0, self.leader_epoch, ""
        return self.stored or (self.committed or 0, None, "")

    @property
    def is_at_start(self) -> bool:
        """Whether no record has been processed since a reset policy chose the start offset."""
        return self.start_offset is not None and self.processed == self.start_offset

    @property
    def is_fetchable(self) -> bool:
        """Whether the next fetch may include the partition."""
        return (
            self.state is FetchState.FETCHING
            and not self.released
            and not self.paused
            and not self.revoking
            and self.error is None
            and not self.extra_fetch_open
            and len(self.fetches) < MAX_FETCHES
        )

    @property
    def is_full(self) -> bool:
        """Whether the buffer is full and the next poll can take records from it."""
        return len(self.fetches) >= MAX_FETCHES and self.is_deliverable

    @property
    def likely_has_records(self) -> bool:
        """Whether a fetch without a session is likely to return records immediately."""
        if self.fetch_offset == self.empty_at:
            return False
        return self.high_watermark is None or self.fetch_offset < self.high_watermark

    @property
    def has_more(self) -> bool:
        """Whether the broker has records after the buffered ones, according to its last response."""
        ends = [end for end in (self.high_watermark, self.last_stable_offset) if end is not None]
        return bool(ends) and self.fetch_offset < min(ends)

    @property
    def is_deliverable(self) -> bool:
        """Whether buffered records may be returned."""
        return (
            self.state is FetchState.FETCHING
            and not self.released
            and not self.paused
            and not self.revoking
            and self.announced
            and not self.awaits_start_commit
            and self.error is None
        )

    @property
    def awaits_start_commit(self) -> bool:
        """Whether an initial commit (M206) holds the records back.

        After a seek, the records also wait if the initial commit is in flight. Otherwise the application
        could send their offsets in a transaction, and the coordinator could receive the initial commit after
        these offsets.
        """
        return self.start_uncommitted or self.start_commit_in_flight

    @property
    def lag(self) -> int | None:
        """Number of records from the position to the end of the log at the last fetch; None if unknown."""
        end = self.last_stable_offset if self.last_stable_offset is not None else self.high_watermark
        return None if end is None or not self.has_position else max(0, end - self.position)

    @property
    def lead(self) -> int | None:
        """Number of offsets from the log start offset (of the last fetch) to the position.

        None if the log start offset or the position is unknown.
        """
        start = self.log_start_offset
        return None if start is None or not self.has_position else max(0, self.position - start)

    def take_counts(self) -> tuple[int, int]:
        """Return the numbers of returned records and bytes since the previous call.

        The bytes of a fetch are counted only when all records of the fetch have been returned.
        """
        counts = self._unrecorded_records, self._unrecorded_bytes
        self._unrecorded_records = self._unrecorded_bytes = 0
        return counts

    def take_lags(self) -> set[int]:
        """Return the largest and the latest lag that were measured since the previous call."""
        lags = set[int]() if self._last_lag is None else {self._largest_lag, max(0, self._last_lag)}
        self._last_lag, self._largest_lag = None, 0
        return lags

    def take_leads(self) -> set[float]:
        """Return the smallest and the latest lead that were measured since the previous call."""
        last, smallest = self._last_lead, self._smallest_lead
        self._last_lead, self._smallest_lead = None, inf
        return set[float]() if last is None else {max(0, smallest), max(0, last)}


class SubscriptionState:
    """The states of all assigned partitions (Java's SubscriptionState).

    `dirty` contains the partitions whose state changed since the engine last visited them. `clock` returns
    the time in ms for `PartitionState.changed_at`.
    """

    def __init__(self, clock: Callable[[], int] = lambda: 0) -> None:
        self.clock = clock
        self.states: dict[TopicPartition, PartitionState] = {}
        self.dirty: dict[TopicPartition, PartitionState] = {}
        # `returned`: partitions with returned records that are not processed yet. `_uncommitted`: partitions
        # with processed records that are not committed yet.
        self.returned: dict[TopicPartition, PartitionState] = {}
        self._uncommitted: dict[TopicPartition, PartitionState] = {}
        # Whether commits contain the offsets that the application stores, instead of those of processed
        # records.
        self.stores_manually = False
        # The partitions whose newest returned records the metrics do not include yet.
        self.unrecorded: dict[PartitionState, None] = {}
        # A heap of (time in ms, number, state). The numbers order entries with the same time.
        self._scheduled: list[tuple[int, int, PartitionState]] = []
        # The last number that was given to an epoch or to an entry of `_scheduled`. No number is given twice.
        self._last_number = 0
        # Number of partitions released since the consumer was created. An iteration that holds records stores
        # this number. If the number has grown since, another member may own the partitions of some
        # of the held records.
        self.losses = 0

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self.states

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self.states)

    def __len__(self) -> int:
        return len(self.states)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self.states.get(partition)

    def add(
        self,
        partition: TopicPartition,
        topic_id: UUID | None = None,
        *,
        announced: bool = False,
        new: bool = False,
    ) -> PartitionState:
        """Add a partition, whose position is then looked up.

        `topic_id` is the id of the partition's topic. Pass None if the id is unknown, or if the known id may
        be outdated because the consumer has not read the topic until now.
        """
        state = PartitionState(self, partition, topic_id, announced=announced, new=new)
        self.states[partition] = state
        state.mark_dirty()
        return state

    def drop(self, partition: TopicPartition) -> PartitionState | None:
        """Remove a partition and its buffered records. Return its state, or None if it is not assigned."""
        state = self.states.pop(partition, None)
        if state is not None:
            self.losses += 1
            state.released = True
            state.fetches.clear()
            state.mark_dirty()
            self.returned.pop(partition, None)
            self._uncommitted.pop(partition, None)
        return state

    def clear(self) -> None:
        for partition in list(self.states):
            self.drop(partition)

    def mark_all_dirty(self) -> None:
        """Mark all partitions dirty, because the metadata has changed."""
        self.dirty.update(self.states)

    def schedule(self, state: PartitionState, until: int) -> None:
        """Schedule the partition to become dirty at the time `until` (ms)."""
        self._last_number += 1
        heapq.heappush(self._scheduled, (until, self._last_number, state))

    def mark_due_dirty(self, now: int) -> None:
        """Mark as dirty each partition whose scheduled time has been reached."""
        while self._scheduled and self._scheduled[0][0] <= now:
            heapq.heappop(self._scheduled)[2].mark_dirty()

    def due(self) -> int | None:
        """Return when (ms) to call `mark_due_dirty` next; None if no partition is scheduled."""
        return self._scheduled[0][0] if self._scheduled else None

    def mark_processed(self, held: Mapping[TopicPartition, int] = {}) -> None:
        """Count all returned records as processed, except those at and after the offsets in `held`."""
        for partition, state in list(self.returned.items()):
            if state.has_position and not state.released:
                processed_end = min(held.get(partition, state.position), state.position)
                state.processed = max(processed_end, state.processed or 0)
                self.update_uncommitted(state)
                if state.processed < state.position:
                    continue
            del self.returned[partition]

    def update_uncommitted(self, state: PartitionState) -> None:
        """Add the partition to `_uncommitted` if it needs a commit and is not released, else remove it."""
        if state.needs_commit and not state.released:
            self._uncommitted[state.partition] = state
        else:
            self._uncommitted.pop(state.partition, None)

    def states_to_commit(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """Return the states of the partitions whose processed or stored offset has no confirmed commit.

        Only partitions in `partitions` are returned; None means all.
        """
        if partitions is None:
            return {p: state for p, state in self._uncommitted.items() if state.needs_commit}
        return {p: state for p in partitions if (state := self._uncommitted.get(p)) and state.needs_commit}

    def processed_states(self) -> dict[TopicPartition, PartitionState]:
        """Return the states of the partitions with a processed offset. Java commits all of them."""
        return {p: s for p, s in self.states.items() if s.has_position and s.processed is not None}

    def committed_states(self) -> dict[TopicPartition, PartitionState]:
        """Return the states of the partitions that have a processed and a committed offset.

        A start offset counts as committed only after its initial commit has succeeded.
        """
        return {
            p: s
            for p, s in self.processed_states().items()
            if s.committed is not None and not s.start_uncommitted
        }

    def next_epoch(self) -> int:
        """Return a new epoch, which no partition has had before."""
        self._last_number += 1
        return self._last_number
