"""What producers promise to an application that writes in transactions: threads, event loops and sockets are
real here, and the broker is a script."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from consumer import AsyncProducer, Producer, TopicPartition
from consumer.engine.transaction_states import State
from kproto.errors import BrokerError, IllegalState, KprotoError, RequestTimedOut
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import ProduceRequest
from kproto.records import rows
from tests.consumer.coordinator import Coordinator
from tests.consumer.twins import TWINS

OPTIONS: dict[str, Any] = {"transactional_id": "x", "linger_ms": 0}


@pytest.fixture
def broker() -> Iterator[Coordinator]:
    with Coordinator() as coordinator:
        yield coordinator


@pytest.fixture(params=TWINS)
def make(request: pytest.FixtureRequest, broker: Coordinator) -> Iterator[Callable[..., Any]]:
    """Makes a producer of transactions, of either kind; it is ended with the test."""
    made: list[Any] = []

    def make(**options: Any) -> Any:
        made.append(TWINS[request.param](broker.bootstrap, **OPTIONS, **options))
        return made[-1]

    yield make
    for producer in made:
        end(producer)


def end(producer: Any) -> None:
    getattr(producer, "end", producer.kill)()


def later(what: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Runs it in a thread of its own; what it returns or raises stands in the list then."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(what())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, found


def machine(producer: Any) -> Any:
    return getattr(producer, "producer", producer)._engine.transactions


def until(holds: Callable[[], bool]) -> None:
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.005)


# ---- blocks


def test_a_block_commits_and_an_error_in_it_aborts_and_is_raised(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    with producer.transaction():
        first = producer.send("t", b"a", partition=0)
        producer.send_offsets("g", {TopicPartition("t", 0): 5})
    assert first.result().offset == 0

    def fail() -> None:
        with producer.transaction():
            producer.send("t", b"b", partition=0).result()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert broker.ends() == [True, False]


def test_a_block_whose_commit_fails_aborts_and_raises_why(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    broker.refusals[ProduceRequest] = [87]
    with pytest.raises(BrokerError, match="INVALID_RECORD"), producer.transaction():
        producer.send("t", b"a", partition=0)
    with producer.transaction():
        producer.send("t", b"b", partition=0)
    assert broker.ends() == [False, True]


# ---- who stops waiting


@pytest.mark.parametrize(
    ("what", "asks"), [("begin", InitProducerIdRequest), ("commit", EndTxnRequest), ("abort", EndTxnRequest)]
)
@pytest.mark.parametrize("when", ["before it ended", "after it ended"])
def test_who_stopped_waiting_calls_again_and_is_told_how_it_ended(
    broker: Coordinator, make: Callable[..., Any], what: str, asks: type, when: str
) -> None:
    producer = make()
    if what != "begin":
        producer.begin()
        producer.send("t", b"a", partition=0).result()
    broker.held.add(asks)
    call = getattr(producer, what)
    with pytest.raises(RequestTimedOut, match=rf"^{what}\(\): no answer within 50 ms"):
        call(0.05)
    broker.was_asked(asks)
    waiting = State.naming if what == "begin" else machine(producer).state
    if when == "before it ended":
        thread, found = later(call)
        until(lambda: machine(producer)._wish.waiting)
        broker.let_go(asks)
        thread.join(20)
        assert found == [None]
    else:
        broker.let_go(asks)
        until(lambda: machine(producer).state is not waiting)
        call()
    with pytest.raises(IllegalState):
        call()  # it is told once
    if what == "begin":
        producer.abort()
    producer.begin()


def test_two_who_begin_at_once_do_not_share_a_transaction(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    broker.held.add(InitProducerIdRequest)
    thread, found = later(producer.begin)
    broker.was_asked(InitProducerIdRequest)
    with pytest.raises(IllegalState, match=r"another begin\(\) is under way"):
        producer.begin()
    broker.let_go(InitProducerIdRequest)
    thread.join(20)
    assert found == [None]
    producer.abort()


async def asked(broker: Coordinator, kind: type, times: int = 1) -> None:
    await asyncio.to_thread(broker.was_asked, kind, times)


def test_a_block_that_is_cancelled_aborts_and_raises_that_it_was(broker: Coordinator) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await (await producer.send("t", b"a", partition=0))
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await asked(broker, ProduceRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert broker.ends() == [False]
            async with asyncio.timeout(20), producer.transaction():
                await producer.send("t", b"b", partition=0)
        assert broker.ends() == [False, True]

    asyncio.run(story())


def test_an_abort_that_is_cancelled_goes_on_and_the_task_ends_at_once(broker: Coordinator) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await (await producer.send("t", b"a", partition=0))
                    await asyncio.sleep(60)

            broker.held.add(EndTxnRequest)
            task = asyncio.create_task(work())
            await asked(broker, ProduceRequest)
            task.cancel()
            await asked(broker, EndTxnRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 20)
            broker.let_go(EndTxnRequest)
            await producer.abort()
            assert broker.ends() == [False]
            await producer.begin()

    asyncio.run(story())


def test_a_commit_that_is_cancelled_goes_on_and_the_next_one_tells(broker: Coordinator) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await producer.send("t", b"a", partition=0)

            broker.held.add(EndTxnRequest)
            task = asyncio.create_task(work())
            await asked(broker, EndTxnRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 20)
            with pytest.raises(IllegalState, match=r"being committed; now commit\(\) is what can be done"):
                await producer.begin()
            broker.let_go(EndTxnRequest)
            await producer.commit()
            assert broker.ends() == [True]

    asyncio.run(story())


def test_a_begin_that_is_cancelled_is_the_next_ones(broker: Coordinator) -> None:
    async def story() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:
            broker.held.add(InitProducerIdRequest)
            task = asyncio.create_task(producer.begin())
            await asked(broker, InitProducerIdRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            broker.let_go(InitProducerIdRequest)
            while machine(producer).state is State.naming:
                await asyncio.sleep(0.005)
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert broker.ends() == [True]

    asyncio.run(story())


@pytest.mark.parametrize("steps", range(1, 25))
def test_wherever_a_task_is_cancelled_the_producer_goes_on(broker: Coordinator, steps: int) -> None:
    """Cancelled when the loop has turned so often, whatever it waits for then."""

    async def story() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS, max_block_ms=20_000) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await producer.send("t", b"a", partition=0)
                    producer.send_offsets("g", {TopicPartition("t", 0): 5})

            task = asyncio.create_task(work())
            for _ in range(steps):
                await asyncio.sleep(0.0003)
            task.cancel()
            try:
                await asyncio.wait_for(task, 20)
            except asyncio.CancelledError:
                if machine(producer).state is State.committing:
                    await producer.commit()
            async with producer.transaction():
                last = await producer.send("t", b"b", partition=0)
            assert last.done()

    asyncio.run(story())
    assert broker.ends()[-1] is True


# ---- the end


def test_close_aborts_what_is_open(
    broker: Coordinator, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    producer = make()
    producer.begin()
    sent = producer.send("t", b"a", partition=0)
    sent.result()
    producer.close()
    assert broker.ends() == [False]
    assert "is closed, and aborts the transaction of 'x'" in caplog.text


def test_close_waits_for_a_commit_that_is_under_way(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0)
    broker.held.add(EndTxnRequest)
    committing, committed = later(producer.commit)
    broker.was_asked(EndTxnRequest)
    closing, closed = later(producer.close)
    until(lambda: getattr(producer, "producer", producer)._closed)
    assert not closed
    broker.let_go(EndTxnRequest)
    committing.join(20)
    closing.join(20)
    assert committed == closed == [None]


def test_close_during_a_begin_tells_it(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    broker.held.add(InitProducerIdRequest)
    thread, found = later(producer.begin)
    broker.was_asked(InitProducerIdRequest)
    producer.close()
    thread.join(20)
    assert isinstance(found[0], IllegalState)
    assert "closed" in str(found[0])


@pytest.mark.parametrize("held", [ProduceRequest, EndTxnRequest])
def test_close_keeps_its_time_before_a_broker_that_says_nothing(
    broker: Coordinator, make: Callable[..., Any], held: type
) -> None:
    producer = make()
    producer.begin()
    broker.held.add(held)
    sent = producer.send("t", b"a", partition=0)
    broker.was_asked(ProduceRequest)
    at = time.monotonic()
    producer.close(0.4)
    assert time.monotonic() - at < 4
    assert sent.done()
    with pytest.raises(KprotoError):
        producer.begin()


def test_two_may_close_in_a_transaction_and_both_come_back(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0).result()
    broker.held.add(EndTxnRequest)
    first, one = later(producer.close)
    broker.was_asked(EndTxnRequest)
    second, two = later(producer.close)
    broker.let_go(EndTxnRequest)
    first.join(20)
    second.join(20)
    assert one == two == [None]
    assert broker.ends() == [False]


def test_a_close_that_is_cancelled_ends_the_producer_and_who_waits_for_it(broker: Coordinator) -> None:
    async def story() -> None:
        producer = AsyncProducer(broker.bootstrap, **OPTIONS)
        await producer.begin()
        await (await producer.send("t", b"a", partition=0))
        broker.held.add(EndTxnRequest)
        first = asyncio.create_task(producer.close())
        await asked(broker, EndTxnRequest)
        second = asyncio.create_task(producer.close())
        await asyncio.sleep(0)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        await asyncio.wait_for(second, 20)
        with pytest.raises(IllegalState, match="closed"):
            await producer.begin()

    asyncio.run(story())


@pytest.mark.parametrize("call", ["begin", "commit", "abort"])
def test_kill_tells_who_waits(broker: Coordinator, make: Callable[..., Any], call: str) -> None:
    producer = make()
    if call != "begin":
        producer.begin()
        producer.send("t", b"a", partition=0).result()
    asks: type = InitProducerIdRequest if call == "begin" else EndTxnRequest
    broker.held.add(asks)
    thread, found = later(getattr(producer, call))
    broker.was_asked(asks)
    producer.kill()
    thread.join(20)
    assert isinstance(found[0], IllegalState)
    assert "closed" in str(found[0])
    assert "record" not in str(found[0])


def test_a_broker_that_is_killed_in_a_commit_leaves_nobody_waiting(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make(request_timeout_ms=500, delivery_timeout_ms=1_000)
    producer.begin()
    broker.held.add(EndTxnRequest)
    sent = producer.send("t", b"a", partition=0)
    thread, found = later(lambda: producer.commit(1.5))
    broker.was_asked(EndTxnRequest)
    broker.down()
    thread.join(20)
    assert isinstance(found[0], RequestTimedOut)
    producer.close(0.5)
    assert sent.done()
    with pytest.raises(KprotoError):
        producer.commit()


def test_what_another_thread_sends_during_a_commit_is_in_the_transaction_or_refused(
    broker: Coordinator,
) -> None:
    producer = Producer(broker.bootstrap, **OPTIONS)
    for _ in range(5):
        del broker.asked[:]
        producer.begin()
        sent: list[Any] = []
        ready = threading.Event()

        def send(sent: list[Any] = sent, ready: threading.Event = ready) -> None:
            while True:
                sent.append(producer.send("t", b"x", partition=0))
                ready.set()

        thread, refused = later(send)
        ready.wait(20)
        producer.commit()
        thread.join(20)
        assert isinstance(refused[0], IllegalState)
        assert all(delivery.done() for delivery in sent)
        [at] = [number for number, one in enumerate(broker.asked) if isinstance(one, EndTxnRequest)]
        written = [
            len(rows(entry.records))
            for one in broker.asked[:at]
            if isinstance(one, ProduceRequest)
            for topic in one.topic_data
            for entry in topic.partition_data
        ]
        assert sum(written) == len(sent)
    producer.close()


def test_a_crash_ends_a_commit(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0).result()
    broker.held.add(EndTxnRequest)
    thread, found = later(producer.commit)
    broker.was_asked(EndTxnRequest)
    engine: Any = getattr(producer, "producer", producer)._engine
    engine.metadata.due = lambda: 1 // 0
    broker.let_go(EndTxnRequest)
    thread.join(20)
    assert found == [None] or "failed" in str(found[0])  # the answer may come before the crash
    with pytest.raises(IllegalState, match="failed"):
        producer.begin()


@pytest.mark.parametrize("call", ["abort", "commit", "close", "begin"])
def test_a_callback_may_call_back_in_a_transaction(broker: Coordinator, call: str) -> None:
    producer = Producer(broker.bootstrap, **OPTIONS)
    called: list[object] = []
    over = threading.Event()

    def back(delivery: Any) -> None:
        try:
            called.append(getattr(producer, call)())
        except IllegalState as error:
            called.append(error)
        over.set()

    producer.begin()
    producer.send("t", b"a", partition=0).add_done_callback(back)
    assert over.wait(20)
    if call == "begin":
        assert isinstance(called[0], IllegalState)
    else:
        assert called == [None]
        assert broker.ends() == [call == "commit"]
    producer.close()


@contextmanager
def ctrl_c(moment: int) -> Iterator[None]:
    """At so many places of our code from here where CPython may run a signal handler: in front of a
    function's first line, and behind calls."""
    left = moment

    def count(frame: Any, event: str, what: Any) -> None:
        nonlocal left
        if event != "c_call" and "/consumer/" in frame.f_code.co_filename:
            left -= 1
            if not left:
                raise KeyboardInterrupt

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_ctrl_c_anywhere_in_a_close_leaves_it_to_the_next_one(broker: Coordinator, first: int) -> None:
    for moment in range(first, 200, 4):
        producer = Producer(broker.bootstrap, **OPTIONS)
        producer.begin()
        sent = producer.send("t", b"a", partition=0)
        interrupted = True
        with suppress(KeyboardInterrupt), ctrl_c(moment):
            producer.close()
            interrupted = False
        at = time.monotonic()
        producer.close()
        assert time.monotonic() - at < 10
        assert sent.done()
        assert not producer._thread.is_alive()
        if not interrupted:
            break
    assert moment > 20


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("first", [1, 2, 3, 4])
def test_ctrl_c_anywhere_in_a_transaction_leaves_the_producer_open_to_the_next(
    broker: Coordinator, first: int
) -> None:
    with Producer(broker.bootstrap, **OPTIONS, max_block_ms=20_000) as producer:
        for moment in range(first, 400, 4):
            interrupted = True
            with suppress(KeyboardInterrupt), ctrl_c(moment):
                with producer.transaction():
                    producer.send("t", b"a", partition=0)
                interrupted = False
            if machine(producer).state in (State.committing, State.aborting):
                getattr(producer, machine(producer)._wish.what)()
            elif machine(producer).state is State.open and machine(producer)._wish.told:
                producer.abort()  # between the block's begin and its first line
            with producer.transaction():
                last = producer.send("t", b"b", partition=0)
            assert last.done()
            if not interrupted:
                break
        assert moment > 20
