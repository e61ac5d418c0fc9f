"""sarama's two producers, for asyncio.

A SyncProducer waits for each message. A QueueProducer has an input queue and result queues.

    async with AsyncSyncProducer("localhost:9092") as producer:
        partition, offset = await producer.send_message(ProducerMessage(topic="flights", value=b"UA1545"))

    async with AsyncQueueProducer("localhost:9092", return_successes=True) as producer:
        await producer.input(ProducerMessage(topic="flights", value=b"UA1545", metadata=17))
        async for message in producer.successes(): ...       # in a task of its own
        async for error in producer.errors(): ...            # error.message, error.error

`SyncProducer` and `QueueProducer`, the classes for threads, are in `producers_threads`.

Rules, as in sarama's sync_producer.go and async_producer.go, except where a rule says otherwise:

* The defaults are the same as in `Producer`: idempotence, acks="all", and Java's partitioning of keys. By
  default, sarama's producer waits only for the leader, and hashes keys with FNV-1a.

* Each result is returned once: `successes` returns the delivered messages if return_successes is set, and
  `errors` returns the failed ones if return_errors is set. Errors that are not returned are logged.

* `input` waits while `MAX_UNREAD` results are unread, and raises RequestTimedOut after max_block_ms. sarama's
  producer would block forever.

* `close` waits for the queued messages and ends both iterators. If `errors` was never called, `close` raises
  the errors of the failed messages.
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
from ..other_clients import hide_secrets
from ..producer_options import ProducerConfig
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
    require_bytes,
    send_arguments,
    still_closing,
)


class AsyncSyncProducer(AsyncBlock):
    """Sends messages and waits for each result: `SyncProducer` for asyncio. Tasks may share it."""

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
        require_bytes(config)
        config.setdefault("linger_ms", 0)
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def send_message(self, message: ProducerMessage) -> tuple[int, int | None]:
        """Send a message, set its partition and offset, and return both.

        With acks=0 the returned offset is None. Raises the errors of `AsyncProducer.send` and of the
        delivery.
        """
        delivery = await _send_message(self._producer, message)
        await delivery
        message.set_place(delivery)
        assert message.partition is not None
        return message.partition, message.offset

    async def send_messages(self, messages: Iterable[ProducerMessage]) -> None:
        """Send all messages, and wait until each is delivered or has failed.

        Raises ProducerErrors for the messages that failed.
        """
        failures = MessageFailures()
        in_flight: list[tuple[ProducerMessage, Delivery]] = []
        for message in check_messages(messages):
            with failures.collect(message):
                in_flight.append((message, await _send_message(self._producer, message)))
        for message, delivery in in_flight:
            with failures.collect(message):
                await delivery
                message.set_place(delivery)
        failures.raise_errors()

    async def close(self, timeout: float | None = None) -> None:
        """Wait until messages that other tasks are sending are delivered or fail; close the producer."""
        await self._producer.close(timeout)


class AsyncQueueProducer(AsyncBlock):
    """Queues messages and reports their results later: `QueueProducer` for asyncio."""

    @hide_secrets
    def __init__(
        self,
        bootstrap_servers: str | Iterable[str],
        *,
        return_successes: bool = False,
        return_errors: bool = True,
        **config: Unpack[ProducerConfig],
    ) -> None:
        require_bytes(config)
        # The unread results; None if the producer does not return results of this kind.
        self._successes: Channel[ProducerMessage] | None = Channel(None) if return_successes else None
        self._errors: Channel[ProducerError] | None = Channel(None) if return_errors else None
        self._errors_requested = False
        self._close_task: asyncio.Task[None] | None = None
        self._producer = AsyncProducer(bootstrap_servers, **config)

    async def input(self, message: ProducerMessage) -> None:
        """Queue a message.

        Raises ConfigError if a field of the message has an invalid value, and IllegalState after `close`.
        Raises RequestTimedOut if too many results of earlier messages stay unread for `max_block_ms`. All
        other errors are returned by `errors()`.
        """
        if self._close_task is not None:
            raise IllegalState("this producer is closed; make a new one")
        await self._wait_for_room()
        try:
            delivery = await _send_message(self._producer, message)
        except (ConfigError, IllegalState):
            raise
        except KprotoError as error:
            self._report_error(ProducerError(message, error))
        else:
            delivery.add_done_callback(lambda completed: self._on_delivery(message, completed))

    async def _wait_for_room(self) -> None:
        """Wait until each channel holds fewer than `MAX_UNREAD` results.

        Raises RequestTimedOut after `max_block_ms`.
        """
        limit_ms = self._producer.options.max_block_ms
        try:
            async with asyncio.timeout(limit_ms / 1000):
                for channel in (self._successes, self._errors):
                    if channel is not None:
                        await channel.wait_for_room(MAX_UNREAD)
        except TimeoutError:
            detail = f"{MAX_UNREAD} results are unread: read them, or disable return_*"
            raise RequestTimedOut("input", limit_ms, detail) from None

    def successes(self) -> AsyncIterator[ProducerMessage]:
        """Return an iterator over the delivered messages.

        The iterator ends when the producer is closed. Requires return_successes=True.
        """
        if self._successes is None:
            raise ConfigError("return_successes", False, "set it to True to read successes()")
        return aiter(self._successes)

    def errors(self) -> AsyncIterator[ProducerError]:
        """Return an iterator over the messages that were not delivered.

        The iterator ends when the producer has closed.
        """
        if self._errors is None:
            raise ConfigError("return_errors", False, "set it to True to read errors()")
        self._errors_requested = True
        return aiter(self._errors)

    def _on_delivery(self, message: ProducerMessage, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._report_error(ProducerError(message, error))
        elif self._successes is not None:
            self._successes.put(message.set_place(delivery))

    def _report_error(self, error: ProducerError) -> None:
        """Queue an error for `errors()`, or log it if the producer does not return errors."""
        if self._errors is None:
            log.error("%s: %s", self._producer.options.client_id, error)
        else:
            self._errors.put(error)

    def async_close(self) -> None:
        """Accept no more messages, and return immediately.

        `successes()` and `errors()` end after the result of the last queued message.
        """
        self._close_task = self._close_task or asyncio.ensure_future(self._close_producer(None))

    async def close(self, timeout: float | None = None) -> None:
        """Deliver the queued messages, for at most `timeout` seconds, and close the producer.

        Raises ProducerErrors for failed messages, if neither `errors()` nor `async_close()` was called.
        Raises RequestTimedOut if an earlier `async_close` does not finish within `timeout`.
        """
        timeout = close_timeout(timeout)
        if self._close_task is not None:
            await asyncio.wait([self._close_task], timeout=timeout)
            if not self._close_task.done():
                raise still_closing(timeout)
            return
        self._close_task = asyncio.ensure_future(self._close_producer(timeout))
        await asyncio.shield(self._close_task)
        if self._errors is not None and self._errors.items and not self._errors_requested:
            raise ProducerErrors(self._errors.items)

    async def _close_producer(self, timeout: float | None) -> None:
        """Close the producer, and then both channels, so that their iterators end."""
        try:
            await self._producer.close(timeout)
        except KprotoError:
            pass  # Each failed message has already been reported with its error.
        finally:
            # Before the channels close, the pending delivery callbacks add the last results.
            await asyncio.sleep(0)
            for channel in (self._successes, self._errors):
                if channel is not None:
                    channel.close()


async def _send_message(producer: AsyncProducer, message: ProducerMessage) -> Delivery:
    return await producer.send(*send_arguments(message))
