"""A proxy between clients and a broker. Its methods cause network faults on real sockets.

    with running() as server, Proxy(server.bootstrap) as proxy:
        server.advertise(proxy.bootstrap)         # so that clients connect to the proxy
        ... Consumer(proxy.bootstrap) ...
        proxy.stall(2.0)                          # nothing moves for two seconds
        proxy.cut()                               # all connections break
        proxy.half_close()                        # the broker sees the connections end, the client does not
        proxy.delay(0.05)                         # each chunk of bytes takes 50 ms longer; 0 ends the delay
        proxy.trouble(seed=7, seconds=20)         # all of these, at random times

Clients connect to the address that a broker advertises, so the broker must advertise the proxy's address.

For the embedded broker, call `Server.advertise`. For a real Kafka, give the proxy a fixed port, and set
`advertised.listeners` to the proxy's address.

The proxy runs in a separate thread. Its methods may be called from any thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections.abc import Callable
from random import Random
from types import TracebackType

from ..addresses import address_text
from ..broker.acceptor import Acceptor, listening_socket, stream_protocols
from ..errors import ConfigError, IllegalState
from ..validation import NUMBER, WHOLE_NUMBER, checked
from .broker_address import parse_broker_address

CHUNK = 1 << 16
MOVES = ("cut", "stall", "half_close", "delay")


class Proxy:
    """A proxy that passes bytes between its own port and `target` (HOST:PORT).

    With `port` 0 the proxy listens on a free port. Once the proxy runs, the attribute `port` contains this
    port. Raises ConfigError if `target` is not HOST:PORT.
    """

    def __init__(self, target: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.target = parse_broker_address("target", target)
        self.host = host
        self.port = port
        # The number of connections accepted so far.
        self.connections = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pairs: set[_Pair] = set()
        self._delay = 0.0
        # Set while bytes may pass, and cleared during a stall.
        self._is_flowing: asyncio.Event | None = None
        # The end of the last stall, in seconds of the loop's clock.
        self._stalled_until = 0.0

    @property
    def bootstrap(self) -> str:
        """HOST:PORT of the proxy, for clients."""
        return address_text(self.host, self.port)

    def __enter__(self) -> Proxy:
        started = threading.Event()
        errors: list[BaseException] = []
        self._thread = threading.Thread(
            target=self._run, args=(started, errors), name="kproto-proxy", daemon=True
        )
        self._thread.start()
        started.wait()
        if errors:
            raise errors[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._thread is not None:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    # ---- faults

    def cut(self) -> None:
        """Break all connections at both ends."""
        self._call_in_loop(self._cut_all)

    def half_close(self) -> None:
        """End all connections on the broker's side. The clients' side stays open, without responses."""
        self._call_in_loop(self._half_close_all)

    def delay(self, seconds: float) -> None:
        """Delay each chunk of bytes by `seconds` seconds until the next call; 0 ends the delay."""
        self._delay = _check_duration(seconds)

    def stall(self, seconds: float) -> None:
        """Stop all traffic for `seconds` seconds. After this time the delayed bytes arrive in order."""
        _check_duration(seconds)

        def begin_stall() -> None:
            assert self._is_flowing is not None
            assert self._loop is not None
            self._is_flowing.clear()
            self._stalled_until = max(self._stalled_until, self._loop.time() + seconds)
            self._loop.call_at(self._stalled_until, self._end_stall)

        self._call_in_loop(begin_stall)

    @checked(seed=WHOLE_NUMBER, seconds=NUMBER, longest=NUMBER)
    def trouble(self, seed: int, seconds: float, *, longest: float = 1.5) -> None:
        """Cause random faults for `seconds` seconds. The seed determines the faults and their times.

        `longest` is the maximum length of a stall in seconds. The call returns after `seconds` seconds. After
        it has returned, there is no delay, but the last stall may continue for up to `longest` seconds.
        """
        self._call_in_loop(lambda: None)  # This empty call raises IllegalState if the proxy is not running.
        random = Random(seed)
        end = time.monotonic() + _check_duration(seconds)
        while (remaining := end - time.monotonic()) > 0:
            time.sleep(min(remaining, random.uniform(0.1, 2.0)))
            match random.choice(MOVES):
                case "cut":
                    self.cut()
                case "stall":
                    self.stall(random.uniform(0.05, longest))
                case "half_close":
                    self.half_close()
                case _:
                    self.delay(random.choice((0.0, 0.005, 0.03)))
        self.delay(0)

    # ---- helpers

    def _call_in_loop(self, function: Callable[[], object]) -> None:
        """Call a function in the proxy's thread. Raises IllegalState if the proxy is not running."""
        if self._loop is None or self._loop.is_closed():
            raise IllegalState("the proxy is not running: use it in a with statement")
        self._loop.call_soon_threadsafe(function)

    def _cut_all(self) -> None:
        for pair in list(self._pairs):
            pair.cut()

    def _half_close_all(self) -> None:
        for pair in list(self._pairs):
            pair.half_close()

    def _end_stall(self) -> None:
        """Let bytes pass again, unless a later call of `stall` has extended the stall."""
        assert self._is_flowing is not None
        assert self._loop is not None
        if self._loop.time() >= self._stalled_until:
            self._is_flowing.set()

    def _run(self, started: threading.Event, errors: list[BaseException]) -> None:
        """Run the proxy's event loop until `__exit__` stops it.

        Sets `started` once the proxy listens. If the proxy cannot listen, the error is added to `errors`
        before `started` is set.
        """
        loop = self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        try:
            self._is_flowing = asyncio.Event()
            self._is_flowing.set()
            acceptor = loop.run_until_complete(self._listen())
            self.port = acceptor.port
        except BaseException as error:
            loop.close()
            errors.append(error)
            started.set()
            return
        started.set()
        loop.run_forever()
        loop.run_until_complete(acceptor.close())
        self._cut_all()
        loop.run_until_complete(self._wait_for_tasks())
        loop.close()

    async def _listen(self) -> Acceptor:
        return Acceptor(listening_socket(self.host, self.port), stream_protocols(self._accept))

    async def _wait_for_tasks(self) -> None:
        """Wait until the task of each connection has ended. The caller must have cut the connections."""
        await asyncio.gather(*(pair.task for pair in self._pairs), return_exceptions=True)
        await asyncio.sleep(0)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert self._is_flowing is not None
        assert task is not None
        pair = _Pair(writer, task)
        self._pairs.add(pair)
        try:
            # OSError means that the broker is down, and CancelledError that a fault has cut the connection.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._is_flowing.wait()
                broker_reader, pair.broker = await asyncio.open_connection(*self.target)
                if pair.half_closed:
                    pair.half_close()
                await asyncio.gather(
                    self._pass_bytes(reader, pair.broker, pair), self._pass_bytes(broker_reader, writer, pair)
                )
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _pass_bytes(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pair: _Pair
    ) -> None:
        """Pass bytes from `reader` to `writer`. When `reader` ends, cut both connections.

        If the pair is half-closed, bytes are dropped, and the connection to the client stays open.
        """
        assert self._is_flowing is not None
        try:
            while data := await reader.read(CHUNK):
                if self._delay:
                    await asyncio.sleep(self._delay)
                await self._is_flowing.wait()
                if not pair.half_closed:
                    writer.write(data)
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        if not pair.half_closed:
            pair.cut()


def _check_duration(seconds: object) -> float:
    """Return `seconds`. Raises ConfigError if it is not a finite number of at least 0."""
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise ConfigError("seconds", seconds, "a number of seconds, 0 or more")
    return seconds


class _Pair:
    """The two ends of one connection, and the task that passes bytes between them.

    `broker` is None until the connection to the broker is established.
    """

    def __init__(self, client: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self.client = client
        self.broker: asyncio.StreamWriter | None = None
        self.task = task
        self.half_closed = False

    def cut(self) -> None:
        self.task.cancel()  # The cancelled task aborts both ends of the connection.

    def abort(self) -> None:
        self.client.transport.abort()
        if self.broker is not None:
            self.broker.transport.abort()

    def half_close(self) -> None:
        self.half_closed = True
        if self.broker is not None:
            self.broker.transport.abort()
