"""The interfaces that all group protocols share.

One interface connects a client and its member. The other connects a broker and its coordinator.

The client's interface: a client drives a `ClientMember`, which `kproto.group.members` creates.

The client calls `step` with an event and performs the returned actions in order. It sends a `Tick` at the
time that `next_deadline` returns.

The client sends requests, reports their responses, runs the rebalance callbacks and commits offsets. The
member decides when to join, send a heartbeat, revoke, assign and leave.

The client looks up the coordinator each time the member returns `FindCoordinator`. The member first returns
it after its first subscription, and sends nothing before `CoordinatorFound`.

The broker's interface: the embedded broker drives a `GroupCoordinator`. The broker passes requests to `step`
and sends the responses that `step` returns.

`kproto.group.coordinators` combines the coordinators of all types of groups. The coordinator of classic
groups is `kproto.group.classic.coordinator.ClassicCoordinator`.

All times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias
from uuid import UUID

import msgspec

from ..error_codes import ErrorCode
from ..errors import KprotoError
from ..machine import RequestReceived, SendResponse
from ..machine import Tick as Tick
from ..wire.message import Message
from .assignors import Assignor
from .subscription import TopicPartition

# The reason for a `Lose` after max.poll.interval.ms without a poll, in the words of Java's LeaveGroup
# (KIP-800).
POLL_TIMEOUT = "consumer poll timeout has expired."

# -- client: configuration --------------------------------------------------------------------------------


def no_jitter(wait_ms: int) -> int:
    """Return `wait_ms` unchanged, as a backoff without jitter."""
    return wait_ms


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of a member. The names are Kafka's option names; times are milliseconds."""

    group_id: str
    group_instance_id: str | None = None
    client_id: str = "kproto"
    session_timeout_ms: int = 45_000
    # The rebalance timeout. Its value is max.poll.interval.ms, as in Java's GroupRebalanceConfig.
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    assignors: tuple[str | Assignor, ...] = ("cooperative-sticky", "range")
    rack_id: str | None = None
    # Whether to follow Java's consumer even where Java can deliver records twice or leave partitions without
    # an owner.
    as_java: bool = False
    # Adds jitter to a backoff in milliseconds. The function is supplied by the caller, because it needs
    # randomness.
    spread: Callable[[int], int] = no_jitter


class Identity(msgspec.Struct, frozen=True):
    """The identity that a member's OffsetCommit carries."""

    # The generation of a classic group, or the member epoch of a consumer group (KIP-848).
    generation: int
    member_id: str
    group_instance_id: str | None
    # The name of the assignor that the group has selected.
    protocol: str


# -- client: events ---------------------------------------------------------------------------------------


class SubscriptionChanged(msgspec.Struct, frozen=True):
    """The application subscribed. With `pattern`, `topics` are the known topics that match the pattern."""

    topics: frozenset[str]
    pattern: str | None = None


class Unsubscribed(msgspec.Struct, frozen=True):
    """The application unsubscribed: the member revokes its partitions, leaves, and stays idle."""


class PollEntered(msgspec.Struct, frozen=True):
    """The application entered poll.

    The timer of max.poll.interval.ms stops until `PollLeft`, however long the poll waits.
    """


class PollLeft(msgspec.Struct, frozen=True):
    """The application left poll, or runs a callback inside it. The timer of max.poll.interval.ms starts."""


class CoordinatorFound(msgspec.Struct, frozen=True):
    """The lookup has found the coordinator. `node` is opaque to the member."""

    node: object


class CoordinatorLost(msgspec.Struct, frozen=True):
    """The lookup failed, or the connection to the coordinator was lost together with its requests."""

    why: str = ""


class Received(msgspec.Struct, frozen=True):
    """The response to a `Send` of the member. `request` is the object that the `Send` contained."""

    request: Message
    response: Message


class SendFailed(msgspec.Struct, frozen=True):
    """A request of a `Send` received no response: the connection was lost, or the request timed out."""

    request: Message
    why: str = ""


class SendRefused(msgspec.Struct, frozen=True):
    """The request of a `Send` cannot be sent to this broker, and a retry would not help.

    For example, a static member needs JoinGroup v5, which added the instance id, but the broker supports only
    older versions.
    """

    request: Message
    error: KprotoError


class Released(msgspec.Struct, frozen=True):
    """The application has released the partitions of the last `Revoke` or `Lose`."""


class MetadataUpdated(msgspec.Struct, frozen=True):
    """The metadata of topics has changed. A topic that does not exist has no entry in `partitions`."""

    # Maps a topic to its number of partitions.
    partitions: Mapping[str, int]
    # The topics that the client requested; None if it requested all topics. A leader that waits for metadata
    # runs the assignor once all members' topics were requested or have an entry in `partitions`.
    requested: frozenset[str] | None = None
    # Whether `partitions` contains all topics of the cluster. If it does, a topic that appears only in later
    # metadata is known to be new.
    complete: bool = False
    # Maps a topic to its topic id, where known.
    ids: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])
    # Maps a topic to a tuple with one set for each partition, by index: the racks of the partition's
    # replicas.
    racks: Mapping[str, tuple[frozenset[str], ...]] = msgspec.field(
        default_factory=dict[str, tuple[frozenset[str], ...]]
    )


class CommitAnswered(msgspec.Struct, frozen=True):
    """The coordinator answered an OffsetCommit that the client sent with this generation and member id."""

    error_code: int
    generation: int
    member_id: str


class RejoinRequested(msgspec.Struct, frozen=True):
    """The application requests a rebalance, as with Java's `enforceRebalance`.

    The coordinator receives `reason` (KIP-800).
    """

    reason: str


class CloseRequested(msgspec.Struct, frozen=True):
    """The application closes the consumer.

    The member revokes its partitions, leaves the group if `leave` is true, and returns `Left` within
    `timeout_ms`.
    """

    leave: bool = True
    timeout_ms: int = 30_000


MemberEvent = (
    SubscriptionChanged
    | Unsubscribed
    | PollEntered
    | PollLeft
    | CoordinatorFound
    | CoordinatorLost
    | Received
    | SendFailed
    | SendRefused
    | Released
    | MetadataUpdated
    | CommitAnswered
    | RejoinRequested
    | CloseRequested
    | Tick
)

# -- client: actions --------------------------------------------------------------------------------------


class FindCoordinator(msgspec.Struct, frozen=True):
    """Look up the coordinator, after closing the connection to the previous one.

    The member returns this action at its first subscription, and whenever the coordinator may have changed.

    The client answers with `CoordinatorFound` or `CoordinatorLost`. After `CoordinatorLost`, the member backs
    off and requests another lookup.
    """


class Purpose(Enum):
    """The purpose of a member's request."""

    # JoinGroup, the member's first request in a rebalance. Java commits offsets before sending it.
    JOIN = "join"
    # SyncGroup, which requests the member's new assignment.
    SYNC = "sync"
    # Heartbeat, which keeps the membership alive. Its failure does not end the membership, because the next
    # Heartbeat may succeed.
    HEARTBEAT = "heartbeat"
    OTHER = "other"

    # This is faster than Enum's own __hash__, which is written in Python.
    __hash__ = object.__hash__


class Send(msgspec.Struct, frozen=True):
    """Send `request` to the coordinator. Answer with `Received`, `SendFailed` or `SendRefused`.

    `request` has the fields of the newest version; `ClientMember.in_version` returns it with the fields of an
    older version.
    """

    request: Message
    # The minimum time (ms) to wait for the response; None for request.timeout.ms. JoinGroup needs a longer
    # time, because its response waits for all members of the group.
    timeout_ms: int | None = None
    # Whether to use a separate connection while JoinGroup or SyncGroup is in flight. Until the broker has
    # answered such a request, it reads no further requests from the same connection.
    urgent: bool = False
    purpose: Purpose = Purpose.OTHER


class RevokePurpose(Enum):
    """What a member does after a revocation. For JOIN and CLOSE, Java commits before the callback."""

    # The member sends JoinGroup next.
    JOIN = "join"
    # The member's new assignment lacks the partitions. The member adopts the new assignment next.
    REASSIGNED = "reassigned"
    # The application has called unsubscribe. The member leaves the group next.
    UNSUBSCRIBE = "unsubscribe"
    # The application closes the consumer. The member leaves the group next.
    CLOSE = "close"


class Revoke(msgspec.Struct, frozen=True):
    """Stop delivering `partitions`, run the `revoked` callback, commit, and answer with `Released`.

    With `policy="java"`, the commit precedes the callback if the purpose is JOIN or CLOSE.

    With an eager assignor `partitions` may be empty: Java runs the callback nevertheless.
    """

    partitions: tuple[TopicPartition, ...]
    purpose: RevokePurpose
    reason: str = ""


class Lose(msgspec.Struct, frozen=True):
    """Stop delivering `partitions` immediately, run the `lost` callback, and answer with `Released`.

    Offsets can no longer be committed. A `Lose` replaces an unanswered `Revoke`: one `Released` answers both.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str = ""


class AdoptAssignment(msgspec.Struct, frozen=True):
    """Own exactly the partitions `owned`, and run the assigned callback.

    The callback receives `added`, even if it is empty.
    """

    # The partitions of `owned` that were not owned before. Look up their positions before delivering records.
    added: tuple[TopicPartition, ...]
    owned: tuple[TopicPartition, ...]
    generation: int
    # Whether this is the first generation of the group.
    first: bool = False
    # The partitions of `added` that were created after the group's first assignment. Without a committed
    # offset they start at the earliest offset, whatever `auto.offset.reset` says.
    new: frozenset[TopicPartition] = frozenset()
    # Maps a topic to its number of partitions at the group's first assignment. If this number is unknown, the
    # mapping lacks the topic, and the topic's partitions do not count as new.
    initial_counts: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


class WantMetadata(msgspec.Struct, frozen=True):
    """Send the member a `MetadataUpdated` with these topics, now and after every change of their metadata.

    The leader needs the metadata of every topic to which a member of the group is subscribed.
    """

    topics: frozenset[str]


class Rejoining(msgspec.Struct, frozen=True):
    """Log that the member sends a JoinGroup for this reason. The reason of the first JoinGroup is empty."""

    reason: str
    # Whether the member could not use the last assignment. An assignment that revokes partitions after
    # several JoinGroups in a row also counts as unusable. The client reports an unusable assignment.
    after_unusable_assignment: bool = False


class Fatal(msgspec.Struct, frozen=True):
    """Raise `error` to the application.

    Unless `final` is true, the member joins again at the next `PollEntered`.
    """

    error: KprotoError
    # Whether the member will never join again.
    final: bool = False


class Left(msgspec.Struct, frozen=True):
    """The member is closed and returns no more actions. Drop requests that are still in flight."""


MemberAction = (
    FindCoordinator | Send | Revoke | Lose | AdoptAssignment | WantMetadata | Rejoining | Fatal | Left
)

# -- client: the member -----------------------------------------------------------------------------------


class ClientMember(Protocol):
    """One member of one group, as the client sees it. Only `step` and `on_poll` change it.

    Java: AbstractCoordinator with ConsumerCoordinator, and AbstractMembershipManager (KIP-848).
    """

    def step(self, event: MemberEvent, now: int) -> list[MemberAction]:
        """Apply `event` at time `now` and return the actions to perform, in order."""
        ...

    def on_poll(self, now: int) -> None:
        """Restart the timer of max.poll.interval.ms, as `step(PollLeft(), now)` does, but faster.

        May be called only while `is_stable`.
        """
        ...

    def next_deadline(self) -> int | None:
        """Return the time at which a `Tick` is due, or None if only another event can change the member."""
        ...

    # -- identity

    @property
    def member_id(self) -> str:
        """The member id, or an empty string while the member has none."""
        ...

    @property
    def generation(self) -> int | None:
        """The generation or member epoch, or None while the member is not part of the group."""
        ...

    @property
    def identity(self) -> Identity | None:
        """The identity that a commit has to carry, or None while the member must not commit.

        A `Revoke` does not change the identity, and a `Lose` removes it. After a rebalance, the new identity
        is set before the `Revoke` or `AdoptAssignment` that follows, so that their callbacks can commit.
        """
        ...

    @property
    def joined_identity(self) -> Identity | None:
        """The identity that the coordinator assigned last. Unlike `identity`, it is kept during a rebalance.

        In the classic protocol, this identity comes from the last JoinGroup response.

        The coordinator accepts commits with this identity until the next generation begins.
        """
        ...

    @property
    def assigned_identity(self) -> Identity | None:
        """The identity with which the member last received an assignment. It remains set after a `Lose`."""
        ...

    # -- subscription and assignment

    @property
    def owned(self) -> tuple[TopicPartition, ...]:
        """The owned partitions, including the partitions of a pending `Revoke` or `Lose`."""
        ...

    @property
    def pattern(self) -> str | None:
        """The subscribed pattern, or None."""
        ...

    @property
    def topics_of_interest(self) -> frozenset[str]:
        """The topics whose metadata the member needs: its own topics; for a leader, all members' topics."""
        ...

    @property
    def cooperative(self) -> bool:
        """Whether the member rebalances cooperatively. Such a rebalance may consist of several assignments: a
        later one may contain partitions that an earlier one lacks.
        """
        ...

    # -- progress

    @property
    def is_stable(self) -> bool:
        """Whether the member has its assignment and no rebalance is in progress."""
        ...

    @property
    def assignment_error(self) -> KprotoError | None:
        """The error that each poll raises, because the assignment cannot be used; None if it can be used."""
        ...

    @property
    def is_joining(self) -> bool:
        """Whether the request that joins the group (JoinGroup in the classic protocol) is in flight."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether a JoinGroup, or another request that begins or completes a rebalance, is in flight."""
        ...

    @property
    def is_unsubscribing(self) -> bool:
        """Whether the member waits for `Released` after `Unsubscribed`."""
        ...

    @property
    def is_rejoining_repeatedly(self) -> bool:
        """Whether several assignments in a row have each made the member rejoin."""
        ...

    def assignment_deadline(self) -> int | None:
        """Return the time at which the member loses its partitions if it is inactive until then.

        Returns None if the member has no such deadline. A member is active while the coordinator
        responds and the application polls.
        """
        ...

    # -- requests

    def is_pending(self, request: Message) -> bool:
        """Whether the member still waits for the response to this JoinGroup or SyncGroup."""
        ...

    def in_version(self, request: Message, version: int) -> Message:
        """Return `request` in the layout of `version`. Encoding the result may still raise EncodeError."""
        ...

    def retried_error(self, response: Message) -> int | None:
        """Return a response's error code if the client must report that the member retries; else 0.

        Return None if the client never reports retries of this kind of request.
        """
        ...


MemberFactory = Callable[[MemberConfig], ClientMember]


# -- broker: events and actions ---------------------------------------------------------------------------


class TopicsDeleted(msgspec.Struct, frozen=True):
    """Topics were deleted. The coordinator drops their committed offsets."""

    names: frozenset[str]


class TransactionEnded(msgspec.Struct, frozen=True):
    """A producer's transaction ended.

    If the transaction was committed, its pending offsets become valid. If it was aborted, they are dropped.
    """

    producer_id: int
    committed: bool


CoordinatorEvent: TypeAlias = "RequestReceived[Message] | Tick | TopicsDeleted | TransactionEnded"


class GroupNotice(msgspec.Struct, frozen=True):
    """A notice about an event in a group.

    The broker passes notices to its observers (`Server.observe`), and otherwise ignores them.
    """

    group_id: str


class RebalanceCompleted(GroupNotice, frozen=True):
    """The group has become stable in `generation`.

    `generation` is the generation of a classic group, or the group epoch of another type of group. `members`
    are the ids of the group's members.
    """

    generation: int
    members: tuple[str, ...]


CoordinatorAction: TypeAlias = SendResponse | GroupNotice


# -- broker: the coordinator -------------------------------------------------------------------------------


class GroupRequest(Protocol):
    """A request that names one group, such as JoinGroup or OffsetCommit."""

    group_id: str


class TopicCatalog(Protocol):
    """The interface through which a coordinator looks up the broker's topics.

    The methods return the topic's name, its id and its number of partitions, or None for an unknown topic.
    """

    def name(self, topic_id: UUID, /) -> str | None: ...
    def id(self, name: str, /) -> UUID | None: ...
    def partitions(self, name: str, /) -> int | None: ...


class MemberDescription(NamedTuple):
    """One member of a group, as the coordinator reports it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    # The encoded assignment. The format depends on the type of group: ConsumerProtocolAssignment for classic
    # consumers.
    assignment: bytes


class GroupDescription(NamedTuple):
    """One group of any type, as the coordinator reports it."""

    group_id: str
    # The type of group as in ListGroups: "classic", "consumer" or "share".
    group_type: str
    # The protocol type, such as "consumer" or "connect". Empty if the group never had a member.
    protocol_type: str
    # Kafka's name for the state, such as "Stable".
    state: str
    # The generation of a classic group, or the group epoch of a group of another type.
    epoch: int
    members: tuple[MemberDescription, ...]
    # The id of the member that assigns the partitions, or None if the coordinator assigns them.
    leader: str | None = None

    def member(self, member_id: str) -> MemberDescription | None:
        """Return the member with this id, or None if the group has no such member."""
        return next((member for member in self.members if member.member_id == member_id), None)


class GroupCoordinator(Protocol):
    """The interface through which the embedded broker uses a coordinator of any type of group.

    A broker creates a coordinator from a `TopicCatalog` and the settings of the group type, and then uses the
    coordinator as follows:

    * The broker passes requests whose class is in `requests` to `step` as `RequestReceived`, with a token.

    * Each token is returned in exactly one `SendResponse`, by the step that received it or a later one.

    * The API of a request in `requests` needs a file in `kproto/broker/apis/` that calls
      `send_to_coordinator`. Otherwise the broker does not serve the API.

    * The broker passes `TopicsDeleted` and `TransactionEnded` to `step` when they happen.

    * The broker passes a `Tick` to `step` at the time that `next_deadline` returns. A `Tick` at any other
      time is harmless.

    * The broker sends the response of each `SendResponse`, and passes every `GroupNotice` to its observers.

    * The broker calls `hand_over` when another broker becomes the coordinator of a group.

    * The broker calls `error_response` for a request that it rejects before the coordinator receives it.

    Coordinators do no I/O. They raise no errors for Kafka's error codes, which are part of the responses.
    Times are whole milliseconds of one monotonic clock.
    """

    @property
    def requests(self) -> Collection[type[Message]]:
        """The request classes that `step` serves."""
        ...

    def step(self, event: CoordinatorEvent, now: int) -> list[CoordinatorAction]:
        """Apply one event and return the actions to perform, in order."""
        ...

    def next_deadline(self) -> int | None:
        """Return the time at which a `Tick` is due, or None if no deadline is set."""
        ...

    def group_ids(self) -> Collection[str]:
        """Return the ids of all groups, including groups that have offsets but no members."""
        ...

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as it is now, or None if it does not exist."""
        ...

    def committed_offset(self, group_id: str, partition: TopicPartition) -> int | None:
        """Return the group's committed offset for a partition, or None if no offset is committed."""
        ...

    def has_pending_offsets(self, group_id: str, producer_id: int) -> bool:
        """Return whether the producer's open transaction contains offsets of the group."""
        ...

    def hand_over(self, group_id: str, ready_at: int) -> list[SendResponse]:
        """Answer the group's delayed requests with NOT_COORDINATOR, because another broker takes over.

        All nodes of an embedded cluster share one coordinator, so the group's state stays in memory.
        `ready_at` is the time in ms at which the new node has loaded the group: the members' session timeouts
        restart then.
        """
        ...

    def error_response(self, request: Message, code: ErrorCode, version: int) -> Message:
        """Return a response that only reports this error. `request` must be of a class in `requests`."""
        ...
