"""Runs the engine of a blocking producer in its own thread.

The lock is held only briefly: by `send` when it begins a batch, and by the thread when it takes or completes
a batch. Bytes are encoded, compressed and sent outside the lock. Callbacks of deliveries run in another
thread.

While the thread sleeps, it keeps a strong reference to the runtime only if records are pending. So if the
application drops a producer without calling `close`, the producer is freed, but only after it has delivered
its records.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from typing import Any

from kproto.errors import IllegalState, KprotoError, RequestTimedOut

from .. import lifecycle
from ..callbacks import Callbacks
from ..clock import now
from ..delivery import Delivery
from ..engine import events as ev
from ..engine.network.transport import GetToken, NetworkEvent, Open, Shut, Write
from ..engine.producer.batches import current_location
from ..engine.producer.engine import step
from ..logs import log
from ..operations.producer import ProducerOperations
from ..producer_options import ProducerConfig
from ..producer_runtime import EXIT_SECONDS, ProducerRuntime
from ..runtime import run_to_end
from ..validation import MAX_TIMEOUT_S
from .runtime import start_thread
from .signals import Held
from .sockets import Sockets
from .waiters import ThreadWaiters

# Longest time (s) that the shutdown waits for the end of the thread.
_JOIN_SECONDS = 5.0


class BlockingProducerRuntime(ProducerRuntime):
    """Runs a producer's engine in a thread, and lets the application's threads wait for it."""

    def __init__(self, bootstrap_servers: str | Iterable[str], config: ProducerConfig[Any, Any]) -> None:
        self.waiters = ThreadWaiters()
        super().__init__(bootstrap_servers, config, self.waiters, self.waiters.lock)
        self.sockets = Sockets()
        self._linger_ms = self.options.linger_ms
        # The time (ms) at which the thread wakes by itself: 0 while it is awake, None if only `wake` can wake
        # it.
        self.wakes_at: int | None = 0
        # Whether `wake` was called while the thread was awake. The engine's last step may have preceded that
        # call, so another step follows.
        self._needs_step = False
        self.stopped = False
        # Contains the runtime while records are pending. The thread refers to this list, and so keeps the
        # runtime alive until these records are delivered. The list is accessed under `waiters.lock`.
        self._keep_alive: list[BlockingProducerRuntime] = []
        self.records.notify_sender = self._wake_for_records
        name = f"kproto-producer-{self.options.client_id}"
        self._callbacks = Callbacks(f"{name}-callbacks")
        self.thread = threading.Thread(
            target=self._drive,
            args=(weakref.ref(self), self.sockets, self._keep_alive),
            name=name,
            daemon=True,
        )
        start_thread(self.thread, self.sockets, self)
        lifecycle.register(self)

    # ---- waiting

    async def wait(self, last_change: int, deadline: int) -> bool:
        return self.waiters.wait(last_change, deadline)

    async def pause(self) -> None:
        """Do nothing: other threads run even if the caller does not pause."""

    def caller(self) -> object:
        return threading.get_ident()

    def locked(self) -> AbstractContextManager[Any]:
        return self.waiters.locked()

    def check_call(self, *, waits: bool) -> None:
        if waits:
            self.check_may_wait()

    def check_may_wait(self) -> None:
        """Raise IllegalState if a signal handler calls this method after interrupting another call."""
        lock: Any = self.waiters.lock
        if lock._is_owned():  # as `threading.Condition` does
            raise IllegalState(
                "a signal handler interrupted a call of this producer, and made this call, which would wait "
                "for the interrupted one forever; set a flag in the handler, and call the producer after the "
                "handler has returned"
            )

    def _wake_for_records(self) -> None:
        """Wake the thread if it would otherwise wake too late to send the new records.

        The caller must hold the lock.
        """
        if not self._keep_alive:
            self._keep_alive.append(self)
        wakes_at = self.wakes_at
        if wakes_at == 0:
            return
        if self.records.needs_sender_now() or wakes_at is None or wakes_at > now() + self._linger_ms:
            self.wake()

    def wake(self) -> None:
        if self.wakes_at == 0:
            self._needs_step = True
        else:
            self.sockets.wake()
            self.wakes_at = 0

    # ---- deliveries

    def wait_for_delivery(self, delivery: Delivery, timeout: float | None) -> None:
        deadline = now() + int((MAX_TIMEOUT_S if timeout is None else timeout) * 1000)
        self.check_may_wait()
        while True:
            last_change = self.changes
            if delivery.done():
                return
            if not self.waiters.wait(last_change, deadline):
                batch, _ = current_location(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]
                detail = f"{batch.partition}: {self.engine.open_reason(batch)}"
                raise RequestTimedOut("Produce", int((timeout or 0) * 1000), detail)

    def await_delivery(self, delivery: Delivery) -> Generator[Any, None, None]:
        raise IllegalState("await needs an AsyncProducer; call result()")

    def _queue_call(self, call: Callable[[], object]) -> None:
        self._callbacks.put(call)

    # ---- the thread

    @staticmethod
    def _drive(
        ref: weakref.ref[BlockingProducerRuntime], sockets: Sockets, keep_alive: list[BlockingProducerRuntime]
    ) -> None:
        """Run the engine. While the thread sleeps, it refers to the runtime only through `keep_alive`."""
        try:
            while (runtime := ref()) is not None and not runtime.stopped:
                wakes_at = runtime._schedule_wake()
                del runtime
                time_ms = now()
                events: list[NetworkEvent] = []
                if wakes_at is None or wakes_at > time_ms:
                    events = sockets.wait(None if wakes_at is None else (wakes_at - time_ms) / 1000)
                    time_ms = now()
                if (runtime := ref()) is None:
                    break
                runtime.wakes_at = 0
                if wakes_at is not None and wakes_at <= time_ms:
                    # If the process was suspended, responses may have arrived in the meantime. They are
                    # applied before the deadlines are checked.
                    events += sockets.wait(0)
                for event in events:
                    runtime._perform(step(runtime.engine, event, time_ms))
                runtime._perform(step(runtime.engine, ev.Tick(), time_ms))
        except BaseException as error:  # An unlogged exception would stop the producer without a message.
            log.exception("the producer's thread failed")
            if (runtime := ref()) is not None:
                runtime._finish("the producer's thread failed; see the log", error)
        finally:
            if (runtime := ref()) is not None:
                runtime._finish("the producer was closed")
                runtime.engine.close_connections()
            keep_alive.clear()
            sockets.close()

    def _schedule_wake(self) -> int | None:
        """Set and return the time (ms) at which the thread wakes by itself; None if it waits for events only.

        If no batch is open, `_keep_alive` is cleared, so that a dropped producer can be garbage-collected.
        """
        with self.waiters.lock:
            if not self.records.open_batches:
                self._keep_alive.clear()
            wakes_at = 0 if self._needs_step else self.engine.due()
            self.wakes_at, self._needs_step = wakes_at, False
        return wakes_at

    def _perform(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self.sockets.perform(action)
                case ev.CallBack(callback=callback):
                    callback()
                case ev.Wake():
                    self.notify()
                case ev.Report(change=change):
                    self._on_report(change)
                case _:
                    pass

    def _finish(self, reason: str, failure: BaseException | None = None) -> None:
        """Fail every open delivery, and call the callbacks of the deliveries."""
        for action in self._close_engine(reason, failure):
            if isinstance(action, ev.CallBack):
                action.callback()
            elif isinstance(action, ev.Report):
                self._on_report(action.change)
        self.notify()

    # ---- the end

    def __del__(self) -> None:
        if getattr(self, "stopped", True) or self.forked:
            return
        with Held():  # As in `BlockingRuntime.__del__`.
            self.stopped = True
            self.sockets.wake()
            self._callbacks.close(0)
            self._on_drop()

    def shut_down(self, deadline: int) -> None:
        self.stopped = True
        self.sockets.wake()
        if self.thread is not threading.current_thread():
            self.thread.join(_JOIN_SECONDS)
        self._finish("the producer was closed")
        self.ended = True
        self.notify()
        self._callbacks.close(max(1.0, (deadline - now()) / 1000))

    def wait_for_callbacks(self, deadline: int) -> None:
        self._callbacks.close(max(0.0, (deadline - now()) / 1000))

    def on_fork(self) -> None:
        self.waiters.reset()
        self._callbacks = Callbacks("kproto-forked-callbacks")
        super().on_fork()
        self.records.guard = self.waiters.lock
        self._keep_alive.clear()
        self.sockets.abandon()

    def on_exit(self) -> str:
        open_records = self.engine.open_records
        name = self.options.client_id
        if open_records:
            log.warning(
                "the producer %r was not closed: %d records are not delivered yet, they have %g s",
                name,
                open_records,
                EXIT_SECONDS,
            )
        try:
            run_to_end(ProducerOperations(self).close(EXIT_SECONDS))
        except KprotoError as error:
            return f"the producer {name!r} was not closed, and records are lost: {error}"
        return ""
