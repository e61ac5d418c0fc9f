"""sarama with three brokers: leaders and coordinators move, brokers stop, no record is lost."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kproto.models import sarama, sarama_cluster
from kproto.testing.world import World

USUAL: dict[str, Any] = {
    "group_id": "g",
    "reset": "earliest",
    "session_ms": 6_000,
    "heartbeat_ms": 500,
    "auto_commit_ms": 500,
    "metadata_ms": 5_000,
    "max_poll_ms": 10_000,
}


def story(seed: int, assignor: str, *machines: Any) -> World:
    """Six turns of what befalls a group."""
    random = Random(seed)
    world = World({"t": 4}, seed=seed, brokers=3, latency=(1, 9))
    for number, machine in enumerate(machines):
        extra = {"assignors": (assignor,)} if machine is sarama else {}
        world.join(f"m{number}", machine, topics=["t"], **USUAL, **extra)
    for turn in range(6):
        for partition in range(4):
            world.write("t", partition, f"{turn}")
        world.run(random.randint(200, 3_000))
        befalls = random.randrange(4)
        if befalls == 0:
            world.elect("t", random.randrange(4), random.randint(1, 3))
        elif befalls == 1:
            world.move_coordinator("g", random.randint(1, 3), loading_ms=random.choice([0, 500]))
        elif befalls == 2:
            world.stop_broker(2)
            world.run(2_000)
            world.start_broker(2)
        else:
            world.fault(random.choice(["stall", "cut", "half_close"]), "m0", lasts=1_000)
    world.run(30_000)
    return world


def read(world: World) -> set[tuple[object, int]]:
    return {
        (record.partition, record.offset) for member in world.clients.values() for record in member.records
    }


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", range(3))
def test_two_members_lose_no_record_under_random_faults(seed: int, assignor: str) -> None:
    assert len(read(story(seed, assignor, sarama, sarama))) == 24


@pytest.mark.parametrize("seed", range(2))
def test_sarama_and_sarama_cluster_in_one_group_lose_no_record(seed: int) -> None:
    assert len(read(story(seed, "range", sarama, sarama_cluster))) == 24


def test_a_run_is_deterministic() -> None:
    assert story(5, "range", sarama).digest() == story(5, "range", sarama).digest()
