"""The cooperative-sticky assignor as 2.6 has it: members keep the first partitions that they say they own.

Follows `AbstractStickyAssignor.constrainedAssign` of 2.6.2, for members that want the same topics; where they
don't, the general way is today's. Today's sorts what a member owns before it keeps the first ones, and lets
only as many members keep the larger share as there are such shares; here whoever owns it keeps it, and it is
taken away again where somebody would have too few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...group.assignors import ASSIGNORS, Assignor, cooperative_sticky
from ...group.assignors.members import Racks
from ...group.subscription import Subscription, TopicPartition
from .hashing import hash_order

Plan = dict[str, list[TopicPartition]]


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> Plan:
    """Divide; what changes hands is withheld until it was given back."""
    if len({frozenset(one.topics) for one in members.values()}) != 1:
        return cooperative_sticky.assign(partitions, members, racks)
    left = dict.fromkeys(
        TopicPartition(topic, number) for topic in sorted(partitions) for number in range(partitions[topic])
    )
    least, more = divmod(len(left), len(members))
    most = least + (more > 0)
    plan: Plan = {}
    given_up: set[TopicPartition] = set()
    for member in hash_order(members):
        owned = [tp for tp in members[member].owned if tp.topic in partitions]
        plan[member] = owned[:most]
        given_up.update(owned[most:])
        for tp in plan[member]:
            left.pop(tp, None)
    under = sorted(member for member in plan if len(plan[member]) < least)
    exact = deque(one for one in plan if one not in under and len(plan[one]) == least)
    full = deque(one for one in plan if one not in under and len(plan[one]) == most)
    moving = _fill(plan, under, exact, deque(left), least, given_up)
    moving |= _take_from(plan, under, exact, full, least)
    return {member: [tp for tp in plan[member] if moving.get(tp) != member] for member in members}


def _fill(
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


def _take_from(
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


COOPERATIVE_STICKY = Assignor(
    "cooperative-sticky", assign, ASSIGNORS["cooperative-sticky"].user_data, cooperative=True
)
