"""Records that a deserializer rejects: nothing is lost or returned twice, and other partitions are read.

The tests also cover deserializers that block, call the consumer, are interrupted, or are coroutines.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import AsyncConsumer, Consumer, ConsumerRecord, Producer, TopicPartition
from kproto.broker.server import running
from kproto.errors import DeserializationError, IllegalState

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
COUNT = 60
BAD = {6, 7, 31, 58}  # The values that the deserializer rejects: two of partition 0, two of partition 1.
SECONDS = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with running(topics={"t": 2}, settings=settings) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(COUNT):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield server.bootstrap


def strict(topic: str, data: bytes, headers: Any) -> int:
    if int(data) in BAD:
        raise ValueError(f"{data!r} is bad")
    return int(data)


def options(group: str | None = None, **more: Any) -> dict[str, Any]:
    return {"auto_offset_reset": "earliest", "value_deserializer": strict, "group_id": group, **more}


def read_and_skip(consumer: Consumer[Any, Any], *, limit: int = 500) -> tuple[list[Any], list[int]]:
    """Read all records, and skip those that cannot be read.

    Return the values of the records that were read, and the values of the skipped records.
    """
    values: list[Any] = []
    skipped: list[int] = []
    end = time.monotonic() + SECONDS
    while len(values) + len(skipped) < COUNT and time.monotonic() < end:
        try:
            values += [record.value for record in consumer.poll(0.2, max_records=limit)]
        except DeserializationError as error:
            skipped.append(int(error.value or b""))
            consumer.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
    return values, skipped


@pytest.mark.parametrize("limit", [1, 7, 500])
def test_a_seek_past_each_bad_record_reads_every_other_one_once(broker: str, limit: int) -> None:
    with Consumer(broker, **options(f"skip-{limit}")) as consumer:
        consumer.subscribe("t")
        values, skipped = read_and_skip(consumer, limit=limit)
    assert sorted(values) == [number for number in range(COUNT) if number not in BAD]
    assert sorted(skipped) == sorted(BAD)
    for parity in (0, 1):
        ordered = [value for value in values if value % 2 == parity]
        assert ordered == sorted(ordered)


def test_an_iteration_returns_the_records_before_the_bad_one_first(broker: str) -> None:
    with Consumer(broker, **options()) as consumer:
        consumer.assign({P0: 0})
        values = [next(iter(consumer)).value for _ in range(3)]
        with pytest.raises(DeserializationError) as caught:
            next(iter(consumer))
        assert caught.value.offset == 3
        consumer.seek(P0, 4)
        values += [next(iter(consumer)).value for _ in range(3)]
    assert values == [0, 2, 4, 8, 10, 12]


def test_without_a_seek_the_error_repeats_and_other_partitions_are_read(broker: str) -> None:
    with Consumer(broker, **options(value_deserializer=lambda t, data, h: 1 // (int(data) % 2))) as consumer:
        consumer.assign({P0: 0, P1: 0})
        values: list[Any] = []
        errors: list[DeserializationError] = []
        end = time.monotonic() + SECONDS
        while (len(values) < COUNT // 2 or len(errors) < 3) and time.monotonic() < end:
            try:
                values += [record.offset for record in consumer.poll(0.2, max_records=5)]
            except DeserializationError as error:
                errors.append(error)
        assert values == list(range(COUNT // 2))
        assert {(error.partition, error.offset) for error in errors} == {(0, 0)}
        assert isinstance(errors[0].__cause__, ZeroDivisionError)


def test_only_the_records_before_the_bad_one_are_committed(broker: str) -> None:
    with Consumer(broker, **options("commits", enable_auto_commit=False)) as consumer:
        consumer.assign({P0: 0})
        while not consumer.poll(0.2):
            pass
        consumer.commit()
        committed = consumer.committed()[P0]
        assert committed is not None
        assert committed.offset == 3
        with pytest.raises(DeserializationError):
            consumer.poll(1)
        consumer.commit()
    with Consumer(broker, **options("commits", value_deserializer=None)) as consumer:
        consumer.subscribe("t")
        records: list[ConsumerRecord] = []
        while P0 not in {record.topic_partition for record in records}:
            records = consumer.poll(0.2)
        assert next(record for record in records if record.topic_partition == P0).value == b"6"


def test_the_position_is_that_of_the_bad_record(broker: str) -> None:
    with Consumer(broker, **options()) as consumer:
        consumer.assign({P0: 0})
        while not consumer.poll(0.2):
            pass
        for _ in range(2):
            assert consumer.position(P0) == 3
            with pytest.raises(DeserializationError):
                consumer.poll(1)
        consumer.seek(P0, 4)
        assert consumer.position(P0) == 4


def test_columns_are_not_deserialized(broker: str) -> None:
    pytest.importorskip("pyarrow")
    with Consumer(broker, **options()) as consumer:
        consumer.assign({P0: 0})
        batches: list[Any] = []
        while not batches:
            batches = consumer.poll_columns(0.2)
        assert batches[0].columns.value[3].as_py() == b"6"


@pytest.mark.parametrize(
    "call",
    [
        lambda consumer: consumer.poll(0),
        lambda consumer: consumer.seek(P0, 5),
        lambda consumer: consumer.commit(),
        lambda consumer: consumer.pause(P0),
        lambda consumer: consumer.close(),
    ],
    ids=["poll", "seek", "commit", "pause", "close"],
)
def test_a_deserializer_that_calls_its_consumer_gets_an_error_and_harms_nothing(
    broker: str, call: Any
) -> None:
    def calls(topic: str, data: bytes, headers: Any) -> int:
        if int(data) == 4 and not failed:
            failed.append(consumer.assignment())
            call(consumer)
        return int(data)

    failed: list[Any] = []
    with Consumer(broker, **options("calls", value_deserializer=calls, enable_auto_commit=False)) as consumer:
        consumer.assign({P0: 0})
        values: list[Any] = []
        while not values:
            values = [record.value for record in consumer.poll(0.2)]
        with pytest.raises(DeserializationError, match="can't be called inside a deserializer") as caught:
            consumer.poll(1)
        assert isinstance(caught.value.__cause__, IllegalState)
        consumer.seek(P0, caught.value.offset)
        while len(values) < COUNT // 2:
            values += [record.value for record in consumer.poll(0.2)]
    assert failed == [{P0}]
    assert values == list(range(0, COUNT, 2))


def test_an_interrupt_in_a_deserializer_loses_no_record(broker: str) -> None:
    def interrupted(topic: str, data: bytes, headers: Any) -> int:
        if int(data) == 8 and not interrupts:
            interrupts.append(1)
            raise KeyboardInterrupt
        return int(data)

    interrupts: list[int] = []
    with Consumer(broker, **options(value_deserializer=interrupted)) as consumer:
        consumer.assign({P0: 0})
        values: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(SECONDS)
        while len(values) < COUNT // 2:
            values += [record.value for record in consumer.poll(0.2)]
    assert values == list(range(0, COUNT, 2))


def test_a_consumer_that_is_closed_while_a_deserializer_blocks_raises_illegal_state(broker: str) -> None:
    entered, release = threading.Event(), threading.Event()

    def blocks(topic: str, data: bytes, headers: Any) -> int:
        entered.set()
        release.wait(SECONDS)
        return int(data)

    consumer = Consumer(broker, **options(value_deserializer=blocks))
    consumer.assign({P0: 0})

    def close() -> None:
        entered.wait(SECONDS)
        consumer.close()
        release.set()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll(SECONDS)
    closer.join(SECONDS)


# ---- asyncio


async def strict_later(topic: str, data: bytes, headers: Any) -> int:
    await asyncio.sleep(0)
    return strict(topic, data, headers)


def test_a_coroutine_deserializer_loses_and_doubles_nothing(broker: str) -> None:
    async def main() -> tuple[list[Any], list[int]]:
        values: list[Any] = []
        skipped: list[int] = []
        async with AsyncConsumer(broker, **options("later", value_deserializer=strict_later)) as consumer:
            consumer.subscribe("t")
            while len(values) + len(skipped) < COUNT:
                try:
                    values += [record.value for record in await consumer.poll(0.2, max_records=9)]
                except DeserializationError as error:
                    skipped.append(int(error.value or b""))
                    consumer.seek(TopicPartition(error.topic, error.partition), error.offset + 1)
        return values, skipped

    values, skipped = asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert sorted(values) == [number for number in range(COUNT) if number not in BAD]
    assert sorted(skipped) == sorted(BAD)


def test_a_cancelled_coroutine_deserializer_loses_nothing(broker: str) -> None:
    async def main() -> list[Any]:
        entered = asyncio.Event()

        async def blocks(topic: str, data: bytes, headers: Any) -> int:
            if int(data) == 8 and not entered.is_set():
                entered.set()
                await asyncio.sleep(SECONDS)
            return int(data)

        async with AsyncConsumer(broker, **options(value_deserializer=blocks)) as consumer:
            consumer.assign({P0: 0})
            poll = asyncio.create_task(consumer.poll(SECONDS))
            await entered.wait()
            poll.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poll
            values: list[Any] = []
            while len(values) < COUNT // 2:
                values += [record.value for record in await consumer.poll(0.2)]
            return values

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == list(range(0, COUNT, 2))


def test_a_seek_and_a_commit_of_another_task_count_while_a_deserializer_waits(broker: str) -> None:
    """While a poll waits for the deserializer, another task commits, and then seeks.

    The commit includes no record of the waiting poll. The poll drops its records from before the seek.
    """

    async def main() -> None:
        entered, release = asyncio.Event(), asyncio.Event()

        async def blocks(topic: str, data: bytes, headers: Any) -> int:
            if int(data) == 8 and not entered.is_set():
                entered.set()
                await release.wait()
            return int(data)

        config = options("seeks", value_deserializer=blocks, enable_auto_commit=False)
        async with AsyncConsumer(broker, **config) as consumer:
            consumer.assign({P0: 0})
            poll = asyncio.create_task(consumer.poll(SECONDS))
            await entered.wait()
            assert await consumer.position(P0) == 0
            await consumer.commit()
            committed = (await consumer.committed())[P0]
            assert committed is None or committed.offset == 0
            consumer.seek(P0, 20)
            release.set()
            assert [record.offset for record in await poll][:1] == [20]

    asyncio.run(asyncio.wait_for(main(), SECONDS))
