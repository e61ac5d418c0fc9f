"""Sockets and streams connect, read and close on a real network, even with peers that are not brokers.

The tests cover name lookups, file limits, peers that are not brokers, and large responses.
"""

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

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
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
from consumer.resolver import describe_error, sort_addresses
from consumer.security.tls import Tls, context
from kproto.broker.server import Server, running
from kproto.errors import ConnectionFailed, KprotoError, RecordError, RequestTimedOut
from kproto.records import Record, encode_batch
from kproto.wire.frame import frame
from tests.consumer.behaviour.socket_servers import Script, serving, several

trustme = pytest.importorskip("trustme")
CA = trustme.CA()


def events_until(
    perform: Callable[[Sockets], object], enough: Callable[[list[NetworkEvent]], bool]
) -> list[Any]:
    """Collect events of `Sockets` until `enough` of them have arrived, and return them."""
    sockets, events = Sockets(), list[NetworkEvent]()
    try:
        perform(sockets)
        deadline = time.monotonic() + 30
        while not enough(events):
            assert time.monotonic() < deadline, events
            events += sockets.wait(0.1)
    finally:
        sockets.close()
    return events


async def async_events_until(
    perform: Callable[[Streams], object], enough: Callable[[list[NetworkEvent]], bool]
) -> list[Any]:
    """Collect events of `Streams` until `enough` of them have arrived, and return them."""
    events: list[NetworkEvent] = []
    streams = Streams(events.append)
    perform(streams)
    async with asyncio.timeout(10):
        while not enough(events):
            await asyncio.sleep(0.01)
    streams.close()
    await asyncio.sleep(0)
    return events


INVALID_ADDRESSES = {
    "an empty label": ("a..b", 9092),
    "a label of 64 letters": ("a" * 64 + ".example", 9092),
    "half a surrogate pair": ("\udcff.example", 9092),
    "a zero byte": ("a\0b", 9092),
    "a port beyond 65535": ("127.0.0.1", 70_000),
    "a port without a listener": ("127.0.0.1", 1),
}


@pytest.mark.parametrize("place", INVALID_ADDRESSES.values(), ids=INVALID_ADDRESSES)
def test_an_invalid_address_is_a_broken_connection(place: tuple[str, int]) -> None:
    [event] = events_until(lambda sockets: sockets.perform(Open(1, *place)), bool)
    assert isinstance(event, Broken)
    assert event.why


@pytest.mark.parametrize("place", INVALID_ADDRESSES.values(), ids=INVALID_ADDRESSES)
def test_an_invalid_address_is_a_broken_connection_in_asyncio(place: tuple[str, int]) -> None:
    [event] = asyncio.run(async_events_until(lambda streams: streams.perform(Open(1, *place)), bool))
    assert isinstance(event, Broken)
    assert event.why


def test_every_address_of_a_name_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.2", "127.0.0.3", "127.0.0.1")
    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        [event] = events_until(lambda sockets: sockets.perform(Open(1, "broker.test", port)), bool)
        assert event == Opened(1)
        [event] = asyncio.run(
            async_events_until(lambda streams: streams.perform(Open(1, "broker.test", port)), bool)
        )
        assert event == Opened(1)


def test_a_connection_that_is_shut_while_it_opens_is_closed_in_any_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    accepted, ended = list[bytes](), list[bytes]()

    def accept_and_read(sock: socket.socket) -> None:
        accepted.append(b"")
        ended.append(sock.recv(1))

    # Replace getaddrinfo, which asyncio runs in a thread, with a function that returns immediately.
    def addresses(host: str, port: int, *_: object, **__: object) -> Any:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{last}", port)) for last in (1, 2)]

    monkeypatch.setattr(socket, "getaddrinfo", addresses)

    async def turns_until_opened(port: int) -> int:
        for turns in itertools.count():
            events: list[NetworkEvent] = []
            streams = Streams(events.append)
            streams.perform(Open(1, "broker.test", port))
            for _ in range(turns):
                await asyncio.sleep(0)
            streams.perform(Shut(1))
            if Opened(1) in events:
                return turns
        raise AssertionError

    with serving(accept_and_read) as place:
        host, port = place.split(":")

        async def main() -> int:
            turns = await turns_until_opened(int(port))
            # The server accepts this connection last, so all others have been accepted by then.
            socket.create_connection((host, int(port))).close()
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


@pytest.mark.parametrize("host", [pytest.param("127.0.0.1", marks=pytest.mark.thorough), "localhost"])
def test_asyncio_clients_read_on_after_the_main_thread_has_ended(host: str) -> None:
    with running(topics={"t": 1}) as server:
        fill(server)
        address = f"{host}:{server.bootstrap.rpartition(':')[2]}"
        command = [sys.executable, "-c", _AFTER_MAIN, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "group b'after'\nasyncio b'after'\n", done.stderr


def test_a_loop_looks_up_a_name_once_for_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.1")
    original, requested, looked_up, second_request = (
        socket.getaddrinfo,
        list[str](),
        list[str](),
        threading.Event(),
    )

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            requested.append(host)
            if len(requested) == 2:
                second_request.set()
        else:
            looked_up.append(host)
            second_request.wait(10)
        return original(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)

    def open_three_and_shut_one(streams: Streams) -> None:
        for key in (1, 2, 3):
            streams.perform(Open(key, "broker.test", port))
        streams.perform(Shut(2))

    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        events = asyncio.run(async_events_until(open_three_and_shut_one, lambda events: len(events) == 2))
    assert sorted(event.key for event in events) == [1, 3]
    assert looked_up == ["broker.test"]


def test_an_address_of_the_other_family_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    several(monkeypatch, "127.0.0.1", "::1")
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("needs IPv6")
    with listener:
        [event] = events_until(
            lambda sockets: sockets.perform(Open(1, "broker.test", listener.getsockname()[1])), bool
        )
    assert event == Opened(1)


def test_an_address_that_timed_out_is_tried_last_the_next_time(monkeypatch: pytest.MonkeyPatch) -> None:
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
        deadline = time.monotonic() + 30
        while len(tried) < key and time.monotonic() < deadline:
            sockets.wait(0.05)
        sockets.perform(Shut(key))
    sockets.close()
    assert tried == ["127.0.0.1", "127.0.0.2"]


def test_a_poll_may_be_longer_than_a_selector_allows() -> None:
    sockets = Sockets()
    sockets.wake()
    # The longest wait of a client is about 60 days: until re-authentication with a token that is valid for
    # two months.
    sockets.poll(60 * 86_400)
    sockets.close()


def test_ipv4_addresses_are_tried_first() -> None:
    answer = [
        (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::1", 9, 0, 0)),
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 9)),
    ]
    assert [address for _, address in sort_addresses(answer)] == [("127.0.0.1", 9), ("::1", 9, 0, 0)]


def test_a_slow_name_lookup_does_not_delay_other_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    lookup_started, release = threading.Event(), threading.Event()
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host == "slow.test" and not options.get("flags", 0) & socket.AI_NUMERICHOST:
            lookup_started.set()
            release.wait(10)
            return original("127.0.0.1", port, type=socket.SOCK_STREAM)
        return original(host, port, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    sockets = Sockets()
    with serving(lambda sock: sock.recv(1)) as place:
        port = int(place.rpartition(":")[2])
        sockets.perform(Open(1, "slow.test", port))
        sockets.perform(Open(2, "127.0.0.1", port))
        assert lookup_started.wait(5)
        assert sockets.wait(5) == [Opened(2)]
        release.set()
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
    """Return the values of the next `count` records, or fewer if no record arrives for 15 seconds."""
    received: list[bytes | None] = []
    deadline = time.monotonic() + 15
    while len(received) < count and time.monotonic() < deadline:
        if records := consumer.poll(0.2):
            received += [record.value for record in records]
            deadline = time.monotonic() + 15
    return received


def test_a_consumer_recovers_from_a_lack_of_file_descriptors(broker: Server) -> None:
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
        received: list[bytes | None] = []
        while b"after" not in received:
            values = read(consumer, 1)
            assert values
            received += values


def test_an_async_consumer_recovers_from_a_lack_of_file_descriptors(broker: Server) -> None:
    async def main() -> list[bytes | None]:
        received: list[bytes | None] = []
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
                while not received:
                    received += [record.value for record in await consumer.poll(0.2)]
        return received

    assert asyncio.run(main()) == [b"after"]


def fill(broker: Server) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send("t", b"after").result(10)


# ---- peers that are not brokers


def read_until_closed(sock: socket.socket) -> None:
    while sock.recv(4096):
        pass


def respond(data: bytes) -> Script:
    def script(sock: socket.socket) -> None:
        sock.recv(4096)
        sock.sendall(data)
        read_until_closed(sock)

    return script


def shut_down(sock: socket.socket) -> None:
    sock.recv(4096)
    sock.shutdown(socket.SHUT_WR)
    read_until_closed(sock)


def resets(sock: socket.socket) -> None:
    sock.recv(1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


PEERS: dict[str, tuple[Script, str]] = {
    "speaks another protocol": (respond(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "a size of 1213486160"),
    "sends a negative size": (respond(b"\xff\xff\xff\xff"), "a size of -1"),
    "sends an unknown correlation id": (respond(frame(b"\0\0\0\x63" + bytes(10))), "cannot be decoded"),
    "sends too few bytes": (respond(frame(b"\0")), "cannot be decoded"),
    "closes the connection": (shut_down, "closed the connection"),
    "resets the connection": (resets, "reset|closed"),
    "never answers": (read_until_closed, "within 300 ms|in time"),
    "stops in the middle of a response": (respond(b"\0\0\1\0abc"), "within 300 ms|in time"),
}


@pytest.mark.parametrize("behaviour", PEERS)
def test_a_peer_that_is_not_a_broker_raises_an_error_soon(behaviour: str) -> None:
    script, why = PEERS[behaviour]
    with serving(script) as address:
        started_at = time.monotonic()
        with (
            Admin(address, request_timeout_ms=300, timeout=0.6) as cluster,
            pytest.raises((ConnectionFailed, RequestTimedOut)) as caught,
        ):
            cluster.metadata()
        assert time.monotonic() - started_at < 20
    if isinstance(caught.value, ConnectionFailed):
        caught.match(why)


@pytest.mark.parametrize("behaviour", PEERS)
def test_a_peer_that_is_not_a_broker_raises_an_error_soon_in_asyncio(behaviour: str) -> None:
    script, why = PEERS[behaviour]

    async def main(place: str) -> KprotoError:
        async with asyncio.timeout(5), AsyncAdmin(place, request_timeout_ms=300, timeout=0.6) as cluster:
            with pytest.raises((ConnectionFailed, RequestTimedOut)) as caught:
                await cluster.metadata()
        async with asyncio.timeout(5):  # A cancelled task ends in a later iteration of the event loop.
            while asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.sleep(0)
        return caught.value

    with serving(script) as place:
        error = asyncio.run(main(place))
    assert not isinstance(error, ConnectionFailed) or re.search(why, str(error))


def byte_by_byte_proxy(bootstrap: str) -> Script:
    """Return a script that relays a connection to a broker, and forwards each byte in a separate send."""
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


def test_responses_that_arrive_byte_by_byte_are_read(broker: Server) -> None:
    with serving(byte_by_byte_proxy(broker.bootstrap)) as place, Admin(place) as cluster:
        assert "t" in cluster.metadata().topics


def test_bytes_that_arrive_one_by_one_are_one_response() -> None:
    body = bytes(range(256)) * 8

    def script(sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in frame(body):
            sock.sendall(bytes((byte,)))
        read_until_closed(sock)

    with serving(script) as place:
        port = int(place.rpartition(":")[2])
        events = events_until(
            lambda sockets: sockets.perform(Open(1, "127.0.0.1", port)),
            lambda events: Answer(1, body) in events,
        )
    assert [event for event in events if event != Data(1, b"")] == [Opened(1), Answer(1, body)]


def test_writes_to_a_closed_peer_report_a_broken_connection_once() -> None:
    with serving(resets) as place:
        port = int(place.rpartition(":")[2])
        sockets = Sockets()
        sockets.perform(Open(1, "127.0.0.1", port))
        events = list[NetworkEvent]()
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not any(isinstance(event, Broken) for event in events):
            sockets.perform(Write(1, b"x" * 100_000))
            events += sockets.wait(0.05)
        for _ in range(3):
            sockets.perform(Write(1, b"x"))
            events += sockets.wait(0)
        sockets.close()
    # The event Opened is missing if the reset arrives before the client has noticed that the connection is
    # open.
    assert [type(event) for event in events if not isinstance(event, Opened)] == [Broken]


def receive_into(sock: socket.socket, into: list[bytes], size: int) -> None:
    while sum(map(len, into)) < size and (data := sock.recv(1 << 20)):
        into.append(data)


def test_write_at_once_leaves_what_the_socket_does_not_accept() -> None:
    data = os.urandom(30_000_000)  # The data is larger than a socket accepts in one call.
    received_data: list[bytes] = []
    release = threading.Event()

    def slow(sock: socket.socket) -> None:
        release.wait(10)
        receive_into(sock, received_data, len(data) + 3)

    with serving(slow) as place:
        sockets = Sockets()
        sockets.perform(Open(1, "127.0.0.1", int(place.rpartition(":")[2])))
        actions = deque[NetworkAction]([Write(1, b"abc")])
        assert not sockets.write_at_once(actions)  # The connection is not open yet.
        while not sockets.wait(0.1):
            pass
        # `write_at_once` rejects both actions: connection 2 is unknown, and Shut does not write.
        for action in (Write(2, b"abc"), Shut(1)):
            assert not sockets.write_at_once(deque([action]))
        assert sockets.write_at_once(actions)
        assert not actions
        actions = deque[NetworkAction]([Write(1, data[:-1])])
        assert not sockets.write_at_once(actions)
        [unwritten] = actions
        assert isinstance(unwritten, Write)
        assert 0 < len(unwritten.data) < len(data) - 1
        sockets.perform(unwritten)
        last = Write(1, data[-1:])
        assert not sockets.write_at_once(deque([last]))  # This write must not overtake the pending one.
        sockets.perform(last)
        release.set()
        deadline = time.monotonic() + 20
        while sum(map(len, received_data)) < len(data) + 3 and time.monotonic() < deadline:
            sockets.wait(0.05)
        sockets.perform(Shut(1))
        assert not sockets.write_at_once(deque([Write(1, b"abc")]))
        sockets.close()
    assert b"".join(received_data) == b"abc" + data


@pytest.mark.parametrize("sent", [0, 1, 40])
def test_data_that_a_call_could_not_write_is_written_later(
    broker: Server, monkeypatch: pytest.MonkeyPatch, sent: int
) -> None:
    with Consumer(broker.bootstrap, group_id="g", enable_auto_commit=False) as consumer:
        write_at_once = consumer._runtime.sockets.write_at_once

        def write_part(actions: Any) -> bool:
            write = actions.popleft()
            part = deque([Write(write.key, write.data[:sent])])
            if write_at_once(part) or not sent:
                actions.appendleft(Write(write.key, write.data[sent:]))
            else:
                actions.appendleft(write)
            return False

        place = TopicPartition("t", 0)
        consumer.assign([place])
        consumer.commit({place: 1})
        monkeypatch.setattr(consumer._runtime.sockets, "write_at_once", write_part)
        for offset in range(2, 12):
            consumer.commit({place: offset})
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == offset


# ---- large responses


def test_a_stalled_large_response_does_not_delay_other_connections() -> None:
    body = os.urandom(1 << 20)

    def send_and_stall(sock: socket.socket) -> None:
        sock.sendall(frame(body) + frame(body)[: 1 << 19])
        receive_into(sock, [], 1)

    def respond(sock: socket.socket) -> None:
        for _ in range(3):
            receive_into(sock, [], 1)
            sock.sendall(frame(b"now"))

    with serving(send_and_stall) as stalling, serving(respond) as answering:
        sockets = Sockets()
        events = list[NetworkEvent]()

        def until(enough: Callable[[], bool]) -> None:
            end = time.monotonic() + 10
            while not enough():
                assert time.monotonic() < end, events
                events.extend(sockets.wait(0.1))

        for key, place in enumerate((stalling, answering)):
            sockets.perform(Open(key, "127.0.0.1", int(place.rpartition(":")[2])))
        until(lambda: Answer(0, body) in events and Opened(1) in events)
        for number in range(3):
            sockets.perform(Write(1, b"?"))
            until(lambda many=number + 1: events.count(Answer(1, b"now")) == many)  # type: ignore[misc]
        sockets.close()


def test_a_large_response_in_pieces_of_any_size_is_read() -> None:
    """A large response is read completely, whatever the sizes of its pieces.

    While most of the response is missing, the kernel wakes the reader only when MIN_WAKEUP_BYTES can be read.
    """
    body = os.urandom(VERY_LONG + (3 << 20))
    sizes = itertools.cycle([1, 300_000, 7, MIN_WAKEUP_BYTES, MIN_WAKEUP_BYTES - 1, 100])

    def script(sock: socket.socket) -> None:
        for _ in range(3):
            position, framed = 0, frame(body)
            while position < len(framed) - 1000:
                size = min(next(sizes), len(framed) - 1000 - position)
                sock.sendall(framed[position : position + size])
                position += size
            # The kernel must wake the reader for the remaining bytes, although they are fewer than
            # MIN_WAKEUP_BYTES.
            time.sleep(0.1)
            sock.sendall(framed[position:])
            receive_into(sock, [], 1)

    with serving(script) as place:
        sockets = Sockets()
        sockets.perform(Open(0, "127.0.0.1", int(place.rpartition(":")[2])))
        for _ in range(3):
            deadline, events = time.monotonic() + 10, list[NetworkEvent]()
            while Answer(0, body) not in events:
                assert time.monotonic() < deadline
                events += sockets.wait(0.1)
            sockets.perform(Write(0, b"?"))
        sockets.close()


@pytest.mark.parametrize("end", ["whole", "cut"])
def test_a_loop_reads_all_available_bytes_of_a_large_response_in_one_turn(end: str) -> None:
    async def run() -> list[NetworkEvent]:
        events: list[NetworkEvent] = []
        ours, theirs = socket.socketpair()
        for sock in (ours, theirs):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
            sock.setblocking(False)
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: _Protocol(1, 1 << 20, events.append), sock=ours)
        protocol.sock = ours
        framed = frame(b"x" * 150_000)
        assert theirs.send(framed if end == "whole" else framed[:-1]) >= len(framed) - 1
        await asyncio.sleep(0)
        with protocol.get_buffer(-1) as buffer:
            size = ours.recv_into(buffer)
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


@pytest.mark.parametrize("shell", ["blocking", "asyncio"])
def test_a_response_larger_than_the_limit_ends_the_connection(shell: str) -> None:
    """A response larger than the limit closes the connection. The limit is the default of librdkafka's
    receive.message.max.bytes.
    """

    def script(sock: socket.socket) -> None:
        sock.sendall(frame(b"first") + struct.pack(">i", 5001))
        time.sleep(10)

    def perform(owner: Sockets | Streams) -> None:
        owner.perform(Open(0, "127.0.0.1", int(place.rpartition(":")[2]), None, 5000))

    def enough(events: list[NetworkEvent]) -> bool:
        return any(isinstance(event, Broken) for event in events)

    with serving(script) as place:
        if shell == "blocking":
            events = events_until(perform, enough)
        else:
            events = asyncio.run(async_events_until(perform, enough))
    why = "a response has 5001 bytes, and receive_message_max_bytes allows 5000"
    assert events[0] == Opened(0)
    assert events[-1] == Broken(0, why)


def test_a_client_reports_a_response_that_is_too_large() -> None:
    topics = {f"a-topic-with-a-long-name-{number}": 1 for number in range(50)}
    with running(topics=topics) as server:
        with (
            Admin(server.bootstrap, receive_message_max_bytes=2000) as cluster,
            pytest.raises(ConnectionFailed, match="receive_message_max_bytes allows 2000"),
        ):
            cluster.topics()
        with Admin(server.bootstrap) as cluster:
            assert set(topics) <= set(cluster.topics())


@pytest.mark.parametrize("receive_message_max_bytes", [1_000, 64_400, 65_500, 100_000])
def test_many_partitions_fit_into_a_response_of_at_most_receive_message_max_bytes(
    receive_message_max_bytes: int,
) -> None:
    """fetch_max_bytes includes only records, and each partition needs about forty further bytes."""
    partitions = [TopicPartition("t", index) for index in range(60)]
    with running(topics={"t": 60}) as server:
        with Producer(server.bootstrap) as producer:
            for partition in partitions:
                producer.send("t", bytes(1_000), partition=partition.partition)
        with Consumer(
            server.bootstrap,
            receive_message_max_bytes=receive_message_max_bytes,
            fetch_max_bytes=64_400,  # About sixty batches.
            max_partition_fetch_bytes=1_100,
        ) as consumer:
            consumer.assign(dict.fromkeys(partitions, 0))
            count, deadline = 0, time.monotonic() + 10
            while count < 60 and time.monotonic() < deadline:
                count += len(consumer.poll(0.1))
            assert count == 60


def test_missing_memory_is_not_reported_as_a_name_that_cannot_be_resolved() -> None:
    assert describe_error(MemoryError()) == "no memory for the response"
    assert describe_error(ValueError("closed")) == "ValueError: closed"


@pytest.mark.thorough
def test_a_response_above_100_mib_is_read() -> None:
    settings = {
        "fetch.max.bytes": "400000000",
        "message.max.bytes": "30000000",
        "socket.request.max.bytes": "400000000",
    }
    value = bytes(20 << 20)
    batch = encode_batch([Record(0, 0, None, value)])
    with running(topics={"t": 6}, settings=settings) as server, Admin(server.bootstrap) as cluster:
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


def test_a_batch_compressed_a_hundredfold_is_read() -> None:
    row = 10 * b'{"level": "INFO", "message": "a log line that repeats itself again and again", "n": 7}\n'
    settings = {"message.max.bytes": "60000000"}
    count = 26_000
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
                producer.send("t", b"%d " % (number % 50) + row)
            producer.flush()
        with Consumer(server.bootstrap, auto_offset_reset="earliest", max_poll_records=100_000) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            assert len(read(consumer, count)) == count
        with Consumer(
            server.bootstrap, auto_offset_reset="earliest", max_decompressed_bytes=1 << 20
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            with pytest.raises(RecordError, match="max_decompressed_bytes") as caught:
                read(consumer, count)
            # `poll` returned a part of the batch before it raised the error.
            first, behind = caught.value.first_offset, caught.value.next_offset
            assert behind is not None
            assert first < consumer.position(TopicPartition("t", 0)) < behind


def send_slowly(sock: socket.socket) -> None:
    """Send parts of a large response until the client closes the connection."""
    sock.sendall(struct.pack(">i", 1_000_000))
    with suppress(OSError):
        while True:
            sock.sendall(b"12345")
            time.sleep(0.02)


def send_slowly_over_tls(sock: socket.socket) -> None:
    tls_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    CA.issue_cert("127.0.0.1").configure_cert(tls_context)
    with tls_context.wrap_socket(sock, server_side=True) as sealed:
        send_slowly(sealed)


@pytest.fixture
def early_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients report a response in progress every 0.1 s instead of every second."""
    for module in ("consumer.blocking.sockets", "consumer.aio.streams"):
        monkeypatch.setattr(f"{module}.PROGRESS_INTERVAL_S", 0.1)


def open_action(place: str, tls: bool) -> Open:
    secured = Tls(context(cafile=CA.cert_pem.bytes().decode())) if tls else None
    return Open(1, "127.0.0.1", int(place.rpartition(":")[2]), secured)


@pytest.mark.usefixtures("early_reports")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_large_response_in_progress_is_reported(tls: bool) -> None:
    with serving(send_slowly_over_tls if tls else send_slowly) as place:
        events = events_until(
            lambda sockets: sockets.perform(open_action(place, tls)), lambda events: len(events) > 2 + tls
        )
    reached = [Reached(1)] if tls else []
    assert events[: len(reached) + 2] == [*reached, Opened(1), Data(1, b"")]


@pytest.mark.usefixtures("early_reports")
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_a_large_response_in_progress_is_reported_in_asyncio(tls: bool) -> None:
    with serving(send_slowly_over_tls if tls else send_slowly) as place:
        events = asyncio.run(
            async_events_until(
                lambda streams: streams.perform(open_action(place, tls)), lambda events: len(events) > 2 + tls
            )
        )
    reached = [Reached(1)] if tls else []
    assert events[: len(reached) + 2] == [*reached, Opened(1), Data(1, b"")]


def proxy_stalling_the_first_fetch(port: int, stalled: list[socket.socket]) -> Script:
    """Return a script that relays connections to 127.0.0.2, but stalls the first fetch connection.

    The first connection that sends a Fetch receives no response to this Fetch or to later requests.
    """

    def script(sock: socket.socket) -> None:
        broker = socket.create_connection(("127.0.0.2", port))

        def back() -> None:
            with suppress(OSError):
                while data := broker.recv(65536):
                    if sock not in stalled:
                        sock.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        requests = sock.makefile("rb")
        while size := requests.read(4):
            body = requests.read(struct.unpack(">i", size)[0])
            if body[:2] == b"\0\1" and not stalled:
                stalled.append(sock)
            broker.sendall(size + body)
        broker.close()

    return script


@pytest.mark.thorough
def test_a_stalled_fetch_connection_is_replaced_before_the_request_timeout() -> None:
    """A fetch connection that stalls is replaced before the request timeout.

    Without a new connection, a poll of 25 s would return no record: the request timeout is 30 s.
    """
    stalled: list[socket.socket] = []
    ports: list[int] = []

    async def main(place: str) -> list[bytes]:
        ports.append(int(place.rpartition(":")[2]))
        async with (
            Server({"t": 1}, host="127.0.0.2", port=ports[0], advertised_host="127.0.0.1"),
            AsyncProducer(place) as producer,
            AsyncConsumer(place, auto_offset_reset="earliest") as consumer,
        ):
            await (await producer.send("t", b"x"))
            consumer.assign([TopicPartition("t", 0)])
            return [bytes(record.value or b"") for record in await consumer.poll(25)]

    with serving(lambda sock: proxy_stalling_the_first_fetch(ports[0], stalled)(sock)) as place:
        assert asyncio.run(main(place)) == [b"x"]
    assert len(stalled) == 1
