"""sarama's sticky and cooperative-sticky strategies (balance_strategy.go, v1.61.1).

* A member keeps its partitions as long as the assignment is balanced.

* If several members claim a partition, the claim with the highest generation counts. The member with the
  second-highest generation is the previous owner, to which the partition may return.

* sticky reads the claims from user data. cooperative-sticky reads the owned partitions and the generation
  from the subscription. If the subscription contains no generation, it is read from user data.

* An unassigned partition goes to the member with the fewest partitions among the topic's subscribers.

* Then partitions are moved from members with many partitions to members with few. If all members have the
  same subscription and some members claim partitions, the moves start at the member with the most partitions.
  Otherwise they start with the partition that the fewest members can own.

* A partition may even return to a member that no longer subscribes to its topic: sarama does not check this.

* If the moves do not improve the balance, sarama tries to undo them, but the attempt fails. The returned
  assignment then contains the moves, but not the members that could neither gain nor lose a partition. The
  model does the same.

* Cooperative: a partition that changes its owner is assigned to no member until its old owner has joined
  without it.

Go iterates over its maps in a random order. The model uses the order of the members' ids and claims. In a map
with few entries, Go chooses only the first entry at random. So with few members and partitions, Go usually
iterates in the order of the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...group.subscription import (
    Subscription,
    TopicPartition,
    read_cooperative_generation,
    read_sticky_user_data,
)

MemberPartitions = dict[str, list[TopicPartition]]
Pair = tuple[str, str]
_NO_GENERATION = -1


def assign_partitions(
    members: Mapping[str, Subscription], counts: Mapping[str, int], cooperative: bool
) -> MemberPartitions:
    """Map each member's id to its partitions, without the members that the strategy drops."""
    plan = _StickyPlan(members, counts, cooperative)
    plan.balance()
    if cooperative:
        _withhold_revoked(plan.assignment, members)
    return plan.assignment


@dataclass(slots=True)
class _Movements:
    """The moves so far. They prevent two members from exchanging two partitions of a topic."""

    pair_of: dict[TopicPartition, Pair] = field(default_factory=dict[TopicPartition, Pair])
    by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = field(
        default_factory=dict[str, "dict[Pair, dict[TopicPartition, None]]"]
    )

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        """Record a move, merged with an earlier move of the partition.

        If the new move returns the partition to its first owner, the two moves cancel, and none is recorded.
        """
        if partition not in self.pair_of:
            self._record_move(partition, (old, new))
            return
        first_owner, _ = self._forget_move(partition)
        if first_owner != new:
            self._record_move(partition, (first_owner, new))

    def partition_to_move(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """Return the partition to move from `old` to `new`.

        If a partition of the topic was moved from `new` to `old` before, it is moved back, which cancels both
        moves. Otherwise `partition` is moved.
        """
        pairs = self.by_topic.get(partition.topic)
        if pairs is None:
            return partition
        if partition in self.pair_of:
            old = self.pair_of[partition][0]
        opposite_moves = pairs.get((new, old))
        return next(reversed(opposite_moves)) if opposite_moves else partition

    def _record_move(self, partition: TopicPartition, pair: Pair) -> None:
        self.pair_of[partition] = pair
        self.by_topic.setdefault(partition.topic, {}).setdefault(pair, {})[partition] = None

    def _forget_move(self, partition: TopicPartition) -> Pair:
        pair = self.pair_of.pop(partition)
        pairs = self.by_topic[partition.topic]
        del pairs[pair][partition]
        if not pairs[pair]:
            del pairs[pair]
        if not pairs:
            del self.by_topic[partition.topic]
        return pair


class _StickyPlan:
    """The state of the algorithm while it computes an assignment."""

    def __init__(
        self, members: Mapping[str, Subscription], counts: Mapping[str, int], cooperative: bool
    ) -> None:
        self.assignment, self.previous_owners = _read_claims(members, cooperative)
        self.is_fresh = not self.assignment
        self.movements = _Movements()
        self.potential_members: dict[TopicPartition, list[str]] = {
            TopicPartition(topic, index): [] for topic in sorted(counts) for index in range(counts[topic])
        }
        self.potential_partitions: dict[str, dict[TopicPartition, None]] = {}
        for member_id in sorted(members):
            topics = [topic for topic in members[member_id].topics if topic in counts]
            self.potential_partitions[member_id] = dict.fromkeys(
                TopicPartition(topic, index) for topic in topics for index in range(counts[topic])
            )
            for partition in self.potential_partitions[member_id]:
                self.potential_members[partition].append(member_id)
            self.assignment.setdefault(member_id, [])
        self.owner: dict[TopicPartition, str] = {}
        self.unassigned = self._apply_claims(members)

    def _apply_claims(self, members: Mapping[str, Subscription]) -> list[TopicPartition]:
        """Record the owners, drop claims without a subscription, and return the unassigned partitions.

        Claims to partitions that do not exist are dropped, and no owner of these partitions is recorded.
        """
        unassigned: list[TopicPartition] = []
        for member_id, partitions in self.assignment.items():
            existing = [partition for partition in partitions if partition in self.potential_members]
            self.owner.update(dict.fromkeys(existing, member_id))
            subscribed_topics = members[member_id].topics
            unassigned += [partition for partition in existing if partition.topic not in subscribed_topics]
            self.assignment[member_id] = [
                partition for partition in existing if partition.topic in subscribed_topics
            ]
        return unassigned + [partition for partition in self.potential_members if partition not in self.owner]

    # -- balancing

    def balance(self) -> None:
        """Assign the unassigned partitions, and then move partitions until the assignment is balanced.

        As in sarama, the attempt to undo moves that do not improve the balance fails. The moves are then
        kept, and members that can neither gain nor lose a partition are dropped from the assignment.
        """
        order = self._sorted_partitions()
        least_loaded = self._members_by_load()[0]
        initializing = not self.assignment[least_loaded]
        self._assign_unassigned()
        order = [partition for partition in order if len(self.potential_members[partition]) >= 2]
        fixed_assignment = {
            member_id: self.assignment[member_id]
            for member_id in self.potential_partitions
            if not self._can_participate(member_id)
        }
        for member_id in fixed_assignment:
            del self.assignment[member_id]
        previous_assignment = {
            member_id: list(partitions) for member_id, partitions in self.assignment.items()
        }
        moved = self._reassign_partitions(order) if self.assignment else False
        undo_attempted = (
            not initializing
            and moved
            and _balance_score(self.assignment) >= _balance_score(previous_assignment)
        )
        if not undo_attempted:
            self.assignment.update(fixed_assignment)

    def _assign_unassigned(self) -> None:
        """Assign each unassigned partition to the subscribed member with the fewest partitions.

        A partition without a subscribed member stays unassigned.
        """
        for partition in self.unassigned:
            for member_id in self._members_by_load():
                if partition in self.potential_partitions[member_id]:
                    self.assignment[member_id].append(partition)
                    self.owner[partition] = member_id
                    break

    def _sorted_partitions(self) -> list[TopicPartition]:
        """Return the partitions in the order in which the algorithm tries to move them."""
        if self.is_fresh or not self._all_subscriptions_equal():
            return sorted(
                self.potential_members,
                key=lambda partition: (len(self.potential_members[partition]), partition),
            )
        remaining = {member_id: list(partitions) for member_id, partitions in self.assignment.items()}
        ordered: list[TopicPartition] = []
        while remaining:
            member_id = max(remaining, key=lambda candidate: (len(remaining[candidate]), candidate))
            if not remaining[member_id]:
                del remaining[member_id]
                continue
            returnable_indexes = [
                index
                for index, partition in enumerate(remaining[member_id])
                if partition in self.previous_owners
            ]
            ordered.append(remaining[member_id].pop(returnable_indexes[0] if returnable_indexes else 0))
        ordered_set = set(ordered)
        return ordered + [partition for partition in self.potential_members if partition not in ordered_set]

    def _all_subscriptions_equal(self) -> bool:
        return (
            len({frozenset(member_ids) for member_ids in self.potential_members.values()}) <= 1
            and len({frozenset(partitions) for partitions in self.potential_partitions.values()}) <= 1
        )

    def _members_by_load(self) -> list[str]:
        return sorted(self.assignment, key=lambda member_id: (len(self.assignment[member_id]), member_id))

    def _can_participate(self, member_id: str) -> bool:
        """Return whether the member can gain a partition, or lose one to another member."""
        assignment = self.assignment[member_id]
        return len(assignment) < len(self.potential_partitions[member_id]) or any(
            len(self.potential_members[partition]) >= 2 for partition in assignment
        )

    def _reassign_partitions(self, order: list[TopicPartition]) -> bool:
        """Move single partitions until the balance stops improving; return whether a partition was moved."""
        has_moved = False
        modified = True
        while modified:
            modified = False
            for partition in order:
                if self._is_balanced():
                    break
                if self._move_if_better(partition):
                    has_moved = modified = True
        return has_moved

    def _move_if_better(self, partition: TopicPartition) -> bool:
        """Move the partition if that improves the balance, preferably to its previous owner.

        Returns whether a better owner exists. The result may be True although the partition was not moved.
        """
        load = len(self.assignment.get(self.owner[partition], ()))
        previous_owner = self.previous_owners.get(partition)
        if previous_owner is not None and load > len(self.assignment.get(previous_owner, ())) + 1:
            self._move_partition(partition, previous_owner)
            return True
        if any(
            load > len(self.assignment.get(candidate, ())) + 1
            for candidate in self.potential_members[partition]
        ):
            new_owner = next(
                (
                    candidate
                    for candidate in self._members_by_load()
                    if partition in self.potential_partitions[candidate]
                ),
                None,
            )
            if new_owner is not None:
                self._move_partition(partition, new_owner)
            return True
        return False

    def _move_partition(self, partition: TopicPartition, new: str) -> None:
        """Move `partition`, or the one that `_Movements.partition_to_move` prefers, to `new`."""
        partition_to_move = self.movements.partition_to_move(partition, self.owner[partition], new)
        old = self.owner[partition_to_move]
        self.movements.add(partition_to_move, old, new)
        self.assignment[old].remove(partition_to_move)
        self.assignment.setdefault(new, []).append(partition_to_move)
        self.owner[partition_to_move] = new

    def _is_balanced(self) -> bool:
        """Return whether no member can take a partition from a member that has more partitions."""
        member_ids = self._members_by_load()
        if len(self.assignment[member_ids[0]]) >= len(self.assignment[member_ids[-1]]) - 1:
            return True
        for member_id in member_ids:
            load = len(self.assignment[member_id])
            if load == len(self.potential_partitions[member_id]):
                continue
            owned = set(self.assignment[member_id])
            for partition in self.potential_partitions[member_id]:
                owner = self.owner.get(partition, "")
                if partition not in owned and load < len(self.assignment.get(owner, ())):
                    return False
        return True


def _read_claims(
    members: Mapping[str, Subscription], cooperative: bool
) -> tuple[MemberPartitions, dict[TopicPartition, str]]:
    """Return the newest claims as an assignment, and the previous owner of each partition.

    The previous owner of a partition is the member with the second-newest claim. A partition with a single
    claim has no previous owner.
    """
    by_generation: dict[TopicPartition, dict[int, str]] = {}
    for member_id in sorted(members):
        subscription = members[member_id]
        owned, generation = read_sticky_user_data(subscription.user_data)
        if cooperative:
            owned = subscription.owned
            generation = (
                read_cooperative_generation(subscription.user_data)
                if subscription.generation is None
                else subscription.generation
            )
        for partition in owned:
            claim_generation = _NO_GENERATION if generation is None else generation
            by_generation.setdefault(partition, {}).setdefault(claim_generation, member_id)
    assignment: MemberPartitions = {}
    previous_owners: dict[TopicPartition, str] = {}
    for partition, claims in by_generation.items():
        newest, *older = sorted(claims, reverse=True)
        assignment.setdefault(claims[newest], []).append(partition)
        if older:
            previous_owners[partition] = claims[older[0]]
    return assignment, previous_owners


def _balance_score(assignment: MemberPartitions) -> int:
    """Return the sum of the members' pairwise differences in partition count; 0 is the best."""
    loads = [len(partitions) for partitions in assignment.values()]
    return sum(
        abs(load - later_load) for position, load in enumerate(loads) for later_load in loads[position + 1 :]
    )


def _withhold_revoked(assignment: MemberPartitions, members: Mapping[str, Subscription]) -> None:
    """Remove from the assignment the partitions that their previous owners have not revoked yet."""
    owned = {member_id: frozenset(subscription.owned) for member_id, subscription in members.items()}
    revoked = frozenset(
        partition
        for member_id in members
        for partition in owned[member_id].difference(assignment.get(member_id, ()))
    )
    for member_id, partitions in assignment.items():
        assignment[member_id] = [
            partition for partition in partitions if partition in owned[member_id] or partition not in revoked
        ]
