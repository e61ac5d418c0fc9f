"""Check the error that one of two threads gets when both use one object at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ..errors import KprotoError


def first_error(long: Callable[[], object], short: Callable[[], object], end: Callable[[], object]) -> str:
    """Call `short` repeatedly while another thread is in `long`; return the error message of either.

    The result is empty if both succeed each time until `long` returns. At the end `end` is called from this
    thread; it must make `long` return.
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
    errors_before_end = list(long_errors)  # Errors from here on come from `end`.
    end()
    thread.join(30)
    return short_error or (errors_before_end[0] if errors_before_end else "")
