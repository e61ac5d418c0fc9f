"""`send` of an asyncio producer: the timestamps of records, and how `send` lets other tasks run."""

from __future__ import annotations

import asyncio
import time

from consumer import AsyncProducer


def test_a_record_without_a_timestamp_has_the_time_of_its_send() -> None:
    async def main() -> None:
        producer = AsyncProducer("127.0.0.1:1", linger_ms=10_000)
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
