"""The proxy between real clients and our broker: everything comes through it, and it changes nothing."""

from __future__ import annotations

import asyncio

import pytest

from kproto import AsyncConsumer, AsyncProducer, running
from kproto.errors import ConnectionFailed
from kproto.show.exchanges import Exchange
from kproto.testing.proxy import Proxy


def test_a_group_lives_behind_the_proxy() -> None:
    seen: list[Exchange] = []

    async def main(bootstrap: str) -> int:
        async with Proxy(bootstrap, tell=seen.append) as proxy:
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
        async with Proxy("127.0.0.1:1", tell=print):
            pass

    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1"):
        asyncio.run(main())


def test_garbage_ends_its_own_connection_only() -> None:
    async def main(bootstrap: str) -> bytes:
        async with Proxy(bootstrap, tell=lambda exchange: None) as proxy:
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
