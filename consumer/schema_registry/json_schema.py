"""JSON Schema with a schema registry: keys and values as JSON that conforms to a registered schema.

    registry = Registry.at("http://localhost:8081")
    Producer("localhost:9092", value_serializer=JsonSchemaSerializer(registry, schema))
    Consumer("localhost:9092", value_deserializer=JsonSchemaDeserializer(registry))

Rules:

* The bytes, the subjects and the defaults are the same as in Confluent's JSONSerializer and JSONDeserializer.
  jsonschema checks the JSON (the extra `jsonschema`). NaN and infinity are errors, because JSON does not have
  them.

* The "$schema" of a schema names its draft. The default is the newest draft. Formats such as "date" are not
  checked.

* References to other schemas are loaded from the registry, and never from the web.

* Each schema is requested once. The classes with the prefix Async request it in a thread, so the event loop
  does not wait for the registry. Use these classes with the asyncio clients.

* A deserializer accepts the schema id either before the value or in a header of the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, cast

import msgspec

from kproto.errors import ConfigError, MissingExtra

from ..serializers import RecordHeaders
from .registry import Reference, Registry, Schema, SchemaId
from .subjects import (
    RequestedOnce,
    SubjectNameStrategy,
    checked_part,
    require_kind,
    subject_of,
    topic_name,
)
from .wire_format import encoded_id, split

if TYPE_CHECKING:
    # Only type checkers see the default, because type variables have no defaults before Python 3.13.
    from typing_extensions import TypeVar

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

# A function that raises ValueError if a value does not conform to its schema.
_Check: TypeAlias = Callable[[Any], None]
# What a serializer needs to encode the values of a subject: a schema id, and the check of the values.
_SubjectSchema: TypeAlias = tuple[SchemaId, _Check]
# Writes JSON as Confluent's serializer does: without spaces, and with floats in Python's notation (1e+22;
# msgspec writes 1e22). NaN is rejected, because JSON has no NaN.
JSON_WRITER: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)
# Maximum length (characters) of an error's text, which contains a part of the value.
_MAX_TEXT = 300


class _Decoder(Generic[T]):
    """Decodes JSON, and checks it against the reader's schema, or without one, the writer's."""

    def __init__(
        self,
        registry: Registry,
        type: type[T] | None = None,
        *,
        reader_schema: str | None = None,
        references: Sequence[Reference] = (),
        part: str = "value",
        validate: bool = True,
    ) -> None:
        require_jsonschema()
        self._registry = registry
        self._type = type
        self._part = checked_part(part)
        self._validate = validate
        self._reader_check: _Check | None = None
        if reader_schema is not None:
            # Before the references are requested, reject text that cannot be a JSON Schema.
            _parsed_json(reader_schema)
            # An invalid schema is an error even with validate=False.
            check = check_function(registry.parse(reader_schema, references, "JSON"))
            self._reader_check = check if validate else None
        self._writer_checks: RequestedOnce[SchemaId, _Check] = RequestedOnce(self._request_check)

    def _request_check(self, schema_id: SchemaId) -> _Check:
        """Request a schema, and return the function that checks values against it.

        Raises NoSuchSchema or RegistryFailed if the request fails, and ValueError if the schema is not a
        valid JSON Schema.
        """
        return check_function(require_kind(self._registry.schema(schema_id), "JSON"))

    def _decode(self, check: _Check | None, data: bytes) -> T:
        value = msgspec.json.decode(data)
        if check is not None:
            check(value)
        return cast("T", value if self._type is None else msgspec.convert(value, self._type))


class JsonSchemaDeserializer(_Decoder[T]):
    """Converts JSON to dicts and other Python objects, or to objects of a given type.

    The JSON must conform to `reader_schema`, a JSON Schema that may refer to `references`. Without
    `reader_schema`, the JSON must conform to its writer's schema. With `validate=False` the JSON is not
    checked, and the writer's schema is not requested.

    `type` is a dataclass, a TypedDict, a `msgspec.Struct` or another type that `msgspec` supports.

    For keys, set `part` to "key". Needs the extra `jsonschema`.
    """

    def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> T:
        """Return an object of `type`; if no type was given, a dict or another Python object.

        Raises NoSuchSchema or RegistryFailed if the request of the schema fails. Raises msgspec's errors if
        the value is not JSON or does not fit `type`. Raises ValueError if the value has no schema id or does
        not conform to the schema, or if its writer's schema is not a JSON Schema.
        """
        schema_id, encoded = split(self._part, data, headers)
        check = self._reader_check
        if check is None and self._validate:
            check = self._writer_checks.get(schema_id)
        return self._decode(check, encoded)


class AsyncJsonSchemaDeserializer(_Decoder[T]):
    """`JsonSchemaDeserializer` for an `AsyncConsumer`: the event loop does not wait for the registry."""

    async def deserialize(self, topic: str, data: bytes, headers: RecordHeaders) -> T:
        """Return the value; see `JsonSchemaDeserializer.deserialize`."""
        schema_id, encoded = split(self._part, data, headers)
        check = self._reader_check
        if check is None and self._validate:
            check = await self._writer_checks.get_async(schema_id)
        return self._decode(check, encoded)


class _Encoder:
    """Encodes values as JSON, and checks that they conform to the schema of their subject."""

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
        validate: bool = True,
    ) -> None:
        if schema is None and not use_latest_version:
            raise ConfigError("schema", None, "a JSON Schema, unless use_latest_version is True")
        require_jsonschema()
        self._registry = registry
        self._part = checked_part(part)
        self._schema_text = schema
        self._record_name = "" if schema is None else _title(schema)
        self._references = tuple(references)
        self._subject_name_strategy = subject_name_strategy
        self._auto_register = auto_register_schemas
        self._normalize_schemas = normalize_schemas
        self._use_latest_version = use_latest_version
        self._validate = validate
        self._subject_schemas: RequestedOnce[str, _SubjectSchema] = RequestedOnce(self._request_schema)

    def _subject(self, topic: str) -> str:
        return subject_of(self._subject_name_strategy, topic, self._part, self._record_name)

    def _request_schema(self, subject: str) -> _SubjectSchema:
        """Return the id of the subject's schema, and the function that checks values against it.

        With `auto_register_schemas`, a schema that the subject lacks is registered. Raises NoSuchSchema or
        RegistryFailed if the lookup or the registration fails, and ValueError if the schema is not a valid
        JSON Schema.
        """
        if self._use_latest_version or self._schema_text is None:
            schema_id, schema = self._registry.latest_id(subject)
            return schema_id, self._value_check(require_kind(schema, "JSON"))
        schema_id = self._registry.id_of(
            subject, self._schema_text, self._references,
            kind="JSON", register=self._auto_register, normalize=self._normalize_schemas,
        )  # fmt: skip
        return schema_id, self._value_check(self._registry.parse(self._schema_text, self._references, "JSON"))

    def _value_check(self, schema: Schema) -> _Check:
        """Return the function that checks values; with validate=False it accepts all values."""
        return check_function(schema) if self._validate else lambda value: None

    def _encode(self, subject_schema: _SubjectSchema, value: object) -> bytes:
        schema_id, check = subject_schema
        plain = msgspec.to_builtins(value, str_keys=True)
        check(plain)
        return encoded_id(schema_id) + JSON_WRITER.encode(plain).encode()


class JsonSchemaSerializer(_Encoder):
    """Converts dicts and other Python objects to JSON that conforms to a schema.

    `schema` is the JSON Schema. By default it is registered under the subject TOPIC-value. With
    `auto_register_schemas=False` it must be registered already.

    With `use_latest_version`, the newest schema of the subject replaces `schema`, and nothing is registered.

    With `validate=False`, values are not checked. A value may be anything that `msgspec` converts to JSON,
    such as a dataclass or a datetime.

    Subject name strategies receive the schema's `title` as the name of the record type.

    For keys, set `part` to "key". Needs the extra `jsonschema`.
    """

    def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, followed by the value in JSON.

        Raises RegistryFailed, msgspec's errors, and ValueError if the value does not conform to the schema.
        """
        return self._encode(self._subject_schemas.get(self._subject(topic)), value)


class AsyncJsonSchemaSerializer(_Encoder):
    """`JsonSchemaSerializer` for an `AsyncProducer`: the event loop does not wait for the registry."""

    async def serialize(self, topic: str, value: object, headers: RecordHeaders) -> bytes:
        """Return the schema id, followed by the value in JSON; see `JsonSchemaSerializer.serialize`."""
        return self._encode(await self._subject_schemas.get_async(self._subject(topic)), value)


def check_function(schema: Schema) -> Callable[[Any], None]:
    """Return a function that raises ValueError if a value does not conform to a JSON Schema.

    Raises ValueError if the schema is not valid.
    """
    jsonschema: Any = import_module("jsonschema")
    unresolvable: Any = import_module("referencing.exceptions").Unresolvable
    unknown_type: Any = jsonschema.exceptions.UnknownType
    validator = _validator(schema)

    def check(value: Any) -> None:
        try:
            validator.validate(value)
        except jsonschema.ValidationError as error:
            failure = f"{error.json_path}: {error.message}"
            raise ValueError(f"the value does not conform to the schema: {failure:.{_MAX_TEXT}}") from None
        except unresolvable as error:
            reason = f"the JSON Schema refers to {error.ref}, which is not one of its references"
            raise ValueError(reason) from None
        # `_validator` checks only the schema itself. An invalid reference fails when a value needs it.
        except (unknown_type, re.error) as error:
            reason = f"a reference of the JSON Schema is not valid: {error!s:.{_MAX_TEXT}}"
            raise ValueError(reason) from None

    return check


def _validator(schema: Schema) -> Any:
    """Return jsonschema's validator of a schema and its references.

    Raises ValueError if the schema is not valid.
    """
    jsonschema: Any = import_module("jsonschema")
    referencing: Any = import_module("referencing")
    draft7: Any = import_module("referencing.jsonschema").DRAFT7
    contents = _parsed_json(schema.text)
    resources = [
        (name, referencing.Resource.from_contents(_parsed_json(reference.text), default_specification=draft7))
        for name, reference in schema.references()
    ]
    validator_type = jsonschema.validators.validator_for(contents)
    try:
        validator_type.check_schema(contents)
    except jsonschema.SchemaError as error:
        raise ValueError(
            f"the JSON Schema is not valid: {error.json_path}: {error.message:.{_MAX_TEXT}}"
        ) from None
    return validator_type(contents, registry=referencing.Registry().with_resources(resources))


def _parsed_json(text: str) -> Any:
    """Return a schema as Python objects. Raises ConfigError (a ValueError) if `text` is not a schema."""
    try:
        schema: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError("schema", text[:80], f"a JSON Schema must be JSON ({error})") from None
    is_object, is_boolean = isinstance(schema, dict), isinstance(schema, bool)
    draft = cast("dict[str, object]", schema).get("$schema", "") if is_object else ""
    if not (is_object or is_boolean) or not isinstance(draft, str):
        allowed = "a JSON Schema must be an object or a boolean, and its $schema a string"
        raise ConfigError("schema", text[:80], allowed)
    return cast("Any", schema)


def _title(text: str) -> str:
    """Return the title of a schema, or "" if the schema has none.

    Raises ConfigError if `text` is not JSON, or not the object or boolean that a JSON Schema must be.
    """
    schema = _parsed_json(text)
    title = cast("dict[str, Any]", schema).get("title") if isinstance(schema, dict) else None
    return title if isinstance(title, str) else ""


def require_jsonschema() -> None:
    """Raise MissingExtra if a package of the extra `jsonschema` is missing."""
    try:
        import_module("jsonschema")
        import_module("referencing.jsonschema")
    except ImportError:
        raise MissingExtra("consumer.schema_registry.json_schema", "jsonschema", "jsonschema") from None
