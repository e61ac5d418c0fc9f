"""The connections of one client to the brokers.

The module selects the connection for each request, and retries or fails requests when a connection breaks. A
*call* is a request with its deadline and its outcome.

Rules:

* Requests to one broker use *lanes*, with one connection each. GROUP carries membership requests, and FETCH
  carries fetches.

* The lane SIDE carries additional fetches, which must not wait for the response to the fetch on FETCH. The
  lane MAIN carries all other requests.

* An offset commit uses MAIN, so it never waits behind a fetch, or behind a JoinGroup, which occupies its
  connection until all members have joined or the rebalance has timed out.

* A connection is opened when a call needs it, or in advance (`connect`).

* The key of a connection is never reused, so the client recognizes events of closed connections, and ignores
  them.

* When a connection breaks, its calls fail and the client backs off from the broker (`nodes`). Later calls
  wait until the backoff has ended.

* A call that any broker can serve (node None) tries every known address before it fails (`nodes`).

* If a call that any broker can serve fails after its request was sent, the client repeats the request at
  another address, provided that the request is read-only.

* A read-only request is retried once on a new connection if an established connection closes before the
  response.

* If a response is several seconds late (`request_timeouts`), a read-only request is sent again on a new
  connection.

* A throttled connection carries no requests (`throttle`). Until the throttling ends, a call that any broker
  can serve uses another address.

* Every call ends, with a response or with an error that names the address.

* If authentication (TLS, SASL) fails, the call fails immediately with AuthenticationFailed. Other brokers
  would reject the same credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any

from kproto.addresses import address_text
from kproto.errors import AuthenticationFailed, ConnectionFailed, DecodeError, KprotoError, RequestTimedOut
from kproto.machine import move
from kproto.wire.message import Message

from ...dialers import dialer_name
from ...security.failures import CLOSED
from ..metadata.cluster import ClusterView
from ..metrics import SnapshotBuilder
from ..timeouts import (
    CONNECTION_SETUP_TIMEOUT_MS,
    FIRST_SETUP_TIMEOUT_MS,
    MAX_THROTTLE_MS,
    RECONNECT_BACKOFF_MAX_MS,
    RECONNECT_BACKOFF_MS,
    REQUEST_TIMEOUT_MS,
    Backoff,
)
from .api_versions import ExpectedBroker, Misrouted
from .call import (
    Call,
    Outcome,
    Prepared,
)
from .connection import (
    EDGES,
    Connection,
    ConnectionState,
)
from .nodes import Address, NodeSelector, NodeStates
from .request_timeouts import READ_ONLY, RequestTimeouts
from .sensors import NetworkSensors
from .throttle import ThrottleReports
from .transport import (
    RECEIVE_MESSAGE_MAX_BYTES,
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
    from ...dialers import Dialer
    from ...security.options import Security

MAIN, GROUP, FETCH, SIDE = 0, 1, 2, 3
LAST_SHARED_LANE = SIDE  # Lanes above this number are a producer's additional connections.


class NetworkClient:
    """The connections of one client to the brokers, and the client's calls that have ended.

    The owner calls `send`, `handle` and `tick`. After each call it performs `actions` and handles the calls
    in `finished`.
    """

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
        max_throttle_ms: int = MAX_THROTTLE_MS,
        max_response: int = RECEIVE_MESSAGE_MAX_BYTES,
        random: Random | None = None,
        security: Security | None = None,
        dialer: Dialer | None = None,
    ) -> None:
        self.bootstrap = list(bootstrap)
        self.client_id = client_id
        self.request_timeout_ms = request_timeout_ms
        self.view = ClusterView()
        # API key -> the highest version to use, for brokers that advertise versions that they cannot decode.
        self.caps: dict[int, int] = {}
        self.actions: list[NetworkAction] = []
        self.finished: list[Call] = []
        # Called with the text of a report about throttling.
        self.on_throttled: Callable[[str], None] = lambda why: None
        # Called when the owner has to refresh the metadata, which may show that a broker has failed.
        self.on_liveness_check: Callable[[], None] = lambda: None
        # `on_broken(address, lane, why)` is called when a broker or the network has ended a connection.
        self.on_broken: Callable[[Address, int, str], None] = lambda address, lane, why: None
        # Called when a connection has led to the wrong broker (KIP-1242). The owner then has to refresh the
        # metadata.
        self.on_misrouted: Callable[[], None] = lambda: None
        # Address -> the broker that the client expected there, if the broker at the address is a different
        # one.
        self._rejected_brokers: dict[Address, ExpectedBroker] = {}
        self._recovers = recovers
        self._max_throttle_ms = max_throttle_ms
        self._throttles = ThrottleReports(max_throttle_ms)
        self._random = random or Random()
        self._security = security
        self._max_response = max_response
        # Connection key -> the time (ms) at which the connection's SASL session is renewed.
        self._renewals: dict[int, int] = {}
        self._nodes = NodeStates(Backoff(reconnect_backoff_ms, reconnect_backoff_max_ms, self._random))
        self._timeouts = RequestTimeouts(self._nodes, request_timeout_ms)
        self._setup_timeout = connection_setup_timeout_ms
        self._dialer = dialer
        self._connections: dict[int, Connection] = {}
        # (host, port, lane) -> the connection, which may still be in setup.
        self._lanes: dict[tuple[str, int, int], Connection] = {}
        self._selector = NodeSelector(
            self.view, self.bootstrap, recovers=recovers, nodes=self._nodes, lanes=self._lanes
        )
        # The calls that wait until the backoff of their address has ended.
        self._delayed_calls: list[tuple[Call, Address]] = []
        # Address -> the brokers at this address, according to the last metadata.
        self._listed_nodes: dict[Address, set[int]] = {}
        self._next_key = 0
        self.sensors = NetworkSensors()
        self.closed = False

    def send(
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
        """Send a request to the broker `node` (None: any broker).

        When the returned call ends, with a response or with an error, it is added to `finished`.
        """
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
            created_at=now,
        )
        try:
            self._dispatch(call, now)
            return call
        except BaseException:  # After Ctrl-C the call fails as if its connection had broken.
            self._fail_interrupted(call, now)
            raise

    def _fail_interrupted(self, call: Call, now: int) -> None:
        """Fail a call that was interrupted while it was being sent."""
        why = "interrupted while the request was being sent"
        for connection in list(self._connections.values()):
            if call in connection.waiting or any(call is pending for _, pending in connection.in_flight):
                self._disconnect(connection, why, now, backs_off=False)
        if not call.done:
            self._delayed_calls = [entry for entry in self._delayed_calls if entry[0] is not call]
            self._fail(call, ConnectionFailed(call.address or f"node {call.node}", why))

    def connect(self, node: int, now: int, *, lane: int = MAIN) -> None:
        """Open a connection that a call will need soon, unless the client backs off from this node.

        Connecting early saves the call two round trips: the TCP handshake and ApiVersions.
        """
        broker = self.view.brokers.get(node)
        if broker is None or self.closed:
            return
        address = (broker.host, broker.port)
        if (*address, lane) not in self._lanes and self._nodes.retry_at(address) <= now:
            self._open(address, lane, now)

    def version_at(self, node: int, message: type[Message]) -> int | None:
        """Return the version of `message` to send to this broker; None while no connection to it is ready."""
        broker = self.view.brokers.get(node)
        if broker is None:
            return None
        for lane in (MAIN, GROUP, FETCH, SIDE):
            connection = self._lanes.get((broker.host, broker.port, lane))
            if connection is not None and connection.ready:
                return connection.version_for(message)
        return None

    def ready_node(self, preferred: int | None, now: int) -> int | None:
        """Return a broker to which a request can be sent now on lane MAIN; None if no such broker exists.

        If `preferred` is such a broker, it is returned. Otherwise, the one with the fewest requests in flight
        is returned.
        """
        ready: list[tuple[int, int]] = []
        for node, broker in self.view.brokers.items():
            connection = self._lanes.get((broker.host, broker.port, MAIN))
            if connection is not None and connection.ready and connection.throttled_until <= now:
                if node == preferred:
                    return node
                ready.append((len(connection.in_flight), node))
        return min(ready)[1] if ready else None

    def feature_at(self, node: int, name: str) -> int | None:
        """Return a feature's finalized level: 0 if the feature is off, None if no connection is ready."""
        broker = self.view.brokers.get(node)
        connection = broker and self._lanes.get((broker.host, broker.port, MAIN))
        return connection.features.get(name, 0) if connection and connection.ready else None

    def throttled_until(self, node: int, lane: int = MAIN) -> int:
        """Return the time (ms) until which this broker throttles the connection; 0 without throttling."""
        broker = self.view.brokers.get(node)
        connection = broker and self._lanes.get((broker.host, broker.port, lane))
        return connection.throttled_until if connection else 0

    def connection_problem(self, node: int, lane: int, now: int) -> tuple[str, int | None] | None:
        """Return why no request can be sent to this broker now, or None if one can be sent.

        The result is (reason, retry time). The retry time is when the broker can be tried again (ms), or None
        if it is unknown.
        """
        broker = self.view.brokers.get(node)
        if broker is None:
            return f"the metadata contains no address of node {node}", None
        address = (broker.host, broker.port)
        connection = self._lanes.get((*address, lane))
        if connection is not None and connection.throttled_until > now:
            return f"the broker at {connection.address} throttles the client", connection.throttled_until
        if connection is not None and connection.ready:
            return None
        failure = self._nodes.last_failure(address)
        name = address_text(*address)
        if connection is not None:
            return f"the connection to {name} is being set up" + (f": {failure}" if failure else ""), None
        until = self._nodes.retry_at(address)
        return f"there is no connection to {name}: {failure}", until if until > now else None

    def connected(self) -> bool:
        """Return whether any connection is ready."""
        return any(connection.ready for connection in self._connections.values())

    def _dispatch(self, call: Call, now: int) -> None:
        """Send the call. If its address is in backoff without a connection, delay the call until the end."""
        if self.closed:
            self._fail(call, ConnectionFailed(call.address or "(none)", "the client is closed"))
            return
        if call.node is None:
            address = self._selector.select(call, now)
        else:
            broker = self.view.brokers.get(call.node)
            if broker is None:
                self._fail(
                    call, ConnectionFailed(f"node {call.node}", "the cluster does not list this broker")
                )
                return
            address = (broker.host, broker.port)
        connection = self._lanes.get((*address, call.lane))
        if connection is not None and not self._end_throttle(connection, now):
            connection = None
        if connection is None:
            if self._nodes.retry_at(address) > now:
                self._delayed_calls.append((call, address))
                return
            connection = self._open(address, call.lane, now)
        self._write(connection, connection.ask(call), now)
        self._collect(connection)
        self._timeouts.update(connection, now)

    def _open(self, address: Address, lane: int, now: int) -> Connection:
        """Begin to set up a new connection for this lane."""
        self._next_key += 1
        host, port = address
        setup_timeout_ms = self._nodes.setup_timeout_ms(address, FIRST_SETUP_TIMEOUT_MS, self._setup_timeout)
        security = self._security
        login = None
        if security is not None and security.sasl:
            from .login import Login  # Imported here, so that only clients with SASL load this module.

            login = Login(security, address_text(host, port))
        connection = Connection(
            self._next_key, host, port, self.client_id, deadline=now + setup_timeout_ms, login=login
        )
        connection.setup_timeout_ms, connection.setup_began_at = setup_timeout_ms, now
        connection.caps = self.caps
        connection.expected_broker = self._expected_broker(address)
        self._connections[connection.key] = connection
        self._lanes[(host, port, lane)] = connection
        tls = None if security is None else security.tls
        if self._dialer is not None:
            connection.dialer = dialer_name(self._dialer)
        self.actions.append(Open(connection.key, host, port, tls, self._max_response, self._dialer))
        return connection

    def _expected_broker(self, address: Address) -> ExpectedBroker | None:
        """Return the broker at this address if the metadata lists exactly one there, else None.

        If a connection to the address has led to another broker (KIP-1242), the result is None until the
        metadata lists a different broker there. Meanwhile the client connects without an expected broker. So
        the client also works if a proxy changes the node ids, or if the metadata is wrong. Java's client does
        not work in these cases.
        """
        cluster_id, brokers = self.view.cluster_id, self.view.brokers
        if not self._recovers or cluster_id is None:
            return None
        nodes = [node for node, broker in brokers.items() if (broker.host, broker.port) == address]
        expected = ExpectedBroker(cluster_id, nodes[0]) if len(nodes) == 1 else None
        return None if expected == self._rejected_brokers.get(address) else expected

    def rebootstrap(self, now: int) -> None:
        """Forget the brokers and close their connections, so that a bootstrap address is used next."""
        self.view.brokers, self.view.cluster_id = {}, None
        self.metadata_changed(now)

    def handle(self, event: NetworkEvent, now: int) -> None:
        """Handle an event of a connection. Events of closed connections are ignored."""
        connection = self._connections.get(event.key)
        if connection is None:
            return
        match event:
            case Data() | Answer() | GotToken():
                try:
                    was_ready = connection.ready
                    if isinstance(event, Answer):
                        self._write(connection, connection.answered(event.body), now)
                    elif isinstance(event, Data):
                        self._write(connection, connection.received(event.data), now)
                    elif connection.wants_token:
                        connection.setup_began_at = None if connection.setup_began_at is None else now
                        self._write(connection, connection.log_in(event.token), now)
                    if connection.ready and not was_ready:
                        self._on_ready(connection, now)
                    self._request_token(connection, now)
                except DecodeError as error:
                    self._collect(connection)
                    self._disconnect(
                        connection, f"the response cannot be decoded: {error}", now, decode_error=error
                    )
                    return
                except AuthenticationFailed as error:
                    self._collect(connection)
                    self._disconnect(connection, error.detail, now, authentication_error=error)
                    return
                except ConnectionFailed as error:
                    self._collect(connection)
                    self._disconnect(connection, error.detail, now)
                    if isinstance(error, Misrouted) and self._recovers:
                        self._recover_from_misrouting(connection, now)
                    return
                self._start_throttle(connection, now)
                if connection.response_sizes:
                    self.sensors.record_received(connection, now)
                self._collect(connection)
                self._timeouts.update(connection, now)
                if isinstance(event, Data):
                    self._timeouts.on_partial_response(connection, now)
            case Reached():
                if connection.state is ConnectionState.CONNECTING:
                    self.sensors.created.record(1, now)
                move(connection, ConnectionState.TLS_HANDSHAKE, EDGES)
            case Opened():
                if connection.state is ConnectionState.CONNECTING:
                    self.sensors.created.record(1, now)
                self._write(connection, connection.opened(), now)
            case Broken(why=why, denied=True):
                refusal = AuthenticationFailed(connection.address, why)
                self._disconnect(connection, why, now, shut=connection.is_open, authentication_error=refusal)
            case Broken(why=why):
                why = self._close_reason(connection, why)
                lanes = [lane for (_, _, lane), other in self._lanes.items() if other is connection]
                self._disconnect(connection, why, now, shut=connection.wants_token)
                for lane in lanes:
                    self.on_broken((connection.host, connection.port), lane, why)

    def _on_ready(self, connection: Connection, now: int) -> None:
        """Record how long the setup took, and schedule the renewal of the SASL session."""
        setup_ms = None if connection.setup_began_at is None else now - connection.setup_began_at
        self._nodes.on_ready((connection.host, connection.port), setup_ms)
        connection.setup_began_at = None
        self.sensors.record_ready(now, renewal_began_at=connection.renewal_began_at)
        connection.renewal_began_at = None
        self._schedule_renewal(connection, now)

    def _recover_from_misrouting(self, connection: Connection, now: int) -> None:
        """Rebootstrap, because the connection has led to the wrong broker (KIP-1242)."""
        if connection.expected_broker is not None:
            self._rejected_brokers[connection.host, connection.port] = connection.expected_broker
        self.rebootstrap(now)
        self.on_misrouted()

    def _close_reason(self, connection: Connection, why: str) -> str:
        """Return the likely reason why the broker closed the connection. Brokers seldom send the reason."""
        if not connection.is_open or not (why == CLOSED or "reset" in why):
            return why
        if connection.login is not None and (
            login_reason := connection.login.close_reason(connection.has_responded)
        ):
            return login_reason
        if connection.has_responded:
            return why
        if connection.ready:
            return f"{why} on the first request; does this listener want SASL (security_protocol)?"
        if self._security is not None and self._security.tls is not None:
            return f"{why} before its first response; does it trust this client's certificate (ssl_certfile)?"
        return f"{why} before its first response; does this port want TLS (security_protocol)?"

    def _start_throttle(self, connection: Connection, now: int) -> None:
        """Throttle the connection if a response requires it. Call `on_throttled` if a report is due."""
        if connection.requested_throttle[1]:
            api, requested_ms = connection.throttle(now, self._max_throttle_ms)
            report = self._throttles.report(api, connection.address, requested_ms, now)
            if report:
                self.on_throttled(report)

    def _end_throttle(self, connection: Connection, now: int) -> bool:
        """End the connection's throttling if the throttle time has passed, and send the calls that waited.

        If the broker requested a throttle time above the client's limit, `metadata_max_age_ms`, the broker
        possibly does not read from this connection yet. In this case the client closes the connection, sends
        the waiting calls on a new connection, and returns False.
        """
        if not connection.is_throttled or connection.throttled_until > now:
            return True
        if connection.is_throttle_capped:
            waiting_calls = list(connection.waiting)
            connection.waiting.clear()
            self._disconnect(
                connection, "the throttle time exceeds this client's limit", now, backs_off=False
            )
            for call in waiting_calls:
                self._dispatch(call, now)
            return False
        self._write(connection, connection.end_throttle(), now)
        self._collect(connection)
        self._timeouts.update(connection, now)
        return True

    def _schedule_renewal(self, connection: Connection, now: int) -> None:
        """Schedule the renewal of the SASL session (KIP-368)."""
        if connection.login is not None and (delay_ms := connection.login.renew_after(self._random)):
            self._renewals[connection.key] = now + delay_ms

    def _request_token(self, connection: Connection, now: int) -> None:
        """Request a token if the connection's login needs one."""
        if connection.wants_token and self._security is not None:
            # A token provider may be slower than a broker, so the connection gets the maximum setup timeout,
            # counted from now.
            connection.setup_timeout_ms = max(connection.setup_timeout_ms, self._setup_timeout)
            connection.deadline = max(connection.deadline, now + connection.setup_timeout_ms)
            self.actions.append(GetToken(connection.key, self._security.token_source(connection.host)))

    def _renew_sessions(self, now: int) -> None:
        """Renew the SASL sessions whose renewal is due."""
        for key in [key for key, at in self._renewals.items() if at <= now]:
            del self._renewals[key]
            connection = self._connections[key]
            try:
                connection.setup_timeout_ms = self.request_timeout_ms
                connection.renewal_began_at = now
                self._write(connection, connection.renew_session(now + self.request_timeout_ms), now)
                self._request_token(connection, now)
            except AuthenticationFailed as error:
                self._disconnect(connection, error.detail, now, authentication_error=error)

    def tick(self, now: int) -> None:
        """Handle what is due at `now`: SASL renewals, ends of throttling, timeouts and ends of backoffs."""
        self._renew_sessions(now)
        for connection in list(self._connections.values()):
            if not self._end_throttle(connection, now):
                continue
            is_unusable = connection.expire_calls(now)
            for call in connection.finished:
                self._name_all_addresses(call)
            self._collect(connection)
            response_due_at = self._timeouts.expires_at(connection)
            if not connection.ready and connection.deadline <= now:
                self._disconnect(
                    connection, connection.setup_failure(), now, is_unresponsive=not connection.wants_token
                )
            elif is_unusable:
                self._disconnect(connection, "a request was not answered in time", now)
            elif response_due_at is not None and response_due_at <= now:
                reason = self._timeouts.timeout_reason(connection)
                self._disconnect(connection, reason, now, is_unresponsive=True)
            else:
                for call in list(connection.waiting):
                    if self._selector.leaves_slow_setup(connection, call, now):
                        connection.remove_waiting(call)
                        self._dispatch(call, now)
                if self._timeouts.start_liveness_check_if_due(connection, now):
                    self.on_liveness_check()
        self._dispatch_delayed_calls(now)

    def _dispatch_delayed_calls(self, now: int) -> None:
        """Send the calls whose backoff has ended, and fail those that have timed out."""
        delayed_calls, self._delayed_calls = self._delayed_calls, []
        for call, address in delayed_calls:
            if call.deadline <= now:
                why = self._nodes.last_failure(address)
                name = address_text(*address)
                detail = f"{name} failed, and its backoff is not over: {why}"
                self._fail(call, RequestTimedOut(call.name, call.timeout_ms, detail, {name: why}))
                self._name_all_addresses(call)
            elif self._nodes.retry_at(address) <= now:
                self._dispatch(call, now)
            else:
                self._delayed_calls.append((call, address))

    def next_deadline(self) -> int | None:
        """Return when (ms) to call `tick` next; None if nothing is scheduled."""
        times = list(self._renewals.values())
        for connection in self._connections.values():
            if connection.in_flight or connection.waiting or not connection.ready:
                connection.add_deadlines(times)
                self._timeouts.add_deadlines(connection, times)
                if connection.waiting and (at := self._selector.leaves_slow_setup_at(connection)) is not None:
                    times.append(at)
        for call, address in self._delayed_calls:
            times.append(min(call.deadline, self._nodes.retry_at(address)))
        return min(times, default=None)

    def metadata_changed(self, now: int) -> None:
        """Close the connections to each address whose broker was removed or replaced.

        For example, if two brokers swap their addresses, each existing connection leads to the wrong broker.

        Connections to a bootstrap address are kept if neither the previous nor the new metadata lists a
        broker there.
        """
        previous_nodes, self._listed_nodes = self._listed_nodes, {}
        for node, broker in self.view.brokers.items():
            self._listed_nodes.setdefault((broker.host, broker.port), set()).add(node)
        for host, port, lane in list(self._lanes):
            old_nodes = previous_nodes.get((host, port), set())
            nodes = self._listed_nodes.get((host, port), set())
            if old_nodes and nodes and not old_nodes & nodes:
                why = "the cluster lists another broker at this address"
            elif nodes or ((host, port) in self.bootstrap and not old_nodes):
                continue
            else:
                why = "the cluster lists no broker at this address any more"
            self._disconnect(self._lanes[(host, port, lane)], why, now)
        self.sensors.forget_other_nodes({*self._listed_nodes, *self.bootstrap})

    def add_metrics_to(self, snapshot: SnapshotBuilder) -> None:
        """Add the metrics of the connections to a snapshot."""
        self.sensors.add_to(snapshot, self.view, self.bootstrap, len(self._connections))

    def disconnect(self, node: int, lane: int, why: str, now: int) -> None:
        """Close a connection and fail its calls. The next connection to the broker may be opened immediately.

        The engine calls this method when the group's coordinator is lost (M26).
        """
        broker = self.view.brokers.get(node)
        connection = self._lanes.get((broker.host, broker.port, lane)) if broker is not None else None
        if connection is not None:
            self._disconnect(connection, why, now, backs_off=False)

    def close(self, now: int) -> None:
        """Close all connections, and fail every call."""
        self.closed = True
        for connection in list(self._connections.values()):
            self._disconnect(connection, "the client is closed", now)
        delayed_calls, self._delayed_calls = self._delayed_calls, []
        for call, address in delayed_calls:
            self._fail(call, ConnectionFailed(address_text(*address), "the client is closed"))

    def _write(self, connection: Connection, data: bytes, now: int) -> None:
        if data:
            self.actions.append(Write(connection.key, data))
            self.sensors.record_sent(connection, now)

    def _collect(self, connection: Connection) -> None:
        """Move the finished calls of the connection to `finished`."""
        if connection.finished:
            self.finished.extend(connection.finished)
            connection.finished.clear()

    def _fail(self, call: Call, error: KprotoError) -> None:
        call.error = error
        self.finished.append(call)

    def _name_all_addresses(self, call: Call) -> None:
        """List every broker address in the error of a timed-out call that any broker may answer."""
        error, addresses = call.error, sorted(self._selector.addresses())
        if call.node is not None or not isinstance(error, RequestTimedOut) or len(addresses) < 2:
            return
        failures = {
            address_text(*address): self._nodes.last_failure(address)
            or call.tried.get(address, "not tried yet")
            for address in addresses
        }
        reasons = failures | error.reasons
        call.error = RequestTimedOut.everywhere(error.request, error.timeout_ms, reasons)

    def _disconnect(
        self,
        connection: Connection,
        why: str,
        now: int,
        *,
        shut: bool = True,
        backs_off: bool = True,
        decode_error: DecodeError | None = None,
        authentication_error: AuthenticationFailed | None = None,
        is_unresponsive: bool = False,
    ) -> None:
        """Close and forget a connection; retry or fail its calls.

        With `shut`, the open socket is closed. With `backs_off`, the client delays its next connection to the
        address. `is_unresponsive` says that the broker exceeded the timeout of the connection setup, or the
        timeout of a request (`request_timeouts`).

        `decode_error` and `authentication_error` have the same meaning as in `Connection.fail_calls`.
        """
        was_ready = connection.ready
        address = (connection.host, connection.port)
        del self._connections[connection.key]
        self.sensors.record_closed(
            now, denied=authentication_error is not None, is_renewal=connection.renewal_began_at is not None
        )
        api_key = self._timeouts.oldest_api_key(connection)
        self._timeouts.forget(connection)
        self._renewals.pop(connection.key, None)
        is_first_timeout = is_unresponsive and not self._nodes.count_timeout(address, api_key)
        # If the login has begun, the broker is alive but may be slow. The next connection attempt gets a
        # longer setup timeout.
        login = connection.login
        is_slow_login = (
            login is not None and login.is_in_progress and connection.setup_timeout_ms < self._setup_timeout
        )
        for lane_key in [lane_key for lane_key, other in self._lanes.items() if other is connection]:
            del self._lanes[lane_key]
        if shut:
            self.actions.append(Shut(connection.key))
        if backs_off:
            self._nodes.back_off(address, now, why)
        connection.fail_calls(why, decode_error, authentication_error)
        for call in connection.finished:
            tried_before = address in call.tried
            call.tried[address] = why
            untried_addresses = self._selector.untried(call)
            # A read-only request may be sent to another address even if this broker may have received it.
            is_idempotent = call.message.__api_key__ in READ_ONLY
            may_resend = not was_ready or (is_idempotent and call.outcome is Outcome.NO_RESPONSE)
            try_elsewhere = (
                call.node is None and may_resend and bool(untried_addresses) and authentication_error is None
            )
            retry_same = (
                is_unresponsive and is_idempotent and (was_ready or is_first_timeout or is_slow_login)
            )
            # The broker may have closed the idle connection just as the request was sent. This is not a
            # failure of the broker.
            may_be_idle_close = (
                connection.has_responded
                and is_idempotent
                and call.outcome is Outcome.NO_RESPONSE
                and backs_off
                and not tried_before
            )
            if (try_elsewhere or retry_same or may_be_idle_close) and call.deadline > now and not self.closed:
                call.error = None
                self._dispatch(call, now)
            else:
                _name_tried_addresses(call)
                self.finished.append(call)
        connection.finished.clear()


def _name_tried_addresses(call: Call) -> None:
    """If a call without a node failed at several addresses, list the addresses in its error."""
    if call.node is None and len(call.tried) > 1 and isinstance(call.error, ConnectionFailed):
        cause = call.error.__cause__
        reasons = {address_text(*address): why for address, why in sorted(call.tried.items())}
        call.error = ConnectionFailed.everywhere(reasons)
        call.error.__cause__ = cause
