"""Clients in asyncio survive cancelled tasks, and log what a missing or cancelled close loses."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import pytest

from consumer import AsyncAdmin, AsyncConsumer, AsyncProducer, Delivery, RebalanceListener, TopicPartition
from kproto.broker.server import Server, running
from kproto.errors import IllegalState, RequestTimedOut

pytestmark = pytest.mark.usefixtures("fast_collections")

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


def test_records_are_written_and_read_in_any_loop(broker: str, new_loop: Loop) -> None:
    # The records are so large that the client reads the socket many times for one response.
    written = [b"%d" % number + bytes(200_000) for number in range(50)]

    async def story() -> list[Any]:
        async with AsyncProducer(broker, max_request_size=4 << 20) as producer:
            for value in written:
                await producer.send("t", value)
        options = {**GROUP, "max_partition_fetch_bytes": 8 << 20}
        async with AsyncConsumer(broker, **options) as consumer, asyncio.timeout(60):
            consumer.subscribe(["t"])
            values: list[Any] = []
            while len(values) < len(written):
                values += [record.value for record in await consumer.poll(1)]
            return values

    assert run(story(), new_loop) == written


class SlowListener(RebalanceListener):
    """A listener whose method `assigned` sets the event `begun`, and returns when `may_end` is set."""

    def __init__(self) -> None:
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()

    async def assigned(self, partitions: Iterable[TopicPartition]) -> None:  # type: ignore[override]
        self.begun.set()
        await self.may_end.wait()


async def cancel_all(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel all tasks of the event loop, as many programs do when they end."""
    for task in tasks:
        task.cancel()
    await asyncio.wait(list(tasks))


def other_tasks() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def test_a_callback_that_is_cancelled_from_outside_fails_the_next_call_only(
    broker: str,
) -> None:
    async def story() -> None:
        consumer, listener = AsyncConsumer(broker, **GROUP), SlowListener()
        consumer.subscribe(["t"], listener=listener)
        polling = asyncio.create_task(consumer.poll(30))
        await listener.begun.wait()
        await cancel_all(other_tasks())
        assert polling.cancelled()
        with pytest.raises(IllegalState, match=r"the listener's assigned\(\) was cancelled before it ended"):
            await consumer.poll(0)
        await consumer.close()

    run(story())


@pytest.mark.filterwarnings("error:.*coroutine")
def test_a_callback_that_is_cancelled_before_it_starts_has_returned(broker: str) -> None:
    """If the task of a callback is cancelled before it starts, the client behaves as if the callback had
    returned.

    This happens if a program cancels all tasks after the client has created the callback's task, and before
    the task executes its first line.
    """

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

    run(story())
    gc.collect()


@pytest.mark.parametrize("client_class", [AsyncConsumer, AsyncAdmin])
def test_a_dropped_client_closes_its_connections(
    broker: str, client_class: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        if client_class is AsyncConsumer:
            client = AsyncConsumer(broker, **GROUP)
            client.subscribe(["t"])
            while not client.assignment():
                await client.poll(0.1)
            streams = client._runtime.streams
        else:
            cluster = client = AsyncAdmin(broker)
            await cluster.topics()
            streams = cluster._runtime.streams
            del cluster
        client_ref = weakref.ref(client)
        del client
        async with asyncio.timeout(30):
            while client_ref() is not None or streams._transports or streams._opening:
                gc.collect()
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert not other_tasks()

    run(story())
    assert ("was dropped without close()" in caplog.text) == (client_class is AsyncConsumer)


def test_a_consumer_whose_loop_ended_before_close_logs_what_is_lost(
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


def test_a_dropped_producer_delivers_its_records_and_closes_its_connections(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[int | None] = []

    async def leave() -> tuple[Any, Any]:
        producer = AsyncProducer(broker, linger_ms=300)
        delivery = await producer.send("t", b"said")
        delivery.add_done_callback(lambda delivery: called.append(delivery._metadata().offset))
        return weakref.ref(producer._runtime), producer._runtime.streams

    async def story() -> None:
        runtime_ref, streams = await leave()
        gc.collect()  # At this point the batch is still waiting for more records.
        assert (called, runtime_ref() is None) == ([], False)
        async with asyncio.timeout(30):
            while runtime_ref() is not None or streams._transports or streams._opening:
                gc.collect()
                await asyncio.sleep(0.01)
        await asyncio.sleep(0)
        assert not other_tasks()

    run(story())
    assert called == [0]
    assert "close()" not in caplog.text  # No record is lost.


def test_a_cancelled_close_leaves_no_unretrieved_error() -> None:
    contexts: list[Any] = []

    async def story(server: Server) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
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
    assert contexts == []


async def cancel(closing: Coroutine[Any, Any, None]) -> None:
    """Cancel a pending call of `close`."""
    task = asyncio.ensure_future(closing)
    await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


def test_a_cancelled_close_of_a_consumer_logs_what_is_lost(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(broker, **GROUP, client_id="me")
        consumer.subscribe(["t"])
        while not consumer.assignment():
            await consumer.poll(0.1)
        await cancel(consumer.close())
        await consumer.close()

    run(story())
    [message] = [record.getMessage() for record in caplog.records if "close()" in record.getMessage()]
    assert message == (
        "close() of the consumer 'me' was interrupted by CancelledError: what it processed last is not "
        "committed, and the group 'g' waits up to 45 s for it"
    )


def test_a_cancelled_close_of_a_producer_logs_how_many_records_are_lost(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story() -> None:
        producer = AsyncProducer(broker, client_id="me", linger_ms=5_000)
        deliveries = [await producer.send("t", b"said") for _ in range(3)]
        await cancel(producer.close())
        assert all(isinstance(delivery.exception(), IllegalState) for delivery in deliveries)

    run(story())
    [message] = [record.getMessage() for record in caplog.records if "close()" in record.getMessage()]
    assert message == (
        "close() of the producer 'me' was interrupted by CancelledError, and 3 records are lost"
    )


def test_a_cancelled_close_without_losses_logs_nothing(broker: str, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(broker)
        consumer.assign([TopicPartition("t", 0)])
        await consumer.poll(0.1)
        await cancel(consumer.close())

    run(story())
    assert "close()" not in caplog.text


def test_a_producer_whose_loop_ended_logs_how_many_records_are_lost(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def leave() -> None:
        producer = AsyncProducer(broker, client_id="me", linger_ms=5_000)
        for _ in range(3):
            await producer.send("t", b"said")

    run(leave())
    gc.collect()
    assert "the producer 'me' was dropped without close(), and 3 records are lost" in caplog.text


def test_a_delivery_of_another_loop_raises_and_is_called_back_at_the_end_of_its_producer(broker: str) -> None:
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


def test_a_cancelled_send_has_sent_nothing(broker: str) -> None:
    """A `send` that is cancelled before it returns has sent nothing.

    Most calls of `send` return without yielding to the event loop. Only a call that yields can be cancelled.
    """

    async def story() -> None:
        async with AsyncProducer(
            broker, batch_size=100, linger_ms=60_000, delivery_timeout_ms=120_000
        ) as producer:
            await producer.send("t", bytes(100))
            # Without this flush the record would wait for linger_ms, which is a minute.
            await producer.flush()
            deliveries: list[Delivery] = []

            async def one() -> None:
                deliveries.append(await producer.send("t", bytes(60)))

            for _ in range(20):
                task = asyncio.create_task(one())
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            await producer.flush()
        async with AsyncAdmin(broker) as cluster:
            ends = await cluster.list_offsets({TopicPartition("t", 0): "latest"})
        assert ends[TopicPartition("t", 0)].offset == 1 + len(deliveries)

    run(story())


def test_a_commit_of_a_callback_that_outlives_its_client_leaves_no_future(broker: str) -> None:
    contexts: list[Any] = []

    class Commits(RebalanceListener):
        async def revoked(self, partitions: Iterable[TopicPartition]) -> None:  # type: ignore[override]
            """Try to commit after the timeout of `close` has expired.

            The commit fails, whether or not `close` has already returned.
            """
            time.sleep(0.002)  # Even `close(timeout=0)` takes 1 ms, in which a commit can succeed.
            with pytest.raises((IllegalState, RequestTimedOut), match="closed"):
                await consumer.commit({TopicPartition("t", 0): 1})

    async def story() -> None:
        nonlocal consumer
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
        consumer = AsyncConsumer(broker, **GROUP)
        consumer.subscribe(["t"], listener=Commits())
        while not consumer.assignment():
            await consumer.poll(0.1)
        await consumer.close(timeout=0)
        await asyncio.sleep(0.01)
        gc.collect()

    consumer: Any = None
    run(story())
    assert contexts == []
