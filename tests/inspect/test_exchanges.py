"""Exchanges as a proxy records them, and their lines."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.inspect.exchange_lines import groups_of, is_quiet, line, to_json
from kproto.inspect.exchanges import Conversation, Exchange, addresses_in, replace_addresses
from kproto.inspect.group_history import GroupHistory
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from kproto.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kproto.messages.headers import decode_response, encode_request, encode_response
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproto.messages.produce import ProduceRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from kproto.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from kproto.wire.message import Message

BEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="me-1")


def talk(request: Message, version: int, response: Message, *, client: str = "me") -> tuple[bytes, Exchange]:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(request, version, 7, client), 1_000)
    frame = encode_response(response, version, 7)
    found = conversation.add_response(frame, 1_012)
    assert found is not None
    return frame, found


def metadata(host: str = "kafka-1") -> MetadataResponse:
    broker = MetadataResponseBroker(node_id=1, host=host, port=9092)
    return MetadataResponse(brokers=[broker], topics=[])


def test_an_exchange_has_request_response_and_duration() -> None:
    _, found = talk(BEAT, 4, HeartbeatResponse(error_code=25))
    assert (found.client, found.api, found.version, found.ms) == ("me", "Heartbeat", 4, 12)
    assert found.request == BEAT
    assert "UNKNOWN_MEMBER_ID" in line(found)


def test_only_addresses_are_replaced() -> None:
    frame, found = talk(MetadataRequest(topics=[]), 9, metadata())
    assert addresses_in(found) == [("kafka-1", 9092)]
    passed = replace_addresses(frame, found, {("kafka-1", 9092): ("127.0.0.1", 19093)})
    _, read = decode_response(passed, MetadataResponse, 9)
    assert (read.brokers[0].host, read.brokers[0].port) == ("127.0.0.1", 19093)
    read.brokers[0].host, read.brokers[0].port = "kafka-1", 9092
    assert read == metadata()
    assert found.response == metadata()  # The exchange keeps the original response.


def test_a_response_without_known_addresses_is_unchanged() -> None:
    frame, found = talk(MetadataRequest(topics=[]), 9, metadata())
    assert replace_addresses(frame, found, {("kafka-2", 9092): ("127.0.0.1", 1)}) is frame
    frame, found = talk(BEAT, 4, HeartbeatResponse(error_code=0))
    assert replace_addresses(frame, found, {}) is frame


def test_produce_without_acks_expects_no_response() -> None:
    request = ProduceRequest(acks=0, timeout_ms=1, topic_data=[])
    conversation = Conversation("127.0.0.1:5", 1)
    assert conversation.add_request(encode_request(request, 9, 7, "me"), 0)[1]
    assert conversation.close() == []


def test_an_unsupported_version_is_forwarded_with_a_reason() -> None:
    frame = bytearray(encode_request(BEAT, 4, 7, "me"))
    frame[2:4] = (99).to_bytes(2, "big")
    conversation = Conversation("127.0.0.1:5", 1)
    found, _ = conversation.add_request(bytes(frame), 0)
    assert (found.client, found.api, found.version, found.request) == ("me", "Heartbeat", 99, None)
    assert "99" in found.trouble
    assert conversation.add_response(b"\x00\x00\x00\x07anything", 5) is found


@pytest.mark.parametrize("garbage", [b"", b"\x00", b"\xff" * 40, b"GET / HTTP/1.1\r\n\r\n"])
def test_garbage_is_forwarded(garbage: bytes) -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    found, _ = conversation.add_request(garbage, 0)
    assert found.trouble
    assert line(found)
    assert conversation.add_response(garbage[4:8], 1) in (None, found)


def test_a_request_without_a_response_is_reported() -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(BEAT, 4, 7, "me"), 0)
    [left] = conversation.close()
    assert "the connection ended before the response" in line(left)


def test_an_old_brokers_api_versions_response_is_decoded() -> None:
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(ApiVersionsRequest(), 4, 7, "me"), 0)
    answer = encode_response(ApiVersionsResponse(error_code=35, api_keys=[]), 0, 7)
    found = conversation.add_response(answer, 1)
    assert found is not None
    assert "UNSUPPORTED_VERSION" in line(found)


def test_subscriptions_are_decoded_and_member_ids_shortened() -> None:
    owned = (TopicPartition("t", 0),)
    data = Subscription(topics=("t", "u"), owned=owned).encode()
    member = "me-0f8fad5b-d9cb-469f-a165-70867728950e"
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=1,
        rebalance_timeout_ms=1,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=data)],
        reason="why not",
    )
    answer = JoinGroupResponse(
        error_code=0, generation_id=4, protocol_name="range", leader="x", member_id=member, members=[]
    )
    told = line(talk(request, 9, answer)[1])
    assert "group=g member=me-0f8fad5b range(t, u owns t-0) because 'why not' -> generation=4" in told


def test_transactions_are_described() -> None:
    own: dict[str, Any] = {"transactional_id": "x", "producer_id": 7, "producer_epoch": 2}
    named = InitProducerIdRequest(transaction_timeout_ms=9, **own)
    taken = InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=3)
    told = line(talk(named, 5, taken)[1])
    assert "x producer=7/2 timeout=9 ms -> producer id=7 epoch=3" in told
    plain = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=9)
    assert "for no transactions ->" in line(talk(plain, 5, taken)[1])

    ended = EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=3)
    told = line(talk(EndTxnRequest(committed=True, **own), 5, ended)[1])
    assert "x producer=7/2 commit -> producer id=7 epoch=3" in told
    late = EndTxnResponse(throttle_time_ms=0, error_code=48)
    assert "abort -> INVALID_TXN_STATE" in line(talk(EndTxnRequest(committed=False, **own), 4, late)[1])

    topics = [AddPartitionsToTxnTopic(name="t", partitions=[0, 1])]
    added = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=topics)
    codes = [AddPartitionsToTxnPartitionResult(partition_index=0, partition_error_code=51)]
    results = [AddPartitionsToTxnTopicResult(name="t", results_by_partition=codes)]
    busy = AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results)
    assert "x t-0, t-1 -> CONCURRENT_TRANSACTIONS (t-0)" in line(talk(added, 3, busy)[1])

    offsets = AddOffsetsToTxnRequest(group_id="g", **own)
    fine = AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=0)
    assert "x producer=7/2 group=g -> ok" in line(talk(offsets, 3, fine)[1])
    place = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=None)
    kept = TxnOffsetCommitRequest(
        group_id="g", topics=[TxnOffsetCommitRequestTopic(name="t", partitions=[place])], **own
    )
    told = line(talk(kept, 3, TxnOffsetCommitResponse(throttle_time_ms=0, topics=[]))[1])
    assert "x producer=7/2 group=g" in told
    assert "t-0@5 -> ok" in told


def test_topic_ids_are_shown_by_the_names_in_metadata() -> None:
    id_ = UUID(int=5)
    conversation = Conversation("127.0.0.1:5", 1)
    conversation.add_request(encode_request(MetadataRequest(topics=None), 12, 1, "me"), 0)
    topic = MetadataResponseTopic(error_code=0, name="flights", topic_id=id_, partitions=[])
    answer = MetadataResponse(brokers=[], topics=[topic])
    conversation.add_response(encode_response(answer, 12, 1), 1)
    request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[_fetch_topic(id_)], forgotten_topics_data=[])
    found, _ = conversation.add_request(encode_request(request, 13, 2, "me"), 2)
    assert "flights-0@7" in line(found)


def _fetch_topic(id_: UUID) -> FetchTopic:
    partition = FetchPartition(partition=0, fetch_offset=7, partition_max_bytes=1)
    return FetchTopic(topic_id=id_, partitions=[partition])


def test_a_heartbeat_is_routine_unless_it_fails() -> None:
    assert is_quiet(talk(BEAT, 4, HeartbeatResponse(error_code=0))[1])
    assert not is_quiet(talk(BEAT, 4, HeartbeatResponse(error_code=27))[1])


def test_groups_are_found_and_json_has_kafkas_form() -> None:
    _, found = talk(BEAT, 4, HeartbeatResponse(error_code=0))
    assert groups_of(found) == {"g"}
    assert to_json(found)["request"]["generationId"] == 3


def test_a_history_has_the_assigned_and_the_lost_partitions() -> None:
    history = GroupHistory()
    given = Assignment(partitions=(TopicPartition("t", 0),)).encode()
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="m-1", assignments=[])
    history.add(talk(sync, 5, SyncGroupResponse(error_code=0, assignment=given))[1])
    beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m-1")
    history.add(talk(beat, 4, HeartbeatResponse(error_code=25))[1])
    told = [(event.kind, event.member, event.partitions) for event in history.events["g"]]
    assert told == [("assigned", "me", (TopicPartition("t", 0),)), ("lost", "me", (TopicPartition("t", 0),))]
    assert "UNKNOWN_MEMBER_ID" in "\n".join(history.lines(0))
