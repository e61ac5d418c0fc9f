"""Whether this consumer is in a group, reads partitions that were chosen by hand, or neither: kept once.

Everybody asks here; only the engine (what the application wants) and the membership (what became of it)
change it.
"""

from __future__ import annotations

from enum import Enum

from kproto.errors import IllegalState, KprotoError
from kproto.group.protocol import ClientMember, Identity


class Place(Enum):
    """Where this consumer's partitions come from."""

    nowhere = "nowhere"
    hand = "hand"  # assign()
    group = "group"  # subscribe(), until everything is given back after unsubscribe()


class Standing:
    """Where the partitions come from, and who this consumer is in its group."""

    def __init__(self) -> None:
        self.place = Place.nowhere
        self.member: ClientMember | None = None
        # Why the member will never join again, or commit (as Java); every poll says so, as silence would look
        # like an empty topic.
        self.over: KprotoError | None = None

    @property
    def in_group(self) -> bool:
        return self.place is Place.group

    @property
    def by_hand(self) -> bool:
        return self.place is Place.hand

    @property
    def hopeless(self) -> KprotoError | None:
        """Why nothing comes any more, where it would come from the group."""
        return self.over if self.in_group else None

    @property
    def identity(self) -> Identity | None:
        """What a commit has to carry; None while there is no generation to commit in."""
        return self.member.identity if self.member is not None and self.in_group else None

    @property
    def who(self) -> tuple[str, int]:
        """(member id, generation) for reports, ("", -1) outside of any."""
        member = self.member
        if member is None:
            return "", -1
        return member.member_id, -1 if member.generation is None else member.generation

    @property
    def reads_as(self) -> tuple[str, int]:
        """(member id, generation) as which it was last given partitions, also when these are lost: the group
        refuses whom it put out, and asks nobody who names no member. ("", -1) before, and by hand."""
        identity = None if self.member is None or self.by_hand else self.member.assigned_identity
        return ("", -1) if identity is None else (identity.member_id, identity.generation)

    def must_be_somewhere(self) -> None:
        """Raises IllegalState when there is nothing to read."""
        if self.place is Place.nowhere:
            raise IllegalState("nothing to poll: subscribe() or assign() first")
