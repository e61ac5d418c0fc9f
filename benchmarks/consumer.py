"""Compare whole clients: read and write the flights of New York in 2013, and read from a real Kafka.

    python -m benchmarks.consumer [--rounds 5] [--records 336776] [--kafka-records 2000000] [--codec none]
                                  [--only consume,produce,kafka,partitions] [--partitions 1,1000,10000]

Kinds of work:

* consume: read all records of three partitions from the embedded broker, and access the key, value, offset
  and timestamp of each record. With columns, sum the lengths of all values.
* produce: write the same records, and wait until all replicas have acknowledged them. All producers have the
  same linger time and batch size, and are idempotent.
* kafka: read random records of 100 and 1,000 bytes from a real Kafka. This needs Java and Kafka's jars, or
  KPROTO_KAFKA.
* partitions: read single records among up to 10,000 idle partitions.

The broker is a separate process, and so is every client in every round. Clients run in rotating order. The
clock starts when the client exists, before its first request, and stops after the last record. Imports are
not counted.

Each value is the median over the rounds. A ratio is computed for each round, and its median is printed; above
1, kproto is faster. CPU time is the time of the client's process with all its threads. The embedded broker is
written in Python and is slower than fast clients. With such a client the wall time measures the broker.

Results on an idle EPYC with two cores, Python 3.11, a real Kafka, medians of 7 rounds, ratios as wall / CPU:

    2,000,000 records of 100 bytes    CPU per record    x aiokafka    x confluent
    rows                              0.38 us           3.5 / 3.5     14 / 2.1
    columns                           0.14 us           9.6 / 9.9     37 / 6.3
    500,000 records of 1,000 bytes
    rows                              1.08 us           3.5 / 3.1     0.83 / 1.14
    columns                           0.69 us           5.5 / 4.6     1.3 / 1.7
    asyncio rows                      0.99 us           3.0 / 3.2     0.73 / 1.18

The candidate "(a socket)" fetches the same bytes and discards them. It shows the limit for a client with one
connection. One thread that only receives 1,000-byte records of three partitions takes 0.39 us per record. It
takes 0.47 us if it also checks the checksums, which confluent skips by default, and 0.57 us with one more
copy.

A record among 1,000 idle partitions costs 1.00 times the CPU of a record of a single partition, and 1.15
times among 10,000. A pause between records adds CPU time, because the caches cool down: with seven partitions
a record takes 0.37 ms of CPU without a pause, 0.57 ms after 3 ms and 0.74 ms after 8 ms. The benchmark
therefore sends records at a fixed pace.

experiments/README.md lists the optimizations that did not help.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from kproto.demo.flights import departures, table

from .brokers import BATCH_BYTES, LINGER_MS, PARTITIONS, PRODUCER_SETTINGS, TOPIC, embedded, kafka
from .ceilings import discard_records
from .report import Seconds, header, machine, row

# ---- consumers: each reads `count` records and returns


def kproto_rows(bootstrap: str, count: int, topic: str) -> None:
    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        count_read = 0
        while count_read < count:
            for record in consumer.poll(1.0, 1000):
                _ = record.key, record.value, record.offset, record.timestamp
                count_read += 1


def kproto_columns(bootstrap: str, count: int, topic: str) -> None:
    import pyarrow.compute as pc

    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        count_read = 0
        while count_read < count:
            for batch in consumer.poll_columns(1.0):
                pc.sum(pc.binary_length(batch.columns.value)).as_py()
                count_read += len(batch)


def kproto_async(bootstrap: str, count: int, topic: str) -> None:
    from consumer import AsyncConsumer, TopicPartition

    async def read() -> None:
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
            count_read = 0
            while count_read < count:
                for record in await consumer.poll(1.0, 1000):
                    _ = record.key, record.value, record.offset, record.timestamp
                    count_read += 1

    asyncio.run(read())


def kafka_python(bootstrap: str, count: int, topic: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    count_read = 0
    while count_read < count:
        for records in consumer.poll(timeout_ms=1000, max_records=1000).values():
            for record in records:
                _ = record.key, record.value, record.offset, record.timestamp
                count_read += 1
    consumer.close()


def aiokafka(bootstrap: str, count: int, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        count_read = 0
        while count_read < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
                for record in records:
                    _ = record.key, record.value, record.offset, record.timestamp
                    count_read += 1
        await consumer.stop()

    asyncio.run(read())


def confluent(bootstrap: str, count: int, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    count_read = 0
    while count_read < count:
        for message in consumer.consume(1000, 1.0):
            _ = message.key(), message.value(), message.offset(), message.timestamp()
            count_read += 1
    consumer.close()


def ceiling(bootstrap: str, count: int, topic: str) -> None:
    discard_records(bootstrap, topic, PARTITIONS, count)


# ---- producers: each writes `rows` and returns after all acknowledgements


Rows = list[tuple[bytes, bytes, int]]


def kproto_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from consumer import Producer

    with Producer(bootstrap, compression_type=codec, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        for key, value, timestamp in rows:
            producer.send(TOPIC, value, key, timestamp=timestamp)


def kafka_python_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from kafka import KafkaProducer

    compression = None if codec == "none" else codec
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        compression_type=compression,
        linger_ms=LINGER_MS,
        batch_size=BATCH_BYTES,
    )
    for key, value, timestamp in rows:
        producer.send(TOPIC, value, key, timestamp_ms=timestamp)
    producer.flush()
    producer.close()


def aiokafka_producer(bootstrap: str, codec: str, rows: Rows) -> None:
    from aiokafka import AIOKafkaProducer

    async def write() -> None:
        compression = None if codec == "none" else codec
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=compression,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            acks="all",
            enable_idempotence=True,
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
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
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


CONSUMERS: dict[str, Callable[[str, int, str], None]] = {
    "kproto rows": kproto_rows,
    "kproto columns": kproto_columns,
    "kproto asyncio": kproto_async,
    "kafka-python": kafka_python,
    "aiokafka": aiokafka,
    "confluent": confluent,
    "(a socket)": ceiling,
}
PRODUCERS: dict[str, Callable[[str, str, Rows], None]] = {
    "kproto": kproto_producer,
    "kafka-python": kafka_python_producer,
    "aiokafka": aiokafka_producer,
    "confluent": confluent_producer,
}


# ---- measuring


def flight_rows(count: int) -> Rows:
    return [(flight.key, flight.value, flight.timestamp) for flight in departures(table(count))]


def run_client(arguments: argparse.Namespace) -> None:
    """Run one client once in this process, and print its wall and CPU seconds as JSON."""
    kind, name = arguments.client.split(":", 1)
    if kind == "partitions":
        print(json.dumps(measure_partitions(arguments.bootstrap, int(name))))
        return
    rows: Rows = []
    # Import modules and compile message codecs before the clock starts.
    if kind == "produce":
        rows = flight_rows(arguments.records)
        PRODUCERS[name](arguments.bootstrap, arguments.codec, rows[:1])
    else:
        CONSUMERS[name](arguments.bootstrap, 1, arguments.topic)
    wall, cpu = time.perf_counter(), time.process_time()
    if kind == "produce":
        PRODUCERS[name](arguments.bootstrap, arguments.codec, rows)
    else:
        CONSUMERS[name](arguments.bootstrap, arguments.records, arguments.topic)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


def measure(kind: str, name: str, bootstrap: str, arguments: argparse.Namespace) -> Any:
    """Run one client in a new process, and return what it printed."""
    command = [sys.executable, "-m", "benchmarks.consumer", "--client", f"{kind}:{name}"]
    command += ["--bootstrap", bootstrap, "--records", str(arguments.records)]
    command += ["--codec", arguments.codec, "--topic", arguments.topic]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if process.returncode:
        raise SystemExit(f"the client {name!r} failed: {process.stderr[-1500:]}")
    return json.loads(process.stdout.strip().splitlines()[-1])


def run_rounds(kind: str, arguments: argparse.Namespace) -> dict[str, list[Seconds]]:
    """Run all clients with the embedded broker; producers get a new broker each time."""
    names = list(CONSUMERS if kind == "consume" else PRODUCERS)
    timings: dict[str, list[Seconds]] = {name: [] for name in names}
    if kind == "consume":
        with embedded() as bootstrap:
            kproto_producer(bootstrap, arguments.codec, flight_rows(arguments.records))
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    timings[name].append(measure(kind, name, bootstrap, arguments))
    else:
        for turn in range(arguments.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with embedded() as bootstrap:
                    timings[name].append(measure(kind, name, bootstrap, arguments))
    return timings


def print_table(title: str, timings: dict[str, list[Seconds]], records: int) -> None:
    bases = [name for name in timings if name.startswith("kproto")]
    titles = "".join(f" {base.removeprefix('kproto').strip() or 'kproto'} x wall / cpu |" for base in bases)
    print(f"\n| {title} | krec/s wall | µs cpu/rec |{titles}\n|---|---|---|{'---|' * len(bases)}")
    for name, seconds in timings.items():
        wall = statistics.median(wall for wall, _ in seconds)
        cpu = statistics.median(cpu for _, cpu in seconds)
        cells = ""
        for base in bases:
            pairs = list(zip(seconds, timings[base], strict=True))
            ratio = statistics.median(theirs[0] / ours[0] for theirs, ours in pairs)
            ratio_cpu = statistics.median(theirs[1] / ours[1] for theirs, ours in pairs)
            cells += f" {ratio:.2f} / {ratio_cpu:.2f} |"
        print(f"| {name} | {records / wall / 1000:.0f} | {cpu / records * 1e6:.2f} |{cells}")


# ---- a real Kafka


def fill(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Write random values, which do not compress, with confluent-kafka and its usual batches."""
    from confluent_kafka import Producer

    from consumer import Admin

    with Admin(bootstrap) as cluster:
        cluster.create_topics({topic: PARTITIONS})
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "batch.size": 100_000})
    noise = os.urandom(1 << 20)
    for number in range(count):
        start = number * 37 % (len(noise) - size)
        key, partition = b"key-%06d" % (number % 1_000_000), number // 500 % PARTITIONS
        while True:
            try:
                producer.produce(topic, noise[start : start + size], key, partition)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()


def read_from_kafka(arguments: argparse.Namespace) -> None:
    """Read `--kafka-records` records of 100 bytes and a quarter as many of 1,000 bytes from a real Kafka."""
    # kafka-python would take minutes per round.
    names = [name for name in CONSUMERS if name != "kafka-python"]
    with kafka({"log.retention.ms": "-1"}) as bootstrap:
        for topic, size, count in (
            ("small", 100, arguments.kafka_records),
            ("large", 1000, arguments.kafka_records // 4),
        ):
            fill(bootstrap, topic, count, size)
            topic_arguments = argparse.Namespace(**{**vars(arguments), "topic": topic, "records": count})
            timings: dict[str, list[Seconds]] = {name: [] for name in names}
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    timings[name].append(measure("consume", name, bootstrap, topic_arguments))
            print_table(f"{count} records of {size} B from a real Kafka", timings, count)


# ---- many partitions


SECONDS_BETWEEN_RECORDS = 0.03
RECORDS = 100  # The number of records, which are sent one at a time.
IDLE_SECONDS = 5


def consumer_cpu() -> float:
    """Return the CPU seconds of all threads except the producer's."""
    idents = [thread.ident for thread in threading.enumerate() if "producer" not in thread.name]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(ident)) for ident in idents if ident is not None)


def measure_partitions(bootstrap: str, count: int) -> list[float]:
    """Read from `count` partitions, of which at most seven get records.

    Returns the seconds from subscribe until every partition was fetched once, and the CPU time per record in
    ms. The third value is the share of a core that the consumer takes while no records arrive.
    """
    from consumer import Consumer, Producer

    with (
        Producer(bootstrap, linger_ms=0) as producer,
        Consumer(bootstrap, group_id=f"many-{os.getpid()}", auto_offset_reset="earliest") as consumer,
    ):
        start = time.perf_counter()
        consumer.subscribe([TOPIC])
        while True:
            consumer.poll(0.02)
            assigned = consumer.assignment()
            if len(assigned) == count and all(consumer.lag(partition) is not None for partition in assigned):
                break
        startup = time.perf_counter() - start
        producer.send(TOPIC, b"warm", partition=0).result()
        time.sleep(1)
        consumer.poll(1)
        cpu, began = consumer_cpu(), time.monotonic()
        for number in range(RECORDS):
            time.sleep(max(0, began + number * SECONDS_BETWEEN_RECORDS - time.monotonic()))
            producer.send(TOPIC, b"%d" % number, partition=number % min(count, 7))
            while not consumer.poll(1):
                pass
        cpu = consumer_cpu() - cpu
        idle_cpu, end = time.process_time(), time.monotonic() + IDLE_SECONDS
        while time.monotonic() < end:
            consumer.poll(1)
        idle_cpu = time.process_time() - idle_cpu
    return [startup, cpu / RECORDS * 1000, idle_cpu / IDLE_SECONDS]


def compare_partitions(arguments: argparse.Namespace) -> None:
    header("partitions", "s to read all", "ms cpu per record", "x of one partition", "idle, % of a core")
    cpu_of_one_partition = float("nan")
    for count in map(int, arguments.partitions.split(",")):
        results: list[list[float]] = []
        for _ in range(max(1, arguments.rounds // 2)):
            with embedded(count) as bootstrap:
                results.append(measure("partitions", str(count), bootstrap, arguments))
        startup, cpu, idle = (statistics.median(column) for column in zip(*results, strict=True))
        if count == 1:
            cpu_of_one_partition = cpu
        row(count, startup, cpu, cpu / cpu_of_one_partition, 100 * idle)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=336_776)
    parser.add_argument("--kafka-records", type=int, default=2_000_000)
    parser.add_argument("--only", default="consume,produce,kafka,partitions")
    parser.add_argument("--partitions", default="1,1000,10000")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--topic", default=TOPIC, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
        return
    print(machine("kafka-python", "aiokafka", "confluent-kafka"))
    print(f"{arguments.records} flights, compression {arguments.codec}, {arguments.rounds} rounds")
    for kind in arguments.only.split(","):
        if kind == "kafka":
            read_from_kafka(arguments)
        elif kind == "partitions":
            compare_partitions(arguments)
        else:
            print_table(kind, run_rounds(kind, arguments), arguments.records)
            if kind == "produce":
                print(PRODUCER_SETTINGS)


if __name__ == "__main__":
    main()
