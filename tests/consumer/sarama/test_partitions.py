"""sarama's partition consumers read, pause, fail and close independently, on the embedded broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from itertools import count, islice
from typing import Any

import pytest

from consumer import (
    NEWEST,
    OLDEST,
    Admin,
    AsyncPartitionConsumers,
    ConsumerGroup,
    PartitionConsumers,
    Producer,
)
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, IllegalState, OffsetOutOfRange, UnknownTopic
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.consumer.behaviour.virtual_threads import CtrlC

T0 = TopicPartition("t", 0)
FAST: dict[str, Any] = {"fetch_max_wait_ms": 50}


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 2}) as server:
        yield server


def fill(server: Server, count: int, *, partition: int = 0) -> None:
    with Producer(server.bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number, partition=partition)


def test_reading_starts_at_oldest_newest_or_an_offset(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        for start, first in ((OLDEST, 0), (4, 4)):
            partition_consumer = consumers.consume_partition("t", 0, start)
            assert partition_consumer.initial_offset == first
            assert [record.offset for record in islice(partition_consumer, 3)] == [
                first,
                first + 1,
                first + 2,
            ]
            partition_consumer.close()
        newest = consumers.consume_partition("t", 0)
        fill(server, 1)
        assert next(iter(newest)).offset == 10
        assert consumers.high_water_marks() == {T0: 11}
        assert newest.high_water_mark_offset == 11
        assert consumers.partitions("t") == [0, 1]


def test_partitions_may_be_consumed_one_after_the_other(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition can be consumed again after its consumer is closed. No error is reported.

    After each close, the client briefly has no assignment. This state is not an error.
    """
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        for _ in range(3):
            partition_consumer = consumers.consume_partition("t", 0, OLDEST)
            assert [record.offset for record in islice(partition_consumer, 3)] == [0, 1, 2]
            partition_consumer.async_close()
            assert list(partition_consumer.errors()) == []
    assert caplog.messages == []


def test_the_high_watermark_is_known_before_the_first_record(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, fetch_max_wait_ms=50) as consumers:
        assert consumers.consume_partition("t", 0, OLDEST).high_water_mark_offset == 10
        assert consumers.high_water_marks() == {T0: 10}


def test_partition_consumers_are_independent(server: Server) -> None:
    fill(server, 5)
    fill(server, 5, partition=1)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        first, second = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(first, 5))) == 5
        first.close()
        assert list(first) == []
        assert list(first.errors()) == []
        fill(server, 5, partition=1)
        assert [record.offset for record in islice(second, 10)] == list(range(10))


def test_buffered_records_are_returned_after_async_close(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        partition_consumer = consumers.consume_partition("t", 0, OLDEST)
        messages = iter(partition_consumer)
        # The fetch has returned all ten records, of which nine are now buffered.
        assert next(messages).offset == 0
        partition_consumer.async_close()
        assert [record.offset for record in messages] == list(range(1, 10))


def test_buffered_records_are_dropped_by_close(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        partition_consumer = consumers.consume_partition("t", 0, OLDEST)
        messages = iter(partition_consumer)
        assert next(messages).offset == 0  # One fetch returns all records.
        partition_consumer.close()
        assert list(messages) == []


def test_a_paused_partition_returns_nothing_until_it_is_resumed(server: Server) -> None:
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        first, second = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(first, 3))) == 3
        consumers.pause_all()
        second.resume()
        assert (first.is_paused, second.is_paused) == (True, False)
        fill(server, 3)
        fill(server, 3, partition=1)
        assert len(list(islice(second, 3))) == 3
        assert first._consumer.first_offset() is None
        consumers.resume_all()
        assert [record.offset for record in islice(first, 3)] == [3, 4, 5]


def test_an_unread_partition_buffers_few_records_and_blocks_no_other(server: Server) -> None:
    fill(server, 3000)
    fill(server, 3000, partition=1)
    with PartitionConsumers(server.bootstrap, max_poll_records=100, **FAST) as consumers:
        slow, quick = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(quick, 3000))) == 3000
        assert len(slow._consumer.items) < 600
        assert [record.offset for record in islice(slow, 3000)] == list(range(3000))


def test_invalid_partitions_and_offsets_are_rejected(server: Server) -> None:
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        with pytest.raises(OffsetOutOfRange, match="offsets from 0 to 3, not 4"):
            consumers.consume_partition("t", 0, 4)
        with pytest.raises(UnknownTopic, match="t-7"):
            consumers.consume_partition("t", 7)
        with pytest.raises(UnknownTopic):
            consumers.consume_partition("nowhere", 0)
        for invalid in (-1, "first", True):
            with pytest.raises(ConfigError, match="offset"):
                consumers.consume_partition("t", 0, invalid)  # type: ignore[arg-type]
        for place, message in (
            (("t", "0"), "partition='0'"),
            (("t", -1), "partition=-1"),
            ((None, 0), "topic=None"),
        ):
            with pytest.raises(ConfigError, match=f"{message} is not allowed"):
                consumers.consume_partition(*place)  # type: ignore[arg-type]
        consumers.consume_partition("t", 0, OLDEST)
        with pytest.raises(IllegalState, match="already being consumed"):
            consumers.consume_partition("t", 0, NEWEST)
    with pytest.raises(IllegalState, match="closed"):
        consumers.consume_partition("t", 0)
    with pytest.raises(IllegalState, match="closed"):
        consumers.pause_all()
    consumers.close()
    with pytest.raises(ConfigError, match="group_id"):
        PartitionConsumers(server.bootstrap, group_id="g")
    for option in ("key_deserializer", "value_deserializer"):
        config: dict[str, Any] = {option: lambda topic, data, headers: data}
        with pytest.raises(ConfigError, match=f"^{option}=.*contain bytes"):
            PartitionConsumers(server.bootstrap, **config)
        with pytest.raises(ConfigError, match=f"^{option}=.*contain bytes"):
            ConsumerGroup(server.bootstrap, group_id="g", **config)
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        PartitionConsumers(server.bootstrap, auto_offset_reset="latest")


def test_an_offset_out_of_range_ends_only_its_partition(server: Server) -> None:
    fill(server, 10)
    fill(server, 10, partition=1)
    request = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=8)])
        ],
        timeout_ms=1000,
    )
    with PartitionConsumers(server.bootstrap, **FAST) as consumers, Admin(server.bootstrap) as cluster:
        second = consumers.consume_partition("t", 1, 2)
        client = consumers._loop.client
        resolve_offset = client._resolve_offset

        async def resolve_before_deletion(place: TopicPartition, offset: Any) -> int:
            start = await resolve_offset(place, offset)
            await asyncio.to_thread(cluster.request, request, cluster.leader(T0))
            return start

        client._resolve_offset = resolve_before_deletion  # type: ignore[method-assign]
        first = consumers.consume_partition("t", 0, 2)
        assert list(first) == []
        assert [type(error) for error in first.errors()] == [OffsetOutOfRange]
        assert [record.offset for record in islice(second, 8)] == list(range(2, 10))


def test_close_ends_threads_that_wait_for_messages(server: Server) -> None:
    ended: list[int] = []
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        partition_consumer = consumers.consume_partition("t", 0)
        threads = [
            threading.Thread(target=lambda: ended.append(len(list(partition_consumer)))),
            threading.Thread(target=lambda: ended.append(len(list(partition_consumer.errors())))),
        ]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(10)
    assert ended == [0, 0]
    assert list(partition_consumer) == []


# A test interrupts a read at every STEP-th point of the client's code. Profiles other than quick have the
# smaller step.
STEP = 7 if os.environ.get("KPROTO_PROFILE", "quick") == "quick" else 3


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_anywhere_in_reading_skips_no_record(server: Server) -> None:
    """Ctrl-C while a record is read does not skip this record.

    After Ctrl-C interrupts a read, no lock that the loop's thread needs stays locked.
    """
    fill(server, 6)
    below = (asyncio.__path__[0], concurrent.futures.__path__[0], threading.__file__)
    # If a shell has started this process in the background, SIGINT is ignored until a handler is set.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with PartitionConsumers(server.bootstrap, **FAST) as consumers:
            for moment in count(1, STEP):
                partition_consumer = consumers.consume_partition("t", 0, OLDEST)
                ctrl_c = CtrlC(moment, *below)
                offsets: list[int] = []
                sys.settrace(ctrl_c)
                try:
                    with contextlib.suppress(KeyboardInterrupt):
                        for record in partition_consumer:
                            offsets.append(record.offset)
                            if len(offsets) == 2:
                                break
                finally:
                    sys.settrace(None)
                offsets += [record.offset for record in islice(partition_consumer, 6 - len(offsets))]
                assert offsets == list(range(6)), ctrl_c.where
                partition_consumer.close()
                if ctrl_c.remaining > 0:
                    assert moment > 50
                    return
    finally:
        signal.signal(signal.SIGINT, previous)


def test_asyncio_partition_consumers_read_and_close(server: Server) -> None:
    fill(server, 4)

    async def main() -> list[int]:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            partition_consumer = await consumers.consume_partition("t", 0, OLDEST)
            offsets = [(await anext(partition_consumer)).offset for _ in range(4)]
            assert partition_consumer.high_water_mark_offset == 4
            await partition_consumer.close()
            assert [record async for record in partition_consumer.messages()] == []
            assert [error async for error in partition_consumer.errors()] == []
            return offsets

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_a_cancelled_close_ends_the_client(server: Server) -> None:
    """If `close` is cancelled, the client is closed nevertheless, and a second `close` returns normally."""

    async def main() -> None:
        consumers = AsyncPartitionConsumers(server.bootstrap, **FAST)
        partition_consumer = await consumers.consume_partition("t", 0)
        closing = asyncio.ensure_future(consumers.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [record async for record in partition_consumer] == []
        with pytest.raises(IllegalState, match="closed"):
            await consumers.partitions("t")
        await consumers.close()

    asyncio.run(main())


def test_concurrent_calls_do_not_start_a_partition_twice(server: Server) -> None:
    async def main() -> list[Any]:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            calls = (consumers.consume_partition("t", 0) for _ in range(2))
            return await asyncio.gather(*calls, return_exceptions=True)

    first, second = asyncio.run(main())
    assert first.topic_partition == T0
    assert isinstance(second, IllegalState)


def test_a_repeated_error_is_reported_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """A repeated error of a partition is reported once, even if another partition has records meanwhile."""
    with PartitionConsumers(server.bootstrap, **FAST, retry_backoff_max_ms=100) as consumers:
        first, second = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        server.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", 5)
        errors = {
            place: partition_consumer.errors() for place, partition_consumer in ((0, first), (1, second))
        }
        reported = [next(errors[0]), next(errors[1])]
        for number in (1, 0):
            fill(server, 1, partition=number)
        # A record arrives only after five fetches have failed with the injected error.
        assert [next(iter(first)).offset, next(iter(second)).offset] == [0, 0]
    reported += [error for place in errors.values() for error in place]
    for name in ("t-0", "t-1"):
        denied = f"{name}: the principal of this client needs an ACL that allows READ on the topic"
        # Each `errors()` reports the errors of both partitions, because the partitions share one consumer.
        assert len([text for text in map(str, reported) if denied in text]) == 2
        assert len([line for line in caplog.messages if denied in line]) == 1


def test_partitions_that_are_out_of_range_together_report_one_error_each(server: Server) -> None:
    """Each of the two partitions reports its own error, and the third partition is still read."""

    async def main() -> None:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            first, second, third = [
                await consumers.consume_partition(topic, number, start)
                for topic, number, start in (("t", 0, NEWEST), ("t", 1, NEWEST), ("u", 0, OLDEST))
            ]
            for lost in (first, second):
                consumers.consumer.seek(lost.topic_partition, 50)
            for lost in (first, second):
                assert [record async for record in lost] == []
                (error,) = [error async for error in lost.errors()]
                assert isinstance(error, OffsetOutOfRange)
                assert f"{lost.topic_partition} has no offset 50" in str(error)
            assert (await anext(third)).offset == 0
            second = await consumers.consume_partition("t", 0, OLDEST)
            assert (await anext(second)).offset == 0

    server.create_topic("u")
    fill(server, 1)
    with Producer(server.bootstrap) as producer:
        producer.send("u", b"")
    asyncio.run(main())


@pytest.mark.parametrize("numbers", [(1, 12), (12, 1)])
def test_an_error_of_partition_12_is_not_reported_for_partition_1(
    server: Server, numbers: tuple[int, int]
) -> None:
    async def main() -> None:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            opened = [await consumers.consume_partition("w", number, NEWEST) for number in numbers]
            for partition_consumer in opened:
                consumers.consumer.seek(partition_consumer.topic_partition, 50)
            for partition_consumer in opened:
                (error,) = [error async for error in partition_consumer.errors()]
                assert f"{partition_consumer.topic_partition} has no offset 50" in str(error)

    server.create_topic("w", 13)
    asyncio.run(main())


def test_the_ends_of_a_shortened_log_are_allowed_and_offsets_outside_are_not(server: Server) -> None:
    fill(server, 5)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers, Admin(server.bootstrap) as cluster:
        for start in (0, 5):
            partition_consumer = consumers.consume_partition("t", 0, start)
            assert partition_consumer.initial_offset == start
            partition_consumer.close()
        cluster.delete_records({T0: 3})
        for start, initial in ((3, 3), (OLDEST, 3), (NEWEST, 5)):
            partition_consumer = consumers.consume_partition("t", 0, start)
            assert (partition_consumer.initial_offset, partition_consumer.high_water_mark_offset) == (
                initial,
                5,
            )
            partition_consumer.close()
        with pytest.raises(OffsetOutOfRange, match="t-0 has offsets from 3 to 5, not 2"):
            consumers.consume_partition("t", 0, 2)
        # The partition can be consumed after the rejected call.
        assert [record.offset for record in islice(consumers.consume_partition("t", 0, OLDEST), 2)] == [3, 4]


def test_a_second_close_does_not_close_the_next_consumer_of_the_partition(server: Server) -> None:
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        first = consumers.consume_partition("t", 0, OLDEST)
        first.close()
        second = consumers.consume_partition("t", 0, 1)
        first.close()
        first.async_close()
        assert [record.offset for record in islice(second, 2)] == [1, 2]
        with pytest.raises(IllegalState, match="t-0 is already being consumed"):
            consumers.consume_partition("t", 0)


def test_a_partition_consumer_has_the_names_of_sarama(server: Server) -> None:
    fill(server, 3, partition=1)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        partition_consumer = consumers.consume_partition("t", 1, OLDEST)
        assert (partition_consumer.topic, partition_consumer.partition) == ("t", 1)
        assert [record.offset for record in islice(partition_consumer.messages(), 3)] == [0, 1, 2]
        partition_consumer.pause()
        assert partition_consumer.is_paused
        partition_consumer.resume()
        assert not partition_consumer.is_paused
        fill(server, 1, partition=1)
        assert next(partition_consumer.messages()).offset == 3
        assert repr(partition_consumer) == "<AsyncPartitionConsumer t-1>"
    assert repr(partition_consumer) == "<AsyncPartitionConsumer t-1 (ended)>"
    partition_consumer.async_close()
    partition_consumer.close()
    assert list(partition_consumer.errors()) == []


def test_close_rejects_a_timeout_that_is_not_a_time(server: Server) -> None:
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        with pytest.raises(ConfigError, match=r"^timeout="):
            consumers.close(-1)
        assert consumers.partitions("t") == [0, 1]

    async def main() -> None:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            with pytest.raises(ConfigError, match=r"^timeout="):
                await consumers.close(-1)
            assert await consumers.partitions("t") == [0, 1]
            with pytest.raises(UnknownTopic):
                await consumers.partitions("nowhere")

    asyncio.run(main())


def test_asyncio_partition_consumers_are_not_used_after_close(server: Server) -> None:
    """Closed consumers reject a new partition, even if the call that adds it began before `close`."""
    fill(server, 1)

    async def main() -> None:
        consumers = AsyncPartitionConsumers(server.bootstrap, **FAST)
        reading = await consumers.consume_partition("t", 0, OLDEST)
        resolve_offset = consumers._resolve_offset
        resolved, closed = asyncio.Event(), asyncio.Event()

        async def resolve_before_close(partition: TopicPartition, offset: Any) -> Any:
            start = await resolve_offset(partition, offset)
            resolved.set()
            await closed.wait()
            return start

        consumers._resolve_offset = resolve_before_close  # type: ignore[method-assign]
        opening = asyncio.ensure_future(consumers.consume_partition("t", 1))
        await resolved.wait()
        await consumers.close()
        closed.set()
        for call in (opening, consumers.consume_partition("t", 1)):
            with pytest.raises(IllegalState, match="these partition consumers are closed; make new ones"):
                await call
        await reading.close()
        assert consumers.high_water_marks() == {}

    asyncio.run(main())


def test_an_unexpected_error_of_the_client_ends_all_partitions(server: Server) -> None:
    async def main() -> None:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:

            async def poll(timeout: float) -> Any:
                await asyncio.sleep(0)
                raise failure

            failure = MemoryError("no more memory")
            consumers.consumer.poll = poll  # type: ignore[method-assign]
            partition_consumers = [await consumers.consume_partition("t", number) for number in (0, 1)]
            for partition_consumer in partition_consumers:
                assert [record async for record in partition_consumer] == []
                assert [error async for error in partition_consumer.errors()] == [failure]
            assert consumers.high_water_marks() == {}
            (task,) = {consumers._poll_task}
            assert task is not None
            with pytest.raises(MemoryError):
                await task

    asyncio.run(main())


def test_records_of_a_closed_partition_are_dropped(server: Server) -> None:
    """A poll may return records of a partition that has just been closed. These records are dropped."""
    fill(server, 1)

    async def main() -> None:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            first, second = [await consumers.consume_partition("t", number, OLDEST) for number in (0, 1)]
            record = await anext(first)
            await first.close()
            consumers._distribute([record])
            assert [record async for record in first] == []
            await asyncio.to_thread(fill, server, 1, partition=1)
            assert (await anext(second)).offset == 0

    asyncio.run(main())
