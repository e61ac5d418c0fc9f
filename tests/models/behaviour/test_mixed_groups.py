"""kproto's consumer in one group with each model: the members share partitions and committed offsets.

tests/testing/behaviour/test_mixed_groups.py tests random schedules of mixed groups.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models import java, kafka_go, librdkafka, sarama
from kproto.models.java import java_2_6
from kproto.testing.schedules import QUICK
from kproto.testing.world import Consumer, ModelClient, World

OTHERS: dict[str, tuple[ModuleType, dict[str, Any]]] = {
    "java": (java, {"assignors": ("range",)}),
    "java 2.6": (java_2_6, {"assignors": ("range",)}),
    "librdkafka": (librdkafka, {"assignors": ("range",)}),
    "sarama": (sarama, {"assignors": ("range",)}),
    "kafka-go": (kafka_go, {}),
}
USUAL: dict[str, Any] = {
    "group_id": "g",
    "reset": "earliest",
    "session_ms": 6_000,
    "heartbeat_ms": 500,
    "auto_commit_ms": 500,
    "metadata_ms": 2_000,
    "max_poll_ms": 10_000,
}


def join_kproto(world: World, name: str, **options: Any) -> Consumer:
    settings = {**QUICK, "partition_assignment_strategy": "range", **options}
    consumer: Consumer = world.join(name, topics=["t"], **settings)
    return consumer


def join_model(world: World, kind: str, **options: Any) -> ModelClient:
    machine, own = OTHERS[kind]
    member: ModelClient = world.join(kind, machine, topics=["t"], **{**USUAL, **own, **options})
    return member


@pytest.mark.parametrize("kind", OTHERS)
def test_both_members_read_their_share(kind: str) -> None:
    world = World({"t": 6})
    a, b = join_kproto(world, "one"), join_model(world, kind)
    assert world.run(30_000, until=lambda: len(a.owned) == len(b.owned) == 3 and world.is_stable("g"))
    for partition in range(6):
        world.write("t", partition, "x", "y")
    assert world.run(30_000, until=lambda: len(a.records) == len(b.records) == 6)
    assert not a.owned & b.owned
    assert a.owned | b.owned == {TopicPartition("t", number) for number in range(6)}


@pytest.mark.parametrize("kind", OTHERS)
def test_committed_records_are_not_read_again_by_the_other_member(kind: str) -> None:
    world = World({"t": 4})
    b = join_model(world, kind)
    for partition in range(4):
        world.write("t", partition, "x", "y")
    assert world.run(30_000, until=lambda: len(b.records) == 8)
    b.commit()
    world.run(3_000)
    b.close()
    a = join_kproto(world, "one")
    for partition in range(4):
        world.write("t", partition, "z")
    assert world.run(30_000, until=lambda: len(a.owned) == 4 and len(a.records) >= 4)
    world.run(3_000)
    assert a.values() == ["z"] * 4
