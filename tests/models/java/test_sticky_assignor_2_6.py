"""The sticky assignors of kafka-clients 2.6 keep the partitions that members of the newest generation claim.

tests/conformance/test_assignors_java_2_6.py compares the assignors with Java's consumer 2.6.2.
"""

from __future__ import annotations

import pytest

from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Subscription, TopicPartition, sticky_user_data
from kproto.models.java.release import JAVA_2_6

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


def assign(count: int, **claims: bytes | None) -> dict[str, list[TopicPartition]]:
    members = {member: Subscription(topics=("t",), user_data=data) for member, data in claims.items()}
    plan = JAVA_2_6.assignors_2_6["sticky"].assign({"t": count}, members, {})
    assert plan != ASSIGNORS["sticky"].assign({"t": count}, members, {}), "today's divides otherwise"
    return plan


def test_a_member_above_its_share_keeps_the_first_partitions_that_it_claims() -> None:
    owned = JAVA_2_6.assignors_2_6["sticky"].user_data([T2, T0, T1], 5)
    assert assign(3, a=owned, b=sticky_user_data([], 5)) == {"a": [T2, T0], "b": [T1]}


def test_a_member_of_an_older_generation_owns_nothing() -> None:
    plan = assign(2, a=sticky_user_data([T1], 4), b=sticky_user_data([], 5))
    assert plan == {"a": [T0], "b": [T1]}


def test_all_claims_of_the_newest_generation_count() -> None:
    claims = {"a": [T1, T2], "b": [T0, TopicPartition("t", 3)]}
    members = {
        member: Subscription(topics=("t",), user_data=sticky_user_data(owned, 5))
        for member, owned in claims.items()
    }
    assert JAVA_2_6.assignors_2_6["sticky"].assign({"t": 4}, members, {}) == claims


def test_claims_without_a_generation_count_until_a_claim_has_one() -> None:
    assert assign(2, a=sticky_user_data([T1], -1), b=sticky_user_data([], 5)) == {"a": [T0], "b": [T1]}


def test_a_leftover_partition_goes_to_a_member_that_owns_the_minimum() -> None:
    claims = {
        "a": [TopicPartition("t", 0), TopicPartition("t", 1)],
        "b": [TopicPartition("t", 2)],
        "c": [TopicPartition("t", 3)],
    }
    members = {
        member: Subscription(topics=("t",), user_data=sticky_user_data(owned, 5))
        for member, owned in claims.items()
    }
    plan = JAVA_2_6.assignors_2_6["sticky"].assign({"t": 5}, members, {})
    assert plan == {**claims, "b": [TopicPartition("t", 2), TopicPartition("t", 4)]}


def subscriptions(**owned: list[TopicPartition]) -> dict[str, Subscription]:
    return {member: Subscription(topics=("t",), owned=tuple(owned[member])) for member in owned}


def cooperative(count: int, members: dict[str, Subscription]) -> dict[str, list[TopicPartition]]:
    return JAVA_2_6.assignors_2_6["cooperative-sticky"].assign({"t": count}, members, {})


def test_a_member_below_the_minimum_takes_the_first_partition_of_a_member_with_the_maximum() -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    claims = {"a": partitions[:2], "b": partitions[2:], "c": []}
    members = {
        member: Subscription(topics=("t",), user_data=sticky_user_data(owned, 5))
        for member, owned in claims.items()
    }
    plan = JAVA_2_6.assignors_2_6["sticky"].assign({"t": 4}, members, {})
    assert plan == {"a": [partitions[1]], "b": partitions[2:], "c": [partitions[0]]}


def test_a_cooperative_member_gets_a_partition_only_after_its_owner_has_revoked_it() -> None:
    partitions = [TopicPartition("t", number) for number in range(4)]
    taken_plan = cooperative(4, subscriptions(a=partitions[:2], b=partitions[2:], c=[]))
    assert taken_plan == {"a": [partitions[1]], "b": partitions[2:], "c": []}
    released = cooperative(2, subscriptions(a=partitions[:2], b=[]))
    assert released == {"a": [partitions[0]], "b": []}
    free = cooperative(2, subscriptions(a=partitions[:1], b=[]))
    assert free == {"a": [partitions[0]], "b": [partitions[1]]}


def test_a_claim_of_a_topic_that_does_not_exist_does_not_count() -> None:
    members = subscriptions(a=[TopicPartition("gone", 0), T0], b=[T1])
    assert cooperative(2, members) == {"a": [T0], "b": [T1]}


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_members_with_different_topics_are_assigned_as_by_the_current_release(name: str) -> None:
    members = {"a": Subscription(topics=("t", "u")), "b": Subscription(topics=("u",))}
    counts = {"t": 2, "u": 2}
    plan = JAVA_2_6.assignors_2_6[name].assign(counts, members, {})
    assert plan == ASSIGNORS[name].assign(counts, members, {})
    assert {tp.topic for tp in plan["b"]} == {"u"}


def test_a_claim_of_an_older_generation_does_not_count_after_a_newer_one() -> None:
    """Java's hash order puts b before c, so b's claim, of the newer generation 5, is processed first."""
    claims = {"b": sticky_user_data([], 5), "c": sticky_user_data([T0, T1], 4)}
    members = {member: Subscription(topics=("t",), user_data=data) for member, data in claims.items()}
    plan = JAVA_2_6.assignors_2_6["sticky"].assign({"t": 2}, members, {})
    assert plan == {"b": [T0], "c": [T1]}
    assert list(plan) == ["b", "c"]


def test_a_member_that_was_never_assigned_sends_no_user_data() -> None:
    assert JAVA_2_6.assignors_2_6["sticky"].user_data(None, -1) is None
