"""Clients that write numbers, or copy committed records in transactions, during an operator's actions.

with Writer(bootstrap, "t", 6) as writer, Mover(bootstrap, "t", "u", group_id="m") as mover:
    ...                                     # the operator's actions
assert writer.errors == []                  # writer.sent lists acknowledged numbers
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count
from typing import Any

from consumer import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from kproto.errors import BrokerError, KprotoError
from tests.conformance.cluster_workers import InThread


class Writer(InThread):
    """Writes `rate` numbers per second to the partitions in turn. `kind` is "blocking" or "asyncio".

    A producer with a transactional_id writes transactions of `batch` numbers. `sent` then lists the committed
    numbers.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        kind: str = "blocking",
        numbers: Iterator[int] | None = None,
        rate: float = 500.0,
        batch: int = 100,
        **options: Any,
    ) -> None:
        super().__init__()
        self.sent: list[int] = []
        self.longest = 0.0
        self._kind = kind
        self._numbers = numbers or count()
        self._given = (bootstrap, topic, partitions, rate, batch, options)

    def _work(self) -> None:
        bootstrap, *_, options = self._given
        if self._kind == "asyncio":
            asyncio.run(self._write_async(bootstrap, options))
            return
        with self.closes.closing(Producer(bootstrap, **options)) as producer:
            if "transactional_id" in options:
                self._in_transactions(producer)
            else:
                self._one_by_one(producer)

    async def _write_async(self, bootstrap: str, options: dict[str, Any]) -> None:
        async with self.closes.closing_async(AsyncProducer(bootstrap, **options)) as producer:
            if "transactional_id" in options:
                await self._in_transactions_async(producer)
            else:
                await self._one_by_one_async(producer)

    # ---- without transactions

    def _one_by_one(self, producer: Producer) -> None:
        _, topic, partitions, rate, _, _ = self._given
        deliveries: list[tuple[int, Any]] = []
        for sent, number in enumerate(self._numbers, 1):
            if self._over.is_set():
                break
            delivery = producer.send(topic, b"%d" % number, partition=number % partitions)
            deliveries.append((number, delivery))
            if sent % 10 == 0:
                time.sleep(10 / rate)
        producer.flush()
        self._look_at(deliveries)

    async def _one_by_one_async(self, producer: AsyncProducer) -> None:
        _, topic, partitions, rate, _, _ = self._given
        deliveries: list[tuple[int, Any]] = []
        for sent, number in enumerate(self._numbers, 1):
            if self._over.is_set():
                break
            delivery = await producer.send(topic, b"%d" % number, partition=number % partitions)
            deliveries.append((number, delivery))
            if sent % 10 == 0:
                await asyncio.sleep(10 / rate)
        await producer.flush()
        self._look_at(deliveries)

    def _look_at(self, deliveries: list[tuple[int, Any]]) -> None:
        for number, delivery in deliveries:
            try:
                assert delivery.done()
                if (error := delivery.exception()) is not None:
                    raise error
                self.sent.append(number)
            except KprotoError as error:
                self._raised(number, error)

    def _raised(self, number: int, error: KprotoError) -> None:
        self.errors.append(f"{number}: {type(error).__name__}: {error}")

    # ---- in transactions

    def _chunk(self) -> list[int]:
        return [next(self._numbers) for _ in range(self._given[4])]

    def _in_transactions(self, producer: Producer) -> None:
        _, topic, partitions, rate, batch, _ = self._given
        while not self._over.is_set():
            numbers, began = self._chunk(), time.monotonic()
            try:
                with producer.transaction():
                    for number in numbers:
                        producer.send(topic, b"%d" % number, partition=number % partitions)
                self.sent += numbers
            except KprotoError as error:
                self._raised(numbers[0], error)
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(max(0.0, batch / rate - (time.monotonic() - began)))

    async def _in_transactions_async(self, producer: AsyncProducer) -> None:
        _, topic, partitions, rate, batch, _ = self._given
        while not self._over.is_set():
            numbers, began = self._chunk(), time.monotonic()
            try:
                async with producer.transaction():
                    for number in numbers:
                        await producer.send(topic, b"%d" % number, partition=number % partitions)
                self.sent += numbers
            except KprotoError as error:
                self._raised(numbers[0], error)
            self.longest = max(self.longest, time.monotonic() - began)
            await asyncio.sleep(max(0.0, batch / rate - (time.monotonic() - began)))


class Mover(InThread):
    """Copies a topic's committed records to another topic, in transactions.

    Each transaction also commits the offsets of the records that it copies.

    After an aborted transaction the mover seeks to the committed offsets. `aborted` lists the errors that
    made it abort.
    """

    def __init__(self, bootstrap: str, source: str, sink: str, *, kind: str, name: str, **group: Any) -> None:
        super().__init__()
        self.aborted: list[str] = []
        self.moved = 0
        self.longest = 0.0
        self._bootstrap, self._source, self._sink, self._kind, self._name = (
            bootstrap,
            source,
            sink,
            kind,
            name,
        )
        self._group = {
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "isolation_level": "read_committed",
            "max_poll_records": 200,
            "client_id": name,
            **group,
        }

    def _work(self) -> None:
        if self._kind == "asyncio":
            asyncio.run(self._move_async())
            return
        with (
            self.closes.closing(Producer(self._bootstrap, transactional_id=self._name)) as producer,
            self.closes.closing(Consumer(self._bootstrap, **self._group)) as consumer,
        ):
            consumer.subscribe([self._source])
            while not self._over.is_set():
                records, began = consumer.poll(0.2), time.monotonic()
                if not records:
                    continue
                try:
                    with producer.transaction():
                        for record in records:
                            producer.send(self._sink, record.value, partition=record.partition)
                        producer.send_offsets(consumer.group_metadata(), _behind(records))
                    self.moved += len(records)
                except BrokerError as error:
                    self.aborted.append(str(error))
                    consumer.seek_to("committed")
                self.longest = max(self.longest, time.monotonic() - began)

    async def _move_async(self) -> None:
        async with (
            self.closes.closing_async(
                AsyncProducer(self._bootstrap, transactional_id=self._name)
            ) as producer,
            self.closes.closing_async(AsyncConsumer(self._bootstrap, **self._group)) as consumer,
        ):
            consumer.subscribe([self._source])
            while not self._over.is_set():
                records, began = await consumer.poll(0.2), time.monotonic()
                if not records:
                    continue
                try:
                    async with producer.transaction():
                        for record in records:
                            await producer.send(self._sink, record.value, partition=record.partition)
                        producer.send_offsets(consumer.group_metadata(), _behind(records))
                    self.moved += len(records)
                except BrokerError as error:
                    self.aborted.append(str(error))
                    consumer.seek_to("committed")
                self.longest = max(self.longest, time.monotonic() - began)


def _behind(records: list[Any]) -> dict[TopicPartition, int]:
    return {TopicPartition(record.topic, record.partition): record.offset + 1 for record in records}
