"""LoopThread runs an event loop in its own thread. When the loop is shut down, every waiting call ends."""

from __future__ import annotations

import asyncio
import inspect
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest

from consumer import lifecycle
from consumer.sarama.channel import Channel
from consumer.sarama.loop_thread import LoopThread
from kproto.errors import IllegalState


@pytest.fixture
def loop_thread() -> Iterator[LoopThread[None]]:
    loop_thread: LoopThread[None] = LoopThread("tested", lambda: None)
    yield loop_thread
    loop_thread.close(asyncio.sleep(0))


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Return a function that sends SIGINT to this thread.

    A shell starts background jobs with SIGINT ignored, so the fixture sets Python's default handler.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread_id = threading.get_ident()
    yield lambda: signal.pthread_kill(thread_id, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


class BackgroundCall(threading.Thread):
    """Call a function in another thread, and keep its exception."""

    def __init__(self, function: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.what = function
        self.told: list[BaseException] = []
        self.start()

    def run(self) -> None:
        try:
            self.what()
        except BaseException as error:
            self.told.append(error)

    def wait(self) -> list[BaseException]:
        self.join(10)
        assert not self.is_alive()
        return self.told


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def start_work(loop_thread: LoopThread[None], work: Callable[[], None]) -> None:
    """Start a coroutine in the loop. The coroutine calls `work` when it is cancelled."""

    async def at_work() -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            work()

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(at_work()))
        await began.wait()

    tasks: list[Any] = []
    began = asyncio.Event()
    loop_thread.run(begin())


def test_a_call_while_the_loop_ends_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call raises IllegalState if the loop ends before it runs the call.

    Between the stop and the close of the loop, asyncio would accept the call's coroutine, but never run it.
    """
    loop_thread: LoopThread[None] = LoopThread("ending", lambda: None)
    loop: Any = loop_thread._loop
    stopped, go_on, close = threading.Event(), threading.Event(), loop.close

    def closes_late() -> None:
        stopped.set()
        assert go_on.wait(10)
        close()

    monkeypatch.setattr(loop, "close", closes_late)
    loop.call_soon_threadsafe(loop.stop)
    assert stopped.wait(10)
    calling = BackgroundCall(lambda: loop_thread.run(asyncio.sleep(0)))
    until(lambda: bool(loop._ready))  # The stopped loop has accepted the call, but will not run it.
    go_on.set()
    assert [type(error) for error in calling.wait()] == [IllegalState]


def test_close_after_a_close_that_ctrl_c_interrupted_returns(
    loop_thread: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    """A second close returns after Ctrl-C has interrupted the first.

    Regression: the second `close` failed to close the loop, or waited forever for a loop that had already
    stopped.
    """
    start_work(loop_thread, ctrl_c)  # Ctrl-C arrives while close() waits for the thread's end.
    with pytest.raises(KeyboardInterrupt):
        loop_thread.close(asyncio.sleep(0))
    assert BackgroundCall(lambda: loop_thread.close(asyncio.sleep(0))).wait() == []
    until(lambda: loop_thread.ended)


def test_a_loop_ends_by_itself_if_ctrl_c_interrupted_close(
    loop_thread: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    start_work(loop_thread, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        loop_thread.close(asyncio.sleep(0))
    until(lambda: loop_thread.ended)
    with pytest.raises(IllegalState, match="closed"):
        loop_thread.run(asyncio.sleep(0))


def test_two_threads_may_close_it_at_once(loop_thread: LoopThread[None]) -> None:
    """A call of `close` may overlap with a call in another thread. Both end without an error.

    Regression: the second call raised RuntimeError, AttributeError or ValueError from inside asyncio.
    """
    began = threading.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    first = BackgroundCall(lambda: loop_thread.close(long()))
    assert began.wait(10)
    loop_thread.close(asyncio.sleep(0))
    assert first.wait() == []
    # Pretend that the second `close` calls `_stop` only after the first `close` has returned.
    loop_thread._stop()
    assert loop_thread.ended


def threads_named(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_a_call_returns_the_result_or_raises_the_error(loop_thread: LoopThread[None]) -> None:
    (thread,) = threads_named("tested")
    assert thread.daemon  # An unclosed client does not keep the process alive.
    assert loop_thread.call(threading.get_ident) == thread.ident
    with pytest.raises(ZeroDivisionError):
        loop_thread.call(lambda: 1 // 0)
    assert loop_thread.run(asyncio.sleep(0, "result")) == "result"
    assert not loop_thread.ended


def test_a_client_that_cannot_be_made_leaves_no_thread() -> None:
    def make() -> None:
        raise LookupError("no client")

    with pytest.raises(LookupError, match="no client"):
        LoopThread("failing", make)
    assert threads_named("failing") == []


def test_a_closed_loop_rejects_calls_and_closes_their_coroutines() -> None:
    loop_thread: LoopThread[None] = LoopThread("tested", lambda: None)
    last = asyncio.sleep(0)
    loop_thread.close(last)
    assert loop_thread.ended
    assert threads_named("tested") == []
    assert loop_thread not in lifecycle._open_clients
    call, second_call = asyncio.sleep(0), asyncio.sleep(0)
    with pytest.raises(IllegalState, match="this client is closed; make a new one"):
        loop_thread.run(call)
    loop_thread.close(second_call)
    assert {inspect.getcoroutinestate(work) for work in (last, call, second_call)} == {inspect.CORO_CLOSED}
    with pytest.raises(IllegalState, match="my own text"):
        loop_thread.check_usable("my own text")
    # Pretend that another thread closes the loop after the check and before the start of the coroutine.
    late = asyncio.sleep(0)
    with pytest.raises(CancelledError):
        loop_thread._run(late)
    assert inspect.getcoroutinestate(late) == inspect.CORO_CLOSED


def test_the_child_of_a_fork_cannot_use_the_loop(loop_thread: LoopThread[None]) -> None:
    """In a forked child process, every call and every new iteration raises IllegalState, and `close` does
    nothing.
    """
    assert loop_thread in lifecycle._open_clients
    assert loop_thread.on_exit() == ""
    items: Channel[int] = Channel()
    items.put(1)
    iteration = loop_thread.iterate(items)
    items.put(2)
    assert next(iteration) == 1
    loop_thread.on_fork()
    try:
        assert loop_thread.ended
        assert list(iteration) == []
        call, close = asyncio.sleep(0), asyncio.sleep(0)
        with pytest.raises(IllegalState, match="opened before the process forked"):
            loop_thread.run(call)
        with pytest.raises(IllegalState, match="opened before the process forked"):
            next(loop_thread.iterate(items))
        loop_thread.close(close)
        assert {inspect.getcoroutinestate(work) for work in (call, close)} == {inspect.CORO_CLOSED}
        assert len(threads_named("tested")) == 1
    finally:
        # This process did not really fork, so the fixture still has to close the loop.
        loop_thread._forked = False


def test_ctrl_c_in_a_call_cancels_its_coroutine(
    loop_thread: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    cancelled = threading.Event()

    async def work() -> None:
        try:
            ctrl_c()
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with pytest.raises(KeyboardInterrupt):
        loop_thread.run(work())
    assert cancelled.wait(10)
    assert loop_thread.run(asyncio.sleep(0, "still usable")) == "still usable"


def test_close_ends_the_calls_of_other_threads(loop_thread: LoopThread[None]) -> None:
    began = threading.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    calling = BackgroundCall(lambda: loop_thread.run(long()))
    assert began.wait(10)
    loop_thread.close(asyncio.sleep(0))
    (error,) = calling.wait()
    assert (type(error), str(error)) == (IllegalState, "this client was closed during the call")


def test_close_lets_tasks_end_before_it_cancels_them(loop_thread: LoopThread[None]) -> None:
    """After `close`, a task that needs several turns of the loop ends normally. A long task is cancelled."""
    ends: list[str] = []

    async def take_turns(count: int) -> None:
        try:
            for _ in range(count):
                await asyncio.sleep(0.001)
            ends.append("ended")
        except asyncio.CancelledError:
            ends.append("cancelled")
            await asyncio.sleep(0)
            ends.append("cleaned up")
            raise

    async def begin() -> None:
        tasks.extend(asyncio.ensure_future(take_turns(count)) for count in (5, 60_000))

    tasks: list[Any] = []
    loop_thread.run(begin())
    loop_thread.close(asyncio.sleep(0))
    assert ends == ["ended", "cancelled", "cleaned up"]


def test_close_raises_the_error_of_its_coroutine_and_ends_the_loop(loop_thread: LoopThread[None]) -> None:
    async def fails() -> None:
        raise ValueError("no commit")

    with pytest.raises(ValueError, match="no commit"):
        loop_thread.close(fails())
    assert loop_thread.ended


def test_an_iteration_returns_items_until_its_source_ends(loop_thread: LoopThread[None]) -> None:
    items: Channel[int] = Channel()
    items.put(1)
    iteration = loop_thread.iterate(items)
    assert next(iteration) == 1
    read: list[int] = []
    reading = BackgroundCall(lambda: read.extend(iteration))
    for number in (2, 3):
        loop_thread.call(lambda number=number: items.put(number))  # type: ignore[misc]
    loop_thread.call(items.close)
    assert reading.wait() == []
    assert read == [2, 3]


def test_an_iteration_returns_the_last_items_after_the_loop_has_ended(loop_thread: LoopThread[None]) -> None:
    items: Channel[int] = Channel()
    for number in range(3):
        items.put(number)
    iteration = loop_thread.iterate(items)
    assert next(iteration) == 0
    loop_thread.close(asyncio.sleep(0))
    assert list(iteration) == [1, 2]
    assert list(loop_thread.iterate(items)) == []


def test_ctrl_c_during_an_iteration_puts_the_item_back(
    loop_thread: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    """If Ctrl-C arrives while an item is being taken, a later iteration begins with this item."""

    class Items(deque[int]):
        def popleft(self) -> int:
            item = super().popleft()
            ctrl_c()
            return item

    items: Any = Channel()
    items.items = Items([1, 2, 3])
    with pytest.raises(KeyboardInterrupt):
        next(loop_thread.iterate(items))
    assert list(items.items) == [1, 2, 3]
