"""The range assignor assigns ranges of each topic, and considers static members and racks."""

from __future__ import annotations

import pytest

from kproto.group.subscription import Subscription
from tests.group.assignors.stage import assign, text, wants
from tests.rules import rule


def in_ranges(
    topics: dict[str, int], racks: dict[str, str] | None = None, **members: Subscription
) -> dict[str, str]:
    """Assign ranges. `racks` maps a topic to the racks of its replicas, one word for each partition.

    With {"t": "ab b -"}, t-0 has replicas in the racks a and b, t-1 in b, and t-2 in none.
    """
    where = {
        t: [frozenset(word.replace("-", "")) for word in words.split()] for t, words in (racks or {}).items()
    }
    return text(assign("range", topics, where, **members))


def test_members_share_only_topics_that_both_subscribe() -> None:
    """Mirrors RangeAssignorTest.testMultipleConsumersMixedTopics."""
    plan = in_ranges({"t": 3, "u": 2}, a=wants("t"), b=wants("t u"), c=wants("t"))
    assert plan == {"a": "t-0", "b": "t-1 u-0 u-1", "c": "t-2"}


@rule("R189")
def test_the_first_members_get_one_partition_more_of_each_topic() -> None:
    """Mirrors RangeAssignorTest.testTwoConsumersTwoTopicsSixPartitions."""
    plan = in_ranges({"t": 3, "u": 3}, a=wants("t u"), b=wants("t u"))
    assert plan == {"a": "t-0 t-1 u-0 u-1", "b": "t-2 u-2"}


@rule("R187")
def test_static_members_are_sorted_by_instance_id() -> None:
    """Mirrors RangeAssignorTest.testTwoStaticConsumersTwoTopicsSixPartitions."""
    plan = in_ranges({"t": 3, "u": 3}, a=wants("t u", instance_id="z"), b=wants("t u", instance_id="y"))
    assert plan == {"a": "t-2 u-2", "b": "t-0 t-1 u-0 u-1"}


@rule("R187")
def test_a_static_member_comes_before_a_dynamic_one() -> None:
    """Mirrors RangeAssignorTest.testOneStaticConsumerAndOneDynamicConsumerTwoTopicsSixPartitions."""
    plan = in_ranges({"t": 3, "u": 3}, a=wants("t u"), b=wants("t u", instance_id="z"))
    assert plan == {"a": "t-2 u-2", "b": "t-0 t-1 u-0 u-1"}


@pytest.mark.parametrize("dynamic", ["a", "m", "zz"])
def test_static_members_keep_their_partitions_when_a_dynamic_member_id_changes(dynamic: str) -> None:
    """Mirrors RangeAssignorTest.testStaticMemberRangeAssignmentPersistent."""
    plan = in_ranges(
        {"t": 5, "u": 4},
        None,
        b=wants("t u", instance_id="1"),
        c=wants("t u", instance_id="2"),
        **{dynamic: wants("t u")},
    )
    assert (plan["b"], plan["c"]) == ("t-0 t-1 u-0 u-1", "t-2 t-3 u-2")


def test_static_members_keep_their_partitions_when_their_member_ids_change() -> None:
    """Mirrors RangeAssignorTest.testStaticMemberRangeAssignmentPersistentAfterMemberIdChanges."""
    by_instance: list[dict[str, str]] = []
    for ids in (("x", "y", "z"), ("z", "x", "y")):
        members = {m: wants("t u", instance_id=str(n)) for n, m in enumerate(ids)}
        plan = in_ranges({"t": 4, "u": 4}, None, **members)
        by_instance.append({str(n): plan[m] for n, m in enumerate(ids)})
    assert by_instance[0] == by_instance[1]


@rule("R189")
def test_topics_of_equal_size_are_assigned_together() -> None:
    """Mirrors RangeAssignorTest.testCoPartitionedAssignmentWithSameSubscription."""
    plan = in_ranges({f"t{n}": 6 for n in range(1, 4)}, a=wants("t1 t2 t3"), b=wants("t1 t2 t3"))
    assert plan["a"] == "t1-0 t1-1 t1-2 t2-0 t2-1 t2-2 t3-0 t3-1 t3-2"


# Assignments that prefer replicas in the member's rack, as in RangeAssignorTest.testRackAware...


@rule("R191")
def test_each_member_gets_partitions_with_a_replica_in_its_rack() -> None:
    plan = in_ranges(
        {"t": 4},
        {"t": "b a b a"},
        a=wants("t", rack_id="a"),
        b=wants("t", rack_id="b"),
    )
    assert plan == {"a": "t-1 t-3", "b": "t-0 t-2"}


@rule("R188")
@pytest.mark.parametrize("racks", [None, {"t": "ab ab ab ab"}, {"t": "c d c d"}, {"t": "- - - -"}])
def test_racks_that_make_no_difference_change_nothing(racks: dict[str, str] | None) -> None:
    plan = in_ranges({"t": 4}, racks, a=wants("t", rack_id="a"), b=wants("t", rack_id="b"))
    assert plan == {"a": "t-0 t-1", "b": "t-2 t-3"}


def test_racks_of_replicas_change_nothing_if_members_have_no_racks() -> None:
    assert in_ranges({"t": 4}, {"t": "b a b a"}, a=wants("t"), b=wants("t")) == {
        "a": "t-0 t-1",
        "b": "t-2 t-3",
    }


@rule("R191")
def test_balance_comes_before_racks() -> None:
    plan = in_ranges({"t": 4}, {"t": "a a a b"}, a=wants("t", rack_id="a"), b=wants("t", rack_id="b"))
    assert plan == {"a": "t-0 t-1", "b": "t-2 t-3"}


@rule("R191")
def test_a_member_without_a_rack_is_near_to_every_partition() -> None:
    plan = in_ranges({"t": 4}, {"t": "a b a b"}, a=wants("t"), b=wants("t", rack_id="b"))
    assert plan == {"a": "t-0 t-1", "b": "t-2 t-3"}


@rule("R191")
def test_topics_of_equal_size_are_assigned_together_if_racks_allow_it() -> None:
    """Mirrors RangeAssignorTest.testRackAwareAssignmentWithCoPartitioning."""
    racks = {"t": "b a b a", "u": "b a b a"}
    plan = in_ranges({"t": 4, "u": 4}, racks, a=wants("t u", rack_id="a"), b=wants("t u", rack_id="b"))
    assert plan == {"a": "t-1 t-3 u-1 u-3", "b": "t-0 t-2 u-0 u-2"}


@rule("R191")
def test_topics_of_equal_size_with_other_racks_are_assigned_together() -> None:
    racks = {"t": "a a b b", "u": "b b a a"}
    plan = in_ranges({"t": 4, "u": 4}, racks, a=wants("t u", rack_id="a"), b=wants("t u", rack_id="b"))
    assert plan == {"a": "t-0 t-1 u-0 u-1", "b": "t-2 t-3 u-2 u-3"}


@rule("R188", "R191")
def test_a_topic_with_replicas_in_all_racks_is_assigned_without_racks() -> None:
    racks = {"t": "a b", "u": "ab ab ab"}
    members = {
        "m1": wants("u", rack_id="c"),
        "m2": wants("t u", rack_id="a"),
        "m3": wants("t u", rack_id="b"),
    }
    plan = in_ranges({"t": 2, "u": 3}, racks, **members)
    assert plan == {"m1": "u-0", "m2": "t-0 u-1", "m3": "t-1 u-2"}


def test_static_members_keep_their_partitions_with_racks() -> None:
    """Mirrors RangeAssignorTest.testRackAwareStaticMemberRangeAssignmentPersistentAfterMemberIdChanges."""
    racks = {"t": "a b a b"}
    plans: list[dict[str, str]] = []
    for x, y in (("m1", "m2"), ("m2", "m1")):
        members = {
            x: wants("t", instance_id="1", rack_id="a"),
            y: wants("t", instance_id="2", rack_id="b"),
        }
        plan = in_ranges({"t": 4}, racks, **members)
        plans.append({"1": plan[x], "2": plan[y]})
    assert plans[0] == plans[1] == {"1": "t-0 t-2", "2": "t-1 t-3"}
