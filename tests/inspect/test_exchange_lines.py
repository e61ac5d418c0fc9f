"""A line describes a request and its response by their errors and main fields."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kproto.group.subscription import Assignment, Subscription, TopicPartition
from kproto.inspect.exchange_lines import (
    generation_line,
    groups_of,
    is_quiet,
    line,
    request_words,
    response_words,
)
from kproto.inspect.exchanges import Exchange
from kproto.inspect.timeline import GroupEvent
from kproto.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kproto.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from kproto.messages.create_partitions import CreatePartitionsRequest
from kproto.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kproto.messages.delete_groups import DeleteGroupsRequest
from kproto.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from kproto.messages.elect_leaders import ElectLeadersRequest
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from kproto.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kproto.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kproto.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kproto.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from kproto.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kproto.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproto.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResult,
)
from kproto.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from kproto.messages.sasl_authenticate import SaslAuthenticateRequest
from kproto.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from kproto.wire.message import Message

MEMBER = "me-0f8fad5b-d9cb-469f-a165-70867728950e"
ID = UUID(int=5)
SUBSCRIPTION = Subscription(
    topics=("u", "t"), owned=(TopicPartition("t", 1), TopicPartition("t", 0))
).encode()
ASSIGNMENT = Assignment(partitions=(TopicPartition("t", 0),)).encode()


def join(**fields: Any) -> JoinGroupRequest:
    protocols = [
        JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),
        JoinGroupRequestProtocol(name="mine", metadata=b"abc"),
    ]
    values: dict[str, Any] = {"member_id": "", "protocols": protocols, **fields}
    return JoinGroupRequest(group_id="g", session_timeout_ms=1, protocol_type="consumer", **values)


def offset_commit(partition_count: int, **fields: Any) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=n, committed_offset=10 * n, committed_metadata=None)
        for n in range(partition_count)
    ]
    topics = [OffsetCommitRequestTopic(name="t", partitions=partitions)]
    return OffsetCommitRequest(group_id="g", topics=topics, **{"member_id": MEMBER, **fields})


def fetch(**fields: Any) -> FetchRequest:
    return FetchRequest(max_wait_ms=500, min_bytes=1, **{"topics": [], **fields})


FETCH_TOPIC = FetchTopic(
    topic="t", partitions=[FetchPartition(partition=2, fetch_offset=7, partition_max_bytes=1)]
)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (
            HeartbeatRequest(group_id="g", generation_id=0, member_id="m", group_instance_id="i"),
            "group=g generation=0 member=m instance=i",
        ),
        (join(), "group=g member=new range(t, u owns t-0, t-1) mine(3 bytes)"),
        (join(protocols=[], reason="r" * 61), f"group=g member=new  because '{'r' * 59}…'"),
        (
            SyncGroupRequest(
                group_id="g",
                generation_id=4,
                member_id=MEMBER,
                assignments=[
                    SyncGroupRequestAssignment(member_id=MEMBER, assignment=ASSIGNMENT),
                    SyncGroupRequestAssignment(member_id="b", assignment=b""),
                    SyncGroupRequestAssignment(member_id="c", assignment=b"abc"),
                ],
            ),
            "group=g generation=4 member=me-0f8fad5b plan {me-0f8fad5b: t-0; b: nothing; c: 3 bytes}",
        ),
        (
            SyncGroupRequest(group_id="g", generation_id=4, member_id="m", assignments=[]),
            "group=g generation=4 member=m",
        ),
        (LeaveGroupRequest(group_id="g", member_id="m"), "group=g member=m"),
        (
            LeaveGroupRequest(
                group_id="g",
                members=[
                    MemberIdentity(member_id=MEMBER, group_instance_id="i", reason="closed"),
                    MemberIdentity(member_id="", group_instance_id="i"),
                ],
            ),
            "group=g me-0f8fad5b (closed), i",
        ),
        (offset_commit(1, generation_id_or_member_epoch=3), "group=g generation=3 member=me-0f8fad5b t-0@0"),
        (
            offset_commit(7, member_id=""),
            "group=g member=new t-0@0, t-1@10, t-2@20, t-3@30, t-4@40, t-5@50, and 1 more",
        ),
        (
            OffsetFetchRequest(
                group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 3])]
            ),
            "group=g t-0, t-3",
        ),
        (
            OffsetFetchRequest(
                groups=[
                    OffsetFetchRequestGroup(group_id="g", topics=None),
                    OffsetFetchRequestGroup(
                        group_id="h",
                        topics=[OffsetFetchRequestTopics(topic_id=ID, partition_indexes=[1])],
                    ),
                ]
            ),
            "group=g all group=h 0000000…-1",
        ),
        (fetch(), "nothing new wait=500 ms"),
        (
            fetch(session_id=9, session_epoch=2, topics=[FETCH_TOPIC]),
            "t-2@7 session=9/2 wait=500 ms",
        ),
        (
            ProduceRequest(
                transactional_id="x",
                acks=-1,
                timeout_ms=1,
                topic_data=[
                    TopicProduceData(
                        name="t",
                        partition_data=[
                            PartitionProduceData(index=0, records=b"abc"),
                            PartitionProduceData(index=1, records=None),
                        ],
                    )
                ],
            ),
            "t-0 3 B, t-1 0 B acks=all transaction=x",
        ),
        (ProduceRequest(acks=1, timeout_ms=1, topic_data=[]), " acks=1"),
        (
            InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9, producer_id=0),
            "x producer=0/-1 timeout=9 ms",
        ),
        (InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=9), "x timeout=9 ms"),
        (InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=9), "for no transactions"),
        (
            EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=2, committed=True),
            "x producer=7/2 commit",
        ),
        (
            EndTxnRequest(transactional_id="x", producer_id=7, producer_epoch=2, committed=False),
            "x producer=7/2 abort",
        ),
        (
            AddPartitionsToTxnRequest(
                transactions=[
                    AddPartitionsToTxnTransaction(
                        transactional_id=name,
                        producer_id=1,
                        producer_epoch=0,
                        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0])],
                    )
                    for name in "xy"
                ]
            ),
            "x, y t-0, t-0",
        ),
        (MetadataRequest(topics=None), "all topics"),
        (MetadataRequest(topics=[]), "no topics"),
        (
            MetadataRequest(
                topics=[
                    MetadataRequestTopic(name="t"),
                    MetadataRequestTopic(name=None, topic_id=UUID(int=1 << 96)),
                ]
            ),
            "t, 0000000…",
        ),
        (
            ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    ListOffsetsTopic(
                        name="t",
                        partitions=[
                            ListOffsetsPartition(partition_index=n, timestamp=timestamp)
                            for n, timestamp in enumerate((-1, -2, -3, 1234))
                        ],
                    )
                ],
            ),
            "t-0 latest, t-1 earliest, t-2 max timestamp, t-3 1234",
        ),
        (
            OffsetForLeaderEpochRequest(
                topics=[
                    OffsetForLeaderTopic(
                        topic="t", partitions=[OffsetForLeaderPartition(partition=1, leader_epoch=4)]
                    )
                ]
            ),
            "t-1 epoch=4",
        ),
        (FindCoordinatorRequest(key="g"), "group g"),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"]), "transaction x, y"),
        (FindCoordinatorRequest(key_type=2, coordinator_keys=["s"]), "share s"),
        (FindCoordinatorRequest(key_type=3, coordinator_keys=["s"]), "3 s"),
        (ApiVersionsRequest(client_software_name="c", client_software_version="1"), "c 1"),
        (ApiVersionsRequest(), ""),
        (DescribeGroupsRequest(groups=["g", "h"]), "g, h"),
        (
            CreateTopicsRequest(
                topics=[
                    CreatableTopic(
                        name="t", num_partitions=3, replication_factor=1, assignments=[], configs=[]
                    )
                ]
            ),
            "t:3",
        ),
        (SaslHandshakeRequest(mechanism="PLAIN"), "mechanism=PLAIN"),
        (SaslAuthenticateRequest(auth_bytes=b"\0me\0secret"), ""),
        (DeleteGroupsRequest(groups_names=["g", "h"]), "groups_names=2"),
        (CreatePartitionsRequest(topics=[], timeout_ms=5, validate_only=True), "topics=0 timeout_ms=5"),
        (ElectLeadersRequest(election_type=1, topic_partitions=None), "election_type=1 timeout_ms=60000"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_a_request_is_described_by_its_main_fields(request_: Message, words: str) -> None:
    assert request_words(request_) == words


def joined(**fields: Any) -> JoinGroupResponse:
    values: dict[str, Any] = {"error_code": 0, "leader": "m", "member_id": "m", "members": [], **fields}
    return JoinGroupResponse(generation_id=4, protocol_name="range", **values)


def committed(*codes: int) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=n, error_code=code) for n, code in enumerate(codes)
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=partitions)])


def part(index: int, records: bytes, error_code: int = 0) -> PartitionData:
    return PartitionData(
        partition_index=index,
        error_code=error_code,
        high_watermark=9,
        aborted_transactions=None,
        records=records,
    )


def fetched(*partitions: PartitionData) -> FetchResponse:
    return FetchResponse(
        throttle_time_ms=0, responses=[FetchableTopicResponse(topic="t", partitions=[*partitions])]
    )


def broker(node_id: int) -> MetadataResponseBroker:
    return MetadataResponseBroker(node_id=node_id, host="h", port=1)


@pytest.mark.parametrize(
    ("response", "words"),
    [
        (HeartbeatResponse(error_code=0), "ok"),
        (HeartbeatResponse(error_code=27), "REBALANCE_IN_PROGRESS"),
        (HeartbeatResponse(error_code=4321), "error 4321"),
        (joined(leader="x", member_id=MEMBER), "generation=4 member=me-0f8fad5b range"),
        (
            joined(members=[JoinGroupResponseMember(member_id="m", metadata=SUBSCRIPTION)]),
            "generation=4 member=m range leads 1: m t, u owns t-0, t-1",
        ),
        (joined(error_code=25), "UNKNOWN_MEMBER_ID"),
        (SyncGroupResponse(error_code=0, assignment=ASSIGNMENT), "got t-0"),
        (SyncGroupResponse(error_code=0, assignment=b""), "got nothing"),
        (committed(0, 0), "ok"),
        (
            committed(0, 3, 29, 3, 3),
            "UNKNOWN_TOPIC_OR_PARTITION (t-1 and 2 more), TOPIC_AUTHORIZATION_FAILED (t-2)",
        ),
        (
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        topic_id=ID,
                        partitions=[OffsetCommitResponsePartition(partition_index=2, error_code=100)],
                    )
                ]
            ),
            "UNKNOWN_TOPIC_ID (partition 2)",
        ),
        (FindCoordinatorResponse(node_id=1, host="h", port=9), "node 1 at h:9"),
        (
            FindCoordinatorResponse(
                coordinators=[
                    Coordinator(key="g", node_id=1, host="h", port=9, error_code=0, error_message=None),
                    Coordinator(key="i", node_id=-1, host="", port=-1, error_code=15, error_message=None),
                ]
            ),
            "COORDINATOR_NOT_AVAILABLE (i) node 1 at h:9",
        ),
        (MetadataResponse(brokers=[broker(1)], topics=[]), "1 broker, no topics"),
        (
            MetadataResponse(
                brokers=[broker(1), broker(2)],
                topics=[
                    MetadataResponseTopic(error_code=0, name="t", partitions=[]),
                    MetadataResponseTopic(error_code=100, name=None, topic_id=ID, partitions=[]),
                ],
            ),
            f"UNKNOWN_TOPIC_ID 2 brokers, t:0, {ID}:0",
        ),
        (fetched(part(0, b"")), "nothing"),
        (fetched(part(0, b""), part(1, b"abc")), "t-1 3 B up to 9"),
        (fetched(part(0, b"", 1), part(1, b"abc")), "OFFSET_OUT_OF_RANGE (t-0) t-1 3 B up to 9"),
        (
            ProduceResponse(
                responses=[
                    TopicProduceResponse(
                        name="t",
                        partition_responses=[
                            PartitionProduceResponse(index=0, error_code=0, base_offset=8),
                            PartitionProduceResponse(index=1, error_code=6, base_offset=-1),
                        ],
                    )
                ]
            ),
            "NOT_LEADER_OR_FOLLOWER (t-1) t-0@8",
        ),
        (
            OffsetFetchResponse(
                topics=[
                    OffsetFetchResponseTopic(
                        name="t",
                        partitions=[
                            OffsetFetchResponsePartition(
                                partition_index=n, committed_offset=offset, metadata=None, error_code=0
                            )
                            for n, offset in enumerate((-1, 0))
                        ],
                    )
                ]
            ),
            "t-0 none, t-1 @0",
        ),
        (
            ListOffsetsResponse(
                topics=[
                    ListOffsetsTopicResponse(
                        name="t",
                        partitions=[
                            ListOffsetsPartitionResponse(partition_index=0, error_code=0, offset=5),
                            ListOffsetsPartitionResponse(partition_index=1, error_code=6),
                        ],
                    )
                ]
            ),
            "NOT_LEADER_OR_FOLLOWER (t-1) t-0@5",
        ),
        (
            OffsetForLeaderEpochResponse(
                throttle_time_ms=0,
                topics=[
                    OffsetForLeaderTopicResult(
                        topic="t",
                        partitions=[
                            EpochEndOffset(error_code=0, partition=0, leader_epoch=2, end_offset=9),
                            EpochEndOffset(error_code=74, partition=1),
                        ],
                    )
                ],
            ),
            "FENCED_LEADER_EPOCH (t-1) t-0 epoch=2 ends at 9",
        ),
        (
            ApiVersionsResponse(error_code=0, api_keys=[ApiVersion(api_key=1, min_version=0, max_version=1)]),
            "1 APIs",
        ),
        (
            DescribeGroupsResponse(
                groups=[
                    DescribedGroup(
                        error_code=0,
                        group_id="g",
                        group_state="Empty",
                        protocol_type="",
                        protocol_data="",
                        members=[],
                    )
                ]
            ),
            "g Empty with 0",
        ),
        (SaslHandshakeResponse(error_code=0, mechanisms=["PLAIN"]), "ok"),
        (
            InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=7, producer_epoch=2),
            "producer id=7 epoch=2",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_a_response_is_described_by_its_errors_and_its_main_fields(response: Message, words: str) -> None:
    assert response_words(response) == words


def exchange_with(api: str, request: Message | None, response: Message | None, **fields: Any) -> Exchange:
    values: dict[str, Any] = {"client": "me", "answered_at": 1_012, **fields}
    return Exchange(
        connection=1,
        peer="p:1",
        api=api,
        version=4,
        correlation_id=7,
        asked_at=1_000,
        request=request,
        response=response,
        **values,
    )


HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "    1.000  me                    Heartbeat v4"),
        ({"client": ""}, "    1.000  -                     Heartbeat v4"),
        ({"client": "c" * 21}, "    1.000  ccccccccccccccccccc…  Heartbeat v4"),
        ({"principal": "User:alice"}, "    1.000  me (alice)            Heartbeat v4"),
    ],
)
def test_a_line_has_the_time_the_client_and_the_duration(fields: dict[str, Any], text: str) -> None:
    exchange = exchange_with("Heartbeat", HEARTBEAT, HeartbeatResponse(error_code=0), **fields)
    assert line(exchange) == f"{text:<56} group=g generation=3 member=m -> ok  [12 ms]"
    assert line(exchange, 250).startswith("    0.750  ")


def test_a_line_without_a_response_has_the_trouble() -> None:
    exchange = exchange_with("Heartbeat", None, None, answered_at=None, trouble="cut\noff")
    assert line(exchange) == f"    1.000  {'me':<20}  {'Heartbeat v4':<23} !! cut\\u000aoff"


def test_a_generation_is_printed_with_its_cause() -> None:
    event = GroupEvent(at=1_500, kind="generation", member="", generation=3, reason="a joined")
    assert generation_line("g", event, 500) == f"    1.000  {'group g':<20}  generation 3: a joined"


@pytest.mark.parametrize(
    ("request_", "groups"),
    [
        (HEARTBEAT, {"g"}),
        (FindCoordinatorRequest(key="g"), {"g"}),
        (FindCoordinatorRequest(coordinator_keys=["g", "h"]), {"", "g", "h"}),
        (FindCoordinatorRequest(key="a-transactional-id", key_type=1), set()),
        (FindCoordinatorRequest(coordinator_keys=["a-transactional-id"], key_type=1), set()),
        (DescribeGroupsRequest(groups=["g", "h"]), {"g", "h"}),
        (
            OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in "gh"]),
            {"", "g", "h"},
        ),
        (MetadataRequest(topics=None), set()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Message) else "",
)
def test_the_groups_of_a_request_are_all_that_it_names(request_: Message, groups: set[str]) -> None:
    assert groups_of(exchange_with("any", request_, None)) == groups


@pytest.mark.parametrize(
    ("exchange", "quiet"),
    [
        (exchange_with("Heartbeat", HEARTBEAT, HeartbeatResponse(error_code=0)), True),
        (exchange_with("Heartbeat", HEARTBEAT, HeartbeatResponse(error_code=27)), False),
        (exchange_with("Heartbeat", HEARTBEAT, HeartbeatResponse(error_code=0), trouble="x"), False),
        (exchange_with("Heartbeat", HEARTBEAT, None), False),
        (exchange_with("Fetch", fetch(), fetched(part(0, b""))), True),
        (exchange_with("Fetch", fetch(), fetched(part(0, b""), part(1, b"abc"))), False),
        (exchange_with("Fetch", fetch(), fetched(part(0, b"", 1))), False),
        (exchange_with("OffsetCommit", offset_commit(1), committed(0)), False),
    ],
)
def test_successful_heartbeats_and_empty_fetches_are_routine(exchange: Exchange, quiet: bool) -> None:
    assert is_quiet(exchange) is quiet
