"""`send` of an asyncio producer sets timestamps, and lets other tasks run."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from consumer import AsyncProducer
from consumer.aio import producer as producer_module


def test_a_record_without_a_timestamp_has_the_time_of_its_send() -> None:
    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", linger_ms=10_000)
        assert (producer.options.linger_ms, producer.options.client_id) == (10_000, "kproto")
        producer._runtime.records.route("t", 1, [0])
        try:
            sent: list[tuple[int, int]] = []
            for _ in range(3):
                before = time.time_ns() // 1_000_000
                delivery = await producer.send("t", b"x")
                sent.append((before, time.time_ns() // 1_000_000))
                await asyncio.sleep(0.02)
            timed = await producer.send("t", b"x", timestamp=5)
            assert timed._batch is delivery._batch
            *times, last = delivery._batch._times()
            assert last == 5
            assert all(before <= at <= after for at, (before, after) in zip(times, sent, strict=True))
        finally:
            producer.kill()

    asyncio.run(main())


class Pauses:
    """Replaces asyncio in the module of the producer: records each pause, and may cancel it."""

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
    """Call `story` with a producer that knows one partition, and with the pauses of its sends."""
    pauses = Pauses()
    monkeypatch.setattr(producer_module, "asyncio", pauses)

    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", max_block_ms=50, **options)
        producer._runtime.records.route("t", 1, [0])
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
        await producer.send("t", b"x")  # The pause was due once, so this send does not pause.
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
