"""State of the classic group coordinator: groups, members, offsets and deadlines.

* `move` is the only function that assigns a group's state, and EDGES lists the moves that it allows (R9).

* Dead is the state of a group that does not exist: `CoordinatorState.find` returns a Dead group for an
  unknown id.

* Moving a Dead group to Empty creates the group, and moving a group to Dead deletes it.

* A delayed request is stored in its member, as `join` or `sync`. `hold_join` and `release_join` count the
  delayed JoinGroups, so whether all members have joined is known without a search.

* Deadlines are plain fields, with the value `NEVER` if no deadline is set.

* `ClassicGroup.wake` is a lower bound of a group's deadlines. It does not change when a deadline is
  postponed, so a heartbeat does not have to search for the group's next deadline.

* A Tick at which no deadline is due recomputes `ClassicGroup.wake`.

* The coordinator keeps the groups in the order of `wake`, and finds due deadlines without searching all
  groups.

* Members are kept in the order in which they joined (R163). The leader's member list and the choice of a new
  leader follow this order. Kafka uses the order of a hash map.

The module follows ClassicGroup, ClassicGroupMember and ClassicGroupState of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from .... import machine
from ....deadlines import Deadlines
from ....error_codes import ErrorCode
from ....errors import DecodeError
from ....lazy_imports import render_html
from ....machine import NEVER, RequestReceived, SendResponse
from ....messages.consumer_protocol import ConsumerProtocolSubscription
from ....messages.join_group import JoinGroupRequest
from ....messages.sync_group import SyncGroupRequest
from ....wire.message import Message
from ...protocol import CoordinatorAction, GroupNotice, TopicCatalog
from ...settings import GroupSettings


class ClassicGroupState(Enum):
    """The states of a classic group. The values are Kafka's names in DescribeGroups and ListGroups."""

    DEAD = "Dead"
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"

    __hash__ = object.__hash__  # This is faster than Enum's own __hash__, which is written in Python.


EDGES: dict[ClassicGroupState, frozenset[ClassicGroupState]] = {
    ClassicGroupState.DEAD: frozenset({ClassicGroupState.EMPTY}),
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE}),
}


# Notices, with which the coordinator reports to the broker's observers (`Server.observe`) what happened to a
# group.


class RebalanceStarted(GroupNotice, frozen=True):
    """A rebalance started and ended `generation`. `reason` is a sentence for logs and `Server.observe`."""

    generation: int
    reason: str


class GenerationStarted(GroupNotice, frozen=True):
    """The join phase is complete, and `generation` begins.

    `reasons` are sentences for logs and `Server.observe`. The first one says why the rebalance started. The
    others name the members that joined, left or expired during the join phase.
    """

    generation: int
    reasons: tuple[str, ...]


class MemberRemoved(GroupNotice, frozen=True):
    """The coordinator removed a member. The member's partitions no longer have an owner.

    `reason` is a sentence for logs and `Server.observe`.
    """

    member_id: str
    reason: str


class GroupEmptied(GroupNotice, frozen=True):
    """A rebalance ended without members: the group is now Empty. `reason` says why the rebalance started."""

    generation: int
    reason: str


# State.


@dataclass(slots=True)
class ClassicGroupMember:
    """A member of a group.

    A member id that was issued with MEMBER_ID_REQUIRED is in `ClassicGroup.pending` until the member joins
    with it.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    assignment: bytes = b""
    # True until the member's first generation begins. Until then, the member can expire while its JoinGroup
    # is delayed. Its first session timeout is NEW_MEMBER_JOIN_TIMEOUT_MS (R134).
    new: bool = True
    # The delayed JoinGroup or SyncGroup.
    join: RequestReceived[JoinGroupRequest] | None = None
    sync: RequestReceived[SyncGroupRequest] | None = None
    # The time at which the session expires.
    deadline: int = NEVER

    @property
    def label(self) -> str:
        """The member's name in a reason: its member id, preceded by the instance id of a static member."""
        return (
            self.member_id
            if self.group_instance_id is None
            else f"{self.group_instance_id} ({self.member_id})"
        )

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol, or b"" if the member does not list the protocol.

        If the member lists a protocol twice, the first entry counts.
        """
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def metadata_size(self) -> int:
        """Return the size in bytes of the metadata of all the member's protocols."""
        return sum(len(metadata) for _, metadata in self.protocols)

    def protocol_names(self) -> dict[str, None]:
        """Return a dict whose keys are the names of the member's protocols, in its order of preference.

        A name that is listed twice is counted once (R165). Kafka counts it twice, so the vote throws an
        exception, and JoinGroup is never answered.
        """
        return dict.fromkeys(name for name, _ in self.protocols)


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """A committed offset of one partition (Kafka's OffsetAndMetadata)."""

    offset: int
    # The leader epoch that the client sent; -1 if the client sent none.
    leader_epoch: int
    metadata: str
    committed_at: int
    expires_at: int | None
    # The sequence number of the commit. When a transaction ends, its offsets do not replace those of a later
    # commit.
    order: int


@dataclass(slots=True)
class ClassicGroup:
    """A classic group with its members and offsets (R8)."""

    group_id: str
    state: ClassicGroupState = ClassicGroupState.DEAD
    state_since: int = 0
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    members: dict[str, ClassicGroupMember] = field(default_factory=dict[str, ClassicGroupMember])
    # Maps the instance id of a static member to its member id.
    instances: dict[str, str] = field(default_factory=dict[str, str])
    # Maps a member id that was issued with MEMBER_ID_REQUIRED to the time at which it expires.
    pending: dict[str, int] = field(default_factory=dict[str, int])
    # Maps the name of a protocol to the number of members that support it.
    supported_protocols: dict[str, int] = field(default_factory=dict[str, int])
    # The size in bytes of the metadata of all protocols of all members.
    metadata_size: int = 0
    # The number of members whose JoinGroup waits for its response.
    awaiting_join: int = 0
    # Members that have not sent SyncGroup in this generation, in the order in which they joined.
    unsynced: dict[str, None] = field(default_factory=dict[str, None])
    # How long (ms) the initial delay can still be extended for new members. None if no initial delay is in
    # progress.
    initial_delay_left: int | None = None
    # Whether a member has been added since the initial delay was last extended.
    new_member_added: bool = False
    join_deadline: int = NEVER
    sync_deadline: int = NEVER
    # A lower bound of all deadlines of the group and its members.
    wake: int = NEVER
    # The reasons for the last rebalance: first the event that started the rebalance, then each member that
    # joined or left during the join phase.
    rebalance_reasons: list[str] = field(default_factory=list[str])
    # The members' encoded subscriptions when this generation began. None before the first generation.
    subscriptions: tuple[bytes, ...] | None = None
    offsets: dict[str, dict[int, StoredOffset]] = field(default_factory=dict[str, "dict[int, StoredOffset]"])
    # Whether Kafka would have a record of the group in __consumer_offsets. DescribeGroups and ListGroups
    # report only such groups. A commit creates a group without a record if all its offsets are rejected.
    written: bool = False
    # Maps a producer id to the offsets that the producer committed in its open transaction.
    pending_transactions: dict[int, dict[tuple[str, int], StoredOffset]] = field(
        default_factory=dict[int, "dict[tuple[str, int], StoredOffset]"]
    )

    def __contains__(self, member_id: str) -> bool:
        """Return whether `member_id` is the id of a member of the group."""
        return member_id in self.members

    def _repr_html_(self) -> str:
        """Return the members and the state as HTML, for a notebook."""
        return render_html("kproto.inspect.notebook:classic_group", self)

    def max_rebalance_timeout(self) -> int:
        """Return the members' largest rebalance timeout in ms, or 0 if the group is empty (R139)."""
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def add(self, member: ClassicGroupMember) -> None:
        """Add a member. The first member that is added to an empty group becomes its leader (R29, R160)."""
        if not self.members:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.group_instance_id is not None:
            self.instances[member.group_instance_id] = member.member_id
        self.pending.pop(member.member_id, None)
        self._count_protocols(member, +1)

    def remove(self, member_id: str) -> None:
        """Remove a member or a pending member id (R161).

        The caller must have answered the member's delayed requests. If the member was the leader, the
        remaining member that joined first becomes the leader.
        """
        self.pending.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self._count_protocols(member, -1)
        self.unsynced.pop(member_id, None)
        if member.group_instance_id is not None:
            del self.instances[member.group_instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        """Give a static member the member id of its new process (R42, R49).

        The new id replaces the old one in `unsynced`. In Kafka, the old id stays there and never sends
        SyncGroup, so the deadline for SyncGroup starts an unnecessary rebalance.
        """
        old_id = member.member_id
        del self.members[old_id]
        self.members[member_id] = member
        member.member_id = member_id
        assert member.group_instance_id is not None
        self.instances[member.group_instance_id] = member_id
        if self.leader == old_id:
            self.leader = member_id
        if old_id in self.unsynced:
            del self.unsynced[old_id]
            self.unsynced[member_id] = None

    def set_protocols(self, member: ClassicGroupMember, protocols: tuple[tuple[str, bytes], ...]) -> None:
        """Replace the protocols of a member."""
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, +1)

    def hold_join(self, member: ClassicGroupMember, call: RequestReceived[JoinGroupRequest]) -> None:
        """Delay the response to a member's JoinGroup. The member must not have another delayed JoinGroup."""
        assert member.join is None
        member.join = call
        self.awaiting_join += 1

    def release_join(self, member: ClassicGroupMember) -> RequestReceived[JoinGroupRequest] | None:
        """Remove and return the member's delayed JoinGroup, which the caller must answer.

        Return None if no JoinGroup of the member is delayed.
        """
        call, member.join = member.join, None
        if call is not None:
            self.awaiting_join -= 1
        return call

    def accepts_protocols(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Return whether a member with these protocols is compatible with the group (R24).

        At least one of `names` must be supported by all members. A member that rejoins is counted with the
        protocols of its earlier JoinGroup.

        A group without members accepts any nonempty protocol type and any nonempty `names`.
        """
        if self.state in (ClassicGroupState.EMPTY, ClassicGroupState.DEAD):
            has_protocols = any(True for _ in names)
            return bool(protocol_type) and has_protocols
        member_count = len(self.members)
        return protocol_type == self.protocol_type and any(
            self.supported_protocols.get(name, 0) == member_count for name in names
        )

    def select_protocol(self) -> str:
        """Return the protocol with the most votes among the protocols that all members support (R164).

        Each member votes for the first of its protocols that all members support. The leader's order of
        preference decides a tie; in Kafka, the order of a hash map does.

        The group must have members, and at least one protocol that all of them support.
        """
        member_count = len(self.members)
        candidates = {
            name for name, supporters in self.supported_protocols.items() if supporters == member_count
        }
        votes = dict.fromkeys(candidates, 0)
        for member in self.members.values():
            preferred_name = next(name for name in member.protocol_names() if name in candidates)
            votes[preferred_name] += 1
        assert self.leader is not None
        leader_names = self.members[self.leader].protocol_names()
        # If several names have the most votes, max returns the one that the leader prefers.
        return max((name for name in leader_names if name in candidates), key=votes.__getitem__)

    def earliest_deadline(self) -> int:
        """Search all members and return the group's earliest deadline.

        The lower bound `wake` is never later than this deadline.
        """
        return min(
            self.join_deadline,
            self.sync_deadline,
            min((member.deadline for member in self.members.values()), default=NEVER),
            min(self.pending.values(), default=NEVER),
        )

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        """Add the member's protocols to the counts of the group, or subtract them if `change` is -1."""
        self.metadata_size += change * member.metadata_size()
        for name in member.protocol_names():
            count = self.supported_protocols.get(name, 0) + change
            if count:
                self.supported_protocols[name] = count
            else:
                del self.supported_protocols[name]


@dataclass(slots=True)
class CoordinatorState:
    """The groups of a coordinator, and its timers.

    Without `topics` the coordinator accepts commits for every topic name, and knows no topic id.
    """

    settings: GroupSettings = field(default_factory=GroupSettings)
    topics: TopicCatalog | None = None
    groups: dict[str, ClassicGroup] = field(default_factory=dict[str, ClassicGroup])
    # Maps a producer id to the groups to which the producer committed offsets in its open transaction.
    pending_groups: dict[int, dict[str, None]] = field(default_factory=dict[int, dict[str, None]])
    # The number of commits so far. It is the sequence number of the latest commit.
    commits: int = 0
    cleanup_deadline: int = NEVER
    # Maps a group id to the group's `wake`, a lower bound of its deadlines.
    deadlines: Deadlines[str] = field(default_factory=Deadlines[str])

    def find(self, group_id: str) -> ClassicGroup:
        """Return the group. If it does not exist, return a new Dead group, which is not stored."""
        return self.groups.get(group_id) or ClassicGroup(group_id)


@dataclass(slots=True)
class GroupContext:
    """The context of one call of `step`: the coordinator, the time, and the actions so far."""

    coordinator: CoordinatorState
    now: int
    actions: list[CoordinatorAction] = field(default_factory=list[CoordinatorAction])

    def reply(self, call: RequestReceived[Message], response: Message) -> None:
        """Send the response to a request. Each request gets exactly one response."""
        self.actions.append(SendResponse(call.token, response))

    def wake_at(self, group: ClassicGroup, deadline: int) -> int:
        """Register a deadline of the group and return it.

        The caller stores the returned deadline: `group.join_deadline = context.wake_at(group, ...)`.
        """
        if deadline < group.wake:
            group.wake = deadline
            self.coordinator.deadlines.set(group.group_id, deadline)
        return deadline

    def restart_session(self, group: ClassicGroup, member: ClassicGroupMember) -> None:
        """Restart the member's session timeout (R133)."""
        member.deadline = self.wake_at(group, self.now + member.session_timeout_ms)


def member_error(group: ClassicGroup, member_id: str, group_instance_id: str | None) -> ErrorCode:
    """Return NONE if the ids belong to a member of the group, otherwise the error code (R15).

    The instance id is checked before the member id. So a request from the former process of a static member
    is answered with FENCED_INSTANCE_ID, not UNKNOWN_MEMBER_ID.
    """
    if group_instance_id is not None:
        current_id = group.instances.get(group_instance_id)
        if current_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if current_id != member_id:
            return ErrorCode.FENCED_INSTANCE_ID
    return ErrorCode.NONE if member_id in group else ErrorCode.UNKNOWN_MEMBER_ID


def is_subscribed(group: ClassicGroup, topic: str) -> bool:
    """Return whether a member subscribes to this topic; True if the subscriptions are unknown."""
    topics = subscribed_topics(group)
    return topics is None or topic in topics


def subscribed_topics(group: ClassicGroup) -> frozenset[str] | None:
    """Return the topics to which members subscribed when this generation began (R128).

    The result is None before the first generation, and if the metadata of a member cannot be decoded.
    """
    if group.subscriptions is None:
        return None
    topics: set[str] = set()
    for metadata in dict.fromkeys(group.subscriptions):
        if len(metadata) < 2:
            return None
        try:
            # The first two bytes are the version. Every later version begins with the fields of version 0, so
            # the topics are decoded as in version 0.
            topics.update(ConsumerProtocolSubscription.decode(metadata[2:], 0).topics)
        except DecodeError:
            return None
    return frozenset(topics)


def move(context: GroupContext, group: ClassicGroup, state: ClassicGroupState) -> None:
    """Move the group along one of EDGES (R9, R10).

    A move out of Dead creates the group, and a move to Dead deletes it.
    """
    previous_state = group.state
    machine.move(group, state, EDGES)
    group.state_since = context.now
    if previous_state is ClassicGroupState.DEAD:
        context.coordinator.groups[group.group_id] = group
    elif state is ClassicGroupState.DEAD:
        del context.coordinator.groups[group.group_id]
        context.coordinator.deadlines.drop(group.group_id)
    elif state in (ClassicGroupState.EMPTY, ClassicGroupState.STABLE):
        # Kafka writes a group to its log when a rebalance makes it Empty or Stable (R176). Whether a new
        # group is written depends on the request that creates it.
        group.written = True
