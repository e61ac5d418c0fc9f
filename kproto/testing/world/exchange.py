"""The connections of a world's clients to its brokers: requests, responses and the brokers' actions."""

from __future__ import annotations

from typing import Any, Final, cast

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
from ...group.classic.coordinator import GenerationStarted, MemberRemoved
from ...group.protocol import RebalanceCompleted
from ...group.subscription import TopicPartition
from ...machine import RequestReceived, SendResponse
from ...messages.headers import decode_request, encode_response
from ...messages.heartbeat import HeartbeatRequest
from ...messages.join_group import JoinGroupResponse
from ...messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ...messages.sync_group import SyncGroupRequest
from ...wire.frame import frame
from ...wire.message import Message
from . import trace as traces
from .clients import Client, Wire
from .state import WorldState
from .user_code import reject_awaitable

# Error codes by which a coordinator fences a member.
FENCES: Final = frozenset(
    {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}
)


class NetworkExchange(WorldState):
    """The part of `World` that transports bytes. Clients call `open`, `write_to` and `shut`."""

    def open(self, client: Client, key: Any, host: str, port: int) -> None:
        """Connect a client to the broker at this address; the client's id for the connection is `key`."""
        node = next((node.id for node in self.nodes.values() if (node.host, node.port) == (host, port)), None)
        if node is None:
            self.push(
                self.now + 1, client.run_when_awake, client.on_refused, key, f"no route to {host}:{port}"
            )
        else:
            self.network.connect(client, node, self._establish_connection, client, key, node)

    def _establish_connection(self, client: Client, key: Any, node: int) -> None:
        """Notify the broker and the client of a new connection.

        If the broker is down or unreachable, the connection is refused, and only the client is notified.
        """
        if not client.alive:
            return
        if node not in self.brokers or self.network.refuses(client, node):
            client.run_when_awake(client.on_refused, key, "connection refused")
            return
        wire = Wire(client, key, node, next(self.ids))
        self.network.wires[wire.conn] = wire
        client.wires[key] = wire
        self.step(node, machine.ClientConnected(wire.conn, "client"))
        client.run_when_awake(self._on_opened, client, wire)

    def _on_opened(self, client: Client, wire: Wire) -> None:
        if wire.open:
            client.on_opened(wire)

    def write_to(self, client: Client, key: Any, data: bytes) -> None:
        """Send bytes of a client on its connection `key`."""
        wire = client.wires.get(key)
        if wire is not None and wire.open:
            for body in wire.frames.feed(data):
                self.network.send(wire, wire.up, self._on_request, wire, body)

    def shut(self, client: Client, key: Any) -> None:
        """Close a connection from the client's side. The broker first reads what was sent earlier."""
        wire = client.wires.pop(key, None)
        if wire is not None:
            wire.open = False
            self.network.send(wire, wire.up, self.disconnect_broker, wire)

    def disconnect_broker(self, wire: Wire) -> None:
        """Notify the broker that a connection is closed."""
        if wire.known:
            wire.known = False
            del self.network.wires[wire.conn]
            if wire.node in self.brokers:
                self.step(wire.node, machine.ClientDisconnected(wire.conn))

    def disconnect_client(self, wire: Wire, why: str) -> None:
        """Notify the client that a connection is closed."""
        if wire.open:
            self.network.send(wire, wire.down, wire.client.run_when_awake, self._on_disconnected, wire, why)

    def _on_disconnected(self, wire: Wire, why: str) -> None:
        if wire.open:
            wire.open = False
            wire.client.wires.pop(wire.key, None)
            wire.client.on_broken(wire, why)

    def _on_request(self, wire: Wire, body: bytes) -> None:
        """Pass a request to the broker, unless `tamper` returns a response to it."""
        if not wire.known:
            return
        client, tamper = wire.client, self.tamper
        if self.tracing:
            self.add_entry(client.name, "request", traces.RequestEntry(wire.node, body, wire.conn))
        response: Message | None = None
        if self.tracing or tamper is not None:
            envelope = decode_request(body)
            request, version = envelope.request, envelope.version
            self.requests.append((client, request, version))
            self.pending_requests[wire.conn] = (envelope.header.request_api_key, version)
            if tamper is not None:
                response = reject_awaitable("tamper", tamper, tamper(client, request, version))
            if response is not None:
                encoded = encode_response(response, version, envelope.header.correlation_id)
                self._send_response(wire, encoded)
        if response is None:
            self.step(wire.node, machine.FrameReceived(wire.conn, body, self.random_id()))

    def _observe_fencing(self, wire: Wire, code: int, identity: tuple[str, int]) -> None:
        """Record that the client receives an error that fences it.

        An error is ignored if the rejected request carried a former member id or generation.
        ILLEGAL_GENERATION is also ignored while a JoinGroup is in flight, because the JoinGroup response will
        contain the next generation.
        """
        client = wire.client
        is_outdated = code == ErrorCode.ILLEGAL_GENERATION and client.is_joining
        if client.alive and not is_outdated and identity == (client.member_id, client.generation):
            client.observe("fenced", detail=code)

    def _send_response(self, wire: Wire, body: bytes) -> None:
        """Send a response to the client. Its fencing errors are observed when it arrives."""
        if self.tracing:
            key, version = self.pending_requests[wire.conn]
            self.add_entry(
                wire.client.name, "response", traces.ResponseEntry(wire.node, key, version, body, wire.conn)
            )
        fencings, wire.fencings = wire.fencings, []
        self.network.send(
            wire, wire.down, wire.client.run_when_awake, self._deliver_response, wire, frame(body), fencings
        )

    def _deliver_response(self, wire: Wire, data: bytes, fencings: list[tuple[int, tuple[str, int]]]) -> None:
        if wire.open:
            for code, identity in fencings:
                self._observe_fencing(wire, code, identity)
            wire.client.on_received(wire, data)

    # ---- the brokers

    def step(self, node: int, event: machine.Event) -> None:
        """Apply an event to a broker, perform its actions and schedule its next tick."""
        self._step_broker(node, event)
        self.plan_tick(node)

    def _step_broker(self, node: int, event: machine.Event) -> None:
        """Apply an event to a broker and perform its actions."""
        for action in machine.step(self.brokers[node], event, self.now):
            self._perform_action(node, action)

    def _perform_action(self, node: int, action: Action) -> None:
        match action:
            case SendFrame(conn=conn, frame=body):
                wire = self.network.wires.get(conn)
                if wire is not None:
                    self._send_response(wire, body)
                    self._step_broker(wire.node, machine.ResponseSent(conn))
                elif conn in self.operator_responses:
                    self.operator_responses[conn] = body
            case Disconnect(conn=conn, reason=reason):
                wire = self.network.wires.pop(conn, None)
                if wire is not None:
                    wire.known = False
                    self.disconnect_client(wire, f"the broker closed the connection: {reason}")
            case GroupCoordinatorStep():
                self.on_coordinator_step(node, action)
            case LogsCleaned(partitions=partitions):
                self.disturbed.update(
                    partition for partition in self.partitions() if self.partition(partition) in partitions
                )
            case TransactionCoordinatorStep():
                pass

    def plan_tick(self, node: int) -> None:
        """Schedule a tick at the broker's next deadline, unless one is scheduled for that time or earlier."""
        deadline = machine.next_deadline(self.brokers[node])
        planned = self.planned_ticks[node]
        if deadline is not None and (planned is None or deadline < planned):
            self.planned_ticks[node] = tick_at = max(deadline, self.now)
            self.push(tick_at, self._run_scheduled_tick, node, tick_at)

    def _run_scheduled_tick(self, node: int, scheduled_at: int) -> None:
        """Tick a broker if its deadline has been reached; otherwise schedule another tick.

        A tick is ignored if another one has replaced it.
        """
        if self.planned_ticks[node] != scheduled_at:
            return
        self.planned_ticks[node] = None
        if node in self.brokers:
            deadline = machine.next_deadline(self.brokers[node])
            if deadline is not None and deadline <= self.now:
                self.step(node, machine.Tick())
            else:
                self.plan_tick(node)

    # ---- group coordinators

    def on_coordinator_step(self, node: int, coordinator_step: GroupCoordinatorStep) -> None:
        """Record what a group coordinator did in response to one event.

        The method records stored offsets, fenced and removed members, generations and completed rebalances.
        """
        event = coordinator_step.event
        for action in coordinator_step.actions:
            if isinstance(action, RebalanceCompleted):
                self.observe(action.group_id, "settled", detail=(action.generation, action.members))
            elif isinstance(action, GenerationStarted):
                self.observe(action.group_id, "generation", detail=(action.generation, action.reasons))
            elif isinstance(action, MemberRemoved):
                self.observe(action.group_id, "removed", detail=(action.member_id, action.reason))
            elif not isinstance(action, SendResponse):
                self.add_entry(f"broker {node}", "notice", action)
            else:
                if isinstance(action.response, JoinGroupResponse) and action.response.member_id:
                    wire = self.network.wires.get(cast(int, action.token))
                    if wire is not None:
                        self.member_names[action.response.member_id] = wire.client.name
                if isinstance(event, RequestReceived) and action.token == event.token:
                    self._observe_response(event, action)

    def _observe_response(self, event: RequestReceived[Message], reply: SendResponse) -> None:
        """Record the offsets that a commit stored, and note the fencing errors in the response.

        The client is observed as fenced only when it receives the response.
        """
        request, response = event.request, reply.response
        if isinstance(request, OffsetCommitRequest) and isinstance(response, OffsetCommitResponse):
            stored = self._stored_offsets(request, response)
            if stored:
                self.observe(request.group_id, "stored", tuple(stored), stored)
            codes = {partition.error_code for topic in response.topics for partition in topic.partitions}
            identity = (request.member_id, request.generation_id_or_member_epoch)
        elif isinstance(request, HeartbeatRequest | SyncGroupRequest):
            codes = {cast(Any, response).error_code}
            identity = (request.member_id, request.generation_id)
        else:
            return
        wire = self.network.wires.get(cast(int, reply.token))
        if wire is not None:
            wire.fencings += [(code, identity) for code in codes & FENCES]

    def _stored_offsets(
        self, request: OffsetCommitRequest, response: OffsetCommitResponse
    ) -> dict[TopicPartition, int]:
        """Return a mapping from partitions to the offsets that the coordinator stored.

        The coordinator stored an offset of the request if the response has no error for its partition.
        """
        accepted = {
            (topic.name, topic.topic_id, partition.partition_index)
            for topic in response.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE
        }
        stored: dict[TopicPartition, int] = {}
        for topic in request.topics:
            name = topic.name or self.cluster.topics.name(topic.topic_id) or ""
            for partition in topic.partitions:
                if (topic.name, topic.topic_id, partition.partition_index) in accepted:
                    stored[TopicPartition(name, partition.partition_index)] = partition.committed_offset
        return stored
