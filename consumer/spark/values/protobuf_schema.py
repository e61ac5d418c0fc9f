"""Protobuf's descriptors; and as columns of Spark."""

from __future__ import annotations

import base64
import binascii
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from kproto.errors import ConfigError, MissingExtra

from .avro_schema import quoted
from .names import REGISTRY_URL

if TYPE_CHECKING:
    from .types import ColumnFormat

TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"

# By FieldDescriptor.type: Spark's type, wire type, and numpy's of what is read.
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
    """A message's columns, in DDL."""
    return _ddl(column_format, message(column_format), ())


def message(column_format: ColumnFormat) -> Any:
    """The descriptor of the message. Raises ConfigError, MissingExtra."""
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
        raise ConfigError(option, None, f"protobuf needs it: {_SHAPE}; or give {REGISTRY_URL}")
    elif column_format.subject is None:
        raise ConfigError(
            column_format.option("subject"), None, f"name it, or give {option}: there are several topics"
        )
    else:
        _registered(column_format, column_format.with_latest_schema().latest, files, "")
    pool = pools.DescriptorPool()
    left = {one.name: one for one in files.file}
    _add(column_format, pool, left)
    names = [f"{one.package}.{m.name}".strip(".") for one in files.file for m in one.message_type]
    name = column_format.message or (names[-1] if column_format.schema is None and names else None)
    if name is None:
        raise ConfigError(
            column_format.option("message"), None, f"a message's full name; there are: {', '.join(names)}"
        )
    try:
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ConfigError(column_format.option("message"), name, f"there are: {', '.join(names)}") from None


_SHAPE = "a descriptor set (protoc --include_imports --descriptor_set_out), its path or its bytes in base64"


def _registered(column_format: ColumnFormat, schema: Any, files: Any, name: str) -> None:
    """Add a schema of the registry's, those that it refers to first."""
    if schema.kind != "PROTOBUF":
        raise ConfigError(column_format.option("format"), "protobuf", f"the registry has {schema.kind} there")
    for other, inner in schema.names.items():
        _registered(column_format, inner, files, other)
    one = files.file.add()
    try:
        one.ParseFromString(base64.b64decode(schema.text, validate=True))
    except Exception as error:  # DecodeError, or what base64 raises: a registry without format=serialized
        files.file.pop()
        why = f"the registry has no descriptor of it ({error}); give one"
        raise ConfigError(column_format.option("schema"), None, why) from None
    one.name = name or one.name or "latest.proto"


def _add(column_format: ColumnFormat, pool: Any, left: dict[str, Any]) -> None:
    """All files, each after those that it imports; what comes with protobuf is taken from there."""
    own: Any = import_module("google.protobuf.descriptor_pool").Default()
    pb: Any = import_module("google.protobuf.descriptor_pb2")
    for known in ("timestamp", "duration", "any", "wrappers", "struct", "empty", "field_mask"):
        import_module(f"google.protobuf.{known}_pb2")
    while left:
        name = next(iter(left))
        stack = [name]
        while stack:
            one = left.get(stack[-1])
            if one is None:
                stack.pop()
                continue
            missing = [n for n in one.dependency if n in left]
            if missing and len(stack) <= len(left):
                stack.append(missing[0])
                continue
            for other in one.dependency:
                try:
                    pool.FindFileByName(other)
                except KeyError:
                    try:
                        found = pb.FileDescriptorProto()
                        own.FindFileByName(other).CopyToProto(found)
                        pool.Add(found)
                    except KeyError:
                        why = f"{one.name} imports {other}, which isn't there: protoc --include_imports"
                        raise ConfigError(column_format.option("schema"), one.name, why) from None
            try:
                pool.Add(one)
                pool.FindFileByName(one.name)
            except Exception as error:  # TypeError, KeyError: what the pool finds wrong
                raise ConfigError(
                    column_format.option("schema"), one.name, f"it isn't valid: {error}"
                ) from None
            del left[stack.pop()]


def repeated(field: Any) -> bool:
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def is_map(field: Any) -> bool:
    return field.type == MESSAGE and bool(field.message_type.GetOptions().map_entry)


def _ddl(column_format: ColumnFormat, message: Any, within: tuple[str, ...]) -> str:
    if message.full_name in within:
        why = "Spark has no type that holds itself; name the columns: .schema('value STRUCT<...>')"
        raise ConfigError(column_format.option("message"), message.full_name, why)
    inner = (*within, message.full_name)
    fields = (f"{quoted(field.name)}: {_field_ddl(column_format, field, inner)}" for field in message.fields)
    return f"STRUCT<{', '.join(fields)}>"


def _field_ddl(column_format: ColumnFormat, field: Any, within: tuple[str, ...]) -> str:
    if is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return f"MAP<{_field_ddl(column_format, key, within)}, {_field_ddl(column_format, value, within)}>"
    if field.type not in KINDS:
        raise ConfigError(column_format.option("message"), field.full_name, "groups can't be read")
    one = KINDS[field.type][0]
    if field.type == MESSAGE:
        one = known(field.message_type) or _ddl(column_format, field.message_type, within)
    return f"ARRAY<{one}>" if repeated(field) else one


def known(message: Any) -> str:
    return {TIMESTAMP: "TIMESTAMP", DURATION: "INTERVAL DAY TO SECOND"}.get(message.full_name, "")
