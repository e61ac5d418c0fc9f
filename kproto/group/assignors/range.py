"""The range assignor: each topic is cut into contiguous blocks, one for each of its subscribers.

Follows Kafka's `RangeAssignor`. With n partitions and m subscribers everybody gets n // m, and the first n %
m one more. Where racks matter (KIP-881), partitions first go to members in a rack that has a replica, topics
with the same subscribers and the same number of partitions together, so that partition i of all of them stays
with one member; what is left over is then cut as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..subscription import Subscription, TopicPartition
from .members import Near, Racks, partition_racks, racks_matter, subscribers


class _Topic:
    """One topic while it is divided: what is left of it, and what each subscriber may still get."""

    def __init__(self, name: str, count: int, members: tuple[str, ...], near: Near) -> None:
        self.name = name
        self.members = members
        self.left = dict.fromkeys(range(count))
        self.given: dict[str, int] = {}
        self.base, self.extra = divmod(count, len(members))
        self.rack_of = near.members
        self.racks = partition_racks(name, count, near.partitions) if self.rack_of else []
        self.racks_matter = racks_matter([self.rack_of[m] for m in members if m in self.rack_of], self.racks)

    def room(self, member_id: str) -> int:
        return max(0, self.base + (self.extra > 0) - self.given.get(member_id, 0))

    def near(self, member_id: str, partition: int) -> bool:
        rack = self.rack_of.get(member_id)
        return rack is None or rack in self.racks[partition]

    def give(self, member_id: str, partitions: Iterable[int], plan: dict[str, list[TopicPartition]]) -> None:
        for partition in partitions:
            del self.left[partition]
            self.given[member_id] = self.given.get(member_id, 0) + 1
            plan[member_id].append(TopicPartition(self.name, partition))
        if self.given[member_id] > self.base:
            self.extra -= 1


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> dict[str, list[TopicPartition]]:
    """Divide; see the package for the arguments. Each member's partitions come sorted."""
    plan: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
    near = Near(
        {m: rack for m, member in members.items() if (rack := member.rack_id) is not None}, racks or {}
    )
    topics = [
        _Topic(name, partitions[name], wanting, near)
        for name, wanting in subscribers(members).items()
        if partitions.get(name, 0) > 0
    ]
    if any(topic.racks_matter for topic in topics):
        _give_by_rack(topics, plan)
    for topic in topics:
        _give_ranges(topic, lambda member_id, partition: True, plan)
    return {member_id: sorted(given) for member_id, given in plan.items()}


def _give_ranges(
    topic: _Topic, may_have: Callable[[str, int], bool], plan: dict[str, list[TopicPartition]]
) -> None:
    for member_id in topic.members:
        if not topic.left:
            return
        room = topic.room(member_id)
        taken: list[int] = []
        for partition in topic.left:
            if len(taken) == room:
                break
            if may_have(member_id, partition):
                taken.append(partition)
        if taken:
            topic.give(member_id, taken, plan)


def _give_by_rack(topics: list[_Topic], plan: dict[str, list[TopicPartition]]) -> None:
    alike: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        alike.setdefault((topic.members, len(topic.racks)), []).append(topic)
    for (_, count), group in alike.items():
        if len(group) > 1:
            _give_together(group, count, plan)
        elif group[0].racks_matter:
            _give_ranges(group[0], group[0].near, plan)


def _give_together(topics: list[_Topic], count: int, plan: dict[str, list[TopicPartition]]) -> None:
    """Partition i of all the topics to the first member that is near to all of them and has room."""
    members = dict.fromkeys(topics[0].members)
    for partition in range(count):
        for member_id in members:
            if all(topic.near(member_id, partition) and topic.room(member_id) for topic in topics):
                for topic in topics:
                    topic.give(member_id, (partition,), plan)
                if not any(topic.room(member_id) for topic in topics):
                    del members[member_id]
                break
