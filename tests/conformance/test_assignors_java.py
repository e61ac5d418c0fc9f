"""Kafka's own four assignors are asked the same questions: equal answers, where Java has only one.

Java keeps members in hash maps. Each question is therefore asked several times with other member ids in the
same order: where all answers are the same and all members want the same topics, ours has to be that one.
Where they differ (more members hold one more partition than may keep it), and with different topics, ours
may not be worse: in balance, then in partitions kept, then in racks matched.
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
TURNS = 5  # how often each question is asked

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
        return {m: sorted(TopicPartition(*one) for one in part) for m, part in answer["plan"].items()}

    @staticmethod
    def _where(topic: str, count: int, racks: Racks) -> list[frozenset[str]]:
        return list(racks[topic]) if racks else [frozenset()] * count

    @staticmethod
    def _member(member_id: str, one: Subscription) -> dict[str, Any]:
        return {
            "id": member_id,
            "instance": one.instance_id,
            "topics": list(one.topics),
            "userData": None if one.user_data is None else base64.b64encode(one.user_data).decode(),
            "owned": [list(tp) for tp in one.owned],
            "generation": one.generation,
            "rack": one.rack_id,
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
    """All the different answers of Java, in the names of the question."""
    topics, members, racks = question
    found: list[Plan] = []
    for turn in range(TURNS):
        ids = {m: m if turn == 0 else f"{m}-{turn * 7919 % 1000:03}" for m in members}
        plan = java.assign(name, topics, {ids[m]: one for m, one in members.items()}, racks)
        back = {new: old for old, new in ids.items()}
        named = {back[m]: part for m, part in plan.items()}
        if named not in found:
            found.append(named)
    return found


def ours(name: str, question: Question) -> Plan:
    topics, members, racks = question
    return {m: sorted(part) for m, part in ASSIGNORS[name].assign(topics, members, racks).items()}


def quality(name: str, question: Question, plan: Plan) -> tuple[int, int, int, int]:
    """Less is better: pairwise differences, largest difference, minus what was kept, minus matching racks."""
    _, members, racks = question
    sizes = sorted(len(part) for part in plan.values())
    pairs = sum(b - a for index, a in enumerate(sizes) for b in sizes[index:])
    kept = near = 0
    for member_id, part in plan.items():
        held = set(reported_ownership(name, members[member_id])[0])
        kept += len(held.intersection(part))
        rack = members[member_id].rack_id
        near += sum(rack in racks[topic][index] for topic, index in part) if racks and rack else 0
    return pairs, sizes[-1] - sizes[0], -kept, -near


def spoken(name: str, question: Question) -> Question:
    """The question in the assignor's words, without members that want nothing: they may get some in Java."""
    topics, members, racks = question
    members = {m: _speak(name, one) for m, one in members.items() if one.topics}
    assume(members)
    return topics, members, racks


def _speak(name: str, one: Subscription) -> Subscription:
    plain = Subscription(
        topics=one.topics,
        owned=one.owned,
        generation=one.generation,
        rack_id=one.rack_id,
        instance_id=one.instance_id,
    )
    return with_user_data(name, plain)


def want_the_same(question: Question) -> bool:
    return len({frozenset(one.topics) for one in question[1].values()}) == 1


asked = settings(suppress_health_check=[*HealthCheck], deadline=None)


@pytest.mark.parametrize("name", ["range", "roundrobin"])
@asked
@given(question=assignor_inputs(is_consistent=True) | assignor_inputs(is_consistent=True, racks=True))
def test_range_and_roundrobin_are_exactly_javas(java: Java, name: str, question: Question) -> None:
    question = spoken(name, question)
    assert answers(java, name, question) == [ours(name, question)]


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@asked
@given(question=assignor_inputs(is_consistent=True) | assignor_inputs(is_consistent=True, racks=True))
def test_sticky_is_exactly_javas_with_equal_topics_and_never_worse_with_others(
    java: Java, name: str, question: Question
) -> None:
    question = spoken(name, question)
    theirs, mine = answers(java, name, question), ours(name, question)
    if want_the_same(question) and len(theirs) == 1:
        assert mine == theirs[0]
    else:
        assert quality(name, question, mine) <= max(quality(name, question, plan) for plan in theirs)


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@asked
@given(question=assignor_inputs(is_consistent=True))
def test_a_second_round_is_exactly_javas_too(java: Java, name: str, question: Question) -> None:
    """In the second round, what the first one gave is held, a topic has grown and the last member is gone."""
    topics, members, _ = question
    plan = ours(name, spoken(name, question))
    later = {
        m: Subscription(topics=one.topics, owned=tuple(plan[m]), generation=6)
        for m, one in members.items()
        if m in plan
    }
    if len(later) > 1:
        del later[max(later)]
    grown = {topic: count + (topic == min(topics)) for topic, count in topics.items()}
    second = spoken(name, (grown, later, {}))
    theirs, mine = answers(java, name, second), ours(name, second)
    if want_the_same(second) and len(theirs) == 1:
        assert mine == theirs[0]
    else:
        assert quality(name, second, mine) <= max(quality(name, second, plan) for plan in theirs)


def rounds(ask: Callable[[Question], Plan], question: Question) -> list[int]:
    """How many partitions are given out in each round, until everybody keeps what they have."""
    topics, members, racks = question
    given: list[int] = []
    while len(given) < 10:
        plan = ask((topics, members, racks))
        given.append(sum(map(len, plan.values())))
        if all(set(plan[m]) == set(one.owned) for m, one in members.items()):
            break
        members = {
            m: Subscription(topics=one.topics, owned=tuple(plan[m]), generation=len(given) + 9)
            for m, one in members.items()
        }
    return given


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


def test_unequal_wishes_take_java_and_us_three_rounds_and_one_to_see_it(java: Java) -> None:
    name = "cooperative-sticky"
    assert rounds(lambda asked: java.assign(name, *asked), UNEQUAL) == [9, 10, 11, 11]
    assert rounds(lambda asked: ours(name, asked), UNEQUAL) == [9, 10, 11, 11]


@asked
@given(question=assignor_inputs(is_consistent=True))
def test_a_cooperative_group_comes_to_rest_in_no_more_rounds_than_javas(
    java: Java, question: Question
) -> None:
    name = "cooperative-sticky"
    question = spoken(name, question)
    theirs = rounds(lambda asked: java.assign(name, *asked), question)
    mine = rounds(lambda asked: ours(name, asked), question)
    assert len(mine) <= len(theirs)
    assert mine[-1] == theirs[-1]


def test_the_comparison_sees_a_difference(java: Java) -> None:
    question: Question = ({"t": 3}, {"a": Subscription(topics=("t",)), "b": Subscription(topics=("t",))}, {})
    assert answers(java, "range", question) != [ours("roundrobin", question)]
