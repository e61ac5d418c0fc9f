"""JSON Schema with a schema registry: Confluent's serializers write and read the same bytes as kproto's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.json_schema")

import confluent_kafka.schema_registry as confluent
import confluent_kafka.schema_registry.json_schema as theirs
from confluent_kafka.serialization import SerializationContext

from consumer.schema_registry.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from consumer.schema_registry.registry import Reference, Registry
from consumer.schema_registry.subjects import record_name, topic_record_name
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

FLIGHT = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Flight",
    "type": "object",
    "properties": {
        "to": {"type": "string", "maxLength": 3},
        "day": {"type": "string", "format": "date"},
        "seats": {"type": "integer", "minimum": 0},
    },
    "required": ["to"],
}
NEWEST: dict[str, Any] = {"title": "Pair", "prefixItems": [{"type": "string"}, {"$ref": "#/$defs/n"}]}
NEWEST["$defs"] = {"n": {"type": "number"}}
# A schema, and a value that may be invalid.
CASES: list[tuple[Any, Any]] = [
    (FLIGHT, {"to": "BER", "seats": 2, "day": "no date", "other": None}),
    (FLIGHT, {"to": "BERLIN"}),
    (FLIGHT, {}),
    (FLIGHT, {"to": "BER", "seats": 2.0}),
    (FLIGHT, {"to": "BER", "seats": True}),
    (FLIGHT, []),
    (NEWEST, ['\u00e9\U0001f600\u2028"\\/\x7f\n', -0.0]),
    (NEWEST, ["", 1e22]),
    # 1.5e-7 is left out: Confluent writes it in one form with orjson, and in another form without orjson.
    (NEWEST, ["", 0.00015]),
    (NEWEST, ["", 123456789012345680.0]),
    (NEWEST, ["x", "y"]),
    (True, [2**63, -(2**63), 0.1, False, None]),
    (False, 1),
    ({"type": "nonsense"}, 1),
]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def context(part: str = "value") -> Any:
    return SerializationContext("t", part)


def outcome(call: Any) -> Any:
    """Return the result of a call, or None if it raises an error."""
    try:
        return call()
    except Exception:
        return None


@pytest.mark.parametrize(("schema", "value"), CASES)
def test_both_write_the_same_bytes_and_read_those_of_the_other(
    server: RegistryServer, schema: Any, value: Any
) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    text = json.dumps(schema)
    expected = outcome(lambda: theirs.JSONSerializer(text, client)(value, context()))
    ours = outcome(lambda: JsonSchemaSerializer(Registry.at(server.url), text).serialize("t", value, ()))
    assert ours == expected
    # kproto's serializer writes even an invalid value, because it does not validate. The deserializers of
    # both libraries validate.
    data = JsonSchemaSerializer(Registry.at(server.url), text, validate=False).serialize("t", value, ())
    read = theirs.JSONDeserializer(None, schema_registry_client=client)
    deserializer = JsonSchemaDeserializer(Registry.at(server.url))
    assert outcome(lambda: [deserializer.deserialize("t", data, ())]) == outcome(
        lambda: [read(data, context())]
    )
    reader = theirs.JSONDeserializer(json.dumps(FLIGHT))
    deserializer = JsonSchemaDeserializer(Registry.at(server.url), reader_schema=json.dumps(FLIGHT))
    assert outcome(lambda: [deserializer.deserialize("t", data, ())]) == outcome(
        lambda: [reader(data, context())]
    )


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
    text = json.dumps(FLIGHT)
    theirs.JSONSerializer(text, client, conf=options)({"to": "BER"}, context(part))
    subjects = dict(server.subjects)
    server.subjects.clear()
    serializer = JsonSchemaSerializer(
        Registry.at(server.url), text, part=part, subject_name_strategy=our_strategy
    )
    serializer.serialize("t", {"to": "BER"}, ())
    assert server.subjects == subjects


@pytest.mark.parametrize("value", [[{"to": "BER"}], [{}], [1]])
def test_references_are_registered_and_read_alike(server: RegistryServer, value: Any) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    server.register("flight", {"schema": json.dumps(FLIGHT), "schemaType": "JSON"})
    plan = json.dumps({"title": "Plan", "type": "array", "items": {"$ref": "flight.json"}})
    schema = confluent.Schema(plan, "JSON", [confluent.SchemaReference("flight.json", "flight", 1)])
    expected = outcome(lambda: theirs.JSONSerializer(schema, client)(value, context()))
    serializer = JsonSchemaSerializer(
        Registry.at(server.url), plan, references=[Reference("flight.json", "flight", 1)]
    )
    assert outcome(lambda: serializer.serialize("t", value, ())) == expected
    data = b"\0\0\0\0\2" + json.dumps(value).encode()
    read = theirs.JSONDeserializer(None, schema_registry_client=client)
    deserializer = JsonSchemaDeserializer(Registry.at(server.url))
    assert outcome(lambda: deserializer.deserialize("t", data, ())) == outcome(lambda: read(data, context()))
