"""`kproto consume` and `kproto produce` exchange records with Confluent's serializers and deserializers."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka.schema_registry.avro")
pytest.importorskip("confluent_kafka.schema_registry.json_schema")

import confluent_kafka.schema_registry as confluent
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from consumer import Consumer, Producer, TopicPartition
from kproto import running
from kproto.cli import main
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

AVRO = """{"type": "record", "name": "Flight", "fields": [
    {"name": "to", "type": ["null", "string", "bytes"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "fare", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}}]}"""
JSON = '{"title": "Flight", "type": "object", "required": ["to"]}'
# The format, the schema, the value for Confluent's serializer, and the JSON that kproto prints.
CASES: list[tuple[str, str, Any, Any]] = [
    (
        "avro",
        AVRO,
        {"to": b"\xff", "at": datetime(2026, 11, 28, 9, 30, tzinfo=UTC), "fare": Decimal("99.50")},
        {"to": {"bytes": "/w=="}, "at": "2026-11-28T09:30:00Z", "fare": "99.50"},
    ),
    ("json-schema", JSON, {"to": "BER", "n": [1, None]}, {"to": "BER", "n": [1, None]}),
]
CONTEXT = SerializationContext("t", MessageField.VALUE)


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.mark.clients
@pytest.mark.parametrize(("form", "schema", "value", "shown"), CASES, ids=[case[0] for case in CASES])
def test_records_are_exchanged_with_confluents_clients(
    registry: RegistryServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    form: str,
    schema: str,
    value: Any,
    shown: Any,
) -> None:
    client = confluent.SchemaRegistryClient({"url": registry.url})
    theirs = AvroSerializer(client, schema) if form == "avro" else JSONSerializer(schema, client)
    file = tmp_path / "schema"
    file.write_text(schema)
    with running({"t": 1}) as server:
        words = ["t", "--value-format", form, "--registry", registry.url, "--bootstrap", server.bootstrap]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(shown).encode())))
        assert main(["produce", *words, "--value-schema", str(file)]) == 0
        with Producer(server.bootstrap) as producer:
            producer.send("t", theirs(value, CONTEXT))
        assert main(["consume", *words]) == 0
        ours, other = map(json.loads, capsys.readouterr().out.splitlines())
        assert ours == other
        with Consumer(server.bootstrap) as consumer:
            consumer.assign({TopicPartition("t", 0): 0})
            [first, second] = consumer.poll(20)
        assert first.value == second.value
        reader = AvroDeserializer(client) if form == "avro" else JSONDeserializer(schema)
        assert reader(first.value, CONTEXT) == value
