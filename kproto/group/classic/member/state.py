"""The attributes of a classic member, its states, and the edges between the states.

Java has four states (M1): UNJOINED, PREPARING_REBALANCE (here JOINING), COMPLETING_REBALANCE (here ASSIGNING
and SYNCING) and STABLE.

All other states exist only in kproto, and are named after what the member waits for.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

from .... import machine
from ....errors import ConfigError, KprotoError
from ....lazy_imports import render_html
from ....patterns import compiled
from ....wire.message import Message
from ...assignors import is_cooperative, resolve_assignors
from ...protocol import Identity, MemberAction, MemberConfig, MetadataUpdated
from ...subscription import Assignment, Subscription, TopicPartition
from . import leadership
from .policy import JAVA, Policy

Actions = list[MemberAction]

# The protocol type of consumer groups in JoinGroup and SyncGroup.
PROTOCOL_TYPE = "consumer"


class MemberState(Enum):
    """The states of a classic member."""

    # The member has no subscription and is in no group.
    IDLE = "idle"
    # The member will join. It waits for the coordinator or for the end of a backoff.
    UNJOINED = "unjoined"
    # The member waits for the application to release partitions, then joins (Java's onJoinPrepare).
    RELEASING = "releasing"
    # JoinGroup is in flight.
    JOINING = "joining"
    # The member is the leader. It waits for the metadata of all members' topics, then assigns.
    ASSIGNING = "assigning"
    # SyncGroup is in flight.
    SYNCING = "syncing"
    # A cooperative member waits for the application to release partitions, then adopts the assignment.
    ADOPTING = "adopting"
    # Owns its assignment.
    STABLE = "stable"
    # The member has left the group because the application did not poll in time. The next poll joins again.
    EXPIRED = "expired"
    # The member has reported an error with `Fatal`. It joins again at the next poll.
    FAILED = "failed"
    # Another process has joined with this group.instance.id. The member never joins again.
    FENCED = "fenced"
    # The member waits for the application to release partitions, then leaves the group.
    UNSUBSCRIBING = "unsubscribing"
    # After `CloseRequested`, the member waits for the application to release partitions, then leaves and
    # closes.
    CLOSING = "closing"
    # LeaveGroup is in flight, after `CloseRequested`.
    LEAVING = "leaving"
    CLOSED = "closed"

    # This is faster than Enum's own __hash__, which is written in Python.
    __hash__ = object.__hash__


S = MemberState
# Aliases of the states that are checked on every event, because Enum attribute access is slow before Python
# 3.12.
JOINING, STABLE, UNJOINED = S.JOINING, S.STABLE, S.UNJOINED
# The next states that JOINING, ASSIGNING, SYNCING and STABLE have in common.
_AFTER_RESET = {S.RELEASING, S.UNJOINED, S.FENCED, S.UNSUBSCRIBING, S.CLOSING}

EDGES: Final[machine.Edges[MemberState]] = {
    S.IDLE: frozenset({S.UNJOINED, S.CLOSING}),
    S.UNJOINED: frozenset(
        {S.JOINING, S.RELEASING, S.EXPIRED, S.FAILED, S.FENCED, S.UNSUBSCRIBING, S.CLOSING}
    ),
    S.RELEASING: frozenset({S.UNJOINED, S.EXPIRED, S.FAILED, S.FENCED, S.UNSUBSCRIBING, S.CLOSING}),
    S.JOINING: frozenset({S.ASSIGNING, S.SYNCING, S.EXPIRED, *_AFTER_RESET, S.FAILED}),
    S.ASSIGNING: frozenset({S.SYNCING, S.EXPIRED, *_AFTER_RESET, S.FAILED}),
    S.SYNCING: frozenset({S.ADOPTING, S.STABLE, S.EXPIRED, *_AFTER_RESET, S.FAILED}),
    S.ADOPTING: frozenset({S.STABLE, S.RELEASING, S.EXPIRED, S.FAILED, S.FENCED, S.UNSUBSCRIBING, S.CLOSING}),
    S.STABLE: frozenset({S.JOINING, S.EXPIRED, S.FAILED, *_AFTER_RESET}),
    S.EXPIRED: frozenset({S.RELEASING, S.UNJOINED, S.UNSUBSCRIBING, S.CLOSING}),
    S.FAILED: frozenset({S.RELEASING, S.UNJOINED, S.UNSUBSCRIBING, S.CLOSING}),
    S.FENCED: frozenset({S.CLOSING}),
    S.UNSUBSCRIBING: frozenset({S.IDLE, S.UNJOINED, S.FENCED, S.CLOSING}),
    S.CLOSING: frozenset({S.LEAVING, S.CLOSED}),
    S.LEAVING: frozenset({S.CLOSED}),
    S.CLOSED: frozenset(),
}

# The states in which the backoff of `back_off_from_repeated_joins` delays a rejoin.
_BEFORE_REJOIN = {S.UNJOINED, S.RELEASING, S.STABLE, S.FAILED}
# The states in which a member with a generation sends heartbeats.
HEARTBEATING = {S.RELEASING, S.ASSIGNING, S.SYNCING, S.ADOPTING, S.STABLE, S.UNSUBSCRIBING, S.CLOSING}
# In these states max.poll.interval.ms applies to all members that have a generation.
POLL_TIMED = HEARTBEATING - {S.UNSUBSCRIBING, S.CLOSING}
# With `Policy.lose_on_session_timeout`, two timeouts also apply in these states. max.poll.interval.ms applies
# to a member with a generation. The session timeout applies to a member with partitions, because after this
# timeout the group may assign them to other members.
TIMED_WHILE_JOINING = {S.UNJOINED, S.JOINING}
# The states in which the member looks up the coordinator if it is unknown.
NEEDS_COORDINATOR = {S.UNJOINED, S.RELEASING, S.JOINING, S.ASSIGNING, S.SYNCING, S.ADOPTING, S.STABLE}

# The maximum number of consecutive rejoins without a backoff. It suffices for a cooperative rebalance.
# Each further rejoin waits for a backoff first, until an assignment requires no rejoin. Java's member never
# backs off before a rejoin that its assignment requires.
JOINS_WITHOUT_BACKOFF = 5


class Member:
    """One member of one group. Only `step` and `ClassicMember.on_poll` may change its attributes.

    Raises ConfigError for unknown or incompatible assignors, for a heartbeat interval that is not less than
    the session timeout, and for an instance id that brokers reject.
    """

    def __init__(self, config: MemberConfig, policy: Policy = JAVA) -> None:
        """Start in state IDLE, without a generation, and with `rejoin_needed` set (M2)."""
        _check_config(config)
        self.config = config
        self.policy = policy
        self.assignors = resolve_assignors(config.assignors)
        self.cooperative = is_cooperative(self.assignors)
        self.state = MemberState.IDLE

        self.topics: frozenset[str] = frozenset()
        self.pattern: str | None = None
        # The topics of the last JoinGroup (Java's joinedSubscription).
        self.joined_topics: frozenset[str] = frozenset()

        self.owned: tuple[TopicPartition, ...] = ()
        # The partitions of the pending `Revoke` or `Lose`, until `Released` arrives; otherwise None.
        self.unreleased: tuple[TopicPartition, ...] | None = None
        # The assignment to adopt when the application has released the revoked partitions.
        self.pending_assignment: Assignment | None = None
        # The error of the last assignment, if the policy keeps a member with an unreadable assignment in the
        # group. Each poll raises this error.
        self.assignment_error: KprotoError | None = None
        # The last adopted assignment and its generation, for the user data of the sticky assignors.
        self.last_assigned: tuple[TopicPartition, ...] | None = None
        self.last_generation = -1
        # The identity with which the member last received an assignment. It is kept when the partitions are
        # lost.
        self.assigned_identity: Identity | None = None
        # The generation of the last assignment, and the partitions that were revoked or lost since it
        # arrived.
        self.assigned_generation: int | None = None
        self.revoked_since_assignment: set[TopicPartition] = set()
        # Whether a static member has lost its membership since the last assignment. The coordinator may still
        # list the member, and may accept it again in the same generation.
        self.was_reset = False

        # The generation, member id and protocol of the membership (M3). Java's class is Generation.
        self.generation: int | None = None
        self.member_id = ""
        self.protocol: str | None = None

        self.rejoin_needed = True
        self.rejoin_reason = ""
        # Whether the member has already released the partitions that it cannot keep during the next join. The
        # opposite of Java's needsJoinPrepare.
        self.is_prepared = False
        # The requests in flight: JoinGroup or SyncGroup, Heartbeat, and the LeaveGroup that follows
        # `CloseRequested`.
        self.rebalance_request: Message | None = None
        self.heartbeat_request: Message | None = None
        self.leave_request: Message | None = None
        self.leaves_on_close = True
        # Whether the application is in poll and not in a callback.
        self.is_polling = False

        self.coordinator: object | None = None
        self.is_finding_coordinator = False
        self.failed_lookups = 0
        self.failed_heartbeats = 0
        # The number of JoinGroup requests since the last assignment that required no further rejoin.
        self.joins = 0

        # Times in milliseconds; None while the timer is stopped.
        self.heartbeat_at: int | None = None
        self.session_ends_at: int | None = None
        # The time at which max.poll.interval.ms expires; None during a poll, or if the member has no
        # generation.
        self.poll_ends_at: int | None = None
        self.join_at: int | None = None
        self.lookup_at: int | None = None
        self.close_ends_at: int | None = None

        self.is_leader = False
        # Maps each member id to the subscription of that member. Empty unless this member is the leader.
        self.subscriptions: dict[str, Subscription] = {}
        self.skips_assignment = False
        # Whether the restarted leader still has to check that the assignment made before its restart covers
        # every partition.
        self.inherits_assignment = False
        # `checks_empty`: whether the member has to check its empty assignment with DescribeGroups.
        # `has_checked_empty`: whether it has done so since it last owned partitions.
        self.checks_empty = self.has_checked_empty = False
        self.metadata = MetadataUpdated({})
        # `assignment_metadata`: the metadata with which the leader made the current assignment.
        # `assignment_snapshot`: the part of this metadata with which later metadata is compared (M92).
        self.assignment_metadata: MetadataUpdated | None = None
        self.assignment_snapshot: leadership.Snapshot | None = None
        # Maps a topic to its number of partitions at the group's first assignment, or to 0 if the topic was
        # created later.
        self.initial_counts: dict[str, int] = {}

    def _repr_html_(self) -> str:
        """Return the state machine and the member's current state as HTML, for a notebook."""
        return render_html("kproto.inspect.notebook:member", self)

    @property
    def identity(self) -> Identity | None:
        """The identity that a commit carries; None during a rebalance, or if the member has no generation.

        The identity stays valid during a `Revoke`, and `Lose` removes it.

        After a SyncGroup response, the new identity is set before the `Revoke` or `AdoptAssignment` that
        follows, so that callbacks commit with the new identity (M4).
        """
        if self.generation is None or self.protocol is None or self.state not in HEARTBEATING:
            return None
        return None if self.is_rebalancing else self.joined_identity

    @property
    def joined_identity(self) -> Identity | None:
        """The identity of the last JoinGroup response. Unlike `identity`, it is kept during a rebalance.

        The coordinator accepts commits with this identity until the next generation begins.
        """
        if self.generation is None:
            return None
        return Identity(self.generation, self.member_id, self.config.group_instance_id, self.protocol or "")

    @property
    def is_rebalancing(self) -> bool:
        """Whether JoinGroup or SyncGroup is in flight. During that time Java rejects commits (M95)."""
        return self.state in (S.JOINING, S.ASSIGNING, S.SYNCING)

    @property
    def is_rejoining_repeatedly(self) -> bool:
        """Whether the member has sent more than JOINS_WITHOUT_BACKOFF JoinGroups in a row."""
        return self.joins > JOINS_WITHOUT_BACKOFF

    @property
    def topics_of_interest(self) -> frozenset[str]:
        """The topics whose metadata the member needs: its own, or all members' if it is the leader (M200)."""
        return self.topics | self.joined_topics | leadership.topics_of(self.subscriptions)


def _check_config(config: MemberConfig) -> None:
    """Raise ConfigError for contradictory timeouts (M105) or an invalid instance id (M115)."""
    instance_id = config.group_instance_id
    if config.heartbeat_interval_ms >= config.session_timeout_ms:
        allowed = f"it must be less than session.timeout.ms={config.session_timeout_ms}"
        raise ConfigError("heartbeat.interval.ms", config.heartbeat_interval_ms, allowed)
    if instance_id is not None:
        is_legal = re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", instance_id) and instance_id not in (".", "..")
        if not is_legal:
            allowed = "1 to 249 characters of a-z A-Z 0-9 . _ -, but neither '.' nor '..'"
            raise ConfigError("group.instance.id", instance_id, allowed)


def move(member: Member, state: MemberState) -> None:
    """Move to `state`, unless the member is already in it. No other function changes the state."""
    if state is not member.state:
        machine.move(member, state, EDGES)


def request_rejoin(member: Member, reason: str) -> None:
    """Make the member rejoin as soon as its state allows it, with `reason` in JoinGroup (KIP-800)."""
    member.rejoin_needed, member.rejoin_reason = True, reason


def is_subscribed(member: Member, topic: str) -> bool:
    """Return whether the member subscribes to `topic`. A pattern has to match the whole name (M201)."""
    if member.pattern is not None:
        return compiled(member.pattern).fullmatch(topic) is not None
    return topic in member.topics


def sends_heartbeats(member: Member) -> bool:
    """Return whether the member sends heartbeats.

    Java sends no heartbeats while JoinGroup is in flight (M6). With `Policy.lose_on_session_timeout`, this
    member also sends heartbeats during a join if it owns partitions.
    """
    if member.generation is None:
        return False
    return member.state in HEARTBEATING or (member.state is JOINING and keeps_partitions(member))


def keeps_partitions(member: Member) -> bool:
    """Return whether the member has partitions that it would lose if its session timed out during a join."""
    return bool(member.owned) and member.policy.lose_on_session_timeout


def restart_session(member: Member, now: int) -> None:
    """Restart the session timeout, because a heartbeat was answered (M14, M15, M56)."""
    member.failed_heartbeats = 0
    if member.session_ends_at is not None:
        member.session_ends_at = now + member.config.session_timeout_ms


def restart_poll_interval(member: Member, now: int) -> None:
    """Restart the max.poll.interval.ms timer. Stop it instead during a poll, or if the member has no
    generation.

    Rules M108 and M112.
    """
    is_timed = member.generation is not None and not member.is_polling
    member.poll_ends_at = now + member.config.rebalance_timeout_ms if is_timed else None


def retry_heartbeat(member: Member, now: int) -> None:
    """Delay the next heartbeat by a backoff that grows with every failure (M105)."""
    member.heartbeat_at = now + backoff(member, member.failed_heartbeats)
    member.failed_heartbeats += 1


def back_off_from_repeated_joins(member: Member, now: int) -> None:
    """Delay the next JoinGroup if the coordinator has made the member rejoin several times in a row."""
    will_rejoin = member.rejoin_needed and member.state in _BEFORE_REJOIN
    if will_rejoin and member.is_rejoining_repeatedly:
        join_at = now + backoff(member, member.joins - JOINS_WITHOUT_BACKOFF)
        member.join_at = max(member.join_at or 0, join_at)


def backoff(member: Member, failures: int) -> int:
    """Return Java's exponential backoff in milliseconds, with the configured jitter."""
    max_backoff_ms: int = max(member.config.retry_backoff_max_ms, member.config.retry_backoff_ms)
    exponential_ms = member.config.retry_backoff_ms * 2 ** min(failures, 16)
    return min(max_backoff_ms, member.config.spread(exponential_ms))


def is_current(member: Member, generation: int, member_id: str) -> bool:
    """Return whether a response belongs to the current generation and member id (M3, M118)."""
    return member.generation is not None and (member.generation, member.member_id) == (generation, member_id)
