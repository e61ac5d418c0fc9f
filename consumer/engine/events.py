"""Events and actions of a client engine; `network.transport` has those of its connections.

A token is an object by which the caller identifies its request. Exactly one `Done` returns it, unless `Drop`
has cancelled the request.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kproto.errors import DeserializationError, KprotoError
from kproto.group.subscription import TopicPartition
from kproto.machine import Tick as Tick

from ..records import ColumnBatch, ConsumerRecord, GroupChange
from .network.transport import NetworkAction, NetworkEvent

# Events: what has happened.


class Subscribe(msgspec.Struct, frozen=True):
    """Subscribe to `topics`, or to all topics whose whole name matches the regular expression `pattern`."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class Assign(msgspec.Struct, frozen=True):
    """Assign partitions by hand, each with its start offset.

    A partition whose offset is None starts at its committed offset. Without a committed offset, the reset
    policy determines the start offset.
    """

    partitions: Mapping[TopicPartition, int | None]


class Unsubscribe(msgspec.Struct, frozen=True):
    """Revoke all partitions and leave the group. `Done` follows when the member has left."""

    token: object


class PollBegan(msgspec.Struct, frozen=True):
    """The application has entered poll. The records that earlier polls returned count as processed.

    max.poll.interval.ms does not expire until `PollEnded`.

    During the poll the caller sends `Take` each time records may have arrived. At the end it sends
    `PollEnded`, even after an error.
    """


class PollEnded(msgspec.Struct, frozen=True):
    """The application has left poll. From now on max.poll.interval.ms limits the time until the next poll."""


class Take(msgspec.Struct, frozen=True):
    """Return at most `limit` records or, with `columns`, all buffered records as columns.

    The event is valid between `PollBegan` and `PollEnded`.

    The engine returns a `CallListener`, `Deliver` or `Raise`, or none of them if no callback, record or error
    is ready.

    As in Java, max.poll.interval.ms may expire while a rebalance callback runs.
    """

    limit: int
    columns: bool = False


class Poll(msgspec.Struct, frozen=True):
    """Poll in one step.

    The step succeeds if records are buffered, no deadline is due, and no error or callback waits. The engine
    then returns a `Deliver`. If the step fails, the engine returns no `Deliver`, and the caller polls with
    `PollBegan`, `Take` and `PollEnded` instead.
    """

    limit: int


class ServeListener(msgspec.Struct, frozen=True):
    """Start the next rebalance callback during close or unsubscribe.

    In contrast to `Take`, this event never returns records.
    """


class ListenerReturned(msgspec.Struct, frozen=True):
    """The callback of the last `CallListener` has returned or raised."""


class GiveBack(msgspec.Struct, frozen=True):
    """Rewind partitions to `offsets`.

    `offsets` maps a partition to the offset of its first record that the application has not received.

    `held` maps a partition to the offset of the first returned record that does not count as processed. All
    other returned records count as processed.
    """

    offsets: Mapping[TopicPartition, int]
    held: Mapping[TopicPartition, int]


class Processed(msgspec.Struct, frozen=True):
    """The application has advanced in its iteration over the returned records.

    `held` maps a partition to the offset of its first record that the application has not received. Earlier
    records of the partition, and all returned records of partitions without an entry, count as processed.
    """

    held: Mapping[TopicPartition, int]


class TakeBack(msgspec.Struct, frozen=True):
    """Put the records of the current poll back into the buffers, because the application did not get them.

    The caller sends this event after an interrupt, or if its task was cancelled.
    """


class DeserializationFailed(msgspec.Struct, frozen=True):
    """A deserializer failed for a record of each of these partitions, at the offset in the error.

    The application has received neither this record nor the later records of the partition.
    """

    errors: Mapping[TopicPartition, DeserializationError]


class Seek(msgspec.Struct, frozen=True):
    """Set the position to `offset`.

    If the partition is not assigned, the seek waits for its assignment.
    """

    partition: TopicPartition
    offset: int
    leader_epoch: int | None = None


class SeekTo(msgspec.Struct, frozen=True):
    """Set positions to "earliest", "latest", "committed" or a timestamp in ms since 1970.

    The offset is looked up before the next fetch. If `partitions` is empty, all assigned partitions are
    reset.
    """

    partitions: frozenset[TopicPartition]
    where: str | int


class Pause(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Resume(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Commit(msgspec.Struct, frozen=True):
    """Commit `offsets`, or the positions after all returned records if `offsets` is None.

    `held` maps a partition to its first unprocessed offset; records at and after it are not committed.

    The `Done` contains the commit's error; None after a success. With `once` the commit is not retried.
    """

    token: object
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]] | None
    timeout_ms: int
    held: Mapping[TopicPartition, int] = {}
    once: bool = False


class StoreOffsets(msgspec.Struct, frozen=True):
    """Store offsets for the next commit: partition -> (offset, leader epoch, metadata)."""

    offsets: Mapping[TopicPartition, tuple[int, int | None, str]]


class Run(msgspec.Struct, frozen=True):
    """Run a plan of `engine.admin` over the consumer's connections. `Done` contains the plan's result."""

    token: object
    plan: Any  # A Plan[R]. Its result of type R becomes the value of `Done`.
    timeout_ms: int


class Drop(msgspec.Struct, frozen=True):
    """Cancel the plan with this token. No `Done` follows."""

    token: object


class Rejoin(msgspec.Struct, frozen=True):
    reason: str


class Close(msgspec.Struct, frozen=True):
    """Close the consumer: run callbacks, commit, leave the group, close the fetch sessions.

    `Done` follows within `timeout_ms`. Without `leave` the member sends no LeaveGroup.

    If `processed` is true, the records of the last poll count as processed.
    """

    token: object
    leave: bool
    timeout_ms: int
    processed: bool = True


Event = (
    NetworkEvent
    | Tick
    | Subscribe
    | Assign
    | Unsubscribe
    | PollBegan
    | PollEnded
    | Take
    | Poll
    | ServeListener
    | ListenerReturned
    | GiveBack
    | Processed
    | TakeBack
    | DeserializationFailed
    | Seek
    | SeekTo
    | Pause
    | Resume
    | Commit
    | StoreOffsets
    | Run
    | Drop
    | Rejoin
    | Close
)

# Actions: what the caller must do.


class Deliver(msgspec.Struct, frozen=True):
    """Return these records from `poll()`.

    `losses` is the number of partitions that were unassigned since the consumer was created.

    `polled` maps each partition to its first offset in this poll. It is None, unless interceptors may have
    changed the partitions and offsets of `rows`.
    """

    rows: list[ConsumerRecord[Any, Any]]
    columns: list[ColumnBatch]
    losses: int = 0
    polled: Mapping[TopicPartition, int] | None = None


class Raise(msgspec.Struct, frozen=True):
    """Raise this error from poll."""

    error: KprotoError


class CallListener(msgspec.Struct, frozen=True):
    """Call the rebalance listener's "assigned", "revoked" or "lost" method, then send `ListenerReturned`."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str


class Done(msgspec.Struct, frozen=True):
    """The result of the request with this token: its value, or the error with which it failed."""

    token: object
    value: Any
    error: BaseException | None


class Report(msgspec.Struct, frozen=True):
    """Report this change of the membership or of the client's state to event callbacks and to the log."""

    change: GroupChange


class Wake(msgspec.Struct, frozen=True):
    """Wake a waiting poll, because records, an error or a callback may be ready."""


class CallBack(msgspec.Struct, frozen=True):
    """Call a delivery callback of the producer, while no lock is held."""

    callback: Callable[[], object]


Action = NetworkAction | Deliver | Raise | CallListener | Done | Report | Wake | CallBack
