"""A full queue of records pauses its partition, and a drained one resumes it. The tests need no broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from consumer import AsyncConsumer, ConsumerRecord
from consumer.sarama.record_queue import MAX_BUFFERED, RecordQueue
from kproto.group.subscription import TopicPartition

T0 = TopicPartition("t", 0)


def records(count: int, first: int = 0) -> list[ConsumerRecord]:
    """Return records with consecutive offsets."""
    return [
        ConsumerRecord("t", 0, offset, -1, "CREATE_TIME", None, b"v")
        for offset in range(first, first + count)
    ]


def with_queue(work: Callable[[AsyncConsumer, RecordQueue], Awaitable[None]]) -> None:
    """Call `work(client, queue)`: the client is assigned t-0 but has no broker, and the queue is for t-0."""

    async def main() -> None:
        client = AsyncConsumer("localhost:1")
        try:
            client.assign({T0: 0})
            await work(client, RecordQueue(client, T0))
        finally:
            await client.close(timeout=0)

    asyncio.run(main())


def test_a_queue_is_paused_at_256_records_and_resumed_at_128() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.put(records(MAX_BUFFERED - 1))
        assert client.paused() == set()
        queue.put(records(1, MAX_BUFFERED - 1))
        assert client.paused() == {T0}
        for offset in range(MAX_BUFFERED // 2):
            assert client.paused() == {T0}
            assert (await anext(queue)).offset == offset
        assert client.paused() == set()
        assert len(queue.items) == 128

    with_queue(work)


def test_a_full_queue_is_resumed_after_its_records_are_taken_or_discarded() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.put(records(MAX_BUFFERED))
        assert [record.offset for record in await queue.take_all()] == list(range(MAX_BUFFERED))
        assert (client.paused(), queue.first_offset()) == (set(), None)
        queue.put(records(MAX_BUFFERED))
        assert client.paused() == {T0}
        queue.discard()
        assert (client.paused(), queue.first_offset()) == (set(), None)

    with_queue(work)


def test_a_drained_queue_does_not_resume_what_the_application_paused() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.put(records(MAX_BUFFERED))
        queue.pause()
        await queue.take_all()
        assert client.paused() == {T0}
        queue.resume()
        assert client.paused() == set()

    with_queue(work)


def test_resume_by_the_application_does_not_resume_a_full_queue() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.pause()
        assert client.paused() == {T0}
        queue.put(records(MAX_BUFFERED))
        queue.resume()
        assert client.paused() == {T0}
        await queue.take_all()
        assert client.paused() == set()

    with_queue(work)


def test_a_queue_of_a_revoked_partition_is_filled_and_drained_without_an_error() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        client.assign({TopicPartition("t", 1): 0})
        queue.put(records(MAX_BUFFERED))
        assert len(await queue.take_all()) == MAX_BUFFERED
        assert client.paused() == set()

    with_queue(work)


def test_an_ended_queue_drops_or_returns_its_records_and_accepts_no_more() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        second = RecordQueue(client, T0)
        for ending, drop in ((queue, True), (second, False)):
            ending.put(records(2))
            assert ending.first_offset() == 0
            assert repr(ending) == "<RecordQueue t-0>"
            ending.end(drop=drop)
            ending.put(records(2, 2))
            assert repr(ending) == "<RecordQueue t-0 (ended)>"
            ending.pause()
            assert client.paused() == set()
        client.pause(T0)
        second.resume()
        assert client.paused() == {T0}
        assert [record async for record in queue] == []
        assert [record.offset async for record in second.messages()] == [0, 1]
        assert await second.take_all() == []

    with_queue(work)


def test_end_drops_the_records_by_default() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.put(records(2))
        queue.end()
        assert await queue.take_all() == []

    with_queue(work)


def test_waiting_readers_receive_new_records_and_the_end() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        for added, expected in ((records(1), [0]), (records(2, 1), [1, 2])):
            reading = asyncio.ensure_future(queue.take_all())
            await asyncio.sleep(0)
            assert not reading.done()
            queue.put(added)
            assert [record.offset for record in await asyncio.wait_for(reading, 5)] == expected
        reading = asyncio.ensure_future(queue.take_all())
        await asyncio.sleep(0)
        queue.end()
        assert await asyncio.wait_for(reading, 5) == []

    with_queue(work)


def test_the_high_water_mark_before_the_first_fetch_is_the_initial_one() -> None:
    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        assert queue.high_water_mark == 0
        queue.initial_high_water_mark = 7
        assert queue.high_water_mark == 7
        assert (queue.topic, queue.partition, queue.topic_partition) == ("t", 0, T0)

    with_queue(work)


def test_a_seek_in_a_partition_that_is_or_may_be_lost_is_ignored() -> None:
    """Such a seek would be applied to the next assignment of the partition."""

    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        queue.seek(3)
        assert await client.position(T0) == 3
        client.assignment_lost = lambda: True  # type: ignore[method-assign]
        queue.seek(5)
        assert await client.position(T0) == 3
        client.assign({TopicPartition("t", 1): 0})
        for lost in (True, False):
            client.assignment_lost = lambda lost=lost: lost  # type: ignore[method-assign,misc]
            queue.seek(7)
            queue.pause()
            queue.resume()
            queue.release()
        assert (client.assignment(), client.paused()) == ({TopicPartition("t", 1)}, set())

    with_queue(work)


def test_records_of_a_partition_that_may_be_lost_are_withheld() -> None:
    """A reader gets no records while another member may own the partition.

    The reader waits until the client knows that the partition is not lost, and then gets the records. If the
    queue ends during the wait, the reader gets an empty list.
    """

    async def work(client: AsyncConsumer, queue: RecordQueue) -> None:
        lost = True
        client.assignment_lost = lambda: lost  # type: ignore[method-assign]
        queue.put(records(2))
        reading = asyncio.ensure_future(queue.take_all())
        await asyncio.wait([reading], timeout=0.02)
        assert (reading.done(), queue.may_be_lost()) == (False, True)
        lost = False
        assert len(await asyncio.wait_for(reading, 5)) == 2
        lost = True
        queue.put(records(2, 2))
        reading = asyncio.ensure_future(queue.take_all())
        await asyncio.sleep(0)
        queue.end()
        assert await asyncio.wait_for(reading, 5) == []
        assert not queue.may_be_lost()

    with_queue(work)
