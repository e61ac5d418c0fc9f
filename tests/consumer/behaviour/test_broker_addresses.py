"""Clients open new connections when brokers swap addresses, and show IPv6 addresses in brackets."""

from __future__ import annotations

import pytest

from kproto import Admin
from kproto.broker.call import Node
from kproto.errors import ConnectionFailed
from tests.consumer.stage import World, tp


def swap(world: World, node_id: int, other_id: int) -> None:
    """Swap the addresses of two brokers. Open connections stay with their broker, as behind a proxy."""
    first, second = world.nodes[node_id], world.nodes[other_id]
    for node, place in ((node_id, second), (other_id, first)):
        world.nodes[node] = world.cluster.nodes[node] = Node(node, place.host, place.port)


def test_after_brokers_swap_addresses_requests_use_new_connections() -> None:
    """An open connection stays with its broker when two brokers swap their addresses.

    So the open connection at the leader's new address leads to the other broker, and the client has to open
    a new connection at this address.
    """
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


def test_errors_show_an_ipv6_address_in_brackets() -> None:
    with (
        Admin("[::1]:1", timeout=0.1) as admin,
        pytest.raises(ConnectionFailed, match=r"no broker at \[::1\]:1: "),
    ):
        admin.topics()
