"""Where each partition is: what to find out first, what to fetch next, what was handed out.

Rules that hold here:

* `position` is the offset of the next record to hand out; `fetch_offset` runs ahead of it by what is
  buffered. `processed` is the position at the last poll: what an automatic commit may say, because the
  application came back for more.
* What the group has is known where every commit that was asked for is answered. One that isn't (queued, on
  its way, given up in time) may still change it: until a later one is acknowledged there is something to
  commit, whatever was acknowledged before.
* Every seek, reset or new assignment gives the partition a new `epoch`, which no partition ever had; an
  answer that was asked for in an earlier epoch is ignored. So the last seek wins over whatever is under way
  (I8).
* A partition hands out records only when it is ready, not paused, not being revoked, its assigned callback
  has returned, and the offset it starts from is committed where that is asked for (`unsaved`, rule M206).
* Pausing changes nothing else: buffered records stay, positions stay.
* Whoever changes a partition *touches* it, and the parts look at what was touched only: so an event costs
  nothing for partitions that it isn't about. What waits for a moment is kept in the order of the moments.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from uuid import UUID

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition
from kproto.machine import Edges, move

from ..fetch.buffers import CompletedFetch

# How many fetched pieces a partition may hold: one that is being handed out, and the next.
PREFETCH = 2


class FetchState(Enum):
    """What a partition waits for. Java's SubscriptionState.FetchStates."""

    INITIALIZING = "initializing"  # the group's committed offset
    AWAIT_RESET = "await reset"  # the offset that the reset policy or seek_to() names
    AWAIT_VALIDATION = "await validation"  # whether the log was truncated below the position (KIP-320)
    FETCHING = "fetching"  # nothing: it has a position


S = FetchState

EDGES: Edges[FetchState] = {
    S.INITIALIZING: frozenset({S.INITIALIZING, S.AWAIT_RESET, S.FETCHING}),
    S.AWAIT_RESET: frozenset({S.INITIALIZING, S.AWAIT_RESET, S.FETCHING}),
    S.AWAIT_VALIDATION: frozenset(S),
    S.FETCHING: frozenset(S),
}


class OffsetReset(msgspec.Struct, frozen=True):
    """A start position to be asked of the leader: ListOffsets' timestamp, and why."""

    timestamp: int
    reason: str
    # True when nobody committed anything yet: the result is committed before the first record (M206).
    save: bool = False
    # Where it stood, which is not in the log (any more).
    before: int | None = None


class PartitionState:
    """One assigned partition. Read what you like; change it through its methods."""

    __slots__ = (
        "_home",
        "announced",
        "committed",
        "empty_at",
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
        "resets",
        "retry_at",
        "revoking",
        "start_uncommitted",
        "state",
        "topic_id",
        "validated",
    )

    def __init__(
        self,
        home: SubscriptionState,
        partition: TopicPartition,
        topic_id: UUID | None,
        *,
        announced: bool,
        new: bool,
    ) -> None:
        self._home = home
        self.partition = partition
        self.topic_id = topic_id  # of the topic that its position is in; None until that is told
        self.state = FetchState.INITIALIZING
        self.position = 0
        self.processed: int | None = None
        self.leader_epoch: int | None = None  # of the last record before the position
        self.validated: int | None = None  # the leader's epoch that the position was checked against
        self.fetch_offset = 0
        self.has_returned = False  # some records from where it started
        self.committed: int | None = None  # as the group said last
        self.pending_commit: object | None = (
            None  # the last commit that may change that, until it is answered
        )
        self.reset: OffsetReset | None = None
        self.resets = 0  # in a row, because it was out of range, and one piece was fetched in between at most
        self.start_uncommitted = False
        self.paused = False
        self.revoking = False
        self.announced = announced
        self.is_new = new
        self.released = False
        self.epoch = home.next_epoch()
        self.lookup_pending = False
        self.extra_fetch_open = False  # a fetch beside the waiting one is open for it
        self.retry_at = 0
        self.failures = 0
        # The offset at which a fetch beside the waiting one found nothing.
        self.empty_at = -1
        self.error: KprotoError | None = None
        self.fetches: deque[CompletedFetch] = deque()
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.log_start_offset: int | None = None
        # The follower that is asked for it, and until when; until when its leader may send to none, and how
        # often in a row one was asked in vain.
        self.replica: int | None = None
        self.replica_until = self.no_rack_until = self.replica_failures = 0

    # ---- where it starts

    def set_position(self, offset: int, leader_epoch: int | None = None) -> None:
        """The position is known: from the group, from a leader, or from a seek."""
        self._invalidate()
        move(self, FetchState.FETCHING, EDGES)
        self.position = self.fetch_offset = offset
        self.processed = offset
        self.has_returned = False
        self.leader_epoch = leader_epoch
        self.validated = None
        self._home.update_uncommitted(self)

    def await_reset(self, reset: OffsetReset) -> None:
        """The position has to be asked of the leader."""
        self._invalidate()
        move(self, FetchState.AWAIT_RESET, EDGES)
        self.reset = reset

    def await_committed_offset(self) -> None:
        """The position has to be asked of the group."""
        self._invalidate()
        move(self, FetchState.INITIALIZING, EDGES)

    def await_validation(self) -> None:
        """The position stands on an epoch that another leader may have cut: ask before anything else is read.

        What is buffered is fetched again, as it may come from what was cut off.
        """
        unsaved, processed, committed = self.start_uncommitted, self.processed, self.committed
        self._invalidate()
        move(self, FetchState.AWAIT_VALIDATION, EDGES)
        self.start_uncommitted, self.processed, self.committed = unsaved, processed, committed
        self.fetch_offset = self.position

    def on_validated(self, leader_epoch: int | None) -> None:
        """The leader of this epoch has what the position stands on."""
        move(self, FetchState.FETCHING, EDGES)
        self.validated = leader_epoch
        self.lookup_pending = False
        self.mark_dirty()

    def on_topic_recreated(self) -> None:
        """It is another partition of the same name: what brokers said of it is over."""
        self.committed = self.high_watermark = self.last_stable_offset = self.log_start_offset = None
        self.leader_epoch = self.replica = None

    def _invalidate(self) -> None:
        self.epoch = self._home.next_epoch()
        self.lookup_pending = False
        self.extra_fetch_open = False
        self.retry_at = 0
        self.failures = 0
        self.reset = None
        self.error = None
        self.start_uncommitted = False
        self.empty_at = -1
        self.fetches.clear()
        self.mark_dirty()

    # ---- what happens to it

    def mark_dirty(self) -> None:
        """Something about it changed: everybody looks at it again."""
        home = self._home
        if home.states.get(self.partition, self) is self:
            home.dirty[self.partition] = self

    def fail(self, error: KprotoError) -> None:
        """Nothing more is fetched until a seek; raised when everything before was handed out."""
        self.error = error
        self.mark_dirty()

    def back_off_until(self, until: int) -> None:
        """It is left alone until then."""
        self.retry_at = until
        self._home.schedule(self, until)
        self.mark_dirty()

    def pause(self, paused: bool) -> None:
        self.paused = paused
        self.mark_dirty()

    def revoke(self) -> None:
        self.revoking = True
        self.mark_dirty()

    def announce(self) -> None:
        self.announced = True
        self.mark_dirty()

    def on_start_committed(self) -> None:
        self.start_uncommitted = False
        self.mark_dirty()

    def add_fetch(self, chunk: CompletedFetch) -> None:
        """A fetch brought this; it goes on behind it."""
        if self.fetches or self.has_returned:
            self.resets = 0  # what it was reset to leads on, and isn't out of range again behind the first
        self.fetches.append(chunk)
        self.fetch_offset = chunk.end
        self.failures = 0
        self.mark_dirty()

    def on_records_taken(self, chunk: CompletedFetch) -> None:
        """Some of its first chunk was handed out."""
        self._home.returned[self.partition] = self
        self.position = chunk.position
        if chunk.leader_epoch >= 0:
            self.leader_epoch = chunk.leader_epoch
        self.has_returned = True
        if chunk.exhausted and self.fetches:
            self.fetches.popleft()
            self.mark_dirty()

    def discard_buffer(self) -> None:
        """What was fetched ahead is given up for others' sake, and fetched again."""
        self.epoch = self._home.next_epoch()
        self.extra_fetch_open = False
        self.empty_at = -1
        self.fetches.clear()
        self.fetch_offset = self.position

    def rewind(self, offset: int) -> None:
        """Records from `offset` on were handed out in vain: they come again."""
        committed, processed, validated = self.committed, self.processed, self.validated
        self.set_position(offset, self.leader_epoch)
        self.committed, self.validated, self.has_returned = committed, validated, True
        self.processed = processed if processed is None else min(processed, offset)
        self._home.update_uncommitted(self)

    def on_commit_sent(self, offset: int, by: object) -> None:
        """A commit of this offset is on its way: what the group has is uncertain until `by` is answered. What
        was handed out below it is processed, as the application says: no automatic commit goes back of it."""
        if self.has_returned and self.has_position and (self.processed or 0) < offset <= self.position:
            self.processed = offset
            self._home.update_uncommitted(self)
        if self.pending_commit is not None or self.committed != offset:
            self.pending_commit = by
            if self.processed == self.committed:  # else it is among what there is to commit
                self._home.update_uncommitted(self)

    def on_committed(self, offset: int, by: object | None = None) -> None:
        """The group has this offset; and keeps it, if nothing was asked for behind `by`."""
        self.committed = offset
        if self.pending_commit is by:
            self.pending_commit = None
        self._home.update_uncommitted(self)

    def has_committed(self, offset: int | None) -> bool:
        """Whether the group certainly has this offset."""
        return self.pending_commit is None and self.committed == offset

    # ---- to look at

    @property
    def has_position(self) -> bool:
        return self.state is FetchState.FETCHING or self.state is FetchState.AWAIT_VALIDATION

    @property
    def to_commit(self) -> bool:
        """Something was processed that isn't committed, or not certainly."""
        return self.has_position and self.processed is not None and not self.has_committed(self.processed)

    @property
    def is_fetchable(self) -> bool:
        return (
            self.state is FetchState.FETCHING
            and not self.released
            and not self.paused
            and not self.revoking
            and self.error is None
            and not self.extra_fetch_open
            and len(self.fetches) < PREFETCH
        )

    @property
    def is_full(self) -> bool:
        """There is no room for more until the next poll takes some."""
        return len(self.fetches) >= PREFETCH and self.is_deliverable

    @property
    def likely_has_records(self) -> bool:
        """There is probably something to fetch: worth a request beside the one that waits at the broker."""
        if self.fetch_offset == self.empty_at:
            return False
        return self.high_watermark is None or self.fetch_offset < self.high_watermark

    @property
    def has_more(self) -> bool:
        """The broker has more than was fetched, as its last answer said."""
        ends = [end for end in (self.high_watermark, self.last_stable_offset) if end is not None]
        return bool(ends) and self.fetch_offset < min(ends)

    @property
    def is_deliverable(self) -> bool:
        return (
            self.state is FetchState.FETCHING
            and not self.released
            and not self.paused
            and not self.revoking
            and self.announced
            and not self.start_uncommitted
            and self.error is None
        )

    @property
    def lag(self) -> int | None:
        """Records behind the end, as the last fetch told it."""
        end = self.last_stable_offset if self.last_stable_offset is not None else self.high_watermark
        return None if end is None or not self.has_position else max(0, end - self.position)


class SubscriptionState:
    """All partitions of one consumer, and which of them somebody has to look at."""

    def __init__(self) -> None:
        self.states: dict[TopicPartition, PartitionState] = {}
        self.dirty: dict[TopicPartition, PartitionState] = {}
        # Handed out since the last poll, and processed but not committed.
        self.returned: dict[TopicPartition, PartitionState] = {}
        self._uncommitted: dict[TopicPartition, PartitionState] = {}
        self._scheduled: list[tuple[int, int, PartitionState]] = []
        self._epochs = 0
        self.losses = 0
        """How many partitions were let go so far: whoever holds records of some looks again then."""

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
        """Takes a partition in; it starts by finding out where. `topic_id`: of its topic, if that is looked
        after and known."""
        state = PartitionState(self, partition, topic_id, announced=announced, new=new)
        self.states[partition] = state
        state.mark_dirty()
        return state

    def drop(self, partition: TopicPartition) -> PartitionState | None:
        """Lets a partition go, with all that was buffered of it."""
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
        """Something about the cluster changed."""
        self.dirty.update(self.states)

    # ---- time

    def schedule(self, state: PartitionState, until: int) -> None:
        self._epochs += 1
        heapq.heappush(self._scheduled, (until, self._epochs, state))

    def mark_due_dirty(self, now: int) -> None:
        """Touches those whose moment has come."""
        while self._scheduled and self._scheduled[0][0] <= now:
            heapq.heappop(self._scheduled)[2].mark_dirty()

    def due(self) -> int | None:
        return self._scheduled[0][0] if self._scheduled else None

    # ---- what there is to commit

    def mark_processed(self, held: Mapping[TopicPartition, int] = {}) -> None:
        """The application came back: what was handed out is processed, below what is `held` of it; and what
        was before."""
        for partition, state in list(self.returned.items()):
            if state.has_position and not state.released:
                below = min(held.get(partition, state.position), state.position)
                state.processed = max(below, state.processed or 0)
                self.update_uncommitted(state)
                if state.processed < state.position:
                    continue
            del self.returned[partition]

    def update_uncommitted(self, state: PartitionState) -> None:
        """What is processed or committed of it changed."""
        if state.to_commit and not state.released:
            self._uncommitted[state.partition] = state
        else:
            self._uncommitted.pop(state.partition, None)

    def to_commit(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """The partitions (of these, or all) with something processed that isn't committed."""
        if partitions is None:
            return {p: state for p, state in self._uncommitted.items() if state.to_commit}
        return {p: state for p in partitions if (state := self._uncommitted.get(p)) and state.to_commit}

    def processed_at_all(self) -> dict[TopicPartition, PartitionState]:
        """All partitions with a position, also where nothing is new: what Java's consumer commits."""
        return {p: s for p, s in self.states.items() if s.has_position and s.processed is not None}

    def committed_before(self) -> dict[TopicPartition, PartitionState]:
        """Those of which something is committed, new or not."""
        return {
            p: s
            for p, s in self.processed_at_all().items()
            if s.committed is not None and not s.start_uncommitted
        }

    def next_epoch(self) -> int:
        self._epochs += 1
        return self._epochs
