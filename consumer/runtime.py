"""The runtime of a consumer or admin client: applies events to the engine, and routes the engine's actions.

The runtime also rejects calls that are not allowed. Examples are calls of a closed client, and calls in a
callback that would wait for this callback.

This module contains the code that threads and asyncio share. `blocking.runtime` and `aio.runtime` implement
waiting and sending for each of the two.

Rules:

* Application code (callbacks, including those of futures, and log handlers) runs without a lock. Its
  exceptions do not stop the client. `poll` raises the exceptions of rebalance callbacks. Exceptions
  in callbacks of futures and of `events` are logged.

* Every future that a client returns completes with a result or an error.

* If the engine raises an exception other than `KprotoError`, this is a bug, and the client has failed:
  waiting calls raise an error, and `close` still works. The engine's thread and the event loop have no
  caller that could receive an exception. There, the client fails after any BaseException.

* A runtime refers to its driver, but the driver has no direct or indirect reference to the runtime. So a
  client that is abandoned without `close` is freed immediately, without the garbage collector.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from itertools import starmap
from typing import Any, Final, Protocol, TypeVar

import msgspec

from kproto.errors import IllegalState, KprotoError

from .clock import now
from .engine import events as ev
from .engine.network.transport import GetToken, NetworkAction, Open, Shut, Write
from .logs import log
from .records import GroupChange

R = TypeVar("R")
T = TypeVar("T")

# While a thread or task is inside a method of the client, another may call `close`. The interrupted method
# then raises IllegalState. In the child of a fork, `close` does nothing, because the client belongs
# to the parent.
CLOSE: Final = "close"

# The context manager of a call that does not need to exclude other calls.
NO_CLAIM: Final[AbstractContextManager[None]] = nullcontext()

# The tokens of the callbacks in which the current thread or task runs. A task inherits this value from the
# task that started it. So a call that would wait for a callback is also rejected in the tasks that this
# callback started, because the callback may be waiting for them.
_callbacks: ContextVar[tuple[object, ...]] = ContextVar("kproto_callbacks", default=())


class Driver(Protocol):
    """What the runtime requires of an engine and its client."""

    @property
    def kind(self) -> str:
        """The kind of client, as errors name it: "consumer" or "admin client"."""
        ...

    @property
    def client_id(self) -> str: ...

    def step(self, event: ev.Event, at: int, /) -> list[ev.Action]: ...

    def due(self) -> int | None:
        """The time (ms, of `clock.now`) at which the engine needs the next `Tick`; None if it needs none."""
        ...

    def on_applied(self) -> None:
        """The runtime calls this method after it has applied events, even if one of them raised an error."""

    def on_report(self, change: GroupChange) -> None:
        """Log a change of the client's membership or state, and queue it for the callbacks."""

    def on_reports_end(self) -> None:
        """The runtime calls this method when all pending reports have been passed to `on_report`."""

    def on_fork(self) -> None:
        """Handle a fork in the child process, where the client cannot be used. Take no lock."""

    def loss(self) -> str:
        """Return the part of a log message that says what is lost without `close`; "" if nothing is lost."""
        ...


class Waiters(Protocol):
    """A client's calls that wait for a change."""

    @property
    def changes(self) -> int:
        """A counter that increases when waiting calls have to check their conditions again."""
        ...

    def notify(self) -> None:
        """Increase `changes`, and wake the waiting calls."""
        ...


class RunningCallback(msgspec.Struct, frozen=True):
    """A running callback of the application.

    If `calls` is false, the callback must not call methods that change the state of the client.
    """

    name: str
    calls: bool


class Runtime:
    """An engine, and the calls that wait for it.

    A waiting call reads `changes`, checks its condition, and waits until `changes` differs from the value
    read. So the call misses no change between the check and the wait.
    """

    # Whether a callback may return an awaitable.
    awaits_callbacks = False

    def __init__(self, driver: Driver, waiters: Waiters, *, exclusive: bool = False) -> None:
        self.driver = driver
        self._waiters = waiters
        self.exclusive = exclusive  # Whether only one thread or task at a time may use the client.
        self.closed = False
        self.forked = False
        self.failure: BaseException | None = None
        # Events of calls that a signal may have interrupted. The engine must apply them before any other
        # event.
        self.owed: deque[ev.Event] = deque()
        # The callback that a poll has to call, and the error that a poll has to raise. If Ctrl-C ends a poll
        # before the poll has called or raised them, the next poll calls the callback, or raises the error.
        self.listener_call: ev.CallListener | None = None
        self.poll_error: KprotoError | None = None
        # The calling thread or task, and the records that it is about to receive. If its call is interrupted,
        # the engine keeps the records for the next poll. None while no call is about to return records.
        self.delivering: tuple[object, object] | None = None
        # Whether `wakeup` was called and has not ended a poll yet.
        self.woken = False
        self._open_futures: set[Any] = set()  # The futures that have not completed yet.
        self._completed: deque[ev.Done] = deque()
        self._reports: deque[GroupChange] = deque()
        # Maps the token of each running callback, as in `_callbacks`, to the callback. Outer callbacks come
        # first.
        self._running_callbacks: dict[object, RunningCallback] = {}
        self._unlogged_failure: BaseException | None = None

    # ---- how to wait: blocking or asyncio

    @property
    def changes(self) -> int:
        """A counter that increases when waiting calls have to check their conditions again."""
        return self._waiters.changes

    def notify(self) -> None:
        """Wake the waiting calls, so that they check their conditions again."""
        self._waiters.notify()

    def wakeup(self) -> None:
        """End the running poll, or the next poll if none is running.

        Any thread and any signal handler may call this method.
        """
        with self.locked():
            self.woken = True
            self.notify()

    async def wait(self, last_change: int, deadline: int) -> bool:
        """Wait until `changes` differs from `last_change`.

        Return False if `deadline` (ms) is reached first.
        """
        raise NotImplementedError

    async def pause(self) -> None:
        """Let other tasks run."""
        raise NotImplementedError

    def caller(self) -> object:
        """Return the calling thread or task."""
        raise NotImplementedError

    def locked(self) -> AbstractContextManager[Any]:
        """Return a context manager that locks the engine."""
        raise NotImplementedError

    def apply(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        """Apply events to the engine, and perform the actions that the engine returns.

        A `Deliver` is not performed but returned, because only the calling poll can return records.

        If the actions include a `Deliver`, the event `last` (such as `PollEnded`) is applied after `events`.
        """
        raise NotImplementedError

    async def result(self, future: Any) -> Any:
        """Wait for a future, and return its result."""
        raise NotImplementedError

    async def finish_callback(
        self, answer: Awaitable[Any], on_end: Callable[[], None], deadline: int | None
    ) -> None:
        """Wait for an awaitable that a callback of the application returned.

        `on_end` is called when the awaitable has ended, even if the caller is cancelled.
        """
        raise NotImplementedError

    async def callback_finished(self, deadline: int | None = None) -> bool:
        """Wait until the running callback has ended; return True at once if no callback runs.

        If the callback raised an exception, raise the exception. Return False if the callback is still
        running at `deadline` (ms).
        """
        return True

    def call(self, method: str, *, waits: bool = True, serves: bool = False) -> AbstractContextManager[None]:
        """Return a context manager for a call of `method`. Raise IllegalState if the call is not allowed now.

        If `waits` is true, the method may wait. If `serves` is true, the method runs the application's
        callbacks, and cannot be called in a callback.
        """
        raise NotImplementedError

    def is_callers(self) -> bool:
        """Return whether no other thread or task holds the exclusive right to use the client."""
        raise NotImplementedError

    def end(self, deadline: int = 0) -> None:
        """Close the client immediately, and fail its open futures. `deadline` (ms) limits blocking waits."""
        raise NotImplementedError

    def kill(self) -> None:
        """Stop without any request, as if the process had died."""
        raise NotImplementedError

    def _new_future(self) -> Any:
        raise NotImplementedError

    def _complete(self, future: Any, value: Any, error: BaseException | None) -> None:
        raise NotImplementedError

    def _perform(self, action: NetworkAction) -> None:
        raise NotImplementedError

    # ---- checks

    def check_process(self) -> None:
        """Raise IllegalState if this process is the child of a fork."""
        if self.forked:
            raise IllegalState(
                f"this {self.driver.kind} was opened before the process forked and belongs to the parent; "
                "make a new one in the child"
            )

    def check_usable(self) -> None:
        """Raise IllegalState if the client was closed, has failed, or belongs to the parent process."""
        if self.forked:
            self.check_process()
        if self.closed:
            raise IllegalState(f"this {self.driver.kind} is closed; make a new one")
        if self.failure is not None:
            raise self._failure_error() from self.failure

    def _failure_error(self) -> IllegalState:
        return IllegalState(
            f"this {self.driver.kind} failed ({self.failure!r}): close it, and make a new one"
        )

    @contextmanager
    def callback(self, name: str, *, calls: bool = True) -> Generator[None, None, None]:
        """Mark the `with` block as running a callback. Calls that would wait for the callback are rejected.

        If `calls` is false, the callback must not call any method that changes the client's state.
        """
        token, outer_tokens = object(), _callbacks.get()
        try:
            self._running_callbacks[token] = RunningCallback(name, calls)
            _callbacks.set((*outer_tokens, token))
            yield
        finally:
            _callbacks.set(outer_tokens)
            self._running_callbacks.pop(token, None)

    def check_callback(self, method: str, *, serves: bool) -> bool:
        """Return whether a callback makes this call. Raise IllegalState if the callback must not make it.

        `serves` says whether `method` itself runs callbacks.
        """
        if not self._running_callbacks or (callback := self._current_callback()) is None:
            return False
        if serves or not callback.calls:
            verb = "awaited" if self.awaits_callbacks and serves else "called"
            raise IllegalState(
                f"{method}() can't be {verb} inside {callback.name}; return from the callback first"
            )
        return True

    def current_callback(self) -> str | None:
        """Return the name of the callback in which this thread or task runs; None outside of callbacks.

        A task that a callback has started counts as part of the callback.
        """
        callback = self._current_callback()
        return None if callback is None else callback.name

    def _current_callback(self) -> RunningCallback | None:
        """Return the outermost callback in which this thread or task runs; None outside of callbacks."""
        tokens, callbacks = _callbacks.get(), list(self._running_callbacks.items())
        return next((callback for token, callback in callbacks if token in tokens), None)

    # ---- the engine

    def _apply_events(self, events: tuple[ev.Event, ...], last: ev.Event | None = None) -> list[ev.Action]:
        """Apply the events in `owed`, then `events`, then `last` if `events` caused a `Deliver`.

        Return the actions that only the caller can perform.
        """
        try:
            while self.owed:
                self._step_engine((self.owed[0],))
                self.owed.popleft()
            actions = self._step_engine(events)
            if last is not None:
                for action in actions:
                    if isinstance(action, ev.Deliver):
                        return actions + self._step_engine((last,))
            return actions
        finally:
            self.driver.on_applied()

    def _step_engine(self, events: tuple[ev.Event, ...]) -> list[ev.Action]:
        """Apply events and perform the engine's actions. Return the actions that only the caller can perform.

        After an exception other than KprotoError, mark the client as failed and raise IllegalState.
        """
        for_caller: list[ev.Action] = []
        try:
            for event in events:
                actions = iter(self.driver.step(event, now()))
                try:
                    self._route_actions(actions, for_caller)
                # Even after Ctrl-C, the remaining actions are performed, because a request that is not
                # written would get no response.
                except BaseException:
                    self._route_actions(actions, [])
                    raise
        except KprotoError:
            raise
        except Exception as error:
            self._fail_client(error)
            raise self._failure_error() from error
        return for_caller

    def _route_actions(self, actions: Iterator[ev.Action], for_caller: list[ev.Action]) -> None:
        """Perform or queue each action. Actions that only the caller can perform go to `for_caller`."""
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self._perform(action)
                case ev.Wake():
                    self.notify()
                case ev.Done():
                    self._completed.append(action)
                    self.notify()
                case ev.Report(change=change):
                    self._reports.append(change)
                case ev.CallListener():
                    self.listener_call = action
                case ev.Raise(error=error):
                    self.poll_error = error
                case _:
                    for_caller.append(action)

    def apply_if_open(self, *events: ev.Event) -> None:
        """Apply events unless the client has ended.

        If Ctrl-C interrupts this method before the events are applied, they stay in `owed`, and are applied
        with the next event.
        """
        self.owed += events
        if not self.closed and self.failure is None and not self.forked:
            # After the condition was checked, the client may have failed, or another thread may have closed
            # it.
            with suppress(IllegalState):
                self.apply()

    def _fail_client(self, error: BaseException) -> None:
        """Mark the client as failed, and fail all waiting calls and open futures."""
        if self.failure is None:
            self.failure = error
            self._unlogged_failure = error
        self.notify()
        self._fail_futures(self._failure_error())

    # ---- futures and reports

    def start(self, event: Callable[[Any], ev.Event]) -> Any:
        """Apply the event that `event` creates for a new future, and return this future."""
        future = self._new_future()
        try:
            self.apply(event(future))
        # The caller receives this exception instead of the future, so the future is no longer tracked.
        except BaseException:
            self._open_futures.discard(future)
            raise
        return future

    async def run(self, event: Callable[[Any], ev.Event]) -> Any:
        """Apply the event that `event` creates for a new future, and return the future's result.

        If the wait is interrupted, the engine cancels the plan of the future.
        """
        future = self._new_future()
        try:
            self.apply(event(future))
            return await self.result(future)
        except BaseException:
            self._open_futures.discard(future)
            if not self.closed and self.failure is None:
                self.apply(ev.Drop(future))
            raise

    def forget(self, future: Any) -> None:
        """Stop tracking a future for which no caller waits any longer."""
        self._open_futures.discard(future)

    def _fail_futures(self, error: KprotoError) -> None:
        """Queue `error` as the result of each open future; `_report_and_complete` completes them."""
        for future in list(self._open_futures):
            self._completed.append(ev.Done(future, None, error))

    def _report_and_complete(self) -> None:
        """Log the client's failure, pass on queued reports, and complete futures whose results are queued.

        The caller must not hold a lock, because log handlers and callbacks may call the client.
        """
        try:
            if self._unlogged_failure is not None:
                error, self._unlogged_failure = self._unlogged_failure, None
                log.critical("the %s %r failed", self.driver.kind, self.driver.client_id, exc_info=error)
            if self._reports:
                _handle_each(self._reports, self.driver.on_report)
                self.driver.on_reports_end()
        finally:  # Futures complete even if a log handler raises an exception.
            if self._completed:
                _handle_each(self._completed, self._complete_if_open)

    def _complete_if_open(self, done: ev.Done) -> None:
        if done.token in self._open_futures:
            self._complete(done.token, done.value, done.error)
            self._open_futures.discard(done.token)

    # ---- fork and exit, see `lifecycle`

    def on_fork(self) -> None:
        """Reject all calls in the child of a fork, because the client belongs to the parent.

        No lock is taken, because a thread of the parent may have held the lock at the fork.
        """
        self.forked = True
        self.driver.on_fork()

    def on_exit(self) -> str:
        """Stop without a request to a broker.

        Return a log message that says what is lost because the client was not closed; "" if nothing is lost.
        """
        loss = self.driver.loss()
        self.kill()
        return f"{self} was not closed before the process ended{loss}" if loss else ""

    def __str__(self) -> str:
        return f"the {self.driver.kind} {self.driver.client_id!r}"


def run_to_end(operation: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine of a blocking runtime to its end. Such a coroutine is never suspended."""
    try:
        operation.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    operation.close()
    raise RuntimeError(f"{operation} was suspended; a coroutine of a blocking runtime must block instead")


def _handle_each(queue: deque[T], handle: Callable[[T], None]) -> None:
    """Remove each item of `queue` and handle it once, even if several threads call this function."""
    while queue:
        items: list[T] = []
        try:
            # Another thread may have taken the last item.
            with suppress(IndexError):
                # One call, which Ctrl-C cannot interrupt, moves the item from `queue` to `items`, so no item
                # is lost.
                items.extend(starmap(queue.popleft, ((),)))
            for item in items:
                handle(item)
        except Exception:
            raise
        except BaseException:  # After Ctrl-C the next call of this function handles the items.
            queue.extendleft(items)
            raise
