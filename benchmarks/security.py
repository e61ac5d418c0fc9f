"""Measure what TLS and SASL cost readers and writers, compared with PLAINTEXT and confluent-kafka.

    python -m benchmarks.security [--rounds 5] [--records 200000]
                                  [--only kafka,embedded] [--cpus apart,shared]

Each client reads or writes records of 1,000 random bytes over PLAINTEXT, SSL (TLS 1.3) and SASL_SSL
(SCRAM-SHA-512), on a real Kafka and on the embedded broker. Every client in every round and both brokers
are separate processes. The clock starts after the first record, so logins are not counted.

A ratio is the speed relative to PLAINTEXT. It is computed for each round, and its median is printed. The goal
for wall time is 0.6. The embedded broker is written in Python, so the CPU time of the client is printed as
well.

Each table is printed twice: with separate CPUs for client and broker, and with all CPUs for both
(`benchmarks.cpus`).

The "bare" readers receive the same responses and discard them. The CPU time that TLS adds to a bare reader is
unavoidable for any client. If it is T, a reader that takes P without TLS can at best reach P / (P + T). A
second limit is the speed of the broker: no reader needs less wall time than a bare reader. Both limits are
printed below the table.

Results on an idle EPYC with two cores, 5 rounds of 300,000 records, wall time relative to PLAINTEXT:

                        measured    limit (bare socket, bare memory)
    rows, shared            0.57    0.60 to 0.64
    columns, shared         0.49    0.52 to 0.56
    confluent, shared       0.46
    rows, apart             0.55    0.59 to 0.63
    columns, apart          0.47    0.54 to 0.58

A faster reader loses a larger share of its speed, because TLS costs the same for every reader. Columns
therefore lose more than rows. Both miss the goal on this machine. Writers reach 0.90.

CPU time in us to receive 1 KiB over TLS, on a busy EPYC (Milan), OpenSSL 3.0.19, Python 3.11:

    AES-256-GCM alone, 16 KiB at a time (AES-128: 0.28)                           0.32
    `ssl` in memory, 256 KiB at a time, without a socket                          0.58
    `ssl` in memory, received 256, 128, 64, 32, 16 KiB at a time                  0.70, 0.76, 0.78, 0.88, 0.98
    an `SSLSocket`                                                                0.78
    without TLS                                                                   0.12

While the application waits for records over TLS, its thread runs the engine
(`consumer.blocking.socket_owner`). With shared CPUs this raised rows from 0.48 to 0.57, and columns from 0.37
to 0.49. Without TLS this design would cost 16 to 29 % of the speed: there the engine's own thread, which
hardly needs the interpreter, fetches ahead of the application.

experiments/README.md lists the optimizations that did not help.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from consumer import Admin
from tests.conformance.secured_kafka import USERS, real_kafka

from .brokers import BATCH_BYTES, LINGER_MS
from .ceilings import discard_responses
from .cpus import Cpus, add_option, pinned_to, split_cpus
from .report import Seconds, header, machine, row

GOAL = 0.6  # The speed by wall time relative to PLAINTEXT.
PARTITIONS, SIZE = 3, 1000
WARMUP_RUNS = 8  # Runs before the first round: Java's TLS gets three times as fast in its first seconds.
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
USER, MECHANISM = "alice", "SCRAM-SHA-512"


def read_clocks() -> Seconds:
    return time.perf_counter(), time.process_time()


def elapsed(start: Seconds) -> Seconds:
    wall, cpu = read_clocks()
    return wall - start[0], cpu - start[1]


def kproto_options(protocol: str, ca_file: str) -> dict[str, Any]:
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol != "PLAINTEXT":
        options["ssl_cafile"] = ca_file
    if protocol == "SASL_SSL":
        options |= {"sasl_mechanism": MECHANISM, "sasl_username": USER, "sasl_password": USERS[USER]}
    return options


def confluent_settings(protocol: str, ca_file: str) -> dict[str, Any]:
    options: dict[str, Any] = {"security.protocol": protocol.lower()}
    if protocol != "PLAINTEXT":
        options["ssl.ca.location"] = ca_file
    if protocol == "SASL_SSL":
        options |= {"sasl.mechanisms": MECHANISM, "sasl.username": USER, "sasl.password": USERS[USER]}
    return options


# ---- clients: (addresses by protocol, protocol, ca_file, topic, count) -> seconds after the first record

Addresses = Mapping[str, str]


def kproto_reads(
    columns: bool, addresses: Addresses, protocol: str, ca_file: str, topic: str, count: int
) -> Seconds:
    from consumer import Consumer, TopicPartition

    options = kproto_options(protocol, ca_file)
    with Consumer(addresses[protocol], auto_offset_reset="earliest", **options) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        count_read, start = 0, (0.0, 0.0)
        while count_read < count:
            records: Any = consumer.poll_columns(1.0) if columns else consumer.poll(1.0, 1000)
            if records and not count_read:
                start = read_clocks()
            count_read += sum(map(len, records)) if columns else len(records)
    return elapsed(start)


def confluent_reads(addresses: Addresses, protocol: str, ca_file: str, topic: str, count: int) -> Seconds:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": addresses[protocol], "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, **confluent_settings(protocol, ca_file)})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    count_read, start = 0, (0.0, 0.0)
    while count_read < count:
        messages = consumer.consume(1000, 1.0)
        if messages and not count_read:
            start = read_clocks()
        count_read += len(messages)
    seconds = elapsed(start)
    consumer.close()
    return seconds


def bare_reads(
    transport: str, addresses: Addresses, protocol: str, ca_file: str, topic: str, count: int
) -> Seconds:
    return discard_responses(
        transport,
        addresses["PLAINTEXT"],
        addresses[protocol],
        protocol,
        ca_file,
        topic,
        PARTITIONS,
        count,
    )


def kproto_writes(addresses: Addresses, protocol: str, ca_file: str, topic: str, count: int) -> Seconds:
    from consumer import Producer

    with Producer(
        addresses[protocol], linger_ms=LINGER_MS, batch_size=BATCH_BYTES, **kproto_options(protocol, ca_file)
    ) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        start = read_clocks()
        for number, value in enumerate(random_values(count)):
            producer.send(topic, value, partition=number // 100 % PARTITIONS)
        producer.flush()
        return elapsed(start)


def confluent_writes(addresses: Addresses, protocol: str, ca_file: str, topic: str, count: int) -> Seconds:
    from confluent_kafka import Producer

    settings = {
        "bootstrap.servers": addresses[protocol],
        "linger.ms": LINGER_MS,
        "batch.size": BATCH_BYTES,
        "enable.idempotence": True,
    }
    producer = Producer({**settings, **confluent_settings(protocol, ca_file)})
    producer.produce(topic, b"first", partition=0)
    producer.flush()
    start = read_clocks()
    for number, value in enumerate(random_values(count)):
        while True:
            try:
                producer.produce(topic, value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return elapsed(start)


def random_values(count: int) -> Iterator[bytes]:
    noise = Random(0).randbytes(1 << 20)
    return (
        noise[start : start + SIZE]
        for start in (number * 37 % (len(noise) - SIZE) for number in range(count))
    )


READERS: Mapping[str, Callable[..., Seconds]] = {
    "kproto rows": partial(kproto_reads, False),
    "kproto columns": partial(kproto_reads, True),
    "confluent": confluent_reads,
}
# Readers that discard the responses. They show what TLS itself costs, and how fast the broker is.
BARE_READERS: Mapping[str, Callable[..., Seconds]] = {
    "bare socket": partial(bare_reads, "socket"),
    "bare memory": partial(bare_reads, "memory"),
}
WRITERS: Mapping[str, Callable[..., Seconds]] = {"kproto": kproto_writes, "confluent": confluent_writes}


# ---- measuring


@contextmanager
def kafka(folder: Path) -> Iterator[tuple[Addresses, str]]:
    # Without the C2 compiler, Java's AES is slow.
    with real_kafka(folder, session_ms=0, java_options=["-XX:TieredStopAtLevel=4"]) as broker:
        yield broker.places, broker.certificates.ca


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[Addresses, str]]:
    listeners = ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS)
    command = [sys.executable, "-m", "kproto", "broker", "--listen", listeners]
    command += ["--tls-self-signed", str(folder), "--user", f"{USER}:{USERS[USER]}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            started = process.stdout.readline().removeprefix("listening on ").partition(";")[0]
            addresses = dict(listener.split("://") for listener in started.split(", "))
            yield addresses, str(folder / "ca.pem")
        finally:
            process.terminate()


BROKERS = {"kafka": kafka, "embedded": embedded}


class Run:
    """One running broker, and the CPUs of its clients."""

    def __init__(self, addresses: Addresses, ca_file: str, count: int, client_cpus: Cpus) -> None:
        self._addresses = addresses
        self._ca_file = ca_file
        self._count = count
        self._client_cpus = client_cpus

    def cluster(self) -> Admin:
        return Admin(self._addresses["PLAINTEXT"], timeout=60)

    def measure(self, kind: str, name: str, protocol: str, topic: str) -> Seconds:
        """Run one client in a new process, and return its wall and CPU seconds."""
        command = [sys.executable, "-m", "benchmarks.security", "--client", kind, name]
        command += [json.dumps(dict(self._addresses)), protocol, self._ca_file, topic, str(self._count)]
        with pinned_to(self._client_cpus):
            process = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if process.returncode:
            raise SystemExit(f"the client {name!r} failed over {protocol}: {process.stderr[-1500:]}")
        wall, cpu = json.loads(process.stdout)
        return wall, cpu

    def measure_write(self, name: str, protocol: str, topic: str) -> Seconds:
        """Measure a writer that writes to a new topic."""
        with self.cluster() as cluster:
            cluster.create_topics({topic: PARTITIONS})
        seconds = self.measure("write", name, protocol, topic)
        with self.cluster() as cluster:
            cluster.delete_topics([topic])
        return seconds


def compare(broker: str, placement: str, rounds: int, count: int) -> bool:
    """Print the table of one broker, and return whether kproto reaches the goal."""
    reached = True
    client_cpus, broker_cpus = split_cpus(placement)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with pinned_to(broker_cpus):
            addresses, ca_file = stack.enter_context(BROKERS[broker](folder))
        run = Run(addresses, ca_file, count, client_cpus)
        with run.cluster() as cluster:
            cluster.create_topics({"read": PARTITIONS})
        run.measure("write", "confluent", "PLAINTEXT", "read")
        for turn in range(WARMUP_RUNS):
            run.measure("read", "kproto columns", PROTOCOLS[1 + turn % 2], "read")
        header(
            f"{broker}, {placement}",
            "PLAINTEXT, krec/s",
            "SSL, wall / cpu",
            "SASL_SSL, wall / cpu",
        )
        timings: dict[str, dict[str, list[Seconds]]] = {}
        for kind, clients in (("read", {**READERS, **BARE_READERS}), ("write", WRITERS)):
            for name in clients:
                protocols = PROTOCOLS[:2] if name in BARE_READERS else PROTOCOLS
                by_protocol = timings[f"{kind}: {name}"] = {protocol: [] for protocol in protocols}
                for turn in range(rounds):
                    for protocol in protocols if turn % 2 else protocols[::-1]:
                        if kind == "read":
                            seconds = run.measure(kind, name, protocol, "read")
                        else:
                            seconds = run.measure_write(name, protocol, f"{name[:6]}-{protocol}-{turn}")
                        by_protocol[protocol].append(seconds)
                plaintext = by_protocol["PLAINTEXT"]
                cells: list[str] = []
                for protocol in protocols[1:]:
                    pairs = list(zip(plaintext, by_protocol[protocol], strict=True))
                    wall, cpu = (
                        statistics.median(without[clock] / secured[clock] for without, secured in pairs)
                        for clock in (0, 1)
                    )
                    cells.append(f"{wall:.2f} / {cpu:.2f}")
                    reached = reached and (wall >= GOAL or not name.startswith("kproto"))
                median_wall = statistics.median(wall for wall, _ in plaintext)
                row(f"{kind}: {name}", f"{count / median_wall / 1000:.0f}", *cells, *[""] * (2 - len(cells)))
        for name in READERS:
            if name.startswith("kproto"):
                print(f"read: {name}, limits: {format_limits(timings, name)}")
    return reached


def format_limits(timings: Mapping[str, Mapping[str, list[Seconds]]], name: str) -> str:
    """Return the best ratios that a reader could reach on this machine if only TLS itself cost time."""
    plaintext = timings[f"read: {name}"]["PLAINTEXT"]
    wall, cpu = (statistics.median(seconds[clock] for seconds in plaintext) for clock in (0, 1))
    limits: list[str] = []
    for bare in BARE_READERS:
        pairs = zip(*(timings[f"read: {bare}"][protocol] for protocol in PROTOCOLS[:2]), strict=True)
        tls_cpu = statistics.median(secured[1] - without[1] for without, secured in pairs)
        broker_wall = statistics.median(seconds[0] for seconds in timings[f"read: {bare}"]["SSL"])
        limits.append(
            f"{wall / (wall + tls_cpu):.2f} / {cpu / (cpu + tls_cpu):.2f} ({bare}; the broker allows "
            f"{min(1.0, wall / broker_wall):.2f})"
        )
    return ", ".join(limits)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", default="kafka,embedded")
    add_option(parser)
    parser.add_argument("--client", nargs=7, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        kind, name, addresses, protocol, ca_file, topic, count = arguments.client
        clients = {**READERS, **BARE_READERS} if kind == "read" else WRITERS
        print(json.dumps(clients[name](json.loads(addresses), protocol, ca_file, topic, int(count))))
        return
    print(machine("confluent-kafka"))
    print(f"{arguments.records} records of {SIZE} B, {arguments.rounds} rounds")
    for placement in arguments.cpus:
        reached = [
            compare(broker, placement, arguments.rounds, arguments.records)
            for broker in arguments.only.split(",")
        ]
        print(
            f"{placement}: the goal, {GOAL} of the speed of PLAINTEXT, is "
            f"{'reached' if all(reached) else 'missed'}"
        )


if __name__ == "__main__":
    main()
