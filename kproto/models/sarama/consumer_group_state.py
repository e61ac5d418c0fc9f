"""The state of a ConsumerGroup, and the transitions between its states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

from ...group.subscription import TopicPartition
from ...machine import Edges
from . import errors
from .application import Application
from .client import SaramaClient
from .consumer_group_session import GroupSession, SessionOwner
from .errors import GoError
from .routines import Routine, States, Table


class SaramaGroupState(States):
    NEW = "new"
    # NewClient: the first metadata request is in flight.
    CONNECTING = "connecting"
    # No Consume is running.
    IDLE = "idle"
    REFRESHING = "refreshing"
    JOINING = "joining"
    # The member fetches the offsets of its claims.
    FETCHING_OFFSETS = "fetching_offsets"
    SETTING_UP = "setting_up"
    RUNNING = "running"
    # The member waits for the heartbeat and the commits in flight before a cooperative rebalance.
    LOCKING = "locking"
    REJOINING = "rejoining"
    # The member waits until the revoked claims have ended.
    REVOKING = "revoking"
    # The member commits the offsets of the revoked claims.
    COMMITTING_REVOKED = "committing_revoked"
    # The member refreshes the metadata of added topics.
    REFRESHING_TOPICS = "refreshing_topics"
    # The member fetches the offsets of added claims.
    FETCHING_ADDED_OFFSETS = "fetching_added_offsets"
    # The member waits until all claims have ended.
    RELEASING = "releasing"
    CLEANING_UP = "cleaning_up"
    # The last commit of the session is in progress.
    CLOSING_OFFSETS = "closing_offsets"
    # The member waits until the heartbeat loop has ended.
    STOPPING = "stopping"
    # The application waits after an error, before it calls Consume again.
    PAUSING = "pausing"
    # The member looks the coordinator up for LeaveGroup.
    FINDING_COORDINATOR = "finding_coordinator"
    LEAVING = "leaving"
    CLOSED = "closed"


S = SaramaGroupState
# Transitions of a group that is closed while it has no session.
_CLOSING = {
    S.FINDING_COORDINATOR: "the group is closed, and looks the coordinator up to leave",
    S.CLOSED: "the group is closed, and the member has no id",
}

EDGES: Final[Edges[Any]] = {
    S.NEW: {S.CONNECTING: "the bootstrap addresses are known"},
    S.CONNECTING: {
        S.IDLE: "metadata has arrived",
        S.CLOSED: "no broker answered, or the client is not authenticated",
    },
    S.IDLE: {
        **_CLOSING,
        S.REFRESHING: "Consume is called",
        S.PAUSING: "Consume is called without topics",
    },
    S.REFRESHING: {
        **_CLOSING,
        S.JOINING: "metadata of the topics has arrived",
        S.IDLE: "Consume returns",
        S.PAUSING: "metadata of the topics cannot be fetched",
    },
    S.JOINING: {
        **_CLOSING,
        S.FETCHING_OFFSETS: "the join is complete",
        S.IDLE: "Consume returns",
        S.PAUSING: "the join failed",
    },
    S.FETCHING_OFFSETS: {
        S.SETTING_UP: "the offsets of all claims have arrived",
        S.RELEASING: "an offset cannot be fetched",
    },
    S.SETTING_UP: {S.RUNNING: "Setup has returned"},
    S.RUNNING: {
        S.RELEASING: "the session ends",
        S.LOCKING: "the group rebalances, and all strategies are cooperative",
    },
    S.LOCKING: {S.REJOINING: "no heartbeat and no commit is in flight"},
    S.REJOINING: {
        S.REVOKING: "claims are revoked",
        S.REFRESHING_TOPICS: "no claim is revoked",
        S.RELEASING: "the join failed",
    },
    S.REVOKING: {
        S.COMMITTING_REVOKED: "the revoked claims have ended",
        S.RELEASING: "Rebalance.Timeout has passed",
    },
    S.COMMITTING_REVOKED: {S.REFRESHING_TOPICS: "the offsets of the revoked claims are committed"},
    S.REFRESHING_TOPICS: {
        S.FETCHING_ADDED_OFFSETS: "metadata of the added topics has arrived",
        S.RELEASING: "metadata of an added topic cannot be fetched",
    },
    S.FETCHING_ADDED_OFFSETS: {
        S.RUNNING: "the added claims have started",
        S.LOCKING: "claims were revoked, and the member joins again",
        S.RELEASING: "an offset cannot be fetched",
    },
    S.RELEASING: {
        S.CLEANING_UP: "all claims have ended",
        S.CLOSING_OFFSETS: "Setup was not called",
    },
    S.CLEANING_UP: {S.CLOSING_OFFSETS: "Cleanup has returned"},
    S.CLOSING_OFFSETS: {S.STOPPING: "the offsets are committed a last time"},
    S.STOPPING: {
        **_CLOSING,
        S.IDLE: "the heartbeats have stopped",
        S.PAUSING: "the heartbeats have stopped, and Consume returns an error",
    },
    S.PAUSING: {**_CLOSING, S.IDLE: "300 ms have passed"},
    S.FINDING_COORDINATOR: {
        S.LEAVING: "the coordinator is known, and the member is not static",
        S.CLOSED: "the coordinator is not found, or the member is static",
    },
    S.LEAVING: {S.CLOSED: "LeaveGroup is answered"},
    S.CLOSED: {},
}


@dataclass(frozen=True, slots=True)
class Joined:
    """The generation that resulted from a join. `partition_counts` has the number of partitions of each topic
    of the group; None for a follower.
    """

    member_id: str
    generation: int
    claims: tuple[TopicPartition, ...]
    partition_counts: dict[str, int] | None


class SaramaGroup(SessionOwner):
    """The goroutine that calls Consume and Close."""

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
    EDGES = EDGES

    def __init__(self, client: SaramaClient, application: Application) -> None:
        super().__init__(S.NEW, client, application)
        # The topics that the application wants to consume; None before Consume and after Close.
        self.requested_topics: tuple[str, ...] | None = None
        # The topics of the current Consume.
        self.topics: tuple[str, ...] = ()
        # Whether the context of the current Consume is canceled.
        self.canceled = False
        self.member_id = ""
        # The user data of the last assignment that was not empty.
        self.user_data: bytes | None = None
        # The reason of the next JoinGroup: why the last session ended, or why the member must join again.
        self.last_cause: GoError | None = None
        self.last_generation = -1  # The previous generation, for cooperative-sticky.
        self.session: GroupSession | None = None
        self.last_session: GroupSession | None = None  # The last session whose Setup was called.
        self.join: Routine | None = None  # The join in progress.
        self.joined: Joined | None = None  # The current generation.
        # The claims whose offsets are still to be fetched.
        self.unfetched_claims: list[TopicPartition] = []
        # The topics of added claims whose metadata is still to be refreshed.
        self.added_topics: list[str] = []
        self.error: GoError | None = None  # The error that Consume returns when the session is released.

    def connect(self) -> None:
        """Create the group (NewConsumerGroup), which begins with a request for all metadata."""
        self.move(S.CONNECTING)
        self.client.metadata.request_refresh(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Make the application call Consume with these topics from now on. With None it stops calling
        Consume.
        """
        self.requested_topics = topics
        if self.state is S.IDLE:
            self.client.resume(self, "consume")
        else:
            self.cancel()

    def cancel(self) -> None:
        """Cancel the context of the current Consume."""
        self.canceled = True
        if self.session is not None:
            self.session.cancel(errors.CANCELED)
        self.wake_waiters()

    def close(self) -> None:
        """Cancel the context, and close the group (Close)."""
        self.closed, self.requested_topics = True, None
        self.cancel()

    def wake_waiters(self) -> None:
        """Wake the group and its join, which then check whether they have to end."""
        self.client.wake(self, "check")
        if self.join is not None:
            self.client.wake(self.join, "check")

    def report(self, error: GoError) -> None:
        """Report an error, unless the group is closed (handleError)."""
        if not self.closed:
            self.client.report(error)
