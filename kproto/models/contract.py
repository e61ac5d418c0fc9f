"""What every client's machine shares with the one that runs it: its configuration, events and actions.

Nothing here belongs to any one client. A client is a module with

    VERSIONS: dict[int, int]                                    # API key -> the highest version it speaks
    start(config: Config) -> State
    step(state: State, event: Event, now: int) -> list[Action]
    next_deadline(state: State) -> int | None

and is a whole consumer, from the bootstrap address to the records: it keeps its own metadata, looks its
coordinator up, joins, fetches, commits. Whoever runs it (a world in virtual time, or real sockets) moves
requests, answers and the application's calls, and knows nothing of any client.

Rules that hold here:

* Times are milliseconds of a clock that never goes back; `now` comes with each event.
* The application is one loop. `Poll` says that it waits for records; the machine answers with one `Polled`,
  at once or when something came or `timeout_ms` is over. Between `Polled` and the next `Poll` the
  application is busy: what an original does only inside of poll, its machine does only then. Where an
  original pushes records to handlers instead (sarama), an open `Poll` means that handlers are taking them.
* `Tell` calls the application back. The machine goes on as its original does while that callback runs, and
  hears `Told` when it has returned; the application may send `Commit` in between.
* A connection is an address and a lane. Answers of one connection come in the order of its requests; the
  runner opens it with the first `Send`, asks ApiVersions by itself, and fails what is open when it breaks.
* Whatever is random in an original is drawn from `Config.random`, so that a run repeats bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import Any, Final, Literal, cast

import msgspec

from ..errors import ConfigError
from ..group.subscription import TopicPartition
from ..wire.message import Message


def _texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(
        isinstance(one, str) for one in cast("list[object]", value)
    )


_RULES: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (
        lambda value: type(value) is int and 0 <= value < 2**31,
        "a whole number, 0 or more, and an int32",
    ),
    "str": (lambda value: isinstance(value, str), "a text"),
    "tuple[str, ...]": (_texts, "a list of names"),
}
_ANYTHING: Final[tuple[Callable[[object], bool], str]] = (lambda value: True, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """What the drivers of the originals are told, by the same names; None is the original's own default."""

    client_id: str
    group_id: str
    assignors: tuple[str, ...] | None = None
    instance: str | None = None
    session_ms: int | None = None
    heartbeat_ms: int | None = None
    max_poll_ms: int | None = None
    auto_commit: bool | None = None
    auto_commit_ms: int | None = None
    reset: str | None = None
    metadata_ms: int | None = None
    rack: str | None = None
    isolation: str | None = None
    # kafka-go: its partition watcher.
    watch: bool = True
    fetch_wait_ms: int = 100
    # Whatever is random in an original: drawn from here, 0 <= x < 1.
    random: Callable[[], float] = lambda: 0.5
    # Options of one client only, under its own names ("Offsets.Retry.Max", "queued.min.messages").
    extra: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        for one in fields(self):
            holds, allowed = _RULES.get(str(one.type).removesuffix(" | None"), _ANYTHING)
            value = getattr(self, one.name)
            if value is not None and not holds(value):
                raise ConfigError(one.name, value, allowed)
        if self.isolation not in (None, "read_committed", "read_uncommitted"):
            raise ConfigError("isolation", self.isolation, "read_committed or read_uncommitted")


# Of some of these options the names in `consumer.Consumer`.
OURS: Final[Mapping[str, str]] = {
    "assignors": "partition_assignment_strategy",
    "instance": "group_instance_id",
    "session_ms": "session_timeout_ms",
    "heartbeat_ms": "heartbeat_interval_ms",
    "max_poll_ms": "max_poll_interval_ms",
    "auto_commit": "enable_auto_commit",
    "auto_commit_ms": "auto_commit_interval_ms",
    "reset": "auto_offset_reset",
    "metadata_ms": "metadata_max_age_ms",
    "rack": "client_rack",
    "isolation": "isolation_level",
    "fetch_wait_ms": "fetch_max_wait_ms",
}


def make_config(given: Mapping[str, Any]) -> ModelConfig:
    """The configuration that was given by name. ConfigError: a name that isn't one, or no group_id."""
    names = [one.name for one in fields(ModelConfig)]
    for name, value in given.items():
        if name in names:
            continue
        near = [key for key, ours in OURS.items() if ours == name] or get_close_matches(name, names, n=1)
        hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(sorted(names))}"
        raise ConfigError(name, value, f"other clients have no such option; {hint}")
    for name in ("client_id", "group_id"):
        if not isinstance(given.get(name), str):
            raise ConfigError(name, given.get(name), "a text, which other clients can't be without")
    return ModelConfig(**given)


class Address(msgspec.Struct, frozen=True, gc=False):
    """Where a request goes: a broker, and which of the client's connections to it."""

    host: str
    port: int
    lane: str = "main"


# -- events: the application ------------------------------------------------------------------------------


class SubscribeCalled(msgspec.Struct, frozen=True):
    topics: tuple[str, ...] = ()
    pattern: str | None = None


class UnsubscribeCalled(msgspec.Struct, frozen=True):
    pass


class AssignCalled(msgspec.Struct, frozen=True):
    """Partitions with the offset to start at; None starts where the group or the policy says."""

    partitions: Mapping[TopicPartition, int | None]
    # librdkafka: incremental_assign and incremental_unassign.
    change: Literal["all", "add", "remove"] = "all"


class SeekCalled(msgspec.Struct, frozen=True):
    partition: TopicPartition
    offset: int


class PauseCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class ResumeCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class PollCalled(msgspec.Struct, frozen=True):
    """The application waits for records, at most `timeout_ms`; answered by one `Polled`."""

    timeout_ms: int = 50
    limit: int = 500
    # Java's old poll(long): what has to come before the records takes as long as it takes; when the time is
    # over by then, the next answer of a broker ends the poll.
    patient: bool = False


class CallbackReturned(msgspec.Struct, frozen=True):
    """The callback of the last unanswered `Tell` has returned; only those with `wait` are answered."""

    # What it raised: name and text. Java looks at it.
    error: tuple[str, str] | None = None


class CommitCalled(msgspec.Struct, frozen=True):
    """Commit what was consumed (or these offsets); answered by `Committed` with the same token."""

    token: object
    offsets: Mapping[TopicPartition, int] | None = None
    # commitSync; False is commitAsync.
    wait: bool = True


class StoreCalled(msgspec.Struct, frozen=True):
    """librdkafka's offsets_store: what the next commit without offsets takes."""

    offsets: Mapping[TopicPartition, int]


class RebalanceCalled(msgspec.Struct, frozen=True):
    """Java's enforceRebalance."""

    reason: str = ""


class CloseCalled(msgspec.Struct, frozen=True):
    """Ends with one `Closed`. `stay`: without leaving the group, where the original can."""

    stay: bool = False


class WakeupCalled(msgspec.Struct, frozen=True):
    """Java's wakeup, which another thread may call: the call that waits, or the next one, throws."""


# -- events: the network ----------------------------------------------------------------------------------


class Started(msgspec.Struct, frozen=True):
    """The first event: bootstrap addresses, and what their broker offers, API key -> (lowest, highest)."""

    bootstrap: tuple[tuple[str, int], ...]
    offered: Mapping[int, tuple[int, int]]


class ResponseReceived(msgspec.Struct, frozen=True):
    """The answer to a `Send`; `request` is the same object."""

    request: Message
    response: Message
    version: int


class RequestFailed(msgspec.Struct, frozen=True):
    """A `Send` that gets no answer: refused, broken, or (with `late`) not answered in its time."""

    request: Message
    why: str
    late: bool = False


class ConnectionLost(msgspec.Struct, frozen=True):
    """A connection broke; what was open on it has failed before.

    Only for clients that notice without asking, which say so with `HEARS_DISCONNECTS = True`.
    """

    address: Address


class DeadlineReached(msgspec.Struct, frozen=True):
    """`next_deadline` has come. A tick that is too early does no harm."""


ModelEvent = (
    SubscribeCalled
    | UnsubscribeCalled
    | AssignCalled
    | SeekCalled
    | PauseCalled
    | ResumeCalled
    | PollCalled
    | CallbackReturned
    | CommitCalled
    | StoreCalled
    | RebalanceCalled
    | CloseCalled
    | WakeupCalled
    | Started
    | ResponseReceived
    | RequestFailed
    | ConnectionLost
    | DeadlineReached
)


# -- actions ----------------------------------------------------------------------------------------------


class SendRequest(msgspec.Struct, frozen=True):
    """Send `request` in `version`; answered by `Answered` or `Failed`."""

    to: Address
    request: Message
    version: int
    timeout_ms: int = 30_000


class CloseConnection(msgspec.Struct, frozen=True):
    """Close this connection; what is open on it fails."""

    address: Address


class ModelRecord(msgspec.Struct, frozen=True, gc=False):
    partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class FinishPoll(msgspec.Struct, frozen=True):
    """The end of a `Poll`: what the application gets, or what poll raises (name, text)."""

    records: tuple[ModelRecord, ...] = ()
    error: tuple[str, str] | None = None


class RunCallback(msgspec.Struct, frozen=True):
    """Call the application back: "assigned", "revoked", "lost" (cooperative sarama: "setup", "cleanup", too).

    `wait`: the machine stands still where its original would, until `Told`.
    """

    kind: str
    partitions: tuple[TopicPartition, ...]
    wait: bool = True


class FinishCommit(msgspec.Struct, frozen=True):
    """What became of a `Commit`: None, or the error's name in the original and its text."""

    token: object
    error: tuple[str, str] | None = None


class Notify(msgspec.Struct, frozen=True):
    """What the application hears beside records: an error channel, an event, a return of Consume, a log line.

    `kind` is "error", "notification", "event", "returned" or "log".
    """

    kind: str
    name: str
    text: str = ""


class FinishClose(msgspec.Struct, frozen=True):
    """Nothing more will come."""


ModelAction = SendRequest | CloseConnection | FinishPoll | RunCallback | FinishCommit | Notify | FinishClose
