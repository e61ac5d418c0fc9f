"""The functions of the application that a producer calls in `send`.

A producer without such functions has no `SendHooks`, and its `send` does not look for them in the fast path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproto.errors import SerializationError, brief

from ..serializers import close_coroutine, describe, function_of
from ..validation import Headers
from .producer import ProducerOperations

_ASYNC_CLIENT = "AsyncProducer"


class SendHooks:
    """The serializers of one producer."""

    def __init__(
        self, key: Callable[..., Any] | None, value: Callable[..., Any] | None, *, awaits: bool
    ) -> None:
        self._key = key
        self._value = value
        self._awaits = awaits  # Whether a serializer may return an awaitable.

    async def serialize(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any]:
        """Return the key and the value as bytes or None. Raises SerializationError.

        Without a serializer the value is returned as it is.
        """
        if self._key is not None and key is not None:
            key = await self._serialized(self._key, "key", topic, key, headers)
        if self._value is not None and value is not None:
            value = await self._serialized(self._value, "value", topic, value, headers)
        return key, value

    async def _serialized(
        self, serializer: Callable[..., Any], part: str, topic: str, value: Any, headers: Headers
    ) -> bytes | bytearray | memoryview | None:
        try:
            data = serializer(topic, value, headers)
            if hasattr(data, "__await__"):
                if not self._awaits:
                    close_coroutine(data)
                    raise TypeError(
                        f"the serializer returned {data!r}, which only an {_ASYNC_CLIENT} can await"
                    )
                data = await data
        except Exception as failure:
            raise SerializationError(topic, part, describe(failure)) from failure
        if data is not None and not isinstance(data, bytes | bytearray | memoryview):
            detail = f"the serializer returned {brief(data)}, which is not bytes or None"
            raise SerializationError(topic, part, detail)
        return data


def send_hooks(operations: ProducerOperations) -> SendHooks | None:
    """Return the functions that a producer's options contain; None if there are none."""
    options, awaits = operations.options, operations.runtime.awaits_callbacks
    key, value = [
        function_of(name, option, "serialize", coroutines=awaits, client=_ASYNC_CLIENT)
        for name, option in (
            ("key_serializer", options.key_serializer),
            ("value_serializer", options.value_serializer),
        )
    ]
    return None if key is None and value is None else SendHooks(key, value, awaits=awaits)
