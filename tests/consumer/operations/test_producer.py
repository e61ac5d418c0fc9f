"""Operations of producers reject invalid calls, and pass valid calls to the engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from consumer import AsyncProducer, Producer, TopicPartition, clock
from consumer.engine.producer.transaction_states import ProducerTransactionState
from consumer.operations.producer import ProducerOperations
from consumer.runtime import run_to_end
from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut

NOWHERE = "127.0.0.1:1"
T0 = TopicPartition("t", 0)
WAITING: dict[str, Callable[[Any], Any]] = {
    "abort": lambda producer: producer.abort(1),
    "begin": lambda producer: producer.begin(1),
    "close": lambda producer: producer.close(1),
    "commit": lambda producer: producer.commit(1),
    "flush": lambda producer: producer.flush(1),
    "purge": lambda producer: producer.purge(),
    "send_columns": lambda producer: producer.send_columns("t", {"value": [b"x"]}),
}


def transactional_producer() -> Producer:
    return Producer(NOWHERE, transactional_id="x", max_block_ms=50)


@pytest.mark.parametrize("method", WAITING)
def test_a_method_that_waits_is_rejected_in_a_signal_handler_that_interrupted_a_call(method: str) -> None:
    """The method raises IllegalState instead of waiting for the lock.

    The interrupted call holds the lock until the signal handler returns, so waiting for it would never end.
    """
    producer = transactional_producer()
    try:
        with producer._runtime.locked(), pytest.raises(IllegalState, match="a signal handler interrupted"):
            WAITING[method](producer)
    finally:
        producer.close(1)


@pytest.mark.parametrize("method", WAITING)
def test_a_method_of_an_asyncio_producer_is_rejected_in_another_event_loop(method: str) -> None:
    async def start() -> AsyncProducer:
        producer = AsyncProducer(NOWHERE, transactional_id="x", max_block_ms=50)
        await producer.__aenter__()
        return producer

    async def call(producer: AsyncProducer) -> None:
        with pytest.raises(IllegalState, match="event loop"):
            await WAITING[method](producer)

    loop = asyncio.new_event_loop()
    try:
        producer = loop.run_until_complete(start())
        asyncio.run(call(producer))
        loop.run_until_complete(producer.close(1))
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("begin", lambda producer: producer.begin(1)),
        ("commit", lambda producer: producer.commit(1)),
        ("abort", lambda producer: producer.abort(1)),
        ("send_offsets", lambda producer: producer.send_offsets("g", {T0: 1})),
    ],
)
def test_a_method_of_transactions_names_the_option_that_is_missing(
    method: str, call: Callable[[Producer], Any]
) -> None:
    message = rf"{method}\(\) needs a producer with the option transactional_id"
    with Producer(NOWHERE) as producer, pytest.raises(IllegalState, match=message):
        call(producer)


def test_purge_is_rejected_in_transactions_and_after_close() -> None:
    producer = transactional_producer()
    with pytest.raises(IllegalState, match=r"only some of its records; call abort\(\)"):
        producer.purge()
    producer.close(1)
    plain = Producer(NOWHERE)
    assert plain.purge() == 0
    plain.close(1)
    with pytest.raises(IllegalState, match="is closed"):
        plain.purge()


def test_columns_need_partitions_if_the_producer_has_a_partitioner() -> None:
    with (
        Producer(NOWHERE, partitioner=lambda topic, key, value, partitions, available: 0) as producer,
        pytest.raises(ConfigError, match="send_columns does not call the partitioner"),
    ):
        producer.send_columns("t", {"value": [b"x"]})


def test_an_operation_without_a_broker_ends_after_its_timeout() -> None:
    producer = Producer(NOWHERE, max_block_ms=50, transactional_id="x")
    with pytest.raises(RequestTimedOut, match=r"begin\(\): no answer within 50 ms"):
        producer.begin()
    with pytest.raises(RequestTimedOut, match=r"begin\(\): no answer within 70 ms"):
        producer.begin(0.07)
    producer.close(1)


def test_the_callbacks_of_events_and_the_offsets_of_a_transaction_are_passed_on() -> None:
    changes: list[Any] = []
    with Producer(NOWHERE) as producer:
        producer.events(changes.append)
        assert producer._runtime.event_callbacks == [changes.append]
        assert producer.metrics()


def test_an_abort_that_fails_after_an_error_in_the_block_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    producer = transactional_producer()
    operations = producer._operations
    transactions: Any = operations.runtime.engine.transactions
    transactions.state, transactions.started = ProducerTransactionState.IN_TRANSACTION, True
    try:
        with pytest.raises(ValueError, match="from the block"):
            run_to_end(raise_after_abort(operations))
        (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
        message = (
            "the transaction of 'x' was not aborted after ValueError('from the block'): abort(): no answer"
        )
        assert record.getMessage().startswith(message)
    finally:
        producer.kill()


async def raise_after_abort(operations: ProducerOperations) -> None:
    error = ValueError("from the block")
    await operations.end_block(error)
    raise error


@pytest.mark.parametrize("timeout", [None, 0.06])
def test_flush_and_close_end_after_their_timeout_or_that_of_deliveries(timeout: float | None) -> None:
    producer = Producer(NOWHERE, delivery_timeout_ms=100, request_timeout_ms=50, linger_ms=0, max_block_ms=20)
    limit = 1_100 if timeout is None else 60
    assert producer._operations._timeout_ms(timeout) == limit
    producer.close(1)


def test_waits_for_room_count_the_time_that_the_send_has_already_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer(NOWHERE, max_block_ms=80)
    operations, deadlines = producer._operations, list[int]()

    async def wait(last_change: int, deadline: int) -> bool:
        deadlines.append(deadline - clock.now())
        return False

    monkeypatch.setattr(operations.runtime, "wait", wait)
    try:
        for waited_ms in (0, 50, 500):
            with pytest.raises(RequestTimedOut):
                run_to_end(operations.retry_until_ready(lambda: None, waited_ms))
    finally:
        producer.kill()
    assert 40 < deadlines[0] <= 80
    assert 10 < deadlines[1] <= 30
    assert -30 < deadlines[2] <= 0


def test_a_close_that_ctrl_c_interrupted_at_its_end_is_completed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    producer = Producer(NOWHERE)
    runtime: Any = producer._runtime

    def interrupted(deadline: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "shut_down", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.close(1)
    assert not runtime.ended
    producer.close(1)
    assert runtime.ended


def test_close_raises_the_error_of_a_commit_and_logs_that_of_the_records(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(NOWHERE)

    async def leave_transaction(limit: int, deadline: int) -> KprotoError | None:
        return failure

    async def flush(limit: int, deadline: int) -> None:
        raise KprotoError("2 records were not sent")

    monkeypatch.setattr(producer._operations, "_end_transaction", leave_transaction)
    monkeypatch.setattr(producer._operations, "_flush", flush)
    failure: KprotoError | None = KprotoError("the commit failed")
    with pytest.raises(KprotoError, match="the commit failed"):
        producer.close(1)
    assert [record.getMessage() for record in caplog.records] == ["and: 2 records were not sent"]
    assert producer._runtime.ended


@pytest.mark.parametrize("stalled_partition", [None, T0])
def test_of_the_sends_that_wait_for_memory_or_for_a_partition_a_change_wakes_one(
    stalled_partition: TopicPartition | None,
) -> None:
    """If each change woke all waiting sends, sends to other partitions would become slow."""

    async def main() -> None:
        producer = AsyncProducer(NOWHERE, max_block_ms=60_000)
        records, attempts, ready = producer._records, 0, False

        def attempt() -> bool | None:
            nonlocal attempts
            attempts += 1
            records.waits_for_memory, records.stalled_partition = True, stalled_partition
            return True if ready else None

        sends = [asyncio.create_task(producer._operations.retry_until_ready(attempt)) for _ in range(100)]
        for _ in range(20):
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            producer._runtime.notify()
        assert attempts <= 100 + 20
        ready = True
        producer._runtime.notify()
        assert await asyncio.wait_for(asyncio.gather(*sends), 30) == [True] * 100
        assert attempts <= 100 + 20 + 100
        producer.kill()

    asyncio.run(main())
