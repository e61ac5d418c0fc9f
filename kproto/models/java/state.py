"""The state of a KafkaConsumer: subscription, positions, membership, buffers, open call."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, cast

import msgspec

from ... import machine
from ...error_codes import ErrorCode
from ...errors import ConfigError
from ...group.assignors import Assignor, is_cooperative, resolve_assignors
from ...group.subscription import Subscription, TopicPartition
from ...wire.message import Message
from ..common import ClusterMetadata, FetchedRecords, FetchStart, negotiate_version
from ..contract import Address, ModelAction, ModelConfig, SendRequest
from .kafka_consumer_metrics import KafkaConsumerMetrics
from .plugins import CustomAssignor, Interceptor
from .release import JavaRelease

Out = list[ModelAction]
# The lanes (names) of the consumer's connections to one broker: see `Address`.
MAIN, COORDINATOR, BOOTSTRAP = "main", "coordinator", "bootstrap"
# Default of retry.backoff.ms.
RETRY_BACKOFF_MS = 100
# A time in ms that is never reached.
FOREVER = 2**62


class JavaMemberState(Enum):
    """AbstractCoordinator.MemberState (M1)."""

    UNJOINED = "unjoined"
    # JoinGroup is in flight.
    PREPARING_REBALANCE = "preparing"
    # JoinGroup has been answered, and SyncGroup is in flight.
    COMPLETING_REBALANCE = "completing"
    STABLE = "stable"


M = JavaMemberState
EDGES: Final[machine.Edges[JavaMemberState]] = {
    M.UNJOINED: {M.PREPARING_REBALANCE: "JoinGroup is sent"},
    M.PREPARING_REBALANCE: {
        M.COMPLETING_REBALANCE: "JoinGroup is answered",
        M.UNJOINED: "JoinGroup failed, or the member leaves the group",
    },
    M.COMPLETING_REBALANCE: {
        M.STABLE: "SyncGroup is answered",
        M.UNJOINED: "SyncGroup failed, or the membership is lost",
        M.PREPARING_REBALANCE: "SyncGroup failed, and the member joins again with its id",
    },
    M.STABLE: {
        M.PREPARING_REBALANCE: "the group rebalances, or the subscription or metadata has changed",
        M.UNJOINED: "the membership is lost, or the member leaves the group",
    },
}


class BlockedOn(Enum):
    """The event that the application's thread waits for inside its call."""

    # No call of the application is in progress.
    NOTHING = "nothing"
    # Poll waits for records, a join or a coordinator, until its timeout expires.
    POLL = "polling"
    # The commit of onJoinPrepare is in flight (only in kafka-clients 2.6).
    PREPARE_COMMIT = "prepare commit"
    # The rebalance listener is running.
    CALLBACK = "callback"
    CLOSE_COMMIT = "close commit"
    CLOSE_LEAVE = "close leave"

    __hash__ = object.__hash__


# Aliases of states that are compared on every event: Enum attributes are slow before Python 3.12.
NOTHING, POLLING = BlockedOn.NOTHING, BlockedOn.POLL


B = BlockedOn
# Transitions that close() causes. A callback may call close() while any other call is in progress.
_CLOSE_EDGES = {
    B.CLOSE_COMMIT: "the application closes the consumer, which commits first",
    B.NOTHING: "the call returns",
}

BLOCKED_EDGES: Final[machine.Edges[BlockedOn]] = {
    B.NOTHING: {
        B.POLL: "the application calls poll",
        B.CALLBACK: "unsubscribe or close calls the listener",
        B.CLOSE_COMMIT: "the application closes the consumer, which commits first",
        B.CLOSE_LEAVE: "close sends LeaveGroup",
    },
    B.POLL: {
        B.NOTHING: "poll returns",
        B.PREPARE_COMMIT: "2.6 commits before a join",
        B.CALLBACK: "poll calls the listener",
    },
    B.PREPARE_COMMIT: {
        **_CLOSE_EDGES,
        B.POLL: "the commit is complete, or wakeup interrupts it",
        B.CALLBACK: "unsubscribe calls the listener",
    },
    B.CALLBACK: {
        **_CLOSE_EDGES,
        B.POLL: "the listener of a poll has returned",
        B.PREPARE_COMMIT: "the listener of unsubscribe has returned",
        B.CLOSE_LEAVE: "close sends LeaveGroup",
    },
    B.CLOSE_COMMIT: {
        B.NOTHING: "the commit is complete, or the timeout of close has passed",
        B.CALLBACK: "unsubscribe calls the listener",
    },
    B.CLOSE_LEAVE: {
        B.NOTHING: "LeaveGroup is answered, or the timeout of close has passed",
        B.CLOSE_COMMIT: "the application closes the consumer again",
        B.CALLBACK: "unsubscribe calls the listener",
    },
}


class Continuation(Enum):
    """Names the function that continues the call when the rebalance listener has returned."""

    JOIN_PREPARE = "prepare"
    JOIN_COMPLETE_REVOKED = "complete revoked"
    JOIN_COMPLETE_ASSIGNED = "complete assigned"
    UNSUBSCRIBE = "unsubscribed"
    CLOSE = "closed"


class FetchStates(Enum):
    """The states of a position (SubscriptionState.FetchStates, M138)."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "awaiting reset"
    AWAIT_VALIDATION = "awaiting validation"
    FETCHING = "fetching"


F = FetchStates
FETCHING = F.FETCHING

FETCH_EDGES: Final[machine.Edges[FetchStates]] = {
    F.INITIALIZING: {
        F.AWAIT_RESET: "the group has no committed offset",
        F.AWAIT_VALIDATION: "the committed offset has a leader epoch",
        F.FETCHING: "the committed offset has no leader epoch, or the application seeks",
    },
    F.AWAIT_RESET: {
        F.FETCHING: "ListOffsets is answered, or the application seeks",
    },
    F.AWAIT_VALIDATION: {
        F.INITIALIZING: "the log was truncated, and there is no reset policy",
        F.AWAIT_RESET: "the log was truncated, and the leader knows no end of the epoch",
        F.FETCHING: "the leader confirms the position, or the application seeks",
    },
    F.FETCHING: {
        F.INITIALIZING: "the offset is out of range, and there is no reset policy",
        F.AWAIT_RESET: "the offset is out of range",
        F.AWAIT_VALIDATION: "the leader has a newer epoch",
    },
}


@dataclass(frozen=True, slots=True)
class JavaGeneration:
    """The generation, member id and protocol with which a group request is sent (M3)."""

    number: int = -1
    member_id: str = ""
    protocol: str | None = None


NO_GENERATION = JavaGeneration()


@dataclass(slots=True)
class TopicPartitionState:
    """Position and state of one assigned partition (SubscriptionState.TopicPartitionState)."""

    state: FetchStates = FetchStates.INITIALIZING
    offset: int = -1
    epoch: int = -1
    # The timestamp that ListOffsets requests when this position is reset.
    timestamp: int = -2
    retry_at: int = 0
    # Whether a request that resets or validates this position is in flight.
    request_open: bool = False
    paused: bool = False
    # pendingRevocation: the partition is no longer fetched, and its records are no longer returned.
    pending_revocation: bool = False


class JavaCompletedFetch(msgspec.Struct):
    """The records of one partition in a Fetch response (CompletedFetch)."""

    tp: TopicPartition
    offset: int  # The position at which the records start.
    fetched: FetchedRecords
    error: int = 0


@dataclass(slots=True)
class FetchSessionHandler:
    """The fetch session of one node (FetchSessionHandler, M160)."""

    id: int = 0
    epoch: int = 0
    partitions: dict[TopicPartition, FetchStart] = field(default_factory=dict[TopicPartition, FetchStart])


class InFlightRequest(msgspec.Struct):
    """A request in flight, and the generation with which it was sent."""

    send: SendRequest
    generation: JavaGeneration = NO_GENERATION
    # A value that the sender keeps for the handler of the response.
    context: object = None


@dataclass(slots=True)
class CommitOperation:
    """One commit, requested by the application or by the consumer itself."""

    offsets: dict[TopicPartition, tuple[int, int]]
    token: object = None
    synchronous: bool = False
    auto: bool = False
    # The error code of the response, or -2 if the request failed without a response.
    result: int | None = None
    exception: tuple[str, str] | None = None
    retriable: bool = False
    fenced: bool = False
    deadline: int = FOREVER
    retry_at: int | None = None
    open: bool = False  # Whether OffsetCommit is in flight.


@dataclass(slots=True)
class LegacyPoll:
    """An unfinished call of the deprecated poll(long); `kafka_consumer` computes its timeout."""

    deadline: int
    timeout_ms: int
    # Whether metadata and positions arrived only after the timeout. The next event then ends poll(long).
    ends_with_next_event: bool = False


@dataclass(slots=True)
class ApplicationThread:
    """The application's thread: what it is blocked on, and how it continues after a callback."""

    state: BlockedOn = BlockedOn.NOTHING
    continuation: Continuation | None = None
    # What the thread was blocked on when the callback began.
    state_before_callback: BlockedOn = BlockedOn.NOTHING
    callback_partitions: tuple[TopicPartition, ...] = ()

    def move(self, to: BlockedOn) -> None:
        """Block the thread until the event `to`, unless the thread already waits for this event."""
        machine.ensure_state(self, to, BLOCKED_EDGES)


@dataclass(slots=True)
class JavaState:
    """The state of one consumer. Only `step` changes the state. All attributes may be read."""

    release: JavaRelease
    config: ModelConfig
    assignors: tuple[Assignor, ...]
    cooperative: bool
    session_ms: int = field(init=False)
    heartbeat_ms: int = field(init=False)
    max_poll_ms: int = field(init=False)
    metadata_ms: int = field(init=False)
    auto_commit_ms: int = field(init=False)
    fetch_wait_ms: int = field(init=False)
    auto_commit: bool = field(init=False)
    isolation: int = field(init=False)
    interceptors: tuple[Interceptor, ...] = field(init=False)
    now: int = 0
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    bootstrap: tuple[tuple[str, int], ...] = ()
    cluster: ClusterMetadata = field(default_factory=ClusterMetadata)
    # The requests in flight, by the `id()` of their message objects.
    open: dict[int, InFlightRequest] = field(default_factory=dict[int, InFlightRequest])
    # Whether a request was sent to a broker that the metadata lists, and not only to a bootstrap address.
    connected: bool = False

    # Metadata
    metadata_in_flight: bool = False  # Whether a Metadata request is in flight.
    metadata_update_requested: bool = False  # Whether metadata is requested before it expires.
    metadata_refreshed_at: int = -FOREVER  # The time of the last response or failure (lastRefreshMs).

    # Subscription
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    auto_assigned: bool = False
    assigned: dict[TopicPartition, TopicPartitionState] = field(
        default_factory=dict[TopicPartition, TopicPartitionState]
    )
    group_topics: frozenset[str] = frozenset()  # In the leader, the topics of all members; otherwise empty.

    # AbstractCoordinator
    state: JavaMemberState = M.UNJOINED
    generation: JavaGeneration = NO_GENERATION
    rejoin_needed: bool = True
    needs_prepare: bool = True  # Whether onJoinPrepare runs before the next JoinGroup.
    reason: str = ""  # The reason that the next JoinGroup carries (KIP-800).
    join_in_flight: bool = False
    join_result: bytes | None = None  # The assignment of SyncGroup, until onJoinComplete has run.
    join_error: int | None = None  # The error code of the last join, until poll handles it.
    coordinator: Address | None = None
    find_in_flight: bool = False  # Whether FindCoordinator is in flight.
    find_failures: int = 0  # The number of failed lookups since the last success.
    find_retry_at: int = 0
    find_error: tuple[str, str] | None = None
    join_retry_at: int = 0

    # The heartbeat thread
    heartbeat_enabled: bool = False
    heartbeat_in_flight: Message | None = None
    heartbeat_at: int = 0
    session_deadline: int = 0
    max_poll_deadline: int = 0
    heartbeat_failures: int = 0
    heartbeat_exception: tuple[str, str] | None = None

    # ConsumerCoordinator
    is_leader: bool = False
    # The result of groupMetadata(): the generation of the last completed join, even if the membership was
    # lost later.
    group_metadata: JavaGeneration = NO_GENERATION
    # The first exception that the listener or the assignor has raised in this rebalance. Poll throws it.
    callback_exception: tuple[str, str] | None = None
    members: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    skip_assignment: bool = False
    # Whether the leader waits for metadata of the group's topics before it assigns their partitions.
    awaiting_metadata: bool = False
    metadata_snapshot: dict[str, object] | None = None
    # The leader's snapshot at the last assignment. The leader joins again if `metadata_snapshot` differs.
    assignment_snapshot: dict[str, object] | None = None
    joined_topics: frozenset[str] | None = None  # The subscription of the last JoinGroup.
    # Assignor name -> (the last assignment passed to its onAssignment, the generation).
    previous: dict[str, tuple[tuple[TopicPartition, ...], int]] = field(
        default_factory=dict[str, "tuple[tuple[TopicPartition, ...], int]"]
    )
    auto_commit_at: int = 0
    prepare_commit: CommitOperation | None = None
    prepare_deadline: int | None = None
    new_assignment: tuple[TopicPartition, ...] = ()
    # The new assignment in the leader's order. The user data of the next JoinGroup keeps this order.
    leader_assignment: tuple[TopicPartition, ...] = ()
    added_partitions: tuple[TopicPartition, ...] = ()
    completed_commits: deque[CommitOperation] = field(default_factory=deque[CommitOperation])
    # asyncCommitFenced: if true, every later poll and commit throws.
    commit_fenced: bool = False
    offset_fetch_in_flight: bool = False
    pending_exception: tuple[str, str] | None = None

    # Fetcher
    sessions: dict[int, FetchSessionHandler] = field(default_factory=dict[int, FetchSessionHandler])
    pending_fetch_nodes: set[int] = field(default_factory=set[int])
    buffer: deque[JavaCompletedFetch] = field(default_factory=deque[JavaCompletedFetch])

    # The application's thread
    thread: ApplicationThread = field(default_factory=ApplicationThread)
    poll_deadline: int = 0
    # The call of poll(long) that is in progress. Its timeout runs only while the call waits for records.
    legacy_poll: LegacyPoll | None = None
    poll_limit: int = 500
    metrics: KafkaConsumerMetrics = field(default_factory=KafkaConsumerMetrics)
    wakeup_pending: bool = False
    close_commit: CommitOperation | None = None
    closing: bool = False
    stay_in_group: bool = False
    close_until: int = FOREVER
    closed: bool = False
    # The calls of commitSync and commitAsync that are not complete.
    commits: list[CommitOperation] = field(default_factory=list[CommitOperation])
    # The time (ms) at which the current join of a pattern subscription began. The join waits for a Metadata
    # response that arrives after this time (M201).
    pattern_refresh_since: int | None = None
    committed_refreshed: bool = False  # Whether committed offsets have arrived, and are not validated yet.
    # Whether every assigned partition has a valid position (hasAllFetchPositions).
    positions_settled: bool = False

    def __post_init__(self) -> None:
        """Set each option from the configuration, or to Java's default if the configuration has None."""

        def or_default(configured: int | None, default: int) -> int:
            return default if configured is None else configured

        config = self.config
        if config.reset not in (None, "earliest", "latest", "none"):
            raise ConfigError("reset", config.reset, "earliest, latest or none")
        self.session_ms = or_default(
            config.session_ms, 10_000 if self.release.commits_synchronously else 45_000
        )
        self.heartbeat_ms = or_default(config.heartbeat_ms, 3_000)
        self.max_poll_ms = or_default(config.max_poll_ms, 300_000)
        self.metadata_ms = or_default(config.metadata_ms, 300_000)
        self.auto_commit_ms = or_default(config.auto_commit_ms, 5_000)
        self.fetch_wait_ms = or_default(config.fetch_wait_ms, 500)
        self.auto_commit = config.auto_commit is not False
        self.isolation = 1 if config.isolation == "read_committed" else 0
        self.interceptors = cast("tuple[Interceptor, ...]", config.extra.get("interceptor.classes", ()))

    @property
    def rebalancing(self) -> bool:
        return self.state in (M.PREPARING_REBALANCE, M.COMPLETING_REBALANCE)


def new_consumer(config: ModelConfig, release: JavaRelease) -> JavaState:
    """Return the state of a consumer before its first event.

    The assignors come from the application, else from the configuration, else from the release's default.
    """
    custom_assignors = cast(
        "tuple[CustomAssignor, ...]", config.extra.get("partition.assignment.strategy", ())
    )
    named_assignors = (
        release.assignors_2_6.get(name, name) for name in config.assignors or release.assignors
    )
    assignors = resolve_assignors(custom_assignors or named_assignors)
    return JavaState(release, config, assignors, is_cooperative(assignors))


def move(state: JavaState, to: JavaMemberState) -> None:
    """Move the member to a state, unless it is already in that state."""
    machine.ensure_state(state, to, EDGES)


def move_position(partition: TopicPartitionState, to: FetchStates) -> None:
    """Move the position of a partition to a state, unless it is already in that state."""
    machine.ensure_state(partition, to, FETCH_EDGES)


def send_request(
    state: JavaState,
    to: Address,
    request: Message,
    out: Out,
    context: object = None,
    timeout_ms: int = 30_000,
) -> InFlightRequest:
    """Send `request` in the highest version that both sides support, and track it in `state.open`."""
    api_key = type(request).__api_key__
    assert api_key is not None
    version = negotiate_version(state.release.versions, state.offered, api_key)
    entry = InFlightRequest(SendRequest(to, request, version, timeout_ms), state.generation, context)
    state.open[id(request)] = entry
    out.append(entry.send)
    return entry


def request_version(state: JavaState, api_key: int) -> int:
    """Return the version in which `send_request` sends requests of an API."""
    return negotiate_version(state.release.versions, state.offered, api_key)


def least_loaded_node(state: JavaState) -> Address:
    """Return a connected node; a bootstrap address before the first connection (leastLoadedNode)."""
    if state.connected and state.cluster.brokers:
        return node_address(state, min(state.cluster.brokers))
    host, port = state.bootstrap[0]
    return Address(host, port, BOOTSTRAP)


def node_address(state: JavaState, node: int) -> Address:
    """Return the address for a request to the broker `node`, and record that a request is sent."""
    state.connected = True
    host, port = state.cluster.brokers[node]
    return Address(host, port, MAIN)


# The error codes whose exceptions are RetriableExceptions in Java.
RETRIABLE = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
# The result code of a request without a response (DisconnectException), which is retriable.
DISCONNECTED = -2
