"""sarama's sticky and cooperative-sticky strategies (balance_strategy.go, v1.61.1).

* Who has a partition keeps it while that is balanced; of several claims the one of the highest generation
  counts, and the one before it is remembered, so that a partition may go back. sticky reads its user data;
  cooperative-sticky reads what members own, and the subscription's generation.
* What nobody has goes to the member with the fewest partitions that may have it.
* Then partitions are moved, from members with many to those with few, in the order in which they stand: where
  all members want the same, from the fullest member on, else from the partition with the fewest takers.
* A partition may go back even to a member that doesn't want its topic any more: sarama doesn't ask.
* What would be no better is undone. sarama forgets to undo it in its result, and loses the members that
  could not take part then: so does this.
* Cooperative: a partition that changes hands is given to nobody, until who had it has joined without it.

Where Go's maps are random, this takes the order of the members' ids and of their claims; for few partitions
that is what Go's maps most often do, too.
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

Has = dict[str, list[TopicPartition]]
Pair = tuple[str, str]
_NO_GENERATION = -1


def divide(members: Mapping[str, Subscription], counts: Mapping[str, int], cooperative: bool) -> Has:
    """Member id -> its partitions, for every member that the strategy finds."""
    work = _Work(members, counts, cooperative)
    work.balance()
    if cooperative:
        _withhold(work.has, members)
    return work.has


@dataclass(slots=True)
class _Movements:
    """What moved between whom, so that no two partitions of a topic are swapped."""

    of: dict[TopicPartition, Pair] = field(default_factory=dict[TopicPartition, Pair])
    by_topic: dict[str, dict[Pair, dict[TopicPartition, None]]] = field(
        default_factory=dict[str, "dict[Pair, dict[TopicPartition, None]]"]
    )

    def add(self, partition: TopicPartition, old: str, new: str) -> None:
        if partition not in self.of:
            self._record(partition, (old, new))
            return
        before = self._forget(partition)
        if before[0] != new:
            self._record(partition, (before[0], new))

    def really(self, partition: TopicPartition, old: str, new: str) -> TopicPartition:
        """The partition to move from `old` to `new` instead: one that went the other way before."""
        pairs = self.by_topic.get(partition.topic)
        if pairs is None:
            return partition
        if partition in self.of:
            old = self.of[partition][0]
        back = pairs.get((new, old))
        return next(reversed(back)) if back else partition

    def _record(self, partition: TopicPartition, pair: Pair) -> None:
        self.of[partition] = pair
        self.by_topic.setdefault(partition.topic, {}).setdefault(pair, {})[partition] = None

    def _forget(self, partition: TopicPartition) -> Pair:
        pair = self.of.pop(partition)
        pairs = self.by_topic[partition.topic]
        del pairs[pair][partition]
        if not pairs[pair]:
            del pairs[pair]
        if not pairs:
            del self.by_topic[partition.topic]
        return pair


class _Work:
    """One plan in the making."""

    def __init__(
        self, members: Mapping[str, Subscription], counts: Mapping[str, int], cooperative: bool
    ) -> None:
        self.has, self.before = _claims(members, cooperative)
        self.fresh = not self.has
        self.movements = _Movements()
        self.takers: dict[TopicPartition, list[str]] = {
            TopicPartition(topic, index): [] for topic in sorted(counts) for index in range(counts[topic])
        }
        self.may: dict[str, dict[TopicPartition, None]] = {}
        for member_id in sorted(members):
            topics = [topic for topic in members[member_id].topics if topic in counts]
            self.may[member_id] = dict.fromkeys(
                TopicPartition(topic, index) for topic in topics for index in range(counts[topic])
            )
            for partition in self.may[member_id]:
                self.takers[partition].append(member_id)
            self.has.setdefault(member_id, [])
        self.owner: dict[TopicPartition, str] = {}
        self.free = self._free(members)

    def _free(self, members: Mapping[str, Subscription]) -> list[TopicPartition]:
        """What has no owner, or one that doesn't want it any more; claims to what isn't there are dropped."""
        free: list[TopicPartition] = []
        for member_id, partitions in self.has.items():
            present = [partition for partition in partitions if partition in self.takers]
            self.owner.update(dict.fromkeys(present, member_id))
            wanted = members[member_id].topics
            free += [partition for partition in present if partition.topic not in wanted]
            self.has[member_id] = [partition for partition in present if partition.topic in wanted]
        return free + [partition for partition in self.takers if partition not in self.owner]

    # -- balancing

    def balance(self) -> None:
        order = self._in_order()
        everybody = self._by_load()
        initializing = not self.has[everybody[0]]
        for partition in self.free:
            for member_id in self._by_load():
                if partition in self.may[member_id]:
                    self.has[member_id].append(partition)
                    self.owner[partition] = member_id
                    break
        order = [partition for partition in order if len(self.takers[partition]) >= 2]
        fixed = {member_id: self.has[member_id] for member_id in self.may if not self._takes_part(member_id)}
        for member_id in fixed:
            del self.has[member_id]
        before = {member_id: list(partitions) for member_id, partitions in self.has.items()}
        moved = self._reassign(order) if self.has else False
        undone = not initializing and moved and _score(self.has) >= _score(before)
        if not undone:
            self.has.update(fixed)

    def _in_order(self) -> list[TopicPartition]:
        """In which order partitions may have to move."""
        if self.fresh or not self._all_want_the_same():
            return sorted(self.takers, key=lambda partition: (len(self.takers[partition]), partition))
        left = {member_id: list(partitions) for member_id, partitions in self.has.items()}
        found: list[TopicPartition] = []
        while left:
            member_id = max(left, key=lambda one: (len(left[one]), one))
            if not left[member_id]:
                del left[member_id]
                continue
            returning = [place for place, one in enumerate(left[member_id]) if one in self.before]
            found.append(left[member_id].pop(returning[0] if returning else 0))
        seen = set(found)
        return found + [partition for partition in self.takers if partition not in seen]

    def _all_want_the_same(self) -> bool:
        return (
            len({frozenset(taker) for taker in self.takers.values()}) <= 1
            and len({frozenset(one) for one in self.may.values()}) <= 1
        )

    def _by_load(self) -> list[str]:
        return sorted(self.has, key=lambda member_id: (len(self.has[member_id]), member_id))

    def _takes_part(self, member_id: str) -> bool:
        has = self.has[member_id]
        return len(has) < len(self.may[member_id]) or any(len(self.takers[one]) >= 2 for one in has)

    def _reassign(self, order: list[TopicPartition]) -> bool:
        """Move one partition after the other until nothing gets better; whether any was moved."""
        ever = False
        modified = True
        while modified:
            modified = False
            for partition in order:
                if self._is_balanced():
                    break
                if self._move_if_better(partition):
                    ever = modified = True
        return ever

    def _move_if_better(self, partition: TopicPartition) -> bool:
        load = len(self.has.get(self.owner[partition], ()))
        back = self.before.get(partition)
        if back is not None and load > len(self.has.get(back, ())) + 1:
            self._move(partition, back)
            return True
        if any(load > len(self.has.get(one, ())) + 1 for one in self.takers[partition]):
            new = next((one for one in self._by_load() if partition in self.may[one]), None)
            if new is not None:
                self._move(partition, new)
            return True
        return False

    def _move(self, partition: TopicPartition, new: str) -> None:
        really = self.movements.really(partition, self.owner[partition], new)
        old = self.owner[really]
        self.movements.add(really, old, new)
        self.has[old].remove(really)
        self.has.setdefault(new, []).append(really)
        self.owner[really] = new

    def _is_balanced(self) -> bool:
        order = self._by_load()
        if len(self.has[order[0]]) >= len(self.has[order[-1]]) - 1:
            return True
        for member_id in order:
            load = len(self.has[member_id])
            if load == len(self.may[member_id]):
                continue
            mine = set(self.has[member_id])
            for partition in self.may[member_id]:
                owner = self.owner.get(partition, "")
                if partition not in mine and load < len(self.has.get(owner, ())):
                    return False
        return True


def _claims(members: Mapping[str, Subscription], cooperative: bool) -> tuple[Has, dict[TopicPartition, str]]:
    """Who has what by the newest claim, and who had it by the one before."""
    by_generation: dict[TopicPartition, dict[int, str]] = {}
    for member_id in sorted(members):
        one = members[member_id]
        owned, generation = read_sticky_user_data(one.user_data)
        if cooperative:
            owned = one.owned
            generation = (
                read_cooperative_generation(one.user_data) if one.generation is None else one.generation
            )
        for partition in owned:
            at = _NO_GENERATION if generation is None else generation
            by_generation.setdefault(partition, {}).setdefault(at, member_id)
    has: Has = {}
    before: dict[TopicPartition, str] = {}
    for partition, claims in by_generation.items():
        newest, *older = sorted(claims, reverse=True)
        has.setdefault(claims[newest], []).append(partition)
        if older:
            before[partition] = claims[older[0]]
    return has, before


def _score(has: Has) -> int:
    """The sum of the differences between all pairs; 0 is perfect."""
    loads = [len(partitions) for partitions in has.values()]
    return sum(abs(one - load) for place, one in enumerate(loads) for load in loads[place + 1 :])


def _withhold(has: Has, members: Mapping[str, Subscription]) -> None:
    """Give to nobody what its owner has to let go of first."""
    owned = {member_id: frozenset(one.owned) for member_id, one in members.items()}
    revoked = frozenset(
        partition
        for member_id in members
        for partition in owned[member_id].difference(has.get(member_id, ()))
    )
    for member_id, partitions in has.items():
        has[member_id] = [
            partition for partition in partitions if partition in owned[member_id] or partition not in revoked
        ]
