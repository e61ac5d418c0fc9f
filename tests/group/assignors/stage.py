"""Short descriptions of assignor inputs, and the properties of every assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import (
    Subscription,
    TopicPartition,
    cooperative_user_data,
    sticky_user_data,
)

Plan = dict[str, list[TopicPartition]]
Racks = Mapping[str, Sequence[frozenset[str]]]


def tp(text: str) -> TopicPartition:
    """Parse the name of a partition such as `t-0`."""
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


def wants(topics: str = "t", owned: str = "", generation: int | None = None, **fields: Any) -> Subscription:
    """Return a member's subscription, for example wants("t u", owned="t-0 t-1", generation=3)."""
    owned_partitions = tuple(tp(text) for text in owned.split())
    return Subscription(topics=tuple(topics.split()), owned=owned_partitions, generation=generation, **fields)


def with_user_data(name: str, member: Subscription) -> Subscription:
    """Return the subscription as this assignor reads it: "sticky" reads owned partitions from user data."""
    generation = -1 if member.generation is None else member.generation
    if name == "sticky":
        data = sticky_user_data(member.owned, generation) if member.owned or generation >= 0 else None
        return Subscription(topics=member.topics, user_data=data, rack_id=member.rack_id)
    return member


def assign(name: str, topics: Mapping[str, int], racks: Racks | None = None, **members: Subscription) -> Plan:
    """Run the assignor, check the properties that every assignment has, and return the assignment."""
    subscriptions = {member_id: with_user_data(name, member) for member_id, member in members.items()}
    plan = ASSIGNORS[name].assign(topics, subscriptions, racks or {})
    check(name, topics, members, plan)
    return plan


def text(plan: Plan) -> dict[str, str]:
    return {member_id: " ".join(sorted(map(str, partitions))) for member_id, partitions in plan.items()}


def rejoined(plan: Plan, members: Mapping[str, Subscription], generation: int) -> dict[str, Subscription]:
    """Return the subscriptions with which the members rejoin after this assignment."""
    return {
        member_id: Subscription(
            topics=member.topics,
            owned=tuple(plan.get(member_id, ())),
            generation=generation,
            rack_id=member.rack_id,
            instance_id=member.instance_id,
        )
        for member_id, member in members.items()
    }


def moved_partitions(plan: Plan, members: Mapping[str, Subscription]) -> list[str]:
    """Return the partitions that the plan assigns to a member other than their owner."""
    holder = {partition: member_id for member_id, member in members.items() for partition in member.owned}
    return sorted(
        str(partition)
        for member_id, partitions in plan.items()
        for partition in partitions
        if holder.get(partition, member_id) != member_id
    )


def reported_ownership(name: str, member: Subscription) -> tuple[tuple[TopicPartition, ...], int]:
    """Return the partitions that a member reports to this assignor as owned, and their generation.

    The generation is -1 if the member does not report one.
    """
    read_ownership = ASSIGNORS[name].read_ownership
    assert read_ownership is not None
    owned, since = read_ownership(member)
    return owned, -1 if since is None else since


# Properties


def check(name: str, topics: Mapping[str, int], members: Mapping[str, Subscription], plan: Plan) -> None:
    every_member_has_a_list(members, plan)
    members_get_only_subscribed_topics(topics, members, plan)
    no_partition_has_two_owners(plan)
    if ASSIGNORS[name].cooperative:
        no_partition_moves_within_one_round(members, plan)
    else:
        every_subscribed_partition_is_assigned(topics, members, plan)
        assignment_is_balanced(name, topics, members, plan)


def every_member_has_a_list(members: Mapping[str, Subscription], plan: Plan) -> None:
    assert plan.keys() == members.keys()


def members_get_only_subscribed_topics(
    topics: Mapping[str, int], members: Mapping[str, Subscription], plan: Plan
) -> None:
    for member_id, partitions in plan.items():
        for topic, index in partitions:
            assert topic in members[member_id].topics
            assert 0 <= index < topics[topic]


def no_partition_has_two_owners(plan: Plan) -> None:
    partitions = [partition for part in plan.values() for partition in part]
    assert len(partitions) == len(set(partitions))


def every_subscribed_partition_is_assigned(
    topics: Mapping[str, int], members: Mapping[str, Subscription], plan: Plan
) -> None:
    wanted = {topic for member in members.values() for topic in member.topics}
    all_of_them = {TopicPartition(t, index) for t in wanted for index in range(topics.get(t, 0))}
    assert {partition for partitions in plan.values() for partition in partitions} == all_of_them


def no_partition_moves_within_one_round(members: Mapping[str, Subscription], plan: Plan) -> None:
    """Check that no partition is assigned to a member while another member still owns it.

    If several members report a partition, the member with the newest generation counts as its owner.
    """
    for member_id, partitions in plan.items():
        mine = reported_ownership("cooperative-sticky", members[member_id])
        for partition in partitions:
            for other_id, member in members.items():
                owned, since = reported_ownership("cooperative-sticky", member)
                if other_id != member_id and partition in owned:
                    assert partition in mine[0], f"{partition} is still with {other_id}"
                    if partition.topic in member.topics:
                        assert mine[1] > since, f"{partition} is claimed by {other_id} too"


def assignment_is_balanced(
    name: str, topics: Mapping[str, int], members: Mapping[str, Subscription], plan: Plan
) -> None:
    if ASSIGNORS[name].balances_each_topic:
        for topic in topics:
            counts = [
                sum(partition.topic == topic for partition in plan[m])
                for m, member in members.items()
                if topic in member.topics
            ]
            assert max(counts, default=0) - min(counts, default=0) <= 1
    elif name == "sticky":
        no_single_move_improves_the_balance(members, plan)
    elif len({frozenset(member.topics) for member in members.values()}) == 1:
        sizes = [len(partitions) for partitions in plan.values()]
        assert max(sizes) - min(sizes) <= 1


def no_single_move_improves_the_balance(members: Mapping[str, Subscription], plan: Plan) -> None:
    """Check KIP-54's balance: moving one partition cannot make two members' partition counts more equal."""
    for member_id, partitions in plan.items():
        for other_id, other_member in members.items():
            if len(partitions) >= len(plan[other_id]) + 2:
                assert not any(partition.topic in other_member.topics for partition in partitions), (
                    f"{member_id} -> {other_id}"
                )


# Inputs drawn by Hypothesis

TOPICS = st.dictionaries(st.sampled_from(["t", "u", "v", "w"]), st.integers(0, 6), min_size=1)
NAMES = [f"m{index}" for index in range(6)]


@st.composite
def assignor_inputs(
    draw: st.DrawFn, is_consistent: bool = False, racks: bool = False
) -> tuple[dict[str, int], dict[str, Subscription], dict[str, list[frozenset[str]]]]:
    """Draw an assignor's inputs: partition counts of topics, subscriptions of members, racks of replicas.

    With `is_consistent`, members report only existing partitions that no other member reports.
    """
    topics = draw(TOPICS)
    names = [*sorted(topics), "gone"]
    some = st.lists(st.sampled_from(names), unique=True, max_size=len(names))
    shared = draw(st.none() | st.lists(st.sampled_from(names), unique=True, min_size=1, max_size=len(names)))
    everything = [TopicPartition(t, index) for t, count in sorted(topics.items()) for index in range(count)]
    wild = st.builds(TopicPartition, st.sampled_from([*sorted(topics), "gone"]), st.integers(-1, 8))
    places = st.sampled_from("abc") if racks else st.nothing()
    members: dict[str, Subscription] = {}
    free = draw(st.permutations(everything)) if is_consistent else everything
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=6, unique=True)):
        wanted = shared if shared is not None else draw(some)
        if is_consistent:
            take = draw(st.integers(0, 6))
            owned, free = [partition for partition in free[:take] if partition.topic in wanted], free[take:]
        else:
            owned = draw(st.lists(wild | st.sampled_from(everything) if everything else wild, max_size=8))
        members[name] = Subscription(
            topics=tuple(sorted(wanted)),
            owned=tuple(owned),
            generation=draw(st.just(5) if is_consistent else st.none() | st.integers(0, 3)),
            user_data=draw(st.none() | st.binary(max_size=4) | st.just(cooperative_user_data(2))),
            rack_id=draw(st.none() | places) if racks else None,
            instance_id=draw(st.none() | st.sampled_from(["i", f"i-{name}"])),
        )
    where = {
        topic: [draw(st.frozensets(places, max_size=3)) for _ in range(count)] if racks else []
        for topic, count in topics.items()
    }
    return topics, members, where if racks else {}
