"""The types of the clients. mypy --strict and pyright check the module; it never runs."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, assert_type

import consumer.sarama
import consumer.security
import kproto.errors
import kproto.models
from consumer import (
    Admin,
    AsyncAdmin,
    AsyncConsumer,
    AsyncConsumerGroup,
    AsyncProducer,
    ColumnBatch,
    CommittedOffset,
    Consumer,
    ConsumerGroup,
    ConsumerRecord,
    Delivery,
    Group,
    ListedGroup,
    OffsetAt,
    Producer,
    RecordMetadata,
    TopicPartition,
)
from consumer.delivery import PieceDelivery
from consumer.sarama import ThreadClaim, ThreadSession
from consumer.serializers import JsonDeserializer, RecordHeaders
from kproto.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def threads_get_values(consumer: Consumer, cluster: Admin, partition: TopicPartition) -> None:
    assert_type(consumer.poll(), list[ConsumerRecord])
    assert_type(consumer.poll(0.5, max_records=10), list[ConsumerRecord])
    assert_type(consumer.poll_columns(timeout=1), list[ColumnBatch])
    assert_type(consumer.position(partition), int)
    assert_type(consumer.committed(), dict[TopicPartition, CommittedOffset | None])
    assert_type(consumer.commit_async(), Future[None])
    consumer.store_offsets({partition: 5})
    for record in consumer.poll(1):
        consumer.store_offsets(record)
    assert_type(consumer.assignment(), set[TopicPartition])
    assert_type(consumer.list_offsets({partition: "latest"}), dict[TopicPartition, OffsetAt])
    for record in consumer:
        assert_type(record, ConsumerRecord)
    with consumer as same:
        assert_type(same, Consumer)
    assert_type(cluster.topics(), dict[str, int])
    assert_type(cluster.leader(partition), int)
    assert_type(cluster.group("g"), Group)
    assert_type(cluster.list_groups(), dict[str, ListedGroup])
    answer: ListGroupsResponse = cluster.request(ListGroupsRequest())
    assert_type(answer.groups[0].group_id, str)


class Flight:
    """A type of values."""


class FlightDeserializer:
    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> Flight:
        return Flight()


def as_text(topic: str, data: bytes, headers: RecordHeaders) -> str:
    return data.decode()


async def as_text_later(topic: str, data: bytes, headers: RecordHeaders) -> str:
    return data.decode()


def records_have_the_types_that_deserializers_return() -> None:
    assert_type(Consumer("b"), Consumer[bytes, bytes])
    assert_type(Consumer("b", group_id="g", value_deserializer=as_text), Consumer[bytes, str])
    consumer = Consumer("b", key_deserializer=as_text, value_deserializer=FlightDeserializer())
    assert_type(consumer.poll(), list[ConsumerRecord[str, Flight]])
    for record in consumer:
        assert_type(record.key, str | None)
        assert_type(record.value, Flight | None)
    assert_type(Consumer("b", value_deserializer=JsonDeserializer(Flight)), Consumer[bytes, Flight])
    assert_type(Consumer("b", value_deserializer=JsonDeserializer()), Consumer[bytes, Any])
    assert_type(AsyncConsumer("b", key_deserializer=as_text), AsyncConsumer[str, bytes])
    later: AsyncConsumer[bytes, str] = AsyncConsumer("b", value_deserializer=as_text_later)
    assert_type(later, AsyncConsumer[bytes, str])


def flight_to_bytes(topic: str, value: Flight, headers: RecordHeaders) -> bytes:
    return b""


async def sends_accept_the_types_of_serializers() -> None:
    assert_type(Producer("b"), Producer[bytes | bytearray | memoryview, bytes | bytearray | memoryview])
    Producer("b", partitioner=lambda topic, key, value, partitions, available: available[0])
    producer = Producer("b", value_serializer=flight_to_bytes, key_serializer=None)
    producer.send("t", Flight())
    producer.send("t", b"")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    tasks = AsyncProducer("b", value_serializer=flight_to_bytes)
    assert_type(await tasks.send("t", Flight(), key=b"k"), Delivery)


def threads_write(producer: Producer, partition: TopicPartition) -> None:
    assert_type(producer.send("t", b"x"), Delivery)
    assert_type(producer.send("t", b"x").result(), RecordMetadata)
    assert_type(producer.send_columns("t", {}), list[PieceDelivery])
    with producer.transaction():
        producer.send_offsets("g", {partition: 5})
    assert_type(producer.begin(1), None)
    assert_type(producer.flush(timeout=1), None)


async def tasks_write(producer: AsyncProducer, partition: TopicPartition) -> None:
    assert_type(await producer.send("t", b"x"), Delivery)
    assert_type(await (await producer.send("t", b"x")), RecordMetadata)
    assert_type(await producer.send_columns("t", {}), list[PieceDelivery])
    async with producer.transaction():
        producer.send_offsets("g", {partition: 5})
    assert_type(await producer.begin(1), None)
    assert_type(await producer.flush(timeout=1), None)


async def tasks_await_them(consumer: AsyncConsumer, cluster: AsyncAdmin, partition: TopicPartition) -> None:
    assert_type(await consumer.poll(), list[ConsumerRecord])
    assert_type(await consumer.position(partition), int)
    assert_type(consumer.commit_async(), asyncio.Future[None])
    assert_type(consumer.assignment(), set[TopicPartition])
    consumer.seek(partition, 5)
    async for record in consumer:
        assert_type(record, ConsumerRecord)
    async with consumer as same:
        assert_type(same, AsyncConsumer)
    assert_type(await cluster.topics(), dict[str, int])


async def mistakes_are_seen(consumer: AsyncConsumer, blocking: Consumer) -> None:
    consumer.poll(timeout="1")  # type: ignore[arg-type, unused-coroutine]
    blocking.poll(max_record=5)  # type: ignore[arg-type]
    blocking.seek("t", 5)  # type: ignore[arg-type]
    blocking.subscribe(["t"], print)  # type: ignore[arg-type]


class Counts:
    """A consumer group handler for the blocking client."""

    def setup(self, session: ThreadSession) -> None: ...

    def consume_claim(self, session: ThreadSession, claim: ThreadClaim) -> None:
        for record in claim:
            assert_type(record, ConsumerRecord)

    def cleanup(self, session: ThreadSession) -> None: ...


class Mistaken(Counts):
    def setup(self, session: int) -> None:  # type: ignore[override]
        ...


def both_doors_lead_to_the_same(record: kproto.ConsumerRecord) -> None:
    assert_type(record, ConsumerRecord)


def handlers_are_typed(group: ConsumerGroup, tasks: AsyncConsumerGroup) -> None:
    group.consume(["t"], Counts())
    group.consume(["t"], Mistaken())  # type: ignore[arg-type]
    tasks.consume(["t"], Counts())  # type: ignore[arg-type, unused-coroutine]


def missing_names_are_rejected() -> None:
    """Type checkers reject names that the lazily importing packages do not define."""
    _ = kproto.Konsumer  # type: ignore[attr-defined]
    _ = consumer.Konsumer  # type: ignore[attr-defined]
    _ = consumer.sarama.Konsumer  # type: ignore[attr-defined]
    _ = consumer.security.Konsumer  # type: ignore[attr-defined]
    _ = kproto.models.konsumer  # type: ignore[attr-defined]
    _ = kproto.errors.Konsumed  # type: ignore[attr-defined]
