"""What `for record in consumer` hands out of what it holds: only what is still this consumer's."""

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
import consumer.operations.iteration
import consumer.operations.polls
import consumer.runtime
from consumer import (
    AsyncConsumer,
    Cluster,
    Consumer,
    ConsumerRecord,
    Producer,
    RebalanceListener,
    TopicPartition,
    clock,
)
from consumer.operations.iteration import first_offsets, partition_starts
from kproto.broker.server import running
from kproto.errors import IllegalState
from tests.consumer.child_process import said_in_a_child

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


def offsets(records: Iterator[Any], count: int) -> list[int]:
    return [next(records).offset for _ in range(count)]


# Each says a line for every record, and for what its listener is told.
BLOCKING = """
import sys, time
from consumer import Consumer, RebalanceListener

class Says(RebalanceListener):
    def lost(self, partitions): print("lost", flush=True)

consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=5000,
                    heartbeat_interval_ms=100, enable_auto_commit=False)
consumer.subscribe(["t"], Says())
for record in consumer:
    print(record.offset, flush=True)
    time.sleep(0.05)
"""
WAITING = """
import asyncio, sys
from consumer import AsyncConsumer, RebalanceListener

class Says(RebalanceListener):
    async def lost(self, partitions): print("lost", flush=True)

async def main():
    consumer = AsyncConsumer(sys.argv[1], group_id="g", auto_offset_reset="earliest", session_timeout_ms=5000,
                             heartbeat_interval_ms=100, enable_auto_commit=False)
    consumer.subscribe(["t"], Says())
    async for record in consumer:
        print(record.offset, flush=True)
        await asyncio.sleep(0.05)

asyncio.run(main())
"""


@pytest.mark.parametrize("program", [BLOCKING, pytest.param(WAITING, marks=pytest.mark.thorough)])
def test_after_sigstop_longer_than_the_session_nothing_that_was_held_is_handed_out(
    broker: str, program: str
) -> None:
    """But for the one record that was being handed out at that moment."""
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
            time.sleep(6)
            os.kill(reader.pid, signal.SIGCONT)
            after = [reader.stdout.readline().strip() for _ in range(2)]
        finally:
            os.kill(reader.pid, signal.SIGKILL)
    assert b"lost" in after


def test_the_first_record_after_a_pause_longer_than_the_session_is_not_what_was_held(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody but the iteration looks at the clock: the client's own thread sleeps until its heartbeat."""
    told: list[str] = []
    slept = 0

    class Says(RebalanceListener):
        def lost(self, partitions: Any) -> None:
            told.append("lost")

    def now() -> int:
        return clock.now() + 1_000 * slept

    with Consumer(broker, **{**GROUP, "session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}) as one:
        one.subscribe("t", Says())
        assert [next(one).offset for _ in range(3)] == [0, 1, 2]
        for module in (
            consumer.runtime,
            consumer.operations.consumer,
            consumer.operations.polls,
            consumer.operations.iteration,
            consumer.blocking.runtime,
        ):
            monkeypatch.setattr(module, "now", now)
        for module in (consumer.operations.iteration, consumer.blocking.consumer):
            monkeypatch.setattr(module, "time", lambda: time.time() + slept)
        slept = 30
        next(one)
        assert told == ["lost"]


def test_an_assignment_is_in_doubt_until_the_listener_was_told_of_the_loss(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept = 0
    doubts: list[bool] = []

    class Says(RebalanceListener):
        def lost(self, partitions: Any) -> None:
            doubts.append(one.assignment_lost())

    with Consumer(broker, **{**GROUP, "session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}) as one:
        doubts.append(one.assignment_lost())
        one.subscribe("t", Says())
        one.poll(10)
        doubts.append(one.assignment_lost())
        for module in (
            consumer.runtime,
            consumer.operations.consumer,
            consumer.operations.polls,
            consumer.operations.iteration,
            consumer.blocking.runtime,
        ):
            monkeypatch.setattr(module, "now", lambda: clock.now() + slept)
        slept = 30_000
        doubts.append(one.assignment_lost())
        while len(doubts) < 4:
            one.poll(0.1)
        doubts.append(one.assignment_lost())
    assert doubts == [False, False, True, True, False]


@pytest.mark.parametrize("how", ["everything", "these offsets"])
def test_a_commit_in_an_iteration_says_what_it_came_to_and_keeps_what_is_held(broker: str, how: str) -> None:
    with Consumer(broker, **GROUP, enable_auto_commit=False) as consumer:
        consumer.subscribe("t")
        records = iter(consumer)
        first = next(records)
        place = first.topic_partition
        fetched_in = consumer._operations.engine.partitions[place].epoch
        for offset in range(1, 30):
            assert next(records).offset == offset
            consumer.commit(None if how == "everything" else {place: offset + 1})
            committed = consumer.committed([place])[place]
            assert committed is not None
            assert committed.offset == consumer.position(place) == offset + 1
            assert consumer.lag(place) == 200 - offset - 1
        assert consumer._operations.engine.partitions[place].epoch == fetched_in  # else all is fetched again


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(0, 31))
def test_of_each_partition_the_first_offset_from_a_row_on_is_known(topics: list[str], row: int) -> None:
    rows = [ConsumerRecord(one, 0, 10 + at, 0, "CreateTime", None, None, ()) for at, one in enumerate(topics)]
    found: dict[TopicPartition, int] = {}
    for record in rows[row:]:
        found.setdefault(record.topic_partition, record.offset)
    assert first_offsets(rows, partition_starts(rows), row) == found


def test_who_commits_in_an_iteration_and_leaves_it_reads_the_rest_next(broker: str) -> None:
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
def test_who_leaves_an_iteration_has_processed_all_but_its_last_record(broker: str, how: str) -> None:
    with Consumer(broker, **GROUP, auto_commit_interval_ms=100_000) as consumer, Cluster(broker) as cluster:
        consumer.assign({P0: 0})
        assert offsets(consumer, 10) == list(range(10))
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
def test_an_exception_behind_a_commit_does_not_go_back_of_it(broker: str, how: str) -> None:
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
    with Cluster(broker) as cluster:
        committed = cluster.committed_offsets("g")[P0]
    assert committed is not None
    assert committed.offset == (9 if how == "no commit" else 10)


def test_so_it_is_in_asyncio(broker: str) -> None:
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
def test_commits_in_time_say_how_far_an_iteration_came(broker: str, alone: bool) -> None:
    with Consumer(broker, **GROUP, auto_commit_interval_ms=20, max_poll_records=200) as consumer:
        consumer.assign({P0: 0}) if alone else consumer.subscribe("t")
        for count, record in enumerate(consumer):
            committed = consumer.committed([record.topic_partition])[record.topic_partition]
            if committed is not None and committed.offset:
                break
            assert count < 150  # of the first poll
            time.sleep(0.005)
        assert committed.offset <= record.offset


def test_a_partition_that_is_paused_in_an_iteration_is_not_handed_out(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.assign([P0, P1])
        first = next(consumer)
        consumer.pause(TopicPartition("t", first.partition))
        rest = [next(consumer) for _ in range(200)]
        assert {record.partition for record in rest} == {1 - first.partition}
        consumer.resume(TopicPartition("t", first.partition))
        assert offsets(consumer, 199) == list(range(1, 200))


def test_an_assignment_in_an_iteration_ends_what_was_held(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.assign({P0: 0})
        assert offsets(consumer, 3) == [0, 1, 2]
        consumer.assign({P1: 7})
        record = next(consumer)
        assert (record.partition, record.offset) == (1, 7)


def test_the_child_of_a_fork_gets_nothing_of_what_is_held(broker: str) -> None:
    with Consumer(broker, **GROUP) as consumer:
        consumer.subscribe("t")
        next(consumer)
        assert "IllegalState: this consumer was opened before" in said_in_a_child(lambda: next(consumer))
        next(consumer)


def test_a_consumer_that_was_closed_meanwhile_hands_out_nothing_of_what_is_held(broker: str) -> None:
    consumer = Consumer(broker, **GROUP)
    consumer.subscribe("t")
    next(consumer)
    consumer.close()
    with pytest.raises(IllegalState, match="closed"):
        next(consumer)


@pytest.mark.parametrize("jump", [3_600.0, -3_600.0, 2.5])
def test_a_wall_clock_that_jumps_costs_no_record_and_repeats_none(
    broker: str, jump: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer(broker, **GROUP) as consumer_:
        consumer_.subscribe("t")
        found = [next(consumer_) for _ in range(30)]
        monkeypatch.setattr(consumer.blocking.consumer, "time", lambda: time.time() + jump)
        found += [next(consumer_) for _ in range(370)]
    for partition in (0, 1):
        assert [one.offset for one in found if one.partition == partition] == list(range(200))


def test_a_wall_clock_that_jumps_costs_no_record_in_a_loop(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> list[Any]:
        async with AsyncConsumer(broker, **{**GROUP, "session_timeout_ms": 30_000}) as consumer_:
            consumer_.subscribe("t")
            found = [await anext(consumer_) for _ in range(30)]
            monkeypatch.setattr(consumer.aio.consumer, "time", lambda: time.time() - 3_600)
            return found + [await anext(consumer_) for _ in range(370)]

    found = asyncio.run(story())
    for partition in (0, 1):
        assert [one.offset for one in found if one.partition == partition] == list(range(200))
