"""sarama's strategies: what they give, and that everybody's wishes are met."""

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

NAMES = ("range", "roundrobin", "sticky", "cooperative-sticky")


def wants(*topics: str) -> Subscription:
    return Subscription(topics=topics)


def parts(topic: str, *indexes: int) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in indexes]


def test_range_gives_the_first_members_one_partition_more() -> None:
    plan = balance_strategy.assign_partitions(
        "range", {"b": wants("t"), "a": wants("t"), "c": wants("t")}, {"t": 5}
    )
    assert plan == {"a": parts("t", 0, 1), "b": parts("t", 2, 3), "c": parts("t", 4)}


def test_range_does_not_put_static_members_first() -> None:
    static = Subscription(topics=("t",), instance_id="z")
    assert balance_strategy.assign_partitions("range", {"b": static, "a": wants("t")}, {"t": 1})[
        "a"
    ] == parts("t", 0)


def test_roundrobin_sorts_partitions_by_their_text() -> None:
    plan = balance_strategy.assign_partitions("roundrobin", {"a": wants("t"), "b": wants("t")}, {"t": 11})
    assert plan["a"] == parts("t", 0, 10, 3, 5, 7, 9)
    assert plan["b"] == parts("t", 1, 2, 4, 6, 8)


def test_roundrobin_skips_members_that_do_not_subscribe_to_the_topic() -> None:
    plan = balance_strategy.assign_partitions(
        "roundrobin", {"a": wants("t"), "b": wants("t", "u")}, {"t": 1, "u": 2}
    )
    assert plan == {"a": parts("t", 0), "b": parts("u", 0, 1)}


def test_sticky_moves_the_first_partitions_of_the_fullest_member() -> None:
    current = Subscription(topics=("t",), user_data=sticky_user_data(parts("t", 0, 1, 2, 3), 1))
    assert balance_strategy.assign_partitions("sticky", {"a": current, "b": wants("t")}, {"t": 4}) == {
        "a": parts("t", 2, 3),
        "b": parts("t", 0, 1),
    }


def test_sticky_assignments_carry_partitions_and_generation() -> None:
    sent = balance_strategy.assignments("sticky", {"a": parts("t", 0)}, 7)["a"]
    assert read_sticky_user_data(Assignment.decode(sent).user_data) == (tuple(parts("t", 0)), 7)


@pytest.mark.parametrize("name", ["range", "roundrobin", "cooperative-sticky"])
def test_assignments_of_other_strategies_have_no_user_data(name: str) -> None:
    assert Assignment.decode(balance_strategy.assignments(name, {"a": []}, 7)["a"]).user_data is None


def test_a_partition_may_return_to_a_member_that_no_longer_subscribes_to_it() -> None:
    # sarama doesn't ask whether the member before still wants the topic; nor does this.
    members = {
        "a": Subscription(topics=("t", "u"), generation=0),
        "b": Subscription(topics=("t",), owned=tuple(parts("u", 0)), generation=0),
        "c": Subscription(topics=("t", "u"), owned=(*parts("t", 0), *parts("u", 0)), generation=1),
    }
    plan = balance_strategy.assign_partitions(
        "sticky", {name: sticky(one) for name, one in members.items()}, {"t": 1, "u": 1}
    )
    assert plan["b"] == parts("u", 0)


def sticky(one: Subscription) -> Subscription:
    assert one.generation is not None
    data = sticky_user_data(one.owned, one.generation)
    return Subscription(topics=one.topics, owned=one.owned, generation=one.generation, user_data=data)


topics = st.dictionaries(st.sampled_from("tuv"), st.integers(1, 6), min_size=1)


def member(topics: list[str], owned: list[TopicPartition], generation: int) -> Subscription:
    """It claims only what it still wants: see the test before this."""
    held = tuple(one for one in owned if one.topic in topics)
    data = sticky_user_data(held, generation)
    return Subscription(topics=tuple(topics), owned=held, generation=generation, user_data=data)


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
    wanted = {topic for member in members.values() for topic in member.topics}
    counts = {topic: count for topic, count in counts.items() if topic in wanted}
    plan = balance_strategy.assign_partitions(name, members, counts)
    given_out = [partition for partitions in plan.values() for partition in partitions]
    assert len(given_out) == len(set(given_out))
    assert all(partition.topic in members[who].topics for who, some in plan.items() for partition in some)
    everything = {TopicPartition(topic, index) for topic, count in counts.items() for index in range(count)}
    if name == "cooperative-sticky":
        assert set(given_out) <= everything
    else:
        assert set(given_out) == everything
