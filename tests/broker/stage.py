"""A stage for the broker: virtual time, clients without sockets, requests with all arguments defaulted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from kproto.broker.apis.table import served
from kproto.broker.broker import (
    Action,
    Broker,
    Close,
    GroupCoordinatorStep,
    LogsCleaned,
    Reply,
    TransactionCoordinatorStep,
)
from kproto.broker.call import Node
from kproto.broker.log import Log
from kproto.broker.machine import (
    Connected,
    CreateTopic,
    Disconnected,
    Event,
    Received,
    Sent,
    Tick,
    next_deadline,
    step,
)
from kproto.broker.settings import Settings
from kproto.broker.topics import NO_ID, Topic
from kproto.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kproto.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kproto.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from kproto.records import encode_batch, rows
from kproto.records.record import Record
from kproto.wire.message import Message

M = TypeVar("M", bound=Message)

NEWEST: dict[int, int] = {22: 5}  # the version to ask in, where it is not the last one that is declared


class Stage:
    """A broker, its clients, and a clock that stands still unless it is moved."""

    def __init__(self, topics: dict[str, int] | None = None, **settings: str | int) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self.broker = Broker(Settings.from_properties(named), Node(1, "localhost", 9092), served())
        self.now = 1_000_000
        self.closed: dict[int, str] = {}
        self.told: list[GroupCoordinatorStep | TransactionCoordinatorStep] = []
        self._ids = count(1)
        self._clients: dict[int, Client] = {}
        for name, partitions in (topics or {}).items():
            self.step(CreateTopic(name, partitions, self.random_id()))

    def random_id(self) -> UUID:
        return UUID(int=next(self._ids) << 64)

    def client(self) -> Client:
        client = Client(self, next(self._ids))
        self._clients[client.conn] = client
        self.step(Connected(client.conn, "10.0.0.7"))
        return client

    def step(self, event: Event) -> list[Action]:
        """Give the event to the broker; its answers go to the clients, which take them at once."""
        actions = step(self.broker, event, self.now)
        for action in actions:
            if isinstance(action, Reply):
                client = self._clients[action.conn]
                client.answers.append(action.frame)
                if client.reads:
                    self.step(Sent(action.conn))
            elif isinstance(action, Close):
                self.closed[action.conn] = action.reason
            elif not isinstance(action, LogsCleaned):
                self.told.append(action)
        return actions

    def wait(self, ms: int) -> None:
        """Let time pass, with a tick wherever the broker wants one."""
        end = self.now + ms
        while (due := next_deadline(self.broker)) is not None and due <= end:
            self.now = max(self.now, due)
            self.step(Tick())
        self.now = end

    def topic(self, name: str) -> Topic:
        topic = self.broker.topics.named(name)
        assert topic is not None
        return topic

    def log(self, name: str, partition: int = 0) -> Log:
        return self.topic(name).partitions[partition].log


class Client:
    """One connection. `ask` expects the answer at once; `send` doesn't, and `answer` takes the next one."""

    def __init__(self, stage: Stage, conn: int) -> None:
        self.stage = stage
        self.conn = conn
        self.reads = True
        self.answers: list[bytes] = []
        self._asked: list[tuple[type[Message], int, int]] = []
        self._correlation = count(1)

    def send(self, request: Message, version: int | None = None, *, expects: bool = True) -> None:
        key = request.__api_key__
        assert key is not None
        if version is None:
            version = NEWEST.get(key, request.__versions__.max)
        correlation = next(self._correlation)
        if expects:
            self._asked.append((response_class(key), version, correlation))
        self.send_bytes(encode_request(request, version, correlation, "a client"))
        self.stage.wait(0)  # what is due now, as the join of a first member without an initial delay

    def send_bytes(self, frame: bytes) -> None:
        self.stage.step(Received(self.conn, frame, self.stage.random_id()))

    def answer(self) -> Any:
        """The next answer; it must be the one to the oldest open request."""
        kind, version, correlation = self._asked.pop(0)
        assert self.answers, f"no {kind.__name__} yet; closed: {self.stage.closed.get(self.conn)}"
        got, response = decode_response(self.answers.pop(0), kind, version)
        assert got == correlation
        return response

    def ask(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return self.answer()

    def leave(self) -> None:
        self.stage.step(Disconnected(self.conn))

    # Requests that many tests need.

    def produce(
        self,
        batch: bytes | None,
        topic: str = "t",
        partition: int = 0,
        *,
        acks: int = -1,
        version: int | None = None,
        topic_id: UUID | None = None,
    ) -> PartitionProduceResponse:
        known = self.stage.broker.topics.id(topic)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=1000,
            topic_data=[
                TopicProduceData(
                    name=topic,
                    topic_id=topic_id or known or NO_ID,
                    partition_data=[PartitionProduceData(index=partition, records=batch)],
                )
            ],
        )
        answer = self.ask(request, version)
        result: PartitionProduceResponse = answer.responses[0].partition_responses[0]
        return result

    def fetch(self, request: FetchRequest, version: int = 12) -> FetchResponse:
        response: FetchResponse = self.ask(request, version)
        return response

    def list_offsets(
        self,
        timestamp: int,
        topic: str = "t",
        partition: int = 0,
        epoch: int = -1,
        version: int | None = None,
    ) -> ListOffsetsPartitionResponse:
        asked = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
        result: ListOffsetsPartitionResponse = self.ask(request, version).topics[0].partitions[0]
        return result


def batch_of(
    *values: bytes,
    timestamps: Sequence[int] | None = None,
    compression: str = "none",
    **fields: Any,
) -> bytes:
    """One batch with these values, at 1000, 1001, ... ms."""
    times = timestamps or range(1000, 1000 + len(values))
    records = [
        Record(i, time, None, value) for i, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    return encode_batch(records, compression=compression, **fields)


def wanted(
    offset: int = 0,
    partition: int = 0,
    *,
    topic: str = "t",
    topic_id: UUID = NO_ID,
    max_bytes: int = 1 << 20,
    epoch: int = -1,
    fetched_epoch: int = -1,
) -> FetchTopic:
    """One partition to fetch."""
    asked = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=epoch,
        last_fetched_epoch=fetched_epoch,
    )
    return FetchTopic(topic=topic, topic_id=topic_id, partitions=[asked])


def fetching(
    *topics: FetchTopic,
    wait: int = 500,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    session: tuple[int, int] = (0, -1),
    forget: Iterable[ForgottenTopic] = (),
    isolation: int = 0,
) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=wait,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation,
        session_id=session[0],
        session_epoch=session[1],
        topics=list(topics),
        forgotten_topics_data=list(forget),
    )


def joining(member_id: str = "", *, group: str = "g", session: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def answered(response: FetchResponse) -> list[PartitionData]:
    """The answers of all partitions, in order."""
    topics: list[FetchableTopicResponse] = response.responses
    return [data for topic in topics for data in topic.partitions]


def values(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in rows(data.records or b"")]
