"""Commits are sent one after another, in the order of the calls, and are retried after a backoff."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from consumer.engine import events as ev
from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from kproto.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kproto.testing.world import Client, Consumer, World, tp
from tests.rules import rule

T0 = tp("t", 0)


def loading_world(times: int, metadata_version: int = 13) -> tuple[World, Consumer, list[tuple[int, int]]]:
    """Return (world, consumer, sent). The first `times` commits get COORDINATOR_LOAD_IN_PROGRESS.

    The list `sent` gets the (time, offset) of each OffsetCommit request of the consumer.
    """
    world = World({"t": 1})
    consumer = world.consumer(group_id="g", retry_backoff_ms=100, retry_backoff_max_ms=10_000)
    consumer.engine.core.network.caps[3] = metadata_version
    consumer.assign({T0: 0})
    world.run(500)
    sent: list[tuple[int, int]] = []

    def answer(client: Client, request: Any, version: int) -> OffsetCommitResponse | None:
        if not isinstance(request, OffsetCommitRequest):
            return None
        [topic] = request.topics
        sent.append((world.now, topic.partitions[0].committed_offset))
        if len(sent) > times:
            return None
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        partitions = [OffsetCommitResponsePartition(partition_index=0, error_code=code)]
        entry = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions)
        return OffsetCommitResponse(topics=[entry])

    world.tamper = answer
    return world, consumer, sent


@rule("M129")
def test_a_commit_is_retried_with_a_growing_backoff() -> None:
    world, consumer, sent = loading_world(times=5)
    consumer.do(ev.Commit("c", {T0: (1, None, "")}, 60_000))
    assert world.run(60_000, until=lambda: "c" in consumer.done)
    assert consumer.done["c"][1] is None
    gaps = [later - earlier for (earlier, _), (later, _) in pairwise(sent)]
    # Each backoff is up to 20 % shorter or longer at random, and a request takes a few milliseconds.
    for gap, backoff_ms in zip(gaps, (100, 200, 400, 800, 1_600), strict=True):
        assert 0.8 * backoff_ms <= gap <= 1.2 * backoff_ms + 20


@rule("M129")
def test_a_commit_that_waits_for_an_earlier_one_fails_after_its_own_timeout() -> None:
    world, consumer, _ = loading_world(times=100)
    consumer.do(ev.Commit("first", {T0: (1, None, "")}, 60_000))
    world.run(3_000)
    at = world.now
    consumer.do(ev.Commit("second", {T0: (2, None, "")}, 700))
    assert world.run(60_000, until=lambda: "second" in consumer.done)
    error = consumer.done["second"][1]
    assert isinstance(error, RequestTimedOut)
    assert (error.request, error.timeout_ms) == ("OffsetCommit", 700)
    assert (world.now - at, "first" in consumer.done) == (700, False)


@rule("M129", "M130")
def test_commits_are_sent_and_completed_in_the_order_of_the_calls() -> None:
    world, consumer, sent = loading_world(times=2)
    for offset in (1, 2, 3):
        consumer.do(ev.Commit(offset, {T0: (offset, None, "")}, 60_000))
    assert world.run(60_000, until=lambda: len(consumer.done) == 3)
    assert [offset for _, offset in sent] == [1, 1, 1, 2, 3]
    assert list(consumer.done) == [1, 2, 3]


def test_a_commit_in_flight_is_pending_until_its_response() -> None:
    world, consumer, sent = loading_world(times=0)
    consumer.do(ev.Commit("c", {T0: (1, None, "")}, 60_000))
    assert world.run(until=lambda: bool(sent))
    assert not consumer.engine.committer.is_idle
    assert world.run(until=lambda: "c" in consumer.done)
    assert consumer.engine.committer.is_idle


def test_a_commit_is_retried_if_the_cluster_has_no_topic_ids() -> None:
    world, consumer, sent = loading_world(times=1, metadata_version=9)
    consumer.do(ev.Commit("c", {T0: (1, None, "")}, 60_000))
    assert world.run(60_000, until=lambda: "c" in consumer.done)
    assert (consumer.done["c"][1], len(sent)) == (None, 2)


def test_close_fails_a_commit_with_the_reason_why_it_was_not_sent() -> None:
    world, consumer, _ = loading_world(times=100)
    consumer.do(ev.Commit("c", {T0: (1, None, "")}, 60_000))
    world.run(1_000)
    consumer.close()
    assert world.run(60_000, until=lambda: "c" in consumer.done)
    error = str(consumer.done["c"][1])
    assert "closed before these offsets were committed" in error
    assert "COORDINATOR_LOAD_IN_PROGRESS" in error
