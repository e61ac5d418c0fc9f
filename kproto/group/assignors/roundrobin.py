"""The round-robin assignor: all partitions of all topics are dealt out in a circle.

Follows Kafka's `RoundRobinAssignor`: partitions in order of topic and index, members static first; a member
that does not want the topic is skipped, and has its turn for the next partition. Racks don't matter.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..subscription import Subscription, TopicPartition
from .members import Racks, in_order


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> dict[str, list[TopicPartition]]:
    """Divide; see the package for the arguments. Each member's partitions come sorted."""
    plan: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    circle = in_order(members)
    wants = [frozenset(members[member_id].topics) for member_id in circle]
    turn = 0
    for topic in sorted(frozenset[str]().union(*wants)):
        for partition in range(partitions.get(topic, 0)):
            while topic not in wants[turn]:
                turn = (turn + 1) % len(circle)
            plan[circle[turn]].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(circle)
    return plan
