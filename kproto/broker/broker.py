"""The state of the embedded broker, and the operations that API handlers call.

`machine.step` applies events to this state. This module also declares the actions that `step` returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from msgspec import structs

from .. import transactions
from ..deadlines import Deadlines
from ..error_codes import ErrorCode
from ..errors import EncodeError
from ..group.protocol import CoordinatorAction, CoordinatorEvent, TopicsDeleted, TransactionEnded
from ..machine import SendResponse
from ..messages.api_versions import ApiVersion
from ..messages.headers import encode_response
from ..transactions.state import OFFSETS_TOPIC
from ..wire.message import Message
from .call import Call, DelayedRequest, Node
from .client_metrics import ClientMetricsManager
from .cluster import BrokerCluster
from .connection import Connection
from .faults import replace_errors, set_throttle_time
from .fetch_sessions import FetchSessions
from .purgatory import Purgatory
from .security.acls import Acls
from .security.authenticator import SaslState
from .security.users import Users
from .settings import Settings
from .topics import Partition, Topic


class SendFrame(NamedTuple):
    """Send the frame with a size prefix on the connection, then step with `ResponseSent`."""

    conn: int
    frame: bytes


class Disconnect(NamedTuple):
    """Close the connection; `reason` is for the log. The caller need not send `ClientDisconnected` for it."""

    conn: int
    reason: str


class GroupCoordinatorStep(NamedTuple):
    """For `Server.observe`: the group coordinator applied `event` and returned `actions`."""

    event: CoordinatorEvent
    actions: tuple[CoordinatorAction, ...]


class TransactionCoordinatorStep(NamedTuple):
    """For `Server.observe`: the transaction coordinator applied `event` and returned `actions`."""

    event: transactions.TransactionEvent
    actions: tuple[transactions.TransactionAction, ...]


class LogsCleaned(NamedTuple):
    """A report that retention or compaction removed records from these partitions."""

    partitions: tuple[Partition, ...]


Action: TypeAlias = SendFrame | Disconnect | GroupCoordinatorStep | TransactionCoordinatorStep | LogsCleaned


def initial_acls(settings: Settings) -> Acls | None:
    """Return the ACLs of a new broker, or None if the settings configure no authorizer."""
    if not settings.authorizer_class_name:
        return None
    super_users = [name.strip() for name in settings.super_users.split(";") if name.strip()]
    return Acls(super_users, allow_everyone=settings.allow_everyone_if_no_acl_found)


class Broker:
    """The state of one broker: its connections, delayed requests and sessions.

    The topics and the coordinators belong to the broker's cluster.
    """

    def __init__(
        self,
        settings: Settings,
        node: Node,
        apis: Mapping[int, ApiVersion],
        *,
        cluster_id: str = "kproto-embedded-broker",
        cluster: BrokerCluster | None = None,
        users: Users | None = None,
        acls: Acls | None = None,
    ) -> None:
        """Create the broker of one node.

        `apis` holds the versions to advertise (see `apis.table.served_versions`). Without `cluster`, the
        broker creates a cluster with this node only.
        """
        self.node: Final = node
        self.apis: Final = apis
        self.cluster_id: Final = cluster_id
        self.cluster: Final = cluster or BrokerCluster(settings, [node])
        self.cluster.brokers[node.id] = self
        self.settings = self.cluster.dynamic.settings(node.id)
        self.topics: Final = self.cluster.topics
        self.coordinator: Final = self.cluster.coordinator
        self.transactions: Final = self.cluster.transactions
        self.fetch_sessions: Final = FetchSessions(settings.max_incremental_fetch_session_cache_slots)
        self.client_metrics: Final = ClientMetricsManager(self.cluster.client_metrics)
        self.connections: Final = self.cluster.connections
        self.users: Final = users or Users()
        self.acls: Final = initial_acls(settings) if acls is None else acls
        self.purgatory: Final = Purgatory()
        # Connection to close at a deadline -> the last response or None, and the reason of the close.
        self.pending_closes: Final[dict[int, tuple[Message | None, str]]] = {}
        self.close_deadlines: Final[Deadlines[int]] = Deadlines()
        # Connections whose response has been sent, so that their next request may be served.
        self.ready_connections: Final[deque[Connection]] = deque()
        # Connections whose large request is divided into pieces, in the order in which their next pieces are
        # served.
        self.large_requests: Final[deque[Connection]] = deque()
        # API key -> the error with which its next requests fail, and the number of these requests.
        self.injected_errors: Final[dict[int, tuple[ErrorCode, int]]] = {}
        # API key -> the throttle time of its responses, in ms.
        self.throttle_times: Final[dict[int, int]] = {}
        # Connection of a throttled client -> the deadline before which its requests are not served.
        self.muted: Final[Deadlines[int]] = Deadlines()
        # The time and the actions of the current step.
        self.now = 0
        self.actions: list[Action] = []

    @property
    def wall_clock(self) -> int:
        """The wall-clock time in ms since 1970, used for record timestamps and token expiration."""
        return self.now + self.cluster.wall_clock_offset

    def backlog(self, conn: int) -> int:
        """Return the total size in bytes of the queued requests of a connection.

        The socket layer (`shell`) stops reading from a connection whose queued requests exceed a limit.
        """
        connection = self.connections.get(conn)
        return connection.queued_bytes if connection else 0

    def has_request_in_progress(self, conn: int) -> bool:
        """Return whether a request of this connection is being served."""
        connection = self.connections.get(conn)
        return connection is not None and connection.is_busy

    def is_authenticated(self, conn: int) -> bool:
        """Return whether the connection uses SASL and its client is authenticated."""
        connection = self.connections.get(conn)
        return (
            connection is not None
            and connection.authenticator is not None
            and connection.authenticator.state is SaslState.COMPLETE
        )

    def respond(self, conn: int, response: Message) -> None:
        """Send the response to the current request of a connection, if the connection is open.

        The call's `amend_response` changes the response first. Then the response gets the call's injected
        error and the API's throttle time, if they are set. The responses to the pieces of a large request are
        merged, and sent as one frame after the last piece.
        """
        connection = self.connections.get(conn)
        if connection is None or connection.current_call is None:
            return
        call = connection.current_call
        connection.current_call = None
        connection.response_in_flight = True
        if call.amend_response is not None:
            response = call.amend_response(response)
        if call.injected_error is not None:
            replace_errors(response, call.injected_error, call.version)
        header = call.envelope.header
        throttle_ms = self.throttle_times.get(header.request_api_key)
        if throttle_ms:
            set_throttle_time(response, call.version, throttle_ms)
            self.muted.set(conn, self.now + throttle_ms)
        try:
            frame = encode_response(response, call.version, header.correlation_id)
        except EncodeError:
            # The response is too long to encode, so an error response replaces it. EncodeError is raised if
            # the error response is also too long, for example because it repeats a long name.
            if call.injected_error is not None:
                raise
            connection.oversized_call = structs.replace(call, injected_error=ErrorCode.UNKNOWN_SERVER_ERROR)
            self.ready_connections.append(connection)
            return
        if connection.large_request is not None:
            merged_frame = connection.large_request.add_response(response, frame)
            if merged_frame is None:  # Other pieces of the request are not answered yet.
                connection.response_in_flight = False
                return
            frame, connection.large_request = merged_frame, None
        connection.unsent_bytes = len(frame)
        self.cluster.unsent += len(frame)
        self.actions.append(SendFrame(conn, frame))

    def replace_call(self, call: Call, amend: Callable[[Any], object]) -> Call:
        """Return a copy of the call, in which `amend` changes the response before it is sent.

        If other functions already change the response, `amend` runs before them. The returned call becomes
        the current call of its connection.
        """
        amend_earlier = call.amend_response

        def amend_response(response: Message) -> Message:
            amend(response)
            return response if amend_earlier is None else amend_earlier(response)

        call = structs.replace(call, amend_response=amend_response)
        connection = self.connections.get(call.conn)
        if connection is not None:
            connection.current_call = call
        return call

    def is_authorized(self, call: Call, operation: int, resource: int, name: str) -> bool:
        """Return whether the caller may perform an operation; false if an error is injected into the call."""
        acls = self.acls
        if call.injected_error is not None:
            return False
        return acls is None or acls.allows(call.principal, call.host, operation, resource, name)

    def is_authorized_for_any(self, call: Call, operation: int, resource: int) -> bool:
        """Return whether the caller may perform an operation on at least one resource of a type."""
        if call.injected_error is not None:
            return False
        return self.acls is None or self.acls.allows_any(call.principal, call.host, operation, resource)

    def is_leader(self, partition: Partition, index: int) -> bool:
        """Return whether this broker leads a partition."""
        return self.cluster.leader(partition, index) == self.node.id

    def step_group_coordinator(self, event: CoordinatorEvent, now: int) -> None:
        """Apply an event to the group coordinator, and send its responses."""
        actions = tuple(self.coordinator.step(event, now))
        self.actions.append(GroupCoordinatorStep(event, actions))
        for action in actions:
            if isinstance(action, SendResponse) and isinstance(action.token, int):
                self.respond(action.token, action.response)

    def step_transaction_coordinator(
        self, event: transactions.TransactionEvent, now: int
    ) -> tuple[transactions.TransactionAction, ...]:
        """Apply an event to the transaction coordinator, send its responses and write its markers.

        Returns the actions of this event, without the actions of the `MarkersWritten` events that follow.
        """
        actions = tuple(transactions.step(self.transactions, event, now))
        self.actions.append(TransactionCoordinatorStep(event, actions))
        for action in actions:
            if isinstance(action, transactions.WriteMarkers):
                self._write_markers(action, now)
                self.step_transaction_coordinator(transactions.MarkersWritten(action.transactional_id), now)
            elif isinstance(action.token, int):
                self.respond(action.token, action.response)
        return actions

    def _write_markers(self, action: transactions.WriteMarkers, now: int) -> None:
        """End a transaction in its partitions, and in the groups whose offsets the transaction contains."""
        marked_partitions: list[Partition] = []
        for name, index in action.partitions:
            if name == OFFSETS_TOPIC:
                self.cluster.clear_pending_offsets(action.producer_id, (name, index))
            topic = self.topics.named(name)
            partition = None if topic is None else topic.partition(index)
            if topic is not None and partition is not None:
                partition.write_marker(
                    action.producer_id,
                    action.producer_epoch,
                    self.wall_clock,
                    committed=action.committed,
                    limits=topic.limits(self.settings),
                )
                marked_partitions.append(partition)
        if any(name == OFFSETS_TOPIC for name, _ in action.partitions):
            self.step_group_coordinator(TransactionEnded(action.producer_id, action.committed), now)
        self.on_partitions_changed(marked_partitions)

    def end_pending_offsets(self, producer_id: int, index: int, now: int, *, committed: bool) -> None:
        """End the producer's transaction in a partition of `__consumer_offsets`, if it is ongoing there."""
        if self.cluster.clear_pending_offsets(producer_id, (OFFSETS_TOPIC, index)):
            self.step_group_coordinator(TransactionEnded(producer_id, committed), now)

    def create_topic(
        self, name: str, count: int, random_id: UUID, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Create a topic without leaders: the caller must then call `assign_leaders` of the cluster.

        The caller must have checked the name and the partition count with `Topics.refusal`.
        """
        return self.topics.create(name, uuid5(random_id, name), count, configs)

    def delete_topic(self, topic: Topic, now: int) -> None:
        """Delete a topic and the offsets that were committed for it.

        Fetches that wait for records of the deleted topic are completed.
        """
        self.topics.delete(topic)
        for partition in topic.partitions:
            self.cluster.leaders.pop(partition, None)
        self.step_group_coordinator(TopicsDeleted(frozenset({topic.name})), now)
        self.on_partitions_changed(topic.partitions)

    def park(self, fetch: DelayedRequest) -> None:
        """Keep a fetch in the purgatory until it can be completed or its deadline has passed."""
        self.purgatory.add(fetch)

    def on_partitions_changed(self, partitions: Iterable[Partition]) -> None:
        """Try to complete the fetches that wait for these partitions, on all brokers of the cluster.

        The broker that coordinates a transaction writes its markers, even to partitions that other brokers
        lead.
        """
        changed = list(partitions)
        for broker in self.cluster.brokers.values():
            changed_sessions = broker.fetch_sessions.activate(changed)
            for fetch in broker.purgatory.waiting_for([*changed, *changed_sessions]):
                response = fetch.try_complete()
                if response is None:
                    broker.purgatory.update(fetch)
                else:
                    broker.purgatory.remove(fetch.call.conn)
                    self.respond(fetch.call.conn, response)
