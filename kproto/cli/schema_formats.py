"""The formats of keys and values whose schemas are in a registry: Avro, Protobuf and JSON Schema.

Keys and values have the encoding of Confluent's serializers (`consumer.schema_registry`).

Avro values are shown as the JSON of `avro_json`, and JSON Schema values as their JSON. Protobuf messages are
shown in Google's JSON mapping, including fields with default values.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import ConfigError, KprotoError
from .arguments import parse_digits, registry_properties
from .avro_json import JsonReader, to_json

if TYPE_CHECKING:
    from consumer import ConsumerRecord
    from consumer.schema_registry.registry import Registry, Schema, SchemaId

# Maps each format to the registry's schema type.
KINDS: Final = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}
_LATEST: Final = "latest"
_LOGIN_VARIABLE: Final = "KPROTO_REGISTRY_LOGIN"
_LOGIN: Final = "basic.auth.user.info"

# Decodes the key or value of a record to a value for JSON. Raises the errors of the deserializer.
Decode = Callable[["ConsumerRecord[Any, Any]", bytes], Any]
# Encodes a key or value given as JSON text. Raises ValueError if the value does not fit the schema.
Encode = Callable[[str], bytes]


def add_registry(parser: argparse.ArgumentParser) -> None:
    """Add the option `--registry`."""
    parser.add_argument(
        "--registry",
        metavar="URL",
        help=f"the schema registry, for the formats {', '.join(KINDS)}; default: schema.registry.url in the "
        f"file of --command-config. The login is {_LOGIN} in this file, or NAME:PASSWORD in the environment "
        f"variable {_LOGIN_VARIABLE}",
    )


def add_schemas(parser: argparse.ArgumentParser) -> None:
    """Add the options that select the schemas of keys and values to send."""
    for part in ("key", "value"):
        parser.add_argument(
            f"--{part}-schema",
            metavar="SCHEMA",
            help="a file, whose schema is registered, the id of a registered schema, or latest, the newest "
            f"schema of the subject TOPIC-{part}; default: latest",
        )
        parser.add_argument(
            f"--{part}-message",
            metavar="NAME",
            help="the message of a Protobuf schema, with its package; default: the first one",
        )


def decoders(options: argparse.Namespace) -> dict[str, Decode]:
    """Return a decoder for each part ("key" or "value") whose format has a schema.

    Raises ConfigError if the URL of the registry is missing, or an option is not allowed.
    """
    parts = _parts_with_schema(options)
    registry = _registry(options, parts)
    return {part: _decoder(form, registry, part) for part, form in parts.items()}


def encoders(options: argparse.Namespace) -> dict[str, Encode]:
    """Return an encoder for each part ("key" or "value") whose format has a schema.

    The schemas are requested from the registry; a schema given in a file is registered first.

    Raises ConfigError if an option is not allowed, and RegistryFailed if the registry does not return a
    schema.
    """
    parts = _parts_with_schema(options)
    for part in ("key", "value"):
        for option, forms in ((f"{part}_schema", tuple(KINDS)), (f"{part}_message", ("protobuf",))):
            value = getattr(options, option)
            if value is not None and parts.get(part) not in forms:
                allowed = f"allowed only with --{part}-format {', '.join(forms)}"
                raise ConfigError(f"--{option.replace('_', '-')}", value, allowed)
    registry = _registry(options, parts)
    return {part: _encoder(form, registry, part, options) for part, form in parts.items()}


def _parts_with_schema(options: argparse.Namespace) -> dict[str, str]:
    """Return the format of each part ("key" or "value") whose format has a schema."""
    formats = {"key": options.key_format, "value": options.value_format}
    return {part: form for part, form in formats.items() if form in KINDS}


def _registry(options: argparse.Namespace, parts: dict[str, str]) -> Registry:
    """Return the client of the registry. It has no URL if neither key nor value has a schema.

    Raises ConfigError if an option is missing or not allowed.
    """
    from consumer.schema_registry.registry import OptionNames, Registry
    from consumer.security.option_names import mask_secret

    names = OptionNames("--registry", f"{_LOGIN} or {_LOGIN_VARIABLE}", "the schema's id or subject")
    if not parts:
        if options.registry is not None:
            raise ConfigError(
                "--registry", mask_secret("url", options.registry), f"allowed only with {_formats_text()}"
            )
        return Registry((), None, names)
    file = options.command_config
    properties = {} if file is None else registry_properties(file)
    url = properties.pop("schema.registry.url", None)
    login = properties.pop(_LOGIN, None) or os.environ.get(_LOGIN_VARIABLE)
    source = properties.pop("basic.auth.credentials.source", "USER_INFO")
    if source != "USER_INFO":
        raise ConfigError("basic.auth.credentials.source", source, "allowed: USER_INFO")
    if properties:
        name, value = properties.popitem()
        allowed = f"not supported; allowed: schema.registry.url and {_LOGIN}"
        raise ConfigError(name, mask_secret(name, value), allowed)
    if (address := options.registry or url) is None:
        form = next(iter(parts.values()))
        allowed = f"needed for the format {form}; give a URL such as http://localhost:8081"
        raise ConfigError("--registry", None, allowed)
    return Registry.at(address, login, names)


def _formats_text() -> str:
    return f"the formats {', '.join(KINDS)}"


def _decoder(form: str, registry: Registry, part: str) -> Decode:
    match form:
        case "avro":
            from consumer.schema_registry.avro import AvroDeserializer

            avro = AvroDeserializer(registry, part=part)
            return lambda record, data: to_json(avro.deserialize(record.topic, data, record.headers))
        case "protobuf":
            from consumer.schema_registry.protobuf import ProtobufDeserializer

            protobuf: Any = ProtobufDeserializer(registry=registry, part=part)
            return lambda record, data: _protobuf_to_json(
                protobuf.deserialize(record.topic, data, record.headers)
            )
        case _:
            from consumer.schema_registry.json_schema import JsonSchemaDeserializer

            json_schema: Any = JsonSchemaDeserializer(registry, part=part)
            return lambda record, data: json_schema.deserialize(record.topic, data, record.headers)


def _protobuf_to_json(message: Any) -> Any:
    json_format: Any = import_module("google.protobuf.json_format")
    pool = message.DESCRIPTOR.file.pool
    return json_format.MessageToDict(message, always_print_fields_with_no_presence=True, descriptor_pool=pool)


def _encoder(form: str, registry: Registry, part: str, options: argparse.Namespace) -> Encode:
    word = getattr(options, f"{part}_schema") or _LATEST
    try:
        schema_id, schema = _selected_schema(registry, form, part, options.topic, word)
        match form:
            case "avro":
                return _avro_encoder(schema_id, schema)
            case "protobuf":
                return _protobuf_encoder(schema_id, schema, part, getattr(options, f"{part}_message"))
            case _:
                return _json_encoder(schema_id, schema)
    except KprotoError:
        raise
    # For an invalid schema, the libraries of the formats raise many kinds of errors.
    except Exception as error:
        raise ConfigError(f"--{part}-schema", word, f"allowed: a schema for {form} ({error})") from None


def _selected_schema(
    registry: Registry, form: str, part: str, topic: str, word: str
) -> tuple[SchemaId, Schema]:
    """Return the schema that the option `--key-schema` or `--value-schema` selects, and its id."""
    from consumer.schema_registry.protobuf_schema import SERIALIZED
    from consumer.schema_registry.subjects import require_kind

    subject = f"{topic}-{part}"
    representation = SERIALIZED if form == "protobuf" else ""
    if word == _LATEST:
        schema_id, schema = registry.latest_id(subject, representation)
    else:
        schema_id = parse_digits(word)
        if schema_id < 0:  # `word` is not an id, but the path of a file.
            schema_id = registry.id_of(
                subject, _read_schema_file(f"--{part}-schema", word), kind=KINDS[form], register=True
            )
        schema = registry.schema(schema_id, representation)
    return schema_id, require_kind(schema, KINDS[form])


def _read_schema_file(option: str, word: str) -> str:
    try:
        return Path(word).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is not UTF-8"
        allowed = f"allowed: the file of a schema ({why}), the id of a schema, or latest"
        raise ConfigError(option, word, allowed) from None


def _avro_encoder(schema_id: SchemaId, schema: Schema) -> Encode:
    from io import BytesIO

    from consumer.schema_registry.avro import fastavro_module, parsed_schema
    from consumer.schema_registry.wire_format import encoded_id

    fastavro = fastavro_module()
    parsed, named = parsed_schema(fastavro, schema)
    reader = JsonReader(parsed, named)

    def encode(text: str) -> bytes:
        file = BytesIO(encoded_id(schema_id))
        file.seek(0, os.SEEK_END)
        fastavro.schemaless_writer(file, parsed, reader.read(json.loads(text)))
        return file.getvalue()

    return encode


def _protobuf_encoder(schema_id: SchemaId, schema: Schema, part: str, message_name: str | None) -> Encode:
    from consumer.schema_registry.protobuf import message_type_of, require_protobuf
    from consumer.schema_registry.protobuf_schema import message_names
    from consumer.schema_registry.wire_format import encoded_id, encoded_indexes

    require_protobuf()
    json_format: Any = import_module("google.protobuf.json_format")
    names = message_names(schema)
    indexes_by_name = {name: indexes for indexes, name in names.items()}
    # By default, the message type is the first one at the top level.
    name = names.get((0,)) if message_name is None else message_name
    if name is None or name not in indexes_by_name:
        raise ConfigError(
            f"--{part}-message", message_name, f"allowed: {', '.join(indexes_by_name) or 'no message'}"
        )
    message_type = message_type_of(schema, name)
    prefix = encoded_id(schema_id) + encoded_indexes(indexes_by_name[name])
    pool = message_type.DESCRIPTOR.file.pool

    def encode(text: str) -> bytes:
        try:
            message = json_format.Parse(text, message_type(), descriptor_pool=pool)
        except json_format.ParseError as error:
            raise ValueError(str(error)) from None
        return prefix + bytes(message.SerializeToString())

    return encode


def _json_encoder(schema_id: SchemaId, schema: Schema) -> Encode:
    from consumer.schema_registry.json_schema import JSON_WRITER, check_function, require_jsonschema
    from consumer.schema_registry.wire_format import encoded_id

    require_jsonschema()
    check = check_function(schema)

    def encode(text: str) -> bytes:
        value = json.loads(text)
        check(value)
        return encoded_id(schema_id) + JSON_WRITER.encode(value).encode()

    return encode
