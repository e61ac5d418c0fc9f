"""The sticky assignors of kafka-clients 2.6, which keep other partitions than the current ones.

For members with equal subscriptions, the module follows `AbstractStickyAssignor.constrainedAssign` of 2.6.2.
For other groups it uses the general algorithm of the current release.

A member claims the partitions that it owned. The *minimum* is the number of partitions divided by the number
of members, rounded down. The *maximum* is the same quotient, rounded up.

In 2.6, every member keeps its claims up to the maximum, in the order in which it reports them. Then members
below the minimum get the free partitions. If there are too few free partitions, the members below the minimum
also get partitions of members with the maximum.

Unlike 2.6, the current release sorts a member's claims before it cuts them to the maximum. It also limits the
number of members that keep the maximum.

The eager assignor accepts only the claims of the newest generation. It accepts claims without a generation
only if no claim has a generation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ...group.assignors import ASSIGNORS, Assignor, cooperative_sticky, sticky
from ...group.assignors.subscribers import Racks
from ...group.subscription import (
    StickyUserData,
    StickyUserDataTopic,
    Subscription,
    TopicPartition,
    read_sticky_user_data,
)
from .hash_order import group_by_topic, hash_order

Plan = dict[str, list[TopicPartition]]


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> Plan:
    """Assign the partitions as the cooperative sticky assignor does.

    A partition that changes its owner is assigned to no member until its old owner has revoked it.
    """
    if _subscriptions_differ(members):
        return cooperative_sticky.assign(partitions, members, racks)
    plan, new_owners = _constrained_assign(
        partitions, {name: members[name].owned for name in hash_order(members)}
    )
    return {member: [tp for tp in plan[member] if new_owners.get(tp) != member] for member in members}


def assign_eager(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> Plan:
    """Assign the partitions as the eager sticky assignor does.

    The owned partitions are read from the user data.
    """
    if _subscriptions_differ(members):
        return sticky.assign(partitions, members, racks)
    owned: dict[str, Sequence[TopicPartition]] = {}
    max_generation, accepted_members = -1, list[str]()
    for member in hash_order(members):
        claimed, generation = read_sticky_user_data(members[member].user_data)
        owned[member] = ()
        if max_generation > (-1 if generation is None else generation):
            continue
        if generation is not None and generation > max_generation:
            owned.update(dict.fromkeys(accepted_members, ()))
            max_generation, accepted_members = generation, []
        accepted_members.append(member)
        owned[member] = claimed
    plan, _ = _constrained_assign(partitions, owned)
    return {member: plan[member] for member in members}


def _subscriptions_differ(members: Mapping[str, Subscription]) -> bool:
    return len({frozenset(subscription.topics) for subscription in members.values()}) != 1


def _constrained_assign(
    partitions: Mapping[str, int], claims: Mapping[str, Sequence[TopicPartition]]
) -> tuple[Plan, dict[TopicPartition, str]]:
    """Return the assignment, and the new owner of each partition whose owner changes.

    The function visits the members in the order of Java's hash table.
    """
    unassigned = dict.fromkeys(
        TopicPartition(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])
    )
    min_quota, remainder = divmod(len(unassigned), len(claims))
    max_quota = min_quota + (remainder > 0)
    plan: Plan = {}
    released_partitions: set[TopicPartition] = set()
    for member, claimed in claims.items():
        owned = [tp for tp in claimed if tp.topic in partitions]
        plan[member] = owned[:max_quota]
        released_partitions.update(owned[max_quota:])
        for tp in plan[member]:
            unassigned.pop(tp, None)
    unfilled_members = sorted(member for member in plan if len(plan[member]) < min_quota)
    min_capacity_members = deque(name for name in plan if len(plan[name]) == min_quota)
    # If the partitions divide evenly, minimum and maximum are equal, and both queues have the same members.
    max_capacity_members = deque(name for name in plan if len(plan[name]) == max_quota)
    new_owners = _assign_unowned(
        plan, unfilled_members, min_capacity_members, deque(unassigned), min_quota, released_partitions
    )
    new_owners |= _take_from_full(
        plan, unfilled_members, min_capacity_members, max_capacity_members, min_quota
    )
    return plan, new_owners


def _assign_unowned(
    plan: Plan,
    unfilled_members: list[str],
    min_capacity_members: deque[str],
    unassigned: deque[TopicPartition],
    min_quota: int,
    released_partitions: set[TopicPartition],
) -> dict[TopicPartition, str]:
    """Assign the free partitions in turn: to members below `min_quota`, then to members at `min_quota`.

    Members that reach `min_quota` are removed from `unfilled_members`. Return the new owners of released
    partitions.
    """
    new_owners: dict[TopicPartition, str] = {}

    def assign_next(member: str) -> None:
        tp = unassigned.popleft()
        plan[member].append(tp)
        if tp in released_partitions:
            new_owners[tp] = member

    while unfilled_members and unassigned:
        for member in unfilled_members[: len(unassigned)]:
            assign_next(member)
            if len(plan[member]) == min_quota:
                min_capacity_members.append(member)
        unfilled_members[:] = [name for name in unfilled_members if len(plan[name]) < min_quota]
    while unassigned:
        assign_next(min_capacity_members.popleft())
    return new_owners


def _take_from_full(
    plan: Plan,
    unfilled_members: list[str],
    min_capacity_members: deque[str],
    max_capacity_members: deque[str],
    min_quota: int,
) -> dict[TopicPartition, str]:
    """Move the first partitions of the fullest members, until every member has `min_quota` partitions.

    Return the new owner of each moved partition.
    """
    new_owners: dict[TopicPartition, str] = {}
    for member in unfilled_members:
        while len(plan[member]) < min_quota:
            tp = plan[max_capacity_members.popleft()].pop(0)
            plan[member].append(tp)
            new_owners[tp] = member
        min_capacity_members.append(member)
    return new_owners


def _encode_user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    """Encode the last assignment without sorting it, because the leader depends on its order.

    If the member owned too many partitions, the leader lets it keep those that come first in the assignment.
    """
    if previous is None:
        return None
    topics = [
        StickyUserDataTopic(topic=topic, partitions=partitions)
        for topic, partitions in group_by_topic(previous).items()
    ]
    return StickyUserData(previous_assignment=topics, generation=generation).encode(1)


STICKY_2_6 = Assignor("sticky", assign_eager, _encode_user_data)
COOPERATIVE_STICKY_2_6 = Assignor(
    "cooperative-sticky", assign, ASSIGNORS["cooperative-sticky"].user_data, cooperative=True
)
