"""Serializers and deserializers: the functions that convert keys and values to bytes and back.

    def as_text(topic, data, headers):
        return data.decode()

    Consumer("localhost:9092", key_deserializer=as_text)

Rules:

* A deserializer is a function of (topic, data, headers), or an object with such a method `deserialize`. For
  an AsyncConsumer the function may be a coroutine.
* None is Kafka's null, and no function is called for it. So a tombstone stays a tombstone.
* A deserializer runs in the thread or task that calls `poll`, without a lock. The timeout of poll does not
  limit the time of a deserializer.
* A deserializer cannot call methods that change the state of its consumer: they raise IllegalState.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kproto.errors import ConfigError

if TYPE_CHECKING:
    # Without a deserializer, keys and values are bytes. Python 3.11 has no defaults of type variables.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


class Deserializer(Protocol[T_co]):
    """An object that converts bytes of a record to a value."""

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders, /) -> T_co:
        """Return the value that the bytes of a key or value represent."""
        ...


AnyDeserializer: TypeAlias = (
    Deserializer[T | Awaitable[T]] | Callable[[str, bytes, RecordHeaders], T | Awaitable[T]]
)


def function_of(
    name: str, value: Any, method: str, *, coroutines: bool, client: str
) -> Callable[..., Any] | None:
    """Return the function of an option such as `value_deserializer`; None if the option is not set.

    Raises ConfigError for a coroutine function if this client cannot await it. `client` names the client that
    can.
    """
    if value is None:
        return None
    function: Callable[..., Any] = getattr(value, method, None) or value
    if not coroutines and (
        iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    ):
        raise ConfigError(name, value, f"a plain function: only an {client} can await a coroutine")
    return function


def close_coroutine(answer: object) -> None:
    """Close a coroutine that is not going to be awaited, so that Python does not warn about it."""
    if isinstance(answer, CoroutineType):
        answer.close()


def describe(error: BaseException) -> str:
    """Return an exception of the application in one line, for an error message."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
