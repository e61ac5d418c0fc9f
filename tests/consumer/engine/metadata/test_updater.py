"""MetadataUpdater requests new metadata if its metadata is too old, or lacks a topic or a leader."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from kproto.messages.metadata import MetadataRequest
from tests.consumer.engine.metadata.stage import TOPIC_ID, metadata_response
from tests.consumer.stage import World, tp
from tests.rules import rule


@rule("M196")
def test_metadata_is_requested_again_when_it_is_too_old() -> None:
    world = World({"t": 1})
    a = world.consumer(metadata_max_age_ms=2_000)
    a.assign({tp("t", 0): 0})
    world.run(9_000)
    assert len(world.requests_of(a, MetadataRequest)) == 5


@rule("M196")
def test_a_new_topic_is_requested_immediately() -> None:
    world = World({"t": 1, "u": 1})
    world.write("u", 0, "x")
    a = world.consumer(metadata_max_age_ms=300_000)
    a.assign({tp("t", 0): 0})
    world.run(1_000)
    before = world.now
    a.assign({tp("t", 0): 0, tp("u", 0): 0})
    assert world.run(until=lambda: a.values() == ["x"])
    assert world.now - before <= 20
    assert len(world.requests_of(a, MetadataRequest)) == 2


@rule("M196")
def test_a_topic_that_is_subscribed_later_is_requested_immediately() -> None:
    world = World({"t": 1, "u": 1, "v": 1})
    a = world.consumer(metadata_max_age_ms=300_000, group_id="g")
    a.subscribe("t")
    assert world.run(until=lambda: bool(a.owns()))
    world.run(1_000)
    before, requests = world.now, len(world.requests_of(a, MetadataRequest))
    for number, topics in enumerate((("t", "u"), ("t", "u", "v")), 1):
        a.subscribe(*topics)
        world.run(10)
        assert len(world.requests_of(a, MetadataRequest)) == requests + number
    assert world.now - before == 20


@rule("M196", "M197")
def test_the_backoff_grows_while_a_partition_has_no_leader() -> None:
    world = World({"t": 1})
    times: list[int] = []

    def answer(client: Any, request: Any, version: int) -> Any:
        if not isinstance(request, MetadataRequest):
            return None
        times.append(world.now)
        response = metadata_response(leader=-1, topic_id=TOPIC_ID)
        response.brokers = [broker for broker in response.brokers if broker.node_id == 1]
        for broker, node in zip(response.brokers, world.nodes.values(), strict=True):
            broker.host, broker.port = node.host, node.port
        return response

    world.tamper = answer
    a = world.consumer(retry_backoff_ms=100, retry_backoff_max_ms=1_000)
    a.assign({tp("t", 0): 0})
    world.run(20_000)
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[1] < 200
    assert min(gaps[-5:]) >= 800
