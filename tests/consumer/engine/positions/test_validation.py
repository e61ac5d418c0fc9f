"""Positions are validated against the log's leader epochs (KIP-320), and a truncation is detected."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.positions.validation import LOWEST_VERSION
from kproto.error_codes import ErrorCode
from kproto.errors import LogTruncated, OffsetOutOfRange
from kproto.messages.fetch import FetchRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.consumer.stage import Client, World
from tests.consumer.truncated_log import GROUP, T0, committed_world, new_member, truncate


def numbers(*ends: int) -> list[str]:
    return [str(number) for number in range(*ends)]


@pytest.mark.rule("M140")
def test_a_committed_offset_is_validated_before_the_first_fetch() -> None:
    world = committed_world()
    b = new_member(world)
    world.write("t", 0, "x")
    assert world.run(until=lambda: b.values() == ["x"])
    kinds = [type(request) for _, request, _ in world.requests if _is_request_of(world, b, request)]
    assert OffsetForLeaderEpochRequest in kinds
    assert kinds.index(OffsetForLeaderEpochRequest) < kinds.index(FetchRequest)
    [check] = world.requests_of(b, OffsetForLeaderEpochRequest)
    assert check.topics[0].partitions[0].leader_epoch == 0


def _is_request_of(world: World, client: Client, request: Any) -> bool:
    return any(request is sent for sent in world.requests_of(client, type(request)))


@pytest.mark.rule("M138")
@pytest.mark.parametrize("ends", [(10, 3), (3, 10)])
def test_a_response_with_two_ends_of_one_epoch_is_requested_again(ends: tuple[int, int]) -> None:
    world = committed_world()

    def tamper(client: Client, request: Any, version: int) -> OffsetForLeaderEpochResponse | None:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        ends_of_epoch = [
            EpochEndOffset(error_code=0, partition=0, leader_epoch=0, end_offset=end) for end in ends
        ]
        topics = [OffsetForLeaderTopicResult(topic="t", partitions=ends_of_epoch)]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    world.tamper = tamper
    b = new_member(world)
    world.write("t", 0, "x")
    world.run(5_000)
    assert (b.records, b.changes_of("truncated")) == ([], [])
    assert world.requests_of(b, FetchRequest) == []
    world.tamper = None
    assert world.run(3_000, until=lambda: b.values() == ["x"])


@pytest.mark.rule("M150")
def test_a_log_truncated_below_the_commit_is_read_from_the_truncation_and_reported() -> None:
    world = committed_world()
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(8)))
    b = new_member(world)
    assert world.run(until=lambda: len(b.records) == 8)
    assert b.values() == [f"new {number}" for number in range(8)]
    [change] = b.changes_of("truncated")
    assert (change.partitions, change.offset) == ((T0,), 5)
    assert "position 10" in change.reason
    assert b.errors == []


def test_a_seek_during_the_validation_ignores_its_response() -> None:
    world = committed_world()
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(8)))
    b = new_member(world)
    assert world.run(until=lambda: bool(world.requests_of(b, OffsetForLeaderEpochRequest)))
    b.seek(T0, 8)
    assert world.run(2_000, until=lambda: len(b.records) == 5)
    assert b.values() == [f"new {number}" for number in range(3, 8)]
    assert b.changes_of("truncated") == []


@pytest.mark.rule("M150", "M152")
def test_without_a_policy_truncation_is_raised_until_a_seek() -> None:
    world = committed_world()
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(8)))
    b = new_member(world, auto_offset_reset="none", on_new_partition="earliest")
    world.run(2000)
    assert b.records == []
    assert b.errors
    for error in b.errors:
        assert isinstance(error, LogTruncated)
        assert (error.partition, error.position, error.diverging_offset) == ("t-0", 10, 5)
    assert isinstance(b.errors[0], OffsetOutOfRange)
    b.seek(T0, 6)
    assert world.run(2000, until=lambda: b.values() == [f"new {number}" for number in range(1, 8)])


@pytest.mark.rule("M149")
def test_a_truncation_while_reading_is_noticed_at_the_leader_change() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 5))
    world.write("t", 0, *numbers(5, 10))
    a = world.consumer(**GROUP)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(500)
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(8)))
    assert world.run(until=lambda: len(a.records) == 18)
    assert a.values()[10:] == [f"new {number}" for number in range(8)]
    assert [change.offset for change in a.changes_of("truncated")] == [5]


def test_a_clean_leader_change_loses_and_repeats_no_record() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.limit = 3
    a.subscribe("t")
    for number in range(100):
        world.write("t", 0, str(number))
        world.run(7)
        if number % 20 == 10:
            world.elect("t", 0)
    assert world.run(until=lambda: len(a.records) >= 100)
    world.run(2000)
    assert a.values() == numbers(0, 100)
    assert a.changes_of("truncated") == []
    assert len(world.requests_of(a, OffsetForLeaderEpochRequest)) >= 5


def test_buffered_records_of_the_truncated_part_are_not_returned() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 5))
    world.write("t", 0, *numbers(5, 10))
    a = world.consumer(**GROUP)
    a.limit = 2
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 2)
    a.pause_polling()
    truncate(world, 5)
    world.write("t", 0, *(f"new {number}" for number in range(3)))
    world.run(1500)
    a.resume_polling()
    assert world.run(until=lambda: len(a.records) >= 8)
    assert a.values() == [*numbers(0, 5), "new 0", "new 1", "new 2"]


@pytest.mark.rule("M141")
@pytest.mark.parametrize(("leader_epoch", "checks"), [(None, 0), (0, 1)])
def test_only_a_seek_with_a_leader_epoch_is_validated(leader_epoch: int | None, checks: int) -> None:
    world = committed_world()
    b = world.consumer()
    b.assign({T0: 0})
    assert world.run(until=lambda: len(b.records) == 10)
    b.do(ev.Seek(T0, 5, leader_epoch))
    assert world.run(until=lambda: len(b.records) == 15)
    assert len(world.requests_of(b, OffsetForLeaderEpochRequest)) == checks


@pytest.mark.rule("M141")
def test_a_seek_to_the_beginning_is_looked_up_by_the_next_poll() -> None:
    world = committed_world()
    b = world.consumer()
    b.assign({T0: 8})
    assert world.run(until=lambda: b.values() == numbers(8, 10))
    assert world.requests_of(b, ListOffsetsRequest) == []
    b.seek_to("earliest", T0)
    assert world.run(until=lambda: b.values()[2:] == numbers(0, 10))
    assert len(world.requests_of(b, ListOffsetsRequest)) == 1


def test_the_position_of_a_seek_is_not_validated() -> None:
    world = committed_world()
    b = world.consumer()
    b.assign({T0: 5})
    assert world.run(until=lambda: len(b.records) == 5)
    assert world.requests_of(b, OffsetForLeaderEpochRequest) == []


def test_an_epoch_unknown_to_the_leader_applies_the_reset_policy() -> None:
    world = committed_world()

    def forgetful(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        end = EpochEndOffset(error_code=0, partition=0, leader_epoch=-1, end_offset=-1)
        return OffsetForLeaderEpochResponse(
            throttle_time_ms=0, topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
        )

    world.tamper = forgetful
    b = new_member(world)
    assert world.run(until=lambda: b.values() == numbers(0, 10))
    assert "nothing of epoch 0" in b.changes_of("reset")[0].reason


@pytest.mark.rule("M151")
@pytest.mark.parametrize("code", [6, 74, 75, 14])
def test_a_validation_that_fails_with_a_retriable_error_is_repeated(code: int) -> None:
    world = committed_world()
    turns = [0]

    def refuse(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetForLeaderEpochRequest) and turns[0] < 3:
            turns[0] += 1
            end = EpochEndOffset(error_code=code, partition=0)
            return OffsetForLeaderEpochResponse(
                throttle_time_ms=0, topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
            )
        return None

    world.tamper = refuse
    b = new_member(world)
    world.write("t", 0, "x")
    assert world.run(until=lambda: b.values() == ["x"])
    assert b.errors == []


@pytest.mark.rule("M151")
def test_a_validation_after_not_leader_is_repeated_after_new_metadata() -> None:
    """The Metadata response arrives after the retry backoff. The validation must wait for the response."""
    world = committed_world()
    refused: list[int] = []

    def refuse(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, OffsetForLeaderEpochRequest) or refused:
            return None
        refused.append(world.now)
        end = EpochEndOffset(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, partition=0)
        topics = [OffsetForLeaderTopicResult(topic="t", partitions=[end])]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    world.tamper = refuse
    b = new_member(world)
    world.write("t", 0, "x")
    assert world.run(until=lambda: bool(refused))
    world.fault("stall")  # The fault delays the response to the client's next Metadata request.
    world.run(500)
    world.heal()
    world.run(1)  # Wait until all requests that the client sent before the Metadata response have arrived.
    assert len(world.requests_of(b, OffsetForLeaderEpochRequest)) == 1
    assert world.run(until=lambda: b.values() == ["x"])
    assert len(world.requests_of(b, OffsetForLeaderEpochRequest)) == 2


def test_validations_without_a_result_back_off_longer_each_time() -> None:
    world = committed_world()
    sent: list[int] = []

    def answer(client: Client, request: Any, version: int) -> OffsetForLeaderEpochResponse | None:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        sent.append(world.now)
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[]) if len(sent) <= 3 else None

    world.tamper = answer
    b = new_member(world, metadata_max_age_ms=60_000)
    world.write("t", 0, "x")
    assert world.run(until=lambda: b.values() == ["x"])
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    # Each backoff is up to 20 % shorter or longer at random, and a request takes a few milliseconds.
    for gap, backoff_ms in zip(gaps, (100, 200, 400), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 5


@pytest.mark.rule("M151")
def test_a_validation_without_a_response_is_repeated_with_new_metadata() -> None:
    """The client sends each request twice, because it reconnects once before the request fails."""
    world = committed_world()
    sent: list[int] = []

    def cut(client: Client, request: Any, version: int) -> None:
        if isinstance(request, OffsetForLeaderEpochRequest):
            sent.append(world.now)
            if len(sent) <= 4:
                world.cut(client)

    world.tamper = cut
    b = new_member(world, metadata_max_age_ms=60_000)
    world.write("t", 0, "x")
    assert world.run(until=lambda: len(sent) == 2)
    requests = len(world.requests_of(b, MetadataRequest))
    assert world.run(until=lambda: b.values() == ["x"])
    assert len(world.requests_of(b, MetadataRequest)) > requests
    gaps = [later - earlier for earlier, later in pairwise(sent)]
    # Each backoff is up to 20 % shorter or longer at random, and the lookup of the leader takes milliseconds.
    for gap, backoff_ms in zip(gaps[1::2], (100, 200), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 10


@pytest.mark.parametrize(
    ("end", "leader_epoch", "kind", "start"),
    [(0, 0, "truncated", 0), (-1, 0, "reset", 10), (0, -1, "reset", 10), (10, 0, "", 10)],
)
def test_an_epoch_that_ended_at_offset_0_is_known_to_the_leader(
    end: int, leader_epoch: int, kind: str, start: int
) -> None:
    """A leader that does not know the epoch returns -1 as leader epoch or end offset. An end offset of 0 is
    valid, and reports a truncation to the start of the log.
    """
    world = committed_world()

    def answer(client: Client, request: Any, version: int) -> OffsetForLeaderEpochResponse | None:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        entry = EpochEndOffset(error_code=0, partition=0, leader_epoch=leader_epoch, end_offset=end)
        topics = [OffsetForLeaderTopicResult(topic="t", partitions=[entry])]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    world.tamper = answer
    b = new_member(world, on_out_of_range="latest")
    assert world.run(until=lambda: bool(world.requests_of(b, OffsetForLeaderEpochRequest)))
    world.run(1_000)
    assert [change.kind for change in b.changes if change.kind in ("truncated", "reset")] == [kind] * bool(
        kind
    )
    assert (b.position(T0), b.values()) == (10, numbers(start, 10))


def test_failures_between_successful_validations_are_not_reported() -> None:
    """Failures to validate a partition are reported only if they last for 5 s without a success.

    In the test each validation fails once, and its retry succeeds.
    """
    world = committed_world()
    a = world.consumer()
    a.assign({T0: 0})
    world.run(1_000)
    sent: list[int] = []

    def answer(client: Client, request: Any, version: int) -> OffsetForLeaderEpochResponse | None:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        sent.append(world.now)
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=[]) if len(sent) % 2 else None

    world.tamper = answer
    for number in range(1, 21):
        a.do(ev.Seek(T0, 5, 0))
        assert world.run(2_000, until=lambda number=number: len(sent) == 2 * number)
        world.run(300)
    assert a.changes_of("refused") == []


@pytest.mark.rule("M149")
def test_a_truncation_found_before_a_leader_change_is_validated_by_the_new_leader() -> None:
    """A truncation that the old leader reports too late makes the consumer ask the new leader.

    The old leader's response arrives after the consumer has learned of the new leader's epoch. The
    consumer then validates its position again, with the new epoch.
    """
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 2)
    world.write("t", 0, *numbers(0, 10))
    a = world.consumer(metadata_max_age_ms=1_000)
    a.assign({T0: 0})
    assert world.run(until=lambda: len(a.records) == 10)

    def answer(client: Client, request: Any, version: int) -> OffsetForLeaderEpochResponse | None:
        if not isinstance(request, OffsetForLeaderEpochRequest):
            return None
        world.tamper = None
        world.fault("delay", None, 2, ms=2_000)
        end = EpochEndOffset(error_code=0, partition=0, leader_epoch=0, end_offset=5)
        topics = [OffsetForLeaderTopicResult(topic="t", partitions=[end])]
        return OffsetForLeaderEpochResponse(throttle_time_ms=0, topics=topics)

    world.tamper = answer
    world.elect("t", 0, 2)
    assert world.run(until=lambda: world.tamper is None)
    world.elect("t", 0, 2)
    assert world.run(until=lambda: bool(a.changes_of("truncated")))
    world.run(5_000)
    requests = world.requests_of(a, OffsetForLeaderEpochRequest)
    assert [request.topics[0].partitions[0].current_leader_epoch for request in requests] == [2, 3]


def test_a_validation_that_is_not_authorized_is_raised() -> None:
    world = committed_world()

    def refuse(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, OffsetForLeaderEpochRequest):
            end = EpochEndOffset(error_code=29, partition=0)
            return OffsetForLeaderEpochResponse(
                throttle_time_ms=0, topics=[OffsetForLeaderTopicResult(topic="t", partitions=[end])]
            )
        return None

    world.tamper = refuse
    b = new_member(world)
    world.run(5000)
    assert b.errors
    assert len(world.requests_of(b, OffsetForLeaderEpochRequest)) <= 8


def test_a_broker_without_the_needed_version_is_not_asked_to_validate() -> None:
    world = committed_world()
    for version, checks in ((LOWEST_VERSION - 1, 0), (LOWEST_VERSION, 1)):
        b = world.consumer(**GROUP)
        b.engine.core.network.caps[23] = version
        b.subscribe("t")
        world.write("t", 0, str(version))
        assert world.run(until=lambda b=b: len(b.records) == 1)
        assert len(world.requests_of(b, OffsetForLeaderEpochRequest)) == checks
        b.close()
        world.run(1_000)
