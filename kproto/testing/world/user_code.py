"""Checks of the values that user code returns.

A world does not await the result of a user's function, so awaitable results are rejected. A world ignores the
result of an invariant, so an invariant that returns False is rejected.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ...errors import ConfigError

T = TypeVar("T")


def reject_awaitable(option: str, code: object, result: T) -> T:
    """Return `result`, the value that the function `code` returned.

    Raises ConfigError if the result is awaitable, because nothing would await it.
    """
    if result is None or not (inspect.isawaitable(result) or inspect.isasyncgen(result)):
        return result
    close: Any = getattr(result, "close", None)
    if close is not None:
        close()
    raise ConfigError(option, code, "a function that is not async: nothing awaits its result")


def check_invariant(invariant: Callable[[Any], object], world: object) -> None:
    """Check an invariant. Raises ConfigError if the invariant returns False instead of raising."""
    if reject_awaitable("invariant", invariant, invariant(world)) is False:
        allowed = "a function that raises if the invariant is broken; this one returned False"
        raise ConfigError("invariant", invariant, allowed)
