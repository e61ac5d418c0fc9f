"""A session of sarama's ConsumerGroup ends with `cleanup` and the last commit, whatever a handler does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, AsyncConsumerGroup, ConsumerGroup, ConsumerRecord
from kproto.broker.server import Server
from kproto.errors import CommitFailed, ConfigError, IllegalState, RequestTimedOut
from tests.broker.stage import classic_coordinator
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
from tests.rules import rule


@pytest.fixture
def server() -> Iterator[Server]:
    with four_partitions() as server:
        yield server


# ---- marks


def test_without_auto_commit_only_commit_commits_marks(server: Server) -> None:
    """If automatic commits are disabled, marks are not committed, not even at the end of the session.

    The handler is the second example of docs/lessons/003.
    """
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        if record.offset == 5:
            session.commit()

    handler = RecordingHandler(each)
    with ConsumeLoop(server, handler, enable_auto_commit=False):
        handler.until(lambda: len(handler.records) == 10)
    assert committed(server)[0] == 6


def test_without_auto_commit_close_with_a_running_handler_commits_nothing(server: Server) -> None:
    fill(server, 3)
    handler = StuckHandler()
    with ConsumeLoop(server, handler, enable_auto_commit=False) as loop:
        handler.until(lambda: len(handler.records) == 3)
        loop.group.close(1)
        handler.never.set()
    assert committed(server)[0] == 0


def test_without_auto_commit_the_next_session_starts_at_the_last_commit(server: Server) -> None:
    """If automatic commits are disabled, marks of a failed batch are not committed.

    Marks of a failed batch are committed neither at the end of the session nor later.

    The next session starts at the last committed offset.
    """
    fill(server, 10)

    class Fails(RecordingHandler):
        def consume_claim(self, session: Any, claim: Any) -> None:
            for record in claim:
                self.records.append(record)
                session.mark_message(record)
                if record.offset == 3:
                    session.commit()
                if record.offset == 7:
                    raise ValueError("the batch is not written")

    class Commits(FirstRecordHandler):
        def setup(self, session: Any) -> None:
            session.commit()

    first, second = Fails(), Commits()
    with ConsumerGroup(server.bootstrap, group_id="g", enable_auto_commit=False, **FAST) as group:
        group.consume(["t"], first)
        group.consume(["t"], second)
    assert [record.offset for record in first.records] == list(range(8))
    assert [record.offset for record in second.records] == [4]
    assert committed(server)[0] == 4


@rule("M103")
def test_a_mark_made_in_cleanup_is_committed(server: Server) -> None:
    """A mark that `cleanup` makes is committed, because the last commit follows `cleanup`, as in sarama.

    A handler that collects batches may flush its last batch in `cleanup`.
    """
    fill(server, 10)

    class Flushes(FirstRecordHandler):
        def __init__(self) -> None:
            super().__init__(lambda session, claim, record: None)

        def cleanup(self, session: Any) -> None:
            session.mark_message(self.records[-1])

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], Flushes())
    assert committed(server)[0] == 1


@rule("M103")
def test_a_mark_made_in_cleanup_is_committed_before_a_rebalance(server: Server) -> None:
    """A mark that `cleanup` makes is committed before a rebalance.

    Otherwise the partition's next owner would read the record again.
    """
    fill(server, 1)

    class Flushes(RecordingHandler):
        def __init__(self) -> None:
            super().__init__(lambda session, claim, record: None)

        def cleanup(self, session: Any) -> None:
            session.mark_offset("t", 0, 1)
            super().cleanup(session)

    first, second = Flushes(), RecordingHandler()
    with ConsumeLoop(server, first, partition_assignment_strategy="range"):
        first.until(lambda: len(first.records) == 1)
        with ConsumeLoop(server, second, partition_assignment_strategy="range"):
            second.until(lambda: len(second.claims) == 2)
            assert committed(server)[0] == 1


def test_a_mark_in_setup_below_the_commit_does_not_move_it_back(server: Server) -> None:
    fill(server, 10)
    with Admin(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 5})

    class Marks(FirstRecordHandler):
        def __init__(self, offset: int) -> None:
            super().__init__()
            self.offset = offset

        def setup(self, session: Any) -> None:
            session.mark_offset("t", 0, self.offset)
            session.commit()

    read: list[int] = []
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        for offset in (3, 8):
            handler = Marks(offset)
            group.consume(["t"], handler)
            read.append(handler.records[0].offset)
            assert committed(server)[0] == read[-1] + 1
    assert read == [5, 8]


def test_claims_that_were_lost_during_setup_do_not_start(server: Server) -> None:
    """Claims that were lost during `setup` do not start.

    `cleanup` still sees the lost generation, and the mark that `setup` set is dropped. Regression: each such
    mark was reported as an error.
    """
    fill(server, 10)
    with Admin(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 8})
    identities: list[tuple[str, int]] = []

    class Slow(FirstRecordHandler):
        def setup(self, session: Any) -> None:
            identities.append((session.member_id, session.generation_id))
            if len(identities) == 1:
                session.reset_offset("t", 0, 2)
                while (
                    session._session._group.consumer._operations.engine.group_status.member_and_generation[1]
                    >= 0
                ):
                    time.sleep(0.02)

        def cleanup(self, session: Any) -> None:
            identities.append((session.member_id, session.generation_id))

    handler = Slow()
    with ConsumeLoop(server, handler, max_poll_interval_ms=300) as loop:
        handler.until(lambda: bool(handler.records))
        assert not loop.group._group.error_channel.items
    assert [record.offset for record in handler.records][:1] == [8]
    assert identities[0] == identities[1] != identities[2]


@pytest.mark.parametrize("method", ["setup", "cleanup"])
def test_consume_returns_after_a_loss_that_the_consumer_has_not_noticed(server: Server, method: str) -> None:
    """`consume` returns after a session that outlasts max_poll_interval_ms, and the next session receives
    claims.

    The handler blocks the event loop, so the consumer notices the loss only at its next call. Regression:
    `consume` raised "t-0: not assigned to this consumer".
    """

    class Blocks(AsyncRecordingHandler):
        def setup(self, session: Any) -> None:  # type: ignore[override]
            if method == "setup" and not self.calls:
                session.reset_offset("t", 0, 3)
                time.sleep(0.4)
            self.record_call("setup", None)

        def cleanup(self, session: Any) -> None:  # type: ignore[override]
            if method == "cleanup" and ("cleanup", None) not in self.calls:
                time.sleep(0.4)
            self.record_call("cleanup", None)

        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            async for record in claim:
                self.records.append(record)
                return

    async def main() -> None:
        config: dict[str, Any] = {"group_id": "g", **FAST, "max_poll_interval_ms": 300}
        handler = Blocks()
        async with AsyncConsumerGroup(server.bootstrap, **config) as group:
            async with asyncio.timeout(30):
                while not handler.records or handler.calls.count(("cleanup", None)) < 2:
                    await group.consume("t", handler)
            assert list(group.error_channel.items) == []
        assert {record.offset for record in handler.records} == {0}

    fill(server, 5)
    asyncio.run(main())


def test_the_high_water_mark_is_never_below_the_initial_offset(server: Server) -> None:
    """A claim's high water mark is never below its initial offset.

    Regression: the high water mark was 0 before the first fetch, so applications computed a negative lag.
    """
    fill(server, 10)
    lags: list[int] = []

    class Lags(RecordingHandler):
        def setup(self, session: Any) -> None:
            session.reset_offset("t", 0, 6)

        def consume_claim(self, session: Any, claim: Any) -> None:
            lags.append(claim.high_water_mark - claim.initial_offset)
            super().consume_claim(session, claim)

    handler = Lags()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.claims) == 4)
    assert min(lags) >= 0


# ---- errors


def test_an_error_after_the_loop_of_a_handler_is_reported(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """An error that a handler raises after its loop over the claim is reported.

    A handler may flush its last batch after the loop, and the flush may fail.

    Regression: the error of such a flush was lost.
    """

    class Flushes(RecordingHandler):
        def consume_claim(self, session: Any, claim: Any) -> None:
            super().consume_claim(session, claim)
            if claim.partition == 2:
                raise ValueError("the last flush failed")

    handler = Flushes()
    with caplog.at_level(logging.ERROR), ConsumeLoop(server, handler) as loop:
        handler.until(lambda: len(handler.claims) == 4)
    (error,) = loop.group.errors()
    assert (str(error), error.__notes__) == ("the last flush failed", ["consume_claim of t-2"])
    (line,) = (record for record in caplog.records if "the last flush failed" in record.getMessage())
    assert "consume_claim of t-2" in line.getMessage()
    # The log record contains the traceback, which shows the line of the handler that failed.
    assert line.exc_info is not None


def test_an_error_of_cleanup_is_reported_and_raised(server: Server) -> None:
    class Fails(FirstRecordHandler):
        def cleanup(self, session: Any) -> None:
            raise ValueError("no disk")

    fill(server, 1)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        with pytest.raises(ValueError, match="no disk"):
            group.consume(["t"], Fails())
        fill(server, 1)
        group.consume(["t"], FirstRecordHandler())  # The next session works in spite of the error.
    assert [str(error) for error in group.errors()] == ["no disk"]
    assert committed(server)[0] == 2


def test_an_error_of_cleanup_in_a_rebalance_is_raised_by_consume(server: Server) -> None:
    class Fails(RecordingHandler):
        def cleanup(self, session: Any) -> None:
            super().cleanup(session)
            raise ValueError("no disk")

    first, second = Fails(), RecordingHandler()
    with ConsumeLoop(server, first, partition_assignment_strategy="range") as loop:
        first.until(lambda: len(first.claims) == 4)
        with ConsumeLoop(server, second, partition_assignment_strategy="range"):
            loop.thread.join(10)
            assert isinstance(loop.error, ValueError)


def test_a_failed_commit_in_cleanup_after_a_loss_is_reported_and_consume_continues(server: Server) -> None:
    """If a commit in `cleanup` fails because partitions were lost, `errors` yields the error.

    `consume` returns without raising the error. The application cannot repeat the commit, because the
    partitions belong to another member.
    """
    fill(server, 3)

    class Commits(RecordingHandler):
        def cleanup(self, session: Any) -> None:
            session.commit()

    handler = Commits()
    with ConsumeLoop(server, handler, enable_auto_commit=False, session_timeout_ms=1_500) as loop:
        handler.until(lambda: len(handler.records) == 3)
        server.fail("Heartbeat", "UNKNOWN_MEMBER_ID", 1)
        handler.until(lambda: len(handler.records) == 6)
        assert (loop.returns, loop.error) == (1, None)
        assert isinstance(next(loop.group.errors()), CommitFailed)


@pytest.mark.parametrize("error_type", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
def test_exits_and_interrupts_in_a_handler_end_the_session_only(
    server: Server, where: str, error_type: type[BaseException]
) -> None:
    """SystemExit, KeyboardInterrupt and StopIteration in a handler end only the session.

    SystemExit comes from `sys.exit()`, and StopIteration from `next()` on an exhausted iterator. Regression:
    `consume` and `close` never returned.
    """
    fill(server, 1)

    def fails(*_: Any) -> None:
        raise error_type("oh")

    handler = FirstRecordHandler()
    setattr(handler, where, fails)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        if where == "consume_claim":
            group.consume(["t"], handler)
        else:
            with pytest.raises(RuntimeError, match=f"{where} raised {error_type.__name__}"):
                group.consume(["t"], handler)
    if where != "setup":
        assert {str(error) for error in group.errors()} == {f"{where} raised {error_type('oh')!r}"}


# ---- which calls end a session


@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
def test_close_in_a_handler_is_rejected_at_once(server: Server, where: str) -> None:
    """A call to `close` from a handler is rejected immediately.

    `close` waits for the handlers, so the handler would wait for itself. In sarama such a call never returns.
    """
    errors: list[IllegalState] = []

    class Closes(RecordingHandler):
        def close(self, *_: Any) -> None:
            try:
                group.close()
            except IllegalState as error:
                errors.append(error)

    handler = Closes()
    setattr(handler, where, handler.close)
    if where != "consume_claim":
        handler.consume_claim = lambda *_: None  # type: ignore[method-assign]
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], handler)
    assert "call it outside a handler" in str(errors[0])


def test_close_in_a_coroutine_of_the_handler_is_rejected_at_once(server: Server) -> None:
    class Closes(AsyncRecordingHandler):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            with pytest.raises(IllegalState, match="call it outside a handler"):
                await group.close()
            # `close` is allowed in another task, even one that a handler has created.
            self.beside = asyncio.ensure_future(group.close())

    async def main() -> None:
        nonlocal group
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        handler = Closes()
        await group.consume(["t"], handler)
        await handler.beside

    group: Any = None
    asyncio.run(main())


def test_close_cancels_a_handler_coroutine_that_does_not_end(server: Server) -> None:
    """`close` cancels a handler coroutine that does not end. Regression: a caller that awaited `consume`
    waited for `max_poll_interval_ms`.
    """

    class Sleeps(AsyncRecordingHandler):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.record_call("claim", claim.partition)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.record_call("cancelled", claim.partition)
                raise

    async def main() -> None:
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        task = asyncio.ensure_future(group.consume(["t"], handler))
        while len(handler.calls) < 5:
            await asyncio.sleep(0.02)
        await group.close(0.4)
        async with asyncio.timeout(10):
            await task

    handler = Sleeps()
    asyncio.run(main())
    assert [kind for kind, _ in handler.calls].count("cancelled") == 4
    assert handler.calls[-1][0] == "cleanup"


def test_a_cancelled_close_leaves_the_group(server: Server) -> None:
    """The member leaves the group even if a timeout cancels `close`.

    Regression: the client stayed in the group after the cancellation and continued its heartbeats, although
    no handler read its partitions any more.
    """

    class Sleeps(AsyncRecordingHandler):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.record_call("claim", claim.partition)
            session.mark_offset("t", claim.partition, 1)
            await asyncio.sleep(60)

    async def main() -> None:
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        consuming = asyncio.ensure_future(group.consume(["t"], handler))
        while len(handler.calls) < 5:
            await asyncio.sleep(0.02)
        closing = asyncio.ensure_future(group.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await closing
            await consuming
            while classic_coordinator(server.broker.cluster).groups["g"].members:
                await asyncio.sleep(0.02)
            await group.close()

    fill(server, 1)
    handler = Sleeps()
    asyncio.run(main())
    assert handler.calls[-1][0] == "cleanup"
    assert committed(server)[0] == 1


def test_a_handler_can_wait_for_the_end_of_its_session(server: Server) -> None:
    """A handler in a thread can wait for the end of its session with `session.done.wait`.

    `session.done` replaces sarama's `session.Context().Done()`.
    """
    sessions: list[Any] = []

    class Waits(RecordingHandler):
        def setup(self, session: Any) -> None:
            sessions.append(session)

        def consume_claim(self, session: Any, claim: Any) -> None:
            assert not session.done.is_set()
            self.claims.append(claim)
            self.record_call("claim", claim.partition)
            assert session.done.wait(20)
            self.record_call("over", claim.partition)

        def cleanup(self, session: Any) -> None:
            sessions.append(session)

    handler = Waits()
    with ConsumeLoop(server, handler):
        handler.until(lambda: len(handler.claims) == 4)
    assert [kind for kind, _ in handler.calls].count("over") == 4
    assert sessions[0] is sessions[1]


def test_a_coroutine_handler_is_rejected_by_the_threaded_group(server: Server) -> None:
    """ConsumerGroup rejects a handler whose methods are coroutine functions.

    If the group accepted the handler, its threads would never await the coroutines, and each session would
    end immediately.
    """
    with (
        ConsumerGroup(server.bootstrap, group_id="g") as group,
        pytest.raises(ConfigError, match="consume_claim is a coroutine: use AsyncConsumerGroup"),
    ):
        group.consume(["t"], AsyncRecordingHandler())


def test_a_close_without_a_broker_does_not_blame_the_handlers(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, 3)
    handler = RecordingHandler()
    with ConsumeLoop(server, handler, auto_commit_interval_ms=60_000) as loop:
        handler.until(lambda: len(handler.records) == 3)
        server.down()
        try:
            with pytest.raises(RequestTimedOut, match="OffsetCommit"):
                loop.group.close(1)
        finally:
            server.up()
    assert [kind for kind, _ in handler.calls].count("over") == 4
    assert "the last commit of ['t'] did not end within 0.75 s" in caplog.messages


# ---- pausing


def test_paused_partitions_stay_claimed_without_records(server: Server) -> None:
    handler = RecordingHandler()
    with ConsumeLoop(server, handler) as loop:
        handler.until(lambda: len(handler.claims) == 4)
        loop.group.pause(T0)
        for partition in (0, 1):
            fill(server, 3, partition=partition)
        handler.until(lambda: len(handler.records) == 3)
        loop.group.pause_all()
        fill(server, 3, partition=1)
        fill(server, 1, partition=2)
        loop.group.resume([T0])
        handler.until(lambda: len(handler.records) == 6)
        assert {record.partition for record in handler.records} == {0, 1}
        loop.group.resume_all()
        handler.until(lambda: len(handler.records) == 10)
        assert [kind for kind, _ in handler.calls].count("setup") == 1


def test_a_paused_partition_stays_paused_in_the_next_session(server: Server) -> None:
    first, second = RecordingHandler(), RecordingHandler()
    with ConsumeLoop(server, first, partition_assignment_strategy="range") as loop:
        first.until(lambda: len(first.claims) == 4)
        loop.group.pause_all()
        with ConsumeLoop(server, second, partition_assignment_strategy="range"):
            first.until(lambda: len(first.claims) == 6)
            for partition in range(4):
                fill(server, 2, partition=partition)
            second.until(lambda: len(second.records) == 4)
            assert first.records == []
            loop.group.resume_all()
            first.until(lambda: len(first.records) == 4)


def test_pause_and_resume_in_asyncio(server: Server) -> None:
    handler = AsyncRecordingHandler()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume(["t"], handler))
            while len(handler.claims) < 4:
                await asyncio.sleep(0.02)
            group.pause_all()
            group.resume(T0)
            await asyncio.to_thread(fill, server, 3, partition=1)
            await asyncio.to_thread(fill, server, 3)
            while len(handler.records) < 3:
                await asyncio.sleep(0.02)
            assert {record.partition for record in handler.records} == {0}
            with pytest.raises(ConfigError, match="partitions"):
                group.pause("t")  # type: ignore[arg-type]
        await task

    asyncio.run(main())
