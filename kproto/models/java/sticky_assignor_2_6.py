"""The sticky assignors as 2.6 has them: members keep the first partitions that they say they own.

Follows `AbstractStickyAssignor.constrainedAssign` of 2.6.2, for members that want the same topics; where they
don't, the general way is today's. Today's sorts what a member owns before it keeps the first ones, and lets
only as many members keep the larger share as there are such shares; here whoever owns it keeps it, and it is
taken away again where somebody would have too few. Of the eager one's members those of the newest generation
are believed, the others own nothing; one that says no generation is believed until one does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from ...group.assignors import ASSIGNORS, Assignor, cooperative_sticky, sticky
from ...group.assignors.members import Racks
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
    """Divide; what changes hands is withheld until it was given back."""
    if _subscriptions_differ(members):
        return cooperative_sticky.assign(partitions, members, racks)
    plan, moving = _constrained_assign(partitions, {one: members[one].owned for one in hash_order(members)})
    return {member: [tp for tp in plan[member] if moving.get(tp) != member] for member in members}


def assign_eager(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> Plan:
    """Divide; what a member owned is in its user data."""
    if _subscriptions_differ(members):
        return sticky.assign(partitions, members, racks)
    owned: dict[str, Sequence[TopicPartition]] = {}
    newest, believed = -1, list[str]()
    for member in hash_order(members):
        claimed, generation = read_sticky_user_data(members[member].user_data)
        owned[member] = ()
        if newest > (-1 if generation is None else generation):
            continue
        if generation is not None and generation > newest:
            owned.update(dict.fromkeys(believed, ()))
            newest, believed = generation, []
        believed.append(member)
        owned[member] = claimed
    plan, _ = _constrained_assign(partitions, owned)
    return {member: plan[member] for member in members}


def _subscriptions_differ(members: Mapping[str, Subscription]) -> bool:
    return len({frozenset(one.topics) for one in members.values()}) != 1


def _constrained_assign(
    partitions: Mapping[str, int], claims: Mapping[str, Sequence[TopicPartition]]
) -> tuple[Plan, dict[TopicPartition, str]]:
    """The plan by what each owns, in the order of Java's hash table; and who gets what another one has."""
    left = dict.fromkeys(
        TopicPartition(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])
    )
    least, more = divmod(len(left), len(claims))
    most = least + (more > 0)
    plan: Plan = {}
    given_up: set[TopicPartition] = set()
    for member, claimed in claims.items():
        owned = [tp for tp in claimed if tp.topic in partitions]
        plan[member] = owned[:most]
        given_up.update(owned[most:])
        for tp in plan[member]:
            left.pop(tp, None)
    under = sorted(member for member in plan if len(plan[member]) < least)
    exact = deque(one for one in plan if one not in under and len(plan[one]) == least)
    full = deque(one for one in plan if one not in under and len(plan[one]) == most)
    moving = _assign_unowned(plan, under, exact, deque(left), least, given_up)
    moving |= _take_from_full(plan, under, exact, full, least)
    return plan, moving


def _assign_unowned(
    plan: Plan,
    under: list[str],
    exact: deque[str],
    left: deque[TopicPartition],
    least: int,
    given_up: set[TopicPartition],
) -> dict[TopicPartition, str]:
    """What nobody has to those that have too little, in turn; what is left then to those that have enough."""
    moving: dict[TopicPartition, str] = {}

    def give(member: str) -> None:
        tp = left.popleft()
        plan[member].append(tp)
        if tp in given_up:
            moving[tp] = member

    while under and left:
        for member in under[: len(left)]:
            give(member)
            if len(plan[member]) == least:
                exact.append(member)
        under[:] = [one for one in under if len(plan[one]) < least]
    while left:
        give(exact.popleft())
    return moving


def _take_from_full(
    plan: Plan, under: list[str], exact: deque[str], full: deque[str], least: int
) -> dict[TopicPartition, str]:
    """Those that still have too little get the first partition of those that have most."""
    moving: dict[TopicPartition, str] = {}
    for member in under:
        while len(plan[member]) < least:
            tp = plan[full.popleft()].pop(0)
            plan[member].append(tp)
            moving[tp] = member
        exact.append(member)
    return moving


def _user_data(previous: Sequence[TopicPartition] | None, generation: int) -> bytes | None:
    """What the last assignment was, in its order: the first ones are kept."""
    if previous is None:
        return None
    topics = [
        StickyUserDataTopic(topic=topic, partitions=partitions)
        for topic, partitions in group_by_topic(previous).items()
    ]
    return StickyUserData(previous_assignment=topics, generation=generation).encode(1)


STICKY_2_6 = Assignor("sticky", assign_eager, _user_data)
COOPERATIVE_STICKY_2_6 = Assignor(
    "cooperative-sticky", assign, ASSIGNORS["cooperative-sticky"].user_data, cooperative=True
)
