"""The `assigned` callback of a group member runs even if no partitions are assigned."""

from __future__ import annotations

from kproto.testing.world import World
from tests.rules import rule


@rule("M89")
def test_the_assigned_callback_runs_without_partitions() -> None:
    world = World({"t": 1})
    first, second = world.consumer(group_id="g"), world.consumer(group_id="g")
    first.subscribe("t")
    assert world.run(until=lambda: bool(first.owns()))
    second.subscribe("t")
    world.run(10_000)
    assert second.calls == [("assigned", ())]
