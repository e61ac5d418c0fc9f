"""All connections of one client: which broker is asked on which connection, and what happens when one breaks.

Rules that hold here:

* Requests to one broker travel in *lanes*, one connection each: MAIN for everything, GROUP for membership (a
  JoinGroup keeps its connection busy until the group has gathered), FETCH for fetches (they wait at the
  broker for records), SIDE for fetches that shall not wait behind those. So an offset commit never waits
  behind a fetch or an open JoinGroup.
* Connections are opened when the first call needs them, and known by a number that is never used twice:
  events of a connection that is gone are ignored.
* After a failure a broker is left alone for a while that doubles from reconnect.backoff.ms to its maximum,
  each time a little more or less than that (the jitter of `backoff`).
  Calls to it fail at once when the connection fails, and wait while the broker is being left alone.
* A call for *any* broker (node None) tries every known address, bootstrap addresses last, before it fails: so
  a client whose brokers have all moved finds them again through the bootstrap addresses (KIP-899).
* A call for any broker doesn't stand behind a connection that takes long to be made: another address is
  tried meanwhile.
* A broker that is silent where it should answer at once (a new connection, metadata, a look-up), or for
  longer than a fetch told it to wait for records, is asked again through a new connection long before the
  request's own time is over; each silence makes us more patient with that address. So one connection that
  stalls costs seconds, and a slow broker is not asked in circles. Whoever sends a long answer is not silent.
* Every call ends: answered, or with an error that names the address.
* Who is not let in (TLS, SASL) hears of it at once, by AuthenticationFailed, and no other address is tried
  for the same call: it would be refused there, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec

from kproto.errors import AuthenticationFailed, ConnectionFailed, DecodeError, KprotoError, RequestTimedOut
from kproto.messages.fetch import FetchRequest
from kproto.messages.find_coordinator import FindCoordinatorRequest
from kproto.messages.join_group import JoinGroupRequest
from kproto.messages.list_offsets import ListOffsetsRequest
from kproto.messages.metadata import MetadataRequest
from kproto.messages.offset_fetch import OffsetFetchRequest
from kproto.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kproto.wire.message import Message

from ..security.failures import CLOSED
from .backoff import Backoff
from .connection import Call, Connection, Prepared
from .metadata import ClusterView

if TYPE_CHECKING:
    from kproto.errors import FrameError

    from ..security import Security, Token
    from ..security.tls import Tls
    from ..security.tokens import TokenSource

MAIN, GROUP, FETCH, SIDE = 0, 1, 2, 3

# Kafka's defaults (CommonClientConfigs).
RECONNECT_BACKOFF_MS = 50
RECONNECT_BACKOFF_MAX_MS = 1000
CONNECTION_SETUP_TIMEOUT_MS = 10_000
REQUEST_TIMEOUT_MS = 30_000

# How long a connection may take to be made, and a question that brokers answer from memory to be answered,
# before another connection is tried; doubled by each silence. Two lost SYNs cost 3 s (RFC 6298).
SETUP_PATIENCE_MS = 3_000
ANSWER_PATIENCE_MS = 5_000

# How long a call for any broker waits for a connection to be made before it goes elsewhere: an address that
# is up answers a SYN at once, or a second later where the first one was lost.
HASTE_MS = 1_500

# Sockets say so often, in seconds, that a long answer is coming.
COMING_S = 1.0

# They change nothing, and no broker waits for anything before it answers.
AT_ONCE = frozenset(
    kind.__api_key__
    for kind in (
        FindCoordinatorRequest,
        ListOffsetsRequest,
        MetadataRequest,
        OffsetFetchRequest,
        OffsetForLeaderEpochRequest,
    )
)


# ---- what the owner must do


class Open(msgspec.Struct, frozen=True):
    """Connect a socket to host:port, by TLS if it is given; answer `Opened(key)` or `Broken(key, why)`."""

    key: int
    host: str
    port: int
    tls: Tls | None = None


class Write(msgspec.Struct, frozen=True):
    """Send these bytes, all of them and in order."""

    key: int
    data: bytes


class Shut(msgspec.Struct, frozen=True):
    """Close the socket; nothing more may be said about this key."""

    key: int


class GetToken(msgspec.Struct, frozen=True):
    """Ask for a token; answer `GotToken(key, token)` or `Broken(key, why)`."""

    key: int
    source: TokenSource


# ---- what happened


class Opened(msgspec.Struct, frozen=True):
    key: int


class Data(msgspec.Struct, frozen=True):
    """Bytes as the network cut them; `Answer` is the other way to say what came. None of them: part of a long
    answer has come."""

    key: int
    data: bytes


class Answer(msgspec.Struct, frozen=True):
    """A whole frame, without its size. Where it is large, records point into `body`: nobody may change it.
    Its memory is written to again when nobody has it any more, nor a view of it."""

    key: int
    body: bytes | bytearray


# How a TLS alert begins: its kind, and the first half of its version (RFC 8446, 5.1).
_ALERT = 0x1503


class Broken(msgspec.Struct, frozen=True):
    """The connection is gone. `denied`: and the next one will be, too, until somebody changes something.

    `why` is `CLOSED` when the other side ended it in good order.
    """

    key: int
    why: str
    denied: bool = False

    @classmethod
    def no_frames(cls, key: int, error: FrameError) -> Broken:
        """It brought something else than answers."""
        if error.size is not None and error.size >> 16 == _ALERT:
            return cls(key, "this port speaks TLS: set security_protocol to SSL, or SASL_SSL", True)
        return cls(key, f"the answer makes no sense: {error}")


class GotToken(msgspec.Struct, frozen=True):
    key: int
    token: Token


NetworkAction = Open | Write | Shut | GetToken
NetworkEvent = Opened | Data | Answer | Broken | GotToken


class _Peer(msgspec.Struct):
    """One address: when it may be tried again."""

    failures: int = 0
    not_before: int = 0


class Network:
    """Ask with `ask`, tell with `happened` and `tick`, take `actions` and `finished` away after each."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        reconnect_backoff_ms: int = RECONNECT_BACKOFF_MS,
        reconnect_backoff_max_ms: int = RECONNECT_BACKOFF_MAX_MS,
        connection_setup_timeout_ms: int = CONNECTION_SETUP_TIMEOUT_MS,
        random: Random | None = None,
        security: Security | None = None,
    ) -> None:
        self.bootstrap = list(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.view = ClusterView()
        # API key -> the highest version to speak, for brokers that claim more than they can read.
        self.caps: dict[int, int] = {}
        self.actions: list[NetworkAction] = []
        self.finished: list[Call] = []
        self._random = random or Random()
        self._security = security
        # Connection -> when its SASL session is to be renewed.
        self._renewals: dict[int, int] = {}
        self._backoff = Backoff(reconnect_backoff_ms, reconnect_backoff_max_ms, self._random)
        self._setup_timeout = connection_setup_timeout_ms
        self._connections: dict[int, Connection] = {}
        self._lanes: dict[tuple[str, int, int], Connection] = {}
        self._peers: dict[tuple[str, int], _Peer] = {}
        self._parked: list[tuple[Call, tuple[str, int]]] = []
        # Connection -> the call that is to be answered next, and since when it is.
        self._heads: dict[int, tuple[Call, int]] = {}
        # Address -> how often in a row it was silent.
        self._silences: dict[tuple[str, int], int] = {}
        self._next_key = 0
        self._turn = 0
        self.closed = False

    # ---- asking

    def ask(
        self,
        request: Message | Prepared,
        now: int,
        *,
        node: int | None = None,
        lane: int = MAIN,
        timeout_ms: int | None = None,
        max_version: int | None = None,
        one_way: bool = False,
        purpose: Any = None,
    ) -> Call:
        """Sends a request to the broker `node`, or to any. The call comes back in `finished`, always."""
        timeout = self.request_timeout_ms if timeout_ms is None else timeout_ms
        call = Call(
            request,
            node=node,
            lane=lane,
            deadline=now + timeout,
            timeout_ms=timeout,
            max_version=max_version,
            one_way=one_way,
            purpose=purpose,
        )
        self._place(call, now)
        return call

    def version_at(self, node: int, message: type[Message]) -> int | None:
        """The version that `message` would have for this broker; None while that is not known."""
        broker = self.view.brokers.get(node)
        if broker is None:
            return None
        for lane in (MAIN, GROUP, FETCH, SIDE):
            connection = self._lanes.get((broker.host, broker.port, lane))
            if connection is not None and connection.ready:
                return connection.version_for(message)
        return None

    def connected(self) -> bool:
        return any(connection.ready for connection in self._connections.values())

    def _place(self, call: Call, now: int) -> None:
        if self.closed:
            self._fail(call, ConnectionFailed(call.address or "(none)", "the client is closed"))
            return
        if call.node is None:
            address = self._any(call, now)
        else:
            broker = self.view.brokers.get(call.node)
            if broker is None:
                self._fail(
                    call, ConnectionFailed(f"node {call.node}", "the cluster doesn't list this broker")
                )
                return
            address = (broker.host, broker.port)
        connection = self._lanes.get((*address, call.lane))
        if connection is None:
            peer = self._peers.setdefault(address, _Peer())
            if peer.not_before > now:
                self._parked.append((call, address))
                return
            connection = self._open(address, call.lane, now)
        self._write(connection, connection.ask(call))
        self._collect(connection)
        self._watch(connection, now)

    def _watch(self, connection: Connection, now: int) -> None:
        """Notes which call is to be answered next: answers come in order, so only that one can be late."""
        head = connection.in_flight[0][1] if connection.in_flight else None
        known = self._heads.get(connection.key)
        if known is not None and known[0] is head:
            return
        address = (connection.host, connection.port)
        if known is not None and now - known[1] < ANSWER_PATIENCE_MS:
            self._silences.pop(address, None)
        if head is None:
            self._heads.pop(connection.key, None)
        else:
            self._heads[connection.key] = (head, now)

    def _patience(self, address: tuple[str, int], first: int, most: int) -> int:
        return min(most, first << min(self._silences.get(address, 0), 8))

    def _silent_at(self, connection: Connection) -> int | None:
        """When the connection has been silent for too long."""
        head = self._heads.get(connection.key)
        waits = None if head is None else _broker_waits(head[0])
        if head is None or waits is None:
            return None
        address = (connection.host, connection.port)
        return head[1] + self._patience(address, ANSWER_PATIENCE_MS + waits, self.request_timeout_ms)

    def _hurried_at(self, connection: Connection) -> int | None:
        """When calls for any broker stop waiting for this connection to be made, and go elsewhere."""
        if connection.ready:
            return None
        free = [at for call in connection.waiting if (at := self._free_elsewhere(call)) is not None]
        return max(_late_at(connection), min(free)) if free else None

    def _free_elsewhere(self, call: Call) -> int | None:
        """When a call for any broker may be asked at another address than where it waits; None for never."""
        if call.node is not None:
            return None
        times: list[int] = []
        for address in self._addresses():
            lane = self._lanes.get((*address, call.lane))
            if address in call.tried:
                continue
            if lane is not None and lane.ready:
                times.append(0)
            elif lane is None:
                times.append(self._peers.setdefault(address, _Peer()).not_before)
        return min(times, default=None)

    def _hurry(self, connection: Connection, now: int) -> None:
        if connection.ready or _late_at(connection) > now:
            return
        for call in list(connection.waiting):
            free_at = self._free_elsewhere(call)
            if free_at is not None and free_at <= now:
                connection.forget(call)
                self._place(call, now)

    def _any(self, call: Call, now: int) -> tuple[str, int]:
        """The least busy broker that answers; else one being tried; else the next one not tried by this
        call."""
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        places = [
            address for address in dict.fromkeys([*known, *self.bootstrap]) if address not in call.tried
        ]
        if not places:
            places = [*self.bootstrap]
        ready = [
            (len(connection.in_flight), address)
            for address in places
            if (connection := self._lanes.get((*address, call.lane))) is not None and connection.ready
        ]
        if ready:
            return min(ready)[1]
        for address in places:
            opening = self._lanes.get((*address, call.lane))
            if opening is not None and _late_at(opening) > now:
                return address
        self._turn += 1
        at = self._turn % len(known) if known and places[: len(known)] == known else 0
        turned = places[at:] + places[:at]
        free = [address for address in turned if self._peers.setdefault(address, _Peer()).not_before <= now]
        fresh = [address for address in free if (*address, call.lane) not in self._lanes]
        return (fresh or free or turned)[0]

    def _open(self, address: tuple[str, int], lane: int, now: int) -> Connection:
        self._next_key += 1
        host, port = address
        patience = self._patience(address, SETUP_PATIENCE_MS, self._setup_timeout)
        security = self._security
        login = None
        if security is not None and security.sasl:
            from .login import Login  # nobody else pays for it

            login = Login(security, f"{host}:{port}")
        connection = Connection(
            self._next_key, host, port, self.client_id, deadline=now + patience, login=login
        )
        connection.patience = patience
        connection.caps = self.caps
        self._connections[connection.key] = connection
        self._lanes[(host, port, lane)] = connection
        self.actions.append(Open(connection.key, host, port, None if security is None else security.tls))
        return connection

    # ---- being told

    def happened(self, event: NetworkEvent, now: int) -> None:
        connection = self._connections.get(event.key)
        if connection is None:
            return
        match event:
            case Opened():
                self._write(connection, connection.opened())
            case Data() | Answer() | GotToken():
                try:
                    was_ready = connection.ready
                    if isinstance(event, Answer):
                        self._write(connection, connection.answered(event.body))
                    elif isinstance(event, Data):
                        self._write(connection, connection.received(event.data))
                    elif connection.wants_token:
                        self._write(connection, connection.log_in(event.token))
                    if connection.ready and not was_ready:
                        self._peers[(connection.host, connection.port)] = _Peer()
                        self._log_in_later(connection, now)
                    self._want_token(connection, now)
                except DecodeError as error:
                    self._collect(connection)
                    self._drop(connection, f"the answer makes no sense: {error}", now, garbled=error)
                    return
                except AuthenticationFailed as error:
                    self._collect(connection)
                    self._drop(connection, error.detail, now, denied=error)
                    return
                self._collect(connection)
                self._watch(connection, now)
                if isinstance(event, Data) and (head := self._heads.get(connection.key)) is not None:
                    self._heads[connection.key] = (head[0], now)
            case Broken(why=why, denied=True):
                denied = AuthenticationFailed(connection.address, why)
                self._drop(connection, why, now, shut=connection.is_open, denied=denied)
            case Broken(why=why):
                self._drop(connection, self._why(connection, why), now, shut=connection.wants_token)

    def _why(self, connection: Connection, why: str) -> str:
        """Why a broker may have closed a connection: what is wrong with security is often not said aloud."""
        if connection.login is not None:
            return connection.login.broken() or why
        if connection.is_open and not connection.heard and (why == CLOSED or "reset" in why):
            if not connection.ready and self._security is not None and self._security.tls is not None:
                return (
                    f"{why} before its first answer; does it trust this client's certificate (ssl_certfile)?"
                )
            if not connection.ready:
                return f"{why} before its first answer; does this port want TLS (security_protocol)?"
            return f"{why} on the first request; does this listener want SASL (security_protocol)?"
        return why

    # ---- sessions that end (KIP-368)

    def _log_in_later(self, connection: Connection, now: int) -> None:
        if connection.login is not None and (wait := connection.login.renew_after(self._random)):
            self._renewals[connection.key] = now + wait

    def _want_token(self, connection: Connection, now: int) -> None:
        if connection.wants_token and self._security is not None and self._security.tokens is not None:
            # Whoever gives tokens may be slower than brokers.
            connection.deadline = max(connection.deadline, now + self._setup_timeout)
            self.actions.append(GetToken(connection.key, self._security.tokens))

    def _renew(self, now: int) -> None:
        for key in [key for key, at in self._renewals.items() if at <= now]:
            del self._renewals[key]
            connection = self._connections[key]
            try:
                connection.patience = self.request_timeout_ms
                self._write(connection, connection.renew(now + self.request_timeout_ms))
                self._want_token(connection, now)
            except AuthenticationFailed as error:
                self._drop(connection, error.detail, now, denied=error)

    def tick(self, now: int) -> None:
        self._renew(now)
        for connection in list(self._connections.values()):
            late = connection.overdue(now)
            self._collect(connection)
            silent_at = self._silent_at(connection)
            if late:
                self._drop(connection, "a request was not answered in time", now)
            elif not connection.ready and connection.deadline <= now:
                what = "the broker doesn't answer" if connection.is_open else "the connection can't be made"
                self._drop(connection, f"{what} within {connection.patience} ms", now, silent=True)
            elif silent_at is not None and silent_at <= now:
                call, since = self._heads[connection.key]
                why = f"{call.name} was not answered within {silent_at - since} ms"
                self._drop(connection, why, now, silent=True)
            else:
                self._hurry(connection, now)
        parked, self._parked = self._parked, []
        for call, address in parked:
            if call.deadline <= now:
                detail = f"{address[0]}:{address[1]} refused before and is left alone for a moment"
                self._fail(call, RequestTimedOut(call.name, call.timeout_ms, detail))
            elif self._peers.setdefault(address, _Peer()).not_before <= now:
                self._place(call, now)
            else:
                self._parked.append((call, address))

    def next_deadline(self) -> int | None:
        times = [at for c in self._connections.values() if (at := c.next_deadline()) is not None]
        times += [at for c in self._connections.values() if (at := self._silent_at(c)) is not None]
        times += [at for c in self._connections.values() if (at := self._hurried_at(c)) is not None]
        times += self._renewals.values()
        for call, address in self._parked:
            times.append(min(call.deadline, self._peers.setdefault(address, _Peer()).not_before))
        return min(times, default=None)

    def metadata_changed(self, now: int) -> None:
        """Closes connections to addresses that no broker has any more (bootstrap addresses stay usable)."""
        known = {(broker.host, broker.port) for broker in self.view.brokers.values()} | set(self.bootstrap)
        for host, port, lane in list(self._lanes):
            if (host, port) not in known:
                self._drop(self._lanes[(host, port, lane)], "the broker moved away from this address", now)

    def disconnect(self, node: int, lane: int, why: str, now: int) -> None:
        """Gives one connection up, so that calls open on it fail now (a coordinator that moved, M26)."""
        broker = self.view.brokers.get(node)
        connection = self._lanes.get((broker.host, broker.port, lane)) if broker is not None else None
        if connection is not None:
            self._drop(connection, why, now, punish=False)

    def close(self, now: int) -> None:
        self.closed = True
        for connection in list(self._connections.values()):
            self._drop(connection, "the client is closed", now)
        parked, self._parked = self._parked, []
        for call, address in parked:
            self._fail(call, ConnectionFailed(f"{address[0]}:{address[1]}", "the client is closed"))

    # ---- inside

    def _write(self, connection: Connection, data: bytes) -> None:
        if data:
            self.actions.append(Write(connection.key, data))

    def _collect(self, connection: Connection) -> None:
        if connection.finished:
            self.finished.extend(connection.finished)
            connection.finished.clear()

    def _fail(self, call: Call, error: KprotoError) -> None:
        call.error = error
        self.finished.append(call)

    def _drop(
        self,
        connection: Connection,
        why: str,
        now: int,
        *,
        shut: bool = True,
        punish: bool = True,
        garbled: DecodeError | None = None,
        denied: AuthenticationFailed | None = None,
        silent: bool = False,
    ) -> None:
        was_ready = connection.ready
        address = (connection.host, connection.port)
        del self._connections[connection.key]
        self._heads.pop(connection.key, None)
        self._renewals.pop(connection.key, None)
        again = address not in self._silences
        if silent:
            self._silences[address] = self._silences.get(address, 0) + 1
        for place in [place for place, known in self._lanes.items() if known is connection]:
            del self._lanes[place]
        if shut:
            self.actions.append(Shut(connection.key))
        if punish:
            self._leave_alone(address, now)
        connection.broken(why, garbled, denied)
        for call in connection.finished:
            call.tried.add(address)
            untried = [address for address in self._addresses() if address not in call.tried]
            elsewhere = call.node is None and not was_ready and bool(untried) and denied is None
            # A question that is asked twice changes nothing; where nobody is at all, we say so after two.
            once_more = silent and call.message.__api_key__ in AT_ONCE and (was_ready or again)
            if (elsewhere or once_more) and call.deadline > now and not self.closed:
                call.error = None
                self._place(call, now)
            else:
                if call.node is None and len(call.tried) > 1 and isinstance(call.error, ConnectionFailed):
                    places = ", ".join(sorted(f"{host}:{port}" for host, port in call.tried))
                    call.error = ConnectionFailed(places, call.error.detail)
                self.finished.append(call)
        connection.finished.clear()

    def _addresses(self) -> list[tuple[str, int]]:
        known = [(broker.host, broker.port) for broker in self.view.brokers.values()]
        return list(dict.fromkeys([*known, *self.bootstrap]))

    def _leave_alone(self, address: tuple[str, int], now: int) -> None:
        peer = self._peers.setdefault(address, _Peer())
        peer.not_before = now + self._backoff.after(peer.failures)
        peer.failures += 1


def _late_at(connection: Connection) -> int:
    """When this connection, which is being made, takes long."""
    return connection.deadline - connection.patience + HASTE_MS


def _broker_waits(call: Call) -> int | None:
    """How many ms a healthy broker may wait before it answers; None when nobody can say. Of JoinGroups only
    the first is answered at once, which brings no more than the member's id (KIP-394)."""
    request = call.request
    if isinstance(request, FetchRequest):
        return request.max_wait_ms
    if isinstance(request, JoinGroupRequest):
        first = call.version >= 4 and not request.member_id and request.group_instance_id is None
        return 0 if first else None
    return 0 if call.message.__api_key__ in AT_ONCE else None
