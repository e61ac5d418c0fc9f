"""The producer for asyncio.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        print((await delivery).offset)

`await send` waits only for room and for the topic's metadata, at most max_block_ms; awaiting what it
returned waits for the broker. Leaving the `async with` block flushes.
"""

from __future__ import annotations

import asyncio
import contextlib
import weakref
from asyncio import get_running_loop
from collections.abc import Generator, Iterable
from functools import partial
from time import time
from typing import Any, Never, Unpack

from kproto.errors import IllegalState
from kproto.records.crc32c import at_hand

from .. import lifecycle
from ..callbacks import guarded
from ..clock import now
from ..context_managers import AsyncBlock, AsyncTransaction
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
from ..engine.producer.engine import step
from ..logs import log
from ..operations.producer import CLOSED, ProducerCalls
from ..option_docs import with_options
from ..options import ProducerConfig, ProducerOptions
from ..other_clients import one_address, unknown_argument
from .runtime import abandon
from .streams import Streams
from .waiting import InTasks


@with_options(ProducerConfig, ProducerOptions)
class AsyncProducer(ProducerCalls, InTasks, AsyncBlock):
    """The asyncio twin of `Producer`: same options. Belongs to one running event loop."""

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        try:
            self._loop = get_running_loop()
        except RuntimeError:
            raise IllegalState(
                "an AsyncProducer needs the running event loop: make it in a coroutine, or use Producer"
            ) from None
        super().__init__(bootstrap_servers, config, None)
        at_hand()
        # What the timer and the streams hold: this producer, while records are open. One that is dropped
        # without close() delivers those, and is gone then.
        self._held: list[AsyncProducer] = []
        self._weak: weakref.ref[AsyncProducer] = weakref.ref(self)
        self._streams = Streams(partial(_told, self._weak, self._held))
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._breath_due = False  # the next send lets others have their turn
        self._nobody_waits()
        lifecycle.opened(self)

    def _must_be_here(self) -> None:
        if get_running_loop() is not self._loop:
            raise IllegalState(
                "this producer belongs to another event loop, the one it was made in; make one for each loop"
            )

    # ---- sending

    async def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Headers = NO_HEADERS,
        **unknown: Never,
    ) -> Delivery:
        """Queues a record and returns its delivery, to be awaited; see `Producer.send`."""
        if unknown:
            raise unknown_argument("send", min(unknown), SENT)
        loop, records = self._loop, self._records
        if get_running_loop() is not loop:
            self._must_be_here()
        if self._breath_due:  # so that a loop of sends lets the answers in; cancelled here, nothing is sent
            self._breath_due = False
            await asyncio.sleep(0)
        if type(value) is not bytes and value is not None:
            value = as_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = as_bytes("key", key)
        if timestamp is None:
            since, until, timestamp = self._moment
            if not since <= time() < until:
                timestamp = self._next_moment()
        elif type(timestamp) is not int or not SOON <= timestamp <= LAST_TIMESTAMP:
            timestamp = timestamp_ms(timestamp)
        if partition is not None:
            partition = partition_index(partition)
        headers = header_pairs(headers) if headers is not NO_HEADERS else headers
        if type(topic) is not str or not topic:
            topic = topic_name(topic)
        delivery = records.take(topic, key, value, partition, timestamp, headers)
        if records.stirred:
            records.stirred = False
            self._breath_due = records.urgent()
            self._happened(None)
        if delivery is None:
            take = records.take
            return await self._room(partial(take, topic, key, value, partition, timestamp, headers))
        return delivery

    # ---- waiting

    def _turn(self) -> None:
        if not self._forked:
            self._happened(None)

    def _enter(self, name: str, *, waits: bool, serves: bool) -> bool:
        if not self._forked:  # there everything says whose it is, and close() has nothing to do
            self._must_be_here()
        return False

    def _leave(self, entered: bool) -> None:
        pass

    def transaction(self) -> AsyncTransaction:
        """A block whose records are seen all or not at all: its end commits, an exception aborts.

        Raises as `begin` and `commit` do; what the block raised is raised on. So is CancelledError: the
        transaction is aborted then, unless it was the commit that was cancelled, which goes on by itself.
        """
        return AsyncTransaction(self)

    # ---- deliveries

    def wait_for(self, delivery: Delivery, timeout: float | None) -> None:
        """For `Delivery.result`: blocks until it is decided."""
        raise IllegalState("await the delivery; result() would block the event loop")

    def await_it(self, delivery: Delivery) -> Generator[Any, None, None]:
        """For `await delivery`, in asyncio only."""
        while not delivery.done():
            self._must_be_here()
            future: asyncio.Future[None] = self._loop.create_future()
            batch, index = delivery._batch, delivery._index  # pyright: ignore[reportPrivateUsage]
            self._records.call_back(batch, index, partial(_over, future))
            yield from future.__await__()

    def _call(self, callback: Any, delivery: Delivery) -> None:
        try:
            self._loop.call_soon(guarded, lambda: callback(delivery))
        except RuntimeError:  # the loop is closed: the caller has to do it
            guarded(lambda: callback(delivery))

    # ---- the loop's side

    def _happened(self, event: NetworkEvent | ev.Tick | None, at: int | None = None) -> None:
        try:
            self._perform(step(self._engine, event, now() if at is None else at))
            self._schedule()
        except Exception as error:  # a bug here must not become a silent standstill
            log.exception("the producer failed")
            self._finish("the producer failed; see the log", error)

    def _perform(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self._streams.perform(action)
                case ev.CallBack(callback=callback):
                    guarded(callback)
                case ev.Wake():
                    self._change()
                case ev.Report():
                    self._note(action)
                case _:
                    pass

    def _schedule(self) -> None:
        self._held[:] = [self] if self._records.open else []
        due = None if self._records.closed and not self._records.open else self._engine.due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            wait = max(0, due - now()) / 1000
            self._timer = self._loop.call_later(wait, _tick, self._weak, self._held)

    # ---- the end

    def __del__(self) -> None:
        if self._forked or self._is_over or getattr(self, "_held", None) is None:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._loop.call_soon_threadsafe(abandon, self._streams, self._timer)
        self._dropped()

    def _shut_down(self, deadline: int) -> None:
        self._finish(CLOSED)
        self._is_over = True
        self._change()

    def _finish(self, why: str, crash: BaseException | None = None) -> None:
        for action in self._end(why, crash):
            if isinstance(action, ev.CallBack):
                guarded(action.callback)
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._streams.close()
        self._change()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._held.clear()

    def _at_the_end(self) -> str:
        lost = self._lost()
        self._closed = True
        self._end("the process ends")
        return f"the producer {self.options.client_id!r} was not closed, and {lost}" if lost else ""


def _over(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _told(client: weakref.ref[AsyncProducer], held: list[AsyncProducer], event: NetworkEvent) -> None:
    if (producer := client()) is not None:
        producer._happened(event)  # pyright: ignore[reportPrivateUsage]


def _tick(client: weakref.ref[AsyncProducer], held: list[AsyncProducer]) -> None:
    # Perhaps the loop stood still: in its next round it hears first what had come by now.
    if (producer := client()) is not None:
        look = producer._loop.call_later(0, _look, client, held, now())  # pyright: ignore[reportPrivateUsage]
        producer._timer = look  # pyright: ignore[reportPrivateUsage]


def _look(client: weakref.ref[AsyncProducer], held: list[AsyncProducer], at: int) -> None:
    if (producer := client()) is not None:
        producer._timer = producer._timer_at = None  # pyright: ignore[reportPrivateUsage]
        producer._happened(ev.Tick(), at)  # pyright: ignore[reportPrivateUsage]
