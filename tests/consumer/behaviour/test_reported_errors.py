"""Each error of a fetch or a commit is raised or reported once (M61, M173, M177).

A static member that joins on a broker without JoinGroup v5 raises UnsupportedVersion (M25). A member can
leave with every version of LeaveGroup (M60).
"""

from __future__ import annotations

from typing import Any

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import (
    BrokerError,
    NotAuthorized,
    RecordError,
    UnsupportedVersion,
)
from kproto.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.leave_group import LeaveGroupRequest
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.records import Record, encode_batch
from tests.consumer.engine.stage import (
    AUTO,
    GROUP,
    answer_commits,
    caught_up_member,
    numbers,
    world_with_records,
)
from tests.consumer.stage import Client, World, tp


@pytest.mark.rule("M173", "M177")
@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, 999])
def test_an_unknown_fetch_error_is_raised_and_retried_with_backoff(code: int) -> None:
    world = world_with_records()

    def refuse(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest) or not request.topics:
            return None
        entry = PartitionData(
            partition_index=0, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
        )
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.tamper = refuse
    a = world.consumer()
    a.assign({tp("t", 0): 0})
    world.run(10_000)
    assert len(world.requests_of(a, FetchRequest)) <= 12
    assert {error.code for error in a.errors if isinstance(error, BrokerError)} == {code}
    world.tamper = None
    assert world.run(2000, until=lambda: a.values() == numbers(0, 10))


def test_an_error_of_one_partition_is_raised_while_others_have_records() -> None:
    world = World({"t": 2})
    world.write("t", 0, *numbers(0, 1000))
    world.write("t", 1, "bad")
    world.corrupt_batch("t", 1, batch=0)
    a = world.consumer()
    a.limit, a.works_ms = 10, 100
    a.assign({tp("t", 0): 0, tp("t", 1): 0})
    assert world.run(until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], RecordError)
    assert len(a.records) <= 20
    assert world.run(until=lambda: len(a.records) == 1000)
    assert len(a.errors) == 1


def test_a_commit_error_is_raised_while_records_are_buffered() -> None:
    world = world_with_records(records=1000)
    answer_commits(world, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    a = world.consumer(**{**AUTO, "auto_commit_interval_ms": 100})
    a.limit, a.works_ms = 10, 50
    a.subscribe("t")
    assert world.run(until=lambda: bool(a.errors))
    assert isinstance(a.errors[0], NotAuthorized)
    assert len(a.records) <= 50


def test_errors_of_many_partitions_do_not_stop_the_others() -> None:
    world = World({"t": 1, "secret": 100})
    world.write("t", 0, *numbers(0, 100))

    def refuse(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, ListOffsetsRequest) or request.topics[0].name != "secret":
            return None
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            # Each partition has a different error code, because equal codes would be reported
                            # as one error.
                            error_code=10_000 + partition.partition_index,
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    world.tamper = refuse
    a = world.consumer(auto_offset_reset="earliest")
    a.limit, a.works_ms = 1, 50
    a.assign({tp("t", 0): 0, **{tp("secret", index): None for index in range(100)}})
    world.run(8_000)
    assert len(a.records) >= 50
    assert len(a.errors) >= 50


def test_records_before_a_corrupt_batch_are_returned_first() -> None:
    world = world_with_records()

    def cut(client: Client, request: Any, version: int) -> Any:
        """Answer each fetch from offset 10 or higher with an incomplete batch."""
        if not isinstance(request, FetchRequest) or not request.topics:
            return None
        if request.topics[0].partitions[0].fetch_offset < 10:
            return None
        entry = PartitionData(
            partition_index=0, error_code=0, high_watermark=20, aborted_transactions=None, records=b"half"
        )
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.tamper = cut
    a = world.consumer()
    a.limit, a.works_ms = 2, 500
    a.assign({tp("t", 0): 0})
    assert world.run(until=lambda: bool(a.errors))
    assert a.values() == numbers(0, 10)
    assert isinstance(a.errors[0], RecordError)
    assert len(world.requests_of(a, FetchRequest)) <= 12


def test_a_leader_that_returns_only_older_records_is_fetched_with_backoff() -> None:
    world = world_with_records()
    old = encode_batch([Record(offset=0, timestamp=0, key=None, value=b"old")])

    def repeat(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest) or not request.topics:
            return None
        entry = PartitionData(
            partition_index=0, error_code=0, high_watermark=10, aborted_transactions=None, records=old
        )
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.tamper = repeat
    a = world.consumer()
    a.assign({tp("t", 0): 5})
    world.run(10_000)
    assert len(world.requests_of(a, FetchRequest)) <= 30
    assert a.values() == []
    world.tamper = None
    assert world.run(2000, until=lambda: a.values() == numbers(5, 10))


@pytest.mark.rule("M25")
def test_a_static_member_on_an_old_broker_gets_an_error_that_names_the_version() -> None:
    world = world_with_records()
    a = world.consumer(**GROUP, group_instance_id="one")
    a.engine.core.network.caps[11] = 4
    a.subscribe("t")
    world.run(2_000)
    assert a.errors
    assert isinstance(a.errors[0], UnsupportedVersion)
    assert "JoinGroup: version 4 is not supported; allowed: 5 and higher (Kafka 2.3" in str(a.errors[0])
    assert "group_instance_id 'one'" in str(a.errors[0])
    assert len(world.requests_of(a, FindCoordinatorRequest)) <= 2


@pytest.mark.parametrize("version", range(6))
def test_a_member_leaves_in_every_version_of_leave_group(version: int) -> None:
    world = world_with_records()
    a = caught_up_member(world)
    a.engine.core.network.caps[13] = version
    a.close()
    world.run(500)
    assert len(world.requests_of(a, LeaveGroupRequest)) == 1
    b = world.consumer(**GROUP)
    b.subscribe("t")
    assert world.run(500, until=lambda: b.owns() == {tp("t", 0)})


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_in_every_version_of_join_group(version: int) -> None:
    world = world_with_records()
    a = world.consumer(**GROUP)
    a.engine.core.network.caps[11] = version
    a.subscribe("t")
    assert world.run(5000, until=lambda: len(a.records) == 10)
    assert a.errors == []
