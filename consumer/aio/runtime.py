"""How a task waits: the engine runs in the event loop, whenever the loop runs.

Code that blocks the loop blocks heartbeats and fetches too. Callbacks may be coroutines: each is a task of
its own, which runs to its end even when the call that began it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import weakref
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from kproto.errors import IllegalState

from .. import lifecycle
from ..clock import now
from ..engine import events as ev
from ..engine.network.transport import NetworkAction, NetworkEvent
from ..logs import log
from ..runtime import ENDS, Shell
from .streams import Streams
from .waiting import InTasks


class Looped(InTasks, Shell):
    """A client whose methods are awaited. It belongs to the event loop in which it is first used."""

    def __init__(
        self, step: Callable[[ev.Event, int], list[ev.Action]], due: Callable[[], int | None], client_id: str
    ) -> None:
        super().__init__(step, due, client_id)
        # Neither those nor the timer hold the client: one that is dropped without close() is gone.
        self._weak: weakref.ref[Looped] = weakref.ref(self)
        self._streams = Streams(partial(_told, self._weak))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._nobody_waits()
        # The task that is inside a method which runs callbacks, and that method's name.
        self._server: tuple[asyncio.Task[Any] | None, str] | None = None
        self._callback: asyncio.Task[None] | None = None
        lifecycle.opened(self)

    # ---- the loop's side

    def _happened(self, event: NetworkEvent | ev.Tick) -> None:
        if self._finished or self._forked or self._crash is not None:
            return
        try:
            with contextlib.suppress(IllegalState):  # it failed: who waits has been told
                self._feed((event,))
        except BaseException as error:  # the loop's to hear; and the engine is divided in the middle
            self._failed(error)
            raise
        finally:
            self._schedule()
            self._tell_others()

    def _schedule(self) -> None:
        due = None if self._finished or self._crash is not None else self._due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None and self._loop is not None:
            self._timer = self._loop.call_later(max(0, due - now()) / 1000, _tick, self._weak)

    def __del__(self) -> None:
        loop = getattr(self, "_loop", None)
        if loop is None or self._finished or self._forked:
            return
        lifecycle.ended(self)
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            loop.call_soon_threadsafe(abandon, self._streams, self._timer)
        if lost := self._lost():
            # A record keeps what it is given.
            log.warning("%s was dropped without close()%s", str(self), lost)

    # ---- what tasks do

    def _do(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        self._usable()
        try:
            return self._feed(events, last)
        finally:
            self._schedule()
            self._tell_others()

    async def _result(self, future: asyncio.Future[Any]) -> Any:
        return await future

    async def _called_back(self, until: int | None = None) -> bool:
        callback = self._callback
        if callback is None:
            return True
        await asyncio.wait([callback], timeout=None if until is None else max(0, until - now()) / 1000)
        # Who began it may be cancelled by now; what it raises belongs to the next one who looks.
        if not callback.done():
            return False
        if self._callback is callback:
            self._callback = None
        if callback.cancelled():  # which is no end of whoever looks
            raise IllegalState(f"{callback.get_name()} was cancelled before its end")
        callback.result()
        return True

    async def _finish(self, answer: Awaitable[Any], then: Callable[[], None], until: int | None) -> None:
        name = self._caller() or "a callback"

        async def finish() -> None:
            with self._calling_back(name):
                await answer

        def over(task: asyncio.Task[None]) -> None:
            if inspect.iscoroutine(answer):
                answer.close()  # of a task that was cancelled before it began
            then()

        self._callback = asyncio.get_running_loop().create_task(finish(), name=name)
        self._callback.add_done_callback(over)
        await self._called_back(until)

    def _future(self) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._open.add(future)
        return future

    def _resolve(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        if future.done() or future.get_loop().is_closed():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(value)

    def _perform(self, action: NetworkAction) -> None:
        self._streams.perform(action)

    # ---- who may call when

    def _enter(self, name: str, *, waits: bool, serves: bool) -> bool:
        if self._forked and name in ENDS:
            return False
        self._may_look()
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise IllegalState(
                f"{name}() needs the running event loop: call it from a coroutine, or use the blocking client"
            ) from None
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise IllegalState(
                f"this {self._what} belongs to another event loop, the one it was first used in; "
                "make one for each loop"
            )
        if not serves:
            return False
        if (caller := self._caller()) is not None:
            raise IllegalState(f"{name}() can't be awaited inside {caller}; return from that first")
        if self._server is not None:
            if name in ENDS:
                return False
            raise IllegalState(
                f"another task is inside {self._server[1]}() of this {self._what}; one at a time may wait "
                "for records"
            )
        self._server = (asyncio.current_task(), name)
        return True

    def _leave(self, entered: bool) -> None:
        if entered:
            self._server = None

    def _mine(self) -> bool:
        return self._server is None or self._server[0] is asyncio.current_task()

    # ---- the end

    def _failed(self, error: BaseException) -> None:
        super()._failed(error)
        self._streams.close(abort=True)

    def _end(self, deadline: int = 0, *, abort: bool = False) -> None:
        self._finished = True
        lifecycle.ended(self)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._streams.close(abort=abort)
        self._end_futures(IllegalState(f"this {self._what} was closed meanwhile"))
        self._change()
        self._tell_others()

    def kill(self) -> None:
        """Drops everything as if the process had died: no commit, no goodbye. For tests and demos."""
        if not self._forked:
            self._end(abort=True)


def _told(client: weakref.ref[Looped], event: NetworkEvent) -> None:
    if (looped := client()) is not None:
        looped._happened(event)  # pyright: ignore[reportPrivateUsage]


def _tick(client: weakref.ref[Looped]) -> None:
    if (looped := client()) is not None:
        looped._timer = looped._timer_at = None  # pyright: ignore[reportPrivateUsage]
        looped._happened(ev.Tick())  # pyright: ignore[reportPrivateUsage]


def abandon(streams: Streams, timer: asyncio.TimerHandle | None) -> None:
    """Nobody has the client any more."""
    if timer is not None:
        timer.cancel()
    streams.close(abort=True)
