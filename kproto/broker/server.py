"""The embedded broker on sockets: `Server` listens, and runs the state machine (`machine`) in an event loop.

    async with Server(topics={"flights": 3}) as server:       # in a running event loop
        ... server.bootstrap ...

    with running(topics={"flights": 3}) as server:            # in its own thread
        ... server.bootstrap ...

Rules:

* This module does only I/O: it reads and writes bytes, reads a clock and sets a timer. The logic of the
  broker is in `machine.step`.

* Every buffer is bounded. The broker does not read from a connection while its queued requests exceed a
  limit, or while its client does not read responses.

* A connection that sends an invalid request is closed, and the reason is logged. Other connections are not
  affected.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import math
import secrets
import socket
import threading
import uuid
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..addresses import address_text
from ..error_codes import ErrorCode
from ..errors import ConfigError, IllegalState
from ..http import request, shown
from ..messages.index import API_NAMES, response_class
from ..validation import (
    BOOLEAN,
    FUNCTION,
    NAMES_TO_NUMBERS,
    NAMES_TO_SETTINGS,
    NAMES_TO_TEXTS,
    NUMBER,
    PORT,
    TEXT,
    TEXTS,
    WHOLE_NUMBER,
    ZERO_OR_MORE,
    Rule,
    checked,
    has_attributes,
    secret,
)
from .acceptor import Acceptor, close_acceptors, listening_socket
from .apis.table import APIS, REFUSABLE, served_versions
from .broker import Broker
from .call import Node
from .client_metrics import PushedMetrics, kafka_uuid
from .machine import (
    CleanLogs,
    CreateTopic,
    ElectLeader,
    FailRequests,
    GrowTopic,
    MoveCoordinator,
    ThrottleClients,
    TruncateLog,
    step,
)
from .security.listeners import Listener, allowed_addresses
from .security.tls import ServerTls
from .security.users import Users
from .settings import SSL_CLIENT_AUTH, Settings
from .shell import Clock, Observer, Shell
from .socket_connection import SocketConnection
from .topic_configs import check_topic_config, check_topic_configs

if TYPE_CHECKING:
    import ssl

    from ..security.oauthbearer import Check

# The APIs that `Server.fail` accepts: name -> key.
FAILING: Final = {API_NAMES[key]: key for key in sorted(REFUSABLE)}
# The longest throttle time in seconds: in ms it must fit into the int32 of a response.
MAX_THROTTLE_SECONDS: Final = 2_000_000
# The maximum time in seconds that a call from another thread waits for the broker's event loop. The work
# itself takes milliseconds.
CALL_TIMEOUT: Final = 30.0
NO_GROUP_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
_ALL_ADDRESSES: Final = ("", "0.0.0.0", "::")


# Rules of arguments.
_SSL_CONTEXT: Final = Rule(has_attributes("wrap_bio"), "an ssl.SSLContext")


class Server:
    """An embedded broker that listens on `host` and `port` (0: any free port).

    * `topics`: the topics to create. A key is a name, and a value is a number of partitions.

    * `settings`: values of Kafka's broker configs, such as {"group.initial.rebalance.delay.ms": 0}.
      `kproto.broker.settings` lists the configs and their defaults.

    * `advertised_host`: the host in the broker's Metadata. The default is the listener's host, or the name of
      this computer if the listener accepts connections on all addresses ("0.0.0.0" or "::").

    * The config "advertised.listeners" replaces `advertised_host`, and contains complete addresses such as
      "PLAINTEXT://kafka:9092".

    * `highest`: the highest version of some APIs, to imitate an older Kafka. With {"Fetch": 11} the broker
      serves Fetch up to v11. With {"OffsetDelete": -1} it does not serve OffsetDelete.

    * `listen`: several listeners, in place of `host` and `port`. An example is ["PLAINTEXT://127.0.0.1:0",
      "SASL_SSL://127.0.0.1:0"].

    * `users`: user name -> password, for SASL.

    * `tokens`: the function that checks OAUTHBEARER tokens. By default, tokens are checked with the keys of
      sasl.oauthbearer.jwks.endpoint.url.

    * `tls`: the SSL context of listeners with SSL in their protocol.

    * `telemetry`: whether clients may push their metrics to the broker (KIP-714). The property `telemetry`
      returns the metrics.

    Raises ConfigError for an argument that is not allowed.

    Use the server in `async with`, or call `start` and `stop`. A stopped server can be started again, and
    keeps its records, offsets and groups.
    """

    @checked(
        topics=NAMES_TO_NUMBERS,
        settings=NAMES_TO_SETTINGS,
        host=TEXT,
        port=PORT,
        advertised_host=TEXT,
        highest=NAMES_TO_NUMBERS,
        listen=TEXTS,
        users=secret(NAMES_TO_TEXTS),
        tls=_SSL_CONTEXT,
        telemetry=BOOLEAN,
    )
    def __init__(
        self,
        topics: Mapping[str, int] | None = None,
        settings: Mapping[str, str | int] | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        advertised_host: str | None = None,
        highest: Mapping[str, int] | None = None,
        listen: Sequence[str] = (),
        users: Mapping[str, str] | None = None,
        tokens: Check | None = None,
        tls: ssl.SSLContext | None = None,
        telemetry: bool = False,
    ) -> None:
        self._apis = served_versions(highest, telemetry=telemetry)
        self._topics = dict(topics or {})
        settings = dict(settings or {})
        advertised_listeners = str(settings.pop("advertised.listeners", ""))
        self._settings = Settings.from_properties(settings)
        self._clock = Clock()
        self._listeners = [Listener.parse(text) for text in listen] or [Listener("PLAINTEXT", host, port)]
        self._ports = [listener.port for listener in self._listeners]
        self._tls = tls
        self._check_listeners()
        self._advertised_listeners = self._parse_advertised_listeners(advertised_listeners)
        self._advertised_hosts = [
            advertised_host or advertised(listener.host) for listener in self._listeners
        ]
        self._users = Users(users, secrets.token_bytes(32), tokens or self._load_token_check())
        self._broker: Broker | None = None
        self._shell: Shell | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # The protocol of a listener -> its advertised host and port. `Node` reads this mapping, so changes
        # take effect immediately.
        self._advertised_addresses: dict[str, tuple[str, int]] = {}
        self._acceptors: list[Acceptor] = []
        self._observers: list[Observer] = []

    @property
    def bootstrap(self) -> str:
        """The value of bootstrap.servers: HOST:PORT. Raises IllegalState before the first start."""
        if self._broker is None:
            raise IllegalState("the broker has no address yet; start it first")
        return address_text(self._advertised_hosts[0], self._ports[0])

    @property
    def places(self) -> dict[str, str]:
        """Maps each listener's protocol to its HOST:PORT. The first address is `bootstrap`."""
        if self._broker is None:
            raise IllegalState("the broker has no address yet; start it first")
        addresses = zip(self._listeners, self._advertised_hosts, self._ports, strict=True)
        return {listener.protocol: address_text(host, port) for listener, host, port in addresses}

    @property
    def users(self) -> Users:
        """The users of the broker; `set` and `remove` change them while clients are connected."""
        return self._users

    @property
    def telemetry(self) -> list[PushedMetrics]:
        """The metrics that clients pushed, the oldest first; bounded in number and size.

        Clients push metrics only if a client metrics resource requests them. `kproto configs alter
        client-metrics NAME --set "metrics=*"` and `Admin.incremental_alter_configs` create such a resource.
        """
        return self.broker.client_metrics.pushes

    def _load_token_check(self) -> Check | None:
        """Read the keys at the JWKS URL and return a function that checks tokens with them.

        The result is None if no URL is set. Raises ConfigError if the keys cannot be read.
        """
        url = self._settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            return None
        try:
            jwks = _read_jwks(url)
            return self._settings.signed_tokens(jwks, self._clock.wall_clock)
        except (OSError, ValueError) as error:
            # A ConfigError explains itself in `allowed`, and HttpFailed and UnicodeError in `reason`.
            reason = getattr(error, "allowed", getattr(error, "reason", error))
            allowed = f"allowed: file:, http: or https: with the keys of an issuer (JWKS); {reason}"
            address = shown(url) if "@" in url else url
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url", address, allowed) from None

    def _check_listeners(self) -> None:
        """Raise ConfigError if the listeners, `tls` and ssl.client.auth are incompatible."""
        protocols = [listener.protocol for listener in self._listeners]
        if len(set(protocols)) < len(protocols):
            raise ConfigError("listen", ", ".join(protocols), "allowed: each protocol once")
        if self._tls is None and any(listener.tls for listener in self._listeners):
            allowed = "pass an ssl.SSLContext as tls; kproto.testing.certificates creates one for tests"
            raise ConfigError("listen", ", ".join(protocols), allowed)
        if self._tls is not None and self._tls.protocol.name == "PROTOCOL_TLS_CLIENT":
            raise ConfigError("tls", self._tls, "allowed: a context for servers; this one is for clients")
        client_auth = self._settings.ssl_client_auth
        verify_mode = SSL_CLIENT_AUTH[client_auth]
        if self._tls is not None and client_auth != "none" and self._tls.verify_mode.name != verify_mode:
            allowed = f"allowed: the client authentication of `tls`; set its verify_mode to ssl.{verify_mode}"
            raise ConfigError("ssl.client.auth", client_auth, allowed)

    def _parse_advertised_listeners(self, text: str) -> dict[str, tuple[str, int]]:
        """Return the advertised address of each protocol that advertised.listeners names.

        An address without a protocol belongs to the first listener. Raises ConfigError for an invalid `text`.
        """
        name, protocols = "advertised.listeners", [listener.protocol for listener in self._listeners]
        addresses: dict[str, tuple[str, int]] = {}
        for part in text.split(",") if text else ():
            try:
                listener = Listener.parse(part.strip())
            except ConfigError as error:
                raise ConfigError(name, text, error.allowed) from None
            protocol = listener.protocol if "://" in part else protocols[0]
            if not listener.port or not listener.host or listener.host in _ALL_ADDRESSES:
                raise ConfigError(name, text, "allowed: a host and a port that clients can connect to")
            if protocol not in protocols or protocol in addresses:
                raise ConfigError(name, text, f"allowed: one address for each of {', '.join(protocols)}")
            addresses[protocol] = listener.host, listener.port
        return addresses

    def __repr__(self) -> str:
        if self._broker is None:
            return "<Server: not started>"
        return f"<Server at {self.bootstrap}{'' if self._acceptors else ', stopped'}>"

    @property
    def broker(self) -> Broker:
        """The state of the running broker, for inspection by tests.

        Change the state only through the methods of this class.
        """
        if self._broker is None:
            raise IllegalState("the broker has not been started yet; start it first")
        return self._broker

    async def start(self) -> None:
        """Start listening.

        Raises OSError if an address is in use, and ConfigError if a topic cannot be created.
        """
        if self._acceptors:
            raise IllegalState("the broker is already running; stop it first")
        with contextlib.ExitStack() as stack:
            listening: list[socket.socket] = []
            for listener, port in zip(self._listeners, self._ports, strict=True):
                sock = listening_socket(listener.host, port)
                stack.callback(sock.close)
                listening.append(sock)
            self._ports = [sock.getsockname()[1] for sock in listening]
            if self._broker is None:
                self._broker = self._create_broker()
            else:
                self._broker.fetch_sessions.close_all()
                self._reload_groups(self._broker)
            loop = self._loop = asyncio.get_running_loop()
            shell = Shell(self._broker, loop, self._clock, self._observers)
            stack.pop_all()  # From here on, the acceptors close the sockets.
        acceptors = zip(self._listeners, listening, strict=True)
        self._acceptors = [self._create_acceptor(shell, listener, sock) for listener, sock in acceptors]
        self._shell = shell
        shell.set_timer()

    def _create_broker(self) -> Broker:
        """Return a new broker with the configured topics. The ports of the listeners must be known.

        Raises ConfigError if a topic cannot be created.
        """
        addresses = zip(self._listeners, self._advertised_hosts, self._ports, strict=True)
        self._advertised_addresses |= {listener.protocol: (host, port) for listener, host, port in addresses}
        self._advertised_addresses |= self._advertised_listeners
        first_host, first_port = self._advertised_addresses[self._listeners[0].protocol]
        rack = self._settings.broker_rack or None
        node = Node(self._settings.node_id, first_host, first_port, self._advertised_addresses, rack)
        cluster_id = kafka_uuid(uuid.uuid4())
        broker = Broker(self._settings, node, self._apis, cluster_id=cluster_id, users=self._users)
        for name, partitions in self._topics.items():
            step(broker, CreateTopic(name, partitions, uuid.uuid4()), self._clock.now())
        return broker

    def _reload_groups(self, broker: Broker) -> None:
        """Load the groups as a restarted coordinator does, and restart all session timeouts (R175)."""
        node_id = self._settings.node_id
        for group_id in broker.coordinator.group_ids():
            if broker.cluster.group_coordinator_of(group_id) == node_id:
                step(broker, MoveCoordinator(group_id, node_id), self._clock.now())

    def _create_acceptor(self, shell: Shell, listener: Listener, sock: socket.socket) -> Acceptor:
        tls = self._tls if listener.tls else None
        return Acceptor(
            sock, lambda: SocketConnection(shell, listener.protocol, None if tls is None else ServerTls(tls))
        )

    async def stop(self) -> None:
        """Stop listening, abort every connection, and wait until all are closed."""
        if not self._acceptors or self._shell is None:
            return
        acceptors, shell, self._acceptors, self._shell = self._acceptors, self._shell, [], None
        try:
            await close_acceptors(acceptors)
        finally:
            await shell.close()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # Operator methods follow: they are for a test or a program that runs the broker, and may be called from
    # any thread.

    @checked(name=TEXT, partitions=WHOLE_NUMBER, configs=NAMES_TO_TEXTS)
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic.

        Raises ConfigError if the topic exists, or its name, partition count or a config is not allowed.
        """
        topic_configs = dict(configs or {})
        for config, value in topic_configs.items():
            if (fault := check_topic_config(config, value)) is not None:
                raise ConfigError(config, value, fault)
        # Each config is valid by itself. The only invalid combination is a minimum compaction lag above the
        # maximum.
        if (fault := check_topic_configs(topic_configs)) is not None:
            raise ConfigError("min.compaction.lag.ms", topic_configs.get("min.compaction.lag.ms"), fault)
        self._run_in_loop(
            lambda shell: shell.step(CreateTopic(name, partitions, uuid.uuid4(), topic_configs))
        )

    @checked(name=TEXT, partitions=WHOLE_NUMBER)
    def grow_topic(self, name: str, partitions: int) -> None:
        """Increase the partition count of a topic to `partitions`.

        Raises ConfigError if the topic does not exist, if it has more than `partitions` partitions, or if
        `partitions` is above 100,000.
        """
        self._run_in_loop(lambda shell: shell.step(GrowTopic(name, partitions)))

    @checked(topic=TEXT, partition=WHOLE_NUMBER)
    def elect_leader(self, topic: str, partition: int) -> None:
        """Start a new leader epoch of a partition, as after an election."""
        self._run_in_loop(lambda shell: shell.step(ElectLeader(topic, partition)))

    @checked(topic=TEXT, partition=WHOLE_NUMBER, offset=WHOLE_NUMBER)
    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Remove a partition's records from `offset` on, as an unclean leader election does.

        The batch that contains `offset` is removed as a whole, so the log may end before `offset`. Raises
        ConfigError if the log does not contain `offset`.
        """
        self._run_in_loop(lambda shell: shell.step(TruncateLog(topic, partition, offset)))

    def clean_logs(self) -> None:
        """Run retention and compaction on all logs now.

        Unlike periodic compaction, this call also compacts active segments, and logs that reach neither
        min.cleanable.dirty.ratio nor max.compaction.lag.ms. Even without this call, the broker runs retention
        every log.retention.check.interval.ms, and compaction every log.cleaner.backoff.ms, as Kafka does.
        """
        self._run_in_loop(lambda shell: shell.step(CleanLogs()))

    @checked(api=TEXT, times=ZERO_OR_MORE)
    def fail(self, api: str, code: ErrorCode | str, times: int = 1) -> None:
        """Make the next requests of an API fail: `server.fail("Fetch", "NOT_LEADER_OR_FOLLOWER")`.

        The requests are not executed. Their responses have the error `code` for each partition, group or
        topic.

        A later call for the same API replaces an earlier call. With `times` 0, the API no longer fails.

        Raises ConfigError if this API cannot be made to fail, or if Kafka does not have the error.
        """
        if api not in FAILING:
            raise ConfigError("api", api, f"allowed: {', '.join(sorted(FAILING))}")
        error = _checked_error(code)
        self._run_in_loop(lambda shell: shell.step(FailRequests(FAILING[api], error, times)))

    @checked(seconds=NUMBER)
    def slow(self, seconds: float) -> None:
        """Delay every response by `seconds` seconds; with 0, send the delayed responses and stop delaying.

        With `math.inf` the broker executes requests but sends no responses.
        """
        try:
            delay = float(seconds)
        except OverflowError:
            delay = math.inf
        if not delay >= 0:
            raise ConfigError("seconds", seconds, "allowed: at least 0")
        self._run_in_loop(lambda shell: shell.delay_responses(delay))

    @checked(api=TEXT, seconds=NUMBER)
    def throttle(self, api: str, seconds: float) -> None:
        """Throttle the clients of an API (KIP-219): `server.throttle("Fetch", 2.0)`.

        Every response is sent immediately, with `seconds` as its throttle time. During this time, the broker
        does not read from the connection. A throttled Fetch returns no records.

        With `seconds` 0, throttling ends.

        Raises ConfigError for an API whose responses have no throttle time.
        """
        throttled_apis = {
            API_NAMES[key]: key
            for key in APIS
            if any(field.name == "throttle_time_ms" for field in response_class(key).__fields__)
        }
        if api not in throttled_apis:
            raise ConfigError("api", api, f"allowed: {', '.join(sorted(throttled_apis))}")
        if not 0 <= seconds <= MAX_THROTTLE_SECONDS:
            raise ConfigError("seconds", seconds, f"allowed: 0 to {MAX_THROTTLE_SECONDS}")
        event = ThrottleClients(throttled_apis[api], round(seconds * 1000))
        self._run_in_loop(lambda shell: shell.step(event))

    @checked(place=TEXT)
    def advertise(self, place: str) -> None:
        """Advertise another HOST:PORT for the first listener, such as the address of a proxy.

        The call changes the broker config advertised.listeners, but not `bootstrap`.
        """
        listener = Listener.parse(place)
        if not listener.port:
            raise ConfigError("place", place, "allowed: a port from 1 to 65535")
        protocol = self._listeners[0].protocol
        if "://" in place and listener.protocol != protocol:
            allowed = f"allowed: HOST:PORT, or {protocol}://HOST:PORT with the first listener's protocol"
            raise ConfigError("place", place, allowed)
        address = listener.host, listener.port
        self._run_in_loop(lambda _: self._advertised_addresses.update({protocol: address}))

    def down(self) -> None:
        """Stop the broker from another thread: the blocking form of `stop`."""
        self._run_coroutine_in_loop(self.stop)

    def up(self) -> None:
        """Start the broker again after `down`, on its port, with its records and groups.

        A delay that `slow` set does not apply to the restarted broker. Raises OSError if another process uses
        the port.
        """
        self._run_coroutine_in_loop(self.start)

    def drop_connections(self) -> None:
        """Abort every connection, as a crash would; clients can reconnect immediately."""
        self._run_in_loop(Shell.abort_connections)

    @checked(observer=FUNCTION)
    def observe(self, observer: Observer) -> None:
        """Call `observer(event, actions, now)` after each step of a coordinator.

        `kproto.group.protocol` declares the events and actions of the group coordinator, and
        `kproto.transactions` declares the events and actions of the transaction coordinator.
        """
        self._observers.append(observer)

    def _run_coroutine_in_loop(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a coroutine in the broker's event loop, and wait for it. The caller runs in another thread."""
        if self._loop is None:
            raise IllegalState("the broker has not been started yet; start it first")
        if self._loop.is_closed():
            raise IllegalState(
                "the broker's event loop was closed at the end of its `with` block; start a new broker"
            )
        if self._is_in_loop():
            raise IllegalState("the caller runs in the broker's event loop; await stop() or start() instead")
        asyncio.run_coroutine_threadsafe(work(), self._loop).result(CALL_TIMEOUT)

    def _run_in_loop(self, work: Callable[[Shell], None]) -> None:
        """Run `work` in the broker's event loop, and wait until it has ended. Any thread may call this."""
        shell = self._shell
        if shell is None:
            raise IllegalState("the broker is not running; start it first")
        if self._is_in_loop():
            work(shell)
            return

        async def run() -> None:
            work(shell)

        asyncio.run_coroutine_threadsafe(run(), shell.loop).result(CALL_TIMEOUT)

    def _is_in_loop(self) -> bool:
        """Return whether the caller runs in the broker's event loop."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


@contextlib.contextmanager
@checked(
    topics=NAMES_TO_NUMBERS,
    settings=NAMES_TO_SETTINGS,
    host=TEXT,
    port=PORT,
    highest=NAMES_TO_NUMBERS,
    listen=TEXTS,
    users=secret(NAMES_TO_TEXTS),
    tls=_SSL_CONTEXT,
    telemetry=BOOLEAN,
)
def running(
    topics: Mapping[str, int] | None = None,
    settings: Mapping[str, str | int] | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    highest: Mapping[str, int] | None = None,
    listen: Sequence[str] = (),
    users: Mapping[str, str] | None = None,
    tokens: Check | None = None,
    tls: ssl.SSLContext | None = None,
    telemetry: bool = False,
) -> Generator[Server]:
    """Run a server in its own thread and event loop, for blocking code.

    The server stops at the end of the `with` block. Takes the arguments of `Server`, except
    `advertised_host`.

    The default of group.initial.rebalance.delay.ms is 0 here, so that a new group does not wait for more
    members. In `Server`, as in Kafka, the default is three seconds.

    Raises the errors of `Server`, and ConfigError if an address is in use.
    """
    server = Server(
        topics,
        {**NO_GROUP_DELAY, **(settings or {})},
        host,
        port,
        highest=highest,
        listen=listen,
        users=users,
        tokens=tokens,
        tls=tls,
        telemetry=telemetry,
    )
    # Done when the server has started or failed to start. The result is a function that stops the server.
    startup: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()

    async def serve() -> None:
        stop_requested = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with server:
                startup.set_result(lambda: loop.call_soon_threadsafe(stop_requested.set))
                await stop_requested.wait()
        except BaseException as error:
            if startup.done():
                raise
            startup.set_exception(error)

    def stop_server(done: concurrent.futures.Future[Callable[[], object]]) -> None:
        if done.exception() is None:
            request_stop = done.result()
            request_stop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="kproto broker", daemon=True)
    thread.start()
    try:
        try:
            startup.result()
        except OSError as error:
            addresses = ", ".join(listen) or address_text(host, port)
            raise ConfigError("listen", addresses, allowed_addresses(error)) from None
        yield server
    finally:
        # If KeyboardInterrupt arrives before the server has started, this callback stops the server after its
        # start.
        startup.add_done_callback(stop_server)
        thread.join()


def _checked_error(code: object) -> ErrorCode:
    """Return `code`, which is an `ErrorCode` or the name of one, as an `ErrorCode`.

    Raises ConfigError for NONE, and if `code` is neither an `ErrorCode` nor the name of one.
    """
    error = ErrorCode.__members__.get(code.upper()) if isinstance(code, str) else code
    if isinstance(error, ErrorCode) and error is not ErrorCode.NONE:
        return error
    if error is ErrorCode.NONE:
        hint = "; times=0 ends the failures"
    else:
        names = [known.name for known in ErrorCode if known is not ErrorCode.NONE]
        matches = get_close_matches(str(code).upper(), names, n=1)
        hint = f"; did you mean {matches[0]}?" if matches else ""
    raise ConfigError("code", code, f"allowed: a Kafka error, such as NOT_LEADER_OR_FOLLOWER{hint}")


def _read_jwks(url: str) -> str:
    """Return the JSON Web Key Set (JWKS) at a `file:` or HTTP URL, as text.

    Raises OSError if the key set cannot be read, and MissingExtra for an HTTP URL if urllib3 is missing.
    """
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    if urlsplit(url).scheme == "file":
        return Path(url2pathname(urlsplit(url).path)).read_text()
    feature = "sasl.oauthbearer.jwks.endpoint.url"
    response = request("GET", url, feature=feature, headers={"Accept": "application/json"}, redirects=5)
    if response.status != 200:
        raise OSError(f"{response.url} responded with HTTP {response.status}")
    return response.body.decode()


def advertised(host: str) -> str:
    """Return `host`, or the host name of this computer if `host` means all addresses.

    The result is localhost if the host name cannot be resolved.
    """
    if host not in _ALL_ADDRESSES:
        return host
    name = socket.gethostname()
    try:
        socket.getaddrinfo(name, None)
    except OSError:
        return "localhost"
    return name
