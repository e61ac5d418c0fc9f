"""Event loops of others, tasks that are cancelled from outside, clients that nobody closed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import warnings
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest

from consumer import AsyncCluster, AsyncConsumer, AsyncProducer, Delivery, RebalanceListener, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import IllegalState

GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest"}
Loop = Callable[[], asyncio.AbstractEventLoop]


@pytest.fixture
def broker() -> Iterator[str]:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server.bootstrap


@pytest.fixture(params=["asyncio", "uvloop"])
def new_loop(request: pytest.FixtureRequest) -> Loop:
    if request.param == "asyncio":
        return asyncio.new_event_loop
    loop: Loop = pytest.importorskip("uvloop").new_event_loop
    return loop


def run(story: Coroutine[Any, Any, Any], loop: Loop = asyncio.new_event_loop) -> Any:
    with asyncio.Runner(loop_factory=loop) as runner:
        return runner.run(story)


def test_what_is_written_is_read_in_any_loop(broker: str, new_loop: Loop) -> None:
    written = [b"%d" % number + bytes(200_000) for number in range(50)]  # an answer takes many reads

    async def story() -> list[Any]:
        async with AsyncProducer(broker, max_request_size=4 << 20) as producer:
            for value in written:
                await producer.send("t", value)
        options = {**GROUP, "max_partition_fetch_bytes": 8 << 20}
        async with AsyncConsumer(broker, **options) as consumer, asyncio.timeout(60):
            consumer.subscribe(["t"])
            found: list[Any] = []
            while len(found) < len(written):
                found += [record.value for record in await consumer.poll(1)]
            return found

    assert run(story(), new_loop) == written


class Slow(RebalanceListener):
    """Says when it has begun, and takes as long as it may."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:  # type: ignore[override]
        self.begun.set()
        await self.may_end.wait()


async def cancelled(others: Iterable[asyncio.Task[Any]]) -> None:
    """As many programs do when they end: all tasks at once."""
    for task in others:
        task.cancel()
    await asyncio.wait(list(others))


def others() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_a_callback_that_is_cancelled_from_outside_is_an_error_of_the_next_call_and_not_its_end(
    broker: str,
) -> None:
    async def story() -> None:
        consumer, listener = AsyncConsumer(broker, **GROUP), Slow()
        consumer.subscribe(["t"], listener=listener)
        polling = asyncio.create_task(consumer.poll(30))
        await listener.begun.wait()
        await cancelled(others())
        assert polling.cancelled()
        with pytest.raises(IllegalState, match=r"the listener's assigned\(\) was cancelled before its end"):
            await consumer.poll(0)
        await consumer.close()

    run(story())


def test_a_callback_that_is_cancelled_before_it_began_has_returned_and_warns_of_nothing(broker: str) -> None:
    """Whoever cancels all tasks may come between the callback's task and its first line."""

    class Never(RebalanceListener):
        def assigned(self, partitions: Iterable[TopicPartition]) -> Any:
            asyncio.get_running_loop().call_soon(
                lambda: [task.cancel() for task in asyncio.all_tasks() if "assigned" in task.get_name()]
            )
            return self.work()

        async def work(self) -> None:
            raise AssertionError("it was cancelled before")

    async def story() -> None:
        async with AsyncConsumer(broker, **GROUP) as consumer, asyncio.timeout(30):
            consumer.subscribe(["t"], listener=Never())
            with pytest.raises(IllegalState, match="was cancelled"):
                await consumer.poll(30)
            async with AsyncProducer(broker) as producer:
                await producer.send("t", b"x")
            while not await consumer.poll(1):
                pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(story())
        gc.collect()


@pytest.mark.parametrize("made", [AsyncConsumer, AsyncCluster])
def test_a_client_that_is_dropped_is_gone_with_its_connections(
    broker: str, made: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        if made is AsyncConsumer:
            client = AsyncConsumer(broker, **GROUP)
            client.subscribe(["t"])
            while not client.assignment():
                await client.poll(0.1)
            streams = client._runtime.streams
        else:
            cluster = client = AsyncCluster(broker)
            await cluster.topics()
            streams = cluster._runtime.streams
            del cluster
        gone = weakref.ref(client)
        del client
        async with asyncio.timeout(30):
            while gone() is not None or streams._transports or streams._opening:
                gc.collect()
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert not others()

    run(story())
    assert ("was dropped without close()" in caplog.text) == (made is AsyncConsumer)


def test_a_consumer_whose_loop_ended_before_it_was_closed_says_what_is_lost(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> AsyncConsumer:
        consumer = AsyncConsumer(broker, client_id="me", **GROUP)
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(0.1)
        return consumer

    consumer = run(leave())
    assert "dropped" not in caplog.text
    del consumer
    gc.collect()
    assert "the consumer 'me' was dropped without close(): what it processed last is not" in caplog.text


def test_a_producer_that_is_dropped_delivers_what_it_took_and_is_gone_with_its_connections(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int | None] = []

    async def leave() -> tuple[Any, Any]:
        producer = AsyncProducer(broker, linger_ms=300)
        delivery = await producer.send("t", b"said")
        delivery.add_done_callback(lambda delivery: called.append(delivery._metadata().offset))
        return weakref.ref(producer._runtime), producer._runtime.streams

    async def story() -> None:
        gone, streams = await leave()
        gc.collect()  # while the record waits for others
        assert (called, gone() is None) == ([], False)
        async with asyncio.timeout(30):
            while gone() is not None or streams._transports or streams._opening:
                gc.collect()
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert not others()

    run(story())
    assert called == [0]
    assert "close()" not in caplog.text  # nothing is lost


def test_a_close_that_is_cancelled_leaves_no_error_that_nobody_takes() -> None:
    said: list[Any] = []

    async def story(server: Server) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: said.append(context))
        consumer = AsyncConsumer(server.bootstrap, **GROUP)
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(0.1)
        server.slow(math.inf)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(consumer.close(), 0.1)
        server.slow(0)

    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        run(story(server))
    gc.collect()
    assert said == []


def test_a_producer_whose_loop_ended_before_its_records_were_sent_says_how_many(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        producer = AsyncProducer(broker, client_id="me", linger_ms=5_000)
        for _ in range(3):
            await producer.send("t", b"said")

    run(leave())
    gc.collect()
    assert "the producer 'me' was dropped without close(), and 3 records are lost" in caplog.text


def test_a_delivery_whose_loop_ended_says_so_and_calls_back_at_its_producers_end(broker: str) -> None:
    called: list[Delivery] = []

    async def leave() -> tuple[AsyncProducer, Delivery]:
        producer = AsyncProducer(broker, linger_ms=5_000)
        delivery = await producer.send("t", b"said")
        delivery.add_done_callback(called.append)
        return producer, delivery

    async def ask(delivery: Delivery) -> None:
        with pytest.raises(IllegalState, match="belongs to another event loop"):
            await delivery

    producer, delivery = run(leave())
    run(ask(delivery))
    assert called == []
    producer.kill()
    assert called == [delivery]
    with pytest.raises(IllegalState, match="closed"):
        delivery.result()


def test_a_send_that_is_cancelled_has_sent_nothing(broker: str) -> None:
    """Also where it gave others their turn, as a loop of sends does now and then."""

    async def story() -> None:
        async with AsyncProducer(broker, batch_size=100, linger_ms=60_000, delivery_timeout_ms=120_000) as it:
            await it.send("t", bytes(100))
            await it.flush()  # nothing else would send it for a minute
            kept: list[Delivery] = []

            async def one() -> None:
                kept.append(await it.send("t", bytes(60)))

            for _ in range(20):
                task = asyncio.create_task(one())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            await it.flush()
        async with AsyncCluster(broker) as cluster:
            ends = await cluster.list_offsets({TopicPartition("t", 0): "latest"})
        assert ends[TopicPartition("t", 0)].offset == 1 + len(kept)

    run(story())


def test_a_commit_of_a_callback_that_outlives_its_client_leaves_no_future_behind(broker: str) -> None:
    told: list[Any] = []

    class Commits(RebalanceListener):
        async def revoked(self, partitions: Iterable[TopicPartition]) -> None:  # type: ignore[override]
            with pytest.raises(IllegalState, match="is closed"):
                await consumer.commit({TopicPartition("t", 0): 1})

    async def story() -> None:
        nonlocal consumer
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: told.append(context))
        consumer = AsyncConsumer(broker, **GROUP)
        consumer.subscribe(["t"], listener=Commits())
        while not consumer.assignment():
            await consumer.poll(0.1)
        await consumer.close(timeout=0)
        await asyncio.sleep(0.01)
        gc.collect()

    consumer: Any = None
    run(story())
    assert told == []
