"""The base class of all clients in a world.

A client has connections, deadlines, and a process that can be frozen and killed. `ClientWorld` declares the
methods of a world that clients use.

A client runs either an engine, which is the state machine of kproto's own client (`consumer.engine`), or the
model of another client (`kproto.models`). A tick is the event that a deadline of either has been reached.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from consumer.engine.network.transport import Broken, Data, Open, Opened, Shut, Write

from ...broker.log import Log
from ...group.subscription import TopicPartition
from ...messages.api_versions import ApiVersion
from ...validation import ZERO_OR_MORE, checked
from ...wire.frame import Frames
from .journal import journaled, knob
from .user_code import reject_awaitable

Callback = Callable[..., None]


@dataclass(slots=True, eq=False)
class Lane:
    """One direction of a connection."""

    # The virtual time in ms at which the last sent bytes arrive.
    last: int = 0
    # Whether a fault dropped bytes. All later bytes are then dropped, too.
    lost: bool = False
    # The calls that deliver stalled bytes. Each is a function with its arguments.
    held: deque[tuple[Callback, tuple[Any, ...]]] = field(
        default_factory=deque[tuple[Callback, tuple[Any, ...]]]
    )


@dataclass(slots=True, eq=False)
class Wire:
    """One connection. `conn` is its id at the broker, and `key` its id at the client."""

    client: Client
    key: Any
    node: int
    conn: int
    up: Lane = field(default_factory=Lane)
    down: Lane = field(default_factory=Lane)
    frames: Frames = field(default_factory=Frames)
    # Whether the client considers the connection open.
    open: bool = True
    # Whether the broker considers the connection open.
    known: bool = True
    # The fencing errors in the next response on this connection, as (error code, identity). An identity is
    # the member id and the generation that the request contained.
    fencings: list[tuple[int, tuple[str, int]]] = field(default_factory=list[tuple[int, tuple[str, int]]])


class ClientWorld(Protocol):
    """The methods of a `World` that its clients use."""

    now: int
    had_fault: bool

    @property
    def seed(self) -> int: ...

    @property
    def addresses(self) -> Sequence[tuple[str, int]]: ...

    @property
    def apis(self) -> Mapping[int, ApiVersion]: ...

    def push(self, at: int, function: Callable[..., object], *args: Any) -> None: ...

    def call_later(self, wait: int, function: Callable[[], object]) -> None: ...

    def run(self, ms: int = 10_000, until: Callable[[], bool] | None = None) -> bool: ...

    def next_token(self) -> int: ...

    def add_entry(self, who: str, kind: str, data: Any = None) -> None: ...

    def observe(
        self, source: Client | str, kind: str, partitions: Iterable[TopicPartition] = (), detail: Any = None
    ) -> None: ...

    def open(self, client: Client, key: Any, host: str, port: int) -> None: ...

    def write_to(self, client: Client, key: Any, data: bytes) -> None: ...

    def shut(self, client: Client, key: Any) -> None: ...

    def disconnect_broker(self, wire: Wire) -> None: ...

    def is_stable(self, group: str) -> bool: ...

    def partitions(self) -> list[TopicPartition]: ...

    def log(self, partition: TopicPartition) -> Log: ...


class Client:
    """A client in a world.

    The base class of clients. A subclass passes events to an engine and performs the engine's actions.

    `name` is unique in the world. `owned` contains the partitions that the application works on: from the
    start of the "assigned" callback to the return of "revoked" or "lost".
    """

    # The duration of each callback in ms. Brokers and heartbeats continue during a callback.
    callback_ms = knob(0)

    def __init__(self, world: ClientWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Random(f"{world.seed}/{name}")
        self.alive = True
        self.wires: dict[Any, Wire] = {}
        self.owned: set[TopicPartition] = set()
        self.group: str | None = None
        self.frozen_until: int | None = None
        # The total time in ms for which the process was frozen.
        self.slept_ms = 0
        # The duration of the slowest callback so far, in ms.
        self.slowest_ms = 0
        self.close_timeout_ms = 30_000
        # The calls of `run_when_awake` that wait for the end of the freeze.
        self._held_calls: deque[tuple[Any, tuple[Any, ...]]] = deque()
        # The last deadline that the engine or model returned.
        self._engine_deadline: int | None = None
        # The virtual time in ms of the scheduled call of `tick`, or None if none is scheduled.
        self._next_tick_at: int | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{'' if self.alive else ', dead'}>"

    # ---- for subclasses

    @property
    def member_id(self) -> str:
        """The member id by which the coordinator knows this client; empty while it is not a member."""
        return ""

    @property
    def generation(self) -> int:
        """The generation of the group; -1 while the client is not a member."""
        return -1

    @property
    def is_joining(self) -> bool:
        """Whether a JoinGroup of this client is in flight."""
        return False

    @property
    def leaving(self) -> frozenset[TopicPartition]:
        """The lost partitions for which the application's callback has not returned yet."""
        return frozenset()

    @property
    def is_polling(self) -> bool:
        """Whether the application polls and the process is not frozen."""
        return False

    def due(self) -> int | None:
        """The next deadline of the engine or model, in virtual ms, or None if it has none."""
        raise NotImplementedError

    def tick(self) -> None:
        """Notify the engine or model that its deadline has been reached."""
        raise NotImplementedError

    def on_opened(self, wire: Wire) -> None:
        """Start using a connection that has been established."""
        raise NotImplementedError

    def on_refused(self, key: Any, why: str) -> None:
        """Notify the engine or model that a connection could not be established."""
        raise NotImplementedError

    def on_received(self, wire: Wire, data: bytes) -> None:
        """Process bytes that the broker has sent on a connection."""
        raise NotImplementedError

    def on_broken(self, wire: Wire, why: str) -> None:
        """Notify the engine or model that the broker or the network has closed a connection."""
        raise NotImplementedError

    # ---- time

    def plan(self) -> None:
        """Schedule the next tick.

        Subclasses call `plan` whenever the deadline of the engine may have changed.
        """
        if not self.alive:
            return
        self._engine_deadline = self.due()
        self._schedule_tick()

    def _schedule_tick(self) -> None:
        """Schedule a call of `tick` at the deadline, unless one is scheduled for that time or earlier."""
        deadline = self._engine_deadline
        if deadline is not None and (self._next_tick_at is None or deadline < self._next_tick_at):
            self._next_tick_at = max(deadline, self.world.now)
            self.world.push(self._next_tick_at, self._run_scheduled_tick, self._next_tick_at)

    def _run_scheduled_tick(self, scheduled_at: int) -> None:
        """Tick if the engine's deadline has been reached; otherwise schedule another tick.

        If another tick was scheduled in place of this tick, do nothing.
        """
        if not self.alive or scheduled_at != self._next_tick_at:
            return
        self._next_tick_at = None
        if self._engine_deadline is not None and self._engine_deadline <= self.world.now:
            self.run_when_awake(self.tick)
        else:
            self._schedule_tick()

    # ---- the process

    def run_when_awake(self, function: Any, *args: Any) -> None:
        """Call the function as soon as the process is not frozen. After a kill the function is not called."""
        if not self.alive:
            return
        if self.frozen_until is not None:
            self._held_calls.append((function, args))
            return
        function(*args)

    @checked(ms=ZERO_OR_MORE)
    @journaled
    def freeze(self, ms: int) -> None:
        """Stop the process for `ms` (SIGSTOP).

        The process reads nothing and none of its timers fires, while the world continues.
        """
        self.world.had_fault = True
        self.slept_ms += ms
        self.frozen_until = max(self.frozen_until or 0, self.world.now + ms)
        self.observe("frozen", detail=ms)
        self.world.push(self.frozen_until, self._thaw_if_due)

    def _thaw_if_due(self) -> None:
        """Continue the process and make the held calls, unless a later `freeze` prolonged the freeze."""
        if self.frozen_until is None or self.frozen_until > self.world.now:
            return
        self.frozen_until = None
        self.observe("thawed")
        held_calls, self._held_calls = self._held_calls, deque()
        for function, args in held_calls:
            self.run_when_awake(function, *args)
        self._next_tick_at = None
        self.plan()

    @journaled
    def configure(self, how: Callable[[Any], object]) -> None:
        """Call `how(self)`, which sets up the application (`listener`, `worker`, ...).

        In a replay, `how` is called with the client of the replayed world, so the application calls that
        client.
        """
        reject_awaitable("how", how, how(self))

    def kill(self) -> None:
        """Kill the process (SIGKILL): its connections close, and it sends nothing more."""
        if not self.alive:
            return
        self.alive = False
        for wire in list(self.wires.values()):
            self.world.disconnect_broker(wire)
        self.wires.clear()
        self.owned.clear()
        self.world.observe(self, "killed")

    def observe(self, kind: str, partitions: Iterable[TopicPartition] = (), detail: Any = None) -> None:
        """Add an `Observation` of this client to the world's observations."""
        self.world.observe(self, kind, partitions, detail)


class EngineClient(Client):
    """A client that runs an engine of the package `consumer.engine`."""

    def on_transport_event(self, event: Opened | Data | Broken) -> None:
        """Pass a network event to the engine."""
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
        """Perform `action` if it concerns a connection. Return False for every other action."""
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
