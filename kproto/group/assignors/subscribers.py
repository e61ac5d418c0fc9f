"""What assignors need to know about members: their order, the subscribers of each topic, and racks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..subscription import Subscription

# Maps a topic to one set for each partition: the racks with a replica of the partition (KIP-881).
Racks = Mapping[str, Sequence[frozenset[str]]]


def sort_members(members: Mapping[str, Subscription]) -> list[str]:
    """Return the member ids in the order of Kafka's range and round-robin assignors.

    Static members come first, by instance id, so that they keep their partitions when their member ids
    change (R187).
    """

    def sort_key(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id, member_id

    return sorted(members, key=sort_key)


class RackMap(NamedTuple):
    """The rack of each member that reports one, and the racks of the replicas of each topic's partitions."""

    members: Mapping[str, str]
    partitions: Racks


def subscribers(members: Mapping[str, Subscription]) -> dict[str, tuple[str, ...]]:
    """Return the subscribers of each topic in the order of `sort_members`.

    Topics with equal subscribers share one tuple.
    """
    # Maps the topics of a subscription to the members that subscribe to exactly these topics. The members are
    # given by their positions in `order`.
    positions_by_topics: dict[tuple[str, ...], list[int]] = {}
    order = sort_members(members)
    for position, member_id in enumerate(order):
        positions_by_topics.setdefault(members[member_id].topics, []).append(position)
    # Each entry of `groups` is a set of members with equal subscriptions. `groups_by_topic` maps a topic to
    # the indexes of the sets that subscribe to the topic.
    groups = list(positions_by_topics.values())
    groups_by_topic: dict[str, list[int]] = {}
    for group, topics in enumerate(positions_by_topics):
        for topic in dict.fromkeys(topics):
            groups_by_topic.setdefault(topic, []).append(group)
    members_by_groups: dict[tuple[int, ...], tuple[str, ...]] = {}
    members_by_topic: dict[str, tuple[str, ...]] = {}
    for topic in sorted(groups_by_topic):
        topic_groups = tuple(groups_by_topic[topic])
        if topic_groups not in members_by_groups:
            positions = sorted(position for group in topic_groups for position in groups[group])
            members_by_groups[topic_groups] = tuple(order[position] for position in positions)
        members_by_topic[topic] = members_by_groups[topic_groups]
    return members_by_topic


def racks_matter(member_racks: Iterable[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Return whether racks influence the assignment (R188).

    Racks matter if some member is in the rack of a replica, and some rack does not have replicas of all
    partitions.
    """
    all_racks = frozenset[str]().union(*partition_racks)
    return not all_racks.isdisjoint(member_racks) and any(racks != all_racks for racks in partition_racks)


def partition_racks(topic: str, count: int, racks: Racks) -> list[frozenset[str]]:
    """Return the racks of each partition's replicas, with an empty set where the racks are unknown."""
    known_racks = racks.get(topic, ())
    return [known_racks[index] if index < len(known_racks) else frozenset() for index in range(count)]
