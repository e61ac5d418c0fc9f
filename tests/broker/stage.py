"""Helpers for the broker tests: a broker in virtual time, clients, and requests."""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeVar
from uuid import UUID

from kproto.broker.apis.table import served_versions
from kproto.broker.broker import (
    Action,
    Broker,
    Disconnect,
    GroupCoordinatorStep,
    LogsCleaned,
    SendFrame,
    TransactionCoordinatorStep,
)
from kproto.broker.call import Node
from kproto.broker.cluster import BrokerCluster
from kproto.broker.log import Log
from kproto.broker.machine import (
    ClientConnected,
    ClientDisconnected,
    CreateTopic,
    Event,
    FrameReceived,
    ResponseSent,
    Tick,
    next_deadline,
    step,
)
from kproto.broker.settings import Settings
from kproto.broker.topics import NO_ID, Topic
from kproto.group.classic.coordinator import ClassicCoordinator
from kproto.messages.api_versions import ApiVersionsRequest
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
from kproto.wire.frame import frame
from kproto.wire.message import Message

_CONNS = count(1)
PATIENCE = 20.0

M = TypeVar("M", bound=Message)

# API key -> the newest served version, where it differs from the newest declared one
NEWEST: dict[int, int] = {22: 5}


class Stage:
    """A broker with its clients, in virtual time: only the test advances the clock."""

    def __init__(
        self,
        topics: dict[str, int] | None = None,
        *,
        highest: dict[str, int] | None = None,
        **settings: str | int,
    ) -> None:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        apis = served_versions(highest, telemetry=True)
        self.broker = Broker(Settings.from_properties(named), Node(1, "localhost", 9092), apis)
        self.now = 1_000_000
        self.closed: dict[int, str] = {}
        self.reports: list[GroupCoordinatorStep | TransactionCoordinatorStep] = []
        self._ids = count(1)
        self._clients: dict[int, Client] = {}
        for name, partitions in (topics or {}).items():
            self.step(CreateTopic(name, partitions, self.random_id()))

    def random_id(self) -> UUID:
        return UUID(int=next(self._ids) << 64)

    def client(self) -> Client:
        client = Client(self, next(self._ids))
        self._clients[client.conn] = client
        self.step(ClientConnected(client.conn, "10.0.0.7"))
        return client

    def step(self, event: Event) -> list[Action]:
        """Step the broker, and pass its responses to the clients.

        If a client's `reads` is true, each response counts as sent immediately, and the broker serves the
        connection's next request. Otherwise the request waits until the test sends `ResponseSent`.
        """
        actions = step(self.broker, event, self.now)
        for action in actions:
            if isinstance(action, SendFrame):
                client = self._clients[action.conn]
                client.answers.append(action.frame)
                if client.reads:
                    self.step(ResponseSent(action.conn))
            elif isinstance(action, Disconnect):
                self.closed[action.conn] = action.reason
            elif not isinstance(action, LogsCleaned):
                self.reports.append(action)
        return actions

    def wait(self, ms: int) -> None:
        """Advance the clock, with a tick at every deadline of the broker."""
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
    """One connection. `ask` calls `send` with a request, and returns the response from `answer`."""

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
        self.stage.wait(0)  # Handle deadlines that are due, such as an initial rebalance delay of 0.

    def send_bytes(self, frame: bytes) -> None:
        self.stage.step(FrameReceived(self.conn, frame, self.stage.random_id()))

    def answer(self) -> Any:
        """Return the next response, which must belong to the oldest pending request."""
        kind, version, correlation = self._asked.pop(0)
        assert self.answers, f"no {kind.__name__} yet; closed: {self.stage.closed.get(self.conn)}"
        got, response = decode_response(self.answers.pop(0), kind, version)
        assert got == correlation
        return response

    def ask(self, request: Message, version: int | None = None) -> Any:
        self.send(request, version)
        return self.answer()

    def leave(self) -> None:
        self.stage.step(ClientDisconnected(self.conn))

    # Requests of many tests.

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
        response = self.ask(request, version)
        result: PartitionProduceResponse = response.responses[0].partition_responses[0]
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
        requested = ListOffsetsPartition(
            partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch
        )
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[requested])]
        )
        result: ListOffsetsPartitionResponse = self.ask(request, version).topics[0].partitions[0]
        return result


def classic_coordinator(cluster: BrokerCluster) -> ClassicCoordinator:
    """Return the coordinator of the classic groups of a cluster."""
    coordinator = cluster.coordinator.by_type["classic"]
    assert isinstance(coordinator, ClassicCoordinator)
    return coordinator


def batch_of(
    *values: bytes,
    timestamps: Sequence[int] | None = None,
    compression: str = "none",
    **fields: Any,
) -> bytes:
    """Return a batch of these values. The default timestamps are 1000, 1001, ..."""
    times = timestamps or range(1000, 1000 + len(values))
    records = [
        Record(i, time, None, value) for i, (time, value) in enumerate(zip(times, values, strict=True))
    ]
    return encode_batch(records, compression=compression, **fields)


def fetch_topic(
    offset: int = 0,
    partition: int = 0,
    *,
    topic: str = "t",
    topic_id: UUID = NO_ID,
    max_bytes: int = 1 << 20,
    epoch: int = -1,
    fetched_epoch: int = -1,
) -> FetchTopic:
    """Return the entry of a topic, with one partition, for a Fetch request."""
    requested = FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=epoch,
        last_fetched_epoch=fetched_epoch,
    )
    return FetchTopic(topic=topic, topic_id=topic_id, partitions=[requested])


def fetch_request(
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


def join_request(member_id: str = "", *, group: str = "g", session: int = 10_000) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=session,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def partitions_of(response: FetchResponse) -> list[PartitionData]:
    """Return the data of all partitions in a Fetch response, in the order of the response."""
    topics: list[FetchableTopicResponse] = response.responses
    return [data for topic in topics for data in topic.partitions]


def values_of(data: PartitionData) -> list[bytes | None]:
    return [record.value for record in rows(data.records or b"")]


class TwoBrokers:
    """Two brokers of one cluster, with a connection to each."""

    def __init__(self) -> None:
        settings = Settings.from_properties({"group.initial.rebalance.delay.ms": "0"})
        nodes = [Node(1, "one", 9092), Node(2, "two", 9092)]
        self.cluster = BrokerCluster(settings, nodes)
        self.brokers = {
            node.id: Broker(settings, node, served_versions(), cluster=self.cluster) for node in nodes
        }
        self.conns: dict[int, int] = {}
        self.answers: dict[int, Message] = {}
        self.asked: dict[int, tuple[int, int]] = {}
        self.now = 1000
        for node, broker in self.brokers.items():
            self.conns[node] = next(_CONNS)
            step(broker, ClientConnected(self.conns[node], "client"), self.now)
        self.step(1, CreateTopic("t", 2, UUID(int=7)))

    def step(self, node: int, event: Event) -> None:
        for action in step(self.brokers[node], event, self.now):
            if isinstance(action, SendFrame):
                key, version = self.asked[action.conn]
                _, self.answers[action.conn] = decode_response(action.frame, response_class(key), version)

    def ask(self, node: int, request: Message, version: int) -> Message | None:
        """Send a request; return the response, or None if the broker delays the response."""
        conn = next(_CONNS)
        step(self.brokers[node], ClientConnected(conn, "client"), self.now)
        key = type(request).__api_key__
        assert key is not None
        self.asked[conn] = (key, version)
        self.step(node, FrameReceived(conn, encode_request(request, version, 1, "c"), UUID(int=conn)))
        self.conns[node] = conn
        return self.answers.get(conn)


class Socket:
    """A client on a blocking socket: one request, one response."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)

    def send(self, request: Message, version: int, client_id: str | None = "me") -> None:
        self.socket.sendall(frame(encode_request(request, version, 1, client_id)))

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection before the end of a response")
            data += more
        return data

    def answer(self, kind: type[Message], version: int) -> Any:
        (size,) = struct.unpack(">i", self.receive(4))
        return decode_response(self.receive(size), kind, version)[1]

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        assert request.__api_key__ is not None
        return self.answer(response_class(request.__api_key__), version)

    def listed_versions(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest version of each API that the broker lists."""
        listed = self.ask(ApiVersionsRequest(), 0).api_keys
        return {entry.api_key: (entry.min_version, entry.max_version) for entry in listed}

    def closed_by_broker(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def connected(bootstrap: str) -> Generator[Socket]:
    client = Socket(bootstrap)
    with client.socket:
        yield client


# Pairs of a topic config and a value that Kafka 4.3 accepts for this config.
VALID_TOPIC_CONFIGS = (
    ("retention.ms", " 5 "),
    ("retention.ms", "+5"),
    ("retention.ms", "-1"),
    ("retention.ms", "\u0663"),  # The Arabic-Indic digit three, which Java parses as 3.
    ("retention.ms", "9223372036854775807"),
    ("retention.bytes", "-5"),
    ("max.message.bytes", "2147483647"),
    ("message.timestamp.type", " LogAppendTime"),
    ("compression.type", " gzip"),
    ("compression.gzip.level", "-1"),
    ("compression.lz4.level", "17"),
    ("compression.zstd.level", "-131072"),
    ("preallocate", " TRUE "),
    ("cleanup.policy", ""),
    ("cleanup.policy", " "),
    ("cleanup.policy", "compact , delete"),
    ("cleanup.policy", "delete,delete"),
    ("min.cleanable.dirty.ratio", "5e-1"),
    ("min.cleanable.dirty.ratio", "1."),
    ("min.cleanable.dirty.ratio", "-0"),
    ("min.cleanable.dirty.ratio", "NaN"),
    ("min.cleanable.dirty.ratio", "0.5f"),
    ("min.cleanable.dirty.ratio", "1d"),
    ("min.cleanable.dirty.ratio", "0x1p-1"),
    ("leader.replication.throttled.replicas", "*"),
    ("leader.replication.throttled.replicas", "1:1,2:1"),
    ("leader.replication.throttled.replicas", ",1:1 , 1:1,"),
    ("leader.replication.throttled.replicas", "*,"),
)

# Pairs of a topic config and a value that Kafka 4.3 rejects for this config.
INVALID_TOPIC_CONFIGS = (
    ("no.such.config", "1"),
    ("retention.ms", ""),
    ("retention.ms", "soon"),
    ("retention.ms", "-2"),
    ("retention.ms", "--5"),
    ("retention.ms", "\u00b2"),  # Superscript two: `str.isdigit` accepts it, but `int` does not.
    ("retention.ms", "1_000"),
    ("retention.ms", "9" * 5000),
    ("retention.ms", "9223372036854775808"),
    ("max.message.bytes", "2147483648"),
    ("min.insync.replicas", "99999999999"),
    ("segment.bytes", "1000"),
    ("message.timestamp.type", "logappendtime"),
    ("compression.type", "GZIP"),
    ("compression.gzip.level", "0"),
    ("compression.gzip.level", "10"),
    ("compression.lz4.level", "0"),
    ("compression.zstd.level", "23"),
    ("preallocate", "yes"),
    ("cleanup.policy", "shred"),
    ("cleanup.policy", "delete,"),
    ("cleanup.policy", ","),
    ("cleanup.policy", "Delete"),
    ("min.cleanable.dirty.ratio", "1.1"),
    ("min.cleanable.dirty.ratio", "half"),
    ("min.cleanable.dirty.ratio", "nan"),
    ("min.cleanable.dirty.ratio", "Infinity"),
    ("min.cleanable.dirty.ratio", "0x1"),
    ("min.cleanable.dirty.ratio", "0_1"),
    ("min.cleanable.dirty.ratio", "\u0661"),
    ("leader.replication.throttled.replicas", "x"),
    ("leader.replication.throttled.replicas", "1:1,*"),
    ("leader.replication.throttled.replicas", "*,*"),
    ("remote.storage.enable", "true"),
)
