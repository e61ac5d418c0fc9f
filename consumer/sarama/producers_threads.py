"""sarama's two producers, for threads; the docstring of `producers` has the rules.

with SyncProducer("localhost:9092") as producer:
    partition, offset = producer.send_message(ProducerMessage(topic="flights", value=b"UA1545"))

with QueueProducer("localhost:9092", return_successes=True) as producer:
    producer.input(ProducerMessage(topic="flights", value=b"UA1545", metadata=17))
    for message in producer.successes(): ...       # in its own thread
    for error in producer.errors(): ...            # error.message, error.error
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Unpack

from kproto.errors import ConfigError, IllegalState, KprotoError, RequestTimedOut

from ..blocking.producer import Producer
from ..context_managers import Block
from ..delivery import Delivery
from ..logs import log
from ..other_clients import hide_secrets
from ..producer_options import ProducerConfig
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


class SyncProducer(Block):
    """Sends messages and waits for the result of each: sarama's SyncProducer, for threads.

    Takes the options of `Producer`, but linger_ms is 0 by default.

    Several threads may use one producer.
    """

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
        self._producer = Producer(bootstrap_servers, **config)

    def send_message(self, message: ProducerMessage) -> tuple[int, int | None]:
        """Send a message, set its partition and offset, and return both.

        With acks=0 the returned offset is None. Raises the errors of `Producer.send` and of the delivery.
        """
        delivery = _send_message(self._producer, message)
        message.set_place(delivery)
        assert message.partition is not None
        return message.partition, message.offset

    def send_messages(self, messages: Iterable[ProducerMessage]) -> None:
        """Send all messages, and wait until each is delivered or has failed.

        Raises ProducerErrors for the messages that failed.
        """
        failures = MessageFailures()
        in_flight: list[tuple[ProducerMessage, Delivery]] = []
        for message in check_messages(messages):
            with failures.collect(message):
                in_flight.append((message, _send_message(self._producer, message)))
        for message, delivery in in_flight:
            with failures.collect(message):
                message.set_place(delivery)
        failures.raise_errors()

    def close(self, timeout: float | None = None) -> None:
        """Wait until the messages of other threads have been delivered or have failed. Close the producer."""
        self._producer.close(timeout)


class QueueProducer(Block):
    """Queues messages and reports their results later: sarama's AsyncProducer, for threads.

    `config` contains options of `Producer`. Several threads may use one producer.
    """

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
        self._successes: deque[ProducerMessage] | None = deque() if return_successes else None
        self._errors: deque[ProducerError] | None = deque() if return_errors else None
        # Notified when a result is added or removed, and when the producer has closed.
        self._changed = threading.Condition()
        self._errors_requested = False
        self._closing = False
        self._ended = False
        self._producer = Producer(bootstrap_servers, **config)

    def input(self, message: ProducerMessage) -> None:
        """Queue a message.

        Raises ConfigError if a field of the message has an invalid value, and IllegalState after `close`.
        Raises RequestTimedOut if too many results of earlier messages stay unread for `max_block_ms`. All
        other errors are returned by `errors()`.
        """
        self._wait_for_room()
        try:
            delivery = _send_message(self._producer, message)
        except (ConfigError, IllegalState):
            raise
        except KprotoError as error:
            self._report_error(ProducerError(message, error))
        else:
            delivery.add_done_callback(lambda completed: self._on_delivery(message, completed))

    def _wait_for_room(self) -> None:
        """Wait until neither queue holds `MAX_UNREAD` results.

        Raises IllegalState if the producer is closed, and RequestTimedOut after `max_block_ms`.
        """
        limit_ms = self._producer.options.max_block_ms
        with self._changed:
            if self._closing:
                raise IllegalState("this producer is closed; make a new one")
            if not self._changed.wait_for(self._has_room, limit_ms / 1000):
                detail = f"{MAX_UNREAD} results are unread: read them, or disable return_*"
                raise RequestTimedOut("input", limit_ms, detail)

    def _has_room(self) -> bool:
        return all(
            results is None or len(results) < MAX_UNREAD for results in (self._successes, self._errors)
        )

    def successes(self) -> Iterator[ProducerMessage]:
        """Return an iterator over the delivered messages.

        The iterator ends when the producer is closed. Requires return_successes=True.
        """
        if self._successes is None:
            raise ConfigError("return_successes", False, "set it to True to read successes()")
        return self._iterate_results(self._successes)

    def errors(self) -> Iterator[ProducerError]:
        """Return an iterator over the messages that were not delivered.

        The iterator ends when the producer has closed.
        """
        if self._errors is None:
            raise ConfigError("return_errors", False, "set it to True to read errors()")
        self._errors_requested = True
        return self._iterate_results(self._errors)

    def _iterate_results(self, results: deque[Any]) -> Iterator[Any]:
        """Remove and yield the results of a queue, until the queue is empty and the producer has closed."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: results or self._ended)
                if not results:
                    return
                item = results.popleft()
                self._changed.notify_all()
            yield item

    def _on_delivery(self, message: ProducerMessage, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._report_error(ProducerError(message, error))
        elif self._successes is not None:
            with self._changed:
                self._successes.append(message.set_place(delivery))
                self._changed.notify_all()

    def _report_error(self, error: ProducerError) -> None:
        """Queue an error for `errors()`, or log it if the producer does not return errors."""
        if self._errors is None:
            log.error("%s: %s", self._producer.options.client_id, error)
            return
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def async_close(self) -> None:
        """Accept no more messages, and return immediately.

        `successes()` and `errors()` end after the result of the last queued message.

        A new thread waits for the results of the queued messages. If the system cannot start a thread, this
        method waits for them.
        """
        if self._start_closing():
            try:
                threading.Thread(target=self._close_producer, name="kproto-close").start()
            # The system cannot start another thread.
            except RuntimeError:
                self._close_producer()

    def close(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for the queued messages, and close the producer.

        Raises ProducerErrors for failed messages, if neither `errors()` nor `async_close()` was called.
        Raises RequestTimedOut if an earlier `async_close` does not finish within `timeout`.
        """
        timeout = close_timeout(timeout)
        if self._start_closing():
            self._close_producer(timeout)
            if self._errors and not self._errors_requested:
                raise ProducerErrors(self._errors)
            return
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended, timeout):
                raise still_closing(timeout)

    def _start_closing(self) -> bool:
        """Stop accepting messages. Return False if an earlier call is already closing the producer."""
        with self._changed:
            is_first_call, self._closing = not self._closing, True
        return is_first_call

    def _close_producer(self, timeout: float | None = None) -> None:
        """Close the producer, and end the iterators over its results."""
        try:
            self._producer.close(timeout)
        except KprotoError:
            pass  # Each failed message has already been reported with its error.
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


def _send_message(producer: Producer, message: ProducerMessage) -> Delivery:
    return producer.send(*send_arguments(message))
