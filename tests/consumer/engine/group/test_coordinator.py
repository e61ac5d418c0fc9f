"""The lookup of the group's coordinator, in a consumer that runs in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, NotAuthorized
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.testing.world import Client, Consumer, World
from tests.rules import rule


def answer_lookups(world: World, code: ErrorCode, times: int) -> Consumer:
    """Answer the first `times` lookups with `code`, and start a consumer that needs its coordinator."""
    answered = 0

    def tamper(client: Client, request: Any, version: int) -> Any:
        nonlocal answered
        if not isinstance(request, FindCoordinatorRequest) or answered == times:
            return None
        answered += 1
        return FindCoordinatorResponse(error_code=code, node_id=-1, host="", port=-1)

    world.tamper = tamper
    consumer = world.consumer(group_id="g")
    consumer.engine.core.network.caps[10] = 3
    consumer.subscribe("t")
    return consumer


@rule("M31", "M33")
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    ],
)
def test_a_retriable_error_is_retried_after_a_backoff(code: ErrorCode) -> None:
    world = World({"t": 1})
    began = world.now
    consumer = answer_lookups(world, code, times=3)
    assert world.run(until=lambda: bool(consumer.owns()))
    assert len(world.requests_of(consumer, FindCoordinatorRequest)) == 4
    assert consumer.errors == []
    # The three backoffs of 100, 200 and 400 ms are up to 20 % shorter at random.
    assert world.now - began >= 560


@rule("M33")
def test_a_lookup_without_a_response_is_retried_after_a_backoff() -> None:
    world = World({"t": 1})
    consumer = world.consumer(group_id="g")

    def cut(client: Client, request: Any, version: int) -> None:
        if isinstance(request, FindCoordinatorRequest):
            world.tamper = None
            world.cut(consumer)

    world.tamper = cut
    consumer.subscribe("t")
    assert world.run(until=lambda: bool(consumer.owns()))
    assert len(world.requests_of(consumer, FindCoordinatorRequest)) == 2
    assert consumer.errors == []


@rule("M32")
def test_a_missing_permission_is_raised() -> None:
    world = World({"t": 1})
    consumer = answer_lookups(world, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
    assert world.run(until=lambda: bool(consumer.errors))
    assert isinstance(consumer.errors[0], NotAuthorized)


@rule("M34")
def test_an_unexpected_error_is_raised() -> None:
    world = World({"t": 1})
    consumer = answer_lookups(world, ErrorCode.INVALID_REQUEST, times=1)
    assert world.run(until=lambda: bool(consumer.errors))
    error = consumer.errors[0]
    assert isinstance(error, BrokerError)
    assert error.code == ErrorCode.INVALID_REQUEST
