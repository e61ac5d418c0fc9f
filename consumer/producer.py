"""The blocking producer: the engine in a thread of its own, and `send` around it.

    with Producer("localhost:9092") as producer:
        delivery = producer.send("flights", key=b"UA", value=b"...")
        print(delivery.result().offset)

`send` puts a record into a batch and returns at once, unless the buffer is full or the topic is not known
yet: then it waits, at most max_block_ms. Leaving the `with` block flushes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Generator, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Unpack, cast

from kproto.errors import IllegalState, RequestTimedOut

from .addresses import addresses
from .delivery import Delivery
from .engine import events as ev
from .engine.network import NetworkAction, Open, Shut, Write
from .engine.producing import Full, Header, OutBatch, ProducerEngine, step
from .options import ProducerConfig, producer_options
from .shell import log
from .sockets import Sockets

Buffer = bytes | bytearray | memoryview


class Producer:
    """Writes records. Options: see `ProducerConfig`; wrong ones raise ConfigError at once.

    May be used by several threads.
    """

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        self.options = producer_options(config)
        wall_offset = time.time_ns() // 1_000_000 - Sockets.now()
        self._engine = ProducerEngine(
            addresses(bootstrap_servers), self.options, random=Random(), wall_offset_ms=wall_offset
        )
        self._sockets = Sockets()
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._todo: deque[NetworkAction] = deque()
        self._linger = self.options.linger_ms
        # When the thread looks again by itself: 0 = it is awake, None = never.
        self._sleeps_until: int | None = 0
        self._waiting = 0
        self._stop = False
        self._closed = False
        self._crash: BaseException | None = None
        name = f"kproto-producer-{self.options.client_id}"
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._thread.start()

    # ---- sending

    def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Queues a record and returns its delivery. `timestamp` is in ms, now unless given.

        Without `partition` the key decides, as in Java; without a key the records of a batch stay together.
        Raises UnknownTopic, NotAuthorized, RequestTimedOut (no room or no metadata within max_block_ms) and
        BrokerError for a record that is too large.
        """
        value, key = as_bytes("value", value), as_bytes("key", key)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        engine = self._engine
        with self._lock:
            if self._closed or self._crash is not None:
                self._refuse()
            engine.core.now = now = Sockets.now()
            placed = engine.append(topic, key, value, partition, timestamp, headers)
            if isinstance(placed, Full):
                placed = self._wait_for_room(topic, key, value, partition, timestamp, headers)
            batch, index = placed
            until = self._sleeps_until
            if index == 0 and until != 0 and (engine.filled or until is None or until > now + self._linger):
                engine.filled = False
                self._sleeps_until = 0
                self._sockets.wake()
        return Delivery(self, batch, index, timestamp)

    def _wait_for_room(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: int,
        headers: Sequence[Header],
    ) -> tuple[OutBatch, int]:
        """Tries again whenever something happened. The lock is held, and given up while waiting."""
        deadline = time.monotonic() + self.options.max_block_ms / 1000
        while True:
            self._engine.core.now = Sockets.now()
            placed = self._engine.append(topic, key, value, partition, timestamp, headers)
            if not isinstance(placed, Full):
                return placed
            self._sleeps_until = 0
            self._sockets.wake()
            left = deadline - time.monotonic()
            if left <= 0:
                raise RequestTimedOut("send", self.options.max_block_ms, placed.why)
            self._waiting += 1
            try:
                self._changed.wait(left)
            finally:
                self._waiting -= 1
            if self._closed or self._crash is not None:
                self._refuse()

    def _refuse(self) -> None:
        if self._crash is not None:
            raise IllegalState("the producer's thread failed; see the log") from self._crash
        raise IllegalState("this producer is closed; make a new one")

    def flush(self, timeout: float | None = None) -> None:
        """Sends everything now and waits until each delivery has ended; RequestTimedOut after `timeout`
        seconds."""
        limit = self.options.delivery_timeout_ms / 1000 + 1 if timeout is None else timeout
        deadline = time.monotonic() + limit
        with self._lock:
            while self._engine.open_records:
                if self._crash is not None:
                    self._refuse()
                self._engine.flush()
                self._sleeps_until = 0
                self._sockets.wake()
                left = deadline - time.monotonic()
                if left <= 0:
                    open_records = self._engine.open_records
                    raise RequestTimedOut(
                        "flush", int(limit * 1000), f"{open_records} records are still open"
                    )
                self._waiting += 1
                try:
                    self._changed.wait(left)
                finally:
                    self._waiting -= 1

    # ---- deliveries

    def wait_for(self, batch: OutBatch, timeout: float | None) -> None:
        """Blocks until the batch is decided."""
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._lock:
            while not batch.done:
                if self._crash is not None:
                    self._refuse()
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise RequestTimedOut("Produce", int((timeout or 0) * 1000), str(batch.partition))
                self._waiting += 1
                try:
                    self._changed.wait(left)
                finally:
                    self._waiting -= 1

    def await_batch(self, batch: OutBatch) -> Generator[Any, None, None]:
        raise IllegalState("await needs an AsyncProducer; call result()")

    # ---- the thread

    def _loop(self) -> None:
        try:
            while not self._stop:
                self._perform()
                with self._lock:
                    due = self._sleeps_until if self._sleeps_until == 0 else self._engine.due()
                    self._sleeps_until = due
                wait = None if due is None else max(0, due - Sockets.now()) / 1000
                events = self._sockets.wait(wait)
                with self._lock:
                    now = Sockets.now()
                    for event in events:
                        self._sort(step(self._engine, event, now))
                    self._sort(step(self._engine, ev.Tick(), now))
                    self._sleeps_until = self._engine.due()
        except BaseException as error:  # a bug here must not become a silent standstill
            log.exception("the producer's thread failed")
            with self._lock:
                self._crash = error
                self._changed.notify_all()
        finally:
            self._perform()
            self._sockets.close()

    def _sort(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut():
                    self._todo.append(action)
                case ev.Wake():
                    if self._waiting:
                        self._changed.notify_all()
                case ev.Report(change=change):
                    log.warning("%s %s %s", self.options.client_id, change.kind, change.reason)
                case _:
                    pass
        self._engine.core.errors.clear()  # raised by send, from what the metadata says

    def _perform(self) -> None:
        while self._todo:
            self._sockets.perform(self._todo.popleft())

    # ---- the end

    def close(self, timeout: float | None = None) -> None:
        """Flushes, within `timeout` seconds, and ends. Raises RequestTimedOut when records stayed behind."""
        if self._closed:
            return
        try:
            if self._crash is None:
                self.flush(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends at once; what is still buffered is dropped."""
        self._closed = True
        self._stop = True
        with self._lock:
            self._changed.notify_all()
        with contextlib.suppress(OSError):
            self._sockets.wake()
        self._thread.join(5)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_bytes(what: str, data: object) -> bytes | None:
    """`data` as bytes; TypeError for what is neither bytes-like nor None."""
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(cast("bytearray", data))
    raise TypeError(f"{what} must be bytes or None, not {type(data).__name__}; encode it first")
