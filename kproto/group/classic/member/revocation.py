"""Revocation and loss of partitions.

At most one `Revoke` or `Lose` is pending. A `Lose` replaces a pending `Revoke`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...protocol import Lose, Released, Revoke, RevokePurpose
from ...subscription import TopicPartition
from .state import Actions, Member, S, move


def revoke(
    member: Member,
    partitions: Iterable[TopicPartition],
    purpose: RevokePurpose,
    reason: str,
    out: Actions,
) -> None:
    """Add a `Revoke` to `out`: the application commits and releases `partitions`, then sends `Released`."""
    out.append(Revoke(_start_release(member, partitions), purpose, reason))


def lose(member: Member, partitions: Iterable[TopicPartition], reason: str, out: Actions) -> None:
    """Add a `Lose` to `out`: the application drops `partitions` without a commit, then sends `Released`."""
    out.append(Lose(_start_release(member, partitions), reason))


def lose_all(member: Member, reason: str, out: Actions) -> None:
    """Lose all owned partitions. If the member owns none, no callback runs (M76)."""
    if member.owned:
        lose(member, member.owned, reason, out)


def _start_release(member: Member, partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    """Record the partitions that the next `Released` will release, and return them sorted."""
    unreleased = tuple(sorted(partitions))
    member.unreleased = unreleased
    member.revoked_since_assignment.update(unreleased)
    return unreleased


def finish_release(member: Member) -> None:
    """Remove the released partitions from the owned partitions, because the callback has returned (M79)."""
    released = set(member.unreleased or ())
    member.owned = tuple(partition for partition in member.owned if partition not in released)
    member.unreleased = None


def on_released(member: Member, event: Released, now: int, out: Actions) -> None:
    """Remove the released partitions from the owned partitions.

    The member has expired or failed, or is fenced. An expired or failed member joins again at the
    application's next poll.
    """
    finish_release(member)


def on_released_before_join(member: Member, event: Released, now: int, out: Actions) -> None:
    """Remove the released partitions from the owned partitions, then send JoinGroup."""
    finish_release(member)
    member.is_prepared = True
    move(member, S.UNJOINED)
