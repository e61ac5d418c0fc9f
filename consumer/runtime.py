"""What every client is around its engine, however it waits: where actions go, and what may be called when.

Rules that hold here:

* The application's code (callbacks, what hangs on futures, handlers of logs) runs outside of every lock, and
  what it raises is logged or raised to the caller; it never stops anything else.
* Every future that was given out ends: answered, failed, or with the reason why nothing can answer it any
  more.
* An exception that comes out of the engine and is none of ours is a bug: the client has failed, everybody who
  waits is told, and `close` still works. So is what is more than an Exception, where no call of the
  application hears of it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import starmap
from typing import Any, TypeVar

from kproto.errors import IllegalState, KprotoError

from . import lifecycle
from .clock import now
from .engine import events as ev
from .engine.network.transport import GetToken, NetworkAction, Open, Shut, Write
from .logs import log
from .records import GroupChange
from .waiting import Waiting

R = TypeVar("R")
T = TypeVar("T")

# Reports that somebody should see without having asked for them.
WARNED = ("lost", "missing", "refused", "throttled", "truncated", "uncommitted", "unreachable", "unsought")

# What may be called while another thread or task is inside a method, which ends with IllegalState then, and
# what does nothing, and needs no permission, in the child of a fork: the client is the parent's.
ENDS = ("close", "leave_block")

# The callbacks in which this thread or task is. A task has those of the one that began it: a callback that
# waits for a task of its own would wait for itself, too.
_inside: ContextVar[tuple[object, ...]] = ContextVar("kproto_callbacks", default=())


class Shell(Waiting, lifecycle.OfThisProcess):
    """An engine, and who waits for it. `Threaded` and `Looped` say how to wait."""

    # What the client is called in errors.
    _what = "client"
    # One thread at a time may use it.
    _alone = False

    def __init__(
        self, step: Callable[[ev.Event, int], list[ev.Action]], due: Callable[[], int | None], client_id: str
    ) -> None:
        self._step = step
        self._due = due
        self._client_id = client_id
        self._open: set[Any] = set()  # futures that have to end
        self._ended: deque[ev.Done] = deque()
        self._noted: deque[GroupChange] = deque()
        self._in_callback: dict[object, str] = {}  # the callbacks that are under way
        self._finished = False
        self._forked = False
        self._crash: BaseException | None = None
        self._untold: BaseException | None = None
        # What the application is to be called for, and to hear, until it is: Ctrl-C may come before that.
        self._to_call: ev.CallListener | None = None
        self._to_raise: KprotoError | None = None

    # ---- how to wait: each kind of shell has its own

    def _do(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        """Tells the engine, sees to what it wants, and returns what is for the caller; tells it `last`, too,
        when there are records to return."""
        raise NotImplementedError

    async def _result(self, future: Any) -> Any:
        """Waits until a future has ended."""
        raise NotImplementedError

    async def _finish(self, answer: Awaitable[Any], then: Callable[[], None], until: int | None) -> None:
        """Waits for what a callback returned, then calls `then`, whatever became of the caller."""
        raise NotImplementedError

    async def _called_back(self, until: int | None = None) -> bool:
        """Waits for the callback that is under way, until that moment at most; raises what it raised. False:
        it still is."""
        return True

    def _future(self) -> Any:
        """A future that `_do` may be given as a token."""
        raise NotImplementedError

    def _resolve(self, future: Any, value: Any, error: BaseException | None) -> None:
        raise NotImplementedError

    def _perform(self, action: NetworkAction) -> None:
        raise NotImplementedError

    def _mine(self) -> bool:
        """False when somebody else is inside a method: only `close` and callbacks of futures ask."""
        raise NotImplementedError

    def _end(self, deadline: int = 0) -> None:
        """Closes everything at once."""
        raise NotImplementedError

    # ---- what is the same

    @contextmanager
    def _calling_back(self, name: str) -> Generator[None, None, None]:
        """The application's code runs in here: what would wait for it is refused."""
        one, before = object(), _inside.get()
        try:
            self._in_callback[one] = name
            _inside.set((*before, one))
            yield
        finally:
            _inside.set(before)
            self._in_callback.pop(one, None)

    def _caller(self) -> str | None:
        """The callback in which this thread or task is, or that began this task; None for neither."""
        if not self._in_callback:
            return None
        inside = _inside.get()
        return next((name for one, name in list(self._in_callback.items()) if one in inside), None)

    def _may_look(self) -> None:
        if self._forked:
            raise IllegalState(
                f"this {self._what} was opened before the process forked and belongs to the parent; "
                "make a new one in the child"
            )

    def _usable(self) -> None:
        self._may_look()
        if self._finished:
            raise IllegalState(f"this {self._what} is closed; make a new one")
        if self._crash is not None:
            raise self._failure() from self._crash

    def _failure(self) -> IllegalState:
        return IllegalState(f"this {self._what} failed ({self._crash!r}): close it, and make a new one")

    def _feed(self, events: tuple[ev.Event, ...], last: ev.Event | None = None) -> list[ev.Action]:
        """Lets the events happen, and puts each action where it belongs; returns those for the caller."""
        rest: list[ev.Action] = []
        try:
            for event in events:
                actions = iter(self._step(event, now()))
                try:
                    self._sort(actions, rest)
                except BaseException:  # Ctrl-C: a request that isn't written would never be answered
                    self._sort(actions, [])
                    raise
        except KprotoError:
            raise
        except Exception as error:
            self._failed(error)
            raise self._failure() from error
        if last is not None and any(isinstance(action, ev.Deliver) for action in rest):
            rest += self._feed((last,))
        return rest

    def _sort(self, actions: Iterator[ev.Action], rest: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self._perform(action)
                case ev.Wake():
                    self._change()
                case ev.Done():
                    self._ended.append(action)
                    self._change()
                case ev.Report(change=change):
                    self._noted.append(change)
                case ev.CallListener():
                    self._to_call = action
                case ev.Raise(error=error):
                    self._to_raise = error
                case _:
                    rest.append(action)

    def _failed(self, error: BaseException) -> None:
        """The engine is in no state to go on; everybody who waits must know."""
        if self._crash is None:
            self._crash = error
            self._untold = error
        self._change()
        self._end_futures(self._failure())

    def _end_futures(self, error: KprotoError) -> None:
        for future in list(self._open):
            self._ended.append(ev.Done(future, None, error))

    def _tell_others(self) -> None:
        """Logs, and ends futures: nothing may be locked, as all of that may call the client."""
        try:
            if self._untold is not None:
                error, self._untold = self._untold, None
                log.critical("the %s %r failed", self._what, self._client_id, exc_info=error)
            _each(self._noted, self._note)
        finally:  # whatever a handler of logs raises
            _each(self._ended, self._tell_its_end)

    def _tell_its_end(self, done: ev.Done) -> None:
        if done.token in self._open:
            self._resolve(done.token, done.value, done.error)
            self._open.discard(done.token)

    def _note(self, change: GroupChange) -> None:
        # A position that is given up may cost records.
        costs = change.kind in WARNED or change.before is not None
        facts = [
            *([f"from {change.before}"] if change.before is not None else []),
            *([f"to {change.offset}:"] if change.offset is not None else []),
            change.reason,
        ]
        log.log(
            logging.WARNING if costs else logging.INFO,
            "%s %s %sgeneration=%d %s %s",
            self._client_id,
            change.kind,
            self._who(change),
            change.generation,
            " ".join(map(str, change.partitions)),
            " ".join(facts),
        )

    def _who(self, change: GroupChange) -> str:
        """Which of the clients with this id it is, for lines of logs."""
        return ""

    def _begin(self, event: Callable[[Any], ev.Event]) -> Any:
        """Lets the engine do something that ends in the future that is returned."""
        future = self._future()
        try:
            self._do(event(future))
        except BaseException:  # nobody is given it, nor hears of its end
            self._open.discard(future)
            raise
        return future

    async def _ask(self, event: Callable[[Any], ev.Event]) -> Any:
        """Lets the engine do something that ends in a future, and waits for that."""
        future = self._future()
        try:
            self._do(event(future))
            return await self._result(future)
        except BaseException:
            self._open.discard(future)
            if not self._finished and self._crash is None:
                self._do(ev.Drop(future))
            raise

    # ---- for lifetimes

    def _in_the_child(self) -> None:
        self._forked = True

    def _at_the_end(self) -> str:
        said = f"{self} was not closed before the process ended{lost}" if (lost := self._lost()) else ""
        self.kill()
        return said

    def _lost(self) -> str:
        """What is lost when it ends now, without close(): the end of a sentence, "" for nothing."""
        return ""

    def __str__(self) -> str:
        return f"the {self._what} {self._client_id!r}"

    def __repr__(self) -> str:
        about = [*self._about(), *(["closed"] if self._finished else [])]
        return f"<{type(self).__name__} {self._client_id!r}{': ' if about else ''}{', '.join(about)}>"

    def _about(self) -> list[str]:
        """What else its repr says. No lock is taken in here: a debugger may ask at any moment."""
        return []

    def kill(self) -> None:
        raise NotImplementedError


def _each(queue: deque[T], do: Callable[[T], None]) -> None:
    """With everything that is in there, each by one thread only."""
    while queue:
        taken: list[T] = []
        try:
            with suppress(IndexError):  # another thread may have taken the last
                # One call, which Ctrl-C can't divide.
                taken.extend(starmap(queue.popleft, ((),)))
            for one in taken:
                do(one)
        except Exception:
            raise
        except BaseException:  # Ctrl-C: the next one who looks does it
            queue.extendleft(taken)
            raise
