"""Sessions and claims of sarama's ConsumerGroup keep their guarantees, on the embedded broker."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterator
from typing import Any, ClassVar

import pytest

import consumer.aio.runtime
import consumer.aio.waiters
import consumer.operations.consumer
import consumer.operations.polls
import consumer.runtime
from consumer import Admin, AsyncConsumerGroup, ConsumerGroup, ConsumerRecord, clock
from kproto.broker.server import Server
from kproto.errors import ConfigError, IllegalState
from tests.consumer.sarama.stage import (
    FAST,
    T0,
    AsyncRecordingHandler,
    ConsumeLoop,
    FirstRecordHandler,
    RecordingHandler,
    StuckHandler,
    committed,
    fill,
    four_partitions,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with four_partitions() as server:
        yield server


def test_a_session_is_setup_claims_and_cleanup_and_commits_the_marks(server: Server) -> None:
    fill(server, 10)
    handler = RecordingHandler()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) == 10)
    assert handler.calls[0] == ("setup", {"t": [0, 1, 2, 3]})
    assert handler.calls[-1] == ("cleanup", {"t": [0, 1, 2, 3]})
    assert sorted(of for kind, of in handler.calls if kind == "over") == [0, 1, 2, 3]
    assert committed(server)[0] == 10


def test_only_marked_offsets_are_committed(server: Server) -> None:
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        if record.offset < 4:
            session.mark_message(record, "done")

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) == 10)
    assert committed(server)[0] == 4


def test_a_mark_moves_back_only_by_reset(server: Server) -> None:
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        session.mark_offset("t", 0, 2)
        if record.offset == 9:
            session.commit()
            assert committed(server)[0] == 10
            session.reset_offset("t", 0, 3)

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) == 10)
    assert committed(server)[0] == 3


def test_a_mark_of_an_unclaimed_partition_does_not_fail_other_commits(server: Server) -> None:
    """A mark of a partition that this member does not claim is ignored, and later commits succeed.

    A thread may make such a mark if the partition now belongs to another member.
    """
    fill(server, 5)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_offset("t", 17, 3)
        session.mark_offset("elsewhere", 0, 3)
        session.mark_message(record)
        session.commit()

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler) as loop:
        handler.until(lambda: len(handler.records) == 5)
        assert loop.returns == 0  # The session continues, so no call in the handler has raised an exception.
    assert list(loop.group.errors()) == []
    assert committed(server)[0] == 5


def test_a_mark_of_an_earlier_session_is_ignored(server: Server) -> None:
    fill(server, 5)
    sessions: list[Any] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        sessions.append(session)
        if record.offset == 4:
            sessions[0].mark_offset("t", 0, 5)
            session.commit()

    first = RecordingHandler(each)
    with ConsumeLoop(server, first, partition_assignment_strategy="range"):
        first.until(lambda: len(first.records) == 5)
        with ConsumeLoop(server, RecordingHandler(), partition_assignment_strategy="range"):
            first.until(lambda: len([1 for kind, _ in first.calls if kind == "setup"]) == 2)
            sessions[0].mark_offset("t", 0, 1)
            assert committed(server)[0] == 5


def test_a_claim_starts_at_the_offset_that_setup_reset_to(server: Server) -> None:
    """A claim starts at the offset to which `setup` has reset it.

    sarama has no method to seek, so its users call ResetOffset in Setup instead.
    """
    fill(server, 10)

    class Back(RecordingHandler):
        def setup(self, session: Any) -> None:
            session.reset_offset("t", 0, 6)

    handler = Back()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) >= 4)
    assert [record.offset for record in handler.records] == [6, 7, 8, 9]
    assert next(claim for claim in handler.claims if claim.partition == 0).initial_offset == 6


@pytest.mark.parametrize(
    ("call", "args"),
    [
        ("mark_message", (None,)),
        ("mark_offset", ("t", "0", 5)),
        ("mark_offset", ("t", 0, -5)),
        ("mark_offset", ("t", 0, 2**70)),
        ("mark_offset", ("t", 0, 5, None)),
        ("mark_offset", (None, 0, 5)),
        ("reset_offset", ("t", 0, "5")),
    ],
)
def test_a_mark_that_cannot_be_committed_is_rejected(
    call: str, args: tuple[Any, ...], server: Server
) -> None:
    errors: list[Exception] = []

    class Marks(RecordingHandler):
        def setup(self, session: Any) -> None:
            try:
                getattr(session, call)(*args)
            except ConfigError as error:
                errors.append(error)
            super().setup(session)

    handler = Marks()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.claims) == 4)
    assert len(errors) == 1


def test_commit_in_a_handler_has_committed_when_it_returns(server: Server) -> None:
    fill(server, 5)
    offsets: list[int] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        session.commit()
        offsets.append(committed(server)[0])

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler, enable_auto_commit=False):
        handler.until(lambda: len(handler.records) == 5)
    assert offsets == [1, 2, 3, 4, 5]


def test_an_eager_rebalance_ends_the_session(server: Server) -> None:
    first, second = RecordingHandler(), RecordingHandler()
    with ConsumeLoop(server, first, partition_assignment_strategy="range") as loop:
        first.until(lambda: len(first.claims) == 4)
        with ConsumeLoop(server, second, partition_assignment_strategy="range"):
            second.until(lambda: len(second.claims) == 2)
            first.until(lambda: len(first.claims) == 6)
            assert loop.returns == 1
            setups = [of["t"] for kind, of in first.calls if kind == "setup"]
            assert [len(partitions) for partitions in setups] == [4, 2]


def test_close_with_a_handler_that_does_not_end_commits_the_marks(server: Server) -> None:
    fill(server, 3)
    handler = StuckHandler()
    with ConsumeLoop(server, handler, auto_commit_interval_ms=60_000) as loop:
        handler.until(lambda: len(handler.records) == 3)
        before = time.monotonic()
        loop.group.close(1)
        assert time.monotonic() - before < 15
        handler.never.set()
    assert committed(server)[0] == 3


def test_the_session_after_a_failed_setup_starts_at_the_committed_offset(server: Server) -> None:
    """The session after a failed `setup` starts at the committed offset.

    Regression: the session started at offset 0, whose record may have been deleted.
    """
    fill(server, 10)
    with Admin(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 5})

    class Fails(FirstRecordHandler):
        def setup(self, session: Any) -> None:
            raise RuntimeError("no database")

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        with pytest.raises(RuntimeError):
            group.consume(["t"], Fails())
        handler = FirstRecordHandler()
        group.consume(["t"], handler)
    assert [record.offset for record in handler.records] == [5]


def test_a_session_of_other_topics_claims_the_retained_partitions(server: Server) -> None:
    """A cooperative consumer runs no callback for partitions that the new session retains."""
    with Admin(server.bootstrap) as cluster:
        cluster.create_topics({"u": 1})
    strategy: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST, **strategy) as group:
        for count, topics in enumerate((["t"], ["t", "u"])):
            fill(server, 1)
            handler = FirstRecordHandler()
            group.consume(topics, handler)
            assert [record.offset for record in handler.records] == [count]


def test_a_cooperative_rebalance_does_not_end_the_claims_of_retained_partitions(server: Server) -> None:
    first, second = RecordingHandler(), RecordingHandler()
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    with ConsumeLoop(server, first, **strategy) as loop:
        first.until(lambda: len(first.claims) == 4)
        with ConsumeLoop(server, second, **strategy):
            second.until(lambda: len(second.claims) == 2)
            revoked = {of for kind, of in first.calls if kind == "over"}
            assert len(revoked) == 2
            assert [kind for kind, _ in first.calls].count("setup") == 1
            assert loop.returns == 0
            retained_claim = next(claim for claim in first.claims if claim.partition not in revoked)
            fill(server, 3, partition=retained_claim.partition)
            first.until(lambda: len(first.records) == 3)


def test_no_record_is_lost_or_repeated_when_members_join_and_leave(server: Server) -> None:
    first, second = RecordingHandler(), RecordingHandler()
    total = 0
    with ConsumeLoop(server, first, partition_assignment_strategy="range"):
        for partition in range(4):
            fill(server, 200, partition=partition)
        with ConsumeLoop(server, second, partition_assignment_strategy="range"):
            for partition in range(4):
                fill(server, 200, partition=partition)
        for partition in range(4):
            fill(server, 100, partition=partition)
        total = 4 * 500
        first.until(lambda: len(first.records) + len(second.records) >= total, 20)
    read = sorted((record.partition, record.offset) for record in [*first.records, *second.records])
    assert read == [(partition, offset) for partition in range(4) for offset in range(500)]


def test_a_handler_that_returns_ends_the_session_and_unmarked_records_come_again(server: Server) -> None:
    fill(server, 10)

    class FirstFourHandler(RecordingHandler):
        def consume_claim(self, session: Any, claim: Any) -> None:
            self.record_call("claim", claim.partition)
            for record in claim:
                self.receive(session, claim, record)
                if record.offset == 3 and len(self.records) == 4:
                    return

    handler = FirstFourHandler(
        lambda session, claim, record: session.mark_message(record) if record.offset < 2 else None
    )
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) >= 12)
    assert [record.offset for record in handler.records] == [0, 1, 2, 3, *range(2, 10)]


def test_an_error_of_a_handler_is_reported_and_ends_the_session(server: Server) -> None:
    fill(server, 3)
    failed = threading.Event()

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("no such flight")
        session.mark_message(record)

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler) as loop:
        handler.until(lambda: len(handler.records) == 4)
        assert loop.returns == 1
        assert isinstance(next(loop.group.errors()), ValueError)
    assert committed(server)[0] == 3


def test_the_errors_iterator_ends_with_the_group(server: Server) -> None:
    handler = RecordingHandler()
    ended: list[Exception] = []
    with ConsumeLoop(server, handler) as loop:
        drain = threading.Thread(target=lambda: ended.extend(loop.group.errors()))
        drain.start()
        handler.until(lambda: len(handler.claims) == 4)
    drain.join(5)
    assert not drain.is_alive()
    assert ended == []


def test_errors_are_kept_for_a_late_reader(server: Server) -> None:
    fill(server, 1)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        raise ValueError("oh")

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], RecordingHandler(each))
    assert [str(error) for error in group.errors()] == ["oh"]
    assert list(group.errors()) == []


def test_a_slow_handler_buffers_few_records(server: Server) -> None:
    fill(server, 5000)
    go = threading.Event()
    handler = RecordingHandler(lambda session, claim, record: (go.wait(10), session.mark_message(record)))
    with ConsumeLoop(server, handler, max_poll_records=100) as loop:
        handler.until(lambda: len(handler.records) == 1)
        time.sleep(0.5)
        claim = next(claim for claim in handler.claims if claim.partition == 0)
        assert len(claim._claim.items) < 600
        assert T0 in loop.group._group.consumer.paused()
        go.set()
        handler.until(lambda: len(handler.records) == 5000)
    assert committed(server)[0] == 5000


def test_claims_receive_records_while_a_commit_waits_for_the_coordinator(server: Server) -> None:
    """A slow commit does not delay the claims. As in sarama, it runs in the background.

    Offsets that are marked during a commit are committed by the next commit.
    """
    fill(server, 10)
    handler = RecordingHandler()
    with ConsumeLoop(server, handler, auto_commit_interval_ms=50):
        handler.until(lambda: len(handler.records) == 10)
        server.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 1_000_000)
        fill(server, 5000)
        handler.until(lambda: len(handler.records) == 5010)
        assert committed(server)[0] < 5010
        server.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 0)
    assert committed(server)[0] == 5010


def test_a_claim_has_its_initial_offset_and_high_water_mark(server: Server) -> None:
    fill(server, 7)
    handler = RecordingHandler()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.records) == 7)
        claim = next(claim for claim in handler.claims if claim.partition == 0)
        assert (claim.topic, claim.partition, claim.initial_offset, claim.high_water_mark) == ("t", 0, 0, 7)


# ---- asyncio


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_an_asyncio_session_commits_its_marks(server: Server) -> None:
    fill(server, 10)
    handler = AsyncRecordingHandler()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume(["t"], handler))
            while len(handler.records) < 10:
                await asyncio.sleep(0.02)
        await task

    run(main())
    assert handler.calls[-1][0] == "cleanup"
    assert committed(server)[0] == 10


def test_a_cancelled_consume_ends_its_session_and_the_next_one_continues(server: Server) -> None:
    fill(server, 10)
    handler = AsyncRecordingHandler()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume("t", handler))
            while len(handler.records) < 10:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert handler.calls[-1][0] == "cleanup"
            generation = group.consumer.group_metadata().generation
            task = asyncio.ensure_future(group.consume("t", handler))
            while [kind for kind, _ in handler.calls].count("claim") < 8:
                await asyncio.sleep(0.02)
            assert group.consumer.group_metadata().generation == generation
        await task

    run(main())
    assert [record.offset for record in handler.records] == list(range(10))


def test_a_session_ends_completely_however_often_consume_is_cancelled(server: Server) -> None:
    """A session ends completely, however often `consume` is cancelled.

    Regression: after the third cancellation, the session's handlers kept running during the next session, and
    `cleanup` was not called.
    """
    ends = asyncio.Event()

    class Slow(AsyncRecordingHandler):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.record_call("claim", claim.partition)
            await session.done.wait()
            await ends.wait()
            self.record_call("over", claim.partition)

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume("t", handler))
            while len(handler.calls) < 5:
                await asyncio.sleep(0.02)
            for _ in range(4):
                task.cancel()
                await asyncio.wait([task], timeout=0.05)
            assert not task.done()
            ends.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    handler = Slow()
    run(main())
    assert [kind for kind, _ in handler.calls] == ["setup", *["claim"] * 4, *["over"] * 4, "cleanup"]


def test_partitions_assigned_between_two_sessions_have_one_handler_each(server: Server) -> None:
    """A partition that is assigned between two sessions is claimed once, not twice.

    The next `consume` may begin after the consumer has received the assignment, but before the listener's
    callback for this assignment has run.
    """
    handler, second = AsyncRecordingHandler(), RecordingHandler()

    async def main() -> None:
        async with AsyncConsumerGroup(
            server.bootstrap, group_id="g", partition_assignment_strategy="range", **FAST
        ) as group:
            task = asyncio.ensure_future(group.consume("t", handler))
            while len(handler.claims) < 4:
                await asyncio.sleep(0.02)
            # Delay all responses, so that the poll that ends the claims returns before the rebalance ends.
            server.slow(0.4)
            with ConsumeLoop(server, second, partition_assignment_strategy="range"):
                await task
                while len(group.consumer.assignment()) != 2:
                    await asyncio.sleep(0.02)
                server.slow(0)
                task = asyncio.ensure_future(group.consume("t", handler))
                while len(second.claims) < 2 or len(handler.claims) < 6:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.2)
                assert len(handler.claims) == 6
                await group.close()
        await task

    run(main())


def test_wrong_arguments_are_rejected(server: Server) -> None:
    with pytest.raises(ConfigError, match="group_id"):
        ConsumerGroup(server.bootstrap)
    with pytest.raises(ConfigError, match="session_timeout_ms"):
        ConsumerGroup(server.bootstrap, group_id="g", session_timeout_ms=-1)
    with ConsumerGroup(server.bootstrap, group_id="g") as group:
        with pytest.raises(ConfigError, match="setup, consume_claim and cleanup"):
            group.consume(["t"], print)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"an object such as RecordingHandler\(\) and not its class"):
            group.consume(["t"], RecordingHandler)  # type: ignore[arg-type]
        for topics in ([], None, [1], ""):
            with pytest.raises(ConfigError, match="topics"):
                group.consume(topics, RecordingHandler())  # type: ignore[arg-type]
    with pytest.raises(IllegalState, match="closed"):
        group.consume(["t"], RecordingHandler())


class SlowFourthRecord:
    """A clock that jumps by 30 s at the fourth record, as if the process had been suspended for longer than
    the session timeout.
    """

    config: ClassVar[dict[str, Any]] = {"session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(server, 200)
        self.slept = 0
        self.taken: list[tuple[Any, int]] = []
        modules = (consumer.runtime, consumer.aio.runtime, consumer.aio.waiters)
        for module in (*modules, consumer.operations.consumer, consumer.operations.polls):
            monkeypatch.setattr(module, "now", lambda: clock.now() + self.slept)

    def each(self, session: Any, claim: Any, record: ConsumerRecord) -> None:
        self.taken.append((claim, record.offset))
        if len(self.taken) == 4:
            self.slept = 30_000

    def claims(self) -> int:
        return len({id(claim) for claim, _ in self.taken})

    def check(self) -> None:
        first = self.taken[0][0]
        assert [offset for claim, offset in self.taken if claim is first] == [0, 1, 2, 3]
        assert next(offset for claim, offset in self.taken if claim is not first) == 0


def test_a_claim_returns_nothing_buffered_after_a_stop_longer_than_the_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = SlowFourthRecord(server, monkeypatch)
    handler = RecordingHandler(stopped.each)
    with ConsumeLoop(server, handler, **stopped.config):
        handler.until(lambda: stopped.claims() == 2)
    stopped.check()


@pytest.mark.thorough  # The test waits for a session timeout in real time.
def test_an_asyncio_claim_returns_nothing_buffered_after_a_stop_longer_than_the_session(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = SlowFourthRecord(server, monkeypatch)

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **{**FAST, **stopped.config}) as group:
            while stopped.claims() < 2:
                consuming = asyncio.ensure_future(group.consume(["t"], AsyncRecordingHandler(stopped.each)))
                while not consuming.done() and stopped.claims() < 2:
                    await asyncio.sleep(0.02)
                consuming.cancel()
                await asyncio.wait([consuming])

    run(main())
    stopped.check()


def test_an_error_that_repeats_is_reported_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Repeats of a partition's error within the throttle's interval are not reported.

    The application reads each error from `errors` immediately, and even so receives no repeat.
    """
    reported: list[Exception] = []
    handler = RecordingHandler()
    loop = ConsumeLoop(server, handler, retry_backoff_max_ms=100)
    listening = threading.Thread(target=lambda: reported.extend(loop.group.errors()))
    listening.start()
    handler.until(lambda: len(handler.claims) == 4)
    server.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", 5)
    fill(server, 1)
    # A record arrives only after five fetches have failed with the injected error.
    handler.until(lambda: len(handler.records) == 1)
    loop.group.close()
    listening.join()
    denied = "the principal of this client needs an ACL that allows READ on the topic"
    errors = [str(error) for error in reported if denied in str(error)]
    lines = [line for line in caplog.messages if denied in line]
    # Each error is reported at most once for each partition, both by `errors` and in the log.
    assert len(errors) == len(lines) == len({*errors}) > 0
