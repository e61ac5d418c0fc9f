"""sarama's SyncProducer and AsyncProducer return each message or its error once, on the embedded broker."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from consumer import (
    AsyncQueueProducer,
    AsyncSyncProducer,
    Consumer,
    ProducerErrors,
    ProducerMessage,
    QueueProducer,
    SyncProducer,
)
from consumer.interceptors import ProducerInterceptor
from consumer.sarama import producers, producers_threads
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut, UnknownTopic
from kproto.group.subscription import TopicPartition

SHORT: dict[str, Any] = {"max_block_ms": 500, "allow_auto_create_topics": False}


@pytest.fixture
def server() -> Iterator[Server]:
    with running(
        topics={"t": 3}, settings={"auto.create.topics.enable": "false", "message.max.bytes": "1000"}
    ) as server:
        yield server


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def message(key: bytes | None = b"k1", **fields: Any) -> ProducerMessage:
    return ProducerMessage(**{"topic": "t", "key": key, "value": b"v", **fields})


@pytest.mark.parametrize("acks", ["all", 1])
def test_send_message_returns_partition_and_offset(server: Server, acks: Any) -> None:
    with SyncProducer(server.bootstrap, acks=acks) as producer:
        sent = message(metadata="mine")
        first = producer.send_message(sent)
        assert (sent.partition, sent.offset, sent.metadata) == (*first, "mine")
        assert sent.timestamp is not None
        assert producer.send_message(message()) == (first[0], 1)
        assert producer.send_message(message(partition=2, key=None))[0] == 2


@pytest.mark.parametrize("kind", [SyncProducer, QueueProducer, AsyncSyncProducer, AsyncQueueProducer])
@pytest.mark.parametrize("option", ["key_serializer", "value_serializer"])
def test_messages_contain_bytes_so_serializers_are_rejected(kind: Any, option: str) -> None:
    async def make() -> None:
        kind("localhost:1", **{option: lambda topic, value, headers: b""})

    with pytest.raises(ConfigError, match=f"^{option}=.*contain bytes; convert them in your own code"):
        asyncio.run(make())


@pytest.mark.parametrize("kind", [SyncProducer, QueueProducer])
def test_a_partitioner_and_interceptors_are_called(kind: Any, server: Server) -> None:
    class Log(ProducerInterceptor):
        def on_send(self, record: Any) -> Any:
            sent.append((record.topic, record.value))
            return record

    sent: list[Any] = []
    place = {"partitioner": lambda topic, key, value, partitions, available: 2}
    with kind(server.bootstrap, interceptors=[Log()], **place) as producer:
        if kind is SyncProducer:
            assert producer.send_message(message()) == (2, 0)
        else:
            producer.input(message())
    assert sent == [("t", b"v")]


@pytest.mark.parametrize("invalid", [None, "t", {"topic": "t"}])
def test_anything_but_a_message_is_rejected_before_a_send(invalid: Any, server: Server) -> None:
    with SyncProducer(server.bootstrap) as waiting, QueueProducer(server.bootstrap) as queued:
        for call in (waiting.send_message, waiting.send_messages, queued.input):
            with pytest.raises(ConfigError, match="ProducerMessage"):
                call(invalid)
        with pytest.raises(ConfigError, match="ProducerMessage"):
            waiting.send_messages([message(), invalid])
        assert waiting.send_message(message())[1] == 0


def test_with_acks_0_the_offset_is_unknown(server: Server) -> None:
    with SyncProducer(server.bootstrap, acks=0) as producer:
        assert producer.send_message(message(partition=1)) == (1, None)


def test_a_failed_message_raises(server: Server) -> None:
    with SyncProducer(server.bootstrap, **SHORT) as producer:
        with pytest.raises((UnknownTopic, RequestTimedOut)):
            producer.send_message(message(topic="nowhere"))
        with pytest.raises(ConfigError, match="value"):
            producer.send_message(message(value="text"))


def test_send_messages_sends_the_valid_ones_and_reports_the_others(server: Server) -> None:
    batch = [message(), message(topic="nowhere"), message()]
    with SyncProducer(server.bootstrap, **SHORT) as producer:
        with pytest.raises(ProducerErrors, match="1 messages were not sent") as error_info:
            producer.send_messages(batch)
        assert [error.message for error in error_info.value.errors] == [batch[1]]
        assert [sent.offset for sent in batch] == [0, None, 1]


@pytest.mark.parametrize("option", ["return_successes", "return_errors"])
@pytest.mark.parametrize("kind", [SyncProducer, AsyncSyncProducer])
def test_a_sync_producer_requires_successes_and_errors(kind: Any, option: str, server: Server) -> None:
    with pytest.raises(ConfigError, match=option):
        kind(server.bootstrap, **{option: False})


def test_each_message_is_returned_once(server: Server) -> None:
    outcome: list[Any] = []
    failed: list[Any] = []
    with QueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:
        readers = [
            threading.Thread(target=lambda: outcome.extend(producer.successes())),
            threading.Thread(target=lambda: failed.extend(producer.errors())),
        ]
        for reader in readers:
            reader.start()
        sent = [message(b"%d" % number, metadata=number) for number in range(500)]
        for sent_message in sent[:250]:
            producer.input(sent_message)
        producer.input(lost := message(topic="nowhere"))
        for sent_message in sent[250:]:
            producer.input(sent_message)
    for reader in readers:
        reader.join(10)
    assert sorted(sent_message.metadata for sent_message in outcome) == list(range(500))
    assert len({(sent_message.partition, sent_message.offset) for sent_message in outcome}) == 500
    assert [error.message for error in failed] == [lost]


def test_unread_errors_are_raised_by_close(server: Server) -> None:
    producer = QueueProducer(server.bootstrap, **SHORT)
    producer.input(message(topic="nowhere"))
    producer.input(message())
    with pytest.raises(ProducerErrors, match="nowhere"):
        producer.close()
    producer.close()
    with pytest.raises(IllegalState, match="closed"):
        producer.input(message())


def test_an_error_in_the_with_block_is_raised(server: Server) -> None:
    def work() -> None:
        with QueueProducer(server.bootstrap, **SHORT) as producer:
            producer.input(message(topic="nowhere"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()


def test_async_close_ends_the_readers_after_all_messages(server: Server) -> None:
    producer = QueueProducer(server.bootstrap, return_successes=True, linger_ms=300)
    for _ in range(10):
        producer.input(message())
    producer.async_close()
    assert len(list(producer.successes())) == 10
    assert list(producer.errors()) == []


def test_async_close_works_if_no_thread_can_be_started(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`async_close` works even if no thread can be started. If it needed a thread, `close` and the readers
    would wait forever.
    """

    def start(thread: Any) -> None:
        raise RuntimeError("can't start new thread")

    producer = QueueProducer(server.bootstrap, return_successes=True)
    producer.input(message())
    producer.input(message())
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        producer.async_close()
    producer.close(0)
    assert len(list(producer.successes())) == 2
    assert list(producer.errors()) == []


def test_close_after_async_close_keeps_its_timeout(server: Server) -> None:
    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 1_000_000)
    producer = QueueProducer(server.bootstrap, return_successes=True)
    producer.input(message())
    producer.async_close()
    with pytest.raises(RequestTimedOut, match=r"close: no answer within 200 ms.*async_close\(\) was called"):
        producer.close(0.2)
    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 0)
    producer.close(10)
    assert len(list(producer.successes())) == 1


def test_close_after_async_close_keeps_its_timeout_in_asyncio(server: Server) -> None:
    async def work() -> None:
        producer = AsyncQueueProducer(server.bootstrap, return_successes=True)
        await producer.input(message())
        producer.async_close()
        with pytest.raises(RequestTimedOut, match="close: no answer within 200 ms"):
            await producer.close(0.2)
        server.fail("Produce", "NOT_ENOUGH_REPLICAS", 0)
        await producer.close(10)
        assert len([success async for success in producer.successes()]) == 1

    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 1_000_000)
    asyncio.run(work())


def test_results_that_are_not_returned_cannot_be_read(server: Server) -> None:
    with QueueProducer(server.bootstrap, return_errors=False) as producer:
        with pytest.raises(ConfigError, match="return_successes"):
            producer.successes()
        with pytest.raises(ConfigError, match="return_errors"):
            producer.errors()


def test_input_times_out_with_a_hint_if_successes_are_not_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_threads, "MAX_UNREAD", 3)
    with QueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:
        for _ in range(3):
            producer.input(message())
        producer._producer.flush()
        wait_until(lambda: len(producer._successes or ()) == 3)
        with pytest.raises(RequestTimedOut, match="results are unread: read them"):
            producer.input(message())
        next(producer.successes())
        producer.input(message())


def test_waiting_readers_receive_each_result_at_once(server: Server) -> None:
    """A waiting reader receives each result as soon as it is known, not only when the producer is closed."""
    with QueueProducer(server.bootstrap, return_successes=True, linger_ms=50) as producer:
        producer.input(message(metadata=1))
        assert next(producer.successes()).metadata == 1
        producer.input(lost := message(value=TOO_LARGE))
        assert next(producer.errors()).message is lost


# ---- asyncio


def test_the_sync_producer_in_asyncio(server: Server) -> None:
    async def main() -> None:
        batch = [message(), message(topic="nowhere"), message()]
        async with AsyncSyncProducer(server.bootstrap, **SHORT) as producer:
            position = await producer.send_message(message())
            assert await producer.send_message(message()) == (position[0], 1)
            with pytest.raises(ProducerErrors) as error_info:
                await producer.send_messages(batch)
            assert [error.message for error in error_info.value.errors] == [batch[1]]
            assert [sent.offset for sent in batch] == [2, None, 3]

    asyncio.run(main())


def test_the_queue_producer_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:

            async def list_items(items: Any) -> list[Any]:
                return [item async for item in items]

            readers = [
                asyncio.ensure_future(list_items(returned))
                for returned in (producer.successes(), producer.errors())
            ]
            for number in range(300):
                await producer.input(message(metadata=number))
            await producer.input(lost := message(topic="nowhere"))
        outcome, failed = [await reader for reader in readers]
        assert [returned.metadata for returned in outcome] == list(range(300))
        assert [error.message for error in failed] == [lost]

    asyncio.run(main())


def test_in_asyncio_an_error_in_the_with_block_is_raised(server: Server) -> None:
    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, **SHORT) as producer:
            await producer.input(message(topic="nowhere"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(main())


def test_in_asyncio_unread_errors_are_raised_by_close(server: Server) -> None:
    async def main() -> None:
        producer = AsyncQueueProducer(server.bootstrap, **SHORT)
        await producer.input(message(topic="nowhere"))
        with pytest.raises(ProducerErrors):
            await producer.close()
        with pytest.raises(IllegalState, match="closed"):
            await producer.input(message())

    asyncio.run(main())


def test_in_asyncio_input_times_out_with_a_hint_if_successes_are_not_read(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers, "MAX_UNREAD", 3)

    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:
            for _ in range(3):
                await producer.input(message())
            await producer._producer.flush()
            await asyncio.sleep(0)
            with pytest.raises(RequestTimedOut, match="results are unread: read them"):
                await producer.input(message())
            assert await anext(producer.successes())
            await producer.input(message())

    asyncio.run(main())


def test_results_that_are_not_returned_cannot_be_read_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, return_errors=False) as producer:
            with pytest.raises(
                ConfigError, match="return_successes=False is not allowed; set it to True to read"
            ):
                producer.successes()
            with pytest.raises(
                ConfigError, match="return_errors=False is not allowed; set it to True to read"
            ):
                producer.errors()

    asyncio.run(main())


def test_in_asyncio_async_close_ends_the_readers_after_all_messages(server: Server) -> None:
    async def main() -> None:
        producer = AsyncQueueProducer(server.bootstrap, return_successes=True, linger_ms=100)
        for _ in range(10):
            await producer.input(message(metadata="mine"))
        producer.async_close()
        producer.async_close()
        successes = [success async for success in producer.successes()]
        assert [success.metadata for success in successes] == ["mine"] * 10
        assert {success.offset for success in successes} == set(range(10))
        assert [error async for error in producer.errors()] == []
        await producer.close()
        with pytest.raises(IllegalState, match="this producer is closed; make a new one"):
            await producer.input(message())

    asyncio.run(main())


# ---- all producers


class EachKind:
    """A producer for threads or for asyncio, whose methods are called in the same way."""

    def __init__(self, kind: Any, *arguments: Any, **config: Any) -> None:
        self._runner = asyncio.Runner()

        async def make() -> Any:
            return kind(*arguments, **config)

        self.producer = self._runner.run(make())

    def call(self, name: str, *arguments: Any) -> Any:
        """Call a method of the producer, and return its result, or the list of an iterator's items."""
        return self.wait(lambda: getattr(self.producer, name)(*arguments))

    def wait(self, function: Callable[[], Any]) -> Any:
        """Call a function and return its result, or a list of the items if the result is an iterator."""

        async def work() -> Any:
            result = function()
            if isinstance(result, AsyncIterator):
                return [item async for item in result]
            if isinstance(result, Awaitable):
                return await result
            return list(result) if isinstance(result, Iterator) else result

        return self._runner.run(work())

    def __enter__(self) -> EachKind:
        return self

    def __exit__(self, *_: object) -> None:
        self.call("close")
        self._runner.close()


SYNC, QUEUES = [SyncProducer, AsyncSyncProducer], [QueueProducer, AsyncQueueProducer]
TOO_LARGE = b"v" * 2_000


@pytest.mark.parametrize("kind", SYNC)
def test_a_sync_producer_does_not_linger_by_default(kind: Any, server: Server) -> None:
    for config, linger_ms in (({}, 0), ({"linger_ms": 7}, 7)):
        with EachKind(kind, server.bootstrap, **config) as each:
            assert each.producer._producer.options.linger_ms == linger_ms


@pytest.mark.parametrize("kind", SYNC)
def test_a_sent_message_has_its_place(kind: Any, server: Server) -> None:
    with EachKind(kind, server.bootstrap) as each:
        sent = message(partition=1, timestamp=1_700_000_000_123, headers=(("h", b"1"),))
        assert each.call("send_message", sent) == (1, 0)
        assert (sent.partition, sent.offset, sent.timestamp) == (1, 0, 1_700_000_000_123)
        each.call("send_messages", [sent, sent])
        assert sent.offset == 2
    with EachKind(kind, server.bootstrap, acks=0) as each:
        assert each.call("send_message", message(partition=2)) == (2, None)
    with Consumer(server.bootstrap, auto_offset_reset="earliest") as reader:
        reader.assign([TopicPartition("t", 1)])
        first = reader.poll(10)[0]
    assert (first.key, first.value, first.timestamp) == (b"k1", b"v", 1_700_000_000_123)
    assert first.headers == (("h", b"1"),)


@pytest.mark.parametrize("kind", SYNC)
def test_messages_that_the_broker_rejects_are_reported_together(kind: Any, server: Server) -> None:
    batch = [message(value=TOO_LARGE), message(), message(value=TOO_LARGE)]
    with EachKind(kind, server.bootstrap) as each:
        with pytest.raises(ProducerErrors, match="2 messages were not sent") as raised:
            each.call("send_messages", batch)
        assert [error.message for error in raised.value.errors] == [batch[0], batch[2]]
        assert [sent.offset for sent in batch] == [None, 0, None]
        with pytest.raises(KprotoError, match="MESSAGE_TOO_LARGE"):
            each.call("send_message", batch[0])


@pytest.mark.parametrize("kind", [*SYNC, *QUEUES])
def test_a_closed_producer_accepts_no_message(kind: Any, server: Server) -> None:
    send = "send_message" if kind in SYNC else "input"
    with EachKind(kind, server.bootstrap) as each:
        with pytest.raises(ConfigError, match=r"^timeout="):
            each.call("close", -1)
        each.call(send, message())
        with pytest.raises(ConfigError, match=r"^message="):
            each.call(send, "text")
        with pytest.raises(ConfigError, match=r"^value="):
            each.call(send, message(value="text"))
        each.call("close", 10)
        with pytest.raises(IllegalState, match="closed"):
            each.call(send, message())


@pytest.mark.parametrize("kind", QUEUES)
def test_errors_that_are_not_returned_are_logged(
    kind: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"return_errors": False, "client_id": "me"}
    with caplog.at_level(logging.ERROR), EachKind(kind, server.bootstrap, **options) as each:
        each.call("input", message(value=TOO_LARGE))
    (line,) = caplog.messages
    assert line.startswith("me: a message to t was not sent: ")


@pytest.mark.parametrize("kind", QUEUES)
def test_close_does_not_raise_errors_that_errors_returns(kind: Any, server: Server) -> None:
    with EachKind(kind, server.bootstrap) as each:
        each.call("input", lost := message(value=TOO_LARGE))
        errors = each.producer.errors()
        each.call("close")
        (error,) = each.wait(lambda: errors)
        assert error.message is lost
        assert "MESSAGE_TOO_LARGE" in str(error.error)


@pytest.mark.parametrize("kind", QUEUES)
def test_an_error_that_was_not_requested_is_raised_by_the_first_close(kind: Any, server: Server) -> None:
    with EachKind(kind, server.bootstrap, return_successes=True) as each:
        each.call("input", lost := message(value=TOO_LARGE))
        each.call("input", message(metadata=1))
        with pytest.raises(ProducerErrors, match="1 messages were not sent") as raised:
            each.call("close")
        assert [error.message for error in raised.value.errors] == [lost]
        each.call("close")
        assert [success.metadata for success in each.call("successes")] == [1]


@pytest.mark.parametrize("kind", QUEUES)
def test_unread_errors_delay_input_too(kind: Any, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (producers, producers_threads):
        monkeypatch.setattr(module, "MAX_UNREAD", 1)
    with EachKind(kind, server.bootstrap, max_block_ms=200) as each:
        each.call("input", message(value=TOO_LARGE))
        each.wait(lambda: each.producer._producer.flush())
        unread = each.producer._errors
        wait_until(lambda: len(getattr(unread, "items", unread)) == 1)
        with pytest.raises(RequestTimedOut, match=r"input: no answer within 200 ms \(1 results are unread"):
            each.call("input", message())
        each.call("async_close")
        assert len(each.call("errors")) == 1
