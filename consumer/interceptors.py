"""Interceptors: objects that see, and may change, what a client sends and returns (KIP-42).

    class Audit(ProducerInterceptor):
        def on_send(self, record):
            return msgspec.structs.replace(record, headers=[*record.headers, ("via", b"billing")])

    Producer("localhost:9092", interceptors=[Audit()])

Rules:

* A failing interceptor does not affect the client. If a method raises an exception, or returns an object of
  the wrong type, such as a coroutine, an error is logged. The client continues as if the interceptor did not
  exist.

* Interceptors run in the order of the list. Each receives the result of the interceptor before it.

* `send_columns` and `poll_columns` call no interceptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from .logs import log
from .serializers import close_coroutine

if TYPE_CHECKING:
    from .delivery import RecordMetadata
    from .engine.requests import CommittedOffset
    from .records import ConsumerRecord

T = TypeVar("T")


class ProducerRecord(msgspec.Struct, frozen=True):
    """A record that was passed to `send`, before its key and value are serialized.

    `partition` is None if the partitioner selects it. `timestamp` is in ms since 1970.
    """

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp: int
    headers: Sequence[tuple[str, bytes | None]]


class ProducerInterceptor:
    """Receives the records of a producer (Java's ProducerInterceptor). Override the methods that you need."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send.

        The method runs in the thread or task that calls `send`, before the serializers.
        """
        return record

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        """Handle the result of a delivery: where the record was written, or the error.

        The method runs where delivery callbacks run: in their own thread, or in the event loop. It also
        receives the error of a failed or cancelled `send`, in the thread or task that called `send`.
        """


class ConsumerInterceptor:
    """Receives the records and commits of a consumer (Java's ConsumerInterceptor).

    Override the methods that you need.
    """

    def on_consume(self, records: list[ConsumerRecord[Any, Any]]) -> list[ConsumerRecord[Any, Any]]:
        """Return the records that `poll()` is to return. The method runs inside `poll()`, after the
        deserializers.

        A record that is not in the result is not returned to the application, and counts as processed. Calls
        in this method that change the state of the consumer raise IllegalState.
        """
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Handle a successful commit, whether explicit or automatic.

        The method runs in the application's thread or task, inside the next poll, commit, unsubscribe or
        close.
        """


def call_interceptor(
    interceptor: object,
    method: str,
    subject: str,
    default: T,
    *arguments: Any,
    check: Callable[[Any], T],
) -> T:
    """Call a method of an interceptor, pass its result to `check`, and return what `check` returns.

    If the method raises an exception or its result is invalid, log an error and return `default`. `subject`
    describes the records or the commit in the log message.
    """
    name = f"{type(interceptor).__qualname__}.{method}()"
    try:
        result: Any = getattr(interceptor, method)(*arguments)
        if hasattr(result, "__await__"):
            close_coroutine(result)
            raise TypeError("it returned a coroutine, but interceptors cannot be async functions")
        return check(result)
    except Exception:
        log.exception("the interceptor %s failed for %s, and is ignored", name, subject)
        return default


def nothing(answer: object) -> None:
    """Accept any result. This is the `check` for methods whose result is not used."""


def interceptors(name: str, value: Any, base: type, methods: tuple[str, ...]) -> tuple[Any, ...]:
    """Check that interceptors are instances of `base` without coroutine methods; return them as a tuple."""
    allowed = f"a list of objects whose classes extend consumer.interceptors.{base.__name__}"
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        raise ConfigError(name, value, allowed)
    listed = tuple(value)
    for interceptor in listed:
        if not isinstance(interceptor, base):
            raise ConfigError(name, interceptor, allowed)
        for method in methods:
            if iscoroutinefunction(getattr(interceptor, method)):
                raise ConfigError(name, interceptor, f"plain methods: {method}() cannot be a coroutine")
    return listed
