"""The observing proxy between real clients and the broker: it passes everything on unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from pathlib import Path

import pytest

from kproto import AsyncCluster, AsyncConsumer, AsyncProducer, running
from kproto.broker.server import Server
from kproto.errors import ConnectionFailed
from kproto.inspect.exchanges import Address, Exchange
from kproto.messages.headers import decode_response, encode_request
from kproto.messages.metadata import MetadataRequest, MetadataResponse
from kproto.testing.brokers import free_port
from kproto.testing.certificates import certificates
from kproto.testing.proxy import WatchProxy
from tests.broker.stage import Socket


def test_a_group_lives_behind_the_proxy() -> None:
    seen: list[Exchange] = []

    async def main(bootstrap: str) -> int:
        async with WatchProxy(bootstrap, tell=seen.append) as proxy:
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
    apis = {exchange.api for exchange in seen}
    assert {"Metadata", "Produce", "JoinGroup", "SyncGroup", "Fetch", "OffsetCommit", "LeaveGroup"} <= apis
    assert all(exchange.response is not None or exchange.trouble for exchange in seen)


def test_a_cluster_that_is_not_there_is_told_at_once() -> None:
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


def test_a_client_that_speaks_tls_is_told_so_once_and_not_kept(caplog: pytest.LogCaptureFixture) -> None:
    async def main(bootstrap: str) -> str:
        async with WatchProxy(bootstrap, tell=lambda exchange: None) as proxy:
            host, port = proxy.bootstrap.split(":")
            for _ in range(2):
                with pytest.raises((ssl.SSLError, OSError)):
                    async with asyncio.timeout(10):
                        await asyncio.open_connection(host, int(port), ssl=ssl.create_default_context())
            return proxy.bootstrap

    with running() as server:
        here = asyncio.run(main(server.bootstrap))
    told = f"{here}: clients must not use TLS to this proxy: set PLAINTEXT or SASL_PLAINTEXT"
    assert [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"] == [told]


def test_an_answer_whose_client_has_gone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """As kafka-go's LeaveGroup, behind which it closes the connection."""
    seen: list[Exchange] = []

    async def main(bootstrap: str) -> None:
        answered = asyncio.Event()

        async def slow(proxy: WatchProxy, broker: object) -> None:
            answered.set()
            await asyncio.sleep(60)

        monkeypatch.setattr(WatchProxy, "_here", slow)
        async with WatchProxy(bootstrap, tell=seen.append) as proxy:
            _, writer = await asyncio.open_connection(*proxy.bootstrap.split(":"))
            frame = encode_request(MetadataRequest(topics=[]), 9, 1, "hasty")
            writer.write(len(frame).to_bytes(4, "big") + frame)
            await asyncio.wait_for(answered.wait(), 5)
            writer.close()
            while not seen:
                await asyncio.sleep(0.01)

    with running() as server:
        asyncio.run(asyncio.wait_for(main(server.bootstrap), 10))
    assert [(one.api, one.response is not None) for one in seen] == [("Metadata", True)]


@pytest.mark.parametrize("turns", range(7))
def test_the_end_closes_a_connection_accepted_in_the_same_turn(turns: int) -> None:
    """asyncio tells of it some turns later: such a client was served on, and told."""

    async def main(bootstrap: str) -> bool:
        async with WatchProxy(bootstrap, tell=print) as proxy:
            client = Socket(proxy.bootstrap)
            for _ in range(turns):
                await asyncio.sleep(0)
        with client.socket:
            return await asyncio.to_thread(client.closed_by_broker)

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


def test_the_end_closes_who_waits_for_a_broker_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main(bootstrap: str) -> bool:
        asked = asyncio.Event()

        async def silent(proxy: WatchProxy, broker: object) -> None:
            asked.set()
            await asyncio.sleep(60)

        async with WatchProxy(bootstrap, tell=print) as proxy:
            monkeypatch.setattr(WatchProxy, "_connect", silent)
            client = Socket(proxy.bootstrap)
            await asked.wait()
        with client.socket:
            return await asyncio.to_thread(client.closed_by_broker)

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


def test_a_start_that_is_cancelled_leaves_nobody_at_the_port() -> None:
    async def main(bootstrap: str) -> bool:
        port = free_port()
        starting = asyncio.ensure_future(
            WatchProxy(bootstrap, listen=("127.0.0.1", port), tell=print).__aenter__()
        )
        client: Socket | None = None
        while client is None:
            await asyncio.sleep(0)
            with contextlib.suppress(ConnectionRefusedError):
                client = Socket(f"127.0.0.1:{port}")
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        with pytest.raises(ConnectionRefusedError):
            Socket(f"127.0.0.1:{port}")
        with client.socket:
            return await asyncio.to_thread(client.closed_by_broker)

    with running() as server:
        assert asyncio.run(main(server.bootstrap))


class Metadata:
    """A client that asks where the broker is; `answer` is where."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    @classmethod
    async def asked(cls, place: str) -> Metadata:
        found = cls()
        found.reader, found.writer = await asyncio.open_connection(*place.split(":"))
        frame = encode_request(MetadataRequest(topics=[]), 9, 1, "me")
        found.writer.write(len(frame).to_bytes(4, "big") + frame)
        return found

    async def answer(self) -> tuple[str, int]:
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        _, response = decode_response(await self.reader.readexactly(size), MetadataResponse, 9)
        self.writer.close()
        (broker,) = response.brokers
        return broker.host, broker.port


def test_a_listener_is_made_also_if_who_asked_for_it_first_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Exchange] = []

    async def main(port: int) -> None:
        made, serve = asyncio.Event(), WatchProxy._serve

        async def slow(proxy: WatchProxy, broker: Address, port: int = 0) -> None:
            if broker[0] == "127.0.0.1":  # as the broker calls itself
                await made.wait()
            await serve(proxy, broker, port)

        monkeypatch.setattr(WatchProxy, "_serve", slow)
        async with WatchProxy(f"localhost:{port}", tell=seen.append) as proxy:
            hasty, patient = [await Metadata.asked(proxy.bootstrap) for _ in range(2)]
            await asyncio.sleep(0.1)
            hasty.writer.close()
            while not seen:
                await asyncio.sleep(0.01)
            made.set()
            place = await patient.answer()
            assert place[1] not in (port, int(proxy.bootstrap.split(":")[1]))
            assert await (await Metadata.asked(proxy.bootstrap)).answer() == place

    with running() as server:
        asyncio.run(asyncio.wait_for(main(int(server.bootstrap.split(":")[1])), 10))


def test_a_listener_that_cannot_be_created_is_logged_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(port: int) -> None:
        serve = WatchProxy._serve

        async def full(proxy: WatchProxy, broker: Address, port: int = 0) -> None:
            if broker[0] == "127.0.0.1" and len(caplog.records) < 1:
                raise OSError(24, "Too many open files")
            await serve(proxy, broker, port)

        monkeypatch.setattr(WatchProxy, "_serve", full)
        async with WatchProxy(f"localhost:{port}", tell=lambda exchange: None) as proxy:
            with pytest.raises(asyncio.IncompleteReadError):
                await (await Metadata.asked(proxy.bootstrap)).answer()
            await (await Metadata.asked(proxy.bootstrap)).answer()

    with running() as server:
        port = int(server.bootstrap.split(":")[1])
        asyncio.run(asyncio.wait_for(main(port), 10))
    told = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    assert told == [f"127.0.0.1:{port}: no listener can be created for it: Too many open files"]


@pytest.mark.parametrize("listener", ["plain proxy, TLS broker", "a certificate is asked for"])
def test_what_is_wrong_with_the_way_to_the_cluster_is_told_once(
    listener: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A client behind the proxy can't know: to it, somebody closed the connection."""
    pytest.importorskip("trustme")
    files, asked = certificates(tmp_path), "certificate" in listener
    tls = files.context("required" if asked else "none")
    ours = ssl.create_default_context(cafile=files.ca) if asked else None

    async def main(bootstrap: str) -> None:
        async with WatchProxy(bootstrap, tell=lambda exchange: None, tls=ours) as proxy:
            for _ in range(3):
                async with AsyncCluster(proxy.bootstrap) as cluster:
                    with pytest.raises(ConnectionFailed):
                        await cluster.topics()

    with running(listen=["SSL://127.0.0.1:0"], tls=tls) as server:
        asyncio.run(main(server.bootstrap))
    told = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    words = (
        "it may ask for a client certificate" if asked else "this port speaks TLS, and was not asked by it"
    )
    assert [words in line for line in told] == [True]


def test_an_unreachable_broker_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    async def main(server: Server) -> None:
        async with WatchProxy(server.bootstrap, tell=lambda exchange: None) as proxy:
            for _ in range(2):
                server.down()
                for _ in range(3):
                    async with AsyncCluster(proxy.bootstrap) as cluster:
                        with pytest.raises(ConnectionFailed):
                            await cluster.topics()
                server.up()
                async with AsyncCluster(proxy.bootstrap) as cluster:
                    await cluster.topics()

    with running() as server:
        asyncio.run(main(server))
    told = [record.getMessage() for record in caplog.records if record.name == "kproto.proxy"]
    assert ["cannot be reached" in line for line in told] == [True, True]
