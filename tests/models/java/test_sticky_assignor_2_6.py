"""The sticky assignors of Java 2.6.

tests/conformance/test_assignors_java_2_6.py compares the assignors with those of Java's consumer 2.6.2.
"""

from __future__ import annotations

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
