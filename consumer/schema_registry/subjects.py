"""What the serializers and deserializers of all schema formats share: subjects, and caches of schemas.

A registry keeps the versions of a schema under a name, the subject. By default, Confluent's
TopicNameStrategy determines the subject, for example ``flights-value``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from kproto.errors import ConfigError

from ..serializers import close_coroutine
from ..thread_calls import call_in_thread
from .registry import Schema

K = TypeVar("K")
V = TypeVar("V")

# A function of (topic, part, name of the record type) that returns a subject. `part` is "key" or "value".
SubjectNameStrategy: TypeAlias = Callable[[str, str, str], str]


def topic_name(topic: str, part: str, record: str) -> str:
    """Return the subject of Confluent's TopicNameStrategy, the default: the topic and the part."""
    return f"{topic}-{part}"


def record_name(topic: str, part: str, record: str) -> str:
    """Return the subject of Confluent's RecordNameStrategy: the full name of the record type."""
    return record


def topic_record_name(topic: str, part: str, record: str) -> str:
    """Return the subject of Confluent's TopicRecordNameStrategy: the topic and the record type."""
    return f"{topic}-{record}"


def subject_of(strategy: SubjectNameStrategy, topic: str, part: str, record: str) -> str:
    """Return the subject that a strategy selects. Raises ValueError if the strategy returns no subject name.

    The strategies `record_name` and `topic_record_name` also raise ValueError for a schema without a record
    name, such as a JSON Schema without `title`.
    """
    if not record and strategy in (record_name, topic_record_name):
        name = getattr(strategy, "__name__", "")
        raise ValueError(f"the schema has no record name, which the subject name strategy {name} requires")
    subject: Any = strategy(topic, part, record)
    if not isinstance(subject, str) or not subject:
        close_coroutine(subject)
        raise ValueError(f"the subject name strategy {strategy!r} returned {subject!r} instead of a subject")
    return subject


def checked_part(part: str) -> str:
    """Return the part of a record, "key" or "value". Raises ConfigError for another name."""
    if part not in ("key", "value"):
        raise ConfigError("part", part, 'allowed: "key", "value"')
    return part


def require_kind(schema: Schema, kind: str) -> Schema:
    """Return a registered schema. Raises ValueError if its type is not `kind`: AVRO, JSON or PROTOBUF."""
    if schema.kind != kind:
        raise ValueError(f"the registry has a schema of the type {schema.kind}, but {kind} is needed")
    return schema


class RequestedOnce(Generic[K, V]):
    """Caches the results of a function that requests schemas, one for each argument. Errors are not cached.

    Two threads that need the same schema at the same time may both request it. Tasks of an event loop share
    one request.
    """

    def __init__(self, request: Callable[[K], V]) -> None:
        self._request = request
        self._results: dict[K, V] = {}
        self._tasks: dict[K, asyncio.Task[V]] = {}

    def get(self, key: K) -> V:
        """Return the cached result for `key`, or request it. Raises the errors of the request."""
        if key not in self._results:
            self._results[key] = self._request(key)
        return self._results[key]

    async def get_async(self, key: K) -> V:
        """Return the result of `get`, which runs in a thread and does not block the event loop."""
        if key in self._results:
            return self._results[key]
        task, loop = self._tasks.get(key), asyncio.get_running_loop()
        if task is None or task.done() or task.get_loop() is not loop:
            task = loop.create_task(call_in_thread(lambda: self.get(key), "kproto-schema"))
            task.add_done_callback(lambda task: self._on_task_done(key, task))
            self._tasks[key] = task
        # The request continues for the other tasks if this task is cancelled.
        return await asyncio.shield(task)

    def _on_task_done(self, key: K, task: asyncio.Task[V]) -> None:
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if not task.cancelled():
            # If all waiting tasks were cancelled, asyncio would log this error as never retrieved.
            task.exception()
