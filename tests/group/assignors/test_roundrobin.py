"""The round-robin assignor: the partitions of all topics go to the members in turn."""

from __future__ import annotations

import pytest

from tests.group.assignors.stage import assign, text, wants
from tests.rules import rule


@rule("R192")
def test_members_that_do_not_subscribe_to_a_topic_are_skipped() -> None:
    """Mirrors RoundRobinAssignorTest.testMultipleConsumersMixedTopics."""
    plan = assign("roundrobin", {"t": 3, "u": 2}, a=wants("t"), b=wants("t u"), c=wants("t"))
    assert text(plan) == {"a": "t-0", "b": "t-1 u-0 u-1", "c": "t-2"}


def test_a_skipped_member_gets_the_next_partition_of_its_topics() -> None:
    plan = assign("roundrobin", {"t": 1, "u": 2, "v": 2}, a=wants("t v"), b=wants("u v"))
    assert text(plan) == {"a": "t-0 v-0", "b": "u-0 u-1 v-1"}


@rule("R192")
def test_two_members_take_turns_over_both_topics() -> None:
    """Mirrors RoundRobinAssignorTest.testTwoDynamicConsumersTwoTopicsSixPartitions."""
    plan = assign("roundrobin", {"t": 3, "u": 3}, a=wants("t u"), b=wants("t u"))
    assert text(plan) == {"a": "t-0 t-2 u-1", "b": "t-1 u-0 u-2"}


def test_partitions_are_sorted_by_number() -> None:
    """Partitions are sorted by number. sarama sorts them as text, and assigns t-10 before t-2."""
    plan = assign("roundrobin", {"t": 12}, a=wants(), b=wants())
    assert [partition.partition for partition in plan["a"]] == [0, 2, 4, 6, 8, 10]


@rule("R187")
def test_static_members_are_sorted_by_instance_id() -> None:
    """Mirrors RoundRobinAssignorTest.testTwoStaticConsumersTwoTopicsSixPartitions."""
    plan = assign(
        "roundrobin", {"t": 3, "u": 3}, a=wants("t u", instance_id="z"), b=wants("t u", instance_id="y")
    )
    assert text(plan) == {"b": "t-0 t-2 u-1", "a": "t-1 u-0 u-2"}


@rule("R187")
def test_a_static_member_comes_before_a_dynamic_one() -> None:
    """Mirrors RoundRobinAssignorTest.testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions."""
    plan = assign("roundrobin", {"t": 3, "u": 3}, a=wants("t u"), b=wants("t u", instance_id="z"))
    assert text(plan) == {"b": "t-0 t-2 u-1", "a": "t-1 u-0 u-2"}


@pytest.mark.parametrize("dynamic", ["a", "m", "zz"])
def test_static_members_keep_their_partitions_when_a_dynamic_member_id_changes(dynamic: str) -> None:
    """Mirrors RoundRobinAssignorTest.testStaticMemberRoundRobinAssignmentPersistent."""
    members = {"b": wants(instance_id="1"), "c": wants(instance_id="2"), dynamic: wants()}
    plan = text(assign("roundrobin", {"t": 6}, None, **members))
    assert (plan["b"], plan["c"]) == ("t-0 t-3", "t-1 t-4")


def test_static_members_keep_their_partitions_when_their_member_ids_change() -> None:
    """Mirrors RoundRobinAssignorTest.testStaticMemberRoundRobinAssignmentPersistentAfterMemberIdChanges."""
    assignments: list[tuple[str, ...]] = []
    for ids in (("x", "y", "z"), ("z", "x", "y")):
        members = {m: wants("t u", instance_id=str(n)) for n, m in enumerate(ids)}
        plan = text(assign("roundrobin", {"t": 4, "u": 4}, None, **members))
        assignments.append(tuple(plan[m] for m in ids))
    assert assignments[0] == assignments[1]
