"""Serializers and deserializers: the functions that convert keys and values to bytes and back.

    def as_text(topic, data, headers):
        return data.decode()

    def to_bytes(topic, value, headers):
        return value.encode()

    Consumer("localhost:9092", key_deserializer=as_text, value_deserializer=JsonDeserializer(Flight))
    Producer("localhost:9092", key_serializer=to_bytes, value_serializer=JsonSerializer())

Rules:

* A deserializer is a function of (topic, data, headers), or an object whose method `deserialize` is such a
  function.

* A serializer is a function of (topic, value, headers) that returns bytes or None, or an object whose method
  `serialize` is such a function.

* For the asyncio clients these functions may be coroutine functions.

* None is Kafka's null in both directions. No function is called for None, so a tombstone stays a tombstone.

* The thread or task that calls `poll` or `send` runs the functions, and holds no lock meanwhile. Neither the
  timeout of `poll` nor `max_block_ms` limits how long they run.

* A deserializer cannot call methods that change the state of its consumer. Such a call raises IllegalState.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, cast, overload

import msgspec

from kproto.errors import ConfigError

if TYPE_CHECKING:
    # Without serializers and deserializers, keys and values are bytes. Only type checkers see these defaults:
    # type variables in Python 3.11 have no defaults.
    from typing_extensions import TypeVar

    K = TypeVar("K", default=bytes)
    V = TypeVar("V", default=bytes)
    # The types of the keys and values that `send` accepts.
    SentK = TypeVar("SentK", default=bytes | bytearray | memoryview)
    SentV = TypeVar("SentV", default=bytes | bytearray | memoryview)
else:
    from typing import TypeVar

    K = TypeVar("K")
    V = TypeVar("V")
    SentK = TypeVar("SentK")
    SentV = TypeVar("SentV")

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)

RecordHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


class Deserializer(Protocol[T_co]):
    """An object that converts the bytes of a key or value to a Python object."""

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders, /) -> T_co:
        """Return the value that the bytes of a key or value represent."""
        ...


AnyDeserializer: TypeAlias = (
    Deserializer[T | Awaitable[T]] | Callable[[str, bytes, RecordHeaders], T | Awaitable[T]]
)


class Serializer(Protocol[T_contra]):
    """An object that converts a key or value to bytes."""

    def serialize(
        self, topic: str, value: T_contra, headers: RecordHeaders, /
    ) -> bytes | Awaitable[bytes | None] | None:
        """Return the bytes of a key or value, or None for Kafka's null."""
        ...


AnySerializer: TypeAlias = (
    Serializer[T] | Callable[[str, T, RecordHeaders], bytes | Awaitable[bytes | None] | None]
)


class PartitionSelector(Protocol):
    """An object that selects the partition of a record."""

    def partition(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
        /,
    ) -> int:
        """Return one of `partitions`; `available` are those that have a leader."""
        ...


AnyPartitioner: TypeAlias = (
    PartitionSelector | Callable[[str, bytes | None, bytes | None, Sequence[int], Sequence[int]], int]
)


class JsonDeserializer(Generic[T]):
    """Converts JSON to Python objects, or to objects of a given type.

    `JsonDeserializer()` returns dicts, lists, strings, numbers, booleans and None.

    `JsonDeserializer(Flight)` checks the JSON and returns a `Flight`: a dataclass, a TypedDict, a
    `msgspec.Struct` or another type that `msgspec` supports.
    """

    @overload
    def __init__(self: JsonDeserializer[Any]) -> None: ...
    @overload
    def __init__(self, type: type[T]) -> None: ...
    def __init__(self, type: Any = Any) -> None:
        self._decode = msgspec.json.Decoder(type).decode

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> T:
        """Return the object that the JSON represents. Raise a msgspec error if the JSON is invalid."""
        return cast("T", self._decode(data))


class JsonSerializer:
    """Converts Python objects to JSON in UTF-8.

    The serializer accepts dicts, lists, strings, numbers, booleans, dataclasses, `msgspec.Struct`, datetimes,
    UUIDs, enums, and the other types that `msgspec` supports. Other types raise TypeError.

    JSON has no NaN and no infinity, so `msgspec` writes them as null.
    """

    def __init__(self) -> None:
        self._encode = msgspec.json.Encoder().encode

    def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the value as JSON. Raise a msgspec error or TypeError if JSON cannot express the value."""
        return self._encode(value)


def function_of(
    name: str, value: Any, method: str, *, coroutines: bool, client: str
) -> Callable[..., Any] | None:
    """Return the function that an option such as `value_deserializer` sets; None if it is not set.

    If `coroutines` is false, a coroutine function raises ConfigError. The error says that `client` can await
    a coroutine, where `client` is for example "only an AsyncConsumer" or "no client".
    """
    if value is None:
        return None
    function: Callable[..., Any] = getattr(value, method, None) or value
    if not coroutines and (
        iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004
    ):
        raise ConfigError(name, value, f"set it to a plain function, because {client} can await a coroutine")
    return function


def close_coroutine(answer: object) -> None:
    """Close a coroutine that is not going to be awaited, so that Python does not warn about it."""
    if isinstance(answer, CoroutineType):
        answer.close()


def describe(error: BaseException) -> str:
    """Describe an exception of the application in one line, for an error message."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
