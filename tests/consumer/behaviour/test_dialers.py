"""The option `dialer` opens all connections of a client, for example through a proxy."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from consumer import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, ConnectionFailed, KprotoError, RequestTimedOut
from tests.consumer.behaviour.proxies import TinyProxy, tiny_proxy

pytestmark = pytest.mark.usefixtures("fast_collections")

P0 = TopicPartition("t", 0)
SECONDS = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


@pytest.fixture
def proxy() -> Iterator[TinyProxy]:
    with tiny_proxy() as proxy:
        yield proxy


def dial(host: str, port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port))


def connect(proxy: TinyProxy, host: str, port: int) -> socket.socket:
    """Connect through the proxy with HTTP CONNECT."""
    sock = socket.create_connection(("127.0.0.1", proxy.port))
    sock.sendall(f"CONNECT {host}:{port} HTTP/1.1\r\n\r\n".encode())
    answer = sock.recv(1000)
    if b" 200 " not in answer:
        sock.close()
        raise ConnectionRefusedError(answer.split(b"\r\n")[0].decode())
    return sock


def port_of(broker: Server) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def test_all_connections_of_all_clients_are_dialed(broker: Server, proxy: TinyProxy) -> None:
    port = port_of(broker)
    dialer = partial(connect, proxy)
    # Only the proxy resolves the name.
    with Producer(f"kafka.invalid:{port}", dialer=dialer) as producer:
        offset = producer.send("t", b"x").result().offset
    with Consumer(f"kafka.invalid:{port}", dialer=dialer) as consumer:
        consumer.assign({P0: offset})
        assert [record.value for record in consumer.poll(SECONDS)] == [b"x"]
    with Admin(f"kafka.invalid:{port}", dialer=dialer) as admin:
        assert admin.topics() == {"t": 1}
    assert set(proxy.asked) == {("kafka.invalid", port), ("127.0.0.1", port)}


@pytest.mark.parametrize("coroutine", [False, True])
def test_a_dialer_of_an_asyncio_client_may_be_a_coroutine(broker: Server, coroutine: bool) -> None:
    threads: set[int] = set()

    def plain(host: str, port: int) -> socket.socket:
        threads.add(threading.get_ident())
        return dial(host, port)

    async def awaited(host: str, port: int) -> socket.socket:
        await asyncio.sleep(0)
        return plain(host, port)

    async def main() -> None:
        dialer = awaited if coroutine else plain
        async with AsyncProducer(broker.bootstrap, dialer=dialer) as producer:
            offset = (await (await producer.send("t", b"x"))).offset
        async with AsyncConsumer(broker.bootstrap, dialer=dialer) as consumer:
            consumer.assign({P0: offset})
            assert [record.value for record in await consumer.poll(SECONDS)] == [b"x"]
        async with AsyncAdmin(broker.bootstrap, dialer=dialer) as admin:
            assert await admin.topics() == {"t": 1}

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert (threads == {threading.get_ident()}) == coroutine


def test_a_dialer_must_be_a_function_of_host_and_port(broker: Server) -> None:
    async def coroutine(host: str, port: int) -> socket.socket:
        raise NotImplementedError

    for client in (Consumer, Producer, Admin):
        for wrong in (5, lambda host: None, socket.socket):
            with pytest.raises(ConfigError, match=r"^dialer=.*a function with the parameters \(host, port\)"):
                client(broker.bootstrap, dialer=wrong)
        with pytest.raises(ConfigError, match="only asyncio clients can await a coroutine"):
            client(broker.bootstrap, dialer=coroutine)
    gc.collect()


def _raises(host: str, port: int) -> Any:
    raise LookupError("no tunnel")


def _exits(host: str, port: int) -> Any:
    raise SystemExit("stop")


def _not_connected(host: str, port: int) -> Any:
    return socket.socket()


def _closed(host: str, port: int) -> Any:
    sock = dial(host, port)
    sock.close()
    return sock


def _tls(host: str, port: int) -> Any:
    context = ssl.create_default_context()
    return context.wrap_socket(dial(host, port), server_hostname="x", do_handshake_on_connect=False)


async def _coroutine(host: str, port: int) -> Any:
    raise NotImplementedError


def _returns_coroutine(host: str, port: int) -> Any:
    return _coroutine(host, port)


FAILURES: list[tuple[Callable[[str, int], Any], str]] = [
    (_raises, "the dialer _raises failed: LookupError: no tunnel"),
    (_exits, "the dialer _exits failed: SystemExit: stop"),
    (lambda host, port: None, r"failed: TypeError: it returned None instead of a connected socket"),
    (_not_connected, "the dialer _not_connected failed: OSError"),
    (_closed, "the dialer _closed failed: OSError"),
    (_tls, "a socket with TLS; set security_protocol instead"),
    (_returns_coroutine, "it returned <coroutine .* instead of a connected socket"),
]


@pytest.mark.parametrize(("dialer", "message"), FAILURES)
def test_a_failure_names_the_broker_and_the_dialer(
    broker: Server, dialer: Any, message: str, recwarn: pytest.WarningsRecorder
) -> None:
    gc.collect()
    recwarn.clear()  # Discard the warnings about connections that other tests left open.
    with Admin(broker.bootstrap, dialer=dialer) as admin:
        with pytest.raises(ConnectionFailed, match=message) as raised:
            admin.topics()
        assert broker.bootstrap in str(raised.value)

    async def main() -> None:
        async with AsyncAdmin(broker.bootstrap, dialer=dialer) as admin:
            with pytest.raises(ConnectionFailed, match=message):
                await admin.topics()

    asyncio.run(main())
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


class Aborted(BaseException):
    """An exception that `except Exception` does not catch, like some exceptions of trio and pytest."""


def test_a_coroutine_that_fails_names_the_broker_and_the_dialer(broker: Server) -> None:
    async def cancelled(host: str, port: int) -> Any:
        raise asyncio.CancelledError

    async def raises(host: str, port: int) -> Any:
        await asyncio.sleep(0)
        raise LookupError("no tunnel")

    async def exits(host: str, port: int) -> Any:
        raise SystemExit("stop")

    async def aborts(host: str, port: int) -> Any:
        raise Aborted("tunnel")

    failures = (
        (cancelled, "CancelledError"),
        (raises, "LookupError: no tunnel"),
        (exits, "SystemExit: stop"),
        (aborts, "Aborted: tunnel"),
    )

    async def main() -> None:
        for dialer, message in failures:
            async with AsyncAdmin(broker.bootstrap, dialer=dialer) as admin:
                with pytest.raises(ConnectionFailed, match=f"{dialer.__name__} failed: {message}"):
                    await admin.topics()

    asyncio.run(main())


def test_a_dialer_that_fails_is_called_again(broker: Server) -> None:
    failures = iter([LookupError(), LookupError()])

    def dialer(host: str, port: int) -> socket.socket:
        for failure in failures:
            raise failure
        return dial(host, port)

    with Producer(broker.bootstrap, dialer=dialer) as producer:
        assert producer.send("t", b"x").result(SECONDS).partition == 0


def test_a_dialer_that_blocks_ends_the_call_and_uses_one_thread(broker: Server) -> None:
    released = threading.Event()
    calls: list[str] = []

    def blocks(host: str, port: int) -> socket.socket:
        calls.append(threading.current_thread().name)
        released.wait(SECONDS)
        return dial(host, port)

    options: Any = {"socket_connection_setup_timeout_ms": 50, "reconnect_backoff_ms": 1}
    try:
        with Consumer(broker.bootstrap, dialer=blocks, **options) as consumer:
            # The timeout of the call is 40 times the setup timeout, so that the setup times out first, even
            # on a loaded machine.
            with pytest.raises(
                (ConnectionFailed, RequestTimedOut), match="blocks has returned no connection"
            ):
                consumer.partitions_for("t", timeout=2)
            assert calls == ["kproto-dialer-127.0.0.1"]
            # The first call of the dialer now returns its socket, and the next attempt to connect uses this
            # socket.
            released.set()
            assert consumer.partitions_for("t", timeout=SECONDS) == [P0]
    finally:
        released.set()


def test_a_socket_that_a_dialer_returns_after_close_is_closed(broker: Server) -> None:
    released, returned = threading.Event(), threading.Event()
    ours, theirs = socket.socketpair()

    def blocks(host: str, port: int) -> socket.socket:
        released.wait(SECONDS)
        returned.set()
        return ours

    with Consumer(broker.bootstrap, dialer=blocks) as consumer, pytest.raises(KprotoError):
        consumer.partitions_for("t", timeout=0.05)
    released.set()
    assert returned.wait(SECONDS)
    theirs.settimeout(SECONDS)
    assert theirs.recv(1) == b""
    theirs.close()


def test_a_dialer_may_call_its_client_without_a_deadlock(broker: Server) -> None:
    errors: list[BaseException] = []

    def calls_back(host: str, port: int) -> socket.socket:
        try:
            consumer.poll(SECONDS)
        except KprotoError as error:
            errors.append(error)
        return dial(host, port)

    consumer = Consumer(broker.bootstrap, dialer=calls_back)
    with consumer:
        assert consumer.partitions_for("t") == [P0]
    assert errors
    assert "another thread is inside partitions_for()" in str(errors[0])


def test_a_coroutine_dialer_may_close_its_client(broker: Server) -> None:
    async def main() -> None:
        async def closes(host: str, port: int) -> socket.socket:
            await admin.close()
            return dial(host, port)

        admin = AsyncAdmin(broker.bootstrap, dialer=closes)
        with pytest.raises((KprotoError, asyncio.CancelledError)):
            await admin.topics(timeout=5)
        with suppress(KprotoError):
            await admin.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


@pytest.mark.parametrize("fails", [False, True])
def test_a_coroutine_that_ignores_its_cancellation_opens_no_connection(broker: Server, fails: bool) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        ended = asyncio.Event()

        async def ignores(host: str, port: int) -> socket.socket:
            try:
                await asyncio.sleep(SECONDS)
            except asyncio.CancelledError:
                ended.set()
            if fails:
                ours.close()
                raise LookupError
            return ours

        async with AsyncAdmin(broker.bootstrap, dialer=ignores) as admin:
            with pytest.raises(RequestTimedOut):
                await admin.topics(timeout=0.05)
        await ended.wait()
        theirs.setblocking(False)
        assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""
        theirs.close()

    asyncio.run(asyncio.wait_for(main(), SECONDS))


def test_a_connection_that_a_dialer_has_opened_may_break(broker: Server, proxy: TinyProxy) -> None:
    with Consumer(broker.bootstrap, dialer=partial(connect, proxy)) as consumer:
        assert consumer.partitions_for("t") == [P0]
        for sock in proxy.connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        assert consumer.partitions_for("t") == [P0]


def test_a_proxy_that_refuses_is_named_by_the_error(broker: Server, proxy: TinyProxy) -> None:
    proxy.refuses = True

    def through_proxy(host: str, port: int) -> socket.socket:
        return connect(proxy, host, port)

    with (
        Admin(broker.bootstrap, dialer=through_proxy) as admin,
        pytest.raises(
            ConnectionFailed, match=r"through_proxy failed: ConnectionRefusedError: .*403 Forbidden"
        ),
    ):
        admin.topics()


def test_tls_and_the_login_run_over_the_dialed_socket(proxy: TinyProxy, kafka_secured: Any) -> None:
    kafka = kafka_secured("SASL_SSL", users={"alice": "secret"})
    kafka.create_topic("t")
    options: Any = {**kafka.options("alice", "secret"), "dialer": partial(connect, proxy)}
    with Producer(kafka.bootstrap, **options) as producer:
        assert producer.send("t", b"x").result().partition == 0

    async def main() -> dict[str, int]:
        async with AsyncAdmin(kafka.bootstrap, **options) as admin:
            return await admin.topics()

    assert asyncio.run(main()) == {"t": 1}
    assert proxy.asked
