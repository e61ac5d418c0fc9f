"""AsyncConsumerGroup rejects wrong calls, commits marks on time, and reports each error once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncConsumerGroup, ConsumerRecord
from kproto.broker.server import Server
from kproto.errors import ConfigError, IllegalState, NotAuthorized, RequestTimedOut
from kproto.group.subscription import TopicPartition
from tests.broker.stage import classic_coordinator
from tests.consumer.sarama.stage import (
    FAST,
    T0,
    AsyncRecordingHandler,
    committed,
    fill,
    four_partitions,
)

T1 = TopicPartition("t", 1)
COOPERATIVE: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}


@pytest.fixture
def server() -> Iterator[Server]:
    with four_partitions() as server:
        yield server


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


def with_group(
    server: Server, work: Callable[[AsyncConsumerGroup], Coroutine[Any, Any, None]], **config: Any
) -> None:
    """Call `work` with a group of one member, and close the group."""

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, **{"group_id": "g", **FAST, **config}) as group:
            await work(group)

    asyncio.run(main())


class FirstRecordCoroutine(AsyncRecordingHandler):
    """A handler that ends the session at the first record of any partition."""

    async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
        self.claims.append(claim)
        async for record in claim:
            self.receive(session, claim, record)
            return


# ---- calls


def test_consume_runs_once_at_a_time(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        handler = AsyncRecordingHandler()
        consuming = asyncio.ensure_future(group.consume("t", handler))
        await until(lambda: len(handler.claims) == 4)
        with pytest.raises(IllegalState, match=r"consume\(\) is already running"):
            await group.consume("t", handler)
        # The session continues after the rejected call.
        await asyncio.to_thread(fill, server, 1)
        await until(lambda: len(handler.records) == 1)
        with pytest.raises(ConfigError, match=r"^timeout="):
            await group.close(-1)
        await group.close()
        await consuming
        await group.close()
        with pytest.raises(IllegalState, match="this group was closed; make a new one"):
            await group.consume("t", handler)
        assert [error async for error in group.errors()] == []
        assert not group._claim_tasks  # The tasks of ended claims were removed.
        assert not group._handler_tasks

    with_group(server, work)


@pytest.mark.parametrize("topics", [[], ()])
def test_a_call_with_wrong_arguments_can_be_repeated(server: Server, topics: Any) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        with pytest.raises(ConfigError, match=r"^handler="):
            await group.consume("t", object())  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"^topics="):
            await group.consume(topics, FirstRecordCoroutine())
        handler = FirstRecordCoroutine()
        await group.consume("t", handler)
        assert [record.offset for record in handler.records] == [0]

    fill(server, 1)
    with_group(server, work)


def test_a_failed_setup_is_raised_and_starts_no_claim(server: Server) -> None:
    class Fails(AsyncRecordingHandler):
        def setup(self, session: Any) -> None:
            raise LookupError("no database")

    async def work(group: AsyncConsumerGroup) -> None:
        handler = Fails()
        with pytest.raises(LookupError, match="no database"):
            await group.consume("t", handler)
        assert [kind for kind, _ in handler.calls] == ["cleanup"]
        handler = FirstRecordCoroutine()
        await group.consume("t", handler)
        assert [record.offset for record in handler.records] == [0]
        assert not group.error_channel.items

    fill(server, 1)
    with_group(server, work)


def test_methods_of_a_handler_may_be_coroutines(server: Server) -> None:
    class Coroutines(FirstRecordCoroutine):
        async def setup(self, session: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.record_call("setup", None)

        async def cleanup(self, session: Any) -> None:  # type: ignore[override]
            await asyncio.sleep(0)
            self.record_call("cleanup", None)

    async def work(group: AsyncConsumerGroup) -> None:
        handler = Coroutines()
        await group.consume("t", handler)
        assert handler.calls == [("setup", None), ("cleanup", None)]

    fill(server, 1)
    with_group(server, work)


def test_an_error_that_prevents_joining_is_raised(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        handler = FirstRecordCoroutine()
        server.fail("JoinGroup", "GROUP_AUTHORIZATION_FAILED", 1)
        with pytest.raises(NotAuthorized, match="JoinGroup"):
            await group.consume("t", handler)
        assert handler.calls == []
        await group.consume("t", handler)
        assert [record.offset for record in handler.records] == [0]

    fill(server, 1)
    with_group(server, work)


def test_a_claim_without_a_position_ends_the_session(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        async def position(partition: TopicPartition) -> int:
            if partition == T0:
                raise failure
            return await known_position(partition)

        failure = RequestTimedOut("ListOffsets", 10, "no answer")
        known_position = group.consumer.position
        group.consumer.position = position  # type: ignore[method-assign, assignment]
        handler = AsyncRecordingHandler()
        await group.consume("t", handler)
        assert sorted(detail for kind, detail in handler.calls if kind == "over") == [1, 2, 3]
        assert list(group.error_channel.items) == [failure]
        group.consumer.position = known_position  # type: ignore[method-assign]
        handler = FirstRecordCoroutine()
        await group.consume("t", handler)
        assert [record.offset for record in handler.records] == [0]

    fill(server, 1)
    with_group(server, work)


def test_close_leaves_the_group_at_once(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        await group.consume("t", FirstRecordCoroutine())
        groups = classic_coordinator(server.broker.cluster).groups
        assert len(groups["g"].members) == 1
        await group.close()
        assert not groups["g"].members

    fill(server, 1)
    with_group(server, work)


# ---- topics


def test_a_session_of_fewer_topics_claims_none_of_the_others(server: Server) -> None:
    """Until the next rebalance, a cooperative member keeps the partitions of a topic it unsubscribed from.

    The next session must not claim these partitions, because `consume` was called without the topic.
    """

    async def work(group: AsyncConsumerGroup) -> None:
        await group.consume(["t", "u"], FirstRecordCoroutine())
        handler = FirstRecordCoroutine()
        await group.consume(["t"], handler)
        assert handler.calls[0] == ("setup", {"t": [0, 1, 2, 3]})
        assert {claim.topic for claim in handler.claims} == {"t"}

    with Admin(server.bootstrap) as cluster:
        cluster.create_topics({"u": 1})
    fill(server, 2)
    with_group(server, work, **COOPERATIVE)


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_session_of_other_topics_claims_only_those(server: Server, strategy: str) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        await group.consume(["t"], FirstRecordCoroutine())
        handler = AsyncRecordingHandler()
        consuming = asyncio.ensure_future(group.consume(["u"], handler))
        await until(lambda: len(handler.claims) == 1)
        assert [(kind, detail) for kind, detail in handler.calls if kind == "setup"][-1][1] == {"u": [0]}
        assert group.consumer.assignment() == {TopicPartition("u", 0)}
        await group.close()
        await consuming

    with Admin(server.bootstrap) as cluster:
        cluster.create_topics({"u": 1})
    fill(server, 1)
    with_group(server, work, partition_assignment_strategy=strategy)


# ---- marks


def test_marks_are_committed_at_the_interval_with_their_metadata(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
            session.mark_message(record, f"after {record.offset}")

        handler = AsyncRecordingHandler(each)
        consuming = asyncio.ensure_future(group.consume("t", handler))
        await until(lambda: len(handler.records) == 3)
        await until(lambda: group._marks.committed_offset(T0) == 3)
        with Admin(server.bootstrap) as cluster:
            offsets = await asyncio.to_thread(cluster.committed_offsets, "g")
        committed_offset = offsets[T0]
        assert committed_offset is not None
        assert (committed_offset.offset, committed_offset.metadata) == (3, "after 2")
        await asyncio.to_thread(fill, server, 2)
        await until(lambda: group._marks.committed_offset(T0) == 5)
        await group.close()
        await consuming

    fill(server, 3)
    with_group(server, work, auto_commit_interval_ms=50)


@pytest.mark.parametrize("config", [{"auto_commit_interval_ms": 60_000}, {"enable_auto_commit": False}])
def test_marks_are_not_committed_before_the_interval(server: Server, config: dict[str, Any]) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        handler = AsyncRecordingHandler()
        consuming = asyncio.ensure_future(group.consume("t", handler))
        await until(lambda: len(handler.claims) == 4)
        await asyncio.to_thread(fill, server, 1)
        await until(lambda: len(handler.records) == 1)
        await asyncio.to_thread(fill, server, 1, partition=1)
        await until(lambda: len(handler.records) == 2)
        assert group._auto_commit_task is None
        assert set((await asyncio.to_thread(committed, server)).values()) == {0}
        await group.close()
        await consuming

    with_group(server, work, **config)


def test_a_repeated_error_of_auto_commits_is_reported_once(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
            server.fail("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", 3)
            session.mark_message(record)

        handler = AsyncRecordingHandler(each)
        consuming = asyncio.ensure_future(group.consume("t", handler))
        await until(lambda: len(handler.records) == 1)
        reported: list[str] = []

        async def read() -> None:
            reported.extend([str(error) async for error in group.errors()])

        reading = asyncio.ensure_future(read())
        # Wait for the fourth commit, the first that succeeds.
        await until(lambda: group._marks.committed_offset(T0) == 1)
        await group.close()
        await consuming
        await reading
        assert len([text for text in reported if "OffsetCommit" in text]) == 1

    fill(server, 1)
    with_group(server, work, auto_commit_interval_ms=20)
    assert len([line for line in caplog.messages if "OffsetCommit" in line]) == 1
    assert committed(server)[0] == 1


def test_a_failed_last_commit_is_reported_and_not_raised(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
            server.fail("OffsetCommit", "OFFSET_METADATA_TOO_LARGE", 1)
            session.mark_message(record)

        await group.consume("t", FirstRecordCoroutine(each))
        (error,) = group.error_channel.items
        assert "OFFSET_METADATA_TOO_LARGE" in str(error)
        handler = FirstRecordCoroutine()
        await group.consume("t", handler)
        # This session starts at the mark whose commit failed, and commits it.
        assert [record.offset for record in handler.records] == [1]

    fill(server, 2)
    with_group(server, work, auto_commit_interval_ms=60_000)
    assert committed(server)[0] == 2


# ---- errors


def test_equal_errors_in_succession_are_reported_once(server: Server) -> None:
    class Fails(AsyncRecordingHandler):
        def __init__(self, text: str) -> None:
            super().__init__(self._fail)
            self.text = text

        def _fail(self, *_: Any) -> None:
            raise ValueError(self.text)

    async def work(group: AsyncConsumerGroup) -> None:
        for text in ("a", "a", "b", "a"):
            await group.consume("t", Fails(text))
        assert [str(error) for error in group.error_channel.items] == ["a", "b", "a"]
        assert {tuple(error.__notes__) for error in group.error_channel.items} == {("consume_claim of t-0",)}

    fill(server, 1)
    with_group(server, work)


def test_an_error_that_a_handler_raises_again_has_one_note(server: Server) -> None:
    failure = ValueError("a")

    def fail(*_: Any) -> None:
        raise failure

    async def work(group: AsyncConsumerGroup) -> None:
        for _ in range(2):
            await group.consume("t", AsyncRecordingHandler(fail))
        assert failure.__notes__ == ["consume_claim of t-0"]

    fill(server, 1)
    with_group(server, work)


def test_a_handler_that_does_not_return_in_time_is_cancelled_and_reported(server: Server) -> None:
    """When the handler of one claim returns, the session ends, and with it all claims.

    A handler that does not return within `max_poll_interval_ms` after the end of its claim is cancelled.
    """

    class Stays(AsyncRecordingHandler):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            if claim.partition == 0:
                return
            if claim.partition == 2:
                try:
                    await asyncio.sleep(60)
                except asyncio.CancelledError:
                    self.record_call("cancelled", claim.partition)
                    raise
            await super().consume_claim(session, claim)

    async def work(group: AsyncConsumerGroup) -> None:
        handler = Stays()
        await group.consume("t", handler)
        assert ("cancelled", 2) in handler.calls
        assert ("over", 1) in handler.calls
        assert ("over", 3) in handler.calls
        (error,) = group.error_channel.items
        assert isinstance(error, RequestTimedOut)
        assert str(error) == "consume_claim: no answer within 300 ms (t-2: the handler did not return)"

    with_group(server, work, max_poll_interval_ms=300)


# ---- pausing


def test_a_pause_of_other_partitions_is_ignored(server: Server) -> None:
    """A pause of a partition that the member does not own is ignored, and is not applied later."""

    async def work(group: AsyncConsumerGroup) -> None:
        group.pause(T0)
        group.resume(T0)
        group.pause_all()
        handler = AsyncRecordingHandler()
        consuming = asyncio.ensure_future(group.consume("t", handler))
        await until(lambda: len(handler.records) == 1)
        group.pause([TopicPartition("t", 9)])
        assert group._paused == set()
        await group.close()
        await consuming

    fill(server, 1)
    with_group(server, work)


def test_a_pause_or_resume_between_two_sessions_affects_the_next_one(server: Server) -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        await group.consume("t", FirstRecordCoroutine())
        group.pause(T0)
        handler = FirstRecordCoroutine()
        await asyncio.to_thread(fill, server, 1, partition=1)
        await group.consume("t", handler)
        assert [(record.partition, record.offset) for record in handler.records] == [(1, 0)]
        group.resume(T0)
        handler = FirstRecordCoroutine()
        await group.consume("t", handler)
        assert [(record.partition, record.offset) for record in handler.records] == [(0, 1)]

    fill(server, 2)
    with_group(server, work, **COOPERATIVE)


# ---- assignments


def without_broker(work: Callable[[AsyncConsumerGroup], Coroutine[Any, Any, None]]) -> None:
    """Call `work` with a group whose broker is unreachable."""

    async def main() -> None:
        group = AsyncConsumerGroup("localhost:1", group_id="g")
        try:
            await work(group)
        finally:
            await group.close(0)

    asyncio.run(main())


def test_a_session_that_loses_its_partitions_before_it_begins_is_dropped() -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        await group.on_assigned([T0, T1])
        first = group._next_session
        assert first is not None
        assert first.claims == {"t": [0, 1]}
        await group.on_removed([T1], commit=True)
        assert group._next_session is first
        assert first.claims == {"t": [0]}
        assert not first.done.is_set()
        await group.on_removed([T0], commit=False)
        assert group._next_session is None
        assert first.done.is_set()
        await group.on_assigned([T1])
        second = group._next_session
        assert second is not None
        assert second is not first
        assert second.claims == {"t": [1]}
        assert not second.done.is_set()

    without_broker(work)


def test_partitions_of_one_assignment_are_in_one_session() -> None:
    async def work(group: AsyncConsumerGroup) -> None:
        await group.on_assigned([T1])
        session = group._next_session
        await group.on_assigned([T0])
        assert session is not None
        assert session is group._next_session
        assert session.claims == {"t": [0, 1]}
        assert group._assigned == {T0, T1}

    without_broker(work)
