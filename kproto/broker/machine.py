"""The embedded broker: everything that a one-node Kafka says to its clients, as a pure machine.

    broker = Broker(Settings.from_properties({}), Node(1, "127.0.0.1", 9092), served())
    actions = step(broker, Received(conn, frame, random_id), now)

Rules:
  * `step` touches no socket, clock or random source. `now` is in milliseconds and never goes back; ids that
    must be random (topics, members) are made from the `random_id` of the request that causes them. The time
    of day is `now`, or as far ahead of it as `Cluster.ahead` says.
  * One request at a time per connection, as Kafka: a request behind one that waits (a fetch, a join) is taken
    only after that was answered, so answers come in the order of the requests. And it is taken only after
    `Sent` said that the answer is on its way: a client that asks without reading holds up only itself.
  * A request is either answered, or refused by `Close` with the reason; no other connection is hurt.
  * The group coordinator is a `kproto.group.protocol.GroupCoordinator`, the transaction coordinator is
    `kproto.transactions`: the machines that are specified and simulated. Each of their steps is reported as a
    `GroupCoordinatorStep` or a `TransactionCoordinatorStep`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias
from uuid import UUID

from .. import transactions
from ..error_codes import ErrorCode
from ..errors import ConfigError, DecodeError
from ..group import protocol
from ..messages.headers import RequestHeader, UnsupportedRequest, decode_request, encode_response
from ..security.exchange import Rejected
from ..security.oauthbearer import MECHANISM as OAUTHBEARER
from ..wire.message import Message
from .apis.api_versions import API_VERSIONS, unsupported_api_versions
from .apis.partitions import find_partition
from .apis.table import APIS
from .broker import Action, Broker, Close, Connection, LogsCleaned, Reply
from .call import PARKED, Call, CloseConnection, RespondThenClose
from .security.authenticator import ANONYMOUS, MOST_OUTSIDE, SaslAuthenticator, SaslState
from .topics import MAX_PARTITIONS, Partition, grow


class Connected(NamedTuple):
    """A client's connection; `conn` is a number that no other connection ever had."""

    conn: int
    host: str
    listener: str = "PLAINTEXT"
    """What it came by; one that begins with SASL lets in only whom it knows."""
    principal: str = ANONYMOUS
    """Whom its certificate names."""


class Received(NamedTuple):
    """A request, without the size in front."""

    conn: int
    frame: bytes
    random_id: UUID


class Sent(NamedTuple):
    """The last `Reply` to this connection is on its way, and there is room for another one."""

    conn: int


class Disconnected(NamedTuple):
    conn: int


class Tick(NamedTuple):
    """Time has passed; due at `next_deadline`."""


class CreateTopic(NamedTuple):
    """The operator makes a topic. `step` raises ConfigError when it can't be made."""

    name: str
    partitions: int
    topic_id: UUID
    configs: Mapping[str, str] = {}


class GrowTopic(NamedTuple):
    """The operator lets a topic have `partitions` in all. `step` raises ConfigError when it can't."""

    name: str
    partitions: int


class ElectLeader(NamedTuple):
    """A new leader epoch begins for a partition, as after an election.

    `node` wins it; None is the old leader. In a cluster it goes to the broker that led before, where fetches
    may be waiting.
    """

    topic: str
    partition: int
    node: int | None = None


class MoveCoordinator(NamedTuple):
    """Another node coordinates a group from now on, and has it loaded `loading_ms` later.

    Goes to the broker that coordinated it before, where members may be waiting.
    """

    group: str
    node: int
    loading_ms: int = 0


class Truncate(NamedTuple):
    """An unclean election: the partition's new leader never had the records from `offset` on.

    A new leader epoch begins where its log ends; batches are lost whole, see `Log.truncate`. `step` raises
    ConfigError when the log has no such offset.
    """

    topic: str
    partition: int
    offset: int


class Changed(NamedTuple):
    """The operator wrote to a partition's log, past the broker: those who wait for it look again."""

    topic: str
    partition: int


class CleanLogs(NamedTuple):
    """The operator lets all logs be looked over now: what is old is deleted, what is to be compacted is
    compacted, up to its end.
    """


class Fail(NamedTuple):
    """The operator lets the next `times` requests of an API fail: nothing of them is done, and `code` is what
    they hear. 0: no more of them.
    """

    api_key: int
    code: ErrorCode
    times: int


class Throttle(NamedTuple):
    """The operator has it that clients of an API are above a quota: each answer asks for `ms` of quiet, and
    nothing is read from its connection until then. 0: no more of that.
    """

    api_key: int
    ms: int


Event: TypeAlias = (
    Connected
    | Received
    | Sent
    | Disconnected
    | Tick
    | CreateTopic
    | GrowTopic
    | ElectLeader
    | MoveCoordinator
    | Truncate
    | Changed
    | CleanLogs
    | Fail
    | Throttle
)


def step(broker: Broker, event: Event, now: int) -> list[Action]:
    """Give the broker an event; do the actions, in their order."""
    broker.actions, broker.now = [], now
    broker.cluster.expire_producers(now)
    _cleaned(broker, broker.cluster.cleaning.look(now, broker.cluster.wall_clock_offset))
    _TABLE[type(event)](broker, event, now)
    while broker.ready:
        connection = broker.ready.popleft()
        if broker.connections.get(connection.conn) is connection:
            _take(broker, connection, now)
    return broker.actions


def next_deadline(broker: Broker) -> int | None:
    """When to send the next `Tick`; None when nothing waits for time."""
    deadlines = (
        broker.purgatory.next_deadline(),
        broker.close_deadlines.earliest(),
        broker.muted.earliest(),
        broker.coordinator.next_deadline(),
        transactions.next_deadline(broker.transactions),
    )
    return min((at for at in deadlines if at is not None), default=None)


def _connected(broker: Broker, event: Connected, now: int) -> None:
    authenticator = None
    if event.listener.startswith("SASL"):
        reauth = broker.settings.connections_max_reauth_ms
        enabled = broker.settings.sasl_enabled_mechanisms.split(",")
        there = [name for name in enabled if name != OAUTHBEARER or broker.users.tokens is not None]
        authenticator = SaslAuthenticator(broker.users, there, reauth)
    made = Connection(
        event.conn,
        event.host,
        listener=event.listener,
        certificate_principal=event.principal,
        authenticator=authenticator,
    )
    broker.connections[event.conn] = made


def _received(broker: Broker, event: Received, now: int) -> None:
    connection = broker.connections.get(event.conn)
    if connection is not None:
        connection.request_queue.append((event.frame, event.random_id))
        connection.queued_bytes += len(event.frame)
        broker.ready.append(connection)


def _sent(broker: Broker, event: Sent, now: int) -> None:
    connection = broker.connections.get(event.conn)
    if connection is not None:
        connection.response_in_flight = False
        broker.cluster.unsent -= connection.unsent_bytes
        connection.unsent_bytes = 0
        broker.ready.append(connection)


def _disconnected(broker: Broker, event: Disconnected, now: int) -> None:
    connection = broker.connections.pop(event.conn, None)
    if connection is not None:
        broker.cluster.unsent -= connection.unsent_bytes
    broker.purgatory.remove(event.conn)
    broker.pending_closes.pop(event.conn, None)
    broker.close_deadlines.drop(event.conn)
    broker.muted.drop(event.conn)


def _tick(broker: Broker, event: Tick, now: int) -> None:
    for fetch in broker.purgatory.expired(now):
        response = fetch.try_complete(force=True)
        broker.purgatory.remove(fetch.call.conn)
        if response is not None:
            broker.answer(fetch.call.conn, response)
    _close_late(broker, now)
    for conn in list(broker.muted.take(now)):
        if conn in broker.connections:
            broker.ready.append(broker.connections[conn])
    due = broker.coordinator.next_deadline()
    if due is not None and due <= now:
        broker.step_group_coordinator(protocol.Tick(), now)
    due = transactions.next_deadline(broker.transactions)
    if due is not None and due <= now:
        broker.step_transaction_coordinator(transactions.Tick(), now)


def _close_late(broker: Broker, now: int) -> None:
    for conn in list(broker.close_deadlines.take(now)):
        response, reason = broker.pending_closes[conn]
        if response is not None:
            broker.answer(conn, response)
        _disconnected(broker, Disconnected(conn), now)
        broker.actions.append(Close(conn, reason))


def _close_at(broker: Broker, conn: int, at: int, response: Message | None, reason: str) -> None:
    broker.pending_closes[conn] = response, reason
    broker.close_deadlines.set(conn, at)
    _close_late(broker, broker.now)


def _create(broker: Broker, event: CreateTopic, now: int) -> None:
    refused = broker.topics.refusal(event.name, event.partitions)
    if refused is not None:
        raise ConfigError("topic", f"{event.name}:{event.partitions}", refused[1])
    topic = broker.topics.create(event.name, event.topic_id, event.partitions, event.configs)
    broker.cluster.assign_leaders(topic)


def _grow(broker: Broker, event: GrowTopic, now: int) -> None:
    topic = broker.topics.named(event.name)
    if topic is None or event.partitions < len(topic.partitions):
        has = f"the topic has {len(topic.partitions)} partitions" if topic else "there is no such topic"
        raise ConfigError(
            "topic", f"{event.name}:{event.partitions}", f"{has}, and partitions are only ever added"
        )
    if event.partitions > MAX_PARTITIONS:
        allowed = f"no topic may have more than {MAX_PARTITIONS} partitions"
        raise ConfigError("topic", f"{event.name}:{event.partitions}", allowed)
    grow(topic, event.partitions)
    broker.cluster.assign_leaders(topic)


def _elect(broker: Broker, event: ElectLeader, now: int) -> None:
    partition = _partition(broker, event.topic, event.partition)
    if event.node is not None:
        broker.cluster.leaders[partition] = event.node
    partition.log.elect()
    broker.wake([partition])


def _move_coordinator(broker: Broker, event: MoveCoordinator, now: int) -> None:
    for action in broker.cluster.move_group(event.group, event.node, now, event.loading_ms):
        if isinstance(action.token, int):
            broker.answer(action.token, action.response)


def _truncate(broker: Broker, event: Truncate, now: int) -> None:
    partition = _partition(broker, event.topic, event.partition)
    log = partition.log
    if not log.start_offset <= event.offset <= log.end_offset:
        allowed = f"the log of {event.topic}:{event.partition} has {log.start_offset} to {log.end_offset}"
        raise ConfigError("offset", event.offset, allowed)
    partition.truncate(event.offset)
    broker.wake([partition])


def _changed(broker: Broker, event: Changed, now: int) -> None:
    broker.wake([_partition(broker, event.topic, event.partition)])


def _clean(broker: Broker, event: CleanLogs, now: int) -> None:
    _cleaned(broker, broker.cluster.cleaning.look_at_once(broker.wall_clock))


def _cleaned(broker: Broker, partitions: list[Partition]) -> None:
    if partitions:
        broker.actions.append(LogsCleaned(tuple(partitions)))
        broker.wake(partitions)


def _fail(broker: Broker, event: Fail, now: int) -> None:
    if event.times:
        broker.injected_errors[event.api_key] = event.code, event.times
    else:
        broker.injected_errors.pop(event.api_key, None)


def _throttle(broker: Broker, event: Throttle, now: int) -> None:
    if event.ms:
        broker.throttle_times[event.api_key] = event.ms
    else:
        broker.throttle_times.pop(event.api_key, None)


def _next_failure(broker: Broker, key: int) -> ErrorCode | None:
    code, times = broker.injected_errors.get(key, (None, 0))
    if code is not None:
        _fail(broker, Fail(key, code, times - 1), 0)
    return code


def _partition(broker: Broker, topic: str, index: int) -> Partition:
    found = find_partition(broker.topics, topic, index)
    if found is None:
        raise ConfigError("topic", f"{topic}:{index}", "there is no such partition")
    return found


def _take(broker: Broker, connection: Connection, now: int) -> None:
    """Serve a connection's next requests, up to the first with an answer to send or to wait for."""
    if connection.oversized_call is not None:
        call, connection.oversized_call, connection.response_in_flight = (
            connection.oversized_call,
            None,
            False,
        )
        _ask(broker, connection, call)  # which is told no
    while connection.request_queue and connection.current_call is None and not connection.response_in_flight:
        if (broker.muted.of(connection.conn) or 0) > now:
            return
        frame, random_id = connection.request_queue.popleft()
        connection.queued_bytes -= len(frame)
        refused = _serve(broker, connection, frame, random_id, now)
        if refused is not None:
            _disconnected(broker, Disconnected(connection.conn), now)
            broker.actions.append(Close(connection.conn, refused))
            return


def _serve(broker: Broker, connection: Connection, frame: bytes, random_id: UUID, now: int) -> str | None:
    """Serve one request; the reason when the connection is to be closed instead."""
    authenticator = connection.authenticator
    if (
        authenticator is not None
        and authenticator.state is not SaslState.COMPLETE
        and len(frame) > MOST_OUTSIDE
    ):
        return f"{len(frame)} bytes from a client that was not authenticated"
    if authenticator is not None and authenticator.raw:
        return _raw(broker, connection, authenticator, frame, now)
    try:
        envelope = decode_request(frame)
    except UnsupportedRequest as error:
        return _unserved(broker, connection, error.header, str(error))
    except DecodeError as error:
        return str(error)
    key = envelope.header.request_api_key
    if authenticator is not None and (why := authenticator.rejection_reason(key, now)) is not None:
        return f"{why} (client.id {envelope.header.client_id!r})"
    api = APIS.get(key)
    if api is None or envelope.version > broker.apis[key].max_version:
        why = f"this broker does not serve {type(envelope.request).__name__} v{envelope.version}"
        return _unserved(broker, connection, envelope.header, why)
    call = Call(
        connection.conn,
        connection.host,
        envelope,
        random_id,
        now,
        api.refuse or broker.coordinator.error_response,
        connection.principal,
        connection.listener,
        injected_error=_next_failure(broker, key),
    )
    return _ask(broker, connection, call)


def _ask(broker: Broker, connection: Connection, call: Call) -> str | None:
    """Let its handler answer a request; the reason when the connection is to be closed instead."""
    api = APIS[call.api_key]
    authorized = api.authorize(broker, call)
    if isinstance(authorized, Call):
        connection.current_call = authorized
        result = api.handle(broker, authorized)
    else:
        connection.current_call = call
        result = authorized
    if isinstance(result, CloseConnection):
        return result.reason
    if isinstance(result, RespondThenClose):
        _close_at(broker, connection.conn, result.at, result.response, result.reason)
    elif result is None:
        connection.current_call = None
    elif result is not PARKED:
        broker.answer(connection.conn, result)
    return None


def _raw(
    broker: Broker, connection: Connection, authenticator: SaslAuthenticator, frame: bytes, now: int
) -> str | None:
    """A message of a mechanism without a header, behind version 0 of the handshake."""
    step = authenticator.authenticate(frame, now, broker.cluster.wall_clock_offset)
    if isinstance(step, Rejected):
        delay = broker.settings.connection_failed_authentication_delay_ms
        connection.response_in_flight = True  # nothing more is read
        _close_at(broker, connection.conn, now + delay, None, f"failed authentication: {step.reason}")
        return None
    broker.actions.append(Reply(connection.conn, step.data))
    connection.response_in_flight = True
    return None


def _unserved(broker: Broker, connection: Connection, header: RequestHeader, why: str) -> str | None:
    """Close on a request that isn't served, but tell who asked for the versions which there are."""
    if header.request_api_key != API_VERSIONS:
        return why
    response = unsupported_api_versions(broker)
    broker.actions.append(Reply(connection.conn, encode_response(response, 0, header.correlation_id)))
    connection.response_in_flight = True
    return None


_TABLE: Final[Mapping[type[Event], Callable[[Broker, Any, int], None]]] = {
    Connected: _connected,
    Received: _received,
    Sent: _sent,
    Disconnected: _disconnected,
    Tick: _tick,
    CreateTopic: _create,
    GrowTopic: _grow,
    ElectLeader: _elect,
    MoveCoordinator: _move_coordinator,
    Truncate: _truncate,
    Changed: _changed,
    CleanLogs: _clean,
    Fail: _fail,
    Throttle: _throttle,
}
