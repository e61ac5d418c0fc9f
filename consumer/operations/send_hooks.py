"""The functions of the application that a producer calls in `send`.

These functions are serializers, a partitioner and interceptors. A producer without any of them has no
`SendHooks`, and its fast `send` does not check for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from kproto.errors import PartitionerError, SerializationError, brief

from ..clock import now
from ..delivery import Delivery, RecordMetadata
from ..engine.producer.batches import TopicRoute
from ..interceptors import ProducerRecord, call_interceptor, nothing
from ..serializers import close_coroutine, describe, function_of
from ..validation import Headers, header_pairs, partition_index, record_bytes, timestamp_ms, topic_name
from .producer import ProducerOperations

_ASYNC_CLIENT = "AsyncProducer"
# The types that a serializer may return, in addition to None.
_BYTES_TYPES: tuple[type, ...] = (bytes, bytearray, memoryview)
# The maximum number of topics whose lists of partitions are cached for later calls of the partitioner.
_MAX_CACHED_TOPICS = 1_000


class SendHooks:
    """The interceptors, the serializers and the partitioner of one producer."""

    def __init__(
        self,
        operations: ProducerOperations,
        key_serializer: Callable[..., Any] | None,
        value_serializer: Callable[..., Any] | None,
        partitioner: Callable[..., Any] | None,
    ) -> None:
        self._operations = operations
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._partitioner = partitioner
        self._interceptors = operations.options.interceptors
        # Whether a serializer may return an awaitable.
        self._may_await = operations.runtime.awaits_callbacks
        # Topic -> (its route, all its partitions, its partitions with a leader), for later calls of the
        # partitioner.
        self._partition_lists: dict[str, tuple[TopicRoute, range, list[int]]] = {}

    async def send(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int, headers: Headers
    ) -> Delivery:
        """Send a record: call the interceptors, the serializers and the partitioner, then queue the record.

        Raises SerializationError, PartitionerError, and the errors of queueing the record.
        """
        if not self._interceptors:
            return await self._serialize_and_append(topic, value, key, partition, timestamp, headers)
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        for interceptor in self._interceptors:
            subject = f"a record for topic {record.topic!r}"
            record = call_interceptor(interceptor, "on_send", subject, record, record, check=_check_record)
        try:
            delivery = await self._serialize_and_append(
                record.topic, record.value, record.key, record.partition, record.timestamp, record.headers
            )
        except BaseException as error:  # Including the cancellation of the task.
            self._call_on_acknowledgement(record.topic, None, error)
            raise
        self._operations.runtime.add_observer(delivery, self._on_delivery_ended)
        return delivery

    def _on_delivery_ended(self, delivery: Delivery) -> None:
        partition, metadata, error = delivery.outcome()
        self._call_on_acknowledgement(str(partition), metadata, error)

    def _call_on_acknowledgement(
        self, topic_or_partition: str, metadata: RecordMetadata | None, error: BaseException | None
    ) -> None:
        """Call `on_acknowledgement` of each interceptor. After a failed `send`, only the topic is known."""
        for interceptor in self._interceptors:
            call_interceptor(
                interceptor,
                "on_acknowledgement",
                f"a record for {topic_or_partition}",
                None,
                metadata,
                error,
                check=nothing,
            )

    async def _serialize_and_append(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int, headers: Headers
    ) -> Delivery:
        operations = self._operations
        runtime, records = operations.runtime, operations.runtime.records
        key, value = await self._serialize(topic, key, value, headers)
        key, value = record_bytes("key", key), record_bytes("value", value)
        waited_ms = 0
        if self._partitioner is not None and partition is None:
            route, waited_ms = await self._wait_for_route(topic)
            partition = self._select_partition(self._partitioner, topic, route, key, value)
        append = partial(records.append, topic, key, value, partition, timestamp, headers)
        delivery = append()
        if records.sender_notified:
            records.sender_notified = False
            runtime.wake()
        if delivery is None:
            runtime.check_call(waits=True)
            delivery = await operations.retry_until_ready(append, waited_ms)
        return delivery

    async def _wait_for_route(self, topic: str) -> tuple[TopicRoute, int]:
        """Return the topic's partitions, and how long (in ms) the call has waited for them."""
        operations = self._operations
        route = operations.runtime.records.route_of(topic_name(topic))
        if route is not None:
            return route, 0
        operations.runtime.check_call(waits=True)
        began_at = now()
        route = await operations.retry_until_ready(partial(operations.runtime.records.route_of, topic))
        return route, now() - began_at

    def _select_partition(
        self,
        partitioner: Callable[..., Any],
        topic: str,
        route: TopicRoute,
        key: bytes | None,
        value: bytes | None,
    ) -> int:
        """Return the partition that the partitioner selects."""
        cached = self._partition_lists.get(topic)
        if cached is None or cached[0] is not route:
            available = [queue.partition.partition for queue in route.with_leader]
            if len(self._partition_lists) >= _MAX_CACHED_TOPICS:
                self._partition_lists.clear()
            cached = self._partition_lists[topic] = route, range(len(route.queues)), available
        _, partitions, available = cached
        try:
            partition = partitioner(topic, key, value, partitions, available)
        except Exception as failure:
            raise PartitionerError(topic, describe(failure)) from failure
        if type(partition) is not int or partition not in partitions:
            close_coroutine(partition)
            detail = (
                f"it returned {brief(partition)}; the topic has the partitions 0 to {len(partitions) - 1}"
            )
            raise PartitionerError(topic, detail)
        return partition

    async def _serialize(self, topic: str, key: Any, value: Any, headers: Headers) -> tuple[Any, Any]:
        """Return the serialized key and value. Raises SerializationError if a serializer fails.

        A key or value that is None, or that has no serializer, is returned unchanged.
        """
        if self._key_serializer is not None and key is not None:
            key = await self._call_serializer(self._key_serializer, "key", topic, key, headers)
        if self._value_serializer is not None and value is not None:
            value = await self._call_serializer(self._value_serializer, "value", topic, value, headers)
        return key, value

    async def _call_serializer(
        self, serializer: Callable[..., Any], part: str, topic: str, value: Any, headers: Headers
    ) -> Any:
        """Return the serializer's result, awaited if necessary. Raises SerializationError if it fails."""
        try:
            data = serializer(topic, value, headers)
            if hasattr(data, "__await__"):
                if not self._may_await:
                    close_coroutine(data)
                    raise TypeError(
                        f"the serializer returned {data!r}, which only an {_ASYNC_CLIENT} can await"
                    )
                data = await data
        except Exception as failure:
            raise SerializationError(topic, part, describe(failure)) from failure
        if data is not None and not isinstance(data, _BYTES_TYPES):
            detail = f"the serializer returned {brief(data)}, which is not bytes or None"
            raise SerializationError(topic, part, detail)
        return data


def _check_record(result: Any) -> ProducerRecord:
    """Return the record that `on_send` returned, checked as `send` checks its arguments."""
    if not isinstance(result, ProducerRecord):
        raise TypeError(f"it returned {brief(result)}, which is not a ProducerRecord")
    return ProducerRecord(
        topic_name(result.topic),
        result.value,
        result.key,
        None if result.partition is None else partition_index(result.partition),
        timestamp_ms(result.timestamp),
        header_pairs(result.headers),
    )


def send_hooks(operations: ProducerOperations) -> SendHooks | None:
    """Return the functions in a producer's options; None if the options contain no function."""
    options, awaits = operations.options, operations.runtime.awaits_callbacks
    partitioner = function_of(
        "partitioner", options.partitioner, "partition", coroutines=False, client="no client"
    )
    key_serializer, value_serializer = [
        function_of(name, option, "serialize", coroutines=awaits, client=f"only an {_ASYNC_CLIENT}")
        for name, option in (
            ("key_serializer", options.key_serializer),
            ("value_serializer", options.value_serializer),
        )
    ]
    has_serializer = key_serializer is not None or value_serializer is not None
    if not has_serializer and partitioner is None and not options.interceptors:
        return None
    return SendHooks(operations, key_serializer, value_serializer, partitioner)
