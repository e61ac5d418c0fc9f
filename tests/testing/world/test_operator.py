"""Operator actions in a world (a simulated cluster): each succeeds or raises, and the invariants hold."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.errors import ConfigError
from kproto.records import BatchBuilder
from kproto.testing.invariants import ALWAYS, check
from kproto.testing.schedules import QUICK, settle
from kproto.testing.world import World, tp


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(0, None, b"x")
    return builder.build()


REJECTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "no key": (("write", "compacted", 0, "x"), "INVALID_RECORD: records without a key"),
    "no record": (("write", "t", 0), "INVALID_RECORD: the batch has no records"),
    "no batch": (("append", "t", 0, b"garbage"), "INVALID_RECORD: a partition takes exactly one batch"),
    "two batches": (("append", "t", 0, batch() * 2), "INVALID_RECORD: a partition takes exactly one batch"),
    "too large": (("write", "t", 0, "x" * 2_000_000), "MESSAGE_TOO_LARGE"),
    "beyond the end": (("delete_before", "t", 0, 7), "OFFSET_OUT_OF_RANGE"),
}


@pytest.mark.parametrize("call", REJECTED)
def test_a_rejection_of_the_broker_is_raised(call: str) -> None:
    """A broker's rejection raises an exception. Without the exception, a schedule would continue as if the
    broker had stored the records.
    """
    world = World({"t": 1})
    world.create("compacted", 1, {"cleanup.policy": "compact"})
    (name, *arguments), message = REJECTED[call]
    with pytest.raises(ConfigError, match=f"a value that the broker accepts; it answered {message}"):
        getattr(world, name)(*arguments)
    assert world.log(tp("t", 0)).end_offset == 0


def test_partitions_created_while_a_broker_is_down_have_another_leader() -> None:
    """Partitions that are created while a broker is down get a leader that is up.

    So a member receives each record that `write` adds to a new partition. If the leader were down, `write`
    would lose the record without an error.
    """
    world = World({"t": 1}, brokers=3)
    a = world.join("a", topics=["t", "u"], **QUICK)
    world.stop_broker(2)
    world.grow("t", 6)
    world.create("u", 3)
    for partition in world.partitions():
        world.write(partition.topic, partition.partition, str(partition))
    everything = sorted(map(str, world.partitions()))
    assert world.run(10_000, until=lambda: sorted(a.values()) == everything)
    world.start_broker(2)
    settle(world)
    check(world)


@pytest.mark.parametrize("is_recreated", [False, True], ids=["deleted", "re-created"])
def test_invariants_hold_in_a_world_with_a_deleted_topic(is_recreated: bool) -> None:
    world = World({"t": 2, "u": 1}, seed=1)
    world.watch(*ALWAYS)
    members = [world.join(name, topics=["t", "u"], **QUICK) for name in "ab"]
    for partition in world.partitions():
        world.write(partition.topic, partition.partition, "x")
    world.run(3_000)
    world.delete_topic("t")
    if is_recreated:
        world.run(3_000)
        world.create("t", 3)
    settle(world)
    check(world)
    assert members[0].owned | members[1].owned == set(world.partitions())


def test_a_deleted_topic_leaves_no_leaders() -> None:
    """After a topic is deleted, the cluster no longer lists leaders of its partitions.

    Otherwise each listed leader would keep its partition's log, with all records, in memory.
    """
    world = World({"t": 2}, brokers=2)
    world.elect("t", 0, 2)
    world.delete_topic("t")
    assert not world.cluster.leaders
