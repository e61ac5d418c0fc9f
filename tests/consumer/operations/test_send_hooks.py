"""A producer's serializers get each key and value, and `send` raises their errors."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.operations import send_hooks
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, IllegalState, PartitionerError, RequestTimedOut, SerializationError

SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


def written(server: Server) -> list[tuple[bytes | None, bytes | None]]:
    with Consumer(server.bootstrap) as consumer:
        consumer.assign({TopicPartition("t", 0): 0})
        end = consumer.list_offsets({TopicPartition("t", 0): "latest"})[TopicPartition("t", 0)].offset or 0
        records: list[Any] = []
        while len(records) < end:
            records += consumer.poll(1)
    return [(record.key, record.value) for record in records]


def as_bytes(topic: str, value: Any, headers: Any) -> bytes | None:
    return f"{topic}:{value}:{list(headers)}".encode()


class AsBytes:
    def serialize(self, topic: str, value: Any, headers: Any) -> bytes:
        return str(value).encode()


async def as_bytes_later(topic: str, value: Any, headers: Any) -> bytes:
    await asyncio.sleep(0)
    return str(value).encode()


def test_functions_and_objects_serialize_keys_and_values(server: Server) -> None:
    with Producer(server.bootstrap, key_serializer=as_bytes, value_serializer=AsBytes()) as producer:
        producer.send("t", 7, key="k", headers=[("h", b"x")])
        producer.send("t", b"bytes are serialized as well")
        producer.send("t", None, key=None)
    assert written(server) == [
        (b"t:k:[('h', b'x')]", b"7"),
        (None, b"b'bytes are serialized as well'"),
        (None, None),
    ]


def test_one_serializer_leaves_the_other_part_as_bytes(server: Server) -> None:
    with Producer(server.bootstrap, value_serializer=AsBytes()) as producer:
        producer.send("t", 7, key=bytearray(b"k"))
        with pytest.raises(ConfigError, match="bytes or None; encode it first"):
            producer.send("t", 7, key="k")  # type: ignore[arg-type]
    assert written(server) == [(b"k", b"7")]


@pytest.mark.parametrize("part", ["key", "value"])
def test_a_failed_serializer_names_the_topic_and_the_part_and_sends_nothing(
    server: Server, part: str
) -> None:
    def fails(topic: str, value: Any, headers: Any) -> bytes:
        if value == "bad":
            raise LookupError("no schema")
        return str(value).encode()

    config: Any = {f"{part}_serializer": fails}
    good: Any = {part: "good"}
    bad: Any = {part: "bad"}
    with Producer(server.bootstrap, **config) as producer:
        producer.send("t", **good)
        with pytest.raises(SerializationError) as caught:
            producer.send("t", **bad)
        producer.send("t", **good)
    assert (caught.value.topic, caught.value.part) == ("t", part)
    assert isinstance(caught.value.__cause__, LookupError)
    assert str(caught.value) == (
        f"topic 't': the {part} cannot be serialized (LookupError: no schema); the record was not sent"
    )
    assert len(written(server)) == 2


@pytest.mark.parametrize("answer", ["text", 7, [b"x"]])
def test_an_answer_that_is_not_bytes_is_named(server: Server, answer: Any) -> None:
    config: Any = {"value_serializer": lambda topic, value, headers: answer}
    with Producer(server.bootstrap, **config) as producer:
        with pytest.raises(SerializationError, match="which is not bytes or None") as caught:
            producer.send("t", 1)
        assert repr(answer) in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.filterwarnings("error:.*coroutine")
def test_a_coroutine_is_rejected_by_a_blocking_producer(server: Server) -> None:
    with pytest.raises(ConfigError, match="only an AsyncProducer can await a coroutine"):
        Producer(server.bootstrap, value_serializer=as_bytes_later)
    config: Any = {"value_serializer": lambda *arguments: as_bytes_later(*arguments)}
    with (
        Producer(server.bootstrap, **config) as producer,
        pytest.raises(SerializationError, match="which only an AsyncProducer can await"),
    ):
        producer.send("t", 1)


def test_a_serializer_may_send_and_flush(server: Server) -> None:
    def logs(topic: str, value: Any, headers: Any) -> bytes:
        if value != "log":
            producer.send("t", "log")
            producer.flush()
        return str(value).encode()

    with Producer(server.bootstrap, value_serializer=logs) as producer:
        producer.send("t", "a")
    assert [value for _, value in written(server)] == [b"log", b"a"]


def test_a_serializer_that_blocks_does_not_block_other_threads(server: Server) -> None:
    entered, release = threading.Event(), threading.Event()

    def blocks(topic: str, value: Any, headers: Any) -> bytes:
        if value == "slow":
            entered.set()
            release.wait(SECONDS)
        return str(value).encode()

    with Producer(server.bootstrap, value_serializer=blocks) as producer:
        slow = threading.Thread(target=producer.send, args=("t", "slow"))
        slow.start()
        entered.wait(SECONDS)
        producer.send("t", "fast").result(SECONDS)
        release.set()
        slow.join(SECONDS)
    assert [value for _, value in written(server)] == [b"fast", b"slow"]


def test_a_producer_that_is_closed_while_a_serializer_runs_does_not_send(server: Server) -> None:
    def closes(topic: str, value: Any, headers: Any) -> bytes:
        producer.close()
        return b"x"

    producer = Producer(server.bootstrap, value_serializer=closes)
    with pytest.raises(IllegalState, match="closed"):
        producer.send("t", 1)
    assert written(server) == []


def test_an_interrupt_in_a_serializer_reaches_the_caller_and_sends_nothing(server: Server) -> None:
    def interrupted(topic: str, value: Any, headers: Any) -> bytes:
        if value == "stop":
            signal.raise_signal(signal.SIGINT)
        return str(value).encode()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # Background jobs ignore SIGINT.
    try:
        with Producer(server.bootstrap, value_serializer=interrupted) as producer:
            with pytest.raises(KeyboardInterrupt):
                producer.send("t", "stop")
            producer.send("t", "go")
    finally:
        signal.signal(signal.SIGINT, before)
    assert written(server) == [(None, b"go")]


def test_coroutines_are_awaited_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async def fails(topic: str, value: Any, headers: Any) -> bytes:
            raise LookupError("no schema")

        async with AsyncProducer(
            server.bootstrap, key_serializer=AsBytes(), value_serializer=as_bytes_later
        ) as producer:
            await (await producer.send("t", 1, key=2))
            await producer.send("t", None)
        async with AsyncProducer(server.bootstrap, value_serializer=fails) as producer:
            with pytest.raises(SerializationError, match="no schema"):
                await producer.send("t", 1)

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert written(server) == [(b"2", b"1"), (None, None)]


def test_a_send_that_is_cancelled_in_a_serializer_sends_nothing(server: Server) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def blocks(topic: str, value: Any, headers: Any) -> bytes:
            entered.set()
            await asyncio.sleep(SECONDS if value == "slow" else 0)
            return str(value).encode()

        async with AsyncProducer(server.bootstrap, value_serializer=blocks) as producer:
            slow = asyncio.create_task(producer.send("t", "slow"))
            await entered.wait()
            await producer.send("t", "fast")
            slow.cancel()
            with pytest.raises(asyncio.CancelledError):
                await slow

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert written(server) == [(None, b"fast")]


# ---- the partitioner


def last(topic: str, key: bytes | None, value: bytes | None, partitions: Any, available: Any) -> int:
    return int(partitions[-1])


@pytest.fixture
def wide() -> Iterator[Server]:
    with running(topics={"t": 3}) as server:
        yield server


def test_a_partitioner_selects_the_partition_of_records_without_one(wide: Server) -> None:
    calls: list[Any] = []

    def by_key(topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        calls.append((topic, key, value, list(partitions), list(available)))
        return 2

    with Producer(wide.bootstrap, partitioner=by_key, value_serializer=AsBytes()) as producer:
        assert producer.send("t", 7, key=bytearray(b"k")).result(SECONDS).partition == 2
        assert producer.send("t", None).result(SECONDS).partition == 2
        assert producer.send("t", 8, partition=1).result(SECONDS).partition == 1
    every = [0, 1, 2]
    assert calls == [("t", b"k", b"7", every, every), ("t", None, None, every, every)]


def test_the_partitions_of_a_limited_number_of_topics_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(send_hooks, "_MAX_CACHED_TOPICS", 2)
    producer = Producer(
        "127.0.0.1:1", partitioner=lambda topic, key, value, partitions, available: partitions[-1]
    )
    hooks: Any = producer._hooks  # pyright: ignore[reportPrivateUsage]
    try:
        for number, topic in enumerate(["a", "b", "a", "c", "a"]):
            producer._runtime.records.set_route(topic, number + 1, [0])
            delivery = producer.send(topic, b"x")
            assert delivery._batch.partition.partition == number
            assert len(hooks._partition_lists) <= 2
    finally:
        producer.kill()


def test_a_partitioner_gets_the_partitions_of_the_latest_metadata() -> None:
    seen: list[tuple[int, list[int]]] = []

    def first(topic: str, key: Any, value: Any, partitions: Any, available: list[int]) -> int:
        seen.append((len(partitions), available))
        return 0

    with (
        running(topics={"t": 1}) as server,
        Producer(server.bootstrap, partitioner=first, metadata_max_age_ms=50) as producer,
    ):
        producer.send("t", b"x").result(SECONDS)
        assert seen == [(1, [0])]
        with Admin(server.bootstrap) as admin:
            admin.create_partitions({"t": 3})
        deadline = time.monotonic() + SECONDS
        while seen[-1][0] == 1 and time.monotonic() < deadline:
            producer.send("t", b"x").result(SECONDS)
            time.sleep(0.01)
    assert seen[-1] == (3, [0, 1, 2])


def test_an_object_may_select_the_partition_in_asyncio(wide: Server) -> None:
    class Last:
        def partition(self, topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
            return last(topic, key, value, partitions, available)

    async def main() -> list[int]:
        config: Any = {"partitioner": Last()}
        async with AsyncProducer(wide.bootstrap, **config) as producer:
            return [(await (await producer.send("t", b"x"))).partition for _ in range(3)]

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == [2, 2, 2]


@pytest.mark.filterwarnings("error:.*coroutine")
@pytest.mark.parametrize("answer", [3, -1, None, True, 1.0, "1"])
def test_an_answer_that_is_no_partition_is_named(wide: Server, answer: Any) -> None:
    with Producer(wide.bootstrap, partitioner=lambda *record: answer) as producer:
        with pytest.raises(PartitionerError) as caught:
            producer.send("t", b"x")
        assert str(caught.value) == (
            f"topic 't': the partitioner failed (it returned {answer!r}; the topic has the partitions "
            "0 to 2); the record was not sent"
        )
        assert producer.send("t", b"x", partition=0).result(SECONDS).offset == 0


@pytest.mark.filterwarnings("error:.*coroutine")
def test_a_partitioner_that_fails_or_is_a_coroutine_is_an_error_of_send(wide: Server) -> None:
    async def later(topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        return 0

    def fails(topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        raise LookupError("no such airline")

    with pytest.raises(ConfigError, match="no client can await a coroutine"):
        Producer(wide.bootstrap, partitioner=later)  # type: ignore[arg-type]
    for partitioner, message in ((fails, "no such airline"), (lambda *record: later(*record), "it returned")):
        config: Any = {"partitioner": partitioner}
        with Producer(wide.bootstrap, **config) as producer:
            with pytest.raises(PartitionerError, match=message):
                producer.send("t", b"x")
            producer.send("t", b"x", partition=0).result(SECONDS)


def test_a_partitioner_may_call_its_producer(wide: Server) -> None:
    def copies(topic: str, key: Any, value: Any, partitions: Any, available: Any) -> int:
        producer.send("t", value, partition=1).result(SECONDS)
        return 0

    with Producer(wide.bootstrap, partitioner=copies) as producer:
        assert producer.send("t", b"x").result(SECONDS).partition == 0
        assert producer.send("t", b"x", partition=1).result(SECONDS).offset == 1


def test_the_wait_for_metadata_is_a_part_of_max_block_ms(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(topics={"t": 1}) as server:
        producer = Producer(server.bootstrap, partitioner=last, buffer_memory=50_000, max_block_ms=60_000)
        producer.send("t", b"x").result(SECONDS)
    hooks: Any = producer._hooks  # pyright: ignore[reportPrivateUsage]
    route = producer._runtime.records.route_of("t")  # pyright: ignore[reportPrivateUsage]

    async def after_a_minute(topic: str) -> Any:
        return route, 60_000

    monkeypatch.setattr(hooks, "_wait_for_route", after_a_minute)
    began = time.monotonic()
    # The broker no longer exists, and the buffer fills up.
    with pytest.raises(RequestTimedOut):
        deque((producer.send("t", bytes(10_000)) for _ in range(9)), maxlen=0)
    assert time.monotonic() - began < 30
    producer.kill()


def test_send_columns_needs_partitions_if_there_is_a_partitioner(wide: Server) -> None:
    pytest.importorskip("pyarrow")
    with Producer(wide.bootstrap, partitioner=last) as producer:
        with pytest.raises(ConfigError, match="send_columns does not call the partitioner"):
            producer.send_columns("t", {"value": [b"x"]})
        with pytest.raises(ConfigError, match="send_columns does not call the partitioner"):
            producer.send_columns("t", {"value": [b"x", b"y"], "partition": [0, None]})
        (delivery,) = producer.send_columns("t", {"value": [b"x"], "partition": [0]})
        assert delivery.result(SECONDS).partition == 0
