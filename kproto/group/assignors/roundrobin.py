"""The round-robin assignor: all partitions of all topics are assigned to the members in turn.

The assignor follows Kafka's `RoundRobinAssignor` (R187, R192). Partitions are sorted by topic and index, and
static members come first. Racks have no influence.

A member that does not subscribe to a topic is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..subscription import Subscription, TopicPartition
from .subscribers import Racks, sort_members


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> dict[str, list[TopicPartition]]:
    """Return the assignment.

    The docstring of the package describes the arguments. The partitions of each member are sorted.
    """
    assigned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    member_ids = sort_members(members)
    topics_of_members = [frozenset(members[member_id].topics) for member_id in member_ids]
    turn = 0  # The index of the next member that gets a partition.
    for topic in sorted(frozenset[str]().union(*topics_of_members)):
        for partition in range(partitions.get(topic, 0)):
            while topic not in topics_of_members[turn]:
                turn = (turn + 1) % len(member_ids)
            assigned[member_ids[turn]].append(TopicPartition(topic, partition))
            turn = (turn + 1) % len(member_ids)
    return assigned
