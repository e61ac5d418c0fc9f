"""Protobuf messages survive a round trip through the serializers, with a schema registry in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("urllib3")

from google.protobuf.message import DecodeError

from consumer import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.schema_registry.protobuf import (
    AsyncProtobufDeserializer,
    AsyncProtobufSerializer,
    ProtobufDeserializer,
    ProtobufSerializer,
)
from consumer.schema_registry.registry import NoSuchSchema, Registry
from consumer.schema_registry.subjects import record_name, topic_record_name
from kproto.broker.server import running
from kproto.errors import ConfigError, DeserializationError, SerializationError
from tests.consumer.schema_registry.messages import shop
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

P0 = TopicPartition("t", 0)
SECONDS = 60.0


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def registry(server: RegistryServer) -> Registry:
    return Registry.at(server.url)


def order(number: str = "7") -> Any:
    message = shop()["Order"](id=number, labels={"a": "b"})
    message.price.cents = 995
    message.at.seconds = 1_700_000_000
    return message


def test_messages_survive_a_round_trip_and_schemas_are_registered_once(server: RegistryServer) -> None:
    serializer = ProtobufSerializer(registry(server), shop()["Order"])
    data = [serializer.serialize("t", order(), ()) for _ in range(3)]
    assert data[0][:6] == b"\0\0\0\0\2\0"
    assert [ProtobufDeserializer(shop()["Order"]).deserialize("t", each, ()) for each in data] == [
        order()
    ] * 3
    # The imported price.proto is registered first, under its file name. Google's timestamp.proto is not
    # registered, because every client has it.
    assert server.subjects == {"shop/price.proto": [1], "t-value": [2]}
    assert server.schemas[1]["references"] == [
        {"name": "shop/price.proto", "subject": "shop/price.proto", "version": 1}
    ]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("name", "indexes"),
    [
        ("Order", b"\0"),
        ("Last", b"\2\2"),
        ("Order.Item", b"\4\0\0"),
        ("Order.Item.Note", b"\6\0\0\0"),
        # As in Java, LabelsEntry, the message of a map's entries, is skipped, so `After` has the index 1.
        ("Order.After", b"\4\0\2"),
    ],
)
def test_the_indexes_of_the_message_follow_the_schema_id(
    server: RegistryServer, name: str, indexes: bytes
) -> None:
    message_type = shop()[name]
    data = ProtobufSerializer(registry(server), message_type).serialize("t", message_type(), ())
    assert data[5:] == indexes
    message = ProtobufDeserializer(registry=registry(server)).deserialize("t", data, ())
    assert message.DESCRIPTOR.full_name == f"shop.{name}"


def test_without_a_class_messages_are_those_of_the_registered_schema(server: RegistryServer) -> None:
    data = ProtobufSerializer(registry(server), shop()["Order"]).serialize("t", order(), ())
    before = len(server.requests)
    deserializer = ProtobufDeserializer(registry=registry(server))
    messages = [deserializer.deserialize("t", data, ()) for _ in range(3)]
    assert [(message.price.cents, dict(message.labels)) for message in messages] == [(995, {"a": "b"})] * 3
    # One request for the schema, and one for the file that it imports.
    assert len(server.requests) - before == 2


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"part": "key"}, "t-key"),
        ({"subject_name_strategy": record_name}, "shop.Price"),
        ({"subject_name_strategy": topic_record_name}, "t-shop.Price"),
        ({"subject_name_strategy": lambda topic, part, record: f"{topic}/{part}"}, "t/value"),
    ],
)
def test_the_subject_follows_the_strategy(server: RegistryServer, options: Any, subject: str) -> None:
    price = shop()["Price"]
    ProtobufSerializer(registry(server), price, **options).serialize("t", price(), ())
    assert list(server.subjects) == [subject]


def test_the_subject_of_an_imported_file_follows_its_strategy(server: RegistryServer) -> None:
    serializer = ProtobufSerializer(
        registry(server),
        shop()["Order"],
        reference_subject_name_strategy=lambda topic, part, file: f"{topic}.{part}.{file}",
    )
    serializer.serialize("t", order(), ())
    assert list(server.subjects) == ["t.value.shop/price.proto", "t-value"]


def test_without_registration_the_schemas_must_exist(server: RegistryServer) -> None:
    serializer = ProtobufSerializer(registry(server), shop()["Order"], auto_register_schemas=False)
    with pytest.raises(NoSuchSchema, match=r"the schema of shop/price\.proto"):
        serializer.serialize("t", order(), ())
    ProtobufSerializer(registry(server), shop()["Order"]).serialize("t", order(), ())
    assert serializer.serialize("t", order(), ())[:6] == b"\0\0\0\0\2\0"


def test_the_latest_version_decides_about_the_id_and_the_indexes(server: RegistryServer) -> None:
    ProtobufSerializer(registry(server), shop()["Order"]).serialize("t", order(), ())
    last = shop()["Last"]
    serializer = ProtobufSerializer(registry(server), last, use_latest_version=True)
    assert serializer.serialize("t", last(n=1), ()) == b"\0\0\0\0\2\2\2\10\1"
    with pytest.raises(ValueError, match=r"the latest schema of t-value has no message shop\.Price"):
        ProtobufSerializer(registry(server), shop()["Price"], use_latest_version=True).serialize(
            "t", shop()["Price"](), ()
        )


def test_the_id_and_the_indexes_may_be_in_a_header(server: RegistryServer) -> None:
    ProtobufSerializer(registry(server), shop()["Order"]).serialize("t", order(), ())
    data = order().SerializeToString()
    headers = [("__value_schema_id", b"\0\0\0\0\2\0")]
    assert ProtobufDeserializer(shop()["Order"]).deserialize("t", data, headers) == order()
    message = ProtobufDeserializer(registry=registry(server)).deserialize("t", data, headers)
    assert message.id == "7"
    with pytest.raises(ValueError, match="__value_schema_id have no valid message indexes"):
        ProtobufDeserializer(shop()["Order"]).deserialize("t", data, [("__value_schema_id", b"\0\0\0\0\2")])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"\0\0\0\0\2", "no valid message indexes"),
        (b"\0\0\0\0\2\1", "no valid message indexes"),
        (b"\0\0\0\0\2\2\1", "no valid message indexes"),
        (b"\0\0\0\0\2" + b"\xff" * 20, "no valid message indexes"),
        (b"\0\0\0\0\2\2\20", r"schema 2 has no message with the indexes \[8\]"),
        (b"\0\0\0\0\3\0", "type AVRO, but PROTOBUF is needed"),
        (b"\0\0\0\0\2\0\377", "Error parsing message"),
    ],
)
def test_invalid_bytes_are_an_error(server: RegistryServer, data: bytes, message: str) -> None:
    ProtobufSerializer(registry(server), shop()["Order"]).serialize("t", order(), ())
    server.register("t-value", {"schema": '"string"'})
    with pytest.raises((ValueError, DecodeError), match=message):
        ProtobufDeserializer(registry=registry(server)).deserialize("t", data, ())


def test_invalid_arguments_are_named(server: RegistryServer) -> None:
    price = shop()["Price"]
    with pytest.raises(ConfigError, match=r"^message_type="):
        ProtobufSerializer(registry(server), price())
    with pytest.raises(ConfigError, match="set either message_type, or registry"):
        ProtobufDeserializer(price, registry=registry(server))
    with pytest.raises(ConfigError, match='"key", "value"'):
        ProtobufDeserializer(price, part="values")
    with pytest.raises(TypeError, match=r"the type shop\.Price is needed"):
        ProtobufSerializer(registry(server), price).serialize("t", shop()["Last"](), ())


async def _coroutine(*_: str) -> str:
    return "subject"


def _raises(*_: str) -> str:
    raise LookupError("no subject")


@pytest.mark.parametrize(
    ("strategy", "message"),
    [
        (_raises, "LookupError: no subject"),
        (_coroutine, "returned <coroutine .* instead of a subject"),
        (lambda *_: "", "returned '' instead of a subject"),
    ],
)
def test_a_strategy_that_fails_harms_only_its_record(
    server: RegistryServer, strategy: Any, message: str
) -> None:
    price = shop()["Price"]
    serializer = ProtobufSerializer(registry(server), price, subject_name_strategy=strategy)
    with (
        running(topics={"t": 1}) as broker,
        Producer(broker.bootstrap, value_serializer=serializer) as producer,
    ):
        with pytest.raises(SerializationError, match=message):
            producer.send("t", price(cents=1))
        serializer._subject_name_strategy = record_name
        assert producer.send("t", price(cents=2)).result().offset == 0


def test_a_failure_is_an_error_of_the_record(server: RegistryServer) -> None:
    price = shop()["Price"]
    with running(topics={"t": 1}) as broker:
        with Producer(
            broker.bootstrap, value_serializer=ProtobufSerializer(registry(server), price)
        ) as producer:
            producer.send("t", price(cents=1))
        with Producer(broker.bootstrap) as raw:
            raw.send("t", b"\0\0\0\0\1\0\377")
        with Consumer(broker.bootstrap, value_deserializer=ProtobufDeserializer(price)) as consumer:
            consumer.assign({P0: 0})
            values: list[Any] = []
            while not values:
                values = [record.value for record in consumer.poll(1)]
            assert values == [price(cents=1)]
            with pytest.raises(DeserializationError, match="Error parsing message"):
                consumer.poll(SECONDS)


def test_the_asyncio_classes_request_schemas_in_a_thread(server: RegistryServer) -> None:
    async def main() -> list[Any]:
        writes = AsyncProtobufSerializer(registry(server), shop()["Order"])
        reads = AsyncProtobufDeserializer(registry=registry(server))
        with running(topics={"t": 1}) as broker:
            async with AsyncProducer(broker.bootstrap, value_serializer=writes) as producer:
                await producer.send("t", order())
            async with AsyncConsumer(broker.bootstrap, value_deserializer=reads) as consumer:
                consumer.assign({P0: 0})
                values: list[Any] = []
                while not values:
                    values = [record.value for record in await consumer.poll(1)]
                return values

    [message] = asyncio.run(asyncio.wait_for(main(), SECONDS))
    assert (message.id, message.price.cents) == ("7", 995)
