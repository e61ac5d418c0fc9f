"""Reads Protobuf descriptors, and maps their messages to Spark's types."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigError, MissingExtra

from ...schema_registry.protobuf_schema import InvalidSchema, descriptor_pool, registered_files
from .avro_schema import quoted
from .names import REGISTRY_URL

if TYPE_CHECKING:
    from .types import ColumnFormat

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

# Two values of FieldDescriptor.type.
MESSAGE: Final = 11
ENUM: Final = 14
# Spark's type, the wire type and the numpy type for each FieldDescriptor.type.
KINDS: dict[int, tuple[str, int, str]] = {
    1: ("DOUBLE", 1, "<f8"),
    2: ("FLOAT", 5, "<f4"),
    3: ("BIGINT", 0, "i8"),
    4: ("DECIMAL(20, 0)", 0, "u8"),
    5: ("INT", 0, "i4"),
    6: ("DECIMAL(20, 0)", 1, "<u8"),
    7: ("BIGINT", 5, "<u4"),
    8: ("BOOLEAN", 0, "bool"),
    9: ("STRING", 2, ""),
    11: ("", 2, ""),
    12: ("BINARY", 2, ""),
    13: ("BIGINT", 0, "u4"),
    14: ("STRING", 0, "i4"),
    15: ("INT", 5, "<i4"),
    16: ("BIGINT", 1, "<i8"),
    17: ("INT", 0, "i4"),
    18: ("BIGINT", 0, "i8"),
}


def column_type(column_format: ColumnFormat) -> str:
    """Return the DDL type of the column, which is the type of the message."""
    return _struct_ddl(column_format, message(column_format), ())


def message(column_format: ColumnFormat) -> Any:
    """Return the descriptor of the message that the options name.

    Raises ConfigError if an option or the schema is not valid, and MissingExtra if protobuf is missing.
    """
    files = _schema_files(column_format)
    try:
        pool = descriptor_pool(files, _missing_import_error)
    except InvalidSchema as error:
        raise ConfigError(column_format.option("schema"), error.file, error.reason) from None
    names = _message_names(files.file)
    name = column_format.message or _default_message(column_format, files)
    if name is None:
        raise ConfigError(
            column_format.option("message"),
            None,
            f"set it to the full name of a message; the schema has {', '.join(names)}",
        )
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ConfigError(
            column_format.option("message"), name, f"the schema has the messages {', '.join(names)}"
        ) from None


def _schema_files(column_format: ColumnFormat) -> Any:
    """Return the files of the schema in the options. If no schema is set, use the registry's schema."""
    option = column_format.option("schema")
    try:
        pb: Any = import_module("google.protobuf.descriptor_pb2")
        messages: Any = import_module("google.protobuf.message")
    except ImportError:
        raise MissingExtra(f"{column_format.column}.format=protobuf", "protobuf", "protobuf") from None
    files = pb.FileDescriptorSet()
    if column_format.schema is not None:
        try:
            files.ParseFromString(base64.b64decode(column_format.schema, validate=True))
        except (binascii.Error, ValueError, messages.DecodeError) as error:
            raise ConfigError(
                option,
                column_format.schema[:40],
                f"it cannot be decoded ({error}); set it to {_ALLOWED_SCHEMA}",
            ) from None
        return files
    if column_format.registry is None:
        raise ConfigError(
            option, None, f"protobuf needs a schema; set it to {_ALLOWED_SCHEMA}, or set {REGISTRY_URL}"
        )
    if column_format.subject is None:
        raise ConfigError(
            column_format.option("subject"),
            None,
            f"the query may read several topics; set the subject, or {option}",
        )
    return _registered_files(column_format, column_format.with_latest_schema().latest)


_ALLOWED_SCHEMA = (
    "a descriptor set (protoc --include_imports --descriptor_set_out), its path or its bytes in base64"
)


def _message_names(files: Sequence[Any]) -> list[str]:
    """Return the full names of the messages that these files define, except nested messages."""
    return [f"{file.package}.{message.name}".strip(".") for file in files for message in file.message_type]


def _default_message(column_format: ColumnFormat, files: Any) -> str | None:
    """Return the first message of a registered schema, as Confluent's clients do.

    The registered schema is the last of the files. The result is None if the schema is given as an option, or
    if the registered schema has no messages.
    """
    if column_format.schema is not None or not files.file:
        return None
    return next(iter(_message_names(files.file[-1:])), None)


def _registered_files(column_format: ColumnFormat, schema: Any) -> Any:
    """Return the files of a registered schema: those that it imports, and then its own file."""
    if schema.kind != "PROTOBUF":
        raise ConfigError(
            column_format.option("format"),
            "protobuf",
            f"the registry has a schema of the type {schema.kind} for this subject or id, not PROTOBUF",
        )
    try:
        return registered_files(schema)
    except InvalidSchema as error:
        reason = f"{error}; set this option to a descriptor set"
        raise ConfigError(column_format.option("schema"), None, reason) from None


def _missing_import_error(file: str, imported: str) -> str:
    """Return the error text for a descriptor set that lacks an imported file."""
    return (
        f"{file} imports {imported}, which the descriptor set lacks; create it with protoc --include_imports"
    )


def is_repeated(field: Any) -> bool:
    """Return whether a field is repeated. The function works with every version of the protobuf package."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_map(field: Any) -> bool:
    """Return whether a field is a map."""
    return field.type == MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _struct_ddl(column_format: ColumnFormat, message: Any, enclosing: tuple[str, ...]) -> str:
    """Return the DDL type of a message.

    `enclosing` contains the names of the enclosing messages. Raises ConfigError if this message is one of
    them.
    """
    if message.full_name in enclosing:
        reason = "Spark has no recursive types; name the columns to read: .schema('value STRUCT<...>')"
        raise ConfigError(column_format.option("message"), message.full_name, reason)
    path = (*enclosing, message.full_name)
    fields = (f"{quoted(field.name)}: {_field_ddl(column_format, field, path)}" for field in message.fields)
    return f"STRUCT<{', '.join(fields)}>"


def _field_ddl(column_format: ColumnFormat, field: Any, enclosing: tuple[str, ...]) -> str:
    """Return the DDL type of a field. `enclosing` ends with the message that contains the field."""
    if is_map(field):
        fields = field.message_type.fields_by_name
        key_type, value_type = (
            _field_ddl(column_format, fields[name], enclosing) for name in ("key", "value")
        )
        return f"MAP<{key_type}, {value_type}>"
    if field.type not in KINDS:
        raise ConfigError(
            column_format.option("message"), field.full_name, "protobuf groups are not supported"
        )
    type_ = KINDS[field.type][0]
    if field.type == MESSAGE:
        message = field.message_type
        type_ = well_known_type(message) or _struct_ddl(column_format, message, enclosing)
    return f"ARRAY<{type_}>" if is_repeated(field) else type_


def well_known_type(message: Any) -> str:
    """Return Spark's type for a well-known message type, or an empty string for any other message."""
    return {TIMESTAMP: "TIMESTAMP", DURATION: "INTERVAL DAY TO SECOND"}.get(message.full_name, "")
