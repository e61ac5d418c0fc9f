"""An application in a world (a simulated cluster) polls again after a failed poll, and reports the error."""

from __future__ import annotations

import re
from typing import Any

import pytest

import kproto.models
from kproto import RebalanceListener
from kproto.errors import ConfigError, Fenced, IllegalState
from kproto.group.assignors import Assignor
from kproto.group.subscription import TopicPartition
from kproto.messages.join_group import JoinGroupRequest
from kproto.scenarios.group_life import page
from kproto.scenarios.history import counted
from kproto.scenarios.scenario import Moment
from kproto.testing.invariants import InvariantBroken, check
from kproto.testing.schedules import settle
from kproto.testing.world import Consumer, World

STATIC: dict[str, Any] = {"topics": ["t"], "group_id": "g", "group_instance_id": "seat"}


def fenced_member() -> tuple[World, Consumer]:
    """Return a world and its static member, fenced 20 s ago by a process with the same instance id."""
    world = World({"t": 2})
    member = world.join("a", **STATIC)
    world.run(5_000)
    world.join("b", **STATIC)
    world.run(20_000)
    return world, member


def fail(partitions: Any, members: Any, racks: Any) -> Any:
    raise KeyError("no seat")


def world_with_failing_assignor() -> World:
    world = World({"t": 2})
    strategy = Assignor("boom", fail)
    world.join(
        "a", topics=["t"], group_id="g", auto_offset_reset="earliest", partition_assignment_strategy=strategy
    )
    world.write("t", 0, "x")
    return world


def test_the_backoff_grows_with_each_repetition_of_an_error() -> None:
    _, member = fenced_member()
    assert all(isinstance(error, Fenced) for error in member.errors)
    assert 10 < len(member.errors) < 40


def test_the_backoff_restarts_with_another_error() -> None:
    _, member = fenced_member()
    assert [member.error_backoff(KeyError(n)) for n in (1, 1, 1, 2, 2)] == [1, 2, 4, 1, 2]


def test_the_backoff_is_at_most_one_second() -> None:
    _, member = fenced_member()
    assert max(member.error_backoff(KeyError(1)) for _ in range(20)) == 1_000


def test_an_assignor_that_always_fails_is_called_with_backoff() -> None:
    world = world_with_failing_assignor()
    world.run(20_000)
    assert 10 < len(world.clients["a"].errors) < 40  # type: ignore[attr-defined]


def test_a_page_counts_the_errors_of_a_model_too() -> None:
    world = World({"t": 2})
    member = world.join("a", kproto.models.java, topics=["t"], group_id="g", assignors=("range",))
    for number in range(500):
        world.observe(member, "raised", detail=("KafkaException", "the same"))
        world.run(number % 3)
    assert re.search(r"\.\.\. 4\d\d more; poll raises", page(world))


def test_a_page_counts_repeated_errors() -> None:
    world, member = fenced_member()
    html = page(world)
    assert f"... {len(member.errors) - 2} more; poll raises" in html
    assert len(html) < 100_000


def test_alternating_errors_of_two_clients_are_counted_separately() -> None:
    moments = [Moment(at, "ab"[at % 2], "poll raises it") for at in range(8)]
    counted_moments = [(moment.at, moment.who, moment.text) for moment in counted(moments)]
    assert counted_moments == [
        (0, "a", "poll raises it"),
        (1, "b", "poll raises it"),
        (6, "a", "... 2 more; poll raises it"),
        (7, "b", "... 2 more; poll raises it"),
    ]


def test_a_broken_invariant_names_the_last_errors_of_the_clients() -> None:
    world = world_with_failing_assignor()
    settle(world)
    with pytest.raises(
        InvariantBroken,
        match=r"was delivered to no member .*; a raised \d+ times, the last: .*'boom' failed: .*no seat",
    ):
        check(world)


def test_the_name_of_a_killed_client_stays_reserved() -> None:
    world, member = fenced_member()
    world.kill(member)
    with pytest.raises(ConfigError, match="such as 'a-2'"):
        world.join("a", **STATIC)


def test_requests_of_a_client_can_be_queried_by_name() -> None:
    world = World({"t": 1})
    a = world.join("a", topics=["t"], group_id="g")
    world.run()
    assert world.requests_of("a", JoinGroupRequest) == world.requests_of(a, JoinGroupRequest) != []
    with pytest.raises(ConfigError, match="client='nobody'"):
        world.requests_of("nobody", JoinGroupRequest)


@pytest.mark.parametrize("attribute", ["listener", "worker"])
def test_an_illegal_call_of_an_application_ends_the_run(attribute: str) -> None:
    """An illegal call by the listener or worker of an application ends the run.

    The world ignores an IllegalState of the engine, and then schedules no further poll. It must not ignore
    this IllegalState, which comes from the application's own code.
    """
    world = World({"t": 1}, seed=8)
    member = world.join("a", topics=["t"], group_id="g", auto_offset_reset="earliest")
    world.write("t", 0, "x")

    def seek_unassigned(*_: Any) -> None:
        member.seek(TopicPartition("t", 5), 0)

    setattr(member, attribute, seek_unassigned)
    with pytest.raises(IllegalState, match="t-5: not assigned to this consumer") as raised:
        world.run(10_000)
    assert "of World(seed=8)" in raised.value.__notes__[0]


def test_calls_on_a_closed_consumer_are_rejected_and_a_second_close_is_ignored() -> None:
    """A commit on a closed consumer is rejected, because its future would never be completed."""
    world = World({"t": 1})
    member = world.join("a", topics=["t"], group_id="g", auto_offset_reset="earliest")
    world.run(2_000)
    member.close()
    world.run(2_000)
    for call in (member.commit, member.unsubscribe, member.rejoin, lambda: member.subscribe("t")):
        with pytest.raises(IllegalState, match="this consumer is closed"):
            call()
    second_close = member.close()
    world.run(120_000)
    assert member.done[second_close] == (None, None)
    check(world)


@pytest.mark.parametrize("client", [None, kproto.models.sarama], ids=["kproto", "another"])
@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("listener", RebalanceListener(), "a function of (kind, partitions)"),
        ("works_ms", "300", "a whole number, 0 or more"),
        ("callback_ms", -1, "a whole number, 0 or more"),
    ],
)
def test_attributes_of_an_application_are_validated_when_set(
    client: Any, name: str, value: Any, allowed: str
) -> None:
    """An invalid attribute of an application raises an error when it is set, before the world uses it.

    A negative time is rejected instead of counting as 0.
    """
    world = World({"t": 1})
    machine = () if client is None else (client,)
    member = world.join("a", *machine, topics=["t"], group_id="g")
    with pytest.raises(ConfigError, match=re.escape(f"{name}={value!r} is not allowed; {allowed}")):
        setattr(member, name, value)
    world.run(2_000)
