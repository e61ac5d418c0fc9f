"""The contract between a model and its runner: configuration, events and actions.

Nothing here belongs to a single model. A model is a module with

    VERSIONS: dict[int, int]        # API key -> the highest version that it supports
    start(config: ModelConfig) -> State
    step(state: State, event: ModelEvent, now: int) -> list[ModelAction]
    next_deadline(state: State) -> int | None

A model is a whole consumer, from the bootstrap address to the records: it keeps its own metadata, looks up
its coordinator, joins, fetches and commits. The runner is a world in virtual time, or real sockets. It
transports requests, responses and the application's calls, and knows nothing about any particular client.

* Times are milliseconds of a monotonic clock. Each event comes with `now`.
* The application is one loop. `PollCalled` opens a poll, and exactly one `FinishPoll` ends it: when there are
  records, or after `timeout_ms`. Between `FinishPoll` and the next `PollCalled` the application is busy. What
  an original does only inside poll, its model does only then. If an original pushes records to handlers
  instead (sarama), the handlers accept records while a poll is open.
* `RunCallback` calls the application, and `CallbackReturned` reports its end. Meanwhile the model continues
  as its original does, and the application may send `CommitCalled`.
* A connection is an address and a lane. Its responses arrive in the order of its requests. The runner opens
  the connection with the first `SendRequest`, sends ApiVersions itself, and fails the requests in flight if
  the connection breaks.
* Random choices of an original are drawn from `ModelConfig.random`, so that every run can be repeated
  exactly.
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


def _is_list_of_strings(value: object) -> bool:
    """Return whether `value` is a list of strings."""
    return isinstance(value, list | tuple) and all(
        isinstance(item, str) for item in cast("list[object]", value)
    )


_CHECKS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (
        lambda value: type(value) is int and 0 <= value < 2**31,
        "an integer from 0 to 2147483647",
    ),
    "str": (lambda value: isinstance(value, str), "a string"),
    "tuple[str, ...]": (_is_list_of_strings, "a list of strings"),
}
_ANYTHING: Final[tuple[Callable[[object], bool], str]] = (lambda value: True, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The options of a model, named as in the drivers of the originals.

    None means the original's default.
    """

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
    # kafka-go: WatchPartitionChanges.
    watch: bool = True
    fetch_wait_ms: int = 100
    # Source of the original's random choices: returns 0 <= x < 1.
    random: Callable[[], float] = lambda: 0.5
    # Options of one model only, by the original's names ("Offsets.Retry.Max", "queued.min.messages").
    extra: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        for option in fields(self):
            holds, allowed = _CHECKS.get(str(option.type).removesuffix(" | None"), _ANYTHING)
            value = getattr(self, option.name)
            if value is not None and not holds(value):
                raise ConfigError(option.name, value, allowed)
        if self.isolation not in (None, "read_committed", "read_uncommitted"):
            raise ConfigError("isolation", self.isolation, "read_committed or read_uncommitted")


# Option -> name of the same option of `consumer.Consumer`.
CONSUMER_OPTIONS: Final[Mapping[str, str]] = {
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


def make_config(options: Mapping[str, Any]) -> ModelConfig:
    """Build a configuration.

    Raises ConfigError for an unknown option and for a missing group_id.
    """
    names = [option.name for option in fields(ModelConfig)]
    for name, value in options.items():
        if name in names:
            continue
        near = [key for key, ours in CONSUMER_OPTIONS.items() if ours == name] or get_close_matches(
            name, names, n=1
        )
        hint = f"did you mean {near[0]}?" if near else f"allowed: {', '.join(sorted(names))}"
        raise ConfigError(name, value, f"models have no such option; {hint}")
    for name in ("client_id", "group_id"):
        if not isinstance(options.get(name), str):
            raise ConfigError(name, options.get(name), "a string; models require it")
    return ModelConfig(**options)


class Address(msgspec.Struct, frozen=True, gc=False):
    """A broker, and one of the client's connections to it."""

    host: str
    port: int
    lane: str = "main"


# -- events: calls of the application


class SubscribeCalled(msgspec.Struct, frozen=True):
    topics: tuple[str, ...] = ()
    pattern: str | None = None


class UnsubscribeCalled(msgspec.Struct, frozen=True):
    pass


class AssignCalled(msgspec.Struct, frozen=True):
    """Assign partitions by hand, with the offsets to start at.

    None starts at the committed offset, or at the reset policy's.
    """

    partitions: Mapping[TopicPartition, int | None]
    # "add" and "remove" are librdkafka's incremental_assign and incremental_unassign.
    change: Literal["all", "add", "remove"] = "all"


class SeekCalled(msgspec.Struct, frozen=True):
    partition: TopicPartition
    offset: int


class PauseCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class ResumeCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class PollCalled(msgspec.Struct, frozen=True):
    """The application waits for records, at most `timeout_ms`. One `FinishPoll` ends the poll."""

    timeout_ms: int = 50
    limit: int = 500
    # Java's old poll(long): its timeout starts when metadata and positions are known. If it has expired by
    # then, the next response ends the poll.
    patient: bool = False


class CallbackReturned(msgspec.Struct, frozen=True):
    """The callback of the last `RunCallback` with `wait` returned."""

    # What the callback raised, as name and text; only Java uses it.
    error: tuple[str, str] | None = None


class CommitCalled(msgspec.Struct, frozen=True):
    """Commit these offsets, or all consumed ones.

    `FinishCommit` with the same token ends the commit.
    """

    token: object
    offsets: Mapping[TopicPartition, int] | None = None
    # True for commitSync, False for commitAsync.
    wait: bool = True


class StoreCalled(msgspec.Struct, frozen=True):
    """librdkafka's offsets_store: offsets for the next commit that names none."""

    offsets: Mapping[TopicPartition, int]


class RebalanceCalled(msgspec.Struct, frozen=True):
    """Java's enforceRebalance."""

    reason: str = ""


class CloseCalled(msgspec.Struct, frozen=True):
    """Close the consumer.

    With `stay` it does not leave the group, if the original can do that. `FinishClose` ends the close.
    """

    stay: bool = False


class WakeupCalled(msgspec.Struct, frozen=True):
    """Java's wakeup, from any thread: the waiting call throws, or else the next one."""


# -- events: the network and the clock


class Started(msgspec.Struct, frozen=True):
    """The first event: bootstrap addresses and the broker's API versions.

    `offered` maps API keys to (lowest, highest).
    """

    bootstrap: tuple[tuple[str, int], ...]
    offered: Mapping[int, tuple[int, int]]


class ResponseReceived(msgspec.Struct, frozen=True):
    """The response to a `SendRequest`; `request` is the same object."""

    request: Message
    response: Message
    version: int


class RequestFailed(msgspec.Struct, frozen=True):
    """A `SendRequest` failed: refused, connection lost, or (with `late`) timed out."""

    request: Message
    why: str
    late: bool = False


class ConnectionLost(msgspec.Struct, frozen=True):
    """A connection broke. Its requests have failed before.

    Only models with `HEARS_DISCONNECTS = True` get this event: their originals notice without a request.
    """

    address: Address


class DeadlineReached(msgspec.Struct, frozen=True):
    """`next_deadline` has been reached. It does no harm to send this early."""


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
    """Send `request` in `version`. `ResponseReceived` or `RequestFailed` follows."""

    to: Address
    request: Message
    version: int
    timeout_ms: int = 30_000


class CloseConnection(msgspec.Struct, frozen=True):
    """Close this connection; its requests in flight fail."""

    address: Address


class ModelRecord(msgspec.Struct, frozen=True, gc=False):
    partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class FinishPoll(msgspec.Struct, frozen=True):
    """End the poll with these records, or with the exception that poll raises (name, text)."""

    records: tuple[ModelRecord, ...] = ()
    error: tuple[str, str] | None = None


class RunCallback(msgspec.Struct, frozen=True):
    """Call the application: "assigned", "revoked" or "lost".

    Cooperative sarama also calls "setup" and "cleanup". With `wait` the model waits for `CallbackReturned`
    wherever its original does.
    """

    kind: str
    partitions: tuple[TopicPartition, ...]
    wait: bool = True


class FinishCommit(msgspec.Struct, frozen=True):
    """End a commit: successfully, or with the original's error name and text."""

    token: object
    error: tuple[str, str] | None = None


class Notify(msgspec.Struct, frozen=True):
    """Give the application something other than records.

    `kind` is "error" (an error channel or a failed call), "notification", "event", "returned" (Consume
    returned) or "log".
    """

    kind: str
    name: str
    text: str = ""


class FinishClose(msgspec.Struct, frozen=True):
    """End the close. No further action follows."""


ModelAction = SendRequest | CloseConnection | FinishPoll | RunCallback | FinishCommit | Notify | FinishClose
