"""Automatic commits follow a timer, and omit the records of the last poll. The tests run in virtual time."""

from __future__ import annotations

from kproto.testing.world import World, tp
from tests.rules import rule

INTERVAL_MS = 4_000


@rule("M87", "M125")
def test_the_interval_starts_with_the_assignment() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    consumer = world.consumer(
        group_id="g",
        auto_offset_reset="earliest",
        auto_commit_interval_ms=INTERVAL_MS,
        on_new_partition="none",
    )
    consumer.subscribe("t")
    assert world.run(until=lambda: bool(consumer.owns()))
    assigned_at = world.now
    assert world.run(until=lambda: world.committed("g", tp("t", 0)) == 1)
    assert INTERVAL_MS <= world.now - assigned_at < INTERVAL_MS + 1_000


@rule("M122")
def test_records_of_the_last_poll_are_not_committed() -> None:
    world = World({"t": 1})
    world.write("t", 0, "x")
    consumer = world.consumer(
        group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=INTERVAL_MS, policy="java"
    )
    consumer.subscribe("t")
    assert world.run(until=lambda: consumer.values() == ["x"])
    consumer.pause_polling()
    world.run(3 * INTERVAL_MS)
    assert world.committed("g", tp("t", 0)) == 0
