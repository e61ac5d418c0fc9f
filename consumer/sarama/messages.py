"""The messages of sarama's clients, and the errors of messages that were not delivered."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from kproto.errors import ConfigError, KprotoError, RequestTimedOut

from ..delivery import Delivery
from ..validation import Buffer, Headers, optional, seconds

# Maximum number of unread results. At this number, a producer accepts no further message.
MAX_UNREAD = 10_000


class ProducerMessage(msgspec.Struct, eq=False, kw_only=True):
    """A message to send.

    After the delivery, `partition`, `offset` and `timestamp` (ms) describe the record in the log. With acks=0
    the broker reports no offset, and `offset` stays None.

    A message with a `partition` is sent to that partition. `metadata` belongs to the application, and is not
    sent.
    """

    topic: str
    value: Buffer | None = None
    key: Buffer | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None
    metadata: Any = None
    offset: int | None = None

    def set_place(self, delivery: Delivery) -> ProducerMessage:
        """Set the message's partition, offset and timestamp from its delivery, and return the message.

        Wait for the delivery if a blocking producer has not ended it yet. The delivery of an asyncio producer
        must have ended before the call. Raises the error of a failed delivery.
        """
        record = delivery.result()
        self.partition, self.offset, self.timestamp = record.partition, record.offset, record.timestamp
        return self


class ProducerError(KprotoError):
    """The error of a message that was not delivered, with the message itself."""

    def __init__(self, message: ProducerMessage, error: BaseException) -> None:
        super().__init__(message, error)
        self.message = message
        self.error = error

    def __str__(self) -> str:
        return f"a message to {self.message.topic} was not sent: {self.error}"


class ProducerErrors(KprotoError):
    """The errors of several messages that were not delivered; `errors` has one ProducerError for each."""

    def __init__(self, errors: Iterable[ProducerError]) -> None:
        self.errors = list(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        return f"{len(self.errors)} messages were not sent; the first: {self.errors[0].error}"


def require_bytes(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for a serializer or deserializer, because sarama's messages contain bytes.

    If deserializers were allowed, a record that cannot be deserialized would stop its partition: sarama's
    classes have no seek that skips it.
    """
    for name in ("key_deserializer", "value_deserializer", "key_serializer", "value_serializer"):
        if config.get(name) is not None:
            allowed = "None: the messages of sarama's classes contain bytes; convert them in your own code"
            raise ConfigError(name, config[name], allowed)


def send_arguments(message: object) -> tuple[Any, ...]:
    """Return the message's fields as the arguments of `Producer.send`.

    Raises ConfigError if the message is not a ProducerMessage.
    """
    if not isinstance(message, ProducerMessage):
        raise ConfigError("message", message, "a ProducerMessage")
    return message.topic, message.value, message.key, message.partition, message.timestamp, message.headers


def check_messages(messages: object) -> list[ProducerMessage]:
    """Return the messages as a list. Raises ConfigError unless each is a ProducerMessage."""
    iterable: Any = messages
    if not isinstance(messages, Iterable) or isinstance(messages, str | bytes):
        raise ConfigError("messages", messages, "an iterable of ProducerMessage")
    checked = list(iterable)
    for message in checked:
        send_arguments(message)
    return checked


class MessageFailures:
    """Collects the errors of several messages, to raise them together."""

    def __init__(self) -> None:
        self._errors: list[ProducerError] = []

    @contextmanager
    def collect(self, message: ProducerMessage) -> Generator[None]:
        """Catch a KprotoError that the `with` block raises, and keep it as the error of `message`."""
        try:
            yield
        except KprotoError as error:
            self._errors.append(ProducerError(message, error))

    def raise_errors(self) -> None:
        """Raise ProducerErrors if errors were collected."""
        if self._errors:
            raise ProducerErrors(self._errors)


def close_timeout(timeout: float | None) -> float | None:
    """Check the timeout (s) of a `close`, and return it. None means the default of the producer's options."""
    return optional(seconds, "timeout", timeout)


def still_closing(timeout: float | None) -> RequestTimedOut:
    """Return the error of a `close` that timed out before an earlier `async_close` completed."""
    detail = "async_close() was called before, and not all sent messages are acknowledged yet"
    return RequestTimedOut("close", int((timeout or 0) * 1000), detail)


def check_returns(return_successes: bool, return_errors: bool) -> None:
    """Raise ConfigError unless return_successes and return_errors are True, as a SyncProducer requires."""
    for name, value in (("return_successes", return_successes), ("return_errors", return_errors)):
        if value is not True:
            raise ConfigError(
                name, value, "it must be True, because send_message() returns or raises each result"
            )
