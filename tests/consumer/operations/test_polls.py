"""`for record in consumer` returns buffered records only while the consumer owns their partition."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import consumer.aio.consumer
import consumer.blocking.consumer
import consumer.blocking.runtime
import consumer.operations.consumer
import consumer.operations.polls
import consumer.runtime
from consumer import (
    Admin,
    AsyncConsumer,
    Consumer,
    ConsumerRecord,
    GroupChange,
    Producer,
    RebalanceListener,
    TopicPartition,
    clock,
)
from consumer.engine import events as ev
from consumer.operations.polls import first_offsets, partition_starts
from kproto.broker.server import running
from kproto.errors import IllegalState
from kproto.group.protocol import POLL_TIMEOUT
from tests.consumer.child_process import result_in_child

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
GROUP: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "session_timeout_ms": 3000,
    "heartbeat_interval_ms": 100,
}


@pytest.fixture
def broker() -> Iterator[str]:
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with running(topics={"t": 2}, settings=settings) as server:
        with Producer(server.bootstrap) as producer:
            for number in range(400):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield server.bootstrap


def next_offsets(records: Iterator[Any], count: int) -> list[int]:
    return [next(records).offset for _ in range(count)]


# Each program prints the offset of each record, and "lost" when partitions are lost.
BLOCKING = """
import sys, time
from consumer import Consumer, RebalanceListener

class PrintingListener(RebalanceListener):
    def lost(self, partitions): print("lost", flush=True)

consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=3000,
                    heartbeat_interval_ms=100, enable_auto_commit=False)
consumer.subscribe(["t"], PrintingListener())
for record in consumer:
    print(record.offset, flush=True)
    time.sleep(0.05)
"""
WAITING = """
import asyncio, sys
from consumer import AsyncConsumer, RebalanceListener

class PrintingListener(RebalanceListener):
    async def lost(self, partitions): print("lost", flush=True)

async def main():
    consumer = AsyncConsumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=3000,
                             heartbeat_interval_ms=100, enable_auto_commit=False)
    consumer.subscribe(["t"], PrintingListener())
    async for record in consumer:
        print(record.offset, flush=True)
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [BLOCKING, pytest.param(WAITING, marks=pytest.mark.thorough)])
def test_after_a_stop_longer_than_the_session_no_buffered_record_is_returned(
    broker: str, program: str
) -> None:
    """If its process was stopped for longer than the session timeout, a consumer returns no buffered record.

    At most one record is also read by another member: the one that the iteration was returning when the
    process was stopped.
    """
    command = [sys.executable, "-c", program, broker]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        try:
            while not reader.stdout.readline().strip().isdigit():
                pass
            os.kill(reader.pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.set_blocking(reader.stdout.fileno(), False)
            before = reader.stdout.read() or b""
            os.set_blocking(reader.stdout.fileno(), True)
            assert before.count(b"\n") < 390
            time.sleep(4)
            os.kill(reader.pid, signal.SIGCONT)
            after = [reader.stdout.readline().strip() for _ in range(2)]
        finally:
            os.kill(reader.pid, signal.SIGKILL)
    assert b"lost" in after


@pytest.mark.parametrize("wall_clock", [30, -3_600], ids=["continues", "is set back"])
def test_the_first_record_after_a_pause_longer_than_the_session_was_not_buffered(
    broker: str, monkeypatch: pytest.MonkeyPatch, wall_clock: int
) -> None:
    """After a pause longer than the session timeout, no record that was buffered before is returned.

    The client's thread sleeps until the next heartbeat. So `next` itself must notice that the process was
    paused, and drop the buffered records.
    """
    calls: list[str] = []
    slept = jump = 0

    class PrintingListener(RebalanceListener):
        def lost(self, partitions: Any) -> None:
            calls.append("lost")

    def now() -> int:
        return clock.now() + 1_000 * slept

    with Consumer(broker, **{**GROUP, "session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}) as reader:
        reader.subscribe("t", PrintingListener())
        assert [next(reader).offset for _ in range(3)] == [0, 1, 2]
        for module in (
            consumer.runtime,
            consumer.operations.consumer,
            consumer.operations.polls,
            consumer.blocking.runtime,
        ):
            monkeypatch.setattr(module, "now", now)
        for module in (consumer.operations.polls, consumer.blocking.consumer):
            monkeypatch.setattr(module, "time", lambda: time.time() + jump)
        slept, jump = 30, wall_clock
        next(reader)
        assert calls == ["lost"]


def test_an_assignment_counts_as_lost_until_the_listener_was_called(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = 0
    doubts: list[bool] = []

    class PrintingListener(RebalanceListener):
        def lost(self, partitions: Any) -> None:
            doubts.append(reader.assignment_lost())

    with Consumer(broker, **{**GROUP, "session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}) as reader:
        doubts.append(reader.assignment_lost())
        reader.subscribe("t", PrintingListener())
        reader.poll(10)
        doubts.append(reader.assignment_lost())
        for module in (
            consumer.runtime,
            consumer.operations.consumer,
            consumer.operations.polls,
            consumer.blocking.runtime,
        ):
            monkeypatch.setattr(module, "now", lambda: clock.now() + slept)
        slept = 30_000
        doubts.append(reader.assignment_lost())
        while len(doubts) < 4:
            reader.poll(0.1)
        doubts.append(reader.assignment_lost())
    assert doubts == [False, False, True, True, False]


@pytest.mark.parametrize("how", ["everything", "these offsets"])
def test_a_commit_in_an_iteration_covers_the_returned_records_and_keeps_the_buffer(
    broker: str, how: str
) -> None:
    with Consumer(broker, **GROUP, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        records = iter(consumer)
        first = next(records)
        place = first.topic_partition
        epoch = consumer._operations.engine.partitions[place].epoch
        for offset in range(1, 30):
            assert next(records).offset == offset
            consumer.commit(None if how == "everything" else {place: offset + 1})
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == consumer.position(place) == offset + 1
            assert consumer.lag(place) == 200 - offset - 1
        # A commit must not give the partition a new epoch, because its buffered records would then be fetched
        # again.
        assert consumer._operations.engine.partitions[place].epoch == epoch


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 31))
def test_first_offsets_returns_the_first_offset_of_each_partition_from_a_row_on(
    topics: list[str], row: int
) -> None:
    rows = [
        ConsumerRecord(topic, 0, 10 + at, 0, "CreateTime", None, None, ()) for at, topic in enumerate(topics)
    ]
    expected: dict[TopicPartition, int] = {}
    for record in rows[row:]:
        expected.setdefault(record.topic_partition, record.offset)
    assert first_offsets(rows, partition_starts(rows), row) == expected


def test_after_a_commit_in_an_iteration_the_next_record_is_read_next(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        for count, record in enumerate(consumer, 1):
            place, offset = record.topic_partition, record.offset
            consumer.commit()
            if count == 10:
                break
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        assert next(r.offset for r in consumer if r.topic_partition == place) == offset + 1


@pytest.mark.parametrize("how", ["unsubscribe", "assign", "unsubscribe behind a commit"])
def test_leaving_an_iteration_counts_all_but_its_last_record_as_processed(broker: str, how: str) -> None:
    with Consumer(broker, **GROUP, auto_commit_interval_ms=100_000) as consumer, Admin(broker) as cluster:
        consumer.assign({P0: 0})
        assert next_offsets(consumer, 10) == list(range(10))
        if "commit" in how:
            consumer.commit()
        if how == "assign":
            consumer.assign({P1: 0})
            next(consumer)
        consumer.unsubscribe()
        committed = cluster.committed_offsets("g")[P0]
        assert committed is not None
        assert committed.offset == (10 if "commit" in how else 9)


@pytest.mark.parametrize("how", ["commit", "commit_async", "these offsets", "no commit"])
def test_an_exception_after_a_commit_keeps_the_commit(broker: str, how: str) -> None:
    def work() -> None:
        with Consumer(broker, **GROUP) as consumer:
            consumer.assign({P0: 0})
            for record in consumer:
                if record.offset < 9:
                    continue
                if how == "commit_async":
                    consumer.commit_async()
                elif how != "no commit":
                    consumer.commit(None if how == "commit" else {P0: 10})
                raise ValueError("of the application")

    with pytest.raises(ValueError, match="of the application"):
        work()
    with Admin(broker) as cluster:
        committed = cluster.committed_offsets("g")[P0]
    assert committed is not None
    assert committed.offset == (9 if how == "no commit" else 10)


def test_an_asyncio_iteration_counts_all_but_its_last_record_as_processed(broker: str) -> None:
    async def main() -> None:
        async with AsyncConsumer(broker, **GROUP, auto_commit_interval_ms=100_000) as consumer:
            consumer.assign({P0: 0})
            for _ in range(10):
                await anext(consumer)
            await consumer.unsubscribe()
            committed = (await consumer.committed([P0]))[P0]
            assert committed is not None
            assert committed.offset == 9

    asyncio.run(main())


@pytest.mark.parametrize("alone", [True, False])
def test_auto_commit_covers_what_an_iteration_has_returned(broker: str, alone: bool) -> None:
    with Consumer(broker, **GROUP, auto_commit_interval_ms=20, max_poll_records=200) as consumer:
        consumer.assign({P0: 0}) if alone else consumer.subscribe("t")
        for count, record in enumerate(consumer):
            committed = consumer.committed([record.topic_partition])[record.topic_partition]
            if committed is not None and committed.offset:
                break
            # The first poll returns at least 150 records. The iteration must commit automatically before it
            # needs a second poll.
            assert count < 150
            time.sleep(0.005)
        assert committed.offset <= record.offset


def test_buffered_records_of_a_paused_partition_are_not_returned(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.assign([P0, P1])
        first = next(consumer)
        consumer.pause(TopicPartition("t", first.partition))
        records = [next(consumer) for _ in range(200)]
        assert {record.partition for record in records} == {1 - first.partition}
        consumer.resume(TopicPartition("t", first.partition))
        assert next_offsets(consumer, 199) == list(range(1, 200))


def test_assign_in_an_iteration_discards_the_buffered_records(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.assign({P0: 0})
        assert next_offsets(consumer, 3) == [0, 1, 2]
        consumer.assign({P1: 7})
        record = next(consumer)
        assert (record.partition, record.offset) == (1, 7)


def test_a_forked_child_gets_no_buffered_record(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        next(consumer)
        assert "IllegalState: this consumer was opened before" in result_in_child(lambda: next(consumer))
        next(consumer)


def test_a_closed_consumer_returns_no_buffered_record(broker: str) -> None:
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t")
    next(consumer)
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        next(consumer)


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0, 2.5])
def test_a_jump_of_the_wall_clock_loses_and_repeats_no_record(
    broker: str, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker, **GROUP) as consumer_:
        consumer_.subscribe("t")
        records = [next(consumer_) for _ in range(30)]
        monkeypatch.setattr(consumer.blocking.consumer, "time", lambda: time.time() + jump)
        records += [next(consumer_) for _ in range(370)]
    for partition in (0, 1):
        assert [record.offset for record in records if record.partition == partition] == list(range(200))


def test_a_jump_of_the_wall_clock_loses_no_record_in_asyncio(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> list[Any]:
        async with AsyncConsumer(broker, **{**GROUP, "session_timeout_ms": 30_000}) as consumer_:
            consumer_.subscribe("t")
            records = [await anext(consumer_) for _ in range(30)]
            monkeypatch.setattr(consumer.aio.consumer, "time", lambda: time.time() - 3_600)
            return records + [await anext(consumer_) for _ in range(370)]

    records = asyncio.run(story())
    for partition in (0, 1):
        assert [record.offset for record in records if record.partition == partition] == list(range(200))


def test_changes_of_many_positions_are_logged_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    partitions = [TopicPartition("t", number) for number in range(40)]
    changes: list[Any] = []
    with running(topics={"t": 40}) as server, Consumer(server.bootstrap, auto_offset_reset="earliest") as c:
        c.events(changes.append)
        c.assign(dict.fromkeys(partitions, 1000))
        with caplog.at_level("INFO", logger="kproto.consumer"):
            while len(resets := [change for change in changes if change.kind == "reset"]) < 40:
                c.poll(0.1)
    records = [record for record in caplog.records if " reset " in record.getMessage()]
    lines = [record.getMessage() for record in records]
    assert {record.levelname for record in records} == {"WARNING"}
    # All resets of one step are logged in one line. The responses may arrive in two or three steps, each with
    # its own line.
    assert len(lines) <= 3
    assert "and 30 more t-0 from 1000 to 0, " in lines[0]
    assert lines[0].endswith(" ...: offset 1000 is out of range: earliest")
    assert {change.partitions for change in resets} == {(partition,) for partition in partitions}


# ---- the log lines of changes


def logged(caplog: pytest.LogCaptureFixture, *changes: GroupChange, **config: Any) -> list[tuple[str, str]]:
    """Report `changes` as the changes of one step, and return the level and the text of each log line."""
    with Consumer("127.0.0.1:1", client_id="c", **config) as reader:
        driver = reader._operations.driver
        caplog.clear()
        with caplog.at_level("INFO", logger="kproto.consumer"):
            for change in changes:
                driver.on_report(change)
            driver.on_reports_end()
        return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("change", "level", "text"),
    [
        (
            GroupChange(0, "assigned", "m", 3, (P0, P1), reason="x"),
            "INFO",
            "c assigned group=g member=m generation=3 t-0 t-1 x",
        ),
        (GroupChange(0, "lost", "", 3, (P0,), reason="x"), "WARNING", "c lost group=g generation=3 t-0 x"),
        (
            GroupChange(0, "reset", "", -1, (P0,), reason="no commit", offset=7),
            "INFO",
            "c reset group=g generation=-1 t-0 to 7: no commit",
        ),
        (
            GroupChange(0, "reset", "", -1, (P0,), reason="out of range", offset=7, before=9),
            "WARNING",
            "c reset group=g generation=-1 t-0 from 9 to 7: out of range",
        ),
        (
            GroupChange(0, "truncated", "", -1, (P0,), reason="x", offset=0, before=0),
            "WARNING",
            "c truncated group=g generation=-1 t-0 from 0 to 0: x",
        ),
        (
            GroupChange(0, "lost", "", 3, (P0,), reason=POLL_TIMEOUT),
            "WARNING",
            f"c lost group=g generation=3 t-0 {POLL_TIMEOUT} (max_poll_interval_ms=4000)",
        ),
    ],
)
def test_a_change_is_logged_with_its_positions_and_its_reason(
    caplog: pytest.LogCaptureFixture, change: GroupChange, level: str, text: str
) -> None:
    """Changes after which records may be skipped or read twice are logged as warnings."""
    config: dict[str, Any] = {"group_id": "g", "max_poll_interval_ms": 4_000, "session_timeout_ms": 4_000}
    assert logged(caplog, change, heartbeat_interval_ms=1_000, **config) == [(level, text)]


def test_changes_of_one_step_share_a_line_if_only_their_positions_differ(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def reset(number: int, reason: str = "r", before: int | None = None) -> GroupChange:
        partition = TopicPartition("t", number)
        return GroupChange(0, "reset", "", -1, (partition,), reason=reason, offset=number, before=before)

    closed = GroupChange(0, "closed", "", -1)
    assert logged(caplog, reset(0), reset(1), reset(2)) == [
        ("INFO", "c reset generation=-1 t-0 t-1 t-2 t-0 to 0, t-1 to 1, t-2 to 2: r")
    ]
    assert logged(caplog, reset(0), reset(1), reset(2), reset(3, before=9)) == [
        ("WARNING", "c reset generation=-1 t-0 t-1 t-2 t-3 t-0 to 0, t-1 to 1, t-2 to 2 ...: r")
    ]
    texts = [text for _, text in logged(caplog, reset(0), reset(1, "other"), closed, closed)]
    assert [text.split()[1] for text in texts] == ["reset", "reset", "closed", "closed"]


# ---- how often an iteration checks that the consumer still owns its partitions


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({"enable_auto_commit": False}, 1.0),
        ({"auto_commit_interval_ms": 20}, 0.02),
        ({"auto_commit_interval_ms": 0}, 0.001),
        ({"auto_commit_interval_ms": 60_000}, 1.0),
    ],
)
def test_an_iteration_is_checked_each_second_or_at_the_interval_of_auto_commit(
    config: dict[str, Any], seconds: float
) -> None:
    with Consumer("127.0.0.1:1", group_id="g", **config) as reader:
        iteration = reader._operations.iteration
        assert (iteration.owned_from, iteration.owned_until) == (0.0, 0.0)
        before = time.time()
        assert iteration.check_ownership()
        assert before <= iteration.owned_from <= time.time()
        assert iteration.owned_until - iteration.owned_from == pytest.approx(seconds, abs=1e-4)
        # Partitions were lost since the poll, so their buffered records must not be returned.
        reader._operations.engine.core.partitions.losses += 1
        assert not iteration.check_ownership()


def test_an_event_ends_an_iteration_only_if_partitions_were_released(broker: str) -> None:
    with Consumer(broker, **GROUP) as reader:
        reader.assign({P0: 0})
        next(reader)
        iteration, runtime = reader._operations.iteration, reader._operations.runtime
        until = iteration.owned_until
        assert until > time.time() - 60
        runtime.apply(ev.Tick())
        assert iteration.owned_until == until
        reader._operations.engine.core.partitions.losses += 1
        runtime.apply(ev.Tick())
        assert iteration.owned_until == 0.0


def test_an_iteration_is_checked_no_later_than_its_session_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with Consumer("127.0.0.1:1") as reader:
        engine, iteration = reader._operations.engine, reader._operations.iteration
        monkeypatch.setattr(engine, "assignment_deadline", lambda: clock.now() + 300)
        assert iteration.check_ownership()
        assert 0.1 < iteration.owned_until - iteration.owned_from <= 0.301


def test_an_iteration_is_checked_several_times_within_max_poll_interval_ms() -> None:
    """Each check restarts the interval, so slow progress does not exceed it."""
    with Consumer("127.0.0.1:1", max_poll_interval_ms=1_000) as reader:
        iteration = reader._operations.iteration
        assert iteration.check_ownership()
        assert iteration.owned_until - iteration.owned_from <= 0.101


def test_max_poll_interval_ms_begins_at_the_end_of_a_poll_with_and_without_records(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll sends one PollEnded, or none if it returns records that were already buffered."""
    ends: list[ev.Event] = []
    with Consumer(broker, **GROUP) as reader:
        runtime: Any = reader._operations.runtime
        step = runtime.driver.step

        def recorded(event: ev.Event, at: int) -> Any:
            if isinstance(event, ev.PollEnded):
                ends.append(event)
            return step(event, at)

        monkeypatch.setattr(runtime.driver, "step", recorded)
        reader.assign({P0: 200})
        assert reader.poll(0.05) == []
        assert len(ends) == 1
        reader.seek(P0, 0)
        ends.clear()
        while not reader.poll(10):
            ends.clear()
        # A poll that returns buffered records is a single `Poll` event, without a separate PollEnded.
        assert len(ends) <= 1


def test_a_consumer_that_is_in_no_group_loses_nothing_if_it_is_not_closed() -> None:
    for config in ({}, {"group_id": "g"}):
        with Consumer("127.0.0.1:1", **config) as reader:
            assert reader._operations.driver.loss() == ""
