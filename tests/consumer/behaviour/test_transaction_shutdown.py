"""A transactional producer aborts or reports its transaction when it is closed, killed or interrupted.

Threads, event loops, sockets and processes are real. The coordinator is scripted.
"""

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


# ---- close, kill and crashes


def test_close_aborts_an_open_transaction(
    broker: Coordinator, make: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    producer = make()
    producer.begin()
    sent = producer.send("t", b"a", partition=0)
    sent.result()
    producer.close()
    assert broker.ends() == [False]
    assert "is closed, and aborts the transaction of 'x'" in caplog.text


def test_close_waits_for_a_commit_in_progress(broker: Coordinator, make: Callable[..., Any]) -> None:
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


def test_close_during_begin_fails_the_begin(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    broker.held.add(InitProducerIdRequest)
    thread, results = later(producer.begin)
    broker.was_asked(InitProducerIdRequest)
    producer.close()
    thread.join(20)
    assert isinstance(results[0], IllegalState)
    assert "closed" in str(results[0])


@pytest.mark.parametrize("held_request", [ProduceRequest, EndTxnRequest])
def test_close_keeps_its_timeout_with_a_silent_broker(
    broker: Coordinator, make: Callable[..., Any], held_request: type
) -> None:
    producer = make()
    producer.begin()
    broker.held.add(held_request)
    sent = producer.send("t", b"a", partition=0)
    broker.was_asked(ProduceRequest)
    closed_at = time.monotonic()
    producer.close(0.4)
    assert time.monotonic() - closed_at < 15
    assert sent.done()
    with pytest.raises(KprotoError):
        producer.begin()


def test_close_reports_a_commit_in_progress(broker: Coordinator, make: Callable[..., Any]) -> None:
    """`close` reports a commit that is still pending after the call of `commit` has timed out."""
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
    producer.close()  # It is reported once.


def test_close_raises_the_error_of_a_commit_that_timed_out(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
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


def test_close_does_not_report_a_commit_that_another_thread_waits_for(
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


def test_two_threads_may_close_in_a_transaction(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    producer.begin()
    producer.send("t", b"a", partition=0).result()
    broker.held.add(EndTxnRequest)
    first, first_result = later(producer.close)
    broker.was_asked(EndTxnRequest)
    second, second_result = later(producer.close)
    broker.let_go(EndTxnRequest)
    first.join(20)
    second.join(20)
    assert first_result == second_result == [None]
    assert broker.ends() == [False]


def test_a_cancelled_close_ends_the_producer_and_other_calls_of_close(broker: Coordinator) -> None:
    async def main() -> None:
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

    asyncio.run(main())


@pytest.mark.parametrize("call", ["begin", "commit", "abort"])
def test_kill_fails_a_call_in_progress(broker: Coordinator, make: Callable[..., Any], call: str) -> None:
    producer = make()
    if call != "begin":
        producer.begin()
        producer.send("t", b"a", partition=0).result()
    request_type: type = InitProducerIdRequest if call == "begin" else EndTxnRequest
    broker.held.add(request_type)
    thread, results = later(getattr(producer, call))
    broker.was_asked(request_type)
    producer.kill()
    thread.join(20)
    assert isinstance(results[0], IllegalState)
    assert "closed" in str(results[0])
    assert "record" not in str(results[0])


def test_a_broker_that_stops_during_a_commit_ends_the_call_with_a_timeout(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make(request_timeout_ms=500, delivery_timeout_ms=1_000)
    producer.begin()
    broker.held.add(EndTxnRequest)
    sent = producer.send("t", b"a", partition=0)
    thread, results = later(lambda: producer.commit(1.5))
    broker.was_asked(EndTxnRequest)
    broker.down()
    thread.join(20)
    assert isinstance(results[0], RequestTimedOut)
    with pytest.raises(RequestTimedOut):
        producer.close(0.5)
    assert sent.done()
    with pytest.raises(KprotoError):
        producer.commit()


def test_a_concurrent_send_during_a_commit_is_in_the_transaction_or_raises(
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

        thread, results = later(send)
        ready.wait(20)
        producer.commit()
        thread.join(20)
        assert isinstance(results[0], IllegalState)
        assert all(delivery.done() for delivery in sent)
        [end_index] = [
            number for number, received in enumerate(broker.asked) if isinstance(received, EndTxnRequest)
        ]
        written = [
            len(rows(entry.records))
            for request in broker.asked[:end_index]
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
    thread, results = later(producer.commit)
    broker.was_asked(EndTxnRequest)
    engine: Any = getattr(producer, "producer", producer)._runtime.engine
    engine.metadata.due = lambda: 1 // 0
    broker.let_go(EndTxnRequest)
    thread.join(20)
    # If the response arrives before the crash, the commit succeeds.
    assert results == [None] or "failed" in str(results[0])
    # Wait for the crash: a `begin` before the crash might succeed, because it may need no request.
    until(lambda: bool(engine.records.why_closed))
    with pytest.raises(IllegalState, match="failed"):
        producer.begin()


@pytest.mark.parametrize("call", ["abort", "commit", "close", "begin"])
def test_a_callback_may_end_a_transaction(broker: Coordinator, call: str) -> None:
    producer = Producer(broker.bootstrap, **OPTIONS)
    called: list[object] = []
    done = threading.Event()

    def on_delivered(delivery: Any) -> None:
        try:
            called.append(getattr(producer, call)())
        except IllegalState as error:
            called.append(error)
        done.set()

    producer.begin()
    producer.send("t", b"a", partition=0).add_done_callback(on_delivered)
    assert done.wait(20)
    if call == "begin":
        assert isinstance(called[0], IllegalState)
    else:
        assert called == [None]
        assert broker.ends() == [call == "commit"]
    producer.close()


# Moment n is the n-th point at which a signal handler may run. A test interrupts at every fourth moment,
# starting with one of `FIRST_MOMENTS`. The quick tests start with 1 and 3.
FIRST_MOMENTS = [1, 3, *(pytest.param(first, marks=pytest.mark.thorough) for first in (2, 4))]


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("first", FIRST_MOMENTS)
def test_ctrl_c_anywhere_in_close_allows_a_second_close(broker: Coordinator, first: int) -> None:
    for moment in range(first, 200, 4):
        producer = Producer(broker.bootstrap, **OPTIONS)
        producer.begin()
        sent = producer.send("t", b"a", partition=0)
        interrupted = True
        with suppress(KeyboardInterrupt), ctrl_c(moment):
            producer.close()
            interrupted = False
        closed_at = time.monotonic()
        producer.close()
        assert time.monotonic() - closed_at < 10
        assert sent.done()
        assert not producer._runtime.thread.is_alive()
        if not interrupted:
            break
    assert moment > 20


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("first", FIRST_MOMENTS)
def test_ctrl_c_anywhere_in_a_transaction_leaves_the_producer_usable(broker: Coordinator, first: int) -> None:
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
                # The interrupt came between the end of `begin` and the first line of the block. The
                # transaction is not aborted yet.
                producer.abort()
            with producer.transaction():
                last = producer.send("t", b"b", partition=0)
            assert last.done()
            if not interrupted:
                break
        assert moment > 20


# ---- processes


def outcome_in_child(act: Callable[[], object]) -> str:
    """Run `act` in a forked child process, and return the text of its error, or "nothing"."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        outcome = "nothing"
        try:
            act()
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        os.write(writes, outcome.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        return pipe.read().decode()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_in_a_transaction_leaves_it_to_the_parent(broker: Coordinator) -> None:
    with Producer(broker.bootstrap, **OPTIONS) as producer:
        with producer.transaction():
            producer.send("t", b"a", partition=0).result()
            for call in (producer.commit, producer.abort, lambda: producer.send("t", b"b")):
                assert "before the process forked and belongs to the parent" in outcome_in_child(call)
            for call in (producer.close, lambda: producer.__exit__(None, None, None)):
                assert outcome_in_child(call) == "nothing"
            assert "SystemExit" in outcome_in_child(lambda: exit_in_transaction(producer))
            assert broker.ends() == []
        assert broker.ends() == [True]


def exit_in_transaction(producer: Producer) -> None:
    """Leave a transaction block with the SystemExit that sys.exit() raises."""
    block = producer.transaction()
    try:
        sys.exit(3)
    except BaseException as error:
        block.__exit__(type(error), error, None)
        raise


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_in_an_asyncio_transaction_leaves_it_to_the_parent(broker: Coordinator) -> None:
    def run_until_first_await(main: Any) -> None:
        with suppress(StopIteration):
            main.send(None)

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer, producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            message = outcome_in_child(lambda: run_until_first_await(producer.commit()))
            assert "before the process forked and belongs to the parent" in message
            assert outcome_in_child(lambda: run_until_first_await(producer.close())) == "nothing"

    asyncio.run(main())
    assert broker.ends() == [True]


ABANDON = """
from consumer import Producer
producer = Producer({place!r}, transactional_id="x", linger_ms=0)
producer.begin()
producer.send("t", b"x").result()
"""
ABANDON_IN_A_TASK = """
import asyncio
from consumer import AsyncProducer
async def main():
    producer = AsyncProducer({place!r}, transactional_id="x", linger_ms=0)
    await producer.begin()
    await (await producer.send("t", b"x"))
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("code", "message", "ends"),
    [
        (ABANDON, "the producer is closed, and aborts the transaction of 'x'", [False]),
        (ABANDON_IN_A_TASK, "was not closed, and the transaction of 'x' stays open for up to 60 s", []),
    ],
)
def test_a_process_that_ends_in_a_transaction_reports_it(
    broker: Coordinator, code: str, message: str, ends: list[bool]
) -> None:
    process = subprocess.run(
        [sys.executable, "-c", code.format(place=broker.bootstrap)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert message in process.stderr
    assert "Traceback" not in process.stderr
    assert broker.ends() == ends


def test_a_loop_that_ends_in_a_transaction_aborts_it(broker: Coordinator) -> None:
    """On Ctrl-C, `asyncio.run` cancels the main task and waits for it. The transaction of the task is then
    aborted.
    """

    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer, producer.transaction():
            await (await producer.send("t", b"a", partition=0))
            signal.raise_signal(signal.SIGINT)
            await asyncio.sleep(60)

    # If a shell has started this process in the background, SIGINT is ignored until a handler is set.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert broker.ends() == [False]
