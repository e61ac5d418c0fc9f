"""The wires between clients and brokers: latency, order, and everything that can go wrong with them.

Rules:
  * A connection is two lanes, and each keeps its order, as TCP does.
  * Bytes are never lost from the middle: what is dropped takes all that follows on its lane with it, and
    only a timeout tells. What is stalled comes later.
  * A fault hits the connections of one client (or all) with one broker (or all), those that are there and
    those that are made while it lasts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

from ...errors import ConfigError
from ...wire.frame import Frames

if TYPE_CHECKING:
    from .clients import Client

Kind = Literal["delay", "drop", "stall", "refuse", "cut", "half_close"]
KINDS: Final = ("delay", "drop", "stall", "refuse", "cut", "half_close")

Callback = Callable[..., None]


@dataclass(slots=True, eq=False)
class Fault:
    """Something wrong with the network. Made by `World.fault`, ended by `World.heal` or its time.

    * "delay": `ms` more on each way; with `chance` below 1 only for some of what is sent.
    * "drop": bytes vanish from here on, with `chance` at each send; the connection stays and is silent.
    * "stall": nothing moves, connections can't be made; what was sent comes when it ends. Over all brokers
      of a client, that is a network partition.
    * "refuse": new connections are refused.
    * "cut": all connections break at once. Over when it has happened.
    * "half_close": the brokers see the connections end, the clients don't. Over when it has happened.
    """

    kind: Kind
    client: str | None = None
    node: int | None = None
    ms: int = 0
    chance: float = 1.0

    def affects(self, client: str, node: int) -> bool:
        return self.client in (None, client) and self.node in (None, node)


def create_fault(kind: str, client: str | None, node: int | None, ms: int, chance: float) -> Fault:
    """A fault that was looked at. Raises ConfigError."""
    if kind not in KINDS:
        raise ConfigError("fault", kind, f"allowed: {', '.join(KINDS)}")
    if ms < 0:
        raise ConfigError("ms", ms, "at least 0 milliseconds")
    if not 0 <= chance <= 1:
        raise ConfigError("chance", chance, "from 0 (never) to 1 (always)")
    return Fault(kind, client, node, ms, chance)  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class Lane:
    """One direction of a connection."""

    last: int = 0
    lost: bool = False
    held: deque[tuple[Callback, tuple[Any, ...]]] = field(
        default_factory=deque[tuple[Callback, tuple[Any, ...]]]
    )


@dataclass(slots=True, eq=False)
class Wire:
    """One connection: `conn` is the broker's number for it, `key` the client's."""

    client: Client
    key: Any
    node: int
    conn: int
    up: Lane = field(default_factory=Lane)
    down: Lane = field(default_factory=Lane)
    frames: Frames = field(default_factory=Frames)
    open: bool = True  # as the client sees it
    known: bool = True  # as the broker sees it


class Network:
    """All wires and faults. `push(at, what, *args)` lets something happen at a time."""

    def __init__(
        self, random: Random, latency: tuple[int, int], now: Callable[[], int], push: Callable[..., None]
    ) -> None:
        self.random = random
        self.latency = latency
        self.faults: list[Fault] = []
        self.wires: dict[int, Wire] = {}
        self._now = now
        self._push = push
        self._waiting: list[tuple[Client, int, Callback, tuple[Any, ...]]] = []

    def send(self, wire: Wire, lane: Lane, what: Callback, *args: Any) -> None:
        """Let `what` happen at the other end, unless something is wrong."""
        if lane.lost:
            return
        extra = 0
        for fault in self.faults:
            if fault.affects(wire.client.name, wire.node):
                if fault.kind == "stall":
                    lane.held.append((what, args))
                    return
                if fault.kind in ("drop", "delay") and self._draw(fault):
                    if fault.kind == "drop":
                        lane.lost = True
                        return
                    extra += fault.ms
        if lane.held:
            lane.held.append((what, args))
            return
        lane.last = max(lane.last, self._now() + self._latency() + extra)
        self._push(lane.last, what, *args)

    def connect(self, client: Client, node: int, what: Callback, *args: Any) -> None:
        """Let `what` happen when a connection is made; never while it can't be."""
        extra = 0
        for fault in self.faults:
            if fault.affects(client.name, node):
                if fault.kind == "stall":
                    self._waiting.append((client, node, what, args))
                    return
                extra += fault.ms if fault.kind == "delay" and self._draw(fault) else 0
        self._push(self._now() + self._latency() + extra, what, *args)

    def refuses(self, client: Client, node: int) -> bool:
        return any(fault.kind == "refuse" and fault.affects(client.name, node) for fault in self.faults)

    def heal(self, fault: Fault) -> None:
        """End a fault; what it held goes on."""
        if fault not in self.faults:
            return
        self.faults.remove(fault)
        waiting, self._waiting = self._waiting, []
        for client, node, what, args in waiting:
            self.connect(client, node, what, *args)
        for wire in self.wires.values():
            for lane in (wire.up, wire.down):
                held, lane.held = lane.held, deque()
                for what, args in held:
                    self.send(wire, lane, what, *args)

    def wires_hit_by(self, fault: Fault) -> list[Wire]:
        return [wire for wire in self.wires.values() if fault.affects(wire.client.name, wire.node)]

    def _draw(self, fault: Fault) -> bool:
        return fault.chance >= 1 or self.random.random() < fault.chance

    def _latency(self) -> int:
        low, high = self.latency
        return low if low == high else self.random.randint(low, high)
