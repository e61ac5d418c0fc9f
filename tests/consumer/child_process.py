"""Runs calls in a forked child process."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import Any


def result_in_child(act: Callable[[], Any], seconds: float = 60) -> str:
    """Call `act` in a forked child process, and return its result or its exception as text."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            try:
                text = f"returned {act()!r}"
            except BaseException as error:
                text = f"{type(error).__name__}: {error}"
            os.write(write, text.encode())
        finally:
            os._exit(0)
    os.close(write)
    end = time.monotonic() + seconds
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        if time.monotonic() > end:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return "hung"
        time.sleep(0.01)
    with os.fdopen(read, "rb") as pipe:
        return pipe.read().decode()
