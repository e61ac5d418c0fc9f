"""The client's half of the group protocol: one member of one group, without sockets or clocks.

Feed `step` with what happened and do what it returns, in order; ask `next_deadline` when to send a `Tick`.
The engine finds the coordinator, sends the requests and brings their answers back; the application lets go of
partitions when told to, and the engine answers `Released`.

The rules are those of Java's AbstractCoordinator and ConsumerCoordinator:

* A JoinGroup is sent only after the application let go: eager members of everything, cooperative ones of
  topics that they don't want any more. That is the only difference before the join; after it, a cooperative
  member lets go of what it did not get again, takes the assignment over, and joins a second time.
* Heartbeats go on while the application lets go and while the SyncGroup is open, but not while a JoinGroup
  is.
* An answer counts for what was sent: an UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION or FENCED_INSTANCE_ID that
  answers an older generation or member id changes nothing. One that answers the present, on any request,
  loses all partitions at once, and the member joins again and says why (KIP-800).
* Only one `Revoke` or `Lose` is unanswered at a time; a `Lose` takes the place of an open `Revoke`.
* The leader watches the partitions of all topics of the group, and asks for a rebalance when they changed.

Where kproto differs from Java, because Java's members lose records or fight for ever:

* FENCED_INSTANCE_ID ends the member for good. Java's joins again at the next poll and fences the other one
  back.
* An error that Java throws from one poll while it keeps the assignment, and sends no heartbeat, is `Fatal`
  and `Lose`: nobody may go on with partitions that the group gives to others.
* Partitions are lost when max.poll.interval.ms is over, not at the poll after it.
* SyncGroup's COORDINATOR_LOAD_IN_PROGRESS is tried again after a backoff, as JoinGroup's is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from ..error_codes import ErrorCode
from ..errors import BrokerError, ConfigError, Fenced, IllegalState, KprotoError, NotAuthorized
from ..messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ..messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from ..messages.leave_group import LeaveGroupRequest, MemberIdentity
from ..messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from ..wire.message import Message
from . import leader
from .assignors import chosen, is_cooperative
from .member_events import (
    JAVA,
    Action,
    Assign,
    Close,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    Event,
    Failed,
    Fatal,
    FindCoordinator,
    Left,
    Lose,
    MemberConfig,
    Metadata,
    Policy,
    Polled,
    Received,
    Rejoining,
    Released,
    RequestRejoin,
    Revoke,
    Send,
    Subscribe,
    Tick,
    Unsubscribe,
    WantMetadata,
)
from .subscription import Assignment, Subscription, TopicPartition

__all__ = [
    "JAVA",
    "Action",
    "Assign",
    "Close",
    "CommitAnswered",
    "CoordinatorFound",
    "CoordinatorLost",
    "Event",
    "Failed",
    "Fatal",
    "FindCoordinator",
    "Identity",
    "Left",
    "Lose",
    "Member",
    "MemberConfig",
    "MemberState",
    "Metadata",
    "Policy",
    "Polled",
    "Received",
    "Rejoining",
    "Released",
    "RequestRejoin",
    "Revoke",
    "Send",
    "Subscribe",
    "Tick",
    "Unsubscribe",
    "WantMetadata",
    "next_deadline",
    "step",
]

PROTOCOL_TYPE = "consumer"
JOIN_GRACE_MS = 5_000  # AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE
MAX_REASON = 255  # AbstractCoordinator.maybeTruncateReason

# KIP-800's reasons, word for word as Java's.
ALREADY_REBALANCING = "group is already rebalancing"
COMMIT_WHILE_REBALANCING = "offset commit failed since group is already rebalancing"
METADATA_CHANGED = "cached metadata has changed"
SUBSCRIPTION_CHANGED = "subscription has changed"
NOT_OUR_SUBSCRIPTION = "received assignment does not match the current subscription"
REVOKED_SOME = "need to revoke partitions and re-join"
POLL_TIMEOUT = "consumer poll timeout has expired."
BEING_CLOSED = "the consumer is being closed"
UNSUBSCRIBED = "the consumer unsubscribed from all topics"
LEFT_BY_ITSELF = "consumer pro-actively leaving the group"
GET_MEMBER_ID = "need to re-join with the given member-id: {}"
ENCOUNTERED = "encountered {} from {} response"
FAILED_WITH = "rebalance failed due to {}"
NO_ANSWER = "no answer from the coordinator for session.timeout.ms"  # ours: Java has no such reason

# Java names its exception classes in FAILED_WITH; for codes that it does not expect, this one.
JAVA_OTHER = "KafkaException"
JAVA_EXCEPTIONS: dict[int, str] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "CoordinatorLoadInProgressException",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "CoordinatorNotAvailableException",
    ErrorCode.NOT_COORDINATOR: "NotCoordinatorException",
    ErrorCode.ILLEGAL_GENERATION: "IllegalGenerationException",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "InconsistentGroupProtocolException",
    ErrorCode.INVALID_GROUP_ID: "InvalidGroupIdException",
    ErrorCode.UNKNOWN_MEMBER_ID: "UnknownMemberIdException",
    ErrorCode.INVALID_SESSION_TIMEOUT: "InvalidSessionTimeoutException",
    ErrorCode.REBALANCE_IN_PROGRESS: "RebalanceInProgressException",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "GroupAuthorizationException",
    ErrorCode.UNSUPPORTED_VERSION: "UnsupportedVersionException",
    ErrorCode.GROUP_MAX_SIZE_REACHED: "GroupMaxSizeReachedException",
    ErrorCode.FENCED_INSTANCE_ID: "FencedInstanceIdException",
}


# States


class MemberState(Enum):
    """Where the member is: Java's four states, and ours for waiting."""

    idle = "idle"  # subscribed to nothing, in no group
    unjoined = "unjoined"  # wants to join: waits for the coordinator or a backoff
    releasing = "releasing"  # waits for the application to let go, then joins
    joining = "joining"  # JoinGroup is open (Java: PREPARING_REBALANCE)
    planning = "planning"  # leader: waits for the metadata of all members' topics
    syncing = "syncing"  # SyncGroup is open (Java: COMPLETING_REBALANCE)
    adopting = "adopting"  # cooperative: waits for the application to let go, then takes the assignment over
    stable = "stable"  # owns its assignment
    dropped = "dropped"  # left, because the application did not poll; the next poll joins again
    failed = "failed"  # an error was reported with `Fatal`; the next poll tries again
    fenced = "fenced"  # another process has this group.instance.id: over for good
    unsubscribing = "unsubscribing"  # waits for the application to let go, then leaves
    closing = "closing"  # the same for close
    leaving = "leaving"  # close: LeaveGroup is open
    closed = "closed"


S = MemberState
_LET_GO = {S.releasing, S.unjoined, S.failed, S.fenced, S.unsubscribing, S.closing}

EDGES: dict[MemberState, set[MemberState]] = {
    S.idle: {S.unjoined, S.closing},
    S.unjoined: {S.joining, *_LET_GO} - {S.unjoined},
    S.releasing: {S.unjoined, S.dropped, S.fenced, S.unsubscribing, S.closing},
    S.joining: {S.planning, S.syncing, *_LET_GO},
    S.planning: {S.syncing, S.dropped, *_LET_GO},
    S.syncing: {S.adopting, S.stable, S.dropped, *_LET_GO},
    S.adopting: {S.stable, S.dropped, *_LET_GO},
    S.stable: {S.joining, S.dropped, *_LET_GO},
    S.dropped: {S.releasing, S.unjoined, S.unsubscribing, S.closing},
    S.failed: {S.releasing, S.unjoined, S.unsubscribing, S.closing},
    S.fenced: {S.closing},
    S.unsubscribing: {S.idle, S.unjoined, S.closing},
    S.closing: {S.leaving, S.closed},
    S.leaving: {S.closed},
    S.closed: set(),
}

HEARTBEATING = {S.releasing, S.planning, S.syncing, S.adopting, S.stable, S.unsubscribing, S.closing}
"""Where heartbeats go out, as long as there is a generation to send."""
POLL_WATCHED = HEARTBEATING - {S.unsubscribing, S.closing}
"""Where max.poll.interval.ms counts."""
LOOKING = {S.unjoined, S.releasing, S.joining, S.planning, S.syncing, S.adopting, S.stable}
"""Where an unknown coordinator is looked for."""


# The member


@dataclass(frozen=True, slots=True)
class Identity:
    """Who this member is to the coordinator: what an OffsetCommit has to carry."""

    generation: int
    member_id: str
    group_instance_id: str | None
    protocol: str


class Member:
    """One member of one group. Only `step` changes it; read what you like.

    Raises ConfigError for assignors that are unknown or can't be combined, timeouts that contradict each
    other, and instance ids that no broker takes.
    """

    def __init__(self, config: MemberConfig) -> None:
        _check(config)
        self.config = config
        self.assignors = chosen(config.assignors)
        self.cooperative = is_cooperative(self.assignors)
        self.state = MemberState.idle

        self.topics: frozenset[str] = frozenset()
        self.pattern: str | None = None
        self.joined_topics: frozenset[str] = frozenset()  # what the last JoinGroup said
        self.owned: tuple[TopicPartition, ...] = ()
        self.letting_go: tuple[TopicPartition, ...] | None = None  # of the unanswered Revoke or Lose
        self.adopting: Assignment | None = None
        self.last_assigned: tuple[TopicPartition, ...] | None = None  # the sticky assignors' memory
        self.last_generation = -1

        # Java's Generation: the triple that every request is sent with.
        self.generation: int | None = None
        self.member_id = ""
        self.protocol: str | None = None

        self.rejoin_needed = True
        self.reason = ""
        self.prepared = False  # the application has let go for the next join
        self.open: Message | None = None  # the JoinGroup or SyncGroup in flight
        self.heartbeat: Message | None = None  # the heartbeat in flight
        self.leave: Message | None = None  # close: the LeaveGroup in flight
        self.leave_on_close = True

        self.coordinator: object | None = None
        self.finding = False
        self.finds_failed = 0
        self.heartbeats_failed = 0

        # Deadlines, in milliseconds; None where there is nothing to wait for.
        self.heartbeat_at: int | None = None
        self.session_at: int | None = None
        self.poll_at: int | None = None
        self.retry_at: int | None = None
        self.find_at: int | None = None
        self.close_at: int | None = None

        self.leads = False
        self.group: dict[str, Subscription] = {}
        self.skip_assignment = False
        self.metadata = Metadata({})
        self.planned_with: Metadata | None = None
        self.snapshot: leader.Snapshot | None = None
        self.existed: dict[str, int] = {}

    @property
    def identity(self) -> Identity | None:
        """The identity to commit with, or None while there is none: not joined, joining, lost.

        It is valid while the application lets go of partitions (`Revoke`), and gone after `Lose`. It is new
        before `Revoke` and `Assign` come out, so that callbacks can commit with it.
        """
        if self.generation is None or self.protocol is None or self.state not in HEARTBEATING:
            return None
        if self.rebalancing:
            return None
        return Identity(self.generation, self.member_id, self.config.group_instance_id, self.protocol)

    @property
    def rebalancing(self) -> bool:
        """JoinGroup or SyncGroup is open: a commit now is refused by Java with RebalanceInProgress."""
        return self.state in (S.joining, S.planning, S.syncing)

    @property
    def topics_of_interest(self) -> frozenset[str]:
        """The topics whose metadata must be kept: the subscription, and for a leader the whole group's."""
        return self.topics | self.joined_topics | leader.topics_of(self.group)


def step(member: Member, event: Event, now: int) -> list[Action]:
    """Let `event` happen at `now` (milliseconds) and return what to do, in order."""
    out: list[Action] = []
    TABLE[kind(event)][member.state](member, event, now, out)
    _go_on(member, now, out)
    return out


def next_deadline(member: Member) -> int | None:
    """When to send the next `Tick`, in the same milliseconds as `now`; None: not before something happens."""
    found: list[int | None] = [member.close_at]
    known = member.coordinator is not None
    if known and _heartbeats(member):
        found.append(member.session_at)
        if member.heartbeat is None:
            found.append(member.heartbeat_at)
    if member.state in POLL_WATCHED:
        found.append(member.poll_at)
    if known and member.state is S.unjoined:
        found.append(member.retry_at)
    if not known and not member.finding and member.state in LOOKING:
        found.append(member.find_at)
    return min((at for at in found if at is not None), default=None)


def kind(event: Event) -> str:
    """The row of the table: the event's name, and for answers the request's."""
    if isinstance(event, Received):
        return type(event.request).__name__.replace("Request", "Answered")
    return type(event).__name__


Out = list[Action]


# Wanting and not wanting


def _subscribe(member: Member, event: Subscribe, now: int, out: Out) -> None:
    if not event.topics and event.pattern is None:
        TABLE["Unsubscribe"][member.state](member, Unsubscribe(), now, out)
        return
    same_pattern = event.pattern is not None and event.pattern == member.pattern
    if same_pattern and member.leads and event.topics != member.topics and member.state is S.stable:
        # A pattern's matches changed because the metadata did, and Java looks at the metadata first.
        _want_rejoin(member, METADATA_CHANGED)
    member.topics, member.pattern = event.topics, event.pattern
    if member.state is S.idle:
        _move(member, S.unjoined)


def _unsubscribe(member: Member, event: Unsubscribe, now: int, out: Out) -> None:
    member.topics, member.pattern = frozenset(), None
    _let_go_then(member, S.unsubscribing, UNSUBSCRIBED, now, out)


def _forget_topics(member: Member, event: Unsubscribe, now: int, out: Out) -> None:
    member.topics, member.pattern = frozenset(), None


def _request_rejoin(member: Member, event: RequestRejoin, now: int, out: Out) -> None:
    _want_rejoin(member, event.reason)


# The application polls, and lets go


def _polled(member: Member, event: Polled, now: int, out: Out) -> None:
    if member.poll_at is not None:
        member.poll_at = now + member.config.rebalance_timeout_ms


def _polled_again(member: Member, event: Polled, now: int, out: Out) -> None:
    """The application is back after it was dropped, or has seen the error that `Fatal` reported."""
    _move(member, S.unjoined if member.letting_go is None else S.releasing)


def _released(member: Member, event: Released, now: int, out: Out) -> None:
    _forget_let_go(member)


def _released_to_join(member: Member, event: Released, now: int, out: Out) -> None:
    _forget_let_go(member)
    member.prepared = True
    _move(member, S.unjoined)


def _released_to_adopt(member: Member, event: Released, now: int, out: Out) -> None:
    _forget_let_go(member)
    assert member.adopting is not None
    _adopt(member, member.adopting, out)
    _want_rejoin(member, REVOKED_SOME)


def _released_to_leave(member: Member, event: Released, now: int, out: Out) -> None:
    _forget_let_go(member)
    if member.owned:  # what was let go of was only a part
        _let_go(member, member.owned, member.generation is None, UNSUBSCRIBED, out)
    elif member.state is S.unsubscribing:
        _leave_unsubscribed(member, now, out)
    else:
        _leave_closing(member, now, out)


# The coordinator


def _coordinator_found(member: Member, event: CoordinatorFound, now: int, out: Out) -> None:
    member.coordinator, member.finding, member.find_at = event.node, False, None
    member.finds_failed = 0
    if member.session_at is not None:
        member.session_at = now + member.config.session_timeout_ms


def _coordinator_lost(member: Member, event: CoordinatorLost, now: int, out: Out) -> None:
    if member.finding:
        member.finding = False
        member.find_at = now + _growing(member, member.finds_failed)
        member.finds_failed += 1
        return
    _lose_coordinator(member, now)


def _coordinator_lost_leaving(member: Member, event: CoordinatorLost, now: int, out: Out) -> None:
    _close_now(member, out)


def _failed(member: Member, event: Failed, now: int, out: Out) -> None:
    if event.request is member.open or event.request is member.heartbeat:
        if event.request is member.heartbeat:
            _heartbeat_failed(member, now)
        _lose_coordinator(member, now)


def _leave_failed(member: Member, event: Failed, now: int, out: Out) -> None:
    if event.request is member.leave:
        _close_now(member, out)


# Joining


def _join_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is not member.open:
        return
    answer = event.response
    assert isinstance(answer, JoinGroupResponse)
    member.open = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        _joined(member, answer, now, out)
    elif code == ErrorCode.MEMBER_ID_REQUIRED:
        member.generation, member.member_id, member.protocol = None, answer.member_id, None
        _want_rejoin(member, GET_MEMBER_ID.format(answer.member_id))
        _move(member, S.unjoined)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        _fence(member, "JoinGroup", out)
    elif code == ErrorCode.UNKNOWN_MEMBER_ID:
        _reset(member, FAILED_WITH.format(_java_name(code)), out, keep_id=False)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        _join_later(member, _java_name(code), now, member.config.retry_backoff_ms)
        _lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        _join_later(member, _java_name(code), now, member.config.retry_backoff_ms)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        _join_later(member, _java_name(code), now, 0)
    else:
        _fail(member, _error(code, "JoinGroup", member.config), _java_name(code), out)


def _joined(member: Member, answer: JoinGroupResponse, now: int, out: Out) -> None:
    known = {assignor.name for assignor in member.assignors}
    if (answer.protocol_type or PROTOCOL_TYPE) != PROTOCOL_TYPE or answer.protocol_name not in known:
        theirs = f"{answer.protocol_type or PROTOCOL_TYPE} {answer.protocol_name}"
        detail = f"the group uses {theirs}, this member {PROTOCOL_TYPE} {sorted(known)}"
        code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        _fail(member, BrokerError(code, "JoinGroup", detail), JAVA_EXCEPTIONS[code], out)
        return
    member.generation = answer.generation_id
    member.member_id = answer.member_id
    member.protocol = answer.protocol_name
    config = member.config
    member.heartbeats_failed = 0
    member.heartbeat_at = now + config.heartbeat_interval_ms
    member.session_at = now + config.session_timeout_ms
    member.poll_at = now + config.rebalance_timeout_ms
    member.leads = answer.leader == answer.member_id
    member.snapshot = None
    if not member.leads:
        if config.policy.every_member_watches:
            member.snapshot = leader.snapshot(member.topics, member.metadata, config.rack_id is not None)
        _sync(member, [], out)
        return
    member.group = leader.subscriptions(
        (m.member_id, m.group_instance_id, m.metadata) for m in answer.members
    )
    member.skip_assignment = answer.skip_assignment
    topics = leader.topics_of(member.group)
    _move(member, S.planning)
    if topics <= member.metadata.partitions.keys():
        _plan(member, out)
    else:
        out.append(WantMetadata(topics))


def _plan(member: Member, out: Out) -> None:
    """The leader's work: divide what the group wants, and remember by what knowledge."""
    topics = leader.topics_of(member.group)
    first = member.generation == 1
    member.existed = leader.existed_by_now(
        member.existed, topics, member.metadata, member.planned_with, first
    )
    member.planned_with = member.metadata
    member.snapshot = leader.snapshot(topics, member.metadata, member.config.rack_id is not None)
    assignments: list[SyncGroupRequestAssignment] = []
    if not member.skip_assignment:  # KIP-814: a static leader came back, and its old plan holds
        assignor = next(a for a in member.assignors if a.name == member.protocol)
        try:
            assignments = leader.plan(assignor, member.group, member.metadata, member.existed)
        except Exception as error:
            failure = IllegalState(f"the assignor {assignor.name!r} failed: {error!r}")
            failure.__cause__ = error
            _fail(member, failure, type(error).__name__, out)
            return
    _sync(member, assignments, out)


def _sync(member: Member, assignments: list[SyncGroupRequestAssignment], out: Out) -> None:
    assert member.generation is not None
    request = SyncGroupRequest(
        group_id=member.config.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.protocol,
        assignments=assignments,
    )
    member.open = request
    out.append(Send(request))
    _move(member, S.syncing)


def _metadata(member: Member, event: Metadata, now: int, out: Out) -> None:
    if event.asked is None:
        member.metadata = event
        return
    old = member.metadata
    member.metadata = Metadata(
        {**{t: n for t, n in old.partitions.items() if t not in event.asked}, **event.partitions},
        complete=event.complete,
        ids={**old.ids, **event.ids},
        racks={**old.racks, **event.racks},
    )


def _metadata_for_plan(member: Member, event: Metadata, now: int, out: Out) -> None:
    _metadata(member, event, now, out)
    topics = leader.topics_of(member.group)
    if event.asked is None or topics <= event.asked or topics <= member.metadata.partitions.keys():
        _plan(member, out)


def _sync_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is not member.open:
        return
    answer = event.response
    assert isinstance(answer, SyncGroupResponse)
    member.open = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        _synced(member, answer, out)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        _fence(member, "SyncGroup", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        reason = FAILED_WITH.format(_java_name(code))
        _reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        _join_later(member, _java_name(code), now, 0)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        _join_later(member, _java_name(code), now, member.config.retry_backoff_ms)
        _lose_coordinator(member, now)
    elif code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        _join_later(member, _java_name(code), now, member.config.retry_backoff_ms)
    else:
        _fail(member, _error(code, "SyncGroup", member.config), _java_name(code), out)


def _synced(member: Member, answer: SyncGroupResponse, out: Out) -> None:
    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    got = (answer.protocol_type or PROTOCOL_TYPE, answer.protocol_name or member.protocol)
    if got != (PROTOCOL_TYPE, member.protocol):
        detail = f"the group uses {got[0]} {got[1]}, but this member joined with {member.protocol}"
        _fail(member, BrokerError(code, "SyncGroup", detail), JAVA_EXCEPTIONS[code], out)
        return
    try:
        assignment = Assignment.decode(answer.assignment)
    except KprotoError as error:
        _fail(member, error, JAVA_OTHER, out)
        return
    member.rejoin_needed, member.prepared, member.reason = False, False, ""
    if not all(_wants(member, topic) for topic in {tp.topic for tp in assignment.partitions}):
        _want_rejoin(member, NOT_OUR_SUBSCRIPTION)
        _move(member, S.stable)
        return
    existed = leader.read_existed(assignment.user_data)
    if existed is not None:
        member.existed = existed
    if member.pattern is not None:  # the leader may know topics that this member has not met yet
        met = {tp.topic for tp in assignment.partitions}
        member.topics, member.joined_topics = member.topics | met, member.joined_topics | met
    gone = set(member.owned).difference(assignment.partitions)
    if gone:
        member.adopting = assignment
        _let_go(member, gone, False, REVOKED_SOME, out)
        _move(member, S.adopting)
    else:
        _adopt(member, assignment, out)


def _adopt(member: Member, assignment: Assignment, out: Out) -> None:
    """Own what was assigned; the application hears of what is new, even when that is nothing."""
    assert member.generation is not None
    owned = tuple(sorted(set(assignment.partitions)))
    before = set(member.owned)
    added = tuple(tp for tp in owned if tp not in before)
    new = leader.new_partitions(added, member.existed)
    member.owned, member.adopting = owned, None
    member.last_assigned, member.last_generation = owned, member.generation
    _move(member, S.stable)
    out.append(Assign(added, owned, member.generation, member.generation == 1, new, dict(member.existed)))


# Staying


def _heartbeat_answered(member: Member, event: Received, now: int, out: Out) -> None:
    request, answer = event.request, event.response
    assert isinstance(request, HeartbeatRequest)
    assert isinstance(answer, HeartbeatResponse)
    if request is member.heartbeat:
        member.heartbeat = None
    code = answer.error_code
    if code == ErrorCode.NONE:
        _heard(member, now)
    elif code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR):
        _heartbeat_failed(member, now)
        _lose_coordinator(member, now)
    elif not _is_present(member, request.generation_id, request.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        _heard(member, now)
        if member.state in (S.stable, S.adopting):
            _want_rejoin(member, ALREADY_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        _fence(member, "Heartbeat", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        _encountered(member, code, "HEARTBEAT", out)
    else:
        _heartbeat_failed(member, now)


def _commit_answered(member: Member, event: CommitAnswered, now: int, out: Out) -> None:
    code = event.error_code
    if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.REQUEST_TIMED_OUT):
        _lose_coordinator(member, now)
    elif not _is_present(member, event.generation, event.member_id):
        return
    elif code == ErrorCode.REBALANCE_IN_PROGRESS:
        if member.state in (S.stable, S.adopting):
            _want_rejoin(member, COMMIT_WHILE_REBALANCING)
    elif code == ErrorCode.FENCED_INSTANCE_ID:
        _fence(member, "OffsetCommit", out)
    elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
        _encountered(member, code, "OFFSET_COMMIT", out)


# Leaving


def _close(member: Member, event: Close, now: int, out: Out) -> None:
    member.close_at = now + event.timeout_ms
    member.leave_on_close = event.leave
    member.topics, member.pattern = frozenset(), None
    _let_go_then(member, S.closing, BEING_CLOSED, now, out)


def _close_sooner(member: Member, event: Close, now: int, out: Out) -> None:
    assert member.close_at is not None
    member.close_at = min(member.close_at, now + event.timeout_ms)


def _leave_answered(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is member.leave:
        _close_now(member, out)


# Time


def _tick(member: Member, event: Tick, now: int, out: Out) -> None:
    if member.close_at is not None and now >= member.close_at:
        if member.state is S.closing and member.leave_on_close:
            _send_leave(member, BEING_CLOSED, out)  # nobody waits for its answer
        _close_now(member, out)
        return
    if member.state in POLL_WATCHED and member.poll_at is not None and now >= member.poll_at:
        _drop(member, out)
        return
    if member.coordinator is None or not _heartbeats(member):
        return
    if member.session_at is not None and now >= member.session_at:
        _session_timed_out(member, now, out)
    elif member.heartbeat is None and member.heartbeat_at is not None and now >= member.heartbeat_at:
        _beat(member, now, out)


def _session_timed_out(member: Member, now: int, out: Out) -> None:
    if member.config.policy.lose_on_session_timeout:
        _reset(member, NO_ANSWER, out, keep_id=False)
    _lose_coordinator(member, now)


def _beat(member: Member, now: int, out: Out) -> None:
    assert member.generation is not None
    request = HeartbeatRequest(
        group_id=member.config.group_id,
        generation_id=member.generation,
        member_id=member.member_id,
        group_instance_id=member.config.group_instance_id,
    )
    member.heartbeat = request
    member.heartbeat_at = now + member.config.heartbeat_interval_ms
    out.append(Send(request))


def _drop(member: Member, out: Out) -> None:
    """The application did not poll in time: leave, so that others can have the partitions."""
    _send_leave(member, POLL_TIMEOUT, out)
    _forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    if member.owned:
        _let_go(member, member.owned, True, POLL_TIMEOUT, out)
    _move(member, S.dropped)


# What every event may have made possible


def _go_on(member: Member, now: int, out: Out) -> None:
    if member.state is S.stable:
        _watch(member)
    if member.coordinator is None and not member.finding and member.state in LOOKING:
        if member.find_at is None or now >= member.find_at:
            member.finding = True
            out.append(FindCoordinator())
        return
    if member.coordinator is None or (member.state is S.stable and not member.rejoin_needed):
        return
    if member.state is S.stable or (member.state is S.unjoined and not _waits(member, now)):
        _prepare(member, out)


def _watch(member: Member) -> None:
    """Look for reasons to join again; the first one stands."""
    if member.snapshot is not None and not member.rejoin_needed:
        with_racks = member.config.rack_id is not None
        topics = leader.topics_of(member.group) if member.leads else member.joined_topics
        if leader.snapshot(topics, member.metadata, with_racks) != member.snapshot:
            _want_rejoin(member, METADATA_CHANGED)
    if member.joined_topics != member.topics and not member.rejoin_needed:
        _want_rejoin(member, SUBSCRIPTION_CHANGED)


def _prepare(member: Member, out: Out) -> None:
    """Have the application let go of what can't be kept over the join, then join."""
    if not member.prepared:
        member.leads, member.group = False, {}
        going = member.owned
        if member.cooperative:
            going = tuple(tp for tp in member.owned if not _wants(member, tp.topic))
        # Java's eager members call the callback with nothing too, but not before the first generation.
        if member.generation is not None and (going or not member.cooperative):
            _let_go(member, going, False, member.reason, out)
            _move(member, S.releasing)
            return
        member.prepared = True
    _join(member, out)


def _join(member: Member, out: Out) -> None:
    config = member.config
    member.joined_topics = member.topics
    request = JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.rebalance_timeout_ms,
        member_id=member.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=PROTOCOL_TYPE,
        protocols=[
            JoinGroupRequestProtocol(
                name=assignor.name,
                metadata=Subscription(
                    topics=tuple(member.topics),
                    user_data=assignor.user_data(member.last_assigned, member.last_generation),
                    owned=member.owned,
                    generation=member.generation,
                    rack_id=config.rack_id,
                ).encode(),
            )
            for assignor in member.assignors
        ],
        reason=member.reason[:MAX_REASON],
    )
    member.open, member.retry_at, member.session_at, member.poll_at = request, None, None, None
    out.append(Rejoining(member.reason))
    out.append(Send(request, timeout_ms=config.rebalance_timeout_ms + JOIN_GRACE_MS))
    _move(member, S.joining)


# Letting go


def _let_go(member: Member, partitions: Iterable[TopicPartition], lost: bool, reason: str, out: Out) -> None:
    going = tuple(sorted(partitions))
    member.letting_go = going
    out.append(Lose(going, reason) if lost else Revoke(going, reason))


def _forget_let_go(member: Member) -> None:
    gone = set(member.letting_go or ())
    member.owned = tuple(tp for tp in member.owned if tp not in gone)
    member.letting_go = None


def _let_go_then(member: Member, then: MemberState, reason: str, now: int, out: Out) -> None:
    """Leave by the front door: the application lets go of everything, then LeaveGroup."""
    if member.state is S.unjoined or member.rebalancing:
        member.generation = None  # nobody knows whether the partitions are still this member's
    member.adopting = None
    _move(member, then)
    if member.letting_go is not None:
        return
    if member.owned:
        _let_go(member, member.owned, member.generation is None, reason, out)
    elif then is S.unsubscribing:
        _leave_unsubscribed(member, now, out)
    else:
        _leave_closing(member, now, out)


def _leave_unsubscribed(member: Member, now: int, out: Out) -> None:
    _send_leave(member, UNSUBSCRIBED, out)
    _forget_membership(member, LEFT_BY_ITSELF, keep_id=False)
    _move(member, S.unjoined if member.topics or member.pattern is not None else S.idle)


def _leave_closing(member: Member, now: int, out: Out) -> None:
    member.leave = _send_leave(member, BEING_CLOSED, out) if member.leave_on_close else None
    if member.leave is None:
        _close_now(member, out)
    else:
        _move(member, S.leaving)


def _send_leave(member: Member, reason: str, out: Out) -> Message | None:
    """Static members don't leave: their partitions wait for them until the session times out (KIP-345)."""
    if member.config.group_instance_id is not None or member.coordinator is None or not member.member_id:
        return None
    who = MemberIdentity(member_id=member.member_id, group_instance_id=None, reason=reason[:MAX_REASON])
    request = LeaveGroupRequest(group_id=member.config.group_id, members=[who])
    out.append(Send(request, urgent=member.open is not None))
    return request


def _close_now(member: Member, out: Out) -> None:
    _forget_membership(member, BEING_CLOSED, keep_id=False)
    member.owned, member.letting_go, member.close_at = (), None, None
    _move(member, S.closed)
    out.append(Left())


def _join_answered_leaving(member: Member, event: Received, now: int, out: Out) -> None:
    """The answer to a JoinGroup that is not wanted any more still says who has to leave."""
    assert isinstance(event.response, JoinGroupResponse)
    if event.request is member.open:
        member.open = None
        member.member_id = event.response.member_id or member.member_id


def _sync_answered_leaving(member: Member, event: Received, now: int, out: Out) -> None:
    if event.request is member.open:
        member.open = None


# Refusals


def _encountered(member: Member, code: int, request: str, out: Out) -> None:
    """The coordinator doesn't know the present member or generation: lose, join again at once, say why."""
    if member.state is S.joining and not member.owned:
        return  # nothing to lose, and the open JoinGroup asks the same question
    reason = ENCOUNTERED.format(ErrorCode(code).name, request)
    _reset(member, reason, out, keep_id=code == ErrorCode.ILLEGAL_GENERATION)


def _reset(member: Member, reason: str, out: Out, *, keep_id: bool) -> None:
    _forget_membership(member, reason, keep_id=keep_id)
    if member.owned:
        _let_go(member, member.owned, True, reason, out)
    if member.state in (S.unsubscribing, S.closing):
        return
    _move(member, S.unjoined if member.letting_go is None else S.releasing)


def _forget_membership(member: Member, reason: str, *, keep_id: bool) -> None:
    member.generation, member.protocol = None, None
    if not keep_id:
        member.member_id = ""
    member.rejoin_needed, member.reason, member.prepared = True, reason, True
    member.open, member.heartbeat, member.adopting = None, None, None
    member.heartbeat_at = member.session_at = member.poll_at = member.retry_at = None
    member.leads, member.group, member.snapshot = False, {}, None


def _fail(member: Member, error: KprotoError, reason: str, out: Out) -> None:
    """Report what only the application can mend. The next poll tries again, with the same member id."""
    _forget_membership(member, FAILED_WITH.format(reason), keep_id=True)
    if member.owned:
        _let_go(member, member.owned, True, member.reason, out)
    _move(member, S.failed)
    out.append(Fatal(error))


def _fence(member: Member, request: str, out: Out) -> None:
    code = ErrorCode.FENCED_INSTANCE_ID
    _forget_membership(member, FAILED_WITH.format(JAVA_EXCEPTIONS[code]), keep_id=False)
    if member.owned:
        _let_go(member, member.owned, True, member.reason, out)
    _move(member, S.fenced)
    detail = (
        f"another process joined as group.instance.id {member.config.group_instance_id!r}; this one must stop"
    )
    out.append(Fatal(Fenced(code, request, detail), final=True))


def _join_later(member: Member, reason: str, now: int, backoff_ms: int) -> None:
    _want_rejoin(member, FAILED_WITH.format(reason))
    member.open = None
    member.retry_at = now + backoff_ms if backoff_ms else None
    _move(member, S.unjoined)


def _lose_coordinator(member: Member, now: int) -> None:
    """Look for another one; the JoinGroup or SyncGroup that is open there failed, the membership has not."""
    member.coordinator, member.heartbeat, member.open = None, None, None
    if member.rebalancing:
        _join_later(member, "DisconnectException", now, member.config.retry_backoff_ms)


def _ignored(member: Member, event: Event, now: int, out: Out) -> None:
    """It changes nothing here."""


# Shared


def _move(member: Member, to: MemberState) -> None:
    if to is not member.state:
        assert to in EDGES[member.state], f"{member.state.value} -> {to.value}"
        member.state = to


def _want_rejoin(member: Member, reason: str) -> None:
    member.rejoin_needed, member.reason = True, reason


def _waits(member: Member, now: int) -> bool:
    return member.retry_at is not None and now < member.retry_at


def _wants(member: Member, topic: str) -> bool:
    if member.pattern is not None:
        return re.fullmatch(member.pattern, topic) is not None
    return topic in member.topics


def _heartbeats(member: Member) -> bool:
    return member.state in HEARTBEATING and member.generation is not None


def _heard(member: Member, now: int) -> None:
    member.heartbeats_failed = 0
    if member.session_at is not None:
        member.session_at = now + member.config.session_timeout_ms


def _heartbeat_failed(member: Member, now: int) -> None:
    member.heartbeat_at = now + _growing(member, member.heartbeats_failed)
    member.heartbeats_failed += 1


def _growing(member: Member, failures: int) -> int:
    """Java's exponential backoff without its jitter."""
    backoff_ms: int = member.config.retry_backoff_ms * 2 ** min(failures, 16)
    return min(backoff_ms, max(member.config.retry_backoff_max_ms, member.config.retry_backoff_ms))


def _is_present(member: Member, generation: int, member_id: str) -> bool:
    """Whether an answer is about the member as it is now, and not as it was (M3)."""
    return member.generation is not None and (member.generation, member.member_id) == (generation, member_id)


def _java_name(code: int) -> str:
    return JAVA_EXCEPTIONS.get(code, JAVA_OTHER)


def _error(code: int, request: str, config: MemberConfig) -> BrokerError:
    refused = code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    return (NotAuthorized if refused else BrokerError)(code, request, f"group {config.group_id!r}")


def _check(config: MemberConfig) -> None:
    instance_id = config.group_instance_id
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        allowed = f"it has to be less than session.timeout.ms={config.session_timeout_ms}"
        raise ConfigError("heartbeat.interval.ms", config.heartbeat_interval_ms, allowed)
    if instance_id is not None:
        legal = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", instance_id) and instance_id not in (".", "..")
        if not legal:
            allowed = "1 to 249 of a-z A-Z 0-9 . _ -, but neither '.' nor '..'"
            raise ConfigError("group.instance.id", instance_id, allowed)


# The table: for every event and state what is done


Handler = Callable[[Member, Any, int, Out], None]


def _row(everywhere: Handler, **special: Handler) -> dict[MemberState, Handler]:
    row = dict.fromkeys(MemberState, everywhere)
    row.update({MemberState[name]: handler for name, handler in special.items()})
    return row


def _only(handler: Handler, *states: MemberState, **special: Handler) -> dict[MemberState, Handler]:
    return {**_row(_ignored, **special), **dict.fromkeys(states, handler)}


_JOINED = (S.planning, S.syncing, S.adopting, S.stable)
_MEMBER = (S.unjoined, S.releasing, S.joining, *_JOINED)

TABLE: dict[str, dict[MemberState, Handler]] = {
    "Subscribe": _only(_subscribe, S.idle, *_MEMBER, S.dropped, S.failed, S.unsubscribing),
    "Unsubscribe": _only(_unsubscribe, *_MEMBER, S.dropped, S.failed, unsubscribing=_forget_topics),
    "RequestRejoin": _only(_request_rejoin, S.stable, S.adopting),
    "Polled": _only(_polled, *_MEMBER, dropped=_polled_again, failed=_polled_again),
    "Released": _row(
        _ignored,
        releasing=_released_to_join,
        adopting=_released_to_adopt,
        unsubscribing=_released_to_leave,
        closing=_released_to_leave,
        dropped=_released,
        failed=_released,
        fenced=_released,
    ),
    "CoordinatorFound": _row(_coordinator_found, closed=_ignored),
    "CoordinatorLost": _row(_coordinator_lost, leaving=_coordinator_lost_leaving, closed=_ignored),
    "Failed": _row(_failed, leaving=_leave_failed, closed=_ignored),
    "JoinGroupAnswered": _only(
        _join_answered, S.joining, unsubscribing=_join_answered_leaving, closing=_join_answered_leaving
    ),
    "SyncGroupAnswered": _only(
        _sync_answered, S.syncing, unsubscribing=_sync_answered_leaving, closing=_sync_answered_leaving
    ),
    "HeartbeatAnswered": _only(_heartbeat_answered, *_MEMBER, S.unsubscribing, S.closing),
    "LeaveGroupAnswered": _only(_leave_answered, S.leaving),
    "CommitAnswered": _only(_commit_answered, *_MEMBER, S.unsubscribing, S.closing),
    "Metadata": _row(_metadata, planning=_metadata_for_plan, closed=_ignored),
    "Close": _row(_close, closing=_close_sooner, leaving=_close_sooner, closed=_ignored),
    "Tick": _row(_tick, idle=_ignored, closed=_ignored),
}
