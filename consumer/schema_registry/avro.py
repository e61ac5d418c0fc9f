"""Avro with a schema registry: keys and values are dicts, written in Avro after the id of their schema.

    registry = Registry.at("http://localhost:8081")
    Producer("localhost:9092", value_serializer=AvroSerializer(registry, schema))
    Consumer("localhost:9092", value_deserializer=AvroDeserializer(registry))

Rules:

* The bytes, the subjects and the defaults are the same as in Confluent's AvroSerializer and AvroDeserializer.
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
_SubjectSchema: TypeAlias = tuple[SchemaId, Any]


class _Decoder:
    """Decodes each value with the schema of its writer."""

    def __init__(self, registry: Registry, reader_schema: str | None = None, *, part: str = "value") -> None:
        self._fastavro = fastavro_module()
        self._registry = registry
        self._part = checked_part(part)
        self._reader_schema = (
            None if reader_schema is None else _fastavro_schema(self._fastavro, registry.parse(reader_schema))
        )
        self._writer_schemas: RequestedOnce[SchemaId, Any] = RequestedOnce(self._request_schema)

    def _request_schema(self, schema_id: SchemaId) -> Any:
        """Request the schema with this id, and return it parsed.

        Raises the errors of `Registry.schema`, and ValueError if the schema is not an Avro schema.
        """
        return _fastavro_schema(self._fastavro, require_kind(self._registry.schema(schema_id), "AVRO"))

    def _decode(self, writer_schema: Any, data: bytes) -> Any:
        return self._fastavro.schemaless_reader(io.BytesIO(data), writer_schema, self._reader_schema)


class AvroDeserializer(_Decoder):
    """Converts Avro to dicts and other Python objects, as fastavro returns them.

    `reader_schema` is a schema in JSON. Values written with other schemas are converted to it by Avro's
    schema resolution. Without `reader_schema`, each value is returned as its writer's schema defines it.

    For keys, set `part` to "key". Needs the extra `avro`.
    """

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> Any:
        """Return the value.

        Raises ValueError if there is no schema id. Also raises RegistryFailed and fastavro's errors.
        """
        schema_id, encoded = split(self._part, data, headers)
        return self._decode(self._writer_schemas.get(schema_id), encoded)


class AsyncAvroDeserializer(_Decoder):
    """`AvroDeserializer` for an `AsyncConsumer`: the event loop does not wait for the registry."""

    async def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> Any:
        """Return the value; see `AvroDeserializer.deserialize`."""
        schema_id, encoded = split(self._part, data, headers)
        return self._decode(await self._writer_schemas.get_async(schema_id), encoded)


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
        self._schema_text = schema
        self._references = tuple(references)
        self._subject_name_strategy = subject_name_strategy
        self._auto_register = auto_register_schemas
        self._normalize_schemas = normalize_schemas
        self._use_latest_version = use_latest_version
        self._record_name = "" if schema is None else _record_name(schema)
        self._parsed_schema: Any = None
        self._subject_schemas: RequestedOnce[str, _SubjectSchema] = RequestedOnce(self._request_schema)

    def _subject(self, topic: str) -> str:
        return subject_of(self._subject_name_strategy, topic, self._part, self._record_name)

    def _request_schema(self, subject: str) -> _SubjectSchema:
        """Look up or register the schema of a subject, and return its id and the parsed schema.

        Raises NoSuchSchema or RegistryFailed if the lookup or the registration fails, and ValueError if the
        latest schema is not an Avro schema.
        """
        if self._use_latest_version or self._schema_text is None:
            schema_id, schema = self._registry.latest_id(subject)
            return schema_id, _fastavro_schema(self._fastavro, require_kind(schema, "AVRO"))
        schema_id = self._registry.id_of(
            subject,
            self._schema_text,
            self._references,
            register=self._auto_register,
            normalize=self._normalize_schemas,
        )
        if self._parsed_schema is None:
            self._parsed_schema = _fastavro_schema(
                self._fastavro, self._registry.parse(self._schema_text, self._references)
            )
        return schema_id, self._parsed_schema

    def _encode(self, subject_schema: _SubjectSchema, value: object) -> bytes:
        schema_id, schema = subject_schema
        buffer = io.BytesIO()
        buffer.write(encoded_id(schema_id))
        self._fastavro.schemaless_writer(buffer, schema, value)
        return buffer.getvalue()


class AvroSerializer(_Encoder):
    """Converts dicts, and the other Python objects that fastavro accepts, to Avro.

    `schema` is the schema in JSON. By default it is registered under the subject TOPIC-value. With
    `auto_register_schemas=False` it must be registered already.

    With `use_latest_version`, the newest schema of the subject replaces `schema`, and nothing is registered.

    For keys, set `part` to "key". Needs the extra `avro`.
    """

    def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, then the value in Avro. Raises RegistryFailed, and fastavro's errors."""
        return self._encode(self._subject_schemas.get(self._subject(topic)), value)


class AsyncAvroSerializer(_Encoder):
    """`AvroSerializer` for an `AsyncProducer`: the event loop does not wait for the registry."""

    async def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, followed by the value in Avro; see `AvroSerializer.serialize`."""
        return self._encode(await self._subject_schemas.get_async(self._subject(topic)), value)


def fastavro_module() -> Any:
    """Return the module fastavro. Raises MissingExtra if it is not installed."""
    try:
        return import_module("fastavro")
    except ImportError:
        raise MissingExtra("consumer.schema_registry.avro", "fastavro", "avro") from None


def _record_name(text: str) -> str:
    """Return the full name of a schema's type, or "" for a type without a name, such as a union.

    Raises ConfigError if `text` is not JSON.
    """
    parsed = _parsed_json(text)
    if not isinstance(parsed, dict):
        return parsed if isinstance(parsed, str) else ""
    schema = cast("dict[str, Any]", parsed)
    name, namespace = str(schema.get("name", "")), schema.get("namespace")
    return f"{namespace}.{name}" if name and namespace and "." not in name else name


def _parsed_json(text: str) -> Any:
    """Return the JSON of a schema as Python objects. Raises ConfigError if `text` is not JSON."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise ConfigError("schema", text[:80], f"an Avro schema must be JSON ({error})") from None


def _fastavro_schema(fastavro: Any, schema: Schema) -> Any:
    """Return a schema for fastavro's readers and writers: the first result of `parsed_schema`."""
    return parsed_schema(fastavro, schema)[0]


def parsed_schema(fastavro: Any, schema: Schema) -> tuple[Any, dict[str, Any]]:
    """Return a schema parsed by fastavro, and a dict of its named types by full name.

    The dict also has the named types of all schemas to which the schema refers.
    """
    named_types: dict[str, Any] = {}
    for _, reference in schema.references():
        fastavro.parse_schema(_parsed_json(reference.text), named_schemas=named_types)
    definition = _parsed_json(schema.text)
    # fastavro adds referenced types only to the schema of a named type. In other schemas (an array, a map, a
    # union), `expand` replaces the names of types with their definitions.
    kind = cast("Any", definition).get("type") if isinstance(definition, dict) else None
    is_named_type = kind in ("record", "error", "enum", "fixed")
    expand = bool(named_types) and not is_named_type
    return fastavro.parse_schema(definition, named_schemas=named_types, expand=expand), named_types
