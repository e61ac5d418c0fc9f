"""What a ConsumerGroup knows, the states it can be in, and how it may get from one to the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ...group.subscription import TopicPartition
from . import errors
from .application import Application
from .client import Client
from .consumer_group_session import Session, SessionOwner
from .errors import Trouble
from .routines import Routine, States, Table


class GroupState(States):
    new = "new"
    connecting = "connecting"  # NewClient: the first metadata
    idle = "idle"  # nobody calls Consume
    refreshing = "refreshing"
    joining = "joining"
    managing = "managing"  # fetches the offsets of its claims
    setting_up = "setting_up"
    running = "running"
    locking = "locking"  # cooperative: waits for the heartbeat and the commits that are under way
    rejoining = "rejoining"
    revoking = "revoking"  # waits for the revoked claims
    removing = "removing"  # commits them
    learning = "learning"  # refreshes the metadata of added topics
    adding = "adding"  # fetches the offsets of added claims
    releasing = "releasing"  # waits for all claims
    cleaning_up = "cleaning_up"
    letting_go = "letting_go"  # the last commit
    stopping = "stopping"  # waits for the heartbeat
    pausing = "pausing"  # the application, after an error
    looking = "looking"  # for the coordinator, to leave
    leaving = "leaving"
    closed = "closed"


S = GroupState
_END = {S.releasing, S.looking, S.leaving, S.closed}


@dataclass(frozen=True, slots=True)
class Joined:
    """A generation. `counts` are the partitions that its leader planned for; None: not the leader."""

    member_id: str
    generation: int
    claims: tuple[TopicPartition, ...]
    counts: dict[str, int] | None


class Group(SessionOwner):
    """The goroutine that calls Consume, and Close."""

    __slots__ = (
        "canceled",
        "error",
        "join",
        "joined",
        "last_cause",
        "last_generation",
        "latest",
        "member_id",
        "pending",
        "session",
        "topics",
        "unlearned",
        "user_data",
        "wanted",
    )
    TABLE: ClassVar[Table]
    EDGES: ClassVar = {
        S.new: {S.connecting, S.closed},
        S.connecting: {S.idle, S.closed},
        S.idle: {S.refreshing, S.pausing, *_END},
        S.refreshing: {S.joining, S.idle, S.pausing, *_END},
        S.joining: {S.managing, S.idle, S.pausing, *_END},
        S.managing: {S.setting_up, S.releasing},
        S.setting_up: {S.running},
        S.running: {S.releasing, S.locking},
        S.locking: {S.rejoining},
        S.rejoining: {S.revoking, S.removing, S.learning, S.adding, S.running, S.releasing},
        S.revoking: {S.removing, S.releasing},
        S.removing: {S.learning},
        S.learning: {S.adding, S.running, S.releasing},
        S.adding: {S.running, S.locking, S.releasing},
        S.releasing: {S.cleaning_up, S.letting_go},
        S.cleaning_up: {S.letting_go},
        S.letting_go: {S.stopping},
        S.stopping: {S.idle, S.pausing, *_END},
        S.pausing: {S.idle, *_END},
        S.looking: {S.leaving, S.closed},
        S.leaving: {S.closed},
        S.closed: set(),
    }

    def __init__(self, client: Client, application: Application) -> None:
        super().__init__(S.new, client, application)
        self.wanted: tuple[str, ...] | None = None  # what the application wants to consume; None: nothing
        self.topics: tuple[str, ...] = ()  # what the present Consume is about
        self.canceled = False  # the context of the present Consume
        self.member_id = ""
        self.user_data: bytes | None = None
        self.last_cause: Trouble | None = None
        self.last_generation = -1  # cooperative-sticky's memory
        self.session: Session | None = None
        self.latest: Session | None = None  # the last one whose Setup was called: what the application knows
        self.join: Routine | None = None
        self.joined: Joined | None = None
        self.pending: list[TopicPartition] = []
        self.unlearned: list[str] = []
        self.error: Trouble | None = None

    def connect(self) -> None:
        """NewConsumerGroup: the first metadata, of everything."""
        self.move(S.connecting)
        self.client.metadata.want(self, ())

    def subscribe(self, topics: tuple[str, ...] | None) -> None:
        """Let Consume be called with these topics from now on (None: not at all)."""
        self.wanted = topics
        if self.state is S.idle:
            self.client.resume(self, "again")
        else:
            self.cancel()

    def cancel(self) -> None:
        """The context of the present Consume is done."""
        self.canceled = True
        if self.session is not None:
            self.session.cancel(errors.CANCELED)
        self.look()

    def close(self) -> None:
        """Close: the context is done, and the group closed."""
        self.closed, self.wanted = True, None
        self.cancel()
        if self.session is not None:
            self.session.look()

    def look(self) -> None:
        """Whoever waits looks at what has changed."""
        self.client.wake(self, "look")
        if self.join is not None:
            self.client.wake(self.join, "look")

    def report(self, error: Trouble) -> None:
        """handleError: what happens after Close is not told."""
        if not self.closed:
            self.client.report(error)
