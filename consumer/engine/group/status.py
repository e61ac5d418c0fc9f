"""The source of a consumer's partitions, its membership in the group, and its rebalance callbacks.

All parts of the engine read the state. Only `ConsumerEngine`, `ConsumerShutdown`, `Membership` and
`Committer` change it.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

import msgspec

from kproto.errors import IllegalState, KprotoError
from kproto.group.protocol import ClientMember, Identity
from kproto.group.subscription import TopicPartition


class AssignmentSource(Enum):
    """The origin of the assigned partitions (Java's SubscriptionType)."""

    NONE = "none"
    # assign()
    MANUAL = "manual"
    # subscribe(): the group assigns the partitions, until unsubscribe() has released all of them.
    GROUP = "group"


class RebalanceCallback(msgspec.Struct, eq=False):
    """One call of the application's rebalance listener."""

    # "assigned", "revoked" or "lost".
    kind: str
    partitions: tuple[TopicPartition, ...]
    reason: str
    # Whether the member waits for `Released`, which follows when the callback has returned and the commit is
    # complete.
    awaits_release: bool = False
    # Whether the partitions are released without a commit when the callback has returned. True with
    # `policy="java"`: Java commits before the callback, or not at all.
    skips_commit: bool = False
    # Whether a commit of the offsets of `partitions` has been requested. If this commit fails, the membership
    # reports the failure.
    is_committing: bool = False


class CallbackQueue:
    """The rebalance callbacks that wait or run, in the order of the rebalances. They run one at a time."""

    def __init__(self) -> None:
        self.waiting: deque[RebalanceCallback] = deque()
        self.running: RebalanceCallback | None = None
        self.started_at = 0  # When the running callback was started (ms).

    @property
    def is_empty(self) -> bool:
        """Whether no callback is waiting or running."""
        return self.running is None and not self.waiting

    @property
    def has_loss(self) -> bool:
        """Whether a "lost" callback is waiting or running. Thread-safe."""
        return any(
            callback is not None and callback.kind == "lost" for callback in (self.running, *self.waiting)
        )

    def add(self, callback: RebalanceCallback) -> None:
        """Add a callback at the end of the queue."""
        self.waiting.append(callback)

    def discard(self, callback: RebalanceCallback) -> None:
        """Remove a callback that has not started."""
        if callback in self.waiting:
            self.waiting.remove(callback)

    def start_next(self, now: int) -> RebalanceCallback | None:
        """Start and return the next callback; None if the queue is empty or a callback is running."""
        if self.running is not None or not self.waiting:
            return None
        self.started_at = now
        self.running = self.waiting.popleft()
        return self.running

    def finish(self) -> RebalanceCallback | None:
        """Mark the running callback as returned, and return it; None if no callback is running."""
        callback, self.running = self.running, None
        return callback


class GroupStatus:
    """The source of the assignment, the member, its callbacks and its final error."""

    def __init__(self) -> None:
        self.source = AssignmentSource.NONE
        self.member: ClientMember | None = None
        # The error after which the member never joins or commits again. Every poll raises it. Without the
        # error, the topics would look empty.
        self.final_error: KprotoError | None = None
        # Records are returned only after all callbacks have returned.
        self.callbacks = CallbackQueue()
        # Whether the application is in a poll. During a poll, max.poll.interval.ms does not expire.
        self.in_poll = False
        # When (ms) the poll in progress began; without a poll in progress, when the last poll ended.
        self.polled_at = 0

        # Whether the application has requested the member id and generation for a transaction. The group may
        # then have offsets that no OffsetCommit of this consumer contained.
        self.may_use_transactions = False

    @property
    def in_group(self) -> bool:
        """Whether the group assigns the partitions."""
        return self.source is AssignmentSource.GROUP

    @property
    def is_manual(self) -> bool:
        """Whether the application has assigned the partitions."""
        return self.source is AssignmentSource.MANUAL

    @property
    def group_error(self) -> KprotoError | None:
        """The final error, if one has occurred and the group assigns the partitions; otherwise None."""
        return self.final_error if self.in_group else None

    @property
    def poll_error(self) -> KprotoError | None:
        """The error that each poll raises; None if polls raise no error.

        The final error comes first, then the error of an assignment that the member cannot use.
        """
        if not self.in_group:
            return None
        return self.final_error or (None if self.member is None else self.member.assignment_error)

    @property
    def identity(self) -> Identity | None:
        """The member id and generation that a commit carries; None if the member has no generation."""
        return self.member.identity if self.member is not None and self.in_group else None

    @property
    def member_and_generation(self) -> tuple[str, int]:
        """The current member id and generation, for reports; ("", -1) without a membership."""
        member = self.member
        if member is None:
            return "", -1
        return member.member_id, -1 if member.generation is None else member.generation

    def member_for_transaction(self) -> tuple[str, int]:
        """Return the member id and generation of the last assignment, to send offsets in a transaction.

        From this call on, the consumer looks up the group's committed offset again before each initial
        commit. An initial commit stores the start offset of a partition without a committed offset (M206).

        After the partitions are lost, the result stays the same, so that the coordinator rejects the offsets
        of these partitions. If the result became ("", -1), the coordinator would accept them.

        The result is ("", -1) before the first assignment, and while partitions are assigned with assign().
        """
        self.may_use_transactions = True
        identity = None if self.member is None or self.is_manual else self.member.assigned_identity
        return ("", -1) if identity is None else (identity.member_id, identity.generation)

    def require_source(self) -> None:
        """Raise IllegalState if neither subscribe() nor assign() is in effect."""
        if self.source is AssignmentSource.NONE:
            raise IllegalState("there is nothing to poll; call subscribe() or assign() first")
