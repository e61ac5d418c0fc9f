"""Compare producers of small records: record by record, and as columns.

    python -m benchmarks.producer [--rounds 5] [--records 300000] [--size 200] [--brokers kafka,embedded]

Each client writes the same random values without keys to three partitions, idempotently and acknowledged by
all replicas, and waits for the last acknowledgement. All have the same linger time and batch size. Every
client in every round is a separate process, and clients run in rotating order. The clock starts after the
first record, so imports, connections and metadata are not counted. Each value is the median over the rounds.
A ratio is computed for each round, and its median is printed; above 1, kproto is faster. CPU time is that of
the client's process with all its threads.

The candidate "(a socket)" shows the limit of one connection. It writes the same batches, encoded before the
clock starts, with five requests in flight. "(three sockets)" has one connection for each partition. These two
candidates take 0.08 and 0.10 us of CPU per record; the broker uses the rest of their time.

The real Kafka runs with the JVM options of production, and receives records before the first round. A JVM
that has just started takes 3 to 5 times the CPU per record, a third of it for compilation.

The embedded broker is written in Python and is slower than fast clients. With such a client the wall time
measures the broker.

docs/explanation/benchmarks.md has the results.

With one core each for broker and client, the broker is the bottleneck. In millions of records per second:
columns 0.83, confluent 0.88, three sockets 0.82. Columns need 0.35 times the CPU of confluent.

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
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .brokers import BATCH_BYTES, LINGER_MS, PARTITIONS, PRODUCER_SETTINGS, TOPIC, embedded, kafka
from .ceilings import write_batches
from .report import Seconds, goals, header, machine, row

WARMUP_RUNS = 12  # Runs before the first round, in which the JVM compiles its code and grows its heap.
GOALS = (
    ("send, x aiokafka", "kproto", "aiokafka", 3.0),
    ("send, x confluent", "kproto", "confluent", 0.7),
    ("columns, x confluent", "kproto columns", "confluent", 2.0),
)


class Clock:
    """A stopwatch for the wall and CPU seconds of a `with` block."""

    seconds: Seconds

    def __enter__(self) -> Clock:
        self.start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.start[0], time.process_time() - self.start[1]


def kproto(bootstrap: str, values: list[bytes]) -> Seconds:
    from consumer import Producer

    with Producer(bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send(TOPIC, b"first").result(30)
        send = producer.send
        with Clock() as clock:
            for value in values:
                send(TOPIC, value)
            producer.flush()
    return clock.seconds


def kproto_columns(bootstrap: str, values: list[bytes]) -> Seconds:
    import pyarrow as pa

    from consumer import Producer

    batches = [
        pa.record_batch({"value": values[start : start + 20_000]}) for start in range(0, len(values), 20_000)
    ]
    with Producer(bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
        producer.send_columns(TOPIC, {"value": [b"first"]})[0].result(30)
        with Clock() as clock:
            for batch in batches:
                producer.send_columns(TOPIC, batch)
            producer.flush()
    return clock.seconds


def kproto_async(bootstrap: str, values: list[bytes]) -> Seconds:
    from consumer import AsyncProducer

    async def write() -> Seconds:
        async with AsyncProducer(bootstrap, linger_ms=LINGER_MS, batch_size=BATCH_BYTES) as producer:
            await (await producer.send(TOPIC, b"first"))
            with Clock() as clock:
                for value in values:
                    await producer.send(TOPIC, value)
                await producer.flush()
        return clock.seconds

    return asyncio.run(write())


def aiokafka(bootstrap: str, values: list[bytes]) -> Seconds:
    from aiokafka import AIOKafkaProducer

    async def write() -> Seconds:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=LINGER_MS,
            max_batch_size=BATCH_BYTES,
            acks="all",
            enable_idempotence=True,
        )
        await producer.start()
        await producer.send_and_wait(TOPIC, b"first")
        with Clock() as clock:
            for value in values:
                await producer.send(TOPIC, value)
            await producer.flush()
        await producer.stop()
        return clock.seconds

    return asyncio.run(write())


def confluent(bootstrap: str, values: list[bytes]) -> Seconds:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "enable.idempotence": True,
        }
    )
    producer.produce(TOPIC, b"first")
    producer.flush()
    with Clock() as clock:
        for value in values:
            while True:
                try:
                    producer.produce(TOPIC, value)
                    break
                except BufferError:
                    producer.poll(0.05)
        producer.flush()
    return clock.seconds


def one_socket(bootstrap: str, values: list[bytes]) -> Seconds:
    return write_batches(bootstrap, TOPIC, PARTITIONS, values, batch_bytes=BATCH_BYTES)


def three_sockets(bootstrap: str, values: list[bytes]) -> Seconds:
    return write_batches(bootstrap, TOPIC, PARTITIONS, values, batch_bytes=BATCH_BYTES, connections=3)


CLIENTS: dict[str, Callable[[str, list[bytes]], Seconds]] = {
    "kproto": kproto,
    "kproto columns": kproto_columns,
    "kproto asyncio": kproto_async,
    "aiokafka": aiokafka,
    "confluent": confluent,
    "(a socket)": one_socket,
    "(three sockets)": three_sockets,
}


def run_client(arguments: argparse.Namespace) -> None:
    """Run one client once in this process, and print its wall and CPU seconds as JSON."""
    noise = os.urandom(1 << 20)
    starts = len(noise) - arguments.size
    values = [
        noise[start : start + arguments.size]
        for start in (number * 37 % starts for number in range(arguments.records))
    ]
    print(json.dumps(CLIENTS[arguments.client](arguments.bootstrap, values)))


def measure(name: str, bootstrap: str, arguments: argparse.Namespace) -> Seconds:
    """Run one client in a new process, and return its wall and CPU seconds."""
    command = [sys.executable, "-m", "benchmarks.producer", "--client", name, "--bootstrap", bootstrap]
    command += ["--records", str(arguments.records), "--size", str(arguments.size)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if process.returncode:
        raise SystemExit(f"the client {name!r} failed: {process.stderr[-1500:]}")
    wall, cpu = json.loads(process.stdout.strip().splitlines()[-1])
    return wall, cpu


@contextmanager
def kafka_with_topic() -> Iterator[str]:
    from consumer import Admin

    with kafka() as bootstrap:
        with Admin(bootstrap) as cluster:
            cluster.create_topics({TOPIC: PARTITIONS})
        yield bootstrap


BROKERS = {"kafka": ("a real Kafka", kafka_with_topic), "embedded": ("the embedded broker", embedded)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--brokers", default="kafka,embedded")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        run_client(arguments)
        return
    print(machine("aiokafka", "confluent-kafka"))
    print(PRODUCER_SETTINGS)
    names = list(CLIENTS)
    for kind in arguments.brokers.split(","):
        title, start_broker = BROKERS[kind]
        print(f"\n{arguments.records} records of {arguments.size} B to {title}, {arguments.rounds} rounds\n")
        timings: dict[str, list[Seconds]] = {name: [] for name in names}
        with start_broker() as bootstrap:
            if kind == "kafka":
                for _ in range(WARMUP_RUNS):
                    measure("(a socket)", bootstrap, arguments)
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    timings[name].append(measure(name, bootstrap, arguments))
        header("producer", "krec/s wall", "µs cpu/rec", "kproto x wall", "kproto x cpu")
        for name, seconds in timings.items():
            wall, cpu = (statistics.median(column) for column in zip(*seconds, strict=True))
            row(
                name,
                arguments.records / wall / 1000,
                cpu / arguments.records * 1e6,
                ratio(timings, "kproto", name, 0),
                ratio(timings, "kproto", name, 1),
            )
        print()
        goals((label, ratio(timings, ours, peer, 0), required) for label, ours, peer, required in GOALS)


def ratio(timings: dict[str, list[Seconds]], ours: str, peer: str, clock: int) -> float:
    """Return the median of the ratios of the rounds; `clock` is 0 for wall time, 1 for CPU time."""
    pairs = zip(timings[peer], timings[ours], strict=True)
    return statistics.median(
        their_seconds[clock] / our_seconds[clock] for their_seconds, our_seconds in pairs
    )


if __name__ == "__main__":
    main()
