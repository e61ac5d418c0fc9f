"""The state of a Reader, the phases of its group, and the transitions between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from ... import machine
from ...errors import ConfigError
from ...group.subscription import TopicPartition
from ...wire.message import Message
from ..common import error_name
from ..contract import (
    Address,
    CloseConnection,
    FinishPoll,
    ModelAction,
    ModelConfig,
    ModelRecord,
    Notify,
    SendRequest,
)

# The highest request versions. consumergroup.go and conn.go hard-code them, except for Fetch and Metadata,
# whose versions depend on the broker.
VERSIONS: Final[Mapping[int, int]] = {1: 10, 2: 1, 3: 6, 8: 2, 9: 1, 10: 0, 11: 2, 12: 0, 13: 0, 14: 0}

# defaultTimeout of consumergroup.go.
TIMEOUT_MS = 5_000
# defaultCommitRetries of reader.go.
COMMIT_RETRIES = 3
# Default of ReaderConfig.MaxAttempts.
MAX_ATTEMPTS = 3
FIRST_OFFSET, LAST_OFFSET = -2, -1

# (Go's name of the error's type, text of the error).
Error = tuple[str, str]


class ConsumerGroupPhase(Enum):
    """The position of ConsumerGroup.run."""

    # The Reader has no topics.
    IDLE = "idle"
    # FindCoordinator is in flight, on its own connection.
    FINDING = "finding"
    # JoinGroup is in flight.
    JOINING = "joining"
    # The leader's Metadata request for all members' topics is in flight.
    PLANNING = "planning"
    # SyncGroup is in flight.
    SYNCING = "syncing"
    # OffsetFetch is in flight.
    FETCHING_OFFSETS = "fetching"
    # The generation is running.
    RUNNING = "running"
    # The generation ends: one of its goroutines has ended, and the other goroutines still have to end.
    ENDING = "ending"
    # FindCoordinator for LeaveGroup is in flight.
    FINDING_TO_LEAVE = "leave_finding"
    # LeaveGroup is in flight.
    LEAVING = "leaving"
    # The Reader waits for JoinGroupBackoff after an error.
    BACKING_OFF = "waiting"
    CLOSED = "closed"


P = ConsumerGroupPhase
# Transitions after an error. A member that has a member id leaves the group before it joins again.
_AFTER_ERROR = {
    P.FINDING_TO_LEAVE: "an error, and the member has an id",
    P.BACKING_OFF: "an error, and the member has no id",
    P.CLOSED: "the Reader is closed",
}

EDGES: Final[machine.Edges[ConsumerGroupPhase]] = {
    P.IDLE: {P.FINDING: "the Reader has topics", P.CLOSED: "the Reader is closed"},
    P.FINDING: {**_AFTER_ERROR, P.JOINING: "the coordinator is found"},
    P.JOINING: {
        **_AFTER_ERROR,
        P.FINDING: "the group is rebalancing",
        P.PLANNING: "the member is the leader",
        P.SYNCING: "the member is a follower",
    },
    P.PLANNING: {**_AFTER_ERROR, P.SYNCING: "metadata has arrived, and the partitions are assigned"},
    P.SYNCING: {
        **_AFTER_ERROR,
        P.FINDING: "the group is rebalancing",
        P.FETCHING_OFFSETS: "the assignment has arrived",
    },
    P.FETCHING_OFFSETS: {**_AFTER_ERROR, P.RUNNING: "the committed offsets have arrived"},
    P.RUNNING: {P.ENDING: "a goroutine of the generation has ended, or the Reader is closed"},
    P.ENDING: {
        P.FINDING: "all goroutines have ended",
        P.FINDING_TO_LEAVE: "all goroutines have ended, and the Reader is closed",
        P.CLOSED: "all goroutines have ended, and the closed Reader has no member id",
    },
    P.FINDING_TO_LEAVE: {
        P.LEAVING: "the coordinator is found",
        P.BACKING_OFF: "the coordinator is not found",
        P.CLOSED: "the coordinator is not found, and the Reader is closed",
    },
    P.LEAVING: {
        P.BACKING_OFF: "LeaveGroup is answered",
        P.CLOSED: "LeaveGroup is answered, and the Reader is closed",
    },
    P.BACKING_OFF: {P.FINDING: "JoinGroupBackoff has passed", P.CLOSED: "the Reader is closed"},
    P.CLOSED: {},
}


@dataclass(slots=True)
class GoTicker:
    """Go's time.Ticker. At most one tick is pending; a tick is dropped while another is pending."""

    at: int
    interval_ms: int

    def take_tick(self, now: int) -> bool:
        """Take the pending tick. Return whether one was pending."""
        if now < self.at:
            return False
        self.at += self.interval_ms * ((now - self.at) // self.interval_ms + 1)
        return True


@dataclass(slots=True)
class PartitionWatcher:
    """Generation.partitionWatcher of one topic."""

    topic: str
    ticker: GoTicker
    count: int | None = None  # The topic's partition count; None until the first Metadata response.
    # The Metadata request in flight.
    open: Message | None = None


class ReaderPhase(Enum):
    """What the goroutine of one partition waits for: the response to a request, or a point in time."""

    # Dialer.LookupPartition: Metadata is in flight, on its own connection.
    LOOKING_UP = "looking"
    # ReadOffsets: ListOffsets for the start of the log is in flight.
    FIRST_OFFSET = "first"
    # ReadOffsets: ListOffsets for the end of the log is in flight.
    LAST_OFFSET = "last"
    # Conn.Seek: another ListOffsets is in flight, first for the start of the log, then for its end.
    SEEK_FIRST = "seek_first"
    SEEK_LAST = "seek_last"
    # Fetch is in flight.
    READING = "reading"
    # The record queue is full.
    PUSHING = "pushing"
    # The reader backs off before it starts again.
    RESTART_BACKOFF = "before_start"
    # The reader backs off before the next Fetch.
    READ_BACKOFF = "before_read"
    # The offset is out of range. ReadOffsets requests the start of the log, then its end.
    RANGE_FIRST = "first_again"
    RANGE_LAST = "last_again"
    ENDED = "ended"

    __hash__ = object.__hash__


W = ReaderPhase
# Transitions that are possible while a request is in flight.
_IN_FLIGHT = {
    W.RESTART_BACKOFF: "the request failed",
    W.ENDED: "the generation has ended",
}

READER_EDGES: Final[machine.Edges[ReaderPhase]] = {
    W.LOOKING_UP: {**_IN_FLIGHT, W.FIRST_OFFSET: "the leader is found"},
    W.FIRST_OFFSET: {**_IN_FLIGHT, W.LAST_OFFSET: "the start of the log is known"},
    W.LAST_OFFSET: {**_IN_FLIGHT, W.SEEK_FIRST: "the end of the log is known"},
    W.SEEK_FIRST: {**_IN_FLIGHT, W.SEEK_LAST: "the start of the log is known"},
    W.SEEK_LAST: {**_IN_FLIGHT, W.READING: "the offset is within the log"},
    W.READING: {
        **_IN_FLIGHT,
        W.PUSHING: "records have arrived",
        W.RANGE_FIRST: "the offset is out of range",
        W.READ_BACKOFF: "another error",
    },
    W.PUSHING: {W.READING: "all records are queued", W.ENDED: "the generation has ended"},
    W.RESTART_BACKOFF: {W.LOOKING_UP: "the backoff has passed", W.ENDED: "the generation has ended"},
    W.READ_BACKOFF: {W.READING: "the backoff has passed", W.ENDED: "the generation has ended"},
    W.RANGE_FIRST: {**_IN_FLIGHT, W.RANGE_LAST: "the start of the log is known"},
    W.RANGE_LAST: {
        **_IN_FLIGHT,
        W.READING: "the offset is before the end of the log",
        W.READ_BACKOFF: "the offset is behind the end of the log",
    },
    W.ENDED: {},
}

# Aliases of states that are compared on every event: Enum attributes are slow before Python 3.12.
PUSHING, READING, RUNNING = ReaderPhase.PUSHING, ReaderPhase.READING, ConsumerGroupPhase.RUNNING


@dataclass(slots=True)
class PartitionReader:
    """The goroutine of one partition (the type reader of reader.go)."""

    tp: TopicPartition
    assignment_version: int
    offset: int
    state: ReaderPhase = ReaderPhase.LOOKING_UP
    # Restarts since the reader last started successfully.
    attempt: int = 0
    # Consecutive errors of Fetch.
    errors: int = 0
    # When its backoff ends.
    at: int | None = None
    address: Address | None = None
    # The request in flight.
    open: Message | None = None
    first_offset: int = 0
    last_offset: int = 0
    pending_records: deque[ModelRecord] = field(default_factory=deque[ModelRecord])
    cancelled: bool = False


@dataclass(slots=True)
class ReaderMessage:
    """An entry of Reader.msgs: a record or an error, with its assignment version."""

    assignment_version: int
    record: ModelRecord | None
    error: Error | None = None


@dataclass(slots=True)
class CommitRequest:
    """An entry of Reader.commits. `token` identifies the call that waits for the commit's result; None if no
    call waits.
    """

    offsets: dict[TopicPartition, int]
    token: object | None = None
    deadline: int | None = None


@dataclass(slots=True)
class ReaderCommitLoop:
    """Reader.commitLoop of one generation."""

    ticker: GoTicker | None  # The ticker of commitLoopInterval; None in commitLoopImmediate.
    # offsetStash: the highest offset of each partition that is not committed yet.
    stash: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    # The calls of CommitMessages that wait for the commit in flight.
    replying_to: list[CommitRequest] = field(default_factory=list[CommitRequest])
    open: Message | None = None
    attempt: int = 0
    retry_at: int | None = None
    is_final: bool = False  # Whether the commit in flight is the last one of the generation.
    ended: bool = False

    @property
    def is_busy(self) -> bool:
        return self.open is not None or self.retry_at is not None


@dataclass(slots=True)
class KafkaGoGeneration:
    """The goroutines of one generation (the type Generation of consumergroup.go)."""

    heartbeat_ticker: GoTicker
    watchers: list[PartitionWatcher]
    commits: ReaderCommitLoop
    readers: list[PartitionReader]
    heartbeat_in_flight: Message | None = None
    # The earliest time at which the backoff of a partition reader ends; None if no reader backs off.
    next_reader_wakeup: int | None = None


@dataclass(slots=True)
class KafkaGoState:
    """The state of one Reader. Only `step` changes the state. All attributes may be read."""

    config: ModelConfig
    session_ms: int
    rebalance_ms: int
    heartbeat_ms: int
    fetch_wait_ms: int
    watch_ms: int
    commit_ms: int | None  # The commit interval; None for synchronous commits (CommitInterval 0).
    start_offset: int
    balancers: tuple[str, ...]
    capacity: int
    max_bytes: int
    backoff_ms: int

    state: ConsumerGroupPhase = ConsumerGroupPhase.IDLE
    bootstrap: tuple[tuple[str, int], ...] = ()
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    topics: tuple[str, ...] = ()
    # The number of bootstrap addresses that failed in the current coordinator lookup.
    tried_addresses: int = 0
    connection_count: int = 0
    coordinator: Address | None = None
    open: Message | None = None  # The request of the group loop that has no response yet.
    member_id: str = ""
    generation_id: int = -1
    assignments: dict[str, bytes] = field(default_factory=dict[str, bytes])
    protocol: str = ""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    assigned: dict[str, list[int]] = field(default_factory=dict[str, "list[int]"])
    generation: KafkaGoGeneration | None = None
    # The error to report after LeaveGroup; None if the Reader is closing.
    leave_error: Error | None = None
    # Consecutive errors of ConsumerGroup.Next.
    errors: int = 0
    retry_at: int | None = None
    closing: bool = False

    assignment_version: int = 0
    message_queue: deque[ReaderMessage] = field(default_factory=deque[ReaderMessage])
    commits: deque[CommitRequest] = field(default_factory=deque[CommitRequest])
    blocked_commits: deque[CommitRequest] = field(
        default_factory=deque[CommitRequest]
    )  # The calls of CommitMessages that wait because `commits` is full.
    read_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    open_poll: tuple[int, int] | None = None  # Deadline and record limit of the open poll.
    paused: frozenset[TopicPartition] = frozenset()


Out = list[ModelAction]


def start(config: ModelConfig) -> KafkaGoState:
    """Return the initial state of a Reader, which has no topics yet.

    Raises ConfigError for options that make NewReader panic.
    """
    balancers = config.assignors or ("range", "roundrobin")
    for name in balancers:
        if name not in ("range", "roundrobin"):
            raise ConfigError("assignors", name, "allowed: range, roundrobin")
    if config.reset not in (None, "earliest", "latest"):
        raise ConfigError("reset", config.reset, "earliest (FirstOffset) or latest (LastOffset)")
    return KafkaGoState(
        config,
        session_ms=config.session_ms or 30_000,
        rebalance_ms=config.max_poll_ms or 30_000,
        heartbeat_ms=config.heartbeat_ms or 3_000,
        fetch_wait_ms=config.fetch_wait_ms or 10_000,
        watch_ms=config.metadata_ms or 5_000,
        commit_ms=(config.auto_commit_ms or 1_000) if config.auto_commit else None,
        start_offset=LAST_OFFSET if config.reset == "latest" else FIRST_OFFSET,
        balancers=balancers,
        capacity=_positive_option(config, "QueueCapacity", 100),
        max_bytes=_positive_option(config, "MaxBytes", 1_000_000),
        backoff_ms=_positive_option(config, "JoinGroupBackoff", 5_000),
    )


def _positive_option(config: ModelConfig, name: str, default: int) -> int:
    """Return an option of `config.extra`. Raises ConfigError unless it is an integer of at least 1."""
    value = config.extra.get(name, default)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(name, value, "an integer of at least 1")
    return value


def move(state: KafkaGoState, to: ConsumerGroupPhase) -> None:
    """Move the group to a phase, unless it is already in that phase."""
    machine.ensure_state(state, to, EDGES)


def move_reader(reader: PartitionReader, to: ReaderPhase) -> None:
    """Move the reader of a partition to a phase, unless it is already in that phase."""
    machine.ensure_state(reader, to, READER_EDGES)


def send_request(
    out: Out, to: Address, request: Message, version: int, timeout_ms: int = TIMEOUT_MS
) -> Message:
    """Send `request` in this version. Return `request`, so that the caller can recognize the response."""
    out.append(SendRequest(to, request, version, timeout_ms))
    return request


def close_connection(out: Out, address: Address | None) -> None:
    if address is not None:
        out.append(CloseConnection(address))


def new_connection(state: KafkaGoState, host: str, port: int, purpose: str) -> Address:
    """Return the address of a new connection to a broker. The name of the connection (`lane`) is unique."""
    state.connection_count += 1
    return Address(host, port, f"{purpose}-{state.connection_count}")


def backoff(attempt: int, lowest: int, highest: int) -> int:
    """Return the backoff before retry number `attempt`, in milliseconds (dialer.go)."""
    return min(attempt * attempt * lowest, highest)


def kafka_error(code: int) -> Error:
    """Return a Kafka error as Go prints it (the type Error of error.go)."""
    return f"Error({code})", f"[{code}] {error_name(code).replace('_', ' ').title()}"


def network_error(why: str) -> Error:
    return "net.OpError", why


def report_error(state: KafkaGoState, error: Error, out: Out) -> None:
    """Log an error.

    After MaxAttempts consecutive errors, an open poll raises the last of them (Reader.run).
    """
    out.append(Notify("log", *error))
    state.errors += 1
    if state.errors == MAX_ATTEMPTS:
        state.errors = 0
        if state.open_poll is not None:
            state.open_poll = None
            out.append(FinishPoll(error=error))
