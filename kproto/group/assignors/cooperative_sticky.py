"""The cooperative-sticky assignor: the sticky assignment without moves within one rebalance (KIP-429).

Follows Kafka's `CooperativeStickyAssignor`. The subscription contains what a member owns and its
generation; older members have the generation in their user data (R215). A partition that another member
still owns is withheld from its new owner. The previous owner revokes it and rejoins, and then the partition
is assigned (M91, R216). A partition that no member owns is assigned immediately (R217).

Stricter than Java if two members with different topics report the same partition in the same generation: if
one of them gets it, it is withheld until the other one has revoked it.
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
    """Assign; the package describes the arguments, and `sticky.assign_sticky` describes `one_by_one`.

    A partition that is withheld until its previous owner has revoked it is in no member's list.
    """
    assigned, owners = assign_sticky(partitions, members, racks or {}, _claim, one_by_one=one_by_one)
    holders: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member_id, subscription in members.items():
        for partition in subscription.owned:
            if holders.setdefault(partition, member_id) != member_id:
                contested.add(partition)

    def may_own(member_id: str, partition: TopicPartition) -> bool:
        is_free = holders.get(partition, member_id) == member_id and partition not in contested
        return is_free or owners.get(partition) == member_id

    return {
        member_id: [partition for partition in partitions if may_own(member_id, partition)]
        for member_id, partitions in assigned.items()
    }


def _claim(subscription: Subscription) -> ReportedOwnership:
    """Return the partitions that a member reports to own, with the generation of its subscription or user
    data.
    """
    if subscription.generation is not None:
        return ReportedOwnership(subscription.owned, subscription.generation)
    return ReportedOwnership(subscription.owned, read_cooperative_generation(subscription.user_data))
