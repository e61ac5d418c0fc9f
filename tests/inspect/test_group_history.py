"""The history of a group contains its ownerships, its removed members, and the cause of each generation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest

from kproto.group.classic.coordinator import GenerationStarted, MemberRemoved
from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.inspect.diagrams import section
from kproto.inspect.exchanges import Exchange
from kproto.inspect.group_history import GroupHistory
from kproto.inspect.timeline import ownerships, standstills
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproto.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.models import java, kafka_go, librdkafka, sarama
from kproto.testing.world import World
from kproto.testing.world.state import START
from kproto.testing.world.trace import exchanges
from tests.inspect import stage

MODELS = (None, java, librdkafka, sarama, kafka_go)


def history_of(world: World) -> GroupHistory:
    """Return the history that a proxy between the clients and brokers of `world` would collect."""
    history = GroupHistory()
    for exchange in sorted(exchanges(world.entries), key=lambda e: e.answered_at or e.asked_at):
        history.add(exchange)
    return history


def join(world: World, name: str, model: ModuleType | None = None, **options: Any) -> Any:
    times: dict[str, Any] = (
        {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000, "metadata_max_age_ms": 1_000}
        if model is None
        else {"session_ms": 6_000, "heartbeat_ms": 2_000, "metadata_ms": 1_000, "fetch_wait_ms": 100}
    )
    return world.join(name, model, topics=["t"], group_id="g", **times, **options)


def pair(model: ModuleType | None = None) -> tuple[World, Any, Any]:
    """Return a simulated cluster in which the members a and b own one partition each."""
    world = World({"t": 2, "u": 1}, seed=1)
    a, b = join(world, "a", model), join(world, "b", model)
    assert world.run(20_000, until=lambda: len(a.owned) == len(b.owned) == 1)
    world.run(3_000)
    return world, a, b


def causes(history: GroupHistory) -> list[str]:
    return [event.reason for event in history.all() if event.kind == "generation"]


CAUSES: dict[str, tuple[Callable[[World, Any], object], str]] = {
    "kill": (lambda world, a: world.kill(a), "a sent nothing for 6000 ms"),
    "freeze": (lambda world, a: a.freeze(9_000), "a sent nothing for 6000 ms"),
    "stall": (lambda world, a: world.fault("stall", a, lasts=9_000), "a sent nothing for 6000 ms"),
    "close": (lambda world, a: a.close(), "a left"),
    "grow": (lambda world, a: world.grow("t", 4), "a rejoined"),
}


def models_with_causes() -> Iterator[Any]:
    """Yield each pair of a client model and a cause of a generation.

    All pairs are thorough tests, except one pair for each cause.
    """
    for number, model in enumerate(MODELS):
        for place, (name, (happens, cause)) in enumerate(CAUSES.items()):
            marks = [] if place == number else [pytest.mark.thorough]
            yield pytest.param(model, happens, cause, marks=marks, id=f"{name} {model and model.__name__}")


@pytest.mark.parametrize(("model", "happens", "cause"), list(models_with_causes()))
def test_a_proxy_infers_the_cause_of_each_generation(
    model: ModuleType | None, happens: Callable[[World, Any], object], cause: str
) -> None:
    world, a, _ = pair(model)
    happens(world, a)
    world.run(10_000)
    first, second, third, *_ = causes(history_of(world))
    assert first.startswith("a joined")
    assert second.startswith("b joined")
    assert third.startswith(cause)


@pytest.mark.parametrize("model", [None, pytest.param(java, marks=pytest.mark.thorough), librdkafka])
def test_a_growing_topic_is_part_of_the_cause(model: ModuleType | None) -> None:
    world, *_ = pair(model)
    world.grow("t", 4)
    world.run(10_000)
    assert causes(history_of(world))[2].endswith("topic t has 4 partitions, it had 2")


def test_a_changed_subscription_is_a_cause() -> None:
    world, a, _ = pair()
    a.subscribe("t", "u")
    world.run(5_000)
    assert causes(history_of(world))[2] == "a rejoined: subscription has changed; a subscribed to t, u"


def test_a_generation_without_visible_cause_says_so() -> None:
    world, _a, _b = pair()
    join(world, "c")
    world.run(5_000)
    history = GroupHistory()
    for exchange in exchanges(world.entries):
        if exchange.client == "b":  # The proxy observes only the follower b.
            history.add(exchange)
    assert causes(history) == ["b joined", "not seen: nothing that was observed explains it"]


def test_a_member_that_is_not_heard_of_is_removed_when_its_session_expires() -> None:
    world, a, _ = pair()
    [partition] = a.owned
    frozen_at = world.now
    a.freeze(20_000)
    world.run(15_000)
    events = history_of(world).all()
    [mine] = [o for o in ownerships(events) if o.member == "a" and o.partition == partition][-1:]
    [standstill] = [s for s in standstills(events) if s.partition == partition][-1:]
    assert frozen_at - 2_000 + 6_000 <= mine.end <= frozen_at + 6_000
    assert standstill.start <= frozen_at
    assert standstill.ms > 5_000


def test_an_ownership_ends_with_the_connection() -> None:
    world, _a, _b = pair()
    history = GroupHistory()
    owned = [exchange for exchange in exchanges(world.entries) if exchange.client == "a"]
    for exchange in owned:
        history.add(exchange)
    connection = next(exchange.connection for exchange in owned if exchange.api == "JoinGroup")
    history.add_disconnection(connection, world.now + 500)
    [event] = [event for event in history.all() if event.kind == "disconnected"]
    assert (event.member, event.at) == ("a", world.now + 500)
    assert {o.end for o in ownerships(history.all()) if o.generation == 2} == {world.now + 500}


def test_a_join_without_a_response_is_an_event_and_no_cause() -> None:
    world, _a, _b = pair()
    recorded = list(exchanges(world.entries))
    (join_exchange, *_) = [e for e in recorded if e.api == "JoinGroup"]
    join_exchange.response = join_exchange.answered_at = None
    history = GroupHistory()
    history.add(join_exchange)
    assert [(event.kind, event.member) for event in history.all()] == [("rejoining", join_exchange.client)]


def test_only_the_members_of_an_ended_connection_are_disconnected() -> None:
    world, _a, _b = pair()
    history = history_of(world)
    connections = {e.client: e.connection for e in exchanges(world.entries) if e.api == "JoinGroup"}
    assert len(connections) == 2
    history.add_disconnection(max(connections.values()) + 100, world.now)
    assert [event for event in history.all() if event.kind == "disconnected"] == []
    history.add_disconnection(connections["b"], world.now + 1)
    history.add_disconnection(connections["b"], world.now + 2)
    events = [(event.member, event.at) for event in history.all() if event.kind == "disconnected"]
    assert events == [("b", world.now + 1)]


def test_a_member_that_has_left_and_joined_again_is_a_member_whose_connection_may_end() -> None:
    world, a, _b = pair()
    history = history_of(world)
    recorded = [e for e in exchanges(world.entries) if e.client == "a"]
    (heartbeat, *_) = [e for e in reversed(recorded) if e.api == "Heartbeat"]
    history.add(leave("g", world.now, member_id=a.member_id))
    history.add_disconnection(heartbeat.connection, world.now)
    assert [event for event in history.all() if event.kind == "disconnected"] == []
    history.add(heartbeat)
    history.add_disconnection(heartbeat.connection, world.now + 1)
    assert [event.member for event in history.all() if event.kind == "disconnected"] == ["a"]


def test_a_member_that_reconnects_has_not_stopped_to_own() -> None:
    world, a, _ = pair()
    before = len(world.entries)
    history = GroupHistory()
    for exchange in exchanges(world.entries[:before]):
        history.add(exchange)
    connection = next(
        e.connection for e in exchanges(world.entries) if (e.client, e.api) == ("a", "JoinGroup")
    )
    history.add_disconnection(connection, world.now)
    world.cut(a)
    world.run(5_000)
    for exchange in list(exchanges(world.entries)):
        if exchange.asked_at > START + 5_000:
            history.add(exchange)
    assert not [event for event in history.all() if event.kind == "disconnected"]


def test_a_cooperative_member_keeps_what_it_still_owns_and_gets() -> None:
    """A cooperative member revokes a partition before it rejoins, or when its new assignment lacks the
    partition.
    """
    history = GroupHistory()
    first, second, third = (TopicPartition("t", number) for number in range(3))
    steps = (
        (1, (), (first, second)),
        (2, (first, second), (second, third)),
        (3, (third,), (third,)),
    )
    for generation, owned, assigned in steps:
        at = 100 * generation
        history.add(stage.exchange(at, join_request(owned), join_response(generation)))
        assignment = Assignment(partitions=assigned).encode()
        response = SyncGroupResponse(error_code=0, assignment=assignment)
        history.add(stage.exchange(at + 10, sync_request(generation), response))
    changes = [
        (event.at, event.kind, event.partitions, event.reason)
        for event in history.all()
        if event.kind in ("revoked", "assigned")
    ]
    assert changes == [
        (111, "assigned", (first, second), ""),
        (211, "revoked", (first,), ""),
        (211, "assigned", (third,), ""),
        (300, "revoked", (second,), "joins again"),
        (311, "assigned", (), ""),
    ]


def test_a_member_that_left_revokes_nothing_when_it_joins_again() -> None:
    history = GroupHistory()
    assignment = Assignment(partitions=(TopicPartition("t", 0),)).encode()
    history.add(stage.exchange(100, join_request(()), join_response(1)))
    assigned = SyncGroupResponse(error_code=0, assignment=assignment)
    history.add(stage.exchange(110, sync_request(1), assigned))
    left = LeaveGroupRequest(group_id="g", member_id="a-1")
    history.add(stage.exchange(120, left, LeaveGroupResponse(error_code=0)))
    history.add(stage.exchange(200, join_request(()), join_response(2)))
    changes = [(event.at, event.kind) for event in history.all() if event.member == "a"]
    assert changes == [(100, "rejoining"), (111, "assigned"), (120, "left"), (200, "rejoining")]


def test_an_assignment_of_another_protocol_type_changes_no_ownership() -> None:
    history = GroupHistory()
    history.add(stage.exchange(100, join_request(()), join_response(1)))
    for at, assignment in ((110, Assignment(partitions=(TopicPartition("t", 0),)).encode()), (120, b"\0")):
        history.add(
            stage.exchange(at, sync_request(1), SyncGroupResponse(error_code=0, assignment=assignment))
        )
    assert [event.at for event in history.all() if event.kind in ("revoked", "assigned")] == [111]


@pytest.mark.parametrize(("asked_at", "disconnected"), [(299, True), (300, False)])
def test_only_a_request_after_the_end_of_the_connection_shows_a_new_one(
    asked_at: int, disconnected: bool
) -> None:
    history = GroupHistory()
    history.add(stage.exchange(100, join_request(()), join_response(1)))
    history.add_disconnection(1, 300)
    history.add(stage.exchange(asked_at, sync_request(1), SyncGroupResponse(error_code=0, assignment=b"")))
    assert any(event.kind == "disconnected" for event in history.all()) is disconnected


def test_a_static_member_that_was_replaced_is_removed() -> None:
    world = World({"t": 2}, seed=1)
    a = join(world, "a", group_instance_id="i")
    b = join(world, "b")
    assert world.run(20_000, until=lambda: len(a.owned) == len(b.owned) == 1)
    world.kill(a)
    c = join(world, "c", group_instance_id="i")
    assert world.run(20_000, until=lambda: len(c.owned) == 1)
    events = [event for event in history_of(world).all() if event.kind == "removed"]
    assert [(event.member, event.reason) for event in events] == [
        ("a", "a was replaced by another process with its instance id")
    ]


def test_the_reasons_of_the_coordinator_replace_inferred_ones() -> None:
    world, a, _ = pair()
    world.kill(a)
    world.run(10_000)
    history = GroupHistory()
    notices = [o for o in world.observations if o.kind in ("generation", "removed")]
    for notice in notices:
        number_or_member, reason = notice.detail
        if notice.kind == "generation":
            history.add_notice(GenerationStarted("g", number_or_member, reason), notice.at)
        else:
            history.add_notice(MemberRemoved("g", number_or_member, f"{reason}, says the broker"), notice.at)
    for exchange in exchanges(world.entries):
        history.add(exchange)
    assert causes(history) == ["a joined", "b joined", "a sent nothing for 6000 ms"]
    [removed] = [event for event in history.all() if event.kind == "removed"]
    assert (removed.member, removed.reason) == ("a", "a sent nothing for 6000 ms, says the broker")


def test_the_causes_of_the_coordinator_replace_inferred_ones() -> None:
    world, _a, _b = pair()
    history = GroupHistory()
    history.add_notice(GenerationStarted("g", 1, ("an operator said so",)), START)
    for exchange in exchanges(world.entries):
        history.add(exchange)
    assert causes(history) == ["an operator said so", "b joined"]


@pytest.mark.parametrize("ended", [False, True], ids=["silent", "its connection ended"])
def test_a_reported_removal_says_whether_the_connection_had_ended(ended: bool) -> None:
    world, a, _ = pair()
    world.kill(a)
    world.run(10_000)
    history = GroupHistory()
    recorded = list(exchanges(world.entries))
    connection = next(e.connection for e in recorded if (e.client, e.api) == ("a", "JoinGroup"))
    steps: list[tuple[int, Callable[[], object]]] = [
        (exchange.answered_at or exchange.asked_at, lambda exchange=exchange: history.add(exchange))
        for exchange in recorded
    ]
    if ended:
        steps.append((START + 5_000, lambda: history.add_disconnection(connection, START + 5_000)))
    for notice in [o for o in world.observations if o.kind == "removed"]:
        removal = MemberRemoved("g", *notice.detail)
        steps.append((notice.at, lambda removal=removal, at=notice.at: history.add_notice(removal, at)))
    for _, step in sorted(steps, key=lambda step: step[0]):
        step()
    [removed] = [event for event in history.all() if event.kind == "removed"]
    detail = ", its connection had ended" if ended else ""
    assert (removed.member, removed.reason) == ("a", f"a sent nothing for 6000 ms{detail}")
    silences = [event for event in history.all() if event.kind == "silent"]
    assert [(event.member, removed.at - event.at, event.reason) for event in silences] == (
        [] if ended else [("a", 6_000, "its last request")]
    )


def test_the_page_shows_the_cause_beside_each_generation() -> None:
    world, a, _ = pair()
    world.kill(a)
    world.run(10_000)
    page = section(history_of(world).all(), START)
    assert "<td>a sent nothing for 6000 ms</tr>" in page
    assert "generation 3: a sent nothing for 6000 ms" in page
    assert "no partition ever had two owners" in page


def leave(group: str, at: int, *members: MemberIdentity, member_id: str = "") -> Exchange:
    request = LeaveGroupRequest(group_id=group, member_id=member_id, members=list(members))
    return Exchange(
        connection=99,
        peer="p:1",
        client="tool",
        api="LeaveGroup",
        version=5,
        correlation_id=1,
        asked_at=at,
        answered_at=at,
        request=request,
        response=LeaveGroupResponse(error_code=0),
    )


def join_request(owned: tuple[TopicPartition, ...]) -> JoinGroupRequest:
    metadata = Subscription(topics=("t",), owned=owned).encode()
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        member_id="a-1",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="cooperative-sticky", metadata=metadata)],
    )


def join_response(generation: int) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=0,
        generation_id=generation,
        protocol_name="cooperative-sticky",
        leader="b-1",
        member_id="a-1",
        members=[],
    )


def sync_request(generation: int) -> SyncGroupRequest:
    return SyncGroupRequest(group_id="g", generation_id=generation, member_id="a-1", assignments=[])


def test_a_leave_group_names_its_members_by_member_id_or_instance_id() -> None:
    world = World({"t": 2}, seed=1)
    a = join(world, "a", group_instance_id="i")
    b = join(world, "b")
    assert world.run(20_000, until=lambda: len(a.owned) == len(b.owned) == 1)
    history = history_of(world)
    by_instance = MemberIdentity(member_id="", group_instance_id="i", reason="removed by an operator")
    history.add(leave("g", world.now, by_instance, MemberIdentity(member_id="unknown")))
    history.add(leave("g", world.now + 1, member_id=b.member_id))
    departures = [(event.member, event.reason) for event in history.all() if event.kind == "left"]
    assert departures == [("a", "removed by an operator"), ("tool", ""), ("b", "")]
