"""The embedded broker as a state machine, without sockets, clock or random source.

    broker = Broker(Settings.from_properties({}), Node(1, "127.0.0.1", 9092), served_versions())
    actions = step(broker, FrameReceived(conn, frame, random_id), now)

Rules:

* `step` uses no socket, clock or random source. `now` is in milliseconds and never decreases. The wall-clock
  time is `now` plus `BrokerCluster.wall_clock_offset`.

* Random ids of topics and members are derived from the `random_id` of the request that creates them.

* A connection has one request in progress, as in Kafka. So responses are sent in the order of the requests,
  and a delayed JoinGroup delays all later requests.

* The next request of a connection also waits for `ResponseSent`. So a client that does not read its responses
  delays only its own requests.

* A request with many elements is divided (`LargeRequest`). Each `Tick` serves one piece of one request, and
  other connections are served between the pieces.

* The operator is the test or program that runs the broker. Methods of `Server`, such as `truncate`, create
  the operator's events.

* Each request is answered, except a successful Produce with acks=0. If a request cannot be answered, only its
  own connection is closed, with `Disconnect` and a reason.

* The group coordinator implements `kproto.group.protocol.GroupCoordinator`, and its steps are reported as
  `GroupCoordinatorStep`. The module `kproto.transactions` provides the transaction coordinator, and its steps
  are reported as `TransactionCoordinatorStep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from .. import transactions
from ..deadlines import earliest
from ..error_codes import ErrorCode
from ..errors import ConfigError, DecodeError
from ..machine import Tick as Tick
from ..messages.headers import (
    RequestHeader,
    UnsupportedRequest,
    decode_request,
    decode_request_header,
    decode_request_views,
    encode_response,
)
from ..security.exchange import Rejected
from ..security.oauthbearer import MECHANISM as OAUTHBEARER
from ..wire.message import Message
from .apis.api_versions import API_VERSIONS, unsupported_api_versions
from .apis.partitions import find_partition
from .apis.table import APIS
from .broker import Action, Broker, Disconnect, LogsCleaned, SendFrame
from .call import PARKED, Call, CloseWithoutResponse, RespondThenClose
from .connection import Connection
from .large_request import HUGE_FRAME, SMALL_FRAME, LargeRequest
from .security.authenticator import ANONYMOUS, MAX_UNAUTHENTICATED_SIZE, SaslAuthenticator, SaslState
from .topics import MAX_PARTITIONS, Partition, grow


class ClientConnected(NamedTuple):
    """Event: a client has connected; `conn` is a number that is never used again."""

    conn: int
    host: str
    # The security protocol of the listener; a SASL protocol requires a login.
    listener: str = "PLAINTEXT"
    # The principal of the client's certificate.
    principal: str = ANONYMOUS
    # The client's port, or 0 if it is unknown.
    port: int = 0


class FrameReceived(NamedTuple):
    """Event: a request has arrived; `frame` does not contain the size prefix."""

    conn: int
    frame: bytes
    random_id: UUID


class ResponseSent(NamedTuple):
    """Event: the most recent `SendFrame` of a connection was written, and the socket accepts more data."""

    conn: int


class ClientDisconnected(NamedTuple):
    """Event: the client has closed a connection, or the connection was lost."""

    conn: int


class CreateTopic(NamedTuple):
    """Event: the operator creates a topic.

    `step` raises ConfigError if the topic exists, or its name or partition count is not allowed.
    """

    name: str
    partitions: int
    topic_id: UUID
    configs: Mapping[str, str] = {}


class GrowTopic(NamedTuple):
    """Event: the operator increases the partition count of a topic.

    `step` raises ConfigError if the topic does not exist or the partition count is not allowed.
    """

    name: str
    partitions: int


class ElectLeader(NamedTuple):
    """Event: a partition starts a new leader epoch, for example after an election.

    `node` becomes the leader; None keeps the leader.

    In a cluster, apply the event to the old leader, because that broker may hold delayed fetches.
    """

    topic: str
    partition: int
    node: int | None = None


class MoveCoordinator(NamedTuple):
    """Event: another node becomes a group's coordinator, and loads the group for `loading_ms`.

    Apply the event to the broker that was the coordinator: this broker may hold delayed requests of members.
    """

    group: str
    node: int
    loading_ms: int = 0


class TruncateLog(NamedTuple):
    """Event: an unclean election, in which the new leader's log ends at `offset`.

    A new leader epoch starts at the end of the truncated log. The batch that contains `offset` is removed as
    a whole, so the log may end before `offset`.

    `step` raises ConfigError if the log does not contain `offset`.
    """

    topic: str
    partition: int
    offset: int


class LogChanged(NamedTuple):
    """Event: the operator has written to a log directly, so the log's delayed fetches are retried."""

    topic: str
    partition: int


class CleanLogs(NamedTuple):
    """Event: the operator runs retention and compaction on all logs, including active segments."""


class FailRequests(NamedTuple):
    """Event: the operator makes the next `times` requests of an API fail with `code`."""

    api_key: int
    code: ErrorCode
    times: int


class ThrottleClients(NamedTuple):
    """Event: the operator throttles an API.

    Each response of this API mutes its connection for `ms`: the broker reads no further request from it.
    """

    api_key: int
    ms: int


Event: TypeAlias = (
    ClientConnected
    | FrameReceived
    | ResponseSent
    | ClientDisconnected
    | Tick
    | CreateTopic
    | GrowTopic
    | ElectLeader
    | MoveCoordinator
    | TruncateLog
    | LogChanged
    | CleanLogs
    | FailRequests
    | ThrottleClients
)


def step(broker: Broker, event: Event, now: int) -> list[Action]:
    """Apply an event at time `now`, and return the actions to perform, in order."""
    broker.actions, broker.now = [], now
    broker.cluster.expire_producers(now)
    cleaned_partitions = broker.cluster.log_manager.run_due_tasks(now, broker.cluster.wall_clock_offset)
    if cleaned_partitions:
        _report_cleaned_logs(broker, cleaned_partitions)
    _HANDLERS[type(event)](broker, event, now)
    while broker.ready_connections:
        connection = broker.ready_connections.popleft()
        if broker.connections.get(connection.conn) is connection:
            _serve_queue(broker, connection, now)
    return broker.actions


def next_deadline(broker: Broker) -> int | None:
    """Return the time in ms at which the next `Tick` is due, or None if no deadline is pending."""
    return earliest(
        broker.now if broker.large_requests else None,
        broker.purgatory.next_deadline(),
        broker.close_deadlines.earliest(),
        broker.muted.earliest(),
        broker.coordinator.next_deadline(),
        transactions.next_deadline(broker.transactions),
    )


def _on_client_connected(broker: Broker, event: ClientConnected, now: int) -> None:
    """Add the connection. On a SASL listener, its client must authenticate first."""
    authenticator = None
    if event.listener.startswith("SASL"):
        enabled_mechanisms = broker.settings.sasl_enabled_mechanisms.split(",")
        checks_tokens = broker.users.tokens is not None
        mechanisms = [name for name in enabled_mechanisms if name != OAUTHBEARER or checks_tokens]
        max_reauth_ms = broker.settings.connections_max_reauth_ms
        authenticator = SaslAuthenticator(
            broker.users, mechanisms, max_reauth_ms, broker.cluster.delegation_tokens
        )
    broker.connections[event.conn] = Connection(
        event.conn,
        event.host,
        listener=event.listener,
        certificate_principal=event.principal,
        port=event.port,
        authenticator=authenticator,
    )


def _on_frame_received(broker: Broker, event: FrameReceived, now: int) -> None:
    connection = broker.connections.get(event.conn)
    if connection is not None:
        connection.request_queue.append((event.frame, event.random_id))
        connection.queued_bytes += len(event.frame)
        broker.ready_connections.append(connection)


def _on_response_sent(broker: Broker, event: ResponseSent, now: int) -> None:
    connection = broker.connections.get(event.conn)
    if connection is not None:
        connection.response_in_flight = False
        broker.cluster.unsent -= connection.unsent_bytes
        connection.unsent_bytes = 0
        broker.ready_connections.append(connection)


def _on_client_disconnected(broker: Broker, event: ClientDisconnected, now: int) -> None:
    _forget_connection(broker, event.conn)


def _forget_connection(broker: Broker, conn: int) -> None:
    """Remove a connection, if it exists, with its delayed request and its deadlines."""
    connection = broker.connections.pop(conn, None)
    if connection is not None:
        broker.cluster.unsent -= connection.unsent_bytes
    broker.purgatory.remove(conn)
    broker.client_metrics.on_disconnect(conn)
    broker.pending_closes.pop(conn, None)
    broker.close_deadlines.drop(conn)
    broker.muted.drop(conn)


def _on_tick(broker: Broker, event: Tick, now: int) -> None:
    _complete_expired_requests(broker, now)
    _close_due_connections(broker, now)
    if broker.large_requests:
        _serve_due_piece(broker, now)
    for conn in list(broker.muted.take(now)):
        if conn in broker.connections:
            broker.ready_connections.append(broker.connections[conn])
    group_deadline = broker.coordinator.next_deadline()
    if group_deadline is not None and group_deadline <= now:
        broker.step_group_coordinator(Tick(), now)
    transaction_deadline = transactions.next_deadline(broker.transactions)
    if transaction_deadline is not None and transaction_deadline <= now:
        broker.step_transaction_coordinator(Tick(), now)


def _complete_expired_requests(broker: Broker, now: int) -> None:
    """Answer the delayed requests whose deadline has passed."""
    for request in broker.purgatory.expired(now):
        response = request.try_complete(force=True)
        broker.purgatory.remove(request.call.conn)
        if response is not None:
            broker.respond(request.call.conn, response)


def _close_due_connections(broker: Broker, now: int) -> None:
    """Send the last responses on the connections that are due to be closed, then close them."""
    for conn in list(broker.close_deadlines.take(now)):
        response, reason = broker.pending_closes[conn]
        if response is not None:
            broker.respond(conn, response)
        _disconnect(broker, conn, reason)


def _disconnect(broker: Broker, conn: int, reason: str) -> None:
    """Remove a connection, and add the action that closes it."""
    _forget_connection(broker, conn)
    broker.actions.append(Disconnect(conn, reason))


def _schedule_close(broker: Broker, conn: int, at: int, response: Message | None, reason: str) -> None:
    """At the time `at` (ms), send `response` and close the connection. If `at` has passed, do so now."""
    broker.pending_closes[conn] = response, reason
    broker.close_deadlines.set(conn, at)
    _close_due_connections(broker, broker.now)


def _on_create_topic(broker: Broker, event: CreateTopic, now: int) -> None:
    refusal = broker.topics.refusal(event.name, event.partitions)
    if refusal is not None:
        _, reason = refusal
        raise ConfigError("topic", f"{event.name}:{event.partitions}", reason)
    topic = broker.topics.create(event.name, event.topic_id, event.partitions, event.configs)
    broker.cluster.assign_leaders(topic)


def _on_grow_topic(broker: Broker, event: GrowTopic, now: int) -> None:
    topic = broker.topics.named(event.name)
    value = f"{event.name}:{event.partitions}"
    if topic is None:
        raise ConfigError("topic", value, "the topic does not exist; create it first")
    if event.partitions < len(topic.partitions):
        allowed = f"at least {len(topic.partitions)}: partitions cannot be removed"
        raise ConfigError("topic", value, allowed)
    if event.partitions > MAX_PARTITIONS:
        raise ConfigError("topic", value, f"at most {MAX_PARTITIONS} partitions")
    grow(topic, event.partitions)
    broker.cluster.assign_leaders(topic)


def _on_elect_leader(broker: Broker, event: ElectLeader, now: int) -> None:
    partition = _existing_partition(broker, event.topic, event.partition)
    if event.node is not None:
        broker.cluster.leaders[partition] = event.node
    partition.log.start_leader_epoch()
    broker.on_partitions_changed([partition])


def _on_move_coordinator(broker: Broker, event: MoveCoordinator, now: int) -> None:
    for action in broker.cluster.move_group(event.group, event.node, now, event.loading_ms):
        if isinstance(action.token, int):
            broker.respond(action.token, action.response)


def _on_truncate_log(broker: Broker, event: TruncateLog, now: int) -> None:
    partition = _existing_partition(broker, event.topic, event.partition)
    log = partition.log
    if not log.start_offset <= event.offset <= log.end_offset:
        where = f"{event.topic}:{event.partition}"
        allowed = f"from {log.start_offset} to {log.end_offset}, the log of {where}"
        raise ConfigError("offset", event.offset, allowed)
    partition.truncate(event.offset)
    broker.on_partitions_changed([partition])


def _on_log_changed(broker: Broker, event: LogChanged, now: int) -> None:
    broker.on_partitions_changed([_existing_partition(broker, event.topic, event.partition)])


def _on_clean_logs(broker: Broker, event: CleanLogs, now: int) -> None:
    cleaned_partitions = broker.cluster.log_manager.clean_all(broker.wall_clock)
    if cleaned_partitions:
        _report_cleaned_logs(broker, cleaned_partitions)


def _report_cleaned_logs(broker: Broker, partitions: list[Partition]) -> None:
    broker.actions.append(LogsCleaned(tuple(partitions)))
    broker.on_partitions_changed(partitions)


def _on_fail_requests(broker: Broker, event: FailRequests, now: int) -> None:
    if event.times:
        broker.injected_errors[event.api_key] = event.code, event.times
    else:
        broker.injected_errors.pop(event.api_key, None)


def _on_throttle_clients(broker: Broker, event: ThrottleClients, now: int) -> None:
    if event.ms:
        broker.throttle_times[event.api_key] = event.ms
    else:
        broker.throttle_times.pop(event.api_key, None)


def _take_request_error(broker: Broker, connection: Connection, api_key: int) -> ErrorCode | None:
    """Return the error to inject into a request; None if no error is to be injected.

    All pieces of a large request get the error that was injected into its first piece.
    """
    large = connection.large_request
    if large is None:
        return _take_injected_error(broker, api_key)
    if large.is_first_piece:
        large.injected_error = _take_injected_error(broker, api_key)
    return large.injected_error


def _take_injected_error(broker: Broker, api_key: int) -> ErrorCode | None:
    """Take one of the errors to inject into an API's requests; None if no error is left."""
    code, times = broker.injected_errors.get(api_key, (None, 0))
    if code is not None:
        _on_fail_requests(broker, FailRequests(api_key, code, times - 1), 0)
    return code


def _existing_partition(broker: Broker, topic: str, index: int) -> Partition:
    """Return a partition. Raises ConfigError if it does not exist."""
    partition = find_partition(broker.topics, topic, index)
    if partition is None:
        raise ConfigError("topic", f"{topic}:{index}", "the partition does not exist")
    return partition


def _serve_queue(broker: Broker, connection: Connection, now: int) -> None:
    """Serve queued requests of a connection, until one is delayed or a response has to be sent first."""
    if connection.oversized_call is not None:
        call, connection.oversized_call = connection.oversized_call, None
        connection.response_in_flight = False
        # The request was executed, but its response was too long to encode. `call` now has an
        # `injected_error`, so `_execute` sends only an error response.
        _execute(broker, connection, call)
    while connection.request_queue and not connection.is_busy and not connection.response_in_flight:
        muted_until = broker.muted.of(connection.conn)
        if muted_until is not None and muted_until > now:
            return
        frame, random_id = connection.request_queue.popleft()
        connection.queued_bytes -= len(frame)
        reason = _serve_request(broker, connection, frame, random_id, now)
        if reason is not None:
            _disconnect(broker, connection.conn, reason)
            return


def _serve_request(
    broker: Broker, connection: Connection, frame: bytes, random_id: UUID, now: int
) -> str | None:
    """Serve one request; return None, or the reason to close the connection."""
    authenticator = connection.authenticator
    if authenticator is not None:
        if authenticator.state is not SaslState.COMPLETE and len(frame) > MAX_UNAUTHENTICATED_SIZE:
            return f"{len(frame)} bytes from a client that was not authenticated"
        if authenticator.raw:
            return _serve_raw_frame(broker, connection, authenticator, frame, now)
    if len(frame) > SMALL_FRAME:
        return _begin_large_request(broker, connection, frame, random_id, now)
    return _serve_frame(broker, connection, frame, random_id, now)


def _begin_large_request(
    broker: Broker, connection: Connection, frame: bytes, random_id: UUID, now: int
) -> str | None:
    """Start dividing a large request into pieces.

    If the request is larger than `HUGE_FRAME`, even its first piece is served in a later step.
    """
    try:
        header, request, body = decode_request_header(frame)
    except UnsupportedRequest as error:
        return _refuse_unsupported(broker, connection, error.header, str(error))
    except DecodeError as error:
        return str(error)
    api, version = APIS.get(header.request_api_key), header.request_api_version
    if api is None:
        return f"this broker does not serve {request.__name__} v{version}"
    connection.large_request = LargeRequest(
        frame, body, request, version, random_id, api.divided_array(version), unique=api.unique
    )
    if len(frame) > HUGE_FRAME:
        broker.large_requests.append(connection)
        return None
    return _serve_piece(broker, connection, now)


def _serve_due_piece(broker: Broker, now: int) -> None:
    """Serve a piece of the large request that has waited longest, if its connection is still open."""
    connection = broker.large_requests.popleft()
    if broker.connections.get(connection.conn) is connection:
        reason = _serve_piece(broker, connection, now)
        if reason is not None:
            _disconnect(broker, connection.conn, reason)


def _serve_piece(broker: Broker, connection: Connection, now: int) -> str | None:
    """Serve the next piece of a large request; return None, or the reason to close the connection."""
    large = connection.large_request
    assert large is not None
    try:
        frame = large.next_frame()
    except DecodeError as error:
        return str(error)
    if frame is None:  # The request is still being divided.
        broker.large_requests.append(connection)
        return None
    if large.is_whole:  # The request has only one piece, so it is served like a small request.
        connection.large_request = None
    reason = _serve_frame(broker, connection, frame, large.random_id, now)
    if connection.large_request is not None:
        broker.large_requests.append(connection)
    return reason


def _serve_frame(
    broker: Broker, connection: Connection, frame: bytes, random_id: UUID, now: int
) -> str | None:
    """Serve a request or a piece of one; return None, or the reason to close the connection."""
    authenticator = connection.authenticator
    try:
        # The batches of a large Produce request are decoded as views of the frame, because the log copies
        # them anyway.
        envelope = decode_request_views(frame) if len(frame) > SMALL_FRAME else decode_request(frame)
    except UnsupportedRequest as error:
        return _refuse_unsupported(broker, connection, error.header, str(error))
    except DecodeError as error:
        return str(error)
    api_key = envelope.header.request_api_key
    if authenticator is not None and (reason := authenticator.rejection_reason(api_key, now)) is not None:
        return f"{reason} (client.id {envelope.header.client_id!r})"
    api, versions = APIS.get(api_key), broker.apis.get(api_key)
    if api is None or versions is None or envelope.version > versions.max_version:
        reason = f"this broker does not serve {type(envelope.request).__name__} v{envelope.version}"
        return _refuse_unsupported(broker, connection, envelope.header, reason)
    call = Call(
        conn=connection.conn,
        host=connection.host,
        envelope=envelope,
        random_id=random_id,
        now=now,
        refuse_request=api.refuse or broker.coordinator.error_response,
        principal=connection.principal,
        listener=connection.listener,
        by_token=connection.by_token,
        injected_error=_take_request_error(broker, connection, api_key),
    )
    return _execute(broker, connection, call)


def _execute(broker: Broker, connection: Connection, call: Call) -> str | None:
    """Authorize and handle a request; return None, or the reason if the connection must be closed."""
    api = APIS[call.api_key]
    permitted_call_or_result = api.authorize(broker, call)
    if isinstance(permitted_call_or_result, Call):
        connection.current_call = permitted_call_or_result
        result = api.handle(broker, permitted_call_or_result)
    else:
        connection.current_call = call
        result = permitted_call_or_result
    if isinstance(result, CloseWithoutResponse):
        return result.reason
    if isinstance(result, RespondThenClose):
        _schedule_close(broker, connection.conn, result.at, result.response, result.reason)
    elif result is None:  # The request has no response.
        connection.current_call = None
    elif result is not PARKED:
        broker.respond(connection.conn, result)
    return None


def _serve_raw_frame(
    broker: Broker, connection: Connection, authenticator: SaslAuthenticator, frame: bytes, now: int
) -> str | None:
    """Serve a SASL message without a request header, as clients send it after SaslHandshake v0."""
    step = authenticator.authenticate(frame, now, broker.cluster.wall_clock_offset)
    connection.response_in_flight = True  # The next frame of the connection is served after `ResponseSent`.
    if isinstance(step, Rejected):
        delay = broker.settings.connection_failed_authentication_delay_ms
        _schedule_close(broker, connection.conn, now + delay, None, f"failed authentication: {step.reason}")
    else:
        broker.actions.append(SendFrame(connection.conn, step.data))
    return None


def _refuse_unsupported(
    broker: Broker, connection: Connection, header: RequestHeader, reason: str
) -> str | None:
    """Respond to an unsupported request; return the reason if the connection must be closed instead.

    Of the unsupported requests, only ApiVersions gets a response. It contains the supported versions
    (KIP-511).
    """
    if header.request_api_key != API_VERSIONS:
        return reason
    response = unsupported_api_versions(broker)
    broker.actions.append(SendFrame(connection.conn, encode_response(response, 0, header.correlation_id)))
    connection.response_in_flight = True
    return None


_HANDLERS: Final[Mapping[type[Event], Callable[[Broker, Any, int], None]]] = {
    ClientConnected: _on_client_connected,
    FrameReceived: _on_frame_received,
    ResponseSent: _on_response_sent,
    ClientDisconnected: _on_client_disconnected,
    Tick: _on_tick,
    CreateTopic: _on_create_topic,
    GrowTopic: _on_grow_topic,
    ElectLeader: _on_elect_leader,
    MoveCoordinator: _on_move_coordinator,
    TruncateLog: _on_truncate_log,
    LogChanged: _on_log_changed,
    CleanLogs: _on_clean_logs,
    FailRequests: _on_fail_requests,
    ThrottleClients: _on_throttle_clients,
}
