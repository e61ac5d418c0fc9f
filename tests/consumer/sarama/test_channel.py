"""Channels buffer items for their reader. ErrorThrottle passes on a repeated error once per interval."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from consumer.sarama import channel
from consumer.sarama.channel import MAX_ERRORS, Channel, ErrorThrottle


async def blocks(work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Start `work` in a task, check that the task blocks, and return the task."""
    task = asyncio.ensure_future(work)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not task.done()
    return task


def test_an_iteration_returns_the_items_in_order_and_ends_when_the_channel_is_closed() -> None:
    async def main() -> None:
        items: Channel[int] = Channel()
        items.put(1)
        items.put(2)
        items.close()
        assert [item async for item in items] == [1, 2]
        assert [item async for item in items] == []

    asyncio.run(main())


def test_a_waiting_reader_receives_an_item_and_the_end() -> None:
    async def main() -> None:
        items: Channel[int] = Channel()

        async def read() -> list[int]:
            return [item async for item in items]

        reading = await blocks(read())
        items.put(1)
        await blocks(asyncio.shield(reading))
        assert not items.items
        items.close()
        assert await asyncio.wait_for(reading, 5) == [1]

    asyncio.run(main())


def test_ready_says_whether_an_item_is_left() -> None:
    async def main() -> None:
        items: Channel[int] = Channel()
        items.put(1)
        items.close()
        assert await items.ready() is True
        items.items.clear()
        assert await items.ready() is False

    asyncio.run(main())


def test_a_channel_keeps_the_last_256_items_by_default() -> None:
    limited: Channel[int] = Channel()
    unlimited: Channel[int] = Channel(None)
    for items in (limited, unlimited):
        assert items.last() is None
        for number in range(300):
            items.put(number)
        assert items.last() == 299
    assert list(limited.items) == list(range(44, 300))
    assert len(unlimited.items) == 300


def test_a_writer_waits_until_the_channel_has_room() -> None:
    async def main() -> None:
        items: Channel[int] = Channel(None)
        items.put(1)
        await asyncio.wait_for(items.wait_for_room(2), 5)
        items.put(2)
        waiting = await blocks(items.wait_for_room(2))
        assert await anext(aiter(items)) == 1
        await asyncio.wait_for(waiting, 5)
        items.put(3)
        await blocks(items.wait_for_room(2))

    asyncio.run(main())


def test_equal_errors_pass_once_per_interval_and_others_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    time_ms = 100
    monkeypatch.setattr(channel, "now", lambda: time_ms)
    throttle = ErrorThrottle()
    assert [throttle.passes(ValueError("a")), throttle.passes(ValueError("a"))] == [True, False]
    assert [throttle.passes(ValueError("b")), throttle.passes(ValueError("a"))] == [True, False]
    time_ms += 3_600_000
    assert throttle.passes(ValueError("a"))


def test_a_throttle_forgets_the_oldest_of_256_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "now", lambda: 100)
    throttle = ErrorThrottle()
    for number in range(MAX_ERRORS):
        assert throttle.passes(ValueError(number))
    assert len(throttle._intervals) == MAX_ERRORS
    # An error that the throttle already tracks removes no other error.
    assert not throttle.passes(ValueError(MAX_ERRORS - 1))
    assert not throttle.passes(ValueError(0))
    assert throttle.passes(ValueError("another one"))
    assert len(throttle._intervals) == MAX_ERRORS
    # The throttle has forgotten error 0, so error 0 passes again before its interval has ended.
    assert throttle.passes(ValueError(0))
    assert not throttle.passes(ValueError(MAX_ERRORS - 1))
