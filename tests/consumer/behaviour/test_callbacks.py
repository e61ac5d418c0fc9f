"""Callbacks may raise errors and call some methods of their client. A slow callback does not block close.

The tests check which errors callbacks may raise, which methods they may call, and how long close waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import AsyncConsumer, Consumer, GroupChange, Producer, RebalanceListener, TopicPartition
from kproto.broker.server import running
from kproto.errors import IllegalState, RequestTimedOut
from tests.bundles import rotated

P0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 100,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with running(topics={"t": 2}, settings=settings) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield server.bootstrap


def read(consumer: Consumer, count: int = 100, seconds: float = 30) -> set[tuple[int, int]]:
    """Poll until `count` different records have been read."""
    records: set[tuple[int, int]] = set()
    end = time.monotonic() + seconds
    while len(records) < count and time.monotonic() < end:
        records |= {(record.partition, record.offset) for record in consumer.poll(0.1)}
    return records


# ---- errors that a callback raises


def test_an_events_callback_that_raises_is_logged_and_stops_nothing(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    def callback(change: GroupChange) -> None:
        raise ValueError("the metrics backend is down")

    with Consumer(broker, group_id="events-raise", **GROUP) as consumer:
        consumer.events(callback)
        consumer.subscribe("t")
        assert len(read(consumer)) == 100
    log_records = [record for record in caplog.records if "events()" in record.message]
    assert log_records
    assert log_records[0].exc_info is not None


def test_an_events_callback_that_raises_does_not_affect_the_next_one(broker: str) -> None:
    kinds: list[str] = []
    with Consumer(broker, group_id="events-next", **GROUP) as consumer:
        consumer.events(lambda change: 1 / 0)  # type: ignore[arg-type, return-value]
        consumer.events(lambda change: kinds.append(change.kind))
        consumer.subscribe("t")
        read(consumer)
    assert kinds[0] == "coordinator"
    assert kinds[-1] == "closed"


def test_ctrl_c_in_an_events_callback_does_not_affect_the_next_one(broker: str) -> None:
    called: list[str] = []
    received: list[str] = []

    def interrupted(change: GroupChange) -> None:
        called.append(change.kind)
        if change.kind == "assigned":
            raise KeyboardInterrupt

    with Consumer(broker, group_id="events-ctrl-c", **GROUP) as consumer:
        consumer.events(interrupted)
        consumer.events(lambda change: received.append(change.kind))
        consumer.subscribe("t")
        with pytest.raises(KeyboardInterrupt):
            read(consumer)
        read(consumer)
    assert called.count("assigned") == 1
    assert received == called


@pytest.mark.parametrize("kind", ["assigned", "revoked"])
def test_an_error_of_a_listener_is_raised_by_poll_and_the_group_continues(broker: str, kind: str) -> None:
    class Listener(RebalanceListener):
        raised = False

        def assigned(self, partitions: Any) -> None:
            if kind == "assigned" and not self.raised:
                self.raised = True
                raise RuntimeError("from the callback")

        def revoked(self, partitions: Any) -> None:
            if kind == "revoked":
                raise RuntimeError("from the callback")

    consumer = Consumer(broker, group_id=f"listener-raises-{kind}", **GROUP)
    consumer.subscribe("t", Listener())
    if kind == "assigned":
        with pytest.raises(RuntimeError, match="from the callback"):
            read(consumer)
    assert len(read(consumer)) == 100
    assert consumer.assignment() == {P0, TopicPartition("t", 1)}
    if kind == "revoked":
        with pytest.raises(RuntimeError, match="from the callback"):
            consumer.close()
    consumer.close()
    with Consumer(broker, group_id=f"listener-raises-{kind}", **GROUP) as after:
        assert sum(offset.offset for offset in after.committed([P0]).values() if offset) == 50


# ---- methods that a callback may call


CALLS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "poll": (lambda c: c.poll(30), "refused"),
    "poll_columns": (lambda c: c.poll_columns(30), "refused"),
    "iteration": (lambda c: next(c), "refused"),
    "unsubscribe": (lambda c: c.unsubscribe(), "refused"),
    "close": (lambda c: c.close(), "refused"),
    "seek": (lambda c: c.seek(P0, 5), "works"),
    "seek_to": (lambda c: c.seek_to("earliest"), "works"),
    "pause": (lambda c: (c.pause([P0]), c.resume([P0])), "works"),
    "position": (lambda c: c.position(P0), "works"),
    "commit": (lambda c: c.commit({P0: 1}), "works"),
    "commit_async": (lambda c: c.commit_async({P0: 1}), "works"),
    "committed": (lambda c: c.committed(), "works"),
    "list_offsets": (lambda c: c.list_offsets({P0: "latest"}), "works"),
    "partitions_for": (lambda c: c.partitions_for("t"), "works"),
    "assignment": (lambda c: c.assignment(), "works"),
    "subscribe": (lambda c: c.subscribe("t"), "works"),
    "rejoin": (lambda c: c.rejoin(), "either"),
    "assign": (lambda c: c.assign([P0]), "refused"),
}


@pytest.mark.parametrize(("call", "where"), rotated(list(CALLS), ["assigned", "revoked", "events"]))
def test_a_callback_may_call_methods_that_do_not_wait_for_it(broker: str, where: str, call: str) -> None:
    act, expected = CALLS[call]
    outcome: list[Any] = []
    box: list[Consumer] = []

    def once(kind: str) -> None:
        if kind == where and not outcome and box[0].assignment():
            try:
                act(box[0])
                outcome.append("works")
            except IllegalState as error:
                outcome.append(str(error))

    class Listener(RebalanceListener):
        def assigned(self, partitions: Any) -> None:
            once("assigned")

        def revoked(self, partitions: Any) -> None:
            once("revoked")

    # A call that waits for one of these timeouts takes longer than the test allows.
    waits = {"default_api_timeout_ms": 600_000, "request_timeout_ms": 300_000}
    with Consumer(broker, group_id=f"callback-{where}-{call}", **GROUP, **waits) as consumer:
        box.append(consumer)
        consumer.events(lambda change: once("events") if change.kind == "assigned" else None)
        consumer.subscribe("t", Listener())
        assert len(read(consumer, 90)) >= 90
    (result,) = outcome
    if expected == "works":
        assert result == "works"
    elif expected == "refused":
        assert result != "works"


@pytest.mark.parametrize("call", [name for name, (_, expected) in CALLS.items() if expected != "either"])
def test_a_callback_of_close_may_call_them_while_another_thread_polls(broker: str, call: str) -> None:
    act, expected = CALLS[call]
    outcome: list[Any] = []
    polling = threading.Event()

    class Listener(RebalanceListener):
        def revoked(self, partitions: Any) -> None:
            try:
                act(consumer)
                outcome.append("works")
            except IllegalState as error:
                outcome.append(str(error))

    def poll() -> None:
        with contextlib.suppress(IllegalState):  # The consumer was closed.
            while True:
                consumer.poll(30)
                polling.set()

    waits = {"default_api_timeout_ms": 600_000, "request_timeout_ms": 300_000}
    consumer = Consumer(broker, group_id=f"closer-{call}", **GROUP, **waits)
    consumer.subscribe("t", Listener())
    thread = threading.Thread(target=poll)
    thread.start()
    assert polling.wait(30)
    consumer.close()
    thread.join(30)
    if expected == "works":
        assert outcome == ["works"]
    else:
        assert "inside the listener's revoked()" in outcome[0] or call == "assign"


def test_a_done_callback_of_a_future_may_call_what_does_not_wait(broker: str) -> None:
    results: list[Any] = []
    done = threading.Event()
    with Consumer(broker, group_id="future", **GROUP) as consumer:
        consumer.subscribe("t")
        read(consumer)

        def hanging(future: Any) -> None:
            for act in (lambda: consumer.commit(), lambda: consumer.poll(5), lambda: consumer.position(P0)):
                try:
                    act()
                except IllegalState as error:
                    results.append(str(error))
            consumer.seek(P0, 7)
            results.append(consumer.commit_async({P0: 7}))
            done.set()
            raise ValueError("and then it raises")

        future = consumer.commit_async()
        future.add_done_callback(hanging)
        assert done.wait(10)
        assert [("callback of a future" in text) for text in results[:3]] == [True] * 3
        assert results[3].result(5) is None
        assert consumer.poll(5)[0].offset == 7


# ---- callbacks of asyncio clients


def test_a_listener_coroutine_completes_although_its_poll_is_cancelled(broker: str) -> None:
    steps: list[str] = []
    go_on = asyncio.Event()

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            steps.append("began")
            await go_on.wait()
            steps.append("ended")

    async def story() -> None:
        async with AsyncConsumer(broker, group_id="shielded", **GROUP) as consumer:
            consumer.subscribe("t", Listener())
            while not steps:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(consumer.poll(10), 0.05)
            assert steps == ["began"]
            go_on.set()
            assert await consumer.poll(5)
            assert steps == ["began", "ended"]

    asyncio.run(story())


async def cancel_poll_in_callback(consumer: AsyncConsumer, error: Exception | None = None) -> asyncio.Event:
    """Cancel a poll while the coroutine of its listener runs.

    The coroutine continues until the caller sets the returned event.
    """
    began, go_on = asyncio.Event(), asyncio.Event()

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            if not began.is_set():
                began.set()
                await go_on.wait()
                if error is not None:
                    raise error

    consumer.subscribe("t", Listener())
    polling = asyncio.create_task(consumer.poll(10))
    await began.wait()
    polling.cancel()
    await asyncio.wait([polling])
    return go_on


def test_an_error_of_a_cancelled_polls_coroutine_is_raised_by_the_next_poll(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, group_id="late", **GROUP) as consumer:
            go_on = await cancel_poll_in_callback(consumer, RuntimeError("late"))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(consumer.poll(10), 0.05)
            go_on.set()
            with pytest.raises(RuntimeError, match="late"):
                await consumer.poll(5)
            assert await consumer.poll(5)

    asyncio.run(story())


@pytest.mark.parametrize("name", ["poll", "unsubscribe", "close"])
def test_a_coroutine_that_would_wait_for_itself_is_rejected(broker: str, name: str) -> None:
    messages: list[str] = []

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            await consumer.commit({P0: 1})
            await consumer.position(P0)
            try:
                await getattr(consumer, name)()
            except IllegalState as error:
                messages.append(str(error))

    consumer: AsyncConsumer

    async def story() -> None:
        nonlocal consumer
        async with AsyncConsumer(broker, group_id=f"itself-{name}", **GROUP) as consumer:
            consumer.subscribe("t", Listener())
            assert await consumer.poll(10)

    asyncio.run(story())
    assert messages
    assert "inside the listener's assigned()" in messages[0]


WAITING: dict[str, Callable[[AsyncConsumer], Any]] = {
    "poll": lambda c: c.poll(30),
    "poll_columns": lambda c: c.poll_columns(30),
    "iteration": lambda c: anext(c),
    "unsubscribe": lambda c: c.unsubscribe(),
    "close": lambda c: c.close(),
}


@pytest.mark.parametrize("call", WAITING)
def test_a_task_of_such_a_coroutine_is_rejected_after_its_poll_was_cancelled(broker: str, call: str) -> None:
    messages: list[str] = []
    began, go_on = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        try:
            await WAITING[call](consumer)
        except IllegalState as error:
            messages.append(str(error))

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            began.set()
            await go_on.wait()
            await asyncio.create_task(waits())

    async def story() -> None:
        nonlocal consumer
        async with AsyncConsumer(broker, group_id=f"task-{call}", **GROUP) as consumer:
            consumer.subscribe("t", Listener())
            polling = asyncio.create_task(consumer.poll(10))
            await began.wait()
            polling.cancel()
            await asyncio.wait([polling])
            go_on.set()
            assert await consumer.poll(10)

    consumer: AsyncConsumer
    asyncio.run(asyncio.wait_for(story(), 30))
    assert messages
    assert "inside the listener's assigned()" in messages[0]


def test_a_task_of_a_callback_may_wait_after_the_callback_has_returned(broker: str) -> None:
    tasks: list[asyncio.Task[Any]] = []
    returned = asyncio.Event()

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            async def later() -> None:
                await returned.wait()
                await consumer.close()

            tasks.append(asyncio.create_task(later()))

    async def story() -> None:
        nonlocal consumer
        consumer = AsyncConsumer(broker, group_id="task-later", **GROUP)
        consumer.subscribe("t", Listener())
        assert await consumer.poll(10)
        returned.set()
        await tasks[0]
        with pytest.raises(IllegalState, match="closed"):
            await consumer.poll(0)

    consumer: AsyncConsumer
    asyncio.run(asyncio.wait_for(story(), 30))


def test_log_handlers_run_without_the_lock(broker: str) -> None:
    """A log handler must run without the consumer's lock.

    A log handler may wait for another thread that calls the consumer.
    """
    free: list[bool] = []

    def ask() -> None:
        free.append(consumer._runtime.waiters.lock.acquire(timeout=5))
        if free[-1]:
            consumer._runtime.waiters.lock.release()

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            asker = threading.Thread(target=ask)
            asker.start()
            asker.join()

    log = logging.getLogger("kproto.consumer")
    handler, level = Handler(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        with Consumer(broker, group_id="logs", **GROUP) as consumer:
            consumer.subscribe("t")
            read(consumer)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert len(free) > 3
    assert all(free)


@pytest.mark.parametrize("how", ["another task", "its own callback"])
def test_close_ends_within_its_timeout_whatever_a_coroutine_awaits(broker: str, how: str) -> None:
    began, never = asyncio.Event(), asyncio.Event()

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            if how == "another task":
                began.set()
                await never.wait()

        async def revoked(self, partitions: Any) -> None:
            began.set()
            await never.wait()

    async def story() -> float:
        consumer = AsyncConsumer(broker, group_id=f"hangs in {how}", **GROUP)
        consumer.subscribe("t", Listener())
        polling = asyncio.create_task(consumer.poll(10))
        await (began.wait() if how == "another task" else polling)
        before = time.monotonic()
        with contextlib.suppress(RequestTimedOut):
            await consumer.close(timeout=0.5)
        took = time.monotonic() - before
        assert began.is_set()
        never.set()
        if how == "another task":
            with pytest.raises(IllegalState):
                await polling
        return took

    assert asyncio.run(asyncio.wait_for(story(), 20)) < 15


def test_an_error_of_a_coroutine_between_two_polls_is_raised_by_the_next_poll(broker: str) -> None:
    ended = asyncio.Event()

    class Listener(RebalanceListener):
        async def assigned(self, partitions: Any) -> None:
            if not ended.is_set():
                await asyncio.sleep(0.1)
                ended.set()
                raise RuntimeError("nobody looked")

    async def story() -> None:
        async with AsyncConsumer(broker, group_id="between", **GROUP) as consumer:
            consumer.subscribe("t", Listener())
            polling = asyncio.create_task(consumer.poll(10))
            while consumer._runtime.callback_task is None:
                await asyncio.sleep(0.01)
            polling.cancel()
            await ended.wait()
            await asyncio.sleep(0.05)
            with pytest.raises(RuntimeError, match="nobody looked"):
                await consumer.poll(5)
            assert await consumer.poll(5)

    asyncio.run(story())


def test_calls_that_wait_for_a_cancelled_polls_coroutine_keep_their_timeout(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, group_id="keeps-time", **GROUP) as consumer:
            go_on = await cancel_poll_in_callback(consumer)
            assert await consumer.poll(0.05) == []
            assert await consumer.poll_columns(0) == []
            with pytest.raises(RequestTimedOut, match="unsubscribe"):
                await consumer.unsubscribe(timeout=0.05)
            go_on.set()
            await consumer.unsubscribe()
            assert (consumer.subscription(), consumer.assignment()) == (set(), set())

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_closed_consumer_raises_at_once_while_its_callback_runs(broker: str) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(broker, group_id="closed-at-once", **GROUP)
        go_on = await cancel_poll_in_callback(consumer)
        await consumer.close(timeout=0.1)
        for call in (lambda: consumer.poll(60), lambda: consumer.unsubscribe(60)):
            with pytest.raises(IllegalState, match="closed"):
                await call()
        assert not go_on.is_set()
        go_on.set()

    asyncio.run(asyncio.wait_for(story(), 30))


def test_unsubscribe_raises_the_error_of_a_cancelled_polls_coroutine(
    broker: str,
) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, group_id="raises-late", **GROUP) as consumer:
            (await cancel_poll_in_callback(consumer, RuntimeError("late"))).set()
            with pytest.raises(RuntimeError, match="late"):
                await consumer.unsubscribe()
            assert (consumer.subscription(), consumer.assignment()) == (set(), set())

    asyncio.run(asyncio.wait_for(story(), 30))


def test_a_seek_while_a_poll_yields_to_other_tasks_wins(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, **{**GROUP, "max_poll_records": 20}) as consumer:
            consumer.assign({P0: 0})
            assert (await anext(aiter(consumer))).offset == 0
            polling = asyncio.create_task(consumer.poll(10))
            asyncio.get_running_loop().call_soon(consumer.seek, P0, 40)
            assert (await polling)[0].offset == 40

    asyncio.run(story())
