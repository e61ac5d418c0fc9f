"""Each record of a producer is delivered or fails, whatever callbacks, signals, deadlines and close do."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from random import Random
from typing import Any

import pytest

from consumer import AsyncProducer, Consumer, Delivery, Producer, TopicPartition
from consumer.aio.producer_runtime import _on_timer
from consumer.clock import now
from consumer.engine.network.transport import Write
from kproto.broker.server import running
from kproto.errors import BrokerError, ConfigError, IllegalState, NotDelivered, RequestTimedOut, UnknownTopic

# The linger time is so long that only `flush` sends batches, even if the test is slow.
WAITS: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 100_000}
SLOW: dict[str, Any] = {"linger_ms": 0, "request_timeout_ms": 500, "delivery_timeout_ms": 800}


class Server:
    """An embedded broker that a test can stop."""

    def __init__(self) -> None:
        self.ending = ExitStack()
        self.bootstrap = self.ending.enter_context(running(topics={"t": 2, "one": 1})).bootstrap

    def stop(self) -> None:
        self.ending.close()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def broker(server: Server) -> str:
    return server.bootstrap


def values(broker: str, count: int, topic: str = "t") -> list[bytes]:
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(2 if topic == "t" else 1)])
        received: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(received) < count and time.monotonic() < deadline:
            received += [record.value or b"" for record in consumer.poll(0.2)]
        received += [record.value or b"" for record in consumer.poll(0.2)]
    return received


def call_within(seconds: float, call: Callable[[], Any]) -> Any:
    """Run `call` in another thread, and return its result or its exception. Fail if it takes longer than
    `seconds`.
    """
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert results, f"the call did not return within {seconds} s"
    return results[0]


# ---- callbacks


@pytest.mark.parametrize("method", ["send", "result", "flush", "close"])
def test_a_callback_may_call_the_producer(broker: str, method: str) -> None:
    done = threading.Event()
    results: list[object] = []
    producer = Producer(broker)

    def on_delivered(delivery: Delivery) -> None:
        if method == "send":
            results.append(producer.send("t", b"2"))
        elif method == "result":
            results.append(producer.send("t", b"2").result(5))
        elif method == "flush":
            results.append(producer.flush(5))
        else:
            results.append(producer.close(5))
        done.set()

    producer.send("t", b"1").add_done_callback(on_delivered)
    assert done.wait(5)
    assert call_within(5, lambda: producer.close(3)) is None
    assert values(broker, 1)[0] == b"1"
    assert len(results) == 1


def test_a_callback_that_raises_is_logged_and_affects_no_other_delivery(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(broker, linger_ms=20) as producer:
        sent = [producer.send("t", b"%d" % number) for number in range(500)]
        on_delivered: list[Delivery] = []
        sent[0].add_done_callback(lambda delivery: 1 // 0)
        sent[1].add_done_callback(on_delivered.append)
        sent += [producer.send("t", b"%d" % number) for number in range(500)]
        assert [delivery.result(10).offset is not None for delivery in sent] == [True] * 1000
    assert on_delivered == [sent[1]]
    assert "ZeroDivisionError" in caplog.text


def test_a_callback_that_never_returns_blocks_no_record(broker: str) -> None:
    release = threading.Event()
    producer = Producer(broker)
    producer.send("t", b"1").add_done_callback(lambda delivery: release.wait(30))
    assert producer.send("t", b"2").result(5).offset is not None
    producer.flush(5)
    assert call_within(5, lambda: producer.close(1.5)) is None
    release.set()


def test_close_returns_after_all_callbacks(broker: str) -> None:
    on_delivered: list[int] = []

    def slow(delivery: Delivery) -> None:
        time.sleep(0.02)
        on_delivered.append(1)

    with Producer(broker) as producer:
        for _ in range(10):
            producer.send("t", b"x").add_done_callback(slow)
    assert len(on_delivered) == 10


def ctrl_c(delivery: Delivery) -> None:
    raise KeyboardInterrupt


def test_ctrl_c_in_a_callback_on_the_callers_thread_is_raised_there(broker: str) -> None:
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x")
        delivery.result(10)
        with pytest.raises(KeyboardInterrupt):
            delivery.add_done_callback(ctrl_c)


def test_ctrl_c_in_a_callback_of_a_loop_ends_the_loop(broker: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(broker)
        (await producer.send("t", b"x")).add_done_callback(ctrl_c)
        await asyncio.sleep(30)

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


def test_a_keyboard_interrupt_in_a_callback_does_not_end_the_callback_thread(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    on_delivered: list[Delivery] = []
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x")
        delivery.add_done_callback(ctrl_c)
        delivery.add_done_callback(on_delivered.append)
    assert on_delivered == [delivery]
    assert "KeyboardInterrupt" in caplog.text


def test_a_callback_must_be_callable(broker: str) -> None:
    with (
        Producer(broker) as producer,
        pytest.raises(ConfigError, match="callback=5 is not allowed; a plain function"),
    ):
        producer.send("t", b"x").add_done_callback(5)  # type: ignore[arg-type]


async def coroutine_callback(delivery: Delivery) -> None:
    raise AssertionError("the coroutine must not run")


def test_a_coroutine_function_is_rejected_as_a_callback(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    def returns_coroutine(delivery: Delivery) -> object:
        return coroutine_callback(delivery)

    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            delivery = await producer.send("t", b"x")
            with pytest.raises(ConfigError, match="a plain function that takes a delivery"):
                delivery.add_done_callback(coroutine_callback)
            delivery.add_done_callback(returns_coroutine)

    asyncio.run(main())
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x")
        with pytest.raises(ConfigError, match="a plain function that takes a delivery"):
            delivery.add_done_callback(coroutine_callback)
        delivery.add_done_callback(returns_coroutine)
    assert caplog.text.count("returned the coroutine <coroutine object coroutine_callback") == 2


def test_asyncio_callbacks_may_raise_and_send(broker: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> list[int | None]:
        async with AsyncProducer(broker) as producer:
            first = await producer.send("t", b"1", partition=0)
            sends: list[asyncio.Task[Delivery]] = []
            first.add_done_callback(lambda delivery: 1 // 0)
            first.add_done_callback(
                lambda delivery: sends.append(asyncio.create_task(producer.send("t", b"2", partition=0)))
            )
            places = [await asyncio.wait_for(_await(first), 5)]
            await asyncio.sleep(0)
            places.append(await asyncio.wait_for(_await(await sends[0]), 5))
            return [place.offset for place in places]

    assert asyncio.run(main()) == [0, 1]
    assert "ZeroDivisionError" in caplog.text


async def _await(delivery: Delivery) -> Any:
    return await delivery


# ---- arguments

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"topic": None}, r"^topic=None is not allowed; the name of a topic"),
    ({"topic": 5}, r"^topic=5 is not allowed"),
    ({"topic": ["t"]}, r"^topic=\['t'\] is not allowed"),
    ({"topic": ""}, r"^topic='' is not allowed"),
    ({"value": "text"}, r"^value='text' is not allowed; bytes or None; encode it first"),
    ({"value": 5}, r"^value=5 .*; encode it first, or give the producer a value_serializer$"),
    ({"key": "key"}, r"^key='key' .*; encode it first, or give the producer a key_serializer$"),
    ({"timestamp": 1700000000.5}, r"^timestamp=1700000000.5 .* milliseconds since 1970"),
    ({"timestamp": True}, r"^timestamp=True is not allowed"),
    ({"timestamp": -1}, r"^timestamp=-1 is not allowed"),
    ({"timestamp": 2**63}, r"^timestamp=9223372036854775808 is not allowed"),
    ({"partition": "0"}, r"^partition='0' is not allowed"),
    ({"partition": 1.0}, r"^partition=1.0 is not allowed"),
    (
        {"partition": -1},
        r"^partition=-1 is not allowed; a whole number, 0 or more, or None to let the partitioner select",
    ),
    ({"headers": {"a": b"b"}}, r"^headers={'a': b'b'} .*as \[.*list\(headers.items\(\)\)"),
    ({"headers": "ab"}, r"^headers='ab' is not allowed; a list of pairs"),
    ({"headers": 5}, r"^headers=5 is not allowed"),
    ({"headers": [("a",)]}, r"^headers\[0\]=\('a',\) is not allowed; a pair"),
    ({"headers": [("a", b""), (b"a", b"")]}, r"^headers\[1\]\[0\]=b'a' is not allowed; a str"),
    ({"headers": [("a", "b")]}, r"^headers\[0\]\[1\]='b' is not allowed; bytes or None; encode it first$"),
    ({"headers": [("\ud800", b"")]}, r"^headers\[0\]\[0\]=.* UTF-8"),
]


@pytest.mark.parametrize(("invalid", "message"), WRONG, ids=[str(wrong)[:40] for wrong, _ in WRONG])
def test_an_invalid_record_is_rejected_and_affects_no_other(
    broker: str, invalid: dict[str, Any], message: str
) -> None:
    arguments = {"topic": "t", "value": b"x", **invalid}
    with Producer(broker, linger_ms=30) as producer:
        before = producer.send("t", b"before", partition=0)
        with pytest.raises(ConfigError, match=message):
            producer.send(arguments.pop("topic"), **arguments)
        after = producer.send("t", b"after", partition=0)
        assert [before.result(5).offset, after.result(5).offset] == [0, 1]


@pytest.mark.parametrize(("invalid", "message"), WRONG[::4])
def test_asyncio_rejects_invalid_records_as_well(broker: str, invalid: dict[str, Any], message: str) -> None:
    arguments = {"topic": "t", "value": b"x", **invalid}

    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            with pytest.raises(ConfigError, match=message):
                await producer.send(arguments.pop("topic"), **arguments)
            assert (await (await producer.send("t", b"after"))).offset == 0

    asyncio.run(main())


def test_unusual_but_valid_records_are_accepted(broker: str) -> None:
    class Name(str):
        __slots__ = ()

    with Producer(broker) as producer:
        valid: list[dict[str, Any]] = [
            {"headers": [["a", None], ("a", bytearray(b"b"))]},
            {"headers": None},
            {"headers": {}},
            {"value": memoryview(b"xyz")[1:]},
            {"timestamp": 0},
            {"timestamp": int(time.time() * 1000) + 1, "partition": 1},
        ]
        for arguments in valid:
            assert producer.send(Name("t"), **arguments).result(5).offset is not None


def test_an_unknown_partition_raises_after_a_second_metadata_request(broker: str) -> None:
    with Producer(broker) as producer:
        producer.send("t", b"x").result(5)
        called_at = time.monotonic()
        with pytest.raises(UnknownTopic, match=r"t-7: the topic has the partitions 0 to 1"):
            producer.send("t", b"x", partition=7)
        assert time.monotonic() - called_at < 10


def test_all_tasks_that_wait_for_an_unknown_topic_raise_the_same_error(broker: str) -> None:
    """The Metadata responses that fail the first task also fail the others, without further requests."""

    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            await producer.send("t", b"x")
            before = producer.metrics().value("request-total")
            sends = [producer.send("nowhere", b"x") for _ in range(50)]
            errors = await asyncio.gather(*sends, return_exceptions=True)
            assert {type(error) for error in errors} == {UnknownTopic}
            assert producer.metrics().value("request-total") - before < 10

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_record_that_is_too_large_affects_no_other(broker: str) -> None:
    with Producer(broker) as producer:
        with pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE .*max_request_size is 1048576"):
            producer.send("t", bytes(2_000_000))
        assert producer.send("t", b"x").result(5).offset == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"on_delivery": print}, "'on_delivery'; use send(...).add_done_callback(function)"),
        ({"callback": print}, "'callback'; use send(...).add_done_callback(function)"),
        ({"timestamp_ms": 5}, "'timestamp_ms'; use timestamp, in milliseconds"),
        ({"vlaue": b""}, "'vlaue'; it has topic, value, key, partition, timestamp, headers"),
    ],
)
def test_an_unknown_argument_of_send_raises_an_error_that_names_the_right_one(
    broker: str, arguments: dict[str, Any], message: str
) -> None:
    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            with pytest.raises(TypeError, match=re.escape(message)):
                await producer.send("t", b"x", **arguments)

    with Producer(broker) as producer, pytest.raises(TypeError, match=re.escape(message)):
        producer.send("t", b"x", **arguments)
    asyncio.run(main())


# ---- signals. The tests raise exceptions in a profile function, which CPython calls at points where a signal
# handler may run


@contextmanager
def profiling(handler: Callable[[Any, str, Any], object]) -> Iterator[None]:
    sys.setprofile(handler)
    try:
        yield
    finally:
        sys.setprofile(None)


def test_ctrl_c_anywhere_in_a_send_leaves_the_producer_usable(broker: str) -> None:
    remaining = 0

    def ctrl_c(frame: Any, event: str, arg: Any) -> None:
        nonlocal remaining
        # CPython checks for signals after a call to a C function has returned, not before the call.
        remaining -= event != "c_call"
        if not remaining and event != "c_call":
            raise KeyboardInterrupt

    with Producer(broker, batch_size=200) as producer:
        # `moment` is the number of the point at which `send` is interrupted. The interrupted `send` begins a
        # new batch.
        for moment in range(1, 100):
            producer.send("t", bytes(150)).result(5)
            remaining = moment
            with suppress(KeyboardInterrupt), profiling(ctrl_c):
                producer.send("t", b"x")
            assert isinstance(call_within(5, lambda: producer.send("t", b"y")), Delivery)
            if remaining > 0:
                break
        assert 5 < moment < 99
        producer.flush(5)


# Most records have only a value. The others also have a key, a partition or a timestamp.
KINDS: list[dict[str, Any]] = [{}] * 9 + [{"partition": 0}, {"key": b"k"}, {"timestamp": 7}]


@pytest.mark.parametrize("kinds", [KINDS[:1], KINDS[1:], KINDS[-3:]])
def test_sends_of_several_threads_to_one_partition_get_distinct_offsets(
    broker: str, kinds: list[dict[str, Any]]
) -> None:
    sent: list[list[tuple[bytes, Delivery]]] = []
    with Producer(broker, linger_ms=1, batch_size=1000) as producer:

        def send(sender: int) -> None:
            own_values = [b"%d-%d" % (sender, number) for number in range(600)]
            kind = Random(sender).choice
            sent.append([(value, producer.send("one", value, **kind(kinds))) for value in own_values])

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        try:
            threads = [threading.Thread(target=send, args=(sender,)) for sender in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        finally:
            sys.setswitchinterval(before)
        producer.flush()
        assert producer._records.buffered_bytes == 0
    places = {
        delivery.result().offset: value
        for values_and_deliveries in sent
        for value, delivery in values_and_deliveries
    }
    assert [places.get(offset) for offset in range(2400)] == values(broker, 2400, "one")


def test_a_signal_handler_may_send_wherever_it_interrupts_a_send(broker: str) -> None:
    sent: list[tuple[bytes, Delivery]] = []
    turn = count()
    inside = False

    def send() -> None:
        number = next(turn)
        value = b"%d" % number * 9
        delivery = producer.send("one", value, **KINDS[number % 13 % len(KINDS)])
        sent.append((value, delivery))

    def handler(frame: Any, event: str, arg: Any) -> None:
        nonlocal inside, remaining
        # CPython checks for signals after a call to a C function has returned, not before the call.
        remaining -= event != "c_call"
        if not remaining and not inside and event != "c_call":
            inside = True
            send()
            inside = False

    with Producer(broker, linger_ms=5, batch_size=5_000) as producer:
        producer.send("one", b"first").result(5)
        for number in range(1_500):
            remaining = number % 61 + 1
            with profiling(handler):
                send()
        places = {delivery.result(10).offset: value for value, delivery in sent}
    assert len(places) == len(sent) > 1_500
    stored = values(broker, len(sent) + 1, "one")
    assert [places[offset] for offset in range(1, len(stored))] == stored[1:]


def test_a_signal_handler_that_interrupts_a_send_may_not_block(broker: str) -> None:
    with Producer(broker, batch_size=1) as producer:  # With batch_size=1 each record begins a new batch.
        first = producer.send("t", b"1")
        for wait in (producer.close, producer.flush, first.result):
            errors: list[BaseException] = []

            def handler(frame: Any, event: str, arg: Any, wait: Any = wait, errors: Any = errors) -> None:
                if event == "call" and frame.f_code.co_name == "_find_or_start_batch" and not errors:
                    try:
                        wait()
                    except IllegalState as error:
                        errors.append(error)

            with profiling(handler):
                producer.send("t", b"2")
            assert not errors or "a signal handler interrupted" in str(errors[0])
            # Only `first.result` may return without an error: the delivery of `first` has already ended.
            assert errors or wait == first.result
        assert producer.send("t", b"3").result(5).offset is not None


# ---- every delivery ends


def test_a_second_close_waits_for_the_first(server: Server) -> None:
    producer = Producer(server.bootstrap)
    producer.send("t", b"x").result(5)
    server.stop()
    delivery = producer.send("t", b"x")
    closing = threading.Thread(target=call_within, args=(20, lambda: producer.close(0.5)))
    closing.start()
    while not producer._runtime.closing:
        time.sleep(0.01)
    producer.close(20)
    assert delivery.done()
    closing.join()


def test_a_second_close_that_times_out_says_that_the_first_one_continues() -> None:
    with running(topics={"t": 1}) as server:
        producer = Producer(server.bootstrap)
        producer.send("t", b"x").result(5)
        server.slow(math.inf)
        delivery = producer.send("t", b"x")
        closing = threading.Thread(target=call_within, args=(20, lambda: producer.close(20)))
        closing.start()
        while not producer._runtime.closing:
            time.sleep(0.01)
        with pytest.raises(RequestTimedOut, match=r"earlier close\(\) of this producer is still in progress"):
            producer.close(0.1)
        assert not delivery.done()
        server.slow(0)
        closing.join()
        assert delivery.result(0).offset == 1


def test_a_second_close_waits_for_callbacks_unless_it_runs_in_one(broker: str) -> None:
    on_delivered: list[bool] = []
    producer = Producer(broker)

    def callback(delivery: Delivery) -> None:
        while not producer._records.why_closed:
            time.sleep(0.001)
        producer.close(20)
        # If the main thread's `close` did not wait for this callback, it would return during this pause.
        time.sleep(0.1)
        on_delivered.append(True)

    producer.send("t", b"x").add_done_callback(callback)
    producer.flush(10)
    closing = threading.Thread(target=producer.close, args=(20,))
    closing.start()
    while not producer._runtime.closing:
        time.sleep(0.001)
    producer.close(10)
    assert on_delivered == [True]
    closing.join()


def test_a_second_asyncio_close_waits_for_the_first(server: Server) -> None:
    async def main() -> bool:
        producer = AsyncProducer(server.bootstrap)
        await (await producer.send("t", b"x"))
        server.stop()
        delivery = await producer.send("t", b"x")
        closing = asyncio.create_task(producer.close(0.5))
        await asyncio.sleep(0)
        await producer.close(20)
        ended = delivery.done()
        with pytest.raises(RequestTimedOut):
            await closing
        return ended

    assert asyncio.run(main())


def test_a_send_that_times_out_names_the_unreachable_broker() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_listener:
        address = f"127.0.0.1:{closed_listener.getsockname()[1]}"
    message = rf"send: no answer within 1500 ms \(no metadata for topic 't' yet; no broker at {address}: "

    def send() -> None:
        with Producer(address, max_block_ms=1_500) as producer, pytest.raises(RequestTimedOut, match=message):
            producer.send("t", b"x")

    async def main() -> None:
        blocking = asyncio.create_task(asyncio.to_thread(send))
        async with AsyncProducer(address, max_block_ms=1_500) as producer:
            with pytest.raises(RequestTimedOut, match=message):
                await producer.send("t", b"x")
        await blocking

    asyncio.run(main())


def test_callbacks_run_on_the_producer_thread_if_no_thread_can_be_started(
    broker: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    on_delivered = threading.Event()
    with Producer(broker, **WAITS) as producer:
        first = producer.send("t", b"1")
        monkeypatch.setattr(threading.Thread, "start", start)
        first.add_done_callback(lambda delivery: on_delivered.set())
        producer.flush(10)
        assert on_delivered.wait(10)
        monkeypatch.undo()
        second = producer.send("t", b"2")
        producer.flush(10)
        assert second.result().offset is not None
    assert "no thread for delivery callbacks" in caplog.text


def test_kill_ends_every_delivery(server: Server) -> None:
    producer = Producer(server.bootstrap, linger_ms=10_000, delivery_timeout_ms=60_000)
    delivery = producer.send("t", b"x")
    on_delivered: list[object] = []
    delivery.add_done_callback(on_delivered.append)
    producer.kill()
    with pytest.raises(IllegalState, match=r"closed.*not acknowledged"):
        delivery.result(1)
    assert on_delivered == [delivery]
    with pytest.raises(IllegalState, match="closed"):
        producer.send("t", b"x")


def deliver_one(producer: Producer) -> None:
    """Send records until one is delivered. On a busy computer the first may exceed the delivery timeout."""
    while producer.send("t", b"x").exception(20) is not None:
        pass


def test_close_reports_how_many_records_were_not_sent_and_why(server: Server) -> None:
    producer = Producer(server.bootstrap)
    producer.send("t", b"x").result(5)
    server.stop()
    sent = [producer.send("t", b"x") for _ in range(7)]
    closed_at = time.monotonic()
    with pytest.raises(RequestTimedOut, match=r"flush.*7 records are still open; t-\d: "):
        producer.close(0.3)
    assert time.monotonic() - closed_at < 10
    assert all(delivery.done() for delivery in sent)


def test_close_and_flush_report_failed_deliveries_unless_the_application_saw_them(server: Server) -> None:
    producer = Producer(server.bootstrap, **SLOW)
    deliver_one(producer)
    server.stop()
    sent = [producer.send("t", b"x") for _ in range(5)]
    assert sent[0].exception(5) is not None
    with pytest.raises(NotDelivered, match=r"^4 records were not delivered; the first: Produce: no answer"):
        producer.flush(5)
    producer.flush(5)
    producer.send("t", b"x")
    with pytest.raises(NotDelivered, match=r"^1 records were not delivered"):
        producer.close(5)


def test_deliveries_to_a_silent_broker_fail_in_time_with_the_reason(server: Server) -> None:
    producer = Producer(server.bootstrap, linger_ms=0, request_timeout_ms=700, delivery_timeout_ms=900)
    deliver_one(producer)
    server.stop()
    sent_at = time.monotonic()
    with pytest.raises(RequestTimedOut, match=r"Produce: no answer within 900 ms.*t-., 1 records: "):
        producer.send("t", b"x").result(5)
    assert 0.7 < time.monotonic() - sent_at < 10
    producer.kill()


@contextmanager
def clock_ahead(monkeypatch: pytest.MonkeyPatch, producer: Producer | AsyncProducer) -> Iterator[None]:
    """Set the producer's clock ten minutes ahead, as if the process had been suspended for that time."""
    with monkeypatch.context() as clock:
        clock.setattr(f"{type(producer._runtime).__module__}.now", lambda: now() + 600_000)
        clock.setattr(producer._records, "_clock", lambda: now() + 600_000)
        yield


def test_a_response_received_before_a_freeze_is_handled_before_the_deadline(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A delivery succeeds if its response arrives while the process is suspended.

    The delivery succeeds even if its timeout has expired when the process resumes. In this test the last wait
    on the sockets hides the response that has arrived, and then the clock is set ahead.
    """
    with Producer(broker, linger_ms=0, delivery_timeout_ms=31_000) as producer, ExitStack() as later:
        producer.send("t", b"0", partition=0).result(5)
        sockets = producer._runtime.sockets
        wait_on_sockets, perform = sockets.wait, sockets.perform
        written = False

        def write(action: Any) -> None:
            nonlocal written
            written = written or isinstance(action, Write)
            perform(action)

        def wait(seconds: float | None) -> Any:
            nonlocal written
            if not written:
                return wait_on_sockets(seconds)
            written = False
            [connection] = sockets._connections.values()
            assert connection.sock is not None
            select.select([connection.sock], [], [], 10)
            later.enter_context(clock_ahead(monkeypatch, producer))
            return []

        monkeypatch.setattr(sockets, "perform", write)
        monkeypatch.setattr(sockets, "wait", wait)
        assert producer.send("t", b"1", partition=0).result(10).offset == 1


@pytest.mark.parametrize("wakes", ["a timer", "a send"])
def test_a_response_received_before_a_frozen_loop_is_handled_before_the_deadline(
    broker: str, wakes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncProducer(broker, linger_ms=0, delivery_timeout_ms=31_000) as producer:
            await (await producer.send("t", b"0", partition=0))
            delivery = await producer.send("t", b"1", partition=0)
            [(transport, *_)] = producer._runtime.streams._transports.values()
            while (
                not transport.get_write_buffer_size()
                and not select.select([transport.get_extra_info("socket").fileno()], [], [], 0.1)[0]
            ):
                pass
            with clock_ahead(monkeypatch, producer):
                if wakes == "a send":
                    await producer.send("t", b"2", partition=0)
                else:
                    _on_timer(producer._runtime._ref, producer._runtime._keep_alive)
                assert (await asyncio.wait_for(_await(delivery), 10)).offset == 1

    asyncio.run(main())


@pytest.mark.parametrize("timeout", [-1, float("nan"), True, "1"])
def test_an_invalid_timeout_is_rejected_and_changes_nothing(broker: str, timeout: Any) -> None:
    with Producer(broker) as producer:
        delivery = producer.send("t", b"x")
        for wait in (producer.flush, producer.close, delivery.result, delivery.exception):
            with pytest.raises(ConfigError, match="a number of seconds"):
                wait(timeout)
        producer.flush(float("inf"))
        assert delivery.result(float("inf")).offset is not None
        producer.send("t", b"y")

    async def main() -> None:
        async with AsyncProducer(broker) as producer:
            await producer.send("t", b"x")
            for wait in (producer.flush, producer.close):
                with pytest.raises(ConfigError, match="a number of seconds"):
                    await wait(timeout)
            await producer.send("t", b"y")

    asyncio.run(main())


def test_a_crash_of_the_thread_ends_every_delivery_and_is_raised_by_close(
    broker: str, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(broker, **WAITS)
    sent = [producer.send("t", b"x") for _ in range(3)]
    producer._runtime.engine.metadata.due = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
    with producer._runtime.waiters.lock:
        producer._runtime.wake()
    with pytest.raises(IllegalState, match=r"thread failed.*not acknowledged"):
        sent[0].result(5)
    assert all(delivery.done() for delivery in sent)
    with pytest.raises(IllegalState, match="thread failed"):
        producer.send("t", b"x")
    with pytest.raises(NotDelivered, match="2 records"):
        producer.close(1)


def test_an_asyncio_crash_ends_every_await(broker: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(broker, linger_ms=1_000)
        # The batch is not sent before the next await, in which the engine fails.
        delivery = await producer.send("t", b"x")
        producer._runtime.engine.settle = lambda: 1 // 0  # type: ignore[method-assign, assignment, return-value]
        with pytest.raises(IllegalState, match="producer failed"):
            await asyncio.wait_for(_await(delivery), 5)
        await producer.close(1)

    asyncio.run(main())


def test_an_asyncio_kill_ends_every_await(broker: str) -> None:
    async def main() -> None:
        producer = AsyncProducer(broker, linger_ms=10_000)
        waiting = asyncio.create_task(_await(await producer.send("t", b"x")))
        await asyncio.sleep(0.01)
        producer.kill()
        with pytest.raises(IllegalState, match="closed"):
            await asyncio.wait_for(waiting, 5)

    asyncio.run(main())


def test_kill_ends_a_send_that_waits_for_buffer_memory(server: Server) -> None:
    producer = Producer(server.bootstrap, buffer_memory=20_000, batch_size=10_000)
    producer.send("t", b"x").result(5)
    server.stop()
    thread_ended: list[object] = []

    def fill() -> None:
        try:
            while True:
                producer.send("t", bytes(5000))
        except IllegalState as error:
            thread_ended.append(error)

    thread = threading.Thread(target=fill)
    thread.start()
    time.sleep(0.2)
    producer.kill()
    thread.join(5)
    assert thread_ended


def test_flush_waits_only_for_records_sent_before_it(broker: str) -> None:
    stop = threading.Event()
    with Producer(broker, linger_ms=1) as producer:

        def go_on_sending() -> None:
            while not stop.is_set():
                producer.send("t", b"x")
                time.sleep(0.0005)

        thread = threading.Thread(target=go_on_sending)
        thread.start()
        delivery = producer.send("t", b"mine")
        assert call_within(5, lambda: producer.flush(4)) is None
        assert delivery.done()
        stop.set()
        thread.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_fork_leaves_the_producer_to_the_parent(broker: str) -> None:
    with Producer(broker, **WAITS) as producer:
        before = producer.send("t", b"1", partition=0)
        child = os.fork()
        if not child:
            code = 1
            try:
                kind = type(before.exception(1))
                try:
                    producer.send("t", b"child")
                except IllegalState as error:
                    code = 0 if "before the process forked" in str(error) and kind is IllegalState else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.flush(10)
        assert before.result().offset == 0
        after = producer.send("t", b"2", partition=0)
        producer.flush(10)
        assert after.result().offset == 1
    assert values(broker, 2) == [b"1", b"2"]


EXITS = """
from consumer import Producer
producer = Producer({broker!r}, linger_ms=60_000, delivery_timeout_ms=100_000)
for number in range(20):
    producer.send("t", b"%d" % number, partition=0)
"""


def test_at_interpreter_exit_open_records_are_delivered_with_a_warning(broker: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", EXITS.format(broker=broker)], capture_output=True, text=True, timeout=30
    )
    assert "was not closed: 20 records are not delivered yet" in done.stderr
    assert done.returncode == 0
    assert values(broker, 20) == [b"%d" % number for number in range(20)]


def test_interpreter_exit_waits_at_most_seconds_and_reports_lost_records(server: Server) -> None:
    code = (
        EXITS.format(broker=server.bootstrap) + "\nimport sys; print('up', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    server.stop()
    ended_at = time.monotonic()
    _, errors = process.communicate("\n", timeout=20)
    assert time.monotonic() - ended_at < 12
    assert (
        "was not closed, and records are lost: flush: no answer within 5000 ms (20 records are still open"
        in errors
    )


def test_an_unclosed_asyncio_producer_warns_at_exit(broker: str) -> None:
    code = f"""
import asyncio
from consumer import AsyncProducer
async def main():
    producer = AsyncProducer({broker!r}, linger_ms=60_000, delivery_timeout_ms=100_000)
    await producer.send("t", b"x")
asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
    assert "was not closed, and 1 records are lost" in done.stderr


def test_an_error_in_the_with_block_is_not_hidden_by_failed_deliveries(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)

    def fail() -> None:
        with Producer(server.bootstrap, **SLOW) as producer:
            deliver_one(producer)
            server.stop()
            lost = producer.send("t", b"x")
            while not lost.done():
                time.sleep(0.01)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert "1 records were not delivered" in caplog.text


def test_an_asyncio_producer_rejects_calls_from_another_loop(broker: str) -> None:
    async def create() -> AsyncProducer:
        producer = AsyncProducer(broker)
        await (await producer.send("t", b"x"))
        return producer

    async def check_rejected(act: Callable[[], Any]) -> None:
        with pytest.raises(IllegalState, match="belongs to another event loop"):
            await act()

    with pytest.raises(IllegalState, match="needs a running event loop"):
        AsyncProducer(broker)
    producer = asyncio.run(create())
    for act in (lambda: producer.send("t", b"y"), producer.flush, producer.close):
        asyncio.run(check_rejected(act))
    producer.kill()


# ---- deliveries of several rows, known failures


@pytest.fixture
def small() -> Iterator[str]:
    """A broker that rejects batches of more than 1,000 bytes, which the producer then splits."""
    with running(topics={"t": 2}, settings={"message.max.bytes": "1000"}) as server:
        yield server.bootstrap


def columns(*sizes: int) -> dict[str, list[Any]]:
    return {"value": [bytes(size) for size in sizes], "partition": [0] * len(sizes)}


def test_an_awaited_delivery_of_rows_ends_after_its_batch_was_split(small: str) -> None:
    async def main() -> None:
        async with AsyncProducer(small) as producer:
            [delivery] = await producer.send_columns("t", columns(*[300] * 7))
            assert (await delivery).offset == 0
            assert delivery.done()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_callback_of_rows_is_called_once_after_all_rows_have_ended(small: str) -> None:
    calls: list[tuple[bool, str]] = []
    called = threading.Event()

    def callback(delivery: Delivery) -> None:
        calls.append((delivery.done(), type(delivery.exception()).__name__))
        called.set()

    with Producer(small) as producer:
        [delivery] = producer.send_columns("t", columns(*[200] * 6, 3_000))
        delivery.add_done_callback(callback)
        producer.flush()  # The callback reports the failure, so flush does not raise NotDelivered.
        assert called.wait(30)
    assert calls == [(True, "BrokerError")]


@pytest.mark.parametrize("compression", ["none", "gzip"])
def test_columns_have_no_record_above_max_request_size(broker: str, compression: str) -> None:
    with (
        Producer(broker, compression_type=compression, max_request_size=10_000) as producer,
        pytest.raises(BrokerError, match=r"MESSAGE_TOO_LARGE .*max_request_size is 10000"),
    ):
        producer.send_columns("t", columns(30_000))


def test_flush_reports_a_failure_whose_await_was_cancelled(small: str) -> None:
    async def main() -> None:
        async with AsyncProducer(small, linger_ms=200) as producer:
            delivery = await producer.send("t", bytes(5_000))
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(delivery, 0.01)
            with pytest.raises(NotDelivered):
                await producer.flush()

    asyncio.run(asyncio.wait_for(main(), 30))


def test_flush_does_not_report_a_failure_that_a_late_callback_receives(small: str) -> None:
    errors: list[BaseException | None] = []
    with Producer(small) as producer:
        delivery = producer.send("t", bytes(5_000))
        while not delivery.done():
            time.sleep(0.01)
        delivery.add_done_callback(lambda ended: errors.append(ended.outcome()[2]))
        producer.flush()
    assert [type(error) for error in errors] == [BrokerError]


def test_not_delivered_names_the_error_of_a_record_that_it_counts(small: str) -> None:
    with Producer(small, linger_ms=3_000) as producer:
        producer.send("t", b"x", partition=0)
        assert producer.purge() == 1
        producer.send("t", bytes(5_000), partition=1)
        with pytest.raises(NotDelivered, match="MESSAGE_TOO_LARGE"):
            producer.flush()
