"""Fetches of a consumer that runs in virtual time."""

from __future__ import annotations

from kproto.messages.fetch import FetchRequest
from tests.consumer.stage import World, tp

T0 = tp("t", 0)


def test_a_new_leader_that_a_fetch_response_names_is_used_without_metadata() -> None:
    """The old leader names the new leader (KIP-951), and then it does not respond to Metadata."""
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    a = world.consumer()
    a.assign({T0: 0})
    assert world.run(until=lambda: len(world.requests_of(a, FetchRequest)) == 2)
    world.elect("t", 0, 2)
    world.fault("stall", None, 1)
    world.write("t", 0, "x")
    assert world.run(1_000, until=lambda: a.values() == ["x"])
