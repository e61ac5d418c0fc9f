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
_BYTES: tuple[type, ...] = (bytes, bytearray, memoryview)
# The maximum number of topics whose lists of partitions are cached for later calls of the partitioner.
_TOPICS = 1_000


class SendHooks:
    """The interceptors, the serializers and the partitioner of one producer."""

    def __init__(
        self,
        operations: ProducerOperations,
        key: Callable[..., Any] | None,
        value: Callable[..., Any] | None,
        partitioner: Callable[..., Any] | None,
    ) -> None:
        self._operations = operations
        self._key = key
        self._value = value
        self._partitioner = partitioner
        self._interceptors = operations.options.interceptors
        # Whether a serializer may return an awaitable.
        self._awaits = operations.runtime.awaits_callbacks
        # Topic -> (its route, all its partitions, those with a leader), for later calls of the partitioner.
        self._partitions: dict[str, tuple[TopicRoute, range, list[int]]] = {}

    async def send(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int, headers: Headers
    ) -> Delivery:
        """Send a record: call the interceptors, the serializers and the partitioner, then queue the record.

        Raises SerializationError, PartitionerError, and the errors of queueing the record.
        """
        if not self._interceptors:
            return await self._send(topic, value, key, partition, timestamp, headers)
        record = ProducerRecord(topic, value, key, partition, timestamp, headers)
        for interceptor in self._interceptors:
            subject = f"a record for topic {record.topic!r}"
            record = call_interceptor(interceptor, "on_send", subject, record, record, check=_checked_record)
        try:
            delivery = await self._send(
                record.topic, record.value, record.key, record.partition, record.timestamp, record.headers
            )
        except Exception as error:
            self._acknowledge(record.topic, None, error)
            raise
        self._operations.runtime.add_observer(delivery, self._on_delivery_ended)
        return delivery

    def _on_delivery_ended(self, delivery: Delivery) -> None:
        partition, metadata, error = delivery.outcome()
        self._acknowledge(str(partition), metadata, error)

    def _acknowledge(self, where: str, metadata: RecordMetadata | None, error: BaseException | None) -> None:
        for interceptor in self._interceptors:
            call_interceptor(
                interceptor,
                "on_acknowledgement",
                f"a record for {where}",
                None,
                metadata,
                error,
                check=nothing,
            )

    async def _send(
        self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int, headers: Headers
    ) -> Delivery:
        operations = self._operations
        runtime, records = operations.runtime, operations.runtime.records
        key, value = await self._serialize(topic, key, value, headers)
        key, value = record_bytes("key", key), record_bytes("value", value)
        waited_ms = 0
        if self._partitioner is not None and partition is None:
            route, waited_ms = await self._route_of(topic)
            partition = self._select_partition(self._partitioner, topic, route, key, value)
        append = partial(records.append, topic, key, value, partition, timestamp, headers)
        delivery = append()
        if records.sender_notified:
            records.sender_notified = False
            runtime.wake()
        if delivery is None:
            runtime.check_call(waits=True)
            delivery = await operations.wait_for_room(append, waited_ms)
        return delivery

    async def _route_of(self, topic: str) -> tuple[TopicRoute, int]:
        """Return the partitions of the topic, and the time (ms) for which the call has waited for them."""
        operations = self._operations
        route = operations.runtime.records.route_of(topic_name(topic))
        if route is not None:
            return route, 0
        operations.runtime.check_call(waits=True)
        began = now()
        route = await operations.wait_for_room(partial(operations.runtime.records.route_of, topic))
        return route, now() - began

    def _select_partition(
        self,
        partitioner: Callable[..., Any],
        topic: str,
        route: TopicRoute,
        key: bytes | None,
        value: bytes | None,
    ) -> int:
        """Return the partition that the partitioner selects."""
        known = self._partitions.get(topic)
        if known is None or known[0] is not route:
            available = [queue.partition.partition for queue in route.with_leader]
            if len(self._partitions) >= _TOPICS:
                self._partitions.clear()
            known = self._partitions[topic] = route, range(len(route.queues)), available
        _, partitions, available = known
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
        """Return the key and the value as bytes or None. Raises SerializationError.

        Without a serializer the value is returned unchanged.
        """
        if self._key is not None and key is not None:
            key = await self._serialized(self._key, "key", topic, key, headers)
        if self._value is not None and value is not None:
            value = await self._serialized(self._value, "value", topic, value, headers)
        return key, value

    async def _serialized(
        self, serializer: Callable[..., Any], part: str, topic: str, value: Any, headers: Headers
    ) -> Any:
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
        if data is not None and not isinstance(data, _BYTES):
            detail = f"the serializer returned {brief(data)}, which is not bytes or None"
            raise SerializationError(topic, part, detail)
        return data


def _checked_record(answer: Any) -> ProducerRecord:
    """Check the result of `on_send`, as `send` checks its arguments."""
    if not isinstance(answer, ProducerRecord):
        raise TypeError(f"it returned {brief(answer)}, which is not a ProducerRecord")
    return ProducerRecord(
        topic_name(answer.topic),
        answer.value,
        answer.key,
        None if answer.partition is None else partition_index(answer.partition),
        timestamp_ms(answer.timestamp),
        header_pairs(answer.headers),
    )


def send_hooks(operations: ProducerOperations) -> SendHooks | None:
    """Return the functions that a producer's options contain; None if there are none."""
    options, awaits = operations.options, operations.runtime.awaits_callbacks
    partitioner = function_of(
        "partitioner", options.partitioner, "partition", coroutines=False, client="no client"
    )
    key, value = [
        function_of(name, option, "serialize", coroutines=awaits, client=f"only an {_ASYNC_CLIENT}")
        for name, option in (
            ("key_serializer", options.key_serializer),
            ("value_serializer", options.value_serializer),
        )
    ]
    if key is None and value is None and partitioner is None and not options.interceptors:
        return None
    return SendHooks(operations, key, value, partitioner)
