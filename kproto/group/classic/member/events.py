"""What a group member is told and what it answers: its configuration, events and actions.

Times are milliseconds. Events are what happened; actions are what the engine has to do, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec

from ....errors import KprotoError
from ....wire.message import Message
from ...assignors import Assignor
from ...subscription import TopicPartition

# -- configuration ----------------------------------------------------------------------------------------


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Where clients differ and no broker minds. `JAVA` is what Java's consumer does."""

    lose_on_session_timeout: bool = False
    """Without an answer for session.timeout.ms all partitions are lost (librdkafka, which forgets its member
    id, too; here it is kept, as a coordinator that was away knows it still). Java only looks the coordinator
    up again and waits to be told: for a while, two members may deliver the same records. So they may in Java
    while a JoinGroup is open, when no heartbeat goes out and max.poll.interval.ms doesn't count. With this it
    counts, and who keeps partitions while it joins sends heartbeats beside the JoinGroup."""
    every_member_watches: bool = False
    """Every member that sees a change in its topics' partitions asks for a rebalance (librdkafka), and not
    only the leader (Java, sarama, franz-go)."""
    fenced_join_again: bool = False
    """A member whose group.instance.id was taken joins again at the next poll, and fences the other one back
    (Java, sarama, franz-go). Else it is over for good (librdkafka)."""
    finish_revocations: bool = False
    """A static member that was put out in the middle of a cooperative rebalance, and is taken back into the
    same generation, joins once more: what it gave back meanwhile is nobody's until somebody divides again.
    Java goes on, and nobody reads those partitions until the next rebalance."""
    check_inherited_plan: bool = False
    """A static leader whose process began anew, and which leads on by the plan that is there (KIP-814), asks
    DescribeGroups after its first heartbeat whether that gives each partition to somebody, else for a
    rebalance. So it does where brokers don't tell it that it leads (JoinGroup below v9). Java takes what it
    sees then for what the plan was made with, and before such brokers watches no more: what came meanwhile,
    or comes later, is read by nobody until the next rebalance. A leader that isn't static has inherited none,
    and plans, whatever it is told: Java's doesn't then, and nobody has anything."""


JAVA = Policy()


def as_it_is(wait_ms: int) -> int:
    """No jitter."""
    return wait_ms


class MemberConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a member is told once. Times are milliseconds; the names are Kafka's options."""

    group_id: str
    group_instance_id: str | None = None
    client_id: str = "kproto"
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000  # = max.poll.interval.ms, as in Java's GroupRebalanceConfig
    heartbeat_interval_ms: int = 3_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    assignors: tuple[str | Assignor, ...] = ("cooperative-sticky", "range")
    rack_id: str | None = None
    policy: Policy = msgspec.field(default_factory=lambda: JAVA)
    spread: Callable[[int], int] = as_it_is
    """Gives each backoff its jitter: milliseconds to milliseconds, by whoever has a random source."""


# -- events: what happened --------------------------------------------------------------------------------


class Subscribe(msgspec.Struct, frozen=True):
    """The application wants these topics. With `pattern` they are its matches among the topics known now."""

    topics: frozenset[str]
    pattern: str | None = None


class Unsubscribe(msgspec.Struct, frozen=True):
    """The application wants no topics any more: let go, leave, be idle."""


class PollBegan(msgspec.Struct, frozen=True):
    """The application entered poll: as long as it is in there it is alive, however long it waits."""


class PollEnded(msgspec.Struct, frozen=True):
    """The application left poll, or a callback of its own runs in there: from now max.poll.interval.ms
    counts, until the next `PollBegan`."""


class CoordinatorFound(msgspec.Struct, frozen=True):
    """Answers `FindCoordinator`; `node` is whatever the engine sends to."""

    node: object


class CoordinatorLost(msgspec.Struct, frozen=True):
    """The lookup failed, or the connection to the coordinator is gone. Also fails the requests open on it."""

    why: str = ""


class Received(msgspec.Struct, frozen=True):
    """The answer to one of the member's `Send`s; `request` is the same object."""

    request: Message
    response: Message


class Failed(msgspec.Struct, frozen=True):
    """A `Send` that gets no answer: the connection broke, or the time was over."""

    request: Message
    why: str = ""


class Refused(msgspec.Struct, frozen=True):
    """A `Send` that can't be sent: the broker knows no version that says what it says (a static member before
    JoinGroup v5). No other try would do better."""

    request: Message
    error: KprotoError


class Released(msgspec.Struct, frozen=True):
    """The application let go of the partitions of the open `Revoke` or `Lose`."""


class Metadata(msgspec.Struct, frozen=True):
    """The partition counts known now. Topics that don't exist are left out.

    `asked` are the topics that were asked for (None: enough of them): a leader that waits for metadata goes
    on only when its topics are among them. `complete`: these are all topics of the cluster, so that one
    which turns up later is known to be new. `ids` are topic ids, where known; `racks` the racks of each
    partition's replicas, by partition index.
    """

    partitions: Mapping[str, int]
    asked: frozenset[str] | None = None
    complete: bool = False
    ids: Mapping[str, object] = msgspec.field(default_factory=dict[str, object])
    racks: Mapping[str, tuple[frozenset[str], ...]] = msgspec.field(
        default_factory=dict[str, tuple[frozenset[str], ...]]
    )


class CommitAnswered(msgspec.Struct, frozen=True):
    """An OffsetCommit, sent by the engine with this `Member.identity`, was answered."""

    error_code: int
    generation: int
    member_id: str


class RequestRejoin(msgspec.Struct, frozen=True):
    """Join again as soon as possible, for this reason (KIP-800); Java's enforceRebalance."""

    reason: str


class Close(msgspec.Struct, frozen=True):
    """Let go, leave the group if `leave`, and be `Left` within `timeout_ms` from every state."""

    leave: bool = True
    timeout_ms: int = 30_000


class Tick(msgspec.Struct, frozen=True):
    """`next_deadline` has come. A tick that is too early does no harm."""


Event = (
    Subscribe
    | Unsubscribe
    | PollBegan
    | PollEnded
    | CoordinatorFound
    | CoordinatorLost
    | Received
    | Failed
    | Refused
    | Released
    | Metadata
    | CommitAnswered
    | RequestRejoin
    | Close
    | Tick
)


# -- actions: what to do ----------------------------------------------------------------------------------


class FindCoordinator(msgspec.Struct, frozen=True):
    """Give up the connection to the coordinator and look it up: `CoordinatorFound` or `CoordinatorLost`.

    After `CoordinatorLost` the member asks again by itself, with a growing backoff.
    """


class Send(msgspec.Struct, frozen=True):
    """Send `request` to the coordinator and bring back `Received` or `Failed`.

    `request` is as the newest version says it; `in_version` says it as an older one does.
    `timeout_ms`: wait at least so long (a JoinGroup stays open until the whole group has gathered); None is
    request.timeout.ms. `urgent`: a JoinGroup or SyncGroup is parked on the connection, and the broker reads
    nothing behind it; use a connection of its own for this one.
    """

    request: Message
    timeout_ms: int | None = None
    urgent: bool = False


class Revoke(msgspec.Struct, frozen=True):
    """Call the revoked callback, commit, stop delivering `partitions`; then answer `Released`.

    In eager mode `partitions` may be empty: Java calls the callback all the same.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str = ""


class Lose(msgspec.Struct, frozen=True):
    """Stop delivering `partitions` at once; call the lost callback; no commit is possible; answer `Released`.

    A `Lose` that follows an unanswered `Revoke` takes its place: one `Released` answers both.
    """

    partitions: tuple[TopicPartition, ...]
    reason: str = ""


class Assign(msgspec.Struct, frozen=True):
    """Own `owned` from now on; `added` of them were not owned before: find where to start, then deliver.

    The assigned callback is called with `added`, even when it is empty. `first`: this is the group's first
    generation. `new`: those of `added` that are known to have come into being after the group's first
    assignment, so that without a commit they start at the earliest offset, never at the latest.
    `existed`: how many partitions each topic had at the group's first assignment, where anybody remembers
    (a topic that is not listed is unknown, not new).
    """

    added: tuple[TopicPartition, ...]
    owned: tuple[TopicPartition, ...]
    generation: int
    first: bool = False
    new: frozenset[TopicPartition] = frozenset()
    existed: Mapping[str, int] = msgspec.field(default_factory=dict[str, int])


class WantMetadata(msgspec.Struct, frozen=True):
    """The leader needs the partition counts of these topics, now and at every change: answer `Metadata`."""

    topics: frozenset[str]


class Rejoining(msgspec.Struct, frozen=True):
    """For logs: a JoinGroup goes out, for this reason (empty at the very first)."""

    reason: str


class Fatal(msgspec.Struct, frozen=True):
    """Raise this to the application. After `final` the member does nothing any more; else the next
    `PollBegan` tries again, as in Java."""

    error: KprotoError
    final: bool = False


class Left(msgspec.Struct, frozen=True):
    """Closed: nothing more will come. Requests that are still open may be given up."""


Action = FindCoordinator | Send | Revoke | Lose | Assign | WantMetadata | Rejoining | Fatal | Left
