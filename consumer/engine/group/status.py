"""The state that records where a consumer's partitions come from, and its membership in the group.

All parts of the engine read the state. Only these parts change it: the engine, its shutdown, the membership
and the commits.
"""

from __future__ import annotations

from enum import Enum

from kproto.errors import IllegalState, KprotoError
from kproto.group.protocol import ClientMember, Identity


class AssignmentSource(Enum):
    """Where the partitions come from (Java's SubscriptionType)."""

    NONE = "none"
    # assign()
    MANUAL = "manual"
    # Partitions come from the group: from subscribe() until unsubscribe() has released all of them.
    GROUP = "group"


class GroupStatus:
    """Where the partitions come from, the member, and the error that ended the membership for good."""

    def __init__(self) -> None:
        self.source = AssignmentSource.NONE
        self.member: ClientMember | None = None
        # The error after which the member never joins or commits again. Every poll raises it, because polls
        # without records would look as if the topics were empty.
        self.final_error: KprotoError | None = None

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
        """The final error if the group assigns the partitions; None otherwise."""
        return self.final_error if self.in_group else None

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

    @property
    def assigned_member_and_generation(self) -> tuple[str, int]:
        """The member id and generation of the last assignment, to send offsets in a transaction.

        The values are kept after the partitions are lost, so that the coordinator rejects offsets of lost
        partitions. Without a member id it would accept them. The result is ("", -1) before the first
        assignment, and with assign().
        """
        identity = None if self.member is None or self.is_manual else self.member.assigned_identity
        return ("", -1) if identity is None else (identity.member_id, identity.generation)

    def require_source(self) -> None:
        """Raise IllegalState if the consumer has neither subscribed nor assigned anything."""
        if self.source is AssignmentSource.NONE:
            raise IllegalState("there is nothing to poll; call subscribe() or assign() first")
