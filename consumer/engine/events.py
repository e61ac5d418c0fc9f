"""What happens to a consumer, and what it wants done. The network's share is in `network.py`.

Tokens are whatever the shell likes; each comes back in exactly one `Done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ..records import ColumnBatch, ConsumerRecord, GroupChange
from .network.transport import NetworkAction, NetworkEvent

# ---- what happened


class Tick(msgspec.Struct, frozen=True):
    """`next_deadline` has come."""


class Subscribe(msgspec.Struct, frozen=True):
    """The application wants these topics, or all that match `pattern` (a regular expression, whole name)."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


class Assign(msgspec.Struct, frozen=True):
    """The application chose partitions by itself; an offset, or None to start where the group or policy
    says."""

    partitions: Mapping[TopicPartition, int | None]


class Unsubscribe(msgspec.Struct, frozen=True):
    token: object


class PollBegan(msgspec.Struct, frozen=True):
    """The application came back for more: what it got before is processed now, and it is alive while it
    waits. Then `Take`, as often as something may have come, and `PollEnded` in any case."""


class PollEnded(msgspec.Struct, frozen=True):
    """The application leaves poll: from now max.poll.interval.ms counts."""


class Take(msgspec.Struct, frozen=True):
    """Inside a poll: at most `limit` records, or (`columns`) all that is there.

    Answered by `CallListener`, `Deliver` or `Raise`, or by nothing when there is nothing yet. A callback is
    no part of the poll: while it runs, max.poll.interval.ms counts, as in Java.
    """

    limit: int
    columns: bool = False


class Poll(msgspec.Struct, frozen=True):
    """A whole poll, where at most `limit` records are made already and nothing else is to be done: what
    PollBegan, Take and PollEnded do, at once.

    Answered by `Deliver`; or by nothing: then nothing has happened, and the three have to come.
    """

    limit: int


class ServeListener(msgspec.Struct, frozen=True):
    """Like Take, but only a waiting callback is wanted: during close and unsubscribe."""


class ListenerReturned(msgspec.Struct, frozen=True):
    """The callback of the last `CallListener` is over (also when it raised)."""


class GiveBack(msgspec.Struct, frozen=True):
    """Records from `offset` on were handed out but not looked at: hand them out again. What was handed out is
    processed, below `held`."""

    offsets: Mapping[TopicPartition, int]
    held: Mapping[TopicPartition, int]


class Processed(msgspec.Struct, frozen=True):
    """An iteration came so far: what was handed out is processed, below what is `held` of it."""

    held: Mapping[TopicPartition, int]


class TakeBack(msgspec.Struct, frozen=True):
    """What this poll took never reached the application (an interrupt, a cancelled task): hand it out
    again."""


class Seek(msgspec.Struct, frozen=True):
    """The application chose where to go on. For a partition that comes later, it waits for it."""

    partition: TopicPartition
    offset: int
    leader_epoch: int | None = None


class SeekTo(msgspec.Struct, frozen=True):
    """To "earliest", "latest", "committed" or a time in ms; found out when the partition is next read."""

    partitions: frozenset[TopicPartition]
    where: str | int


class Pause(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Resume(msgspec.Struct, frozen=True):
    partitions: frozenset[TopicPartition]


class Commit(msgspec.Struct, frozen=True):
    """Commit these offsets, or (None) everything that was handed out, below what is `held`: an iteration has
    not come to it yet. Done with None or an error; `once`: with what the first try ended in."""

    token: object
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]] | None
    timeout_ms: int
    held: Mapping[TopicPartition, int] = {}
    once: bool = False


class Run(msgspec.Struct, frozen=True):
    """Run a plan of `admin` over the consumer's connections. Done with its result."""

    token: object
    plan: Any  # Plan[R]; its result goes into Done
    timeout_ms: int


class Drop(msgspec.Struct, frozen=True):
    """Nobody waits for this plan any more: no Done comes."""

    token: object


class Rejoin(msgspec.Struct, frozen=True):
    reason: str


class Close(msgspec.Struct, frozen=True):
    """End: callbacks, commit, leave the group, close the fetch sessions. Done within `timeout_ms`.

    `processed`: what was handed out last counts as processed.
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

# ---- what to do


class Deliver(msgspec.Struct, frozen=True):
    """Hand these to the application. `losses`: how many partitions this consumer had let go by then."""

    rows: list[ConsumerRecord]
    columns: list[ColumnBatch]
    losses: int = 0


class Raise(msgspec.Struct, frozen=True):
    """Raise this from poll."""

    error: KprotoError


class CallListener(msgspec.Struct, frozen=True):
    """Call the rebalance listener: "assigned", "revoked" or "lost". Then say `ListenerReturned`."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str


class Done(msgspec.Struct, frozen=True):
    """What `token` asked for is done: a value, or the error that ended it."""

    token: object
    value: Any
    error: BaseException | None


class Report(msgspec.Struct, frozen=True):
    """For event callbacks and logs."""

    change: GroupChange


class Wake(msgspec.Struct, frozen=True):
    """A waiting poll may find something now."""


class CallBack(msgspec.Struct, frozen=True):
    """Call this, outside of all locks: a delivery has ended that somebody wants to be told of."""

    callback: Callable[[], object]


Action = NetworkAction | Deliver | Raise | CallListener | Done | Report | Wake | CallBack
