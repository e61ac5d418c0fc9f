"""The sticky assignor: as balanced as can be, and then with as few moves as can be (KIP-54).

Follows Kafka's `AbstractStickyAssignor`, with both of its ways:

* All members want the same topics: everybody keeps what it holds up to its quota (P // C, and one more for
  P % C of them), and the rest is dealt out in a circle, to whoever has least first.
* Else: everybody keeps what it may; the rest goes to the least loaded subscriber, topics with the fewest
  subscribers first; then partitions move one by one to a subscriber that has at least two fewer.

A claim counts only if the partition exists and its member wants the topic. If several claim one partition,
the newest generation has it; within one generation nobody has.

Where Java follows the hash order of member ids, here the order of the ids decides: who keeps the extra
partition when too many hold one, and which of two equal claims is the previous owner. A move is made only
when it makes the difference of two members smaller, so the walk ends on every input.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from itertools import groupby
from typing import NamedTuple

from ..subscription import Claim, Subscription, TopicPartition, read_sticky_user_data
from .members import Racks, partition_racks, racks_matter

Plan = dict[str, list[TopicPartition]]


class Division(NamedTuple):
    """The plan, and who holds what: `kept` are the claims that count."""

    plan: Plan
    kept: dict[TopicPartition, str]


def assign(
    partitions: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks | None = None
) -> dict[str, list[TopicPartition]]:
    """Divide; see the package for the arguments. What a member holds is in its user data."""
    return divide(
        partitions, members, racks or {}, lambda member: read_sticky_user_data(member.user_data)
    ).plan


def divide(
    partitions: Mapping[str, int],
    members: Mapping[str, Subscription],
    racks: Racks,
    claim: Callable[[Subscription], Claim],
    *,
    one_by_one: bool = False,
) -> Division:
    """Divide, with `claim` to say what a member holds.

    With `one_by_one` partitions are moved as if the members wanted different topics, whether they do or not:
    so do clients that know only Kafka's first way (librdkafka).
    """
    wants: dict[str, frozenset[str]] = {}
    topics: tuple[str, ...] = ()
    as_set = frozenset[str]()
    for member_id in sorted(members):  # mostly they all want the same, and comparing is cheaper than hashing
        if members[member_id].topics != topics:
            topics = members[member_id].topics
            as_set = frozenset(topics)
        wants[member_id] = as_set
    claims = _Claims(partitions, members, wants, claim)
    plan: Plan = {member_id: [] for member_id in members}
    wanting = {member_id: topics for member_id, topics in wants.items() if topics}
    if wanting:
        near = _Racks(partitions, members, wanting, racks)
        if len(set(wanting.values())) == 1 and not one_by_one:
            plan.update(_Alike(partitions, wanting, claims, near).build())
        else:
            plan.update(_Mixed(partitions, wanting, claims, near).build())
    return Division(plan, claims.owner)


class _Claims:
    """Who holds what, as far as it can be believed."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        members: Mapping[str, Subscription],
        wants: Mapping[str, frozenset[str]],
        claim: Callable[[Subscription], Claim],
    ) -> None:
        self.owner: dict[TopicPartition, str] = {}
        self.previous: dict[TopicPartition, str] = {}
        since: dict[TopicPartition, int] = {}
        contested: set[TopicPartition] = set()
        read: dict[str, tuple[list[TopicPartition], int]] = {}
        for member_id, topics in wants.items():
            owned, generation = claim(members[member_id])
            known = [tp for tp in owned if tp[0] in topics and 0 <= tp[1] < partitions.get(tp[0], 0)]
            read[member_id] = (known, -1 if generation is None else generation)
        newest = max((generation for _, generation in read.values()), default=-1)
        before: dict[TopicPartition, int] = {}
        for member_id, (known, generation) in read.items():
            for tp in dict.fromkeys(known):
                other = since.get(tp)
                if other is None or generation > other:
                    self.owner[tp], since[tp] = member_id, generation
                    if other is not None:
                        contested.discard(tp)
                elif generation == other:
                    contested.add(tp)
                if generation < newest and generation > before.get(tp, -2):
                    self.previous[tp], before[tp] = member_id, generation
        for tp in contested:
            del self.owner[tp]

    def held(self, members: Iterable[str]) -> dict[str, list[TopicPartition]]:
        found: dict[str, list[TopicPartition]] = {member_id: [] for member_id in members}
        for tp, member_id in self.owner.items():
            found[member_id].append(tp)
        return found


class _Racks:
    """Which members are near to which partitions; `matter` says whether to ask at all."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        members: Mapping[str, Subscription],
        wants: Mapping[str, frozenset[str]],
        racks: Racks,
    ) -> None:
        self.of: dict[str, str] = {m: rack for m in wants if (rack := members[m].rack_id) is not None}
        self.replicas: dict[TopicPartition, frozenset[str]] = {}
        if self.of:
            for topic in sorted(frozenset[str]().union(*wants.values())):
                for index, here in enumerate(partition_racks(topic, partitions.get(topic, 0), racks)):
                    self.replicas[TopicPartition(topic, index)] = here
        self.matter = racks_matter(self.of.values(), list(self.replicas.values()))

    def near(self, member_id: str, tp: TopicPartition) -> bool:
        """A member without a rack is near to everything."""
        rack = self.of.get(member_id) if self.matter else None
        return rack is None or rack in self.replicas[tp]

    def same(self, member_id: str, tp: TopicPartition) -> bool:
        """The member says where it is, and a replica is there."""
        rack = self.of.get(member_id)
        return rack is not None and rack in self.replicas[tp]

    def gain(self, tp: TopicPartition, source: str, to: str) -> int:
        """Less than zero if the partition is nearer to `to` than to `source`."""
        return self.same(source, tp) - self.same(to, tp)

    def members_near(self) -> Callable[[TopicPartition], int]:
        """How many members share a rack with a partition."""
        count: dict[str, int] = {}
        for rack in self.of.values():
            count[rack] = count.get(rack, 0) + 1
        return lambda tp: sum(count.get(rack, 0) for rack in self.replicas[tp])


def _by_index(tp: TopicPartition) -> tuple[int, str]:
    return tp[1], tp[0]


class _Alike:
    """All members want the same topics: quotas."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        wants: Mapping[str, frozenset[str]],
        claims: _Claims,
        racks: _Racks,
    ) -> None:
        topics = sorted(next(iter(wants.values())))
        self.all = [TopicPartition(t, index) for t in topics for index in range(partitions.get(t, 0))]
        self.least, self.larger = divmod(len(self.all), len(wants))  # so many may still have one more
        self.most = self.least + (self.larger > 0)
        self.racks = racks
        self.plan: Plan = {member_id: [] for member_id in wants}
        self.held = claims.held(wants)
        self.under: list[str] = []  # have less than the least
        self.exact: list[str] = []  # have the least, and might get one more

    def build(self) -> Plan:
        self._keep()
        taken = {tp for given in self.plan.values() for tp in given}
        left = [tp for tp in self.all if tp not in taken] if taken else self.all
        if self.racks.matter:
            left = self._deal_near(sorted(left, key=self.racks.members_near()))
        self._deal(left)
        return self.plan

    def _keep(self) -> None:
        for member_id, held in self.held.items():
            if self.racks.matter:
                held = [tp for tp in held if self.racks.near(member_id, tp)]
            if len(held) < self.least:
                self.plan[member_id] = sorted(held, key=_by_index)
                self.under.append(member_id)
            elif len(held) >= self.most and self.larger:
                self.plan[member_id] = sorted(held, key=_by_index)[: self.most]
                self.larger -= 1
            else:
                self.plan[member_id] = sorted(held, key=_by_index)[: self.least]
                self.exact.append(member_id)
        if not self.larger:
            self.exact = []

    def _deal_near(self, left: list[TopicPartition]) -> list[TopicPartition]:
        """Give partitions to members in a rack that has a replica; return those that nobody near can take."""
        turn = 0
        far: list[TopicPartition] = []
        for tp in left:
            at = self._next_near(tp, self.under, turn)
            if at is not None:
                member_id = self.under[at]
                self.plan[member_id].append(tp)
                if len(self.plan[member_id]) >= self.least:
                    del self.under[at]
                    if self.larger:
                        self.exact.append(member_id)
                else:
                    at += 1
                turn = at % len(self.under) if self.under else 0
                continue
            at = self._next_near(tp, self.exact, 0)
            if at is None:
                far.append(tp)
            else:
                self.plan[self.exact.pop(at)].append(tp)
                self.larger -= 1
                if not self.larger:
                    self.exact = []
        return far

    def _next_near(self, tp: TopicPartition, members: list[str], start: int) -> int | None:
        for step in range(len(members)):
            at = (start + step) % len(members)
            if self.racks.same(members[at], tp):
                return at
        return None

    def _deal(self, left: list[TopicPartition]) -> None:
        """A circle over those that lack something; who has the least leaves it, and may get one more last."""
        at = 0
        circle, following = self.under, list[str]()
        extra = iter(self.exact)
        for tp in left:
            if at == len(circle):
                circle, following, at = following, [], 0
            if not circle:
                self.plan[next(extra)].append(tp)
                continue
            member_id = circle[at]
            at += 1
            self.plan[member_id].append(tp)
            if len(self.plan[member_id]) < self.least:
                following.append(member_id)
            else:
                self.exact.append(member_id)


class _Mixed:
    """Members want different topics: greedy moves, always towards balance."""

    def __init__(
        self,
        partitions: Mapping[str, int],
        wants: Mapping[str, frozenset[str]],
        claims: _Claims,
        racks: _Racks,
    ) -> None:
        self.wants = wants
        self.racks = racks
        self.claims = claims
        self.subscribers: dict[str, list[str]] = {}
        for member_id, topics in wants.items():
            for topic in topics:
                if partitions.get(topic, 0):
                    self.subscribers.setdefault(topic, []).append(member_id)
        topics_in_order = sorted(self.subscribers, key=lambda topic: (len(self.subscribers[topic]), topic))
        self.all = [TopicPartition(t, index) for t in topics_in_order for index in range(partitions[t])]
        self.owner: dict[TopicPartition, str] = {}
        self.load = dict.fromkeys(wants, 0)
        self.order: list[tuple[int, str]] = []
        self.moved = 0  # how often
        self.known: dict[str, tuple[int, int]] = {}  # topic -> its least load, when so many had been moved
        self.moved_from: dict[TopicPartition, str] = {}
        self.moves: dict[tuple[str, str, str], list[TopicPartition]] = {}

    def build(self) -> Plan:
        must_revoke = False
        for tp, member_id in self.claims.owner.items():
            if self.racks.near(member_id, tp):
                self.owner[tp] = member_id
                self.load[member_id] += 1
            else:
                must_revoke = True
        nothing_held = not any(self.load.values())
        self.order = sorted((load, member_id) for member_id, load in self.load.items())
        unowned = [tp for tp in self.all if tp not in self.owner]
        self._place(unowned)
        before = dict(self.owner)
        score = _imbalance(self.load.values())
        if not must_revoke:
            self._level(unowned)
        changed = self._level(self.all)
        if changed and not nothing_held and _imbalance(self.load.values()) >= score:
            self.owner = before
        plan: Plan = {member_id: [] for member_id in self.wants}
        for tp in self.all:
            plan[self.owner[tp]].append(tp)
        return plan

    def _least(self, topic: str) -> str:
        """The least loaded subscriber, by id among equals."""
        subscribers = self.subscribers[topic]
        if len(subscribers) ** 2 < len(self.order):
            return min(subscribers, key=lambda member_id: (self.load[member_id], member_id))
        return next(member_id for _, member_id in self.order if topic in self.wants[member_id])

    def _place(self, unowned: list[TopicPartition]) -> None:
        """Each to the least loaded subscriber; where racks matter, first to those that are near."""
        far = unowned
        if self.racks.matter:
            far = list[TopicPartition]()
            for tp in unowned:
                wanting = (m for _, m in self.order if tp.topic in self.wants[m] and self.racks.near(m, tp))
                member_id = next(wanting, None)
                if member_id is None:
                    far.append(tp)
                else:
                    self._give(tp, member_id)
        for topic, left in groupby(far, key=lambda tp: tp.topic):
            heap = [(self.load[member_id], member_id) for member_id in self.subscribers[topic]]
            heapify(heap)
            for tp in left:
                load, member_id = heap[0]
                heapreplace(heap, (load + 1, member_id))
                self._give(tp, member_id)

    def _level(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions to members that have at least two fewer, until a whole pass moves nothing."""
        changed = False
        movable = [tp for tp in partitions if len(self.subscribers[tp.topic]) > 1]
        while True:
            modified = False
            for tp in movable:
                load = self.load[self.owner[tp]]
                if load <= self.order[0][0] + 1 or load <= self._at_least(tp.topic) + 1:
                    continue
                previous = self.claims.previous.get(tp)
                if previous is not None and load > self.load[previous] + 1:
                    to = previous
                else:
                    to = self._least(tp.topic)
                    self.known[tp.topic] = self.load[to], self.moved
                    if load <= self.load[to] + 1:
                        continue
                self._move(tp, to)
                changed = modified = True
            if not modified:
                return changed

    def _at_least(self, topic: str) -> int:
        """No subscriber of the topic has less than this.

        One move makes one member's load less by one, and so the least of any topic by one at the most: mostly
        there is nothing to look up.
        """
        least, moves = self.known.get(topic, (0, 0))
        return least - (self.moved - moves)

    def _move(self, tp: TopicPartition, to: str) -> None:
        """Move one partition of the topic to `to`: rather back one that came from there than `tp` itself."""
        source = self.moved_from.get(tp, self.owner[tp])
        back = self.moves.get((tp.topic, to, source))
        if back and self.load[source] > self.load[to] + 1:
            # Any of them would do for the balance: best one that `source` neither held nor is near to.
            tp = min(
                back,
                key=lambda one: (
                    self._holds(source, one) - self._holds(to, one),
                    self.racks.gain(one, source, to) if self.racks.matter else 0,
                ),
            )
        came_from = self._forget_move(tp)
        self.moved += 1
        if came_from != to:
            self.moved_from[tp] = came_from
            insort(self.moves.setdefault((tp.topic, came_from, to), []), tp)
        self._give(tp, to)

    def _holds(self, member_id: str, tp: TopicPartition) -> bool:
        return self.claims.owner.get(tp) == member_id

    def _forget_move(self, tp: TopicPartition) -> str:
        """Where the partition was before all moves; its record is taken out."""
        now = self.owner[tp]
        came_from = self.moved_from.pop(tp, None)
        if came_from is None:
            return now
        self.moves[tp.topic, came_from, now].remove(tp)
        return came_from

    def _give(self, tp: TopicPartition, member_id: str) -> None:
        before = self.owner.get(tp)
        if before is not None:
            self._count(before, -1)
        self.owner[tp] = member_id
        self._count(member_id, 1)

    def _count(self, member_id: str, change: int) -> None:
        load = self.load[member_id]
        del self.order[bisect_left(self.order, (load, member_id))]
        self.load[member_id] = load + change
        insort(self.order, (load + change, member_id))


def _imbalance(loads: Iterable[int]) -> int:
    """The sum of all pairwise differences."""
    total = below = 0
    for place, load in enumerate(sorted(loads)):
        total += load * place - below
        below += load
    return total
