"""The embedded broker: everything that a one-node Kafka says to its clients, as a pure machine.

    broker = Broker(Settings.from_properties({}), Node(1, "127.0.0.1", 9092))
    actions = step(broker, Received(conn, frame, random_id), now)

Rules:
  * `step` touches no socket, clock or random source. `now` is in milliseconds and never goes back; ids that
    must be random (topics, members) are made from the `random_id` of the request that causes them.
  * One request at a time per connection, as Kafka: a request behind one that waits (a fetch, a join) is taken
    only after that was answered, so answers come in the order of the requests. And it is taken only after
    `Sent` said that the answer is on its way: a client that asks without reading holds up only itself.
  * A request is either answered, or refused by `Close` with the reason; no other connection is hurt.
  * The group coordinator is `kproto.group.coordinator`, the one that is specified and simulated; what it was
    told and what it did goes out as `Coordinated`, for whoever wants to watch.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple, TypeAlias
from uuid import UUID, uuid5

from ..errors import ConfigError, DecodeError
from ..group import classic, coordinator
from ..messages.headers import RequestHeader, UnsupportedRequest, decode_request, encode_response
from ..wire.message import Message
from .call import PARKED, Call, Closing, Node
from .handlers import index
from .handlers.fetch import ParkedFetch
from .sessions import Sessions
from .settings import Settings
from .topics import Partition, Topic, Topics, grow

# Events


class Connected(NamedTuple):
    """A client's connection; `conn` is a number that no other connection ever had."""

    conn: int
    host: str


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
    """A new leader epoch begins for a partition, as after an election (which one node wins every time)."""

    topic: str
    partition: int


Event: TypeAlias = Connected | Received | Sent | Disconnected | Tick | CreateTopic | GrowTopic | ElectLeader

# Actions


class Reply(NamedTuple):
    """Send this response, without the size in front; then step with `Sent`."""

    conn: int
    frame: bytes


class Close(NamedTuple):
    """Close the connection; `reason` is for the log. `Disconnected` need not follow."""

    conn: int
    reason: str


class Coordinated(NamedTuple):
    """To tell: the group coordinator was given `event` and answered with `actions`."""

    event: classic.Event
    actions: tuple[classic.Action, ...]


Action: TypeAlias = Reply | Close | Coordinated

# State


@dataclass(slots=True)
class Connection:
    conn: int
    host: str
    waiting: deque[tuple[bytes, UUID]] = field(default_factory=deque[tuple[bytes, UUID]])
    waiting_bytes: int = 0
    current: Call | None = None  # the request that is being answered
    sending: bool = False  # its answer went out, `Sent` did not come yet


class Broker:
    """The state of the machine: topics, connections, and the group coordinator."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        *,
        cluster_id: str = "kproto-embedded-broker",
        highest: Mapping[str, int] | None = None,
    ) -> None:
        """`highest` makes it seem an older Kafka: API name -> the highest version that it serves."""
        self.highest: Final = index.highest_by_key(highest or {})
        self.settings: Final = settings
        self.node: Final = node
        self.cluster_id: Final = cluster_id
        self.topics: Final = Topics(settings)
        self.sessions: Final = Sessions(settings.max_incremental_fetch_session_cache_slots)
        self.coordinator: Final = coordinator.Coordinator(settings.group, self.topics)
        self.next_producer_id = 0
        self._connections: Final[dict[int, Connection]] = {}
        self._parked: Final[dict[int, ParkedFetch]] = {}
        self._ready: Final[deque[Connection]] = deque()
        self._actions: list[Action] = []

    def backlog(self, conn: int) -> int:
        """Bytes of requests that wait on this connection; the shell stops reading when there are many."""
        connection = self._connections.get(conn)
        return connection.waiting_bytes if connection else 0

    # What handlers may do.

    def answer(self, conn: int, response: Message) -> None:
        """Answer the request that this connection waits for; nothing when the connection is gone."""
        connection = self._connections.get(conn)
        if connection is None or connection.current is None:
            return
        call = connection.current
        connection.current = None
        connection.sending = True
        header = call.envelope.header
        self._actions.append(Reply(conn, encode_response(response, call.version, header.correlation_id)))

    def coordinate(self, event: classic.Event, now: int) -> None:
        """Tell the group coordinator, and answer whom it answers."""
        actions = tuple(coordinator.step(self.coordinator, event, now))
        self._actions.append(Coordinated(event, actions))
        for action in actions:
            if isinstance(action, classic.Reply) and isinstance(action.token, int):
                self.answer(action.token, action.response)

    def create_topic(
        self, name: str, count: int, random_id: UUID, configs: Mapping[str, str] | None = None
    ) -> Topic:
        """Make a topic that `topics.refusal` has nothing against."""
        return self.topics.create(name, uuid5(random_id, name), count, configs)

    def delete_topic(self, topic: Topic, now: int) -> None:
        """Delete a topic: waiting fetches hear of it, and the coordinator forgets its offsets."""
        self.topics.delete(topic)
        self.coordinate(classic.TopicsDeleted(frozenset({topic.name})), now)
        self.wake(topic.partitions)

    def park(self, fetch: ParkedFetch) -> None:
        """Keep a fetch until there is enough to read or its time is up."""
        self._parked[fetch.call.conn] = fetch

    def wake(self, partitions: Iterable[Partition]) -> None:
        """Something changed in these partitions: look again at the fetches that wait for it."""
        changed = set(partitions)
        for fetch in list(self._parked.values()):
            if not fetch.partitions.isdisjoint(changed):
                self._try(fetch)

    # The rest is the machine's own.

    def step(self, event: Event, now: int) -> list[Action]:
        self._actions = []
        self._table[type(event)](self, event, now)
        while self._ready:
            connection = self._ready.popleft()
            if self._connections.get(connection.conn) is connection:
                self._take(connection, now)
        return self._actions

    def next_deadline(self) -> int | None:
        deadlines = [fetch.deadline for fetch in self._parked.values()]
        group = coordinator.next_deadline(self.coordinator)
        if group is not None:
            deadlines.append(group)
        return min(deadlines, default=None)

    def _connected(self, event: Connected, now: int) -> None:
        self._connections[event.conn] = Connection(event.conn, event.host)

    def _received(self, event: Received, now: int) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.waiting.append((event.frame, event.random_id))
            connection.waiting_bytes += len(event.frame)
            self._ready.append(connection)

    def _sent(self, event: Sent, now: int) -> None:
        connection = self._connections.get(event.conn)
        if connection is not None:
            connection.sending = False
            self._ready.append(connection)

    def _disconnected(self, event: Disconnected, now: int) -> None:
        self._connections.pop(event.conn, None)
        self._parked.pop(event.conn, None)

    def _tick(self, event: Tick, now: int) -> None:
        for fetch in list(self._parked.values()):
            if fetch.deadline <= now:
                self._try(fetch, at_once=True)
        due = coordinator.next_deadline(self.coordinator)
        if due is not None and due <= now:
            self.coordinate(classic.Tick(), now)

    def _create(self, event: CreateTopic, now: int) -> None:
        refused = self.topics.refusal(event.name, event.partitions)
        if refused is not None:
            raise ConfigError("topic", f"{event.name}:{event.partitions}", refused[1])
        self.topics.create(event.name, event.topic_id, event.partitions, event.configs)

    def _grow(self, event: GrowTopic, now: int) -> None:
        topic = self.topics.named(event.name)
        if topic is None or event.partitions < len(topic.partitions):
            has = f"the topic has {len(topic.partitions)} partitions" if topic else "there is no such topic"
            raise ConfigError(
                "topic", f"{event.name}:{event.partitions}", f"{has}, and partitions are only ever added"
            )
        grow(topic, event.partitions)

    def _elect(self, event: ElectLeader, now: int) -> None:
        topic = self.topics.named(event.topic)
        partition = topic.partition(event.partition) if topic else None
        if partition is None:
            raise ConfigError("topic", f"{event.topic}:{event.partition}", "there is no such partition")
        partition.log.elect()
        self.wake([partition])

    def _try(self, fetch: ParkedFetch, *, at_once: bool = False) -> None:
        """Answer a parked fetch if it can be answered now."""
        response = fetch.answer(at_once=at_once)
        if response is not None:
            del self._parked[fetch.call.conn]
            self.answer(fetch.call.conn, response)

    def _take(self, connection: Connection, now: int) -> None:
        """Serve a connection's next requests, up to the first with an answer to send or to wait for."""
        while connection.waiting and connection.current is None and not connection.sending:
            frame, random_id = connection.waiting.popleft()
            connection.waiting_bytes -= len(frame)
            refused = self._serve(connection, frame, random_id, now)
            if refused is not None:
                self._disconnected(Disconnected(connection.conn), now)
                self._actions.append(Close(connection.conn, refused))
                return

    def _serve(self, connection: Connection, frame: bytes, random_id: UUID, now: int) -> str | None:
        """Serve one request; the reason when the connection is to be closed instead."""
        try:
            envelope = decode_request(frame)
        except UnsupportedRequest as error:
            return self._unserved(connection, error.header, str(error))
        except DecodeError as error:
            return str(error)
        key = envelope.header.request_api_key
        handler = index.HANDLERS.get(key)
        if handler is None or envelope.version > index.versions(self, key).max_version:
            why = f"this broker does not serve {type(envelope.request).__name__} v{envelope.version}"
            return self._unserved(connection, envelope.header, why)
        call = Call(connection.conn, connection.host, envelope, random_id, now)
        connection.current = call
        result = handler(self, call)
        if isinstance(result, Closing):
            return result.reason
        if result is None:
            connection.current = None
        elif result is not PARKED:
            self.answer(connection.conn, result)
        return None

    def _unserved(self, connection: Connection, header: RequestHeader, why: str) -> str | None:
        """Close on a request that isn't served, but tell who asked for the versions which there are."""
        if header.request_api_key != index.API_VERSIONS:
            return why
        response = index.unsupported_api_versions(self)
        self._actions.append(Reply(connection.conn, encode_response(response, 0, header.correlation_id)))
        connection.sending = True
        return None

    _table: ClassVar[Mapping[type[Event], Callable[[Any, Any, int], None]]] = {
        Connected: _connected,
        Received: _received,
        Sent: _sent,
        Disconnected: _disconnected,
        Tick: _tick,
        CreateTopic: _create,
        GrowTopic: _grow,
        ElectLeader: _elect,
    }


def step(broker: Broker, event: Event, now: int) -> list[Action]:
    """Give the broker an event; do the actions, in their order."""
    return broker.step(event, now)


def next_deadline(broker: Broker) -> int | None:
    """When to send the next `Tick`; None when nothing waits for time."""
    return broker.next_deadline()
