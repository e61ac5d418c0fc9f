"""A blocking client rejects calls that would block forever, and its other calls end as documented."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from consumer import Admin, Consumer, clock
from consumer.engine import events as ev
from consumer.runtime import run_to_end
from kproto.errors import IllegalState

NOWHERE = "127.0.0.1:1"


@pytest.fixture
def reader() -> Iterator[Consumer]:
    """A consumer whose bootstrap address has no broker."""
    reader = Consumer(NOWHERE, group_id="g")
    yield reader
    reader.kill()


def in_another_thread(function: Callable[[], None]) -> None:
    """Run a function in another thread, and raise its exception here."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_one_thread_at_a_time_may_use_a_consumer_and_any_thread_may_close_it(reader: Consumer) -> None:
    runtime: Any = reader._runtime

    def other() -> None:
        assert not runtime.is_callers()
        with pytest.raises(IllegalState, match=r"another thread is inside poll\(\) of this consumer"):
            reader.assign([])
        with runtime.call("close", serves=True):
            pass

    with runtime.call("poll", serves=True):
        assert runtime.is_callers()
        reader.assign([])
        in_another_thread(other)
    assert runtime.is_callers()
    in_another_thread(lambda: reader.assign([]))


def test_the_child_of_a_fork_may_only_close_its_copy(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    runtime.forked = True  # os.fork() sets `forked` in the child.
    with pytest.raises(IllegalState, match="was opened before the process forked"):
        runtime.call("assignment", waits=False)
    with runtime.call("close"):
        pass
    reader.kill()
    assert runtime.thread.is_alive()  # `kill()` in the child does not end the parent's thread.
    runtime.forked = False


def test_several_threads_may_use_an_admin_client() -> None:
    with Admin(NOWHERE) as admin:
        runtime: Any = admin._operations._runtime
        with runtime.call("topics"):
            in_another_thread(lambda: runtime.call("topics").__enter__())


def test_the_callback_of_a_future_may_only_make_calls_that_do_not_wait(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    errors: list[IllegalState] = []

    def callback(future: Future[None]) -> None:
        reader.assign([])
        with pytest.raises(IllegalState) as caught:
            runtime.call("position")
        errors.append(caught.value)

    future = runtime._new_future()
    future.add_done_callback(callback)
    runtime._complete_if_open(ev.Done(future, None, None))
    (error,) = errors
    assert str(error).startswith("position() was called in the callback of a future and would block")
    assert runtime._completing_threads == set()
    assert future.result(0) is None


def test_a_future_has_its_result_or_its_error(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    done, failed, cancelled = (runtime._new_future() for _ in range(3))
    cancelled.cancel()
    error = IllegalState("failed")
    for future, value, reason in ((done, 5, None), (failed, None, error), (cancelled, 1, None)):
        runtime._complete_if_open(ev.Done(future, value, reason))
        assert future not in runtime._open_futures
    assert run_to_end(runtime.result(done)) == 5
    with pytest.raises(IllegalState, match="failed"):
        run_to_end(runtime.result(failed))
    assert cancelled.cancelled()


def test_a_thread_that_waits_for_a_future_is_woken_when_it_completes(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    future = runtime._new_future()
    timer = threading.Timer(0.02, lambda: runtime._complete_if_open(ev.Done(future, "value", None)))
    timer.start()
    assert run_to_end(runtime.result(future)) == "value"
    assert runtime._future_locks == {}


def test_a_signal_handler_cannot_make_a_call_while_the_engine_changes(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    with runtime.locked():
        runtime._stepping = True
        with pytest.raises(IllegalState, match="a signal handler interrupted a call of this consumer"):
            reader.assign([])
        runtime._stepping = False
    reader.assign([])


def test_a_callback_of_a_blocking_client_cannot_be_a_coroutine(reader: Consumer) -> None:
    async def callback() -> None: ...

    ended: list[str] = []
    with pytest.raises(IllegalState, match="can't be a coroutine; AsyncConsumer awaits coroutines"):
        run_to_end(reader._runtime.finish_callback(callback(), lambda: ended.append("ended"), None))
    assert ended == ["ended"]


def test_the_end_of_a_client_stops_its_thread_and_fails_its_open_futures(reader: Consumer) -> None:
    runtime: Any = reader._runtime
    future, changes = runtime._new_future(), runtime.changes
    runtime.end()
    runtime.thread.join(30)
    assert not runtime.thread.is_alive()
    assert runtime.changes > changes
    with pytest.raises(IllegalState, match="this consumer was closed during the call"):
        future.result(0)
    with pytest.raises(IllegalState, match="this consumer is closed; make a new one"):
        reader.assign([])


def test_an_exception_of_the_engine_fails_the_client(
    reader: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    runtime: Any = reader._runtime

    def fail(event: Any, at: int) -> Any:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(runtime.driver, "step", fail)
    for _ in range(2):
        with pytest.raises(IllegalState, match=r"this consumer failed \(ZeroDivisionError\('broken'\)\)"):
            reader.assign([])
    runtime.thread.join(30)
    assert not runtime.thread.is_alive()
    assert [record.levelname for record in caplog.records if "failed" in record.getMessage()] == ["CRITICAL"]


@pytest.mark.parametrize("in_engine", [False, True])
def test_ctrl_c_in_the_callback_of_a_future_reaches_only_a_thread_of_the_application(
    reader: Consumer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, in_engine: bool
) -> None:
    """A callback that raises KeyboardInterrupt or SystemExit must not end the engine's thread."""
    runtime: Any = reader._runtime

    def callback(future: Future[int]) -> None:
        raise KeyboardInterrupt

    future = runtime._new_future()
    future.add_done_callback(callback)
    if in_engine:
        with monkeypatch.context() as patch:
            patch.setattr(runtime, "thread", threading.current_thread())
            runtime._complete(future, 5, None)
        assert [record.getMessage() for record in caplog.records] == ["a callback of a future failed"]
    else:
        with pytest.raises(KeyboardInterrupt):
            runtime._complete(future, 5, None)
        assert caplog.records == []
    assert runtime._completing_threads == set()
    assert future.result(0) == 5
    runtime._complete(future, 6, None)  # A completed future keeps its first result.
    assert future.result(0) == 5


class Owner:
    """A fake socket owner. It lends the sockets to the application if `is_free` is set."""

    def __init__(self, *, is_free: bool, requested: bool = False) -> None:
        self.is_free = is_free
        self.requested = requested
        self.returned = 0
        self.recalls = 0

    def borrow(self) -> bool:
        return self.is_free

    def give_back(self) -> None:
        self.returned += 1

    def recall(self) -> None:
        self.recalls += 1


class ReadSockets:
    """A substitute for the sockets of a TLS client. It records polls, and raises `error` if it is set."""

    uses_tls = True

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error
        self.polls: list[float] = []
        self.wakes = 0

    def poll(self, seconds: float) -> None:
        self.polls.append(seconds)
        if self.error is not None:
            raise self.error

    def take(self) -> list[Any]:
        return []

    def wake(self) -> None:
        self.wakes += 1


def test_over_tls_a_waiting_thread_reads_the_sockets_if_they_are_free(
    reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: Any = reader._runtime
    free, held = Owner(is_free=True), Owner(is_free=False)
    requested = Owner(is_free=False, requested=True)
    with runtime.locked(), monkeypatch.context() as patch:
        sockets = ReadSockets()
        patch.setattr(runtime, "sockets", sockets)
        patch.setattr(runtime, "owner", free)
        patch.setattr(runtime.driver, "due", lambda: None)
        changes = runtime.changes
        assert runtime._read_sockets(changes, 0.5) is True
        assert (sockets.polls, free.returned) == ([0.5], 1)
        # The engine's next step is already due, so the poll must not wait for the caller's 0.5 s.
        patch.setattr(runtime.driver, "due", lambda: clock.now() - 1_000)
        assert runtime._read_sockets(changes, 0.5) is True
        assert sockets.polls[1:] == [0.0]
        # If anything has changed since `changes` was read, the wait ends without a poll.
        assert runtime._read_sockets(changes - 1, 0.5) is True
        assert len(sockets.polls) == 2
        assert sockets.wakes == 0
        for owner, wakes in ((held, 0), (requested, 1)):
            patch.setattr(runtime, "owner", owner)
            assert runtime._read_sockets(changes, 0.5) is False
            assert (sockets.wakes, owner.returned) == (wakes, 0)
        patch.setattr(sockets, "uses_tls", False)
        patch.setattr(runtime, "owner", free)
        assert runtime._read_sockets(changes, 0.5) is False
        assert len(sockets.polls) == 2


@pytest.mark.parametrize("error", [ZeroDivisionError("broken"), KeyboardInterrupt()])
def test_an_exception_while_a_waiting_thread_reads_fails_the_client(
    reader: Consumer, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    runtime: Any = reader._runtime
    owner = Owner(is_free=True)
    failures: list[BaseException] = []
    published: list[int] = []
    with runtime.locked(), monkeypatch.context() as patch:
        patch.setattr(runtime, "_report_and_complete", lambda: published.append(owner.returned))
        patch.setattr(runtime, "sockets", ReadSockets(error))
        patch.setattr(runtime, "owner", owner)
        patch.setattr(runtime, "_fail_client", failures.append)
        if isinstance(error, Exception):
            assert runtime._read_sockets(runtime.changes, 0.5) is True
        else:
            with pytest.raises(KeyboardInterrupt):
                runtime._read_sockets(runtime.changes, 0.5)
    assert failures == [error]
    assert owner.returned == 1
    # The sockets are returned before the callbacks run, so that other threads can read meanwhile.
    assert published == [1]


@pytest.mark.parametrize("has_future", [False, True])
@pytest.mark.parametrize("uses_tls", [False, True])
@pytest.mark.parametrize("is_exclusive", [False, True])
def test_over_tls_the_engines_thread_reads_while_a_call_waits_for_a_future(
    reader: Consumer,
    monkeypatch: pytest.MonkeyPatch,
    has_future: bool,
    uses_tls: bool,
    is_exclusive: bool,
) -> None:
    """Over TLS, the engine's thread takes the sockets back while a call waits for a future.

    Only exclusive clients, which one thread at a time may use, let a calling thread read the sockets. So the
    engine's thread has nothing to take back from other clients.
    """
    runtime: Any = reader._runtime
    owner = Owner(is_free=True)
    with runtime.locked(), monkeypatch.context() as patch:
        sockets: Any = ReadSockets()
        sockets.uses_tls = uses_tls
        patch.setattr(runtime, "sockets", sockets)
        patch.setattr(runtime, "owner", owner)
        patch.setattr(runtime, "exclusive", is_exclusive)
        patch.setattr(runtime, "_open_futures", {Future()} if has_future else set())
        runtime.wakes_at = 0
        runtime._write_or_wake()
        assert sockets.wakes == 0  # No wakeup is needed: wakes_at is 0, so the engine's thread is awake.
    assert owner.recalls == (has_future and uses_tls and is_exclusive)


def test_the_interpreter_ends_without_waiting_for_the_thread(reader: Consumer) -> None:
    assert reader._runtime.thread.daemon
    assert reader._runtime.thread.name == "kproto-consumer-kproto"


def test_a_change_wakes_only_another_thread_that_reads_the_sockets(
    reader: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime: Any = reader._runtime
    this_thread = threading.get_ident()
    with runtime.locked(), monkeypatch.context() as patch:
        for borrower, wakes in ((0, 0), (this_thread, 0), (this_thread + 1, 1)):
            sockets = ReadSockets()
            patch.setattr(runtime, "sockets", sockets)
            patch.setattr(runtime.owner, "borrower", borrower)
            changes = runtime.changes
            runtime.notify()
            assert (sockets.wakes, runtime.changes) == (wakes, changes + 1)
