"""The state of librdkafka's consumer: its coordinator, group, partitions, commits and queue."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from functools import partial
from typing import Final, NamedTuple

from ... import machine
from ...group.assignors import Assignor, cooperative_sticky, resolve_assignors
from ...group.subscription import Subscription, TopicPartition
from ...wire.message import Message
from ..common import ClusterMetadata
from ..contract import Address, ModelAction, ModelConfig, ModelRecord, SendRequest
from .constants import BEGINNING, END, INVALID, err2name
from .err_texts import err2str

Out = list[ModelAction]

# Request versions of librdkafka 2.16 by API key (rdkafka_request.c, rdkafka_fetcher.c): 1 Fetch, 2
# ListOffsets, 3 Metadata, 8 OffsetCommit, 9 OffsetFetch, 10 FindCoordinator, 11 JoinGroup, 12 Heartbeat, 13
# LeaveGroup, 14 SyncGroup, 23 OffsetForLeaderEpoch.
VERSIONS: dict[int, int] = {1: 16, 2: 7, 3: 13, 8: 9, 9: 9, 10: 2, 11: 5, 12: 3, 13: 1, 14: 3, 23: 2}

# The request versions of librdkafka 1.9 and 2.0. These releases do not use OffsetForLeaderEpoch.
OLD_VERSIONS: dict[int, int] = {**VERSIONS, 1: 11, 2: 2, 3: 4, 8: 7, 9: 7}


class CgrpJoinState(IntEnum):
    """rkcg_join_state, in the order of rdkafka_cgrp.h, because some conditions compare the numbers."""

    INIT = 0
    WAIT_JOIN = 1
    WAIT_METADATA = 2
    WAIT_SYNC = 3
    WAIT_ASSIGN_CALL = 4
    WAIT_UNASSIGN_CALL = 5
    WAIT_UNASSIGN_TO_COMPLETE = 6
    WAIT_INCR_UNASSIGN_TO_COMPLETE = 7
    STEADY = 8


J = CgrpJoinState

# State -> next state -> cause of the transition. A revocation can be queued in every state, because a member
# can have partitions in every state.
EDGES: Final[machine.Edges[CgrpJoinState]] = {
    J.INIT: {
        J.WAIT_METADATA: "metadata of the subscribed topics is missing or old",
        J.WAIT_JOIN: "JoinGroup is sent",
        J.WAIT_UNASSIGN_CALL: "a revocation is queued",
    },
    J.WAIT_JOIN: {
        J.INIT: "JoinGroup failed",
        J.WAIT_METADATA: "the member is the leader and requests metadata of all members' topics",
        J.WAIT_SYNC: "the member is a follower and sends SyncGroup",
        J.WAIT_UNASSIGN_CALL: "a revocation is queued",
    },
    J.WAIT_METADATA: {
        J.INIT: "metadata has arrived before the join, or the assignor failed",
        J.WAIT_SYNC: "the leader has assigned the partitions and sends SyncGroup",
        J.WAIT_UNASSIGN_CALL: "a revocation is queued",
    },
    J.WAIT_SYNC: {
        J.INIT: "SyncGroup failed",
        J.WAIT_ASSIGN_CALL: "an assignment is queued",
        J.WAIT_UNASSIGN_CALL: "a revocation is queued: a cooperative member loses partitions",
    },
    J.WAIT_ASSIGN_CALL: {
        J.INIT: "the membership is lost or the subscription ends",
        J.STEADY: "the application or its binding assigned the partitions",
        J.WAIT_UNASSIGN_CALL: "the assignment is revoked before it is answered",
    },
    J.WAIT_UNASSIGN_CALL: {
        J.INIT: "the membership is lost or the subscription ends",
        J.WAIT_UNASSIGN_TO_COMPLETE: "the application or its binding unassigned everything",
        J.WAIT_INCR_UNASSIGN_TO_COMPLETE: "the application or its binding unassigned some partitions",
    },
    J.WAIT_UNASSIGN_TO_COMPLETE: {
        J.INIT: "all partitions are stopped and committed",
        J.WAIT_UNASSIGN_CALL: "another revocation is queued",
    },
    J.WAIT_INCR_UNASSIGN_TO_COMPLETE: {
        J.INIT: "the partitions are stopped and committed, and the member rejoins or leaves",
        J.STEADY: "the partitions are stopped and committed, and nothing else changes",
        J.WAIT_ASSIGN_CALL: "the partitions are stopped and committed, and others are added",
        J.WAIT_UNASSIGN_CALL: "another revocation is queued",
    },
    J.STEADY: {
        J.INIT: "the group rebalances",
        J.WAIT_METADATA: "the changed subscription needs metadata",
        J.WAIT_UNASSIGN_CALL: "a revocation is queued",
    },
}


class CgrpState(Enum):
    """rkcg_state: the lookup of the coordinator."""

    # FindCoordinator is sent as soon as the minimum interval since the previous one has passed.
    QUERY_COORD = "query"
    # FindCoordinator is in flight.
    WAIT_COORD = "wait"
    # The coordinator is known, but its connection is not open.
    WAIT_BROKER_TRANSPORT = "transport"
    UP = "up"
    # The group is closed.
    TERM = "term"


C = CgrpState

COORD_EDGES: Final[machine.Edges[CgrpState]] = {
    C.QUERY_COORD: {
        C.WAIT_COORD: "FindCoordinator is sent",
        C.WAIT_BROKER_TRANSPORT: "the response to an earlier FindCoordinator names the coordinator",
        C.TERM: "the consumer is closed",
    },
    C.WAIT_COORD: {
        C.QUERY_COORD: "FindCoordinator failed",
        C.WAIT_BROKER_TRANSPORT: "the response names the coordinator",
        C.TERM: "the consumer is closed",
    },
    C.WAIT_BROKER_TRANSPORT: {
        C.QUERY_COORD: "FindCoordinator failed, or the broker no longer is the coordinator",
        C.UP: "the connection is open",
        C.TERM: "the consumer is closed",
    },
    C.UP: {
        C.QUERY_COORD: "the connection is lost, or the broker no longer is the coordinator",
        C.TERM: "the consumer is closed",
    },
    C.TERM: {},
}

# Alias of a state that is compared on every event: Enum attributes are slow before Python 3.12.
UP = CgrpState.UP


@dataclass(slots=True)
class RdInterval:
    """A minimum interval between two attempts (rd_interval_t)."""

    # The time of the last attempt, or None if the next attempt is due immediately.
    last: int | None = None
    # The time (ms) that is added to the interval before the next attempt, but not to later intervals.
    backoff: int = 0

    def restart_if_due(self, ms: int, now: int) -> bool:
        """Restart the interval if it has passed; return whether it had passed (rd_interval).

        Before the first attempt, and after `reset`, the interval counts as passed.
        """
        if self.last is not None and now <= self.last + ms + self.backoff:
            return False
        self.last, self.backoff = now, 0
        return True

    def reset(self) -> None:
        """Make the next attempt due immediately."""
        self.last, self.backoff = None, 0


@dataclass(slots=True)
class CgrpCoord:
    """The lookup of the coordinator. `state` is rkcg_state."""

    state: CgrpState = CgrpState.QUERY_COORD
    # The time at which the connection to the coordinator will be open.
    up_at: int | None = None
    query_interval: RdInterval = field(default_factory=RdInterval)
    # The last error of FindCoordinator that was reported.
    last_error: int = 0


class TopparFetchState(Enum):
    """rktp_fetch_state of a partition."""

    NONE = "none"
    # The partition waits for a timer, after which ListOffsets is sent.
    OFFSET_QUERY = "offset query"
    # ListOffsets is in flight.
    OFFSET_WAIT = "offset wait"
    # OffsetForLeaderEpoch is in flight.
    VALIDATE_EPOCH_WAIT = "validating"
    ACTIVE = "active"


T = TopparFetchState
ACTIVE = T.ACTIVE

# A seek or a stop ends an offset lookup. These transitions are for a later response or timer of this lookup.
_LATE_LOOKUP: Final = {
    T.OFFSET_QUERY: "an earlier ListOffsets is answered",
    T.OFFSET_WAIT: "ListOffsets is sent, when the timer of the lookup elapses",
}

TOPPAR_EDGES: Final[machine.Edges[TopparFetchState]] = {
    T.NONE: {
        **_LATE_LOOKUP,
        T.OFFSET_QUERY: "the fetcher starts without an offset",
        T.ACTIVE: "the fetcher starts at an offset",
    },
    T.OFFSET_QUERY: {
        T.OFFSET_WAIT: "ListOffsets is sent",
        T.ACTIVE: "the application seeks, or an earlier ListOffsets is answered",
        T.NONE: "the fetcher stops, or the reset policy is an error",
    },
    T.OFFSET_WAIT: {
        T.OFFSET_QUERY: "ListOffsets failed, or the application seeks",
        T.ACTIVE: "ListOffsets is answered, or the application seeks",
        T.NONE: "the fetcher stops, or the reset policy is an error",
    },
    T.VALIDATE_EPOCH_WAIT: {
        **_LATE_LOOKUP,
        T.ACTIVE: "OffsetForLeaderEpoch is answered, or the application seeks",
        T.NONE: "the fetcher stops, or the reset policy is an error",
    },
    T.ACTIVE: {
        T.OFFSET_QUERY: "the offset is out of range, or the application seeks to an end of the log",
        T.OFFSET_WAIT: "ListOffsets is sent, when the timer of the lookup elapses",
        T.VALIDATE_EPOCH_WAIT: "OffsetForLeaderEpoch is sent",
        T.NONE: "the fetcher stops, or the reset policy is an error",
    },
}


class FetchPos(NamedTuple):
    """An offset and the leader epoch of the record before it (rd_kafka_fetch_pos_t)."""

    offset: int = INVALID
    epoch: int = -1


INVALID_POS = FetchPos()


@dataclass(slots=True)
class Toppar:
    """One partition, assigned or not (rd_kafka_toppar_t)."""

    tp: TopicPartition
    # The version barrier: records that were fetched or queued under an older version are dropped.
    version: int = 0
    state: TopparFetchState = TopparFetchState.NONE
    started: bool = False
    assigned: bool = False
    fetch_position: FetchPos = INVALID_POS
    app_position: FetchPos = INVALID_POS
    stored_position: FetchPos = INVALID_POS
    committed_position: FetchPos = INVALID_POS
    query_offset: int = INVALID
    query_at: int | None = None
    retry_at: int | None = None
    log_start_offset: int = INVALID
    eof_offset: int = INVALID
    reported_eof_offset: int = INVALID
    # Whether the current authorization failure of this partition has been reported. A successful Fetch resets
    # the flag.
    authorization_failed: bool = False
    # RD_KAFKA_TOPPAR_F_OFFSET_STORE: whether the fetcher was started at the logical offset STORED, which
    # happens only in a consumer without a group.
    stores_offset_at_stop: bool = False
    paused_by_library: bool = False
    paused_by_application: bool = False
    # Number of records of this partition in the queue.
    queued: int = 0

    @property
    def fetchable(self) -> bool:
        """Return whether the partition is active, not paused, and has an offset to fetch from."""
        if self.state is not ACTIVE or self.paused_by_library or self.paused_by_application:
            return False
        return self.fetch_position.offset >= 0


class RebalanceOp(NamedTuple):
    """RD_KAFKA_OP_REBALANCE: a rebalance event that waits until the application polls."""

    assign: bool
    partitions: tuple[TopicPartition, ...]


class FetchOp(NamedTuple):
    """RD_KAFKA_OP_FETCH: records of one partition, and the partition's version when they arrived."""

    tp: TopicPartition
    version: int
    records: tuple[ModelRecord, ...]
    epoch: int


class EofOp(NamedTuple):
    """Reports the end of a partition (EOF): a Fetch from the end offset returned no records."""

    tp: TopicPartition
    version: int
    offset: int
    node: int
    high_watermark: int


class ErrorOp(NamedTuple):
    """An error to return from poll."""

    name: str
    text: str


QueuedOp = RebalanceOp | FetchOp | EofOp | ErrorOp


class InternalOp(Enum):
    """An operation that one module queues for another. It runs at the end of the step."""

    SERVE_ASSIGNMENT = "serve assignment"
    ASSIGNMENT_DONE = "assignment done"
    QUERY_COORDINATOR = "query coordinator"
    COORDINATOR_DEAD = "coordinator dead"
    # A commit failed with UNKNOWN_MEMBER_ID or ILLEGAL_GENERATION: unless a rebalance is in progress, the
    # member revokes its whole assignment as lost and rejoins.
    REVOKE_AS_LOST = "lose"


@dataclass(slots=True)
class RequestBuf:
    """A request in flight, with its purpose and the number of attempts.

    Follows rd_kafka_buf_t.
    """

    send: SendRequest
    context: object = None
    attempts: int = 1


@dataclass(slots=True)
class OffsetCommitOp:
    """RD_KAFKA_OP_OFFSET_COMMIT: one commit in progress."""

    offsets: dict[TopicPartition, FetchPos]
    token: object = None
    # Whether the result of the commit is reported to the application.
    reply_to_application: bool = False
    # The time at which a deferred commit fails if the coordinator is still unknown.
    deferred_until: int | None = None


@dataclass(slots=True)
class OpenPoll:
    """A poll in progress: its deadline, and the records and errors that it has collected."""

    deadline: int
    limit: int
    records: list[ModelRecord] = field(default_factory=list[ModelRecord])
    errors: list[ErrorOp] = field(default_factory=list[ErrorOp])
    # Whether the poll answered a rebalance event. confluent-kafka-go's Poll then returns nil.
    rebalance_answered: bool = False


@dataclass(slots=True)
class LibrdkafkaState:
    """The state of one consumer. Only `step` changes the state. All attributes may be read."""

    config: ModelConfig
    assignors: tuple[Assignor, ...]
    now: int = 0
    # Whether the release is 1.9 or 2.0.
    is_old_release: bool = False
    versions: Mapping[int, int] = field(default_factory=lambda: VERSIONS)
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    bootstrap: tuple[tuple[str, int], ...] = ()
    bootstrapped: bool = False
    cluster: ClusterMetadata = field(default_factory=ClusterMetadata)
    open: dict[int, RequestBuf] = field(default_factory=dict[int, RequestBuf])
    retries: list[tuple[int, RequestBuf]] = field(default_factory=list[tuple[int, RequestBuf]])

    # The coordinator.
    coord: CgrpCoord = field(default_factory=CgrpCoord)
    coordinator: Address | None = None

    # The group. `state` is rkcg_join_state.
    state: CgrpJoinState = J.INIT
    member_id: str = ""
    generation: int = -1
    join_or_sync_in_flight: Message | None = None
    join_interval: RdInterval = field(default_factory=RdInterval)
    heartbeat_interval: RdInterval = field(default_factory=RdInterval)
    heartbeat_in_flight: bool = False
    session_deadline: int | None = None
    assignor: Assignor | None = None
    group_members: dict[str, Subscription] = field(default_factory=dict[str, Subscription])
    previous_assignment: tuple[TopicPartition, ...] | None = None
    previous_generation: int = -1
    group_assignment: tuple[TopicPartition, ...] | None = None
    # rkcg_rebalance_incr_assignment: partitions to assign once the preceding cooperative revoke is done.
    incr_assignment: tuple[TopicPartition, ...] | None = None
    # rkcg_rebalance_rejoin: whether to rejoin when the assign or unassign in progress is done.
    rebalance_rejoin: bool = False
    assignment_lost: bool = False
    terminating: bool = False
    leave_on_unassign_done: bool = False
    wait_leave: bool = False
    max_poll_exceeded: bool = False
    fatal: str | None = None

    # The subscription.
    subscription: tuple[str, ...] | None = None
    # rkcg_subscribed_topics: the subscribed topics that exist, with their partition counts.
    subscribed_topics: dict[str, int] = field(default_factory=dict[str, int])
    next_subscription: tuple[str, ...] | None = None
    next_unsubscribe: bool = False
    errored_topics: dict[str, int] = field(default_factory=dict[str, int])
    local_topics: set[str] = field(default_factory=set[str])
    # Whether metadata of all topics of the cluster has been received.
    full_metadata: bool = False

    # The assignment (rk_consumer.assignment).
    assignment: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    pending: dict[TopicPartition, FetchPos] = field(default_factory=dict[TopicPartition, FetchPos])
    queried: set[TopicPartition] = field(default_factory=set[TopicPartition])
    removed: list[TopicPartition] = field(default_factory=list[TopicPartition])
    assignment_version: int = 0
    # The number of commits that are in flight, or in `deferred` or `refused`.
    wait_commits: int = 0
    # Commits that wait until the coordinator is connected.
    deferred: list[OffsetCommitOp] = field(default_factory=list[OffsetCommitOp])
    # Commits that cannot be sent, with their errors, which are reported at the end of the step.
    refused: deque[tuple[OffsetCommitOp, tuple[str, str]]] = field(
        default_factory=deque[tuple[OffsetCommitOp, tuple[str, str]]]
    )
    internal_ops: deque[InternalOp] = field(default_factory=deque[InternalOp])
    partitions: dict[TopicPartition, Toppar] = field(default_factory=dict[TopicPartition, Toppar])
    # Partitions with a deadline in `query_at` or `retry_at`, so that `step` need not search all partitions.
    waiting_toppars: dict[TopicPartition, Toppar] = field(default_factory=dict[TopicPartition, Toppar])

    # The times at which the timers expire. None means that the timer is not running.
    commit_at: int | None = None
    metadata_at: int | None = None
    max_poll_at: int | None = None
    loop_at: int = 0
    # The time at which the main thread last ran. All work that was due by that time is done.
    last_wakeup: int = -1
    # The time at which the main thread wakes next.
    next_wakeup: int | None = None

    # Between library and application.
    queue: deque[QueuedOp] = field(default_factory=deque[QueuedOp])
    open_poll: OpenPoll | None = None
    rebalance_in_callback: RebalanceOp | None = None
    # Whether the application called assign() inside its rebalance callback.
    rebalance_answered: bool = False
    last_poll: int = 0
    closing: bool = False
    closed: bool = False

    fetching_brokers: set[int] = field(default_factory=set[int])
    # Brokers whose connection was lost. Positions are validated when the connection is open again.
    broken_brokers: set[int] = field(default_factory=set[int])

    # -- options with librdkafka's defaults

    def option(self, name: str, default: int) -> int:
        """Return an option of `config.extra`, or `default` if it is missing or not an integer."""
        value = self.config.extra.get(name, default)
        return value if isinstance(value, int) else default

    @property
    def session_ms(self) -> int:
        return self.config.session_ms if self.config.session_ms is not None else 45_000

    @property
    def heartbeat_ms(self) -> int:
        return self.config.heartbeat_ms if self.config.heartbeat_ms is not None else 3_000

    @property
    def fetch_wait_ms(self) -> int:
        return self.config.fetch_wait_ms if self.config.fetch_wait_ms is not None else 500

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
    def one_event_per_poll(self) -> bool:
        """Return whether each poll returns at most one event.

        The result is true for the binding "go": confluent-kafka-go's Poll returns one event, or nil after a
        rebalance event.
        """
        return self.config.extra.get("binding") == "go"

    @property
    def isolation(self) -> int:
        return 0 if self.config.isolation == "read_uncommitted" else 1

    @property
    def reset(self) -> int:
        """The logical offset of auto.offset.reset: BEGINNING, END, or INVALID for "error"."""
        return _RESETS[self.config.reset or "largest"]

    @property
    def works_on(self) -> frozenset[TopicPartition] | None:
        """The partitions that the consumer still uses, or None if it uses all assigned partitions.

        After a fatal error, a static member uses no partition. The application's callbacks are then not
        called, and rd_kafka_assignment returns an empty assignment.
        """
        return frozenset() if self.fatal is not None and self.is_static else None

    @property
    def is_static(self) -> bool:
        return self.config.instance is not None

    @property
    def cooperative(self) -> bool:
        """Return whether the group's assignor is cooperative (rd_kafka_cgrp_rebalance_protocol)."""
        if self.assignor is not None:
            return self.assignor.cooperative
        return False

    @property
    def has_joined(self) -> bool:
        return self.member_id != ""

    @property
    def wildcard(self) -> bool:
        """Whether the subscription contains a pattern."""
        return any(topic.startswith("^") for topic in self.subscription or ())

    @property
    def waits_for_call(self) -> bool:
        """Return whether the group waits for assign() or unassign().

        Follows RD_KAFKA_CGRP_WAIT_ASSIGN_CALL.
        """
        return self.state in (J.WAIT_ASSIGN_CALL, J.WAIT_UNASSIGN_CALL)

    @property
    def is_rebalancing(self) -> bool:
        """Return whether a rebalance is in progress (RD_KAFKA_CGRP_REBALANCING)."""
        if self.has_joined and self.state in (J.WAIT_JOIN, J.WAIT_METADATA):
            return True
        if self.state is not J.INIT and J.WAIT_SYNC <= self.state < J.STEADY:
            return True
        return self.incr_assignment is not None or self.rebalance_rejoin


_RESETS = {
    "smallest": BEGINNING,
    "earliest": BEGINNING,
    "beginning": BEGINNING,
    "largest": END,
    "latest": END,
    "end": END,
    "error": INVALID,
}


# The assignor of rdkafka_sticky_assignor.c. It uses the general algorithm, which moves single partitions,
# even for members with equal subscriptions.
STICKY_ASSIGNOR = Assignor(
    "cooperative-sticky", partial(cooperative_sticky.assign, one_by_one=True), cooperative=True, eager=False
)


def start(config: ModelConfig) -> LibrdkafkaState:
    """Return the state of a consumer before its first event.

    `config.extra` may contain "version": the value "1.9" selects releases 1.9 and 2.0 instead of 2.16. It may
    also contain librdkafka's own options "enable.auto.offset.store", "enable.partition.eof" and
    "queued.min.messages".

    `config.extra` may also contain "binding". With "go", each poll returns one event. In the C and Python
    bindings, a poll that receives an event continues to wait for a record.
    """
    version = config.extra.get("version")
    is_old_release = isinstance(version, str) and re.match(r"(1\.|2\.0)", version) is not None
    names = config.assignors or ("range", "roundrobin")
    assignors = resolve_assignors(STICKY_ASSIGNOR if name == STICKY_ASSIGNOR.name else name for name in names)
    state = LibrdkafkaState(config, assignors, is_old_release=is_old_release)
    state.versions = OLD_VERSIONS if is_old_release else VERSIONS
    return state


def move(state: LibrdkafkaState, to: CgrpJoinState) -> None:
    """Move the group to the join state `to`, if it is in another one (rd_kafka_cgrp_set_join_state)."""
    machine.ensure_state(state, to, EDGES)


def ensure_toppar(state: LibrdkafkaState, tp: TopicPartition) -> Toppar:
    """Return the partition's state, created on first use.

    Follows rd_kafka_topic_partition_ensure_toppar.
    """
    toppar = state.partitions.get(tp)
    if toppar is None:
        toppar = state.partitions[tp] = Toppar(tp)
        state.local_topics.add(tp.topic)
    return toppar


def set_fatal(state: LibrdkafkaState, code: int) -> None:
    """Report the first fatal error as _FATAL (rd_kafka_set_fatal_error).

    After a fatal error, a static member sends no JoinGroup, Heartbeat or OffsetCommit.
    """
    if state.fatal is None:
        state.fatal = err2name(code)
        text = err2str(code)
        state.queue.append(ErrorOp("_FATAL", f"Fatal error: {text}: Fatal consumer error: {text}"))
