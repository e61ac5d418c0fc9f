"""sarama with three brokers: no record is lost when leaders and coordinators move and brokers stop."""

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


def run_with_faults(seed: int, assignor: str, *models: Any) -> World:
    """Run a group through six rounds. Each round has new records and one random fault."""
    random = Random(seed)
    world = World({"t": 4}, seed=seed, brokers=3, latency=(1, 9))
    for number, model in enumerate(models):
        extra = {"assignors": (assignor,)} if model is sarama else {}
        world.join(f"m{number}", model, topics=["t"], **USUAL, **extra)
    for round_number in range(6):
        for partition in range(4):
            world.write("t", partition, f"{round_number}")
        world.run(random.randint(200, 3_000))
        fault = random.randrange(4)
        if fault == 0:
            world.elect("t", random.randrange(4), random.randint(1, 3))
        elif fault == 1:
            world.move_coordinator("g", random.randint(1, 3), loading_ms=random.choice([0, 500]))
        elif fault == 2:
            world.stop_broker(2)
            world.run(2_000)
            world.start_broker(2)
        else:
            world.fault(random.choice(["stall", "cut", "half_close"]), "m0", lasts=1_000)
    world.run(30_000)
    return world


def records_read(world: World) -> set[tuple[object, int]]:
    return {
        (record.partition, record.offset) for member in world.clients.values() for record in member.records
    }


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (1, 2))])
def test_two_members_lose_no_record_under_random_faults(seed: int, assignor: str) -> None:
    assert len(records_read(run_with_faults(seed, assignor, sarama, sarama))) == 24


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_sarama_and_sarama_cluster_in_one_group_lose_no_record(seed: int) -> None:
    assert len(records_read(run_with_faults(seed, "range", sarama, sarama_cluster))) == 24


def test_a_run_is_deterministic() -> None:
    assert run_with_faults(5, "range", sarama).digest() == run_with_faults(5, "range", sarama).digest()
