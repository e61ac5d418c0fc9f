"""A `with` block of a transactional producer commits, or aborts after an error, timeout or cancellation.

Threads, event loops and sockets are real. The coordinator is scripted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from consumer import AsyncProducer, TopicPartition
from consumer.engine.producer.transaction_states import ProducerTransactionState
from kproto.error_codes import ErrorCode
from kproto.errors import BrokerError, Fenced, IllegalState, RequestTimedOut, UnknownTopic
from kproto.messages.end_txn import EndTxnRequest
from kproto.messages.init_producer_id import InitProducerIdRequest
from kproto.messages.produce import ProduceRequest
from tests.consumer.producers import OPTIONS, broker, later, machine, make, until
from tests.consumer.scripted_coordinator import Coordinator

__all__ = ["broker", "make"]


# ---- blocks


def test_a_block_commits_and_an_error_in_it_aborts(broker: Coordinator, make: Callable[..., Any]) -> None:
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


def test_a_block_whose_commit_fails_aborts_and_raises_the_reason(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    broker.refusals[ProduceRequest] = [87]
    with pytest.raises(BrokerError, match="INVALID_RECORD"), producer.transaction():
        producer.send("t", b"a", partition=0)
    with producer.transaction():
        producer.send("t", b"b", partition=0)
    assert broker.ends() == [False, True]


def test_a_transaction_continues_without_a_record_that_send_rejected(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make(max_request_size=1_000)
    with producer.transaction():
        first = producer.send("t", b"a", partition=0)
        with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
            producer.send("t", bytes(2_000), partition=0)
        with pytest.raises(UnknownTopic, match="t-99"):
            producer.send("t", b"b", partition=99)
    assert first.result().offset == 0
    assert broker.ends() == [True]


def test_empty_offsets_have_no_effect(broker: Coordinator, make: Callable[..., Any]) -> None:
    producer = make()
    with producer.transaction():
        producer.send_offsets("g", {})
    with producer.transaction():
        producer.send("t", b"a", partition=0)
        producer.send_offsets("g", {})
    assert broker.ends() == [True]


def test_a_transaction_that_the_broker_aborted_raises_and_ends_the_producer(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    broker.refusals[EndTxnRequest] = [ErrorCode.INVALID_TXN_STATE]
    message = "the broker has aborted this transaction, as it does after transaction_timeout_ms"
    with pytest.raises(BrokerError, match=message), producer.transaction():
        producer.send("t", b"a", partition=0)
    with pytest.raises(BrokerError, match="create a new one"):
        producer.begin()


@pytest.mark.parametrize("waits_for_delivery", [False, True])
def test_a_block_of_a_fenced_producer_raises_fenced(
    broker: Coordinator, make: Callable[..., Any], waits_for_delivery: bool
) -> None:
    """The response to the abort distinguishes a fenced producer from a transaction timeout.

    The partition leaders answer INVALID_PRODUCER_EPOCH to both kinds of producers.
    """
    producer = make()
    broker.refusals[ProduceRequest] = [ErrorCode.INVALID_PRODUCER_EPOCH]
    broker.refusals[EndTxnRequest] = [ErrorCode.PRODUCER_FENCED]

    def work() -> None:
        with producer.transaction():
            sent = producer.send("t", b"a", partition=0)
            if waits_for_delivery:
                sent.result()

    with pytest.raises(Fenced) as error_info:
        work()
    assert "INVALID_PRODUCER_EPOCH" in str(error_info.value.__cause__)
    assert "create a new one" in error_info.value.__notes__[0]


# ---- timeouts and cancellation


@pytest.mark.parametrize(
    ("method", "request_type"),
    [("begin", InitProducerIdRequest), ("commit", EndTxnRequest), ("abort", EndTxnRequest)],
)
@pytest.mark.parametrize("when", ["before it ended", "after it ended"])
def test_repeating_a_call_that_timed_out_returns_its_result(
    broker: Coordinator, make: Callable[..., Any], method: str, request_type: type, when: str
) -> None:
    producer = make()
    if method != "begin":
        producer.begin()
        producer.send("t", b"a", partition=0).result()
    broker.held.add(request_type)
    call = getattr(producer, method)
    with pytest.raises(RequestTimedOut, match=rf"^{method}\(\): no answer within 50 ms"):
        call(0.05)
    broker.was_asked(request_type)
    waiting = ProducerTransactionState.INITIALIZING if method == "begin" else machine(producer).state
    if when == "before it ended":
        thread, results = later(call)
        until(lambda: machine(producer).current_call.waiting)
        broker.let_go(request_type)
        thread.join(20)
        assert results == [None]
    else:
        broker.let_go(request_type)
        until(lambda: machine(producer).state is not waiting)
        call()
    with pytest.raises(IllegalState):
        call()  # The result was already returned, so another call is rejected.
    if method == "begin":
        producer.abort()
    producer.begin()


def test_two_concurrent_begins_do_not_share_a_transaction(
    broker: Coordinator, make: Callable[..., Any]
) -> None:
    producer = make()
    broker.held.add(InitProducerIdRequest)
    thread, results = later(producer.begin)
    broker.was_asked(InitProducerIdRequest)
    with pytest.raises(IllegalState, match=r"another thread or task has called begin\(\)"):
        producer.begin()
    broker.let_go(InitProducerIdRequest)
    thread.join(20)
    assert results == [None]
    producer.abort()


async def wait_for_request(broker: Coordinator, kind: type, times: int = 1) -> None:
    await asyncio.to_thread(broker.was_asked, kind, times)


def test_a_cancelled_block_aborts_and_raises_cancelled_error(broker: Coordinator) -> None:
    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await (await producer.send("t", b"a", partition=0))
                    await asyncio.sleep(60)

            task = asyncio.create_task(work())
            await wait_for_request(broker, ProduceRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert broker.ends() == [False]
            async with asyncio.timeout(20), producer.transaction():
                await producer.send("t", b"b", partition=0)
        assert broker.ends() == [False, True]

    asyncio.run(main())


def test_a_cancelled_abort_continues_in_the_background(broker: Coordinator) -> None:
    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await (await producer.send("t", b"a", partition=0))
                    await asyncio.sleep(60)

            broker.held.add(EndTxnRequest)
            task = asyncio.create_task(work())
            await wait_for_request(broker, ProduceRequest)
            task.cancel()
            await wait_for_request(broker, EndTxnRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 20)
            broker.let_go(EndTxnRequest)
            await producer.abort()
            assert broker.ends() == [False]
            await producer.begin()

    asyncio.run(main())


def test_a_cancelled_commit_continues_and_the_next_call_returns_its_result(broker: Coordinator) -> None:
    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:

            async def work() -> None:
                async with producer.transaction():
                    await producer.send("t", b"a", partition=0)

            broker.held.add(EndTxnRequest)
            task = asyncio.create_task(work())
            await wait_for_request(broker, EndTxnRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(task, 20)
            with pytest.raises(IllegalState, match=r"being committed; allowed now: commit\(\)"):
                await producer.begin()
            broker.let_go(EndTxnRequest)
            await producer.commit()
            assert broker.ends() == [True]

    asyncio.run(main())


def test_a_cancelled_begin_is_resumed_by_the_next_one(broker: Coordinator) -> None:
    async def main() -> None:
        async with AsyncProducer(broker.bootstrap, **OPTIONS) as producer:
            broker.held.add(InitProducerIdRequest)
            task = asyncio.create_task(producer.begin())
            await wait_for_request(broker, InitProducerIdRequest)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            broker.let_go(InitProducerIdRequest)
            while machine(producer).state is ProducerTransactionState.INITIALIZING:
                await asyncio.sleep(0.005)
            async with producer.transaction():
                await producer.send("t", b"a", partition=0)
        assert broker.ends() == [True]

    asyncio.run(main())


@pytest.mark.parametrize("steps", range(1, 25))
def test_a_producer_works_after_a_cancellation_at_any_step(broker: Coordinator, steps: int) -> None:
    """A producer works after a task that uses it was cancelled, whatever the task was waiting for.

    The task is cancelled after `steps` short sleeps.
    """

    async def main() -> None:
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
                if machine(producer).state is ProducerTransactionState.COMMITTING_TRANSACTION:
                    await producer.commit()
            async with producer.transaction():
                last = await producer.send("t", b"b", partition=0)
            assert last.done()

    asyncio.run(main())
    assert broker.ends()[-1] is True
