"""Avro with a schema registry: Confluent's serializers write and read the same bytes as kproto's."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.avro")

import confluent_kafka.schema_registry as confluent
import confluent_kafka.schema_registry.avro as theirs
from confluent_kafka.serialization import SerializationContext

from consumer.schema_registry.avro import AvroDeserializer, AvroSerializer
from consumer.schema_registry.registry import Reference, Registry
from consumer.schema_registry.subjects import record_name, topic_record_name
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

RECORD = {
    "type": "record",
    "name": "Flight",
    "namespace": "demo",
    "fields": [
        {"name": "to", "type": ["null", "string"], "default": None},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "seats", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
    ],
}
FLIGHT = {
    "to": "BER",
    "day": date(2026, 11, 28),
    "at": datetime(2026, 11, 28, 12, tzinfo=UTC),
    "fare": Decimal("99.50"),
    "seats": {"first": [1, 2], "": []},
    "kind": "B",
}
CASES: list[tuple[Any, Any]] = [
    (RECORD, FLIGHT),
    ("string", "x"),
    ({"type": "long"}, -(2**40)),
    (["null", "int"], None),
    ({"type": "array", "items": "double"}, [1.5, -0.0]),
]


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


def context(part: str = "value") -> Any:
    return SerializationContext("t", part)


@pytest.mark.parametrize(("schema", "value"), CASES)
def test_both_write_the_same_bytes_and_read_those_of_the_other(
    server: RegistryServer, schema: Any, value: Any
) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    text = json.dumps(schema)
    expected = theirs.AvroSerializer(client, text)(value, context())
    ours = AvroSerializer(Registry.at(server.url), text).serialize("t", value, ())
    if expected is not None:  # Confluent's serializer does not serialize None.
        assert ours == expected
    assert theirs.AvroDeserializer(client)(ours, context()) == value
    assert AvroDeserializer(Registry.at(server.url)).deserialize("t", expected or ours, ()) == value


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
    strategy = getattr(confluent, name)
    text = json.dumps(RECORD)
    theirs.AvroSerializer(client, text, conf={"subject.name.strategy": strategy})(FLIGHT, context(part))
    subjects = dict(server.subjects)
    server.subjects.clear()
    serializer = AvroSerializer(Registry.at(server.url), text, part=part, subject_name_strategy=our_strategy)
    serializer.serialize("t", FLIGHT, ())
    assert server.subjects == subjects


def test_references_are_registered_and_read_alike(server: RegistryServer) -> None:
    client = confluent.SchemaRegistryClient({"url": server.url})
    server.register("flight", {"schema": json.dumps(RECORD)})
    plan = json.dumps({"type": "record", "name": "Plan", "fields": [{"name": "f", "type": "demo.Flight"}]})
    schema = confluent.Schema(plan, "AVRO", [confluent.SchemaReference("demo.Flight", "flight", 1)])
    expected = theirs.AvroSerializer(client, schema)({"f": FLIGHT}, context())
    serializer = AvroSerializer(
        Registry.at(server.url), plan, references=[Reference("demo.Flight", "flight", 1)]
    )
    assert serializer.serialize("t", {"f": FLIGHT}, ()) == expected
    assert theirs.AvroDeserializer(client)(expected, context()) == {"f": FLIGHT}
    assert AvroDeserializer(Registry.at(server.url)).deserialize("t", expected, ()) == {"f": FLIGHT}
