"""The sticky assignor: balances the partitions and moves as few of them as possible (KIP-54).

The assignor follows Kafka's `AbstractStickyAssignor`. If neither the members, their subscriptions nor the
partitions have changed since the last assignment, it moves no partition (R221).
It has both of Kafka's algorithms (R193):

* If all members subscribe to the same topics, each member keeps its partitions up to its quota. With P
  partitions and C members the quota is P // C, and P % C members may have one partition more (R196).

* If all members subscribe to the same topics, the remaining partitions are assigned in turn: first to members
  below their quota, then to members that may have one more.

* If members subscribe to different topics, each member keeps its partitions of the topics to which it still
  subscribes.

* If members subscribe to different topics, each remaining partition is assigned to the topic's subscriber
  with the fewest partitions (R205). Topics with the fewest subscribers come first.

* If members subscribe to different topics, the last step moves single partitions to subscribers that have at
  least two fewer partitions than the owner (R208).

A reported partition counts only if it exists and the member subscribes to its topic.

If several members report the same partition, the report with the newest generation determines the owner. If
two reports have this generation, the partition has no owner (R194).

In Kafka, the hash order of the member ids decides which members keep an extra partition. In kproto, their
sorted order decides.

If two members report a partition in the same older generation, the member whose id sorts first counts as the
previous owner of the partition.

This last step moves a partition only if the move reduces the difference between the numbers of partitions of
the old and the new owner, so the step terminates for every input.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import groupby
from typing import NamedTuple

from ..subscription import ReportedOwnership, Subscription, TopicPartition, read_sticky_user_data
from .subscribers import Racks, partition_racks, racks_matter

Assigned = dict[str, list[TopicPartition]]


class StickyAssignment(NamedTuple):
    """A new assignment, and the previous owner of each partition that a member reports as owned (R194)."""

    assigned: Assigned
    owners: dict[TopicPartition, str]


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> dict[str, list[TopicPartition]]:
    """Return the assignment.

    The package's docstring describes the arguments. The user data contains a member's owned partitions
    (R212).
    """
    return assign_sticky(partitions, members, racks or {}, read_ownership).assigned


def read_ownership(subscription: Subscription) -> ReportedOwnership:
    """Return the partitions that a member reports as owned in its user data, and their generation."""
    return read_sticky_user_data(subscription.user_data)


def assign_sticky(
    partitions: Mapping[str, int],
    members: Mapping[str, Subscription],
    racks: Racks,
    claim: Callable[[Subscription], ReportedOwnership],
    *,
    one_by_one: bool = False,
) -> StickyAssignment:
    """Return the assignment. `claim` returns the partitions that a member reports as owned.

    If `one_by_one` is true, the algorithm for members with different subscriptions is used even if all
    members subscribe to the same topics. Some clients, such as librdkafka, have only this algorithm.
    """
    topics_by_member: dict[str, frozenset[str]] = {}
    topics: tuple[str, ...] = ()
    topic_set = frozenset[str]()
    # Usually all members subscribe to the same topics. Comparing two tuples of topics is cheaper than
    # creating a frozenset for each member.
    for member_id in sorted(members):
        if members[member_id].topics != topics:
            topics = members[member_id].topics
            topic_set = frozenset(topics)
        topics_by_member[member_id] = topic_set
    reported = _ReportedOwners(partitions, members, topics_by_member, claim)
    assigned: Assigned = {member_id: [] for member_id in members}
    subscribed = {member_id: topics for member_id, topics in topics_by_member.items() if topics}
    if subscribed:
        distance = _RackDistance(partitions, members, subscribed, racks)
        if len(set(subscribed.values())) == 1 and not one_by_one:
            assigned.update(_QuotaAssignment(partitions, subscribed, reported, distance).build())
        else:
            assigned.update(_GreedyAssignment(partitions, subscribed, reported, distance).build())
    return StickyAssignment(assigned, reported.owners)


class _ReportedOwners:
    """The owners of the partitions before the assignment, according to the members' reports (R194)."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        members: Mapping[str, Subscription],
        topics_by_member: Mapping[str, frozenset[str]],
        claim: Callable[[Subscription], ReportedOwnership],
    ) -> None:
        self.owners: dict[TopicPartition, str] = {}
        # Maps a partition to its owner in an older generation. If the partition has to move, it preferably
        # returns to this owner.
        self.previous: dict[TopicPartition, str] = {}
        # Maps a member id to the valid partitions that it reports, and to the generation of its report (-1:
        # unknown).
        reports: dict[str, tuple[list[TopicPartition], int]] = {}
        for member_id, topics in topics_by_member.items():
            owned, generation = claim(members[member_id])
            valid = [
                partition
                for partition in owned
                if partition[0] in topics and 0 <= partition[1] < partitions.get(partition[0], 0)
            ]
            reports[member_id] = (valid, -1 if generation is None else generation)
        newest_generation = max((generation for _, generation in reports.values()), default=-1)
        owner_generations: dict[TopicPartition, int] = {}
        previous_generations: dict[TopicPartition, int] = {}
        # The partitions whose newest report, by generation, comes from two or more members.
        contested: set[TopicPartition] = set()
        for member_id, (valid, generation) in reports.items():
            for partition in dict.fromkeys(valid):
                owner_generation = owner_generations.get(partition)
                if owner_generation is None or generation > owner_generation:
                    self.owners[partition], owner_generations[partition] = member_id, generation
                    contested.discard(partition)
                elif generation == owner_generation:
                    contested.add(partition)
                if previous_generations.get(partition, -2) < generation < newest_generation:
                    self.previous[partition], previous_generations[partition] = member_id, generation
        for partition in contested:
            del self.owners[partition]

    def owned_by_member(self, members: Iterable[str]) -> dict[str, list[TopicPartition]]:
        """Return the partitions that each member owns according to the members' reports."""
        owned: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for partition, member_id in self.owners.items():
            owned[member_id].append(partition)
        return owned


class _RackDistance:
    """The racks of members and replicas, which determine how near a member is to a partition.

    `matter` is False if racks have no influence on the assignment.
    """

    def __init__(
        self,
        partitions: Mapping[str, int],
        members: Mapping[str, Subscription],
        topics_by_member: Mapping[str, frozenset[str]],
        racks: Racks,
    ) -> None:
        self.rack_of: dict[str, str] = {
            member_id: rack
            for member_id in topics_by_member
            if (rack := members[member_id].rack_id) is not None
        }
        self.replicas: dict[TopicPartition, frozenset[str]] = {}
        if self.rack_of:
            for topic in sorted(frozenset[str]().union(*topics_by_member.values())):
                count = partitions.get(topic, 0)
                for index, replica_racks in enumerate(partition_racks(topic, count, racks)):
                    self.replicas[TopicPartition(topic, index)] = replica_racks
        self.matter = racks_matter(self.rack_of.values(), list(self.replicas.values()))

    def is_near(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member may own the partition as far as racks are concerned.

        True if a replica is in the member's rack, if the member has no rack, or if racks do not influence the
        assignment.
        """
        rack = self.rack_of.get(member_id) if self.matter else None
        return rack is None or rack in self.replicas[partition]

    def is_in_same_rack(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack and a replica of the partition is in this rack."""
        rack = self.rack_of.get(member_id)
        return rack is not None and rack in self.replicas[partition]

    def distance_gain(self, partition: TopicPartition, source: str, target: str) -> int:
        """Return 1 if only `source` is in the rack of a replica, -1 if only `target` is, else 0."""
        return self.is_in_same_rack(source, partition) - self.is_in_same_rack(target, partition)

    def near_members_key(self) -> Callable[[TopicPartition], int]:
        """Return a sort key: the number of members in the racks of a partition's replicas."""
        member_counts: dict[str, int] = {}
        for rack in self.rack_of.values():
            member_counts[rack] = member_counts.get(rack, 0) + 1
        return lambda partition: sum(member_counts.get(rack, 0) for rack in self.replicas[partition])


def _by_index(partition: TopicPartition) -> tuple[int, str]:
    """Return a sort key: the index of the partition, then its topic."""
    return partition[1], partition[0]


class _QuotaAssignment:
    """The algorithm for members that subscribe to the same topics: each member has a quota of partitions."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        topics_by_member: Mapping[str, frozenset[str]],
        reported: _ReportedOwners,
        racks: _RackDistance,
    ) -> None:
        topics = sorted(next(iter(topics_by_member.values())))
        self.all_partitions = [
            TopicPartition(t, index) for t in topics for index in range(partitions.get(t, 0))
        ]
        # `extra` is the number of members that may still get one partition more than the quota.
        self.quota, self.extra = divmod(len(self.all_partitions), len(topics_by_member))
        self.max_load = self.quota + (self.extra > 0)
        self.racks = racks
        self.assigned: Assigned = {member_id: [] for member_id in topics_by_member}
        self.owned = reported.owned_by_member(topics_by_member)
        self.below_quota: list[str] = []
        # Members that have reached the quota, and may get one more partition.
        self.at_quota: list[str] = []

    def build(self) -> Assigned:
        """Return the assignment."""
        self._keep_owned()
        assigned = {partition for partitions in self.assigned.values() for partition in partitions}
        unassigned = (
            [partition for partition in self.all_partitions if partition not in assigned]
            if assigned
            else self.all_partitions
        )
        if self.racks.matter:
            unassigned = self._assign_near(sorted(unassigned, key=self.racks.near_members_key()))
        self._assign_in_turn(unassigned)
        return self.assigned

    def _keep_owned(self) -> None:
        """Let each member keep owned partitions up to the quota; `extra` members may keep one more."""
        for member_id, owned in self.owned.items():
            if self.racks.matter:
                owned = [partition for partition in owned if self.racks.is_near(member_id, partition)]
            if len(owned) < self.quota:
                self.assigned[member_id] = sorted(owned, key=_by_index)
                self.below_quota.append(member_id)
            elif len(owned) >= self.max_load and self.extra:
                self.assigned[member_id] = sorted(owned, key=_by_index)[: self.max_load]
                self.extra -= 1
            else:
                self.assigned[member_id] = sorted(owned, key=_by_index)[: self.quota]
                self.at_quota.append(member_id)
        if not self.extra:
            self.at_quota = []

    def _assign_near(self, unassigned: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members whose rack has a replica; return the remaining partitions.

        Members below the quota get partitions in turn, before members at the quota get one more each.
        """
        start = 0  # The index in `below_quota` of the member whose turn it is.
        remaining: list[TopicPartition] = []
        for partition in unassigned:
            index = self._next_near(partition, self.below_quota, start)
            if index is not None:
                member_id = self.below_quota[index]
                self.assigned[member_id].append(partition)
                if len(self.assigned[member_id]) >= self.quota:
                    del self.below_quota[index]
                    if self.extra:
                        self.at_quota.append(member_id)
                else:
                    index += 1
                start = index % len(self.below_quota) if self.below_quota else 0
                continue
            index = self._next_near(partition, self.at_quota, 0)
            if index is None:
                remaining.append(partition)
            else:
                self.assigned[self.at_quota.pop(index)].append(partition)
                self.extra -= 1
                if not self.extra:
                    self.at_quota = []
        return remaining

    def _next_near(self, partition: TopicPartition, members: list[str], start: int) -> int | None:
        """Return the index of a member whose rack has a replica of the partition; None without such a member.

        The search begins at the index `start` and wraps around at the end of `members`.
        """
        for step in range(len(members)):
            index = (start + step) % len(members)
            if self.racks.is_in_same_rack(members[index], partition):
                return index
        return None

    def _assign_in_turn(self, unassigned: list[TopicPartition]) -> None:
        """Assign partitions in turn to members below the quota, then one each to members at the quota."""
        index = 0
        members, next_members = self.below_quota, list[str]()
        members_at_quota = iter(self.at_quota)
        for partition in unassigned:
            if index == len(members):
                members, next_members, index = next_members, [], 0
            if not members:
                self.assigned[next(members_at_quota)].append(partition)
                continue
            member_id = members[index]
            index += 1
            self.assigned[member_id].append(partition)
            if len(self.assigned[member_id]) < self.quota:
                next_members.append(member_id)
            else:
                self.at_quota.append(member_id)


class _GreedyAssignment:
    """The algorithm for members with different subscriptions: moves partitions to balance their counts."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        topics_by_member: Mapping[str, frozenset[str]],
        reported: _ReportedOwners,
        racks: _RackDistance,
    ) -> None:
        self.topics_by_member = topics_by_member
        self.racks = racks
        self.reported = reported
        self.subscribers: dict[str, list[str]] = {}
        for member_id, topics in topics_by_member.items():
            for topic in topics:
                if partitions.get(topic, 0):
                    self.subscribers.setdefault(topic, []).append(member_id)
        topics_in_order = sorted(self.subscribers, key=lambda topic: (len(self.subscribers[topic]), topic))
        self.all_partitions = [
            TopicPartition(t, index) for t in topics_in_order for index in range(partitions[t])
        ]
        self.owners: dict[TopicPartition, str] = {}
        self.load = dict.fromkeys(topics_by_member, 0)
        self.by_load: list[tuple[int, str]] = []  # Each member's number of partitions and id, sorted.
        self.move_count = 0
        # Maps a topic to the least load among its subscribers, and to the `move_count` when this load was
        # computed.
        self.least_loads: dict[str, tuple[int, int]] = {}
        # Maps a moved partition to the member that owned it before the first move.
        self.moved_from: dict[TopicPartition, str] = {}
        # Maps (topic, owner before the first move, current owner) to the moved partitions, sorted.
        self.moves: dict[tuple[str, str, str], list[TopicPartition]] = {}

    def build(self) -> Assigned:
        """Return the assignment. Moves that do not improve the balance are undone."""
        has_far_owner = False
        for partition, member_id in self.reported.owners.items():
            if self.racks.is_near(member_id, partition):
                self.owners[partition] = member_id
                self.load[member_id] += 1
            else:
                has_far_owner = True
        is_first_assignment = not any(self.load.values())
        self.by_load = sorted((load, member_id) for member_id, load in self.load.items())
        unowned = [partition for partition in self.all_partitions if partition not in self.owners]
        self._assign_unowned(unowned)
        owners_before, imbalance_before = dict(self.owners), _imbalance(self.load.values())
        if not has_far_owner:
            self._balance(unowned)
        has_moved = self._balance(self.all_partitions)
        if has_moved and not is_first_assignment and _imbalance(self.load.values()) >= imbalance_before:
            self.owners = owners_before
        assigned: Assigned = {member_id: [] for member_id in self.topics_by_member}
        for partition in self.all_partitions:
            assigned[self.owners[partition]].append(partition)
        return assigned

    def _least_loaded(self, topic: str) -> str:
        """Return the topic's least loaded subscriber; among equals, the one with the smallest member id."""
        subscribers = self.subscribers[topic]
        if len(subscribers) ** 2 < len(self.by_load):
            return min(subscribers, key=lambda member_id: (self.load[member_id], member_id))
        return next(member_id for _, member_id in self.by_load if topic in self.topics_by_member[member_id])

    def _assign_unowned(self, unowned: list[TopicPartition]) -> None:
        """Assign each partition to the least loaded subscriber.

        Subscribers whose rack has a replica take precedence over less loaded subscribers.
        """
        remaining = unowned
        if self.racks.matter:
            remaining = list[TopicPartition]()
            for partition in unowned:
                near_subscribers = (
                    member_id
                    for _, member_id in self.by_load
                    if partition.topic in self.topics_by_member[member_id]
                    and self.racks.is_near(member_id, partition)
                )
                nearest = next(near_subscribers, None)
                if nearest is None:
                    remaining.append(partition)
                else:
                    self._assign(partition, nearest)
        for topic, partitions in groupby(remaining, key=lambda partition: partition.topic):
            heap = [(self.load[member_id], member_id) for member_id in self.subscribers[topic]]
            heapify(heap)
            for partition in partitions:
                load, member_id = heap[0]
                heapreplace(heap, (load + 1, member_id))
                self._assign(partition, member_id)

    def _balance(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions to members with at least two fewer partitions than the owner.

        Passes over the partitions are repeated until a pass moves no partition. Return whether any pass has
        moved a partition.
        """
        has_moved = False
        movable = [partition for partition in partitions if len(self.subscribers[partition.topic]) > 1]
        while True:
            has_moved_in_pass = False
            for partition in movable:
                load = self.load[self.owners[partition]]
                if load <= self.by_load[0][0] + 1 or load <= self._least_load_bound(partition.topic) + 1:
                    continue
                previous = self.reported.previous.get(partition)
                if previous is not None and load > self.load[previous] + 1:
                    target = previous
                else:
                    target = self._least_loaded(partition.topic)
                    self.least_loads[partition.topic] = self.load[target], self.move_count
                    if load <= self.load[target] + 1:
                        continue
                self._move(partition, target)
                has_moved = has_moved_in_pass = True
            if not has_moved_in_pass:
                return has_moved

    def _least_load_bound(self, topic: str) -> int:
        """Return a lower bound on the number of partitions of the topic's least loaded subscriber.

        The bound is the most recently computed least load, minus the number of moves since then, because each
        move reduces the least load by at most one. `_balance` searches for a new owner of a partition only if
        its current owner has at least two partitions more than the bound.
        """
        least, move_count = self.least_loads.get(topic, (0, 0))
        return least - (self.move_count - move_count)

    def _move(self, partition: TopicPartition, target: str) -> None:
        """Move a partition to the member `target`.

        Another partition of the topic may have been moved in the opposite direction, from `target` to this
        partition's original owner. If moving that partition back improves the balance, the method moves it
        back, and `partition` keeps its owner.
        """
        source = self.moved_from.get(partition, self.owners[partition])
        opposite_moves = self.moves.get((partition.topic, target, source))
        if opposite_moves and self.load[source] > self.load[target] + 1:
            # Moving any of these partitions back improves the balance. Prefer one that `target` owned and
            # `source` did not, then one with a replica in the rack of `target` but not of `source`.
            partition = min(
                opposite_moves,
                key=lambda candidate: (
                    self._has_owned(source, candidate) - self._has_owned(target, candidate),
                    self.racks.distance_gain(candidate, source, target) if self.racks.matter else 0,
                ),
            )
        origin = self._forget_move(partition)
        self.move_count += 1
        if origin != target:
            self.moved_from[partition] = origin
            insort(self.moves.setdefault((partition.topic, origin, target), []), partition)
        self._assign(partition, target)

    def _has_owned(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member owned the partition before this assignment (see `_ReportedOwners`)."""
        return self.reported.owners.get(partition) == member_id

    def _forget_move(self, partition: TopicPartition) -> str:
        """Forget that the partition was moved, and return the member that owned it before its first move."""
        owner = self.owners[partition]
        origin = self.moved_from.pop(partition, None)
        if origin is None:
            return owner
        self.moves[partition.topic, origin, owner].remove(partition)
        return origin

    def _assign(self, partition: TopicPartition, member_id: str) -> None:
        """Assign the partition to the member; update the loads of this member and the previous owner."""
        earlier_owner = self.owners.get(partition)
        if earlier_owner is not None:
            self._change_load(earlier_owner, -1)
        self.owners[partition] = member_id
        self._change_load(member_id, 1)

    def _change_load(self, member_id: str, change: int) -> None:
        """Add `change` to the member's number of partitions."""
        load = self.load[member_id]
        del self.by_load[bisect_left(self.by_load, (load, member_id))]
        self.load[member_id] = load + change
        insort(self.by_load, (load + change, member_id))


def _imbalance(loads: Iterable[int]) -> int:
    """Return the sum of the differences between the loads of all pairs of members."""
    total = sum_of_smaller = 0
    for rank, load in enumerate(sorted(loads)):
        total += load * rank - sum_of_smaller
        sum_of_smaller += load
    return total
