"""Find the error that an object raises if two threads call it at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import KprotoError


def first_error(long: Callable[[], object], short: Callable[[], object], end: Callable[[], object]) -> str:
    """Run `long` and `short` concurrently; return the error of a failed call, or "" if none.

    Another thread calls `long`, and the calling thread calls `short` repeatedly until `short` fails or `long`
    returns. Then the calling thread calls `end`, which must make `long` return. Errors that `end` causes are
    ignored: the result is "" if no call failed before `end`. If both calls failed, the result is the error of
    `short`.
    """
    long_errors: list[str] = []

    def call_long() -> None:
        try:
            long()
        except KprotoError as error:
            long_errors.append(str(error))

    thread = threading.Thread(target=call_long, daemon=True)
    thread.start()
    short_error = ""
    while thread.is_alive() and not short_error:
        try:
            short()
        except KprotoError as error:
            short_error = str(error)
    errors_before_end = list(long_errors)  # Errors after this line are caused by `end`.
    end()
    thread.join(30)
    return short_error or (errors_before_end[0] if errors_before_end else "")
