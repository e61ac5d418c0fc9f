"""Runs blocking functions in separate threads, for asyncio clients.

The loop's executor is not used, for two reasons. When the loop shuts down, it waits for the executor's
threads, even if a function never returns. After the main thread has ended, the executor accepts no work,
although a loop in another thread may still run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import copy_context
from typing import TypeVar, cast

from .serializers import close_coroutine

T = TypeVar("T")


async def call_in_thread(call: Callable[[], T], name: str) -> T:
    """Return the result of `call`, which runs in a thread with this name.

    If the event loop is closed while the thread is still running, the thread drops the call's result.

    Raises the errors of `call`. Raises RuntimeError if the system cannot start another thread, or if `call`
    raises StopIteration.
    """
    import asyncio  # Imported here, because blocking clients do not need asyncio.

    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def complete_future(result: T | None, error: BaseException | None) -> None:
        if future.done():  # The task that awaits it was cancelled.
            close_coroutine(result)
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run_call() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = call()
        # A future cannot hold StopIteration: the task that waits would never continue.
        except StopIteration as error:
            failure = RuntimeError(f"{name}: the call raised {error!r}")
        except BaseException as error:
            failure = error
        # A RuntimeError means that the loop is closed, so no task waits for the result.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(complete_future, result, failure)

    threading.Thread(target=copy_context().run, args=(run_call,), name=name, daemon=True).start()
    return await future
