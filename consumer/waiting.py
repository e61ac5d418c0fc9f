"""How clients wait: what each kind of them says by itself, so that all else is written once.

`blocking.waiting` says it for threads, `aio.waiting` for tasks. Who waits reads `_changes`, looks at what he
waits for, and waits until it is another number: so he misses nothing that happens in between.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .calls import spell, waits


class Waiting:
    """A client for threads, or for asyncio."""

    # Raised by one whenever a waiter may find something new.
    _changes = 0
    # Records are on their way out of a method: who is interrupted there takes them back.
    _handing = False

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if cls._spelled is not Waiting._spelled:
            spell(cls, cls._spelled)

    @staticmethod
    def _spelled(name: str, method: waits[Any, Any], door: Callable[..., Any]) -> Callable[..., Any]:
        """The function that stands for a method which waits."""
        raise NotImplementedError

    def _enter(self, name: str, *, waits: bool, serves: bool) -> bool:
        """Raises IllegalState when the method may not be called now; else `_leave` gets the answer."""
        raise NotImplementedError

    def _leave(self, entered: bool) -> None:
        raise NotImplementedError

    def _take_back(self) -> None:
        """What was on its way out never came to the caller."""

    async def _wait(self, seen: int, deadline: int) -> bool:
        """Waits until `_changes` is not `seen` any more; False when it is `deadline`."""
        raise NotImplementedError

    def _me(self) -> object:
        """Who calls: a thread, or a task."""
        raise NotImplementedError

    async def _breathe(self) -> None:
        """Lets others have their turn."""
        raise NotImplementedError

    def _locked(self) -> AbstractContextManager[Any]:
        """Nothing of the engine changes in here."""
        raise NotImplementedError

    def _change(self) -> None:
        self._changes += 1
        self._notify()

    def _notify(self) -> None:
        """`_changes` is another number now."""
        raise NotImplementedError
