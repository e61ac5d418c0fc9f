"""What a ConsumerGroup knows, the states it can be in, and how it may get from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...group.subscription import TopicPartition
from . import errors
from .application import Application
from .client import SaramaClient
from .consumer_group_session import GroupSession, SessionOwner
from .errors import GoError
from .routines import Routine, States, Table


class SaramaGroupState(States):
    NEW = "new"
    CONNECTING = "connecting"  # NewClient: the first metadata
    IDLE = "idle"  # nobody calls Consume
    REFRESHING = "refreshing"
    JOINING = "joining"
    FETCHING_OFFSETS = "fetching_offsets"  # fetches the offsets of its claims
    SETTING_UP = "setting_up"
    RUNNING = "running"
    LOCKING = "locking"  # cooperative: waits for the heartbeat and the commits that are under way
    REJOINING = "rejoining"
    REVOKING = "revoking"  # waits for the revoked claims
    COMMITTING_REVOKED = "committing_revoked"  # commits them
    REFRESHING_TOPICS = "refreshing_topics"  # refreshes the metadata of added topics
    FETCHING_ADDED_OFFSETS = "fetching_added_offsets"  # fetches the offsets of added claims
    RELEASING = "releasing"  # waits for all claims
    CLEANING_UP = "cleaning_up"
    CLOSING_OFFSETS = "closing_offsets"  # the last commit
    STOPPING = "stopping"  # waits for the heartbeat
    PAUSING = "pausing"  # the application, after an error
    FINDING_COORDINATOR = "finding_coordinator"  # for the coordinator, to leave
    LEAVING = "leaving"
    CLOSED = "closed"


S = SaramaGroupState
_END = {S.RELEASING, S.FINDING_COORDINATOR, S.LEAVING, S.CLOSED}


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation. `counts` are the partitions that its leader planned for; None: not the leader."""

    member_id: str
    generation: int
    claims: tuple[TopicPartition, ...]
    counts: dict[str, int] | None


class SaramaGroup(SessionOwner):
    """The goroutine that calls Consume, and Close."""

    __slots__ = (
        "added_topics",
        "canceled",
        "error",
        "join",
        "joined",
        "last_cause",
        "last_generation",
        "last_session",
        "member_id",
        "requested_topics",
        "session",
        "topics",
        "unfetched_claims",
        "user_data",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.NEW: {S.CONNECTING, S.CLOSED},
        S.CONNECTING: {S.IDLE, S.CLOSED},
        S.IDLE: {S.REFRESHING, S.PAUSING, *_END},
        S.REFRESHING: {S.JOINING, S.IDLE, S.PAUSING, *_END},
        S.JOINING: {S.FETCHING_OFFSETS, S.IDLE, S.PAUSING, *_END},
        S.FETCHING_OFFSETS: {S.SETTING_UP, S.RELEASING},
        S.SETTING_UP: {S.RUNNING},
        S.RUNNING: {S.RELEASING, S.LOCKING},
        S.LOCKING: {S.REJOINING},
        S.REJOINING: {
            S.REVOKING,
            S.COMMITTING_REVOKED,
            S.REFRESHING_TOPICS,
            S.FETCHING_ADDED_OFFSETS,
            S.RUNNING,
            S.RELEASING,
        },
        S.REVOKING: {S.COMMITTING_REVOKED, S.RELEASING},
        S.COMMITTING_REVOKED: {S.REFRESHING_TOPICS},
        S.REFRESHING_TOPICS: {S.FETCHING_ADDED_OFFSETS, S.RUNNING, S.RELEASING},
        S.FETCHING_ADDED_OFFSETS: {S.RUNNING, S.LOCKING, S.RELEASING},
        S.RELEASING: {S.CLEANING_UP, S.CLOSING_OFFSETS},
        S.CLEANING_UP: {S.CLOSING_OFFSETS},
        S.CLOSING_OFFSETS: {S.STOPPING},
        S.STOPPING: {S.IDLE, S.PAUSING, *_END},
        S.PAUSING: {S.IDLE, *_END},
        S.FINDING_COORDINATOR: {S.LEAVING, S.CLOSED},
        S.LEAVING: {S.CLOSED},
        S.CLOSED: set(),
    }

    def __init__(self, client: SaramaClient, application: Application) -> None:
        super().__init__(S.NEW, client, application)
        self.requested_topics: tuple[str, ...] | None = (
            None  # what the application wants to consume; None: nothing
        )
        self.topics: tuple[str, ...] = ()  # what the present Consume is about
        self.canceled = False  # the context of the present Consume
        self.member_id = ""
        self.user_data: bytes | None = None
        self.last_cause: GoError | None = None
        self.last_generation = -1  # cooperative-sticky's memory
        self.session: GroupSession | None = None
        self.last_session: GroupSession | None = (
            None  # the last one whose Setup was called: what the application knows
        )
        self.join: Routine | None = None
        self.joined: Joined | None = None
        self.unfetched_claims: list[TopicPartition] = []
        self.added_topics: list[str] = []
        self.error: GoError | None = None

    def connect(self) -> None:
        """NewConsumerGroup: the first metadata, of everything."""
        self.move(S.CONNECTING)
        self.client.metadata.request_refresh(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Let Consume be called with these topics from now on (None: not at all)."""
        self.requested_topics = topics
        if self.state is S.IDLE:
            self.client.resume(self, "consume")
        else:
            self.cancel()

    def cancel(self) -> None:
        """The context of the present Consume is done."""
        self.canceled = True
        if self.session is not None:
            self.session.cancel(errors.CANCELED)
        self.wake_waiters()

    def close(self) -> None:
        """Close: the context is done, and the group closed."""
        self.closed, self.requested_topics = True, None
        self.cancel()
        if self.session is not None:
            self.session.wake_waiters()

    def wake_waiters(self) -> None:
        """Whoever waits looks at what has changed."""
        self.client.wake(self, "check")
        if self.join is not None:
            self.client.wake(self.join, "check")

    def report(self, error: GoError) -> None:
        """handleError: what happens after Close is not told."""
        if not self.closed:
            self.client.report(error)
