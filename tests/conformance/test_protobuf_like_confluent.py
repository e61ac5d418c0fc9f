"""Protobuf with a schema registry: Confluent's serializers write and read the same bytes as kproto's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.protobuf")

import confluent_kafka.schema_registry as confluent
import confluent_kafka.schema_registry.protobuf as theirs
from confluent_kafka.serialization import MessageField, SerializationContext, SerializationError

from consumer.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from consumer.schema_registry.registry import Registry
from consumer.schema_registry.subjects import record_name, topic_record_name
from tests.consumer.schema_registry.messages import shop
from tests.consumer.schema_registry.stage import RegistryServer, registry_server


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def context(part: str = "value", headers: Any = None) -> Any:
    return SerializationContext("t", part, headers)


def message_of(name: str) -> Any:
    match name:
        case "Order":
            message = shop()[name](id="7", labels={"a": "b", "": "c"})
            message.price.cents, message.at.seconds = -5, 9
            return message
        case "Last":
            return shop()[name](n=3)
        case _:
            return shop()[name]()


# Order.After is left out, because its message index differs: confluent-kafka also counts the preceding
# LabelsEntry, the message that protobuf generates for a map. Java and kproto do not count LabelsEntry.
@pytest.mark.parametrize("name", ["Order", "Last", "Order.Item", "Order.Item.Note", "Price"])
def test_both_write_the_same_bytes_and_read_those_of_the_other(server: RegistryServer, name: str) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    message = message_of(name)
    expected = theirs.ProtobufSerializer(shop()[name], client)(message, context())
    schemas, subjects = list(server.schemas), dict(server.subjects)
    server.schemas.clear()
    server.subjects.clear()
    ours = ProtobufSerializer(Registry.at(server.url), shop()[name]).serialize("t", message, ())
    assert ours == expected
    assert (server.schemas, server.subjects) == (schemas, subjects)
    assert theirs.ProtobufDeserializer(shop()[name], None, client)(ours, context()) == message
    assert ProtobufDeserializer(shop()[name]).deserialize("t", expected, ()) == message
    dynamic = ProtobufDeserializer(registry=Registry.at(server.url)).deserialize("t", expected, ())
    assert dynamic.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True)


@pytest.mark.parametrize(
    ("our_strategy", "name"),
    [
        (record_name, "record_subject_name_strategy"),
        (topic_record_name, "topic_record_subject_name_strategy"),
    ],
)
@pytest.mark.parametrize("part", ["key", "value"])
def test_both_register_under_the_same_subject(
    server: RegistryServer, our_strategy: Any, name: str, part: str
) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    options = {"subject.name.strategy": getattr(confluent, name)}
    order = shop()["Order"]
    theirs.ProtobufSerializer(order, client, conf=options)(order(), context(part))
    subjects = dict(server.subjects)
    server.subjects.clear()
    serializer = ProtobufSerializer(
        Registry.at(server.url), order, part=part, subject_name_strategy=our_strategy
    )
    serializer.serialize("t", order(), ())
    assert server.subjects == subjects


def test_ids_in_headers_are_read_alike(server: RegistryServer) -> None:
    order = message_of("Order")
    ProtobufSerializer(Registry.at(server.url), shop()["Order"]).serialize("t", order, ())
    data = order.SerializeToString()
    headers = [("__value_schema_id", b"\0\0\0\0\2\0")]
    expected = theirs.ProtobufDeserializer(shop()["Order"])(data, context(MessageField.VALUE, headers))
    assert ProtobufDeserializer(shop()["Order"]).deserialize("t", data, headers) == expected == order


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0", b"\2\0\0\0\2\0", b"\0\0\0\0\2", b"\0\0\0\0\2\1", b"\0\0\0\0\2\2\0", b"\0\0\0\0\2\0\xff"],
)
def test_both_accept_and_reject_the_same_bytes(server: RegistryServer, data: bytes) -> None:
    def accepts(deserialize: Any) -> bool:
        try:
            deserialize()
        except (SerializationError, ValueError, EOFError, IndexError, Exception):
            return False
        return True

    confluents = theirs.ProtobufDeserializer(shop()["Order"])
    ours = ProtobufDeserializer(shop()["Order"])
    assert accepts(lambda: ours.deserialize("t", data, ())) == accepts(lambda: confluents(data, context()))
