"""How producers end that write in transactions: closed, killed, interrupted, forked, left behind. Threads,
event loops, sockets and processes are real here, and the broker is a script."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from consumer import AsyncProducer, Producer
from consumer.engine.producer.transaction_states import ProducerTransactionState
from kproto.error_codes import ErrorCode
from kproto.errors import Fenced, IllegalState, KprotoError, RequestTimedOut
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import ProduceRequest
from kproto.records import rows
from tests.consumer.producers import OPTIONS, broker, ctrl_c, later, machine, make, until
from tests.consumer.scripted_coordinator import Coordinator

__all__ = ["broker", "make"]


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
    until(lambda: getattr(producer, "producer", producer)._runtime.closing)
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


def test_close_tells_that_a_commit_is_not_over(broker: Coordinator, make: Callable[..., Any]) -> None:
    """The one who called it went away before: nobody else would hear of it."""
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0)
    broker.held.add(EndTxnRequest)
    with pytest.raises(RequestTimedOut):
        producer.commit(0.2)
    with pytest.raises(RequestTimedOut, match=r"commit\(\).*the transaction is being committed"):
        producer.close(0.4)
    with pytest.raises(IllegalState):
        producer.begin()
    producer.close()  # once


def test_close_tells_what_a_commit_failed_by_meanwhile(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0)
    broker.held.add(EndTxnRequest)
    broker.refusals[EndTxnRequest] = [ErrorCode.PRODUCER_FENCED]
    with pytest.raises(RequestTimedOut):
        producer.commit(0.2)
    broker.let_go(EndTxnRequest)
    until(lambda: machine(producer).state is ProducerTransactionState.FATAL_ERROR)
    with pytest.raises(Fenced):
        producer.close()


def test_close_tells_nothing_of_a_commit_that_somebody_waits_for(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0)
    broker.held.add(EndTxnRequest)
    committing, committed = later(producer.commit)
    broker.was_asked(EndTxnRequest)
    producer.close(0.4)
    committing.join(20)
    assert isinstance(committed[0], IllegalState)


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
        await asyncio.to_thread(broker.was_asked, EndTxnRequest)
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
    with pytest.raises(RequestTimedOut):
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
            for request in broker.asked[:at]
            if isinstance(request, ProduceRequest)
            for topic in request.topic_data
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
    engine: Any = getattr(producer, "producer", producer)._runtime.engine
    engine.metadata.due = lambda: 1 // 0
    broker.let_go(EndTxnRequest)
    thread.join(20)
    assert found == [None] or "failed" in str(found[0])  # the answer may come before the crash
    until(lambda: bool(engine.records.closed))  # which comes, but a begin might need no broker before
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
        assert not producer._runtime.thread.is_alive()
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
            if machine(producer).state in (
                ProducerTransactionState.COMMITTING_TRANSACTION,
                ProducerTransactionState.ABORTING_TRANSACTION,
            ):
                getattr(producer, machine(producer).current_call.name)()
            elif (
                machine(producer).state is ProducerTransactionState.IN_TRANSACTION
                and machine(producer).current_call.reported
            ):
                producer.abort()  # between the block's begin and its first line
            with producer.transaction():
                last = producer.send("t", b"b", partition=0)
            assert last.done()
            if not interrupted:
                break
        assert moment > 20


# ---- processes


def in_a_child(act: Callable[[], object]) -> str:
    """What it says in a child of a fork: the error's words, or "nothing"."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        told = "nothing"
        try:
            act()
        except BaseException as error:
            told = f"{type(error).__name__}: {error}"
        os.write(writes, told.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        return pipe.read().decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_in_a_transaction_leaves_it_to_the_parent(broker: Coordinator) -> None:
    with Producer(broker.bootstrap, **OPTIONS) as producer:
        with producer.transaction():
            producer.send("t", b"a", partition=0).result()
            for call in (producer.commit, producer.abort, lambda: producer.send("t", b"b")):
                assert "before the process forked and belongs to the parent" in in_a_child(call)
            for call in (producer.close, lambda: producer.__exit__(None, None, None)):
                assert in_a_child(call) == "nothing"
            assert "SystemExit" in in_a_child(lambda: leave(producer))
            assert broker.ends() == []
        assert broker.ends() == [True]


def leave(producer: Producer) -> None:
    """Ends the process in a block of its own."""
    block = producer.transaction()
    try:
        sys.exit(3)
    except BaseException as error:
        block.__exit__(type(error), error, None)
        raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_in_an_asyncio_transaction_leaves_it_to_the_parent(broker: Coordinator) -> None:
    def pushed(story: Any) -> None:
        with suppress(StopIteration):
            story.send(None)

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer, producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            told = in_a_child(lambda: pushed(producer.commit()))
            assert "before the process forked and belongs to the parent" in told
            assert in_a_child(lambda: pushed(producer.close())) == "nothing"

    asyncio.run(main())
    assert broker.ends() == [True]


LEFT = """
from consumer import Producer
producer = Producer({place!r}, transactional_id="x", linger_ms=0)
producer.begin()
producer.send("t", b"x").result()
"""
LEFT_IN_A_TASK = """
import asyncio
from consumer import AsyncProducer
async def main():
    producer = AsyncProducer({place!r}, transactional_id="x", linger_ms=0)
    await producer.begin()
    await (await producer.send("t", b"x"))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "told", "ends"),
    [
        (LEFT, "the producer is closed, and aborts the transaction of 'x'", [False]),
        (LEFT_IN_A_TASK, "was not closed, and the transaction of 'x' stays open for up to 60 s", []),
    ],
)
def test_a_process_that_ends_in_a_transaction_says_so(
    broker: Coordinator, code: str, told: str, ends: list[bool]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code.format(place=broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert broker.ends() == ends


def test_a_loop_that_ends_in_a_block_aborts(broker: Coordinator) -> None:
    """As `asyncio.run` does at Ctrl-C: it cancels the task, and waits for it."""

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer, producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    # Who was started in the background by a shell ignores it.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert broker.ends() == [False]
