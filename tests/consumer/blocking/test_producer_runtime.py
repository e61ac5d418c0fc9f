"""The thread of a blocking producer is woken only when it must act, and every delivery completes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from consumer import GroupChange, Producer, clock
from consumer.blocking.sockets import Sockets
from consumer.engine import events as ev
from consumer.validation import MAX_TIMEOUT_S
from kproto.errors import IllegalState, RequestTimedOut

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def producer() -> Iterator[Producer]:
    """A producer without a broker, which knows that the topic t has one partition."""
    producer = Producer(NOWHERE, linger_ms=1_000, max_block_ms=50)
    producer._runtime.records.set_route("t", 1, [0])
    yield producer
    producer.kill()


@pytest.mark.parametrize(
    ("wakes_in_ms", "is_sealed", "is_woken"),
    [
        # The thread waits without a timeout.
        (None, False, True),
        # Unless it is woken, the thread sleeps until linger.ms has passed.
        (60_000, False, True),
        # The thread wakes before linger.ms has passed.
        (100, False, False),
        # A sealed batch must be sent immediately.
        (100, True, True),
        # The thread is awake.
        (0, True, False),
    ],
)
def test_the_thread_is_woken_if_it_would_wake_too_late(
    producer: Producer,
    monkeypatch: pytest.MonkeyPatch,
    wakes_in_ms: int | None,
    is_sealed: bool,
    is_woken: bool,
) -> None:
    runtime: Any = producer._runtime
    wakes: list[None] = []
    with runtime.locked():
        monkeypatch.setattr(runtime.sockets, "wake", lambda: wakes.append(None))
        monkeypatch.setattr(runtime.records, "needs_sender_now", lambda: is_sealed)
        runtime.wakes_at = clock.now() + wakes_in_ms if wakes_in_ms else wakes_in_ms
        runtime._wake_for_records()
        assert bool(wakes) is is_woken
        assert (runtime.wakes_at == 0) is (is_woken or wakes_in_ms == 0)
        assert runtime._keep_alive == [runtime]
        runtime._wake_for_records()
        assert len(wakes) == is_woken  # The second call of `_wake_for_records` does not wake the thread.
        assert runtime._keep_alive == [runtime]
        monkeypatch.undo()
        runtime.wakes_at = None
        runtime.wake()


def test_a_call_while_the_thread_is_awake_is_followed_by_another_step(producer: Producer) -> None:
    runtime: Any = producer._runtime
    with runtime.locked():  # This keeps the producer's own thread out of `_schedule_wake`.
        runtime._schedule_wake()
        runtime.wakes_at = 0  # The thread is awake, and has just finished a step.
        runtime.wake()
        assert runtime._schedule_wake() == runtime.wakes_at == 0
        assert runtime._schedule_wake() != 0  # After this additional step, the thread waits.
        runtime.wakes_at = None
        runtime.wake()


def test_the_thread_keeps_a_producer_alive_only_while_records_are_open(producer: Producer) -> None:
    runtime: Any = producer._runtime
    with runtime.locked():
        runtime._keep_alive[:] = [runtime]
        runtime._schedule_wake()
        assert runtime._keep_alive == []
        delivery = producer.send("t", b"x")
        due = runtime._schedule_wake()
        assert runtime._keep_alive == [runtime]
    assert due is not None
    assert not delivery.done()


def test_a_delivery_that_is_not_done_says_what_it_waits_for(producer: Producer) -> None:
    delivery = producer.send("t", b"x")
    with pytest.raises(RequestTimedOut, match=r"Produce: no answer within 20 ms \(t-0: this producer has no"):
        delivery.result(0.02)
    with pytest.raises(IllegalState, match=r"await needs an AsyncProducer; call result\(\)"):
        next(delivery.__await__())


@pytest.mark.parametrize(("timeout", "ms"), [(0, 0), (1_000, 1_000_000), (None, int(MAX_TIMEOUT_S * 1_000))])
def test_a_wait_for_a_delivery_ends_at_its_deadline(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, timeout: float | None, ms: int
) -> None:
    runtime: Any = producer._runtime
    delivery = producer.send("t", b"x")
    deadlines: list[int] = []

    def wait(last_change: int, deadline: int) -> bool:
        deadlines.append(deadline)
        return False

    monkeypatch.setattr(runtime.waiters, "wait", wait)
    before = clock.now()
    with pytest.raises(RequestTimedOut):
        delivery.result(timeout)
    assert before + ms <= deadlines[0] <= clock.now() + ms


def test_a_failure_of_the_thread_ends_every_delivery(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime: Any = producer._runtime
    delivery = producer.send("t", b"x")

    def fail(actions: Any) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(runtime, "_perform", fail)
    with runtime.locked():
        runtime.wake()
    with pytest.raises(IllegalState, match="the producer's thread failed; see the log"):
        delivery.result(30)
    runtime.thread.join(30)
    (record,) = [r for r in caplog.records if r.getMessage() == "the producer's thread failed"]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], ZeroDivisionError)


def test_a_producer_that_the_child_of_a_fork_drops_is_left_to_the_parent(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: Any = producer._runtime
    drops: list[None] = []
    monkeypatch.setattr(runtime, "_on_drop", lambda: drops.append(None))
    runtime.forked = True  # os.fork() sets `forked` in the child.
    runtime.__del__()
    assert (runtime.stopped, drops) == (False, [])
    runtime.forked = False
    runtime.__del__()
    assert (runtime.stopped, drops) == (True, [None])


def test_a_producer_without_records_ends_with_the_interpreter_without_a_message(
    producer: Producer, caplog: pytest.LogCaptureFixture
) -> None:
    assert producer._runtime.on_exit() == ""
    assert caplog.records == []


def test_records_that_are_not_delivered_at_the_end_of_the_interpreter_are_reported(
    producer: Producer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("consumer.blocking.producer_runtime.EXIT_SECONDS", 0.01)
    for _ in range(2):
        producer.send("t", b"x")
    lost = producer._runtime.on_exit()
    assert lost.startswith("the producer 'kproto' was not closed, and records are lost: ")
    warning = "the producer 'kproto' was not closed: 2 records are not delivered yet, they have 0.01 s"
    assert [record.getMessage() for record in caplog.records if "was not closed" in record.msg] == [warning]


def test_reports_and_callbacks_of_the_engine_reach_the_application(producer: Producer) -> None:
    runtime: Any = producer._runtime
    changes: list[GroupChange] = []
    called: list[str] = []
    producer.events(changes.append)
    change = GroupChange(at=5, kind="fenced", reason="another producer")
    before = runtime.changes
    runtime._perform([ev.Report(change), ev.CallBack(lambda: called.append("called"))])
    assert called == ["called"]
    assert runtime.changes == before
    runtime._perform([ev.Wake()])
    assert runtime.changes == before + 1
    runtime._callbacks.close(10)  # Wait until the callback thread has called the callback of `events`.
    assert changes == [change]


def test_the_child_of_a_fork_waits_neither_for_callbacks_nor_for_records(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child replaces locks and queues: the parent's threads, which may hold them, do not exist in the
    child.
    """
    runtime: Any = producer._runtime
    old = runtime._callbacks, runtime.waiters.lock, runtime.sockets
    producer.send("t", b"x")
    with monkeypatch.context() as patch:
        patch.setattr(runtime, "sockets", Sockets())
        sockets = runtime.sockets
        runtime.on_fork()
        assert runtime.forked
        assert runtime._callbacks is not old[0]
        assert runtime.waiters.lock is not old[1]
        assert runtime.records.guard is runtime.waiters.lock
        assert runtime._keep_alive == []
        assert sockets._closed
    runtime.forked = False


def test_the_interpreter_ends_without_waiting_for_the_thread(producer: Producer) -> None:
    assert producer._runtime.thread.daemon
    assert producer._runtime.thread.name == "kproto-producer-kproto"
