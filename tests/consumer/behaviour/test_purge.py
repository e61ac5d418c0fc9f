"""`purge` drops the records that have not been sent yet, and only those."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from consumer import AsyncProducer, Consumer, Producer, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import IllegalState

SECONDS = 60.0
LINGER = 600_000


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


def values(server: Server) -> list[bytes | None]:
    place = TopicPartition("t", 0)
    with Consumer(server.bootstrap) as consumer:
        consumer.assign({place: 0})
        end = consumer.list_offsets({place: "latest"})[place].offset or 0
        read: list[bytes | None] = []
        while len(read) < end:
            read += [record.value for record in consumer.poll(1)]
    return read


def test_unsent_records_are_dropped_and_later_ones_are_sent(server: Server) -> None:
    with Producer(server.bootstrap, linger_ms=LINGER, delivery_timeout_ms=2 * LINGER) as producer:
        producer.send("t", b"a")
        producer.flush()
        dropped = [producer.send("t", b"b"), producer.send("t", b"c", key=b"k")]
        ended = threading.Event()
        dropped[0].add_done_callback(lambda delivery: ended.set())
        assert producer.purge() == 2
        assert producer.purge() == 0
        assert ended.wait(SECONDS)
        for delivery in dropped:
            assert delivery.done()
            with pytest.raises(IllegalState, match=r"t-0: purge\(\) dropped this record before it was sent"):
                delivery.result(0)
        producer.send("t", b"d")
        producer.flush()
    assert values(server) == [b"a", b"d"]


def test_flush_and_close_do_not_raise_for_dropped_records(server: Server) -> None:
    with Producer(server.bootstrap, linger_ms=LINGER, delivery_timeout_ms=2 * LINGER) as producer:
        for number in range(10):
            producer.send("t", b"%d" % number)
        assert producer.purge() == 10
        producer.flush()
    assert values(server) == []


def test_a_purge_without_a_broker_frees_the_buffer() -> None:
    with running(topics={"t": 1}) as server:
        producer = Producer(server.bootstrap, buffer_memory=100_000, max_block_ms=10_000)
        producer.send("t", b"x").result(SECONDS)
    for _ in range(9):
        producer.send("t", bytes(10_000))
    purged = producer.purge()
    assert 0 < purged <= 9
    producer.send("t", bytes(10_000))
    producer.kill()


def test_a_transactional_producer_aborts_instead(server: Server) -> None:
    with (
        Producer(server.bootstrap, transactional_id="x") as producer,
        pytest.raises(IllegalState, match=r"call abort\(\)"),
    ):
        producer.purge()


def test_a_closed_producer_raises_illegal_state(server: Server) -> None:
    producer = Producer(server.bootstrap)
    producer.close()
    with pytest.raises(IllegalState, match="closed"):
        producer.purge()


def test_purge_works_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async with AsyncProducer(
            server.bootstrap, linger_ms=LINGER, delivery_timeout_ms=2 * LINGER
        ) as producer:
            dropped = await producer.send("t", b"a")
            assert await producer.purge() == 1
            with pytest.raises(IllegalState, match="dropped"):
                await dropped
            await producer.send("t", b"b")

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert values(server) == [b"b"]
