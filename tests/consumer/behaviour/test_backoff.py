"""Lookups that are repeated after a failure back off (M28, M197)."""

from __future__ import annotations

from typing import Any

from kproto.error_codes import ErrorCode
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.metadata import MetadataRequest
from tests.consumer.engine.stage import (
    GROUP,
    answer_commits,
    world_with_records,
)
from tests.consumer.stage import Client, World, tp


def test_metadata_of_an_unknown_topic_is_requested_with_backoff() -> None:
    world = World({})
    a = world.consumer(**{**GROUP, "metadata_max_age_ms": 300_000})
    a.subscribe("t")
    world.run(60_000)
    assert 5 <= len(world.requests_of(a, MetadataRequest)) <= 20
    world.create("t", 1)
    world.write("t", 0, "x")
    assert world.run(15_000, until=lambda: a.values() == ["x"])


def test_lookups_of_an_unavailable_coordinator_back_off() -> None:
    world = world_with_records()

    def answer_unavailable(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
        return None

    world.tamper = answer_unavailable
    a = world.consumer(**GROUP)
    a.engine.core.network.caps[10] = 3
    a.assign({tp("t", 0): 0})
    a.commit({tp("t", 0): 5})
    world.run(10_000)
    assert 8 <= len(world.requests_of(a, FindCoordinatorRequest)) <= 20


def test_a_broker_that_answers_not_coordinator_is_asked_with_backoff() -> None:
    world = world_with_records()
    a = world.consumer(**GROUP)
    answer_commits(world, ErrorCode.NOT_COORDINATOR)
    a.assign({tp("t", 0): 0})
    a.commit({tp("t", 0): 5})
    world.run(10_000)
    assert len(world.requests_of(a, FindCoordinatorRequest)) <= 20


def test_the_backoff_of_two_clients_differs() -> None:
    world = World({"t": 1})
    delays: list[list[int]] = []
    for _ in range(2):
        a = world.consumer(**GROUP)
        at: list[int] = []

        def record_time(client: Client, request: Any, version: int, at: list[int] = at) -> Any:
            if isinstance(request, FindCoordinatorRequest):
                at.append(world.now)
                return FindCoordinatorResponse(error_code=15, node_id=-1, host="", port=-1)
            return None

        world.tamper = record_time
        a.engine.core.network.caps[10] = 3
        a.subscribe("t")
        world.run(5000)
        delays.append([moment - at[0] for moment in at])
        world.kill(a)
    assert delays[0] != delays[1]
