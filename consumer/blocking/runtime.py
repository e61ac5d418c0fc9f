"""Runs the engine of a blocking client in its own thread. Threads of the application call the engine, and
wait until it has completed their calls.

The engine's thread sends and receives bytes, sends heartbeats, and fetches records in advance while the
application computes. It runs no callbacks of the application, except callbacks of futures. A callback of a
future must not block.
Over TLS, a thread of the application that waits for records reads the sockets (`socket_owner`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, cast

from kproto.errors import IllegalState

from .. import lifecycle
from ..clock import now
from ..engine import events as ev
from ..engine.network.transport import NetworkAction, NetworkEvent
from ..logs import log
from ..runtime import CLOSE, NO_CLAIM, Driver, Runtime
from .signals import EVERY, Held, look
from .socket_owner import SocketOwner
from .sockets import Sockets
from .waiters import ThreadWaiters


class BlockingRuntime(Runtime):
    """Runs an engine in a thread, for clients whose methods block."""

    def __init__(self, driver: Driver, *, exclusive: bool = False) -> None:
        # The lock of `waiters` guards the engine's state. It is not held while code of the application runs.
        self.waiters = ThreadWaiters()
        super().__init__(driver, self.waiters, exclusive=exclusive)
        look()
        self.sockets = Sockets()
        self.owner = SocketOwner()
        # Whether the engine is applying events. Only a signal handler can make another call meanwhile.
        self._stepping = False
        self._claim = _Claim()
        # Future -> the lock with which a thread waits for it.
        self._future_locks: dict[Future[Any], threading.Lock] = {}
        # Ids of the threads that are running a callback of a future. Blocking calls from them are rejected.
        self._completing_threads: set[int] = set()
        # The actions of the engine that the sockets have not performed yet.
        self._actions: deque[NetworkAction] = deque()
        # The time (ms) at which the engine's thread wakes by itself: 0 while it is awake, None if only an
        # event can wake it.
        self.wakes_at: int | None = 0
        self.stopped = False
        name = f"kproto-{driver.kind.replace(' ', '-')}-{driver.client_id}"
        self.thread = threading.Thread(
            target=self._drive, args=(weakref.ref(self), self.sockets, self.owner), name=name, daemon=True
        )
        start_thread(self.thread, self.sockets, self)
        lifecycle.register(self)

    # ---- the engine's thread

    @staticmethod
    def _drive(ref: weakref.ref[BlockingRuntime], sockets: Sockets, owner: SocketOwner) -> None:
        """Run the engine. While the thread sleeps, it holds no reference to the runtime.

        A client that is dropped without `close` can therefore be garbage-collected.
        """
        try:
            owner.acquire()
            while (runtime := ref()) is not None and not runtime.stopped:
                runtime.turn(sockets.take())
                runtime._report_and_complete()
                seconds = runtime.flush()
                if owner.requested:
                    owner.hand_over()
                    runtime.notify()
                    del runtime
                    owner.acquire()
                else:
                    del runtime
                    sockets.poll(seconds)
        except BaseException as error:  # An unreported exception would stop the client without a message.
            if (runtime := ref()) is not None:
                runtime._fail_client(error)
                runtime._report_and_complete()
        finally:
            with contextlib.suppress(Exception):
                if (runtime := ref()) is not None:
                    runtime._write()
            sockets.close()

    def turn(self, events: list[NetworkEvent]) -> None:
        """Pass the network events to the engine, and a `Tick` if one is due."""
        with self.waiters.lock:
            self.wakes_at = 0
            self._stepping = True
            try:
                self._apply_events(tuple(events))
                due = self.driver.due()
                if due is not None and due <= now():
                    self._apply_events((ev.Tick(),))
            finally:
                self._stepping = False
            # The requests are written here only if a thread waits for a change. If none waits, `flush` writes
            # them without the lock, because encrypting a request releases the GIL, and other threads could
            # then block on the lock.
            if self.waiters:
                self._write()

    def flush(self) -> float | None:
        """Perform the pending actions. Return the seconds to sleep, or None to sleep until an event."""
        self._write()
        with self.waiters.lock:
            due = 0 if self._actions or self.stopped else self.driver.due()
            self.wakes_at = due
        return None if due is None else max(0, due - now()) / 1000

    def _write(self) -> None:
        """Perform the pending actions. The calling thread must own the sockets."""
        while self._actions:
            self.sockets.perform(self._actions.popleft())

    def __del__(self) -> None:
        if getattr(self, "stopped", True) or self.forked:
            return
        # If Ctrl-C interrupted these statements, Python would ignore the KeyboardInterrupt, as it ignores all
        # exceptions of finalizers. The thread would then not end, and the warning would not be logged.
        with Held():
            lifecycle.unregister(self)
            self.stopped = True
            self._wake_thread()
            if loss := self.driver.loss():
                # Pass a string, not the runtime, because a log record keeps its arguments alive.
                log.warning("%s was dropped without close()%s", str(self), loss)

    # ---- the application's threads

    def apply(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        try:
            with self.waiters.lock, Held():
                self.check_usable()
                if self._stepping:
                    raise IllegalState(
                        f"a signal handler interrupted a call of this {self.driver.kind}, and cannot make "
                        "another call; set a flag in the handler, and make this call after the handler has "
                        "returned"
                    )
                self._stepping = True
                try:
                    actions = self._apply_events(events, last)
                finally:
                    self._stepping = False
                self._write_or_wake()
            return actions
        finally:
            self._report_and_complete()

    def _write_or_wake(self) -> None:
        """Write the pending requests; wake the engine's thread to write the rest.

        If no request is left to write, the engine's thread is woken only if it now has a deadline before its
        planned wake-up.
        """
        if self._open_futures and self.sockets.uses_tls and self.exclusive:
            # The engine's thread must read the sockets, because a caller that waits for a future does not
            # read them.
            self.owner.recall()
        wakes_at = self.wakes_at
        if wakes_at == 0:
            return
        while self._actions and self.sockets.write_at_once(self._actions):
            pass
        if self._actions and self.owner.borrow(to_read=False):
            try:
                self._write()
            finally:
                self.owner.give_back(has_read=False)
        if not self._actions:
            due = self.driver.due()
            wakes_early_enough = due is None or (wakes_at is not None and wakes_at <= due)
            if wakes_early_enough:
                return
        self.sockets.wake()
        self.wakes_at = 0

    async def wait(self, last_change: int, deadline: int) -> bool:
        return self.waiters.wait(last_change, deadline, self._read_sockets)

    def _read_sockets(self, last_change: int, timeout: float) -> bool:
        """Read a consumer's sockets in this thread.

        Return False without reading if no connection uses TLS, or if another thread owns the sockets.
        """
        if not (self.sockets.uses_tls and self.exclusive):
            return False
        try:
            with Held(self.sockets.wake, EVERY):
                if not self.owner.borrow():
                    if self.owner.requested:
                        self.sockets.wake()
                    return False
                try:
                    seconds = self.flush()
                    if self.changes == last_change and not self.stopped:
                        self.sockets.poll(timeout if seconds is None else min(seconds, timeout))
                    if not self.stopped:
                        self.turn(self.sockets.take())
                        self.flush()
                # Any exception ends the client, as it does in the engine's thread.
                except BaseException as error:
                    self._fail_client(error)
                    if not isinstance(error, Exception):
                        raise
                finally:
                    self.owner.give_back()
                return True
        finally:
            self._report_and_complete()

    def notify(self) -> None:
        super().notify()
        if self.owner.borrower not in (0, threading.get_ident()):
            self.sockets.wake()

    async def pause(self) -> None:
        """Do nothing: other threads run even if the caller does not pause."""

    def caller(self) -> object:
        return threading.get_ident()

    def locked(self) -> AbstractContextManager[Any]:
        return self.waiters.locked()

    # ---- futures

    async def result(self, future: Future[Any]) -> Any:
        look()
        # The thread waits for a lock, as in `ThreadWaiters`, and not for the future itself, whose Condition
        # can be left in an inconsistent state by Ctrl-C.
        lock = threading.Lock()
        lock.acquire()
        try:
            self._future_locks[future] = lock
            while future in self._open_futures:
                lock.acquire()
        finally:
            self._future_locks.pop(future, None)
        return future.result()

    def _complete_if_open(self, done: ev.Done) -> None:
        super()._complete_if_open(done)
        # A KeyError means that no thread waits for the future. A RuntimeError means that the future's lock
        # was already released.
        with contextlib.suppress(KeyError, RuntimeError):
            self._future_locks[cast("Future[Any]", done.token)].release()

    async def finish_callback(
        self, answer: Awaitable[Any], on_end: Callable[[], None], deadline: int | None
    ) -> None:
        """Close the awaitable and raise IllegalState: callbacks of a blocking client can't be coroutines."""
        close: Callable[[], None] | None = getattr(answer, "close", None)
        if close is not None:
            close()
        on_end()
        raise IllegalState(
            "a callback of a blocking client can't be a coroutine; AsyncConsumer awaits coroutines"
        )

    def _new_future(self) -> Future[Any]:
        future: Future[Any] = Future()
        self._open_futures.add(future)
        return future

    def _complete(self, future: Future[Any], value: Any, error: BaseException | None) -> None:
        thread = threading.get_ident()
        is_nested = thread in self._completing_threads
        self._completing_threads.add(thread)
        try:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)
        # The future was cancelled, or it had been completed when Ctrl-C interrupted this method.
        except InvalidStateError:
            pass
        except BaseException:
            # A callback of the future raised an exception, or Ctrl-C raised KeyboardInterrupt. In a thread of
            # the application, the call that completed the future raises it. The engine's thread logs it.
            if threading.current_thread() is not self.thread:
                raise
            # In the engine's thread, no call of the application runs that could raise the exception.
            log.exception("a callback of a future failed")
        finally:
            if not is_nested:
                self._completing_threads.discard(thread)

    def _perform(self, action: NetworkAction) -> None:
        self._actions.append(action)

    # ---- checks whether a call is allowed

    def call(self, method: str, *, waits: bool = True, serves: bool = False) -> AbstractContextManager[None]:
        if self.forked and method == CLOSE:
            return NO_CLAIM
        if self.forked:
            self.check_process()
        if threading.current_thread() is self.thread or threading.get_ident() in self._completing_threads:
            # A callback of a future makes this call. The call does not acquire `_claim`, because the
            # application's thread may hold it until the callback returns, for example in the poll that
            # completed the future.
            if waits:
                raise IllegalState(
                    f"{method}() was called in the callback of a future and would block the thread that "
                    "completes it; call it from another thread"
                )
            return NO_CLAIM
        if not self.exclusive:
            return NO_CLAIM
        # A callback that runs inside `poll` or `close` may be making this call.
        if self._running_callbacks and self.check_callback(method, serves=serves):
            return NO_CLAIM
        if not self._claim.acquire(method):
            if method == CLOSE:
                return NO_CLAIM
            raise IllegalState(
                f"another thread is inside {self._claim.method}() of this {self.driver.kind}; one thread "
                "at a time may use it, and any thread may close() it"
            )
        return self._claim

    def is_callers(self) -> bool:
        return self._claim.is_callers()

    # ---- the end

    def _fail_client(self, error: BaseException) -> None:
        super()._fail_client(error)
        self.stopped = True
        self._wake_thread()

    def _wake_thread(self) -> None:
        """Wake the engine's thread, whether it polls the sockets or waits to own them."""
        self.owner.recall()
        self.sockets.wake()

    def end(self, deadline: int = 0) -> None:
        """Stop the thread, which closes the sockets, and fail the open futures.

        Wait until the thread ends, or until shortly after `deadline` (ms).
        """
        self.closed = self.stopped = True
        lifecycle.unregister(self)
        self._wake_thread()
        if threading.current_thread() is not self.thread:
            # If the thread is resolving a host name, it ends only after the name is resolved.
            self.thread.join(max(0.1, (deadline - now()) / 1000))
        self._fail_futures(IllegalState(f"this {self.driver.kind} was closed during the call"))
        with self.waiters.lock:
            self.notify()
        self._report_and_complete()

    def kill(self) -> None:
        if self.forked:
            return
        self._actions.clear()
        self.end()


class _Claim:
    """The exclusive right to use a client. A thread has this right while it runs one of the client's methods.

    The thread keeps this right while the client's method runs callbacks of the application.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._methods: list[str] = []

    @property
    def method(self) -> str:
        """The name of the client's method that is running."""
        return self._methods[0] if self._methods else "a call"

    def acquire(self, method: str) -> bool:
        """Acquire the exclusive right for `method`; return False if another thread has the right."""
        if not self._lock.acquire(blocking=False):
            return False
        self._methods.append(method)
        return True

    def is_callers(self) -> bool:
        """Return whether no other thread holds the exclusive right."""
        if not self._lock.acquire(blocking=False):
            return False
        self._lock.release()
        return True

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._methods.pop()
        self._lock.release()


def start_thread(thread: threading.Thread, sockets: Sockets, runtime: Any) -> None:
    """Start a client's thread. If the system cannot start one, close the sockets and raise the error."""
    try:
        thread.start()
    except BaseException:
        runtime.stopped = True
        sockets.close()
        raise
