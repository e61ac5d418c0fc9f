"""sarama's balance strategies: members get only partitions of topics that they subscribe to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.group.subscription import (
    Assignment,
    Subscription,
    TopicPartition,
    read_sticky_user_data,
    sticky_user_data,
)
from kproto.models.sarama import balance_strategy
from tests.models.sarama.stage import partitions_of, subscribe

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


@pytest.mark.rule("R223")
def test_range_gives_the_first_members_one_partition_more() -> None:
    plan = balance_strategy.assign_partitions(
        "range", {"b": subscribe("t"), "a": subscribe("t"), "c": subscribe("t")}, {"t": 5}
    )
    assert plan == {"a": partitions_of("t", 0, 1), "b": partitions_of("t", 2, 3), "c": partitions_of("t", 4)}


@pytest.mark.rule("R223")
def test_range_does_not_put_static_members_first() -> None:
    static = Subscription(topics=("t",), instance_id="z")
    assert balance_strategy.assign_partitions("range", {"b": static, "a": subscribe("t")}, {"t": 1})[
        "a"
    ] == partitions_of("t", 0)


@pytest.mark.rule("R224")
def test_roundrobin_sorts_partitions_by_their_text() -> None:
    plan = balance_strategy.assign_partitions(
        "roundrobin", {"a": subscribe("t"), "b": subscribe("t")}, {"t": 11}
    )
    assert plan["a"] == partitions_of("t", 0, 10, 3, 5, 7, 9)
    assert plan["b"] == partitions_of("t", 1, 2, 4, 6, 8)


def test_roundrobin_skips_members_that_do_not_subscribe_to_the_topic() -> None:
    plan = balance_strategy.assign_partitions(
        "roundrobin", {"a": subscribe("t"), "b": subscribe("t", "u")}, {"t": 1, "u": 2}
    )
    assert plan == {"a": partitions_of("t", 0), "b": partitions_of("u", 0, 1)}


@pytest.mark.rule("R226")
def test_sticky_assignments_carry_partitions_and_generation() -> None:
    assignment = balance_strategy.assignments("sticky", {"a": partitions_of("t", 0)}, 7)["a"]
    assert read_sticky_user_data(Assignment.decode(assignment).user_data) == (tuple(partitions_of("t", 0)), 7)


@pytest.mark.parametrize("name", ["range", "roundrobin", "cooperative-sticky"])
def test_assignments_of_other_strategies_have_no_user_data(name: str) -> None:
    assert Assignment.decode(balance_strategy.assignments(name, {"a": []}, 7)["a"]).user_data is None


def test_roundrobin_assigns_no_partition_of_a_topic_without_subscribers() -> None:
    plan = balance_strategy.assign_partitions(
        "roundrobin", {"a": subscribe("t"), "b": subscribe("t", "v")}, {"t": 2, "u": 3, "v": 2}
    )
    assert plan == {"a": partitions_of("t", 0), "b": [*partitions_of("t", 1), *partitions_of("v", 0, 1)]}


topics = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 6), min_size=1)


def member(topics: list[str], owned: list[TopicPartition], generation: int) -> Subscription:
    """Return a subscription that claims only partitions of topics that it subscribes to."""
    claimed = tuple(partition for partition in owned if partition.topic in topics)
    data = sticky_user_data(claimed, generation)
    return Subscription(topics=tuple(topics), owned=claimed, generation=generation, user_data=data)


groups = st.dictionaries(
    st.sampled_from("abcde"),
    st.builds(
        member,
        st.lists(st.sampled_from("tuv"), unique=True),
        st.lists(st.builds(TopicPartition, st.sampled_from("tuv"), st.integers(0, 7)), unique=True),
        st.integers(0, 3),
    ),
    min_size=1,
)


@pytest.mark.parametrize("name", NAMES)
@given(members=groups, counts=topics)
def test_each_subscribed_partition_has_one_owner_that_subscribes_to_it(
    name: str, members: dict[str, Subscription], counts: dict[str, int]
) -> None:
    subscribed = {topic for member in members.values() for topic in member.topics}
    counts = {topic: count for topic, count in counts.items() if topic in subscribed}
    plan = balance_strategy.assign_partitions(name, members, counts)
    assigned = [partition for partitions in plan.values() for partition in partitions]
    assert len(assigned) == len(set(assigned))
    assert all(
        partition.topic in members[member_id].topics
        for member_id, partitions in plan.items()
        for partition in partitions
    )
    existing = {TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)}
    if name == "cooperative-sticky":
        assert set(assigned) <= existing
    else:
        assert set(assigned) == existing
