"""Avro with a schema registry: keys and values as dicts, with the id of their schema before the bytes.

    registry = Registry.at("http://localhost:8081")
    Producer("localhost:9092", value_serializer=AvroSerializer(registry, schema))
    Consumer("localhost:9092", value_deserializer=AvroDeserializer(registry))

Rules:

* The bytes, the subjects and the defaults are those of Confluent's AvroSerializer and AvroDeserializer.
  fastavro encodes and decodes Avro (the extra `avro`).

* Each schema is requested once. The classes with the prefix Async request it in a thread, so the event loop
  does not wait for the registry. Use these classes with the asyncio clients.

* A deserializer accepts the schema id either before the value or in a header of the record.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias, cast

from kproto.errors import ConfigError, MissingExtra

from ..serializers import RecordHeaders
from .registry import Reference, Registry, Schema, SchemaId
from .subjects import RequestedOnce, SubjectNameStrategy, checked_part, require_kind, subject_of, topic_name
from .wire_format import encoded_id, split

# What a serializer needs to encode the values of a subject: a schema id and the parsed schema.
_Writer: TypeAlias = tuple[SchemaId, Any]


class _Decoder:
    """Decodes each value with the schema of its writer."""

    def __init__(self, registry: Registry, reader_schema: str | None = None, *, part: str = "value") -> None:
        self._fastavro = fastavro_module()
        self._registry = registry
        self._part = checked_part(part)
        self._reader = (
            None if reader_schema is None else _parsed(self._fastavro, registry.parse(reader_schema))
        )
        self._writers: RequestedOnce[SchemaId, Any] = RequestedOnce(self._requested)

    def _requested(self, schema_id: SchemaId) -> Any:
        """Return the parsed schema with this id. Raises NoSuchSchema and RegistryFailed."""
        return _parsed(self._fastavro, require_kind(self._registry.schema(schema_id), "AVRO"))

    def _decode(self, writer: Any, data: bytes) -> Any:
        return self._fastavro.schemaless_reader(io.BytesIO(data), writer, self._reader)


class AvroDeserializer(_Decoder):
    """Converts Avro to dicts and other Python objects, as fastavro returns them.

    `reader_schema` is a schema in JSON. Values written with other schemas are converted to it by Avro's
    schema resolution. Without `reader_schema`, each value is returned as its writer's schema defines it.

    For keys, set `part` to "key". Needs the extra `avro`.
    """

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> Any:
        """Return the value.

        Raises RegistryFailed, fastavro's errors, and ValueError if there is no schema id.
        """
        schema_id, encoded = split(self._part, data, headers)
        return self._decode(self._writers.get(schema_id), encoded)


class AsyncAvroDeserializer(_Decoder):
    """`AvroDeserializer` for an `AsyncConsumer`: the event loop does not wait for the registry."""

    async def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> Any:
        """Return the value; see `AvroDeserializer.deserialize`."""
        schema_id, encoded = split(self._part, data, headers)
        return self._decode(await self._writers.get_async(schema_id), encoded)


class _Encoder:
    """Encodes values with the schema of their subject."""

    def __init__(
        self,
        registry: Registry,
        schema: str | None = None,
        *,
        part: str = "value",
        subject_name_strategy: SubjectNameStrategy = topic_name,
        references: Sequence[Reference] = (),
        auto_register_schemas: bool = True,
        normalize_schemas: bool = False,
        use_latest_version: bool = False,
    ) -> None:
        if schema is None and not use_latest_version:
            raise ConfigError("schema", None, "an Avro schema in JSON, unless use_latest_version is True")
        self._fastavro = fastavro_module()
        self._registry = registry
        self._part = checked_part(part)
        self._text = schema
        self._references = tuple(references)
        self._strategy = subject_name_strategy
        self._register = auto_register_schemas
        self._normalize = normalize_schemas
        self._latest = use_latest_version
        self._name = "" if schema is None else _record_type(schema)
        self._parsed: Any = None
        self._writers: RequestedOnce[str, _Writer] = RequestedOnce(self._requested)

    def _subject(self, topic: str) -> str:
        return subject_of(self._strategy, topic, self._part, self._name)

    def _requested(self, subject: str) -> _Writer:
        """Return the id of a subject's schema, and the parsed schema. Raises NoSuchSchema, RegistryFailed."""
        if self._latest or self._text is None:
            schema_id, schema = self._registry.latest_id(subject)
            return schema_id, _parsed(self._fastavro, require_kind(schema, "AVRO"))
        schema_id = self._registry.id_of(
            subject, self._text, self._references, register=self._register, normalize=self._normalize
        )
        if self._parsed is None:
            self._parsed = _parsed(self._fastavro, self._registry.parse(self._text, self._references))
        return schema_id, self._parsed

    def _encode(self, writer: _Writer, value: object) -> bytes:
        schema_id, schema = writer
        file = io.BytesIO()
        file.write(encoded_id(schema_id))
        self._fastavro.schemaless_writer(file, schema, value)
        return file.getvalue()


class AvroSerializer(_Encoder):
    """Converts dicts, and the other Python objects that fastavro accepts, to Avro.

    `schema` is the schema in JSON. By default it is registered under the subject TOPIC-value. With
    `auto_register_schemas=False` it must be registered already.

    With `use_latest_version`, the newest schema of the subject is used instead, and nothing is registered.

    For keys, set `part` to "key". Needs the extra `avro`.
    """

    def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, then the value in Avro. Raises RegistryFailed, and fastavro's errors."""
        return self._encode(self._writers.get(self._subject(topic)), value)


class AsyncAvroSerializer(_Encoder):
    """`AvroSerializer` for an `AsyncProducer`: the event loop does not wait for the registry."""

    async def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, followed by the value in Avro; see `AvroSerializer.serialize`."""
        return self._encode(await self._writers.get_async(self._subject(topic)), value)


def fastavro_module() -> Any:
    """Return the module fastavro. Raises MissingExtra."""
    try:
        return import_module("fastavro")
    except ImportError:
        raise MissingExtra("consumer.schema_registry.avro", "fastavro", "avro") from None


def _record_type(text: str) -> str:
    """Return the full name of a schema's type, or "" for a type without a name, such as a union.

    Raises ConfigError if `text` is not JSON.
    """
    parsed = _json(text)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, str) else ""
    schema = cast("dict[str, Any]", parsed)
    name, namespace = str(schema.get("name", "")), schema.get("namespace")
    return f"{namespace}.{name}" if name and namespace and "." not in name else name


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError("schema", text[:80], f"an Avro schema must be JSON ({error})") from None


def _parsed(fastavro: Any, schema: Schema) -> Any:
    return parsed_schema(fastavro, schema)[0]


def parsed_schema(fastavro: Any, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a schema parsed by fastavro, and a dict of its named types by full name.

    The named types include those of all schemas to which the schema refers.
    """
    named: dict[str, Any] = {}
    for _, reference in schema.references():
        fastavro.parse_schema(_json(reference.text), named_schemas=named)
    top = _json(schema.text)
    # fastavro adds referenced types only to the schema of a named type. In other schemas (an array, a map, a
    # union), `expand` replaces the names of types with their definitions.
    is_named = isinstance(top, dict) and cast("Any", top).get("type") in ("record", "error", "enum", "fixed")
    return fastavro.parse_schema(top, named_schemas=named, expand=bool(named) and not is_named), named
