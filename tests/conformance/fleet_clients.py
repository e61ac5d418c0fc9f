"""Those who read and write while an operator works on the brokers, and what they saw.

ledger = Ledger()
with Readers(bootstrap, "t", ledger, ("blocking", "asyncio"), group_id="g"):
    with Writer(bootstrap, "t", 6) as writer:
        ...                                 # the operator's work
    until(lambda: ledger.count >= len(writer.sent), "all is read")
assert ledger.wrong(writer.sent) == []
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from itertools import count
from types import TracebackType
from typing import Any

from consumer import AsyncConsumer, Consumer, GroupChange, Producer, RebalanceListener
from kproto.errors import KprotoError

OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "enable_auto_commit": False}


class Ledger:
    """What one group read, by partition and offset; what was committed, raised and reported meanwhile."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read: dict[int, dict[int, int]] = defaultdict(dict)
        self.committed: dict[int, int] = defaultdict(int)
        self.errors: list[str] = []
        self.changes: list[tuple[float, str, GroupChange]] = []
        self.odd: list[str] = []
        self.doubled = 0
        self.silence = 0.0
        self.last: dict[int, float] = {}
        self.silences: dict[int, float] = defaultdict(float)
        self._last_at = 0.0

    @property
    def count(self) -> int:
        return sum(map(len, list(self.read.values())))

    def note(self, who: str, expected: dict[int, int], records: list[Any]) -> None:
        with self.lock:
            now = time.monotonic()
            if records:
                if self._last_at:
                    self.silence = max(self.silence, now - self._last_at)
                self._last_at = now
            for record in records:
                partition, offset = record.partition, record.offset
                self.silences[partition] = max(self.silences[partition], now - self.last.get(partition, now))
                self.last[partition] = now
                # Markers of transactions take offsets, too.
                if offset < expected.get(partition, 0):
                    self.odd.append(f"{who}: {partition}-{offset} behind {expected[partition] - 1}")
                expected[partition] = offset + 1
                if offset in self.read[partition]:
                    self.doubled += 1
                    if offset < self.committed[partition]:
                        below = self.committed[partition]
                        self.odd.append(f"{who}: {partition}-{offset} again, and {below} is committed")
                self.read[partition][offset] = int(bytes(record.value))

    def was_committed(self, positions: dict[int, int]) -> None:
        with self.lock:
            for partition, offset in positions.items():
                self.committed[partition] = max(self.committed[partition], offset)

    def kinds(self, *wanted: str) -> list[str]:
        return [f"{who} {change}" for _, who, change in self.changes if change.kind in wanted]

    def wrong(self, sent: Iterable[int]) -> list[str]:
        """What is wrong with what was read; nothing, if all is well."""
        found = self.odd[:5]
        values = [value for offsets in self.read.values() for value in offsets.values()]
        lost = set(sent) - set(values)
        if lost:
            found.append(f"{len(lost)} were lost, such as {min(lost)}")
        if len(values) != len(set(values)):
            found.append(f"the log holds {len(values) - len(set(values))} twice")
        for partition, offsets in self.read.items():
            in_order = [offsets[offset] for offset in sorted(offsets)]
            if in_order != sorted(in_order):
                found.append(f"partition {partition} is out of order")
        return found


class _Assigned(RebalanceListener):
    def __init__(self, expected: dict[int, int]) -> None:
        self.expected = expected

    def assigned(self, partitions: Any) -> None:
        for partition in partitions:
            self.expected.pop(partition.partition, None)

    revoked = assigned


class Readers:
    """Members of one group, "blocking" or "asyncio", each in a thread of its own."""

    def __init__(
        self, bootstrap: str, topic: str, ledger: Ledger, kinds: Iterable[str] = ("blocking",), **options: Any
    ) -> None:
        self._over = threading.Event()
        self._ledger = ledger
        self._threads: list[threading.Thread] = []
        for number, kind in enumerate(kinds):
            name = f"{options.get('group_id')}-{number}-{kind}"
            given = {**OPTIONS, "client_id": name, **options}
            read = self._waiting if kind == "asyncio" else self._blocking
            thread = threading.Thread(target=read, args=(bootstrap, topic, name, given), daemon=True)
            self._threads.append(thread)

    def __enter__(self) -> Readers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _noted(self, name: str) -> Any:
        return lambda change: self._ledger.changes.append((time.monotonic(), name, change))

    def _raised(self, name: str, error: KprotoError) -> None:
        self._ledger.errors.append(f"{name}: {type(error).__name__}: {error}")

    def _blocking(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        expected: dict[int, int] = {}
        with Consumer(bootstrap, **options) as consumer:
            consumer.events(self._noted(name))
            consumer.subscribe([topic], listener=_Assigned(expected))
            while not self._over.is_set():
                try:
                    records = consumer.poll(0.2)
                    self._ledger.note(name, expected, records)
                    if records:
                        positions = dict(expected)
                        consumer.commit()
                        self._ledger.was_committed(positions)
                except KprotoError as error:
                    self._raised(name, error)

    def _waiting(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        asyncio.run(self._wait(bootstrap, topic, name, options))

    async def _wait(self, bootstrap: str, topic: str, name: str, options: dict[str, Any]) -> None:
        expected: dict[int, int] = {}
        async with AsyncConsumer(bootstrap, **options) as consumer:
            consumer.events(self._noted(name))
            consumer.subscribe([topic], listener=_Assigned(expected))
            while not self._over.is_set():
                try:
                    records = await consumer.poll(0.2)
                    self._ledger.note(name, expected, records)
                    if records:
                        positions = dict(expected)
                        await consumer.commit()
                        self._ledger.was_committed(positions)
                except KprotoError as error:
                    self._raised(name, error)


class Writer:
    """Numbers, `rate` a second, to the partitions in turn, while its block lasts; in transactions of `batch`
    where the producer has a transactional_id: those that were committed are `sent`."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        rate: float = 500.0,
        batch: int = 100,
        **options: Any,
    ) -> None:
        self.sent: list[int] = []
        self.errors: list[str] = []
        self.longest = 0.0
        self._given = (bootstrap, topic, partitions, rate, batch, options)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(200)
        assert error is not None or not self._thread.is_alive(), "the writer hangs"

    def _write(self) -> None:
        bootstrap, topic, partitions, rate, batch, options = self._given
        try:
            with Producer(bootstrap, **options) as producer:
                if "transactional_id" in options:
                    self._in_transactions(producer, topic, partitions, rate, batch)
                    return
                deliveries: list[Any] = []
                for number in count():
                    if self._stop.is_set():
                        break
                    deliveries.append(producer.send(topic, b"%d" % number, partition=number % partitions))
                    if number % 10 == 9:
                        time.sleep(10 / rate)
                producer.flush()
                for number, delivery in enumerate(deliveries):
                    try:
                        delivery.result()
                        self.sent.append(number)
                    except KprotoError as error:
                        self.errors.append(f"{number}: {type(error).__name__}: {error}")
        except KprotoError as error:
            self.errors.append(f"{type(error).__name__}: {error}")

    def _in_transactions(
        self, producer: Producer, topic: str, partitions: int, rate: float, batch: int
    ) -> None:
        for first in count(0, batch):
            if self._stop.is_set():
                break
            began = time.monotonic()
            try:
                with producer.transaction():
                    for number in range(first, first + batch):
                        producer.send(topic, b"%d" % number, partition=number % partitions)
                self.sent += range(first, first + batch)
            except KprotoError as error:
                self.errors.append(f"{first}: {type(error).__name__}: {error}")
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(max(0.0, batch / rate - (time.monotonic() - began)))
