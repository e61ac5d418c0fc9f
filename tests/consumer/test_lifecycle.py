"""The life of a client: forks, finalizers, bugs, threads, interrupts, wakeups and `close`."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import gc
import logging
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from consumer import (
    OLDEST,
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    Consumer,
    ConsumerGroup,
    Delivery,
    PartitionConsumers,
    Producer,
    RebalanceListener,
    TopicPartition,
    lifecycle,
)
from consumer.clock import now
from consumer.engine import events as ev
from consumer.engine.admin.cluster import read_metadata
from consumer.lifecycle import _open_clients as clients_opened
from kproto.broker.server import running
from kproto.errors import IllegalState, KprotoError, RequestTimedOut, WokenUp
from kproto.group.assignors import Assignor
from kproto.messages.describe_groups import DescribeGroupsRequest
from kproto.testing.world import World
from tests.consumer.child_process import result_in_child
from tests.consumer.producers import ctrl_c
from tests.consumer.sarama.stage import RecordingHandler

pytestmark = pytest.mark.usefixtures("fast_collections")

P0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 100,
}


@pytest.fixture
def broker() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with running(topics={"t": 2}, settings=settings) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(100):
                producer.send("t", b"%d" % number, partition=0)
        yield server.bootstrap


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)


# ---- fork


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.poll(5),
        lambda c: next(c),
        lambda c: c.commit(),
        lambda c: c.seek(P0, 1),
        lambda c: c.assignment(),
        lambda c: c.unsubscribe(),
        lambda c: c.list_offsets({P0: "latest"}),
    ],
)
def test_in_a_forked_child_every_call_raises(broker: str, call: Any) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        assert consumer.poll(10, 5)
        assert "IllegalState: this consumer was opened before the process forked" in result_in_child(
            lambda: call(consumer)
        )
        assert consumer.poll(5, 5)[0].offset == 5


@pytest.mark.parametrize(
    "call",
    [
        lambda group, _: group.consume(["t"], RecordingHandler()),
        lambda group, _: group.pause_all(),
        lambda group, _: list(group.errors()),
        lambda _, flights: next(iter(flights)),
        lambda _, flights: flights.pause(),
    ],
)
def test_in_a_forked_child_every_call_of_a_client_with_a_loop_thread_raises(broker: str, call: Any) -> None:
    """In a forked child every call raises, and `close` does nothing.

    Regression: the child waited for a thread that exists only in the parent.
    """
    with ConsumerGroup(broker, **GROUP) as group, PartitionConsumers(broker) as consumers:
        flights = consumers.consume_partition("t", 0, OLDEST)

        def ends() -> None:
            with consumers, group:
                call(group, flights)

        message = "IllegalState: this client was opened before the process forked"
        assert message in result_in_child(ends)
        assert next(iter(flights)).offset == 0


def test_closing_in_a_forked_child_does_not_affect_the_parent(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer, Admin(broker) as cluster:
        consumer.subscribe("t")
        assert consumer.poll(10, 5)
        generation = consumer.group_metadata().generation

        def leave() -> None:
            consumer.close()
            consumer.kill()
            consumer.__exit__(None, None, None)
            cluster.close()
            gc.collect()

        assert result_in_child(leave) == "returned None"
        assert "IllegalState: this admin client" in result_in_child(cluster.topics)
        assert cluster.topics() == {"t": 2}
        assert [record.offset for record in consumer.poll(5, 5)] == [5, 6, 7, 8, 9]
        consumer.commit()
        assert consumer.group_metadata().generation == generation


def test_a_consumer_created_in_a_forked_child_works(broker: str) -> None:
    def read() -> int:
        with Consumer(broker, auto_offset_reset="earliest") as own:
            own.assign([P0])
            return len(own.poll(10))

    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        assert consumer.poll(10, 5)
        assert result_in_child(read) == "returned 100"


# ---- the end of the process


def ended(code: str, broker: str) -> tuple[str, int, float]:
    """Run `code` in a new process, and return the process's stderr, exit code and shutdown time.

    The shutdown time is the time in seconds from the end of `code` to the end of the process.
    """
    lines = ("import asyncio, sys, time", "from consumer import *", f"broker = {broker!r}", code)
    text = "\n".join((*lines, "print(time.monotonic())"))
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=100)
    return done.stderr, done.returncode, time.monotonic() - float(done.stdout or "nan")


def test_an_unclosed_consumer_is_logged_and_the_process_ends(broker: str) -> None:
    code = "c = Consumer(broker, group_id='forgotten', client_id='me')\nc.subscribe('t')\nc.poll(2)\n"
    stderr, status, took = ended(code, broker)
    assert "the consumer 'me' was not closed before the process ended" in stderr
    assert "the group 'forgotten' waits up to 45 s for it" in stderr
    assert (status, took < 10) == (0, True)


def test_unclosed_clients_with_nothing_to_lose_are_not_logged(broker: str) -> None:
    code = "c = Admin(broker)\nc.topics()\nd = Consumer(broker)\nwith Consumer(broker) as e: pass"
    assert ended(code, broker)[:2] == ("", 0)


def test_a_dropped_consumer_ends_its_thread(broker: str, caplog: pytest.LogCaptureFixture) -> None:
    before = threading.active_count()
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t")
    assert consumer.poll(10)
    cluster = Admin(broker)
    cluster.topics()
    del consumer, cluster
    gc.collect()
    until(lambda: threading.active_count() <= before)
    assert "was dropped without close()" in caplog.text


@pytest.mark.parametrize("client", [Consumer, Producer])
def test_ctrl_c_in_a_finalizer_does_not_stop_its_work(
    client: Any, broker: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a finalizer raises, the client's thread ends, and a warning reports the dropped client."""
    before = threading.active_count()
    unregister = lifecycle.unregister

    def interrupted(runtime: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        unregister(runtime)

    if client is Consumer:
        dropped: Any = Consumer(broker, **GROUP)
        dropped.subscribe("t")
        assert dropped.poll(10)
    else:
        dropped = Producer(broker, transactional_id="interrupted", transaction_timeout_ms=7_000)
        dropped.begin()
        dropped.send("t", b"x").result(10)
    monkeypatch.setattr(lifecycle, "unregister", interrupted)
    # In a process that a shell has started in the background, SIGINT is ignored. This handler raises
    # KeyboardInterrupt there, too.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            # Call the finalizer directly: the garbage collector might call it in another thread.
            dropped._runtime.__del__()
    finally:
        monkeypatch.undo()
        signal.signal(signal.SIGINT, handler)
    until(lambda: threading.active_count() <= before)
    assert "was dropped without close()" in caplog.text


def test_a_dropped_producer_delivers_its_records_and_ends_its_thread(
    broker: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = threading.active_count()
    called: list[Delivery] = []

    def leave() -> Callable[[], None]:
        producer = Producer(broker, linger_ms=60_000, delivery_timeout_ms=200_000)
        producer.send("t", b"said", partition=0).add_done_callback(called.append)
        assert threading.active_count() > before
        return producer._runtime.sockets.wake

    wake = leave()
    gc.collect()  # At this point the batch is still waiting for more records.
    assert called == []
    with monkeypatch.context() as clock:
        clock.setattr("consumer.blocking.producer_runtime.now", lambda: now() + 61_000)
        wake()
        until(lambda: bool(called))
    del wake
    assert called.pop().result().offset == 100

    def gone() -> bool:
        gc.collect()
        return threading.active_count() <= before

    until(gone)
    assert "close()" not in caplog.text  # No record is lost.


def test_a_dropped_producer_in_a_transaction_logs_how_long_it_stays_open(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    def leave() -> None:
        producer = Producer(broker, client_id="me", transactional_id="bills", transaction_timeout_ms=7_000)
        producer.begin()
        producer.send("t", b"said")

    def gone() -> bool:
        gc.collect()
        return "close()" in caplog.text

    leave()
    until(gone)
    message = "was dropped without close(), and the transaction of 'bills' stays open for up to 7 s"
    assert caplog.messages == [f"the producer 'me' {message}"]


@pytest.mark.skipif(not os.path.exists("/proc/self/fd"), reason="the files are counted there")
@pytest.mark.parametrize("kind", [Consumer, Admin, Producer])
def test_a_client_whose_thread_cannot_start_leaves_nothing_behind(
    kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    gc.collect()
    opened, files = set(clients_opened), len(os.listdir("/proc/self/fd"))
    with pytest.raises(RuntimeError, match="can't start") as caught:
        kind("localhost:1")
    assert len(os.listdir("/proc/self/fd")) == files
    # A client whose constructor failed is not among the clients that are closed at the end of the process.
    assert set(clients_opened) == opened
    # The traceback refers to the client. Using the traceback here keeps the client alive during the checks
    # above.
    assert caught.value.__traceback__ is not None


# ---- a bug inside the client


class Outcome(BaseException):
    """An exception that is not a subclass of Exception, like the one that `pytest.fail` raises."""


def undivided(*_: Any) -> Any:
    raise Outcome("not divided")


def fail_from_now(client: Any, error: Exception) -> None:
    """Make the client's engine raise this error at each event from now on."""

    def step(event: Any, now: int) -> Any:
        raise error

    client._runtime.driver.step = step


def test_when_the_thread_fails_every_caller_gets_the_error(broker: str) -> None:
    consumer = Consumer(broker, **{**GROUP, "heartbeat_interval_ms": 50})
    consumer.subscribe("t")
    assert consumer.poll(10)
    fail_from_now(consumer, ZeroDivisionError("a bug"))
    with pytest.raises(IllegalState, match=r"this consumer failed \(ZeroDivisionError\('a bug'\)\)"):
        consumer.poll(10)
    with pytest.raises(IllegalState, match="a bug"):
        consumer.commit()
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 10
    assert not consumer._runtime.thread.is_alive()
    with pytest.raises(IllegalState, match="closed"):
        consumer.poll()


def test_a_bug_fails_the_open_futures() -> None:
    with running(topics={"t": 1}) as server:
        consumer = Consumer(server.bootstrap, group_id="g", request_timeout_ms=1000)
        consumer.assign([P0])
        server.slow(60)  # The delay keeps the commit pending until the engine fails.
        server.drop_connections()
        future = consumer.commit_async({P0: 1})
        fail_from_now(consumer, ZeroDivisionError("a bug"))
        with pytest.raises(IllegalState, match="a bug"):
            future.result(10)
        consumer.close()


def test_a_bug_in_asyncio_is_raised(broker: str) -> None:
    async def story() -> None:
        consumer = AsyncConsumer(broker, **{**GROUP, "heartbeat_interval_ms": 50})
        consumer.subscribe("t")
        assert await consumer.poll(10)
        polling = asyncio.create_task(consumer.poll(20))
        await asyncio.sleep(0)
        fail_from_now(consumer, ZeroDivisionError("a bug"))
        with pytest.raises(IllegalState, match="a bug"):
            await asyncio.wait_for(polling, 10) or await consumer.poll(10)
        await consumer.close()

    asyncio.run(story())


@pytest.mark.parametrize("error", [LookupError, Outcome])
def test_a_plan_that_raises_fails_only_itself(broker: str, error: type[BaseException]) -> None:
    def plan(cluster: Admin) -> Any:
        # This request's response resumes the plan in the client's own thread, where the plan raises `error`.
        yield from read_metadata(cluster.view, None, now)
        raise error("in the plan")

    with Admin(broker, timeout=20) as cluster:
        with pytest.raises(error, match="in the plan"):
            cluster.run(plan(cluster))
        assert cluster.topics() == {"t": 2}


def test_a_base_exception_of_an_assignor_is_reported_as_a_bug(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(broker, **GROUP, partition_assignment_strategy=Assignor("mine", undivided)) as consumer:
        consumer.subscribe("t")
        for _ in range(2):
            with pytest.raises(IllegalState, match=r"failed \(Outcome\('not divided'\)\)"):
                consumer.poll(20)
    assert not consumer._runtime.thread.is_alive()
    assert "the consumer 'kproto' failed" in caplog.text


def test_a_base_exception_of_an_assignor_reaches_the_loops_exception_handler(broker: str) -> None:
    contexts: list[Any] = []

    async def story() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: contexts.append(context))
        mine = Assignor("mine", undivided)
        async with AsyncConsumer(broker, **GROUP, partition_assignment_strategy=mine) as consumer:
            consumer.subscribe("t")
            for _ in range(2):
                with pytest.raises(IllegalState, match="not divided"):
                    await consumer.poll(20)

    asyncio.run(story())
    assert [type(context["exception"]) for context in contexts] == [Outcome]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_futures_fail_whatever_a_log_handler_raises(broker: str) -> None:
    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise Outcome("of the handler")

    handler = Handler(logging.CRITICAL)
    logging.getLogger("kproto.consumer").addHandler(handler)
    try:
        with Consumer(broker, **GROUP, partition_assignment_strategy=Assignor("mine", undivided)) as consumer:
            consumer.assign([P0])
            consumer._runtime.sockets.poll = undivided  # type: ignore[method-assign]
            with pytest.raises(IllegalState, match="not divided"):
                consumer.committed(timeout=20)
    finally:
        logging.getLogger("kproto.consumer").removeHandler(handler)


# ---- concurrent calls


def test_a_second_thread_is_rejected_and_may_close(broker: str) -> None:
    consumer = Consumer(broker, **{**GROUP, "auto_offset_reset": "latest"})
    consumer.subscribe("t")
    while not consumer.assignment():
        consumer.poll(0.1)
    messages: list[str] = []
    polling = threading.Event()

    def poll() -> None:
        polling.set()
        try:
            consumer.poll(20)
        except IllegalState as error:
            messages.append(str(error))

    thread = threading.Thread(target=poll)
    thread.start()
    polling.wait()
    until(lambda: not consumer._runtime.is_callers())
    for call in (lambda: consumer.poll(0), lambda: consumer.commit(), lambda: consumer.seek(P0, 0)):
        with pytest.raises(IllegalState, match=r"another thread is inside poll\(\) of this consumer"):
            call()
    assert consumer.assignment()
    began = time.monotonic()
    consumer.close()
    thread.join(15)
    assert time.monotonic() - began < 15
    assert messages == ["this consumer is closed; make a new one"]


def test_a_second_task_may_commit_but_not_poll(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, **{**GROUP, "auto_offset_reset": "latest"}) as consumer:
            consumer.subscribe("t")
            while not consumer.assignment():
                await consumer.poll(0.1)
            polling = asyncio.create_task(consumer.poll(20))
            await asyncio.sleep(0.01)
            with pytest.raises(IllegalState, match=r"another task is inside poll\(\)"):
                await consumer.poll(0)
            await consumer.commit({P0: 3})
            await consumer.close()
            with pytest.raises(IllegalState, match="closed"):
                await polling

    asyncio.run(story())


def test_leaving_the_block_closes_a_consumer_that_another_thread_polls(broker: str) -> None:
    messages: list[str] = []
    polled = threading.Event()

    def work(consumer: Consumer) -> None:
        try:
            while True:
                consumer.poll(0.05)
                if consumer.assignment():
                    polled.set()
        except IllegalState as error:
            messages.append(str(error))

    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        thread = threading.Thread(target=work, args=(consumer,))
        thread.start()
        assert polled.wait(60)
    thread.join(60)
    assert messages == ["this consumer is closed; make a new one"]
    with Admin(broker) as cluster:
        assert not members_of(cluster, "g")


def test_leaving_the_block_closes_a_consumer_whose_poll_was_cancelled(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker, **GROUP) as consumer:
            consumer.subscribe("t")
            while not consumer.assignment():
                await consumer.poll(0.1)
            polling = asyncio.create_task(consumer.poll(20))
            await asyncio.sleep(0.01)
            polling.cancel()

    asyncio.run(story())
    with Admin(broker) as cluster:
        assert not members_of(cluster, "g")


def members_of(cluster: Admin, group: str) -> list[Any]:
    answer: Any = cluster.request(DescribeGroupsRequest(groups=[group]), ("group", group))
    return list(answer.groups[0].members)


def test_another_event_loop_is_rejected(broker: str) -> None:
    consumer = AsyncConsumer(broker)

    async def use() -> None:
        consumer.assign([P0])

    asyncio.run(use())
    with pytest.raises(IllegalState, match="belongs to another event loop"):
        asyncio.run(use())
    with pytest.raises(IllegalState, match="needs a running event loop"):
        consumer.assign([P0])
    consumer.kill()


def test_a_block_without_an_event_loop_raises_what_the_first_call_in_it_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The test runs the coroutines without an asyncio event loop, as trio would.
    consumer = AsyncConsumer("127.0.0.1:1")

    async def use() -> None:
        async with consumer:
            await consumer.poll()

    with pytest.raises(IllegalState, match=r"^poll\(\) needs a running event loop of asyncio"):
        use().send(None)
    with pytest.raises(IllegalState, match=r"^close\(\) needs a running event loop of asyncio"):
        consumer.__aexit__(None, None, None).send(None)
    assert "was closed with an error: close() needs a running event loop" in caplog.text
    consumer.kill()


# ---- interrupts


def test_a_hundred_cancelled_polls_lose_no_record(broker: str) -> None:
    async def story() -> list[int]:
        offsets: list[int] = []
        async with AsyncConsumer(broker, group_id="cancelled", auto_offset_reset="earliest") as consumer:
            consumer.subscribe("t")
            for turn in range(100):
                task = asyncio.create_task(consumer.poll(5, 3))
                await asyncio.sleep(0.0005 * (turn % 7))
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    offsets += [record.offset for record in await task]
            while len(offsets) < 100:
                offsets += [record.offset for record in await consumer.poll(5)]
        return offsets

    assert asyncio.run(story()) == list(range(100))


def test_an_interrupt_before_poll_returns_gives_the_records_back(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        assert [record.offset for record in consumer.poll(10, 3)] == [0, 1, 2]
        runtime = consumer._operations.runtime
        apply = runtime.apply

        def interrupt(*events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
            """Interrupt the poll just after the engine has returned records."""
            actions = apply(*events, last=last)
            if any(isinstance(action, ev.Deliver) for action in actions):
                # No signal is sent, because Python would ignore its KeyboardInterrupt during a garbage
                # collection.
                raise KeyboardInterrupt
            return actions

        with monkeypatch.context() as patch:
            patch.setattr(runtime, "apply", interrupt)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(10, 3)
        assert [record.offset for record in consumer.poll(10, 3)] == [3, 4, 5]


class _KeepingProducer(Producer):
    """A producer in a reference cycle: it refers to its deliveries, which refer to it."""

    deliveries: list[Delivery]

    def keep(self) -> None:
        self.deliveries = [self.send("t", b"x") for _ in range(5)]


def test_a_closed_producer_that_refers_to_its_deliveries_is_freed(broker: str) -> None:
    with _KeepingProducer(broker) as producer:
        producer.keep()
    freed = weakref.ref(producer)
    del producer
    gc.collect()
    assert freed() is None


def test_a_world_with_a_producer_is_freed() -> None:
    world = World({"t": 1}, seed=1)
    producer = world.producer(linger_ms=0)
    producer.deliver("t", "x", partition=0)
    world.run(5_000)
    freed = weakref.ref(world)
    del world, producer
    gc.collect()
    assert freed() is None


def test_polls_with_a_timeout_of_zero_let_the_loop_run(broker: str) -> None:
    async def story() -> int:
        async with AsyncConsumer(broker, **GROUP) as consumer:
            consumer.subscribe("t")
            end = time.monotonic() + 10
            count = 0
            while count < 100 and time.monotonic() < end:
                count += len(await consumer.poll(0))
            return count

    assert asyncio.run(story()) == 100


@pytest.mark.parametrize(("apart_s", "gives"), [(0.0004, True), (0.02, False)])
def test_consecutive_polls_with_a_timeout_of_zero_yield_to_threads(
    broker: str, apart_s: float, gives: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If polls with a timeout of 0 follow each other closely, some of them sleep, so that other threads run.

    Without these sleeps, a loop of polls would release the GIL too briefly for another thread to run.

    The test's clock advances only between the polls. With the real clock, a poll that is slow on a busy
    machine would count as a pause.
    """
    slept: list[float] = []
    sleep = asyncio.sleep
    clock_s = 1_000.0

    async def record_sleep(seconds: float) -> None:
        slept.append(seconds)
        await sleep(seconds)

    async def story() -> None:
        nonlocal clock_s
        async with AsyncConsumer(broker) as consumer:
            consumer.assign([TopicPartition("t", 1)])
            await consumer.poll(0.1)
            monkeypatch.setattr("consumer.aio.waiters.asyncio.sleep", record_sleep)
            for _ in range(100):
                clock_s += apart_s
                await consumer.poll(0)

    monkeypatch.setattr("consumer.aio.waiters.time", SimpleNamespace(monotonic=lambda: clock_s))
    asyncio.run(story())
    assert slept
    assert any(slept) == gives


# ---- wakeup


def test_wakeup_from_another_thread_ends_a_poll(broker: str) -> None:
    with Consumer(broker) as consumer:
        consumer.assign([TopicPartition("t", 1)])
        with ThreadPoolExecutor() as pool:
            poll = pool.submit(consumer.poll, 600)
            time.sleep(0.2)  # By now the poll is usually waiting.
            consumer.wakeup()
            with pytest.raises(WokenUp, match="ended by wakeup"):
                poll.result(60)
        assert consumer.poll(0.1) == []  # One wakeup ends only one poll, so this poll times out.


def test_wakeup_from_a_signal_handler_ends_a_poll(broker: str) -> None:
    with Consumer(broker) as consumer:
        consumer.assign([TopicPartition("t", 1)])
        previous = signal.signal(signal.SIGUSR1, lambda *_: consumer.wakeup())
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1))
        try:
            timer.start()
            with pytest.raises(WokenUp):
                consumer.poll(600)
        finally:
            timer.join()
            signal.signal(signal.SIGUSR1, previous)


def test_wakeup_between_polls_loses_no_record_and_lets_close_commit(broker: str) -> None:
    """As in Java, a wakeup between two polls ends the next poll.

    `close` commits the offsets of the records that an earlier poll returned.
    """
    options: Any = {**GROUP, "group_id": "woken", "max_poll_records": 10}
    consumer = Consumer(broker, **options)
    consumer.subscribe("t")
    records: list[Any] = []
    while not records:
        records = consumer.poll(60)
    consumer.wakeup()
    with pytest.raises(WokenUp):
        consumer.poll(60)
    consumer.close()
    with Admin(broker) as cluster:
        assert cluster.group("woken").committed[P0] == records[-1].offset + 1


def test_wakeup_from_a_thread_ends_the_poll_of_a_task(broker: str) -> None:
    async def story() -> None:
        async with AsyncConsumer(broker) as consumer:
            consumer.assign([TopicPartition("t", 1)])
            timer = threading.Timer(0.2, consumer.wakeup)
            timer.start()
            with pytest.raises(WokenUp):
                await consumer.poll(600)
            timer.join()
            assert await consumer.poll(0.1) == []

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize("method", ["poll", "poll_columns", "next"])
def test_wakeup_ends_every_kind_of_poll(broker: str, method: str) -> None:
    with Consumer(broker) as consumer:
        consumer.assign([TopicPartition("t", 1)])
        consumer.wakeup()
        call = {"poll": consumer.poll, "poll_columns": consumer.poll_columns, "next": consumer.__next__}
        with pytest.raises(WokenUp):
            call[method]()


# ---- close


@pytest.mark.parametrize("timeout", [0.0, 0.5, 1.5])
def test_close_keeps_its_timeout_with_a_silent_broker(timeout: float) -> None:
    # One of three tries must keep the time limit. A correct `close` may exceed the limit once on a slow
    # machine. A `close` that ignores its timeout exceeds the limit each time.
    assert any(_closing_behind_silence(timeout) < timeout * 1.1 + 2 for _ in range(3))


def _closing_behind_silence(timeout: float) -> float:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        consumer = Consumer(server.bootstrap, group_id="g")
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
    future = consumer.commit_async({P0: 2})
    began = time.monotonic()
    try:
        consumer.close(timeout=timeout)
    except Exception as error:
        assert "commit" in str(error).lower()  # noqa: PT017
    took = time.monotonic() - began
    assert future.done()
    return took


def test_several_threads_may_close_and_return_when_it_is_closed(broker: str) -> None:
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t")
    assert consumer.poll(10)
    with ThreadPoolExecutor(6) as pool:
        calls = [pool.submit(consumer.close) for _ in range(6)]
    assert [call.exception() for call in calls] == [None] * 6
    assert not consumer._runtime.thread.is_alive()
    with Admin(broker) as cluster:
        assert cluster.committed_offsets("g")[P0].offset >= 0  # type: ignore[union-attr]


def test_a_second_close_that_times_out_does_not_stop_the_first() -> None:
    with running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        with Producer(server.bootstrap) as producer:
            producer.send("t", b"x")
        consumer = Consumer(server.bootstrap, **GROUP)
        consumer.subscribe("t")
        until(lambda: bool(consumer.poll(1)))
        server.slow(math.inf)
        results: list[Exception | None] = []

        def close() -> None:
            try:
                consumer.close(timeout=60)
                results.append(None)
            except Exception as error:
                results.append(error)

        first = threading.Thread(target=close)
        first.start()
        until(lambda: consumer._operations.closer is not None)
        with pytest.raises(
            RequestTimedOut, match=r"an earlier close\(\) of this consumer is still in progress"
        ):
            consumer.close(timeout=0.1)
        assert not results
        server.slow(0)
        first.join(30)
        assert results == [None]
        with Admin(server.bootstrap) as cluster:
            assert cluster.committed_offsets("g")[TopicPartition("t", 0)].offset == 1  # type: ignore[union-attr]
        consumer.close()


def test_a_second_task_whose_close_times_out_does_not_stop_the_first(broker: str) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(broker, **GROUP)
        goes_on = asyncio.Event()

        class Listener(RebalanceListener):
            async def revoked(self, partitions: Any) -> None:
                await goes_on.wait()

        consumer.subscribe("t", Listener())
        assert await consumer.poll(10)
        first = asyncio.create_task(consumer.close())
        await asyncio.sleep(0)
        with pytest.raises(RequestTimedOut, match="of this consumer is still in progress"):
            await consumer.close(timeout=0.1)
        assert not first.done()
        goes_on.set()
        await first

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_ctrl_c_anywhere_in_close_lets_the_next_call_close(broker: str) -> None:
    for moment in range(1, 100, 3):
        consumer = Consumer(broker, **GROUP)
        consumer.assign({P0: 0})
        with contextlib.suppress(KeyboardInterrupt), ctrl_c(moment):
            consumer.close()
        at = time.monotonic()
        consumer.close()
        assert time.monotonic() - at < 10
        assert not consumer._runtime.thread.is_alive()


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_a_call_that_waits_for_a_cluster_is_failed_by_close(silent: str) -> None:
    cluster = Admin(silent)
    messages: list[str] = []

    def ask() -> None:
        try:
            cluster.topics()
        except IllegalState as error:
            messages.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.2)
    cluster.close()
    thread.join(5)
    assert messages == ["this admin client was closed"]


def test_a_cancelled_request_leaves_nothing_behind(silent: str) -> None:
    async def story() -> None:
        async with AsyncAdmin(silent) as cluster:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(cluster.topics(), 0.1)
            assert not cluster._runtime._open_futures
            assert cluster._runner.engine.runner.due() is None
            with pytest.raises(RequestTimedOut, match="Metadata"):
                await cluster.topics(timeout=0.1)

    asyncio.run(story())


# ---- a stopped process


SLEEPER = """
import sys
from consumer import Consumer
with Consumer(sys.argv[1], group_id="stopped", auto_offset_reset="earliest", session_timeout_ms=1000,
              heartbeat_interval_ms=100, max_poll_records=5, auto_commit_interval_ms=100) as consumer:
    consumer.subscribe("t")
    while True:
        for record in consumer.poll(0.5):
            print(record.offset, flush=True)
        print("polled", sorted(p.partition for p in consumer.assignment()), flush=True)
        sys.stdin.readline()
"""


def test_after_a_stop_longer_than_the_session_no_record_of_a_lost_partition_is_returned(broker: str) -> None:
    sleeper = subprocess.Popen(
        [sys.executable, "-c", SLEEPER, broker], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert sleeper.stdin is not None
    assert sleeper.stdout is not None

    def next_poll() -> list[str]:
        lines: list[str] = []
        while not lines or not lines[-1].startswith("polled"):
            lines.append(sleeper.stdout.readline().strip())  # type: ignore[union-attr]
        return lines

    try:
        first: list[str] = []
        while len(first) < 2:
            first = next_poll()
            if len(first) < 2:
                sleeper.stdin.write("\n")
                sleeper.stdin.flush()
        assert first[:5] == ["0", "1", "2", "3", "4"]
        time.sleep(0.3)  # By now the consumer has buffered records that it has not returned.
        sleeper.send_signal(signal.SIGSTOP)
        with Consumer(broker, **{**GROUP, "group_id": "stopped"}, max_poll_records=1000) as other_consumer:
            other_consumer.subscribe("t")
            read: list[int] = []
            until(
                lambda: bool(read.extend(r.offset for r in other_consumer.poll(0.2)) or len(read) >= 95), 20
            )
            sleeper.stdin.write("\n")
            sleeper.stdin.flush()
            sleeper.send_signal(signal.SIGCONT)
            after = next_poll()
        assert [line for line in after if line.isdigit()] == []
    finally:
        sleeper.send_signal(signal.SIGCONT)
        sleeper.kill()
        sleeper.wait()


def test_a_failed_commit_is_raised_by_close(broker: str) -> None:
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t")
    assert consumer.poll(10)
    with Admin(broker) as cluster:
        cluster.delete_topics(["t"])
    future = consumer.commit_async({P0: 50})
    with pytest.raises(KprotoError, match="OffsetCommit"):
        consumer.close(timeout=5)
    assert future.exception(5) is not None
    assert not consumer._runtime.thread.is_alive()


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("kind", [Consumer, Producer, Admin])
def test_a_client_can_neither_be_copied_nor_pickled(kind: Any, copied: Any, broker: str) -> None:
    with kind(broker) as client, pytest.raises(TypeError, match=f"{kind.__name__} can't be copied"):
        copied(client)
