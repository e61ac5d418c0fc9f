"""Seeks that come before the assignment, or of what isn't ours."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from kproto.errors import IllegalState
from tests.consumer.stage import Consumer, World, tp

T0, T1 = tp("t", 0), tp("t", 1)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 6_000,
    "heartbeat_interval_ms": 500,
    "max_poll_interval_ms": 60_000,
}


def world() -> World:
    made = World({"t": 2})
    for partition in (0, 1):
        made.write("t", partition, *(f"{partition}-{number}" for number in range(10)))
    return made


def owner(made: World, **options: Any) -> Consumer:
    """A member that has all."""
    a = made.consumer(**GROUP, **options)
    a.subscribe("t")
    assert made.run(until=lambda: len(a.owned) == 2)
    return a


def pair(made: World, **options: Any) -> tuple[Consumer, Consumer]:
    """Two members that have one partition each."""
    a, b = owner(made, **options), made.consumer(**GROUP, **options)
    b.subscribe("t")
    assert made.run(until=lambda: len(a.owned) == len(b.owned) == 1 and a.is_stable() and b.is_stable())
    return a, b


@pytest.mark.parametrize("event", [ev.Seek, ev.SeekTo])
def test_a_partition_of_another_member_is_refused_at_once(event: Any) -> None:
    made = world()
    a, b = pair(made)
    [theirs] = b.owned
    asked = ev.Seek(theirs, 3) if event is ev.Seek else ev.SeekTo(frozenset({theirs}), "earliest")
    with pytest.raises(IllegalState, match=f"{theirs}: not assigned to this consumer"):
        a.do(asked)
    made.kill(b)
    assert made.run(20_000, until=lambda: len(a.owned) == 2)
    made.run(2_000)
    assert [change for change in a.changes if change.kind == "unsought"] == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_seek_before_the_assignment_is_where_it_begins(strategy: str) -> None:
    """With cooperative-sticky the partition comes with the second of two generations."""
    made = world()
    a = owner(made, partition_assignment_strategy=strategy)
    made.run(2_000)
    b = made.consumer(**GROUP, partition_assignment_strategy=strategy)
    b.subscribe("t")
    b.seek(T0, 7)
    b.seek(T1, 7)
    assert made.run(until=lambda: len(b.owned) == 1 and b.is_stable() and a.is_stable())
    made.run(2_000)
    [mine] = b.owned
    assert b.values() == [f"{mine.partition}-{number}" for number in (7, 8, 9)]


def test_what_the_group_gives_to_another_member_is_told() -> None:
    made = world()
    owner(made, partition_assignment_strategy="range")
    b = made.consumer(**GROUP, partition_assignment_strategy="range")
    b.subscribe("t")
    b.seek(T0, 7)
    b.seek(T1, 7)
    assert made.run(until=lambda: len(b.owned) == 1 and b.is_stable())
    [told] = [change for change in b.changes if change.kind == "unsought"]
    assert set(told.partitions) == {T0, T1} - set(b.owned)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_seek_of_long_ago_does_not_lead_back(strategy: str) -> None:
    """The other one reads its partition to the end, and dies: what it committed counts."""
    made = world()
    a = owner(made, partition_assignment_strategy=strategy)
    b = made.consumer(**GROUP, partition_assignment_strategy=strategy)
    b.subscribe("t")
    b.seek(T0, 2)
    b.seek(T1, 2)
    assert made.run(until=lambda: len(a.owned) == len(b.owned) == 1 and a.is_stable() and b.is_stable())
    [theirs] = a.owned
    assert made.run(until=lambda: made.committed("g", theirs) == 10)
    made.run(70_000)  # longer than max.poll.interval.ms
    made.kill(a)
    assert made.run(20_000, until=lambda: len(b.owned) == 2)
    made.run(2_000)
    assert [value for value in b.values() if value.startswith(f"{theirs.partition}-")] == []
    assert [set(change.partitions) for change in b.changes if change.kind == "unsought"] == [{theirs}]


def test_a_third_generation_is_too_late() -> None:
    """A cooperative rebalance has two."""
    made = World({"t": 3})
    made.write("t", 2, *(str(number) for number in range(10)))
    made.write("t", 1, *(str(number) for number in range(10)))
    made.write("t", 0, *(str(number) for number in range(10)))
    a = made.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    b = made.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    a.subscribe("t")
    b.subscribe("t")
    assert made.run(until=lambda: len(a.owned) + len(b.owned) == 3 and a.is_stable() and b.is_stable())
    c = made.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    c.subscribe("t")
    for partition in range(3):
        c.seek(tp("t", partition), 2)
    assert made.run(until=lambda: len(c.owned) == 1 and all(one.is_stable() for one in (a, b, c)))
    made.run(10_000)
    [mine] = c.owned
    [told] = [change for change in c.changes if change.kind == "unsought"]
    assert set(told.partitions) == {tp("t", index) for index in range(3)} - {mine}


@pytest.mark.parametrize(("where", "start"), [("max_timestamp", 0), ("latest_tiered", 0)])
def test_a_place_that_a_log_has_not_is_no_reason_to_wait(where: str, start: int) -> None:
    """There is no latest record in an empty one, and nothing tiered."""
    made = World({"t": 1})
    a = made.consumer()
    a.assign({T0: 5})
    a.seek_to(where, T0)
    assert made.run(1_000, until=lambda: a.position(T0) == start)
    made.write("t", 0, "first")
    assert made.run(1_000, until=lambda: a.values() == ["first"])


def test_where_nothing_is_tiered_is_before_what_is_not() -> None:
    made = world()
    a = made.consumer()
    a.assign({T0: 5})
    a.seek_to("latest_tiered", T0)
    assert made.run(1_000, until=lambda: len(a.records) == 10)
