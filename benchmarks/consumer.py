"""Whole clients against the embedded broker: New York's flights of 2013, consumed and produced.

    python -m benchmarks.consumer [--rounds 5] [--records 336776] [--kafka-records 2000000] [--codec none]
                                  [--only consume,produce,kafka,partitions]

The broker is a process of its own; so is every client in every round, and clients take turns in rotating
order. A consumer reads the whole topic of three partitions and touches key, value, offset and timestamp of
each record (`columns`: sums the lengths of all values). A producer writes the same records and waits until
all are acknowledged by all replicas (kafka-python and kproto idempotent, their default). The clock starts
when the client exists, before its first request, and stops with the last record; imports don't count.

A figure is the median over the rounds, a ratio the median of a round's ratios: above 1 kproto is faster.
Wall and CPU are both told: CPU is the client process alone, all of its threads, so it doesn't depend on what
the broker costs. The broker is Python too, and with fast clients it is the slower side: then the wall clock
says more about it than about them.

`kafka` reads from a real Kafka (its jars and Java, or KPROTO_KAFKA); `partitions` counts what idle ones cost.

On a quiet EPYC with two cores, Python 3.11, medians of 7 rounds; wall and CPU as times of the peer's, above
1 is faster:

    2,000,000 records of 100 B     CPU a record   x aiokafka    x confluent
    rows                           0.38 us        3.5 / 3.5     14 / 2.1
    columns                        0.14 us        9.6 / 9.9     37 / 6.3
    500,000 records of 1 KB
    rows                           1.08 us        3.5 / 3.1     0.83 / 1.14
    columns                        0.69 us        5.5 / 4.6     1.3 / 1.7
    asyncio rows                   0.99 us        3.0 / 3.2     0.73 / 1.18

Where fifteen others shared the machine, rows of 1 KB took 2.8 us and columns 2.2:
confluent 0.67 and 0.99 of that.

What made the difference for 1 KB, in CPU a record of decoding alone: three partitions of an answer decoded
together, in place, 0.87 us instead of 1.48; records of one size found in runs, 0.20 instead of 0.40 for where
they start. For 100 B: 0.40 instead of 0.57 with both. The next pieces of all partitions fetched together,
when each has one left, and so decoded together: rows of 1 KB took 0.83 of the CPU that they took with a fetch
for each (the median of four pairs). Parts that aren't asked at the beginning and the end of a poll: 407,000
instructions for a poll of one record instead of 472,000.

Large answers received where the last ones were, as soon as nobody has those: a thousand records of 1 KB as
columns cost 10 to 20 page faults instead of 34 to 68, and 0.66, 0.98, 0.66 and 0.78 of the cycles in four
pairs on a busy machine. The first fetch of a broker answered at once: half a second less from subscribe to
steady, as quiet partitions waited fetch.max.wait.ms before their lag was known.

Answers in one piece: who was drained while a fetch was open was asked for beside it, so answers brought two
partitions and one in turn, and 517 pieces of 1 KB records took 345 decodes. A decode costs 0.9 ms, however
few its records are: hundreds of calls of numpy and Arrow; with 1,500 records it is 1.3 ms, with 4,000 2.2.
Now they wait for a fetch that has something to bring, and the next one asks for all: 176 decodes, and the
thread that reads columns took 0.74 and 0.66 of the CPU in two pairs on a busy machine, all threads 0.87 and
0.94 (two interleaved runs, medians of three). Pieces of 512 KiB, where each partition has few records, are
decoded together too: 2.0 and 2.3 us a record instead of 3.0 and 3.6. Pieces of 4 MiB
(max_partition_fetch_bytes) take 0.75 of the CPU that those of 1 MiB do; but a partition then holds four times
the memory, so that is an option.

The rest of a long answer received in one call, for which the kernel waits up to 5 ms: an answer of 3 MiB
took 17 reads, each of which waits for the interpreter's lock beside an application that computes; 300,000
records of 100 B take 101 instead of 239. CPU of rows, medians of interleaved pairs on a busy machine: 1 KB
0.88 and 0.92, 100 B 0.93 and 1.02. A loop can't wait so, but reads what is there without going round: 206
rounds for 100,000 records of 1 KB instead of 753, 0.93 of the CPU in nine pairs and as much in five more; no
less for 100 B.

Where it ends for 1 KB: one thread that fetches three partitions, and does nothing but receive into memory
that it has, takes 0.39 us a record there; 0.47 with the checksums, which confluent leaves out unless asked,
and 0.57 with one copy.

One record costs what it costs, however many partitions idle beside it: 1.00 times the CPU of one partition
with 1,000, 1.15 with 10,000, one record every 30 ms on a quiet EPYC; 1.4 before the embedded broker passed
over what is quiet in a fetch session. It looked through all of a session of 1,000 for each record, for 10
ms, and the client's caches were as cold as the pause was long: with seven partitions a record costs 0.37 ms
of CPU when the next one comes at once, 0.57 after 3 ms, 0.74 after 8. So records come at one pace here. Who
waited for a record had it after 9.1 ms with 1,000 partitions, 2.3 with one; now after 1.95 and 1.92.

`(a socket)` fetches the same and throws it away: what no client that has one connection is faster than. In
one round on a busy machine it got 475,000 records of 1 KB a second, confluent 458,000, we 255,000.

Who waits for records gets the engine's lock when the next request is written, not before: 1 KB without TLS
took 0.71 (columns) and 0.86 (rows) of the time that it took, 9 interleaved rounds on a quiet Xeon.

One record at a time: a poll makes 64 records of columns at once, and as long as some are left a poll is one
step in which nobody looks at anything: 17 us of CPU instead of 60 (aiokafka 5, confluent 1). A commit after
each of an iteration looks at what is held once, not each time; the thread that calls writes it to the socket
itself: 254 us instead of 412, in asyncio 198 instead of 231 (aiokafka 148, confluent 66). The medians of five
interleaved rounds on a busy machine. When to look again is found twice for each commit, by 11 to 12 us each
time instead of 15 to 16; on another machine, which others kept busier, a commit then took 1.15 (blocking, 15
rounds) and 1.03 (asyncio) of aiokafka's CPU. A thread and its answer, handed over through a socket and a
future, are 10 of those 200 us: what is left is in the engine's steps (45 for the commit, 35 for its answer),
spread over 550 calls.

Tried and lost for a commit: who waits told last, when the thread that read the answer is about to sleep (1.00
of the CPU in 15 interleaved pairs); the loop's timer set once for an answer and the commit that follows it
(1.06 in 15 pairs); fewer looks at what is empty (no difference).

Tried and lost: slices of the bytes for values, 0.25 to 0.35 us each where Arrow's views take 0.04 (0.15 for 1
KB); columns from 600 records on instead of 1000, no difference.

The batch headers of all parts of an answer are read at once: three pieces of 1 MiB are decoded in 0.86 of the
time (the least of 200 decodes, five pairs).

Runs of records of one size are found by their ends, and their lengths looked at where the fields are read;
each record of a run was looked at before, and batches whose second run was short were given up for the way
of all sizes. That looks for guesses in all batches together now. Starts and fields of three pieces of 1 MiB,
batches of 100 KB, took so much of the time before, the least of 21 interleaved pairs on a busy machine: 100
B with keys 0.47, without 0.54, 1 KB 0.25, all of which had been given up; 50 to 500 B at random 0.82, with
headers 0.70, with times in no order 0.76, some null 0.85. Decoded for rows, checksums and all (the median of
13 pairs): 100 B 0.68, 1 KB 0.58, random 0.97, in no order 0.79, with headers 0.92; and as rows 0.78, 0.79,
0.97, 0.94 and 0.99; compressed 0.86 to 1.04, where most of the time is what opens them. The batches of this
benchmark, of 832 and 97 records, were found in runs before, too: where they start takes 12 ns a record
instead of 29, for 1 KB 56 instead of 73. That is 0.96 and 0.99 of the whole client's CPU, whose pairs, 0.83
to 1.4 on that machine, don't show it.
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

from .brokers import PARTITIONS, TOPIC, embedded, kafka
from .ceilings import received
from .report import header, machine, row

# ---- consumers: each reads `count` records and returns


def kproto_rows(bootstrap: str, count: int, topic: str) -> None:
    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for record in consumer.poll(1.0, 1000):
                _ = record.key, record.value, record.offset, record.timestamp
                seen += 1


def kproto_columns(bootstrap: str, count: int, topic: str) -> None:
    import pyarrow.compute as pc

    from consumer import Consumer, TopicPartition

    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for batch in consumer.poll_columns(1.0):
                pc.sum(pc.binary_length(batch.columns.value)).as_py()
                seen += len(batch)


def kproto_async(bootstrap: str, count: int, topic: str) -> None:
    from consumer import AsyncConsumer, TopicPartition

    async def read() -> None:
        async with AsyncConsumer(bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
            seen = 0
            while seen < count:
                for record in await consumer.poll(1.0, 1000):
                    _ = record.key, record.value, record.offset, record.timestamp
                    seen += 1

    asyncio.run(read())


def kafka_python(bootstrap: str, count: int, topic: str) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
    seen = 0
    while seen < count:
        for records in consumer.poll(timeout_ms=1000, max_records=1000).values():
            for record in records:
                _ = record.key, record.value, record.offset, record.timestamp
                seen += 1
    consumer.close()


def aiokafka(bootstrap: str, count: int, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def read() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        seen = 0
        while seen < count:
            for records in (await consumer.getmany(timeout_ms=1000, max_records=1000)).values():
                for record in records:
                    _ = record.key, record.value, record.offset, record.timestamp
                    seen += 1
        await consumer.stop()

    asyncio.run(read())


def confluent(bootstrap: str, count: int, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    seen = 0
    while seen < count:
        for message in consumer.consume(1000, 1.0):
            _ = message.key(), message.value(), message.offset(), message.timestamp()
            seen += 1
    consumer.close()


def ceiling(bootstrap: str, count: int, topic: str) -> None:
    received(bootstrap, topic, PARTITIONS, count)


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


def one(arguments: argparse.Namespace) -> None:
    """One client, once, in this process; prints (wall, cpu) in seconds."""
    kind, name = arguments.one.split(":", 1)
    if kind == "partitions":
        print(json.dumps(partitions(arguments.bootstrap, int(name))))
        return
    rows: Rows = []
    if kind == "produce":
        rows = [tuple(row) for row in departures(table(arguments.records))]
    else:
        # Imports, code generation and the first connection.
        CONSUMERS[name](arguments.bootstrap, 1, arguments.topic)
    wall, cpu = time.perf_counter(), time.process_time()
    if kind == "produce":
        PRODUCERS[name](arguments.bootstrap, arguments.codec, rows)
    else:
        CONSUMERS[name](arguments.bootstrap, arguments.records, arguments.topic)
    print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))


def measure(kind: str, name: str, bootstrap: str, arguments: argparse.Namespace) -> Any:
    command = [
        sys.executable,
        "-m",
        "benchmarks.consumer",
        "--one",
        f"{kind}:{name}",
        "--bootstrap",
        bootstrap,
    ]
    command += ["--records", str(arguments.records), "--codec", arguments.codec, "--topic", arguments.topic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-1500:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def rounds(kind: str, arguments: argparse.Namespace) -> dict[str, list[tuple[float, float]]]:
    names = list(CONSUMERS if kind == "consume" else PRODUCERS)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    if kind == "consume":
        with embedded() as bootstrap:
            kproto_producer(
                bootstrap, arguments.codec, [tuple(r) for r in departures(table(arguments.records))]
            )
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    found[name].append(measure(kind, name, bootstrap, arguments))
    else:
        for turn in range(arguments.rounds):
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                with embedded() as bootstrap:
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


# ---- a real Kafka


def fill(bootstrap: str, topic: str, count: int, size: int) -> None:
    """Random values, so that nobody is helped by what is alike, by the client that batches as most do."""
    from confluent_kafka import Producer

    from consumer import Cluster

    with Cluster(bootstrap) as cluster:
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


def from_kafka(arguments: argparse.Namespace) -> None:
    """Every consumer reads so many records of 100 B from a real Kafka, and a quarter as many of 1 KB."""
    names = [name for name in CONSUMERS if name != "kafka-python"]  # minutes a round
    with kafka({"log.retention.ms": "-1"}) as bootstrap:
        for topic, size, count in (
            ("small", 100, arguments.kafka_records),
            ("large", 1000, arguments.kafka_records // 4),
        ):
            fill(bootstrap, topic, count, size)
            asked = argparse.Namespace(**{**vars(arguments), "topic": topic, "records": count})
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    found[name].append(measure("consume", name, bootstrap, asked))
            report(f"{count} records of {size} B from a real Kafka", found, count)


# ---- many partitions


PACE = 0.03  # Seconds from a record to the next.


def consumers_cpu() -> float:
    """CPU seconds of all threads but the producer's."""
    known = [one for one in threading.enumerate() if "producer" not in one.name and one.ident is not None]
    return sum(time.clock_gettime(time.pthread_getcpuclockid(one.ident or 0)) for one in known)


def partitions(bootstrap: str, count: int) -> list[float]:
    """Seconds from subscribe until all partitions were fetched once, CPU ms for one record while the others
    are idle, and the share of a core that idling takes."""
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
            if len(assigned) == count and all(consumer.lag(one) is not None for one in assigned):
                break
        steady = time.perf_counter() - start
        producer.send(TOPIC, b"warm", partition=0).result()
        time.sleep(1)
        consumer.poll(1)
        cpu, rounds_of_one, began = consumers_cpu(), 100, time.monotonic()
        for number in range(rounds_of_one):
            time.sleep(max(0, began + number * PACE - time.monotonic()))
            producer.send(TOPIC, b"%d" % number, partition=number % min(count, 7))
            while not consumer.poll(1):
                pass
        cpu = consumers_cpu() - cpu
        idle, end = time.process_time(), time.monotonic() + 5
        while time.monotonic() < end:
            consumer.poll(1)
        idle = time.process_time() - idle
    return [steady, cpu / rounds_of_one * 1000, idle / 5]


def many_partitions(arguments: argparse.Namespace) -> None:
    header("partitions", "s until steady", "ms cpu for one record", "x of one partition", "idle, % of a core")
    one = float("nan")
    for count in (1, 1000, 10_000):
        taken: list[list[float]] = []
        for _ in range(max(1, arguments.rounds // 2)):
            with embedded(count) as bootstrap:
                taken.append(measure("partitions", str(count), bootstrap, arguments))
        steady, cpu, idle = (statistics.median(column) for column in zip(*taken, strict=True))
        one = cpu if count == 1 else one
        row(count, steady, cpu, cpu / one, 100 * idle)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=336_776)
    parser.add_argument("--kafka-records", type=int, default=2_000_000)
    parser.add_argument("--only", default="consume,produce,kafka,partitions")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    parser.add_argument("--topic", default=TOPIC, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments)
        return
    print(machine("kafka-python", "aiokafka", "confluent-kafka"))
    print(f"{arguments.records} flights, compression {arguments.codec}, {arguments.rounds} rounds")
    for kind in arguments.only.split(","):
        if kind == "kafka":
            from_kafka(arguments)
        elif kind == "partitions":
            many_partitions(arguments)
        else:
            report(kind, rounds(kind, arguments), arguments.records)


if __name__ == "__main__":
    main()
