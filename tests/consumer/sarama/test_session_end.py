"""How sessions end: what a handler raises, who may close, what is committed by whom; as sarama's."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import AsyncConsumerGroup, Cluster, ConsumerGroup, ConsumerRecord
from kproto.broker.server import Server
from kproto.errors import CommitFailed, ConfigError, IllegalState, RequestTimedOut
from tests.consumer.sarama.stage import (
    FAST,
    T0,
    AsyncNotes,
    Loop,
    Notes,
    Once,
    Stuck,
    committed,
    fill,
    four_partitions,
)


@pytest.fixture
def server() -> Iterator[Server]:
    with four_partitions() as server:
        yield server


# ---- marks


def test_without_auto_commit_only_commit_commits(server: Server) -> None:
    """Seed 003's second example: marked is not committed, not even when the session ends."""
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        if record.offset == 5:
            session.commit()

    notes = Notes(each)
    with Loop(server, notes, enable_auto_commit=False):
        notes.until(lambda: len(notes.records) == 10)
    assert committed(server)[0] == 6


def test_without_auto_commit_not_even_beside_a_handler_that_does_not_end(server: Server) -> None:
    fill(server, 3)
    notes = Stuck()
    with Loop(server, notes, enable_auto_commit=False) as loop:
        notes.until(lambda: len(notes.records) == 3)
        loop.group.close(1)
        notes.never.set()
    assert committed(server)[0] == 0


def test_without_auto_commit_the_next_session_begins_at_the_last_commit(server: Server) -> None:
    """Marks of a batch that failed are not to be gone over, by this session or by a later commit."""
    fill(server, 10)

    class Fails(Notes):
        def consume_claim(self, session: Any, claim: Any) -> None:
            for record in claim:
                self.records.append(record)
                session.mark_message(record)
                if record.offset == 3:
                    session.commit()
                if record.offset == 7:
                    raise ValueError("the batch is not written")

    class Commits(Once):
        def setup(self, session: Any) -> None:
            session.commit()

    first, second = Fails(), Commits()
    with ConsumerGroup(server.bootstrap, group_id="g", enable_auto_commit=False, **FAST) as group:
        group.consume(["t"], first)
        group.consume(["t"], second)
    assert [record.offset for record in first.records] == list(range(8))
    assert [record.offset for record in second.records] == [4]
    assert committed(server)[0] == 4


def test_a_mark_of_setup_does_not_go_back_behind_the_commit(server: Server) -> None:
    fill(server, 10)
    with Cluster(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 5})

    class Marks(Once):
        def __init__(self, offset: int) -> None:
            super().__init__()
            self.offset = offset

        def setup(self, session: Any) -> None:
            session.mark_offset("t", 0, self.offset)
            session.commit()

    read: list[int] = []
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        for offset in (3, 8):
            notes = Marks(offset)
            group.consume(["t"], notes)
            read.append(notes.records[0].offset)
            assert committed(server)[0] == read[-1] + 1
    assert read == [5, 8]


def test_claims_that_were_lost_in_setup_do_not_begin(server: Server) -> None:
    """Each was told as an error. Cleanup knows as whom it worked, and what was marked is over."""
    fill(server, 10)
    with Cluster(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 8})
    seen: list[tuple[str, int]] = []

    class Slow(Once):
        def setup(self, session: Any) -> None:
            seen.append((session.member_id, session.generation_id))
            if len(seen) == 1:
                session.reset_offset("t", 0, 2)
                while (
                    session._session._group.consumer._operations.engine.group_status.member_and_generation[1]
                    >= 0
                ):
                    time.sleep(0.02)

        def cleanup(self, session: Any) -> None:
            seen.append((session.member_id, session.generation_id))

    notes = Slow()
    with Loop(server, notes, max_poll_interval_ms=300) as loop:
        notes.until(lambda: bool(notes.records))
        assert not loop.group._group.error_channel.items
    assert [record.offset for record in notes.records][:1] == [8]
    assert seen[0] == seen[1] != seen[2]


def test_a_claim_is_never_ahead_of_its_high_water_mark(server: Server) -> None:
    """It was 0 before the first fetch, so that an application had a lag below zero."""
    fill(server, 10)
    lags: list[int] = []

    class Lags(Notes):
        def setup(self, session: Any) -> None:
            session.reset_offset("t", 0, 6)

        def consume_claim(self, session: Any, claim: Any) -> None:
            lags.append(claim.high_water_mark - claim.initial_offset)
            super().consume_claim(session, claim)

    notes = Lags()
    with Loop(server, notes):
        notes.until(lambda: len(notes.claims) == 4)
    assert min(lags) >= 0


# ---- errors


def test_what_a_handler_raises_behind_its_loop_is_told(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """Its last flush, say; nobody heard of it."""

    class Flushes(Notes):
        def consume_claim(self, session: Any, claim: Any) -> None:
            super().consume_claim(session, claim)
            if claim.partition == 2:
                raise ValueError("the last flush failed")

    notes = Flushes()
    with caplog.at_level(logging.ERROR), Loop(server, notes) as loop:
        notes.until(lambda: len(notes.claims) == 4)
    (error,) = loop.group.errors()
    assert (str(error), error.__notes__) == ("the last flush failed", ["consume_claim of t-2"])
    (line,) = (record for record in caplog.records if "the last flush failed" in record.getMessage())
    assert "consume_claim of t-2" in line.getMessage()
    assert line.exc_info is not None  # where in the handler


def test_what_cleanup_raises_is_told_and_raised(server: Server) -> None:
    class Fails(Once):
        def cleanup(self, session: Any) -> None:
            raise ValueError("no disk")

    fill(server, 1)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        with pytest.raises(ValueError, match="no disk"):
            group.consume(["t"], Fails())
        fill(server, 1)
        group.consume(["t"], Once())  # the next session is as any
    assert [str(error) for error in group.errors()] == ["no disk"]
    assert committed(server)[0] == 2


def test_what_cleanup_raises_in_a_rebalance_is_raised_by_consume(server: Server) -> None:
    class Fails(Notes):
        def cleanup(self, session: Any) -> None:
            super().cleanup(session)
            raise ValueError("no disk")

    first, second = Fails(), Notes()
    with Loop(server, first, partition_assignment_strategy="range") as loop:
        first.until(lambda: len(first.claims) == 4)
        with Loop(server, second, partition_assignment_strategy="range"):
            loop.thread.join(10)
            assert isinstance(loop.error, ValueError)


def test_a_commit_in_cleanup_behind_a_loss_is_told_and_the_loop_goes_on(server: Server) -> None:
    """Its partitions are another's; the next call of consume is all that is to be done."""
    fill(server, 3)

    class Commits(Notes):
        def cleanup(self, session: Any) -> None:
            session.commit()

    notes = Commits()
    with Loop(server, notes, enable_auto_commit=False, session_timeout_ms=500) as loop:
        notes.until(lambda: len(notes.records) == 3)
        server.fail("Heartbeat", "UNKNOWN_MEMBER_ID", 1)
        notes.until(lambda: len(notes.records) == 6)
        assert (loop.returns, loop.error) == (1, None)
        assert isinstance(next(loop.group.errors()), CommitFailed)


@pytest.mark.parametrize("raised", [SystemExit, KeyboardInterrupt, StopIteration, GeneratorExit])
@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
def test_what_a_thread_may_raise_ends_the_session_and_not_the_loop(
    server: Server, where: str, raised: type[BaseException]
) -> None:
    """sys.exit() in a handler, or next() at an end: consume and close waited for ever."""
    fill(server, 1)

    def fails(*_: Any) -> None:
        raise raised("oh")

    notes = Once()
    setattr(notes, where, fails)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        if where == "consume_claim":
            group.consume(["t"], notes)
        else:
            with pytest.raises(RuntimeError, match=f"{where} raised {raised.__name__}"):
                group.consume(["t"], notes)
    if where != "setup":
        assert {str(error) for error in group.errors()} == {f"{where} raised {raised('oh')!r}"}


# ---- who ends it


@pytest.mark.parametrize("where", ["setup", "consume_claim", "cleanup"])
def test_close_in_a_handler_is_refused_at_once(server: Server, where: str) -> None:
    """It waits for the handlers, so for itself: sarama's never returns."""
    refused: list[IllegalState] = []

    class Closes(Notes):
        def close(self, *_: Any) -> None:
            try:
                group.close()
            except IllegalState as error:
                refused.append(error)

    notes = Closes()
    setattr(notes, where, notes.close)
    if where != "consume_claim":
        notes.consume_claim = lambda *_: None  # type: ignore[method-assign]
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], notes)
    assert "close() in a handler" in str(refused[0])


def test_close_in_a_coroutine_of_the_handler_is_refused_at_once(server: Server) -> None:
    class Closes(AsyncNotes):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            with pytest.raises(IllegalState, match="close\\(\\) in a handler"):
                await group.close()
            self.beside = asyncio.ensure_future(group.close())  # a task of its own may

    async def main() -> None:
        nonlocal group
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        notes = Closes()
        await group.consume(["t"], notes)
        await notes.beside

    group: Any = None
    asyncio.run(main())


def test_a_coroutine_that_does_not_end_is_cancelled_by_close(server: Server) -> None:
    """Whoever awaited consume did so for max_poll_interval_ms."""

    class Sleeps(AsyncNotes):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.note("claim", claim.partition)
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                self.note("cancelled", claim.partition)
                raise

    async def main() -> None:
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        task = asyncio.ensure_future(group.consume(["t"], notes))
        while len(notes.told) < 5:
            await asyncio.sleep(0.02)
        await group.close(0.4)
        async with asyncio.timeout(10):
            await task

    notes = Sleeps()
    asyncio.run(main())
    assert [what for what, _ in notes.told].count("cancelled") == 4
    assert notes.told[-1][0] == "cleanup"


def test_a_close_that_is_cancelled_leaves_the_group(server: Server) -> None:
    """By a timeout, say. It stayed a member, with heartbeats, and nobody read its partitions."""

    class Sleeps(AsyncNotes):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.note("claim", claim.partition)
            session.mark_offset("t", claim.partition, 1)
            await asyncio.sleep(60)

    async def main() -> None:
        group = AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST)
        consuming = asyncio.ensure_future(group.consume(["t"], notes))
        while len(notes.told) < 5:
            await asyncio.sleep(0.02)
        closing = asyncio.ensure_future(group.close())
        await asyncio.sleep(0)
        closing.cancel()
        async with asyncio.timeout(10):
            with pytest.raises(asyncio.CancelledError):
                await closing
            await consuming
            while server.broker.cluster.classic_coordinator.groups["g"].members:
                await asyncio.sleep(0.02)
            await group.close()

    fill(server, 1)
    notes = Sleeps()
    asyncio.run(main())
    assert notes.told[-1][0] == "cleanup"
    assert committed(server)[0] == 1


def test_a_handler_may_wait_for_the_end_of_its_session(server: Server) -> None:
    """sarama's session.Context().Done(), in threads."""
    sessions: list[Any] = []

    class Waits(Notes):
        def setup(self, session: Any) -> None:
            sessions.append(session)

        def consume_claim(self, session: Any, claim: Any) -> None:
            assert not session.done.is_set()
            self.claims.append(claim)
            self.note("claim", claim.partition)
            assert session.done.wait(20)
            self.note("over", claim.partition)

        def cleanup(self, session: Any) -> None:
            sessions.append(session)

    notes = Waits()
    with Loop(server, notes):
        notes.until(lambda: len(notes.claims) == 4)
    assert [what for what, _ in notes.told].count("over") == 4
    assert sessions[0] is sessions[1]


def test_coroutines_are_refused_where_threads_run_the_handler(server: Server) -> None:
    """Nobody would await them, and each session ended at once."""
    with (
        ConsumerGroup(server.bootstrap, group_id="g") as group,
        pytest.raises(ConfigError, match="consume_claim is a coroutine: AsyncConsumerGroup"),
    ):
        group.consume(["t"], AsyncNotes())


def test_a_close_without_a_broker_does_not_blame_the_handlers(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, 3)
    notes = Notes()
    with Loop(server, notes, auto_commit_interval_ms=60_000) as loop:
        notes.until(lambda: len(notes.records) == 3)
        server.down()
        try:
            with pytest.raises(RequestTimedOut, match="OffsetCommit"):
                loop.group.close(1)
        finally:
            server.up()
    assert [what for what, _ in notes.told].count("over") == 4
    assert "the last commit of ['t'] did not end within 0.75 s" in caplog.messages


# ---- pausing


def test_paused_partitions_stay_claimed_and_quiet(server: Server) -> None:
    notes = Notes()
    with Loop(server, notes) as loop:
        notes.until(lambda: len(notes.claims) == 4)
        loop.group.pause(T0)
        for partition in (0, 1):
            fill(server, 3, partition=partition)
        notes.until(lambda: len(notes.records) == 3)
        loop.group.pause_all()
        fill(server, 3, partition=1)
        fill(server, 1, partition=2)
        loop.group.resume([T0])
        notes.until(lambda: len(notes.records) == 6)
        assert {record.partition for record in notes.records} == {0, 1}
        loop.group.resume_all()
        notes.until(lambda: len(notes.records) == 10)
        assert [what for what, _ in notes.told].count("setup") == 1


def test_a_paused_partition_stays_so_in_the_next_session(server: Server) -> None:
    first, second = Notes(), Notes()
    with Loop(server, first, partition_assignment_strategy="range") as loop:
        first.until(lambda: len(first.claims) == 4)
        loop.group.pause_all()
        with Loop(server, second, partition_assignment_strategy="range"):
            first.until(lambda: len(first.claims) == 6)
            for partition in range(4):
                fill(server, 2, partition=partition)
            second.until(lambda: len(second.records) == 4)
            assert first.records == []
            loop.group.resume_all()
            first.until(lambda: len(first.records) == 4)


def test_pausing_in_asyncio(server: Server) -> None:
    notes = AsyncNotes()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume(["t"], notes))
            while len(notes.claims) < 4:
                await asyncio.sleep(0.02)
            group.pause_all()
            group.resume(T0)
            await asyncio.to_thread(fill, server, 3, partition=1)
            await asyncio.to_thread(fill, server, 3)
            while len(notes.records) < 3:
                await asyncio.sleep(0.02)
            assert {record.partition for record in notes.records} == {0}
            with pytest.raises(ConfigError, match="partitions"):
                group.pause("t")  # type: ignore[arg-type]
        await task

    asyncio.run(main())
