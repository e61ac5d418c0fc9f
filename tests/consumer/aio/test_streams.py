"""Connections in asyncio react to each event of their transport: they report events and write bytes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.aio import streams as streams_module
from consumer.aio.streams import Streams, _Protocol, _Route
from consumer.dialers import Dialed
from consumer.engine.network.transport import (
    Answer,
    Broken,
    Data,
    GetToken,
    GotToken,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from consumer.resolver import Address, Resolved
from consumer.security.failures import CLOSED, NoToken, TlsFailed
from kproto.wire.frame import ReceiveBuffer, frame
from tests.consumer.stage import PlainPipe

A: Address = (socket.AF_INET, ("127.0.0.1", 9092))
B: Address = (socket.AF_INET, ("127.0.0.2", 9092))


class Transport(asyncio.Transport):
    """A transport that records the protocol's calls, and uses no network."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        super().__init__({"socket": sock})
        self.actions: list[bytes | str] = []

    def write(self, data: Any) -> None:
        self.actions.append(bytes(data))

    def is_closing(self) -> bool:
        return "close" in self.actions or "abort" in self.actions

    def close(self) -> None:
        self.actions.append("close")

    def abort(self) -> None:
        self.actions.append("abort")


class Connection:
    """A protocol on a `Transport`, and the events that the protocol has reported."""

    def __init__(self, *, max_response: int = 1 << 20) -> None:
        self.events: list[NetworkEvent] = []
        self.transport = Transport()
        self.protocol = _Protocol(1, max_response, self.events.append)
        self.protocol.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        while data:
            room = self.protocol.get_buffer(-1)
            size = min(len(room), len(data))
            room[:size] = data[:size]
            room.release() if self.protocol.pipe is None else None
            self.protocol.buffer_updated(size)
            data = data[size:]

    def begin_tls(self) -> PlainPipe:
        pipe: Any = PlainPipe()
        self.protocol.start_tls(pipe, memoryview(bytearray(64)))
        return pipe


def test_small_requests_are_sent_without_delay() -> None:
    with socket.socket() as sock:
        _Protocol(1, 100, print).connection_made(Transport(sock))
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_broken_socket_of_a_new_connection_is_left_to_the_transport() -> None:
    with socket.socket() as sock:
        pass
    _Protocol(1, 100, print).connection_made(Transport(sock))


def test_responses_are_reported_in_order_until_the_connection_ends() -> None:
    connection = Connection()
    connection.receive(frame(b"a") + frame(b"b")[:2])
    connection.receive(frame(b"b")[2:])
    assert connection.events == [Answer(1, b"a"), Answer(1, b"b")]
    assert connection.protocol.responded
    connection.protocol.connection_lost(None)
    connection.protocol.connection_lost(OSError(104, "Connection reset by peer"))
    assert connection.events[2:] == [Broken(1, CLOSED)]


def test_the_error_of_a_lost_connection_is_reported() -> None:
    connection = Connection()
    connection.protocol.connection_lost(OSError(104, "Connection reset by peer"))
    assert connection.events == [Broken(1, "connection reset by peer")]
    assert not connection.protocol.responded


def test_a_closed_connection_reports_nothing_more() -> None:
    connection = Connection()
    connection.protocol.write(b"x")
    connection.protocol.close()
    connection.receive(frame(b"a"))
    connection.receive(b"\x00\x01")
    connection.protocol.connection_lost(None)
    assert connection.events == []
    assert connection.transport.actions[:2] == [b"x", "close"]


def test_a_response_that_closes_the_connection_is_the_last_one() -> None:
    connection = Connection()
    connection.protocol.report = lambda event: (connection.events.append(event), connection.protocol.close())
    connection.receive(frame(b"a") + frame(b"b"))
    assert connection.events == [Answer(1, b"a")]


def test_a_response_above_the_limit_breaks_the_connection() -> None:
    connection = Connection(max_response=10)
    connection.receive(frame(b"x" * 11))
    (event,) = connection.events
    assert isinstance(event, Broken)
    assert "a size of 11; allowed are 0 to 10" in event.why
    assert not event.denied
    assert connection.transport.actions[0] == "abort"


def test_a_tls_alert_without_tls_is_a_failure_of_the_configuration() -> None:
    connection = Connection()
    connection.receive(b"\x15\x03\x03\x00\x02\x02\x28")
    (event,) = connection.events
    assert isinstance(event, Broken)
    assert event.denied
    assert connection.transport.actions[0] == "close"


class Socket:
    """A fake of the transport's socket. Each read takes the next answer: a number of bytes or an error."""

    def __init__(self, *answers: int | Exception) -> None:
        self.answers = list(answers)

    def recv_into(self, room: memoryview, size: int, flags: int) -> int:
        assert (size, flags) == (0, streams_module.NOW)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        room[:answer] = bytes(answer)
        return answer


def events_of_direct_reads(sock: Any, size: int) -> list[NetworkEvent]:
    """Receive a response and return the events.

    The event loop receives the size prefix. Direct reads of `sock` receive the rest.
    """
    connection = Connection()
    connection.protocol.sock = sock
    connection.receive(size.to_bytes(4, "big"))
    return connection.events


LONG = ReceiveBuffer.MIN_SIZE + 1


@pytest.mark.parametrize(
    ("answers", "events"),
    [
        ((2, LONG - 3, 1), [Answer(1, bytes(LONG))]),
        ((2, BlockingIOError()), []),
        ((2, 0), []),  # The transport itself reports the end of the stream.
        ((ConnectionResetError(104, "Connection reset by peer"),), [Broken(1, "connection reset by peer")]),
        ((MemoryError(),), [Broken(1, "no memory for the response")]),
    ],
)
def test_the_rest_of_a_long_response_is_read_from_the_socket(
    answers: Any, events: list[NetworkEvent]
) -> None:
    sock = Socket(*answers)
    assert events_of_direct_reads(sock, LONG) == events
    assert sock.answers == []


def test_direct_reads_are_limited_so_that_other_connections_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams_module, "MAX_READS", 3)
    sock = Socket(*[1] * 5)
    assert events_of_direct_reads(sock, LONG) == []
    assert len(sock.answers) == 2


def test_a_system_without_reads_that_do_not_wait_leaves_all_reads_to_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams_module, "NOW", 0)
    assert events_of_direct_reads(Socket(), LONG) == []


def test_a_long_response_may_begin_before_the_protocol_knows_its_socket() -> None:
    assert events_of_direct_reads(None, LONG) == []


def test_a_short_response_is_read_by_the_loop() -> None:
    assert events_of_direct_reads(Socket(), 100) == []


def test_a_long_response_in_progress_is_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    at = [0.0]
    monkeypatch.setattr(streams_module, "time", SimpleNamespace(monotonic=lambda: at[0]))
    connection = Connection()
    response = frame(b"x" * 100)

    def receive_at(seconds: float, data: bytes) -> list[NetworkEvent]:
        at[0] = seconds
        connection.events.clear()
        connection.receive(data)
        return connection.events

    coming = Data(1, b"")
    assert receive_at(50.0, response[:10]) == []
    assert receive_at(50.9, response[10:11]) == []
    assert receive_at(51.0, response[11:12]) == [coming]
    assert receive_at(51.9, response[12:13]) == []
    assert receive_at(52.5, response[13:14]) == [coming]
    assert receive_at(53.4, response[14:]) == [Answer(1, b"x" * 100)]
    # Data is reported at most once a second, and not in the first second after a response's first bytes.
    assert receive_at(60.0, response[:10]) == []
    assert receive_at(61.0, response[10:11]) == [coming]


def test_a_connection_with_tls_is_open_after_the_handshake() -> None:
    connection = Connection()
    pipe = connection.begin_tls()
    pipe.out = b"finished"
    connection.receive(b"flight")
    assert connection.events == []
    connection.receive(b"done")
    connection.receive(frame(b"a"))
    assert connection.events == [Opened(1), Answer(1, b"a")]
    connection.protocol.write(b"request")
    connection.protocol.close()
    assert connection.transport.actions == [b"hello", b"finished", b"<request>", b"close_notify", "close"]


def test_a_failed_handshake_sends_the_alert_before_the_end() -> None:
    connection = Connection()
    connection.begin_tls()
    connection.receive(b"bad")
    assert connection.events == [Broken(1, "the certificate has expired", True)]
    assert connection.transport.actions == [b"hello", b"alert", "close"]
    connection.protocol.close()  # The transport is closing, so it accepts no close_notify.
    assert connection.transport.actions[3:] == ["close"]


def test_a_connection_that_ends_in_the_handshake_says_so() -> None:
    connection = Connection()
    connection.begin_tls()
    connection.protocol.connection_lost(None)
    assert connection.events == [Broken(1, "the connection ended in the handshake")]


def test_a_request_that_cannot_be_encrypted_breaks_the_connection() -> None:
    connection = Connection()
    connection.begin_tls()
    connection.protocol.write(b"bad")
    assert connection.events == [Broken(1, "cannot be encrypted")]
    assert connection.transport.actions == [b"hello", "abort"]


def test_a_connection_that_is_shut_when_it_opens_reports_no_response() -> None:
    connection = Connection()
    connection.begin_tls()
    connection.protocol.report = lambda event: (connection.events.append(event), connection.protocol.close())
    connection.receive(b"done" + frame(b"a"))
    assert connection.events == [Opened(1)]


# ---- all connections of an engine


class Engine:
    """A `Streams` object whose connections need no network, with a list of its events."""

    def __init__(self) -> None:
        self.events: list[NetworkEvent] = []
        self.on_event: Callable[[NetworkEvent], object] = self.events.append
        self.streams = Streams(lambda event: self.on_event(event))
        self.streams._loop = asyncio.get_running_loop()

    def add(self, key: int, *addresses: Address, tls: Any = None) -> Connection:
        """Add a connection to the first of these addresses."""
        connection = Connection()
        connection.protocol.key = key
        connection.protocol.report = self.streams._on_event
        route = _Route(("kafka", 9092), tls, 100, list(addresses[1:]))
        route.address = addresses[0] if addresses else None
        assert self.streams._start_using(key, (connection.transport, connection.protocol), route) is None
        return connection

    def tried(self, *addresses: Address) -> list[Address]:
        """Return the order in which a new connection would try these addresses."""
        return self.streams._failures.sort(("kafka", 9092), addresses)


@contextlib.contextmanager
def every_socket_closed() -> Iterator[None]:
    """Check that the `with` block closes its sockets: Python warns about an open socket that is freed."""
    gc.disable()  # Uncollected objects of other tests may hold open sockets.
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ResourceWarning)
            yield
    finally:
        gc.enable()
    assert caught == []


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def test_requests_and_ends_reach_only_their_connection() -> None:
    async def run() -> None:
        engine = Engine()
        first, second = engine.add(1, A), engine.add(2, A)
        engine.streams.perform(Write(1, b"x"))
        engine.streams.perform(Write(9, b"y"))  # The connection has ended.
        engine.streams.perform(Shut(2))
        engine.streams.perform(Shut(9))
        assert (first.transport.actions, second.transport.actions) == ([b"x"], ["close"])
        engine.streams.perform(Write(2, b"z"))
        assert second.transport.actions == ["close"]
        assert engine.events == [Opened(1), Opened(2)]

    asyncio.run(run())


@pytest.mark.parametrize("has_response", [False, True])
def test_an_address_without_a_response_is_tried_last_the_next_time(has_response: bool) -> None:
    async def run() -> None:
        for end in ("shut", "broken"):
            engine = Engine()
            connection = engine.add(1, A)
            assert engine.tried(A, B) == [A, B]
            if has_response:
                connection.receive(frame(b"a"))
            if end == "shut":
                engine.streams.perform(Shut(1))
            else:
                connection.protocol.connection_lost(None)
                assert engine.events[-1] == Broken(1, CLOSED)
            assert engine.tried(A, B) == ([A, B] if has_response else [B, A])

    asyncio.run(run())


@pytest.mark.parametrize(
    ("has_response", "denied", "continues"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_a_connection_that_breaks_before_a_response_continues_with_the_next_address(
    has_response: bool, denied: bool, continues: bool
) -> None:
    async def run() -> None:
        engine = Engine()
        connection = engine.add(1, A, (socket.AF_INET, ("127.0.0.1", 1)))
        if has_response:
            connection.receive(frame(b"a"))
        engine.events.clear()
        connection.protocol._on_broken("reset", denied=denied)
        assert engine.events == ([] if continues else [Broken(1, "reset", denied)])
        # The client tries the next address, which refuses connections. The reported error is from the
        # first address.
        async with asyncio.timeout(10):
            while not engine.events:
                await asyncio.sleep(0.001)
        assert engine.events == [Broken(1, "reset", denied)]

    asyncio.run(run())


def test_an_address_that_does_not_accept_a_connection_is_tried_last_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        engine = Engine()
        refusing: Address = (socket.AF_INET, ("127.0.0.1", 1))
        invalid: Address = (socket.AF_INET, ("127.0.0.1", 70_000))
        silent, answering = (socket.create_server(("127.0.0.1", 0), backlog=1) for _ in range(2))
        places = [(socket.AF_INET, server.getsockname()) for server in (silent, answering)]
        connect = engine.streams._connect

        async def connect_to(key: int, address: Address, limit: int, timeout_s: float | None) -> Any:
            if address == places[0]:
                raise TimeoutError
            return await connect(key, address, limit, timeout_s)

        monkeypatch.setattr(engine.streams, "_connect", connect_to)
        addresses = [refusing, invalid, *places]
        await engine.streams._try_addresses(1, _Route(("kafka", 9092), None, 9, addresses), "none")
        assert engine.events == [Opened(1)]
        assert engine.tried(refusing, invalid, *places) == [places[1], refusing, invalid, places[0]]
        engine.streams._opening[2] = asyncio.create_task(asyncio.sleep(0))
        await engine.streams._try_addresses(2, _Route(("kafka", 9092), None, 9, [places[0]]), "none")
        await engine.streams._try_addresses(3, _Route(("kafka", 9092), None, 9, []), "none")
        assert engine.events[1:] == [Broken(2, "no answer within 2 s"), Broken(3, "none")]
        engine.streams.close()
        for server in (silent, answering):
            server.close()

    asyncio.run(run())


def test_the_socket_of_an_attempt_that_fails_is_closed() -> None:
    async def run() -> None:
        engine = Engine()
        addresses: list[Address] = [(socket.AF_INET, ("127.0.0.1", port)) for port in (1, 70_000)]
        engine.streams._opening[1] = asyncio.create_task(asyncio.sleep(0))
        await engine.streams._try_addresses(1, _Route(("kafka", 9092), None, 9, addresses), "none")
        (event,) = engine.events
        assert isinstance(event, Broken)

    with every_socket_closed():
        asyncio.run(run())


def test_a_connection_that_is_shut_while_it_connects_counts_as_failed() -> None:
    async def run() -> None:
        engine = Engine()

        async def connect(*arguments: object) -> Any:
            await asyncio.get_running_loop().create_future()

        engine.streams._connect = connect  # type: ignore[method-assign]
        attempt = engine.streams._try_addresses(1, _Route(("kafka", 9092), None, 9, [A]), "none")
        engine.streams._opening[1] = task = asyncio.create_task(attempt)
        await turns()
        engine.streams.perform(Shut(1))
        await turns()
        assert task.cancelled()
        assert engine.events == []
        assert engine.tried(A, B) == [B, A]

    asyncio.run(run())


@pytest.mark.parametrize("is_last", [False, True])
def test_only_an_address_with_successors_has_a_limited_time(is_last: bool) -> None:
    async def run() -> None:
        engine = Engine()
        limits: list[float | None] = []

        async def connect(key: int, address: Address, limit: int, timeout_s: float | None) -> Any:
            limits.append(timeout_s)
            raise OSError(111, "Connection refused")

        engine.streams._connect = connect  # type: ignore[method-assign]
        addresses = [A] if is_last else [A, B]
        await engine.streams._try_addresses(1, _Route(("kafka", 9092), None, 9, addresses), "none")
        assert limits == ([None] if is_last else [2.0, None])
        assert engine.events == [Broken(1, "connection refused")]

    asyncio.run(run())


def test_a_connection_attempt_does_not_block_the_event_loop() -> None:
    """In debug mode, asyncio's event loop rejects a socket that may block."""

    async def run(host: str, port: int) -> None:
        engine = Engine()
        engine.streams.perform(Open(1, host, port))
        async with asyncio.timeout(10):
            while not engine.events:
                await asyncio.sleep(0.001)
        assert engine.events == [Opened(1)]
        engine.streams.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(run(*server.getsockname()), debug=True)


def test_a_connection_that_is_shut_while_its_dialer_runs_cancels_the_dialer() -> None:
    async def run() -> None:
        engine = Engine()
        tasks: list[Any] = []

        async def dial(host: str, port: int) -> socket.socket:
            tasks.append(asyncio.current_task())
            await asyncio.sleep(60)
            raise AssertionError("the dialer was not cancelled")

        async def cancel(host: str, port: int) -> socket.socket:
            raise asyncio.CancelledError

        engine.streams.perform(Open(1, "kafka", 9092, dialer=dial))
        await turns()
        engine.streams.perform(Shut(1))
        await turns()
        assert tasks[0].cancelled()
        # A dialer that cancels itself, without a `Shut` of its connection, counts as failed.
        engine.streams.perform(Open(2, "kafka", 9092, dialer=cancel))
        await turns()
        (event,) = engine.events
        assert isinstance(event, Broken)
        assert event.key == 2

    asyncio.run(run())


def test_the_socket_of_a_dialer_that_ignores_its_cancellation_is_closed() -> None:
    async def run() -> None:
        engine = Engine()
        ours, theirs = socket.socketpair()

        async def dial(host: str, port: int) -> socket.socket:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(60)
            return ours

        engine.streams.perform(Open(1, "kafka", 9092, dialer=dial))
        await turns()
        engine.streams.perform(Shut(1))
        await turns()
        assert theirs.recv(1) == b""
        theirs.close()
        assert engine.events == []

    with every_socket_closed():
        asyncio.run(run())


def test_ctrl_c_in_a_dialer_ends_the_loop() -> None:
    async def dial(host: str, port: int) -> socket.socket:
        raise KeyboardInterrupt

    opening: list[asyncio.Task[None]] = []

    async def run() -> None:
        engine = Engine()
        engine.streams.perform(Open(1, "kafka", 9092, dialer=dial))
        opening.extend(engine.streams._opening.values())
        await asyncio.sleep(10)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run())
    assert isinstance(opening[0].exception(), KeyboardInterrupt)


def test_a_connection_that_breaks_before_it_is_added_is_reported_by_its_task() -> None:
    async def run() -> None:
        engine = Engine()
        engine.streams._opening[1] = asyncio.create_task(asyncio.sleep(0))
        engine.streams._on_event(Broken(1, "reset"))
        engine.streams._on_event(Broken(2, "reset"))  # The connection was shut.
        assert engine.events == []
        connection = Connection()
        opened = (connection.transport, connection.protocol)
        assert engine.streams._start_using(1, opened, _Route(("kafka", 1), None, 9, [])) == "reset"
        assert engine.events == []
        engine.streams._report_failure(1, "reset")
        assert engine.events == [Broken(1, "reset")]
        assert engine.streams._opening == {}
        # If a connection is shut before its task reports the early error, this error is discarded.
        engine.streams._opening[3] = asyncio.create_task(asyncio.sleep(0))
        engine.streams._on_event(Broken(3, "reset"))
        engine.streams.perform(Shut(3))
        assert engine.streams._early_errors == {}

    asyncio.run(run())


@pytest.mark.parametrize("has_dialer", [False, True])
def test_a_connection_that_breaks_before_it_is_added_ends_with_its_error(has_dialer: bool) -> None:
    async def run() -> None:
        engine = Engine()
        ours, theirs = socket.socketpair()

        async def dial(host: str, port: int) -> socket.socket:
            return ours

        async def open_broken(*arguments: object) -> Any:
            engine.streams._on_event(Broken(1, "reset"))
            connection = Connection()
            return connection.transport, connection.protocol

        async def connect(key: int, address: Address, *arguments: object) -> Any:
            if address == B:
                raise OSError(111, "Connection refused")
            return await open_broken()

        engine.streams._create_transport = open_broken  # type: ignore[method-assign]
        engine.streams._connect = connect  # type: ignore[method-assign]
        if has_dialer:
            engine.streams.perform(Open(1, "kafka", 9092, dialer=dial))
        else:
            attempt = engine.streams._try_addresses(1, _Route(("kafka", 9092), None, 9, [A, B]), "none")
            engine.streams._opening[1] = asyncio.create_task(attempt)
        await turns()
        assert engine.events == [Broken(1, "reset")]
        assert engine.streams._opening == {}
        ours.close()
        theirs.close()

    asyncio.run(run())


def test_tls_begins_when_the_socket_is_connected() -> None:
    async def run() -> None:
        engine = Engine()
        hosts: list[str] = []

        def pipe(host: str) -> PlainPipe:
            hosts.append(host)
            return PlainPipe()

        first, second = (engine.add(key, A, tls=SimpleNamespace(pipe=pipe)) for key in (1, 2))
        assert engine.events == [Reached(1), Reached(2)]
        assert hosts == ["kafka", "kafka"]
        assert first.transport.actions == second.transport.actions == [b"hello"]
        # All connections share a buffer for encrypted bytes.
        assert first.protocol.get_buffer(1) is second.protocol.get_buffer(1)
        assert len(first.protocol.get_buffer(1)) == 256 * 1024

    asyncio.run(run())


def test_a_connection_that_is_shut_when_it_is_reached_starts_no_handshake() -> None:
    async def run() -> None:
        engine = Engine()
        engine.on_event = lambda event: engine.streams.perform(Shut(1))
        assert engine.add(1, A, tls=SimpleNamespace(pipe=None)).transport.actions == ["close"]

    asyncio.run(run())


def test_tls_that_cannot_start_is_a_failure_of_the_configuration() -> None:
    async def run() -> None:
        def pipe(host: str) -> PlainPipe:
            raise TlsFailed("the host name is invalid", final=True)

        engine = Engine()
        connection = engine.add(1, A, tls=SimpleNamespace(pipe=pipe))
        assert engine.events == [Reached(1), Broken(1, "the host name is invalid", True)]
        assert connection.transport.actions == ["close"]

    asyncio.run(run())


class Source:
    """A source of tokens that waits until the test calls `answer` with a token."""

    def __init__(self, *, shared: bool) -> None:
        self.shared = shared
        self.requests: list[asyncio.Future[Any]] = []

    async def awaited(self) -> Any:
        self.requests.append(asyncio.get_running_loop().create_future())
        return await self.requests[-1]


@pytest.mark.parametrize(("shared", "count"), [(True, 1), (False, 2)])
def test_connections_share_a_token_request_unless_a_login_belongs_to_one(shared: bool, count: int) -> None:
    async def run() -> None:
        engine, source = Engine(), Source(shared=shared)
        get_token: Any = GetToken
        for key in (1, 2):
            engine.streams.perform(get_token(key, source))
        await turns()
        assert len(source.requests) == count
        for number, request in enumerate(source.requests):
            request.set_result(number)
        await turns()
        assert engine.events == [GotToken(1, 0), GotToken(2, count - 1)]  # type: ignore[arg-type]
        # The next connection makes a new request.
        engine.streams.perform(get_token(3, source))
        await turns()
        source.requests[count].set_exception(NoToken("no ticket", final=True))
        await turns()
        assert engine.events[2:] == [Broken(3, "no ticket", True)]
        assert engine.streams._opening == {}

    asyncio.run(run())


def test_a_connection_that_is_shut_gets_no_token_but_the_others_do() -> None:
    async def run() -> None:
        engine, source = Engine(), Source(shared=True)
        get_token: Any = GetToken
        for key in (1, 2):
            engine.streams.perform(get_token(key, source))
        await turns()
        engine.streams.perform(Shut(1))
        await turns()
        source.requests[0].set_result("token")
        await turns()
        assert engine.events == [GotToken(2, "token")]  # type: ignore[arg-type]

    asyncio.run(run())


@pytest.mark.parametrize("abort", [False, True])
def test_the_end_closes_connections_and_cancels_the_token_request(abort: bool) -> None:
    async def run() -> None:
        engine, source = Engine(), Source(shared=True)
        connection = engine.add(1, A)
        get_token: Any = GetToken
        engine.streams.perform(get_token(2, source))
        await turns()
        engine.events.clear()
        engine.streams.close(abort=abort)
        await turns()
        assert source.requests[0].cancelled()
        assert connection.transport.actions == ["abort" if abort else "close"]
        engine.streams.close()  # A second close changes nothing.
        assert len(connection.transport.actions) == 1
        connection.protocol.connection_lost(None)
        assert engine.events == []

    asyncio.run(run())


@pytest.mark.parametrize("abort", [False, True])
def test_a_response_that_ends_the_client_is_the_last_one(abort: bool) -> None:
    async def run() -> None:
        engine = Engine()
        connection = engine.add(1, A)
        engine.events.clear()
        engine.on_event = lambda event: (engine.events.append(event), engine.streams.close(abort=abort))
        connection.receive(frame(b"a") + frame(b"b"))
        assert engine.events == [Answer(1, b"a")]

    asyncio.run(run())


def test_results_of_threads_for_connections_that_were_shut_are_dropped() -> None:
    async def run() -> None:
        engine, loop = Engine(), asyncio.get_running_loop()
        waiting, done = loop.create_future(), loop.create_future()
        done.cancel()
        engine.streams._resolving.update({1: waiting, 2: done})
        resolved = [Resolved(key, (A,)) for key in (1, 2, 3)]
        engine.streams._resolver._results.extend(resolved)
        engine.streams._complete_waiters()
        assert waiting.result() == resolved[0]

        dialing, given_up = loop.create_future(), loop.create_future()
        given_up.cancel()
        engine.streams._dialing.update({1: dialing, 2: given_up})
        sockets = {key: socket.socket() for key in (1, 2, 3)}
        dialed_sockets = [Dialed(key, sock) for key, sock in sockets.items()]
        engine.streams._dials.take = lambda: dialed_sockets  # type: ignore[method-assign]
        engine.streams._complete_waiters()
        assert dialing.result().sock is sockets[1]
        assert [sock.fileno() == -1 for sock in sockets.values()] == [False, True, True]
        sockets[1].close()

    asyncio.run(run())


def test_a_connection_leaves_nothing_of_its_name_lookup_behind() -> None:
    async def run() -> None:
        engine = Engine()

        def resolve(*arguments: object) -> None:
            return None

        engine.streams._resolver.resolve = resolve  # type: ignore[method-assign]
        for key in (1, 2):
            engine.streams.perform(Open(key, "kafka", 9092))
        await turns()
        engine.streams._resolving[1].set_result(Resolved(1, (), "the host name is unknown"))
        engine.streams.perform(Shut(2))
        await turns()
        assert engine.events == [Broken(1, "the host name is unknown")]
        assert engine.streams._resolving == {}
        assert engine.streams._opening == {}

    asyncio.run(run())


def test_results_of_threads_after_the_end_of_the_event_loop_are_dropped() -> None:
    async def create() -> Engine:
        return Engine()

    asyncio.run(create()).streams._on_resolved()


def test_a_shut_connection_forgets_its_dialer_and_closes_its_socket() -> None:
    async def run() -> None:
        engine = Engine()
        forgotten: list[int] = []

        def dial(*arguments: object) -> None:
            return None

        engine.streams._dials.dial = dial  # type: ignore[method-assign]
        engine.streams._dials.forget = forgotten.append  # type: ignore[method-assign]
        with socket.socket() as late:
            for key in (1, 2, 3):
                engine.streams.perform(Open(key, "kafka", 9092, dialer=socket.create_connection))
            await turns()
            engine.streams._dialing[2].set_result(Dialed(2, late))
            engine.streams._opening[3].cancel()  # asyncio.run cancels all tasks at its end.
            for key in (1, 2):
                engine.streams.perform(Shut(key))
            await turns()
            assert late.fileno() == -1
        assert sorted(forgotten) == [1, 2, 3]
        assert engine.streams._dialing == {}
        assert engine.events == []

    asyncio.run(run())


def test_a_socket_without_a_transport_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*arguments: object, **named: object) -> Any:
        raise OSError(24, "Too many open files")

    async def run() -> None:
        engine, loop = Engine(), asyncio.get_running_loop()
        sock = socket.socket()
        with monkeypatch.context() as patch:
            patch.setattr(loop, "create_connection", fail)
            with pytest.raises(OSError, match="Too many open files"):
                await engine.streams._create_transport(1, sock, 100)
        assert sock.fileno() == -1

    asyncio.run(run())


def test_a_dialer_that_fails_at_once_is_reported() -> None:
    async def run() -> None:
        engine = Engine()

        def dial(*arguments: object) -> Dialed:
            return Dialed(1, None, "no thread")

        engine.streams._dials.dial = dial  # type: ignore[method-assign]
        engine.streams.perform(Open(1, "kafka", 9092, dialer=socket.create_connection))
        await turns()
        assert engine.events == [Broken(1, "no thread")]

    asyncio.run(run())


def test_a_dialed_connection_is_used_and_a_failed_dialer_is_reported() -> None:
    async def run() -> None:
        ours, theirs = socket.socketpair()
        engine = Engine()

        async def dial(host: str, port: int) -> socket.socket:
            assert (host, port) == ("kafka", 9092)
            return ours

        async def fail(host: str, port: int) -> socket.socket:
            raise OSError(111, "Connection refused")

        engine.streams.perform(Open(1, "kafka", 9092, dialer=dial))
        engine.streams.perform(Open(2, "kafka", 9092, dialer=fail))
        async with asyncio.timeout(10):
            while len(engine.events) < 2:
                await asyncio.sleep(0.001)
        assert {type(event): event.key for event in engine.events} == {Opened: 1, Broken: 2}  # type: ignore[union-attr]
        engine.streams.perform(Write(1, b"x"))
        engine.streams.close()
        await turns()
        assert theirs.recv(2) == b"x"
        theirs.close()

    asyncio.run(run())
