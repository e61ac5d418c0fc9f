"""Run clients on real sockets while Kafka is killed and the network fails, and check what they read."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from consumer import Admin, AsyncConsumer, Consumer, Producer, RebalanceListener, TopicPartition
from kproto.errors import KprotoError
from kproto.testing.faults import Proxy
from tests.conformance import judges
from tests.conformance.killable_kafka import Killable

PARTITIONS = 6
SESSION_MS = 6_000
OPTIONS: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": SESSION_MS,
    "heartbeat_interval_ms": 500,
    "request_timeout_ms": 3_000,
    "metadata_max_age_ms": 1_000,
    "enable_auto_commit": False,
    "max_poll_records": 500,
}


@dataclass
class Ledger:
    """The records that one group read, and its committed offsets."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    read: dict[int, dict[int, int]] = field(default_factory=lambda: defaultdict(dict))
    committed: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    wrong: list[str] = field(default_factory=list)
    doubled: int = 0
    count: int = 0
    last_at: float = 0.0
    # (start, end) of each interval of more than a second in which no record arrived.
    silences: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    # The longest time in seconds without a record. Each downtime of the broker, from its death to its first
    # response after the restart, is subtracted.
    longest_silence: float = 0.0

    def note(self, who: str, expected: dict[int, int], records: list[Any]) -> None:
        with self.lock:
            now = time.monotonic()
            if records:
                if self.last_at and now - self.last_at > 1:
                    self.silences.append((self.last_at, now))
                self.last_at = now
            for record in records:
                partition, offset = record.partition, record.offset
                if partition in expected and offset != expected[partition]:
                    self.wrong.append(f"{who}: read {partition}-{offset}, expected {expected[partition]}")
                expected[partition] = offset + 1
                if offset in self.read[partition]:
                    self.doubled += 1
                    if offset < self.committed[partition]:
                        below = self.committed[partition]
                        self.wrong.append(
                            f"{who}: read {partition}-{offset} again, although {below} is committed"
                        )
                else:
                    self.count += 1
                self.read[partition][offset] = int(bytes(record.value))

    def was_committed(self, positions: dict[int, int]) -> None:
        with self.lock:
            for partition, offset in positions.items():
                self.committed[partition] = max(self.committed[partition], offset)


class Assigned(RebalanceListener):
    """A rebalance listener that forgets the expected offset of each assigned or revoked partition."""

    def __init__(self, expected: dict[int, int]) -> None:
        self.expected = expected

    def assigned(self, partitions: Any) -> None:
        for partition in partitions:
            self.expected.pop(partition.partition, None)

    def revoked(self, partitions: Any) -> None:
        self.assigned(partitions)


def blocking(
    name: str, bootstrap: str, topic: str, ledger: Ledger, over: threading.Event, **options: Any
) -> None:
    expected: dict[int, int] = {}
    with Consumer(bootstrap, client_id=name, **{**OPTIONS, **options}) as consumer:
        consumer.subscribe([topic], listener=Assigned(expected))
        while not over.is_set():
            try:
                records = consumer.poll(0.2)
                ledger.note(name, expected, records)
                if records:
                    positions = dict(expected)
                    consumer.commit(timeout=3)
                    ledger.was_committed(positions)
            except KprotoError:
                continue


async def waiting(
    name: str, bootstrap: str, topic: str, ledger: Ledger, over: threading.Event, **options: Any
) -> None:
    expected: dict[int, int] = {}
    async with AsyncConsumer(bootstrap, client_id=name, **{**OPTIONS, **options}) as consumer:
        consumer.subscribe([topic], listener=Assigned(expected))
        while not over.is_set():
            try:
                records = await consumer.poll(0.2)
                ledger.note(name, expected, records)
                if records:
                    positions = dict(expected)
                    await consumer.commit(timeout=3)
                    ledger.was_committed(positions)
            except KprotoError:
                continue


def run(scratch: Path, seed: int, records: int, kills: int, seconds: float) -> dict[str, Ledger]:
    """Write `records` records and let two groups read them, while the broker is killed `kills` times.

    A proxy in front of the broker injects network faults for `seconds` seconds.
    """
    port = judges.free_port()
    kafka = Killable(scratch, advertised=port)
    kafka.start()
    over = threading.Event()
    ledgers = {"eager": Ledger(), "cooperative": Ledger()}
    try:
        with Proxy(f"127.0.0.1:{kafka.port}", port=port) as proxy:
            with Admin(proxy.bootstrap) as cluster:
                cluster.create_topics({"t": PARTITIONS})
            threads: list[threading.Thread] = []
            for group, strategy in (("eager", "range"), ("cooperative", "cooperative-sticky")):
                options = {"group_id": group, "partition_assignment_strategy": strategy}
                common = (proxy.bootstrap, "t", ledgers[group], over)
                target = lambda common=common, options=options, group=group: blocking(  # noqa: E731
                    f"{group}-blocking", *common, **options
                )
                threads.append(threading.Thread(target=target))
                async_target = lambda common=common, options=options, group=group: asyncio.run(  # noqa: E731
                    waiting(f"{group}-asyncio", *common, **options)
                )
                threads.append(threading.Thread(target=async_target))
            threads.append(threading.Thread(target=produce, args=(proxy.bootstrap, records, seconds)))
            threads.append(threading.Thread(target=proxy.trouble, args=(seed, seconds)))
            for thread in threads:
                thread.start()
            random = Random(seed)
            away: list[tuple[float, float]] = []
            for _ in range(kills):
                time.sleep(random.uniform(0.3, 0.9) * seconds / max(1, kills))
                kafka.kill()
                died = time.monotonic()
                time.sleep(random.uniform(0.1, 1.0))
                kafka.start()
                away.append((died, time.monotonic()))
            threads[-1].join()
            threads[-2].join()
            end = time.monotonic() + 40
            while time.monotonic() < end and any(ledger.count < records for ledger in ledgers.values()):
                time.sleep(0.2)
            over.set()
            for thread in threads:
                thread.join()
            for ledger in ledgers.values():
                silences = (until - since - lost_time(since, until, away) for since, until in ledger.silences)
                ledger.longest_silence = max(silences, default=0.0)
    finally:
        over.set()
        kafka.kill()
    return ledgers


def lost_time(since: float, until: float, away: list[tuple[float, float]]) -> float:
    """Return how many seconds the broker was down between `since` and `until`."""
    return sum(max(0.0, min(until, back) - max(since, died)) for died, back in away)


def produce(bootstrap: str, records: int, seconds: float) -> None:
    """Produce numbered records until the end of the run; raise an error if a record is not acknowledged."""
    with Producer(bootstrap, request_timeout_ms=3_000, delivery_timeout_ms=120_000) as producer:
        deliveries = []
        pace = max(1, records // 100)
        for number in range(records):
            deliveries.append(producer.send("t", str(number).encode(), partition=number % PARTITIONS))
            if number % pace == 0:
                time.sleep(seconds / 100)
        producer.flush()
        for delivery in deliveries:
            delivery.result()


def errors_in(ledgers: dict[str, Ledger], records: int) -> list[str]:
    """Return the lost, wrong and repeated records of the groups as errors."""
    errors = []
    for group, ledger in ledgers.items():
        errors += [f"{group}: {wrong}" for wrong in ledger.wrong[:5]]
        values = [value for offsets in ledger.read.values() for value in offsets.values()]
        lost = set(range(records)) - set(values)
        if lost:
            errors.append(f"{group}: {len(lost)} records were lost, such as {min(lost)}")
        if len(values) != len(set(values)):
            errors.append(f"{group}: the log holds {len(values) - len(set(values))} records twice")
        for partition, offsets in ledger.read.items():
            in_order = [offsets[offset] for offset in sorted(offsets)]
            if in_order != sorted(in_order):
                errors.append(f"{group}: partition {partition} is out of order")
    return errors


__all__ = ["Ledger", "TopicPartition", "errors_in", "run"]
