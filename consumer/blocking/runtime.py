"""How a thread waits: the engine runs in a thread of its own, and the application's threads call it.

The engine's thread moves bytes, sends heartbeats and fetches ahead while the application computes. Callbacks
of the application never run there, but for what hangs on futures: and that may not wait. Over TLS a thread of
the application that waits for records has its place meanwhile (`seat`).
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, cast

from kproto.errors import IllegalState

from .. import lifecycle
from ..clock import now
from ..engine import events as ev
from ..engine.network.transport import NetworkAction, NetworkEvent
from ..logs import log
from ..runtime import ENDS, Shell
from .signals import EVERY, Held, look
from .socket_owner import Seat
from .sockets import Sockets
from .waiting import InThreads


class Threaded(InThreads, Shell):
    """A client whose methods block."""

    def __init__(
        self, step: Callable[[ev.Event, int], list[ev.Action]], due: Callable[[], int | None], client_id: str
    ) -> None:
        super().__init__(step, due, client_id)
        look()
        self._sockets = Sockets()
        self._seat = Seat()
        # Its lock is held while the engine is changed; never while the application's code runs.
        self._nobody_waits()
        self._stepping = False
        # Held by the thread that uses the client.
        self._using = threading.RLock()
        self._users: list[str] = []
        self._asking: dict[Future[Any], threading.Lock] = {}  # who waits for which future
        self._hanging: set[int] = set()  # the threads in which what hangs on a future runs
        self._todo: deque[NetworkAction] = deque()
        # When the engine's thread looks again by itself: 0 = it is awake, None = only when something happens.
        self._sleeps_until: int | None = 0
        self._stop = False
        name = f"kproto-{self._what}-{client_id}"
        self._thread = threading.Thread(
            target=self._drive, args=(weakref.ref(self), self._sockets, self._seat), name=name, daemon=True
        )
        self._start()
        lifecycle.opened(self)

    # ---- the engine's thread

    @staticmethod
    def _drive(client: weakref.ref[Threaded], sockets: Sockets, seat: Seat) -> None:
        """While it sleeps it doesn't hold the client: one that is dropped without close() is gone."""
        try:
            seat.sit()
            while (shell := client()) is not None and not shell._stop:
                shell._turn(sockets.take())
                shell._tell_others()
                wait = shell._idle()
                if seat.wanted:
                    seat.stand()
                    shell._notify()
                    del shell
                    seat.sit()
                else:
                    del shell
                    sockets.look(wait)
        except BaseException as error:  # must not become a silent standstill
            if (shell := client()) is not None:
                shell._failed(error)
                shell._tell_others()
        finally:
            with contextlib.suppress(Exception):
                if (shell := client()) is not None:
                    shell._write()
            sockets.close()

    def _turn(self, happened: list[NetworkEvent]) -> None:
        """Tells the engine what happened, and does what it wants."""
        with self._lock:
            self._sleeps_until = 0
            self._stepping = True
            try:
                self._feed(tuple(happened))
                due = self._due()
                if due is not None and due <= now():
                    self._feed((ev.Tick(),))
            finally:
                self._stepping = False
            if self._waiting:  # else they compute first: sealing a request lets the interpreter go
                self._write()

    def _idle(self) -> float | None:
        """Does the rest; returns how many seconds to sleep then."""
        self._write()
        with self._lock:
            due = 0 if self._todo or self._stop else self._due()
            self._sleeps_until = due
        return None if due is None else max(0, due - now()) / 1000

    def _write(self) -> None:
        while self._todo:
            self._sockets.perform(self._todo.popleft())

    def __del__(self) -> None:
        if getattr(self, "_stop", True) or self._forked:
            return
        lifecycle.ended(self)
        self._stop = True
        self._wake()
        if lost := self._lost():
            log.warning(
                "%s was dropped without close()%s", str(self), lost
            )  # a record keeps what it is given

    # ---- what the application's threads do

    def _do(self, *events: ev.Event, last: ev.Event | None = None) -> list[ev.Action]:
        try:
            with self._lock, Held():
                self._usable()
                if self._stepping:
                    raise IllegalState(
                        f"a signal handler interrupted this {self._what} at work and can't call it now; "
                        "set a flag there, and call it afterwards"
                    )
                self._stepping = True
                try:
                    rest = self._feed(events, last)
                finally:
                    self._stepping = False
                self._rouse()
            return rest
        finally:
            self._tell_others()

    def _rouse(self) -> None:
        """Wakes the engine's thread if it sleeps longer than it may now. What is to be written is written
        here, where that is all: that thread would be woken for nothing else."""
        if self._open and self._sockets.sealed and self._alone:
            self._seat.call()  # who waits for a future doesn't look
        until = self._sleeps_until
        if until == 0:
            return
        while self._todo and self._sockets.write_at_once(self._todo):
            pass
        if self._todo and self._seat.take(to_look=False):
            try:
                self._write()
            finally:
                self._seat.leave(looked=False)
        if not self._todo:
            due = self._due()
            if due is None or (until is not None and until <= due):
                return
        self._sockets.wake()
        self._sleeps_until = 0

    def _look(self, seen: int, timeout: float) -> bool:
        """Over TLS the thread that waits has the turns of the engine's thread (`seat`)."""
        if not (self._sockets.sealed and self._alone):
            return False
        try:
            with Held(self._sockets.wake, EVERY):
                if not self._seat.take():
                    if self._seat.wanted:
                        self._sockets.wake()
                    return False
                try:
                    wait = self._idle()
                    if self._changes == seen and not self._stop:
                        self._sockets.look(timeout if wait is None else min(wait, timeout))
                    if not self._stop:
                        self._turn(self._sockets.take())
                        self._idle()
                except BaseException as error:  # as in the engine's thread
                    self._failed(error)
                    if not isinstance(error, Exception):
                        raise
                finally:
                    self._seat.leave()
                return True
        finally:
            self._tell_others()

    def _notify(self) -> None:
        super()._notify()
        if self._seat.guest not in (0, threading.get_ident()):
            self._sockets.wake()

    async def _result(self, future: Future[Any]) -> Any:
        look()
        mine = threading.Lock()  # as in `_wait`; the future's own wait is a Condition's
        mine.acquire()
        try:
            self._asking[future] = mine
            while future in self._open:
                mine.acquire()
        finally:
            self._asking.pop(future, None)
        return future.result()

    def _tell_its_end(self, done: ev.Done) -> None:
        super()._tell_its_end(done)
        with contextlib.suppress(KeyError, RuntimeError):  # nobody waits, or was told already
            self._asking[cast("Future[Any]", done.token)].release()

    async def _finish(self, answer: Awaitable[Any], then: Callable[[], None], until: int | None) -> None:
        close: Callable[[], None] | None = getattr(answer, "close", None)
        if close is not None:
            close()
        then()
        raise IllegalState("a callback of a blocking client can't be a coroutine; AsyncConsumer awaits those")

    def _future(self) -> Future[Any]:
        future: Future[Any] = Future()
        self._open.add(future)
        return future

    def _resolve(self, future: Future[Any], value: Any, error: BaseException | None) -> None:
        me = threading.get_ident()
        within = me in self._hanging
        self._hanging.add(me)
        try:
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(value)
        except InvalidStateError:  # cancelled; or Ctrl-C came behind it, and it is done
            pass
        except BaseException:
            if threading.current_thread() is not self._thread:  # Ctrl-C: the application hears of it
                raise
            log.exception("a callback of a future failed")  # raised more than an Exception
        finally:
            if not within:
                self._hanging.discard(me)

    def _perform(self, action: NetworkAction) -> None:
        self._todo.append(action)

    # ---- who may call when

    def _enter(self, name: str, *, waits: bool, serves: bool) -> bool:
        if self._forked and name in ENDS:
            return False
        self._may_look()
        if threading.current_thread() is self._thread or threading.get_ident() in self._hanging:
            # What hangs on a future runs here, while the application's own thread may be anywhere; or in the
            # middle of the poll that heard of its end.
            if waits:
                raise IllegalState(
                    f"{name}() waits, and this callback runs on the client's own thread, or in its place: it "
                    "would wait for itself; call it from another thread"
                )
            return False
        if not self._alone:
            return False
        if (caller := self._caller()) is not None:  # of the thread that polls it, or of one that closes it
            if serves:
                raise IllegalState(f"{name}() can't be called inside {caller}; return from that first")
            return False
        if not self._using.acquire(blocking=False):
            if name in ENDS:
                return False
            raise IllegalState(
                f"another thread is inside {self._users[0] if self._users else 'a call'}() of this "
                f"{self._what}; one thread at a time may use it, and any may close() it"
            )
        self._users.append(name)
        return True

    def _leave(self, entered: bool) -> None:
        if entered:
            self._users.pop()
            self._using.release()

    def _mine(self) -> bool:
        if not self._using.acquire(blocking=False):
            return False
        self._using.release()
        return True

    # ---- the end

    def _failed(self, error: BaseException) -> None:
        super()._failed(error)
        self._stop = True
        self._wake()

    def _wake(self) -> None:
        """The engine's thread has its turn now, wherever it is."""
        self._seat.call()
        self._sockets.wake()

    def _end(self, deadline: int = 0) -> None:
        """Stops the thread, which closes the sockets; waits for it, but not much longer than `deadline`."""
        self._finished = self._stop = True
        lifecycle.ended(self)
        self._wake()
        if threading.current_thread() is not self._thread:
            # It may be stuck in a look-up of a name, and ends by itself after that.
            self._thread.join(max(0.1, (deadline - now()) / 1000))
        self._end_futures(IllegalState(f"this {self._what} was closed meanwhile"))
        with self._lock:
            self._change()
        self._tell_others()

    def kill(self) -> None:
        """Drops everything as if the process had died: no commit, no goodbye. For tests and demos."""
        if self._forked:
            return
        self._todo.clear()
        self._end()
