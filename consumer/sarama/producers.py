"""sarama's two producers, for asyncio: one that waits for each message, one with queues at both ends.

    async with AsyncSyncProducer("localhost:9092") as producer:
        partition, offset = await producer.send_message(ProducerMessage(topic="flights", value=b"UA1545"))

    async with AsyncQueueProducer("localhost:9092", return_successes=True) as producer:
        await producer.input(ProducerMessage(topic="flights", value=b"UA1545", metadata=17))
        async for message in producer.successes(): ...       # in a task of its own
        async for error in producer.errors(): ...            # error.message, error.error

`SyncProducer` and `QueueProducer`, for threads, are in `producers_threads`.

Rules that hold here (sarama's sync_producer.go and async_producer.go, where nothing else is said):

* The engine is `Producer`'s: idempotent and acks="all" unless one says otherwise, a key's partition is
  Java's. sarama's default waits for the leader only, and hashes keys by FNV-1a.
* Each message ends once: in `successes` or in `errors`, as far as these are returned. What is not returned is
  logged, when it is an error.
* `input` waits while `UNREAD` outcomes wait for who reads them, at most max_block_ms: then it raises
  RequestTimedOut. sarama's whole producer stands still for ever.
* `close` waits for what was sent, ends both iterators, and raises the errors that nobody has taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Unpack

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut

from ..aio.producer import AsyncProducer
from ..context_managers import AsyncBlock
from ..delivery import Delivery
from ..logs import log
from ..options import ProducerConfig
from ..other_clients import hide_secrets
from .error_queue import Outlet
from .messages import (
    UNREAD,
    Failures,
    ProducerError,
    ProducerErrors,
    ProducerMessage,
    limit,
    must_return,
    parts,
    several,
    still_closing,
)


class AsyncSyncProducer(AsyncBlock):
    """The asyncio twin of `SyncProducer`: sends messages and waits for them. Its tasks may all use it."""

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        return_successes: bool = True,
        return_errors: bool = True,
        **config: Unpack[ProducerConfig],
    ) -> None:
        must_return(return_successes, return_errors)
        config.setdefault("linger_ms", 0)
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def send_message(self, message: ProducerMessage) -> tuple[int, int | None]:
        """Its partition and offset, which are also in the message then. With acks=0 the offset is None.

        Raises what `AsyncProducer.send` raises, and what went wrong on the way.
        """
        delivery = await _sent(self._producer, message)
        await delivery
        message.placed(delivery)
        assert message.partition is not None
        return message.partition, message.offset

    async def send_messages(self, messages: Iterable[ProducerMessage]) -> None:
        """Sends all, and waits for all. Raises ProducerErrors for those that failed; the others are there."""
        failures = Failures()
        under_way: list[tuple[ProducerMessage, Delivery]] = []
        for message in several(messages):
            with failures.of(message):
                under_way.append((message, await _sent(self._producer, message)))
        for message, delivery in under_way:
            with failures.of(message):
                await delivery
                message.placed(delivery)
        failures.tell()

    async def close(self, timeout: float | None = None) -> None:
        """Waits for what other tasks have under way, and ends."""
        await self._producer.close(timeout)


class AsyncQueueProducer(AsyncBlock):
    """The asyncio twin of `QueueProducer`: takes messages and tells later what became of them."""

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        return_successes: bool = False,
        return_errors: bool = True,
        **config: Unpack[ProducerConfig],
    ) -> None:
        self._successes: Outlet[ProducerMessage] | None = Outlet(None) if return_successes else None
        self._errors: Outlet[ProducerError] | None = Outlet(None) if return_errors else None
        self._reads_errors = False
        self._closing: asyncio.Task[None] | None = None
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def input(self, message: ProducerMessage) -> None:
        """Queues it. Raises ConfigError for what no message can have, IllegalState after close, and
        RequestTimedOut when nobody reads what became of the others; all else is told by `errors()`.
        """
        if self._closing is not None:
            raise IllegalState("this producer is closed; make a new one")
        await self._wait_for_readers()
        try:
            delivery = await _sent(self._producer, message)
        except (ConfigError, IllegalState):
            raise
        except KprotoError as error:
            self._failed(ProducerError(message, error))
        else:
            delivery.add_done_callback(lambda done: self._done(message, done))

    async def _wait_for_readers(self) -> None:
        limit_ms = self._producer.options.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for outlet in (self._successes, self._errors):
                    if outlet is not None:
                        await outlet.room(UNREAD)
        except TimeoutError:
            detail = f"{UNREAD} outcomes wait: read successes() and errors(), or don't have them returned"
            raise RequestTimedOut("input", limit_ms, detail) from None

    def successes(self) -> AsyncIterator[ProducerMessage]:
        """Messages that are there now; ends with the producer. Needs return_successes=True."""
        if self._successes is None:
            raise ConfigError("return_successes", False, "True, to read successes()")
        return aiter(self._successes)

    def errors(self) -> AsyncIterator[ProducerError]:
        """Messages that were not sent; ends with the producer."""
        if self._errors is None:
            raise ConfigError("return_errors", False, "True, to read errors()")
        self._reads_errors = True
        return aiter(self._errors)

    def _done(self, message: ProducerMessage, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._failed(ProducerError(message, error))
        elif self._successes is not None:
            self._successes.put(message.placed(delivery))

    def _failed(self, error: ProducerError) -> None:
        if self._errors is None:
            log.error("%s: %s", self._producer.options.client_id, error)
        else:
            self._errors.put(error)

    def async_close(self) -> None:
        """Takes nothing more, and returns at once; both iterators end when all is told."""
        self._closing = self._closing or asyncio.ensure_future(self._finish(None))

    async def close(self, timeout: float | None = None) -> None:
        """Waits for what was sent, at most `timeout` seconds, and ends. Raises ProducerErrors for messages
        that failed, where nobody has asked for `errors()`; RequestTimedOut where it is closing already, and
        needs longer than this."""
        timeout = limit(timeout)
        if self._closing is not None:
            if not (await asyncio.wait([self._closing], timeout=timeout))[0]:
                raise still_closing(timeout)
            return
        self._closing = asyncio.ensure_future(self._finish(timeout))
        await asyncio.shield(self._closing)
        if self._errors is not None and self._errors.kept and not self._reads_errors:
            raise ProducerErrors(self._errors.kept)

    async def _finish(self, timeout: float | None) -> None:
        try:
            await self._producer.close(timeout)
        except KprotoError:
            pass  # each message has told its own
        finally:
            await asyncio.sleep(0)  # their callbacks run in the loop
            for outlet in (self._successes, self._errors):
                if outlet is not None:
                    outlet.end()


async def _sent(producer: AsyncProducer, message: ProducerMessage) -> Delivery:
    return await producer.send(*parts(message))
