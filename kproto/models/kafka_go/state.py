"""What a kafka-go Reader knows, the phases of its group, and how it may get from one to the other."""

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

# consumergroup.go and conn.go name them one by one; only Fetch and Metadata look at what the broker offers.
VERSIONS: Final[Mapping[int, int]] = {1: 10, 2: 1, 3: 6, 8: 2, 9: 1, 10: 0, 11: 2, 12: 0, 13: 0, 14: 0}

TIMEOUT_MS = 5_000  # consumergroup.go: defaultTimeout
COMMIT_RETRIES = 3  # reader.go: defaultCommitRetries
MAX_ATTEMPTS = 3  # ReaderConfig.MaxAttempts
FIRST_OFFSET, LAST_OFFSET = -2, -1

# An error's name as Go prints its type, and its text.
Error = tuple[str, str]


class ConsumerGroupPhase(Enum):
    """Where ConsumerGroup.run is."""

    IDLE = "idle"  # no topics yet
    FINDING = "finding"  # FindCoordinator is open, on a connection of its own
    JOINING = "joining"  # JoinGroup is open
    PLANNING = "planning"  # leader: Metadata of all members' topics is open
    SYNCING = "syncing"  # SyncGroup is open
    FETCHING_OFFSETS = "fetching"  # OffsetFetch is open
    RUNNING = "running"  # the generation lives
    ENDING = "ending"  # one of its routines has ended: the others are waited for
    FINDING_TO_LEAVE = "leave_finding"  # FindCoordinator for LeaveGroup
    LEAVING = "leaving"  # LeaveGroup is open
    BACKING_OFF = "waiting"  # JoinGroupBackoff after an error
    CLOSED = "closed"


P = ConsumerGroupPhase
# Where an error leads: to the next try, by LeaveGroup where there is a member id.
_AFTER_ERROR = {P.FINDING, P.FINDING_TO_LEAVE, P.BACKING_OFF, P.CLOSED}

EDGES: Final[machine.Edges[ConsumerGroupPhase]] = {
    P.IDLE: frozenset({P.FINDING, P.CLOSED}),
    P.FINDING: frozenset({P.JOINING, *_AFTER_ERROR}),
    P.JOINING: frozenset({P.PLANNING, P.SYNCING, *_AFTER_ERROR}),
    P.PLANNING: frozenset({P.SYNCING, *_AFTER_ERROR}),
    P.SYNCING: frozenset({P.FETCHING_OFFSETS, *_AFTER_ERROR}),
    P.FETCHING_OFFSETS: frozenset({P.RUNNING, *_AFTER_ERROR}),
    P.RUNNING: frozenset({P.ENDING}),
    P.ENDING: frozenset({P.FINDING, P.FINDING_TO_LEAVE, P.CLOSED}),
    P.FINDING_TO_LEAVE: frozenset({P.LEAVING, P.BACKING_OFF, P.CLOSED}),
    P.LEAVING: frozenset({P.BACKING_OFF, P.CLOSED}),
    P.BACKING_OFF: frozenset({P.FINDING, P.CLOSED}),
    P.CLOSED: frozenset(),
}


@dataclass(slots=True)
class GoTicker:
    """Go's time.Ticker: while nobody takes its ticks, one is kept and the others are dropped."""

    at: int
    interval_ms: int

    def take(self, now: int) -> bool:
        """Whether a tick is there; takes it."""
        if now < self.at:
            return False
        self.at += self.interval_ms * ((now - self.at) // self.interval_ms + 1)
        return True


@dataclass(slots=True)
class PartitionWatcher:
    """Generation.partitionWatcher of one topic."""

    topic: str
    ticker: GoTicker
    count: int | None = None  # None until the first answer
    open: Message | None = None


class ReaderPhase(Enum):
    """Where the routine of a partition is."""

    LOOKING_UP = "looking"  # Dialer.LookupPartition: Metadata on a connection of its own
    FIRST_OFFSET = "first"  # ReadOffsets, the beginning
    LAST_OFFSET = "last"  # ReadOffsets, the end
    SEEK_FIRST = "seek_first"  # Conn.Seek asks for both once more
    SEEK_LAST = "seek_last"
    READING = "reading"  # Fetch is open
    PUSHING = "pushing"  # the queue is full
    RESTART_BACKOFF = "before_start"  # waits to start over
    READ_BACKOFF = "before_read"  # waits to fetch again
    RANGE_FIRST = "first_again"  # out of range: ReadOffsets once more
    RANGE_LAST = "last_again"
    ENDED = "ended"

    __hash__ = object.__hash__


# What is asked for with each event has a name: before Python 3.12 an Enum's attributes are dear.
PUSHING, READING, RUNNING = ReaderPhase.PUSHING, ReaderPhase.READING, ConsumerGroupPhase.RUNNING


@dataclass(slots=True)
class PartitionReader:
    """reader.go: the type reader."""

    tp: TopicPartition
    assignment_version: int
    offset: int
    phase: ReaderPhase = ReaderPhase.LOOKING_UP
    attempt: int = 0
    errors: int = 0
    # Until when it waits, before it starts or reads.
    at: int | None = None
    address: Address | None = None
    open: Message | None = None
    first_offset: int = 0
    last_offset: int = 0
    pending_records: deque[ModelRecord] = field(default_factory=deque[ModelRecord])
    cancelled: bool = False


@dataclass(slots=True)
class ReaderMessage:
    """What stands in Reader.msgs: a record or an error, of a version of the assignment."""

    assignment_version: int
    record: ModelRecord | None
    error: Error | None = None


@dataclass(slots=True)
class CommitRequest:
    """What stands in Reader.commits: a commitRequest. `token` is answered, None where nobody waits."""

    offsets: dict[TopicPartition, int]
    token: object | None = None
    deadline: int | None = None


@dataclass(slots=True)
class ReaderCommitLoop:
    """Reader.commitLoop of one generation."""

    ticker: GoTicker | None  # None: commitLoopImmediate
    stash: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    replying_to: list[CommitRequest] = field(default_factory=list[CommitRequest])
    open: Message | None = None
    attempt: int = 0
    retry_at: int | None = None
    is_final: bool = False  # the commit under way is the one at the end
    ended: bool = False

    @property
    def is_busy(self) -> bool:
        return self.open is not None or self.retry_at is not None


@dataclass(slots=True)
class KafkaGoGeneration:
    """consumergroup.go: the type Generation, with its routines."""

    heartbeat_ticker: GoTicker
    watchers: list[PartitionWatcher]
    commits: ReaderCommitLoop
    readers: list[PartitionReader]
    heartbeat_in_flight: Message | None = None
    # When the first of the readers that wait goes on.
    next_reader_wakeup: int | None = None


@dataclass(slots=True)
class KafkaGoState:
    """A Reader. Only `step` changes it; read what you like."""

    config: ModelConfig
    session_ms: int
    rebalance_ms: int
    heartbeat_ms: int
    watch_ms: int
    commit_ms: int | None  # None: commits are synchronous (CommitInterval 0)
    start_offset: int
    balancers: tuple[str, ...]
    capacity: int
    max_bytes: int
    backoff_ms: int

    state: ConsumerGroupPhase = ConsumerGroupPhase.IDLE
    bootstrap: tuple[tuple[str, int], ...] = ()
    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    topics: tuple[str, ...] = ()
    tried_addresses: int = 0  # bootstrap addresses that did not answer in this round
    connection_count: int = 0
    coordinator: Address | None = None
    open: Message | None = None  # the request of the group's own loop
    member_id: str = ""
    generation_id: int = -1
    assignments: dict[str, bytes] = field(default_factory=dict[str, bytes])
    protocol: str = ""
    members: dict[str, tuple[str, ...]] = field(default_factory=dict[str, "tuple[str, ...]"])
    assigned: dict[str, list[int]] = field(default_factory=dict[str, "list[int]"])
    generation: KafkaGoGeneration | None = None
    leave_error: Error | None = None  # what is reported when LeaveGroup is through; None: that was close
    errors: int = 0  # in a row, of ConsumerGroup.Next
    retry_at: int | None = None
    closing: bool = False

    assignment_version: int = 0
    message_queue: deque[ReaderMessage] = field(default_factory=deque[ReaderMessage])
    commits: deque[CommitRequest] = field(default_factory=deque[CommitRequest])
    blocked_commits: deque[CommitRequest] = field(
        default_factory=deque[CommitRequest]
    )  # CommitMessages that wait for room
    read_offsets: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    open_poll: tuple[int, int] | None = None  # until when, and how many records
    paused: frozenset[TopicPartition] = frozenset()


Out = list[ModelAction]


def start(config: ModelConfig) -> KafkaGoState:
    """A Reader that has no topics yet. Raises ConfigError for what NewReader would panic at."""
    balancers = config.assignors or ("range", "roundrobin")
    for name in balancers:
        if name not in ("range", "roundrobin"):
            raise ConfigError("assignors", name, "kafka-go has range and roundrobin here")
    if config.reset not in (None, "earliest", "latest"):
        raise ConfigError("reset", config.reset, "earliest (FirstOffset) or latest (LastOffset)")
    return KafkaGoState(
        config,
        session_ms=config.session_ms or 30_000,
        rebalance_ms=config.max_poll_ms or 30_000,
        heartbeat_ms=config.heartbeat_ms or 3_000,
        watch_ms=config.metadata_ms or 5_000,
        commit_ms=(config.auto_commit_ms or 1_000) if config.auto_commit else None,
        start_offset=LAST_OFFSET if config.reset == "latest" else FIRST_OFFSET,
        balancers=balancers,
        capacity=_number(config, "QueueCapacity", 100),
        max_bytes=_number(config, "MaxBytes", 1_000_000),
        backoff_ms=_number(config, "JoinGroupBackoff", 5_000),
    )


def _number(config: ModelConfig, name: str, default: int) -> int:
    said = config.extra.get(name, default)
    if not isinstance(said, int) or said < 1:
        raise ConfigError(name, said, "a number of at least 1")
    return said


def move(state: KafkaGoState, to: ConsumerGroupPhase) -> None:
    """Assign the group's phase; nothing happens if the group is in it already."""
    if to is not state.state:
        machine.move(state, to, EDGES)


def send_request(
    out: Out, to: Address, request: Message, version: int, timeout_ms: int = TIMEOUT_MS
) -> Message:
    out.append(SendRequest(to, request, version, timeout_ms))
    return request


def close_connection(out: Out, address: Address | None) -> None:
    if address is not None:
        out.append(CloseConnection(address))


def new_connection(state: KafkaGoState, host: str, port: int, what: str) -> Address:
    """A new connection."""
    state.connection_count += 1
    return Address(host, port, f"{what}-{state.connection_count}")


def backoff(attempt: int, lowest: int, highest: int) -> int:
    """dialer.go: backoff."""
    return min(attempt * attempt * lowest, highest)


def kafka_error(code: int) -> Error:
    """error.go: the type Error, as the drivers print it."""
    return f"Error({code})", f"[{code}] {error_name(code).replace('_', ' ').title()}"


def network_error(why: str) -> Error:
    return "net.OpError", why


def report_error(state: KafkaGoState, error: Error, out: Out) -> None:
    """Reader.run: of MaxAttempts errors in a row the last reaches the application, if that is waiting."""
    out.append(Notify("log", *error))
    state.errors += 1
    if state.errors == MAX_ATTEMPTS:
        state.errors = 0
        if state.open_poll is not None:
            state.open_poll = None
            out.append(FinishPoll(error=error))
