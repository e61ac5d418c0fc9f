"""The connections between clients and brokers: latency, order and faults.

Rules:

  * A connection has two lanes, one per direction. Each lane keeps the order of its bytes, as TCP does.

  * After bytes are dropped, all later bytes on the same lane are lost as well, so the receiver sees no gap in
    the stream. Only a timeout reveals the loss.

  * Bytes that a "stall" delays arrive in order after the fault has ended.

  * A fault affects the connections of one client (or all) to one broker (or all). Until the fault ends, it
    affects new connections, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Literal

from ...errors import ConfigError
from .clients import Callback, Client, Lane, Wire

Kind = Literal["delay", "drop", "stall", "refuse", "cut", "half_close"]
KINDS: Final = ("delay", "drop", "stall", "refuse", "cut", "half_close")


@dataclass(slots=True, eq=False)
class Fault:
    """A network fault. `World.fault` starts it. It ends after its duration, or when `World.heal` is called.

    * "delay": each direction takes `ms` longer. If `chance` is below 1, each send is delayed with this
      probability.

    * "drop": each send is lost with probability `chance`. After the first loss, all later sends in the same
      direction are lost as well. The connection stays open and silent.

    * "stall": no bytes arrive, and no connection is established. When the fault ends, the bytes that were
      sent arrive. A stall of a client with all brokers is a network partition.

    * "refuse": new connections are refused.

    * "cut": all connections are closed immediately. This fault has no duration.

    * "half_close": the brokers see the connections end, but the clients do not. This fault has no duration.
    """

    kind: Kind
    client: str | None = None
    node: int | None = None
    ms: int = 0
    chance: float = 1.0

    def affects(self, client: str, node: int) -> bool:
        """Return whether the fault affects the connections of `client` to broker `node`."""
        return self.client in (None, client) and self.node in (None, node)


def create_fault(kind: str, client: str | None, node: int | None, ms: int, chance: float) -> Fault:
    """Return a valid fault.

    Raises ConfigError for an unknown kind, a negative `ms` or a `chance` that is not between 0 and 1.
    """
    if kind not in KINDS:
        raise ConfigError("fault", kind, f"allowed: {', '.join(KINDS)}")
    if ms < 0:
        raise ConfigError("ms", ms, "at least 0 ms")
    if not 0 <= chance <= 1:
        raise ConfigError("chance", chance, "a number from 0 (never) to 1 (always)")
    return Fault(kind, client, node, ms, chance)  # type: ignore[arg-type]


class Network:
    """All connections and faults. `push(at, function, *args)` schedules a call at a time in virtual ms."""

    def __init__(
        self, random: Random, latency: tuple[int, int], now: Callable[[], int], push: Callable[..., None]
    ) -> None:
        self.random = random
        self.latency = latency
        self.faults: list[Fault] = []
        self.wires: dict[int, Wire] = {}
        self._now = now
        self._push = push
        self._stalled_connects: list[tuple[Client, int, Callback, tuple[Any, ...]]] = []

    def send(self, wire: Wire, lane: Lane, function: Callback, *args: Any) -> None:
        """Schedule the call `function(*args)` at the other end of the connection, after the latency.

        A fault may delay or prevent the call.
        """
        if lane.lost:
            return
        extra_ms = 0
        for fault in self.faults:
            if fault.affects(wire.client.name, wire.node):
                if fault.kind == "stall":
                    lane.held.append((function, args))
                    return
                if fault.kind in ("drop", "delay") and self._draw_chance(fault):
                    if fault.kind == "drop":
                        lane.lost = True
                        return
                    extra_ms += fault.ms
        if lane.held:
            lane.held.append((function, args))
            return
        lane.last = max(lane.last, self._now() + self._draw_latency() + extra_ms)
        self._push(lane.last, function, *args)

    def connect(self, client: Client, node: int, function: Callback, *args: Any) -> None:
        """Schedule the call `function(*args)` for the time at which the connection is established.

        A fault may delay the connection.
        """
        extra_ms = 0
        for fault in self.faults:
            if fault.affects(client.name, node):
                if fault.kind == "stall":
                    self._stalled_connects.append((client, node, function, args))
                    return
                extra_ms += fault.ms if fault.kind == "delay" and self._draw_chance(fault) else 0
        self._push(self._now() + self._draw_latency() + extra_ms, function, *args)

    def refuses(self, client: Client, node: int) -> bool:
        """Return whether connections of this client to broker `node` are refused."""
        return any(fault.kind == "refuse" and fault.affects(client.name, node) for fault in self.faults)

    def heal(self, fault: Fault) -> None:
        """End a fault. Establish the connections that it stalled, and send the stalled bytes.

        Connections and bytes that another fault still stalls continue to wait. A fault that has already ended
        is ignored.
        """
        if fault not in self.faults:
            return
        self.faults.remove(fault)
        stalled_connects, self._stalled_connects = self._stalled_connects, []
        for client, node, function, args in stalled_connects:
            self.connect(client, node, function, *args)
        for wire in self.wires.values():
            for lane in (wire.up, wire.down):
                held, lane.held = lane.held, deque()
                for function, args in held:
                    self.send(wire, lane, function, *args)

    def wires_hit_by(self, fault: Fault) -> list[Wire]:
        """Return the connections that the fault affects."""
        return [wire for wire in self.wires.values() if fault.affects(wire.client.name, wire.node)]

    def _draw_chance(self, fault: Fault) -> bool:
        """Decide at random, with probability `chance`, whether the fault applies to one send."""
        return fault.chance >= 1 or self.random.random() < fault.chance

    def _draw_latency(self) -> int:
        """Return the latency of one send in ms, a random one if `latency` is a range."""
        low, high = self.latency
        return low if low == high else self.random.randint(low, high)
