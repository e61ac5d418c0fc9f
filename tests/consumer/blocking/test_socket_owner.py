"""Over TLS who waits for records reads them; the client's own thread has the rest, and never waits long."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer import Consumer, Producer, TopicPartition
from consumer.blocking import socket_owner
from consumer.blocking.socket_owner import SocketOwner
from consumer.clock import now
from consumer.runtime import run_to_end
from kproto.errors import IllegalState
from kproto.testing.certificates import certificates
from kproto.testing.secured import SecuredKafka, secured

ME = threading.get_ident
PATIENCE = 30.0


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.002)


class Own:
    """The client's own thread, as far as a seat knows it."""

    def __init__(self, owner: SocketOwner) -> None:
        self.sits = False
        self._owner = owner
        self._thread = threading.Thread(target=self._sit, daemon=True)
        self._thread.start()

    def _sit(self) -> None:
        self._owner.acquire()
        self.sits = True

    def soon(self) -> None:
        self._thread.join(PATIENCE)
        assert self.sits

    def never(self) -> None:
        self._thread.join(0.1)
        assert not self.sits


@pytest.fixture
def long_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_owner, "AWAY_S", 3_600.0)


# ---- the seat alone


def test_who_wants_it_gets_it_when_the_own_thread_stands_up(long_away: None) -> None:
    owner = SocketOwner()
    owner.acquire()
    assert not owner.borrow()
    assert owner.requested
    owner.hand_over()
    assert not owner.requested
    assert owner.borrow()
    assert owner.borrower == ME()
    owner.give_back()
    assert owner.borrower == 0


def test_the_own_thread_has_it_again_when_the_guest_was_away_for_a_while() -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = Own(owner)
    own.never()
    owner.give_back()
    own.soon()
    assert not owner.borrow()


def test_the_guest_finds_it_free_within_that_while(long_away: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = Own(owner)
    for _ in range(3):
        owner.give_back()
        assert owner.borrow()
    owner.give_back()
    own.never()


def test_the_own_thread_that_is_called_is_the_next(long_away: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = Own(owner)
    owner.recall()
    own.never()
    owner.give_back()
    assert not owner.borrow()  # whether it sits there already, or is about to
    own.soon()


def test_the_own_thread_that_waits_hears_a_call_at_once(long_away: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    owner.give_back()
    own = Own(owner)
    own.never()
    owner.recall()
    own.soon()


def test_two_guests_do_not_drive_each_other_out() -> None:
    owner = SocketOwner()
    assert owner.borrow()
    assert not owner.borrow()
    assert not owner.requested


def test_who_only_writes_keeps_nobody_away(long_away: None) -> None:
    owner = SocketOwner()
    assert owner.borrow(to_read=False)
    own = Own(owner)
    assert not owner.borrow(to_read=False)
    assert not owner.requested
    owner.give_back(has_read=False)
    own.soon()


# ---- consumers


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    pytest.importorskip("trustme")
    files = certificates(tmp_path_factory.mktemp("certificates"))
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with secured("SASL_SSL", files, users={"alice": "secret"}, settings=settings) as kafka:
        for topic in ("quiet", "some", "apart"):
            kafka.create_topic(topic)
        with Producer(kafka.bootstrap, **how(kafka)) as producer:
            for number in range(1_000):
                producer.send("some", b"%d" % number)
                producer.send("apart", b"%d" % number)
        yield kafka


def how(kafka: SecuredKafka) -> Any:
    return kafka.options("alice", "secret")


def reading(kafka: SecuredKafka, topic: str, **options: Any) -> Consumer:
    reader = Consumer(kafka.bootstrap, auto_offset_reset="earliest", **how(kafka), **options)
    reader.assign([TopicPartition(topic, 0)])
    return reader


def looks(reader: Consumer) -> list[int]:
    """The threads that look at its sockets, from now on."""
    seen: list[int] = []
    look = reader._runtime.sockets.poll

    def told(timeout: float | None) -> None:
        seen.append(ME())
        look(timeout)

    reader._runtime.sockets.poll = told  # type: ignore[method-assign]
    return seen


def test_who_waits_reads_himself_and_is_relieved_when_he_is_away(kafka: SecuredKafka) -> None:
    with reading(kafka, "quiet", fetch_max_wait_ms=50) as reader:
        reader.poll(0.5)
        seen = looks(reader)
        reader.poll(1)
        assert seen.count(ME()) > 3
        seen.clear()
        time.sleep(0.5)
        assert ME() not in seen
        assert reader._runtime.thread.ident in seen


def test_without_tls_the_own_thread_looks() -> None:
    from kproto.broker.server import running

    with running(topics={"t": 1}) as server, Consumer(server.bootstrap, fetch_max_wait_ms=50) as reader:
        reader.assign([TopicPartition("t", 0)])
        seen = looks(reader)
        reader.poll(0.5)
        assert set(seen) == {reader._runtime.thread.ident}


def test_ctrl_c_ends_a_poll_that_waits_and_the_next_one_reads_on(kafka: SecuredKafka) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with reading(kafka, "quiet", fetch_max_wait_ms=20_000) as reader:
            reader.poll(0.5)
            for _ in range(3):
                timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                began = time.monotonic()
                with pytest.raises(KeyboardInterrupt):
                    reader.poll(PATIENCE)
                assert time.monotonic() - began < 10  # and no answer of the broker's ended it
            with Producer(kafka.bootstrap, **how(kafka)) as producer:
                producer.send("quiet", b"after").result(PATIENCE)
            assert [record.value for record in reader.poll(PATIENCE)] == [b"after"]
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs SIGUSR1")
def test_a_handler_of_any_signal_may_close_it(kafka: SecuredKafka) -> None:
    reader = reading(kafka, "apart")
    reader.poll(1)
    reader.seek(TopicPartition("apart", 0), 1_000)
    before = signal.signal(signal.SIGUSR1, lambda *_: reader.close(timeout=PATIENCE))
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        began = time.monotonic()
        with pytest.raises(IllegalState, match="closed"):
            reader.poll(2 * PATIENCE)
        assert time.monotonic() - began < PATIENCE
    finally:
        signal.signal(signal.SIGUSR1, before)
        reader.close()


def test_another_thread_closes_it_while_one_waits(kafka: SecuredKafka) -> None:
    for _ in range(5):
        reader = reading(kafka, "apart")
        assert reader.poll(PATIENCE)
        reader.seek(TopicPartition("apart", 0), 1_000)
        took: list[float] = []

        def close(reader: Consumer = reader, took: list[float] = took) -> None:
            time.sleep(0.1)
            began = time.monotonic()
            reader.close(timeout=PATIENCE)
            took.append(time.monotonic() - began)

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(IllegalState, match="closed"):
            reader.poll(2 * PATIENCE)
        closer.join(PATIENCE)
        assert took
        assert took[0] < PATIENCE / 2


def test_who_waits_hears_of_what_other_threads_change(kafka: SecuredKafka) -> None:
    with reading(kafka, "apart", fetch_max_wait_ms=20_000) as reader:
        assert reader.poll(PATIENCE)
        reader.seek(TopicPartition("apart", 0), 1_000)
        reader.poll(0.5)
        seen, began = reader._runtime.changes, time.monotonic()
        threading.Timer(0.2, reader._runtime.notify).start()
        assert run_to_end(reader._runtime.wait(seen, now() + 30_000))
        assert time.monotonic() - began < 10


@pytest.mark.thorough
def test_its_heartbeats_go_on_while_the_application_is_away(kafka: SecuredKafka) -> None:
    timing: Any = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 200}
    told: list[str] = []
    with Consumer(
        kafka.bootstrap,
        group_id="away",
        auto_offset_reset="earliest",
        max_poll_records=200,
        **timing,
        **how(kafka),
    ) as reader:
        reader.subscribe(["some"])
        reader.events(lambda change: told.append(change.kind))
        read = 0
        while read < 1_000:
            read += len(reader.poll(PATIENCE))
            time.sleep(0.7)
        time.sleep(2.5)
        reader.poll(0.5)
        reader.commit()
        assert reader.committed()[TopicPartition("some", 0)].offset == 1_000
    assert "lost" not in told


def test_polls_and_commits_of_both_kinds_in_turns(kafka: SecuredKafka) -> None:
    ended: list[Any] = []
    with Consumer(
        kafka.bootstrap, group_id="turns", auto_offset_reset="earliest", max_poll_records=10, **how(kafka)
    ) as reader:
        reader.subscribe(["some"])
        read: list[int] = []
        while len(read) < 1_000:
            read += [record.offset for record in reader.poll(PATIENCE)]
            if len(read) % 20:
                ended.append(reader.commit_async())
            else:
                reader.commit()
        for future in ended:
            future.result(PATIENCE)
        assert read == list(range(1_000))
        assert reader.committed()[TopicPartition("some", 0)].offset == 1_000


def test_who_waits_idles(kafka: SecuredKafka) -> None:
    """A poll of a second on a quiet topic is some looks, and no more: nobody drives the other out."""
    with reading(kafka, "quiet") as reader:
        reader.seek_to("latest")
        reader.poll(1)
        seen = looks(reader)
        reader.poll(2)
        assert len(seen) < 60


def test_what_hangs_on_a_future_never_polls_in_the_middle_of_a_poll(kafka: SecuredKafka) -> None:
    said: list[str] = []
    with Consumer(
        kafka.bootstrap, group_id="hanging", auto_offset_reset="earliest", max_poll_records=10, **how(kafka)
    ) as reader:

        def hanging(future: Any) -> None:
            try:
                said.append(f"polled {len(reader.poll(0))}")
            except IllegalState as error:
                said.append("refused" if "own thread" in str(error) else str(error))

        reader.subscribe(["some"])
        read: list[int] = []
        while len(read) < 1_000:
            read += [record.offset for record in reader.poll(PATIENCE)]
            reader.commit_async().add_done_callback(hanging)
    assert read == list(range(1_000))
    assert set(said) == {"refused"}
