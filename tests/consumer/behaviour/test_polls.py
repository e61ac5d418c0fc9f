"""The engine's event `Poll` acts like its three events PollBegan, Take and PollEnded, or not at all if it
returns no record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.consumer import next_deadline
from kproto.errors import Retriable
from kproto.group.subscription import TopicPartition
from kproto.messages.fetch import FetchRequest
from kproto.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from tests.consumer.stage import Client, Consumer, World, tp

GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}


def member_with_records(count: int = 40, **options: Any) -> tuple[World, Consumer]:
    """Return a member that has fetched `count` records from each of two partitions.

    The application has already received the first record of each partition. The other records are buffered.
    """
    world = World({"t": 2})
    for partition in range(2):
        world.write("t", partition, *map(str, range(count)))
    a = world.consumer(**{**GROUP, **options})
    a.limit = 0
    a.subscribe("t")
    states = a.engine.partitions
    assert world.run(
        until=lambda: len(states) == 2 and all(state.fetches and state.announced for state in states.values())
    )
    for _ in range(2):
        three_events(a, 1)
    assert len(a.records) == 2
    return world, a


def three_events(a: Consumer, limit: int) -> None:
    for event in (ev.PollBegan(), ev.Take(limit), ev.PollEnded()):
        a.do(event)


def poll_event(a: Consumer, limit: int) -> None:
    a.do(ev.Poll(limit))


def state_of(a: Consumer) -> Any:
    """Return the whole state that a poll may change."""
    member = a.engine.group.member
    assert member is not None
    return (
        [(record.partition, record.offset) for record in a.records],
        [(s.position, s.processed, s.committed, s.has_returned, s.lag) for s in a.engine.partitions.values()],
        (member.poll_ends_at, member.is_polling, member.state),
        list(a.engine.core.partitions.returned),
        list(a.engine.core.partitions.states_to_commit()),
        next_deadline(a.engine),
    )


MEASURED = (
    "time-between-poll-avg",
    "time-between-poll-max",
    "poll-idle-ratio-avg",
    "last-poll-seconds-ago",
    "records-consumed-total",
    "bytes-consumed-total",
    "records-lag-max",
    "records-lead-min",
)


def measures(world: World, a: Consumer) -> list[float | None]:
    snapshot = a.engine.metrics(world.now)
    return [snapshot.value(name) for name in MEASURED]


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_poll_equals_the_three_events(limit: int) -> None:
    (first, a), (second, b) = member_with_records(), member_with_records()
    for turn in range(60 // limit):
        returned = len(b.records)
        three_events(a, limit)
        poll_event(b, limit)
        if len(b.records) == returned:
            three_events(b, limit)
        assert state_of(a) == state_of(b), turn
        for world in (first, second):
            world.run(100)
    commits = first.requests_of(a, OffsetCommitRequest)
    assert commits == second.requests_of(b, OffsetCommitRequest)
    assert len(commits) > 1
    assert measures(first, a) == measures(second, b)


def test_poll_returns_all_buffered_records() -> None:
    _, a = member_with_records()
    for _ in range(2 * 39):
        poll_event(a, 1)
    assert len(a.records) == 2 * 40
    state = state_of(a)
    poll_event(a, 1)
    assert state_of(a) == state


def callback_is_due(world: World, a: Consumer) -> None:
    b = world.consumer(**GROUP)
    b.subscribe("t")
    # Pretend that the application is inside a callback, so that the next callback stays pending.
    a.in_callback = ("", ())
    assert world.run(5000, until=lambda: not a.engine.group_status.callbacks.is_empty)


def deadline_has_come(world: World, a: Consumer) -> None:
    due = next_deadline(a.engine)
    assert due is not None
    world.now = due


def error_is_pending(world: World, a: Consumer) -> None:
    a.engine.core.errors[(Retriable, "x")] = Retriable(14, "OffsetCommit", "x")


def no_partition_has_records(world: World, a: Consumer) -> None:
    a.do(ev.Pause(frozenset({tp("t", 0)})))
    state = a.engine.partitions[TopicPartition("t", 1)]
    while state.position < 40:
        three_events(a, 1)


def test_poll_decodes_fetched_records() -> None:
    (first, a), (second, b) = member_with_records(), member_with_records()
    for world, consumer in ((first, a), (second, b)):
        consumer.do(ev.Seek(tp("t", 0), 0))
        consumer.do(ev.Seek(tp("t", 1), 0))
        states = consumer.engine.partitions.values()
        assert world.run(until=lambda states=states: all(state.fetches for state in states))  # type: ignore[misc]
        next_deadline(consumer.engine)
    three_events(a, 5)
    poll_event(b, 5)
    assert len(b.records) == 7
    assert state_of(a) == state_of(b)


@pytest.mark.parametrize(
    "prepare",
    [
        callback_is_due,
        deadline_has_come,
        error_is_pending,
        no_partition_has_records,
    ],
)
def test_poll_changes_nothing_if_more_than_records_is_due(prepare: Callable[[World, Consumer], None]) -> None:
    world, a = member_with_records()
    prepare(world, a)
    state = state_of(a)
    poll_event(a, 1)
    assert state_of(a) == state


def test_a_poll_of_no_records_changes_nothing() -> None:
    _, a = member_with_records()
    state = state_of(a)
    poll_event(a, 0)
    assert state_of(a) == state


def test_partitions_take_turns() -> None:
    _, a = member_with_records()
    for _ in range(6):
        poll_event(a, 2)
    assert [record.partition for record in a.records[2:]] == [0, 0, 1, 1] * 3


def reader_at_the_end() -> tuple[World, Consumer]:
    """Return a member that has read all records and waits for the response to its next fetch."""
    world = World({"t": 1})
    world.write("t", 0, "x")
    a = world.consumer(**GROUP, fetch_max_wait_ms=60_000, request_timeout_ms=70_000)
    a.subscribe("t")
    assert world.run(until=lambda: a.values() == ["x"])
    world.run(5_000)
    a.limit = 0
    return world, a


def test_a_poll_without_records_runs_only_the_parts_that_polls_change() -> None:
    _, a = reader_at_the_end()
    next_deadline(a.engine)
    functions: list[str] = []

    def record(frame: Any, event: str, arg: Any) -> None:
        if event == "call" and "/consumer/engine/" in frame.f_code.co_filename:
            functions.append(frame.f_code.co_name)

    sys.setprofile(record)
    try:
        three_events(a, 1)
        next_deadline(a.engine)
    finally:
        sys.setprofile(None)
    assert "take" in functions
    assert not {"settle", "pump", "_earliest_other_deadline"}.intersection(functions)


def test_a_backoff_that_ends_during_a_poll_is_followed_by_a_fetch() -> None:
    world, a = reader_at_the_end()
    # The pause prevents a fetch between the seek and the start of the backoff.
    a.do(ev.Pause(frozenset({tp("t", 0)})))
    a.do(ev.Seek(tp("t", 0), 0))
    a.engine.partitions[TopicPartition("t", 0)].back_off_until(world.now + 100)
    a.do(ev.Resume(frozenset({tp("t", 0)})))
    a.do(ev.PollBegan())
    sent = len(world.requests_of(a, FetchRequest))
    world.now += 100
    a.do(ev.Take(1))
    world.run(10)
    assert len(world.requests_of(a, FetchRequest)) > sent


@pytest.mark.parametrize("late_ms", [0, 1])
def test_a_commit_whose_backoff_ends_in_a_poll_is_retried_immediately(late_ms: int) -> None:
    world, a = reader_at_the_end()

    def leave_out(client: Client, request: Any, version: int) -> Any:
        return OffsetCommitResponse(topics=[]) if isinstance(request, OffsetCommitRequest) else None

    world.tamper = leave_out
    a.commit({tp("t", 0): 0}, timeout_ms=10_000)
    queue = a.engine.committer._queue
    assert world.run(100, until=lambda: queue.first is not None and queue.first.retry_at > world.now)
    assert queue.first is not None
    world.now = queue.first.retry_at + late_ms
    sent = len(world.requests_of(a, OffsetCommitRequest))
    three_events(a, 1)
    world.run(10, until=lambda: len(world.requests_of(a, OffsetCommitRequest)) > sent)
    assert len(world.requests_of(a, OffsetCommitRequest)) > sent
