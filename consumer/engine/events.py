"""What happens to a consumer, and what it wants done. The network's share is in `network.py`.

Tokens are whatever the shell likes; each comes back in exactly one `Done`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition

from ..records import ColumnBatch, ConsumerRecord, GroupChange
from .network import NetworkAction, NetworkEvent

# ---- what happened


@dataclass(frozen=True, slots=True)
class Tick:
    """`next_deadline` has come."""


@dataclass(frozen=True, slots=True)
class Subscribe:
    """The application wants these topics, or all that match `pattern` (a regular expression, whole name)."""

    topics: frozenset[str] = frozenset()
    pattern: str | None = None


@dataclass(frozen=True, slots=True)
class Assign:
    """The application chose partitions by itself; an offset, or None to start where the group or policy
    says."""

    partitions: Mapping[TopicPartition, int | None]


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    token: object


@dataclass(frozen=True, slots=True)
class PollBegan:
    """The application came back for more: what it got before is processed now, and it is alive while it
    waits. Then `Take`, as often as something may have come, and `PollEnded` in any case."""


@dataclass(frozen=True, slots=True)
class PollEnded:
    """The application leaves poll: from now max.poll.interval.ms counts."""


@dataclass(frozen=True, slots=True)
class Take:
    """Inside a poll: at most `limit` records, or (`columns`) all that is there.

    Answered by `CallListener`, `Deliver` or `Raise`, or by nothing when there is nothing yet. A callback is
    no part of the poll: while it runs, max.poll.interval.ms counts, as in Java.
    """

    limit: int
    columns: bool = False


@dataclass(frozen=True, slots=True)
class ServeListener:
    """Like Take, but only a waiting callback is wanted: during close and unsubscribe."""


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """The callback of the last `CallListener` is over (also when it raised)."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Records from `offset` on were handed out but not looked at: hand them out again."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class TakeBack:
    """What this poll took never reached the application (an interrupt, a cancelled task): hand it out
    again."""


@dataclass(frozen=True, slots=True)
class Seek:
    """The application chose where to go on. For a partition that comes later, it waits for it."""

    partition: TopicPartition
    offset: int
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class SeekTo:
    """To "earliest", "latest", "committed" or a time in ms; found out when the partition is next read."""

    partitions: frozenset[TopicPartition]
    where: str | int


@dataclass(frozen=True, slots=True)
class Pause:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Resume:
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Commit:
    """Commit these offsets, or (None) everything that was handed out. Done with None or an error."""

    token: object
    offsets: Mapping[TopicPartition, tuple[int, int | None, str]] | None
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """Run a plan of `plans.py` over the consumer's connections. Done with its result."""

    token: object
    plan: Any  # Plan[R]; its result goes into Done
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Drop:
    """Nobody waits for this plan any more: no Done comes."""

    token: object


@dataclass(frozen=True, slots=True)
class Rejoin:
    reason: str


@dataclass(frozen=True, slots=True)
class Close:
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
    | ServeListener
    | ListenerReturned
    | GiveBack
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


@dataclass(frozen=True, slots=True)
class Deliver:
    """Hand these to the application."""

    rows: list[ConsumerRecord]
    columns: list[ColumnBatch]


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this from poll."""

    error: KprotoError


@dataclass(frozen=True, slots=True)
class CallListener:
    """Call the rebalance listener: "assigned", "revoked" or "lost". Then say `ListenerReturned`."""

    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Done:
    """What `token` asked for is done: a value, or the error that ended it."""

    token: object
    value: Any
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Report:
    """For event callbacks and logs."""

    change: GroupChange


@dataclass(frozen=True, slots=True)
class Wake:
    """A waiting poll may find something now."""


@dataclass(frozen=True, slots=True)
class CallBack:
    """Call this, outside of all locks: a delivery has ended that somebody wants to be told of."""

    callback: Callable[[], object]


Action = NetworkAction | Deliver | Raise | CallListener | Done | Report | Wake | CallBack
