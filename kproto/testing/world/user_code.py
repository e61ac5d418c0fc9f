"""What code of the user's returned: nobody awaits it here, and nobody looks at what a claim returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ...errors import ConfigError

T = TypeVar("T")


def reject_awaitable(option: str, code: object, answer: T) -> T:
    """The answer of `code`. Raises ConfigError for one to be awaited: nothing of it has run."""
    if answer is None or not (inspect.isawaitable(answer) or inspect.isasyncgen(answer)):
        return answer
    close: Any = getattr(answer, "close", None)
    if close is not None:
        close()
    raise ConfigError(option, code, "no coroutine function: nobody awaits what it returns")


def check_invariant(claim: Callable[[Any], object], world: object) -> None:
    """Look at a claim. Raises ConfigError for one that says by its answer whether it holds."""
    if reject_awaitable("invariant", claim, claim(world)) is False:
        allowed = "a function that raises where it doesn't hold; it returned False"
        raise ConfigError("invariant", claim, allowed)
