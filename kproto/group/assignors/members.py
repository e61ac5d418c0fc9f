"""What all assignors ask about members: their order, and whether racks matter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ..subscription import Subscription

Racks = Mapping[str, Sequence[frozenset[str]]]
"""Topic -> for each partition, by index, the racks that have a replica of it (KIP-881)."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """The member ids as Kafka's range and roundrobin take them: static ones first, by instance id.

    So the partitions of static members stay the same when their member ids change.
    """

    def place(member_id: str) -> tuple[bool, str, str]:
        instance_id = members[member_id].instance_id
        return instance_id is None, member_id if instance_id is None else instance_id, member_id

    return sorted(members, key=place)


class Near(NamedTuple):
    """Where members are (those that say it), and where the replicas of each topic's partitions are."""

    members: Mapping[str, str]
    partitions: Racks


def subscribers(members: Mapping[str, Subscription]) -> dict[str, tuple[str, ...]]:
    """Topic -> who wants it, `in_order`; by topic. Topics that the same members want share one tuple."""
    alike: dict[tuple[str, ...], list[int]] = {}  # members that want the same are looked at once
    order = in_order(members)
    for place, member_id in enumerate(order):
        alike.setdefault(members[member_id].topics, []).append(place)
    groups = list(alike.values())
    wanted: dict[str, list[int]] = {}
    for number, topics in enumerate(alike):
        for topic in dict.fromkeys(topics):
            wanted.setdefault(topic, []).append(number)
    merged: dict[tuple[int, ...], tuple[str, ...]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for topic in sorted(wanted):
        numbers = tuple(wanted[topic])
        if numbers not in merged:
            places = sorted(place for number in numbers for place in groups[number])
            merged[numbers] = tuple(order[place] for place in places)
        found[topic] = merged[numbers]
    return found


def racks_matter(member_racks: Iterable[str], partition_racks: Sequence[frozenset[str]]) -> bool:
    """Whether to look at racks: some member is where a replica is, and not every rack has them all."""
    everywhere = frozenset[str]().union(*partition_racks)
    return not everywhere.isdisjoint(member_racks) and any(racks != everywhere for racks in partition_racks)


def partition_racks(topic: str, count: int, racks: Racks) -> list[frozenset[str]]:
    """The racks of each of the topic's partitions; none where nothing is known."""
    known = racks.get(topic, ())
    return [known[index] if index < len(known) else frozenset() for index in range(count)]
