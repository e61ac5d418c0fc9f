"""kafka-clients 2.6.2 and kproto's model of it compute the same sticky assignments.

For each member, Java and the model must list the same partitions in the same order.

The inputs come from a simulated group, in which no two members own the same partition. Eager members report
their owned partitions in user data of version 0 or 1, or not at all. The generations in version 1 differ
between members.

If members subscribe to different topics, kproto uses the general algorithm of the current release. Its
assignments must be at least as balanced as the assignments of 2.6.
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
examples = settings(suppress_health_check=[*HealthCheck], deadline=None)
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
            described = [_told(member, members[member]) for member in sorted(members)]
            stdin.write(json.dumps({"assignor": name, "topics": topics, "members": described}) + "\n")
            stdin.flush()
            answer = json.loads(stdout.readline())
            assert "error" not in answer, answer
            return {member: [TopicPartition(*tp) for tp in part] for member, part in answer.items()}

        yield ask
        stdin.close()


def _told(member_id: str, subscription: Subscription) -> dict[str, Any]:
    data = None if subscription.user_data is None else base64.b64encode(subscription.user_data).decode()
    return {
        "id": member_id,
        "topics": list(subscription.topics),
        "userData": data,
        "owned": [list(tp) for tp in subscription.owned],
    }


def ours(name: str, topics: dict[str, int], members: Members) -> Plan:
    return JAVA_2_6.assignors_2_6[name].assign(topics, members, {})


def _old(owned: tuple[TopicPartition, ...], generation: int) -> bytes:
    """Return user data of version 0, which has no generation."""
    return StickyUserData.decode(sticky_user_data(owned, -1), 1).encode(0)


@st.composite
def groups(draw: st.DrawFn, name: str, alike: bool = True) -> tuple[dict[str, int], Members]:
    topics, members, _ = draw(assignor_inputs(is_consistent=True))
    result: Members = {}
    for member_id, subscription in members.items():
        data = None
        if name == "sticky":
            says = draw(
                st.sampled_from([JAVA_2_6.assignors_2_6["sticky"].user_data, sticky_user_data, _old, None])
            )
            data = says and says(subscription.owned, draw(st.sampled_from([5, 5, 5, 4, 3])))
        owned = () if name == "sticky" else subscription.owned
        result[member_id] = Subscription(topics=subscription.topics, owned=owned, user_data=data)
    wants = {frozenset(subscription.topics) for subscription in result.values()}
    assume(wants != {frozenset()} and (len(wants) == 1) is alike)
    return {topic: count for topic, count in topics.items() if any(topic in want for want in wants)}, result


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
@examples
@given(data=st.data())
def test_plans_equal_those_of_java_2_6(java: Ask, name: str, data: st.DataObject) -> None:
    topics, members = data.draw(groups(name))
    assert ours(name, topics, members) == java(name, topics, members)


def _spread(plan: Plan) -> tuple[int, int]:
    sizes = sorted(map(len, plan.values()))
    return sum(b - a for at, a in enumerate(sizes) for b in sizes[at:]), sizes[-1] - sizes[0]


def _called_otherwise(members: Members) -> Iterator[Members]:
    """Yield the group with the member ids in other orders: rotated and reversed.

    The assignment of kafka-clients 2.6 depends on the order of the member ids.
    """
    names = sorted(members)
    for order in (names, names[::-1]):
        for by in range(len(names)):
            yield dict(zip(order[by:] + order[:by], members.values(), strict=True))


@examples
@given(data=st.data())
def test_with_different_subscriptions_the_balance_is_not_worse(java: Ask, data: st.DataObject) -> None:
    topics, members = data.draw(groups("sticky", alike=False))
    # Members without topics are left out, because Java may assign partitions to them and kproto does not.
    members = {member: subscription for member, subscription in members.items() if subscription.topics}
    assume(members)
    theirs = [java("sticky", topics, called) for called in _called_otherwise(members)]
    assert _spread(ours("sticky", topics, members)) <= max(map(_spread, theirs))
