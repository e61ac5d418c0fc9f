"""All connections of one client: which broker is asked on which connection, and what happens when one breaks.

Rules that hold here:

* Requests to one broker travel in *lanes*, one connection each: MAIN for everything, GROUP for membership (a
  JoinGroup keeps its connection busy until the group has gathered), FETCH for fetches (they wait at the
  broker for records), SIDE for fetches that shall not wait behind those. So an offset commit never waits
  behind a fetch or an open JoinGroup.
* Connections are opened when the first call needs them, or is known to come (`prepare`), and known by a
  number that is never used twice: events of a connection that is gone are ignored.
* After a failure a broker is left alone for a while (`peers`). Calls to it fail at once when the connection
  fails, and wait while the broker is being left alone.
* A call for *any* broker (node None) tries every known address before it fails (`choosing`). A question does
  so also where the connection breaks under it.
* A question on a connection that was in use, and ends, is asked once more on a new one.
* A broker that is silent where it should answer (a new connection, or see `silence`) is asked again through a
  new connection: so one connection that stalls costs seconds.
* A connection whose broker asks for quiet is quiet (`throttling`); a call for any broker goes elsewhere
  meanwhile, if there is an elsewhere.
* Every call ends: answered, or with an error that names the address.
* Who is not let in (TLS, SASL) hears of it at once, by AuthenticationFailed, and no other address is tried
  for the same call: it would be refused there, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kproto.errors import AuthenticationFailed, ConnectionFailed, DecodeError, KprotoError, RequestTimedOut
from kproto.wire.message import Message

from ...security.failures import CLOSED
from ..metadata.cluster import ClusterView
from ..timing import (
    CONNECTION_SETUP_TIMEOUT_MS,
    FIRST_SETUP_TIMEOUT_MS,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    Backoff,
)
from .connection import (
    Call,
    Connection,
    Outcome,
    Prepared,
)
from .nodes import Address, NodeSelector, NodeStates
from .request_timeouts import AT_ONCE, RequestTimeouts
from .throttle import ThrottleReports
from .transport import (
    Answer,
    Broken,
    Data,
    GetToken,
    GotToken,
    NetworkAction,
    NetworkEvent,
    Open,
    Opened,
    Reached,
    Shut,
    Write,
)

if TYPE_CHECKING:
    from ...security import Security

MAIN, GROUP, FETCH, SIDE = 0, 1, 2, 3
MORE = SIDE  # above: a producer's further ones


class NetworkClient:
    """Ask with `ask`, tell with `happened` and `tick`, take `actions` and `finished` away after each."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        *,
        client_id: str = "kproto",
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        reconnect_backoff_ms: int = RECONNECT_BACKOFF_MS,
        reconnect_backoff_max_ms: int = RECONNECT_BACKOFF_MAX_MS,
        connection_setup_timeout_ms: int = CONNECTION_SETUP_TIMEOUT_MS,
        recovers: bool = True,
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
        # Told what brokers ask for, when it is news; and that metadata may say why a broker says nothing.
        self.throttled: Callable[[str], None] = lambda why: None
        self.doubted: Callable[[], None] = lambda: None
        self._throttles = ThrottleReports()
        self._random = random or Random()
        self._security = security
        # Connection -> when its SASL session is to be renewed.
        self._renewals: dict[int, int] = {}
        self._peers = NodeStates(Backoff(reconnect_backoff_ms, reconnect_backoff_max_ms, self._random))
        self._silence = RequestTimeouts(self._peers, request_timeout_ms)
        self._setup_timeout = connection_setup_timeout_ms
        self._connections: dict[int, Connection] = {}
        self._lanes: dict[tuple[str, int, int], Connection] = {}
        self._choice = NodeSelector(
            self.view, self.bootstrap, recovers=recovers, peers=self._peers, lanes=self._lanes
        )
        self._parked: list[tuple[Call, Address]] = []
        self._listed: dict[Address, set[int]] = {}  # which brokers were where, as of the last metadata
        self._next_key = 0
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
        try:
            self._place(call, now)
            return call
        except BaseException:  # Ctrl-C: whoever asked hears of it, as when a connection breaks
            self._interrupted(call, now)
            raise

    def _interrupted(self, call: Call, now: int) -> None:
        why = "an interrupt came while this was asked"
        for connection in list(self._connections.values()):
            if call in connection.waiting or any(call is one for _, one in connection.in_flight):
                self._drop(connection, why, now, punish=False)
        if not call.done:
            self._parked = [entry for entry in self._parked if entry[0] is not call]
            self._fail(call, ConnectionFailed(call.address or f"node {call.node}", why))

    def prepare(self, node: int, now: int, *, lane: int = MAIN) -> None:
        """Makes the connection that a call will want soon, if that broker is known and not left alone: on a
        long way it would cost two rounds more by then."""
        broker = self.view.brokers.get(node)
        if broker is None or self.closed:
            return
        address = (broker.host, broker.port)
        if (*address, lane) not in self._lanes and self._peers.free_at(address) <= now:
            self._open(address, lane, now)

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

    def feature_at(self, node: int, name: str) -> int | None:
        """The level at which the cluster has turned a feature on, 0 for off; None while that is not known."""
        broker = self.view.brokers.get(node)
        connection = broker and self._lanes.get((broker.host, broker.port, MAIN))
        return connection.features.get(name, 0) if connection and connection.ready else None

    def free_at(self, node: int, lane: int = MAIN) -> int:
        """Until when this broker asks for quiet on that lane; 0 for not at all."""
        broker = self.view.brokers.get(node)
        connection = broker and self._lanes.get((broker.host, broker.port, lane))
        return connection.quiet_until if connection else 0

    def connected(self) -> bool:
        return any(connection.ready for connection in self._connections.values())

    def _place(self, call: Call, now: int) -> None:
        if self.closed:
            self._fail(call, ConnectionFailed(call.address or "(none)", "the client is closed"))
            return
        if call.node is None:
            address = self._choice.of(call, now)
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
            if self._peers.free_at(address) > now:
                self._parked.append((call, address))
                return
            connection = self._open(address, call.lane, now)
        self._speak(connection, now)
        self._write(connection, connection.ask(call))
        self._collect(connection)
        self._silence.watch(connection, now)

    def _open(self, address: Address, lane: int, now: int) -> Connection:
        self._next_key += 1
        host, port = address
        patience = self._peers.setup_patience(address, FIRST_SETUP_TIMEOUT_MS, self._setup_timeout)
        security = self._security
        login = None
        if security is not None and security.sasl:
            from .login import Login  # nobody else pays for it

            login = Login(security, f"{host}:{port}")
        connection = Connection(
            self._next_key, host, port, self.client_id, deadline=now + patience, login=login
        )
        connection.patience, connection.began = patience, now
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
            case Reached():
                connection.shaking = True
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
                        connection.began = None if connection.began is None else now
                        self._write(connection, connection.log_in(event.token))
                    if connection.ready and not was_ready:
                        took = None if connection.began is None else now - connection.began
                        self._peers.ready((connection.host, connection.port), took)
                        connection.began = None
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
                except ConnectionFailed as error:
                    self._collect(connection)
                    self._drop(connection, error.detail, now)
                    return
                self._hush(connection, now)
                self._collect(connection)
                self._silence.watch(connection, now)
                if isinstance(event, Data):
                    self._silence.coming(connection, now)
            case Broken(why=why, denied=True):
                denied = AuthenticationFailed(connection.address, why)
                self._drop(connection, why, now, shut=connection.is_open, denied=denied)
            case Broken(why=why):
                self._drop(connection, self._why(connection, why), now, shut=connection.wants_token)

    def _why(self, connection: Connection, why: str) -> str:
        """Why a broker may have closed a connection: what is wrong with security is often not said aloud."""
        if not connection.is_open or not (why == CLOSED or "reset" in why):
            return why
        if connection.login is not None and (known := connection.login.broken(connection.heard)):
            return known
        if connection.heard:
            return why
        if connection.ready:
            return f"{why} on the first request; does this listener want SASL (security_protocol)?"
        if self._security is not None and self._security.tls is not None:
            return f"{why} before its first answer; does it trust this client's certificate (ssl_certfile)?"
        return f"{why} before its first answer; does this port want TLS (security_protocol)?"

    # ---- brokers that ask for less (KIP-219)

    def _hush(self, connection: Connection, now: int) -> None:
        if connection.asked[1]:
            api, wait = connection.hush(now)
            news = self._throttles.news(api, connection.address, wait, now)
            if news:
                self.throttled(news)

    def _speak(self, connection: Connection, now: int) -> None:
        if connection.quiet and connection.quiet_until <= now:
            self._write(connection, connection.speak())
            self._collect(connection)
            self._silence.watch(connection, now)

    # ---- sessions that end (KIP-368)

    def _log_in_later(self, connection: Connection, now: int) -> None:
        if connection.login is not None and (wait := connection.login.renew_after(self._random)):
            self._renewals[connection.key] = now + wait

    def _want_token(self, connection: Connection, now: int) -> None:
        if connection.wants_token and self._security is not None and self._security.tokens is not None:
            # Whoever gives tokens may be slower than brokers.
            connection.patience = max(connection.patience, self._setup_timeout)
            connection.deadline = max(connection.deadline, now + connection.patience)
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
            self._speak(connection, now)
            late = connection.overdue(now)
            for call in connection.finished:
                self._name_all(call)
            self._collect(connection)
            silent_at = self._silence.at(connection)
            if not connection.ready and connection.deadline <= now:
                self._drop(connection, connection.late(), now, silent=not connection.wants_token)
            elif late:
                self._drop(connection, "a request was not answered in time", now)
            elif silent_at is not None and silent_at <= now:
                self._drop(connection, self._silence.why(connection), now, silent=True)
            else:
                for call in list(connection.waiting):
                    if self._choice.leaves(connection, call, now):
                        connection.forget(call)
                        self._place(call, now)
                if self._silence.doubts(connection, now):
                    self.doubted()
        parked, self._parked = self._parked, []
        for call, address in parked:
            if call.deadline <= now:
                why = self._peers.why(address)
                place = f"{address[0]}:{address[1]}"
                detail = f"{place} refused before and is left alone for a moment: {why}"
                self._fail(call, RequestTimedOut(call.name, call.timeout_ms, detail, {place: why}))
                self._name_all(call)
            elif self._peers.free_at(address) <= now:
                self._place(call, now)
            else:
                self._parked.append((call, address))

    def next_deadline(self) -> int | None:
        times = list(self._renewals.values())
        for connection in self._connections.values():
            if connection.in_flight or connection.waiting or not connection.ready:
                connection.add_deadlines(times)
                self._silence.add_due(connection, times)
                if (at := self._choice.leaves_at(connection)) is not None:
                    times.append(at)
        for call, address in self._parked:
            times.append(min(call.deadline, self._peers.free_at(address)))
        return min(times, default=None)

    def metadata_changed(self, now: int) -> None:
        """Closes connections to addresses that no broker has any more (bootstrap addresses stay usable), or
        another one: who has one address after the other is still at the end of what was connected before."""
        before, self._listed = self._listed, {}
        for node, broker in self.view.brokers.items():
            self._listed.setdefault((broker.host, broker.port), set()).add(node)
        for host, port, lane in list(self._lanes):
            was, here = before.get((host, port), set()), self._listed.get((host, port), set())
            if was and here and not was & here:
                why = "the cluster lists another broker here now"
            elif here or ((host, port) in self.bootstrap and not was):
                continue
            else:
                why = "the cluster lists no broker here any more"
            self._drop(self._lanes[(host, port, lane)], why, now)

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

    def _name_all(self, call: Call) -> None:
        """Who could have been answered by anybody is told of every address, and not of the last one alone."""
        error, addresses = call.error, sorted(self._choice.all())
        if call.node is not None or not isinstance(error, RequestTimedOut) or len(addresses) < 2:
            return
        said = {at: self._peers.why(at) or call.tried.get(at, "it was not tried yet") for at in addresses}
        reasons = {f"{host}:{port}": why for (host, port), why in said.items()} | error.reasons
        call.error = RequestTimedOut.everywhere(error.request, error.timeout_ms, reasons)

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
        what = self._silence.what(connection)
        self._silence.forget(connection)
        self._renewals.pop(connection.key, None)
        again = silent and not self._peers.silent(address, what)
        # Somebody is there, and may be slow: as long as a connection may take, each time longer.
        login = connection.login
        logs_in = login is not None and login.begun and connection.patience < self._setup_timeout
        for place in [place for place, known in self._lanes.items() if known is connection]:
            del self._lanes[place]
        if shut:
            self.actions.append(Shut(connection.key))
        if punish:
            self._peers.failed(address, now, why)
        connection.broken(why, garbled, denied)
        for call in connection.finished:
            before = address in call.tried
            call.tried[address] = why
            untried = self._choice.untried(call)
            # A question that is asked twice changes nothing; where nobody is at all, we say so after two.
            question = call.message.__api_key__ in AT_ONCE
            unheard = not was_ready or (question and call.how is Outcome.silent)
            elsewhere = call.node is None and unheard and bool(untried) and denied is None
            once_more = silent and question and (was_ready or again or logs_in)
            # An old connection may end just when it is used again, and that says nothing of the broker.
            stale = connection.heard and question and call.how is Outcome.silent and punish and not before
            if (elsewhere or once_more or stale) and call.deadline > now and not self.closed:
                call.error = None
                self._place(call, now)
            else:
                if call.node is None and len(call.tried) > 1 and isinstance(call.error, ConnectionFailed):
                    reasons = {f"{host}:{port}": said for (host, port), said in sorted(call.tried.items())}
                    cause, call.error = call.error.__cause__, ConnectionFailed.everywhere(reasons)
                    call.error.__cause__ = cause
                self.finished.append(call)
        connection.finished.clear()
