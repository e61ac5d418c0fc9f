"""Followers that a leader sends to (KIP-392): what is told them, and what becomes of those that are none.

The whole engine in virtual time, against the embedded broker, whose brokers answer each for the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from tests.consumer.stage import Client, Consumer, World, tp

T0 = tp("t", 0)
LEADER, FOLLOWER = 1, 2


class Near:
    """`t-0` is led by LEADER, which sends whoever tells a rack to `follower`; that one says `refuses`."""

    def __init__(self, refuses: ErrorCode = ErrorCode.NONE, *, follower: int = FOLLOWER) -> None:
        self.world = World({"t": 1}, brokers=2)
        self.world.write("t", 0, *map(str, range(10)))
        self.refuses, self.follower = refuses, follower
        self.leader_refuses = ErrorCode.NONE
        self.asked: list[tuple[int, int]] = []
        """(time, broker) of each fetch."""
        self.world.tamper = self

    def __call__(self, client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest):
            return None
        entry: Any = self.world.entries[-1]
        node = entry.data.node
        self.asked.append((self.world.now, node))
        found = self._one(
            node, request, [partition for topic in request.topics for partition in topic.partitions]
        )
        ids = [topic.topic_id for topic in request.topics]
        topics = [FetchableTopicResponse(topic_id=id_, partitions=found) for id_ in ids]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)

    def _one(self, node: int, request: FetchRequest, asked: Iterable[FetchPartition]) -> list[PartitionData]:
        log = self.world.log(T0)
        said: dict[str, Any] = {"partition_index": 0, "error_code": 0, "high_watermark": log.end_offset}
        said |= {"aborted_transactions": None, "records": b""}
        if node == LEADER and request.rack_id:
            said["preferred_read_replica"] = self.follower
        elif code := self.leader_refuses if node == LEADER else self.refuses:
            said["error_code"] = code
        else:
            offset = min(request.fetch_offset for request in asked)
            said["records"] = b"".join(
                batch.data for batch in log.all_batches() if batch.last_offset >= offset
            )
        return [PartitionData(**said)]

    def reads(self, **options: Any) -> Consumer:
        a = self.world.consumer(client_rack="near", auto_offset_reset="earliest", **options)
        a.assign({T0: 0})
        return a

    def times(self, node: int) -> list[int]:
        return [at for at, one in self.asked if one == node]


def test_who_tells_a_rack_reads_at_the_follower() -> None:
    near = Near()
    a = near.reads()
    assert near.world.run(until=lambda: len(a.records) == 10)
    assert [node for _, node in near.asked[:2]] == [LEADER, FOLLOWER]


@pytest.mark.parametrize("fault", ["refuse", "stall", "drop"])
def test_a_follower_that_cannot_be_reached_stops_nobody_from_reading(fault: str) -> None:
    """A firewall between the two, which no broker sees: the leader sends there for as long as it lasts."""
    near = Near()
    near.world.fault(fault, None, FOLLOWER)
    a = near.reads()
    assert near.world.run(15_000, until=lambda: len(a.records) == 10)


def test_a_follower_that_is_cut_off_later_stops_nobody_from_reading() -> None:
    near = Near()
    a = near.reads()
    assert near.world.run(until=lambda: len(a.records) == 10)
    near.world.fault("stall", None, FOLLOWER)
    near.world.write("t", 0, "more")
    assert near.world.run(15_000, until=lambda: len(a.records) == 11)


@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE]
)
def test_what_a_follower_refuses_the_leader_tells(code: ErrorCode) -> None:
    near = Near(code)
    a = near.reads()
    assert near.world.run(1_000, until=lambda: len(a.records) == 10)
    assert not a.changes_of("reset")


def test_what_the_leader_refuses_too_is_told() -> None:
    near = Near(ErrorCode.CORRUPT_MESSAGE)
    near.leader_refuses = ErrorCode.CORRUPT_MESSAGE
    a = near.reads()
    assert near.world.run(1_000, until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], BrokerError)


def test_a_follower_that_is_none_is_tried_again_less_and_less_and_at_last_for_good() -> None:
    near = Near(ErrorCode.KAFKA_STORAGE_ERROR)
    a = near.reads()
    near.world.run(100_000)
    tries = near.times(FOLLOWER)
    gaps = [later - at for at, later in pairwise(tries)]
    assert [round(gap, -4) for gap in gaps] == [10_000, 20_000, 40_000]
    near.refuses = ErrorCode.NONE
    assert near.world.run(100_000, until=lambda: near.asked[-1][1] == FOLLOWER)
    asked = len(near.times(LEADER))
    near.world.write("t", 0, "more")
    assert near.world.run(until=lambda: len(a.records) == 11)
    assert len(near.times(LEADER)) == asked


def test_the_leader_brings_the_records_where_it_sends_to_nobody_that_there_is() -> None:
    near = Near(follower=99)
    a = near.reads()
    assert near.world.run(1_000, until=lambda: len(a.records) == 10)


def test_the_leader_is_asked_again_when_the_time_is_over() -> None:
    """Also where nothing happens: a follower that fell behind would bring nothing for twice as long."""
    near = Near()
    a = near.reads(metadata_max_age_ms=20_000)
    assert near.world.run(until=lambda: len(a.records) == 10)
    first = near.times(LEADER)[0]
    near.world.run(25_000)
    assert [at - first for at in near.times(LEADER)[1:]] == [pytest.approx(20_000, abs=600)]
