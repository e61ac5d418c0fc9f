"""A poll at once (`Poll`) does what PollBegan, Take and PollEnded do, or nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consumer.engine import events as ev
from consumer.engine.consumer import next_deadline
from kproto.errors import Retriable
from kproto.group.subscription import TopicPartition
from kproto.messages.offset_commit import OffsetCommitRequest
from tests.consumer.stage import Consumer, World, tp

GROUP: dict[str, Any] = {"group_id": "g", "auto_offset_reset": "earliest", "auto_commit_interval_ms": 200}


def filled(count: int = 40, **options: Any) -> tuple[World, Consumer]:
    """A member that has so many records of each of two partitions, and was given one of each."""
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
        three(a, 1)
    assert len(a.records) == 2
    return world, a


def three(a: Consumer, limit: int) -> None:
    for event in (ev.PollBegan(), ev.Take(limit), ev.PollEnded()):
        a.do(event)


def at_once(a: Consumer, limit: int) -> None:
    a.do(ev.Poll(limit))


def known(a: Consumer) -> Any:
    """All that a poll changes."""
    member = a.engine.group.member
    assert member is not None
    return (
        [(record.partition, record.offset) for record in a.records],
        [(s.position, s.processed, s.committed, s.has_returned, s.lag) for s in a.engine.partitions.values()],
        (member.poll_ends_at, member.is_polling, member.state),
        list(a.engine.core.partitions.returned),
        list(a.engine.core.partitions.to_commit()),
        next_deadline(a.engine),
    )


@pytest.mark.parametrize("limit", [1, 3, 7])
def test_a_poll_at_once_is_what_the_three_are(limit: int) -> None:
    (first, a), (second, b) = filled(), filled()
    for turn in range(60 // limit):
        before = len(b.records)
        three(a, limit)
        at_once(b, limit)
        if len(b.records) == before:
            three(b, limit)
        assert known(a) == known(b), turn
        for world in (first, second):
            world.run(100)
    commits = first.requests_of(a, OffsetCommitRequest)
    assert commits == second.requests_of(b, OffsetCommitRequest)
    assert len(commits) > 1


def test_a_poll_at_once_returns_everything_that_is_buffered() -> None:
    _, a = filled()
    for _ in range(2 * 39):
        at_once(a, 1)
    assert len(a.records) == 2 * 40
    before = known(a)
    at_once(a, 1)
    assert known(a) == before


def a_callback_waits(world: World, a: Consumer) -> None:
    b = world.consumer(**GROUP)
    b.subscribe("t")
    a.in_callback = ("", ())  # so that nobody looks for it
    assert world.run(5000, until=lambda: a.engine.group.has_callbacks)


def a_moment_has_come(world: World, a: Consumer) -> None:
    due = next_deadline(a.engine)
    assert due is not None
    world.now = due


def an_error_waits(world: World, a: Consumer) -> None:
    a.engine.core.errors[(Retriable, "x")] = Retriable(14, "OffsetCommit", "x")


def one_is_paused_and_the_other_used_up(world: World, a: Consumer) -> None:
    a.do(ev.Pause(frozenset({tp("t", 0)})))
    state = a.engine.partitions[TopicPartition("t", 1)]
    while state.position < 40:
        three(a, 1)


def test_a_poll_at_once_decodes_fetched_records() -> None:
    (first, a), (second, b) = filled(), filled()
    for world, consumer in ((first, a), (second, b)):
        consumer.do(ev.Seek(tp("t", 0), 0))
        consumer.do(ev.Seek(tp("t", 1), 0))
        states = consumer.engine.partitions.values()
        assert world.run(until=lambda states=states: all(state.fetches for state in states))  # type: ignore[misc]
        next_deadline(consumer.engine)
    three(a, 5)
    at_once(b, 5)
    assert len(b.records) == 7
    assert known(a) == known(b)


@pytest.mark.parametrize(
    "hindered",
    [
        a_callback_waits,
        a_moment_has_come,
        an_error_waits,
        one_is_paused_and_the_other_used_up,
    ],
)
def test_where_more_is_to_be_done_nothing_has_happened(hindered: Callable[[World, Consumer], None]) -> None:
    world, a = filled()
    hindered(world, a)
    before = known(a)
    at_once(a, 1)
    assert known(a) == before


def test_a_poll_of_nothing_is_none() -> None:
    _, a = filled()
    before = known(a)
    at_once(a, 0)
    assert known(a) == before


def test_partitions_have_their_turn() -> None:
    _, a = filled()
    for _ in range(6):
        at_once(a, 2)
    assert [record.partition for record in a.records[2:]] == [0, 0, 1, 1] * 3
