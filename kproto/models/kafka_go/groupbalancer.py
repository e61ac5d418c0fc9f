"""The balancers of groupbalancer.go.

The range and roundrobin balancers sort the members by id. Partitions are in the order of the Metadata
response.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

# An assignment: member id -> topic -> partitions.
Plan = dict[str, dict[str, list[int]]]


def assign(name: str, members: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]) -> Plan:
    """Return the assignment of the balancer `name`. `members` maps member ids to topics.

    A member whose topics have no partitions gets an empty entry.
    """
    gets_partition = _BALANCERS[name]
    plan: Plan = {}
    members_by_topic: dict[str, list[str]] = {}
    for member, topics in members.items():
        for topic in topics:
            members_by_topic.setdefault(topic, []).append(member)
    for topic, subscribed_members in members_by_topic.items():
        topic_partitions = partitions.get(topic, ())
        for index, member in enumerate(sorted(subscribed_members)):
            partitions_of_member = [
                partition
                for position, partition in enumerate(topic_partitions)
                if gets_partition(position, index, len(topic_partitions), len(subscribed_members))
            ]
            assignment = plan.setdefault(member, {})
            if partitions_of_member:
                assignment[topic] = partitions_of_member
    return plan


def _range(position: int, index: int, partitions: int, members: int) -> bool:
    """Return whether the member at `index` gets the partition at `position`.

    The original is RangeGroupBalancer.AssignGroups.

    Java's range assignor gives the larger shares to the first members. kafka-go spreads the larger
    shares evenly over the members.
    """
    return index * partitions // members <= position < (index + 1) * partitions // members


def _roundrobin(position: int, index: int, partitions: int, members: int) -> bool:
    """Return whether the member at `index` gets the partition at `position`.

    The original is RoundRobinGroupBalancer.AssignGroups.

    The first partition of each topic is assigned to the first member.
    """
    return position % members == index


_BALANCERS: Mapping[str, Callable[[int, int, int, int], bool]] = {"range": _range, "roundrobin": _roundrobin}
