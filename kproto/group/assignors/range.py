"""The range assignor: each topic is split into contiguous ranges, one for each of its subscribers.

The assignor follows Kafka's `RangeAssignor` (R187, R189, R191). Of a topic with n partitions and m
subscribers, each subscriber gets n // m partitions. The first n % m subscribers, in the order of
`sort_members`, get one more.

If racks influence the assignment (KIP-881, `racks_matter`), partitions are first assigned to members whose
rack has a replica. The remaining partitions are split into ranges.

Topics with the same subscribers and the same number of partitions are co-partitioned: partition i of all
these topics gets the same owner. Without racks, this follows from the ranges. To preserve it, the assignment
by rack assigns partition i of all these topics in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..subscription import Subscription, TopicPartition
from .subscribers import RackMap, Racks, partition_racks, racks_matter, subscribers

Assigned = dict[str, list[TopicPartition]]


class _Topic:
    """One topic while `assign` runs: its unassigned partitions, and how many each subscriber gets."""

    def __init__(self, name: str, count: int, members: tuple[str, ...], racks: RackMap) -> None:
        self.name = name
        self.members = members
        # The unassigned partitions. The dict serves as an ordered set, from which partitions are removed in
        # constant time.
        self.unassigned = dict.fromkeys(range(count))
        self.assigned_counts: dict[str, int] = {}
        # Each subscriber gets `base` partitions, and `extra` subscribers get one more. `extra` decreases when
        # a subscriber gets its additional partition.
        self.base, self.extra = divmod(count, len(members))
        self.rack_of = racks.members
        self.racks = partition_racks(name, count, racks.partitions) if self.rack_of else []
        member_racks = [self.rack_of[member_id] for member_id in members if member_id in self.rack_of]
        self.racks_matter = racks_matter(member_racks, self.racks)

    def remaining(self, member_id: str) -> int:
        """Return the number of partitions of the topic that the member may still get."""
        return max(0, self.base + (self.extra > 0) - self.assigned_counts.get(member_id, 0))

    def is_near(self, member_id: str, partition: int) -> bool:
        """Return whether the member has no rack, or a replica of the partition is in its rack."""
        rack = self.rack_of.get(member_id)
        return rack is None or rack in self.racks[partition]

    def assign(self, member_id: str, partitions: Iterable[int], assigned: Assigned) -> None:
        """Remove these partitions from the unassigned ones, and add them to the member's list in `assigned`.

        The caller passes at most as many partitions as `remaining` allows.
        """
        for partition in partitions:
            del self.unassigned[partition]
            self.assigned_counts[member_id] = self.assigned_counts.get(member_id, 0) + 1
            assigned[member_id].append(TopicPartition(self.name, partition))
        if self.assigned_counts[member_id] > self.base:
            self.extra -= 1


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> Assigned:
    """Return the assignment.

    The docstring of the package describes the arguments. The partitions of each member are sorted.
    """
    assigned: Assigned = {member_id: [] for member_id in members}
    member_racks = {
        member_id: rack for member_id, member in members.items() if (rack := member.rack_id) is not None
    }
    rack_map = RackMap(member_racks, racks or {})
    topics = [
        _Topic(name, partitions[name], member_ids, rack_map)
        for name, member_ids in subscribers(members).items()
        if partitions.get(name, 0) > 0
    ]
    if any(topic.racks_matter for topic in topics):
        _assign_by_rack(topics, assigned)
    for topic in topics:
        _assign_ranges(topic, lambda member_id, partition: True, assigned)
    return {member_id: sorted(partitions) for member_id, partitions in assigned.items()}


def _assign_ranges(topic: _Topic, may_own: Callable[[str, int], bool], assigned: Assigned) -> None:
    """Give each subscriber in turn the first unassigned partitions that it may own.

    A subscriber gets at most `topic.remaining(member_id)` partitions.
    """
    for member_id in topic.members:
        if not topic.unassigned:
            return
        remaining = topic.remaining(member_id)
        partitions: list[int] = []
        for partition in topic.unassigned:
            if len(partitions) == remaining:
                break
            if may_own(member_id, partition):
                partitions.append(partition)
        if partitions:
            topic.assign(member_id, partitions, assigned)


def _assign_by_rack(topics: list[_Topic], assigned: Assigned) -> None:
    """Assign partitions to members whose rack has a replica of the partition.

    Topics with the same subscribers and the same number of partitions are assigned together. At least
    one member must have a rack, because otherwise the topics do not store the racks of their partitions.
    """
    groups: dict[tuple[tuple[str, ...], int], list[_Topic]] = {}
    for topic in topics:
        groups.setdefault((topic.members, len(topic.racks)), []).append(topic)
    for (_, count), group in groups.items():
        if len(group) > 1:
            _assign_together(group, count, assigned)
        elif group[0].racks_matter:
            _assign_ranges(group[0], group[0].is_near, assigned)


def _assign_together(topics: list[_Topic], count: int, assigned: Assigned) -> None:
    """For each index i, assign partition i of all topics to one member whose rack has replicas of them.

    A member qualifies only if it may still get a partition of every topic. A member without a rack counts as
    near to all replicas. If no member qualifies, the partitions of this index stay unassigned for now.
    """
    # The members that may still get partitions. The dict serves as an ordered set.
    members = dict.fromkeys(topics[0].members)
    for partition in range(count):
        for member_id in members:
            if all(topic.is_near(member_id, partition) and topic.remaining(member_id) for topic in topics):
                for topic in topics:
                    topic.assign(member_id, (partition,), assigned)
                if not any(topic.remaining(member_id) for topic in topics):
                    del members[member_id]
                break
