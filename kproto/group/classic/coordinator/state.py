"""What the coordinator of classic groups works with: states, edges, events, actions and the memory of a
group.

Rules that hold here:

* A group's state is assigned by `move` alone, along EDGES. `Dead` is the state of a group that doesn't
  exist, as DescribeGroups names it: looking up an unknown id gives a Dead group, and moving it to Empty
  founds it.
* A parked request lives in its member (`join`, `sync`). `park_join` and `unpark_join` keep the count of
  waiting members, so that "has everyone come?" costs the same for 2 members and for 2000.
* Deadlines are plain fields, `NEVER` when they are off. `wake` is a lower bound of a group's deadlines:
  moving a deadline into the future leaves it alone, so that a heartbeat costs no search; the Tick that
  comes too early finds nothing due and computes the bound anew. The coordinator keeps the groups in the
  order of their bounds, so that what is due in one costs the same beside 10,000 others.
* Members are kept in the order in which they came. That is the order of the leader's list and the order in
  which a new leader is looked for, where Kafka follows the order of a hash map.

Follows ClassicGroup, ClassicGroupMember and ClassicGroupState of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, Protocol, TypeAlias, TypeVar
from uuid import UUID

import msgspec

from ....deadlines import Deadlines
from ....error_codes import ErrorCode
from ....messages.join_group import JoinGroupRequest
from ....messages.sync_group import SyncGroupRequest
from ....wire.message import Message
from .settings import Settings

NEVER = 1 << 62  # later than any clock in milliseconds: a deadline that is off


class GroupState(Enum):
    """The states of a classic group; the values are Kafka's words in DescribeGroups and ListGroups."""

    DEAD = "Dead"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"

    __hash__ = object.__hash__  # an Enum's own is written in Python


EDGES: dict[GroupState, frozenset[GroupState]] = {
    GroupState.DEAD: frozenset({GroupState.EMPTY}),
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY}),
    GroupState.COMPLETING_REBALANCE: frozenset({GroupState.STABLE, GroupState.PREPARING_REBALANCE}),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE}),
}


# Events: what happened.

R_co = TypeVar("R_co", bound=Message, covariant=True)


class Received(msgspec.Struct, Generic[R_co], frozen=True):
    """A request arrived. `token` comes back in exactly one `Reply`, perhaps much later.

    `random_id` is a text that no other event has (a uuid); a member id may be made of it. `client_host` is
    kept as given; Kafka shows "/127.0.0.1".
    """

    token: object
    request: R_co
    version: int
    client_id: str = ""
    client_host: str = ""
    random_id: str = ""


class Tick(msgspec.Struct, frozen=True):
    """Time has passed; `next_deadline` said when to send this."""


class TopicsDeleted(msgspec.Struct, frozen=True):
    """These topics are gone, and with them all offsets committed for them."""

    names: frozenset[str]


class TransactionEnded(msgspec.Struct, frozen=True):
    """The producer's open transaction ended: its offsets come into force (`committed`) or are dropped."""

    producer_id: int
    committed: bool


Event: TypeAlias = "Received[Message] | Tick | TopicsDeleted | TransactionEnded"


# Actions: what the shell is to do, or may tell.


class Reply(msgspec.Struct, frozen=True):
    """Send this response to the request that came with `token`."""

    token: object
    response: Message


class Rebalancing(msgspec.Struct, frozen=True):
    """To tell: a rebalance of the group began after `generation`, and this is why."""

    group_id: str
    generation: int
    reason: str


class Settled(msgspec.Struct, frozen=True):
    """To tell: the group is Stable in `generation`; these are its members."""

    group_id: str
    generation: int
    members: tuple[str, ...]


class Emptied(msgspec.Struct, frozen=True):
    """To tell: the last member is gone, and this is how the rebalance began that found nobody."""

    group_id: str
    generation: int
    reason: str


Action: TypeAlias = Reply | Rebalancing | Settled | Emptied


# State: what is remembered.


class Topics(Protocol):
    """The broker's topics as the coordinator needs to know them; None stands for an unknown topic."""

    def name(self, topic_id: UUID, /) -> str | None: ...
    def id(self, name: str, /) -> UUID | None: ...
    def partitions(self, name: str, /) -> int | None: ...


@dataclass(slots=True)
class GroupMember:
    """One member, from its admission on. (Ids that were only handed out are in `Group.pending`.)"""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    # True until its first generation: then NEW_MEMBER_JOIN_TIMEOUT_MS counts, even while its JoinGroup is
    # parked.
    new: bool = True
    join: Received[JoinGroupRequest] | None = None
    sync: Received[SyncGroupRequest] | None = None
    deadline: int = NEVER

    @property
    def name(self) -> str:
        """The member for people: static ones by the name that they keep."""
        return (
            self.member_id
            if self.group_instance_id is None
            else f"{self.group_instance_id} ({self.member_id})"
        )

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said under this protocol, empty if it doesn't offer it.

        The first of equal names counts.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def offers(self) -> dict[str, None]:
        """The names it offers, each once, best first.

        Kafka counts a name that is listed twice twice; the vote then throws and the JoinGroup is never
        answered.
        """
        return dict.fromkeys(name for name, _ in self.protocols)


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset.

    `order` tells which of two commits is the later one; -1 is Kafka's "no leader epoch".
    """

    offset: int
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int | None
    order: int


@dataclass(slots=True)
class Group:
    """Everything about one group."""

    group_id: str
    state: GroupState = GroupState.DEAD
    state_since: int = 0
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, GroupMember] = field(default_factory=dict[str, GroupMember])
    # Static members: instance id -> member id.
    instances: dict[str, str] = field(default_factory=dict[str, str])
    # Ids handed out with MEMBER_ID_REQUIRED, and when each is forgotten.
    pending: dict[str, int] = field(default_factory=dict[str, int])
    # How many members offer a protocol.
    offered: dict[str, int] = field(default_factory=dict[str, int])
    waiting: int = 0  # members whose JoinGroup is parked
    # Members that have not sent SyncGroup in this generation (a dict, because its order is certain).
    unsynced: dict[str, None] = field(default_factory=dict[str, None])
    # What is left of the time in which newcomers may prolong the initial delay; None outside of it.
    initial_delay_left: int | None = None
    newcomers: bool = False  # someone joined in the current stretch of the initial delay
    join_deadline: int = NEVER
    sync_deadline: int = NEVER
    wake: int = NEVER
    rebalance_reason: str = ""
    # The members' metadata as it was when this generation began; None before the first.
    subscriptions: tuple[bytes, ...] | None = None
    offsets: dict[str, dict[int, Committed]] = field(default_factory=dict[str, "dict[int, Committed]"])
    # Is anything of it in __consumer_offsets, which DescribeGroups and ListGroups read? A commit of which
    # nothing is kept founds a group that they don't see. (In Kafka it comes to light with the next record of
    # any group of the same partition, here with the group's own.)
    written: bool = False
    # Offsets in open transactions, by producer id.
    promised: dict[int, dict[tuple[str, int], Committed]] = field(
        default_factory=dict[int, "dict[tuple[str, int], Committed]"]
    )

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def longest_rebalance_timeout(self) -> int:
        """How long the most patient member lets the others take; 0 without members."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: GroupMember) -> None:
        """Take a member in. Into a group without any it comes as the leader."""
        if not self.members:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.instances[member.group_instance_id] = member.member_id
        self.pending.pop(member.member_id, None)
        self._count(member, +1)

    def remove(self, member_id: str) -> None:
        """Forget a member or a pending id. Its parked requests must have been answered."""
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count(member, -1)
        self.unsynced.pop(member_id, None)
        if member.group_instance_id is not None:
            del self.instances[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: GroupMember, member_id: str) -> None:
        """Give a static member the id of its new incarnation."""
        old = member.member_id
        del self.members[old]
        self.members[member_id] = member
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.instances[member.group_instance_id] = member_id
        if self.leader == old:
            self.leader = member_id
        # Kafka leaves the old id in this set, so that its sync timer later starts a rebalance for nobody.
        if old in self.unsynced:
            del self.unsynced[old]
            self.unsynced[member_id] = None

    def update(self, member: GroupMember, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Let a member offer something else."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, +1)

    def park_join(self, member: GroupMember, call: Received[JoinGroupRequest]) -> None:
        """Let a JoinGroup wait; the member must have none that waits already."""
        assert member.join is None
        member.join = call
        self.waiting += 1

    def unpark_join(self, member: GroupMember) -> Received[JoinGroupRequest] | None:
        """Take the member's waiting JoinGroup, if there is one, in order to answer it."""
        call, member.join = member.join, None
        if call is not None:
            self.waiting -= 1
        return call

    def accepts(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Could a member with these protocols work with the members that are there?

        A known member's own, older list still counts while its new one is looked at.
        """
        if self.state in (GroupState.EMPTY, GroupState.DEAD):
            return bool(protocol_type) and any(True for _ in names)
        everyone = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.offered.get(name, 0) == everyone for name in names
        )

    def vote(self) -> str:
        """The protocol that most members like best of those that all offer; the leader breaks a tie."""
        everyone = len(self.members)
        candidates = {name for name, count in self.offered.items() if count == everyone}
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            votes[next(name for name in member.offers() if name in candidates)] += 1
        assert self.leader is not None
        return max(
            (name for name in self.members[self.leader].offers() if name in votes), key=votes.__getitem__
        )

    def earliest_deadline(self) -> int:
        """The first of all deadlines, found by looking at every member; `wake` is never later."""
        return min(
            self.join_deadline,
            self.sync_deadline,
            min((member.deadline for member in self.members.values()), default=NEVER),
            min(self.pending.values(), default=NEVER),
        )

    def _count(self, member: GroupMember, change: int) -> None:
        for name in member.offers():
            count = self.offered.get(name, 0) + change
            if count:
                self.offered[name] = count
            else:
                del self.offered[name]


@dataclass(slots=True)
class Coordinator:
    """The memory of a coordinator. Give it events with `step`, and a `Tick` at `next_deadline`.

    `topics` lets commits for unknown topics be refused and topic ids be read; without it every topic is
    taken for known, and ids for unknown.
    """

    settings: Settings = field(default_factory=Settings)
    topics: Topics | None = None
    groups: dict[str, Group] = field(default_factory=dict[str, Group])
    # Which groups a producer has promised offsets to, until its transaction ends: there may be many groups.
    promised_to: dict[int, dict[str, None]] = field(default_factory=dict[int, dict[str, None]])
    commits: int = 0  # counts the commits, to order them
    cleanup_deadline: int = NEVER
    # When each group is to be looked at: its `wake`.
    deadlines: Deadlines[str] = field(default_factory=Deadlines[str])

    def find(self, group_id: str) -> Group:
        """The group, or a Dead one of that name if there is none."""
        return self.groups.get(group_id) or Group(group_id)


@dataclass(slots=True)
class Turn:
    """One call of `step`: the clock and the actions so far."""

    coordinator: Coordinator
    now: int
    actions: list[Action] = field(default_factory=list[Action])

    def reply(self, call: Received[Message], response: Message) -> None:
        """Answer a request: once, now or when it has waited."""
        self.actions.append(Reply(call.token, response))

    def wake_at(self, group: Group, at: int) -> int:
        """Note a deadline of the group: `member.deadline = turn.wake_at(group, now + ...)`."""
        if at < group.wake:
            group.wake = at
            self.coordinator.deadlines.set(group.group_id, at)
        return at

    def refresh_session(self, group: Group, member: GroupMember) -> None:
        """The member gave a sign of life: its session timeout starts anew."""
        member.deadline = self.wake_at(group, self.now + member.session_timeout_ms)


def member_error(group: Group, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Why this is no member, or NONE.

    The instance id is looked at first: a former self is fenced rather than unknown.
    """
    if group_instance_id is not None:
        current = group.instances.get(group_instance_id)
        if current is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group else ErrorCode.UNKNOWN_MEMBER_ID


def move(turn: Turn, group: Group, state: GroupState) -> None:
    """Take one of EDGES. Leaving Dead founds the group, entering it forgets the group."""
    if state not in EDGES[group.state]:
        raise AssertionError(f"group {group.group_id!r} can't go from {group.state.value} to {state.value}")
    if group.state is GroupState.DEAD:
        turn.coordinator.groups[group.group_id] = group
    elif state is GroupState.DEAD:
        del turn.coordinator.groups[group.group_id]
        turn.coordinator.deadlines.drop(group.group_id)
    elif state in (GroupState.EMPTY, GroupState.STABLE):  # the ends of a generation are written down
        group.written = True
    group.state = state
    group.state_since = turn.now
