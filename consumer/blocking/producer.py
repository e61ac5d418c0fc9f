"""The blocking producer: the engine in a thread of its own, and `send` around it.

    with Producer("localhost:9092") as producer:
        delivery = producer.send("flights", key=b"UA", value=b"...")
        print(delivery.result().offset)

`send` puts a record into a batch and returns at once, unless the buffer is full or the topic is not known
yet: then it waits, at most max_block_ms. Leaving the `with` block flushes.

The lock is held for moments: by `send` when it begins a batch, by the thread when it takes one out or ends
it. Bytes are made, compressed and moved outside of it, and callbacks have a thread of their own. Signal
handlers may call `send`, also when they interrupted one; what waits raises IllegalState there.

The thread holds the producer only while records are on their way: one that is dropped without close()
delivers those, and is gone then.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Generator, Iterable
from functools import partial
from time import time
from typing import Any, Never, Unpack

from kproto.errors import IllegalState, KprotoError, RequestTimedOut

from .. import lifecycle
from ..callbacks import Callbacks
from ..calls import finished
from ..clock import now
from ..context_managers import Block, Transaction
from ..delivery import Delivery
from ..door import (
    LAST_TIMESTAMP,
    NO_HEADERS,
    SENT,
    SOON,
    Buffer,
    Headers,
    as_bytes,
    header_pairs,
    partition_index,
    timestamp_ms,
    topic_name,
)
from ..engine import events as ev
from ..engine.network.transport import GetToken, NetworkEvent, Open, Shut, Write
from ..engine.producer.accumulator import RECORD_OVERHEAD, TopicRoute
from ..engine.producer.batches import fate
from ..engine.producer.engine import step
from ..logs import log
from ..operations.producer import ProducerCalls
from ..operations.producer_base import EXIT_SECONDS
from ..option_docs import with_options
from ..options import ProducerConfig, ProducerOptions
from ..other_clients import one_address, unknown_argument
from ..validation import LONGEST
from .sockets import Sockets
from .waiting import InThreads

_JOIN_SECONDS = 5.0


@with_options(ProducerConfig, ProducerOptions)
class Producer(ProducerCalls, InThreads, Block):
    """Writes records. Its options are below; wrong ones raise ConfigError at once.

    May be used by several threads. When the interpreter ends before `close`, a warning tells how many records
    were not delivered yet, and they get five more seconds. A fork leaves it to the parent process.
    """

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        self._nobody_waits()
        super().__init__(bootstrap_servers, config, self._lock)
        self._sockets = Sockets()
        self._linger = self.options.linger_ms
        # When the thread looks again by itself: 0 = it is awake, None = never.
        self._sleeps_until: int | None = 0
        self._stop = False
        # What the thread holds besides, with the lock held: this producer, while records are open.
        self._held: list[Producer] = []
        self._records.stir = self._stir
        self._at_hand: dict[str, TopicRoute] = {} if self._records.gated else self._records.routes
        name = f"kproto-producer-{self.options.client_id}"
        self._callbacks = Callbacks(f"{name}-callbacks")
        self._thread = threading.Thread(
            target=self._drive, args=(weakref.ref(self), self._sockets, self._held), name=name, daemon=True
        )
        self._start()
        lifecycle.opened(self)

    # ---- sending

    def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        **unknown: Never,
    ) -> Delivery:
        """Queues a record and returns its delivery. `timestamp` is in ms since 1970, now unless given.

        Without `partition` the key decides, as in Java; without a key the records of a batch stay together.
        Raises ConfigError for arguments that no record can have, UnknownTopic, NotAuthorized,
        RequestTimedOut (no room or no metadata within max_block_ms), BrokerError for a record that is too
        large, and IllegalState after close.
        """
        if unknown:
            raise unknown_argument("send", min(unknown), SENT)
        # What is common is looked for here; the door has the rest.
        if timestamp is None:
            since, until, timestamp = self._moment
            if not since <= time() < until:
                timestamp = self._next_moment()
            if key is None and partition is None and headers is NO_HEADERS and type(value) is bytes:
                # The commonest record goes where `take` would put it, without a call.
                route = self._at_hand.get(topic) if type(topic) is str else None
                if route is not None:
                    size = RECORD_OVERHEAD + len(value)
                    batch = route.sticky.filling
                    left = batch.left - size
                    if left >= 0 and batch.moment is timestamp:
                        batch.left = left
                        index = batch.count
                        batch.count = index + 1
                        batch.rows.append(value)
                        return Delivery(batch, index)
        elif type(timestamp) is not int or not SOON <= timestamp <= LAST_TIMESTAMP:
            timestamp = timestamp_ms(timestamp)
        if value is not None and type(value) is not bytes:
            value = as_bytes("value", value)
        if key is not None and type(key) is not bytes:
            key = as_bytes("key", key)
        if partition is not None:
            partition = partition_index(partition)
        headers = header_pairs(headers) if headers is not NO_HEADERS else headers
        if type(topic) is not str:
            topic = topic_name(topic)
        delivery = self._records.take(topic, key, value, partition, timestamp, headers)
        if delivery is None:
            topic_name(topic)
            self._may_wait()
            take = self._records.take
            return finished(self._room(partial(take, topic, key, value, partition, timestamp, headers)))
        return delivery

    # ---- waiting

    def _stir(self) -> None:
        """Wakes the thread if what happened can't wait until it wakes by itself; with the lock held."""
        if not self._held:
            self._held.append(self)
        until = self._sleeps_until
        if until == 0:
            return
        if self._records.urgent() or until is None or until > now() + self._linger:
            self._wake()

    def _wake(self) -> None:
        """The thread looks at once; with the lock held."""
        if self._sleeps_until != 0:
            self._sockets.wake()
            self._sleeps_until = 0

    _turn = _wake

    def _enter(self, name: str, *, waits: bool, serves: bool) -> bool:
        if waits:
            self._may_wait()
        return False

    def _leave(self, entered: bool) -> None:
        pass

    def _may_wait(self) -> None:
        lock: Any = self._lock
        if lock._is_owned():  # what a Condition asks, too
            raise IllegalState(
                "a signal handler interrupted this producer at work and can't wait for it now; "
                "set a flag there, and call it afterwards"
            )

    def transaction(self) -> Transaction:
        """A block whose records are seen all or not at all: its end commits, an exception aborts.

        Raises as `begin` and `commit` do; what the block raised is raised on.
        """
        return Transaction(self)

    # ---- deliveries

    def wait_for(self, delivery: Delivery, timeout: float | None) -> None:
        """For `Delivery.result`: blocks until it is decided."""
        deadline = now() + int((LONGEST if timeout is None else timeout) * 1000)
        self._may_wait()
        while True:
            seen = self._changes
            if delivery.done():
                return
            if not finished(self._wait(seen, deadline)):
                batch, _ = fate(delivery._batch, delivery._index)  # pyright: ignore[reportPrivateUsage]
                detail = f"{batch.partition}: {self._engine.excuse(batch)}"
                raise RequestTimedOut("Produce", int((timeout or 0) * 1000), detail)

    def await_it(self, delivery: Delivery) -> Generator[Any, None, None]:
        """For `await delivery`, in asyncio only."""
        raise IllegalState("await needs an AsyncProducer; call result()")

    def _call(self, callback: Any, delivery: Delivery) -> None:
        self._callbacks.put(lambda: callback(delivery))

    # ---- the thread

    @staticmethod
    def _drive(client: weakref.ref[Producer], sockets: Sockets, held: list[Producer]) -> None:
        """While it sleeps nothing but `held` holds the producer."""
        try:
            while (producer := client()) is not None and not producer._stop:
                due = producer._until()
                del producer
                at = now()
                events: list[NetworkEvent] = []
                if due is None or due > at:
                    events = sockets.wait(None if due is None else (due - at) / 1000)
                    at = now()
                if (producer := client()) is None:
                    break
                producer._sleeps_until = 0
                if due is not None and due <= at:
                    # Perhaps this process stood still: what had come by then is heard before its deadlines.
                    events += sockets.wait(0)
                for event in events:
                    producer._perform(step(producer._engine, event, at))
                producer._perform(step(producer._engine, ev.Tick(), at))
        except BaseException as error:  # a bug here must not become a silent standstill
            log.exception("the producer's thread failed")
            if (producer := client()) is not None:
                producer._finish("the producer's thread failed; see the log", error)
        finally:
            if (producer := client()) is not None:
                producer._finish("the producer was closed")
            held.clear()
            sockets.close()

    def _until(self) -> int | None:
        """When the thread looks again by itself."""
        with self._lock:
            if not self._records.open:
                self._held.clear()
            self._sleeps_until = due = self._engine.due()
        return due

    def _perform(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self._sockets.perform(action)
                case ev.CallBack(callback=callback):
                    callback()
                case ev.Wake():
                    self._change()
                case ev.Report():
                    self._note(action)
                case _:
                    pass

    def _finish(self, why: str, crash: BaseException | None = None) -> None:
        for action in self._end(why, crash):
            if isinstance(action, ev.CallBack):
                action.callback()
        self._change()

    # ---- the end

    def __del__(self) -> None:
        if getattr(self, "_stop", True) or self._forked:
            return
        self._stop = True
        self._sockets.wake()
        self._callbacks.close(0)
        self._dropped()

    def _shut_down(self, deadline: int) -> None:
        self._stop = True
        self._sockets.wake()
        if self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)
        self._finish("the producer was closed")
        self._is_over = True
        self._change()
        self._callbacks.close(max(1.0, (deadline - now()) / 1000))

    def _called_back(self, deadline: int) -> None:
        self._callbacks.close(max(0.0, (deadline - now()) / 1000))

    def _in_the_child(self) -> None:
        self._nobody_waits()
        self._callbacks = Callbacks("nobody's")
        super()._in_the_child()
        self._records.guard = self._lock
        self._held.clear()
        self._sockets.abandon()

    def _at_the_end(self) -> str:
        open_records = self._engine.open_records
        name = self.options.client_id
        if open_records:
            log.warning(
                "the producer %r was not closed: %d records are not delivered yet, they have %g s",
                name,
                open_records,
                EXIT_SECONDS,
            )
        try:
            self.close(EXIT_SECONDS)
        except KprotoError as error:
            return f"the producer {name!r} was not closed, and records are lost: {error}"
        return ""
