"""What a client in a world is: its wires, its deadlines, and a process that can be frozen and killed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from consumer.engine.network.transport import Broken, Data, Open, Opened, Shut, Write

from ...group.subscription import TopicPartition
from .journal import kept, knob
from .network import Wire
from .user_code import reject_awaitable

if TYPE_CHECKING:
    from .world import World


class Client:
    """One client. A subclass knows its engine: it tells it what happened, and does what that wants.

    `name` is unique in its world. `owned` is what the application works on now: from the return of its
    "assigned" callback to the return of "revoked" or "lost".
    """

    callback_ms = knob(0)  # How long each callback takes; the brokers and the heartbeats go on meanwhile.

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(f"{world.seed}/{name}")
        self.alive = True
        self.wires: dict[Any, Wire] = {}
        self.owned: set[TopicPartition] = set()
        self.group: str | None = None
        self.frozen_until: int | None = None
        self.slept_ms = 0
        """How long it was frozen so far."""
        self.slowest_ms = 0
        """How long the slowest callback took so far."""
        self.close_timeout_ms = 30_000
        self._held: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self._due: int | None = None
        """When the engine wanted its next tick when it was asked last."""
        self._planned: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self.alive else ', dead'}>"

    # ---- what a subclass says

    @property
    def member_id(self) -> str:
        """As what it is known to the coordinator; empty while it is no member."""
        return ""

    @property
    def generation(self) -> int:
        return -1

    @property
    def is_joining(self) -> bool:
        """A JoinGroup of it is open."""
        return False

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """Partitions of which the application on_transport_event just now that they are lost."""
        return frozenset()

    @property
    def is_polling(self) -> bool:
        """The application goes on polling, and is not frozen."""
        return False

    def due(self) -> int | None:
        """When the engine wants its next tick."""
        raise NotImplementedError

    def tick(self) -> None:
        """Its time has come."""
        raise NotImplementedError

    def on_opened(self, wire: Wire) -> None:
        raise NotImplementedError

    def on_refused(self, key: Any, why: str) -> None:
        raise NotImplementedError

    def on_received(self, wire: Wire, data: bytes) -> None:
        raise NotImplementedError

    def on_broken(self, wire: Wire, why: str) -> None:
        raise NotImplementedError

    # ---- time

    def plan(self) -> None:
        """Look at the engine's deadline again; after everything that may have moved it."""
        if not self.alive:
            return
        self._due = self.due()
        self._wake_up()

    def _wake_up(self) -> None:
        due = self._due
        if due is not None and (self._planned is None or due < self._planned):
            self._planned = max(due, self.world.now)
            self.world.push(self._planned, self._wake, self._planned)

    def _wake(self, planned: int) -> None:
        if not self.alive or planned != self._planned:
            return
        self._planned = None
        if self._due is not None and self._due <= self.world.now:
            self.run_when_awake(self.tick)
        else:
            self._wake_up()

    # ---- the process

    def run_when_awake(self, what: Any, *args: Any) -> None:
        """Let something happen to the client, now, or when it is no longer frozen; never when it is dead."""
        if not self.alive:
            return
        if self.frozen_until is not None:
            self._held.append((what, args))
            return
        what(*args)

    @kept
    def freeze(self, ms: int) -> None:
        """Stop the process for a while (SIGSTOP): nothing is read, no timer fires, the world goes on."""
        self.world.had_fault = True
        self.slept_ms += ms
        self.frozen_until = max(self.frozen_until or 0, self.world.now + ms)
        self.world.push(self.frozen_until, self._thaw)

    def _thaw(self) -> None:
        if self.frozen_until is None or self.frozen_until > self.world.now:
            return
        self.frozen_until = None
        held, self._held = self._held, deque()
        for what, args in held:
            self.run_when_awake(what, *args)
        self._planned = None
        self.plan()

    @kept
    def configure(self, how: Callable[[Any], object]) -> None:
        """`how(self)` sets how the application behaves (`listener`, `worker`, ...). A world that plays this
        one again calls it with its own client: so an application is made there that calls that one.
        """
        reject_awaitable("how", how, how(self))

    def kill(self) -> None:
        """The process dies (SIGKILL): its sockets close, nothing is said."""
        if not self.alive:
            return
        self.alive = False
        for wire in list(self.wires.values()):
            self.world.disconnect_broker(wire)
        self.wires.clear()
        self.owned.clear()
        self.world.observe(self, "killed")

    def observe(self, what: str, partitions: Iterable[TopicPartition] = (), detail: Any = None) -> None:
        self.world.observe(self, what, partitions, detail)


class EngineClient(Client):
    """One whose engine is of `consumer.engine`: it hears what comes in over wires, and says what goes out."""

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        """Tell the engine."""
        raise NotImplementedError

    def on_opened(self, wire: Wire) -> None:
        self.on_transport_event(Opened(wire.key))

    def on_refused(self, key: Any, why: str) -> None:
        self.on_transport_event(Broken(key, why))

    def on_received(self, wire: Wire, data: bytes) -> None:
        self.on_transport_event(Data(wire.key, data))

    def on_broken(self, wire: Wire, why: str) -> None:
        self.on_transport_event(Broken(wire.key, why))

    def perform_transport_action(self, action: Any) -> bool:
        """Does what the engine wants of its wires; False for whatever else it wants."""
        match action:
            case Write(key=key, data=data):
                self.world.write_to(self, key, data)
            case Open(key=key, host=host, port=port):
                self.world.open(self, key, host, port)
            case Shut(key=key):
                self.world.shut(self, key)
            case _:
                return False
        return True
