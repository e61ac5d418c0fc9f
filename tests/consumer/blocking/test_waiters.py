"""A change wakes all threads that wait for it, and a wait ends at its deadline."""

from __future__ import annotations

import threading
import time

from consumer import clock
from consumer.blocking.waiters import ThreadWaiters

SOON = 60_000


def waiting_threads(waiters: ThreadWaiters, count: int, results: list[bool]) -> list[threading.Thread]:
    """Start `count` threads that wait for a change, and return them as soon as all are waiting."""
    threads = [
        threading.Thread(target=lambda: results.append(waiters.wait(0, clock.now() + SOON)))
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 30
    while len(waiters._locks) < count and time.monotonic() < deadline:
        time.sleep(0.001)
    return threads


def test_a_wait_for_an_earlier_change_ends_at_once() -> None:
    waiters = ThreadWaiters()
    waiters.notify()
    assert waiters.wait(0, clock.now() - 1)
    assert not waiters.wait(1, clock.now() - 1)
    assert not waiters


def test_one_change_wakes_all_waiting_threads() -> None:
    waiters, results = ThreadWaiters(), list[bool]()
    threads = waiting_threads(waiters, 3, results)
    assert waiters
    waiters.notify()
    for thread in threads:
        thread.join(30)
    assert results == [True] * 3
    assert waiters.changes == 1
    assert not waiters


def test_a_wait_ends_at_its_deadline() -> None:
    waiters, began = ThreadWaiters(), time.monotonic()
    assert not waiters.wait(0, clock.now() + 30)
    assert time.monotonic() - began >= 0.02
    assert not waiters


def test_a_waiting_thread_may_read_the_sockets_until_a_change_or_the_deadline() -> None:
    waiters, calls = ThreadWaiters(), list[tuple[int, float]]()

    def poll(last_change: int, seconds: float) -> bool:
        calls.append((last_change, seconds))
        if len(calls) == 3:
            waiters.notify()
        return True

    assert waiters.wait(0, clock.now() + SOON, poll)
    assert [last_change for last_change, _ in calls] == [0, 0, 0]
    assert all(SOON / 1_000 - 30 < seconds <= SOON / 1_000 for _, seconds in calls)


def test_a_thread_waits_without_reading_while_another_thread_reads() -> None:
    waiters, calls = ThreadWaiters(), list[float]()

    def poll(last_change: int, seconds: float) -> bool:
        calls.append(seconds)
        return False

    assert not waiters.wait(0, clock.now() + 20, poll)
    assert 1 <= len(calls) <= 3  # The thread waits for the lock in one call, without polling.


def test_after_a_fork_no_thread_waits_and_the_lock_is_free() -> None:
    waiters, results = ThreadWaiters(), list[bool]()
    (thread,) = waiting_threads(waiters, 1, results)
    parents = set(waiters._locks)
    waiters.lock.acquire()
    waiters.reset()
    assert not waiters
    assert waiters.lock.acquire(blocking=False)
    waiters.changes += 1
    for lock in parents:
        lock.release()
    thread.join(30)
    assert results == [True]
