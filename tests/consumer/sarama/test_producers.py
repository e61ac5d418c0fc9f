"""sarama's producers, one that waits and one with queues, on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import (
    AsyncQueueProducer,
    AsyncSyncProducer,
    ProducerErrors,
    ProducerMessage,
    QueueProducer,
    SyncProducer,
)
from consumer.sarama import messages, producers, producers_threads
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, IllegalState, RequestTimedOut, UnknownTopic

SHORT: dict[str, Any] = {"max_block_ms": 500, "allow_auto_create_topics": False}


@pytest.fixture
def server() -> Iterator[Server]:
    with running(
        topics={"t": 3}, settings={"auto.create.topics.enable": "false", "message.max.bytes": "1000"}
    ) as server:
        yield server


def wait_until(condition: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def message(key: bytes | None = b"k1", **more: Any) -> ProducerMessage:
    return ProducerMessage(**{"topic": "t", "key": key, "value": b"v", **more})


@pytest.mark.parametrize("acks", ["all", 1])
def test_send_message_returns_partition_and_offset_and_a_key_stays_where_it_is(
    server: Server, acks: Any
) -> None:
    with SyncProducer(server.bootstrap, acks=acks) as producer:
        sent = message(metadata="mine")
        first = producer.send_message(sent)
        assert (sent.partition, sent.offset, sent.metadata) == (*first, "mine")
        assert sent.timestamp is not None
        assert producer.send_message(message()) == (first[0], 1)
        assert producer.send_message(message(partition=2, key=None))[0] == 2


@pytest.mark.parametrize("wrong", [None, "t", {"topic": "t"}])
def test_what_is_no_message_is_refused_before_anything_is_sent(wrong: Any, server: Server) -> None:
    with SyncProducer(server.bootstrap) as waiting, QueueProducer(server.bootstrap) as queued:
        for call in (waiting.send_message, waiting.send_messages, queued.input):
            with pytest.raises(ConfigError, match="ProducerMessage"):
                call(wrong)
        with pytest.raises(ConfigError, match="ProducerMessage"):
            waiting.send_messages([message(), wrong])
        assert waiting.send_message(message())[1] == 0


def test_nobody_says_the_offset_without_acks(server: Server) -> None:
    with SyncProducer(server.bootstrap, acks=0) as producer:
        assert producer.send_message(message(partition=1)) == (1, None)


def test_a_message_that_is_not_sent_raises(server: Server) -> None:
    with SyncProducer(server.bootstrap, **SHORT) as producer:
        with pytest.raises((UnknownTopic, RequestTimedOut)):
            producer.send_message(message(topic="nowhere"))
        with pytest.raises(ConfigError, match="value"):
            producer.send_message(message(value="text"))


def test_send_messages_sends_what_can_be_sent_and_tells_the_others(server: Server) -> None:
    some = [message(), message(topic="nowhere"), message()]
    with SyncProducer(server.bootstrap, **SHORT) as producer:
        with pytest.raises(ProducerErrors, match="1 messages were not sent") as raised:
            producer.send_messages(some)
        assert [error.message for error in raised.value.errors] == [some[1]]
        assert [one.offset for one in some] == [0, None, 1]


@pytest.mark.parametrize("option", ["return_successes", "return_errors"])
@pytest.mark.parametrize("kind", [SyncProducer, AsyncSyncProducer])
def test_a_producer_that_waits_has_both_returned(kind: Any, option: str, server: Server) -> None:
    with pytest.raises(ConfigError, match=option):
        kind(server.bootstrap, **{option: False})


def test_each_message_comes_out_once(server: Server) -> None:
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
        for one in sent[:250]:
            producer.input(one)
        producer.input(lost := message(topic="nowhere"))
        for one in sent[250:]:
            producer.input(one)
    for reader in readers:
        reader.join(10)
    assert sorted(one.metadata for one in outcome) == list(range(500))
    assert len({(one.partition, one.offset) for one in outcome}) == 500
    assert [error.message for error in failed] == [lost]


def test_errors_that_nobody_reads_are_raised_by_close(server: Server) -> None:
    producer = QueueProducer(server.bootstrap, **SHORT)
    producer.input(message(topic="nowhere"))
    producer.input(message())
    with pytest.raises(ProducerErrors, match="nowhere"):
        producer.close()
    producer.close()
    with pytest.raises(IllegalState, match="closed"):
        producer.input(message())


def test_the_blocks_own_error_is_seen(server: Server) -> None:
    def work() -> None:
        with QueueProducer(server.bootstrap, **SHORT) as producer:
            producer.input(message(topic="nowhere"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        work()


def test_async_close_lets_the_readers_end_when_all_is_told(server: Server) -> None:
    producer = QueueProducer(server.bootstrap, return_successes=True, linger_ms=300)
    for _ in range(10):
        producer.input(message())
    producer.async_close()
    assert len(list(producer.successes())) == 10
    assert list(producer.errors()) == []


def test_async_close_ends_the_producer_where_no_thread_can_be_had(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """close() waited for ever then, and so did the readers."""

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


def test_close_behind_async_close_keeps_its_time(server: Server) -> None:
    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 1_000_000)
    producer = QueueProducer(server.bootstrap, return_successes=True)
    producer.input(message())
    producer.async_close()
    with pytest.raises(RequestTimedOut, match=r"close: no answer within 200 ms.*async_close\(\) was called"):
        producer.close(0.2)
    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 0)
    producer.close(10)
    assert len(list(producer.successes())) == 1


def test_close_behind_async_close_keeps_its_time_in_asyncio(server: Server) -> None:
    async def work() -> None:
        producer = AsyncQueueProducer(server.bootstrap, return_successes=True)
        await producer.input(message())
        producer.async_close()
        with pytest.raises(RequestTimedOut, match="close: no answer within 200 ms"):
            await producer.close(0.2)
        server.fail("Produce", "NOT_ENOUGH_REPLICAS", 0)
        await producer.close(10)
        assert len([successe async for successe in producer.successes()]) == 1

    server.fail("Produce", "NOT_ENOUGH_REPLICAS", 1_000_000)
    asyncio.run(work())


def test_what_is_not_returned_cannot_be_read(server: Server) -> None:
    with QueueProducer(server.bootstrap, return_errors=False) as producer:
        with pytest.raises(ConfigError, match="return_successes"):
            producer.successes()
        with pytest.raises(ConfigError, match="return_errors"):
            producer.errors()


def test_input_says_so_when_nobody_reads(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers_threads, "MAX_UNREAD", 3)
    with QueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:
        for _ in range(3):
            producer.input(message())
        producer._producer.flush()
        wait_until(lambda: len(producer._successes or ()) == 3)
        with pytest.raises(RequestTimedOut, match="read successes"):
            producer.input(message())
        next(producer.successes())
        producer.input(message())


# ---- asyncio


def test_the_waiting_one_in_asyncio(server: Server) -> None:
    async def main() -> None:
        some = [message(), message(topic="nowhere"), message()]
        async with AsyncSyncProducer(server.bootstrap, **SHORT) as producer:
            place = await producer.send_message(message())
            assert await producer.send_message(message()) == (place[0], 1)
            with pytest.raises(ProducerErrors) as raised:
                await producer.send_messages(some)
            assert [error.message for error in raised.value.errors] == [some[1]]
            assert [one.offset for one in some] == [2, None, 3]

    asyncio.run(main())


def test_the_one_with_queues_in_asyncio(server: Server) -> None:
    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:

            async def listed(items: Any) -> list[Any]:
                return [one async for one in items]

            readers = [
                asyncio.ensure_future(listed(one)) for one in (producer.successes(), producer.errors())
            ]
            for number in range(300):
                await producer.input(message(metadata=number))
            await producer.input(lost := message(topic="nowhere"))
        outcome, failed = [await reader for reader in readers]
        assert [one.metadata for one in outcome] == list(range(300))
        assert [error.message for error in failed] == [lost]

    asyncio.run(main())


def test_in_asyncio_the_blocks_own_error_is_seen(server: Server) -> None:
    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, **SHORT) as producer:
            await producer.input(message(topic="nowhere"))
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(main())


def test_in_asyncio_errors_that_nobody_reads_are_raised_by_close(server: Server) -> None:
    async def main() -> None:
        producer = AsyncQueueProducer(server.bootstrap, **SHORT)
        await producer.input(message(topic="nowhere"))
        with pytest.raises(ProducerErrors):
            await producer.close()
        with pytest.raises(IllegalState, match="closed"):
            await producer.input(message())

    asyncio.run(main())


def test_in_asyncio_input_says_so_when_nobody_reads(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "MAX_UNREAD", 3)

    async def main() -> None:
        async with AsyncQueueProducer(server.bootstrap, return_successes=True, **SHORT) as producer:
            for _ in range(3):
                await producer.input(message())
            await producer._producer.flush()
            await asyncio.sleep(0)
            with pytest.raises(RequestTimedOut, match="read successes"):
                await producer.input(message())
            assert await anext(producer.successes())
            await producer.input(message())

    asyncio.run(main())


def test_an_error_says_what_was_not_sent_and_why() -> None:
    error = messages.ProducerError(message(), UnknownTopic(3, "Metadata", "t"))
    assert str(error).startswith("a message to t was not sent: ")
