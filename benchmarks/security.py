"""What TLS and SASL cost where much is read and written: beside the same without, and confluent-kafka.

    python -m benchmarks.security [--rounds 5] [--records 200000]
                                  [--only kafka,embedded] [--cpus apart,shared]

Each client in each round is a process of its own, by PLAINTEXT, SSL (TLS 1.3) and SASL_SSL (SCRAM-SHA-512),
on a real Kafka from its jars and on the embedded broker in a process of its own. Records have 1 KB of noise.
A consumer reads all of them, a producer writes as many and waits until they are acknowledged; the clock
starts behind the first record, so logins don't count.

A figure is the median of a round's ratios, time without to time with: 1 is as fast, above the goal of 0.6 is
enough. Wall and CPU of the client are both told: the embedded broker is Python, too.

Each table comes twice (`cpus`): client and broker apart, each with CPUs of its own, and both on all of them,
where a reader's two threads and a broker that seals what they read want three.

Beside them a reader throws the same answers away (`bare`): what it takes more over TLS is what nobody can
spare, so P / (P + that) is the best ratio on the machine for a reader that takes P without TLS; and its wall
is what the broker allows. Both stand below the table.

On a quiet EPYC rows were 0.52 to 0.58 by the clock and 0.56 to 0.60 in CPU, columns 0.45 and 0.47, confluent
0.32 to 0.38 and 0.56 to 0.59; writing 0.90. The faster a reader is without TLS, the less of that is left with
it: columns miss the goal by the clock, and reach it only where AES costs less. On a Xeon that others kept
busy (7 interleaved rounds of 100,000 records, CPU only, microseconds for 1 KiB):

                              without TLS    with it    ratio    at best
    bare, `ssl` over memory          0.17       0.60
    bare, an SSLSocket               0.17       0.56
    rows                             1.55       2.25     0.69       0.79
    columns                          1.23       1.86     0.66       0.74

What TLS costs the reader, in CPU time, as instructions say little of it (the same AES takes few or many, and
as long). On an EPYC (Milan) with two cores that many others shared, OpenSSL 3.0.19, Python 3.11, November
2026, microseconds for 1 KiB:

    AES-256-GCM alone (`openssl speed`, pieces of 16 KiB); AES-128 0.28           0.32
    Python's `ssl` over memory, 256 KiB at once, no socket                        0.58
    received by it from a socket: user and kernel, 256, 128, 64, 32, 16 KiB       0.70, 0.76, 0.78, 0.88, 0.98
    received by an SSLSocket without memory in between (0.44 user, 0.35 kernel)   0.78
    the same bytes received without TLS                                           0.12

So `ssl` costs 0.58 more than nothing, of which 0.32 are AES, and a reader that takes P without it has about
P / (P + 0.58) of that with it at best: 0.68 for rows (1.26 a record of 1 KB), 0.62 for columns (0.95).
Feeding OpenSSL pieces that stay in the cache (16, 32 or 64 KiB of the 256 that came) loses: 0.70, 0.64, 0.60.

What it costs above that are looks: Java seals 16,367, 16,367 and 34 bytes in turn, and a reader is woken for
every few of them, 1,300 to 2,900 times for 200,000 records (670 to 870 without TLS). Tried and lost: packets
in the middle of an answer waited for until they are 256 KiB (SO_RCVLOWAT). Over TLS that took 0.9 of the CPU,
but the reader slept where it could have read, and nothing was faster by the clock; without TLS columns took
1.3 to 1.6 times as long beside confluent in the same runs, so that TLS only looked cheaper.

Tried and lost on the Xeon, in 9 interleaved rounds of CPU time beside what there is: a connection read again
and again before the next look, 256 KiB (1.01 for rows, 1.06 for columns) or 1 MiB at once (1.03, 1.02). An
SSLSocket that receives into the answer's own buffer spares a copy and takes 0.92 of `ssl` over memory, bare
(0.88 to 0.95 in 7 pairs): 0.04 of the 1.86 that columns take, for a second way to do TLS that asyncio can't
have; on the EPYC it cost more. AES-128 would spare 0.04, too, but Python 3.11's `ssl` can't choose among TLS
1.3's suites, and Java prefers AES-256. Each 16 KiB is a call that lets the GIL go, and
the reader takes it back from who decodes: only TLS in the kernel would change that.

By the clock there are other reasons on loopback. Kafka sends 100 KiB ahead (socket.send.buffer.bytes) and
Linux acknowledges late what nobody reads: while a reader decodes, some 197 KB are there and no more, and the
broker, which could have sealed the rest, waits. A receive buffer of 1 or 4 MiB, TCP_QUICKACK, and a lock less
between who decodes and who reads changed nothing by the clock (5 to 7 interleaved rounds each); answers of
1 MiB instead of 3, which leave less to wait for, took columns 1.4 times as long over TLS, 1.7 times without.

A client for asyncio has no such loss: on a quiet Xeon its columns took 302 ms for 200,000 records over TLS
and 221 without, 0.74 (9 rounds), where the blocking client took 357 to 396 and 206. Where that went was seen
line by line. First: sealing a request lets the interpreter go, and the application, which had been woken,
took it and decoded for 2 ms before the request was sent. Now requests go out before who waits for the
engine's lock has it: columns 0.92 of the time over TLS and 0.71 without, rows 0.93 and 0.86 (9 rounds), so
the ratio got worse. Second: on two CPUs the engine's thread, the application's and the broker's are one too
many, and who reads sits where the broker would seal. With CPUs of their own (`--cpus apart`) the same reader
takes 0.80 of the time over TLS: rows are at 0.76 (SASL_SSL 0.66) of plain, columns at 0.62 (0.57), and who
throws all away at 0.49 and 0.64 (5 rounds). Shared: rows 0.52, columns 0.51, confluent 0.55.

So over TLS the application's thread has the turns of the engine's while it waits (`blocking.seat`), and two
threads are left. On a quiet EPYC, 5 rounds of 300,000 records, before and now, of the speed without TLS:

                        before    now     at best (bare socket, bare memory)
    rows, shared         0.48     0.57    0.60 to 0.64
    columns, shared      0.37     0.49    0.52 to 0.56
    confluent, shared    0.41     0.46
    rows, apart          0.58     0.55    0.59 to 0.63
    columns, apart       0.54     0.47    0.54 to 0.58

With a CPU each there was no third thread in the broker's way, and nothing to win: krec/s over TLS, rows 847
before and 836 now, columns 931 and 872. Without TLS the same would lose: 0.71 to 0.84 of the speed, as the
engine's thread reads ahead, and hardly needs the interpreter for it.

Tried and lost in between, 5 to 9 rounds each: the kernel asked for all that is missing of an answer
(MSG_WAITALL), always, only while the application computes, or for the first 0.25 to 2 MiB behind a request;
wakes only for 32, 64 or 128 KiB (SO_RCVLOWAT); a reader that looks again for 50 to 200 us before it sleeps;
another switch interval of the interpreter (0.5 and 50 ms); TLS opened in turns with who decodes; the next
fetch written by the application's thread.
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

from consumer import Cluster
from tests.conformance.secured_kafka import USERS, real_kafka

from .bare import bare_reads
from .cpus import Cpus, add_option, halves, started_on
from .report import header, machine, row

GOAL = 0.6
PARTITIONS, SIZE, WARM = 3, 1000, 8
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_SSL")
USER, MECHANISM = "alice", "SCRAM-SHA-512"
Taken = tuple[float, float]


def clock() -> Taken:
    return time.perf_counter(), time.process_time()


def since(start: Taken) -> Taken:
    wall, cpu = clock()
    return wall - start[0], cpu - start[1]


def ours(protocol: str, ca: str) -> dict[str, Any]:
    how: dict[str, Any] = {"security_protocol": protocol}
    if protocol != "PLAINTEXT":
        how["ssl_cafile"] = ca
    if protocol == "SASL_SSL":
        how |= {"sasl_mechanism": MECHANISM, "sasl_username": USER, "sasl_password": USERS[USER]}
    return how


def theirs(protocol: str, ca: str) -> dict[str, Any]:
    how: dict[str, Any] = {"security.protocol": protocol.lower()}
    if protocol != "PLAINTEXT":
        how["ssl.ca.location"] = ca
    if protocol == "SASL_SSL":
        how |= {"sasl.mechanisms": MECHANISM, "sasl.username": USER, "sasl.password": USERS[USER]}
    return how


# ---- clients: (bootstrap, protocol, ca, topic, count) -> what it took behind the first record


def kproto_reads(columns: bool, place: str, protocol: str, ca: str, topic: str, count: int) -> Taken:
    from consumer import Consumer, TopicPartition

    with Consumer(place, auto_offset_reset="earliest", **ours(protocol, ca)) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(PARTITIONS)])
        seen, start = 0, (0.0, 0.0)
        while seen < count:
            found: Any = consumer.poll_columns(1.0) if columns else consumer.poll(1.0, 1000)
            start = start if seen or not found else clock()
            seen += sum(map(len, found)) if columns else len(found)
    return since(start)


def confluent_reads(place: str, protocol: str, ca: str, topic: str, count: int) -> Taken:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": place, "group.id": "none", "enable.auto.commit": False}
    consumer = Consumer({**settings, **theirs(protocol, ca)})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(PARTITIONS)])
    seen, start = 0, (0.0, 0.0)
    while seen < count:
        found = consumer.consume(1000, 1.0)
        start = start if seen or not found else clock()
        seen += len(found)
    taken = since(start)
    consumer.close()
    return taken


def kproto_writes(place: str, protocol: str, ca: str, topic: str, count: int) -> Taken:
    from consumer import Producer

    with Producer(place, **ours(protocol, ca)) as producer:
        producer.send(topic, b"first", partition=0).result(60)
        start = clock()
        for number, value in enumerate(values(count)):
            producer.send(topic, value, partition=number // 100 % PARTITIONS)
        producer.flush()
        return since(start)


def confluent_writes(place: str, protocol: str, ca: str, topic: str, count: int) -> Taken:
    from confluent_kafka import Producer

    settings = {"bootstrap.servers": place, "linger.ms": 5, "batch.size": 131072, "enable.idempotence": True}
    producer = Producer({**settings, **theirs(protocol, ca)})
    producer.produce(topic, b"first", partition=0)
    producer.flush()
    start = clock()
    for number, value in enumerate(values(count)):
        while True:
            try:
                producer.produce(topic, value, partition=number // 100 % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.05)
    producer.flush()
    return since(start)


def values(count: int) -> Iterator[bytes]:
    noise = Random(0).randbytes(1 << 20)
    return (
        noise[start : start + SIZE]
        for start in (number * 37 % (len(noise) - SIZE) for number in range(count))
    )


READERS: Mapping[str, Callable[..., Taken]] = {
    "kproto rows": partial(kproto_reads, False),
    "kproto columns": partial(kproto_reads, True),
    "confluent": confluent_reads,
}
# They throw away what they read: what TLS costs by itself, and what the broker lets through.
BARE: Mapping[str, Callable[..., Taken]] = {
    "bare socket": partial(bare_reads, "socket"),
    "bare memory": partial(bare_reads, "memory"),
}
WRITERS: Mapping[str, Callable[..., Taken]] = {"kproto": kproto_writes, "confluent": confluent_writes}


# ---- measuring


@contextmanager
def real(folder: Path) -> Iterator[tuple[Mapping[str, str], str]]:
    # Without its second compiler Java's AES is slow.
    with real_kafka(folder, session_ms=0, java_options=["-XX:TieredStopAtLevel=4"]) as kafka:
        yield kafka.places, kafka.certificates.ca


@contextmanager
def embedded(folder: Path) -> Iterator[tuple[Mapping[str, str], str]]:
    listen = ",".join(f"{protocol}://127.0.0.1:0" for protocol in PROTOCOLS)
    order = [sys.executable, "-m", "kproto", "broker", "--listen", listen, "--tls-self-signed", str(folder)]
    order += ["--user", f"{USER}:{USERS[USER]}"]
    with subprocess.Popen(order, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline().removeprefix("listening on ").partition(";")[0]
            places = dict(place.split("://") for place in said.split(", "))
            yield places, str(folder / "ca.pem")
        finally:
            process.terminate()


def measure(
    kind: str, name: str, place: str, protocol: str, ca: str, topic: str, count: int, cpus: Cpus
) -> Taken:
    order = [sys.executable, "-m", "benchmarks.security", "--one", kind, name, place, protocol, ca, topic]
    with started_on(cpus):
        done = subprocess.run([*order, str(count)], capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(f"{name} by {protocol}: {done.stderr[-1500:]}")
    wall, cpu = json.loads(done.stdout)
    return wall, cpu


def on(broker: str, way: str, rounds: int, count: int) -> bool:
    """One broker's table; whether ours reach the goal."""
    good = True
    clients_on, broker_on = halves(way)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with started_on(broker_on):
            places, ca = stack.enter_context({"kafka": real, "embedded": embedded}[broker](folder))
        with Cluster(places["PLAINTEXT"], timeout=60) as cluster:
            cluster.create_topics({"read": PARTITIONS})
        measure("write", "confluent", places["PLAINTEXT"], "PLAINTEXT", ca, "read", count, clients_on)
        for turn in range(WARM):  # Java's TLS gets three times as fast in its first seconds
            protocol = PROTOCOLS[1 + turn % 2]
            measure("read", "kproto columns", places[protocol], protocol, ca, "read", count, clients_on)
        header(
            f"{broker}, {way}: krec/s of plain",
            "plain",
            "SSL, wall / cpu of plain",
            "SASL_SSL, wall / cpu of plain",
        )
        all_taken: dict[str, dict[str, list[Taken]]] = {}
        for kind, clients in (("read", {**READERS, **BARE}), ("write", WRITERS)):
            for name in clients:
                spoken = PROTOCOLS[:2] if name in BARE else PROTOCOLS
                taken = all_taken[f"{kind}: {name}"] = {protocol: [] for protocol in spoken}
                for turn in range(rounds):
                    for protocol in spoken if turn % 2 else spoken[::-1]:
                        topic = "read" if kind == "read" else f"{name[:6]}-{protocol}-{turn}"
                        if name in BARE:
                            topic = f"read@{places['PLAINTEXT']}"
                        if kind == "write":
                            with Cluster(places["PLAINTEXT"], timeout=60) as cluster:
                                cluster.create_topics({topic: PARTITIONS})
                        place = places[protocol]
                        took = measure(kind, name, place, protocol, ca, topic, count, clients_on)
                        taken[protocol].append(took)
                        if kind == "write":
                            with Cluster(places["PLAINTEXT"], timeout=60) as cluster:
                                cluster.delete_topics([topic])
                plain = taken["PLAINTEXT"]
                cells: list[str] = []
                for protocol in spoken[1:]:
                    pairs = list(zip(plain, taken[protocol], strict=True))
                    wall, cpu = (statistics.median(a[i] / b[i] for a, b in pairs) for i in (0, 1))
                    cells.append(f"{wall:.2f} / {cpu:.2f}")
                    good = good and (wall >= GOAL or not name.startswith("kproto"))
                row(
                    f"{kind}: {name}",
                    f"{count / statistics.median(one[0] for one in plain) / 1000:.0f}",
                    *cells,
                    *[""] * (2 - len(cells)),
                )
        for name in READERS:
            if name.startswith("kproto"):
                print(f"read: {name}, at best: {at_best(all_taken, name)}")
    return good


def at_best(taken: Mapping[str, Mapping[str, list[Taken]]], name: str) -> str:
    """What of plain TLS could leave a reader on this machine, were there nothing but TLS above it."""
    plain = taken[f"read: {name}"]["PLAINTEXT"]
    wall, cpu = (statistics.median(one[i] for one in plain) for i in (0, 1))
    told: list[str] = []
    for bare in BARE:
        pairs = zip(*(taken[f"read: {bare}"][protocol] for protocol in PROTOCOLS[:2]), strict=True)
        above = statistics.median(through[1] - without[1] for without, through in pairs)
        let_through = statistics.median(one[0] for one in taken[f"read: {bare}"]["SSL"])
        told.append(
            f"{wall / (wall + above):.2f} / {cpu / (cpu + above):.2f} by {bare}, whose broker allows "
            f"{min(1.0, wall / let_through):.2f}"
        )
    return "; ".join(told)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--only", default="kafka,embedded")
    add_option(parser)
    parser.add_argument("--one", nargs=7, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        kind, name, *rest, count = arguments.one
        clients = {**READERS, **BARE} if kind == "read" else WRITERS
        print(json.dumps(clients[name](*rest, int(count))))
        return
    print(machine("confluent-kafka"))
    print(f"{arguments.records} records of {SIZE} B, {arguments.rounds} rounds")
    for way in arguments.cpus:
        reached = [
            on(broker, way, arguments.rounds, arguments.records) for broker in arguments.only.split(",")
        ]
        print(f"{way}: the goal, {GOAL} of plain by the clock, is {'reached' if all(reached) else 'missed'}")


if __name__ == "__main__":
    main()
