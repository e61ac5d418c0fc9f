"""A seek before the assignment sets the start offset, if the assignment contains the partition.

After the assignment, seeks in partitions of other members are rejected.
"""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.positions.seeks import PendingSeeks
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


def filled_world() -> World:
    world = World({"t": 2})
    for partition in (0, 1):
        world.write("t", partition, *(f"{partition}-{number}" for number in range(10)))
    return world


def owner(world: World, **options: Any) -> Consumer:
    """Return a member that owns both partitions."""
    a = world.consumer(**GROUP, **options)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.owned) == 2)
    return a


def pair(world: World, **options: Any) -> tuple[Consumer, Consumer]:
    """Return two members that own one partition each."""
    a, b = owner(world, **options), world.consumer(**GROUP, **options)
    b.subscribe("t")
    assert world.run(until=lambda: len(a.owned) == len(b.owned) == 1 and a.is_stable() and b.is_stable())
    return a, b


@pytest.mark.parametrize("event", [ev.Seek, ev.SeekTo])
def test_a_seek_of_another_members_partition_is_rejected(event: Any) -> None:
    world = filled_world()
    a, b = pair(world)
    [foreign] = b.owned
    seek = ev.Seek(foreign, 3) if event is ev.Seek else ev.SeekTo(frozenset({foreign}), "earliest")
    with pytest.raises(IllegalState, match=f"{foreign}: not assigned to this consumer"):
        a.do(seek)
    world.kill(b)
    assert world.run(20_000, until=lambda: len(a.owned) == 2)
    world.run(2_000)
    assert [change for change in a.changes if change.kind == "unsought"] == []


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_seek_before_the_assignment_sets_the_start_offset(strategy: str) -> None:
    """A seek before the assignment sets the start offset of the partition.

    The seek is kept for a second generation, because cooperative-sticky may assign the partition only then.
    """
    world = filled_world()
    a = owner(world, partition_assignment_strategy=strategy)
    world.run(2_000)
    b = world.consumer(**GROUP, partition_assignment_strategy=strategy)
    b.subscribe("t")
    b.seek(T0, 7)
    b.seek(T1, 7)
    assert world.run(until=lambda: len(b.owned) == 1 and b.is_stable() and a.is_stable())
    world.run(2_000)
    [own] = b.owned
    assert b.values() == [f"{own.partition}-{number}" for number in (7, 8, 9)]


def test_a_seek_of_a_partition_assigned_to_another_member_is_reported() -> None:
    world = filled_world()
    owner(world, partition_assignment_strategy="range")
    b = world.consumer(**GROUP, partition_assignment_strategy="range")
    b.subscribe("t")
    b.seek(T0, 7)
    b.seek(T1, 7)
    assert world.run(until=lambda: len(b.owned) == 1 and b.is_stable())
    [change] = [change for change in b.changes if change.kind == "unsought"]
    assert set(change.partitions) == {T0, T1} - set(b.owned)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_an_old_seek_does_not_take_effect_later(strategy: str) -> None:
    """A seek is dropped if the group assigns its partition to another member.

    The other member reads to the end, commits and is killed. The member that called `seek` then gets the
    partition, and starts at the committed offset. The dropped seek is reported as "unsought".
    """
    world = filled_world()
    a = owner(world, partition_assignment_strategy=strategy)
    b = world.consumer(**GROUP, partition_assignment_strategy=strategy)
    b.subscribe("t")
    b.seek(T0, 2)
    b.seek(T1, 2)
    assert world.run(until=lambda: len(a.owned) == len(b.owned) == 1 and a.is_stable() and b.is_stable())
    [foreign] = a.owned
    assert world.run(until=lambda: world.committed("g", foreign) == 10)
    world.run(70_000)  # Longer than max.poll.interval.ms.
    world.kill(a)
    assert world.run(20_000, until=lambda: len(b.owned) == 2)
    world.run(2_000)
    assert [value for value in b.values() if value.startswith(f"{foreign.partition}-")] == []
    assert [set(change.partitions) for change in b.changes if change.kind == "unsought"] == [{foreign}]


def test_a_seek_expires_after_the_second_generation() -> None:
    """A seek in a partition that is not assigned expires after two generations.

    A cooperative rebalance may take two generations to move a partition, so a seek must survive the first
    generation.
    """
    world = World({"t": 3})
    world.write("t", 2, *(str(number) for number in range(10)))
    world.write("t", 1, *(str(number) for number in range(10)))
    world.write("t", 0, *(str(number) for number in range(10)))
    a = world.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    b = world.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    a.subscribe("t")
    b.subscribe("t")
    assert world.run(until=lambda: len(a.owned) + len(b.owned) == 3 and a.is_stable() and b.is_stable())
    c = world.consumer(**GROUP, partition_assignment_strategy="cooperative-sticky")
    c.subscribe("t")
    for partition in range(3):
        c.seek(tp("t", partition), 2)
    assert world.run(until=lambda: len(c.owned) == 1 and all(member.is_stable() for member in (a, b, c)))
    world.run(10_000)
    [own] = c.owned
    [change] = [change for change in c.changes if change.kind == "unsought"]
    assert set(change.partitions) == {tp("t", index) for index in range(3)} - {own}


def test_a_seek_waits_for_an_assignment_until_max_poll_interval_ms_has_passed() -> None:
    for later, expired in ((5_000, []), (5_001, [T0])):
        seeks = PendingSeeks(5_000)
        seeks.put(T0, lambda state: None)
        assert seeks.drop_ended({T1}, 100, ends_rebalance=False) == []
        assert seeks.drop_ended({T0}, 100 + later, ends_rebalance=True) == expired


def test_a_seek_that_the_next_assignment_does_not_contain_expires_with_it() -> None:
    for last in (False, True):
        seeks = PendingSeeks(5_000)
        seeks.put(T0, lambda state: None)
        assert seeks.drop_ended({T1}, 100, ends_rebalance=False) == []
        assert seeks.drop_ended({T1}, 101, ends_rebalance=last) == [T0]
        assert seeks.drop_ended({T1}, 102, ends_rebalance=True) == []


@pytest.mark.parametrize(("place", "start"), [("max_timestamp", 0), ("latest_tiered", 0)])
def test_a_seek_to_a_place_that_the_log_lacks_does_not_block(place: str, start: int) -> None:
    """In an empty log, a seek to max_timestamp or latest_tiered leads to offset 0.

    An empty log has neither a maximum timestamp nor a latest tiered offset. The seek to max_timestamp leads
    to the log end offset, and the seek to latest_tiered to the log start offset. Both offsets are 0.
    """
    world = World({"t": 1})
    a = world.consumer()
    a.assign({T0: 5})
    a.seek_to(place, T0)
    assert world.run(1_000, until=lambda: a.position(T0) == start)
    world.write("t", 0, "first")
    assert world.run(1_000, until=lambda: a.values() == ["first"])


def test_latest_tiered_without_tiered_segments_is_the_start_of_the_log() -> None:
    world = filled_world()
    a = world.consumer()
    a.assign({T0: 5})
    a.seek_to("latest_tiered", T0)
    assert world.run(1_000, until=lambda: len(a.records) == 10)
