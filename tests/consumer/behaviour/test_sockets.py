"""What a network does to clients, on real sockets: names, files, addresses, and peers that are no brokers."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import resource
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from consumer import AsyncCluster, AsyncConsumer, AsyncProducer, Cluster, Consumer, Producer, TopicPartition
from consumer.aio.streams import Streams, _Protocol
from consumer.blocking.socket_reads import MIN_WAKEUP_BYTES, VERY_LONG
from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import (
    Answer,
    Broken,
    Data,
    NetworkAction,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from consumer.resolver import sort_addresses
from consumer.security.tls import Tls, context
from kproto.broker.server import Server, running
from kproto.errors import ConnectionFailed, KprotoError, RecordError, RequestTimedOut
from kproto.records import Record, encode_batch
from kproto.wire.frame import frame
from tests.consumer.behaviour.socket_servers import Script, serving, several

trustme = pytest.importorskip("trustme")
CA = trustme.CA()


def told(perform: Callable[[Sockets], object], enough: Callable[[list[NetworkEvent]], bool]) -> list[Any]:
    """What `Sockets` tell until it is enough."""
    sockets, events = Sockets(), list[NetworkEvent]()
    try:
        perform(sockets)
        end = time.monotonic() + 30
        while not enough(events):
            assert time.monotonic() < end, events
            events += sockets.wait(0.1)
    finally:
        sockets.close()
    return events


async def told_async(
    perform: Callable[[Streams], object], enough: Callable[[list[NetworkEvent]], bool]
) -> list[Any]:
    """The same of `Streams`."""
    events: list[NetworkEvent] = []
    streams = Streams(events.append)
    perform(streams)
    async with asyncio.timeout(10):
        while not enough(events):
            await asyncio.sleep(0.01)
    streams.close()
    await asyncio.sleep(0)
    return events


BAD_PLACES = {
    "an empty label": ("a..b", 9092),
    "a label of 64 letters": ("a" * 64 + ".example", 9092),
    "half a surrogate pair": ("\udcff.example", 9092),
    "a zero byte": ("a\0b", 9092),
    "a port beyond 65535": ("127.0.0.1", 70_000),
    "a port that nobody listens on": ("127.0.0.1", 1),
}


@pytest.mark.parametrize("place", BAD_PLACES.values(), ids=BAD_PLACES)
def test_a_place_that_is_none_is_a_broken_connection(place: tuple[str, int]) -> None:
    [event] = told(lambda sockets: sockets.perform(Open(1, *place)), bool)
    assert isinstance(event, Broken)
    assert event.why


@pytest.mark.parametrize("place", BAD_PLACES.values(), ids=BAD_PLACES)
def test_a_place_that_is_none_is_a_broken_connection_to_asyncio(place: tuple[str, int]) -> None:
    [event] = asyncio.run(told_async(lambda streams: streams.perform(Open(1, *place)), bool))
    assert isinstance(event, Broken)
    assert event.why


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        [event] = told(lambda sockets: sockets.perform(Open(1, "broker.test", port)), bool)
        assert event == Opened(1)
        [event] = asyncio.run(told_async(lambda streams: streams.perform(Open(1, "broker.test", port)), bool))
        assert event == Opened(1)


def test_a_connection_that_is_shut_in_whatever_turn_of_the_loop_is_shut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted, ended = list[bytes](), list[bytes]()

    def until_it_ends(sock: socket.socket) -> None:
        accepted.append(b"")
        ended.append(sock.recv(1))

    def addresses(host: str, port: int, *_: object, **__: object) -> Any:  # at once, without a thread
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)

    async def play(port: int) -> int:
        for turns in itertools.count():
            told: list[NetworkEvent] = []
            streams = Streams(told.append)
            streams.perform(Open(1, "broker.test", port))
            for _ in range(turns):
                await asyncio.sleep(0)
            streams.perform(Shut(1))
            if Opened(1) in told:
                return turns
        raise AssertionError

    with serving(until_it_ends) as place:
        host, port = place.split(":")

        async def main() -> int:
            turns = await play(int(port))
            socket.create_connection((host, int(port))).close()  # behind all others
            async with asyncio.timeout(10):
                while not accepted or len(ended) < len(accepted):
                    await asyncio.sleep(0.01)
            return turns

        assert asyncio.run(main()) > 2


_AFTER_MAIN = """
import asyncio, sys, threading
from consumer import AsyncConsumer, ConsumerGroup

class Handler:
    def setup(self, session): pass
    def cleanup(self, session): pass
    def consume_claim(self, session, claim):
        for message in claim:
            return print("group", message.value, flush=True)

async def read():
    async with AsyncConsumer(sys.argv[1], group_id="a", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["t"])
        while not (records := await consumer.poll(1)): pass
        print("asyncio", records[0].value, flush=True)

def work():
    threading.main_thread().join()
    with ConsumerGroup(sys.argv[1], group_id="b", auto_offset_reset="earliest") as group:
        group.consume(["t"], Handler())
    asyncio.run(read())

threading.Thread(target=work).start()
"""


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_clients_of_a_loop_read_on_when_the_main_thread_has_ended(host: str) -> None:
    with running(topics={"t": 1}) as server:
        fill(server)
        place = f"{host}:{server.bootstrap.rpartition(':')[2]}"
        order = [sys.executable, "-c", _AFTER_MAIN, place]
        done = subprocess.run(order, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "group b'after'\nasyncio b'after'\n", done.stderr


def test_a_loop_looks_a_name_up_once_however_many_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.1")
    real, asked, looked_up, both = socket.getaddrinfo, list[str](), list[str](), threading.Event()

    def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if named.get("flags", 0) & socket.AI_NUMERICHOST:
            asked.append(host)
            if len(asked) == 2:
                both.set()
        else:
            looked_up.append(host)
            both.wait(10)
        return real(host, port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def three(streams: Streams) -> None:
        for key in (1, 2, 3):
            streams.perform(Open(key, "broker.test", port))
        streams.perform(Shut(2))

    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        events = asyncio.run(told_async(three, lambda events: len(events) == 2))
    assert sorted(event.key for event in events) == [1, 3]
    assert looked_up == ["broker.test"]


def test_an_address_of_the_other_family_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.1", "::1")
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("no IPv6 here")
    with listener:
        [event] = told(
            lambda sockets: sockets.perform(Open(1, "broker.test", listener.getsockname()[1])), bool
        )
    assert event == Opened(1)


def test_the_address_that_was_given_up_is_tried_last_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    tried: list[Any] = []

    class Silent(socket.socket):
        def connect(self, address: Any) -> None:
            tried.append(address[0])
            raise BlockingIOError

    monkeypatch.setattr(socket, "socket", Silent)
    sockets = Sockets()
    for key in (1, 2):
        sockets.perform(Open(key, "broker.test", 9))
        end = time.monotonic() + 5
        while len(tried) < key and time.monotonic() < end:
            sockets.wait(0.05)
        sockets.perform(Shut(key))
    sockets.close()
    assert tried == ["127.0.0.1", "127.0.0.2"]


def test_a_look_may_be_for_longer_than_a_selector_counts() -> None:
    sockets = Sockets()
    sockets.wake()
    sockets.poll(60 * 86_400)  # a session with a token of two months is renewed so late
    sockets.close()


def test_ipv4_comes_first() -> None:
    answer = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9)),
    ]
    assert [address for _, address in sort_addresses(answer)] == [("127.0.0.1", 9), ("::1", 9, 0, 0)]


def test_a_slow_name_server_stops_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Event(), threading.Event()
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if host == "slow.test" and not named.get("flags", 0) & socket.AI_NUMERICHOST:
            asked.set()
            go_on.wait(10)
            return real("127.0.0.1", port, type=socket.SOCK_STREAM)
        return real(host, port, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    sockets = Sockets()
    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        sockets.perform(Open(1, "slow.test", port))
        sockets.perform(Open(2, "127.0.0.1", port))
        assert asked.wait(5)
        assert sockets.wait(5) == [Opened(2)]
        go_on.set()
        events: list[NetworkEvent] = []
        while not events:
            events += sockets.wait(5)
        assert events == [Opened(1)]
    sockets.close()


# ---- files


@contextmanager
def no_free_files() -> Generator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def broker() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


def read(consumer: Consumer, count: int) -> list[bytes | None]:
    """So many values, or what came until nothing more did."""
    found: list[bytes | None] = []
    end = time.monotonic() + 15
    while len(found) < count and time.monotonic() < end:
        if records := consumer.poll(0.2):
            found += [record.value for record in records]
            end = time.monotonic() + 15
    return found


def test_a_consumer_outlives_a_time_without_free_files(broker: Server) -> None:
    with (
        Producer(broker.bootstrap) as producer,
        Consumer(broker.bootstrap, auto_offset_reset="earliest") as consumer,
    ):
        consumer.assign([TopicPartition("t", 0)])
        producer.send("t", b"before").result(5)
        assert read(consumer, 1) == [b"before"]
        with no_free_files():
            broker.drop_connections()
            for _ in range(3):
                with suppress(KprotoError):
                    consumer.poll(0.1)
                with suppress(KprotoError):
                    producer.send("t", b"while").result(0.1)
        producer.send("t", b"after").result(10)
        found: list[bytes | None] = []
        while b"after" not in found:
            more = read(consumer, 1)
            assert more
            found += more


def test_an_async_consumer_outlives_a_time_without_free_files(broker: Server) -> None:
    async def play() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with AsyncConsumer(broker.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            await consumer.poll(0.3)
            with no_free_files():
                broker.drop_connections()
                for _ in range(3):
                    with suppress(KprotoError):
                        await consumer.poll(0.1)
            await asyncio.to_thread(fill, broker)
            async with asyncio.timeout(15):
                while not found:
                    found += [record.value for record in await consumer.poll(0.2)]
        return found

    assert asyncio.run(play()) == [b"after"]


def fill(broker: Server) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"after").result(10)


# ---- peers that are no brokers


def hears(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def answers(data: bytes) -> Script:
    def script(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(data)
        hears(sock)

    return script


def hangs_up(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.shutdown(socket.SHUT_WR)
    hears(sock)


def resets(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


STRANGE: dict[str, tuple[Script, str]] = {
    "speaks another protocol": (answers(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "a size of 1213486160"),
    "says a negative size": (answers(b"\xff\xff\xff\xff"), "a size of -1"),
    "answers somebody else": (answers(frame(b"\0\0\0\x63" + bytes(10))), "cannot be decoded"),
    "says too little": (answers(frame(b"\0")), "cannot be decoded"),
    "hangs up": (hangs_up, "closed the connection"),
    "resets the connection": (resets, "reset|closed"),
    "never answers": (hears, "within 300 ms|in time"),
    "stops in the middle of an answer": (answers(b"\0\0\1\0abc"), "within 300 ms|in time"),
}


@pytest.mark.parametrize("what", STRANGE)
def test_a_peer_that_is_no_broker_is_an_error_soon(what: str) -> None:
    script, why = STRANGE[what]
    with serving(script) as place:
        start = time.monotonic()
        with (
            Cluster(place, request_timeout_ms=300, timeout=0.6) as cluster,
            pytest.raises((ConnectionFailed, RequestTimedOut)) as caught,
        ):
            cluster.metadata()
        assert time.monotonic() - start < 5
    if isinstance(caught.value, ConnectionFailed):
        caught.match(why)


@pytest.mark.parametrize("what", STRANGE)
def test_a_peer_that_is_no_broker_is_an_error_soon_to_asyncio(what: str) -> None:
    script, why = STRANGE[what]

    async def play(place: str) -> KprotoError:
        async with asyncio.timeout(5), AsyncCluster(place, request_timeout_ms=300, timeout=0.6) as cluster:
            with pytest.raises((ConnectionFailed, RequestTimedOut)) as caught:
                await cluster.metadata()
        async with asyncio.timeout(5):  # what is cancelled ends in a turn of its own
            while asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.sleep(0)
        return caught.value

    with serving(script) as place:
        error = asyncio.run(play(place))
    assert not isinstance(error, ConnectionFailed) or re.search(why, str(error))


def dribbling(bootstrap: str) -> Script:
    """Between client and broker, byte by byte."""
    host, _, port = bootstrap.rpartition(":")

    def script(client: socket.socket) -> None:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with socket.create_connection((host, int(port))) as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=drip, args=(client, server), daemon=True).start()
            drip(server, client)

    def drip(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(4096):
                for byte in data:
                    target.sendall(bytes((byte,)))

    return script


def test_answers_that_come_byte_by_byte_are_read(broker: Server) -> None:
    with serving(dribbling(broker.bootstrap)) as place, Cluster(place) as cluster:
        assert "t" in cluster.metadata().topics


def test_what_a_peer_sends_byte_by_byte_is_one_answer() -> None:
    body = bytes(range(256)) * 8

    def script(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(body):
            sock.sendall(bytes((byte,)))
        hears(sock)

    with serving(script) as place:
        port = int(place.rpartition(":")[2])
        events = told(
            lambda sockets: sockets.perform(Open(1, "127.0.0.1", port)),
            lambda events: Answer(1, body) in events,
        )
    assert [event for event in events if event != Data(1, b"")] == [Opened(1), Answer(1, body)]


def test_what_is_written_to_a_peer_that_is_gone_breaks_the_connection_once() -> None:
    with serving(resets) as place:
        port = int(place.rpartition(":")[2])
        sockets = Sockets()
        sockets.perform(Open(1, "127.0.0.1", port))
        events = list[NetworkEvent]()
        end = time.monotonic() + 5
        while time.monotonic() < end and not any(isinstance(event, Broken) for event in events):
            sockets.perform(Write(1, b"x" * 100_000))
            events += sockets.wait(0.05)
        for _ in range(3):
            sockets.perform(Write(1, b"x"))
            events += sockets.wait(0)
        sockets.close()
    # The reset may be there before the connection was seen to be open.
    assert [type(event) for event in events if not isinstance(event, Opened)] == [Broken]


def received(sock: socket.socket, into: list[bytes], size: int) -> None:
    while sum(map(len, into)) < size and (data := sock.recv(1 << 20)):
        into.append(data)


def test_another_thread_writes_at_once_and_says_how_much() -> None:
    data = os.urandom(30_000_000)  # more than a socket takes at once
    read: list[bytes] = []
    go = threading.Event()

    def slow(sock: socket.socket) -> None:
        go.wait(10)
        received(sock, read, len(data) + 3)

    with serving(slow) as place:
        sockets = Sockets()
        sockets.perform(Open(1, "127.0.0.1", int(place.rpartition(":")[2])))
        todo = deque[NetworkAction]([Write(1, b"abc")])
        assert not sockets.write_at_once(todo)  # it is not open yet
        while not sockets.wait(0.1):
            pass
        for other in (Write(2, b"abc"), Shut(1)):  # nobody knows it; no write
            assert not sockets.write_at_once(deque([other]))
        assert sockets.write_at_once(todo)
        assert not todo
        todo = deque[NetworkAction]([Write(1, data[:-1])])
        assert not sockets.write_at_once(todo)
        [left] = todo
        assert isinstance(left, Write)
        assert 0 < len(left.data) < len(data) - 1
        sockets.perform(left)
        last = Write(1, data[-1:])
        assert not sockets.write_at_once(deque([last]))  # not before what is pending
        sockets.perform(last)
        go.set()
        end = time.monotonic() + 20
        while sum(map(len, read)) < len(data) + 3 and time.monotonic() < end:
            sockets.wait(0.05)
        sockets.perform(Shut(1))
        assert not sockets.write_at_once(deque([Write(1, b"abc")]))
        sockets.close()
    assert b"".join(read) == b"abc" + data


@pytest.mark.parametrize("sent", [0, 1, 40])
def test_what_a_call_could_not_write_goes_out_all_the_same(
    broker: Server, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    with Consumer(broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
        at_once = consumer._runtime.sockets.write_at_once

        def partly(todo: Any) -> bool:
            whole = todo.popleft()
            some = deque([Write(whole.key, whole.data[:sent])])
            if at_once(some) or not sent:
                todo.appendleft(Write(whole.key, whole.data[sent:]))
            else:
                todo.appendleft(whole)
            return False

        place = TopicPartition("t", 0)
        consumer.assign([place])
        consumer.commit({place: 1})
        monkeypatch.setattr(consumer._runtime.sockets, "write_at_once", partly)
        for offset in range(2, 12):
            consumer.commit({place: offset})
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == offset


# ---- large answers


def test_who_stalls_in_a_long_answer_stops_nobody_else() -> None:
    body = os.urandom(1 << 20)

    def stalls(sock: socket.socket) -> None:
        sock.sendall(frame(body) + frame(body)[: 1 << 19])
        received(sock, [], 1)

    def answers(sock: socket.socket) -> None:
        for _ in range(3):
            received(sock, [], 1)
            sock.sendall(frame(b"now"))

    with serving(stalls) as one, serving(answers) as other:
        sockets = Sockets()
        events = list[NetworkEvent]()

        def until(enough: Callable[[], bool]) -> None:
            end = time.monotonic() + 10
            while not enough():
                assert time.monotonic() < end, events
                events.extend(sockets.wait(0.1))

        for key, place in enumerate((one, other)):
            sockets.perform(Open(key, "127.0.0.1", int(place.rpartition(":")[2])))
        until(lambda: Answer(0, body) in events and Opened(1) in events)
        for asked in range(3):
            sockets.perform(Write(1, b"?"))
            until(lambda many=asked + 1: events.count(Answer(1, b"now")) == many)  # type: ignore[misc]
        sockets.close()


def test_a_long_answer_that_comes_in_pieces_of_any_size_is_read_at_once() -> None:
    """Nobody is woken for less than a quarter of a MiB of it while much is missing."""
    body = os.urandom(VERY_LONG + (3 << 20))
    sizes = itertools.cycle([1, 300_000, 7, MIN_WAKEUP_BYTES, MIN_WAKEUP_BYTES - 1, 100])

    def script(sock: socket.socket) -> None:
        for _ in range(3):
            at, whole = 0, frame(body)
            while at < len(whole) - 1000:
                size = min(next(sizes), len(whole) - 1000 - at)
                sock.sendall(whole[at : at + size])
                at += size
            time.sleep(0.1)  # so that somebody has to be woken for the rest
            sock.sendall(whole[at:])
            received(sock, [], 1)

    with serving(script) as place:
        sockets = Sockets()
        sockets.perform(Open(0, "127.0.0.1", int(place.rpartition(":")[2])))
        for _ in range(3):
            end, events = time.monotonic() + 10, list[NetworkEvent]()
            while Answer(0, body) not in events:
                assert time.monotonic() < end
                events += sockets.wait(0.1)
            sockets.perform(Write(0, b"?"))
        sockets.close()


@pytest.mark.parametrize("end", ["whole", "cut"])
def test_a_loop_reads_what_is_there_of_a_long_answer_in_one_round(end: str) -> None:
    async def run() -> list[NetworkEvent]:
        events: list[NetworkEvent] = []
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: _Protocol(1, events.append), sock=ours)
        protocol.sock = ours
        whole = frame(b"x" * 150_000)
        assert theirs.send(whole if end == "whole" else whole[:-1]) >= len(whole) - 1
        await asyncio.sleep(0)
        with protocol.get_buffer(-1) as room:
            size = ours.recv_into(room)
        protocol.buffer_updated(size)
        theirs.close()
        if end != "whole":
            async with asyncio.timeout(10):
                while not events:
                    await asyncio.sleep(0.01)
        protocol.close()
        return events

    events = asyncio.run(run())
    if end == "whole":
        assert events == [Answer(1, b"x" * 150_000)]
    else:
        assert [type(event) for event in events] == [Broken]


def test_an_answer_above_100_mib_is_read() -> None:
    settings = {
        "fetch.max.bytes": "400000000",
        "message.max.bytes": "30000000",
        "socket.request.max.bytes": "400000000",
    }
    value = bytes(20 << 20)
    batch = encode_batch([Record(0, 0, None, value)])
    with running(topics={"t": 6}, settings=settings) as server, Cluster(server.bootstrap) as cluster:
        for index in range(6):
            cluster.produce(TopicPartition("t", index), batch)
        with Consumer(
            server.bootstrap,
            auto_offset_reset="earliest",
            fetch_max_bytes=300 << 20,
            max_partition_fetch_bytes=25 << 20,
        ) as consumer:
            consumer.assign([TopicPartition("t", index) for index in range(6)])
            assert read(consumer, 6) == [value] * 6


def test_what_our_own_producer_compressed_a_hundredfold_is_read() -> None:
    row = b'{"level": "INFO", "message": "a log line that repeats itself again and again", "n": %d}'
    settings = {"message.max.bytes": "60000000"}
    count = 260_000
    with running(topics={"t": 1}, settings=settings) as server:
        with Producer(
            server.bootstrap,
            compression_type="zstd",
            max_request_size=40 << 20,
            batch_size=24 << 20,
            buffer_memory=64 << 20,
            linger_ms=5000,
        ) as producer:
            for number in range(count):
                producer.send("t", row % (number % 50))
            producer.flush()
        with Consumer(server.bootstrap, auto_offset_reset="earliest", max_poll_records=100_000) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(read(consumer, count)) == count
        with Consumer(
            server.bootstrap, auto_offset_reset="earliest", max_decompressed_bytes=1 << 20
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            with pytest.raises(RecordError, match="max_decompressed_bytes"):
                read(consumer, count)


def dripping(sock: socket.socket) -> None:
    """An answer that takes two seconds to come."""
    for _ in range(6):
        sock.sendall(struct.pack(">i", 30) if _ == 0 else b"12345")
        time.sleep(0.3)
    sock.sendall(b"12345")
    hears(sock)


def dripping_tls(sock: socket.socket) -> None:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(made)
    with made.wrap_socket(sock, server_side=True) as sealed:
        dripping(sealed)


def opening(place: str, tls: bool) -> Open:
    secured = Tls(context(cafile=CA.cert_pem.bytes().decode())) if tls else None
    return Open(1, "127.0.0.1", int(place.rpartition(":")[2]), secured)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_long_answer_on_its_way_is_said_meanwhile(tls: bool) -> None:
    with serving(dripping_tls if tls else dripping) as place:
        events = told(
            lambda sockets: sockets.perform(opening(place, tls)), lambda events: len(events) > 2 + tls
        )
    reached = [Reached(1)] if tls else []
    assert events[: len(reached) + 2] == [*reached, Opened(1), Data(1, b"")]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_long_answer_on_its_way_is_said_to_a_loop_too(tls: bool) -> None:
    with serving(dripping_tls if tls else dripping) as place:
        events = asyncio.run(
            told_async(
                lambda streams: streams.perform(opening(place, tls)), lambda events: len(events) > 2 + tls
            )
        )
    reached = [Reached(1)] if tls else []
    assert events[: len(reached) + 2] == [*reached, Opened(1), Data(1, b"")]


def silent_after_the_first_fetch(port: int, stalled: list[socket.socket]) -> Script:
    """Passes everything on to 127.0.0.2, but never an answer to the first connection that fetches."""

    def script(sock: socket.socket) -> None:
        behind = socket.create_connection(("127.0.0.2", port))

        def back() -> None:
            with suppress(OSError):
                while data := behind.recv(65536):
                    if sock not in stalled:
                        sock.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        asked = sock.makefile("rb")
        while size := asked.read(4):
            body = asked.read(struct.unpack(">i", size)[0])
            if body[:2] == b"\0\1" and not stalled:
                stalled.append(sock)
            behind.sendall(size + body)
        behind.close()

    return script


@pytest.mark.thorough
def test_a_fetch_connection_that_stalls_costs_seconds_and_no_request_timeout() -> None:
    """With default options, whose request timeout is 30 s: a poll of 25 s has the record."""
    stalled: list[socket.socket] = []
    ports: list[int] = []

    async def story(place: str) -> list[bytes]:
        ports.append(int(place.rpartition(":")[2]))
        async with (
            Server({"t": 1}, host="127.0.0.2", port=ports[0], advertised_host="127.0.0.1"),
            AsyncProducer(place) as producer,
            AsyncConsumer(place, auto_offset_reset="earliest") as consumer,
        ):
            await (await producer.send("t", b"x"))
            consumer.assign([TopicPartition("t", 0)])
            return [bytes(record.value or b"") for record in await consumer.poll(25)]

    with serving(lambda sock: silent_after_the_first_fetch(ports[0], stalled)(sock)) as place:
        assert asyncio.run(story(place)) == [b"x"]
    assert len(stalled) == 1
