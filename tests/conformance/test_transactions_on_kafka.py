"""kproto's transactions work, in threads and in asyncio, on a real Kafka and on the embedded broker.

kproto's consumer and librdkafka's, both with read_committed, must read exactly the committed records.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin, AsyncProducer
from kproto.errors import Fenced, KprotoError
from tests.conformance.transaction_records import Place, bootstrap_of
from tests.consumer.producers import PRODUCERS

pytestmark = [pytest.mark.kafka]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(params=["kafka", "embedded"])
def broker(request: pytest.FixtureRequest) -> Iterator[str]:
    with bootstrap_of(request.param, request) as bootstrap:
        yield bootstrap


@pytest.fixture(params=PRODUCERS)
def place(request: pytest.FixtureRequest, broker: str) -> Iterator[Place]:
    with Admin(broker) as cluster:
        yield Place(broker, cluster, PRODUCERS[request.param])


def test_committed_records_are_seen_and_aborted_ones_are_not(place: Place) -> None:
    with place.producer() as producer:
        for number in range(6):
            with contextlib.suppress(ZeroDivisionError), producer.transaction():
                for partition in range(2):
                    producer.send(place.name, f"{number}-{partition}".encode(), partition=partition)
                producer.flush()
                if number % 2:
                    raise ZeroDivisionError
    assert place.seen() == ["0-0", "0-1", "2-0", "2-1", "4-0", "4-1"]


def test_columns_are_written_in_transactions_too(place: Place) -> None:
    pytest.importorskip("pyarrow")
    with place.producer() as producer:
        with producer.transaction():
            producer.send_columns(place.name, {"value": ["a", "b"], "partition": [0, 1]})
        producer.begin()
        producer.send_columns(place.name, {"value": ["x", "y"], "partition": [0, 1]})
        producer.flush()
        producer.abort()
    assert place.seen() == ["a", "b"]


def test_offsets_are_committed_with_the_records_or_not_at_all(place: Place) -> None:
    first = place.partitions[0]
    with place.producer() as producer:
        with producer.transaction():
            producer.send(place.name, b"a")
            producer.send_offsets(place.name, {first: (7, "seven")})
        producer.begin()
        producer.send(place.name, b"b")
        producer.send_offsets(place.name, {first: 8})
        producer.flush()
        producer.abort()
    place.settled()
    committed = place.cluster.committed_offsets(place.name, [first])[first]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (7, "seven")


def test_a_zombie_is_fenced_and_its_records_are_aborted(place: Place) -> None:
    zombie = place.producer()
    zombie.begin()
    zombie.send(place.name, b"zombie").result()
    with place.producer() as producer:
        producer.begin()
        with pytest.raises(KprotoError):
            zombie.send(place.name, b"zombie again").result()
        with pytest.raises(KprotoError):
            zombie.commit()
        with pytest.raises(Fenced):
            zombie.abort()
        zombie.close()
        producer.send(place.name, b"mine")
        producer.commit()
    assert place.seen() == ["mine"]


def test_an_expired_transaction_is_aborted_and_the_next_one_commits(place: Place) -> None:
    with place.producer(transaction_timeout_ms=1000) as producer:
        producer.begin()
        producer.send(place.name, b"late").result()
        # The transaction expires during this wait. The broker checks for expired transactions every 10 s.
        place.settled()
        producer.send(place.name, b"later")
        with pytest.raises(KprotoError, match="abort"):
            producer.commit()
        with contextlib.suppress(Fenced):  # From brokers before KIP-890.
            producer.abort()
            with producer.transaction():
                producer.send(place.name, b"next")
    assert place.seen() in (["next"], [])


KILLED = """
import sys
from consumer import Producer
options = {"transactional_id": sys.argv[2], "transaction_timeout_ms": 600_000, "max_block_ms": 300_000}
producer = Producer(sys.argv[1], **options)
producer.begin()
while True:
    producer.send(sys.argv[2], b"never").result()
    print("sent", flush=True)
"""


KILLED_IN_A_TASK = """
import asyncio, sys
from consumer import AsyncProducer
options = {"transactional_id": sys.argv[2], "transaction_timeout_ms": 600_000, "max_block_ms": 300_000}
async def main():
    producer = AsyncProducer(sys.argv[1], **options)
    async with producer.transaction():
        while True:
            await (await producer.send(sys.argv[2], b"never"))
            print("sent", flush=True)
asyncio.run(main())
"""


def test_the_transaction_of_a_killed_producer_is_aborted_by_the_next_one(place: Place) -> None:
    code = KILLED if place.kind is PRODUCERS["threads"] else KILLED_IN_A_TASK
    for number in range(3):
        arguments = [sys.executable, "-c", code, place.bootstrap, place.name]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            for _ in range(3 + 5 * number):
                assert process.stdout.readline() == b"sent\n"
            process.send_signal(signal.SIGKILL)
        assert place.ends("read_committed") != place.ends("read_uncommitted")
        with place.producer() as producer, producer.transaction():
            producer.send(place.name, b"%d" % number)
        assert place.seen() == [str(n) for n in range(number + 1)]


@pytest.mark.parametrize("place", ["asyncio"], indirect=True)
def test_a_cancelled_task_aborts_its_transaction(place: Place) -> None:
    async def story() -> None:
        options: Any = {"transactional_id": place.name, "max_block_ms": 300_000}
        async with AsyncProducer(place.bootstrap, **options) as producer:
            for number in range(3):
                sent = asyncio.Event()

                async def work(number: int = number, sent: asyncio.Event = sent) -> None:
                    async with producer.transaction():
                        await (await producer.send(place.name, b"never %d" % number))
                        sent.set()
                        await asyncio.sleep(600)

                task = asyncio.create_task(work())
                await sent.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                async with producer.transaction():
                    await producer.send(place.name, b"%d" % number)

    asyncio.run(story())
    assert place.seen() == ["0", "1", "2"]
