"""With `call_in_thread`, an event loop can end while a call is still blocked in its thread."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from consumer.schema_registry.subjects import RequestedOnce
from consumer.security.kerberos import Kerberos, KerberosSource
from consumer.security.tokens import TokenSource
from consumer.thread_calls import call_in_thread

SECONDS = 60.0


class _SilentKdc:
    """Replaces `Kerberos`, which needs the package gssapi. `login` calls `wait`."""

    def __init__(self, wait: Callable[..., Any]) -> None:
        self.login = wait


CALLS: dict[str, Callable[[Callable[..., Any]], Awaitable[Any]]] = {
    "a token": lambda wait: TokenSource(lambda: wait()).awaited(),
    "a Kerberos ticket": lambda wait: KerberosSource(cast("Kerberos", _SilentKdc(wait)), "h").awaited(),
    "a schema": lambda wait: RequestedOnce[int, Any](wait).get_async(1),
}


def test_a_call_that_raises_stop_iteration_is_an_error() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=r"name: the call raised StopIteration\(\)"):
            await asyncio.wait_for(call_in_thread(lambda: next(iter(())), "name"), 10)

    asyncio.run(main())


@pytest.mark.parametrize("request_of", CALLS.values(), ids=CALLS)
def test_a_loop_ends_while_a_server_does_not_answer(
    request_of: Callable[[Callable[..., Any]], Awaitable[Any]],
) -> None:
    released, threads = threading.Event(), list[threading.Thread]()

    def wait(*arguments: object) -> str:
        threads.append(threading.current_thread())
        released.wait(SECONDS)
        return "x"

    async def main() -> None:
        waiting = asyncio.ensure_future(request_of(wait))
        while not threads:
            await asyncio.sleep(0.001)
        waiting.cancel()
        await asyncio.wait([waiting])

    asyncio.run(main())
    try:
        assert threads[0].is_alive()
    finally:
        released.set()
        threads[0].join()


def test_the_errors_of_the_function_are_raised() -> None:
    def fails() -> None:
        raise LookupError("no ticket")

    with pytest.raises(LookupError, match="no ticket"):
        asyncio.run(call_in_thread(fails, "test"))


_AFTER_MAIN = """\
import asyncio, threading
from consumer.thread_calls import call_in_thread

def work():
    threading.main_thread().join()
    print(asyncio.run(call_in_thread(lambda: "called", "test")), flush=True)

threading.Thread(target=work).start()
"""


def test_a_loop_calls_functions_after_the_main_thread_has_ended() -> None:
    command = [sys.executable, "-c", _AFTER_MAIN]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.stdout == "called\n", done.stderr
