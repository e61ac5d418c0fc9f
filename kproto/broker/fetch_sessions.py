"""Fetch sessions (KIP-227): after the first request, client and broker send only changes.

Rules, as in Kafka's FetchSession and FetchManager:

* A request with epoch 0 opens a session. A request with epoch -1 uses no session. Both close the session
  whose id they carry.

* A request in a session must carry the session's next epoch. Epoch 2**31 - 1 is followed by 1.

* A request in a session contains only new or changed partitions, and the partitions to forget.

* A response in a session contains the partitions with records, an error or a diverging epoch (KIP-595).

* The response also contains partitions whose high watermark or log start offset changed since the last
  response.

* A session refers to topics either by name (up to v12) or by id (from v13 on). A request that switches
  between names and ids is rejected.

* A session resolves a topic id to a name only once. So if the topic is deleted, its partitions fail with
  UNKNOWN_TOPIC_OR_PARTITION, not UNKNOWN_TOPIC_ID. If it is re-created, they fail with INCONSISTENT_TOPIC_ID.

* If all `max.incremental.fetch.session.cache.slots` are in use, a new session evicts a session that has not
  been used for `IDLE_MS`.

* If no session can be evicted, the response carries session id 0, and the client continues without a session.

* A partition whose records were returned moves to the end of the session's order. So no partition starves.

As an optimization, a fetch in a session skips idle partitions. When the client has received all records of a
partition, the partition is idle until it changes, or the client requests another offset.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from ..error_codes import ErrorCode
from ..messages.fetch import FetchPartition, FetchRequest, PartitionData
from .topics import Partition

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
# The idle time after which a session may be evicted: Kafka's min.incremental.fetch.session.eviction.ms.
IDLE_MS: Final = 120_000

TopicKey: TypeAlias = UUID | str
Key: TypeAlias = tuple[UUID | str, int]


@dataclass(slots=True)
class CachedPartition:
    """A partition of a session, with its state in the last response (Kafka's CachedPartition)."""

    requested: FetchPartition
    # A fetch reads the partitions of its session in ascending order of this number.
    order: int
    high_watermark: int = -1
    log_start_offset: int = -1
    # The broker's partition while fetches skip it because it is idle (see above); None while they read it.
    idle: Partition | None = None

    def is_unchanged(self, data: PartitionData) -> bool:
        """Return whether the client has already received the high watermark and log start offset of `data`.

        If `data` has a diverging epoch, the result is false. So every response contains the epoch until the
        client fetches from another offset.
        """
        if data.diverging_epoch.epoch >= 0:
            return False
        return (data.high_watermark, data.log_start_offset) == (self.high_watermark, self.log_start_offset)


@dataclass(slots=True, eq=False)
class FetchSession:
    """The state of one fetch session: the partitions that one client fetches."""

    id: int
    by_id: bool
    used_at: int
    # Partition -> the sessions in which it is idle; shared by all sessions.
    idle_partitions: dict[Partition, dict[FetchSession, Key]]
    # The epoch that the next request must have.
    epoch: int = 1
    partitions: dict[Key, CachedPartition] = field(default_factory=dict[Key, CachedPartition])
    # The partitions that the next fetch reads: all except the idle ones.
    active: set[Key] = field(default_factory=set[Key])
    topic_names: dict[UUID, str] = field(default_factory=dict[UUID, str])
    # Identifies the reader of the last fetch. Partitions are idle for this reader only (see
    # `FetchContext.partitions_to_read`).
    reader: Hashable = None
    last_order: int = 0
    is_closed: bool = False

    def add(self, key: Key, requested: FetchPartition) -> None:
        """Add a partition, or replace the offset and limits that are requested for it."""
        cached = self.partitions.get(key)
        if cached is None:
            self.last_order += 1
            self.partitions[key] = CachedPartition(requested, self.last_order)
            self.active.add(key)
        else:
            cached.requested = requested
            self.activate(key)

    def remove(self, key: Key) -> None:
        """Remove a partition, if the session contains it."""
        if key in self.partitions:
            self.activate(key)
            self.active.remove(key)
            del self.partitions[key]

    def set_idle(self, key: Key, partition: Partition) -> None:
        """Mark a partition as idle: fetches skip it until the partition changes."""
        # A closed session is not added to `idle_partitions`: nothing would remove it from there, so it would
        # stay in memory.
        if self.is_closed:
            return
        self.partitions[key].idle = partition
        self.idle_partitions.setdefault(partition, {})[self] = key
        self.active.discard(key)

    def activate(self, key: Key) -> None:
        """End the idle state of a partition, so that the next fetch reads it."""
        cached = self.partitions[key]
        if cached.idle is not None:
            sessions = self.idle_partitions[cached.idle]
            del sessions[self]
            if not sessions:
                del self.idle_partitions[cached.idle]
            cached.idle = None
            self.active.add(key)

    def partitions_to_read(self, reader: Hashable) -> dict[Key, FetchPartition]:
        """Return the partitions that may have new data, in the session's order.

        If `reader` differs from the reader of the last fetch, the method first activates all idle partitions.
        """
        # An idle partition may have records that the last reader could not read but `reader` can, because
        # of its permissions or isolation level.
        if reader != self.reader:
            self.reader = reader
            for key in self.partitions.keys() - self.active:
                self.activate(key)
        orders = {key: self.partitions[key].order for key in self.active}
        return {key: self.partitions[key].requested for key in sorted(orders, key=orders.__getitem__)}


@dataclass(slots=True)
class FetchContext:
    """The partitions of one Fetch: the session's partitions if `incremental` is true, otherwise the
    partitions in `requested`.
    """

    requested: dict[Key, FetchPartition]
    by_id: bool
    session: FetchSession | None = None
    incremental: bool = False
    topic_names: dict[UUID, str] = field(default_factory=dict[UUID, str])

    @property
    def session_id(self) -> int:
        """The session id of the response; 0 without a session."""
        return self.session.id if self.session else 0

    @property
    def incremental_session(self) -> FetchSession | None:
        """The session whose partitions are read; None if the request lists all partitions itself."""
        return self.session if self.incremental else None

    def partitions_to_read(self, reader: Hashable) -> dict[Key, FetchPartition]:
        """Return the partitions to read: the requested ones, or an incremental fetch's active ones.
        `reader` is a hashable value for the isolation level and the caller's permissions. If the last fetch
        had another `reader`, idle partitions are read again.
        """
        session = self.incremental_session
        return session.partitions_to_read(reader) if session else self.requested

    @property
    def all_partitions(self) -> Collection[Key]:
        """All partitions of the fetch, including those that have nothing new to return."""
        session = self.incremental_session
        return session.partitions if session else self.requested

    def on_read_to_end(self, key: Key, partition: Partition, data: PartitionData) -> None:
        """Mark a partition as idle after it was read to its end.

        The partition stays active if `data` contains a high watermark or log start offset that the client has
        not received yet, or a diverging epoch.
        """
        session = self.incremental_session
        if session and session.partitions[key].is_unchanged(data):
            session.set_idle(key, partition)

    def changed_partitions(self, results: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """Return the results that the response must contain, and record them in the session.

        Partitions with records move to the end of the session's order.
        """
        if self.session is None:
            return results
        changed: dict[Key, PartitionData] = {}
        for key, data in results.items():
            cached = self.session.partitions.get(key)
            if cached is None:
                # A fetch on another connection removed the partition from the session while this fetch was
                # delayed.
                continue
            is_changed = bool(data.records) or data.error_code != 0 or not cached.is_unchanged(data)
            if not is_changed and self.incremental:
                continue
            changed[key] = data
            # After an error, the high watermark -1 makes `is_unchanged` false, so the next result without an
            # error is sent.
            cached.high_watermark = data.high_watermark if data.error_code == 0 else -1
            cached.log_start_offset = data.log_start_offset
            if data.records:
                self.session.last_order += 1
                cached.order = self.session.last_order
        return changed


class FetchSessions:
    """All fetch sessions of a broker (Kafka's FetchSessionCache)."""

    __slots__ = ("_idle_partitions", "_next_id", "_sessions", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._idle_partitions: dict[Partition, dict[FetchSession, Key]] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def activate(self, partitions: Iterable[Partition]) -> list[FetchSession]:
        """End the idle state of changed partitions; return the sessions in which they were idle."""
        activated: dict[FetchSession, None] = {}  # An ordered set.
        for partition in partitions:
            for session, key in list(self._idle_partitions.get(partition, {}).items()):
                session.activate(key)
                activated[session] = None
        return list(activated)

    def create_context(self, request: FetchRequest, by_id: bool, now: int) -> FetchContext | ErrorCode:
        """Open, continue or close a session; return the partitions to read, or a top-level error.

        `by_id` is true if the request refers to topics by id. A continued session without partitions is
        closed.
        """
        requested: dict[Key, FetchPartition] = {
            (topic.topic_id if by_id else topic.topic, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(request.session_id)
            session = self._open(by_id, now) if request.session_epoch == INITIAL_EPOCH else None
            if session is None:
                return FetchContext(requested, by_id)
            for key, partition in requested.items():
                session.add(key, partition)
            return FetchContext(requested, by_id, session, topic_names=session.topic_names)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = session.epoch + 1 if session.epoch < _MAX_EPOCH else 1
        session.used_at = now
        for key, partition in requested.items():
            session.add(key, partition)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.remove((topic.topic_id if by_id else topic.topic, index))
        if not session.partitions:
            self._close(session.id)
            return FetchContext({}, by_id)
        return FetchContext(requested, by_id, session, incremental=True, topic_names=session.topic_names)

    def close_all(self) -> None:
        """Close every session, as a restart of the broker does."""
        for session_id in list(self._sessions):
            self._close(session_id)

    def decline_session(self, context: FetchContext) -> None:
        """Close the session if this fetch opened it; a session that an earlier fetch opened stays open."""
        if context.session is not None and not context.incremental:
            self._close(context.session.id)
            context.session = None

    def _close(self, session_id: int) -> None:
        """Close the session, if it is open, and remove it from `_idle_partitions`."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_closed = True
            for key in session.partitions:
                session.activate(key)

    def _open(self, by_id: bool, now: int) -> FetchSession | None:
        """Open a session, or return None if all slots are in use and no session can be evicted."""
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.values(), key=lambda session: session.used_at, default=None)
            if oldest is None or now - oldest.used_at < IDLE_MS:
                return None
            self._close(oldest.id)
        session = FetchSession(self._next_id, by_id, now, self._idle_partitions)
        self._next_id = self._next_id % _MAX_EPOCH + 1
        self._sessions[session.id] = session
        return session
