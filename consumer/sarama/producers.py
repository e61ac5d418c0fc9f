"""sarama's two producers, for asyncio: SyncProducer waits for each message, QueueProducer has an input queue
and result queues.

    async with AsyncSyncProducer("localhost:9092") as producer:
        partition, offset = await producer.send_message(ProducerMessage(topic="flights", value=b"UA1545"))

    async with AsyncQueueProducer("localhost:9092", return_successes=True) as producer:
        await producer.input(ProducerMessage(topic="flights", value=b"UA1545", metadata=17))
        async for message in producer.successes(): ...       # in a task of its own
        async for error in producer.errors(): ...            # error.message, error.error

`SyncProducer` and `QueueProducer`, for threads, are in `producers_threads`.

Rules (those of sarama's sync_producer.go and async_producer.go, unless another rule is stated):

* The engine is that of `Producer`: idempotent and acks="all" by default, and keys are partitioned as in
  Java. sarama's default waits for the leader only, and hashes keys with FNV-1a.
* Each message ends once: in `successes` or in `errors`, if these are returned. Errors that are not returned
  are logged.
* `input` waits while `MAX_UNREAD` outcomes are not read, for at most max_block_ms: then it raises
  RequestTimedOut. sarama's whole producer blocks for ever.
* `close` waits for what was sent, ends both iterators, and raises the errors that were not read.
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
from .channel import Channel
from .messages import (
    MAX_UNREAD,
    MessageFailures,
    ProducerError,
    ProducerErrors,
    ProducerMessage,
    check_messages,
    check_returns,
    close_timeout,
    send_arguments,
    still_closing,
)


class AsyncSyncProducer(AsyncBlock):
    """The asyncio twin of `SyncProducer`: sends messages and waits for them. Several tasks may use it."""

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        return_successes: bool = True,
        return_errors: bool = True,
        **config: Unpack[ProducerConfig],
    ) -> None:
        check_returns(return_successes, return_errors)
        config.setdefault("linger_ms", 0)
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def send_message(self, message: ProducerMessage) -> tuple[int, int | None]:
        """Send a message, and return its partition and offset; they are also set in the message.

        With acks=0 the offset is None. Raises the errors of `AsyncProducer.send`, and the error of the
        delivery.
        """
        delivery = await _send(self._producer, message)
        await delivery
        message.set_place(delivery)
        assert message.partition is not None
        return message.partition, message.offset

    async def send_messages(self, messages: Iterable[ProducerMessage]) -> None:
        """Send all messages, and wait for them. Raises ProducerErrors for those that failed."""
        failures = MessageFailures()
        in_flight: list[tuple[ProducerMessage, Delivery]] = []
        for message in check_messages(messages):
            with failures.collect(message):
                in_flight.append((message, await _send(self._producer, message)))
        for message, delivery in in_flight:
            with failures.collect(message):
                await delivery
                message.set_place(delivery)
        failures.raise_errors()

    async def close(self, timeout: float | None = None) -> None:
        """Wait for the messages that other tasks are sending, and close."""
        await self._producer.close(timeout)


class AsyncQueueProducer(AsyncBlock):
    """The asyncio twin of `QueueProducer`: queues messages and reports their outcomes later."""

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        return_successes: bool = False,
        return_errors: bool = True,
        **config: Unpack[ProducerConfig],
    ) -> None:
        self._successes: Channel[ProducerMessage] | None = Channel(None) if return_successes else None
        self._errors: Channel[ProducerError] | None = Channel(None) if return_errors else None
        self._errors_requested = False
        self._closing: asyncio.Task[None] | None = None
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def input(self, message: ProducerMessage) -> None:
        """Queue a message.

        Raises ConfigError for values that no message can have, IllegalState after close, and RequestTimedOut
        if the results of other messages are not read. Other errors are returned by `errors()`.
        """
        if self._closing is not None:
            raise IllegalState("this producer is closed; make a new one")
        await self._wait_for_room()
        try:
            delivery = await _send(self._producer, message)
        except (ConfigError, IllegalState):
            raise
        except KprotoError as error:
            self._report(ProducerError(message, error))
        else:
            delivery.add_done_callback(lambda done: self._on_delivery(message, done))

    async def _wait_for_room(self) -> None:
        limit_ms = self._producer.options.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for channel in (self._successes, self._errors):
                    if channel is not None:
                        await channel.wait_for_room(MAX_UNREAD)
        except TimeoutError:
            detail = f"{MAX_UNREAD} outcomes wait: read successes() and errors(), or don't have them returned"
            raise RequestTimedOut("input", limit_ms, detail) from None

    def successes(self) -> AsyncIterator[ProducerMessage]:
        """Return an iterator over the delivered messages. It ends with the producer. Needs
        return_successes=True.
        """
        if self._successes is None:
            raise ConfigError("return_successes", False, "True, to read successes()")
        return aiter(self._successes)

    def errors(self) -> AsyncIterator[ProducerError]:
        """Return an iterator over the messages that were not delivered. It ends with the producer."""
        if self._errors is None:
            raise ConfigError("return_errors", False, "True, to read errors()")
        self._errors_requested = True
        return aiter(self._errors)

    def _on_delivery(self, message: ProducerMessage, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._report(ProducerError(message, error))
        elif self._successes is not None:
            self._successes.put(message.set_place(delivery))

    def _report(self, error: ProducerError) -> None:
        if self._errors is None:
            log.error("%s: %s", self._producer.options.client_id, error)
        else:
            self._errors.put(error)

    def async_close(self) -> None:
        """Accept no more messages, and return immediately. Both iterators end after the last result."""
        self._closing = self._closing or asyncio.ensure_future(self._finish(None))

    async def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for the messages that were sent, and close.

        Raises ProducerErrors for messages that failed, if `errors()` was not called. Raises RequestTimedOut
        if an earlier `async_close` needs longer than this.
        """
        timeout = close_timeout(timeout)
        if self._closing is not None:
            if not (await asyncio.wait([self._closing], timeout=timeout))[0]:
                raise still_closing(timeout)
            return
        self._closing = asyncio.ensure_future(self._finish(timeout))
        await asyncio.shield(self._closing)
        if self._errors is not None and self._errors.items and not self._errors_requested:
            raise ProducerErrors(self._errors.items)

    async def _finish(self, timeout: float | None) -> None:
        try:
            await self._producer.close(timeout)
        except KprotoError:
            pass  # Each message has reported its own error.
        finally:
            await asyncio.sleep(0)  # The callbacks of the deliveries run in the loop.
            for channel in (self._successes, self._errors):
                if channel is not None:
                    channel.close()


async def _send(producer: AsyncProducer, message: ProducerMessage) -> Delivery:
    return await producer.send(*send_arguments(message))
