"""Invariants of worlds (simulated clusters): records that log cleaning removes break no invariant."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from kproto.records import BatchBuilder
from kproto.testing.invariants import ALWAYS, check
from kproto.testing.schedules import QUICK, settle
from kproto.testing.world import World, tp

COMPACTED = {"cleanup.policy": "compact", "segment.ms": "1000"}
KEPT_SHORT = {"retention.ms": "20000", "segment.ms": "1000"}


def world_with_records(configs: Mapping[str, str]) -> World:
    """Return a simulated cluster in which records with two alternating keys were written for ten minutes."""
    world = World(seed=1)
    world.watch(*ALWAYS)
    world.create("t", 1, dict(configs))
    for number in range(40):
        batch = BatchBuilder()
        batch.append(world.now, b"%d" % (number % 2), b"x")
        world.append("t", 0, batch.build())
        world.run(15_000)
    return world


@pytest.mark.parametrize("configs", [COMPACTED, KEPT_SHORT], ids=["compaction", "retention"])
def test_records_removed_by_log_cleaning_break_no_invariant(configs: Mapping[str, str]) -> None:
    world = world_with_records(configs)
    assert world.disturbed == {tp("t", 0)}
    a = world.join("a", topics=["t"], **QUICK)
    world.run(5_000)
    assert 0 < len(a.records) < 40
    settle(world)
    check(world)


def test_a_partition_that_cleaning_did_not_change_is_checked() -> None:
    assert world_with_records({"cleanup.policy": "delete", "retention.ms": "3600000"}).disturbed == set()
    world = World(seed=1)
    world.create("t", 1, COMPACTED)
    for number in range(40):
        batch = BatchBuilder()
        # Each record has its own key, so that compaction removes none.
        batch.append(world.now, b"%d" % number, b"x")
        world.append("t", 0, batch.build())
        world.run(15_000)
    assert world.disturbed == set()
