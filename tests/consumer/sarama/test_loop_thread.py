"""What lives in an event loop in a thread of its own: who waits for it, and how it ends."""

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
def there() -> Iterator[LoopThread[None]]:
    there: LoopThread[None] = LoopThread("tested", lambda: None)
    yield there
    there.close(asyncio.sleep(0))


@pytest.fixture
def ctrl_c() -> Iterator[Callable[[], None]]:
    """From any thread to this one. (A job in the background ignores it.)"""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    here = threading.get_ident()
    yield lambda: signal.pthread_kill(here, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


class Beside(threading.Thread):
    """Does it in another thread, and keeps what it raises."""

    def __init__(self, what: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self.what = what
        self.told: list[BaseException] = []
        self.start()

    def run(self) -> None:
        try:
            self.what()
        except BaseException as error:
            self.told.append(error)

    def ends(self) -> list[BaseException]:
        self.join(10)
        assert not self.is_alive()
        return self.told


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def begun(there: LoopThread[None], work: Callable[[], None]) -> None:
    """Something that is at work there until it is cancelled; it calls `work` then."""

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
    there.run(begin())


def test_who_calls_while_the_loop_ends_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that has stopped, and isn't closed yet, takes work that it never does."""
    there: LoopThread[None] = LoopThread("ending", lambda: None)
    loop: Any = there._loop
    stopped, go_on, close = threading.Event(), threading.Event(), loop.close

    def closes_late() -> None:
        stopped.set()
        assert go_on.wait(10)
        close()

    monkeypatch.setattr(loop, "close", closes_late)
    loop.call_soon_threadsafe(loop.stop)
    assert stopped.wait(10)
    calling = Beside(lambda: there.run(asyncio.sleep(0)))
    until(lambda: bool(loop._ready))  # it was taken
    go_on.set()
    assert [type(error) for error in calling.ends()] == [IllegalState]


def test_close_behind_a_close_that_ctrl_c_ended(there: LoopThread[None], ctrl_c: Callable[[], None]) -> None:
    """The block's, say: it found a loop that nobody could close, or waited for one that had stopped."""
    begun(there, ctrl_c)  # as the thread ends, and is waited for
    with pytest.raises(KeyboardInterrupt):
        there.close(asyncio.sleep(0))
    assert Beside(lambda: there.close(asyncio.sleep(0))).ends() == []
    until(lambda: there.ended)


def test_a_loop_ends_by_itself_where_ctrl_c_ended_close(
    there: LoopThread[None], ctrl_c: Callable[[], None]
) -> None:
    begun(there, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        there.close(asyncio.sleep(0))
    until(lambda: there.ended)
    with pytest.raises(IllegalState, match="closed"):
        there.run(asyncio.sleep(0))


def test_two_may_close_it_at_once(there: LoopThread[None]) -> None:
    """The second one had RuntimeError, AttributeError or ValueError from inside of asyncio."""
    began = threading.Event()

    async def long() -> None:
        began.set()
        await asyncio.sleep(60)

    first = Beside(lambda: there.close(long()))
    assert began.wait(10)
    there.close(asyncio.sleep(0))
    assert first.ends() == []
    there._stop()  # who had come so far when the other one was through
    assert there.ended
