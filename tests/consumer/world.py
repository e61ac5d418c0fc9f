"""Consumers, producers and the embedded broker in virtual time: no socket, no thread, no clock.

world = World(topics={"flights": 3})
a = world.consumer(group_id="g", auto_offset_reset="earliest")
a.subscribe("flights")
world.run(2_000)                      # virtual milliseconds; every client polls every 10 ms
a.values("flights")
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from random import Random
from typing import Any
from uuid import UUID

from consumer.engine import events as ev
from consumer.engine import producing
from consumer.engine.consumer import Engine, next_deadline, step
from consumer.engine.network import Broken, Data, Open, Opened, Shut, Write
from consumer.options import consumer_options, producer_options
from consumer.records import ConsumerRecord, GroupChange
from kproto.broker import machine
from kproto.broker.broker import Action, Broker, Close, Reply
from kproto.broker.call import Node
from kproto.broker.handlers.index import served
from kproto.broker.settings import Settings
from kproto.errors import KprotoError
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.delete_topics import DeleteTopicsRequest
from kproto.messages.headers import decode_request, encode_request, encode_response
from kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kproto.records import BatchBuilder
from kproto.wire.frame import Frames, frame
from kproto.wire.message import Message

START = 1_000_000
LATENCY = 1
POLL_EVERY = 10

# Sees each request before the broker: a message answers it in the broker's place, None lets it through.
Tamper = Callable[["Client", Message, int], Message | None]


def tp(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition)


class World:
    def __init__(
        self, topics: Mapping[str, int] | None = None, settings: Mapping[str, str | int] | None = None
    ) -> None:
        self.now = START
        self.ids = count(1)
        self.order = count()
        self.queue: list[tuple[int, int, Callable[[], None]]] = []
        properties = {
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1",
            **(settings or {}),
        }
        self.broker = Broker(Settings.from_properties(properties), Node(1, "broker", 9092), served())
        self.clients: list[Client] = []
        self.conns: dict[int, tuple[Client, int]] = {}
        self.tamper: Tamper | None = None
        self.down = False
        self.requests: list[tuple[Client, Message, int]] = []
        for name, partitions in (topics or {}).items():
            self.create(name, partitions)

    # ---- the operator

    def create(self, name: str, partitions: int) -> None:
        self._broker(machine.CreateTopic(name, partitions, self.random_id()))

    def grow(self, name: str, partitions: int) -> None:
        self._broker(machine.GrowTopic(name, partitions))

    def write(self, topic: str, partition: int, *values: str, **batch: Any) -> None:
        """Produces one batch as some other client; `batch` goes to `BatchBuilder.build`."""
        builder = BatchBuilder(max_bytes=2**30)
        for value in values:
            builder.append(self.now, None, value.encode())
        self.append(topic, partition, builder.build(**batch))

    def append(self, topic: str, partition: int, data: bytes) -> None:
        entry = PartitionProduceData(index=partition, records=data)
        topic_data = [TopicProduceData(name=topic, partition_data=[entry])]
        self.operator(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topic_data), 9)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """What retention does to the head of a log."""
        entry = DeleteRecordsPartition(partition_index=partition, offset=offset)
        topics = [DeleteRecordsTopic(name=topic, partitions=[entry])]
        self.operator(DeleteRecordsRequest(topics=topics, timeout_ms=1000), 2)

    def delete_topic(self, name: str) -> None:
        self.operator(DeleteTopicsRequest(topic_names=[name], timeout_ms=1000), 5)

    def operator(self, request: Message, version: int) -> None:
        """Sends a request on a connection of its own, and doesn't care for the answer."""
        conn = next(self.ids)
        self._broker(machine.Connected(conn, "operator"))
        self._broker(
            machine.Received(conn, encode_request(request, version, 1, "operator"), self.random_id())
        )

    def elect(self, topic: str, partition: int) -> None:
        self._broker(machine.ElectLeader(topic, partition))

    def spoil(self, topic: str, partition: int, *, batch: int) -> None:
        """Breaks the last byte of a stored batch, as a bad disk would."""
        found = self.broker.topics.named(topic)
        assert found is not None
        stored = found.partitions[partition].log._batches
        stored[batch] = stored[batch][:-1] + bytes([stored[batch][-1] ^ 0xFF])

    def random_id(self) -> UUID:
        return UUID(int=next(self.ids))

    # ---- clients

    def consumer(self, **options: Any) -> Consumer:
        made = Consumer(self, **options)
        self.clients.append(made)
        return made

    def producer(self, **options: Any) -> Producer:
        made = Producer(self, **options)
        self.clients.append(made)
        return made

    # ---- time

    def later(self, wait: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.queue, (self.now + wait, next(self.order), what))

    def run(self, ms: int = 10_000, until: Callable[[], bool] | None = None) -> bool:
        """Lets time pass; with `until`, stops when it holds; True when it held."""
        end = self.now + ms
        while True:
            if until is not None and until():
                return True
            due = self._next()
            if due is None or due > end:
                self.now = end
                return until is None or until()
            self.now = max(self.now, due)
            self._turn()

    def _next(self) -> int | None:
        times = [self.queue[0][0]] if self.queue else []
        if (at := machine.next_deadline(self.broker)) is not None:
            times.append(at)
        for client in self.clients:
            if client.alive:
                times += [at for at in (client.due(), client.poll_at) if at is not None]
        return min(times, default=None)

    def _turn(self) -> None:
        while self.queue and self.queue[0][0] <= self.now:
            heapq.heappop(self.queue)[2]()
        at = machine.next_deadline(self.broker)
        if at is not None and at <= self.now:
            self._broker(machine.Tick())
        for client in list(self.clients):
            if client.alive and (due := client.due()) is not None and due <= self.now:
                client.tick()
            if client.alive and client.poll_at is not None and client.poll_at <= self.now:
                client.poll_at = self.now + POLL_EVERY
                client.poll()

    # ---- the broker

    def _broker(self, event: machine.Event) -> None:
        self._act(machine.step(self.broker, event, self.now))

    def _act(self, actions: Iterable[Action]) -> None:
        for action in list(actions):
            match action:
                case Reply(conn=conn, frame=body):
                    self._broker(machine.Sent(conn))
                    self.later(LATENCY, lambda conn=conn, body=body: self._deliver(conn, frame(body)))  # type: ignore[misc]
                case Close(conn=conn):
                    self._hang_up(conn, "the broker closed the connection")
                case _:
                    pass

    def _deliver(self, conn: int, data: bytes) -> None:
        if conn in self.conns:
            client, key = self.conns[conn]
            client.happened(Data(key, data))

    def _hang_up(self, conn: int, why: str) -> None:
        if conn in self.conns:
            client, key = self.conns.pop(conn)
            client.gone(key)
            self.later(LATENCY, lambda: client.happened(Broken(key, why)))

    def cut(self, client: Client) -> None:
        """Breaks all connections of a client."""
        for conn in [conn for conn, (whose, _) in self.conns.items() if whose is client]:
            self._broker(machine.Disconnected(conn))
            self._hang_up(conn, "connection reset by peer")

    def connect(self, client: Client, key: int) -> None:
        if not client.alive:
            return
        if self.down:
            client.happened(Broken(key, "connection refused"))
            return
        conn = next(self.ids)
        self.conns[conn] = (client, key)
        client.conns[key] = (conn, Frames())
        self._broker(machine.Connected(conn, "client"))
        client.happened(Opened(key))

    def hear(self, conn: int, body: bytes) -> None:
        if conn not in self.conns:
            return
        client, _ = self.conns[conn]
        envelope = decode_request(body)
        self.requests.append((client, envelope.request, envelope.version))
        answer = self.tamper(client, envelope.request, envelope.version) if self.tamper is not None else None
        if answer is not None:
            reply = encode_response(answer, envelope.version, envelope.header.correlation_id)
            self.later(LATENCY, lambda: self._deliver(conn, frame(reply)))
        else:
            self._broker(machine.Received(conn, body, self.random_id()))

    def asked(self, client: Client, kind: type[Any]) -> list[Any]:
        """The requests of one kind that a client sent so far."""
        return [
            request for whose, request, _ in self.requests if whose is client and isinstance(request, kind)
        ]


class Client:
    """The wires of one engine."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.alive = True
        self.conns: dict[int, tuple[int, Frames]] = {}
        self.poll_at: int | None = None

    def due(self) -> int | None:
        raise NotImplementedError

    def tick(self) -> None:
        raise NotImplementedError

    def poll(self) -> None:
        raise NotImplementedError

    def happened(self, event: Any) -> None:
        raise NotImplementedError

    def gone(self, key: int) -> None:
        self.conns.pop(key, None)

    def wire(self, action: Any) -> bool:
        match action:
            case Open(key=key):
                self.world.later(LATENCY, lambda: self.world.connect(self, key))
            case Write(key=key, data=data):
                if key in self.conns:
                    conn, frames = self.conns[key]
                    for body in frames.feed(data):
                        self.world.later(LATENCY, lambda body=body: self.world.hear(conn, body))  # type: ignore[misc]
            case Shut(key=key):
                if key in self.conns:
                    conn, _ = self.conns.pop(key)

                    def hang_up() -> None:
                        # Behind what was written before, as a socket does it.
                        self.world.conns.pop(conn, None)
                        self.world._broker(machine.Disconnected(conn))

                    self.world.later(LATENCY, hang_up)
            case _:
                return False
        return True

    def kill(self) -> None:
        """The process dies: its sockets close, nothing is said."""
        self.alive = False
        for conn, _ in list(self.conns.values()):
            self.world.conns.pop(conn, None)
            self.world._broker(machine.Disconnected(conn))
        self.conns.clear()


class Consumer(Client):
    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world)
        self.engine = Engine([("broker", 9092)], consumer_options(options))
        self.records: list[ConsumerRecord] = []
        self.batches: list[Any] = []
        self.changes: list[GroupChange] = []
        self.calls: list[tuple[str, tuple[TopicPartition, ...]]] = []
        self.errors: list[KprotoError] = []
        self.done: dict[object, tuple[Any, KprotoError | None]] = {}
        self.limit = 500
        self.columns = False
        self.listener: Callable[[str, tuple[TopicPartition, ...]], None] = lambda kind, partitions: None
        # A callback that takes this long; the broker and the heartbeats go on meanwhile.
        self.callback_ms = 0
        self.in_callback = False
        self.waits = False

    def due(self) -> int | None:
        return next_deadline(self.engine)

    def tick(self) -> None:
        self.do(ev.Tick())

    def happened(self, event: Any) -> None:
        if self.alive:
            self.do(event)

    def do(self, event: ev.Event) -> None:
        for action in step(self.engine, event, self.world.now):
            if self.wire(action):
                continue
            match action:
                case ev.Deliver(rows=rows, columns=columns):
                    self.records += rows
                    self.batches += columns
                case ev.Raise(error=error):
                    self.errors.append(error)
                case ev.Report(change=change):
                    self.changes.append(change)
                case ev.Done(token=token, value=value, error=error):
                    self.done[token] = (value, error)
                case ev.Wake() if self.waits:
                    self.world.later(0, self._look)
                case ev.CallListener(kind=kind, partitions=partitions):
                    self._call(kind, partitions)
                case _:
                    pass

    def _call(self, kind: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.calls.append((kind, partitions))
        self.listener(kind, partitions)
        if self.callback_ms:
            self.in_callback = True
            self.world.later(self.callback_ms, self._returned)
        else:
            self.do(ev.ListenerReturned())

    def _returned(self) -> None:
        self.in_callback = False
        if self.alive:
            self.do(ev.ListenerReturned())
            if self.waits:
                self._look()
            else:
                self.do(ev.PollEnded())

    def poll(self) -> None:
        if not self.in_callback and not self.engine.closed:
            self.do(ev.PollBegan())
            self.do(ev.Take(self.limit, self.columns))
            if not self.in_callback:
                self.do(ev.PollEnded())

    def wait_in_poll(self, ms: int) -> None:
        """Is in one poll after the other for so long, as an iteration is; each waits for something."""
        self.poll_at = None
        self.waits = True
        self.do(ev.PollBegan())
        self._look()
        self.world.later(ms, self._stop_waiting)

    def _look(self) -> None:
        if self.waits and self.alive and not self.in_callback:
            before = len(self.records) + len(self.batches) + len(self.calls) + len(self.errors)
            self.do(ev.Take(self.limit, self.columns))
            if before != len(self.records) + len(self.batches) + len(self.calls) + len(self.errors):
                if not self.in_callback:
                    self.do(ev.PollEnded())
                    self.do(ev.PollBegan())
                self.world.later(0, self._look)

    def _stop_waiting(self) -> None:
        if self.waits and self.alive:
            self.waits = False
            self.do(ev.PollEnded())

    # ---- what tests say

    def subscribe(self, *topics: str, pattern: str | None = None) -> None:
        self.do(ev.Subscribe(frozenset(topics), pattern))
        self.poll_at = self.world.now

    def assign(self, partitions: Mapping[TopicPartition, int | None]) -> None:
        self.do(ev.Assign(partitions))
        self.poll_at = self.world.now

    def pause_polling(self) -> None:
        self.poll_at = None

    def go_on_polling(self) -> None:
        self.poll_at = self.world.now

    def close(self, *, leave: bool = True, timeout_ms: int = 30_000) -> None:
        """Closes as a shell does: serves callbacks until it is done."""
        self.poll_at = None
        token = object()
        self.do(ev.Close(token, leave, timeout_ms))

        def serve() -> None:
            if token not in self.done:
                self.do(ev.ServeListener())
                self.world.later(1, serve)
            else:
                self.alive = False

        serve()

    def owns(self) -> set[TopicPartition]:
        return set(self.engine.partitions) if self.alive else set()

    def values(self, topic: str | None = None, partition: int | None = None) -> list[str]:
        return [
            (record.value or b"").decode()
            for record in self.records
            if topic in (None, record.topic) and partition in (None, record.partition)
        ]

    def heard(self, kind: str) -> list[GroupChange]:
        return [change for change in self.changes if change.kind == kind]


class Producer(Client):
    def __init__(self, world: World, **options: Any) -> None:
        super().__init__(world)
        self.engine = producing.ProducerEngine(
            [("broker", 9092)], producer_options(options), random=Random(1)
        )
        self.changes: list[GroupChange] = []

    def due(self) -> int | None:
        return self.engine.due()

    def tick(self) -> None:
        self.happened(ev.Tick())

    def happened(self, event: Any) -> None:
        if self.alive:
            for action in producing.step(self.engine, event, self.world.now):
                self.wire(action)

    def send(
        self, topic: str, value: str, key: str | None = None, partition: int | None = None
    ) -> tuple[producing.OutBatch, int] | producing.Full:
        self.engine.core.now = self.world.now
        key_bytes = None if key is None else key.encode()
        return self.engine.append(topic, key_bytes, value.encode(), partition, self.world.now, ())

    def must_send(self, topic: str, value: str, **where: Any) -> producing.OutBatch:
        """Sends, waiting for metadata if need be."""
        for _ in range(200):
            placed = self.send(topic, value, **where)
            if not isinstance(placed, producing.Full):
                return placed[0]
            self.tick()
            self.world.run(10)
        raise AssertionError("the record was never taken")
