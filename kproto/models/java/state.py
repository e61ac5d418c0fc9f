"""What a KafkaConsumer knows: its subscription and positions, its group, its buffers, its open call."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import cast

import msgspec

from ...error_codes import ErrorCode
from ...errors import ConfigError
from ...group.assignors import Assignor, chosen, is_cooperative
from ...group.subscription import Subscription, TopicPartition
from ...wire.message import Message
from ..common import Cluster, Read, Wanted, newest
from ..contract import Address, ModelAction, ModelConfig, SendRequest
from .kafka_consumer_metrics import PollTimes
from .plugins import Interceptor, OwnAssignor
from .release import Rules

Out = list[ModelAction]
MAIN, COORDINATOR, BOOTSTRAP = "main", "coordinator", "bootstrap"
RETRY_BACKOFF_MS = 100
FOREVER = 2**62


class MemberState(Enum):
    """AbstractCoordinator.MemberState (M1)."""

    unjoined = "unjoined"
    preparing = "preparing"  # JoinGroup is open
    completing = "completing"  # JoinGroup is answered, SyncGroup open
    stable = "stable"


M = MemberState
EDGES: dict[MemberState, set[MemberState]] = {
    M.unjoined: {M.preparing},
    M.preparing: {M.completing, M.unjoined},
    M.completing: {M.stable, M.unjoined, M.preparing},
    M.stable: {M.preparing, M.unjoined},
}


class Block(Enum):
    """What the application's thread waits for inside of its call."""

    nothing = "nothing"  # it isn't in a call
    polling = "polling"  # poll: for records, a join, a coordinator, until its time is over
    prepare_commit = "prepare commit"  # 2.6: the commit in onJoinPrepare
    callback = "callback"  # the listener runs
    close_commit = "close commit"
    close_leave = "close leave"

    __hash__ = object.__hash__


NOTHING, POLLING = Block.nothing, Block.polling
"""What is asked for with each event has a name: before Python 3.12 an Enum's attributes are dear."""


class Then(Enum):
    """What goes on when the listener has returned."""

    joined_prepare = "prepare"
    complete_revoked = "complete revoked"
    complete_assigned = "complete assigned"
    unsubscribed = "unsubscribed"
    closed = "closed"


class Where(Enum):
    """SubscriptionState.FetchStates (M138)."""

    initializing = "initializing"
    awaiting_reset = "awaiting reset"
    awaiting_validation = "awaiting validation"
    fetching = "fetching"


FETCHING = Where.fetching


@dataclass(frozen=True, slots=True)
class Generation:
    """The triple that every group request is sent with (M3)."""

    number: int = -1
    member_id: str = ""
    protocol: str | None = None


NO_GENERATION = Generation()


@dataclass(slots=True)
class Partition:
    """TopicPartitionState."""

    where: Where = Where.initializing
    offset: int = -1
    epoch: int = -1
    timestamp: int = -2
    """What a reset asks ListOffsets for."""
    retry_at: int = 0
    asked: bool = False
    paused: bool = False
    going: bool = False
    """pendingRevocation: nothing of it is fetched or returned any more."""


class Buffered(msgspec.Struct):
    """CompletedFetch: what one partition's answer held."""

    tp: TopicPartition
    offset: int
    got: Read
    error: int = 0


@dataclass(slots=True)
class Session:
    """FetchSessionHandler of one node (M160)."""

    id: int = 0
    epoch: int = 0
    partitions: dict[TopicPartition, Wanted] = field(default_factory=dict[TopicPartition, Wanted])


class Open(msgspec.Struct):
    """A request without an answer, and the triple that it was sent with."""

    send: SendRequest
    generation: Generation = NO_GENERATION
    about: object = None


@dataclass(slots=True)
class Committing:
    """One commit of the application or of the consumer itself."""

    offsets: dict[TopicPartition, tuple[int, int]]
    token: object = None
    told: bool = False
    auto: bool = False
    result: int | None = None
    """The answer's code; -2 is a failure without one."""
    failed: tuple[str, str] | None = None
    retriable: bool = False
    fenced: bool = False
    until: int = FOREVER
    again_at: int | None = None
    open: bool = False


@dataclass(slots=True)
class Patience:
    """Of a poll(long): until when its time was meant to be, and how long that is."""

    until: int
    timeout_ms: int
    ends: bool = False
    """The next thing that comes ends it."""


@dataclass(slots=True)
class State:
    """One consumer. Only `step` changes it; read what you like."""

    rules: Rules
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
    cluster: Cluster = field(default_factory=Cluster)
    open: dict[int, Open] = field(default_factory=dict[int, Open])
    main_open: bool = False

    # Metadata
    metadata_at: int | None = None
    metadata_open: bool = False
    metadata_wanted: bool = False
    metadata_last: int = -FOREVER
    topics_known: frozenset[str] = frozenset()

    # Subscription
    topics: frozenset[str] = frozenset()
    pattern: str | None = None
    automatic: bool = False
    assigned: dict[TopicPartition, Partition] = field(default_factory=dict[TopicPartition, Partition])
    group_topics: frozenset[str] = frozenset()

    # AbstractCoordinator
    state: MemberState = M.unjoined
    generation: Generation = NO_GENERATION
    rejoin_needed: bool = True
    needs_prepare: bool = True
    reason: str = ""
    join_open: bool = False
    join_done: bytes | None = None
    join_failed: int | None = None
    coordinator: Address | None = None
    find_open: bool = False
    find_failed: int = 0
    find_again_at: int = 0
    find_fatal: tuple[str, str] | None = None
    join_again_at: int = 0

    # The heartbeat thread
    beats: bool = False
    beat_open: Message | None = None
    beat_at: int = 0
    session_at: int = 0
    poll_at: int = 0
    beat_failures: int = 0
    failed: tuple[str, str] | None = None

    # ConsumerCoordinator
    leads: bool = False
    group_metadata: Generation = NO_GENERATION
    """What groupMetadata() says: of the last join that was completed, also when it has been lost since."""
    raised: tuple[str, str] | None = None
    """The first exception of the listener, or of the assignor, in this rebalance."""
    members: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    skip_assignment: bool = False
    planning: bool = False
    snapshot: dict[str, object] | None = None
    planned: dict[str, object] | None = None
    joined_topics: frozenset[str] | None = None
    previous: dict[str, tuple[tuple[TopicPartition, ...], int]] = field(
        default_factory=dict[str, "tuple[tuple[TopicPartition, ...], int]"]
    )
    """What onAssignment told each assignor last: only the one that the group chose."""
    commit_at: int = 0
    prepare_commit: Committing | None = None
    prepare_until: int | None = None
    adopting: tuple[TopicPartition, ...] = ()
    given: tuple[TopicPartition, ...] = ()
    """The same, as the leader wrote it: what onAssignment is told."""
    added: tuple[TopicPartition, ...] = ()
    finished: deque[Committing] = field(default_factory=deque[Committing])
    commit_fenced: bool = False
    """asyncCommitFenced: from now on every call that hears of commits throws."""
    committed_open: bool = False
    thrown: tuple[str, str] | None = None

    # Fetcher
    sessions: dict[int, Session] = field(default_factory=dict[int, Session])
    fetching: set[int] = field(default_factory=set[int])
    buffer: deque[Buffered] = field(default_factory=deque[Buffered])

    # The application's thread
    block: Block = Block.nothing
    then: Then | None = None
    after: Block = Block.nothing
    """The call that the callback runs in."""
    poll_until: int = 0
    patience: Patience | None = None
    """poll(long): what is left of its time, which doesn't pass while it waits for anything but records."""
    poll_limit: int = 500
    polls: PollTimes = field(default_factory=PollTimes)
    woken: bool = False
    committing: Committing | None = None
    closing: bool = False
    stay: bool = False
    close_until: int = FOREVER
    closed: bool = False
    telling: tuple[TopicPartition, ...] = ()
    commits: list[Committing] = field(default_factory=list[Committing])
    """commitSync and commitAsync of the application."""
    fresh_since: int | None = None
    refreshed: bool = False
    settled: bool = False
    """Every assigned partition has a position that can be fetched from."""

    def __post_init__(self) -> None:
        """What the configuration says, or else the release's own default."""

        def ms(said: int | None, default: int) -> int:
            return default if said is None else said

        config = self.config
        if config.reset not in (None, "earliest", "latest", "none"):
            raise ConfigError("reset", config.reset, "earliest, latest or none")
        self.session_ms = ms(config.session_ms, 10_000 if self.rules.blocking_commit else 45_000)
        self.heartbeat_ms = ms(config.heartbeat_ms, 3_000)
        self.max_poll_ms = ms(config.max_poll_ms, 300_000)
        self.metadata_ms = ms(config.metadata_ms, 300_000)
        self.auto_commit_ms = ms(config.auto_commit_ms, 5_000)
        self.auto_commit = config.auto_commit is not False
        self.isolation = 1 if config.isolation == "read_committed" else 0
        self.interceptors = cast("tuple[Interceptor, ...]", config.extra.get("interceptor.classes", ()))

    @property
    def rebalancing(self) -> bool:
        return self.state in (M.preparing, M.completing)


def make(config: ModelConfig, rules: Rules) -> State:
    """A consumer before its first event."""
    own = cast("tuple[OwnAssignor, ...]", config.extra.get("partition.assignment.strategy", ()))
    assignors = chosen(own or (rules.own.get(one, one) for one in config.assignors or rules.assignors))
    return State(rules, config, assignors, is_cooperative(assignors))


def move(state: State, to: MemberState) -> None:
    if to is not state.state:
        assert to in EDGES[state.state], f"{state.state.value} -> {to.value}"
        state.state = to


def send(
    state: State, to: Address, request: Message, out: Out, about: object = None, timeout_ms: int = 30_000
) -> Open:
    """Send `request` in the newest version that both sides know."""
    api_key = type(request).__api_key__
    assert api_key is not None
    version = newest(state.rules.versions, state.offered, api_key)
    entry = Open(SendRequest(to, request, version, timeout_ms), state.generation, about)
    state.open[id(request)] = entry
    out.append(entry.send)
    return entry


def version(state: State, api_key: int) -> int:
    return newest(state.rules.versions, state.offered, api_key)


def some_node(state: State) -> Address:
    """NetworkClient.leastLoadedNode: a connection that is there before one that isn't."""
    if state.main_open and state.cluster.brokers:
        return node(state, min(state.cluster.brokers))
    host, port = state.bootstrap[0]
    return Address(host, port, BOOTSTRAP)


def node(state: State, number: int) -> Address:
    state.main_open = True
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
