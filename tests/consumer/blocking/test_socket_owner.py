"""One thread at a time owns the sockets of a client and reads them.

With TLS the thread that waits in `poll` reads the sockets. Without TLS the client's own thread reads them.
"""

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

current_thread = threading.get_ident
TIMEOUT_S = 30.0


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


class OwnThread:
    """A thread that acquires the sockets, as the client's own thread does."""

    def __init__(self, owner: SocketOwner) -> None:
        self.has_sockets = False
        self._owner = owner
        self._thread = threading.Thread(target=self._sit, daemon=True)
        self._thread.start()

    def _sit(self) -> None:
        self._owner.acquire()
        self.has_sockets = True

    def check_gets_sockets(self) -> None:
        self._thread.join(TIMEOUT_S)
        assert self.has_sockets

    def check_waits(self) -> None:
        self._thread.join(0.1)
        assert not self.has_sockets


@pytest.fixture
def long_grace_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_owner, "AWAY_S", 3_600.0)


# ---- the socket owner alone


def test_a_borrower_gets_the_sockets_when_the_own_thread_hands_over(long_grace_period: None) -> None:
    owner = SocketOwner()
    owner.acquire()
    assert not owner.borrow()
    assert owner.requested
    owner.hand_over()
    assert not owner.requested
    assert owner.borrow()
    assert owner.borrower == current_thread()
    owner.give_back()
    assert owner.borrower == 0


def test_the_own_thread_gets_the_sockets_after_the_borrower_was_away() -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = OwnThread(owner)
    own.check_waits()
    owner.give_back()
    own.check_gets_sockets()
    assert not owner.borrow()


def test_the_borrower_gets_the_sockets_again_within_the_grace_period(long_grace_period: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = OwnThread(owner)
    for _ in range(3):
        owner.give_back()
        assert owner.borrow()
    owner.give_back()
    own.check_waits()


def test_a_recalled_own_thread_is_next(long_grace_period: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    own = OwnThread(owner)
    owner.recall()
    own.check_waits()
    owner.give_back()
    # After a recall the application's thread cannot borrow the sockets: they are reserved for the client's
    # thread.
    assert not owner.borrow()
    own.check_gets_sockets()


def test_a_recall_wakes_the_waiting_own_thread_at_once(long_grace_period: None) -> None:
    owner = SocketOwner()
    assert owner.borrow()
    owner.give_back()
    own = OwnThread(owner)
    own.check_waits()
    owner.recall()
    own.check_gets_sockets()


def test_a_recall_withdraws_a_request_and_none_is_accepted_until_the_own_thread_has_read(
    long_grace_period: None,
) -> None:
    owner = SocketOwner()
    owner.acquire()
    assert not owner.borrow()
    owner.recall()
    # `recall` withdraws the application's request for the sockets, so the client's thread continues to read.
    assert not owner.requested
    assert not owner.borrow()
    owner.hand_over()
    owner.recall()
    assert not owner.borrow()
    assert not owner.requested
    OwnThread(owner).check_gets_sockets()


def test_two_borrowers_do_not_displace_each_other() -> None:
    owner = SocketOwner()
    assert owner.borrow()
    assert not owner.borrow()
    assert not owner.requested


def test_a_writer_does_not_keep_the_own_thread_away(long_grace_period: None) -> None:
    owner = SocketOwner()
    assert owner.borrow(to_read=False)
    own = OwnThread(owner)
    assert not owner.borrow(to_read=False)
    assert not owner.requested
    owner.give_back(has_read=False)
    own.check_gets_sockets()


# ---- the sockets of consumers


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    pytest.importorskip("trustme")
    files = certificates(tmp_path_factory.mktemp("certificates"))
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with secured("SASL_SSL", files, users={"alice": "secret"}, settings=settings) as kafka:
        for topic in ("quiet", "some", "apart"):
            kafka.create_topic(topic)
        with Producer(kafka.bootstrap, **security_options(kafka)) as producer:
            for number in range(1_000):
                producer.send("some", b"%d" % number)
                producer.send("apart", b"%d" % number)
        yield kafka


def security_options(kafka: SecuredKafka) -> Any:
    return kafka.options("alice", "secret")


def reading(kafka: SecuredKafka, topic: str, **options: Any) -> Consumer:
    reader = Consumer(kafka.bootstrap, auto_offset_reset="earliest", **security_options(kafka), **options)
    reader.assign([TopicPartition(topic, 0)])
    return reader


def record_polls(reader: Consumer) -> list[int]:
    """Return a list to which each later poll of the sockets appends the id of the polling thread."""
    thread_ids: list[int] = []
    poll = reader._runtime.sockets.poll

    def record_and_poll(timeout: float | None) -> None:
        thread_ids.append(current_thread())
        poll(timeout)

    reader._runtime.sockets.poll = record_and_poll  # type: ignore[method-assign]
    return thread_ids


def test_a_waiting_thread_reads_and_the_own_thread_takes_over_when_it_is_away(kafka: SecuredKafka) -> None:
    with reading(kafka, "quiet", fetch_max_wait_ms=50) as reader:
        reader.poll(0.5)
        thread_ids = record_polls(reader)
        reader.poll(1)
        assert thread_ids.count(current_thread()) > 3
        thread_ids.clear()
        time.sleep(0.5)
        assert current_thread() not in thread_ids
        assert reader._runtime.thread.ident in thread_ids


def test_without_tls_the_own_thread_reads() -> None:
    from kproto.broker.server import running

    with running(topics={"t": 1}) as server, Consumer(server.bootstrap, fetch_max_wait_ms=50) as reader:
        reader.assign([TopicPartition("t", 0)])
        thread_ids = record_polls(reader)
        reader.poll(0.5)
        assert set(thread_ids) == {reader._runtime.thread.ident}


def test_ctrl_c_ends_a_waiting_poll_and_the_next_poll_reads_on(kafka: SecuredKafka) -> None:
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with reading(kafka, "quiet", fetch_max_wait_ms=20_000) as reader:
            reader.poll(0.5)
            for _ in range(3):
                timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                started_at = time.monotonic()
                with pytest.raises(KeyboardInterrupt):
                    reader.poll(TIMEOUT_S)
                # The poll ended long before its timeout, so Ctrl-C must have ended it.
                assert time.monotonic() - started_at < 10
            with Producer(kafka.bootstrap, **security_options(kafka)) as producer:
                producer.send("quiet", b"after").result(TIMEOUT_S)
            assert [record.value for record in reader.poll(TIMEOUT_S)] == [b"after"]
    finally:
        signal.signal(signal.SIGINT, previous)


@pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="needs SIGUSR1")
def test_a_signal_handler_may_close_the_consumer(kafka: SecuredKafka) -> None:
    reader = reading(kafka, "apart")
    reader.poll(1)
    reader.seek(TopicPartition("apart", 0), 1_000)
    previous = signal.signal(signal.SIGUSR1, lambda *_: reader.close(timeout=TIMEOUT_S))
    try:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        started_at = time.monotonic()
        with pytest.raises(IllegalState, match="closed"):
            reader.poll(2 * TIMEOUT_S)
        assert time.monotonic() - started_at < TIMEOUT_S
    finally:
        signal.signal(signal.SIGUSR1, previous)
        reader.close()


def test_another_thread_may_close_the_consumer_during_a_poll(kafka: SecuredKafka) -> None:
    for _ in range(5):
        reader = reading(kafka, "apart")
        assert reader.poll(TIMEOUT_S)
        reader.seek(TopicPartition("apart", 0), 1_000)
        durations: list[float] = []

        def close(reader: Consumer = reader, durations: list[float] = durations) -> None:
            time.sleep(0.1)
            started_at = time.monotonic()
            reader.close(timeout=TIMEOUT_S)
            durations.append(time.monotonic() - started_at)

        closer = threading.Thread(target=close)
        closer.start()
        with pytest.raises(IllegalState, match="closed"):
            reader.poll(2 * TIMEOUT_S)
        closer.join(TIMEOUT_S)
        assert durations
        assert durations[0] < TIMEOUT_S / 2


def test_a_waiting_thread_notices_changes_by_other_threads(kafka: SecuredKafka) -> None:
    with reading(kafka, "apart", fetch_max_wait_ms=20_000) as reader:
        assert reader.poll(TIMEOUT_S)
        reader.seek(TopicPartition("apart", 0), 1_000)
        reader.poll(0.5)
        changes, started_at = reader._runtime.changes, time.monotonic()
        threading.Timer(0.2, reader._runtime.notify).start()
        assert run_to_end(reader._runtime.wait(changes, now() + 30_000))
        assert time.monotonic() - started_at < 10


@pytest.mark.thorough
def test_heartbeats_continue_while_the_application_is_away(kafka: SecuredKafka) -> None:
    timing: Any = {"session_timeout_ms": 1_500, "heartbeat_interval_ms": 200}
    kinds: list[str] = []
    with Consumer(
        kafka.bootstrap,
        group_id="away",
        auto_offset_reset="earliest",
        max_poll_records=200,
        **timing,
        **security_options(kafka),
    ) as reader:
        reader.subscribe(["some"])
        reader.events(lambda change: kinds.append(change.kind))
        count = 0
        while count < 1_000:
            count += len(reader.poll(TIMEOUT_S))
            time.sleep(0.7)
        time.sleep(2.5)
        reader.poll(0.5)
        reader.commit()
        assert reader.committed()[TopicPartition("some", 0)].offset == 1_000
    assert "lost" not in kinds


def test_polls_and_commits_of_both_kinds_can_alternate(kafka: SecuredKafka) -> None:
    futures: list[Any] = []
    with Consumer(
        kafka.bootstrap,
        group_id="turns",
        auto_offset_reset="earliest",
        max_poll_records=10,
        **security_options(kafka),
    ) as reader:
        reader.subscribe(["some"])
        offsets: list[int] = []
        while len(offsets) < 1_000:
            offsets += [record.offset for record in reader.poll(TIMEOUT_S)]
            if len(offsets) % 20:
                futures.append(reader.commit_async())
            else:
                reader.commit()
        for future in futures:
            future.result(TIMEOUT_S)
        assert offsets == list(range(1_000))
        assert reader.committed()[TopicPartition("some", 0)].offset == 1_000


def test_a_waiting_poll_is_idle(kafka: SecuredKafka) -> None:
    """A poll that waits two seconds on an idle topic polls the sockets only a few times."""
    with reading(kafka, "quiet") as reader:
        reader.seek_to("latest")
        reader.poll(1)
        thread_ids = record_polls(reader)
        reader.poll(2)
        assert len(thread_ids) < 60


def test_a_callback_of_a_future_never_polls_during_a_poll(kafka: SecuredKafka) -> None:
    outcomes: list[str] = []
    with Consumer(
        kafka.bootstrap,
        group_id="hanging",
        auto_offset_reset="earliest",
        max_poll_records=10,
        **security_options(kafka),
    ) as reader:

        def poll_in_callback(future: Any) -> None:
            try:
                outcomes.append(f"polled {len(reader.poll(0))}")
            except IllegalState as error:
                outcomes.append("refused" if "callback of a future" in str(error) else str(error))

        reader.subscribe(["some"])
        offsets: list[int] = []
        while len(offsets) < 1_000:
            offsets += [record.offset for record in reader.poll(TIMEOUT_S)]
            reader.commit_async().add_done_callback(poll_in_callback)
    assert offsets == list(range(1_000))
    assert set(outcomes) == {"refused"}
