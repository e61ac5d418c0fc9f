"""JSON Schema values survive a round trip through the serializers, with a schema registry in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

pytest.importorskip("jsonschema")
pytest.importorskip("urllib3")

from consumer import AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from consumer.schema_registry.json_schema import (
    AsyncJsonSchemaDeserializer,
    AsyncJsonSchemaSerializer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
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
        "title": "Flight",
        "type": "object",
        "properties": {"to": {"type": "string"}, "seats": {"type": "integer", "minimum": 0}},
        "required": ["to"],
    }
)
TWO = {"to": "BER", "seats": 2}


@dataclass
class Flight:
    to: str
    seats: int = 0


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def registry(server: RegistryServer) -> Registry:
    return Registry.at(server.url)


def test_values_survive_a_round_trip_and_the_schema_is_requested_once(server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(registry(server), FLIGHT)
    data = [serializer.serialize("t", TWO, ()) for _ in range(3)]
    assert data[0] == b'\0\0\0\0\1{"to":"BER","seats":2}'
    assert server.schemas == [{"schema": FLIGHT, "schemaType": "JSON"}]
    deserializer = JsonSchemaDeserializer(registry(server))
    assert [deserializer.deserialize("t", encoded, ()) for encoded in data] == [TWO, TWO, TWO]
    assert server.requests == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]


def test_objects_are_converted_both_ways(server: RegistryServer) -> None:
    data = JsonSchemaSerializer(registry(server), FLIGHT).serialize("t", Flight("JFK"), ())
    assert JsonSchemaDeserializer(registry(server), Flight).deserialize("t", data, ()) == Flight("JFK")
    dates = JsonSchemaSerializer(registry(server), '{"type": "object"}')
    assert dates.serialize("t", {1: date(2026, 11, 28), 2: (1, "\u00e9")}, ())[5:].decode() == (
        '{"1":"2026-11-28","2":[1,"\u00e9"]}'
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"seats": 2}, r"does not conform to the schema: \$: 'to' is a required property"),
        ({"to": "BER", "seats": -1}, r"\$\.seats: -1 is less than the minimum of 0"),
        ("BER", r"\$: 'BER' is not of type 'object'"),
    ],
)
def test_values_are_checked_on_both_sides(server: RegistryServer, value: Any, message: str) -> None:
    checks = JsonSchemaSerializer(registry(server), FLIGHT)
    trusts = JsonSchemaSerializer(registry(server), FLIGHT, validate=False)
    with pytest.raises(ValueError, match=message):
        checks.serialize("t", value, ())
    data = trusts.serialize("t", value, ())
    with pytest.raises(ValueError, match=message):
        JsonSchemaDeserializer(registry(server)).deserialize("t", data, ())
    assert JsonSchemaDeserializer(registry(server), validate=False).deserialize("t", data, ()) == value


def test_the_readers_schema_takes_precedence(server: RegistryServer) -> None:
    data = JsonSchemaSerializer(registry(server), "true").serialize("t", 5, ())
    deserializer = JsonSchemaDeserializer(registry(server), reader_schema='{"type": "string"}')
    with pytest.raises(ValueError, match="5 is not of type 'string'"):
        deserializer.deserialize("t", data, ())
    assert len(server.requests) == 1


def test_without_validation_no_schema_is_checked_or_requested(server: RegistryServer) -> None:
    """As with confluent-kafka, validate=False disables even the check by the reader's schema."""
    data = JsonSchemaSerializer(registry(server), "true").serialize("t", 5, ())
    for reader in (None, '{"type": "string"}'):
        deserializer = JsonSchemaDeserializer(registry(server), reader_schema=reader, validate=False)
        assert deserializer.deserialize("t", data, ()) == 5
    assert len(server.requests) == 1
    with pytest.raises(ValueError, match="the JSON Schema is not valid"):
        JsonSchemaDeserializer(registry(server), reader_schema='{"type": 5}', validate=False)


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        ({"part": "key"}, "t-key"),
        ({"subject_name_strategy": record_name}, "Flight"),
        ({"subject_name_strategy": topic_record_name}, "t-Flight"),
    ],
)
def test_the_subject_follows_the_strategy(server: RegistryServer, options: Any, subject: str) -> None:
    JsonSchemaSerializer(registry(server), FLIGHT, **options).serialize("t", TWO, ())
    assert list(server.subjects) == [subject]


def test_a_schema_without_a_title_has_no_record_name(server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(registry(server), "{}", subject_name_strategy=topic_record_name)
    with pytest.raises(ValueError, match="no record name, which the subject name strategy topic_record_name"):
        serializer.serialize("t", 1, ())


def test_without_registration_the_schema_must_exist(server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(registry(server), FLIGHT, auto_register_schemas=False)
    with pytest.raises(NoSuchSchema, match="the schema of t-value"):
        serializer.serialize("t", TWO, ())
    server.register("t-value", {"schema": FLIGHT, "schemaType": "JSON"})
    assert serializer.serialize("t", TWO, ())[:5] == b"\0\0\0\0\1"


def test_the_latest_version_is_used_instead_of_a_given_schema(server: RegistryServer) -> None:
    server.register("t-value", {"schema": "true", "schemaType": "JSON"})
    server.register("t-value", {"schema": FLIGHT, "schemaType": "JSON"})
    serializer = JsonSchemaSerializer(registry(server), use_latest_version=True)
    assert serializer.serialize("t", TWO, ())[:5] == b"\0\0\0\0\2"
    with pytest.raises(ValueError, match="'to' is a required property"):
        serializer.serialize("t", {}, ())


def test_a_schema_may_refer_to_registered_schemas(server: RegistryServer) -> None:
    server.register("flight", {"schema": FLIGHT, "schemaType": "JSON"})
    plan = json.dumps({"type": "array", "items": {"$ref": "flight.json"}})
    references = [Reference("flight.json", "flight", 1)]
    serializer = JsonSchemaSerializer(registry(server), plan, references=references)
    data = serializer.serialize("t", [TWO], ())
    assert JsonSchemaDeserializer(registry(server)).deserialize("t", data, ()) == [TWO]
    with pytest.raises(ValueError, match=r"\$\[0\]: 'to' is a required property"):
        serializer.serialize("t", [{}], ())


@pytest.mark.parametrize("address", ["flight.json", "http://127.0.0.1:1/flight.json", "file:///etc/hostname"])
def test_a_reference_that_the_registry_does_not_have_is_not_loaded(
    server: RegistryServer, address: str
) -> None:
    serializer = JsonSchemaSerializer(registry(server), json.dumps({"$ref": address}))
    with pytest.raises(ValueError, match=f"the JSON Schema refers to {address}, which is not one of its"):
        serializer.serialize("t", TWO, ())


def test_the_schema_id_may_be_in_a_header(server: RegistryServer) -> None:
    server.register("t-value", {"schema": FLIGHT, "schemaType": "JSON"})
    headers = [("__value_schema_id", b"\0\0\0\0\1")]
    assert JsonSchemaDeserializer(registry(server)).deserialize("t", b'{"to": "x"}', headers) == {"to": "x"}


def test_invalid_schemas_are_named(server: RegistryServer) -> None:
    with pytest.raises(ConfigError, match="a JSON Schema must be JSON"):
        JsonSchemaSerializer(registry(server), "{")
    for schema in ("5", "null", "[]", '{"$schema": 5}', '{"$schema": []}'):
        with pytest.raises(ConfigError, match="must be an object or a boolean"):
            JsonSchemaSerializer(registry(server), schema)
    with pytest.raises(ConfigError, match="use_latest_version"):
        JsonSchemaSerializer(registry(server))
    with pytest.raises(ValueError, match=r"the JSON Schema is not valid: \$\.type: 5 is not"):
        JsonSchemaDeserializer(registry(server), reader_schema='{"type": 5}')
    server.register("t-value", {"schema": '"string"'})
    with pytest.raises(ValueError, match="type AVRO, but JSON is needed"):
        JsonSchemaDeserializer(registry(server)).deserialize("t", b"\0\0\0\0\1{}", ())


@pytest.mark.parametrize("text", ['{"type": "flight"}', '{"pattern": "("}'])
def test_an_invalid_reference_is_named(server: RegistryServer, text: str) -> None:
    server.register("flight", {"schema": text, "schemaType": "JSON"})
    references = [Reference("flight.json", "flight", 1)]
    serializer = JsonSchemaSerializer(registry(server), '{"$ref": "flight.json"}', references=references)
    with pytest.raises(ValueError, match="a reference of the JSON Schema is not valid: "):
        serializer.serialize("t", "BER", ())


def test_a_schema_that_refers_to_itself_is_an_error_of_the_record(server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(registry(server), '{"$ref": "#"}')
    with (
        running(topics={"t": 1}) as broker,
        Producer(broker.bootstrap, value_serializer=serializer) as producer,
        pytest.raises(SerializationError, match="RecursionError"),
    ):
        producer.send("t", TWO)


def test_numbers_that_json_does_not_have_are_an_error(server: RegistryServer) -> None:
    serializer = JsonSchemaSerializer(registry(server), "true")
    for number in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            serializer.serialize("t", {"n": number}, ())


def test_a_failure_is_an_error_of_the_record(server: RegistryServer) -> None:
    with running(topics={"t": 1}) as broker:
        serializer = JsonSchemaSerializer(registry(server), FLIGHT)
        with Producer(broker.bootstrap, value_serializer=serializer) as producer:
            with pytest.raises(SerializationError, match="'to' is a required property"):
                producer.send("t", {})
            producer.send("t", TWO)
        with Producer(broker.bootstrap) as raw:
            raw.send("t", b"\0\0\0\0\1{")
        deserializer = JsonSchemaDeserializer(registry(server), Flight)
        with Consumer(broker.bootstrap, value_deserializer=deserializer) as consumer:
            consumer.assign({P0: 0})
            values: list[Any] = []
            while not values:
                values = [record.value for record in consumer.poll(1)]
            assert values == [Flight("BER", 2)]
            with pytest.raises(DeserializationError, match="Input data was truncated"):
                consumer.poll(SECONDS)


def test_the_asyncio_classes_request_schemas_in_a_thread(server: RegistryServer) -> None:
    async def main() -> list[Any]:
        writes = AsyncJsonSchemaSerializer(registry(server), FLIGHT)
        reads = AsyncJsonSchemaDeserializer(registry(server))
        with running(topics={"t": 1}) as broker:
            async with AsyncProducer(broker.bootstrap, value_serializer=writes) as producer:
                await producer.send("t", TWO)
            async with AsyncConsumer(broker.bootstrap, value_deserializer=reads) as consumer:
                consumer.assign({P0: 0})
                values: list[Any] = []
                while not values:
                    values = [record.value for record in await consumer.poll(1)]
                return values

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == [TWO]
    assert server.requests == ["POST /subjects/t-value/versions", "GET /schemas/ids/1"]
