"""Partitions without a group, in sarama's manner, on the embedded broker."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
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
    AsyncPartitionConsumers,
    Cluster,
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


def test_oldest_newest_and_an_offset_are_where_reading_begins(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        for start, first in ((OLDEST, 0), (4, 4)):
            one = consumers.consume_partition("t", 0, start)
            assert one.initial_offset == first
            assert [record.offset for record in islice(one, 3)] == [first, first + 1, first + 2]
            one.close()
        newest = consumers.consume_partition("t", 0)
        fill(server, 1)
        assert next(iter(newest)).offset == 10
        assert consumers.high_water_marks() == {T0: 11}
        assert newest.high_water_mark_offset == 11
        assert consumers.partitions("t") == [0, 1]


def test_one_partition_after_the_other_is_no_error(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Between the two there is nothing to poll: it was told to the second one."""
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        for _ in range(3):
            one = consumers.consume_partition("t", 0, OLDEST)
            assert [record.offset for record in islice(one, 3)] == [0, 1, 2]
            one.async_close()
            assert list(one.errors()) == []
    assert caplog.messages == []


def test_the_end_of_the_log_is_known_before_the_first_record(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, fetch_max_wait_ms=50) as consumers:
        assert consumers.consume_partition("t", 0, OLDEST).high_water_mark_offset == 10
        assert consumers.high_water_marks() == {T0: 10}


def test_partitions_are_read_beside_each_other_and_end_alone(server: Server) -> None:
    fill(server, 5)
    fill(server, 5, partition=1)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        one, other = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(one, 5))) == 5
        one.close()
        assert list(one) == []
        assert list(one.errors()) == []
        fill(server, 5, partition=1)
        assert [record.offset for record in islice(other, 10)] == list(range(10))


def test_what_waits_is_handed_out_after_async_close(server: Server) -> None:
    fill(server, 10)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        one = consumers.consume_partition("t", 0, OLDEST)
        messages = iter(one)
        assert next(messages).offset == 0  # one fetch has them all
        one.async_close()
        assert [record.offset for record in messages] == list(range(1, 10))


def test_a_paused_partition_gives_nothing_until_it_is_resumed(server: Server) -> None:
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        one, other = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(one, 3))) == 3
        consumers.pause_all()
        other.resume()
        assert (one.is_paused, other.is_paused) == (True, False)
        fill(server, 3)
        fill(server, 3, partition=1)
        assert len(list(islice(other, 3))) == 3
        assert one._consumer.first_offset() is None
        consumers.resume_all()
        assert [record.offset for record in islice(one, 3)] == [3, 4, 5]


def test_who_does_not_read_holds_few_records_and_nobody_up(server: Server) -> None:
    fill(server, 3000)
    fill(server, 3000, partition=1)
    with PartitionConsumers(server.bootstrap, max_poll_records=100, **FAST) as consumers:
        slow, quick = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        assert len(list(islice(quick, 3000))) == 3000
        assert len(slow._consumer.items) < 600
        assert [record.offset for record in islice(slow, 3000)] == list(range(3000))


def test_what_cannot_be_consumed_is_refused(server: Server) -> None:
    fill(server, 3)
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        with pytest.raises(OffsetOutOfRange, match="offsets from 0 to 3, not 4"):
            consumers.consume_partition("t", 0, 4)
        with pytest.raises(UnknownTopic, match="t-7"):
            consumers.consume_partition("t", 7)
        with pytest.raises(UnknownTopic):
            consumers.consume_partition("nowhere", 0)
        for wrong in (-1, "first", True):
            with pytest.raises(ConfigError, match="offset"):
                consumers.consume_partition("t", 0, wrong)  # type: ignore[arg-type]
        for place, said in (
            (("t", "0"), "partition='0'"),
            (("t", -1), "partition=-1"),
            ((None, 0), "topic=None"),
        ):
            with pytest.raises(ConfigError, match=f"{said} is not allowed"):
                consumers.consume_partition(*place)  # type: ignore[arg-type]
        consumers.consume_partition("t", 0, OLDEST)
        with pytest.raises(IllegalState, match="consumed already"):
            consumers.consume_partition("t", 0, NEWEST)
    with pytest.raises(IllegalState, match="closed"):
        consumers.consume_partition("t", 0)
    with pytest.raises(IllegalState, match="closed"):
        consumers.pause_all()
    consumers.close()
    with pytest.raises(ConfigError, match="group_id"):
        PartitionConsumers(server.bootstrap, group_id="g")
    with pytest.raises(ConfigError, match="auto_offset_reset"):
        PartitionConsumers(server.bootstrap, auto_offset_reset="latest")


def test_a_position_that_the_log_left_behind_is_told_and_ends_only_its_partition(server: Server) -> None:
    fill(server, 10)
    fill(server, 10, partition=1)
    gone = DeleteRecordsRequest(
        topics=[
            DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=0, offset=8)])
        ],
        timeout_ms=1000,
    )
    with PartitionConsumers(server.bootstrap, **FAST) as consumers, Cluster(server.bootstrap) as cluster:
        other = consumers.consume_partition("t", 1, 2)
        made = consumers._loop.client
        look_up = made._resolve_offset

        async def before_it_is_deleted(place: TopicPartition, offset: Any) -> int:
            start = await look_up(place, offset)
            await asyncio.to_thread(cluster.request, gone, cluster.leader(T0))
            return start

        made._resolve_offset = before_it_is_deleted  # type: ignore[method-assign]
        one = consumers.consume_partition("t", 0, 2)
        assert list(one) == []
        assert [type(error) for error in one.errors()] == [OffsetOutOfRange]
        assert [record.offset for record in islice(other, 8)] == list(range(2, 10))


def test_threads_that_wait_for_messages_go_on_when_all_is_closed(server: Server) -> None:
    ended: list[int] = []
    with PartitionConsumers(server.bootstrap, **FAST) as consumers:
        one = consumers.consume_partition("t", 0)
        threads = [
            threading.Thread(target=lambda: ended.append(len(list(one)))),
            threading.Thread(target=lambda: ended.append(len(list(one.errors())))),
        ]
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(10)
    assert ended == [0, 0]
    assert list(one) == []


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_anywhere_in_reading_skips_no_record(server: Server) -> None:
    """What came just then was nobody's; or the loop's thread stood in a lock that was never given back."""
    fill(server, 6)
    below = (asyncio.__path__[0], concurrent.futures.__path__[0], threading.__file__)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with PartitionConsumers(server.bootstrap, **FAST) as consumers:
            for at in count(1, 3):
                one = consumers.consume_partition("t", 0, OLDEST)
                ctrl_c = CtrlC(at, *below)
                seen: list[int] = []
                sys.settrace(ctrl_c)
                try:
                    with contextlib.suppress(KeyboardInterrupt):
                        for record in one:
                            seen.append(record.offset)
                            if len(seen) == 2:
                                break
                finally:
                    sys.settrace(None)
                seen += [record.offset for record in islice(one, 6 - len(seen))]
                assert seen == list(range(6)), ctrl_c.where
                one.close()
                if ctrl_c.left > 0:
                    assert at > 50
                    return
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_same_in_asyncio(server: Server) -> None:
    fill(server, 4)

    async def main() -> list[int]:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            one = await consumers.consume_partition("t", 0, OLDEST)
            found = [(await anext(one)).offset for _ in range(4)]
            assert one.high_water_mark_offset == 4
            await one.close()
            assert [record async for record in one.messages()] == []
            assert [error async for error in one.errors()] == []
            return found

    assert asyncio.run(main()) == [0, 1, 2, 3]


def test_a_close_that_is_cancelled_ends_the_client(server: Server) -> None:
    """By a timeout, say. The client stayed open, and the next close did nothing."""

    async def main() -> None:
        consumers = AsyncPartitionConsumers(server.bootstrap, **FAST)
        one = await consumers.consume_partition("t", 0)
        closing = asyncio.ensure_future(consumers.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert [record async for record in one] == []
        with pytest.raises(IllegalState, match="closed"):
            await consumers.partitions("t")
        await consumers.close()

    asyncio.run(main())


def test_one_partition_is_not_begun_twice_at_once(server: Server) -> None:
    async def main() -> list[Any]:
        async with AsyncPartitionConsumers(server.bootstrap, **FAST) as consumers:
            begun = (consumers.consume_partition("t", 0) for _ in range(2))
            return await asyncio.gather(*begun, return_exceptions=True)

    first, second = asyncio.run(main())
    assert first.topic_partition == T0
    assert isinstance(second, IllegalState)


def test_what_fails_again_and_again_is_told_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Also to who takes each error as it comes, and where another partition has records meanwhile."""
    with PartitionConsumers(server.bootstrap, **FAST, retry_backoff_max_ms=100) as consumers:
        one, other = (consumers.consume_partition("t", number, OLDEST) for number in (0, 1))
        server.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", 5)
        errors = {place: one_of.errors() for place, one_of in ((0, one), (1, other))}
        told = [next(errors[0]), next(errors[1])]
        for number in (1, 0):
            fill(server, 1, partition=number)
        assert [next(iter(one)).offset, next(iter(other)).offset] == [0, 0]  # all five have failed
    told += [error for place in errors.values() for error in place]
    for name in ("t-0", "t-1"):
        denied = f"{name}: the principal of this client needs an ACL that allows READ on the topic"
        assert len([text for text in map(str, told) if denied in text]) == 2  # each partition is told of both
        assert len([line for line in caplog.messages if denied in line]) == 1
