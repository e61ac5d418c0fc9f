"""What sarama's producers send, and how they tell what became of it."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any

import msgspec

from kproto.errors import ConfigError, KprotoError, RequestTimedOut

from ..delivery import Delivery
from ..validation import Buffer, Headers, optional, seconds

UNREAD = 10_000
"""How many outcomes of a producer may wait for who reads them."""


class ProducerMessage(msgspec.Struct, eq=False, kw_only=True):
    """One message. `partition`, `offset` and `timestamp` (ms) say where it is once it was sent.

    A partition that is given is where it goes; `offset` stays None with acks=0, where nobody says. `metadata`
    is the application's own and isn't sent.
    """

    topic: str
    value: Buffer | None = None
    key: Buffer | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    metadata: Any = None
    offset: int | None = None

    def placed(self, delivery: Delivery) -> ProducerMessage:
        """Says where it is; the delivery has to have ended well."""
        where = delivery.result()
        self.partition, self.offset, self.timestamp = where.partition, where.offset, where.timestamp
        return self


class ProducerError(KprotoError):
    """A message that was not sent, and why."""

    def __init__(self, message: ProducerMessage, error: BaseException) -> None:
        super().__init__(message, error)
        self.message = message
        self.error = error

    def __str__(self) -> str:
        return f"a message to {self.message.topic} was not sent: {self.error}"


class ProducerErrors(KprotoError):
    """Several messages that were not sent: `errors` has each."""

    def __init__(self, errors: Iterable[ProducerError]) -> None:
        self.errors = list(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        return f"{len(self.errors)} messages were not sent; the first: {self.errors[0].error}"


def parts(message: object) -> tuple[Any, ...]:
    """A message as `Producer.send` takes it. Raises ConfigError for what is none."""
    if not isinstance(message, ProducerMessage):
        raise ConfigError("message", message, "a ProducerMessage")
    return message.topic, message.value, message.key, message.partition, message.timestamp, message.headers


def several(messages: object) -> list[ProducerMessage]:
    """The messages, none of which was sent yet. Raises ConfigError if one is none."""
    given: Any = messages
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise ConfigError("messages", messages, "several ProducerMessage")
    found = list(given)
    for one in found:
        parts(one)
    return found


class Failures:
    """Collects what went wrong with which of many messages."""

    def __init__(self) -> None:
        self._errors: list[ProducerError] = []

    @contextmanager
    def of(self, message: ProducerMessage) -> Generator[None]:
        """What fails inside is this message's, and the others go on."""
        try:
            yield
        except KprotoError as error:
            self._errors.append(ProducerError(message, error))

    def tell(self) -> None:
        """Raises ProducerErrors if there were any."""
        if self._errors:
            raise ProducerErrors(self._errors)


def limit(timeout: float | None) -> float | None:
    """How long closing may take, None for as long as the options say. Raises ConfigError."""
    return optional(seconds, "timeout", timeout)


def still_closing(timeout: float | None) -> RequestTimedOut:
    """What `close` says where an `async_close` before it is not over in time."""
    detail = "async_close() was called before, and what was sent is not acknowledged yet"
    return RequestTimedOut("close", int((timeout or 0) * 1000), detail)


def must_return(return_successes: bool, return_errors: bool) -> None:
    """A producer that waits for its messages needs both told. Raises ConfigError."""
    for name, value in (("return_successes", return_successes), ("return_errors", return_errors)):
        if value is not True:
            raise ConfigError(name, value, "True: send_message() waits for what becomes of a message")
