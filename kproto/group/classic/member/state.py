"""What a group member knows, the states it can be in, and how it may get from one to the other."""

from __future__ import annotations

import re
from enum import Enum

from ....errors import ConfigError
from ....patterns import compiled
from ....wire.message import Message
from ...assignors import chosen, is_cooperative
from ...protocol import Identity, MemberAction, MemberConfig, Metadata
from ...subscription import Assignment, Subscription, TopicPartition
from . import leadership
from .policy import JAVA, Policy

Out = list[MemberAction]


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

    __hash__ = object.__hash__  # an Enum's own is written in Python


S = MemberState
STABLE, UNJOINED = S.stable, S.unjoined
"""What is asked for after each event has a name: before Python 3.12 an Enum's attributes are dear."""
_BACK = {S.releasing, S.unjoined, S.fenced, S.unsubscribing, S.closing}

EDGES: dict[MemberState, set[MemberState]] = {
    S.idle: {S.unjoined, S.closing},
    S.unjoined: {S.joining, S.releasing, S.dropped, S.failed, S.fenced, S.unsubscribing, S.closing},
    S.releasing: {S.unjoined, S.dropped, S.failed, S.fenced, S.unsubscribing, S.closing},
    S.joining: {S.planning, S.syncing, S.dropped, *_BACK, S.failed},
    S.planning: {S.syncing, S.dropped, *_BACK, S.failed},
    S.syncing: {S.adopting, S.stable, S.dropped, *_BACK, S.failed},
    S.adopting: {S.stable, S.releasing, S.dropped, S.failed, S.fenced, S.unsubscribing, S.closing},
    S.stable: {S.joining, S.dropped, S.failed, *_BACK},
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
"""Where max.poll.interval.ms counts for every member with a generation."""
JOINING = {S.unjoined, S.joining}
"""Where it counts, too, unless the policy is Java's, and so does the session of who keeps partitions: these
may be another's."""
LOOKING = {S.unjoined, S.releasing, S.joining, S.planning, S.syncing, S.adopting, S.stable}
"""Where an unknown coordinator is looked for."""

JOINS_AT_ONCE = 5
"""So many joins follow each other as fast as Java's; more wait, until an assignment is final: a cooperative
member that lets go of something joins again for another."""


class Member:
    """One member of one group. Only `step` changes it; read what you like.

    Raises ConfigError for assignors that are unknown or can't be combined, timeouts that contradict each
    other, and instance ids that no broker takes.
    """

    def __init__(self, config: MemberConfig, policy: Policy = JAVA) -> None:
        _check(config)
        self.config = config
        self.policy = policy
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
        # The identity with which the member last received an assignment. It is kept after partitions are
        # lost.
        self.assigned_identity: Identity | None = None
        self.planned: int | None = None  # the generation of the last plan
        self.given_back: set[TopicPartition] = set()  # revoked or lost since that plan came
        self.put_out = False  # a static member that has been none since then: the group may not know of it

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
        self.polling = False  # the application is in poll, and in no callback

        self.coordinator: object | None = None
        self.finding = False
        self.finds_failed = 0
        self.joins = 0  # JoinGroup requests since the last assignment that was final
        self.heartbeats_failed = 0

        # Deadlines, in milliseconds; None where there is nothing to wait for.
        self.heartbeat_at: int | None = None
        self.session_at: int | None = None
        self.poll_at: int | None = None  # None also while the application is in poll
        self.retry_at: int | None = None
        self.find_at: int | None = None
        self.close_at: int | None = None

        self.leads = False
        self.group: dict[str, Subscription] = {}
        self.skip_assignment = False
        self.inherited = False  # leads by the plan of a process before this one, maybe not a whole one
        self.metadata = Metadata({})
        self.planned_with: Metadata | None = None
        self.snapshot: leadership.Snapshot | None = None
        self.existed: dict[str, int] = {}

    @property
    def identity(self) -> Identity | None:
        """The identity to commit with, or None while there is none: not joined, joining, lost.

        It is valid while the application lets go of partitions (`Revoke`), and gone after `Lose`. It is new
        before `Revoke` and `Assign` come out, so that callbacks can commit with it.
        """
        if self.generation is None or self.protocol is None or self.state not in HEARTBEATING:
            return None
        return None if self.rebalancing else self.joined_identity

    @property
    def joined_identity(self) -> Identity | None:
        """Like `identity`, but kept during a rebalance.

        The coordinator accepts commits with it until the next generation begins.
        """
        if self.generation is None:
            return None
        return Identity(self.generation, self.member_id, self.config.group_instance_id, self.protocol or "")

    @property
    def rebalancing(self) -> bool:
        """JoinGroup or SyncGroup is open: a commit now is refused by Java with RebalanceInProgress."""
        return self.state in (S.joining, S.planning, S.syncing)

    @property
    def is_rejoining_repeatedly(self) -> bool:
        """Whether the coordinator has made the member rejoin several times without a final assignment."""
        return self.joins > JOINS_AT_ONCE

    @property
    def topics_of_interest(self) -> frozenset[str]:
        """The topics whose metadata must be kept: the subscription, and for a leader the whole group's."""
        return self.topics | self.joined_topics | leadership.topics_of(self.group)


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


def move(member: Member, to: MemberState) -> None:
    if to is not member.state:
        assert to in EDGES[member.state], f"{member.state.value} -> {to.value}"
        member.state = to


def want_rejoin(member: Member, reason: str) -> None:
    member.rejoin_needed, member.reason = True, reason


def wants(member: Member, topic: str) -> bool:
    if member.pattern is not None:
        return compiled(member.pattern).fullmatch(topic) is not None
    return topic in member.topics


def heartbeats(member: Member) -> bool:
    if member.generation is None:
        return False
    return member.state in HEARTBEATING or (member.state is S.joining and keeps(member))


def keeps(member: Member) -> bool:
    """Whether it has partitions that it goes on with while it joins, and for no longer than a session."""
    return bool(member.owned) and member.policy.lose_on_session_timeout


def heard(member: Member, now: int) -> None:
    member.heartbeats_failed = 0
    if member.session_at is not None:
        member.session_at = now + member.config.session_timeout_ms


def poll_watched(member: Member, now: int) -> None:
    """Who has a generation has to poll, and counts as alive while it does."""
    watched = member.generation is not None and not member.polling
    member.poll_at = now + member.config.rebalance_timeout_ms if watched else None


def heartbeat_failed(member: Member, now: int) -> None:
    member.heartbeat_at = now + growing(member, member.heartbeats_failed)
    member.heartbeats_failed += 1


def not_for_ever_at_once(member: Member, now: int) -> None:
    """A coordinator whose answers make a member join again at once, and again, is asked less and less."""
    again = member.rejoin_needed and member.state in (S.unjoined, S.releasing, S.stable, S.failed)
    if again and member.joins > JOINS_AT_ONCE:
        member.retry_at = max(member.retry_at or 0, now + growing(member, member.joins - JOINS_AT_ONCE))


def growing(member: Member, failures: int) -> int:
    """Java's exponential backoff, with the jitter that the configuration gives it."""
    most: int = max(member.config.retry_backoff_max_ms, member.config.retry_backoff_ms)
    return min(most, member.config.spread(member.config.retry_backoff_ms * 2 ** min(failures, 16)))


def is_present(member: Member, generation: int, member_id: str) -> bool:
    """Whether an answer is about the member as it is now, and not as it was (M3)."""
    return member.generation is not None and (member.generation, member.member_id) == (generation, member_id)
