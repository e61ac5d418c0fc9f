"""The sticky assignors of 2.6.2 are asked what its machine's are: equal plans, down to each part's order.

Questions are those of a real group, where nobody claims what somebody else does; eager members say what they
own in user data of version 1, of version 0, or not at all, and from several generations. Members that want
different topics are divided by today's general way: there ours may not be worse than 2.6's.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from typing import Any, Protocol

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kproto.group.subscription import StickyUserData, Subscription, TopicPartition, sticky_user_data
from kproto.models.java.release import JAVA_2_6
from tests.conformance import original_clients
from tests.group.assignors.stage import Plan, assignor_inputs

pytestmark = pytest.mark.originals
asked = settings(suppress_health_check=[*HealthCheck], deadline=None)
Members = dict[str, Subscription]


class Ask(Protocol):
    def __call__(self, name: str, topics: dict[str, int], members: Members) -> Plan: ...


@pytest.fixture(scope="module")
def java() -> Iterator[Ask]:
    words = original_clients.with_java("Assignors26", "java-2.6")
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def ask(name: str, topics: dict[str, int], members: Members) -> Plan:
            told = [_told(member, members[member]) for member in sorted(members)]
            stdin.write(json.dumps({"assignor": name, "topics": topics, "members": told}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            assert "error" not in answer, answer
            return {member: [TopicPartition(*tp) for tp in part] for member, part in answer.items()}

        yield ask
        stdin.close()


def _told(member_id: str, one: Subscription) -> dict[str, Any]:
    data = None if one.user_data is None else base64.b64encode(one.user_data).decode()
    return {
        "id": member_id,
        "topics": list(one.topics),
        "userData": data,
        "owned": [list(tp) for tp in one.owned],
    }


def ours(name: str, topics: dict[str, int], members: Members) -> Plan:
    return JAVA_2_6.assignors_2_6[name].assign(topics, members, {})


def _old(owned: tuple[TopicPartition, ...], generation: int) -> bytes:
    """User data of version 0, which has no generation."""
    return StickyUserData.decode(sticky_user_data(owned, -1), 1).encode(0)


@st.composite
def groups(draw: st.DrawFn, name: str, alike: bool = True) -> tuple[dict[str, int], Members]:
    topics, members, _ = draw(assignor_inputs(is_consistent=True))
    found: Members = {}
    for member_id, one in members.items():
        data = None
        if name == "sticky":
            says = draw(
                st.sampled_from([JAVA_2_6.assignors_2_6["sticky"].user_data, sticky_user_data, _old, None])
            )
            data = says and says(one.owned, draw(st.sampled_from([5, 5, 5, 4, 3])))
        owned = () if name == "sticky" else one.owned
        found[member_id] = Subscription(topics=one.topics, owned=owned, user_data=data)
    wants = {frozenset(one.topics) for one in found.values()}
    assume(wants != {frozenset()} and (len(wants) == 1) is alike)
    return {topic: count for topic, count in topics.items() if any(topic in want for want in wants)}, found


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@asked
@given(data=st.data())
def test_plans_are_those_of_2_6(java: Ask, name: str, data: st.DataObject) -> None:
    topics, members = data.draw(groups(name))
    assert ours(name, topics, members) == java(name, topics, members)


def _spread(plan: Plan) -> tuple[int, int]:
    sizes = sorted(map(len, plan.values()))
    return sum(b - a for at, a in enumerate(sizes) for b in sizes[at:]), sizes[-1] - sizes[0]


def _called_otherwise(members: Members) -> Iterator[Members]:
    """The same group under each turn of its names, both ways round: what 2.6 moves first goes by them."""
    names = sorted(members)
    for order in (names, names[::-1]):
        for by in range(len(names)):
            yield dict(zip(order[by:] + order[:by], members.values(), strict=True))


@asked
@given(data=st.data())
def test_with_different_wishes_the_balance_is_not_worse(java: Ask, data: st.DataObject) -> None:
    topics, members = data.draw(groups("sticky", alike=False))
    members = {
        member: one for member, one in members.items() if one.topics
    }  # the others may get some in Java
    assume(members)
    theirs = [java("sticky", topics, called) for called in _called_otherwise(members)]
    assert _spread(ours("sticky", topics, members)) <= max(map(_spread, theirs))
