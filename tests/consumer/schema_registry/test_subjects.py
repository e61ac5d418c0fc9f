"""`RequestedOnce`: tasks that need the same schema at the same time share one request."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading

import pytest

from consumer.schema_registry.subjects import RequestedOnce

SECONDS = 60.0


def test_the_tasks_of_a_loop_share_a_request() -> None:
    calls, released = list[int](), threading.Event()

    def request(key: int) -> str:
        calls.append(key)
        assert released.wait(SECONDS)
        return "schema"

    async def main() -> list[str]:
        results = RequestedOnce(request)
        tasks = [asyncio.create_task(results.get_async(1)) for _ in range(20)]
        while not calls:
            await asyncio.sleep(0.001)
        tasks.pop(0).cancel()  # The other tasks must get the result even if the first task is cancelled.
        released.set()
        return [*await asyncio.gather(*tasks), await results.get_async(1), results.get(1)]

    assert asyncio.run(main()) == ["schema"] * 21
    assert calls == [1]


def test_an_error_is_raised_in_all_tasks_and_not_kept() -> None:
    answers = iter([LookupError("down"), "schema"])

    def request(key: int) -> str:
        answer = next(answers)
        if isinstance(answer, LookupError):
            raise answer
        return answer

    results = RequestedOnce(request)

    async def main() -> None:
        tasks = [asyncio.create_task(results.get_async(1)) for _ in range(3)]
        await asyncio.wait(tasks)
        for task in tasks:
            with pytest.raises(LookupError, match="down"):
                task.result()

    asyncio.run(main())
    assert asyncio.run(results.get_async(1)) == "schema"


def test_an_error_that_no_task_waits_for_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    began, released, ended = threading.Event(), threading.Event(), threading.Event()

    def request(key: int) -> str:
        began.set()
        released.wait(SECONDS)
        ended.set()
        raise LookupError

    async def main() -> None:
        task = asyncio.create_task(RequestedOnce(request).get_async(1))
        while not began.is_set():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        released.set()
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
        gc.collect()
    assert ended.is_set()
    assert not caplog.records
