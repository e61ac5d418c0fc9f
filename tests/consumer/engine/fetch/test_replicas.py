"""The client reads from the leader's preferred replica (KIP-392), until a fetch fails or metadata.max.age.ms
has passed.

The engine runs in virtual time against the embedded broker. Each of two brokers also serves fetches for the
other broker's partitions.
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


class FollowerWorld:
    """A simulated cluster in which the leader of `t-0` directs clients with a rack to `follower`.

    The follower answers fetches with the error `refuses`.
    """

    def __init__(self, refuses: ErrorCode = ErrorCode.NONE, *, follower: int = FOLLOWER) -> None:
        self.world = World({"t": 1}, brokers=2)
        self.world.write("t", 0, *map(str, range(10)))
        self.refuses, self.follower = refuses, follower
        self.leader_refuses = ErrorCode.NONE
        # (time, broker) of each fetch.
        self.asked: list[tuple[int, int]] = []
        self.world.tamper = self

    def __call__(self, client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest):
            return None
        entry: Any = self.world.entries[-1]
        node = entry.data.node
        self.asked.append((self.world.now, node))
        partitions = self._partitions(
            node, request, [partition for topic in request.topics for partition in topic.partitions]
        )
        ids = [topic.topic_id for topic in request.topics]
        topics = [FetchableTopicResponse(topic_id=id_, partitions=partitions) for id_ in ids]
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics)

    def _partitions(
        self, node: int, request: FetchRequest, partitions: Iterable[FetchPartition]
    ) -> list[PartitionData]:
        log = self.world.log(T0)
        fields: dict[str, Any] = {"partition_index": 0, "error_code": 0, "high_watermark": log.end_offset}
        fields |= {"aborted_transactions": None, "records": b""}
        if node == LEADER and request.rack_id:
            fields["preferred_read_replica"] = self.follower
        elif code := self.leader_refuses if node == LEADER else self.refuses:
            fields["error_code"] = code
        else:
            offset = min(request.fetch_offset for request in partitions)
            fields["records"] = b"".join(
                batch.data for batch in log.all_batches() if batch.last_offset >= offset
            )
        return [PartitionData(**fields)]

    def start_reader(self, **options: Any) -> Consumer:
        a = self.world.consumer(client_rack="near", auto_offset_reset="earliest", **options)
        a.assign({T0: 0})
        return a

    def times(self, node: int) -> list[int]:
        return [time for time, asked_node in self.asked if asked_node == node]


def test_a_consumer_with_a_rack_reads_from_the_follower() -> None:
    near = FollowerWorld()
    a = near.start_reader()
    assert near.world.run(until=lambda: len(a.records) == 10)
    assert [node for _, node in near.asked[:2]] == [LEADER, FOLLOWER]


@pytest.mark.parametrize("fault", ["refuse", "stall", "drop"])
def test_an_unreachable_follower_does_not_stop_reading(fault: str) -> None:
    """The client continues to read if the follower is unreachable.

    A firewall separates the client from the follower. The leader does not notice, and keeps directing the
    client to the follower.
    """
    near = FollowerWorld()
    near.world.fault(fault, None, FOLLOWER)
    a = near.start_reader()
    assert near.world.run(15_000, until=lambda: len(a.records) == 10)


def test_a_follower_that_becomes_unreachable_does_not_stop_reading() -> None:
    near = FollowerWorld()
    a = near.start_reader()
    assert near.world.run(until=lambda: len(a.records) == 10)
    near.world.fault("stall", None, FOLLOWER)
    near.world.write("t", 0, "more")
    assert near.world.run(15_000, until=lambda: len(a.records) == 11)


@pytest.mark.rule("M154", "M179")
@pytest.mark.parametrize(
    "code", [ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE]
)
def test_an_error_of_a_follower_is_checked_with_the_leader(code: ErrorCode) -> None:
    near = FollowerWorld(code)
    a = near.start_reader()
    assert near.world.run(1_000, until=lambda: len(a.records) == 10)
    assert not a.changes_of("reset")


def test_an_error_that_the_leader_also_returns_is_raised() -> None:
    near = FollowerWorld(ErrorCode.CORRUPT_MESSAGE)
    near.leader_refuses = ErrorCode.CORRUPT_MESSAGE
    a = near.start_reader()
    assert near.world.run(1_000, until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], BrokerError)


@pytest.mark.rule("M179")
def test_a_failing_follower_is_retried_with_backoff_until_it_works() -> None:
    near = FollowerWorld(ErrorCode.KAFKA_STORAGE_ERROR)
    a = near.start_reader()
    near.world.run(100_000)
    tries = near.times(FOLLOWER)
    gaps = [later - sooner for sooner, later in pairwise(tries)]
    assert [round(gap, -4) for gap in gaps] == [10_000, 20_000, 40_000]
    near.refuses = ErrorCode.NONE
    assert near.world.run(100_000, until=lambda: near.asked[-1][1] == FOLLOWER)
    leader_fetches = len(near.times(LEADER))
    near.world.write("t", 0, "more")
    assert near.world.run(until=lambda: len(a.records) == 11)
    assert len(near.times(LEADER)) == leader_fetches


def test_the_leader_serves_a_client_whose_preferred_replica_is_unknown() -> None:
    near = FollowerWorld(follower=99)
    a = near.start_reader()
    assert near.world.run(1_000, until=lambda: len(a.records) == 10)


@pytest.mark.rule("M179")
def test_the_leader_is_asked_again_after_metadata_max_age_ms() -> None:
    """The client returns to the leader after metadata.max.age.ms, even if no record arrives."""
    near = FollowerWorld()
    a = near.start_reader(metadata_max_age_ms=20_000)
    assert near.world.run(until=lambda: len(a.records) == 10)
    first = near.times(LEADER)[0]
    near.world.run(25_000)
    assert [time - first for time in near.times(LEADER)[1:]] == [pytest.approx(20_000, abs=600)]
