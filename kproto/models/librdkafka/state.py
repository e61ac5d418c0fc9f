"""What librdkafka's consumer knows: its two machines, its assignment, its partitions and its queue."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import NamedTuple

from ...group.assignors import Assignor, chosen, cooperative_sticky
from ...group.subscription import Subscription, TopicPartition
from ...wire.message import Message
from ..common import Cluster
from ..contract import Address, ModelAction, ModelConfig, ModelRecord, SendRequest
from .constants import BEGINNING, END, INVALID, name_of_error

Out = list[ModelAction]

VERSIONS: dict[int, int] = {
    1: 16,  # Fetch
    2: 7,  # ListOffsets
    3: 13,  # Metadata
    8: 9,  # OffsetCommit
    9: 9,  # OffsetFetch
    10: 2,  # FindCoordinator
    11: 5,  # JoinGroup
    12: 3,  # Heartbeat
    13: 1,  # LeaveGroup
    14: 3,  # SyncGroup
    23: 2,  # OffsetForLeaderEpoch
}
"""librdkafka 2.16: rdkafka_request.c and rdkafka_fetcher.c."""

OLD_VERSIONS: dict[int, int] = {**VERSIONS, 1: 11, 2: 2, 3: 4, 8: 7, 9: 7}
"""librdkafka 1.9 and 2.0: rdkafka_request.c as it was then; OffsetForLeaderEpoch is not asked."""


class JoinState(IntEnum):
    """rkcg_join_state, in the order of rdkafka_cgrp.h, which some conditions compare."""

    init = 0
    wait_join = 1
    wait_metadata = 2
    wait_sync = 3
    wait_assign_call = 4
    wait_unassign_call = 5
    wait_unassign_to_complete = 6
    wait_incr_unassign_to_complete = 7
    steady = 8


J = JoinState

JOIN_EDGES: dict[JoinState, set[JoinState]] = {
    J.init: {J.wait_metadata, J.wait_join, J.wait_unassign_call},
    J.wait_join: {J.init, J.wait_metadata, J.wait_sync, J.wait_unassign_call},
    J.wait_metadata: {J.init, J.wait_sync, J.wait_unassign_call},
    J.wait_sync: {J.init, J.wait_assign_call, J.wait_unassign_call},
    J.wait_assign_call: {J.init, J.steady, J.wait_unassign_call},
    J.wait_unassign_call: {J.init, J.wait_unassign_to_complete, J.wait_incr_unassign_to_complete},
    J.wait_unassign_to_complete: {J.init, J.wait_unassign_call},
    J.wait_incr_unassign_to_complete: {J.init, J.steady, J.wait_assign_call, J.wait_unassign_call},
    J.steady: {J.init, J.wait_metadata, J.wait_unassign_call},
}


class CoordState(Enum):
    """rkcg_state: where the lookup of the coordinator stands."""

    query = "query"  # QUERY_COORD: ask as soon as the interval allows it
    wait = "wait"  # WAIT_COORD: FindCoordinator is open
    transport = "transport"  # WAIT_BROKER_TRANSPORT: known, the connection isn't up
    up = "up"
    term = "term"  # the group is closed


UP = CoordState.up
"""What is asked for with each event has a name: before Python 3.12 an Enum's attributes are dear."""


class FetchState(Enum):
    """rktp_fetch_state."""

    none = "none"
    offset_query = "offset query"  # waits for the timer, then asks ListOffsets
    offset_wait = "offset wait"  # ListOffsets is open
    validating = "validating"  # OffsetForLeaderEpoch is open
    active = "active"


ACTIVE = FetchState.active


class Position(NamedTuple):
    """rd_kafka_fetch_pos_t: an offset and the leader epoch that it was read in."""

    offset: int = INVALID
    epoch: int = -1


NOWHERE = Position()


@dataclass(slots=True)
class Partition:
    """rd_kafka_toppar_t: one partition, whether it is assigned or not."""

    tp: TopicPartition
    version: int = 0
    """The barrier: what was fetched or queued under an older version is dropped."""
    fetch_state: FetchState = FetchState.none
    started: bool = False
    assigned: bool = False
    next: Position = NOWHERE
    app: Position = NOWHERE
    stored: Position = NOWHERE
    committed: Position = NOWHERE
    query: int = INVALID
    query_at: int | None = None
    retry_at: int | None = None
    low: int = INVALID
    eof: int = INVALID
    eof_told: int = INVALID
    forbidden: bool = False
    """Reading it was refused, and that was told: once, until a Fetch brings something again."""
    keeps_store: bool = False
    """RD_KAFKA_TOPPAR_F_OFFSET_STORE: started at STORED itself, as only a consumer without a group is."""
    lib_paused: bool = False
    app_paused: bool = False
    queued: int = 0

    @property
    def fetchable(self) -> bool:
        """Active, not paused by anybody, and it is known from where."""
        if self.fetch_state is not ACTIVE or self.lib_paused or self.app_paused:
            return False
        return self.next.offset >= 0


@dataclass(slots=True)
class Interval:
    """rd_interval_t: whether a time has passed since it was last asked with that answer."""

    last: int | None = None
    backoff: int = 0

    def due(self, ms: int, now: int) -> bool:
        """Ask it: at once when it was never asked, or was reset."""
        if self.last is not None and now <= self.last + ms + self.backoff:
            return False
        self.last, self.backoff = now, 0
        return True

    def reset(self) -> None:
        self.last, self.backoff = None, 0


class Rebalance(NamedTuple):
    """RD_KAFKA_OP_REBALANCE: an ASSIGN or REVOKE that waits in the queue for the application to poll."""

    assign: bool
    partitions: tuple[TopicPartition, ...]


class Messages(NamedTuple):
    """Records of one partition, under the version that it had when they came."""

    tp: TopicPartition
    version: int
    records: tuple[ModelRecord, ...]
    epoch: int


class Eof(NamedTuple):
    """A broker was asked from the end of a partition on."""

    tp: TopicPartition
    version: int
    offset: int
    node: int
    high_watermark: int


class Trouble(NamedTuple):
    """An error for the application."""

    name: str
    text: str


class Wrong(NamedTuple):
    """Why a call was refused: the error's name and text."""

    name: str
    text: str


Item = Rebalance | Messages | Eof | Trouble


class Todo(Enum):
    """What one part of the library leaves for another to do right after it (the ops queue)."""

    serve_assignment = "serve assignment"
    assignment_done = "assignment done"
    query_coordinator = "query coordinator"
    coordinator_dead = "coordinator dead"
    lose = "lose"
    """Revoke everything as lost and join again, unless a rebalance is under way."""


@dataclass(slots=True)
class Open:
    """A request that has no answer yet: how often it was sent, and what it was for."""

    send: SendRequest
    about: object = None
    tries: int = 1


@dataclass(slots=True)
class Committing:
    """RD_KAFKA_OP_OFFSET_COMMIT: one commit on its way."""

    offsets: dict[TopicPartition, Position]
    token: object = None
    told: bool = False
    """The application waits for its result."""
    give_up_at: int | None = None
    """Deferred until there is a coordinator, at most to here."""


@dataclass(slots=True)
class Polling:
    """An open poll: what it has so far, and until when it waits for more."""

    until: int
    limit: int
    records: list[ModelRecord] = field(default_factory=list[ModelRecord])
    troubles: list[Trouble] = field(default_factory=list[Trouble])
    answered: bool = False
    """A rebalance was answered in it: Go's Poll is over then, with nothing."""


@dataclass(slots=True)
class State:
    """One consumer. Only `step` changes it; read what you like."""

    config: ModelConfig
    assignors: tuple[Assignor, ...]
    now: int = 0
    old: bool = False
    """1.9 or 2.0."""
    versions: Mapping[int, int] = field(default_factory=lambda: VERSIONS)
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    bootstrap: tuple[tuple[str, int], ...] = ()
    bootstrapped: bool = False
    cluster: Cluster = field(default_factory=Cluster)
    open: dict[int, Open] = field(default_factory=dict[int, Open])
    retries: list[tuple[int, Open]] = field(default_factory=list[tuple[int, Open]])

    # The coordinator (rkcg_state).
    coord: CoordState = CoordState.query
    coordinator: Address | None = None
    coord_up_at: int | None = None
    find_interval: Interval = field(default_factory=Interval)
    finds: int = 0

    # The group (rkcg_join_state).
    join: JoinState = J.init
    member_id: str = ""
    generation: int = -1
    waits_for: Message | None = None
    join_interval: Interval = field(default_factory=Interval)
    heartbeat_interval: Interval = field(default_factory=Interval)
    heartbeat_open: bool = False
    session_at: int | None = None
    assignor: Assignor | None = None
    leader: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    previous: tuple[TopicPartition, ...] | None = None
    previous_generation: int = -1
    group_assignment: tuple[TopicPartition, ...] | None = None
    then_assign: tuple[TopicPartition, ...] | None = None
    """rkcg_rebalance_incr_assignment: what a cooperative assign adds after the revoke before it."""
    rejoin: bool = False
    """rkcg_rebalance_rejoin: join again once the open assign or unassign is done."""
    lost: bool = False
    terminating: bool = False
    leave_on_unassign_done: bool = False
    wait_leave: bool = False
    max_poll_exceeded: bool = False
    fatal: str | None = None
    last_find_error: int = 0

    # The subscription.
    subscription: tuple[str, ...] | None = None
    subscribed: dict[str, int] = field(default_factory=dict[str, int])
    """rkcg_subscribed_topics: those of the subscription that exist, and their partitions."""
    next_subscription: tuple[str, ...] | None = None
    next_unsubscribe: bool = False
    errored: dict[str, int] = field(default_factory=dict[str, int])
    local_topics: set[str] = field(default_factory=set[str])
    whole: bool = False
    """All topics of the cluster are known."""

    # The assignment (rk_consumer.assignment).
    all: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    pending: dict[TopicPartition, Position] = field(default_factory=dict[TopicPartition, Position])
    queried: set[TopicPartition] = field(default_factory=set[TopicPartition])
    removed: list[TopicPartition] = field(default_factory=list[TopicPartition])
    assignment_version: int = 0
    wait_commits: int = 0
    deferred: list[Committing] = field(default_factory=list[Committing])
    refused: deque[tuple[Committing, tuple[str, str]]] = field(
        default_factory=deque[tuple[Committing, tuple[str, str]]]
    )
    todo: deque[Todo] = field(default_factory=deque[Todo])
    partitions: dict[TopicPartition, Partition] = field(default_factory=dict[TopicPartition, Partition])
    waiting: dict[TopicPartition, Partition] = field(default_factory=dict[TopicPartition, Partition])
    """Those that wait for a time: `query_at` or `retry_at`."""

    # Timers; None where one isn't running.
    commit_at: int | None = None
    metadata_at: int | None = None
    max_poll_at: int | None = None
    loop_at: int = 0
    handled: int = -1
    """When the main thread was awake last: what was due by then is done."""
    due: int | None = None
    """When it wakes next."""

    # Between library and application.
    queue: deque[Item] = field(default_factory=deque[Item])
    polling: Polling | None = None
    telling: Rebalance | None = None
    answered: bool = False
    """The application has answered the rebalance event in its callback by itself."""
    last_poll: int = 0
    closing: bool = False
    closed: bool = False

    fetching: set[int] = field(default_factory=set[int])
    broken: set[int] = field(default_factory=set[int])
    """Brokers whose connection broke: positions are validated when they are back."""

    # -- what the configuration means

    def option(self, name: str, default: int) -> int:
        value = self.config.extra.get(name, default)
        return value if isinstance(value, int) else default

    @property
    def session_ms(self) -> int:
        return self.config.session_ms if self.config.session_ms is not None else 45_000

    @property
    def heartbeat_ms(self) -> int:
        return self.config.heartbeat_ms if self.config.heartbeat_ms is not None else 3_000

    @property
    def max_poll_ms(self) -> int:
        return self.config.max_poll_ms if self.config.max_poll_ms is not None else 300_000

    @property
    def metadata_ms(self) -> int:
        return self.config.metadata_ms if self.config.metadata_ms is not None else 300_000

    @property
    def auto_commit(self) -> bool:
        return self.config.auto_commit is not False

    @property
    def auto_commit_ms(self) -> int:
        return self.config.auto_commit_ms if self.config.auto_commit_ms is not None else 5_000

    @property
    def auto_store(self) -> bool:
        return self.config.extra.get("enable.auto.offset.store", True) is not False

    @property
    def partition_eof(self) -> bool:
        return self.config.extra.get("enable.partition.eof", False) is True

    @property
    def event_a_poll(self) -> bool:
        """confluent-kafka-go's Poll: a rebalance is an event, too, and what it returns then is nil."""
        return self.config.extra.get("binding") == "go"

    @property
    def isolation(self) -> int:
        return 0 if self.config.isolation == "read_uncommitted" else 1

    @property
    def reset(self) -> int:
        return _RESETS[self.config.reset or "largest"]

    @property
    def static(self) -> bool:
        return self.config.instance is not None

    @property
    def cooperative(self) -> bool:
        """rd_kafka_cgrp_rebalance_protocol: of the assignor that the group chose, or of those configured."""
        if self.assignor is not None:
            return self.assignor.cooperative
        return False

    @property
    def has_joined(self) -> bool:
        return self.member_id != ""

    @property
    def wildcard(self) -> bool:
        return any(one.startswith("^") for one in self.subscription or ())

    @property
    def waits_for_call(self) -> bool:
        """RD_KAFKA_CGRP_WAIT_ASSIGN_CALL."""
        return self.join in (J.wait_assign_call, J.wait_unassign_call)

    @property
    def rebalancing(self) -> bool:
        """RD_KAFKA_CGRP_REBALANCING."""
        if self.has_joined and self.join in (J.wait_join, J.wait_metadata):
            return True
        if self.join is not J.init and J.wait_sync <= self.join < J.steady:
            return True
        return self.then_assign is not None or self.rejoin


_RESETS = {
    "smallest": BEGINNING,
    "earliest": BEGINNING,
    "beginning": BEGINNING,
    "largest": END,
    "latest": END,
    "end": END,
    "error": INVALID,
}


STICKY = Assignor(
    "cooperative-sticky", partial(cooperative_sticky.assign, one_by_one=True), cooperative=True, eager=False
)
"""rdkafka_sticky_assignor.c: always the general way, which moves partitions one by one from the first on."""


def start(config: ModelConfig) -> State:
    """A consumer before its first event.

    `config.extra` may have "version" ("1.9": as 1.9 and 2.0 are), "binding" ("go": one event for each
    poll, where C's and Python's go on waiting for a message), and librdkafka's own
    "enable.auto.offset.store", "enable.partition.eof" and "queued.min.messages".
    """
    version = config.extra.get("version")
    old = isinstance(version, str) and re.match(r"(1\.|2\.0)", version) is not None
    names = config.assignors or ("range", "roundrobin")
    assignors = chosen(STICKY if one == STICKY.name else one for one in names)
    state = State(config, assignors, old=old)
    state.versions = OLD_VERSIONS if old else VERSIONS
    return state


def move(state: State, to: JoinState) -> None:
    """rd_kafka_cgrp_set_join_state."""
    if to is not state.join:
        assert to in JOIN_EDGES[state.join], f"{state.join.name} -> {to.name}"
        state.join = to


def partition(state: State, tp: TopicPartition) -> Partition:
    """rd_kafka_topic_partition_ensure_toppar."""
    found = state.partitions.get(tp)
    if found is None:
        found = state.partitions[tp] = Partition(tp)
        state.local_topics.add(tp.topic)
    return found


def set_fatal(state: State, code: int) -> None:
    """rd_kafka_set_fatal_error: told once, as _FATAL; a static member does nothing after it."""
    if state.fatal is None:
        state.fatal = name_of_error(code)
        state.queue.append(Trouble("_FATAL", f"Fatal consumer error: {state.fatal}"))
