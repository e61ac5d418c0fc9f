"""Applies the deserializers of a consumer to the records that a poll returns.

Rules:

* If a deserializer fails, the failed record and all later records of its partition are given back to the
  engine. The poll returns the other records, and a later poll raises the error.

* After a BaseException, such as Ctrl-C or CancelledError, the engine takes back all records of the poll, and
  the exception is raised.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kproto.errors import DeserializationError
from kproto.group.subscription import TopicPartition

from ..consumer_options import ConsumerOptions
from ..records import ConsumerRecord
from ..serializers import close_coroutine, describe, function_of

_ASYNC_CLIENT = "AsyncConsumer"


class RecordDeserializer:
    """The deserializers of one consumer."""

    def __init__(
        self, key: Callable[..., Any] | None, value: Callable[..., Any] | None, *, awaits: bool
    ) -> None:
        self._key = key
        self._value = value
        self._awaits = awaits  # Whether a deserializer may return an awaitable.

    async def convert(
        self, records: list[ConsumerRecord[Any, Any]]
    ) -> tuple[list[ConsumerRecord[Any, Any]], dict[TopicPartition, DeserializationError]]:
        """Convert keys and values in place. Return the converted records, and the errors by partition.

        If a deserializer fails for a record, its error is returned. The failed record and the later ones of
        its partition are left out.
        """
        converted: list[ConsumerRecord[Any, Any]] = []
        errors: dict[TopicPartition, DeserializationError] = {}
        for record in records:
            if errors and record.topic_partition in errors:
                continue
            key, value = record.key, record.value
            part = "key"
            try:
                if self._key is not None and key is not None:
                    record.key = self._key(record.topic, key, record.headers)
                    if hasattr(record.key, "__await__"):
                        record.key = await self._await_result(record.key)
                part = "value"
                if self._value is not None and value is not None:
                    record.value = self._value(record.topic, value, record.headers)
                    if hasattr(record.value, "__await__"):
                        record.value = await self._await_result(record.value)
            except Exception as failure:
                # `record.key` may have been replaced already. The error contains the bytes that were read.
                errors[record.topic_partition] = _error_of_record(record, part, key, value, failure)
            else:
                converted.append(record)
        return converted, errors

    async def _await_result(self, awaitable: Any) -> Any:
        """Return the result of an awaitable that a deserializer returned."""
        if not self._awaits:
            close_coroutine(awaitable)
            raise TypeError(
                f"the deserializer returned {awaitable!r}, which only an {_ASYNC_CLIENT} can await"
            )
        return await awaitable


def _error_of_record(
    record: ConsumerRecord[Any, Any], part: str, key: Any, value: Any, failure: Exception
) -> DeserializationError:
    """Return the error for a record whose `part`, "key" or "value", could not be deserialized."""
    error = DeserializationError(record.topic, record.partition, record.offset, part, describe(failure))
    error.key, error.value = key, value
    error.headers, error.timestamp = record.headers, record.timestamp
    error.__cause__ = failure
    return error


def record_deserializer(options: ConsumerOptions, *, awaits: bool) -> RecordDeserializer | None:
    """Return the deserializers that a consumer's options contain; None if there are none."""
    key, value = [
        function_of(name, option, "deserialize", coroutines=awaits, client=f"only an {_ASYNC_CLIENT}")
        for name, option in (
            ("key_deserializer", options.key_deserializer),
            ("value_deserializer", options.value_deserializer),
        )
    ]
    return None if key is None and value is None else RecordDeserializer(key, value, awaits=awaits)
