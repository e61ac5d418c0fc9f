"""The contract between a model and its runner: configuration, events and actions.

A model is a module with these four names:

    VERSIONS: dict[int, int]        # API key -> the highest version that the model sends
    start(config: ModelConfig) -> State
    step(state: State, event: ModelEvent, now: int) -> list[ModelAction]
    next_deadline(state: State) -> int | None

A model is a whole consumer: it keeps its own metadata, looks up its coordinator, joins, fetches and commits.

The runner is a simulated cluster in virtual time, or a driver with real sockets. It transports requests,
responses and the application's calls. It has no code for a particular client.

* Times are milliseconds of a monotonic clock. `step` gets the time of each event as `now`.

* The application calls poll in a loop. `PollCalled` opens a poll, and exactly one `FinishPoll` ends it: when
  there are records, or after `timeout_ms`. Between two polls the application processes records.

* If the original client does some work only inside poll, so does its model. sarama has no poll. In its model,
  the application's handlers accept records while a poll of the contract is open.

* `RunCallback` calls the application, and `CallbackReturned` reports that the callback has returned. Until
  then, the model continues as its original does, and the application may send `CommitCalled`.

* A connection is an `Address`: host, port and lane. Lanes distinguish several connections to one broker. The
  responses on a connection arrive in the order of the requests.

* The runner opens a connection when the model sends the first request on it, and sends ApiVersions itself. If
  the connection breaks, the runner fails the requests in flight.

* Random choices of the original are drawn from `ModelConfig.random`, so that every run can be repeated
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


# Annotation of an option -> a function that checks a value, and a text that describes the allowed values.
_TYPE_CHECKS: Final[Mapping[str, tuple[Callable[[object], bool], str]]] = {
    "bool": (lambda value: isinstance(value, bool), "true or false"),
    "int": (
        lambda value: type(value) is int and 0 <= value < 2**31,
        "an integer from 0 to 2147483647",
    ),
    "str": (lambda value: isinstance(value, str), "a string"),
    "tuple[str, ...]": (_is_list_of_strings, "a list of strings"),
}
# For the other annotations.
_NO_CHECK: Final[tuple[Callable[[object], bool], str]] = (lambda value: True, "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The options of a model. Each option has one name, which applies to every model that supports it.

    An option that is None has the default of the original client.
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
    fetch_wait_ms: int | None = None
    # The source of the original client's random choices: it returns a number r with 0 <= r < 1.
    random: Callable[[], float] = lambda: 0.5
    # Options of a single model, under their names in the original client ("Offsets.Retry.Max",
    # "queued.min.messages").
    extra: Mapping[str, object] = field(default_factory=dict[str, object])

    def __post_init__(self) -> None:
        for option in fields(self):
            annotation = str(option.type).removesuffix(" | None")
            is_allowed, allowed_text = _TYPE_CHECKS.get(annotation, _NO_CHECK)
            value = getattr(self, option.name)
            if value is not None and not is_allowed(value):
                raise ConfigError(option.name, value, allowed_text)
        if self.isolation not in (None, "read_committed", "read_uncommitted"):
            raise ConfigError("isolation", self.isolation, "read_committed or read_uncommitted")


# Option of a model -> name of the same option of `consumer.Consumer`.
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

    Raises ConfigError for an unknown option, for a value of a wrong type, and for a missing client_id or
    group_id.
    """
    names = [option.name for option in fields(ModelConfig)]
    for name, value in options.items():
        if name in names:
            continue
        same_option = [key for key, consumer_name in CONSUMER_OPTIONS.items() if consumer_name == name]
        suggestions = same_option or get_close_matches(name, names, n=1)
        hint = f"did you mean {suggestions[0]}?" if suggestions else f"allowed: {', '.join(sorted(names))}"
        raise ConfigError(name, value, f"models have no such option; {hint}")
    for name in ("client_id", "group_id"):
        if not isinstance(options.get(name), str):
            raise ConfigError(name, options.get(name), "every model requires a string")
    return ModelConfig(**options)


class Address(msgspec.Struct, frozen=True, gc=False):
    """A client's connection: a broker's host and port, and a lane, which names the connection."""

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

    A partition whose offset is None starts at its committed offset. Without a committed offset, the reset
    policy applies.
    """

    partitions: Mapping[TopicPartition, int | None]
    # librdkafka's incremental_assign ("add") and incremental_unassign ("remove"). sarama's model closes the
    # partitions after "remove". The other models ignore this field.
    change: Literal["all", "add", "remove"] = "all"


class SeekCalled(msgspec.Struct, frozen=True):
    partition: TopicPartition
    offset: int


class PauseCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class ResumeCalled(msgspec.Struct, frozen=True):
    partitions: tuple[TopicPartition, ...]


class PollCalled(msgspec.Struct, frozen=True):
    """A poll: the application waits for records, at most `timeout_ms`. One `FinishPoll` ends the poll."""

    timeout_ms: int = 50
    limit: int = 500
    # Whether this is Java's old poll(long), which waits for metadata and positions even beyond its timeout.
    # If they arrive only after the timeout, the poll waits again, for `timeout_ms` or until the next
    # response.
    patient: bool = False


class CallbackReturned(msgspec.Struct, frozen=True):
    """The callback of the last `RunCallback` with `wait` set has returned."""

    # (name, text) of the exception that the callback raised. Only the Java models read it.
    error: tuple[str, str] | None = None


class CommitCalled(msgspec.Struct, frozen=True):
    """Commit `offsets`. None commits the positions of all consumed partitions.

    The model answers with a `FinishCommit` that has this `token`.
    """

    token: object
    offsets: Mapping[TopicPartition, int] | None = None
    # True for commitSync, False for commitAsync.
    wait: bool = True


class StoreCalled(msgspec.Struct, frozen=True):
    """librdkafka's offsets_store: store offsets for the next commit that is called without offsets."""

    offsets: Mapping[TopicPartition, int]


class RebalanceCalled(msgspec.Struct, frozen=True):
    """Java's enforceRebalance."""

    reason: str = ""


class CloseCalled(msgspec.Struct, frozen=True):
    """Close the consumer.

    If `stay` is true, the consumer remains a member of the group. Only the Java models support this; the
    other models ignore `stay`. The model answers with `FinishClose`.
    """

    stay: bool = False


class WakeupCalled(msgspec.Struct, frozen=True):
    """Java's wakeup: the blocked call throws WakeupException; if no call is blocked, the next one does."""


# -- events: the network and the clock


class Started(msgspec.Struct, frozen=True):
    """The first event. It contains the bootstrap addresses and the broker's API versions.

    `offered` maps each API key to the (lowest, highest) version that the broker supports.
    """

    bootstrap: tuple[tuple[str, int], ...]
    offered: Mapping[int, tuple[int, int]]


class ResponseReceived(msgspec.Struct, frozen=True):
    """The response to a `SendRequest`. `request` is the same object as in the `SendRequest`."""

    request: Message
    response: Message
    version: int


class RequestFailed(msgspec.Struct, frozen=True):
    """A `SendRequest` failed: the connection was refused or lost, or, if `late` is true, the request timed
    out.
    """

    request: Message
    why: str
    late: bool = False


class ConnectionLost(msgspec.Struct, frozen=True):
    """A connection broke. A `RequestFailed` for each of its requests in flight precedes this event.

    Only models with `HEARS_DISCONNECTS = True` get this event: their originals detect a lost connection
    without sending a request.
    """

    address: Address


class DeadlineReached(msgspec.Struct, frozen=True):
    """The time that `next_deadline` returned has been reached. Before that time, this event has no effect."""


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
    """Close this connection. Its requests in flight fail."""

    address: Address


class ModelRecord(msgspec.Struct, frozen=True, gc=False):
    partition: TopicPartition
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


class FinishPoll(msgspec.Struct, frozen=True):
    """End the poll with these records, or with the (name, text) of the exception that poll raises."""

    records: tuple[ModelRecord, ...] = ()
    error: tuple[str, str] | None = None


class RunCallback(msgspec.Struct, frozen=True):
    """Call the application's callback for partitions that are "assigned", "revoked" or "lost".

    With cooperative strategies, sarama's model also uses "setup" at the start of a session and "cleanup" at
    its end. If `wait` is true, the model waits for `CallbackReturned` wherever its original waits for the
    callback. Otherwise it continues immediately.
    """

    kind: str
    partitions: tuple[TopicPartition, ...]
    wait: bool = True
    # The member's whole assignment. Only the Java models set it, and only if `kind` is "assigned".
    assignment: tuple[TopicPartition, ...] | None = None


class FinishCommit(msgspec.Struct, frozen=True):
    """Complete a commit: successfully, or with the error name and text of the original client."""

    token: object
    error: tuple[str, str] | None = None


class Notify(msgspec.Struct, frozen=True):
    """Report an error, an event or a log line to the application.

    `kind` is "error" (an error channel or a failed call), "notification", "event", "returned" (sarama's
    Consume has returned) or "log".
    """

    kind: str
    name: str
    text: str = ""


class FinishClose(msgspec.Struct, frozen=True):
    """Report that the consumer is closed. No further action follows."""


ModelAction = SendRequest | CloseConnection | FinishPoll | RunCallback | FinishCommit | Notify | FinishClose
