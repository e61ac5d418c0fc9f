"""The operations of consumers that need no request, and the arguments that reach the engine."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from consumer import AsyncConsumer, CommittedOffset, Consumer, Producer, TopicPartition
from consumer.engine import events as ev
from consumer.interceptors import ConsumerInterceptor
from kproto.broker.server import running

T0 = TopicPartition("t", 0)
NOWHERE = "127.0.0.1:1"


def test_why_names_a_closed_consumer() -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        assert reader.why(T0).reason == "not assigned"
    assert reader.why(T0).reason == "closed"


def test_why_names_a_closed_asyncio_consumer() -> None:
    async def main() -> str:
        async with AsyncConsumer(NOWHERE, group_id="g") as reader:
            reader.assign([T0])
        return reader.why(T0).reason

    assert asyncio.run(main()) == "closed"


def test_why_names_the_function_of_the_application_that_poll_waits_for() -> None:
    class Audit(ConsumerInterceptor):
        def on_consume(self, records: list[Any]) -> list[Any]:
            statuses.append(reader.why(T0))
            return records

        def on_commit(self, offsets: Any) -> None:
            statuses.append(reader.why(T0))

    def deserialize(topic: str, data: bytes, headers: Any) -> bytes:
        statuses.append(reader.why(T0))
        return data

    statuses: list[Any] = []
    with running(topics={"t": 1}) as server:
        with Producer(server.bootstrap) as producer:
            producer.send("t", b"x")
        with Consumer(
            server.bootstrap, group_id="g", value_deserializer=deserialize, interceptors=[Audit()]
        ) as reader:
            reader.events(lambda change: statuses.append(reader.why(T0)))
            reader.assign({T0: 0})
            while not reader.poll(1):
                pass
            reader.commit()
            assert reader.why(T0).reason == "caught up"
    name = "test_why_names_the_function_of_the_application_that_poll_waits_for.<locals>.Audit"
    running_since = [
        status for status in statuses if status.reason == "callback" and status.since is not None
    ]
    assert {status.detail.partition(" has been running for ")[0] for status in running_since} == {
        "a deserializer",
        "a callback of events()",
        f"the interceptor {name}.on_consume()",
        f"the interceptor {name}.on_commit()",
    }


def test_why_quotes_the_error_of_a_failed_consumer() -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        reader._runtime._fail(ZeroDivisionError("broken"))
        status = reader.why(T0)
        assert (status.reason, status.detail) == ("error", "the consumer failed: ZeroDivisionError('broken')")


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (5, ev.Seek(T0, 5, None)),
        (CommittedOffset(5, "ignored", None), ev.Seek(T0, 5, None)),
        (CommittedOffset(5, "ignored", 3), ev.Seek(T0, 5, 3)),
    ],
)
def test_a_seek_passes_the_leader_epoch_of_a_committed_offset(
    monkeypatch: pytest.MonkeyPatch, position: Any, expected: ev.Seek
) -> None:
    with Consumer("localhost:1") as consumer:
        applied: list[Any] = []
        runtime: Any = consumer._runtime  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(runtime, "apply", lambda *events: applied.append(events))
        consumer.seek(T0, position)
        monkeypatch.undo()
    assert applied == [(expected,)]


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda consumer: consumer.seek_to("earliest"), ev.SeekTo(frozenset(), "earliest")),
        (lambda consumer: consumer.seek_to(1234, T0), ev.SeekTo(frozenset({T0}), 1234)),
        (lambda consumer: consumer.seek_to("latest", [T0]), ev.SeekTo(frozenset({T0}), "latest")),
        (lambda consumer: consumer.pause(T0), ev.Pause(frozenset({T0}))),
        (lambda consumer: consumer.resume([T0]), ev.Resume(frozenset({T0}))),
    ],
)
def test_a_change_of_positions_reaches_the_engine(
    monkeypatch: pytest.MonkeyPatch, call: Any, expected: Any
) -> None:
    with Consumer("localhost:1") as consumer:
        applied: list[Any] = []
        runtime: Any = consumer._runtime  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(runtime, "apply", lambda *events: applied.append(events))
        call(consumer)
        monkeypatch.undo()
    assert applied == [(expected,)]


def test_a_seek_to_a_committed_offset_reads_from_there() -> None:
    with running(topics={"t": 1}) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(5):
                producer.send("t", b"%d" % number)
        with Consumer(server.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign({T0: 0})
            while not (records := consumer.poll(1)):
                pass
            consumer.commit({T0: CommittedOffset(3, "checked", records[0].leader_epoch)})
            committed = consumer.committed()[T0]
            assert committed is not None
            assert committed.leader_epoch == records[0].leader_epoch
            consumer.seek(T0, committed)
            while not (records := consumer.poll(1)):
                pass
            assert [record.value for record in records] == [b"3", b"4"]
