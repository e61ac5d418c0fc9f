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
from asyncio import get_running_loop
from collections.abc import Callable, Generator, Iterable
from functools import partial
from time import time_ns
from typing import Any, Never, TypeVar, Unpack, cast

from kproto.errors import ConfigError, IllegalState, RequestTimedOut
from kproto.records.crc32c import at_hand

from ..block import AsyncBlock
from ..callbacks import guarded
from ..clock import now
from ..delivery import Delivery, PieceDelivery
from ..door import (
    LAST_TIMESTAMP,
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
from ..elsewhere import one_address, unknown_argument
from ..engine import events as ev
from ..engine.producing import step
from ..engine.transport import GetToken, NetworkEvent, Open, Shut, Write
from ..options import ProducerConfig
from ..sending import Sender, unsettled
from ..shell import log
from .streams import Streams

T = TypeVar("T")


class AsyncProducer(Sender, AsyncBlock):
    """The asyncio twin of `Producer`: same options. Belongs to one running event loop."""

    @one_address
    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        try:
            self._loop = get_running_loop()
        except RuntimeError:
            raise IllegalState(
                "an AsyncProducer needs the running event loop: make it in a coroutine, or use Producer"
            ) from None
        if config.get("transactional_id") is not None:
            allowed = "None: transactions are the blocking Producer's (asyncio.to_thread runs it)"
            raise ConfigError("transactional_id", config.get("transactional_id"), allowed)
        super().__init__(bootstrap_servers, config, None)
        at_hand()
        self._streams = Streams(self._happened)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._changed = asyncio.Event()
        self._over = asyncio.Event()

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
        headers: Headers = (),
        **unknown: Never,
    ) -> Delivery:
        """Queues a record and returns its delivery, to be awaited; see `Producer.send`."""
        if unknown:
            raise unknown_argument("send", min(unknown), SENT)
        loop, records = self._loop, self._records
        if get_running_loop() is not loop:
            self._must_be_here()
        if type(value) is not bytes and value is not None:
            value = as_bytes("value", value)
        if type(key) is not bytes and key is not None:
            key = as_bytes("key", key)
        if timestamp is None:
            timestamp = time_ns() // 1_000_000
        elif type(timestamp) is not int or not SOON <= timestamp <= LAST_TIMESTAMP:
            timestamp = timestamp_ms(timestamp)
        if partition is not None:
            partition = partition_index(partition)
        headers = header_pairs(headers) if headers else ()
        if type(topic) is not str or not topic:
            topic = topic_name(topic)
        deadline: float | None = None
        while True:
            delivery = records.take(topic, key, value, partition, timestamp, headers)
            if records.stirred:
                records.stirred = False
                topic_name(topic)
                ripe = records.urgent()
                self._changed.clear()
                self._happened(None)
                if ripe and delivery is not None:
                    await asyncio.sleep(0)  # so that a loop of sends lets the answers in
            if delivery is not None:
                return delivery
            if deadline is None:
                deadline = loop.time() + self.options.max_block_ms / 1000
            await self._wait(deadline, self._no_room)

    async def send_columns(self, topic: str, batch: Any) -> list[PieceDelivery]:
        """Queues the rows of a table; see `Producer.send_columns`."""
        from ..sheets import pieces, sheet

        self._must_be_here()
        found = sheet(batch, time_ns() // 1_000_000)
        records = self._records
        topic = topic_name(topic)
        count = await self._with_room(lambda: records.count(topic))
        deliveries: list[PieceDelivery] = []
        for piece in pieces(found, count, self.options):
            put = partial(records.put, topic, piece.partition, piece.data, cast("Any", piece.timestamps))
            deliveries.append(PieceDelivery(await self._with_room(put), 0, piece.rows))
            await asyncio.sleep(0)
        return deliveries

    async def _with_room(self, put: Callable[[], T | None]) -> T:
        """What `put` returns, as soon as it returns something."""
        deadline = self._loop.time() + self.options.max_block_ms / 1000
        while True:
            self._changed.clear()
            found = put()
            self._happened(None)
            if found is not None:
                return found
            await self._wait(deadline, self._no_room)

    async def flush(self, timeout: float | None = None, **unknown: Never) -> None:
        """Sends everything now and waits until each delivery that is open has ended; see `Producer.flush`."""
        if unknown:
            raise unknown_argument("flush", min(unknown), ("timeout",))
        self._must_be_here()
        limit = self._flush_timeout(timeout)
        deadline = self._loop.time() + limit
        self._records.seal_all()
        pending = list(self._records.open)
        self._happened(None)
        while pending := unsettled(pending):
            self._changed.clear()
            await self._wait(deadline, partial(self._still_open, limit, pending))
        self._tell()

    async def _wait(self, deadline: float, timed_out: Callable[[], RequestTimedOut]) -> None:
        """Until something happened; raises what `timed_out` says when it is too late for that."""
        left = deadline - self._loop.time()
        try:
            async with asyncio.timeout(max(0, left)):
                await self._changed.wait()
        except TimeoutError:
            raise timed_out() from None

    # ---- deliveries

    def wait_for(self, delivery: Delivery, timeout: float | None) -> None:
        raise IllegalState("await the delivery; result() would block the event loop")

    def await_it(self, delivery: Delivery) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = self._loop.create_future()
        batch, index = delivery._batch, delivery._index  # pyright: ignore[reportPrivateUsage]
        self._records.call_back(batch, index, lambda: None if future.done() else future.set_result(None))
        yield from future.__await__()

    def _call(self, callback: Any, delivery: Delivery) -> None:
        self._loop.call_soon(guarded, lambda: callback(delivery))

    # ---- the loop's side

    def _happened(self, event: NetworkEvent | ev.Tick | None, at: int | None = None) -> None:
        try:
            self._perform(step(self._engine, event, now() if at is None else at))
        except Exception as error:  # a bug here must not become a silent standstill
            log.exception("the producer failed")
            self._finish("the producer failed; see the log", error)
        self._schedule()

    def _perform(self, actions: list[ev.Action]) -> None:
        for action in actions:
            match action:
                case Open() | Write() | Shut() | GetToken():
                    self._streams.perform(action)
                case ev.CallBack(callback=callback):
                    guarded(callback)
                case ev.Wake():
                    self._changed.set()
                case ev.Report():
                    self._note(action)
                case _:
                    pass

    def _schedule(self) -> None:
        due = None if self._records.closed and not self._records.open else self._engine.due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            wait = max(0, due - now()) / 1000
            self._timer = self._loop.call_later(wait, self._tick)

    def _tick(self) -> None:
        # Perhaps the loop stood still: in its next round it hears first what had come by now.
        self._timer = self._loop.call_later(0, self._look, now())

    def _look(self, at: int) -> None:
        self._timer = None
        self._timer_at = None
        self._happened(ev.Tick(), at)

    # ---- the end

    async def close(self, timeout: float | None = None, **unknown: Never) -> None:
        """Flushes, within `timeout` seconds, and ends; see `Producer.close`."""
        if unknown:
            raise unknown_argument("close", min(unknown), ("timeout",))
        self._must_be_here()
        limit = self._flush_timeout(timeout)
        if self._closed:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    await self._over.wait()
            return
        self._closed = True
        self._records.close("this producer is closed; make a new one")
        try:
            await self.flush(limit)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends at once; what is still buffered is dropped, and its deliveries end with IllegalState."""
        self._closed = True
        self._finish("this producer is closed; make a new one")

    def _finish(self, why: str, crash: BaseException | None = None) -> None:
        for action in self._end(why, crash):
            if isinstance(action, ev.CallBack):
                guarded(action.callback)
        with contextlib.suppress(RuntimeError):  # the loop is closed already
            self._changed.set()
            self._over.set()
            self._streams.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _at_the_end(self) -> str:
        open_records = self._engine.open_records
        self._closed = True
        self._end("the process ends")
        if not open_records:
            return ""
        return f"the producer {self.options.client_id!r} was not closed, and {open_records} records are lost"
