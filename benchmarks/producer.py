"""Producers of small records: one by one, and a whole table at once.

    python -m benchmarks.producer [--rounds 5] [--records 300000] [--size 200] [--brokers kafka,embedded]

Each client writes the same random values without keys to three partitions, acknowledged by all replicas and
idempotent, and waits until the last one is acknowledged. Every client in every round is a process of its own,
and they take turns in rotating order. One record goes ahead; the clock starts behind it, so that imports,
connections and metadata don't count. A figure is the median over the rounds, a ratio the median of a round's
ratios: above 1 kproto is faster. CPU is that of the client process, all of its threads.

What made the difference: a request is copied once less on its way to the socket. 1.2 million records of 200 B
then cost 28,000 page faults instead of 170,000 and 0.4 instead of 1.2 billion instructions in the kernel; the
CPU was 0.89 and 0.78 of what it was before, in two pairs. Lengths that are all alike are looked up once: a
record of 200 B is encoded in 0.28 us instead of 0.32. A class that has a `__getattr__` pays for every look at
an attribute: `send` looks at one instead of three, which is 6 % of its instructions (7 % in asyncio). Words
for an argument that `send` has not cost 5 %: a dict for each call. Tried and lost: the common record taken
inside `send`, without a call of `take`, 1.11 us instead of 1.16; stretches of two batches instead of 32,768
rows when a table is encoded, no difference; a sender that sleeps for a moment whenever a batch is full, so
that the thread has its turn: no difference on a machine where others had the cores anyway.

A table becomes batches faster than a broker takes them: nearly always five requests are open (3.9 when the
next goes out), and flush is half of the wall clock. So what counts is what they cost the broker, which takes
one request of a connection after the other: with batches of 512 KiB instead of 128 a record of 200 B cost it
1.57 us of CPU instead of 2.30, and us 1.32 instead of 1.57; for send 1.27 instead of 1.55, and 2.24 instead
of 2.55 (medians of interleaved runs on a machine that others used, too). 1 MB is hardly better. Four rounds
on that machine: columns 1.55 times as fast as confluent, with 0.40 of its CPU; send 0.66, with 1.15.

A batch of a table gets its numbers where it lies, when it is sent, and its request is joined once: two copies
and one checksum less in all. 0.78 of the CPU of `send_columns`, the median of six interleaved pairs on
a busy machine; the thread that encodes 0.84.

`(a socket)` is the ceiling of one connection: the same batches, encoded before the clock starts, with five
requests in flight; `(three sockets)` has one for each partition. They cost a client 0.08 and 0.10 us a
record. What is left is Kafka's work, on a busy machine, medians of 20 interleaved runs: 0.47 us of its CPU a
record (0.25 in its own code, 0.22 in the kernel), for one or two batches of 512 KiB or one of 1000 in a
request; 0.58 for one of 256 KiB. Three connections cost it the same, and requests small enough for the heap's
regions too. Two fifths of its own code look at each record (`DefaultRecord.readFrom`): no client changes
that. The JVM of the tests, without the better compiler, takes 0.69; one that has just been started 1.6 to
2.6, and a third of it is compiling. So it is that of a production here, and written to before the first
round. On a quiet Xeon with two cores, medians of five rounds: a socket 2.3 M records a second, columns 1.58,
confluent 1.06, `send` 0.94. So twice confluent is nine tenths of what a socket reaches that does nothing
else, on cores that it shares with the broker; columns are 1.5 times as fast, with 0.4 of its CPU.

While all requests that may be open on its connection are, a producer has three to that broker
(connections_per_broker), each with some of the partitions. 12 interleaved pairs of 400,000 records on a
machine that others kept busy: columns 1.73 times as fast as through one connection by the clock, 1.05 in CPU.
Five rounds of all clients there: columns 2.6 times as fast as confluent, 0.27 of its CPU; `send` 1.4, 0.68.
On the quiet Xeon, 9 rounds: columns 1.5 times as fast as confluent, `send` 0.8, and three sockets that only
write ready batches as fast as columns, 1.5: where nobody else is, one connection of confluent's keeps a
broker as busy as two cores let it be.
With one core for the broker and one for the client nobody is faster than the broker: columns and confluent
0.83 and 0.88 M records a second, three sockets 0.82, columns with 0.35 of confluent's CPU (5 rounds).
Two and four connections were not told apart from three there. Partitions dealt out from the beginning would
let who writes little send three requests where one does.

Records that are nothing but a value are kept as that, and their ms once for all that share it; the commonest
of them finds its place in `send` itself, and hundreds share one look at the clock. What counts is the memory
that two threads touch for each: 0.75 of the wall clock of `send` in ten interleaved pairs of a million
records, 0.72 of its CPU (0.83 and 0.80 in pairs of 300,000, which begin with memory that the process has not
had yet: 4,000 to 15,000 page faults, up to a third of so short a run).

Values of one length, without keys, are copied into a batch as the matrix that they are: 0.13 us a record of
200 B instead of 0.33 (least of nine runs), and tables in pairs of a million records 0.94 of the wall clock
and of the CPU, in pairs of 300,000 0.88 and 0.79.
Five rounds of all clients behind that, on a quiet EPYC with two cores: `send` 0.88 times as fast as confluent
and columns 2.1 times, and with a million records 0.98 and 2.4 times. A minute's neighbour moves both: seven
rounds before the matrix gave `send` 0.99.

Tried and lost: parts of a request given to the kernel as they are (sendmsg) instead of joined: no difference
in runs of 300,000, and tables slower in runs of a million. Batches encoded by the thread that has filled
them: the same wall clock, 1.05 times the CPU; with a codec up to 1.7 times. Other sizes of buffer.memory and
of batches, other switch intervals.

The embedded broker is Python: with fast clients it is the slower side, and the wall clock says more about it.
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

from .brokers import PARTITIONS, TOPIC, embedded, kafka
from .ceilings import written
from .report import goals, header, machine, row

Taken = tuple[float, float]
BATCH = 131_072
WARM = 12
GOALS = (
    ("send, x aiokafka", "kproto", "aiokafka", 3.0),
    ("send, x confluent", "kproto", "confluent", 0.7),
    ("columns, x confluent", "kproto columns", "confluent", 2.0),
)


class Clock:
    def __enter__(self) -> Clock:
        self.start = time.perf_counter(), time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self.taken = time.perf_counter() - self.start[0], time.process_time() - self.start[1]


def kproto(bootstrap: str, values: list[bytes]) -> Taken:
    from consumer import Producer

    with Producer(bootstrap) as producer:
        producer.send(TOPIC, b"first").result(30)
        send = producer.send
        with Clock() as clock:
            for value in values:
                send(TOPIC, value)
            producer.flush()
    return clock.taken


def kproto_columns(bootstrap: str, values: list[bytes]) -> Taken:
    import pyarrow as pa

    from consumer import Producer

    batches = [pa.record_batch({"value": values[at : at + 20_000]}) for at in range(0, len(values), 20_000)]
    with Producer(bootstrap) as producer:
        producer.send_columns(TOPIC, {"value": [b"first"]})[0].result(30)
        with Clock() as clock:
            for batch in batches:
                producer.send_columns(TOPIC, batch)
            producer.flush()
    return clock.taken


def kproto_async(bootstrap: str, values: list[bytes]) -> Taken:
    from consumer import AsyncProducer

    async def write() -> Taken:
        async with AsyncProducer(bootstrap) as producer:
            await (await producer.send(TOPIC, b"first"))
            with Clock() as clock:
                for value in values:
                    await producer.send(TOPIC, value)
                await producer.flush()
        return clock.taken

    return asyncio.run(write())


def aiokafka(bootstrap: str, values: list[bytes]) -> Taken:
    from aiokafka import AIOKafkaProducer

    async def write() -> Taken:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            linger_ms=5,
            max_batch_size=BATCH,
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
        return clock.taken

    return asyncio.run(write())


def confluent(bootstrap: str, values: list[bytes]) -> Taken:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})
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
    return clock.taken


def ceiling(bootstrap: str, values: list[bytes]) -> Taken:
    return written(bootstrap, TOPIC, PARTITIONS, values, batch=512 * 1024)


def ceilings(bootstrap: str, values: list[bytes]) -> Taken:
    return written(bootstrap, TOPIC, PARTITIONS, values, batch=512 * 1024, connections=3)


CLIENTS: dict[str, Callable[[str, list[bytes]], Taken]] = {
    "kproto": kproto,
    "kproto columns": kproto_columns,
    "kproto asyncio": kproto_async,
    "aiokafka": aiokafka,
    "confluent": confluent,
    "(a socket)": ceiling,
    "(three sockets)": ceilings,
}


def one(arguments: argparse.Namespace) -> None:
    """One client, once, in this process; prints (wall, cpu) in seconds."""
    noise = os.urandom(1 << 20)
    most = len(noise) - arguments.size
    values = [
        noise[start : start + arguments.size]
        for start in (number * 37 % most for number in range(arguments.records))
    ]
    print(json.dumps(CLIENTS[arguments.one](arguments.bootstrap, values)))


def measure(name: str, bootstrap: str, arguments: argparse.Namespace) -> Taken:
    command = [sys.executable, "-m", "benchmarks.producer", "--one", name, "--bootstrap", bootstrap]
    command += ["--records", str(arguments.records), "--size", str(arguments.size)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=dict(os.environ))
    if done.returncode:
        raise SystemExit(f"{name}: {done.stderr[-1500:]}")
    wall, cpu = json.loads(done.stdout.strip().splitlines()[-1])
    return wall, cpu


@contextmanager
def with_topic() -> Iterator[str]:
    from consumer import Cluster

    with kafka() as bootstrap:
        with Cluster(bootstrap) as cluster:
            cluster.create_topics({TOPIC: PARTITIONS})
        yield bootstrap


BROKERS = {"kafka": ("a real Kafka", with_topic), "embedded": ("the embedded broker", embedded)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--size", type=int, default=200)
    parser.add_argument("--brokers", default="kafka,embedded")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--bootstrap", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        one(arguments)
        return
    print(machine("aiokafka", "confluent-kafka"))
    names = list(CLIENTS)
    for kind in arguments.brokers.split(","):
        title, made = BROKERS[kind]
        print(f"\n{arguments.records} records of {arguments.size} B to {title}, {arguments.rounds} rounds\n")
        found: dict[str, list[Taken]] = {name: [] for name in names}
        with made() as bootstrap:
            if kind == "kafka":  # whose JVM compiles and grows until then
                for _ in range(WARM):
                    measure("(a socket)", bootstrap, arguments)
            for turn in range(arguments.rounds):
                for name in names[turn % len(names) :] + names[: turn % len(names)]:
                    found[name].append(measure(name, bootstrap, arguments))
        header("producer", "krec/s wall", "µs cpu/rec", "kproto x wall", "kproto x cpu")
        for name, taken in found.items():
            wall, cpu = (statistics.median(column) for column in zip(*taken, strict=True))
            row(
                name,
                arguments.records / wall / 1000,
                cpu / arguments.records * 1e6,
                ratio(found, "kproto", name, 0),
                ratio(found, "kproto", name, 1),
            )
        print()
        goals([(what, ratio(found, ours, peer, 0), wanted) for what, ours, peer, wanted in GOALS])


def ratio(found: dict[str, list[Taken]], ours: str, peer: str, which: int) -> float:
    """The median of a round's ratios; `which`: 0 for wall, 1 for CPU."""
    pairs = zip(found[peer], found[ours], strict=True)
    return statistics.median(theirs[which] / mine[which] for theirs, mine in pairs)


if __name__ == "__main__":
    main()
