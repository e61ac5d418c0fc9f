"""sarama's two producers, for threads; `producers` says what holds.

with SyncProducer("localhost:9092") as producer:
    partition, offset = producer.send_message(ProducerMessage(topic="flights", value=b"UA1545"))

with QueueProducer("localhost:9092", return_successes=True) as producer:
    producer.input(ProducerMessage(topic="flights", value=b"UA1545", metadata=17))
    for message in producer.successes(): ...       # in a thread of its own
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
from ..options import ProducerConfig
from ..other_clients import hide_secrets
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


class SyncProducer(Block):
    """Sends messages and waits for them, for threads. Options are those of `Producer`; nothing lingers.

    May be used by several threads.
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
        must_return(return_successes, return_errors)
        config.setdefault("linger_ms", 0)
        self._producer = Producer(bootstrap_servers, **config)

    def send_message(self, message: ProducerMessage) -> tuple[int, int | None]:
        """Its partition and offset, which are also in the message then. With acks=0 the offset is None.

        Raises what `Producer.send` raises, and what went wrong on the way.
        """
        delivery = _sent(self._producer, message)
        message.placed(delivery)
        assert message.partition is not None
        return message.partition, message.offset

    def send_messages(self, messages: Iterable[ProducerMessage]) -> None:
        """Sends all, and waits for all. Raises ProducerErrors for those that failed; the others are there."""
        failures = Failures()
        under_way: list[tuple[ProducerMessage, Delivery]] = []
        for message in several(messages):
            with failures.of(message):
                under_way.append((message, _sent(self._producer, message)))
        for message, delivery in under_way:
            with failures.of(message):
                message.placed(delivery)
        failures.tell()

    def close(self, timeout: float | None = None) -> None:
        """Waits for what other threads have under way, and ends."""
        self._producer.close(timeout)


class QueueProducer(Block):
    """Takes messages and tells later what became of them, for threads: sarama's AsyncProducer.

    Options are those of `Producer`. May be used by several threads.
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
        self._successes: deque[ProducerMessage] | None = deque() if return_successes else None
        self._errors: deque[ProducerError] | None = deque() if return_errors else None
        self._changed = threading.Condition()
        self._reads_errors = False
        self._closing = False
        self._ended = False
        self._producer = Producer(bootstrap_servers, **config)

    def input(self, message: ProducerMessage) -> None:
        """Queues it. Raises ConfigError for what no message can have, IllegalState after close, and
        RequestTimedOut when nobody reads what became of the others; all else is told by `errors()`.
        """
        self._wait_for_readers()
        try:
            delivery = _sent(self._producer, message)
        except (ConfigError, IllegalState):
            raise
        except KprotoError as error:
            self._failed(ProducerError(message, error))
        else:
            delivery.add_done_callback(lambda done: self._done(message, done))

    def _wait_for_readers(self) -> None:
        limit_ms = self._producer.options.max_block_ms
        with self._changed:
            if self._closing:
                raise IllegalState("this producer is closed; make a new one")
            if not self._changed.wait_for(self._has_room, limit_ms / 1000):
                detail = f"{UNREAD} outcomes wait: read successes() and errors(), or don't have them returned"
                raise RequestTimedOut("input", limit_ms, detail)

    def _has_room(self) -> bool:
        return all(waiting is None or len(waiting) < UNREAD for waiting in (self._successes, self._errors))

    def successes(self) -> Iterator[ProducerMessage]:
        """Messages that are there now; ends with the producer. Needs return_successes=True."""
        if self._successes is None:
            raise ConfigError("return_successes", False, "True, to read successes()")
        return self._drained(self._successes)

    def errors(self) -> Iterator[ProducerError]:
        """Messages that were not sent; ends with the producer."""
        if self._errors is None:
            raise ConfigError("return_errors", False, "True, to read errors()")
        self._reads_errors = True
        return self._drained(self._errors)

    def _drained(self, waiting: deque[Any]) -> Iterator[Any]:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: waiting or self._ended)
                if not waiting:
                    return
                item = waiting.popleft()
                self._changed.notify_all()
            yield item

    def _done(self, message: ProducerMessage, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            self._failed(ProducerError(message, error))
        elif self._successes is not None:
            with self._changed:
                self._successes.append(message.placed(delivery))
                self._changed.notify_all()

    def _failed(self, error: ProducerError) -> None:
        if self._errors is None:
            log.error("%s: %s", self._producer.options.client_id, error)
            return
        with self._changed:
            self._errors.append(error)
            self._changed.notify_all()

    def async_close(self) -> None:
        """Takes nothing more, and returns at once; both iterators end when all is told. Where the system
        has no thread for that, it returns only then.
        """
        if self._begins_to_close():
            try:
                threading.Thread(target=self._finish, name="kproto-close").start()
            except RuntimeError:  # no thread can be had; who waits for the end shall not do so for ever
                self._finish()

    def close(self, timeout: float | None = None) -> None:
        """Waits for what was sent, at most `timeout` seconds, and ends. Raises ProducerErrors for messages
        that failed, where nobody has asked for `errors()`; RequestTimedOut where it is closing already, and
        needs longer than this."""
        timeout = limit(timeout)
        if self._begins_to_close():
            self._finish(timeout)
            if self._errors and not self._reads_errors:
                raise ProducerErrors(self._errors)
            return
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended, timeout):
                raise still_closing(timeout)

    def _begins_to_close(self) -> bool:
        with self._changed:
            first, self._closing = not self._closing, True
        return first

    def _finish(self, timeout: float | None = None) -> None:
        try:
            self._producer.close(timeout)
        except KprotoError:
            pass  # each message has told its own
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()


def _sent(producer: Producer, message: ProducerMessage) -> Delivery:
    return producer.send(*parts(message))
