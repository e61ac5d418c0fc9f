"""The observing proxy between real clients and the broker: it forwards everything unchanged."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from kproto import AsyncAdmin, AsyncConsumer, AsyncProducer, TopicPartition, running
from kproto.broker.server import Server
from kproto.errors import ConnectionFailed
from kproto.inspect.exchanges import Address, Exchange
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from kproto.testing.brokers import free_port
from kproto.testing.certificates import certificates
from kproto.testing.proxy import WatchProxy
from tests.broker.stage import Socket


def test_a_group_works_through_the_proxy() -> None:
    exchanges: list[Exchange] = []

    async def main(bootstrap: str) -> int:
        async with WatchProxy(bootstrap, tell=exchanges.append) as proxy:
            async with AsyncProducer(proxy.bootstrap) as producer:
                for number in range(10):
                    await producer.send("t", b"%d" % number)
            consumer = AsyncConsumer(proxy.bootstrap, group_id="g", auto_offset_reset="earliest")
            async with consumer:
                consumer.subscribe("t")
                got = 0
                while got < 10:
                    got += len(await consumer.poll(5))
            return got

    with running(topics={"t": 3}) as server:
        assert asyncio.run(main(server.bootstrap)) == 10
    apis = {exchange.api for exchange in exchanges}
    assert {"Metadata", "Produce", "JoinGroup", "SyncGroup", "Fetch", "OffsetCommit", "LeaveGroup"} <= apis
    assert all(exchange.response is not None or exchange.trouble for exchange in exchanges)


def test_clients_use_the_ipv6_address_of_a_proxy() -> None:
    async def main(bootstrap: str) -> dict[str, int]:
        async with WatchProxy(bootstrap, listen=("::1", 0), tell=lambda exchange: None) as proxy:
            assert proxy.bootstrap.startswith("[::1]:")
            async with AsyncAdmin(proxy.bootstrap) as admin:
                return await admin.topics()

    with running(topics={"t": 3}, host="::1") as server:
        assert asyncio.run(main(server.bootstrap)) == {"t": 3}


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_proxy_on_all_addresses_advertises_the_name_of_the_computer(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "localhost")

    async def main(bootstrap: str) -> None:
        async with WatchProxy(bootstrap, listen=(host, 0), tell=lambda exchange: None) as proxy:
            assert proxy.bootstrap.startswith("localhost:")
            async with AsyncAdmin(proxy.bootstrap) as admin:
                [node] = (await admin.describe_cluster()).nodes
                assert f"{node.host}:{node.port}" == proxy.bootstrap

    with running(topics={"t": 3}) as server:
        asyncio.run(main(server.bootstrap))


def test_a_missing_cluster_is_reported_immediately() -> None:
    async def main() -> None:
        async with WatchProxy("127.0.0.1:1", tell=print):
            pass

    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        asyncio.run(main())


def test_garbage_ends_its_own_connection_only() -> None:
    async def main(bootstrap: str) -> bytes:
        async with WatchProxy(bootstrap, tell=lambda exchange: None) as proxy:
            host, port = proxy.bootstrap.split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"\xff" * 100)
            ended = await asyncio.wait_for(reader.read(), 5)
            async with AsyncProducer(proxy.bootstrap) as producer:
                await (await producer.send("t", b"x"))
            writer.close()
            return ended

    with running(topics={"t": 1}) as server:
        assert asyncio.run(main(server.bootstrap)) == b""


def test_a_request_above_kafkas_default_limit_is_not_collected(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bootstrap: str) -> None:
        async with WatchProxy(bootstrap, tell=lambda exchange: None) as proxy:
            host, port = proxy.bootstrap.split(":")
            for size in (101 << 20, 1 << 30):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(size.to_bytes(4, "big") + bytes(100))
                assert await asyncio.wait_for(reader.read(), 10) == b""
                writer.close()

    with running(topics={"t": 1}) as server:
        asyncio.run(main(server.bootstrap))
    assert len([line for line in caplog.messages if "104857600 bytes" in line]) == 1


@pytest.mark.parametrize("size", [(1 << 20) - 200, 3 << 20])
def test_large_records_pass_the_proxy(size: int) -> None:
    value = bytes(size)

    async def main(bootstrap: str) -> int:
        async with WatchProxy(bootstrap, tell=lambda exchange: None) as proxy:
            async with AsyncProducer(proxy.bootstrap, max_request_size=8 << 20) as producer:
                await (await producer.send("t", value))
            async with AsyncConsumer(proxy.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition("t", 0)])
                while not (records := await consumer.poll(5)):
                    pass
                assert records[0].value == value
                return len(records)

    with running(topics={"t": 1}, settings={"message.max.bytes": str(8 << 20)}) as server:
        assert asyncio.run(main(server.bootstrap)) == 1


def test_a_client_that_uses_tls_is_rejected_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bootstrap: str) -> str:
        async with WatchProxy(bootstrap, tell=lambda exchange: None) as proxy:
            host, port = proxy.bootstrap.split(":")
            for _ in range(2):
                with pytest.raises((ssl.SSLError, OSError)):
                    async with asyncio.timeout(10):
                        await asyncio.open_connection(host, int(port), ssl=ssl.create_default_context())
            return proxy.bootstrap

    with running() as server:
        address = asyncio.run(main(server.bootstrap))
    message = f"{address}: clients must connect to this proxy without TLS: set PLAINTEXT or SASL_PLAINTEXT"
    assert [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"] == [message]


def test_a_response_to_a_closed_client_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """A response is reported even if its client has closed the connection.

    Here the client closes the connection before the response arrives, as kafka-go does after LeaveGroup.
    """
    exchanges: list[Exchange] = []

    async def main(bootstrap: str) -> None:
        is_response_ready = asyncio.Event()

        async def slow(proxy: WatchProxy, broker: object) -> None:
            is_response_ready.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(WatchProxy, "_listener_address", slow)
        async with WatchProxy(bootstrap, tell=exchanges.append) as proxy:
            _, writer = await asyncio.open_connection(*proxy.bootstrap.split(":"))
            frame = encode_request(MetadataRequest(topics=[]), 9, 1, "hasty")
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await asyncio.wait_for(is_response_ready.wait(), 5)
            writer.close()
            while not exchanges:
                await asyncio.sleep(0.01)

    with running() as server:
        asyncio.run(asyncio.wait_for(main(server.bootstrap), 10))
    assert [(exchange.api, exchange.response is not None) for exchange in exchanges] == [("Metadata", True)]


@pytest.mark.parametrize("turns", range(7))
def test_the_end_closes_a_connection_accepted_in_the_same_turn(turns: int) -> None:
    """When a proxy stops, it also closes a connection that it accepted just before.

    The proxy is stopped `turns` iterations of the event loop after the connect. If the connection stayed
    open, the proxy would serve it some iterations later.
    """

    async def main(bootstrap: str) -> bool:
        async with WatchProxy(bootstrap, tell=print) as proxy:
            client = Socket(proxy.bootstrap)
            for _ in range(turns):
                await asyncio.sleep(0)
        with client.socket:
            return await asyncio.to_thread(client.closed_by_broker)

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


def test_the_end_closes_a_client_that_waits_for_a_silent_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(bootstrap: str) -> bool:
        is_connecting = asyncio.Event()

        async def silent(proxy: WatchProxy, broker: object) -> None:
            is_connecting.set()
            await asyncio.sleep(60)

        async with WatchProxy(bootstrap, tell=print) as proxy:
            monkeypatch.setattr(WatchProxy, "_connect", silent)
            client = Socket(proxy.bootstrap)
            await is_connecting.wait()
        with client.socket:
            return await asyncio.to_thread(client.closed_by_broker)

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


def test_a_cancelled_start_closes_its_port() -> None:
    async def main(bootstrap: str) -> bool:
        port = free_port()
        cancelled = 0
        for turns in range(30):
            proxy = WatchProxy(bootstrap, listen=("127.0.0.1", port), tell=print)
            starting = asyncio.ensure_future(proxy.__aenter__())
            for _ in range(turns):
                await asyncio.sleep(0)
            starting.cancel()
            try:
                await starting
            except asyncio.CancelledError:
                cancelled += 1
            else:
                await proxy.__aexit__(None, None, None)
            with pytest.raises(ConnectionRefusedError):
                Socket(f"127.0.0.1:{port}")
        return cancelled > 0

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


class MetadataClient:
    """A client that sends a Metadata request. `answer` returns the broker's address in the response."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def connect(cls, address: str) -> MetadataClient:
        client = cls()
        client.reader, client.writer = await asyncio.open_connection(*address.split(":"))
        frame = encode_request(MetadataRequest(topics=[]), 9, 1, "me")
        client.writer.write(len(frame).to_bytes(4, "big") + frame)
        return client

    async def answer(self) -> tuple[str, int]:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        _, response = decode_response(await self.reader.readexactly(size), MetadataResponse, 9)
        self.writer.close()
        (broker,) = response.brokers
        return broker.host, broker.port


def test_a_listener_is_created_even_if_its_first_client_disconnects(monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges: list[Exchange] = []

    async def main(port: int) -> None:
        may_serve, serve = asyncio.Event(), WatchProxy._open_listener

        async def slow(proxy: WatchProxy, broker: Address, port: int = 0) -> None:
            # Delay only the listener for the address that the broker advertises. The listener for localhost,
            # to which the test's clients connect, opens immediately.
            if broker[0] == "127.0.0.1":
                await may_serve.wait()
            await serve(proxy, broker, port)

        monkeypatch.setattr(WatchProxy, "_open_listener", slow)
        async with WatchProxy(f"localhost:{port}", tell=exchanges.append) as proxy:
            leaving, waiting = [await MetadataClient.connect(proxy.bootstrap) for _ in range(2)]
            await asyncio.sleep(0.1)
            leaving.writer.close()
            while not exchanges:
                await asyncio.sleep(0.01)
            may_serve.set()
            address = await waiting.answer()
            assert address[1] not in (port, int(proxy.bootstrap.split(":")[1]))
            assert await (await MetadataClient.connect(proxy.bootstrap)).answer() == address

    with running() as server:
        asyncio.run(asyncio.wait_for(main(int(server.bootstrap.split(":")[1])), 10))


def test_a_listener_that_cannot_be_created_is_logged_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(port: int) -> None:
        serve = WatchProxy._open_listener

        async def full(proxy: WatchProxy, broker: Address, port: int = 0) -> None:
            if broker[0] == "127.0.0.1" and len(caplog.records) < 1:
                raise OSError(24, "Too many open files")
            await serve(proxy, broker, port)

        monkeypatch.setattr(WatchProxy, "_open_listener", full)
        async with WatchProxy(f"localhost:{port}", tell=lambda exchange: None) as proxy:
            with pytest.raises(asyncio.IncompleteReadError):
                await (await MetadataClient.connect(proxy.bootstrap)).answer()
            await (await MetadataClient.connect(proxy.bootstrap)).answer()

    with running() as server:
        port = int(server.bootstrap.split(":")[1])
        asyncio.run(asyncio.wait_for(main(port), 10))
    messages = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    assert messages == [f"127.0.0.1:{port}: no listener can be created for it: Too many open files"]


@pytest.mark.parametrize("listener", ["plain proxy, TLS broker", "a certificate is asked for"])
def test_a_tls_problem_of_the_connection_to_the_cluster_is_logged_once(
    listener: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A TLS error between the proxy and the cluster is logged once.

    The proxy's client sees only a closed connection.
    """
    pytest.importorskip("trustme")
    files, wants_certificate = certificates(tmp_path), "certificate" in listener
    tls = files.context("required" if wants_certificate else "none")
    client_tls = ssl.create_default_context(cafile=files.ca) if wants_certificate else None

    async def main(bootstrap: str) -> None:
        async with WatchProxy(bootstrap, tell=lambda exchange: None, tls=client_tls) as proxy:
            for _ in range(3):
                async with AsyncAdmin(proxy.bootstrap) as cluster:
                    with pytest.raises(ConnectionFailed):
                        await cluster.topics()

    with running(listen=["SSL://127.0.0.1:0"], tls=tls) as server:
        asyncio.run(main(server.bootstrap))
    messages = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    message = (
        "it may ask for a client certificate"
        if wants_certificate
        else "this port speaks TLS, but the proxy does not"
    )
    assert [message in line for line in messages] == [True]


def test_an_unreachable_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server) -> None:
        async with WatchProxy(server.bootstrap, tell=lambda exchange: None) as proxy:
            for _ in range(2):
                server.down()
                for _ in range(3):
                    async with AsyncAdmin(proxy.bootstrap) as cluster:
                        with pytest.raises(ConnectionFailed):
                            await cluster.topics()
                server.up()
                async with AsyncAdmin(proxy.bootstrap) as cluster:
                    await cluster.topics()

    with running() as server:
        asyncio.run(main(server))
    messages = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    assert ["cannot be reached: connection refused" in line for line in messages] == [True, True]
