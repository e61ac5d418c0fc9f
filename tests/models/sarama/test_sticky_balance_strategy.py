"""sarama's sticky strategies move partitions from their owners only to improve the balance."""

from __future__ import annotations

import pytest

from kproto.group.subscription import (
    Subscription,
    TopicPartition,
    cooperative_user_data,
    sticky_user_data,
)
from kproto.models.sarama import balance_strategy, sticky_balance_strategy
from tests.models.sarama.stage import partitions_of, subscribe


def test_sticky_moves_the_first_partitions_of_the_fullest_member() -> None:
    current = Subscription(topics=("t",), user_data=sticky_user_data(partitions_of("t", 0, 1, 2, 3), 1))
    assert balance_strategy.assign_partitions("sticky", {"a": current, "b": subscribe("t")}, {"t": 4}) == {
        "a": partitions_of("t", 2, 3),
        "b": partitions_of("t", 0, 1),
    }


@pytest.mark.rule("R225")
def test_a_partition_may_return_to_a_member_that_no_longer_subscribes_to_it() -> None:
    # sarama does not check whether the previous owner still subscribes to the topic. Neither does the model.
    members = {
        "a": Subscription(topics=("t", "u"), generation=0),
        "b": Subscription(topics=("t",), owned=tuple(partitions_of("u", 0)), generation=0),
        "c": Subscription(
            topics=("t", "u"), owned=(*partitions_of("t", 0), *partitions_of("u", 0)), generation=1
        ),
    }
    plan = balance_strategy.assign_partitions(
        "sticky",
        {name: with_user_data(subscription) for name, subscription in members.items()},
        {"t": 1, "u": 1},
    )
    assert plan["b"] == partitions_of("u", 0)


def with_user_data(subscription: Subscription) -> Subscription:
    assert subscription.generation is not None
    data = sticky_user_data(subscription.owned, subscription.generation)
    return Subscription(
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
        user_data=data,
    )


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_members_keep_their_partitions_while_that_is_balanced(name: str) -> None:
    members = {
        member: with_user_data(
            Subscription(topics=("t",), owned=tuple(partitions_of("t", *indexes)), generation=1)
        )
        for member, indexes in {"a": (1, 3), "b": (0, 2)}.items()
    }
    plan = balance_strategy.assign_partitions(name, members, {"t": 4})
    assert {member: sorted(owned) for member, owned in plan.items()} == {
        "a": partitions_of("t", 1, 3),
        "b": partitions_of("t", 0, 2),
    }


@pytest.mark.rule("R225")
def test_sticky_keeps_the_partitions_with_the_claim_of_the_newest_generation() -> None:
    def claim(generation: int) -> Subscription:
        return Subscription(topics=("t",), user_data=sticky_user_data(partitions_of("t", 0, 1), generation))

    plan = balance_strategy.assign_partitions("sticky", {"a": claim(1), "b": claim(2)}, {"t": 4})
    assert plan == {"a": partitions_of("t", 2, 3), "b": partitions_of("t", 0, 1)}


@pytest.mark.rule("R225")
def test_the_second_newest_claim_is_the_previous_owners() -> None:
    def claim(topics: tuple[str, ...], generation: int) -> Subscription:
        claimed = partitions_of("u", 0)
        return Subscription(topics=topics, user_data=sticky_user_data(claimed, generation))

    members = {
        "a": Subscription(topics=("t", "u")),
        "b": claim(("t",), 2),
        "c": Subscription(
            topics=("t", "u"),
            user_data=sticky_user_data([*partitions_of("t", 0), *partitions_of("u", 0)], 3),
        ),
        "d": claim(("t",), 1),
    }
    plan = balance_strategy.assign_partitions("sticky", members, {"t": 1, "u": 1})
    assert plan["b"] == partitions_of("u", 0)


def test_a_cooperative_partition_is_withheld_until_its_owner_has_revoked_it() -> None:
    owner = Subscription(topics=("t",), owned=tuple(partitions_of("t", 0, 1)), generation=1)
    plan = balance_strategy.assign_partitions(
        "cooperative-sticky", {"a": owner, "b": subscribe("t")}, {"t": 2}
    )
    assert sorted(map(len, plan.values())) == [0, 1]
    assert plan["b"] == []


@pytest.mark.parametrize("in_subscription", [True, False])
def test_the_newest_cooperative_claim_counts(in_subscription: bool) -> None:
    """Subscriptions before version 2 have the generation in their user data."""
    members = {
        name: Subscription(
            topics=("t",),
            owned=tuple(partitions_of("t", 0, 1)),
            generation=generation if in_subscription else None,
            user_data=cooperative_user_data(0 if in_subscription else generation),
        )
        for name, generation in (("a", 1), ("b", 2))
    }
    plan = balance_strategy.assign_partitions("cooperative-sticky", members, {"t": 4})
    assert plan == {"a": partitions_of("t", 2, 3), "b": partitions_of("t", 0, 1)}


# ---- moves of partitions between members

T0, T1, T2 = partitions_of("t", 0, 1, 2)


def test_an_exchange_moves_the_partition_that_came_the_other_way_last() -> None:
    moves = sticky_balance_strategy._Movements()
    assert moves.partition_to_move(T0, "b", "a") == T0
    moves.add(T1, "a", "b")
    moves.add(T2, "a", "b")
    assert moves.partition_to_move(T0, "b", "a") == T2
    assert moves.partition_to_move(T0, "a", "b") == T0
    assert moves.partition_to_move(TopicPartition("u", 0), "b", "a") == TopicPartition("u", 0)


def test_a_partition_that_moved_twice_counts_as_moved_from_its_first_owner() -> None:
    moves = sticky_balance_strategy._Movements()
    moves.add(T0, "a", "b")
    moves.add(T0, "b", "c")
    assert moves.partition_to_move(T1, "c", "a") == T0
    assert moves.partition_to_move(T1, "b", "a") == T1
    assert moves.partition_to_move(T1, "c", "b") == T1
    assert moves.partition_to_move(T0, "c", "a") == T0


def test_a_partition_that_returned_to_its_first_owner_has_not_moved() -> None:
    moves = sticky_balance_strategy._Movements()
    moves.add(T0, "a", "b")
    moves.add(T1, "a", "b")
    moves.add(T0, "b", "a")
    assert moves.partition_to_move(T2, "b", "a") == T1
    moves.add(T1, "b", "a")
    assert moves.partition_to_move(T2, "b", "a") == T2
    assert moves.by_topic == {}


def plan_of(name: str, counts: dict[str, int], **members: Subscription) -> dict[str, list[TopicPartition]]:
    return balance_strategy.assign_partitions(name, members, counts)


def owning(topics: tuple[str, ...], *owned: TopicPartition) -> Subscription:
    return with_user_data(Subscription(topics=topics, owned=owned, generation=1))


def test_members_with_different_topics_are_balanced_by_moves_between_the_subscribers() -> None:
    t, u = partitions_of("t", 0, 1, 2, 3), partitions_of("u", 0, 1)
    plan = plan_of(
        "sticky",
        {"t": 4, "u": 2},
        a=owning(("t",), *t),
        b=owning(("t", "u"), *u),
        c=owning(("u",)),
    )
    assert {member: len(owned) for member, owned in plan.items()} == {"a": 3, "b": 2, "c": 1}
    assert {tp.topic for tp in plan["c"]} == {"u"}
    assert sorted(tp for owned in plan.values() for tp in owned) == [*t, *u]


def test_a_claim_of_a_partition_that_does_not_exist_is_dropped() -> None:
    plan = plan_of("sticky", {"t": 2}, a=owning(("t",), *partitions_of("t", 0, 5)), b=subscribe("t"))
    assert plan == {"a": [T0], "b": [T1]}


def test_an_unbalanced_assignment_without_a_possible_move_is_kept() -> None:
    plan = plan_of("sticky", {"t": 3, "u": 1}, a=owning(("t",), T0, T1, T2), b=subscribe("u"))
    assert plan == {"a": [T0, T1, T2], "b": partitions_of("u", 0)}


@pytest.mark.parametrize(("loads", "score"), [((2, 2), 0), ((3, 1), 2), ((4, 1, 0), 3 + 4 + 1), ((), 0)])
def test_the_balance_score_is_the_sum_of_all_differences(loads: tuple[int, ...], score: int) -> None:
    assignment = {str(number): partitions_of("t", *range(load)) for number, load in enumerate(loads)}
    assert sticky_balance_strategy._balance_score(assignment) == score
