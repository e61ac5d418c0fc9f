"""Fetch sessions (KIP-227): a consumer names its partitions once, then only says and hears what changed.

Rules, as Kafka's FetchSession and FetchManager:
  * Epoch 0 asks for a new session, and ends the one whose id it carries. Epoch -1 means no session, and ends
    the one whose id it carries. Any other epoch must be the session's next one; after 2**31 - 1 comes 1.
  * Within a session the request holds partitions that are new or changed, and those to forget; the answer
    holds those with records, with an error, whose log was cut where the client has read (KIP-595), or whose
    high watermark or log start moved since the last answer.
  * A session speaks of topics by name (up to v12) or by id (from v13); a change of that is an error. The name
    of an id is read once: a topic that is gone is missed under it.
  * When all slots are taken, one whose last use is `IDLE_MS` ago makes room; else the answer carries session
    id 0, and the client goes on without a session.
  * A partition that was answered with records goes to the end of the line, so that none starves.

What is ours: a fetch of a session looks only at partitions that may have something to say. One whose client
has read all and was told all is asleep: nobody looks at it until it changes, or its client moves.
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
# min.incremental.fetch.session.eviction.ms: younger sessions are not thrown out.
IDLE_MS: Final = 120_000

TopicKey: TypeAlias = UUID | str
Key: TypeAlias = tuple[UUID | str, int]


@dataclass(slots=True)
class Tracked:
    """One partition that a session follows, and what its client was told last."""

    wanted: FetchPartition
    turn: int
    """Its place in the line."""
    high_watermark: int = -1
    log_start_offset: int = -1
    asleep: Partition | None = None
    """What has to change until somebody looks at it again."""

    def knows(self, data: PartitionData) -> bool:
        """Was its client told all of this, but for records and errors? Where the log was cut it is told again
        and again, until it reads elsewhere.
        """
        if data.diverging_epoch.epoch >= 0:
            return False
        return (data.high_watermark, data.log_start_offset) == (self.high_watermark, self.log_start_offset)


@dataclass(slots=True, eq=False)
class FetchSession:
    """The partitions that one client follows."""

    id: int
    by_id: bool
    used_at: int
    sleepers: dict[Partition, dict[FetchSession, Key]]
    """Who is to be woken by a change; all sessions share it."""
    epoch: int = 1  # the next one expected
    partitions: dict[Key, Tracked] = field(default_factory=dict[Key, Tracked])
    awake: set[Key] = field(default_factory=set[Key])
    names: dict[UUID, str] = field(default_factory=dict[UUID, str])
    """Of the topics that it has by their ids, as far as there were any."""
    reader: Hashable = None
    """For whom the others are asleep."""
    last_turn: int = 0
    is_over: bool = False

    def follow(self, key: Key, wanted: FetchPartition) -> None:
        """The client names a partition, perhaps not for the first time."""
        tracked = self.partitions.get(key)
        if tracked is None:
            self.last_turn += 1
            self.partitions[key] = Tracked(wanted, self.last_turn)
            self.awake.add(key)
        else:
            tracked.wanted = wanted
            self.wake(key)

    def forget(self, key: Key) -> None:
        if key in self.partitions:
            self.wake(key)
            self.awake.remove(key)
            del self.partitions[key]

    def sleep(self, key: Key, partition: Partition) -> None:
        """There is nothing to say of it until this changes."""
        if self.is_over:  # nobody would take it from there again
            return
        self.partitions[key].asleep = partition
        self.sleepers.setdefault(partition, {})[self] = key
        self.awake.discard(key)

    def wake(self, key: Key) -> None:
        tracked = self.partitions[key]
        if tracked.asleep is not None:
            who = self.sleepers[tracked.asleep]
            del who[self]
            if not who:
                del self.sleepers[tracked.asleep]
            tracked.asleep = None
            self.awake.add(key)

    def look(self, reader: Hashable) -> dict[Key, FetchPartition]:
        """The partitions that may have something to say, in the order of the line."""
        if reader != self.reader:  # who may see there what the last one didn't
            self.reader = reader
            for key in self.partitions.keys() - self.awake:
                self.wake(key)
        turns = {key: self.partitions[key].turn for key in self.awake}
        return {key: self.partitions[key].wanted for key in sorted(turns, key=turns.__getitem__)}


@dataclass(slots=True)
class FetchContext:
    """What one Fetch reads: `wanted`, in order; or, when it is `incremental`, what its session follows."""

    wanted: dict[Key, FetchPartition]
    by_id: bool
    session: FetchSession | None = None
    incremental: bool = False
    names: dict[UUID, str] = field(default_factory=dict[UUID, str])

    @property
    def session_id(self) -> int:
        return self.session.id if self.session else 0

    @property
    def followed(self) -> FetchSession | None:
        """The session whose partitions are read."""
        return self.session if self.incremental else None

    def look(self, reader: Hashable) -> dict[Key, FetchPartition]:
        """What is to be read now. `reader`: all that decides what a fetch may see, but for its partitions."""
        return self.followed.look(reader) if self.followed else self.wanted

    @property
    def about(self) -> Collection[Key]:
        """All its partitions, whether they have something to say or not."""
        return self.followed.partitions if self.followed else self.wanted

    def read_to_the_end(self, key: Key, partition: Partition, data: PartitionData) -> None:
        """A partition has no record for its reader, and isn't in error: if the rest was told, nobody has to
        look at it until it changes.
        """
        if self.followed and self.followed.partitions[key].knows(data):
            self.followed.sleep(key, partition)

    def news(self, answers: dict[Key, PartitionData]) -> dict[Key, PartitionData]:
        """The part of the answers that has to be sent; the session takes note of it."""
        if self.session is None:
            return answers
        said: dict[Key, PartitionData] = {}
        for key, data in answers.items():
            tracked = self.session.partitions.get(key)
            if tracked is None:
                continue  # a later fetch, on another connection, forgot it while this one waited
            changed = bool(data.records) or data.error_code != 0 or not tracked.knows(data)
            if not changed and self.incremental:
                continue
            said[key] = data
            # An error is told again and again, until the client changes its mind.
            tracked.high_watermark = data.high_watermark if data.error_code == 0 else -1
            tracked.log_start_offset = data.log_start_offset
            if data.records:
                self.session.last_turn += 1
                tracked.turn = self.session.last_turn
        return said


class FetchSessions:
    """All fetch sessions. `plan` turns a request into what to read."""

    __slots__ = ("_next_id", "_sessions", "_sleepers", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}
        self._sleepers: dict[Partition, dict[FetchSession, Key]] = {}
        self._next_id = 1

    def __len__(self) -> int:
        return len(self._sessions)

    def changed(self, partitions: Iterable[Partition]) -> list[FetchSession]:
        """Something changed in these partitions: the sessions that have to look at them again."""
        found: dict[FetchSession, None] = {}
        for partition in partitions:
            for session, key in list(self._sleepers.get(partition, {}).items()):
                session.wake(key)
                found[session] = None
        return list(found)

    def plan(self, request: FetchRequest, by_id: bool, now: int) -> FetchContext | ErrorCode:
        """What to read for this request; or the error that the whole answer carries."""
        wanted: dict[Key, FetchPartition] = {
            (topic.topic_id if by_id else topic.topic, partition.partition): partition
            for topic in request.topics
            for partition in topic.partitions
        }
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._end(request.session_id)
            session = self._opened(by_id, now) if request.session_epoch == INITIAL_EPOCH else None
            if session is not None:
                for key, partition in wanted.items():
                    session.follow(key, partition)
            return FetchContext(wanted, by_id, session, names={} if session is None else session.names)
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
            session.follow(key, partition)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.forget((topic.topic_id if by_id else topic.topic, index))
        if not session.partitions:  # nothing is left to follow
            self._end(session.id)
            return FetchContext({}, by_id)
        return FetchContext(wanted, by_id, session, incremental=True, names=session.names)

    def end_all(self) -> None:
        """The broker was down: nobody has a session any more."""
        for session_id in list(self._sessions):
            self._end(session_id)

    def open_none(self, plan: FetchContext) -> None:
        """Whoever asked for a session gets none; one that there was goes on."""
        if plan.session is not None and not plan.incremental:
            self._end(plan.session.id)
            plan.session = None

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.is_over = True
            for key in session.partitions:
                session.wake(key)

    def _opened(self, by_id: bool, now: int) -> FetchSession | None:
        if len(self._sessions) >= self._slots:
            oldest = min(self._sessions.values(), key=lambda session: session.used_at, default=None)
            if oldest is None or now - oldest.used_at < IDLE_MS:
                return None
            self._end(oldest.id)
        session = FetchSession(self._next_id, by_id, now, self._sleepers)
        self._next_id = self._next_id % _MAX_EPOCH + 1
        self._sessions[session.id] = session
        return session
