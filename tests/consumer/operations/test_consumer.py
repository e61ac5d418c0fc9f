"""Operations of a consumer that need no request check their arguments, and return immediately."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import (
    AsyncConsumer,
    CommittedOffset,
    Consumer,
    GroupChange,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from consumer.engine import events as ev
from consumer.engine.admin.cluster import partitions_of
from consumer.interceptors import ConsumerInterceptor
from consumer.operations.consumer import _raise_first
from kproto.broker.server import running
from kproto.errors import ConfigError, IllegalState, RequestTimedOut

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
        reader._runtime._fail_client(ZeroDivisionError("broken"))
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
        (lambda consumer: consumer.rejoin(), ev.Rejoin("the application asked for it")),
        (lambda consumer: consumer.rejoin("a deployment"), ev.Rejoin("a deployment")),
        (lambda consumer: consumer.assign({T0: 7}), ev.Assign({T0: 7})),
        (lambda consumer: consumer.subscribe("t"), ev.Subscribe(frozenset({"t"}), None)),
        (lambda consumer: consumer.subscribe(pattern="t.*"), ev.Subscribe(frozenset(), "t.*")),
    ],
)
def test_a_call_that_does_not_wait_reaches_the_engine_as_an_event(
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


def test_what_a_consumer_knows_without_a_request_follows_its_calls() -> None:
    t1 = TopicPartition("t", 1)
    with Consumer(NOWHERE, group_id="g", enable_auto_commit=False) as reader:
        assert (reader.assignment(), reader.subscription(), reader.paused()) == (set(), set(), set())
        reader.assign({T0: 3, t1: 4})
        reader.pause(t1)
        assert (reader.assignment(), reader.paused()) == ({T0, t1}, {t1})
        assert (reader.position(T0), reader.position(t1)) == (3, 4)
        # The end of the log is unknown, because no broker has responded.
        assert (reader.lag(T0), reader.high_watermark(T0)) == (None, None)
        assert (reader.lag(TopicPartition("t", 9)), reader.high_watermark(TopicPartition("t", 9))) == (
            None,
            None,
        )
        reader.resume([t1])
        assert reader.paused() == set()
        reader.unsubscribe()
        reader.subscribe(["t", "u"])
        assert (reader.assignment(), reader.subscription()) == (set(), {"t", "u"})
        metadata = reader.group_metadata()
        assert (metadata.group_id, metadata.member_id, metadata.generation) == ("g", "", -1)


KNOWN: dict[str, Callable[[Consumer], object]] = {
    "assignment": lambda reader: reader.assignment(),
    "assignment_lost": lambda reader: reader.assignment_lost(),
    "subscription": lambda reader: reader.subscription(),
    "paused": lambda reader: reader.paused(),
    "lag": lambda reader: reader.lag(T0),
    "why": lambda reader: reader.why(T0),
    "metrics": lambda reader: reader.metrics(),
    "high_watermark": lambda reader: reader.high_watermark(T0),
    "group_metadata": lambda reader: reader.group_metadata(),
}


@pytest.mark.parametrize("method", KNOWN)
def test_the_child_of_a_fork_does_not_get_the_state_of_the_parents_consumer(method: str) -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        KNOWN[method](reader)
        reader._runtime.forked = True  # os.fork() sets `forked` in the child.
        with pytest.raises(IllegalState, match="was opened before the process forked"):
            KNOWN[method](reader)
        reader._runtime.forked = False


def test_a_consumer_without_a_group_has_no_group_metadata_and_no_committed_offsets() -> None:
    with Consumer(NOWHERE) as reader:
        for call in (reader.group_metadata, lambda: reader.committed([T0])):
            with pytest.raises(IllegalState, match="this consumer has no group_id"):
                call()


@pytest.mark.parametrize("config", [{}, {"group_id": "g"}], ids=["no group", "a group"])
def test_the_last_event_of_a_consumer_is_that_it_was_closed(config: dict[str, Any]) -> None:
    kinds: list[str] = []
    reader = Consumer(NOWHERE, **config)
    reader.events(lambda change: kinds.append(change.kind))
    reader.close()
    assert kinds == ["closed"]
    reader.close()
    assert kinds == ["closed"]


def test_changes_at_the_end_of_a_poll_without_records_are_passed_to_the_callbacks_of_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client's thread may report a change while a poll waits. A poll that times out still passes the
    change to the callbacks.
    """
    kinds: list[str] = []
    with Consumer(NOWHERE) as reader:
        reader.assign({T0: 0})
        reader.events(lambda change: kinds.append(change.kind))
        runtime: Any = reader._runtime  # pyright: ignore[reportPrivateUsage]

        async def wait(last_change: int, deadline: int) -> bool:
            runtime.driver.on_report(GroupChange(0, "reachable"))
            return False

        monkeypatch.setattr(runtime, "wait", wait)
        assert reader.poll(0) == []
        monkeypatch.undo()
        assert "reachable" in kinds


def test_an_error_of_close_after_an_error_in_the_block_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Listener(RebalanceListener):
        def revoked(self, partitions: Any) -> None:
            raise ZeroDivisionError("from the listener")

    def read(bootstrap: str) -> None:
        with Consumer(bootstrap, group_id="g", auto_offset_reset="earliest") as reader:
            reader.subscribe("t", Listener())
            while not reader.assignment():
                reader.poll(0.1)
            raise ValueError("from the block")

    with (
        running(topics={"t": 1}, settings={"group.initial.rebalance.delay.ms": "0"}) as server,
        pytest.raises(ValueError, match="from the block"),
    ):
        read(server.bootstrap)
    (record,) = [record for record in caplog.records if "was closed with an error" in record.getMessage()]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_a_committed_offset_is_passed_to_the_interceptors_when_commit_returns() -> None:
    class Audit(ConsumerInterceptor):
        def on_commit(self, offsets: Any) -> None:
            commits.append({partition: offset.offset for partition, offset in offsets.items()})

    commits: list[dict[TopicPartition, int]] = []
    with (
        running(topics={"t": 1}) as server,
        Consumer(server.bootstrap, group_id="g", interceptors=[Audit()]) as reader,
    ):
        reader.assign({T0: 0})
        reader.commit({T0: 5})
        assert commits == [{T0: 5}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda reader: reader.subscribe("t", pattern="t.*"), "either topics or a pattern, not both"),
        (lambda reader: reader.subscribe([]), r"at least one topic, or a pattern; unsubscribe\(\) ends"),
    ],
)
def test_a_subscription_has_either_topics_or_a_pattern(call: Any, message: str) -> None:
    with Consumer(NOWHERE, group_id="g") as reader:
        with pytest.raises(ConfigError, match=message):
            call(reader)
        assert reader.subscription() == set()


def test_the_position_of_a_partition_that_is_not_assigned_is_an_error() -> None:
    with Consumer(NOWHERE) as reader, pytest.raises(IllegalState, match="t-0 is not assigned"):
        reader.position(T0)


@pytest.fixture
def silent_broker() -> Iterator[str]:
    """Yield the address of a broker that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("position", lambda reader, timeout: reader.position(T0, timeout)),
        ("unsubscribe", lambda reader, timeout: reader.unsubscribe(timeout)),
        ("list_offsets", lambda reader, timeout: reader.list_offsets({T0: "earliest"}, timeout)),
        ("partitions_for", lambda reader, timeout: reader.partitions_for("t", timeout)),
        ("committed", lambda reader, timeout: reader.committed([T0], timeout)),
        ("commit", lambda reader, timeout: reader.commit({T0: 1}, timeout)),
    ],
)
@pytest.mark.parametrize(("timeout", "limit"), [(None, 40), (0.02, 20)])
def test_a_call_without_a_response_ends_after_its_timeout_or_that_of_the_consumer(
    silent_broker: str, method: str, call: Any, timeout: float | None, limit: int
) -> None:
    reader = Consumer(silent_broker, group_id="g", default_api_timeout_ms=40)
    try:
        reader.assign({T0: 1} if method == "unsubscribe" else [T0])
        with pytest.raises(RequestTimedOut, match=f"within {limit} ms"):
            call(reader, timeout)
    finally:
        reader.kill()


def test_the_time_of_committed_is_measured_even_if_it_fails(silent_broker: str) -> None:
    reader = Consumer(silent_broker, group_id="g")
    try:
        assert reader.metrics().value("committed-time-ns-total") == 0
        with pytest.raises(RequestTimedOut):
            reader.committed([T0], 0.02)
        total = reader.metrics().value("committed-time-ns-total")
        assert total is not None
        assert 10 <= total / 1_000_000 < 60_000
    finally:
        reader.kill()


def test_the_end_of_a_log_depends_on_the_isolation_level_of_the_consumer() -> None:
    with running(topics={"t": 1}) as server, Producer(server.bootstrap, transactional_id="x") as producer:
        with producer.transaction():
            producer.send("t", b"committed")
        producer.begin()
        producer.send("t", b"open")
        producer.flush()
        ends: dict[str, int | None] = {}
        for level in ("read_committed", "read_uncommitted"):
            with Consumer(server.bootstrap, isolation_level=level) as reader:
                ends[level] = reader.list_offsets({T0: "latest"})[T0].offset
                assert reader.partitions_for("t") == [T0]
                view, clock = reader._operations.engine.core.view, reader._operations.engine.core.clock
                assert reader.run(partitions_of(view, "t", clock), 30) == [T0]
        producer.abort()
    # The committed record is followed by the marker of its transaction.
    assert ends == {"read_committed": 2, "read_uncommitted": 3}


def test_of_several_errors_the_first_is_raised_and_the_others_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    _raise_first([])
    first, second = ValueError("first"), ValueError("second")
    with pytest.raises(ValueError, match="first") as caught:
        _raise_first([first, ValueError("first"), second])
    assert caught.value is first
    (record,) = caplog.records
    assert record.getMessage() == "and: second"
    assert record.exc_info is not None
    assert record.exc_info[1] is second


def test_a_close_that_ctrl_c_interrupted_at_its_end_is_completed_by_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reader = Consumer(NOWHERE, group_id="g")
    runtime: Any = reader._runtime

    def interrupted(deadline: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runtime, "end", interrupted)
        with pytest.raises(KeyboardInterrupt):
            reader.close()
    assert not runtime.closed
    try:
        reader.close()
    finally:
        assert runtime.closed
