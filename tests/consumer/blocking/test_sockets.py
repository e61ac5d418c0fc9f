"""Blocking connections: the events that they report, and the bytes that they write, until they close."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from consumer.blocking import sockets as sockets_module
from consumer.blocking.sockets import Sockets, _Connection
from consumer.dialers import Dialed
from consumer.engine.network.transport import (
    Answer,
    Broken,
    Data,
    GetToken,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)
from consumer.resolver import Address, Resolved
from consumer.security.failures import CLOSED, TlsFailed
from kproto.wire.frame import ReceiveBuffer, frame
from tests.consumer.stage import PlainPipe

A: Address = (socket.AF_INET, ("127.0.0.1", 9092))
B: Address = (socket.AF_INET, ("127.0.0.2", 9092))
REFUSING: Address = (socket.AF_INET, ("127.0.0.1", 1))


class Engine:
    """`Sockets` whose connections lead to sockets of the test, not to a broker."""

    def __init__(self) -> None:
        self.sockets = Sockets()
        self.peers: list[socket.socket] = []

    def connect(
        self, key: int, *addresses: Address, tls: Any = None, max_response: int = 1 << 20
    ) -> socket.socket:
        """Register half of a socket pair as the connection to the first address; return the peer."""
        ours, theirs = socket.socketpair()
        theirs.settimeout(10)
        self.peers.append(theirs)
        connection = _Connection(("kafka", 9092), tls, ReceiveBuffer(max_response))
        self.sockets._connections[key] = connection
        self.sockets._on_dialed(Dialed(key, ours), self.sockets._events)
        connection.addresses.extend(addresses[1:])
        connection.address = addresses[0] if addresses else None
        return theirs

    def tls_connection(self) -> tuple[socket.socket, PlainPipe]:
        """Return a connection with TLS after its handshake."""
        pipe = PlainPipe()
        peer = self.connect(1, tls=SimpleNamespace(pipe=lambda host: pipe))
        assert peer.recv(100) == b"hello"
        peer.sendall(b"done")
        assert self.events() == [Reached(1), Opened(1)]
        return peer, pipe

    def events(self, seconds: float = 0) -> list[NetworkEvent]:
        return self.sockets.wait(seconds)

    def tried(self, *addresses: Address) -> list[Address]:
        """Return the order in which a new connection would try these addresses."""
        return self.sockets._failures.sort(("kafka", 9092), addresses)


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.sockets.close()
    for peer in engine.peers:
        peer.close()


@contextmanager
def clock(monkeypatch: pytest.MonkeyPatch) -> Generator[list[float]]:
    at = [50.0]
    with monkeypatch.context() as patch:
        patch.setattr(sockets_module, "time", SimpleNamespace(monotonic=lambda: at[0]))
        yield at


def test_responses_are_reported_in_order_until_the_connection_ends(engine: Engine) -> None:
    peer = engine.connect(1)
    assert engine.events() == [Opened(1)]
    peer.sendall(frame(b"a") + frame(b"b")[:2])
    assert engine.events() == [Answer(1, b"a")]
    peer.sendall(frame(b"b")[2:] + frame(b"c"))
    assert engine.events() == [Answer(1, b"b"), Answer(1, b"c")]
    peer.close()
    assert engine.events() == [Broken(1, CLOSED)]
    assert engine.events() == []


def test_requests_and_ends_reach_only_their_connection(engine: Engine) -> None:
    first, second = engine.connect(1), engine.connect(2)
    engine.sockets.perform(Write(1, b"x"))
    engine.sockets.perform(Write(9, b"y"))  # The connection has ended.
    engine.sockets.perform(Shut(2))
    engine.sockets.perform(Shut(9))
    assert (first.recv(9), second.recv(9)) == (b"x", b"")
    assert engine.events() == [Opened(1), Opened(2)]


@pytest.mark.parametrize(
    ("data", "denied"), [(frame(b"x" * 11), False), (b"\x15\x03\x03\x00\x02\x02\x28", True)]
)
def test_bytes_that_are_no_responses_break_the_connection(engine: Engine, data: bytes, denied: bool) -> None:
    peer = engine.connect(1, max_response=10)
    engine.events()
    peer.sendall(data)
    (event,) = engine.events()
    assert isinstance(event, Broken)
    assert event.denied == denied
    assert peer.recv(9) == b""


@pytest.mark.parametrize("tls", [False, True])
def test_a_long_response_in_progress_is_reported_once_a_second(
    engine: Engine, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = engine.tls_connection()[0] if tls else engine.connect(1)
    engine.events()
    response = frame(b"x" * 100)
    with clock(monkeypatch) as at:

        def receive_at(seconds: float, data: bytes) -> list[NetworkEvent]:
            at[0] = seconds
            peer.sendall(data)
            return engine.events()

        coming = Data(1, b"")
        assert receive_at(50.0, response[:10]) == []
        assert receive_at(50.9, response[10:11]) == []
        assert receive_at(51.0, response[11:12]) == [coming]
        assert receive_at(51.9, response[12:13]) == []
        assert receive_at(52.5, response[13:14]) == [coming]
        assert receive_at(53.4, response[14:]) == [Answer(1, b"x" * 100)]
        # A `Data` event reports progress at most once a second. Each response starts a new interval.
        assert receive_at(60.0, response[:10]) == []
        assert receive_at(61.0, response[10:11]) == [coming]


def test_bytes_that_the_kernel_does_not_accept_are_sent_when_it_does(engine: Engine) -> None:
    peer = engine.connect(1)
    sock = engine.sockets._connections[1].sock
    assert sock is not None
    data = bytes(range(256)) * 4_000
    engine.sockets.perform(Write(1, data))
    engine.sockets.perform(Write(1, b"end"))
    assert engine.sockets._selector.get_key(sock).events == selectors.EVENT_READ | selectors.EVENT_WRITE
    received = b""
    while len(received) < len(data) + 3:
        engine.events()
        received += peer.recv(1 << 20)
    assert received == data + b"end"
    engine.events()
    # All bytes are written, so the selector no longer waits for the socket to accept more.
    assert engine.sockets._selector.get_key(sock).events == selectors.EVENT_READ


def test_a_connection_with_tls_is_encrypted_until_its_end(engine: Engine) -> None:
    peer, pipe = engine.tls_connection()
    pipe.out = b"finished"
    peer.sendall(frame(b"a"))
    assert engine.events() == [Answer(1, b"a")]
    assert peer.recv(100) == b"finished"
    engine.sockets.perform(Write(1, b"request"))
    assert peer.recv(100) == b"<request>"
    assert not engine.sockets.write_at_once(deque_of(Write(1, b"request")))
    engine.sockets.perform(Shut(1))
    assert peer.recv(100) + peer.recv(100) == b"close_notify"


def deque_of(action: Write) -> Any:
    return sockets_module.deque([action])


def test_one_connection_with_tls_decides_which_thread_reads(engine: Engine) -> None:
    for key, tls in enumerate((None, SimpleNamespace(pipe=None), None)):
        assert engine.sockets.uses_tls == (key > 1)
        engine.sockets.perform(Open(key, "127.0.0.1", 1, tls))  # type: ignore[arg-type]
    assert engine.sockets.uses_tls


def test_a_failed_handshake_sends_the_alert_before_the_end(engine: Engine) -> None:
    peer = engine.connect(1, tls=SimpleNamespace(pipe=lambda host: PlainPipe()))
    peer.sendall(b"bad")
    assert engine.events() == [Reached(1), Broken(1, "the certificate has expired", True)]
    assert peer.recv(100).startswith(b"helloalert")


def test_a_connection_that_ends_in_the_handshake_says_so(engine: Engine) -> None:
    peer = engine.connect(1, tls=SimpleNamespace(pipe=lambda host: PlainPipe()))
    peer.shutdown(socket.SHUT_WR)
    assert engine.events() == [Reached(1), Broken(1, "the connection ended in the handshake")]


def test_tls_that_cannot_start_is_a_failure_of_the_configuration(engine: Engine) -> None:
    def pipe(host: str) -> PlainPipe:
        raise TlsFailed(f"{host} is invalid", final=False)

    peer = engine.connect(1, tls=SimpleNamespace(pipe=pipe))
    assert engine.events() == [Reached(1), Broken(1, "kafka is invalid", True)]
    assert peer.recv(9) == b""


def test_a_request_that_cannot_be_encrypted_breaks_the_connection(engine: Engine) -> None:
    engine.tls_connection()
    engine.sockets.perform(Write(1, b"bad"))
    assert engine.events() == [Broken(1, "cannot be encrypted")]


@pytest.mark.parametrize("has_response", [False, True])
@pytest.mark.parametrize("end", ["shut", "broken"])
def test_an_address_without_a_response_is_tried_last_the_next_time(
    engine: Engine, has_response: bool, end: str
) -> None:
    peer = engine.connect(1, A)
    assert engine.tried(A, B) == [A, B]
    if has_response:
        peer.sendall(frame(b"a"))
        engine.events()
        engine.events()
    if end == "shut":
        engine.sockets.perform(Shut(1))
    else:
        peer.close()
        engine.events()
        engine.events()
    assert engine.tried(A, B) == ([A, B] if has_response else [B, A])


@pytest.mark.parametrize(
    ("has_response", "denied", "continues"),
    [(False, False, True), (True, False, False), (False, True, False)],
)
def test_a_connection_that_breaks_before_a_response_continues_with_the_next_address(
    engine: Engine, has_response: bool, denied: bool, continues: bool
) -> None:
    peer = engine.connect(1, A, REFUSING)
    if has_response:
        peer.sendall(frame(b"a"))
    for _ in range(2):
        engine.events()
    engine.sockets._on_broken(1, "reset", engine.sockets._events, denied=denied)
    assert peer.recv(9) == b""
    assert engine.sockets._events == ([] if continues else [Broken(1, "reset", denied)])
    # The client tries the next address, which refuses connections. The reported error is from the first
    # address.
    assert engine.events(10) == [Broken(1, "reset", denied)]
    assert engine.sockets._connections == {}


def test_an_address_that_does_not_answer_is_followed_by_the_next_after_some_seconds(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, clock(monkeypatch) as at:
        connection = _Connection(("kafka", 9092), None, ReceiveBuffer(100))
        engine.sockets._connections[1] = connection
        answering: Address = (socket.AF_INET, server.getsockname())
        engine.sockets._on_resolved(Resolved(1, (answering, answering)), engine.sockets._events)
        first = connection.sock
        assert connection.next_address_at == 52.0
        at[0] = 51.9
        engine.sockets._try_next_addresses(engine.sockets._events)
        assert connection.sock is first
        at[0] = 52.0
        engine.sockets._try_next_addresses(engine.sockets._events)
        assert connection.sock is not first
        assert connection.error == "no answer within 2 s"
        # No time limit applies to the last address, because no other is left to try.
        assert connection.next_address_at == float("inf")
        assert engine.events(10) == [Opened(1)]


def test_a_host_without_an_address_breaks_the_connection(engine: Engine) -> None:
    for key, error, why in ((1, "", "the host name has no address"), (2, "unknown", "unknown")):
        engine.sockets._connections[key] = _Connection(("kafka", 9092), None, ReceiveBuffer(100))
        engine.sockets._on_resolved(Resolved(key, (), error), engine.sockets._events)
        engine.sockets._on_resolved(Resolved(9, (A,)), engine.sockets._events)  # It was shut.
        assert engine.events() == [Broken(key, why)]


def test_a_dialed_socket_of_a_connection_that_was_shut_is_closed(engine: Engine) -> None:
    with socket.socket() as sock:
        engine.sockets._on_dialed(Dialed(1, sock), engine.sockets._events)
        assert sock.fileno() == -1
    engine.sockets._on_dialed(Dialed(1, None, "refused"), engine.sockets._events)
    assert engine.events() == []
    engine.sockets._connections[1] = _Connection(("kafka", 9092), None, ReceiveBuffer(100))
    engine.sockets._on_dialed(Dialed(1, None, "refused"), engine.sockets._events)
    assert engine.events() == [Broken(1, "refused")]


def test_the_end_closes_all_connections_once(engine: Engine) -> None:
    peer, _ = engine.tls_connection()
    plain = engine.connect(2)
    engine.sockets.close()
    engine.sockets.close()
    engine.sockets.wake()
    assert peer.recv(100) + peer.recv(100) == b"close_notify"
    assert plain.recv(9) == b""


def test_the_child_of_a_fork_closes_its_copies_without_a_message(engine: Engine) -> None:
    peer, _ = engine.tls_connection()
    engine.sockets.abandon()
    engine.sockets.close()
    assert peer.recv(100) == b""


def test_without_free_descriptors_nothing_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> Any:
        raise OSError(24, "Too many open files")

    selector = selectors.DefaultSelector()
    monkeypatch.setattr(selectors, "DefaultSelector", lambda: selector)
    monkeypatch.setattr(socket, "socketpair", fail)
    with pytest.raises(OSError, match="Too many open files"):
        Sockets()
    with pytest.raises((ValueError, RuntimeError, KeyError)):
        selector.get_key(0)


def test_a_dialer_whose_thread_cannot_start_breaks_the_connection(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def dial(host: str, port: int) -> socket.socket:
        raise AssertionError("no thread calls the dialer")

    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        engine.sockets.perform(Open(1, "kafka", 9092, dialer=dial))
    (event,) = engine.events()
    assert isinstance(event, Broken)
    assert "can't start new thread" in event.why


def test_a_closed_socket_of_a_dialer_breaks_the_connection(engine: Engine) -> None:
    closed = socket.socket()
    closed.close()
    engine.sockets._connections[1] = _Connection(("kafka", 9092), None, ReceiveBuffer(100))
    engine.sockets._on_dialed(Dialed(1, closed), engine.sockets._events)
    (event,) = engine.events()
    assert isinstance(event, Broken)
    assert engine.sockets._connections == {}


def test_a_token_request_that_fails_at_once_breaks_the_connection(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    lookups: list[Any] = []

    def request(*arguments: Any) -> list[NetworkEvent]:
        lookups.append(arguments)
        return [Broken(1, "no token")]

    monkeypatch.setattr(engine.sockets._tokens, "request", request)
    engine.sockets.perform(GetToken(1, "source"))  # type: ignore[arg-type]
    assert engine.events() == [Broken(1, "no token")]
    assert lookups == [(1, "source", engine.sockets._connections)]


def test_a_write_that_fails_at_once_is_left_to_the_engines_thread(engine: Engine) -> None:
    peer = engine.connect(1)
    engine.events()
    action = Write(1, b"x")
    todo = deque_of(action)
    assert engine.sockets.write_at_once(todo)
    assert (len(todo), peer.recv(9)) == (0, b"x")
    peer.close()
    todo = deque_of(action)
    assert not engine.sockets.write_at_once(todo)
    assert list(todo) == [action]
    engine.sockets.perform(action)
    (event,) = engine.events()
    assert isinstance(event, Broken)
    assert event.why == "broken pipe"


def test_bytes_over_tls_that_are_no_responses_break_the_connection(engine: Engine) -> None:
    peer, _ = engine.tls_connection()
    peer.sendall((1 << 30).to_bytes(4, "big") + b"x")
    (event,) = engine.events()
    assert isinstance(event, Broken)
    assert not event.denied
    assert peer.recv(100) == b"close_notify"


def test_a_wake_ends_a_wait_once(engine: Engine) -> None:
    for _ in range(3):
        engine.sockets.wake()
    begun = time.monotonic()
    assert engine.events(60) == []
    assert time.monotonic() - begun < 50
    assert engine.sockets._select(0) is False
