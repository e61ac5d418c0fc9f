"""Properties that every assignor has for any input."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.errors import ConfigError
from kproto.group.assignors import ASSIGNORS, Assignor, is_cooperative, resolve_assignors
from kproto.group.assignors.sticky import assign as sticky
from kproto.group.assignors.subscribers import racks_matter, sort_members
from kproto.group.subscription import Subscription
from kproto.testing.properties import an_assignor_is_a_function
from tests.group.assignors.stage import (
    Plan,
    assign,
    assignor_inputs,
    check,
    no_single_move_improves_the_balance,
    rejoined,
    text,
    wants,
    with_user_data,
)
from tests.rules import rule

NAMES = sorted(ASSIGNORS)
every = pytest.mark.parametrize("name", NAMES)
# Kafka's assignors, which process members in ascending order of their ids. Other assignors may use any order.
KAFKA = pytest.mark.parametrize("name", ["range", "roundrobin", "sticky", "cooperative-sticky"])
STICKY = pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
AssignorInput = tuple[dict[str, int], dict[str, Subscription], dict[str, list[frozenset[str]]]]


def settled(
    name: str, topics: dict[str, int], members: dict[str, Subscription], racks: object = None
) -> Plan:
    """Let all members rejoin until the assignment no longer changes, and return it."""
    plan = assign(name, topics, None, **members)
    for generation in range(9, 15):
        then = assign(name, topics, None, **rejoined(plan, members, generation))
        if text(then) == text(plan):
            return plan
        plan = then
    raise AssertionError(f"the assignment still changes in the sixth round: {text(plan)}")


# ---- tests in which members may report any ownership, even an invalid one


@rule("R186", "R218", "R219", "R220")
@every
@given(inputs=assignor_inputs() | assignor_inputs(racks=True))
def test_the_rules_hold_whatever_members_report(name: str, inputs: AssignorInput) -> None:
    topics, members, racks = inputs
    subscriptions = {
        m: with_user_data(name, partition) if name == "sticky" else partition
        for m, partition in members.items()
    }
    check(name, topics, members, ASSIGNORS[name].assign(topics, subscriptions, racks))


@rule("R222")
@every
@given(inputs=assignor_inputs(racks=True), data=st.data())
def test_the_order_of_members_and_topics_does_not_matter(
    name: str, inputs: AssignorInput, data: st.DataObject
) -> None:
    topics, members, racks = inputs
    other_topics = dict(data.draw(st.permutations(list(topics.items()))))
    other_members = dict(data.draw(st.permutations(list(members.items()))))
    assign = ASSIGNORS[name].assign
    assert assign(topics, members, racks) == assign(other_topics, other_members, racks)


@every
@given(inputs=assignor_inputs(racks=True))
def test_other_member_ids_in_the_same_order_change_nothing(name: str, inputs: AssignorInput) -> None:
    topics, members, racks = inputs
    renamed = {f"x{m}y": partition for m, partition in members.items()}
    assign = ASSIGNORS[name].assign
    before = {f"x{m}y": partitions for m, partitions in assign(topics, members, racks).items()}
    assert assign(topics, renamed, racks) == before


@rule("R216", "R218")
@given(inputs=assignor_inputs(is_consistent=True))
def test_a_cooperative_group_finally_owns_all_partitions(inputs: AssignorInput) -> None:
    topics, members, _ = inputs
    plan = settled("cooperative-sticky", topics, members)
    wanted = {topic for member in members.values() for topic in member.topics}
    assert sum(map(len, plan.values())) == sum(topics.get(topic, 0) for topic in wanted)
    no_single_move_improves_the_balance(members, plan)


@given(inputs=assignor_inputs(is_consistent=True))
def test_a_cooperative_group_with_equal_subscriptions_owns_all_partitions_after_two_rounds(
    inputs: AssignorInput,
) -> None:
    """A cooperative group with equal subscriptions owns all partitions after two rounds.

    A round is one rebalance. Members with different subscriptions may need three rounds, as in Java
    (test_assignors_java.py).
    """
    topics, members, _ = inputs
    members = {
        m: Subscription(topics=tuple(sorted(topics)), owned=partition.owned, generation=partition.generation)
        for m, partition in members.items()
    }
    first = assign("cooperative-sticky", topics, None, **members)
    second = assign("cooperative-sticky", topics, None, **rejoined(first, members, 9))
    assert sum(map(len, second.values())) == sum(topics.values())
    no_single_move_improves_the_balance(members, second)
    third = assign("cooperative-sticky", topics, None, **rejoined(second, members, 10))
    assert text(third) == text(second)


@STICKY
@given(inputs=assignor_inputs(is_consistent=True))
def test_a_group_reaches_a_stable_assignment(name: str, inputs: AssignorInput) -> None:
    topics, members, _ = inputs
    settled(name, topics, members)


@rule("R221")
@given(inputs=assignor_inputs(is_consistent=True), data=st.data())
def test_a_member_that_leaves_equal_members_moves_no_other_partitions(
    inputs: AssignorInput, data: st.DataObject
) -> None:
    """Mirrors AbstractStickyAssignorTest.testReassignmentAfterOneConsumerLeaves."""
    topics, members, _ = inputs
    members = {m: wants(" ".join(sorted(topics))) for m in members}
    plan = settled("sticky", topics, members)
    leaving_member = data.draw(st.sampled_from(sorted(members)))
    remaining_members = {
        m: partition for m, partition in rejoined(plan, members, 10).items() if m != leaving_member
    }
    if remaining_members:
        then = assign("sticky", topics, None, **remaining_members)
        assert all(set(plan[m]) <= set(then[m]) for m in remaining_members)


@rule("R221")
@given(inputs=assignor_inputs(is_consistent=True))
def test_members_do_not_swap_partitions_of_one_topic(inputs: AssignorInput) -> None:
    """Two members do not swap partitions of one topic, as in AbstractStickyAssignorTest.

    If a partition moves from one member to another, no partition of the same topic moves in the opposite
    direction.
    """
    topics, members, _ = inputs
    plan = assign("sticky", topics, None, **members)
    holder = {partition: m for m, member in members.items() for partition in member.owned}
    moves = {
        (partition.topic, holder[partition], m)
        for m, partitions in plan.items()
        for partition in partitions
        if partition in holder and holder[partition] != m
    }
    assert not any((topic, to, source) in moves for topic, source, to in moves)


@rule("R222")
def test_the_assignment_does_not_depend_on_pythonhashseed() -> None:
    program = (
        "from tests.group.assignors.stage import *\n"
        "topics = {'t%d' % i: 1 + i % 5 for i in range(12)}\n"
        "names = sorted(topics)\n"
        "every = [TopicPartition(t, p) for t in names for p in range(topics[t])]\n"
        "racks = {t: [frozenset('abc'[(i + p) % 3] for p in range(1 + i % 2)) for i in range(n)]"
        " for t, n in topics.items()}\n"
        "for name in sorted(ASSIGNORS):\n"
        "    for same in (0, 1):\n"
        "        members = {'m%d' % i: Subscription(topics=tuple(names[same and i % 4:]),\n"
        "            owned=tuple(every[i * 3:i * 3 + 6]), generation=i % 3, rack_id='abc'[i % 3])\n"
        "            for i in range(9)}\n"
        "        subscriptions = {m: with_user_data(name, s) for m, s in members.items()}\n"
        "        print(ASSIGNORS[name].assign(topics, subscriptions, racks))\n"
    )
    answers: set[str] = set()
    for seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        order = [sys.executable, "-c", program]
        done = subprocess.run(order, env=environment, capture_output=True, text=True, check=True)
        answers.add(done.stdout)
    assert len(answers) == 1
    assert answers.pop().count("t11") > 0


# ---- corner cases of subscriptions and topics


@every
def test_a_member_without_topics_gets_no_partitions(name: str) -> None:
    """Mirrors Kafka's testOneConsumerNoTopic."""
    assert text(assign(name, {"t": 2}, a=wants(""))) == {"a": ""}


@rule("R186", "R219")
@every
def test_a_topic_that_does_not_exist_is_ignored(name: str) -> None:
    """Mirrors Kafka's testOneConsumerNonexistentTopic."""
    assert text(assign(name, {}, a=wants("t"))) == {"a": ""}


@every
def test_a_single_member_gets_all_partitions(name: str) -> None:
    """Mirrors Kafka's testOneConsumerOneTopic, testOneConsumerMultipleTopics."""
    assert text(assign(name, {"t": 2, "u": 1}, a=wants("t u"))) == {"a": "t-0 t-1 u-0"}


@every
def test_only_subscribed_topics_are_assigned(name: str) -> None:
    """Mirrors Kafka's testOnlyAssignsPartitionsFromSubscribedTopics."""
    assert text(assign(name, {"t": 3, "other": 3}, a=wants("t"))) == {"a": "t-0 t-1 t-2"}


@KAFKA
def test_the_first_of_two_members_gets_the_only_partition(name: str) -> None:
    """Mirrors Kafka's testTwoConsumersOneTopicOnePartition."""
    assert text(assign(name, {"t": 1}, a=wants(), b=wants())) == {"a": "t-0", "b": ""}


@KAFKA
def test_two_members_get_one_of_two_partitions_each(name: str) -> None:
    """Mirrors Kafka's testTwoConsumersOneTopicTwoPartitions."""
    assert text(assign(name, {"t": 2}, a=wants(), b=wants())) == {"a": "t-0", "b": "t-1"}


@KAFKA
def test_a_topic_that_is_named_twice_counts_once(name: str) -> None:
    assert text(assign(name, {"t": 2}, a=wants("t t"), b=wants("t"))) == {"a": "t-0", "b": "t-1"}


@every
def test_no_members_have_an_empty_assignment(name: str) -> None:
    assert ASSIGNORS[name].assign({"t": 2}, {}, {}) == {}


@STICKY
@pytest.mark.parametrize("owned", ["t-9", "t--1", "gone-0", "t-0 t-0"])
def test_an_owned_partition_that_does_not_exist_is_ignored(name: str, owned: str) -> None:
    """Owned partitions are ignored if they do not exist or are listed twice.

    In Java, such a list of owned partitions causes an exception, or a partition with two owners.
    """
    assert text(assign(name, {"t": 2}, a=wants("t", owned, 3), b=wants())) == {"a": "t-0", "b": "t-1"}


@STICKY
def test_an_owned_partition_of_an_unsubscribed_topic_is_ignored(name: str) -> None:
    """An owned partition is ignored if its owner does not subscribe to the topic.

    In Java, such a partition can be assigned to this member, or cause a NullPointerException.
    """
    plan = assign(name, {"t": 1, "u": 1}, a=wants("t", "u-0", 3), b=wants("u"))
    assert text(plan)["a"] == "t-0"


@KAFKA
def test_a_first_member_without_topics_gets_no_partitions(name: str) -> None:
    """A member without topics gets no partitions.

    Java's sticky assignors give such a member partitions if it comes first in hash order and all other
    members subscribe to the same topics.
    """
    assert text(assign(name, {"t": 2}, a=wants(""), b=wants("t"), c=wants("t"))) == {
        "a": "",
        "b": "t-0",
        "c": "t-1",
    }


# ---- the order of members, racks, and the names of assignors


@rule("R187")
def test_dynamic_members_are_sorted_by_member_id() -> None:
    """Mirrors AbstractPartitionAssignorTest.testMemberInfoSortingWithoutGroupInstanceId."""
    assert sort_members({"b": wants(), "a": wants(), "c": wants()}) == ["a", "b", "c"]


@rule("R187")
def test_static_members_are_sorted_by_instance_id() -> None:
    """Mirrors AbstractPartitionAssignorTest.testMemberInfoSortingWithAllGroupInstanceId."""
    members = {"a": wants(instance_id="z"), "b": wants(instance_id="x"), "c": wants(instance_id="y")}
    assert sort_members(members) == ["b", "c", "a"]


@rule("R187")
def test_static_members_come_before_dynamic_ones() -> None:
    """Mirrors AbstractPartitionAssignorTest.testMemberInfoSortingSomeGroupInstanceId."""
    assert sort_members({"a": wants(), "b": wants(instance_id="x"), "c": wants()}) == ["b", "a", "c"]


@rule("R188")
@pytest.mark.parametrize(
    ("members", "partitions", "matter"),
    [
        ("", ["a", "b"], False),
        ("ab", ["", ""], False),
        ("ab", ["c", "d"], False),
        ("ab", ["ab", "ab"], False),
        ("a", ["ab", "ab"], False),
        ("ab", ["a", "b"], True),
        ("ab", ["abc", "ab"], True),
        ("a", ["a", "b"], True),
    ],
)
def test_racks_matter_if_a_replica_is_near_and_not_all_racks_have_replicas(
    members: str, partitions: list[str], matter: bool
) -> None:
    """Mirrors AbstractPartitionAssignorTest.testUseRackAwareAssignment."""
    assert racks_matter(members, [frozenset(racks) for racks in partitions]) is matter


def test_assignors_are_resolved_by_name_in_order() -> None:
    """Mirrors ConsumerPartitionAssignorTest.shouldInstantiateListOfAssignors."""
    assert [partition.name for partition in resolve_assignors(["sticky", "range"])] == ["sticky", "range"]


@pytest.mark.parametrize("names", [["range", "range"], ["nope"], []])
def test_unknown_and_repeated_assignors_are_refused(names: list[str]) -> None:
    """Mirrors ConsumerPartitionAssignorTest.shouldThrowKafkaExceptionOnAssignorNotFound, ...WithSameName."""
    with pytest.raises(ConfigError):
        resolve_assignors(names)


def test_an_assignor_of_the_application_is_accepted() -> None:
    """Mirrors ConsumerPartitionAssignorTest.shouldInstantiateFromClassType."""
    mine = Assignor("mine", sticky)
    assert resolve_assignors([mine, "range"])[0] is mine


def test_assignors_without_a_common_protocol_are_refused() -> None:
    only = Assignor("only", sticky, cooperative=True, eager=False)
    with pytest.raises(ConfigError):
        is_cooperative([only, ASSIGNORS["range"]])


# Speed


@pytest.mark.thorough
@every
@pytest.mark.parametrize("mixed", [False, True])
def test_a_thousand_members_and_topics_take_four_lines_for_each_pair(name: str, mixed: bool) -> None:
    """An assignor executes at most four lines of Python for each pair of a member and a topic.

    The test limits lines instead of CPU time, because the number of lines is the same on every machine. At
    this limit, the assignment of ten thousand partitions takes less than half a second of CPU time.
    """
    topics = {f"t{index:04}": 10 for index in range(1_000)}
    names = sorted(topics)
    members = {
        f"m{index:04}": Subscription(topics=tuple(names[index % 7 :: 2] if mixed else names), generation=1)
        for index in range(1_000)
    }
    an_assignor_is_a_function(
        lambda: ASSIGNORS[name].assign(topics, members, {}), most_lines=4 * 1_000 * 1_000
    )


@pytest.mark.parametrize("name", ["", "a\ud800", "a" * 32_768, None, 5])
def test_a_name_that_join_group_cannot_contain_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="the name of an assignor: a str of 1 to 32767 bytes"):
        Assignor(name, ASSIGNORS["range"].assign)
