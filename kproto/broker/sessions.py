"""Fetch sessions (KIP-227): a consumer names its partitions once, then only says and hears what changed.

Rules, as Kafka's FetchSession and FetchManager:
  * Epoch 0 asks for a new session, and ends the one whose id it carries. Epoch -1 means no session, and ends
    the one whose id it carries. Any other epoch must be the session's next one; after 2**31 - 1 comes 1.
  * Within a session the request holds partitions that are new or changed, and those to forget; the answer
    holds those with records, with an error, or whose high watermark or log start moved since the last answer.
  * A session speaks of topics by name (up to v12) or by id (from v13); a change of that is an error.
  * When all slots are taken, one whose last use is `IDLE_MS` ago makes room; else the answer carries session
    id 0, and the client goes on without a session.
  * A partition that was answered with records goes to the end of the line, so that none starves.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from ..error_codes import ErrorCode
from ..messages.fetch import FetchPartition, FetchRequest, PartitionData

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
_MAX_EPOCH: Final = 2**31 - 1
# min.incremental.fetch.session.eviction.ms: younger sessions are not thrown out.
IDLE_MS: Final = 120_000

TopicKey: TypeAlias = UUID | str
Key: TypeAlias = tuple[UUID | str, int]


@dataclass(slots=True)
class Tracked:
    """One partition that a session follows, and what its client was told last."""

    wanted: FetchPartition
    high_watermark: int = -1
    log_start_offset: int = -1


@dataclass(slots=True)
class Session:
    id: int
    by_id: bool
    used_at: int
    epoch: int = 1  # the next one expected
    partitions: dict[Key, Tracked] = field(default_factory=dict[Key, Tracked])


@dataclass(slots=True)
class Plan:
    """What one Fetch reads: `wanted`, in order; and in whose name."""

    wanted: dict[Key, FetchPartition]
    by_id: bool
    session: Session | None = None
    incremental: bool = False

    @property
    def session_id(self) -> int:
        return self.session.id if self.session else 0

    def news(self, answers: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """The part of the answers that has to be sent; the session takes note of it."""
        if self.session is None:
            return answers
        said: dict[Key, PartitionData] = {}
        for key, data in answers.items():
            tracked = self.session.partitions.get(key)
            if tracked is None:
                continue  # a later fetch, on another connection, forgot it while this one waited
            changed = (
                bool(data.records)
                or data.error_code != 0
                or data.high_watermark != tracked.high_watermark
                or data.log_start_offset != tracked.log_start_offset
            )
            if not changed and self.incremental:
                continue
            said[key] = data
            # An error is told again and again, until the client changes its mind.
            tracked.high_watermark = data.high_watermark if data.error_code == 0 else -1
            tracked.log_start_offset = data.log_start_offset
            if data.records:
                self.session.partitions[key] = self.session.partitions.pop(key)
        return said


class Sessions:
    """All fetch sessions. `plan` turns a request into what to read."""

    __slots__ = ("_next_id", "_sessions", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, Session] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, by_id: bool, now: int) -> Plan | ErrorCode:
        """What to read for this request; or the error that the whole answer carries."""
        wanted: dict[Key, FetchPartition] = {
            (topic.topic_id if by_id else topic.topic, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            session = self._opened(by_id, now) if request.session_epoch == INITIAL_EPOCH else None
            if session is not None:
                session.partitions = {key: Tracked(partition) for key, partition in wanted.items()}
            return Plan(wanted, by_id, session)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.by_id != by_id:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = session.epoch + 1 if session.epoch < _MAX_EPOCH else 1
        session.used_at = now
        for key, partition in wanted.items():
            if key in session.partitions:
                session.partitions[key].wanted = partition
            else:
                session.partitions[key] = Tracked(partition)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.partitions.pop((topic.topic_id if by_id else topic.topic, index), None)
        if not session.partitions:  # nothing is left to follow
            del self._sessions[session.id]
            return Plan({}, by_id)
        everything = {key: tracked.wanted for key, tracked in session.partitions.items()}
        return Plan(everything, by_id, session, incremental=True)

    def _opened(self, by_id: bool, now: int) -> Session | None:
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.values(), key=lambda session: session.used_at, default=None)
            if oldest is None or now - oldest.used_at < IDLE_MS:
                return None
            del self._sessions[oldest.id]
        session = Session(self._next_id, by_id, now)
        self._next_id = self._next_id % _MAX_EPOCH + 1
        self._sessions[session.id] = session
        return session
