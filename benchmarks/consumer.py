"""Whole clients against the embedded broker: New York's flights of 2013, consumed and produced.

    python -m benchmarks.consumer [--rounds 5] [--records 336776] [--only consume,produce] [--codec none]

The broker is a process of its own; so is every client in every round, and clients take turns in rotating
order. A consumer reads the whole topic of three partitions and touches key, value, offset and timestamp of
each record (`columns`: sums the lengths of all values). A producer writes the same records and waits until
all are acknowledged by all replicas (kafka-python and kproto idempotent, their default). The clock starts
when the client exists, before its first request, and stops with the last record; imports don't count.

A figure is the median over the rounds, a ratio the median of a round's ratios: above 1 kproto is faster.
Wall and CPU are both told: CPU is the client process alone, all of its threads, so it doesn't depend on what
the broker costs. The broker is Python too, and with fast clients it is the slower side: then the wall clock
says more about it than about them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kproto.demo.flights import departures, table
from tests.conformance.judges import free_port

from .report import machine

TOPIC = "flights"
PARTITIONS = 3


# ---- consumers: each reads `count` records and returns


def kproto_rows(bootstrap: str, count: int) -> None:
    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for record in consumer.poll(1.0, 1000):
                _ = record.key, record.value, record.offset, record.timestamp
                seen += 1


def kproto_columns(bootstrap: str, count: int) -> None:
    import pyarrow.compute as pc

    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for batch in consumer.poll_columns(1.0):
                pc.sum(pc.binary_length(batch.columns.value)).as_py()
                seen += len(batch)


def kproto_async(bootstrap: str, count: int) -> None:
    from consumer import AsyncConsumer, TopicPartition

    async def read() -> None:
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
            seen = 0
            while seen < count:
                for record in await consumer.poll(1.0, 1000):
                    _ = record.key, record.value, record.offset, record.timestamp
                    seen += 1

    asyncio.run(read())


def kafka_python(bootstrap: str, count: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
    seen = 0
    while seen < count:
        for records in consumer.poll(timeout_ms=1000, max_records=1000).values():
            for record in records:
                _ = record.key, record.value, record.offset, record.timestamp
                seen += 1
    consumer.close()


def aiokafka(bootstrap: str, count: int) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition(TOPIC, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
                for record in records:
                    _ = record.key, record.value, record.offset, record.timestamp
                    seen += 1
        await consumer.stop()

    asyncio.run(read())


def confluent(bootstrap: str, count: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    seen = 0
    while seen < count:
        for message in consumer.consume(1000, 1.0):
            _ = message.key(), message.value(), message.offset(), message.timestamp()
            seen += 1
    consumer.close()


# ---- producers: each writes `rows` and returns when all are acknowledged


Rows = list[tuple[bytes, bytes, int]]


def kproto_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from consumer import Producer

    with Producer(bootstrap, compression_type=codec) as producer:
        for key, value, timestamp in rows:
            producer.send(TOPIC, value, key, timestamp=timestamp)


def kafka_python_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from kafka import KafkaProducer

    kind = None if codec == "none" else codec
    producer = KafkaProducer(
        bootstrap_servers=bootstrap, compression_type=kind, linger_ms=5, batch_size=131072
    )
    for key, value, timestamp in rows:
        producer.send(TOPIC, value, key, timestamp_ms=timestamp)
    producer.flush()
    producer.close()


def aiokafka_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        kind = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=kind, linger_ms=5, max_batch_size=131072, acks="all"
        )
        await producer.start()
        for key, value, timestamp in rows:
            await producer.send(TOPIC, value, key, timestamp_ms=timestamp)
        await producer.stop()

    asyncio.run(write())


def confluent_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "compression.type": codec,
        "linger.ms": 5,
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
    }
    producer = Producer(settings)
    for key, value, timestamp in rows:
        while True:
            try:
                producer.produce(TOPIC, value, key, timestamp=timestamp)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


CONSUMERS: dict[str, Callable[[str, int], None]] = {
    "kproto rows": kproto_rows,
    "kproto columns": kproto_columns,
    "kproto asyncio": kproto_async,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent": confluent,
}
PRODUCERS: dict[str, Callable[[str, str, Rows], None]] = {
    "kproto": kproto_producer,
    "kafka-python": kafka_python_producer,
    "aiokafka": aiokafka_producer,
    "confluent": confluent_producer,
}


# ---- measuring


@contextmanager
def broker() -> Iterator[str]:
    """The embedded broker in a process of its own, with an empty topic."""
    address = f"127.0.0.1:{free_port()}"
    command = [
        sys.executable,
        "-m",
        "kproto",
        "broker",
        "--listen",
        address,
        "--topic",
        f"{TOPIC}:{PARTITIONS}",
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(address)
        yield address
    finally:
        process.terminate()
        process.wait(10)


def _wait_for(address: str) -> None:
    from consumer import Cluster
    from kproto.errors import ConnectionFailed

    for _ in range(100):
        try:
            with Cluster(address) as cluster:
                cluster.partitions(TOPIC)
            return
        except ConnectionFailed:
            time.sleep(0.1)
    raise SystemExit("the broker doesn't start")


def one(arguments: argparse.Namespace) -> None:
    """One client, once, in this process; prints (wall, cpu) in seconds."""
    kind, name = arguments.one.split(":", 1)
    rows: Rows = []
    if kind == "produce":
        rows = [tuple(row) for row in departures(table(arguments.records))]
    else:
        CONSUMERS[name](arguments.bootstrap, 1)  # imports, code generation and the first connection
    wall, cpu = time.perf_counter(), time.process_time()
    if kind == "produce":
        PRODUCERS[name](arguments.bootstrap, arguments.codec, rows)
    else:
        CONSUMERS[name](arguments.bootstrap, arguments.records)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


def measure(kind: str, name: str, bootstrap: str, arguments: argparse.Namespace) -> tuple[float, float]:
    command = [
        sys.executable,
        "-m",
        "benchmarks.consumer",
        "--one",
        f"{kind}:{name}",
        "--bootstrap",
        bootstrap,
    ]
    command += ["--records", str(arguments.records), "--codec", arguments.codec]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-1500:]}")
    wall, cpu = json.loads(done.stdout.strip().splitlines()[-1])
    return wall, cpu


def rounds(kind: str, arguments: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    names = list(CONSUMERS if kind == "consume" else PRODUCERS)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    if kind == "consume":
        with broker() as bootstrap:
            kproto_producer(
                bootstrap, arguments.codec, [tuple(r) for r in departures(table(arguments.records))]
            )
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    found[name].append(measure(kind, name, bootstrap, arguments))
    else:
        for turn in range(arguments.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with broker() as bootstrap:
                    found[name].append(measure(kind, name, bootstrap, arguments))
    return found


def report(kind: str, found: dict[str, list[tuple[float, float]]], records: int) -> None:
    bases = [name for name in found if name.startswith("kproto")]
    titles = "".join(f" {base.removeprefix('kproto').strip() or 'kproto'} x wall / cpu |" for base in bases)
    print(f"\n| {kind} | krec/s wall | µs cpu/rec |{titles}\n|---|---|---|{'---|' * len(bases)}")
    for name, times in found.items():
        wall = statistics.median(wall for wall, _ in times)
        cpu = statistics.median(cpu for _, cpu in times)
        cells = ""
        for base in bases:
            pairs = list(zip(times, found[base], strict=True))
            ratio = statistics.median(theirs[0] / ours[0] for theirs, ours in pairs)
            ratio_cpu = statistics.median(theirs[1] / ours[1] for theirs, ours in pairs)
            cells += f" {ratio:.2f} / {ratio_cpu:.2f} |"
        print(f"| {name} | {records / wall / 1000:.0f} | {cpu / records * 1e6:.2f} |{cells}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=336_776)
    parser.add_argument("--only", default="consume,produce")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments)
        return
    print(machine("kafka-python", "aiokafka", "confluent-kafka"))
    print(f"{arguments.records} flights, compression {arguments.codec}, {arguments.rounds} rounds")
    for kind in arguments.only.split(","):
        report(kind, rounds(kind, arguments), arguments.records)


if __name__ == "__main__":
    main()
