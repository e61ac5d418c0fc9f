"""Brokers that change addresses. The whole engines in virtual time."""

from __future__ import annotations

from kproto.broker.call import Node
from tests.consumer.stage import World, tp


def swap(world: World, one: int, other: int) -> None:
    """Each is where the other one was; what is connected stays so, as behind a proxy."""
    first, second = world.nodes[one], world.nodes[other]
    for node, place in ((one, second), (other, first)):
        world.nodes[node] = world.cluster.nodes[node] = Node(node, place.host, place.port)


def test_what_was_connected_to_another_broker_is_not_asked_for_who_has_its_address_now() -> None:
    """It is at the end of that connection still, and leads nothing of what it is asked for."""
    world = World({"t": 2}, brokers=2)
    for partition in (0, 1):
        world.elect("t", partition, partition + 1)
    options = {"metadata_max_age_ms": 5_000}
    a = world.consumer(group_id="g", auto_offset_reset="earliest", auto_commit_interval_ms=500, **options)
    a.subscribe("t")
    p = world.producer(**options)
    for partition in (0, 1):
        p.deliver("t", "before", partition=partition)
    assert world.run(until=lambda: len(a.records) == 2)
    swap(world, 1, 2)
    world.run(6_000)
    sent = [p.deliver("t", "after", partition=partition) for partition in (0, 1)]
    assert world.run(until=lambda: len(a.records) == 4)
    assert all(request.done() for request in sent)
    world.run(2_000)
    assert [world.committed("g", tp("t", partition)) for partition in (0, 1)] == [2, 2]
    assert not a.changes_of("lost")
