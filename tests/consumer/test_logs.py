"""Clients log the group, the member and the offsets, and continue if a log handler fails."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer.delivery import Delivery
from kproto import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition, running
from kproto.broker.server import Server
from kproto.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)

T0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {"group_id": "g", "enable_auto_commit": False}


def lines(caplog: pytest.LogCaptureFixture, level: int, kind: str) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.levelno == level]
    return [line for line in messages if line.split()[1] == kind]


def fill(bootstrap: str, count: int) -> None:
    with Producer(bootstrap) as producer:
        for number in range(count):
            producer.send("t", b"%d" % number)


def test_a_reset_over_records_is_a_warning_with_both_offsets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kproto.consumer")
    with running({"t": 1}) as server:
        fill(server.bootstrap, 100)
        with Consumer(server.bootstrap, auto_offset_reset="earliest", **GROUP) as consumer:
            consumer.subscribe("t")
            assert consumer.poll(10, max_records=1)
            consumer.commit()
        assert lines(caplog, logging.WARNING, "reset") == []
        assert len(lines(caplog, logging.INFO, "reset")) == 1
        part = DeleteRecordsPartition(partition_index=0, offset=50)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="t", partitions=[part])], timeout_ms=5000
        )
        with Admin(server.bootstrap) as cluster:
            cluster.request(request, ("leader", "t", 0))
        with Consumer(server.bootstrap, **GROUP) as consumer:
            consumer.subscribe("t")
            deadline = time.monotonic() + 60
            while not consumer.assignment() or consumer.position(T0) != 100:
                assert time.monotonic() < deadline
                consumer.poll(0.1)
    [line] = lines(caplog, logging.WARNING, "reset")
    assert "t-0 from 1 to 100: offset 1 is out of range: latest" in line


def test_lines_name_the_group_and_the_member(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kproto.consumer")
    with running({"t": 1}) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        member = consumer.group_metadata().member_id
    [line] = lines(caplog, logging.INFO, "assigned")
    assert line.startswith(f"kproto assigned group=g member={member} generation=1 t-0")


def test_a_line_names_ten_partitions_and_the_number_of_the_others(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "kproto.consumer")
    with running({"t": 25}) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        consumer.subscribe("t")
        while not consumer.assignment():
            consumer.poll(0.1)
        assert len(consumer.assignment()) == 25
    [line] = lines(caplog, logging.INFO, "assigned")
    assert " ".join(f"t-{number}" for number in range(10)) + " and 15 more" in line


def test_an_expired_poll_interval_names_the_option(
    caplog: pytest.LogCaptureFixture,
) -> None:
    limits: dict[str, Any] = {
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 300,
        "max_poll_interval_ms": 300,
    }
    with running({"t": 1}) as server, Consumer(server.bootstrap, **GROUP, **limits) as consumer:
        consumer.subscribe("t")
        deadline = time.monotonic() + 60
        while not consumer.assignment() and time.monotonic() < deadline:
            consumer.poll(0.5)
        while not lines(caplog, logging.WARNING, "lost") and time.monotonic() < deadline:
            time.sleep(0.05)
    assert "consumer poll timeout has expired. (max_poll_interval_ms=300)" in caplog.text


# ---- log handlers that fail


class FailingHandler(logging.Handler):
    """A handler whose log server is unavailable."""

    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server is unavailable")


@pytest.fixture
def failing_handler() -> Iterator[None]:
    logger, handler = logging.getLogger("kproto.consumer"), FailingHandler()
    logger.addHandler(handler)
    yield
    logger.removeHandler(handler)


def unreachable(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Stop the broker until the client has reported that no broker responds."""
    server.down()
    deadline = time.monotonic() + 30
    while not any("unreachable" in record.getMessage() for record in caplog.records):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    server.up()


@pytest.fixture
def log_records(
    failing_handler: None, caplog: pytest.LogCaptureFixture
) -> Iterator[pytest.LogCaptureFixture]:
    """Capture the log records of kproto.consumer. A second handler of this logger raises exceptions."""
    logger = logging.getLogger("kproto.consumer")
    logger.handlers.insert(0, caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)


def sent_while_unreachable(server: Server, caplog: pytest.LogCaptureFixture, producer: Producer) -> None:
    producer.send("t", b"0").result(30)
    server.down()
    delivery = producer.send("t", b"1")
    unreachable(server, caplog)
    assert delivery.result(30).offset == 1


def test_a_consumer_continues_if_a_log_handler_fails(
    log_records: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    with running({"t": 1}) as server, Consumer(server.bootstrap, **GROUP) as consumer:
        consumer.subscribe("t")
        consumer.poll(0.1)
        unreachable(server, log_records)
        assert consumer.position(T0) == 0
    assert "ConnectionError: the log server is unavailable" in capsys.readouterr().err


def test_a_producer_continues_if_a_log_handler_fails(log_records: pytest.LogCaptureFixture) -> None:
    with running({"t": 1}) as server, Producer(server.bootstrap) as producer:
        sent_while_unreachable(server, log_records, producer)


def test_asyncio_clients_continue_if_a_log_handler_fails(log_records: pytest.LogCaptureFixture) -> None:
    failed: list[dict[str, Any]] = []

    async def main(server: Server) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
        async with (
            AsyncProducer(server.bootstrap) as producer,
            AsyncConsumer(server.bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([T0])
            await (await producer.send("t", b"0"))
            assert await consumer.poll(30)
            await asyncio.to_thread(server.down)
            delivery = await producer.send("t", b"1")
            await asyncio.to_thread(unreachable, server, log_records)
            await delivery
            assert await consumer.poll(30)

    with running({"t": 1}) as server:
        asyncio.run(main(server))
    assert failed == []


def test_delivery_callbacks_continue_if_a_log_handler_fails(failing_handler: None) -> None:
    called: list[int] = []

    def wrong(delivery: Delivery) -> None:
        raise ValueError("an error in the application's callback")

    with running({"t": 1}) as server, Producer(server.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"0").add_done_callback(wrong)
        producer.flush()
        producer.send("t", b"1").add_done_callback(lambda delivery: called.append(1))
    assert called == [1]


def test_a_log_record_names_the_function_that_wrote_it(caplog: pytest.LogCaptureFixture) -> None:
    with running({"t": 1}) as server, Producer(server.bootstrap) as producer:
        sent_while_unreachable(server, caplog, producer)
    places = {(record.funcName, record.filename) for record in caplog.records}
    assert places == {("_on_report", "producer_runtime.py")}
