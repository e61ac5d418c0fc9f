"""Compare the assignments of Kafka's four assignors with kproto's, for the same inputs.

Java keeps members in hash maps. Each input is therefore tried with several sets of member ids, which sort in
the same order but have different hash codes.

With range and roundrobin, kproto's assignment must equal Java's for each set of member ids. With the two
sticky assignors, it must equal Java's if all members subscribe to the same topics and Java computes the same
assignment for all sets of member ids. Otherwise, it must be at least as good as the worst of Java's
assignments: first in balance, then in retained partitions, then in matching racks.

Java's assignments depend on the member ids if, for example, several members own one more partition than their
quota, and only some of them may keep the additional partition.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import HealthCheck, assume, given, settings

from kproto.group.assignors import ASSIGNORS
from kproto.group.subscription import Subscription, TopicPartition
from tests.conformance import judges
from tests.group.assignors.stage import (
    Plan,
    Racks,
    assignor_inputs,
    reported_ownership,
    wants,
    with_user_data,
)

pytestmark = pytest.mark.java

SOURCE = Path(__file__).parent / "java" / "Assignors.java"
TURNS = 5  # The number of sets of member ids with which each input is tried.

Question = tuple[dict[str, int], dict[str, Subscription], dict[str, list[frozenset[str]]]]


class Java:
    """A running Assignors.java."""

    def __init__(self, stdin: IO[str], stdout: IO[str]) -> None:
        self._stdin = stdin
        self._stdout = stdout

    def assign(
        self, name: str, topics: Mapping[str, int], members: Mapping[str, Subscription], racks: Racks
    ) -> Plan:
        question = {
            "assignor": name,
            "topics": {t: [sorted(where) for where in self._where(t, n, racks)] for t, n in topics.items()},
            "members": [self._member(member_id, members[member_id]) for member_id in sorted(members)],
        }
        self._stdin.write(json.dumps(question) + "\n")
        self._stdin.flush()
        answer = json.loads(self._stdout.readline())
        assert "plan" in answer, answer
        return {
            m: sorted(TopicPartition(*partition) for partition in part) for m, part in answer["plan"].items()
        }

    @staticmethod
    def _where(topic: str, count: int, racks: Racks) -> list[frozenset[str]]:
        return list(racks[topic]) if racks else [frozenset()] * count

    @staticmethod
    def _member(member_id: str, subscription: Subscription) -> dict[str, Any]:
        return {
            "id": member_id,
            "instance": subscription.instance_id,
            "topics": list(subscription.topics),
            "userData": None
            if subscription.user_data is None
            else base64.b64encode(subscription.user_data).decode(),
            "owned": [list(tp) for tp in subscription.owned],
            "generation": subscription.generation,
            "rack": subscription.rack_id,
        }


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    command = [judges.java(), "-Xmx512m", "-cp", judges.kafka_jars(), str(SOURCE)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield Java(process.stdin, process.stdout)
        process.stdin.close()


def answers(java: Java, name: str, question: Question) -> list[Plan]:
    """Return the distinct assignments that Java computes, mapped back to the input's member ids."""
    topics, members, racks = question
    plans: list[Plan] = []
    for turn in range(TURNS):
        ids = {m: m if turn == 0 else f"{m}-{turn * 7919 % 1000:03}" for m in members}
        plan = java.assign(name, topics, {ids[m]: subscription for m, subscription in members.items()}, racks)
        back = {new: old for old, new in ids.items()}
        named = {back[m]: part for m, part in plan.items()}
        if named not in plans:
            plans.append(named)
    return plans


def ours(name: str, question: Question) -> Plan:
    topics, members, racks = question
    return {m: sorted(part) for m, part in ASSIGNORS[name].assign(topics, members, racks).items()}


def quality(name: str, question: Question, plan: Plan) -> tuple[int, int, int, int]:
    """Return the rank of an assignment; a lower rank is better.

    The rank is a tuple of four numbers: the sum of all pairwise differences between the members' partition
    counts, the largest difference, and the negated numbers of retained partitions and of matching racks.
    """
    _, members, racks = question
    sizes = sorted(len(part) for part in plan.values())
    pairs = sum(b - a for index, a in enumerate(sizes) for b in sizes[index:])
    retained = near = 0
    for member_id, part in plan.items():
        held = set(reported_ownership(name, members[member_id])[0])
        retained += len(held.intersection(part))
        rack = members[member_id].rack_id
        near += sum(rack in racks[topic][index] for topic, index in part) if racks and rack else 0
    return pairs, sizes[-1] - sizes[0], -retained, -near


def spoken(name: str, question: Question) -> Question:
    """Return the input as the assignor's members send it: "sticky" members send user data.

    Members without topics are removed from the input, because Java may assign partitions to them, too.
    """
    topics, members, racks = question
    members = {m: _speak(name, subscription) for m, subscription in members.items() if subscription.topics}
    assume(members)
    return topics, members, racks


def _speak(name: str, subscription: Subscription) -> Subscription:
    plain = Subscription(
        topics=subscription.topics,
        owned=subscription.owned,
        generation=subscription.generation,
        rack_id=subscription.rack_id,
        instance_id=subscription.instance_id,
    )
    return with_user_data(name, plain)


def have_equal_topics(question: Question) -> bool:
    return len({frozenset(subscription.topics) for subscription in question[1].values()}) == 1


examples = settings(suppress_health_check=[*HealthCheck], deadline=None)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@examples
@given(question=assignor_inputs(is_consistent=True) | assignor_inputs(is_consistent=True, racks=True))
def test_range_and_roundrobin_plans_equal_javas(java: Java, name: str, question: Question) -> None:
    question = spoken(name, question)
    assert answers(java, name, question) == [ours(name, question)]


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@examples
@given(question=assignor_inputs(is_consistent=True) | assignor_inputs(is_consistent=True, racks=True))
def test_sticky_plans_equal_javas_with_equal_topics_and_are_never_worse(
    java: Java, name: str, question: Question
) -> None:
    question = spoken(name, question)
    theirs, mine = answers(java, name, question), ours(name, question)
    if have_equal_topics(question) and len(theirs) == 1:
        assert mine == theirs[0]
    else:
        assert quality(name, question, mine) <= max(quality(name, question, plan) for plan in theirs)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@examples
@given(question=assignor_inputs(is_consistent=True))
def test_plans_of_a_second_round_equal_javas(java: Java, name: str, question: Question) -> None:
    """Members get a second assignment, after a topic has grown and a member has left."""
    topics, members, _ = question
    plan = ours(name, spoken(name, question))
    later = {
        m: Subscription(topics=subscription.topics, owned=tuple(plan[m]), generation=6)
        for m, subscription in members.items()
        if m in plan
    }
    if len(later) > 1:
        del later[max(later)]
    grown = {topic: count + (topic == min(topics)) for topic, count in topics.items()}
    second = spoken(name, (grown, later, {}))
    theirs, mine = answers(java, name, second), ours(name, second)
    if have_equal_topics(second) and len(theirs) == 1:
        assert mine == theirs[0]
    else:
        assert quality(name, second, mine) <= max(quality(name, second, plan) for plan in theirs)


def rounds(ask: Callable[[Question], Plan], question: Question) -> list[int]:
    """Rebalance until no assignment changes. Return how many partitions each round assigned."""
    topics, members, racks = question
    assigned_counts: list[int] = []
    while len(assigned_counts) < 10:
        plan = ask((topics, members, racks))
        assigned_counts.append(sum(map(len, plan.values())))
        if all(set(plan[m]) == set(subscription.owned) for m, subscription in members.items()):
            break
        members = {
            m: Subscription(
                topics=subscription.topics, owned=tuple(plan[m]), generation=len(assigned_counts) + 9
            )
            for m, subscription in members.items()
        }
    return assigned_counts


UNEQUAL: Question = (
    {"t": 0, "u": 0, "v": 6, "w": 5},
    {
        "m1": wants("t v w", "w-0 v-1 w-1 v-3 v-4", 5),
        "m3": wants("t v", "", 5),
        "m4": wants("t v", "", 5),
        "m5": wants("t u v w", "", 5),
    },
    {},
)


def test_unequal_subscriptions_need_three_rounds_in_java_and_here(java: Java) -> None:
    name = "cooperative-sticky"
    assert rounds(lambda question: java.assign(name, *question), UNEQUAL) == [9, 10, 11, 11]
    assert rounds(lambda question: ours(name, question), UNEQUAL) == [9, 10, 11, 11]


@examples
@given(question=assignor_inputs(is_consistent=True))
def test_a_cooperative_group_needs_no_more_rounds_than_javas(java: Java, question: Question) -> None:
    name = "cooperative-sticky"
    question = spoken(name, question)
    theirs = rounds(lambda question_: java.assign(name, *question_), question)
    mine = rounds(lambda question_: ours(name, question_), question)
    assert len(mine) <= len(theirs)
    assert mine[-1] == theirs[-1]


def test_the_comparison_detects_a_difference(java: Java) -> None:
    question: Question = ({"t": 3}, {"a": Subscription(topics=("t",)), "b": Subscription(topics=("t",))}, {})
    assert answers(java, "range", question) != [ours("roundrobin", question)]
