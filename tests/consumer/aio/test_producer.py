"""`send` of an asyncio producer sets timestamps, and lets other tasks run."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from consumer import AsyncProducer
from consumer.aio import producer as producer_module
from consumer.engine.producer.accumulator import RecordAccumulator
from consumer.engine.producer.batches import ProducerBatch
from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut


def test_a_record_without_a_timestamp_has_the_time_of_its_send() -> None:
    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", linger_ms=10_000)
        assert (producer.options.linger_ms, producer.options.client_id) == (10_000, "kproto")
        producer._runtime.records.set_route("t", 1, [0])
        try:
            sent: list[tuple[int, int]] = []
            for _ in range(3):
                before = time.time_ns() // 1_000_000
                delivery = await producer.send("t", b"x")
                sent.append((before, time.time_ns() // 1_000_000))
                await asyncio.sleep(0.02)
            timed = await producer.send("t", b"x", timestamp=5)
            assert timed._batch is delivery._batch
            *times, last = delivery._batch._record_timestamps()
            assert last == 5
            assert all(before <= at <= after for at, (before, after) in zip(times, sent, strict=True))
        finally:
            producer.kill()

    asyncio.run(main())


class Pauses:
    """Replaces asyncio in the producer's module.

    `sleep` records each pause, and raises CancelledError if `is_cancelled` is set.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.is_cancelled = False

    async def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        if self.is_cancelled:
            raise asyncio.CancelledError


def with_pauses(
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[AsyncProducer, Pauses], Coroutine[Any, Any, None]],
    **options: Any,
) -> None:
    """Call `story(producer, pauses)`: the producer knows one partition, and `pauses` records its pauses."""
    pauses = Pauses()
    monkeypatch.setattr(producer_module, "asyncio", pauses)

    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", max_block_ms=50, **options)
        producer._runtime.records.set_route("t", 1, [0])
        try:
            await story(producer, pauses)
        finally:
            producer.kill()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_send_lets_the_loop_run_after_a_batch_became_due(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(producer: AsyncProducer, pauses: Pauses) -> None:
        await producer.send("t", b"x")
        await producer.send("t", b"x")
        assert pauses.seconds == []  # The batch waits for linger_ms and for more records.
        for _ in range(20):
            await producer.send("t", b"x" * 1_000)
        assert pauses.seconds  # Full batches are due.
        assert set(pauses.seconds) == {0}

    with_pauses(monkeypatch, story, linger_ms=10_000, batch_size=4_000)


def test_a_send_that_is_cancelled_while_other_tasks_run_queues_no_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(producer: AsyncProducer, pauses: Pauses) -> None:
        producer._pause_due = pauses.is_cancelled = True
        with pytest.raises(asyncio.CancelledError):
            await producer.send("t", b"x")
        assert producer._runtime.engine.open_records == 0
        await producer.send("t", b"x")  # This send does not repeat the pause that was cancelled.
        assert producer._runtime.engine.open_records == 1
        assert pauses.seconds == [0]

    with_pauses(monkeypatch, story, linger_ms=10_000)


def test_each_send_with_a_function_of_the_application_lets_the_loop_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(producer: AsyncProducer, pauses: Pauses) -> None:
        for _ in range(3):
            await producer.send("t", "x")
        assert pauses.seconds == [0, 0]

    def serialize(topic: str, value: str, headers: object) -> bytes:
        return value.encode()

    with_pauses(monkeypatch, story, linger_ms=10_000, value_serializer=serialize)


def with_batch(
    story: Callable[[AsyncProducer, ProducerBatch], Coroutine[Any, Any, None]], **options: Any
) -> None:
    """Call `story` with a producer and its open batch, which has one record for partition 0 of the topic t.

    The batch's run of equal timestamps never ends. So `send` can use its fast path for each record that has
    only a value.
    """

    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", max_block_ms=50, linger_ms=10_000, **options)
        records = producer._runtime.records
        records.set_route("t", 2, [0])
        # The base class's `append`, because it does not check whether a transaction is open.
        assert RecordAccumulator.append(records, "t", None, b"first", None, 5, ()) is not None
        producer._runtime.on_event(None)
        records.sender_notified = False
        batch = records.routes["t"].sticky.filling
        batch.run_start, batch.run_end = 0.0, math.inf
        try:
            await story(producer, batch)
        finally:
            producer.kill()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_record_with_only_a_value_joins_the_open_batch() -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        room = batch.free_bytes
        delivery = await producer.send("t", b"second")
        assert (delivery._batch, delivery._index, batch.count) == (batch, 1, 2)
        assert batch.rows == [b"first", b"second"]
        assert room - batch.free_bytes >= len(b"second")

    with_batch(story)


@pytest.mark.parametrize(
    ("fields", "stored"),
    [
        ({"key": b"k", "partition": 0}, (b"k", b"v", ())),
        ({"headers": [("h", b"x")]}, (None, b"v", (("h", b"x"),))),
        ({"value": bytearray(b"copied")}, (None, b"copied", ())),
        ({"value": None}, (None, None, ())),
    ],
    ids=["key", "headers", "buffer", "no value"],
)
def test_a_record_behind_one_with_only_a_value_keeps_its_fields(
    fields: dict[str, Any], stored: tuple[object, ...]
) -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        await producer.send("t", **{"value": b"v", **fields})
        batch.use_general_rows()
        assert type(batch.rows[-2]) in {bytes, type(None)}
        *key_and_value, headers = batch.rows[-3:]
        assert (*key_and_value, tuple(headers)) == stored

    with_batch(story)


@pytest.mark.parametrize("fields", [{"partition": 1}, {"key": b"k6"}], ids=["partition", "key"])
def test_a_record_for_another_partition_does_not_join_the_open_batch(fields: dict[str, Any]) -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        delivery = await producer.send("t", b"v", **fields)
        assert delivery._batch.partition.partition == 1
        assert batch.count == 1

    with_batch(story)


def test_a_serializer_gets_each_value() -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        await producer.send("t", b"v")
        assert batch.rows == [b"first", b"serialized"]

    with_batch(story, value_serializer=lambda topic, value, headers: b"serialized")


def test_a_transactional_producer_without_a_transaction_rejects_each_record() -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        with pytest.raises(IllegalState):
            await producer.send("t", b"v")
        assert batch.rows == [b"first"]

    with_batch(story, transactional_id="x")


def test_a_full_batch_accepts_no_record() -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        deliveries = [await producer.send("t", b"x" * 1_000) for _ in range(8)]
        assert deliveries[0]._batch is batch
        assert deliveries[-1]._batch is not batch
        assert len(batch.rows) <= 4

    with_batch(story, batch_size=4_000)


def test_a_send_wakes_the_sender_for_an_earlier_interrupted_send() -> None:
    """A `send` also runs the engine for an earlier `send` that Ctrl-C interrupted.

    The append below does what the interrupted `send` did: it adds a record and notifies the sender.
    """

    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        records = producer._runtime.records
        assert records.append("t", None, b"other", 1, 5, ()) is not None
        assert records.has_notifications()
        await producer.send("t", b"v")
        assert not records.has_notifications()
        assert not records.sender_notified  # Later records join the batch without a call to the engine.

    with_batch(story)


@pytest.mark.parametrize("shift_ms", [-3_600_000, 3_600_000])
def test_a_record_without_a_timestamp_does_not_get_the_explicit_one_before_it(shift_ms: int) -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        before = time.time_ns() // 1_000_000
        await producer.send("t", b"x", timestamp=before + shift_ms)
        await producer.send("t", b"x")
        _, explicit, current = batch._record_timestamps()
        assert explicit == before + shift_ms
        assert before <= current <= time.time_ns() // 1_000_000

    with_batch(story)


@pytest.mark.parametrize(
    ("seconds", "is_current"), [(99.9995, False), (100.0, True), (100.0009, True), (100.001, False)]
)
def test_records_of_a_millisecond_share_its_timestamp(
    monkeypatch: pytest.MonkeyPatch, seconds: float, is_current: bool
) -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        batch.run_start, batch.run_end = 100.0, 100.001
        producer._current_millisecond = (100.0, 100.001, 100_000)
        monkeypatch.setattr(producer_module, "time", lambda: seconds)
        await producer.send("t", b"x")
        await producer.send("t", bytearray(b"x"))
        _, of_batch, of_producer = batch._record_timestamps()
        assert (of_batch == 5) == is_current
        assert (of_producer == 100_000) == is_current

    with_batch(story)


@pytest.mark.parametrize(
    ("topic", "error"), [("unknown", RequestTimedOut), ("", ConfigError), ([], ConfigError)]
)
def test_a_record_for_an_unknown_or_invalid_topic_is_rejected(topic: Any, error: type[KprotoError]) -> None:
    async def story(producer: AsyncProducer, batch: ProducerBatch) -> None:
        with pytest.raises(error):
            await producer.send(topic, b"v")

    with_batch(story)
