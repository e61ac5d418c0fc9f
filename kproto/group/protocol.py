"""What every group protocol has in common: the seam between an engine or broker and its group machines.

Client half: a client engine drives a `ClientMember`. It calls `step` with an event and performs the actions
that `step` returns, in order. It sends a `Tick` when `next_deadline` is reached. `kproto.group.members`
lists the group protocols and creates their members; the engine names nothing else of a protocol.

The engine finds the coordinator, sends requests and reports their responses. It runs the rebalance callbacks
and commits offsets. The member decides when to join, to send a heartbeat, to revoke, to assign and to leave.

All times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Protocol

import msgspec

from ..errors import KprotoError
from ..wire.message import Message
from .assignors import Assignor
from .subscription import TopicPartition

# The reason of the `Lose` after max.poll.interval.ms without a poll; the words of Java's LeaveGroup
# (KIP-800).
POLL_TIMEOUT = "consumer poll timeout has expired."

# -- client: configuration --------------------------------------------------------------------------------


def no_jitter(wait_ms: int) -> int:
    """Return `wait_ms` unchanged: backoff without jitter."""
    return wait_ms


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a member. The names are Kafka's option names; times are milliseconds."""

    group_id: str
    group_instance_id: str | None = None
    client_id: str = "kproto"
    session_timeout_ms: int = 45_000
    # The value of max.poll.interval.ms, as in Java's GroupRebalanceConfig.
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    assignors: tuple[str | Assignor, ...] = ("cooperative-sticky", "range")
    rack_id: str | None = None
    # Follow Java's consumer also where that can deliver records twice or leave partitions without an owner.
    as_java: bool = False
    # Adds jitter to a backoff, in milliseconds. The caller supplies the random source.
    spread: Callable[[int], int] = no_jitter


class Identity(msgspec.Struct, frozen=True):
    """What an OffsetCommit of a member carries."""

    # The generation of a classic group, the member epoch of a consumer group (KIP-848).
    generation: int
    member_id: str
    group_instance_id: str | None
    # The name of the assignor that the group has selected.
    protocol: str


# -- client: events ---------------------------------------------------------------------------------------


class Subscribe(msgspec.Struct, frozen=True):
    """The application subscribed. With `pattern`, `topics` are its matches among the topics known now."""

    topics: frozenset[str]
    pattern: str | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    """The application unsubscribed: the member revokes its partitions, leaves, and stays idle."""


class PollBegan(msgspec.Struct, frozen=True):
    """The application entered poll. It counts as alive until `PollEnded`, however long the poll waits."""


class PollEnded(msgspec.Struct, frozen=True):
    """The application left poll, or runs a callback inside it. max.poll.interval.ms starts now."""


class CoordinatorFound(msgspec.Struct, frozen=True):
    """The answer to `FindCoordinator`. The member does not look into `node`."""

    node: object


class CoordinatorLost(msgspec.Struct, frozen=True):
    """The lookup failed, or the connection to the coordinator and its requests are lost."""

    why: str = ""


class Received(msgspec.Struct, frozen=True):
    """The response to a `Send` of the member. `request` is the object that the `Send` contained."""

    request: Message
    response: Message


class Failed(msgspec.Struct, frozen=True):
    """A `Send` got no response: the connection was lost, or the request timed out."""

    request: Message
    why: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A `Send` cannot be sent, and a retry would not help.

    For example, no version that the broker supports has the request's fields: a static member needs
    JoinGroup v5.
    """

    request: Message
    error: KprotoError


class Released(msgspec.Struct, frozen=True):
    """The application has released the partitions of the last `Revoke` or `Lose`."""


class Metadata(msgspec.Struct, frozen=True):
    """The known topics of the cluster. Topics that do not exist are left out."""

    # Topic -> number of partitions.
    partitions: Mapping[str, int]
    # The topics that were requested; None for all. A leader that waits for metadata needs its topics among
    # them.
    asked: frozenset[str] | None = None
    # These are all topics of the cluster. A topic that appears later is therefore known to be new.
    complete: bool = False
    # Topic -> topic id, where known.
    ids: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])
    # Topic -> the racks of the replicas of each partition, by partition index.
    racks: Mapping[str, tuple[frozenset[str], ...]] = msgspec.field(
        default_factory=dict[str, tuple[frozenset[str], ...]]
    )


class CommitAnswered(msgspec.Struct, frozen=True):
    """An OffsetCommit of the engine with this generation and member id was answered."""

    error_code: int
    generation: int
    member_id: str


class RequestRejoin(msgspec.Struct, frozen=True):
    """Rejoin as soon as possible. Java's `enforceRebalance`; the coordinator receives `reason` (KIP-800)."""

    reason: str


class Close(msgspec.Struct, frozen=True):
    """Close the member: revoke, leave the group if `leave`, and return `Left` within `timeout_ms`."""

    leave: bool = True
    timeout_ms: int = 30_000


class Tick(msgspec.Struct, frozen=True):
    """`next_deadline` has been reached. A tick that comes too early has no effect."""


MemberEvent = (
    Subscribe
    | Unsubscribe
    | PollBegan
    | PollEnded
    | CoordinatorFound
    | CoordinatorLost
    | Received
    | Failed
    | Refused
    | Released
    | Metadata
    | CommitAnswered
    | RequestRejoin
    | Close
    | Tick
)

# -- client: actions --------------------------------------------------------------------------------------


class FindCoordinator(msgspec.Struct, frozen=True):
    """Close the connection to the coordinator and look the coordinator up again.

    Answer with `CoordinatorFound` or `CoordinatorLost`. After `CoordinatorLost` the member asks again after
    a backoff.
    """


class Purpose(Enum):
    """What a request of a member is for, where the engine treats it differently."""

    # Starts a rebalance for this member. Java commits before it.
    JOIN = "join"
    # Requests the assignment of the rebalance.
    SYNC = "sync"
    # Keeps the membership alive. If it cannot be sent, the membership still continues.
    HEARTBEAT = "heartbeat"
    OTHER = "other"

    # An Enum's own __hash__ is written in Python.
    __hash__ = object.__hash__


class Send(msgspec.Struct, frozen=True):
    """Send `request` to the coordinator. Answer with `Received`, `Failed` or `Refused`.

    `request` has the form of the newest version; `ClientMember.in_version` returns the form of an older one.
    """

    request: Message
    # The minimum time to wait for the response; None for request.timeout.ms. A JoinGroup waits for the whole
    # group.
    timeout_ms: int | None = None
    # Do not use the connection on which the broker holds back a JoinGroup or SyncGroup: it reads nothing
    # behind it.
    urgent: bool = False
    purpose: Purpose = Purpose.OTHER


class Revoke(msgspec.Struct, frozen=True):
    """Run the revoked callback, commit, stop delivering `partitions`; then answer with `Released`.

    With an eager assignor `partitions` may be empty: Java runs the callback nevertheless.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str = ""
    # Java commits before the callback if the revocation precedes a JoinGroup or the end of the consumer.
    precedes_join_or_close: bool = False


class Lose(msgspec.Struct, frozen=True):
    """Stop delivering `partitions` immediately, run the lost callback; then answer with `Released`.

    No commit is possible. A `Lose` replaces a `Revoke` that has not been answered: one `Released` answers
    both.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str = ""


class Assign(msgspec.Struct, frozen=True):
    """Own exactly the partitions `owned` from now on, and run the assigned callback.

    The callback receives `added`, even if it is empty.
    """

    # The partitions of `owned` that were not owned before: look up their positions, then deliver.
    added: tuple[TopicPartition, ...]
    owned: tuple[TopicPartition, ...]
    generation: int
    # This is the first generation of the group.
    first: bool = False
    # The partitions of `added` that were created after the group's first assignment. Without a commit they
    # start at the earliest offset, whatever `auto.offset.reset` says.
    new: frozenset[TopicPartition] = frozenset()
    # Topic -> number of partitions at the group's first assignment. A topic that is missing is unknown, not
    # new.
    existed: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


class WantMetadata(msgspec.Struct, frozen=True):
    """Send `Metadata` of these topics, now and after every change, for the leader."""

    topics: frozenset[str]


class Rejoining(msgspec.Struct, frozen=True):
    """For logs: the member sends a JoinGroup for this reason. The reason is empty the first time."""

    reason: str
    # The assignment before this rejoin could not be used, or was replaced immediately again and again.
    after_unusable_assignment: bool = False


class Fatal(msgspec.Struct, frozen=True):
    """Raise `error` to the application. Unless `final`, the next `PollBegan` tries again."""

    error: KprotoError
    # The member will never join again.
    final: bool = False


class Left(msgspec.Struct, frozen=True):
    """The member is closed and returns no more actions. Drop requests that are still in flight."""


MemberAction = FindCoordinator | Send | Revoke | Lose | Assign | WantMetadata | Rejoining | Fatal | Left

# -- client: the member -----------------------------------------------------------------------------------


class ClientMember(Protocol):
    """One member of one group, as the client engine sees it. Only `step` and `on_poll` change it.

    Java: AbstractCoordinator with ConsumerCoordinator, and AbstractMembershipManager (KIP-848).
    """

    def step(self, event: MemberEvent, now: int) -> list[MemberAction]:
        """Apply `event` at time `now` and return the actions to perform, in order."""

    def on_poll(self, now: int) -> None:
        """Restart max.poll.interval.ms, as `step(PollEnded(), now)` does. Only while `is_stable`."""

    def next_deadline(self) -> int | None:
        """Return the time of the next `Tick`, or None if only another event can change the member."""

    # -- identity

    @property
    def member_id(self) -> str:
        """The member id, or an empty string while the member has none."""

    @property
    def generation(self) -> int | None:
        """The generation or member epoch, or None while the member is not part of the group."""

    @property
    def identity(self) -> Identity | None:
        """What a commit has to carry now, or None while the member must not commit.

        It is valid during `Revoke` and gone after `Lose`. It is new before `Revoke` and `Assign` are
        returned, so that callbacks commit with it.
        """

    @property
    def joined_identity(self) -> Identity | None:
        """Like `identity`, but kept during a rebalance.

        The coordinator accepts commits with it until the next generation begins.
        """

    @property
    def assigned_identity(self) -> Identity | None:
        """The identity with which the member last received an assignment, even if it is lost."""

    # -- subscription and assignment

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, including those of an unanswered `Revoke` or `Lose`."""

    @property
    def pattern(self) -> str | None:
        """The subscribed pattern, or None."""

    @property
    def topics_of_interest(self) -> frozenset[str]:
        """The topics whose metadata is needed: the subscription, and for a leader all topics."""

    @property
    def cooperative(self) -> bool:
        """Whether a rebalance may take several assignments, so that a missing partition may still come."""

    # -- progress

    @property
    def is_stable(self) -> bool:
        """Whether the member has its assignment and no rebalance is in progress."""

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup is in flight."""

    @property
    def is_unsubscribing(self) -> bool:
        """Whether the member waits for `Released` after `Unsubscribe`."""

    @property
    def is_rejoining_repeatedly(self) -> bool:
        """Whether the member has rejoined several times without a final assignment."""

    def assignment_deadline(self) -> int | None:
        """Return when the member loses its partitions unless it is active before.

        Activity means responses of the coordinator, and polls of the application.
        """

    # -- requests

    def is_pending(self, request: Message) -> bool:
        """Whether the member still waits for the response to this JoinGroup or SyncGroup."""

    def in_version(self, request: Message, version: int) -> Message:
        """Return `request` in the form of `version`. Encoding it may still raise EncodeError."""

    def retried_error(self, response: Message) -> int | None:
        """Return the error code of `response` if the member just tries again, otherwise 0.

        Return None if retries of this request are not reported.
        """


MemberFactory = Callable[[MemberConfig], ClientMember]
