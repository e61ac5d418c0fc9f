"""The connections of a world's clients with its brokers: requests, responses and the brokers' actions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from ...broker import machine
from ...broker.broker import (
    Action,
    Disconnect,
    GroupCoordinatorStep,
    LogsCleaned,
    SendFrame,
    TransactionCoordinatorStep,
)
from ...error_codes import ErrorCode
from ...messages.headers import decode_request, encode_response
from ...wire.frame import frame
from . import trace as traces
from .clients import Client
from .network import Wire
from .user_code import reject_awaitable

if TYPE_CHECKING:
    from .world import World


class Exchange:
    """The part of `World` that transports bytes. Clients call `open`, `write_to` and `shut`."""

    @property
    def _world(self) -> World:
        return cast("World", self)

    def open(self, client: Client, key: Any, host: str, port: int) -> None:
        """Connect a client to the broker at this address; the client's id for the connection is `key`."""
        world = self._world
        node = next(
            (node.id for node in world.nodes.values() if (node.host, node.port) == (host, port)), None
        )
        if node is None:
            world.push(
                world.now + 1, client.run_when_awake, client.on_refused, key, f"no route to {host}:{port}"
            )
        else:
            world.network.connect(client, node, self._connect, client, key, node)

    def _connect(self, client: Client, key: Any, node: int) -> None:
        world = self._world
        if not client.alive:
            return
        if node not in world.brokers or world.network.refuses(client, node):
            client.run_when_awake(client.on_refused, key, "connection refused")
            return
        wire = Wire(client, key, node, next(world.ids))
        world.network.wires[wire.conn] = wire
        client.wires[key] = wire
        self.step(node, machine.ClientConnected(wire.conn, "client"))
        client.run_when_awake(self._on_opened, client, wire)

    def _on_opened(self, client: Client, wire: Wire) -> None:
        if wire.open:
            client.on_opened(wire)

    def write_to(self, client: Client, key: Any, data: bytes) -> None:
        """Send bytes of a client on its connection `key`."""
        world = self._world
        wire = client.wires.get(key)
        if wire is not None and wire.open:
            for body in wire.frames.feed(data):
                world.network.send(wire, wire.up, self._on_request, wire, body)

    def shut(self, client: Client, key: Any) -> None:
        """Close a connection from the client's side. The broker first reads what was sent before."""
        world = self._world
        wire = client.wires.pop(key, None)
        if wire is not None:
            wire.open = False
            world.network.send(wire, wire.up, self.disconnect_broker, wire)

    def disconnect_broker(self, wire: Wire) -> None:
        """Notify the broker that a connection is closed."""
        world = self._world
        if wire.known:
            wire.known = False
            del world.network.wires[wire.conn]
            if wire.node in world.brokers:
                self.step(wire.node, machine.ClientDisconnected(wire.conn))

    def disconnect_client(self, wire: Wire, why: str) -> None:
        """Notify the client that a connection is closed."""
        world = self._world
        if wire.open:
            world.network.send(wire, wire.down, wire.client.run_when_awake, self._on_disconnected, wire, why)

    def _on_disconnected(self, wire: Wire, why: str) -> None:
        if wire.open:
            wire.open = False
            wire.client.wires.pop(wire.key, None)
            wire.client.on_broken(wire, why)

    def _on_request(self, wire: Wire, body: bytes) -> None:
        """Pass a request to the broker, or respond to it by `tamper`."""
        world = self._world
        if not wire.known:
            return
        client = wire.client
        world.add_entry(client.name, "request", traces.RequestEntry(wire.node, body, wire.conn))
        response = None
        if world.tracing or world.tamper is not None:
            envelope = decode_request(body)
            request, version = envelope.request, envelope.version
            world.requests.append((client, request, version))
            world.pending_requests[wire.conn] = (envelope.header.request_api_key, version)
            tamper = world.tamper
            response = (
                None
                if tamper is None
                else reject_awaitable("tamper", tamper, tamper(client, request, version))
            )
            if response is not None:
                said = encode_response(response, version, envelope.header.correlation_id)
                self._reply(wire, said)
        if response is None:
            self.step(wire.node, machine.FrameReceived(wire.conn, body, world.random_id()))

    def observe_fencing(self, wire: Wire, code: int, identity: tuple[str, int]) -> None:
        """Record that the client receives an error that fences it.

        Errors for a former member id or generation are ignored. So is ILLEGAL_GENERATION while a JoinGroup is
        in flight: its response brings the next generation.
        """
        client = wire.client
        is_outdated = code == ErrorCode.ILLEGAL_GENERATION and client.is_joining
        if (
            wire.open
            and client.alive
            and not is_outdated
            and identity == (client.member_id, client.generation)
        ):
            client.observe("fenced", detail=code)

    def _reply(self, wire: Wire, body: bytes) -> None:
        world = self._world
        if world.tracing:
            key, version = world.pending_requests[wire.conn]
            world.add_entry(
                wire.client.name, "response", traces.ResponseEntry(wire.node, key, version, body, wire.conn)
            )
        world.network.send(wire, wire.down, wire.client.run_when_awake, self._deliver, wire, frame(body))

    def _deliver(self, wire: Wire, data: bytes) -> None:
        if wire.open:
            wire.client.on_received(wire, data)

    # ---- the brokers

    def step(self, node: int, event: machine.Event) -> None:
        """Apply an event to a broker, perform its actions and schedule its next tick."""
        self._step_broker(node, event)
        self.plan_tick(node)

    def _step_broker(self, node: int, event: machine.Event) -> None:
        """Apply an event to a broker and perform its actions."""
        world = self._world
        for action in machine.step(world.brokers[node], event, world.now):
            self._act(node, action)

    def _act(self, node: int, action: Action) -> None:
        world = self._world
        match action:
            case SendFrame(conn=conn, frame=body):
                wire = world.network.wires.get(conn)
                if conn in world.operator_responses:
                    world.operator_responses[conn] = body
                if wire is not None:
                    self._reply(wire, body)
                    self._step_broker(wire.node, machine.ResponseSent(conn))
            case Disconnect(conn=conn, reason=reason):
                wire = world.network.wires.pop(conn, None)
                if wire is not None:
                    wire.known = False
                    self.disconnect_client(wire, f"the broker closed the connection: {reason}")
            case GroupCoordinatorStep():
                world.on_coordinator_step(node, action)
            case LogsCleaned(partitions=partitions):
                world.disturbed.update(
                    partition for partition in world.partitions() if world.partition(partition) in partitions
                )
            case TransactionCoordinatorStep():
                pass

    def plan_tick(self, node: int) -> None:
        """Schedule the next tick of a broker."""
        world = self._world
        due = machine.next_deadline(world.brokers[node])
        planned = world.planned_ticks[node]
        if due is not None and (planned is None or due < planned):
            world.planned_ticks[node] = due = max(due, world.now)
            world.push(due, self._tick, node, due)

    def _tick(self, node: int, planned: int) -> None:
        world = self._world
        if world.planned_ticks[node] != planned:
            return
        world.planned_ticks[node] = None
        if node in world.brokers:
            due = machine.next_deadline(world.brokers[node])
            if due is not None and due <= world.now:
                self.step(node, machine.Tick())
            else:
                self.plan_tick(node)
