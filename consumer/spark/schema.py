"""The columns of a Kafka record in Spark: the same names and types as in Spark's own source.

A schema given by the user (``.schema("value BINARY")``) is honoured as pruning, because Spark's Python
sources can't be told which columns a query needs: columns that aren't asked for are never built, and don't
cross into the JVM. That halves its work.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VarcharType,
)

from kproto.errors import ConfigError

from .options import Options
from .values import ERROR, module_of

HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))

COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
# What every record has; in lower case.
NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestamptype"})
_NULLS = "what others write may be null: leave NOT NULL out"


def full(options: Options) -> StructType:
    """All columns, with `headers` if includeHeaders says so, and ``_error`` if bad values become null. Keys
    and values are as on the wire, whatever their format.
    """
    fields = [StructField(name, kind) for name, kind in COLUMNS.items()]
    if options.include_headers:
        fields.append(StructField("headers", HEADERS))
    if any(format_.on_error == "null" for format_ in options.formats):
        fields.append(StructField(ERROR, StringType()))
    return StructType(fields)


def ddl(options: Options) -> str:
    """The columns of `full` for Spark, which reads DDL itself, with decoded keys and values."""
    decoded = {format_.column: module_of(format_).column_type(format_) for format_ in options.formats}
    kinds = ((field.name, field.dataType.simpleString()) for field in full(options).fields)
    return ", ".join(f"{name} {decoded.get(name, kind)}" for name, kind in kinds)


def checked(schema: StructType, options: Options) -> StructType:
    """A schema that names columns of `full` with their types, in any order. Raises ConfigError for another
    one.
    """
    allowed = {field.name.lower(): field.dataType for field in full(options).fields}
    decoded = {format_.column for format_ in options.formats}
    if not schema.fields:
        # Arrow has no rows without a column: it would be read as none.
        names = ", ".join(full(options).fieldNames())
        raise ConfigError("schema", "", f"name a column at least; allowed: {names}")
    seen: dict[str, str] = {}
    for field in schema.fields:
        if field.name.lower() in seen:
            both = f"{seen[field.name.lower()]}, {field.name}"
            raise ConfigError("schema", both, "they are one column: leave one out")
        seen[field.name.lower()] = field.name
        if not field.nullable and field.name.lower() not in NEVER_NULL:
            raise ConfigError("schema", f"{field.name} NOT NULL", _NULLS)
        if field.name.lower() in decoded:
            _decodable(f"{field.name.lower()}.schema", field.dataType, "")
            continue  # what its format can't make is refused by its decoder
        kind = allowed.get(field.name.lower())
        if kind is None:
            hint = " (with includeHeaders)" if field.name.lower() == "headers" else ""
            names = ", ".join(full(options).fieldNames())
            raise ConfigError("schema", field.name, f"there is no such column{hint}; allowed: {names}")
        if kind.simpleString() != field.dataType.simpleString():
            given = f"{field.name} {field.dataType.simpleString()}"
            raise ConfigError("schema", given, f"it is {kind.simpleString()}; cast it after load()")
        if field.dataType != kind:
            raise ConfigError("schema", f"NOT NULL in {field.name}", _NULLS)
    return schema


def _decodable(option: str, kind: DataType, place: str) -> None:
    """Raise ConfigError for what Spark takes in DDL, and refuses in words of its own where a task begins."""
    if isinstance(kind, (CharType, VarcharType)):
        given = f"{place} {kind.simpleString()}".strip()
        raise ConfigError(option, given, "take STRING: what others write is as long as it is")
    if isinstance(kind, ArrayType):
        _decodable(option, kind.elementType, f"{place}.element".strip("."))
    elif isinstance(kind, MapType):
        _decodable(option, kind.valueType, f"{place}.value".strip("."))
    elif isinstance(kind, StructType):
        names = kind.fieldNames()
        for field in kind.fields:
            inner = f"{place}.{field.name}".strip(".")
            if names.count(field.name) > 1:
                raise ConfigError(option, inner, "it is there twice")
            _decodable(option, field.dataType, inner)
