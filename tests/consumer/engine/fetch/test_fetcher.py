"""Fetches are sent to the current leader, and back off only after failures. The tests run in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.consumer.behaviour.lying_brokers import LyingWorld
from tests.consumer.stage import Client, World, tp

T0 = tp("t", 0)
# The session epoch of a fetch that belongs to no fetch session (KIP-227).
SESSIONLESS_EPOCH = -1


def test_a_new_leader_that_a_fetch_response_names_is_used_without_metadata() -> None:
    """The old leader's Fetch response names the new leader (KIP-951). Metadata requests get no response."""
    world = World({"t": 1}, brokers=2)
    world.elect("t", 0, 1)
    a = world.consumer()
    a.assign({T0: 0})
    assert world.run(until=lambda: len(world.requests_of(a, FetchRequest)) == 2)
    world.elect("t", 0, 2)
    world.fault("stall", None, 1)
    world.write("t", 0, "x")
    assert world.run(1_000, until=lambda: a.values() == ["x"])


def test_a_partition_without_records_gets_one_fetch_beside_the_fetch_in_flight() -> None:
    """The empty response has a high watermark of 12, as if an open transaction had written the records."""
    world = World({"t": 2})
    a = world.consumer(isolation_level="read_committed")
    a.assign({T0: 0})
    world.run(1_200)
    sessionless: list[int] = []

    def tamper(client: Client, request: Any, version: int) -> FetchResponse | None:
        if not isinstance(request, FetchRequest) or request.session_epoch != SESSIONLESS_EPOCH:
            return None
        sessionless.append(world.now)
        entry = PartitionData(
            partition_index=1,
            error_code=0,
            high_watermark=12,
            last_stable_offset=0,
            aborted_transactions=None,
            records=b"",
        )
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.tamper = tamper
    a.assign({T0: 0, tp("t", 1): 0})
    world.run(200)
    assert len(sessionless) == 1


def test_a_successful_fetch_resets_the_backoff_of_its_broker() -> None:
    world = World({"t": 1})
    a = world.consumer()
    a.assign({T0: 0})
    world.run(1_000)
    times: list[int] = []
    failures = 5

    def tamper(client: Client, request: Any, version: int) -> FetchResponse | None:
        nonlocal failures
        if not isinstance(request, FetchRequest):
            return None
        times.append(world.now)
        if not failures:
            return None
        failures -= 1
        code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return FetchResponse(throttle_time_ms=0, error_code=code, session_id=0, responses=[])

    world.tamper = tamper
    assert world.run(until=lambda: len(times) == 8)
    assert times[5] - times[4] > 500
    failures = 1
    times.clear()
    assert world.run(until=lambda: len(times) == 2)
    assert times[1] - times[0] < 200


def test_empty_responses_of_a_broker_that_throttles_are_no_failure() -> None:
    """A broker that enforces a quota responds without records, with a throttle time (KIP-219)."""
    world = World({"t": 1})
    for number in range(20):
        world.write("t", 0, f"{number:0100}")
    fetches = 0

    def throttle(client: Client, request: Any, version: int) -> FetchResponse | None:
        nonlocal fetches
        if not isinstance(request, FetchRequest):
            return None
        fetches += 1
        if fetches <= 2 or world.now - begin > 30_000:
            return None
        return FetchResponse(
            throttle_time_ms=2_000, error_code=0, session_id=request.session_id, responses=[]
        )

    begin = world.now
    world.tamper = throttle
    a = world.consumer(max_partition_fetch_bytes=200)
    a.assign({T0: 0})
    world.run(30_000)
    assert 10 <= fetches <= 20
    assert 1 <= len(a.records) < 20
    assert a.changes_of("refused") == []
    assert world.run(10_000, until=lambda: len(a.records) == 20)


def test_a_throttled_fetch_without_a_session_is_sent_again_after_the_throttle_time() -> None:
    """After a seek, the partition needs a sessionless fetch: the session's fetch waits 20 s at the broker."""
    world = World({"t": 2}, latency=(5, 5))
    world.write("t", 1, *"0123456789")
    a = world.consumer(fetch_max_wait_ms=20_000)
    a.assign({T0: 0, tp("t", 1): 0})
    world.run(5_000)
    assert len(a.records) == 10
    throttled = 0

    def throttle(client: Client, request: Any, version: int) -> FetchResponse | None:
        nonlocal throttled
        if (
            not isinstance(request, FetchRequest)
            or request.session_epoch != SESSIONLESS_EPOCH
            or throttled == 2
        ):
            return None
        throttled += 1
        return FetchResponse(throttle_time_ms=300, error_code=0, session_id=0, responses=[])

    world.tamper = throttle
    a.seek(tp("t", 1), 2)
    assert world.run(1_000, until=lambda: len(a.records) == 18)
    assert throttled == 2


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE])
def test_a_partition_that_every_response_lists_twice_is_read_once(code: ErrorCode) -> None:
    def twice(entries: list[PartitionData]) -> list[PartitionData]:
        return [*entries, *entries]

    world = LyingWorld(("Fetch", 0, ("responses.partitions", twice)), "a", {"t": 1})
    world.is_lasting = True
    a = world.join("a", auto_offset_reset="earliest")
    a.assign({T0: 0 if code is ErrorCode.NONE else 7})
    world.write("t", 0, "1", "2")
    assert world.run(2_000, until=lambda: a.values() == ["1", "2"])
    world.write("t", 0, "3")
    world.run(2_000)
    assert a.values() == ["1", "2", "3"]
