"""Reads Protobuf descriptors, and maps their messages to Spark's types."""

from __future__ import annotations

import base64
import binascii
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigError, MissingExtra

from .avro_schema import quoted
from .names import REGISTRY_URL
from .registered import Mismatch

if TYPE_CHECKING:
    from ...schema_registry.registry import Schema
    from .types import ColumnFormat

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

# Spark's type, the wire type and the numpy type for each FieldDescriptor.type.
MESSAGE: Final = 11
ENUM: Final = 14
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
    """Return the DDL type of the column, which is that of the message."""
    return _ddl(column_format, message(column_format), ())


def message(column_format: ColumnFormat) -> Any:
    """Return the descriptor of the message that the options name. Raises ConfigError, MissingExtra."""
    option = column_format.option("schema")
    try:
        pb: Any = import_module("google.protobuf.descriptor_pb2")
        pools: Any = import_module("google.protobuf.descriptor_pool")
        messages: Any = import_module("google.protobuf.message")
    except ImportError:
        raise MissingExtra(f"{column_format.column}.format=protobuf", "protobuf", "protobuf") from None
    files = pb.FileDescriptorSet()
    if column_format.schema is not None:
        try:
            files.ParseFromString(base64.b64decode(column_format.schema, validate=True))
        except (binascii.Error, ValueError, messages.DecodeError) as error:
            raise ConfigError(option, column_format.schema[:40], f"{_SHAPE} ({error})") from None
    elif column_format.registry is None:
        raise ConfigError(option, None, f"protobuf needs a schema: {_SHAPE}; or set {REGISTRY_URL}")
    elif column_format.subject is None:
        raise ConfigError(
            column_format.option("subject"),
            None,
            f"the query may read several topics: set the subject, or {option}",
        )
    else:
        _registered(column_format, column_format.with_latest_schema().latest, files)
    pool = pools.DescriptorPool()
    remaining = {file.name: file for file in files.file}
    _add(column_format, pool, remaining)
    names = [f"{file.package}.{m.name}".strip(".") for file in files.file for m in file.message_type]
    # The registry's schema is the last file. Its first message is the default, as in Confluent's clients.
    own = len(files.file[-1].message_type) if column_format.schema is None and files.file else 0
    name = column_format.message or (names[-own] if own else None)
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


def message_names(schema: Schema) -> dict[tuple[int, ...], str]:
    """Return the full name of each message in a schema of the registry, by its message indexes.

    A message index is the position of a message in its file, or in its enclosing message. As in Confluent's
    Java clients, the entries of maps do not count. Raises Mismatch if the schema is not Protobuf.
    """
    if schema.kind != "PROTOBUF":
        raise Mismatch(f"the registry has a schema of the type {schema.kind}, but PROTOBUF is needed")
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    file = pb.FileDescriptorProto()
    try:
        file.ParseFromString(base64.b64decode(schema.text, validate=True))
    # The registry has ignored `format=serialized`, and has sent the text of the .proto file.
    except Exception:
        return _message_names_in_text(schema.text)
    names: dict[tuple[int, ...], str] = {}

    def add(messages: Any, place: tuple[int, ...], prefix: str) -> None:
        for number, message in enumerate(m for m in messages if not m.options.map_entry):
            names[*place, number] = f"{prefix}.{message.name}".strip(".")
            add(message.nested_type, (*place, number), names[*place, number])

    add(file.message_type, (), file.package)
    return names


_NOISE = re.compile(r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.DOTALL)
_BLOCK = re.compile(r"\bpackage\s+([\w.\s]+);|\bmessage\s+(\w+)\s*\{|([{}])")


def _message_names_in_text(text: str) -> dict[tuple[int, ...], str]:
    """Return what `message_names` returns, for a schema that is the text of a .proto file."""
    names: dict[tuple[int, ...], str] = {}
    package = ""
    # The blocks that are open at the current position, outermost first. A message is represented by its
    # message indexes, and any other block by None.
    blocks: list[tuple[int, ...] | None] = []
    for match in _BLOCK.finditer(_NOISE.sub(" ", text)):
        if match[1]:
            package = "".join(match[1].split())
        elif match[2]:
            above = blocks[-1] if blocks else ()
            if above is None:
                blocks.append(None)
                continue
            number = sum(len(place) == len(above) + 1 and place[:-1] == above for place in names)
            names[*above, number] = f"{names.get(above, package)}.{match[2]}".strip(".")
            blocks.append((*above, number))
        elif match[3] == "{":
            blocks.append(None)
        elif blocks:
            blocks.pop()
    return names


_SHAPE = "a descriptor set (protoc --include_imports --descriptor_set_out), its path or its bytes in base64"


def _registered(column_format: ColumnFormat, schema: Any, files: Any) -> None:
    """Add a schema of the registry to `files`, after the schemas to which it refers."""
    if schema.kind != "PROTOBUF":
        raise ConfigError(
            column_format.option("format"),
            "protobuf",
            f"the registry has a schema of the type {schema.kind} for this subject or id, not PROTOBUF",
        )
    for name, reference in (*schema.references(), ("", schema)):
        file = files.file.add()
        try:
            file.ParseFromString(base64.b64decode(reference.text, validate=True))
        # A DecodeError or a base64 error means that the registry has ignored format=serialized.
        except Exception as error:
            files.file.pop()
            reason = f"the registry sends no descriptor ({error}); set this option to a descriptor set"
            raise ConfigError(column_format.option("schema"), None, reason) from None
        file.name = name or file.name or "latest.proto"


def _add(column_format: ColumnFormat, pool: Any, remaining: dict[str, Any]) -> None:
    """Add all files to the pool, each after its imports. Well-known types come from the protobuf package."""
    own: Any = import_module("google.protobuf.descriptor_pool").Default()
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    for known in ("timestamp", "duration", "any", "wrappers", "struct", "empty", "field_mask"):
        import_module(f"google.protobuf.{known}_pb2")
    while remaining:
        name = next(iter(remaining))
        stack = [name]
        while stack:
            file = remaining.get(stack[-1])
            if file is None:
                stack.pop()
                continue
            missing = [n for n in file.dependency if n in remaining]
            if missing and len(stack) <= len(remaining):
                stack.append(missing[0])
                continue
            for imported in file.dependency:
                try:
                    pool.FindFileByName(imported)
                except KeyError:
                    try:
                        proto = pb.FileDescriptorProto()
                        own.FindFileByName(imported).CopyToProto(proto)
                        pool.Add(proto)
                    except KeyError:
                        reason = (
                            f"{file.name} imports {imported}, which the descriptor set lacks; create it "
                            "with protoc --include_imports"
                        )
                        raise ConfigError(column_format.option("schema"), file.name, reason) from None
            try:
                pool.Add(file)
                pool.FindFileByName(file.name)
            except Exception as error:  # The pool raises TypeError or KeyError if it rejects the file.
                raise ConfigError(
                    column_format.option("schema"), file.name, f"the file is not valid: {error}"
                ) from None
            del remaining[stack.pop()]


def repeated(field: Any) -> bool:
    """Return whether a field is repeated. The function works with every version of the protobuf package."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_map(field: Any) -> bool:
    """Return whether a field is a map."""
    return field.type == MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _ddl(column_format: ColumnFormat, message: Any, within: tuple[str, ...]) -> str:
    """Return the DDL type of a message. `within` has the names of the enclosing messages, to detect
    recursion.
    """
    if message.full_name in within:
        reason = "Spark has no recursive types; name the columns to read: .schema('value STRUCT<...>')"
        raise ConfigError(column_format.option("message"), message.full_name, reason)
    inner = (*within, message.full_name)
    fields = (f"{quoted(field.name)}: {_field_ddl(column_format, field, inner)}" for field in message.fields)
    return f"STRUCT<{', '.join(fields)}>"


def _field_ddl(column_format: ColumnFormat, field: Any, within: tuple[str, ...]) -> str:
    """Return the DDL type of a field."""
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"MAP<{_field_ddl(column_format, key, within)}, {_field_ddl(column_format, value, within)}>"
    if field.type not in KINDS:
        raise ConfigError(
            column_format.option("message"), field.full_name, "protobuf groups are not supported"
        )
    type_ = KINDS[field.type][0]
    if field.type == MESSAGE:
        type_ = known(field.message_type) or _ddl(column_format, field.message_type, within)
    return f"ARRAY<{type_}>" if repeated(field) else type_


def known(message: Any) -> str:
    """Return Spark's type for a well-known message type, or an empty string for any other message."""
    return {TIMESTAMP: "TIMESTAMP", DURATION: "INTERVAL DAY TO SECOND"}.get(message.full_name, "")
