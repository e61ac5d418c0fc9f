"""The cooperative-sticky assignor: the sticky division, in which nothing changes hands within one round.

Follows Kafka's `CooperativeStickyAssignor` (KIP-429). What members hold is in the subscription, with the
generation beside it, or in the user data of older members. A partition that somebody else still holds is
withheld from its new owner; whoever has to let go of it joins again, and then it is given out.

Stricter than Java where one partition has two holders that both say the same generation, and their topics
differ: if one of the two gets it, it is withheld until the other one has let go.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..subscription import Claim, Subscription, TopicPartition, read_cooperative_generation
from .members import Racks
from .sticky import divide


def assign(
    partitions: Mapping[str, int],
    members: Mapping[str, Subscription],
    racks: Racks | None = None,
    *,
    one_by_one: bool = False,
) -> dict[str, list[TopicPartition]]:
    """Divide; see the package for the arguments, and `sticky.divide` for `one_by_one`.

    Withheld partitions are in nobody's list.
    """
    plan, kept = divide(partitions, members, racks or {}, _claim, one_by_one=one_by_one)
    holder: dict[TopicPartition, str] = {}
    contested: set[TopicPartition] = set()
    for member_id, subscription in members.items():
        for tp in subscription.owned:
            if holder.setdefault(tp, member_id) != member_id:
                contested.add(tp)
    return {
        member_id: [
            tp
            for tp in given
            if kept.get(tp) == member_id or (holder.get(tp, member_id) == member_id and tp not in contested)
        ]
        for member_id, given in plan.items()
    }


def _claim(subscription: Subscription) -> Claim:
    if subscription.generation is not None:
        return Claim(subscription.owned, subscription.generation)
    return Claim(subscription.owned, read_cooperative_generation(subscription.user_data))
