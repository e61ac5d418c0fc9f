"""Runs a blocking `Consumer` in virtual time.

The background thread is simulated: its code runs while the application waits, in virtual time. All runs are
identical, and Ctrl-C can be raised at each point in turn.
"""

from __future__ import annotations

import dis
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import consumer
from consumer import Consumer
from consumer.blocking.runtime import BlockingRuntime
from consumer.blocking.socket_owner import SocketOwner
from consumer.engine.network.transport import Broken, Data, NetworkAction, NetworkEvent, Opened, Write
from kproto.testing.world import World
from kproto.testing.world.clients import EngineClient

CLIENT = str(Path(consumer.__file__).parent)
CLOCKS = (
    "runtime",
    "operations.polls",
    "operations.consumer",
    "blocking.runtime",
    "blocking.waiters",
)


class VirtualThread(EngineClient):
    """Simulates the sockets and the background thread of the consumer."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.runtime: Any = None
        self.stopped = False
        self.uses_tls = False  # With TLS the application's thread reads the sockets itself.
        self.looked_at = self.woken = False
        self.happened: list[NetworkEvent] = []

    # ---- the methods of Sockets and Thread that `BlockingRuntime` calls

    def start(self) -> None:
        pass

    def join(self, timeout: float) -> None:
        if not self.stopped:
            self.stopped = True
            self.runtime._write()
        for key in list(self.wires):
            self.world.shut(self, key)

    def take(self) -> list[NetworkEvent]:
        happened, self.happened = self.happened, []
        return happened

    def poll(self, timeout: float) -> None:
        """Wait for events. The application's thread calls this if it reads the sockets itself."""
        self.looked_at = True
        try:
            with untraced():
                self.world.run(round(timeout * 1000), until=lambda: bool(self.happened) or self.woken)
        finally:
            self.looked_at = self.woken = False

    def wake(self) -> None:
        if self.looked_at:
            self.woken = True
            return
        self.world.push(self.world.now, self.run_when_awake, self.turn, ())

    def perform(self, action: NetworkAction) -> None:
        if not self.perform_transport_action(action):
            raise AssertionError(action)

    def write_at_once(self, todo: deque[NetworkAction]) -> bool:
        if not isinstance(todo[0], Write):
            return False
        self.perform(todo.popleft())
        return True

    def close(self) -> None:
        pass

    # ---- methods that the simulated cluster (`World`) calls

    def turn(self, happened: tuple[NetworkEvent, ...]) -> None:
        if self.looked_at:
            self.happened += happened
        elif self.runtime is not None and not self.runtime.stopped:
            self.runtime.turn([*self.take(), *happened])
            self.runtime._report_and_complete()
            self.runtime.flush()
        self.plan()

    def due(self) -> int | None:
        if self.runtime is None or self.runtime.stopped or self.looked_at:
            return None
        return self.runtime.wakes_at

    def tick(self) -> None:
        self.turn(())

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        self.turn((event,))


class UncontendedSocketOwner(SocketOwner):
    """Owns the sockets of a client whose background thread is simulated. No real thread waits for them."""

    virtual_thread: VirtualThread

    def recall(self) -> None:
        self.virtual_thread.wake()


@contextmanager
def untraced() -> Iterator[None]:
    """Disable tracing in the block: Ctrl-C is not raised in code that simulates the client's thread."""
    tracer = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(tracer)


class VirtualBlockingRuntime(BlockingRuntime):
    """A runtime whose waits pass in virtual time.

    While the application waits, the code of the consumer's thread runs. With TLS the application itself polls
    the sockets.
    """

    virtual_thread: VirtualThread

    async def wait(self, changes_before: int, deadline: int) -> bool:
        if not self.virtual_thread.uses_tls:
            return self._run_world(changes_before, deadline)
        changed = await super().wait(changes_before, deadline)
        self.virtual_thread.plan()
        return changed

    def _run_world(self, changes_before: int, deadline: int) -> bool:
        with untraced():
            self.virtual_thread.world.run(
                deadline - self.virtual_thread.world.now, until=lambda: self.changes != changes_before
            )
        return self.changes != changes_before

    async def result(self, future: Any) -> Any:
        end = self.virtual_thread.world.now + 300_000
        while not future.done():
            assert self.virtual_thread.world.now < end, "a future that never ends"
            self._run_world(self.changes, self.virtual_thread.world.now + 60_000)
        return future.result(0)


# The instructions at which Python checks for signals: the start of a function, the end of a call of a native
# function, and the backward jump of a loop.
LOOKS = frozenset(dis.opmap[name] for name in ("RESUME", "CALL", "CALL_FUNCTION_EX", "JUMP_BACKWARD"))


class CtrlC:
    """Raise KeyboardInterrupt at the n-th point where Python checks for signals.

    Only points in the client's code and in `application_files` are counted.
    """

    def __init__(self, at: int, *application_files: str) -> None:
        self.remaining = at
        self.within = CLIENT, *application_files
        self.where = ""
        self._last: dict[FrameType, int] = {}  # The opcode of each frame's last instruction.

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if event == "call" and frame.f_back in self._last:
            # A call of a Python function is counted once, at the function's beginning, and not again at its
            # end.
            self._last[frame.f_back] = 0
        if not frame.f_code.co_filename.startswith(self.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "opcode":
            if self._last.get(frame, 0) in LOOKS:
                self.remaining -= 1
                if not self.remaining:
                    self._raise(frame)
            self._last[frame] = frame.f_code.co_code[frame.f_lasti]
        elif event == "return":
            self._last.pop(frame, None)
        return self

    def _raise(self, frame: FrameType | None) -> None:
        sys.settrace(None)
        while frame is not None and len(self.where) < 400:
            code = frame.f_code
            self.where += f" < {Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"
            frame = frame.f_back
        self._last.clear()
        signal.raise_signal(signal.SIGINT)


@contextmanager
def virtual_consumer(
    world: World, name: str, *, uses_tls: bool = False, **options: Any
) -> Iterator[Consumer]:
    """Yield a blocking consumer whose background thread runs in the virtual time of `world`."""
    with pytest.MonkeyPatch.context() as patch:
        for module in CLOCKS:
            patch.setattr(f"consumer.{module}.now", lambda: world.now)
        thread = VirtualThread(world, name)
        world.clients[name] = thread
        thread.uses_tls = uses_tls
        owner = UncontendedSocketOwner()
        owner.virtual_thread = thread
        patch.setattr("consumer.blocking.runtime.Sockets", lambda: thread)
        patch.setattr("consumer.blocking.runtime.SocketOwner", lambda: owner)
        patch.setattr("consumer.blocking.runtime.threading.Thread", lambda **_: thread)
        patch.setattr("consumer.blocking.consumer.BlockingRuntime", VirtualBlockingRuntime)
        blocking_consumer = Consumer(
            ",".join(f"{host}:{port}" for host, port in world.addresses), client_id=name, **options
        )
        runtime: Any = blocking_consumer._runtime
        runtime.virtual_thread = thread
        thread.runtime = runtime
        runtime.wakes_at = runtime.driver.due()
        thread.plan()
        # In a background job of a shell, SIGINT is ignored until a handler is set.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            yield blocking_consumer
        finally:
            signal.signal(signal.SIGINT, before)
            blocking_consumer.kill()
