"""One kafka-go Reader and a coordinator whose responses the test chooses, one request at a time."""

from __future__ import annotations

from typing import Any

from kproto.group.subscription import Assignment, TopicPartition
from kproto.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.heartbeat import HeartbeatResponse
from kproto.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from kproto.messages.leave_group import LeaveGroupResponse
from kproto.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kproto.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from kproto.messages.offset_commit import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from kproto.messages.sync_group import SyncGroupResponse
from kproto.models import contract as c
from kproto.models import kafka_go
from kproto.records import Record, encode_batch
from kproto.wire.message import Message


def tp(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


class ReaderStage:
    """A kafka-go Reader and its actions: all of them in `said`, and the requests without a response in
    `open`.
    """

    def __init__(self, **options: Any) -> None:
        settings = {"client_id": "me", "group_id": "g", "reset": "earliest", "heartbeat_ms": 200, **options}
        self.state = kafka_go.start(c.ModelConfig(**settings))
        self.now = 1_000
        self.said: list[c.ModelAction] = []
        self.open: list[c.SendRequest] = []
        self.partitions = 2
        self.logs: dict[int, int] = {0: 0, 1: 0}
        self.errors: dict[type[Message], list[int]] = {}
        self.leads = True
        self.metadata = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"

    def do(self, event: c.ModelEvent) -> list[c.ModelAction]:
        out = kafka_go.step(self.state, event, self.now)
        self.said += out
        assert len(self.said) < 5_000, "the Reader sends requests without end"
        for action in out:
            if isinstance(action, c.SendRequest):
                self.open.append(action)
            if isinstance(action, c.CloseConnection):
                self.open = [request for request in self.open if request.to != action.address]
        return out

    def begin(self, *topics: str) -> ReaderStage:
        self.do(c.Started((("broker", 9092),), {1: (4, 18), 3: (0, 13)}))
        self.do(c.SubscribeCalled(topics or ("t",)))
        return self

    def join(self) -> ReaderStage:
        """Start the Reader, and answer all of its requests except the first fetches."""
        self.begin()
        self.settle()
        return self

    def settle(self, *, but: tuple[str, ...] = ("Fetch",)) -> None:
        """Answer all open requests and the requests that follow, except requests to the APIs in `but`."""
        while unanswered := [action for action in self.open if request_name(action) not in but]:
            self.answer(unanswered[0])

    def answer(self, sent: c.SendRequest, error: int | None = None) -> list[c.ModelAction]:
        self.open.remove(sent)
        codes = self.errors.get(type(sent.request), [])
        code = error if error is not None else codes.pop(0) if codes else 0
        return self.do(c.ResponseReceived(sent.request, self.response(sent.request, code), sent.version))

    def wait(self, ms: int) -> None:
        """Advance the time, wake the Reader at each deadline, and answer its requests immediately."""
        end, turns = self.now + ms, 0
        while (due := kafka_go.next_deadline(self.state)) is not None and due <= end:
            turns = turns + 1 if due <= self.now else 0
            assert turns < 1_000, "the Reader has a deadline that has passed"
            self.now = max(self.now, due)
            self.do(c.DeadlineReached())
            self.settle()
        self.now = end

    def requests_of(self, kind: str) -> list[Any]:
        return [
            line.request
            for line in self.said
            if isinstance(line, c.SendRequest) and request_name(line) == kind
        ]

    def names(self) -> list[str]:
        """Return the names of all requests, in order."""
        return [request_name(line) for line in self.said if isinstance(line, c.SendRequest)]

    def actions_of(self, kind: type[Any]) -> list[Any]:
        return [line for line in self.said if isinstance(line, kind)]

    def fetch(self, partition: int) -> c.SendRequest:
        return next(
            action
            for action in self.open
            if request_name(action) == "Fetch"
            and action.request.topics[0].partitions[0].partition == partition  # type: ignore[attr-defined]
        )

    def records(self, partition: int, *values: bytes) -> None:
        """Answer the open fetch of a partition with these records."""
        sent = self.fetch(partition)
        self.open.remove(sent)
        start = self.logs[partition]
        self.logs[partition] += len(values)
        rows = [Record(start + index, 0, None, value) for index, value in enumerate(values)]
        data = PartitionData(
            partition_index=partition,
            error_code=0,
            high_watermark=self.logs[partition],
            last_stable_offset=self.logs[partition],
            aborted_transactions=None,
            records=encode_batch(rows, base_offset=start) if rows else b"",
        )
        topics = [FetchableTopicResponse(topic="t", partitions=[data])]
        self.do(c.ResponseReceived(sent.request, FetchResponse(throttle_time_ms=0, responses=topics), 10))

    def response(self, request: Any, code: int) -> Message:
        match type(request).__name__.removesuffix("Request"):
            case "FindCoordinator":
                return FindCoordinatorResponse(error_code=code, node_id=1, host="broker", port=9092)
            case "JoinGroup":
                members = [JoinGroupResponseMember(member_id="m-1", metadata=self.metadata)]
                return JoinGroupResponse(
                    error_code=code,
                    generation_id=len(self.requests_of("JoinGroup")),
                    protocol_name="range",
                    leader="m-1" if self.leads else "m-0",
                    member_id="m-1",
                    members=members if self.leads else [],
                )
            case "SyncGroup":
                owned = tuple(tp(partition) for partition in range(self.partitions))
                return SyncGroupResponse(error_code=code, assignment=Assignment(partitions=owned).encode(1))
            case "OffsetFetch":
                partitions = [
                    OffsetFetchResponsePartition(
                        partition_index=number, committed_offset=-1, metadata="", error_code=code
                    )
                    for topic in request.topics
                    for number in topic.partition_indexes
                ]
                return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=partitions)])
            case "Metadata":
                partitions = [
                    MetadataResponsePartition(
                        error_code=0, partition_index=partition, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for partition in range(self.partitions)
                ]
                topic = MetadataResponseTopic(
                    error_code=code, name="t", partitions=[] if code else partitions
                )
                return MetadataResponse(
                    brokers=[MetadataResponseBroker(node_id=1, host="broker", port=9092)], topics=[topic]
                )
            case "ListOffsets":
                partition_request = request.topics[0].partitions[0]
                offset = (
                    0
                    if partition_request.timestamp == -2
                    else self.logs.get(partition_request.partition_index, 0)
                )
                number = ListOffsetsPartitionResponse(
                    partition_index=partition_request.partition_index, error_code=code, offset=offset
                )
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[number])])
            case "Heartbeat":
                return HeartbeatResponse(error_code=code)
            case "OffsetCommit":
                answers = [
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in request.topics[0].partitions
                ]
                return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=answers)])
            case _:
                return LeaveGroupResponse(error_code=code)


def request_name(sent: c.SendRequest) -> str:
    return type(sent.request).__name__.removesuffix("Request")
