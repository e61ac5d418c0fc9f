"""Sessions and claims: what a handler is promised, on the embedded broker."""

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
from consumer import AsyncConsumerGroup, Cluster, ConsumerGroup, ConsumerRecord, clock
from kproto.broker.server import Server
from kproto.errors import ConfigError, IllegalState
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


def test_a_session_is_setup_claims_and_cleanup_and_marks_are_committed(server: Server) -> None:
    fill(server, 10)
    notes = Notes()
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) == 10)
    assert notes.told[0] == ("setup", {"t": [0, 1, 2, 3]})
    assert notes.told[-1] == ("cleanup", {"t": [0, 1, 2, 3]})
    assert sorted(of for what, of in notes.told if what == "over") == [0, 1, 2, 3]
    assert committed(server)[0] == 10


def test_only_what_is_marked_is_committed(server: Server) -> None:
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        if record.offset < 4:
            session.mark_message(record, "done")

    notes = Notes(each)
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) == 10)
    assert committed(server)[0] == 4


def test_a_mark_never_goes_back_but_by_reset(server: Server) -> None:
    fill(server, 10)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        session.mark_offset("t", 0, 2)
        if record.offset == 9:
            session.commit()
            assert committed(server)[0] == 10
            session.reset_offset("t", 0, 3)

    notes = Notes(each)
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) == 10)
    assert committed(server)[0] == 3


def test_a_mark_of_what_is_not_claimed_harms_no_other(server: Server) -> None:
    """A thread that marks late, or wrongly: the partition is another's, and every commit had failed."""
    fill(server, 5)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_offset("t", 17, 3)
        session.mark_offset("elsewhere", 0, 3)
        session.mark_message(record)
        session.commit()

    notes = Notes(each)
    with Loop(server, notes) as loop:
        notes.until(lambda: len(notes.records) == 5)
        assert loop.returns == 0  # what a handler raises ends the session
    assert list(loop.group.errors()) == []
    assert committed(server)[0] == 5


def test_a_mark_of_a_session_that_is_over_is_left_out(server: Server) -> None:
    fill(server, 5)
    sessions: list[Any] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        sessions.append(session)
        if record.offset == 4:
            sessions[0].mark_offset("t", 0, 5)
            session.commit()

    first = Notes(each)
    with Loop(server, first, partition_assignment_strategy="range"):
        first.until(lambda: len(first.records) == 5)
        with Loop(server, Notes(), partition_assignment_strategy="range"):
            first.until(lambda: len([1 for what, _ in first.told if what == "setup"]) == 2)
            sessions[0].mark_offset("t", 0, 1)
            assert committed(server)[0] == 5


def test_a_claim_begins_where_setup_put_it(server: Server) -> None:
    """sarama's users seek like that."""
    fill(server, 10)

    class Back(Notes):
        def setup(self, session: Any) -> None:
            session.reset_offset("t", 0, 6)

    notes = Back()
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) >= 4)
    assert [record.offset for record in notes.records] == [6, 7, 8, 9]
    assert next(claim for claim in notes.claims if claim.partition == 0).initial_offset == 6


@pytest.mark.parametrize(
    ("call", "given"),
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
def test_a_mark_that_cannot_be_committed_is_refused(
    call: str, given: tuple[Any, ...], server: Server
) -> None:
    refused: list[Exception] = []

    class Marks(Notes):
        def setup(self, session: Any) -> None:
            try:
                getattr(session, call)(*given)
            except ConfigError as error:
                refused.append(error)
            super().setup(session)

    notes = Marks()
    with Loop(server, notes):
        notes.until(lambda: len(notes.claims) == 4)
    assert len(refused) == 1


def test_a_commit_in_a_handler_is_done_when_it_returns(server: Server) -> None:
    fill(server, 5)
    seen: list[int] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        session.mark_message(record)
        session.commit()
        seen.append(committed(server)[0])

    notes = Notes(each)
    with Loop(server, notes, enable_auto_commit=False):
        notes.until(lambda: len(notes.records) == 5)
    assert seen == [1, 2, 3, 4, 5]


def test_an_eager_rebalance_ends_the_session(server: Server) -> None:
    first, second = Notes(), Notes()
    with Loop(server, first, partition_assignment_strategy="range") as one:
        first.until(lambda: len(first.claims) == 4)
        with Loop(server, second, partition_assignment_strategy="range"):
            second.until(lambda: len(second.claims) == 2)
            first.until(lambda: len(first.claims) == 6)
            assert one.returns == 1
            setups = [of["t"] for what, of in first.told if what == "setup"]
            assert [len(partitions) for partitions in setups] == [4, 2]


def test_closing_beside_a_handler_that_does_not_end_commits_what_is_marked(server: Server) -> None:
    fill(server, 3)
    notes = Stuck()
    with Loop(server, notes, auto_commit_interval_ms=60_000) as loop:
        notes.until(lambda: len(notes.records) == 3)
        before = time.monotonic()
        loop.group.close(1)
        assert time.monotonic() - before < 5
        notes.never.set()
    assert committed(server)[0] == 3


def test_after_a_setup_that_failed_the_next_session_begins_where_the_group_is(server: Server) -> None:
    """It began at the first offset, of which there may be no record any more."""
    fill(server, 10)
    with Cluster(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {T0: 5})

    class Fails(Once):
        def setup(self, session: Any) -> None:
            raise RuntimeError("no database")

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        with pytest.raises(RuntimeError):
            group.consume(["t"], Fails())
        notes = Once()
        group.consume(["t"], notes)
    assert [record.offset for record in notes.records] == [5]


def test_a_session_of_other_topics_claims_what_stays(server: Server) -> None:
    """A cooperative member keeps it, and no callback tells of it again: its records went to nobody."""
    with Cluster(server.bootstrap) as cluster:
        cluster.create_topics({"u": 1})
    strategy: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST, **strategy) as group:
        for count, topics in enumerate((["t"], ["t", "u"])):
            fill(server, 1)
            notes = Once()
            group.consume(topics, notes)
            assert [record.offset for record in notes.records] == [count]


def test_a_cooperative_rebalance_leaves_kept_claims_alone(server: Server) -> None:
    first, second = Notes(), Notes()
    strategy = {"partition_assignment_strategy": "cooperative-sticky"}
    with Loop(server, first, **strategy) as one:
        first.until(lambda: len(first.claims) == 4)
        with Loop(server, second, **strategy):
            second.until(lambda: len(second.claims) == 2)
            taken = {of for what, of in first.told if what == "over"}
            assert len(taken) == 2
            assert [what for what, _ in first.told].count("setup") == 1
            assert one.returns == 0
            kept = next(claim for claim in first.claims if claim.partition not in taken)
            fill(server, 3, partition=kept.partition)
            first.until(lambda: len(first.records) == 3)


def test_nothing_is_lost_and_nothing_doubled_when_members_come_and_go(server: Server) -> None:
    first, second = Notes(), Notes()
    total = 0
    with Loop(server, first, partition_assignment_strategy="range"):
        for partition in range(4):
            fill(server, 200, partition=partition)
        with Loop(server, second, partition_assignment_strategy="range"):
            for partition in range(4):
                fill(server, 200, partition=partition)
        for partition in range(4):
            fill(server, 100, partition=partition)
        total = 4 * 500
        first.until(lambda: len(first.records) + len(second.records) >= total, 20)
    read = sorted((record.partition, record.offset) for record in [*first.records, *second.records])
    assert read == [(partition, offset) for partition in range(4) for offset in range(500)]


def test_a_handler_that_returns_ends_the_session_and_what_it_did_not_mark_comes_again(server: Server) -> None:
    fill(server, 10)

    class Once(Notes):
        def consume_claim(self, session: Any, claim: Any) -> None:
            self.note("claim", claim.partition)
            for record in claim:
                self.take(session, claim, record)
                if record.offset == 3 and len(self.records) == 4:
                    return

    notes = Once(lambda session, claim, record: session.mark_message(record) if record.offset < 2 else None)
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) >= 12)
    assert [record.offset for record in notes.records] == [0, 1, 2, 3, *range(2, 10)]


def test_what_a_handler_raises_is_told_and_ends_the_session(server: Server) -> None:
    fill(server, 3)
    failed = threading.Event()

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("no such flight")
        session.mark_message(record)

    notes = Notes(each)
    with Loop(server, notes) as loop:
        notes.until(lambda: len(notes.records) == 4)
        assert loop.returns == 1
        assert isinstance(next(loop.group.errors()), ValueError)
    assert committed(server)[0] == 3


def test_errors_end_with_the_group(server: Server) -> None:
    notes = Notes()
    ended: list[Exception] = []
    with Loop(server, notes) as loop:
        drain = threading.Thread(target=lambda: ended.extend(loop.group.errors()))
        drain.start()
        notes.until(lambda: len(notes.claims) == 4)
    drain.join(5)
    assert not drain.is_alive()
    assert ended == []


def test_who_comes_late_still_hears_what_went_wrong(server: Server) -> None:
    fill(server, 1)

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        raise ValueError("oh")

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], Notes(each))
    assert [str(error) for error in group.errors()] == ["oh"]
    assert list(group.errors()) == []


def test_a_slow_handler_holds_few_records(server: Server) -> None:
    fill(server, 5000)
    go = threading.Event()
    notes = Notes(lambda session, claim, record: (go.wait(10), session.mark_message(record)))
    with Loop(server, notes, max_poll_records=100) as loop:
        notes.until(lambda: len(notes.records) == 1)
        time.sleep(0.5)
        claim = next(claim for claim in notes.claims if claim.partition == 0)
        assert len(claim._claim.items) < 600
        assert T0 in loop.group._group.consumer.paused()
        go.set()
        notes.until(lambda: len(notes.records) == 5000)
    assert committed(server)[0] == 5000


def test_claims_go_on_while_a_commit_waits_for_the_coordinator(server: Server) -> None:
    """As sarama's, whose commits have a goroutine of their own; what was marked meanwhile is committed."""
    fill(server, 10)
    notes = Notes()
    with Loop(server, notes, auto_commit_interval_ms=50):
        notes.until(lambda: len(notes.records) == 10)
        server.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 1_000_000)
        fill(server, 5000)
        notes.until(lambda: len(notes.records) == 5010)
        assert committed(server)[0] < 5010
        server.fail("OffsetCommit", "COORDINATOR_LOAD_IN_PROGRESS", 0)
    assert committed(server)[0] == 5010


def test_claims_know_where_they_are(server: Server) -> None:
    fill(server, 7)
    notes = Notes()
    with Loop(server, notes):
        notes.until(lambda: len(notes.records) == 7)
        claim = next(claim for claim in notes.claims if claim.partition == 0)
        assert (claim.topic, claim.partition, claim.initial_offset, claim.high_water_mark) == ("t", 0, 0, 7)


# ---- asyncio


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_the_same_in_asyncio(server: Server) -> None:
    fill(server, 10)
    notes = AsyncNotes()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume(["t"], notes))
            while len(notes.records) < 10:
                await asyncio.sleep(0.02)
        await task

    run(main())
    assert notes.told[-1][0] == "cleanup"
    assert committed(server)[0] == 10


def test_a_cancelled_consume_ends_its_session_and_the_next_goes_on(server: Server) -> None:
    fill(server, 10)
    notes = AsyncNotes()

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume("t", notes))
            while len(notes.records) < 10:
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert notes.told[-1][0] == "cleanup"
            generation = group.consumer.group_metadata().generation
            task = asyncio.ensure_future(group.consume("t", notes))
            while [what for what, _ in notes.told].count("claim") < 8:
                await asyncio.sleep(0.02)
            assert group.consumer.group_metadata().generation == generation
        await task

    run(main())
    assert [record.offset for record in notes.records] == list(range(10))


def test_a_session_ends_whole_however_often_consume_is_cancelled(server: Server) -> None:
    """The third time left its handlers at work beside those of the next one, and nobody cleaned up."""
    ends = asyncio.Event()

    class Slow(AsyncNotes):
        async def consume_claim(self, session: Any, claim: Any) -> None:  # type: ignore[override]
            self.note("claim", claim.partition)
            await session.done.wait()
            await ends.wait()
            self.note("over", claim.partition)

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
            task = asyncio.ensure_future(group.consume("t", notes))
            while len(notes.told) < 5:
                await asyncio.sleep(0.02)
            for _ in range(4):
                task.cancel()
                await asyncio.wait([task], timeout=0.05)
            assert not task.done()
            ends.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    notes = Slow()
    run(main())
    assert [what for what, _ in notes.told] == ["setup", *["claim"] * 4, *["over"] * 4, "cleanup"]


def test_partitions_that_came_between_two_sessions_have_one_handler_each(server: Server) -> None:
    """The assignment is known before its callback runs, and the next consume may begin in between."""
    notes, second = AsyncNotes(), Notes()

    async def main() -> None:
        async with AsyncConsumerGroup(
            server.bootstrap, group_id="g", partition_assignment_strategy="range", **FAST
        ) as group:
            task = asyncio.ensure_future(group.consume("t", notes))
            while len(notes.claims) < 4:
                await asyncio.sleep(0.02)
            server.slow(0.4)  # the poll in which the claims end is over before the group has gathered
            with Loop(server, second, partition_assignment_strategy="range"):
                await task
                while len(group.consumer.assignment()) != 2:
                    await asyncio.sleep(0.02)
                server.slow(0)
                task = asyncio.ensure_future(group.consume("t", notes))
                while len(second.claims) < 2 or len(notes.claims) < 6:
                    await asyncio.sleep(0.02)
                await asyncio.sleep(0.2)
                assert len(notes.claims) == 6
                await group.close()
        await task

    run(main())


def test_what_is_wrong_is_refused_at_the_door(server: Server) -> None:
    with pytest.raises(ConfigError, match="group_id"):
        ConsumerGroup(server.bootstrap)
    with pytest.raises(ConfigError, match="session_timeout_ms"):
        ConsumerGroup(server.bootstrap, group_id="g", session_timeout_ms=-1)
    with ConsumerGroup(server.bootstrap, group_id="g") as group:
        with pytest.raises(ConfigError, match="setup, consume_claim and cleanup"):
            group.consume(["t"], print)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match=r"an object, as Notes\(\), and not its class"):
            group.consume(["t"], Notes)  # type: ignore[arg-type]
        for topics in ([], None, [1], ""):
            with pytest.raises(ConfigError, match="topics"):
                group.consume(topics, Notes())  # type: ignore[arg-type]
    with pytest.raises(IllegalState, match="closed"):
        group.consume(["t"], Notes())


class Stopped:
    """The fourth record of all takes longer than the session: as if the process had been stopped there."""

    config: ClassVar[dict[str, Any]] = {"session_timeout_ms": 5_000, "heartbeat_interval_ms": 4_500}

    def __init__(self, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
        fill(server, 200)
        self.slept = 0
        self.taken: list[tuple[Any, int]] = []
        shells = (consumer.runtime, consumer.aio.runtime, consumer.aio.waiters)
        for module in (*shells, consumer.operations.consumer, consumer.operations.polls):
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


def test_after_a_stop_longer_than_the_session_a_claim_hands_out_nothing_that_it_held(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Stopped(server, monkeypatch)
    notes = Notes(stopped.each)
    with Loop(server, notes, **stopped.config):
        notes.until(lambda: stopped.claims() == 2)
    stopped.check()


@pytest.mark.thorough  # it waits as long as the one above
def test_nor_does_a_claim_in_asyncio(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = Stopped(server, monkeypatch)

    async def main() -> None:
        async with AsyncConsumerGroup(server.bootstrap, group_id="g", **{**FAST, **stopped.config}) as group:
            while stopped.claims() < 2:
                consuming = asyncio.ensure_future(group.consume(["t"], AsyncNotes(stopped.each)))
                while not consuming.done() and stopped.claims() < 2:
                    await asyncio.sleep(0.02)
                consuming.cancel()
                await asyncio.wait([consuming])

    run(main())
    stopped.check()


def test_what_fails_again_and_again_is_told_once(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """Also to who takes each error as it comes."""
    told: list[Exception] = []
    notes = Notes()
    loop = Loop(server, notes, retry_backoff_max_ms=100)
    listening = threading.Thread(target=lambda: told.extend(loop.group.errors()))
    listening.start()
    notes.until(lambda: len(notes.claims) == 4)
    server.fail("Fetch", "TOPIC_AUTHORIZATION_FAILED", 5)
    fill(server, 1)
    notes.until(lambda: len(notes.records) == 1)  # all five have failed
    loop.group.close()
    listening.join()
    denied = "the principal of this client needs an ACL that allows READ on the topic"
    errors = [str(error) for error in told if denied in str(error)]
    lines = [line for line in caplog.messages if denied in line]
    assert len(errors) == len(lines) == len({*errors}) > 0  # each partition has its own
