"""Tasks wait for the next change of a client, and pauses of a busy task let other tasks run."""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from consumer import clock
from consumer.aio import waiters as module
from consumer.aio.waiters import TaskWaiters, current_task

SOON = 60_000
LINE = "line"


def run(story: Callable[[TaskWaiters], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(story(TaskWaiters()), 30))


def test_a_wait_for_an_earlier_change_ends_at_once() -> None:
    async def story(waiters: TaskWaiters) -> None:
        before = waiters.changes
        waiters.notify()
        assert await waiters.wait(before, clock.now() - 1)
        assert not await waiters.wait(waiters.changes, clock.now() - 1)

    run(story)


def test_one_change_wakes_all_waiting_tasks() -> None:
    async def story(waiters: TaskWaiters) -> None:
        tasks = [asyncio.create_task(waiters.wait(0, clock.now() + SOON)) for _ in range(3)]
        await asyncio.sleep(0)
        assert len(waiters._futures) == 3
        waiters.notify()
        assert await asyncio.gather(*tasks) == [True] * 3
        assert waiters.changes == 1
        assert not waiters._futures

    run(story)


def test_one_change_wakes_one_task_in_line_and_its_end_wakes_the_next_two() -> None:
    async def story(waiters: TaskWaiters) -> None:
        woken: list[int] = []

        async def wait(number: int) -> None:
            assert await waiters.wait_in_line(LINE, 0, clock.now() + SOON, place=number if number < 3 else -1)
            woken.append(number)

        tasks = [asyncio.create_task(wait(number)) for number in range(4)]
        await asyncio.sleep(0)
        waiters.notify()
        await tasks[3]
        assert woken == [3]
        waiters.leave_line(LINE)
        await asyncio.gather(tasks[0], tasks[1])
        assert woken == [3, 0, 1]
        tasks[2].cancel()
        await asyncio.gather(tasks[2], return_exceptions=True)
        assert not waiters._lines

    run(story)


def test_tasks_that_wait_in_line_again_keep_their_order() -> None:
    """Otherwise later tasks could overtake the second task again and again."""

    async def story(waiters: TaskWaiters) -> None:
        def wait(place: int) -> asyncio.Task[bool]:
            return asyncio.create_task(
                waiters.wait_in_line(LINE, waiters.changes, clock.now() + SOON, place=place)
            )

        tasks = [wait(place) for place in range(3)]
        await asyncio.sleep(0)
        waiters.notify()
        await tasks[0]
        waiters.leave_line(LINE)
        await asyncio.gather(tasks[1], tasks[2])
        tasks[1:] = [wait(1), wait(2)]
        await asyncio.sleep(0)
        waiters.notify()
        await tasks[1]
        assert not tasks[2].done()
        waiters.notify()
        await tasks[2]

    run(story)


def test_a_change_wakes_the_first_task_of_each_line() -> None:
    async def story(waiters: TaskWaiters) -> None:
        tasks = [
            asyncio.create_task(waiters.wait_in_line(line, 0, clock.now() + SOON, place=place))
            for place, line in enumerate((1, 1, 2, 2))
        ]
        await asyncio.sleep(0)
        waiters.notify()
        await asyncio.gather(tasks[0], tasks[2])
        assert not tasks[1].done()
        waiters.leave_line(1)
        await tasks[1]
        assert not tasks[3].done()
        tasks[3].cancel()
        await asyncio.gather(tasks[3], return_exceptions=True)
        assert not waiters._lines

    run(story)


def test_a_wait_in_line_ends_at_its_deadline_and_is_forgotten() -> None:
    async def story(waiters: TaskWaiters) -> None:
        assert not await waiters.wait_in_line(LINE, 0, clock.now() + 10, place=0)
        assert not waiters._lines
        assert not await waiters.wait_in_line(LINE, 0, clock.now() - 1, place=0)
        waiters.notify()
        assert await waiters.wait_in_line(LINE, 0, clock.now() - 1, place=0)

    run(story)


def test_a_wait_ends_at_its_deadline_and_is_forgotten() -> None:
    async def story(waiters: TaskWaiters) -> None:
        began = time.monotonic()
        assert not await waiters.wait(0, clock.now() + 30)
        assert time.monotonic() - began >= 0.02
        assert not waiters._futures

    run(story)


def test_a_cancelled_wait_is_forgotten_and_later_changes_reach_the_others() -> None:
    async def story(waiters: TaskWaiters) -> None:
        cancelled, waiting = (asyncio.create_task(waiters.wait(0, clock.now() + SOON)) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert len(waiters._futures) == 1
        waiters.notify()
        assert await waiting

    run(story)


def test_a_wait_that_a_change_ends_leaves_nothing_behind() -> None:
    """A future that an ended wait kept would occupy memory until the timeout of the poll."""

    async def story(waiters: TaskWaiters) -> None:
        task = asyncio.create_task(waiters.wait(0, clock.now() + SOON))
        await asyncio.sleep(0)
        future = weakref.ref(next(iter(waiters._futures)))
        waiters.notify()
        assert await task
        assert future() is None

    run(story)


def test_a_change_after_the_end_of_the_event_loop_wakes_no_task() -> None:
    async def wait(waiters: TaskWaiters) -> None:
        waiters._futures[asyncio.get_running_loop().create_future()] = None
        next(iter(waiters._futures)).add_done_callback(print)  # A closed event loop cannot call the callback.

    waiters = TaskWaiters()
    asyncio.run(wait(waiters))
    waiters.notify()
    assert not waiters._futures


async def turns_during(pause: Coroutine[Any, Any, None]) -> int:
    """Return how many turns of the event loop another task gets during a pause."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(count())
    await pause
    task.cancel()
    return turns


def test_a_pause_lets_other_tasks_run_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(waiters: TaskWaiters) -> None:
        monkeypatch.setattr(module, "MAX_HOG_S", 3_600)
        assert await turns_during(waiters.pause(delivering=True)) == 1
        # Less than MAX_HOG_S has passed since the last pause, so other tasks get no turn.
        assert await turns_during(waiters.pause(delivering=True)) == 0
        assert await turns_during(waiters.pause(delivering=False)) == 0

    run(story)


def test_a_busy_task_lets_other_tasks_run_once_a_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(waiters: TaskWaiters) -> None:
        seconds = [50.0]
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
        turns: list[int] = []
        for seconds[0] in (50.0, 50.0009, 50.0 + module.MAX_HOG_S, 50.0019, 50.0021):
            turns.append(await turns_during(waiters.pause(delivering=True)))
        assert turns == [1, 0, 1, 0, 1]

    run(story)


def test_a_task_that_polls_repeatedly_without_records_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The task sleeps for MAX_HOG_S, so that threads get the GIL. A task that gets records does not sleep."""

    async def story(waiters: TaskWaiters) -> None:
        monkeypatch.setattr(module, "MAX_HOG_S", 0.05)
        assert await turns_during(waiters.pause(delivering=False)) == 1
        waiters._pause_at = time.monotonic()
        assert await turns_during(waiters.pause(delivering=True)) == 1
        began = waiters._pause_at = time.monotonic()
        await waiters.pause(delivering=False)
        assert time.monotonic() - began >= 0.04
        # More than MAX_HOG_S has passed since the last pause, so this pause is one turn of the event loop.
        waiters._pause_at = time.monotonic() - 1
        assert await turns_during(waiters.pause(delivering=False)) == 1

    run(story)


def test_the_calling_task_is_none_outside_of_an_event_loop() -> None:
    async def story(waiters: TaskWaiters) -> None:
        assert current_task() is asyncio.current_task()

    run(story)
    assert current_task() is None
