"""ConsumerGroup passes claims and sessions to handlers that run in threads, on the embedded broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from consumer import Admin, ConsumerGroup, ConsumerRecord
from kproto.broker.server import Server
from kproto.errors import ConfigError, RequestTimedOut
from kproto.group.subscription import TopicPartition
from tests.consumer.sarama.stage import FAST, T0, FirstRecordHandler, RecordingHandler, fill, four_partitions


@pytest.fixture
def server() -> Iterator[Server]:
    with four_partitions() as server:
        yield server


def committed_metadata(server: Server) -> tuple[int, str]:
    """Return the committed offset of partition 0, and the metadata of the commit."""
    with Admin(server.bootstrap) as cluster:
        committed = cluster.committed_offsets("g")[T0]
    assert committed is not None
    return committed.offset, committed.metadata


def test_a_claim_has_the_names_of_sarama(server: Server) -> None:
    class Reads(RecordingHandler):
        def consume_claim(self, session: Any, claim: Any) -> None:
            if claim.partition != 1:
                super().consume_claim(session, claim)
                return
            assert repr(claim) == "<Claim t-1>"
            offset = next(claim.messages()).offset
            self.record_call("state", (claim.topic, claim.initial_offset, claim.high_water_mark, claim.ended))
            self.record_call("read", offset)
            self.claims.append(claim)

    fill(server, 5, partition=1)
    with Admin(server.bootstrap) as cluster:
        cluster.commit_offsets("g", {TopicPartition("t", 1): 2})
    handler = Reads()
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], handler)
    assert ("state", ("t", 2, 5, False)) in handler.calls
    assert ("read", 2) in handler.calls
    assert {claim.ended for claim in handler.claims} == {True}
    assert {repr(claim) for claim in handler.claims} == {f"<Claim t-{number} (ended)>" for number in range(4)}


@pytest.mark.parametrize("call", ["mark_message", "mark_offset", "reset_offset"])
def test_a_session_commits_marks_with_their_metadata(server: Server, call: str) -> None:
    observations: list[Any] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        arguments = (record,) if call == "mark_message" else ("t", 0, record.offset + 1)
        getattr(session, call)(*arguments, "mine")
        session.commit()
        observations.append(committed_metadata(server))
        getattr(session, call)(*arguments)
        metadata = group._group.consumer.group_metadata()
        observations.append(
            (session.member_id, session.generation_id) == (metadata.member_id, metadata.generation)
        )
        observations.append(session.claims)

    fill(server, 1)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], FirstRecordHandler(each))
        assert not group._handler_threads
    assert observations == [(1, "mine"), True, {"t": [0, 1, 2, 3]}]
    # At the same offset, only reset_offset replaces the metadata of an earlier mark.
    assert committed_metadata(server) == (1, "" if call == "reset_offset" else "mine")


def test_handlers_run_in_daemon_threads_beside_the_caller(server: Server) -> None:
    """A handler that never returns does not keep the process alive."""
    threads: list[threading.Thread] = []

    class Notes(FirstRecordHandler):
        def setup(self, session: Any) -> None:
            threads.append(threading.current_thread())

        def cleanup(self, session: Any) -> None:
            threads.append(threading.current_thread())

    handler = Notes(lambda *_: threads.append(threading.current_thread()))
    fill(server, 1)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        group.consume(["t"], handler)
    assert [thread.name for thread in threads] == ["kproto-setup", "kproto-consume_claim", "kproto-cleanup"]
    assert all(thread.daemon for thread in threads)


def test_a_claim_that_ends_returns_none_of_the_records_that_were_fetched(server: Server) -> None:
    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        if record.partition == 0:
            closing.start()
            assert session.done.wait(10)
            handler.until(lambda: claim.ended)

    handler = RecordingHandler(each)
    fill(server, 5)
    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        closing = threading.Thread(target=group.close)
        group.consume(["t"], handler)
        closing.join(10)
    assert [record.offset for record in handler.records] == [0]


def test_a_handler_that_returns_too_late_does_no_harm(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handler's thread ends without an error, even if nothing waits for the result any more."""
    failures: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)
    goes_on = threading.Event()
    threads: list[threading.Thread] = []

    def each(session: Any, claim: Any, record: ConsumerRecord) -> None:
        threads.append(threading.current_thread())
        if record.partition == 0:
            assert goes_on.wait(10)

    class Returns(RecordingHandler):
        def consume_claim(self, session: Any, claim: Any) -> None:
            if claim.partition == 1:
                handler.until(lambda: bool(handler.records))
                return
            super().consume_claim(session, claim)

    handler = Returns(each)
    fill(server, 1)
    with ConsumerGroup(server.bootstrap, group_id="g", max_poll_interval_ms=200, **FAST) as group:
        group.consume(["t"], handler)
        assert isinstance(next(group.errors()), RequestTimedOut)
        goes_on.set()
        for thread in threads:
            thread.join(10)
        handler.until(lambda: not group._handler_threads)
        assert failures == []


@pytest.mark.parametrize("name", ["setup", "consume_claim", "cleanup"])
def test_each_method_of_a_handler_is_checked(server: Server, name: str) -> None:
    async def coroutine(*_: Any) -> None: ...

    with ConsumerGroup(server.bootstrap, group_id="g", **FAST) as group:
        handler = RecordingHandler()
        setattr(handler, name, coroutine)
        with pytest.raises(ConfigError, match=f"^handler=.* plain methods, but {name} is a coroutine"):
            group.consume(["t"], handler)
        setattr(handler, name, None)
        with pytest.raises(ConfigError, match=f"^handler=.*cleanup; it has no {name}"):
            group.consume(["t"], handler)
        with pytest.raises(ConfigError, match=r"^timeout="):
            group.close(-1)
