"""The lookup of the group's coordinator is retried after retriable errors, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, NotAuthorized
from kproto.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.offset_commit import OffsetCommitRequest
from kproto.testing.world import Client, Consumer, World, tp
from tests.consumer.engine.stage import answer_commits, caught_up_member, world_with_records
from tests.rules import rule


def answer_lookups(world: World, code: ErrorCode, times: int) -> Consumer:
    """Answer the first `times` FindCoordinator requests with `code`, and start a consumer of group "g"."""
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
    # The three backoffs are 100, 200 and 400 ms, each up to 20 % shorter or longer at random. So they take at
    # least 560 ms.
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


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT])
def test_a_coordinator_that_cannot_write_offsets_is_verified_and_kept(code: ErrorCode) -> None:
    world = world_with_records()
    member = caught_up_member(world)
    lookups, generation = len(world.requests_of(member, FindCoordinatorRequest)), member.generation
    answer_commits(world, code)
    token = member.commit({tp("t", 0): 10})
    world.run(2_000)
    world.tamper = None
    assert world.run(until=lambda: token in member.done)
    assert member.done[token][1] is None
    assert len(world.requests_of(member, FindCoordinatorRequest)) > lookups
    assert len(world.requests_of(member, OffsetCommitRequest)) > 2
    assert (member.generation, len(member.changes_of("coordinator"))) == (generation, 1)


def test_a_verification_that_names_another_node_moves_the_commit_to_that_node() -> None:
    """A commit that failed with COORDINATOR_NOT_AVAILABLE succeeds at the new coordinator."""
    world = World({"t": 1}, brokers=2)
    world.write("t", 0, "x")
    member = caught_up_member(world, records=1)
    old = member.engine.coordinator.node
    answer_commits(world, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    token = member.commit({tp("t", 0): 1})
    assert old is not None
    assert world.run(until=lambda: len(world.requests_of(member, OffsetCommitRequest)) == 2)
    world.move_coordinator("g", 3 - old)
    world.tamper = None
    assert world.run(5_000, until=lambda: token in member.done)
    assert (member.done[token][1], member.engine.coordinator.node) == (None, 3 - old)
