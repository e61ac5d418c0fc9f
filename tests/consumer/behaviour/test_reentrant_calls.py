"""A public method that is called in a callback of the same client returns, or is rejected, without delay.

The methods are found by inspecting the class. After each call the client still works, unless the method has
closed it or ended its transaction.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from consumer import (
    ApplicationMetric,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from kproto.broker.server import running
from kproto.errors import IllegalState, KprotoError, WokenUp
from tests.bundles import rotated

P0 = TopicPartition("t", 0)
SENT = 20
# Methods that this test omits, because they wait for a delivery, or because tests in other files cover them.
INSIDE = {"await_it", "call_back", "looked_at", "run", "wait_for"}
METRIC = dict.fromkeys(
    ("register_metric_for_subscription", "unregister_metric_from_subscription"),
    (ApplicationMetric("orders", "shop-metrics"),),
)
PRODUCING: dict[str, tuple[Any, ...]] = {
    **METRIC,
    "events": (lambda change: None,),
    "send": ("t", b"again"),
    "send_columns": ("t", {"value": [b"again"]}),
    "send_offsets": ("g", {P0: 1}),
    **dict.fromkeys(("abort", "begin", "close", "commit", "flush"), (5.0,)),
}
CONSUMING: dict[str, tuple[Any, ...]] = {
    **METRIC,
    "assign": ([P0],),
    "close": (True, 5.0),
    "commit": ({P0: 1}, 5.0),
    "commit_async": ({P0: 1},),
    "committed": ([P0], 5.0),
    "events": (lambda change: None,),
    "list_offsets": ({P0: "latest"}, 5.0),
    "partitions_for": ("t", 5.0),
    "position": (P0, 5.0),
    "seek": (P0, 0),
    "seek_to": ("earliest",),
    "store_offsets": ({P0: 1},),
    "subscribe": ("t",),
    **dict.fromkeys(("high_watermark", "lag", "why"), (P0,)),
    **dict.fromkeys(("pause", "resume"), ([P0],)),
    **dict.fromkeys(("poll", "poll_columns"), (60.0,)),
}
GROUP: dict[str, Any] = {"auto_offset_reset": "earliest", "heartbeat_interval_ms": 100}


def methods(kind: type) -> list[str]:
    names = [name for name, _ in inspect.getmembers(kind, inspect.isfunction)]
    return [name for name in names if not name.startswith("_") and name not in INSIDE]


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    delay = {"group.initial.rebalance.delay.ms": "0"}
    with running(topics={"t": 2}, settings=delay, telemetry=True) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(SENT):
                producer.send("t", b"first", partition=number % 2)
        yield server.bootstrap


@pytest.mark.parametrize(("method", "transactional"), rotated(methods(Producer), [False, True]))
def test_a_delivery_callback_may_call_every_method(broker: str, method: str, transactional: bool) -> None:
    called: list[BaseException | None] = []
    done = threading.Event()
    producer = Producer(broker, **({"transactional_id": "x"} if transactional else {}))

    def callback(delivery: Any) -> None:
        try:
            getattr(producer, method)(*PRODUCING.get(method, ()))
        except KprotoError as error:
            called.append(error)
        done.set()

    if transactional:
        producer.begin()
    producer.send("t", b"x").add_done_callback(callback)
    assert done.wait(20)
    assert all(isinstance(error, IllegalState) for error in called)
    # `send` raises if the callback has closed the producer or ended its transaction.
    with suppress(IllegalState):
        assert producer.send("t", b"y").result(10).topic == "t"
    producer.close(10)
    assert not producer._runtime.thread.is_alive()


@pytest.mark.parametrize(("method", "transactional"), rotated(methods(AsyncProducer), [True, False]))
def test_a_task_of_a_delivery_callback_may_call_every_method(
    broker: str, method: str, transactional: bool
) -> None:
    async def story() -> None:
        producer = AsyncProducer(broker, **({"transactional_id": "x"} if transactional else {}))
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[asyncio.Task[None]] = loop.create_future()

        async def calling() -> None:
            with suppress(IllegalState):
                answer = getattr(producer, method)(*PRODUCING.get(method, ()))
                if inspect.isawaitable(answer):
                    await answer

        if transactional:
            await producer.begin()
        sent = await producer.send("t", b"x")
        sent.add_done_callback(lambda _: begun.set_result(loop.create_task(calling())))
        await (await begun)
        with suppress(IllegalState):
            assert (await (await producer.send("t", b"y"))).topic == "t"
        await producer.close(10)

    asyncio.run(asyncio.wait_for(story(), 30))


@pytest.mark.parametrize(("method", "where"), rotated(methods(Consumer), ["assigned", "revoked", "events"]))
def test_callbacks_of_a_consumer_may_call_every_method(broker: str, method: str, where: str) -> None:
    called: list[BaseException | None] = []

    def calls(place: str) -> None:
        if place != where or called or not reader.assignment():
            return
        called.append(None)
        try:
            getattr(reader, method)(*CONSUMING.get(method, ()))
        except KprotoError as error:
            called.append(error)

    class Listener(RebalanceListener):
        def assigned(self, partitions: Any) -> None:
            calls("assigned")

        def revoked(self, partitions: Any) -> None:
            calls("revoked")

    reader = Consumer(broker, group_id=f"{method}-{where}", **GROUP)
    reader.events(lambda change: calls("events") if change.kind == "assigned" else None)
    reader.subscribe("t", Listener())
    read: set[tuple[int, int]] = set()
    with suppress(IllegalState):  # The consumer was killed.
        while len(read) < SENT:
            with suppress(WokenUp):  # The callback has called wakeup().
                read |= {(record.partition, record.offset) for record in reader.poll(10)}
            reader.resume(reader.paused())
        reader.unsubscribe()
    reader.close(timeout=10)
    assert called
    assert all(error is None or isinstance(error, IllegalState) for error in called)
    assert len(read) >= SENT or method == "kill"


@pytest.mark.parametrize(("method", "where"), rotated(methods(AsyncConsumer), ["assigned", "revoked"]))
def test_coroutines_of_a_listener_may_call_every_method(broker: str, method: str, where: str) -> None:
    called: list[BaseException | None] = []

    async def calls(place: str) -> None:
        if place != where or called:
            return
        called.append(None)
        try:
            answer = getattr(reader, method)(*CONSUMING.get(method, ()))
            if inspect.isawaitable(answer):
                await answer
        except KprotoError as error:
            called.append(error)

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            await calls("assigned")

        async def revoked(self, partitions: Any) -> None:
            await calls("revoked")

    async def story() -> None:
        nonlocal reader
        reader = AsyncConsumer(broker, group_id=f"async-{method}-{where}", **GROUP)
        reader.subscribe("t", Listener())
        read: set[tuple[int, int]] = set()
        with suppress(IllegalState):
            while len(read) < SENT:
                with suppress(WokenUp):
                    read |= {(record.partition, record.offset) for record in await reader.poll(10)}
                reader.resume(reader.paused())
            await reader.unsubscribe()
        await reader.close(timeout=10)
        assert len(read) >= SENT or method == "kill"

    reader: AsyncConsumer
    asyncio.run(asyncio.wait_for(story(), 30))
    assert called
    assert all(error is None or isinstance(error, IllegalState) for error in called)
