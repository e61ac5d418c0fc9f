"""What a KafkaConsumer knows: its subscription and positions, its group, its buffers, its open call."""

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
MAIN, COORDINATOR, BOOTSTRAP = "main", "coordinator", "bootstrap"
RETRY_BACKOFF_MS = 100
FOREVER = 2**62


class JavaMemberState(Enum):
    """AbstractCoordinator.MemberState (M1)."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing"  # JoinGroup is open
    COMPLETING_REBALANCE = "completing"  # JoinGroup is answered, SyncGroup open
    STABLE = "stable"


M = JavaMemberState
EDGES: Final[machine.Edges[JavaMemberState]] = {
    M.UNJOINED: frozenset({M.PREPARING_REBALANCE}),
    M.PREPARING_REBALANCE: frozenset({M.COMPLETING_REBALANCE, M.UNJOINED}),
    M.COMPLETING_REBALANCE: frozenset({M.STABLE, M.UNJOINED, M.PREPARING_REBALANCE}),
    M.STABLE: frozenset({M.PREPARING_REBALANCE, M.UNJOINED}),
}


class BlockedOn(Enum):
    """What the application's thread waits for inside of its call."""

    NOTHING = "nothing"  # it isn't in a call
    POLL = "polling"  # poll: for records, a join, a coordinator, until its time is over
    PREPARE_COMMIT = "prepare commit"  # 2.6: the commit in onJoinPrepare
    CALLBACK = "callback"  # the listener runs
    CLOSE_COMMIT = "close commit"
    CLOSE_LEAVE = "close leave"

    __hash__ = object.__hash__


NOTHING, POLLING = BlockedOn.NOTHING, BlockedOn.POLL
"""What is asked for with each event has a name: before Python 3.12 an Enum's attributes are dear."""


class Continuation(Enum):
    """What goes on when the listener has returned."""

    JOIN_PREPARE = "prepare"
    JOIN_COMPLETE_REVOKED = "complete revoked"
    JOIN_COMPLETE_ASSIGNED = "complete assigned"
    UNSUBSCRIBE = "unsubscribed"
    CLOSE = "closed"


class FetchStates(Enum):
    """SubscriptionState.FetchStates (M138)."""

    INITIALIZING = "initializing"
    AWAIT_RESET = "awaiting reset"
    AWAIT_VALIDATION = "awaiting validation"
    FETCHING = "fetching"


FETCHING = FetchStates.FETCHING


@dataclass(frozen=True, slots=True)
class JavaGeneration:
    """The triple that every group request is sent with (M3)."""

    number: int = -1
    member_id: str = ""
    protocol: str | None = None


NO_GENERATION = JavaGeneration()


@dataclass(slots=True)
class TopicPartitionState:
    """TopicPartitionState."""

    fetch_state: FetchStates = FetchStates.INITIALIZING
    offset: int = -1
    epoch: int = -1
    timestamp: int = -2
    """What a reset asks ListOffsets for."""
    retry_at: int = 0
    request_open: bool = False
    paused: bool = False
    pending_revocation: bool = False
    """pendingRevocation: nothing of it is fetched or returned any more."""


class JavaCompletedFetch(msgspec.Struct):
    """CompletedFetch: what one partition's answer held."""

    tp: TopicPartition
    offset: int
    fetched: FetchedRecords
    error: int = 0


@dataclass(slots=True)
class FetchSessionHandler:
    """FetchSessionHandler of one node (M160)."""

    id: int = 0
    epoch: int = 0
    partitions: dict[TopicPartition, FetchStart] = field(default_factory=dict[TopicPartition, FetchStart])


class InFlightRequest(msgspec.Struct):
    """A request without an answer, and the triple that it was sent with."""

    send: SendRequest
    generation: JavaGeneration = NO_GENERATION
    context: object = None


@dataclass(slots=True)
class CommitOperation:
    """One commit of the application or of the consumer itself."""

    offsets: dict[TopicPartition, tuple[int, int]]
    token: object = None
    synchronous: bool = False
    auto: bool = False
    result: int | None = None
    """The answer's code; -2 is a failure without one."""
    exception: tuple[str, str] | None = None
    retriable: bool = False
    fenced: bool = False
    deadline: int = FOREVER
    retry_at: int | None = None
    open: bool = False


@dataclass(slots=True)
class LegacyPoll:
    """Of a poll(long): until when its time was meant to be, and how long that is."""

    deadline: int
    timeout_ms: int
    ends_with_next_event: bool = False
    """The next thing that comes ends it."""


@dataclass(slots=True)
class JavaState:
    """One consumer. Only `step` changes it; read what you like."""

    release: JavaRelease
    config: ModelConfig
    assignors: tuple[Assignor, ...]
    cooperative: bool
    session_ms: int = field(init=False)
    heartbeat_ms: int = field(init=False)
    max_poll_ms: int = field(init=False)
    metadata_ms: int = field(init=False)
    auto_commit_ms: int = field(init=False)
    auto_commit: bool = field(init=False)
    isolation: int = field(init=False)
    interceptors: tuple[Interceptor, ...] = field(init=False)
    now: int = 0
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    bootstrap: tuple[tuple[str, int], ...] = ()
    cluster: ClusterMetadata = field(default_factory=ClusterMetadata)
    open: dict[int, InFlightRequest] = field(default_factory=dict[int, InFlightRequest])
    connected: bool = False

    # Metadata
    metadata_at: int | None = None
    metadata_open: bool = False
    metadata_wanted: bool = False
    metadata_last: int = -FOREVER
    topics_known: frozenset[str] = frozenset()

    # Subscription
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    auto_assigned: bool = False
    assigned: dict[TopicPartition, TopicPartitionState] = field(
        default_factory=dict[TopicPartition, TopicPartitionState]
    )
    group_topics: frozenset[str] = frozenset()

    # AbstractCoordinator
    state: JavaMemberState = M.UNJOINED
    generation: JavaGeneration = NO_GENERATION
    rejoin_needed: bool = True
    needs_prepare: bool = True
    reason: str = ""
    join_in_flight: bool = False
    join_result: bytes | None = None
    join_error: int | None = None
    coordinator: Address | None = None
    find_open: bool = False
    find_failed: int = 0
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
    group_metadata: JavaGeneration = NO_GENERATION
    """What groupMetadata() says: of the last join that was completed, also when it has been lost since."""
    callback_exception: tuple[str, str] | None = None
    """The first exception of the listener, or of the assignor, in this rebalance."""
    members: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    skip_assignment: bool = False
    awaiting_metadata: bool = False
    metadata_snapshot: dict[str, object] | None = None
    assignment_snapshot: dict[str, object] | None = None
    joined_topics: frozenset[str] | None = None
    previous: dict[str, tuple[tuple[TopicPartition, ...], int]] = field(
        default_factory=dict[str, "tuple[tuple[TopicPartition, ...], int]"]
    )
    """What onAssignment told each assignor last: only the one that the group chose."""
    auto_commit_at: int = 0
    prepare_commit: CommitOperation | None = None
    prepare_until: int | None = None
    new_assignment: tuple[TopicPartition, ...] = ()
    leader_assignment: tuple[TopicPartition, ...] = ()
    """The same, as the leader wrote it: what onAssignment is told."""
    added_partitions: tuple[TopicPartition, ...] = ()
    completed_commits: deque[CommitOperation] = field(default_factory=deque[CommitOperation])
    commit_fenced: bool = False
    """asyncCommitFenced: from now on every call that hears of commits throws."""
    offset_fetch_in_flight: bool = False
    pending_exception: tuple[str, str] | None = None

    # Fetcher
    sessions: dict[int, FetchSessionHandler] = field(default_factory=dict[int, FetchSessionHandler])
    pending_fetch_nodes: set[int] = field(default_factory=set[int])
    buffer: deque[JavaCompletedFetch] = field(default_factory=deque[JavaCompletedFetch])

    # The application's thread
    blocked_on: BlockedOn = BlockedOn.NOTHING
    continuation: Continuation | None = None
    blocked_before_callback: BlockedOn = BlockedOn.NOTHING
    """The call that the callback runs in."""
    poll_deadline: int = 0
    legacy_poll: LegacyPoll | None = None
    """poll(long): what is left of its time, which doesn't pass while it waits for anything but records."""
    poll_limit: int = 500
    metrics: KafkaConsumerMetrics = field(default_factory=KafkaConsumerMetrics)
    wakeup_pending: bool = False
    close_commit: CommitOperation | None = None
    closing: bool = False
    stay_in_group: bool = False
    close_until: int = FOREVER
    closed: bool = False
    callback_partitions: tuple[TopicPartition, ...] = ()
    commits: list[CommitOperation] = field(default_factory=list[CommitOperation])
    """commitSync and commitAsync of the application."""
    pattern_refresh_since: int | None = None
    committed_refreshed: bool = False
    positions_settled: bool = False
    """Every assigned partition has a position that can be fetched from."""

    def __post_init__(self) -> None:
        """What the configuration says, or else the release's own default."""

        def ms(said: int | None, default: int) -> int:
            return default if said is None else said

        config = self.config
        if config.reset not in (None, "earliest", "latest", "none"):
            raise ConfigError("reset", config.reset, "earliest, latest or none")
        self.session_ms = ms(config.session_ms, 10_000 if self.release.commits_synchronously else 45_000)
        self.heartbeat_ms = ms(config.heartbeat_ms, 3_000)
        self.max_poll_ms = ms(config.max_poll_ms, 300_000)
        self.metadata_ms = ms(config.metadata_ms, 300_000)
        self.auto_commit_ms = ms(config.auto_commit_ms, 5_000)
        self.auto_commit = config.auto_commit is not False
        self.isolation = 1 if config.isolation == "read_committed" else 0
        self.interceptors = cast("tuple[Interceptor, ...]", config.extra.get("interceptor.classes", ()))

    @property
    def rebalancing(self) -> bool:
        return self.state in (M.PREPARING_REBALANCE, M.COMPLETING_REBALANCE)


def new_consumer(config: ModelConfig, rules: JavaRelease) -> JavaState:
    """A consumer before its first event."""
    own = cast("tuple[CustomAssignor, ...]", config.extra.get("partition.assignment.strategy", ()))
    assignors = resolve_assignors(
        own or (rules.assignors_2_6.get(one, one) for one in config.assignors or rules.assignors)
    )
    return JavaState(rules, config, assignors, is_cooperative(assignors))


def move(state: JavaState, to: JavaMemberState) -> None:
    """Assign the member's state; nothing happens if the member is in it already."""
    if to is not state.state:
        machine.move(state, to, EDGES)


def send_request(
    state: JavaState, to: Address, request: Message, out: Out, about: object = None, timeout_ms: int = 30_000
) -> InFlightRequest:
    """Send `request` in the newest version that both sides know."""
    api_key = type(request).__api_key__
    assert api_key is not None
    version = negotiate_version(state.release.versions, state.offered, api_key)
    entry = InFlightRequest(SendRequest(to, request, version, timeout_ms), state.generation, about)
    state.open[id(request)] = entry
    out.append(entry.send)
    return entry


def request_version(state: JavaState, api_key: int) -> int:
    return negotiate_version(state.release.versions, state.offered, api_key)


def least_loaded_node(state: JavaState) -> Address:
    """NetworkClient.leastLoadedNode: a connection that is there before one that isn't."""
    if state.connected and state.cluster.brokers:
        return node_address(state, min(state.cluster.brokers))
    host, port = state.bootstrap[0]
    return Address(host, port, BOOTSTRAP)


def node_address(state: JavaState, number: int) -> Address:
    state.connected = True
    host, port = state.cluster.brokers[number]
    return Address(host, port, MAIN)


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
DISCONNECTED = -2
"""The request got no answer (DisconnectException): retriable."""
