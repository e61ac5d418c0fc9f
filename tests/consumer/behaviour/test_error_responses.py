"""Clients recover from brokers that answer one kind of request with an error code for a minute.

The client reports the error to the application, backs off, and continues when the brokers have recovered.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kproto.error_codes import ErrorCode
from kproto.errors import RecordError
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from kproto.messages.headers import decode_response, encode_response
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataResponse
from kproto.records import Record, encode_batch
from kproto.testing.world.clients import Wire
from tests.consumer.behaviour.hostile_brokers import CODES, KEYS, Hostile, check_consumer_recovers
from tests.consumer.stage import Client, World, tp

PLACES = [
    "ApiVersions error_code",
    "FindCoordinator coordinators.error_code",
    "Metadata error_code",
    "Metadata topics.error_code",
    "Metadata topics.partitions.error_code",
    "JoinGroup error_code",
    "SyncGroup error_code",
    "Heartbeat error_code",
    "LeaveGroup error_code",
    "LeaveGroup members.error_code",
    "OffsetFetch groups.error_code",
    "OffsetFetch groups.topics.partitions.error_code",
    "OffsetCommit topics.partitions.error_code",
    "ListOffsets topics.partitions.error_code",
    "Fetch error_code",
    "Fetch responses.partitions.error_code",
]
# Response fields that hold a count, an id or an offset.
NUMBERS = [
    "ApiVersions api_keys.api_key",
    "ApiVersions api_keys.max_version",
    "FindCoordinator coordinators.node_id",
    "FindCoordinator coordinators.port",
    "Metadata brokers.node_id",
    "Metadata brokers.port",
    "Metadata topics.partitions.partition_index",
    "Metadata topics.partitions.leader_id",
    "Metadata topics.partitions.leader_epoch",
    "JoinGroup generation_id",
    "OffsetFetch groups.topics.partitions.partition_index",
    "OffsetFetch groups.topics.partitions.committed_leader_epoch",
    "OffsetCommit topics.partitions.partition_index",
    "ListOffsets topics.partitions.partition_index",
    "ListOffsets topics.partitions.leader_epoch",
    "Fetch session_id",
    "Fetch responses.partitions.partition_index",
    "Fetch responses.partitions.high_watermark",
    "Fetch responses.partitions.last_stable_offset",
    "Fetch responses.partitions.log_start_offset",
    "Fetch responses.partitions.preferred_read_replica",
]
WILD = [0, -1, 1, 7, 2**15 - 1, -(2**15)]


class Restored(World):
    """A simulated cluster that is replaced by a restored backup when `restored` is set.

    Before the restore, broker 9 leads all partitions in leader epoch 5. After it, broker 1 leads them in
    leader epoch 0.
    """

    restored = False

    def _send_response(self, wire: Wire, body: bytes) -> None:
        key, version = self.pending_requests[wire.conn]
        if key == KEYS["Metadata"] and not self.restored:
            correlation_id, answer = decode_response(body, MetadataResponse, version)
            assert isinstance(answer, MetadataResponse)
            for broker in answer.brokers:
                broker.node_id = 9
            for partition in [partition for topic in answer.topics for partition in topic.partitions]:
                partition.leader_id, partition.leader_epoch = 9, 5
            body = encode_response(answer, version, correlation_id)
        super()._send_response(wire, body)


@pytest.mark.thorough
@given(place=st.sampled_from(PLACES), late=st.booleans(), code=st.sampled_from(CODES))
@example(place="Fetch responses.partitions.error_code", late=True, code=ErrorCode.OFFSET_OUT_OF_RANGE)
@example(place="JoinGroup error_code", late=False, code=ErrorCode.UNKNOWN_MEMBER_ID)
@example(place="JoinGroup error_code", late=False, code=ErrorCode.MEMBER_ID_REQUIRED)
@example(place="JoinGroup error_code", late=False, code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
@example(place="SyncGroup error_code", late=False, code=ErrorCode.UNKNOWN_MEMBER_ID)
@example(place="SyncGroup error_code", late=False, code=ErrorCode.REBALANCE_IN_PROGRESS)
def test_any_error_code_in_any_field_is_waited_out_and_reported(place: str, late: bool, code: int) -> None:
    check_consumer_recovers(Hostile(place, code), late)


@pytest.mark.thorough
@given(place=st.sampled_from(NUMBERS), late=st.booleans(), code=st.sampled_from(WILD))
@example(place="Fetch session_id", late=False, code=7)
@example(place="Metadata topics.partitions.partition_index", late=False, code=0)
@example(place="FindCoordinator coordinators.node_id", late=False, code=-1)
@example(place="FindCoordinator coordinators.port", late=False, code=7)
@example(place="ApiVersions api_keys.api_key", late=False, code=7)
def test_any_number_in_any_field_is_waited_out_and_reported(place: str, late: bool, code: int) -> None:
    check_consumer_recovers(Hostile(place, code), late)


def test_a_leader_that_finds_every_offset_out_of_range_is_asked_less_and_less_often() -> None:
    world = Hostile("Fetch responses.partitions.error_code", ErrorCode.OFFSET_OUT_OF_RANGE)
    world.put()
    a = world.consumer(auto_offset_reset="earliest")
    world.bad = True
    a.assign(dict.fromkeys(world.partitions()))
    world.run(10_000)
    assert len(world.requests_of(a, ListOffsetsRequest)) <= 30
    assert len(world.requests_of(a, FetchRequest)) <= 30
    world.bad = False
    assert world.run(2_000, until=lambda: len(a.records) == 2)


def test_brokers_that_name_each_other_as_leader_are_asked_less_and_less_often() -> None:
    """The consumer backs off if each of two brokers names the other one as the leader (KIP-951).

    The leader epoch rises with each response, so the consumer cannot ignore a response as outdated.
    """
    world = World({"t": 1}, brokers=2)
    responses = 0

    def send_on(client: Client, request: Any, version: int) -> Any:
        nonlocal responses
        if not isinstance(request, FetchRequest) or not asks_for(request, 0):
            return None
        responses += 1
        entry = PartitionData(
            partition_index=0,
            error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER,
            high_watermark=-1,
            aborted_transactions=None,
            records=None,
            current_leader=LeaderIdAndEpoch(leader_id=1 + responses % 2, leader_epoch=100 + responses),
        )
        topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=[entry])
        return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])

    world.write("t", 0, "x")
    world.tamper = send_on
    a = world.consumer(auto_offset_reset="earliest")
    a.assign(dict.fromkeys(world.partitions()))
    world.run(10_000)
    assert 2 <= responses <= 30
    assert "Fetch has failed for 5 s: NOT_LEADER" in a.changes_of("refused")[0].reason
    world.tamper = None
    assert world.run(60_000, until=lambda: a.values() == ["x"])


def test_the_error_of_a_throttled_fetch_is_raised() -> None:
    world = World({"t": 1})

    def reject(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest):
            return None
        return FetchResponse(throttle_time_ms=300, error_code=999, session_id=0, responses=[])

    world.tamper = reject
    a = world.consumer()
    a.assign({tp("t", 0): 0})
    assert world.run(5_000, until=lambda: bool(a.errors))
    assert "999" in str(a.errors[0])


@pytest.mark.parametrize("forgotten", [True, False])
@pytest.mark.parametrize("read", [True, False])
def test_a_leader_epoch_that_never_existed_delays_reading_by_seconds(read: bool, forgotten: bool) -> None:
    """A consumer with a leader epoch above the real one reads again within a minute.

    The consumer may have received such an epoch in a wrong response, or before the cluster was restored.
    """
    world = Hostile("Metadata topics.partitions.leader_epoch", 2**31 - 1)
    a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=2_000)
    a.assign(dict.fromkeys(world.partitions()))
    if read:
        world.put()
    world.run(3_000)
    world.bad = True
    world.run(3_000)
    world.bad = False
    for partition in world.partitions() if forgotten else ():
        a.engine.core.view.forget_leader(partition)
    before = len(a.records)
    world.put()
    assert world.run(60_000, until=lambda: len(a.records) == before + 2)


@pytest.mark.parametrize("client", ["consumer", "producer"])
def test_a_restored_cluster_with_other_broker_ids_delays_clients_by_seconds(client: str) -> None:
    """Clients continue within seconds after a cluster is restored with other broker ids.

    The restored topic keeps its id. Its partition has another leader, with a lower leader epoch.
    """
    # Only Metadata responses are changed. Requests contain the leader epoch from Fetch v9 and ListOffsets v4
    # on, and the broker id from ApiVersions v5 on. The brokers would reject the changed values, so these
    # versions are excluded.
    world = Restored({"t": 1}, highest={"ApiVersions": 4, "Fetch": 8, "ListOffsets": 3})
    world.write("t", 0, "x")
    if client == "consumer":
        a = world.consumer(auto_offset_reset="earliest", metadata_max_age_ms=2_000)
        a.assign({tp("t", 0): None})
        assert world.run(5_000, until=lambda: a.values() == ["x"])
        world.restored = True
        world.run(5_000)
        world.write("t", 0, "y")
        assert world.run(60_000, until=lambda: a.values() == ["x", "y"])
    else:
        producer = world.producer(linger_ms=0, metadata_max_age_ms=2_000)
        first = producer.deliver("t", "x", partition=0)
        producer.tick()
        assert world.run(5_000, until=first.done)
        world.restored = True
        world.run(5_000)
        second = producer.deliver("t", "y", partition=0)
        producer.tick()
        assert world.run(60_000, until=second.done)
        assert second.exception() is None


def asks_for(request: FetchRequest, partition: int) -> bool:
    return any(entry.partition == partition for topic in request.topics for entry in topic.partitions)


def records_from_the_start(request: Any, records: list[bytes]) -> FetchResponse:
    """Return a Fetch response with the partitions that the request fetches from offset 0.

    Element i of `records` is returned for partition i.
    """
    offsets = {partition.partition: partition.fetch_offset for partition in request.topics[0].partitions}
    entries = [
        PartitionData(
            partition_index=index, error_code=0, high_watermark=1, aborted_transactions=None, records=data
        )
        for index, data in enumerate(records)
        if offsets.get(index) == 0
    ]
    topic = FetchableTopicResponse(topic_id=request.topics[0].topic_id, partitions=entries)
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=[topic])


def test_a_partition_without_a_complete_batch_does_not_affect_others_of_the_response() -> None:
    world = World({"t": 2})

    def cut(client: Client, request: Any, version: int) -> Any:
        """Answer fetches with an incomplete batch in partition 0 and a thousand records in partition 1."""
        if not isinstance(request, FetchRequest) or not request.topics:
            return None
        return records_from_the_start(request, [many[:-1], many])

    many = encode_batch([Record(offset, 0, None, b"x") for offset in range(1_000)])
    world.tamper = cut
    a = world.consumer()
    a.assign(dict.fromkeys(world.partitions(), 0))
    world.run(10_000)
    assert [record.offset for record in a.records] == list(range(1_000))
    assert isinstance(a.errors[0], RecordError)


def test_a_record_at_the_largest_offset_stops_only_its_own_partition() -> None:
    """A record at the largest possible offset, 2^63 - 1, blocks only its own partition.

    The next offset, 2^63, does not fit into a request, so it can be neither fetched nor committed.
    """
    world = World({"t": 2})
    last = (2**63 - 1).to_bytes(8, "big") + encode_batch([Record(0, 0, None, b"x")])[8:]

    def tell(client: Client, request: Any, version: int) -> Any:
        if not isinstance(request, FetchRequest) or not asks_for(request, 0):
            return None
        world.tamper = None
        return records_from_the_start(request, [last, b""])

    world.tamper = tell
    a = world.consumer(group_id="g", auto_offset_reset="earliest")
    a.subscribe("t")
    world.run(5_000)
    world.write("t", 1, "y")
    assert world.run(5_000, until=lambda: a.values() == ["y"])
    assert {type(error) for error in a.errors} == {RecordError}
    commit = a.commit(timeout_ms=5_000)
    world.run(6_000)
    assert a.done[commit] == (None, None)
    assert world.committed("g", tp("t", 1)) == 1
