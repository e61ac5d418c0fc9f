"""The cooperative-sticky assignor: a sticky assignment that moves partitions in two rebalances (KIP-429).

The assignor follows Kafka's `CooperativeStickyAssignor`. The subscription contains the member's owned
partitions and, from version 2 on, their generation (KIP-792). Older clients put the generation into the user
data (R215).

A partition that another member still owns is withheld from its new owner. The previous owner revokes the
partition and rejoins, and the next rebalance assigns it (M91, R216).

A partition without an owner is assigned immediately (R217).

If two members report the same partition in the same generation, the partition is assigned to no member until
one of them stops reporting it. Java's assignor differs if not all members of the group have the same
subscription: it may assign the partition to one of the two immediately.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..subscription import ReportedOwnership, Subscription, TopicPartition, read_cooperative_generation
from .sticky import assign_sticky
from .subscribers import Racks


def assign(
    partitions: Mapping[str, int],
    members: Mapping[str, Subscription],
    racks: Racks | None = None,
    *,
    one_by_one: bool = False,
) -> dict[str, list[TopicPartition]]:
    """Return the assignment without the partitions that their previous owners have not revoked yet.

    The docstring of the package describes the positional arguments. The docstring of `sticky.assign_sticky`
    describes `one_by_one`.
    """
    assigned, owners = assign_sticky(partitions, members, racks or {}, read_ownership, one_by_one=one_by_one)
    # Maps a partition to the first member that reports it as owned. If other members also report the
    # partition, it is contested.
    reporting_members: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member_id, subscription in members.items():
        for partition in subscription.owned:
            if reporting_members.setdefault(partition, member_id) != member_id:
                contested.add(partition)

    def may_own(member_id: str, partition: TopicPartition) -> bool:
        is_free = reporting_members.get(partition, member_id) == member_id and partition not in contested
        return is_free or owners.get(partition) == member_id

    return {
        member_id: [partition for partition in new_partitions if may_own(member_id, partition)]
        for member_id, new_partitions in assigned.items()
    }


def read_ownership(subscription: Subscription) -> ReportedOwnership:
    """Return the partitions that a member reports as owned, and their generation.

    If the subscription has no generation, the generation is read from the user data, where clients put it
    before version 2 of the subscription.
    """
    if subscription.generation is not None:
        return ReportedOwnership(subscription.owned, subscription.generation)
    return ReportedOwnership(subscription.owned, read_cooperative_generation(subscription.user_data))
