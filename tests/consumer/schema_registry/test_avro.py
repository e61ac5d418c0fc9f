"""Avro values survive a round trip through the serializers, with a schema registry in memory."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("urllib3")

import fastavro

from consumer import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.schema_registry.avro import (
    AsyncAvroDeserializer,
    AsyncAvroSerializer,
    AvroDeserializer,
    AvroSerializer,
)
from consumer.schema_registry.registry import NoSuchSchema, Reference, Registry
from consumer.schema_registry.subjects import record_name, topic_record_name
from kproto.broker.server import running
from kproto.errors import ConfigError, DeserializationError, SerializationError
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

P0 = TopicPartition("t", 0)
SECONDS = 60.0
FLIGHT = json.dumps(
    {
        "type": "record",
        "name": "Flight",
        "namespace": "demo",
        "fields": [{"name": "to", "type": "string"}, {"name": "seats", "type": "int", "default": 0}],
    }
)
TWO: dict[str, Any] = {"to": "BER", "seats": 2}


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def registry(server: RegistryServer) -> Registry:
    return Registry.at(server.url)


def test_values_survive_a_round_trip_and_the_schema_is_requested_once(server: RegistryServer) -> None:
    serializer = AvroSerializer(registry(server), FLIGHT)
    data = [serializer.serialize("t", TWO, ()) for _ in range(3)]
    assert server.subjects == {"t-value": [1]}
    assert data[0][:5] == b"\0\0\0\0\1"
    deserializer = AvroDeserializer(registry(server))
    assert [deserializer.deserialize("t", encoded, ()) for encoded in data] == [TWO, TWO, TWO]
    assert server.requests == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"part": "key"}, "t-key"),
        ({"subject_name_strategy": record_name}, "demo.Flight"),
        ({"subject_name_strategy": topic_record_name}, "t-demo.Flight"),
        ({"subject_name_strategy": lambda topic, part, record: f"{topic}/{part}"}, "t/value"),
    ],
)
def test_the_subject_follows_the_strategy(server: RegistryServer, options: Any, subject: str) -> None:
    AvroSerializer(registry(server), FLIGHT, **options).serialize("t", TWO, ())
    assert list(server.subjects) == [subject]


def test_without_registration_the_schema_must_exist(server: RegistryServer) -> None:
    serializer = AvroSerializer(registry(server), FLIGHT, auto_register_schemas=False)
    with pytest.raises(NoSuchSchema, match="the schema of t-value"):
        serializer.serialize("t", TWO, ())
    assert server.subjects == {}
    server.register("t-value", {"schema": '"string"'})
    server.register("t-value", {"schema": FLIGHT})
    assert serializer.serialize("t", TWO, ())[:5] == b"\0\0\0\0\2"


def test_the_latest_version_is_used_instead_of_a_given_schema(server: RegistryServer) -> None:
    server.register("t-value", {"schema": FLIGHT})
    server.register("t-value", {"schema": '"string"'})
    serializer = AvroSerializer(registry(server), use_latest_version=True)
    assert serializer.serialize("t", "x", ()) == b"\0\0\0\0\2\2x"
    with pytest.raises(ConfigError, match="use_latest_version"):
        AvroSerializer(registry(server))


def test_a_schema_may_refer_to_registered_schemas(server: RegistryServer) -> None:
    server.register("flight", {"schema": FLIGHT})
    plan = json.dumps({"type": "array", "items": "demo.Flight"})
    serializer = AvroSerializer(registry(server), plan, references=[Reference("demo.Flight", "flight", 1)])
    data = serializer.serialize("t", [TWO], ())
    assert AvroDeserializer(registry(server)).deserialize("t", data, ()) == [TWO]


def test_values_are_converted_to_the_readers_schema(server: RegistryServer) -> None:
    old = json.dumps({"type": "record", "name": "Flight", "fields": [{"name": "to", "type": "string"}]})
    data = AvroSerializer(registry(server), old).serialize("t", {"to": "BER"}, ())
    deserializer = AvroDeserializer(registry(server), FLIGHT.replace(', "namespace": "demo"', ""))
    assert deserializer.deserialize("t", data, ()) == {"to": "BER", "seats": 0}


def test_the_schema_id_may_be_in_a_header(server: RegistryServer) -> None:
    server.register("t-value", {"schema": '"string"'})
    headers = [("__value_schema_id", b"\0\0\0\0\1")]
    assert AvroDeserializer(registry(server)).deserialize("t", b"\2x", headers) == "x"


def test_invalid_arguments_are_named(server: RegistryServer) -> None:
    with pytest.raises(ConfigError, match='"key", "value"'):
        AvroDeserializer(registry(server), part="values")
    with pytest.raises(ConfigError, match="an Avro schema must be JSON"):
        AvroSerializer(registry(server), "{")
    for url in ("localhost:8081", "ftp://a", "http://u:p@a", "http://a:x", "http://a:99999", "http://[::1"):
        with pytest.raises(ConfigError, match=r"^url="):
            Registry.at(url)
    with pytest.raises(ConfigError, match=r"^user="):
        Registry.at("http://a", "alice")


def test_a_failure_is_an_error_of_the_record(server: RegistryServer) -> None:
    with running(topics={"t": 1}) as broker:
        serializer = AvroSerializer(registry(server), FLIGHT)
        with Producer(broker.bootstrap, value_serializer=serializer) as producer:
            with pytest.raises(SerializationError):
                producer.send("t", {"from": "BER"})
            producer.send("t", TWO)
        with Producer(broker.bootstrap) as raw:
            raw.send("t", b"\0\0\0\0\7data")
        with Consumer(broker.bootstrap, value_deserializer=AvroDeserializer(registry(server))) as consumer:
            consumer.assign({P0: 0})
            values: list[Any] = []
            while not values:
                values = [record.value for record in consumer.poll(1)]
            assert values == [TWO]
            with pytest.raises(DeserializationError, match=r"schema 7: .*Schema not found"):
                consumer.poll(SECONDS)


def test_the_asyncio_classes_request_schemas_in_a_thread(server: RegistryServer) -> None:
    async def main() -> list[Any]:
        writes = AsyncAvroSerializer(registry(server), FLIGHT)
        reads = AsyncAvroDeserializer(registry(server))
        with running(topics={"t": 1}) as broker:
            async with AsyncProducer(broker.bootstrap, value_serializer=writes) as producer:
                for _ in range(3):
                    await producer.send("t", TWO)
            async with AsyncConsumer(broker.bootstrap, value_deserializer=reads) as consumer:
                consumer.assign({P0: 0})
                values: list[Any] = []
                while len(values) < 3:
                    values += [record.value for record in await consumer.poll(1)]
                return values

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == [TWO, TWO, TWO]
    assert server.requests == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]


def test_the_bytes_after_the_id_are_those_of_fastavro(server: RegistryServer) -> None:
    file = io.BytesIO()
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(FLIGHT)), TWO)
    assert AvroSerializer(registry(server), FLIGHT).serialize("t", TWO, ())[5:] == file.getvalue()
