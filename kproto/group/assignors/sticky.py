"""The sticky assignor: balances the partitions and moves as few of them as possible (KIP-54).

The assignor follows Kafka's `AbstractStickyAssignor` and has both of its algorithms (R193, R221):

* If all members subscribe to the same topics, each member keeps its partitions up to its quota. The remaining
  partitions are assigned in turn, first to members below their quota (R196).

* With P partitions and C members the quota is P // C, and P % C members may have one partition more.

* If members subscribe to different topics, each member keeps its partitions of the topics to which it still
  subscribes.

* If members subscribe to different topics, each remaining partition is assigned to the topic's subscriber
  with the fewest partitions. Topics with the fewest subscribers come first.

* If members subscribe to different topics, the last step moves single partitions to subscribers that have at
  least two fewer partitions than the owner (R205, R208).

A reported partition counts only if it exists and the member subscribes to its topic.

If several members report the same partition, the report with the newest generation determines the owner. If
two reports have this generation, the partition has no owner (R194).

In Kafka, the hash order of the member ids decides which members keep an extra partition. In kproto, their
sorted order decides.

If two members report a partition in the same older generation, the member whose id sorts first counts as the
previous owner of the partition.

The last step moves a partition only if the move reduces the difference between the loads of the old and the
new owner, so the step terminates for every input.
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
    # Usually all members subscribe to the same topics. Comparing the tuples is cheaper than creating a
    # frozenset for each member.
    for member_id in sorted(members):
        if members[member_id].topics != topics:
            topics = members[member_id].topics
            topic_set = frozenset(topics)
        topics_by_member[member_id] = topic_set
    claims = _Owners(partitions, members, topics_by_member, claim)
    assigned: Assigned = {member_id: [] for member_id in members}
    subscribed = {member_id: topics for member_id, topics in topics_by_member.items() if topics}
    if subscribed:
        near = _RackDistance(partitions, members, subscribed, racks)
        if len(set(subscribed.values())) == 1 and not one_by_one:
            assigned.update(_QuotaAssignment(partitions, subscribed, claims, near).build())
        else:
            assigned.update(_GreedyAssignment(partitions, subscribed, claims, near).build())
    return StickyAssignment(assigned, claims.owners)


class _Owners:
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
        generations: dict[TopicPartition, int] = {}
        contested: set[TopicPartition] = set()
        reported: dict[str, tuple[list[TopicPartition], int]] = {}
        for member_id, topics in topics_by_member.items():
            owned, generation = claim(members[member_id])
            known = [
                partition
                for partition in owned
                if partition[0] in topics and 0 <= partition[1] < partitions.get(partition[0], 0)
            ]
            reported[member_id] = (known, -1 if generation is None else generation)
        newest = max((generation for _, generation in reported.values()), default=-1)
        earlier: dict[TopicPartition, int] = {}
        for member_id, (known, generation) in reported.items():
            for partition in dict.fromkeys(known):
                previous_generation = generations.get(partition)
                if previous_generation is None or generation > previous_generation:
                    self.owners[partition], generations[partition] = member_id, generation
                    if previous_generation is not None:
                        contested.discard(partition)
                elif generation == previous_generation:
                    contested.add(partition)
                if generation < newest and generation > earlier.get(partition, -2):
                    self.previous[partition], earlier[partition] = member_id, generation
        for partition in contested:
            del self.owners[partition]

    def owned_by_member(self, members: Iterable[str]) -> dict[str, list[TopicPartition]]:
        """Return the partitions that each member owns according to the members' reports."""
        held: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for partition, member_id in self.owners.items():
            held[member_id].append(partition)
        return held


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

    def is_same(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack and a replica of the partition is in this rack."""
        rack = self.rack_of.get(member_id)
        return rack is not None and rack in self.replicas[partition]

    def distance_gain(self, partition: TopicPartition, source: str, to: str) -> int:
        """Return -1 if the partition is nearer to `to` than to `source`, 1 if it is farther, else 0."""
        return self.is_same(source, partition) - self.is_same(to, partition)

    def members_near(self) -> Callable[[TopicPartition], int]:
        """Return a sort key: the number of members in the racks of a partition's replicas."""
        count: dict[str, int] = {}
        for rack in self.rack_of.values():
            count[rack] = count.get(rack, 0) + 1
        return lambda partition: sum(count.get(rack, 0) for rack in self.replicas[partition])


def _by_index(partition: TopicPartition) -> tuple[int, str]:
    return partition[1], partition[0]


class _QuotaAssignment:
    """The algorithm for members that subscribe to the same topics: each member has a quota of partitions."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        topics_by_member: Mapping[str, frozenset[str]],
        claims: _Owners,
        racks: _RackDistance,
    ) -> None:
        topics = sorted(next(iter(topics_by_member.values())))
        self.all = [TopicPartition(t, index) for t in topics for index in range(partitions.get(t, 0))]
        # `extra` is the number of members that may have one partition more than the quota.
        self.quota, self.extra = divmod(len(self.all), len(topics_by_member))
        self.largest = self.quota + (self.extra > 0)
        self.racks = racks
        self.assigned: Assigned = {member_id: [] for member_id in topics_by_member}
        self.held = claims.owned_by_member(topics_by_member)
        self.below_quota: list[str] = []
        # Members that have reached the quota, and may get one more partition.
        self.at_quota: list[str] = []

    def build(self) -> Assigned:
        """Return the assignment."""
        self._keep_owned()
        assigned = {partition for partitions in self.assigned.values() for partition in partitions}
        unassigned = (
            [partition for partition in self.all if partition not in assigned] if assigned else self.all
        )
        if self.racks.matter:
            unassigned = self._assign_near(sorted(unassigned, key=self.racks.members_near()))
        self._assign_in_turn(unassigned)
        return self.assigned

    def _keep_owned(self) -> None:
        """Let each member keep owned partitions up to the quota; `extra` members may keep one more."""
        for member_id, held in self.held.items():
            if self.racks.matter:
                held = [partition for partition in held if self.racks.is_near(member_id, partition)]
            if len(held) < self.quota:
                self.assigned[member_id] = sorted(held, key=_by_index)
                self.below_quota.append(member_id)
            elif len(held) >= self.largest and self.extra:
                self.assigned[member_id] = sorted(held, key=_by_index)[: self.largest]
                self.extra -= 1
            else:
                self.assigned[member_id] = sorted(held, key=_by_index)[: self.quota]
                self.at_quota.append(member_id)
        if not self.extra:
            self.at_quota = []

    def _assign_near(self, unassigned: list[TopicPartition]) -> list[TopicPartition]:
        """Assign partitions to members whose rack has a replica; return the remaining partitions."""
        start = 0
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
        """Return the index of a member whose rack has a replica of the partition, or None.

        The search begins at the index `start` and wraps around at the end of `members`.
        """
        for step in range(len(members)):
            index = (start + step) % len(members)
            if self.racks.is_same(members[index], partition):
                return index
        return None

    def _assign_in_turn(self, unassigned: list[TopicPartition]) -> None:
        """Assign partitions in turn: to members below the quota, then one each to members at the quota."""
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
    """The algorithm for members that subscribe to different topics: moves partitions to balance the loads."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        topics_by_member: Mapping[str, frozenset[str]],
        claims: _Owners,
        racks: _RackDistance,
    ) -> None:
        self.topics_by_member = topics_by_member
        self.racks = racks
        self.claims = claims
        self.subscribers: dict[str, list[str]] = {}
        for member_id, topics in topics_by_member.items():
            for topic in topics:
                if partitions.get(topic, 0):
                    self.subscribers.setdefault(topic, []).append(member_id)
        topics_in_order = sorted(self.subscribers, key=lambda topic: (len(self.subscribers[topic]), topic))
        self.all = [TopicPartition(t, index) for t in topics_in_order for index in range(partitions[t])]
        self.owners: dict[TopicPartition, str] = {}
        self.load = dict.fromkeys(topics_by_member, 0)
        self.order: list[tuple[int, str]] = []
        # The number of moves so far.
        self.moved = 0
        # Maps a topic to the least load among its subscribers, and to the value of `moved` when this load was
        # computed.
        self.least_loads: dict[str, tuple[int, int]] = {}
        self.moved_from: dict[TopicPartition, str] = {}
        self.moves: dict[tuple[str, str, str], list[TopicPartition]] = {}

    def build(self) -> Assigned:
        """Return the assignment."""
        has_far_owner = False
        for partition, member_id in self.claims.owners.items():
            if self.racks.is_near(member_id, partition):
                self.owners[partition] = member_id
                self.load[member_id] += 1
            else:
                has_far_owner = True
        is_first_assignment = not any(self.load.values())
        self.order = sorted((load, member_id) for member_id, load in self.load.items())
        unowned = [partition for partition in self.all if partition not in self.owners]
        self._assign_unowned(unowned)
        owners_before = dict(self.owners)
        score = _imbalance(self.load.values())
        if not has_far_owner:
            self._balance(unowned)
        changed = self._balance(self.all)
        if changed and not is_first_assignment and _imbalance(self.load.values()) >= score:
            self.owners = owners_before
        assigned: Assigned = {member_id: [] for member_id in self.topics_by_member}
        for partition in self.all:
            assigned[self.owners[partition]].append(partition)
        return assigned

    def _least_loaded(self, topic: str) -> str:
        """Return the topic's least loaded subscriber; among equals, the one with the smallest member id."""
        subscribers = self.subscribers[topic]
        if len(subscribers) ** 2 < len(self.order):
            return min(subscribers, key=lambda member_id: (self.load[member_id], member_id))
        return next(member_id for _, member_id in self.order if topic in self.topics_by_member[member_id])

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
                    for _, member_id in self.order
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

        Return whether a partition was moved.

        The loop ends after a pass over all partitions that moves none of them.
        """
        changed = False
        movable = [partition for partition in partitions if len(self.subscribers[partition.topic]) > 1]
        while True:
            modified = False
            for partition in movable:
                load = self.load[self.owners[partition]]
                if load <= self.order[0][0] + 1 or load <= self._least_load_bound(partition.topic) + 1:
                    continue
                previous = self.claims.previous.get(partition)
                if previous is not None and load > self.load[previous] + 1:
                    to = previous
                else:
                    to = self._least_loaded(partition.topic)
                    self.least_loads[partition.topic] = self.load[to], self.moved
                    if load <= self.load[to] + 1:
                        continue
                self._move(partition, to)
                changed = modified = True
            if not modified:
                return changed

    def _least_load_bound(self, topic: str) -> int:
        """Return a lower bound on the number of partitions of the topic's least loaded subscriber.

        Each move reduces the least load by at most one. The bound is therefore the last computed least load
        minus the number of moves since then. `_balance` searches for a new owner only if the owner has at
        least two partitions more than the bound.
        """
        least, moves = self.least_loads.get(topic, (0, 0))
        return least - (self.moved - moves)

    def _move(self, partition: TopicPartition, to: str) -> None:
        """Move a partition to the member `to`.

        If another partition of the topic was moved in the opposite direction, from `to` to this partition's
        original owner, the other partition is moved back instead, provided that this improves the balance.
        """
        source = self.moved_from.get(partition, self.owners[partition])
        moved_back = self.moves.get((partition.topic, to, source))
        if moved_back and self.load[source] > self.load[to] + 1:
            # Moving any partition of `moved_back` improves the balance. Prefer one that `to` owned and
            # `source` did not, then one with a replica in the rack of `to` but not of `source`.
            partition = min(
                moved_back,
                key=lambda candidate: (
                    self._owned(source, candidate) - self._owned(to, candidate),
                    self.racks.distance_gain(candidate, source, to) if self.racks.matter else 0,
                ),
            )
        origin = self._forget_move(partition)
        self.moved += 1
        if origin != to:
            self.moved_from[partition] = origin
            insort(self.moves.setdefault((partition.topic, origin, to), []), partition)
        self._assign(partition, to)

    def _owned(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member owned the partition before this assignment, according to the reports."""
        return self.claims.owners.get(partition) == member_id

    def _forget_move(self, partition: TopicPartition) -> str:
        """Forget that the partition was moved; return its owner before its first move."""
        owner = self.owners[partition]
        origin = self.moved_from.pop(partition, None)
        if origin is None:
            return owner
        self.moves[partition.topic, origin, owner].remove(partition)
        return origin

    def _assign(self, partition: TopicPartition, member_id: str) -> None:
        """Assign the partition to the member; update the loads of this member and the previous owner."""
        earlier = self.owners.get(partition)
        if earlier is not None:
            self._change_load(earlier, -1)
        self.owners[partition] = member_id
        self._change_load(member_id, 1)

    def _change_load(self, member_id: str, change: int) -> None:
        """Add `change` to the member's number of partitions."""
        load = self.load[member_id]
        del self.order[bisect_left(self.order, (load, member_id))]
        self.load[member_id] = load + change
        insort(self.order, (load + change, member_id))


def _imbalance(loads: Iterable[int]) -> int:
    """Return the sum of the differences between the loads of all pairs of members."""
    total = below = 0
    for place, load in enumerate(sorted(loads)):
        total += load * place - below
        below += load
    return total
