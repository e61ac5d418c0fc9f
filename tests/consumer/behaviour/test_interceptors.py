"""Interceptors can see and change records. If an interceptor fails, the client ignores the failure."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from consumer import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.interceptors import ConsumerInterceptor, ProducerInterceptor, ProducerRecord
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, NotDelivered, SerializationError

P0 = TopicPartition("t", 0)
SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1, "u": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server:
        yield server


def read(server: Server, count: int, **options: Any) -> list[Any]:
    options = {"auto_offset_reset": "earliest", "group_id": "g", **options}
    with Consumer(server.bootstrap, **options) as consumer:
        consumer.subscribe(["t", "u"])
        records: list[Any] = []
        while len(records) < count:
            records += consumer.poll(0.2)
    return records


def write(server: Server, *values: bytes) -> None:
    with Producer(server.bootstrap) as producer:
        for value in values:
            producer.send("t", value)


class Log(ProducerInterceptor):
    def __init__(self) -> None:
        self.sent: list[ProducerRecord] = []
        self.ended: list[Any] = []
        self.done = threading.Event()

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent.append(record)
        return record

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
        self.ended.append((metadata, error))
        self.done.set()


class Change(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return msgspec.structs.replace(
            record, topic="u", key="k", value=[record.value], headers=[("h", b"x")], timestamp=7
        )


def text(topic: str, value: Any, headers: Any) -> bytes:
    return str(value).encode()


def test_on_send_may_change_everything_before_the_serializers_run(server: Server) -> None:
    log = Log()
    with Producer(
        server.bootstrap, interceptors=[Change(), log], key_serializer=text, value_serializer=text
    ) as producer:
        metadata = producer.send("t", 1).result(SECONDS)
        assert (metadata.topic, metadata.offset, metadata.timestamp) == ("u", 0, 7)
    assert [(r.topic, r.key, r.value) for r in log.sent] == [("u", "k", [1])]
    assert log.ended == [(metadata, None)]
    (record,) = read(server, 1)
    assert (record.topic, record.key, record.value, record.headers) == ("u", b"k", b"[1]", (("h", b"x"),))


def test_on_acknowledgement_gets_the_error_of_a_failed_send(server: Server) -> None:
    log = Log()
    config: Any = {"interceptors": [log], "value_serializer": lambda topic, value, headers: 1 // value}
    with Producer(server.bootstrap, **config) as producer:
        with pytest.raises(SerializationError) as caught:
            producer.send("t", 0)
        assert log.ended == [(None, caught.value)]


def test_a_failure_that_only_an_interceptor_saw_is_still_raised_by_flush() -> None:
    log = Log()
    with running(topics={"t": 1}) as server:
        producer = Producer(
            server.bootstrap, interceptors=[log], delivery_timeout_ms=1000, request_timeout_ms=900
        )
        producer.send("t", b"x").result(SECONDS)
        assert log.done.wait(SECONDS)
        log.done.clear()
    producer.send("t", b"y")
    with pytest.raises(NotDelivered):
        producer.flush(SECONDS)
    assert log.done.wait(SECONDS)
    producer.kill()
    (_, first), (_, second) = log.ended
    assert first is None
    assert second is not None


class BadProducerInterceptor(ProducerInterceptor):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def on_send(self, record: ProducerRecord) -> Any:
        return self.fail(record)

    def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> Any:
        return self.fail(metadata)

    def fail(self, argument: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer() if callable(self.answer) else self.answer


async def later() -> None:
    """Do nothing. Interceptors return this coroutine, although they must not; no client awaits it."""


@pytest.mark.filterwarnings("error:.*coroutine")
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (LookupError("no audit"), "no audit"),
        (None, "it returned None, which is not a ProducerRecord"),
        (later, "interceptors cannot be async functions"),
        (ProducerRecord("", b"", None, None, 1, ()), "the name of a topic"),
        (ProducerRecord("t", b"", None, -1, 1, ()), "partition"),
        (ProducerRecord("t", b"", None, None, 1, [("h", 1)]), "headers"),  # type: ignore[list-item]
    ],
)
def test_a_producer_ignores_an_interceptor_that_fails(
    server: Server, caplog: pytest.LogCaptureFixture, answer: Any, message: str
) -> None:
    log = Log()
    with Producer(server.bootstrap, interceptors=[BadProducerInterceptor(answer), log]) as producer:
        assert producer.send("t", b"x").result(SECONDS).offset == 0
    assert len(log.ended) == 1
    failures = [record for record in caplog.records if "BadProducerInterceptor.on_send()" in record.message]
    assert "failed for a record for topic 't'" in failures[0].message
    assert message in str(failures[0].exc_info)
    assert [record.value for record in read(server, 1)] == [b"x"]


def test_an_interceptor_may_call_its_producer_and_may_block(server: Server) -> None:
    class Busy(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            if record.topic == "t":
                producer.send("u", record.value).result(SECONDS)
            return record

        def on_acknowledgement(self, metadata: Any, error: BaseException | None) -> None:
            if metadata is not None and metadata.topic == "t" and not blocked.is_set():
                blocked.set()
                release.wait(SECONDS)
                producer.flush()

    blocked, release = threading.Event(), threading.Event()
    with Producer(server.bootstrap, interceptors=[Busy()]) as producer:
        producer.send("t", b"x").result(SECONDS)
        assert blocked.wait(SECONDS)
        producer.send("t", b"y").result(SECONDS)
        release.set()
    assert sorted(record.value for record in read(server, 4)) == [b"x", b"x", b"y", b"y"]


def test_a_cancelled_send_is_acknowledged_with_its_cancellation(server: Server) -> None:
    log = Log()

    async def never(topic: str, value: Any, headers: Any) -> bytes:
        await asyncio.sleep(SECONDS)
        return b""

    async def main() -> None:
        async with AsyncProducer(server.bootstrap, interceptors=[log], value_serializer=never) as producer:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(producer.send("t", 1), 0.05)

    asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert [record.value for record in log.sent] == [1]
    assert [(metadata, type(error)) for metadata, error in log.ended] == [(None, asyncio.CancelledError)]


def test_interceptors_work_in_asyncio(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    class Fails(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            raise LookupError("no audit")

    log = Log()

    async def main() -> list[bytes | None]:
        async with AsyncProducer(server.bootstrap, interceptors=[log]) as producer:
            await producer.send("t", b"x")
        async with AsyncConsumer(server.bootstrap, interceptors=[Fails()]) as consumer:
            consumer.assign({P0: 0})
            return [record.value for record in await consumer.poll(SECONDS)]

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == [b"x"]
    assert [metadata.offset for metadata, _ in log.ended] == [0]
    assert "Fails.on_consume() failed for 1 records from t-0 @ 0" in caplog.text


class Keep(ConsumerInterceptor):
    def __init__(self) -> None:
        self.commits: list[Any] = []

    def on_consume(self, records: list[Any]) -> list[Any]:
        return [record for record in records if record.value != b"hidden"]

    def on_commit(self, offsets: Any) -> None:
        self.commits.append(offsets)


def test_on_consume_may_drop_records_and_on_commit_sees_each_commit(server: Server) -> None:
    write(server, b"hidden", b"hidden", b"a", b"hidden", b"b", b"hidden")
    keep = Keep()
    config: Any = {"auto_offset_reset": "earliest", "group_id": "g", "enable_auto_commit": False}
    with Consumer(server.bootstrap, interceptors=[keep], max_poll_records=2, **config) as consumer:
        consumer.subscribe("t")
        records: list[Any] = []
        while len(records) < 2:
            records += consumer.poll(0.2)
        keep.commits.clear()
        consumer.commit()
        assert [{p: o.offset for p, o in offsets.items()} for offsets in keep.commits] == [{P0: 6}]
        consumer.commit({P0: (3, "checked")})
        assert (keep.commits[-1][P0].offset, keep.commits[-1][P0].metadata) == (3, "checked")
    assert [record.value for record in records] == [b"a", b"b"]


@pytest.mark.filterwarnings("error:.*coroutine")
@pytest.mark.parametrize("answer", [LookupError("no audit"), None, [1], later])
def test_a_consumer_ignores_an_interceptor_that_fails(
    server: Server, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    class Bad(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> Any:
            records.clear()
            return self.on_commit({})

        def on_commit(self, offsets: Any) -> Any:
            if isinstance(answer, Exception):
                raise answer
            return answer() if callable(answer) else answer

    write(server, b"a", b"b")
    keep = Keep()
    records = read(server, 2, interceptors=[Bad(), keep])
    assert [record.value for record in records] == [b"a", b"b"]
    assert keep.commits[-1][P0].offset == 2
    assert "Bad.on_consume() failed for 2 records from t-0 @ 0" in caplog.text
    if isinstance(answer, Exception):
        assert "Bad.on_commit() failed for t-0 at 2" in caplog.text


class Rename(ConsumerInterceptor):
    def on_consume(self, records: list[Any]) -> list[Any]:
        return [msgspec.structs.replace(record, topic="other") for record in records]


class RenameInPlace(ConsumerInterceptor):
    def on_consume(self, records: list[Any]) -> list[Any]:
        for record in records:
            record.topic = "other"
        return records


class MoveToSubscribed(ConsumerInterceptor):
    def on_consume(self, records: list[Any]) -> list[Any]:
        return [msgspec.structs.replace(record, topic="u") for record in records]


class Reverse(ConsumerInterceptor):
    def on_consume(self, records: list[Any]) -> list[Any]:
        return records[::-1]


class Copy(ConsumerInterceptor):
    def on_consume(self, records: list[Any]) -> list[Any]:
        return [copy for record in records for copy in (record, msgspec.structs.replace(record))]


@pytest.mark.parametrize("interceptor", [Rename(), RenameInPlace()])
@pytest.mark.parametrize("deserializer", [None, lambda topic, data, headers: data])
def test_poll_returns_records_that_on_consume_has_renamed(
    server: Server, interceptor: ConsumerInterceptor, deserializer: Any
) -> None:
    write(server, b"1", b"2", b"3")
    records = read(server, 3, interceptors=[interceptor], value_deserializer=deserializer)
    assert [(record.topic, record.value) for record in records] == [
        ("other", b"1"),
        ("other", b"2"),
        ("other", b"3"),
    ]


@pytest.mark.parametrize(
    "interceptor", [Rename(), RenameInPlace(), MoveToSubscribed(), Reverse(), Copy(), ConsumerInterceptor()]
)
def test_an_iteration_loses_no_record_that_on_consume_has_renamed_or_moved(
    server: Server, interceptor: ConsumerInterceptor
) -> None:
    write(server, b"0", b"1", b"2", b"3")
    with Producer(server.bootstrap) as producer:
        producer.send("u", b"u0")
    options: Any = {"group_id": "g", "auto_offset_reset": "earliest", "interceptors": [interceptor]}
    values = set()
    with Consumer(server.bootstrap, **options) as consumer:
        consumer.subscribe(["t", "u"])
        for number, record in enumerate(consumer):
            values.add(record.value)
            if number == 1:
                consumer.commit()
                committed = consumer.committed([P0])[P0]
                unread = {b"0", b"1", b"2", b"3"} - values
                assert committed is None or committed.offset <= min(map(int, unread))
                consumer.pause([P0])  # The held records are given back.
                consumer.resume([P0])
            if len(values) == 5:
                break


def test_on_consume_cannot_change_its_consumer(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    class Seeks(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            consumer.seek(P0, 1)
            return []

    write(server, b"a", b"b")
    with Consumer(server.bootstrap, interceptors=[Seeks()]) as consumer:
        consumer.assign({P0: 0})
        assert [record.value for record in consumer.poll(SECONDS)] == [b"a", b"b"]
    assert "seek() can't be called inside the interceptor " in caplog.text
    assert "Seeks.on_consume(); return from the callback first" in caplog.text


def test_on_commit_may_call_its_consumer_also_after_on_consume(server: Server) -> None:
    class Seeks(ConsumerInterceptor):
        def on_commit(self, offsets: Any) -> None:
            consumer.seek(P0, 0)

    write(server, b"a")
    with Consumer(server.bootstrap, group_id="g", interceptors=[Seeks()]) as consumer:
        consumer.assign({P0: 0})
        assert [record.value for record in consumer.poll(SECONDS)] == [b"a"]
        consumer.commit()
        assert [record.value for record in consumer.poll(SECONDS)] == [b"a"]


def test_interceptors_are_checked_when_the_client_is_created(server: Server) -> None:
    class Later(ConsumerInterceptor):
        async def on_commit(self, offsets: Any) -> None:  # type: ignore[override]
            """A coroutine."""

    with pytest.raises(ConfigError, match=r"on_commit\(\) cannot be a coroutine"):
        Consumer(server.bootstrap, interceptors=[Later()])
    for wrong in ("consumer.Audit", 7, [Log], [Log()]):
        config: Any = {"interceptors": wrong}
        with pytest.raises(ConfigError, match=r"extend consumer\.interceptors\.ConsumerInterceptor"):
            Consumer(server.bootstrap, **config)
