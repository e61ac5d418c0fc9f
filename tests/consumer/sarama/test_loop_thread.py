"""LoopThread runs an event loop in its own thread, and every caller returns when it is shut down."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from consumer.sarama.loop_thread import LoopThread
from kproto.errors import IllegalState


@pytest.fixture
def loop_thread() -> Iterator[LoopThread[None]]:
    loop_thread: LoopThread[None] = LoopThread("tested", lambda: None)
    yield loop_thread
    loop_thread.close(asyncio.sleep(0))


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """Return a function that sends SIGINT to this thread. (In a background job of a shell, SIGINT is ignored
    until a handler is set.)
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
    """A call raises while the loop ends. asyncio would accept its coroutine after the loop has stopped and
    before it is closed, but would never run it.
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
    until(lambda: bool(loop._ready))  # At this point the loop has accepted the call.
    go_on.set()
    assert [type(error) for error in calling.wait()] == [IllegalState]


def test_close_after_a_close_that_ctrl_c_interrupted_returns(
    loop_thread: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    """A second close returns after Ctrl-C has interrupted the first. Regression: the second one found a loop
    that could not be closed, or waited for a loop that had stopped.
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
    """Two threads may call close at once. Regression: the second call raised RuntimeError, AttributeError or
    ValueError from inside asyncio.
    """
    began = threading.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    first = BackgroundCall(lambda: loop_thread.close(long()))
    assert began.wait(10)
    loop_thread.close(asyncio.sleep(0))
    assert first.wait() == []
    # A second call of `close` may call `_stop` after the first call of `close` has ended.
    loop_thread._stop()
    assert loop_thread.ended
