"""The producer for asyncio.

    async with AsyncProducer("localhost:9092") as producer:
        delivery = await producer.send("flights", key=b"UA", value=b"...")
        print((await delivery).offset)

`await send` waits only for room and for the topic's metadata, at most max_block_ms; awaiting what it
returned waits for the broker. Leaving the `async with` block flushes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Iterable, Sequence
from random import Random
from types import TracebackType
from typing import Any, Unpack

from kproto.errors import IllegalState, RequestTimedOut

from .addresses import addresses
from .delivery import Delivery
from .engine import events as ev
from .engine.network import Open, Shut, Write
from .engine.producing import Full, Header, OutBatch, ProducerEngine, step
from .options import ProducerConfig, producer_options
from .producer import Buffer, as_bytes
from .shell import log
from .sockets import Sockets
from .streams import Streams


class AsyncProducer:
    """The asyncio twin of `Producer`: same options. Belongs to one running event loop."""

    def __init__(self, bootstrap_servers: str | Iterable[str], **config: Unpack[ProducerConfig]) -> None:
        self.options = producer_options(config)
        wall_offset = time.time_ns() // 1_000_000 - Sockets.now()
        self._engine = ProducerEngine(
            addresses(bootstrap_servers), self.options, random=Random(), wall_offset_ms=wall_offset
        )
        self._streams = Streams(self._happened)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at: int | None = None
        self._changed = asyncio.Event()
        self._closed = False

    # ---- sending

    async def send(
        self,
        topic: str,
        value: Buffer | None = None,
        key: Buffer | None = None,
        *,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Sequence[Header] = (),
    ) -> Delivery:
        """Queues a record and returns its delivery, to be awaited; see `Producer.send`."""
        if self._closed:
            raise IllegalState("this producer is closed; make a new one")
        value_bytes, key_bytes = as_bytes("value", value), as_bytes("key", key)
        if timestamp is None:
            timestamp = time.time_ns() // 1_000_000
        deadline: float | None = None
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            self._engine.core.now = Sockets.now()
            placed = self._engine.append(topic, key_bytes, value_bytes, partition, timestamp, headers)
            if not isinstance(placed, Full):
                break
            self._happened(ev.Tick())
            if deadline is None:
                deadline = loop.time() + self.options.max_block_ms / 1000
            await self._wait(deadline, "send", self.options.max_block_ms, placed.why)
        batch, index = placed
        if index == 0:
            if self._engine.filled:
                self._engine.filled = False
                self._happened(ev.Tick())
                # So that a loop of sends lets the answers in.
                await asyncio.sleep(0)
            else:
                self._schedule()
        return Delivery(self, batch, index, timestamp)

    async def flush(self, timeout: float | None = None) -> None:
        """Sends everything now and waits until each delivery has ended; RequestTimedOut after `timeout` s."""
        limit = self.options.delivery_timeout_ms / 1000 + 1 if timeout is None else timeout
        deadline = asyncio.get_running_loop().time() + limit
        while self._engine.open_records:
            self._changed.clear()
            self._engine.flush()
            self._happened(ev.Tick())
            if self._engine.open_records:
                why = f"{self._engine.open_records} records are still open"
                await self._wait(deadline, "flush", int(limit * 1000), why)

    async def _wait(self, deadline: float, what: str, limit_ms: int, why: str) -> None:
        left = deadline - asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(max(0, left)):
                await self._changed.wait()
        except TimeoutError:
            raise RequestTimedOut(what, limit_ms, why) from None

    # ---- deliveries

    def wait_for(self, batch: OutBatch, timeout: float | None) -> None:
        raise IllegalState("await the delivery; result() would block the event loop")

    def await_batch(self, batch: OutBatch) -> Generator[Any, None, None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if batch.callbacks is None:
            batch.callbacks = []
        batch.callbacks.append(lambda batch: None if future.done() else future.set_result(None))
        yield from future.__await__()

    # ---- the loop's side

    def _happened(self, event: Any) -> None:
        for action in step(self._engine, event, Sockets.now()):
            match action:
                case Open() | Write() | Shut():
                    self._streams.perform(action)
                case ev.Wake():
                    self._changed.set()
                case ev.Report(change=change):
                    log.warning("%s %s %s", self.options.client_id, change.kind, change.reason)
                case _:
                    pass
        self._engine.core.errors.clear()  # raised by send, from what the metadata says
        self._schedule()

    def _schedule(self) -> None:
        due = None if self._closed else self._engine.due()
        if due == self._timer_at and self._timer is not None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = due
        if due is not None:
            wait = max(0, due - Sockets.now()) / 1000
            self._timer = asyncio.get_running_loop().call_later(wait, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._timer_at = None
        if not self._closed:
            self._happened(ev.Tick())

    # ---- the end

    async def close(self, timeout: float | None = None) -> None:
        """Flushes, within `timeout` seconds, and ends. Raises RequestTimedOut when records stayed behind."""
        if self._closed:
            return
        try:
            await self.flush(timeout)
        finally:
            self.kill()

    def kill(self) -> None:
        """Ends at once; what is still buffered is dropped."""
        self._closed = True
        self._streams.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
