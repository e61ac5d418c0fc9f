"""kproto's consumer in one group with other clients: it keeps every claim, and nothing is lost.

The others are machines that do what their originals do; the claims are about kproto's members.
"""

from __future__ import annotations

from random import Random
from types import ModuleType
from typing import Any

import pytest

from kproto.clients import java, java_2_6, kafka_go, librdkafka, sarama
from kproto.group.subscription import TopicPartition
from kproto.testing.invariants import ALWAYS, check
from kproto.testing.schedules import QUICK, rest
from kproto.testing.world import Consumer, Member, World

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


def ours(world: World, name: str, **options: Any) -> Consumer:
    given = {**QUICK, "partition_assignment_strategy": "range", **options}
    made: Consumer = world.join(name, topics=["t"], **given)
    return made


def theirs(world: World, kind: str, **options: Any) -> Member:
    machine, own = OTHERS[kind]
    made: Member = world.join(kind, machine, topics=["t"], **{**USUAL, **own, **options})
    return made


def story(kind: str, seed: int, *, turns: int = 5) -> World:
    """Two of kproto's and another client share a group, and things happen to them."""
    random = Random(f"{kind}/{seed}")
    world = World({"t": 6}, seed=seed, brokers=2, latency=(1, 9), trace=False)
    world.watch(*ALWAYS)
    members: list[Consumer | Member] = [ours(world, "one"), theirs(world, kind), ours(world, "two")]
    for turn in range(turns):
        for partition in range(6):
            world.write("t", partition, f"{turn}", "x")
        world.run(random.randint(100, 4_000))
        befalls = random.randrange(6)
        if befalls == 0:
            world.elect("t", random.randrange(6), random.randint(1, 2))
        elif befalls == 1:
            world.move_coordinator("g", random.randint(1, 2), loading_ms=random.choice((0, 300)))
        elif befalls == 2:
            world.fault(random.choice(("stall", "cut", "half_close")), random.choice(members), lasts=1_000)
        elif befalls == 3 and world.clients["two"].alive:
            members[2].close()
        elif befalls == 4:
            members[0].rejoin()
        else:
            world.run(8_000)
    rest(world)
    return world


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("kind", OTHERS)
def test_beside_another_client_every_claim_is_kept(kind: str, seed: int) -> None:
    check(story(kind, seed))


@pytest.mark.thorough
@pytest.mark.parametrize("kind", OTHERS)
def test_beside_another_client_every_claim_is_kept_for_long(kind: str) -> None:
    for seed in range(2, 12):
        check(story(kind, seed, turns=12))


@pytest.mark.parametrize("kind", OTHERS)
def test_both_have_their_share_and_read_it(kind: str) -> None:
    world = World({"t": 6})
    a, b = ours(world, "one"), theirs(world, kind)
    assert world.run(30_000, until=lambda: len(a.owned) == len(b.owned) == 3 and world.is_stable("g"))
    for partition in range(6):
        world.write("t", partition, "x", "y")
    assert world.run(30_000, until=lambda: len(a.records) == len(b.records) == 6)
    assert not a.owned & b.owned
    assert a.owned | b.owned == {TopicPartition("t", number) for number in range(6)}


@pytest.mark.parametrize("kind", OTHERS)
def test_what_the_other_one_read_and_committed_is_not_read_again(kind: str) -> None:
    world = World({"t": 4})
    b = theirs(world, kind)
    for partition in range(4):
        world.write("t", partition, "x", "y")
    assert world.run(30_000, until=lambda: len(b.records) == 8)
    b.commit()
    world.run(3_000)
    b.close()
    a = ours(world, "one")
    for partition in range(4):
        world.write("t", partition, "z")
    assert world.run(30_000, until=lambda: len(a.owned) == 4 and len(a.records) >= 4)
    world.run(3_000)
    assert a.values() == ["z"] * 4
