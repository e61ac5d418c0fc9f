"""The embedded broker on a socket: the only I/O of this package, around `machine.step`.

    async with Server(topics={"flights": 3}) as server:       # in a running event loop
        ... server.bootstrap ...

    with running(topics={"flights": 3}) as server:            # in a thread of its own
        ... server.bootstrap ...

Rules:
  * Bytes in, bytes out, one clock and one timer: everything else is decided by `machine.step`.
  * Nothing is buffered without bounds. A frame is at most `socket.request.max.bytes`; a connection with many
    waiting requests, or whose answers nobody reads, is not read from until that changes.
  * A connection that sends garbage is closed with a logged reason; all others go on.
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
from typing import TYPE_CHECKING, Any, Final

from ..error_codes import ErrorCode
from ..errors import ConfigError, IllegalState
from ..messages.index import API_NAMES, response_class
from ..validation import checked
from .apis.table import APIS, REFUSABLE, served
from .broker import Broker
from .call import Node
from .connection import Client
from .machine import (
    CleanLogs,
    CreateTopic,
    ElectLeader,
    Fail,
    GrowTopic,
    MoveCoordinator,
    Throttle,
    Truncate,
    step,
)
from .security.listeners import Listener, not_listening
from .security.tls import Pipe
from .security.users import Users
from .settings import Settings
from .shell import Clock, Observer, Shell, stop_listening
from .topic_configs import check_topic_config, check_topic_configs

if TYPE_CHECKING:
    import ssl

    from ..security.oauthbearer import Check

FAILING: Final = {API_NAMES[key]: key for key in sorted(REFUSABLE)}
"""What `Server.fail` may be told: name -> key."""
LONGEST_QUIET: Final = 2_000_000  # seconds; in ms it has to fit into 31 bits
# How long a call from another thread waits for the broker's loop, in seconds; it does milliseconds of work.
CALL_TIMEOUT: Final = 30.0
# How many connections may wait to be accepted: one above that tries again a second later. Kafka's
# socket.listen.backlog.size is 50, but it has a thread that does nothing else.
BACKLOG: Final = 1024
NO_GROUP_DELAY: Final = {"group.initial.rebalance.delay.ms": "0"}
# Seconds and bytes that the keys of OAUTHBEARER may take.
JWKS_TIMEOUT: Final = 10.0
MAX_JWKS: Final = 1 << 20
_EVERYWHERE: Final = ("", "0.0.0.0", "::")


class Server:
    """An embedded broker that listens on `host` and `port` (0: any free one).

    `topics` maps names to partition counts; `settings` are under Kafka's own names, such as
    "group.initial.rebalance.delay.ms", with Kafka's own defaults.
    Clients are told `advertised_host`, or a listener's own host, unless that means every address of the
    machine.
    `highest` makes it seem an older Kafka: {"Fetch": 11} serves Fetch up to
    version 11.

    With `listen` it has other listeners than host and port: ["PLAINTEXT://127.0.0.1:0",
    "SASL_SSL://127.0.0.1:0"]; `users` are those whom SASL lets in, with their passwords, `tokens` looks at
    tokens of OAUTHBEARER (if not given: by the setting sasl.oauthbearer.jwks.endpoint.url), `tls` is what
    listeners with SSL in their name speak.

    Raises ConfigError at once for settings that are not allowed. Next: `async with`, or `start` and `stop`;
    a server that was stopped can be started again, and still has its records, offsets and groups.
    """

    @checked
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
    ) -> None:
        self._apis = served(highest)  # what is wrong there is refused here, not at the start
        self._topics = dict(topics or {})
        self._settings = Settings.from_properties(settings or {})
        self._clock = Clock()
        self._listeners = [Listener.read(text) for text in listen] or [Listener("PLAINTEXT", host, port)]
        self._ports = [listener.port for listener in self._listeners]
        self._tls = tls
        self._check_listeners()
        self._hosts = [advertised_host or advertised(listener.host) for listener in self._listeners]
        self._users = Users(users, secrets.token_bytes(32), tokens or self._signed_tokens())
        self._broker: Broker | None = None
        self._shell: Shell | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # Where clients are told to come, by the listener that they came by.
        self._told: dict[str, tuple[str, int]] = {}
        self._servers: list[asyncio.Server] = []
        self._observers: list[Observer] = []

    @property
    def bootstrap(self) -> str:
        """What clients call bootstrap.servers: HOST:PORT. Raises IllegalState before the first start."""
        if self._broker is None:
            raise IllegalState("the broker has no address before it was started")
        return _place(self._hosts[0], self._ports[0])

    @property
    def places(self) -> dict[str, str]:
        """HOST:PORT of each listener, by its protocol; `bootstrap` is the first of them."""
        if self._broker is None:
            raise IllegalState("the broker has no address before it was started")
        told = zip(self._listeners, self._hosts, self._ports, strict=True)
        return {listener.protocol: _place(host, port) for listener, host, port in told}

    @property
    def users(self) -> Users:
        """Whom the broker knows; `set` and `remove` change it while clients are connected."""
        return self._users

    def _signed_tokens(self) -> Check | None:
        """By the keys that a setting names; None where it names none."""
        url = self._settings.sasl_oauthbearer_jwks_endpoint_url
        if not url:
            return None
        import urllib.request

        try:
            with urllib.request.urlopen(url, timeout=JWKS_TIMEOUT) as answer:
                text = answer.read(MAX_JWKS).decode()
            return self._settings.signed_tokens(text, self._clock.wall_clock)
        except (OSError, ValueError) as error:
            why = getattr(error, "allowed", getattr(error, "reason", error))
            allowed = f"file:, http: or https: with an issuer's keys (JWKS): {why}"
            raise ConfigError("sasl.oauthbearer.jwks.endpoint.url", url, allowed) from None

    def _check_listeners(self) -> None:
        protocols = [listener.protocol for listener in self._listeners]
        if len(set(protocols)) < len(protocols):
            raise ConfigError("listen", ", ".join(protocols), "each protocol once")
        if self._tls is None and any(listener.tls for listener in self._listeners):
            allowed = "with an ssl.SSLContext in tls; kproto.testing.certificates makes one for tests"
            raise ConfigError("listen", ", ".join(protocols), allowed)
        if self._tls is not None and self._tls.protocol.name == "PROTOCOL_TLS_CLIENT":
            raise ConfigError("tls", self._tls, "one for servers: this context is a client's (SERVER_AUTH)")

    def __repr__(self) -> str:
        if self._broker is None:
            return "<Server: not started>"
        return f"<Server at {self.bootstrap}{'' if self._servers else ', stopped'}>"

    @property
    def broker(self) -> Broker:
        """The machine behind the socket, to look at; change it only through the methods here."""
        if self._broker is None:
            raise IllegalState("the broker was not started yet")
        return self._broker

    async def start(self) -> None:
        """Listen. Raises OSError when the address is taken, ConfigError when a topic can't be made."""
        if self._servers:
            raise IllegalState("the broker is running already")
        async with contextlib.AsyncExitStack() as stack:
            listening: list[socket.socket] = []
            for listener, port in zip(self._listeners, self._ports, strict=True):
                sock = socket.create_server(
                    (listener.host, port), family=_family(listener.host), backlog=BACKLOG
                )
                stack.callback(sock.close)
                listening.append(sock)
            self._ports = [sock.getsockname()[1] for sock in listening]
            if self._broker is None:
                hosts = zip(self._listeners, self._hosts, self._ports, strict=True)
                self._told |= {listener.protocol: (host, port) for listener, host, port in hosts}
                node = Node(self._settings.node_id, self._hosts[0], self._ports[0], self._told)
                cluster_id = _text_id(uuid.uuid4())
                broker = Broker(self._settings, node, self._apis, cluster_id=cluster_id, users=self._users)
                for name, partitions in self._topics.items():
                    step(broker, CreateTopic(name, partitions, uuid.uuid4()), self._clock.now())
                self._broker = broker
            else:
                self._broker.fetch_sessions.close_all()
                self._load_groups(self._broker)
            loop = self._loop = asyncio.get_running_loop()
            shell = Shell(self._broker, loop, self._clock, self._observers)
            stack.push_async_callback(shell.close)
            servers: list[asyncio.Server] = []
            stack.push_async_callback(stop_listening, servers)
            for listener, sock in zip(self._listeners, listening, strict=True):
                servers.append(await self._serve(loop, shell, listener, sock))
            for server in servers:
                await server.start_serving()
            stack.pop_all()
        self._servers, self._shell = servers, shell
        shell.set_timer()

    def _load_groups(self, broker: Broker) -> None:
        """As a coordinator does that comes back: its members' sessions begin anew (R175)."""
        node = self._settings.node_id
        for group in broker.coordinator.group_ids():
            if broker.cluster.group_coordinator_of(group) == node:
                step(broker, MoveCoordinator(group, node), self._clock.now())

    async def _serve(
        self, loop: asyncio.AbstractEventLoop, shell: Shell, listener: Listener, sock: socket.socket
    ) -> asyncio.Server:
        tls = self._tls if listener.tls else None
        return await loop.create_server(
            lambda: Client(shell, listener.protocol, None if tls is None else Pipe(tls)),
            sock=sock,
            backlog=BACKLOG,
            start_serving=False,  # with it, who is cancelled there has no server to close
        )

    async def stop(self) -> None:
        """Close the listener and every connection, and wait until they are closed."""
        if not self._servers or self._shell is None:
            return
        servers, shell, self._servers, self._shell = self._servers, self._shell, [], None
        try:
            await stop_listening(servers)
        finally:
            await shell.close()
        for server in servers:
            await server.wait_closed()

    async def __aenter__(self) -> Server:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # The operator's calls; from any thread.

    @checked
    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic. Raises ConfigError when it can't be made."""
        for config, value in (configs or {}).items():
            why = check_topic_config(config, value)
            if why is not None:
                raise ConfigError(config, value, why)
        if (why := check_topic_configs(configs or {})) is not None:
            raise ConfigError("min.compaction.lag.ms", (configs or {}).get("min.compaction.lag.ms"), why)
        self._operate(
            lambda shell: shell.step(CreateTopic(name, partitions, uuid.uuid4(), dict(configs or {})))
        )

    @checked
    def grow_topic(self, name: str, partitions: int) -> None:
        """Let a topic have `partitions` in all. Raises ConfigError when that is fewer than it has."""
        self._operate(lambda shell: shell.step(GrowTopic(name, partitions)))

    @checked
    def elect_leader(self, topic: str, partition: int) -> None:
        """Begin a new leader epoch, as after an election."""
        self._operate(lambda shell: shell.step(ElectLeader(topic, partition)))

    @checked
    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Lose a partition's records from `offset` on, and begin a new leader epoch: an unclean election.

        A batch is lost whole, so the log may end before `offset`. Raises ConfigError for an offset that the
        log doesn't have.
        """
        self._operate(lambda shell: shell.step(Truncate(topic, partition, offset)))

    @checked
    def clean_logs(self) -> None:
        """Delete what is older or more than topics' configs keep, and compact what is to be compacted, now.

        The broker does it by itself, as Kafka: every log.retention.check.interval.ms and
        log.cleaner.backoff.ms, when enough of a log is dirty, and never in the segment that is written to.
        Here that is closed before, whatever min.cleanable.dirty.ratio says.
        """
        self._operate(lambda shell: shell.step(CleanLogs()))

    @checked
    def fail(self, api: str, code: ErrorCode | str, times: int = 1) -> None:
        """Let the next `times` requests of an API fail: `server.fail("Produce", "NOT_ENOUGH_REPLICAS", 3)`.

        Nothing of them is done, and `code` is what they hear, for each partition, group or topic that they
        ask for. A later call for the same API takes the place of an earlier one; `times` 0 ends it. Raises
        ConfigError for an API that can't fail or an error that Kafka doesn't have.
        """
        given: object = code
        named = ErrorCode.__members__.get(given.upper()) if isinstance(given, str) else given
        if api not in FAILING:
            raise ConfigError("api", api, f"allowed: {', '.join(sorted(FAILING))}")
        if not isinstance(named, ErrorCode) or named is ErrorCode.NONE:
            errors = [one.name for one in ErrorCode if one is not ErrorCode.NONE]
            near = get_close_matches(str(code).upper(), errors, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            if named is ErrorCode.NONE:
                hint = "; with times=0 nothing fails any more"
            raise ConfigError("code", code, f"an error of Kafka's, as NOT_LEADER_OR_FOLLOWER{hint}")
        self._operate(lambda shell: shell.step(Fail(FAILING[api], named, times)))

    @checked
    def slow(self, seconds: float) -> None:
        """Let each answer take so much longer; 0 ends that, also for answers that are held. With `math.inf`
        the broker is silent: it takes requests and does what they ask, and says nothing.
        """
        try:
            lag = float(seconds)
        except OverflowError:
            lag = math.inf
        if not lag >= 0:
            raise ConfigError("seconds", seconds, "0 or more")
        self._operate(lambda shell: shell.slow(lag))

    @checked
    def throttle(self, api: str, seconds: float) -> None:
        """Let the clients of an API be above a quota (KIP-219): `server.throttle("Fetch", 2.0)`.

        Each of its answers comes at once and asks for so much quiet, and until then the broker reads nothing
        from that connection; a Fetch brings nothing. 0 ends it for the answers to come. Raises ConfigError
        for an API whose answers can't ask for that.
        """
        throttled = {
            API_NAMES[key]: key
            for key in APIS
            if any(one.name == "throttle_time_ms" for one in response_class(key).__fields__)
        }
        if api not in throttled:
            raise ConfigError("api", api, f"allowed: {', '.join(sorted(throttled))}")
        if not 0 <= seconds <= LONGEST_QUIET:
            raise ConfigError("seconds", seconds, f"from 0 to {LONGEST_QUIET}")
        self._operate(lambda shell: shell.step(Throttle(throttled[api], round(seconds * 1000))))

    @checked
    def advertise(self, place: str) -> None:
        """Tell clients another HOST:PORT from now on, such as a proxy's in front of this broker (Kafka's
        advertised.listeners). It is that of the first listener; `bootstrap` stays what it is.
        """
        listener = Listener.read(place)
        if not listener.port:
            raise ConfigError("place", place, "the port where somebody listens; 0 is none")
        own = self._listeners[0].protocol
        if "://" in place and listener.protocol != own:
            raise ConfigError("place", place, f"HOST:PORT, or {own}:// as the first listener has it")
        told = listener.host, listener.port
        self._operate(lambda _: self._told.update({self._listeners[0].protocol: told}))

    def down(self) -> None:
        """Stop, from another thread than the broker's: `stop` for code that blocks."""
        self._wait(self.stop)

    def up(self) -> None:
        """Start again where it was, with its records, offsets and groups, after `down`. Answers are not slow
        any more. Raises OSError when somebody else has the port now.
        """
        self._wait(self.start)

    def drop_connections(self) -> None:
        """Break every connection there is, as a dying broker would; clients may come back at once."""
        self._operate(Shell.drop)

    @checked
    def observe(self, observer: Observer) -> None:
        """Call `observer(event, actions, now)` in the broker's thread after each step of a coordinator.

        That of groups has the events and actions of `kproto.group.classic.coordinator`, that of transactions
        those of `kproto.transactions`.
        """
        self._observers.append(observer)

    def _wait(self, what: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let the broker's thread do what takes its time, and wait for it."""
        if self._loop is None:
            raise IllegalState("the broker was not started yet")
        if self._loop.is_closed():
            raise IllegalState("the broker's thread has ended, with its block")
        if self._is_here():
            raise IllegalState("this is the broker's own event loop: await stop() and start()")
        asyncio.run_coroutine_threadsafe(what(), self._loop).result(CALL_TIMEOUT)

    def _operate(self, work: Callable[[Shell], None]) -> None:
        """Let the broker's thread do `work`, and wait for it."""
        shell = self._shell
        if shell is None:
            raise IllegalState("the broker is not running")
        if self._is_here():
            work(shell)
            return

        async def there() -> None:
            work(shell)

        asyncio.run_coroutine_threadsafe(there(), shell.loop).result(CALL_TIMEOUT)

    def _is_here(self) -> bool:
        """Is this the broker's own event loop?"""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False


@contextlib.contextmanager
@checked
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
) -> Generator[Server]:
    """A server in a thread and event loop of its own, for code that blocks; it stops with the block.

    The arguments are those of `Server`, but for one default: a new group does not wait the three seconds of
    group.initial.rebalance.delay.ms for more members, unless `settings` says so. Raises ConfigError also for
    an address that is taken.
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
    )
    started: concurrent.futures.Future[Callable[[], object]] = concurrent.futures.Future()

    async def serve() -> None:
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        try:
            async with server:
                started.set_result(lambda: loop.call_soon_threadsafe(ended.set))
                await ended.wait()
        except BaseException as error:
            if started.done():
                raise
            started.set_exception(error)

    def end(begun: concurrent.futures.Future[Callable[[], object]]) -> None:
        if begun.exception() is None:
            begun.result()()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="kproto broker", daemon=True)
    thread.start()
    try:
        try:
            started.result()
        except OSError as error:
            where = ", ".join(listen) or f"{host}:{port}"
            raise ConfigError("listen", where, not_listening(error)) from None
        yield server
    finally:
        started.add_done_callback(end)  # also where Ctrl-C came before it has started
        thread.join()


def advertised(host: str) -> str:
    """What clients are told where to go, of a broker that listens on `host`: this machine's name for all."""
    return socket.gethostname() if host in _EVERYWHERE else host


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _text_id(value: uuid.UUID) -> str:
    """A cluster id as Kafka writes them: 22 characters of URL-safe base64."""
    import base64

    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
