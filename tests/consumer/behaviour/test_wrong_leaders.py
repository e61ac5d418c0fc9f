"""With `policy="java"`, a member sends the same requests and runs the same callbacks as Java's, even if the
group's leader computes wrong assignments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError, IllegalState
from kproto.group.assignors import Assignor
from kproto.group.subscription import Subscription, TopicPartition
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.models import java
from kproto.testing.world import ModelClient
from tests.consumer.stage import Client, Consumer, World, tp

GOOD = (tp("t", 0), tp("t", 1))
# The topic to which only the leader subscribes.
LEADERS_TOPIC = "x"
PROTOCOLS = pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])


class Observation(NamedTuple):
    """What a member with a wrong leader did: its group requests, callbacks, partitions and records."""

    requests: list[str]
    calls: list[tuple[str, tuple[TopicPartition, ...]]]
    owned: set[TopicPartition]
    values: list[str]


class WrongLeader:
    """A leader that assigns the partitions in `plan` to each of the other members."""

    def __init__(self, world: World, protocol: str, plan: Iterable[TopicPartition]) -> None:
        self.world = world
        self.plan = tuple(plan)
        assignor = Assignor(protocol, self._assign, cooperative=protocol != "range")
        self.client: Consumer = world.consumer(group_id="g", partition_assignment_strategy=[assignor])
        self.client.subscribe(LEADERS_TOPIC)
        assert world.run(until=lambda: bool(self.client.owned))

    def _assign(
        self, partitions: Mapping[str, int], subscriptions: Mapping[str, Subscription], racks: object
    ) -> dict[str, list[TopicPartition]]:
        return {
            member_id: [tp(LEADERS_TOPIC, 0)] if LEADERS_TOPIC in subscription.topics else list(self.plan)
            for member_id, subscription in subscriptions.items()
        }


def follow(world: World, protocol: str, *, is_model: bool) -> Consumer | ModelClient:
    """Start a follower of t: the model of Java, or kproto's consumer with policy "java"."""
    if is_model:
        model = world.join("f", java, group_id="g", assignors=(protocol,), reset="earliest", topics=["t"])
        assert isinstance(model, ModelClient)
        return model
    options: dict[str, Any] = {"partition_assignment_strategy": protocol, "auto_offset_reset": "earliest"}
    return world.join("f", group_id="g", policy="java", topics=["t"], **options)


def observe(
    protocol: str, first: Iterable[TopicPartition], second: Iterable[TopicPartition], *, is_model: bool
) -> Observation:
    """Run a group whose leader assigns the plan `first`, and after a rejoin the plan `second`."""
    world = World({"t": 2, "u": 1, LEADERS_TOPIC: 1}, latency=(5, 5))
    for topic, partition in (("t", 0), ("t", 1), ("u", 0)):
        world.write(topic, partition, f"{topic}-{partition}")
    leader = WrongLeader(world, protocol, first)
    follower = follow(world, protocol, is_model=is_model)
    world.run(5_000)
    leader.plan = tuple(second)
    leader.client.rejoin()
    world.run(8_000)
    requests: list[str] = []
    for origin, request, _ in world.requests:
        if origin is follower and isinstance(request, JoinGroupRequest):
            # The reason in the second JoinGroup ends with the member id, which is random.
            requests.append(f"JoinGroup {(request.reason or '').partition(':')[0]}")
        elif origin is follower and isinstance(request, SyncGroupRequest | LeaveGroupRequest):
            requests.append(type(request).__name__)
    assert not follower.errors
    calls = [(kind, tuple(partitions)) for kind, partitions, *_ in follower.calls]
    return Observation(requests, calls, set(follower.owned), sorted(follower.values()))


@pytest.mark.parametrize(
    ("plan", "is_used"),
    [
        ((tp("t", 0), tp("u", 0)), False),
        ((tp("u", 0),), False),
        ((tp("t", 0), tp("missing", 0)), False),
        ((tp("t", 0), tp("t", 9)), True),
        ((tp("t", 0), tp("t", -1)), True),
        ((tp("t", 0), tp("t", 0)), True),
        ((), True),
    ],
    ids=["unsubscribed", "only unsubscribed", "missing topic", "missing", "negative", "twice", "none"],
)
@pytest.mark.parametrize(
    "first", [True, pytest.param(False, marks=pytest.mark.thorough)], ids=["first", "second"]
)
@PROTOCOLS
def test_a_member_with_javas_policy_uses_or_rejects_an_assignment_as_java_does(
    protocol: str, plan: tuple[TopicPartition, ...], is_used: bool, first: bool
) -> None:
    plans = (plan, GOOD) if first else (GOOD, plan)
    ours = observe(protocol, *plans, is_model=False)
    assert ours == observe(protocol, *plans, is_model=True)
    rejections = [line for line in ours.requests if "does not match the current subscription" in line]
    assert bool(rejections) is not is_used


@pytest.mark.parametrize(("data", "error"), [(b"", IllegalState), (b"\0\1\0", DecodeError)])
@PROTOCOLS
def test_with_javas_policy_each_poll_raises_the_error_of_an_unreadable_assignment(
    protocol: str, data: bytes, error: type[Exception]
) -> None:
    """The member stays in the group and sends heartbeats, but does not rejoin until the coordinator removes
    it. Java's member does the same after an exception in ConsumerCoordinator.onJoinComplete.
    """
    world = World({"t": 1}, latency=(5, 5))
    a = follow(world, protocol, is_model=False)
    assert isinstance(a, Consumer)
    assert world.run(until=lambda: bool(a.owned))
    answers: list[type[Any]] = [SyncGroupRequest]

    def tamper(client: Client, request: Any, version: int) -> Any:
        if type(request) not in answers:
            return None
        answers.clear()
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
        return SyncGroupResponse(
            error_code=0, protocol_type="consumer", protocol_name=protocol, assignment=data
        )

    world.tamper = tamper
    a.rejoin()
    world.run(2_000)
    world.write("t", 0, "a")
    before = len(world.requests_of(a, HeartbeatRequest))
    joins = len(world.requests_of(a, JoinGroupRequest))
    world.run(7_000)
    assert {type(raised) for raised in a.errors} == {error}
    assert len(a.errors) > 3
    assert a.values() == []
    assert a.engine.delivery_watch.status(tp("t", 0), world.now).reason == "error"
    assert len(world.requests_of(a, HeartbeatRequest)) > before
    assert len(world.requests_of(a, JoinGroupRequest)) == joins
    answers.append(HeartbeatRequest)
    # The member rejoins as a new member. The coordinator keeps the old member id until its session times out,
    # 45 s after the last heartbeat.
    assert world.run(60_000, until=lambda: a.values() == ["a"])
