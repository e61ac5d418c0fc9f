"""The events and actions of a client engine, without those of connections (`network.transport`).

A token is any object of the caller's; it comes back in exactly one `Done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ..records import ColumnBatch, ConsumerRecord, GroupChange
from .network.transport import NetworkAction, NetworkEvent

# Events: what has happened.


class Tick(msgspec.Struct, frozen=True):
    """The time that `next_deadline` named has come."""


class Subscribe(msgspec.Struct, frozen=True):
    """Subscribe to `topics`, or to all topics whose whole name matches the regular expression `pattern`."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class Assign(msgspec.Struct, frozen=True):
    """Assign partitions by hand, each with its start offset.

    None starts at the committed offset, or where the reset policy says.
    """

    partitions: Mapping[TopicPartition, int | None]


class Unsubscribe(msgspec.Struct, frozen=True):
    """Revoke everything and leave the group. Done once the group is left."""

    token: object


class PollBegan(msgspec.Struct, frozen=True):
    """The application entered poll: records that were returned before are processed.

    The application counts as alive while poll waits. Follow with `Take` whenever something may have arrived,
    and with `PollEnded` in any case.
    """


class PollEnded(msgspec.Struct, frozen=True):
    """The application left poll; max.poll.interval.ms starts now."""


class Take(msgspec.Struct, frozen=True):
    """Return at most `limit` records, or with `columns` everything that is buffered. Valid inside a poll.

    The engine answers with `CallListener`, `Deliver` or `Raise`, or with nothing if there is nothing yet. A
    callback is not part of the poll: max.poll.interval.ms counts while it runs, as in Java.
    """

    limit: int
    columns: bool = False


class Poll(msgspec.Struct, frozen=True):
    """A whole poll in one step: PollBegan, Take and PollEnded, if nothing but buffered records is needed.

    The engine answers with `Deliver`. Without an answer nothing has happened, and the three events must
    follow.
    """

    limit: int


class ServeListener(msgspec.Struct, frozen=True):
    """Like `Take`, but only for a rebalance callback that waits: during close and unsubscribe."""


class ListenerReturned(msgspec.Struct, frozen=True):
    """The callback of the last `CallListener` returned or raised."""


class GiveBack(msgspec.Struct, frozen=True):
    """Return the records from `offsets` on again: the application has not seen them.

    Returned records below `held` are processed.
    """

    offsets: Mapping[TopicPartition, int]
    held: Mapping[TopicPartition, int]


class Processed(msgspec.Struct, frozen=True):
    """An iteration advanced: returned records are processed, except those from `held` on."""

    held: Mapping[TopicPartition, int]


class TakeBack(msgspec.Struct, frozen=True):
    """The records of this poll did not reach the application (an interrupt, a cancelled task). Return them
    again.
    """


class Seek(msgspec.Struct, frozen=True):
    """Continue at `offset`. A seek to a partition that is not assigned yet waits for its assignment."""

    partition: TopicPartition
    offset: int
    leader_epoch: int | None = None


class SeekTo(msgspec.Struct, frozen=True):
    """Continue at "earliest", "latest", "committed" or a timestamp in ms, looked up when the partition is
    read.
    """

    partitions: frozenset[TopicPartition]
    where: str | int


class Pause(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Resume(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Commit(msgspec.Struct, frozen=True):
    """Commit these offsets, or (None) everything that was returned, except records from `held` on.

    Done with None or an error. `once`: with the result of the first attempt, without a retry.
    """

    token: object
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]] | None
    timeout_ms: int
    held: Mapping[TopicPartition, int] = {}
    once: bool = False


class Run(msgspec.Struct, frozen=True):
    """Run a plan of `admin` over the consumer's connections. Done with its result."""

    token: object
    plan: Any  # A Plan[R]; `Done` carries the R.
    timeout_ms: int


class Drop(msgspec.Struct, frozen=True):
    """Cancel a plan: no `Done` follows."""

    token: object


class Rejoin(msgspec.Struct, frozen=True):
    reason: str


class Close(msgspec.Struct, frozen=True):
    """Close: run callbacks, commit, leave the group, close the fetch sessions. Done within `timeout_ms`.

    `processed`: the records that were returned last count as processed.
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
    | Seek
    | SeekTo
    | Pause
    | Resume
    | Commit
    | Run
    | Drop
    | Rejoin
    | Close
)

# Actions: what the caller must do.


class Deliver(msgspec.Struct, frozen=True):
    """Return these records from poll. `losses`: how many partitions were released so far."""

    rows: list[ConsumerRecord]
    columns: list[ColumnBatch]
    losses: int = 0


class Raise(msgspec.Struct, frozen=True):
    """Raise this error from poll."""

    error: KprotoError


class CallListener(msgspec.Struct, frozen=True):
    """Call the rebalance listener's "assigned", "revoked" or "lost" method, then send `ListenerReturned`."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str


class Done(msgspec.Struct, frozen=True):
    """The request with this token ended with a value, or with the error that ended it."""

    token: object
    value: Any
    error: BaseException | None


class Report(msgspec.Struct, frozen=True):
    """A change of the group membership, for event callbacks and the log."""

    change: GroupChange


class Wake(msgspec.Struct, frozen=True):
    """A waiting poll may find something now."""


class CallBack(msgspec.Struct, frozen=True):
    """Call this function outside of all locks: a delivery has ended."""

    callback: Callable[[], object]


Action = NetworkAction | Deliver | Raise | CallListener | Done | Report | Wake | CallBack
