"""The columns of a Kafka record in Spark, with the names and types of Spark's own source.

A Python source does not learn which columns a query uses. The user can select columns with a schema. With
``.schema("value BINARY")``, no other column is built or sent to the JVM, which halves the JVM's work.
"""

from __future__ import annotations

from pyspark.sql.types import (
    AnsiIntervalType,
    ArrayType,
    BinaryType,
    CharType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    TimeType,
    VarcharType,
    VariantType,
)

from kproto.errors import ConfigError

from .options import Options
from .values import ERROR, module_of
from .values.names import TIME_PRECISION

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
# The lower-case names of the columns that are never null.
NEVER_NULL = frozenset({"topic", "partition", "offset", "timestamp", "timestamptype"})
_NOT_NULL_REASON = "records of other producers may have null in it; remove NOT NULL"


def full_schema(options: Options) -> StructType:
    """Return the schema of all columns. Keys and values are binary, whatever their format.

    The column `headers` exists if includeHeaders is true, and ``_error`` if bad values become null.
    """
    fields = [StructField(name, data_type) for name, data_type in COLUMNS.items()]
    if options.include_headers:
        fields.append(StructField("headers", HEADERS))
    if any(column_format.on_error == "null" for column_format in options.formats):
        fields.append(StructField(ERROR, StringType()))
    return StructType(fields)


def ddl(options: Options) -> str:
    """Return the columns of `full_schema` as DDL. A column with a format has the decoded type."""
    decoded = {
        column_format.column: module_of(column_format).column_type(column_format)
        for column_format in options.formats
    }
    return ", ".join(
        f"{field.name} {decoded.get(field.name, field.dataType.simpleString())}"
        for field in full_schema(options).fields
    )


def checked(schema: StructType, options: Options) -> StructType:
    """Check that `schema` has only columns of `full_schema`, with their types, in any order. Return `schema`.

    Raises ConfigError otherwise.
    """
    formats = {column_format.column: column_format.format for column_format in options.formats}
    if not schema.fields:
        # A schema without columns is rejected: Arrow cannot represent rows without columns, so the result
        # would have no rows.
        names = ", ".join(full_schema(options).fieldNames())
        raise ConfigError("schema", "", f"name at least one column; allowed: {names}")
    names_seen: dict[str, str] = {}
    for field in schema.fields:
        column = field.name.lower()
        if column in names_seen:
            duplicates = f"{names_seen[column]}, {field.name}"
            raise ConfigError("schema", duplicates, "they name the same column; remove one")
        names_seen[column] = field.name
        if not field.nullable and column not in NEVER_NULL:
            raise ConfigError("schema", f"{field.name} NOT NULL", _NOT_NULL_REASON)
        if column not in formats:
            _check_plain_column(field, options)
            continue
        # The type of a column with a format is checked only in part here. The decoder checks the rest.
        _check_decodable(f"{column}.schema", field.dataType, "")
        if formats[column] == "json":
            _check_json_type(f"{column}.schema", field.dataType, "")
    return schema


def _check_plain_column(field: StructField, options: Options) -> None:
    """Raise ConfigError if a column without a format is not in `full_schema` with this type."""
    allowed = {allowed_field.name.lower(): allowed_field.dataType for allowed_field in full_schema(options)}
    data_type = allowed.get(field.name.lower())
    if data_type is None:
        hint = " without includeHeaders" if field.name.lower() == "headers" else ""
        names = ", ".join(full_schema(options).fieldNames())
        raise ConfigError("schema", field.name, f"the column does not exist{hint}; allowed: {names}")
    if data_type.simpleString() != field.dataType.simpleString():
        column = f"{field.name} {field.dataType.simpleString()}"
        raise ConfigError("schema", column, f"its type is {data_type.simpleString()}; cast it after load()")
    if field.dataType != data_type:
        raise ConfigError("schema", f"NOT NULL in {field.name}", _NOT_NULL_REASON)


def _check_decodable(option: str, data_type: DataType, path: str) -> None:
    """Raise ConfigError for types that Spark accepts in DDL but rejects in a task.

    `path` names the nested field that has the type, such as ``address.street``, and is "" for the column.
    """
    if isinstance(data_type, (CharType, VarcharType)):
        column = f"{path} {data_type.simpleString()}".strip()
        raise ConfigError(option, column, "use STRING; decoded values may have any length")
    if isinstance(data_type, TimeType) and data_type.precision != TIME_PRECISION:
        column = f"{path} {data_type.simpleString()}".strip()
        raise ConfigError(option, column, f"allowed: TIME({TIME_PRECISION}), which is Avro's time-micros")
    if isinstance(data_type, ArrayType):
        _check_decodable(option, data_type.elementType, f"{path}.element".strip("."))
    elif isinstance(data_type, MapType):
        _check_decodable(option, data_type.valueType, f"{path}.value".strip("."))
    elif isinstance(data_type, StructType):
        names = data_type.fieldNames()
        for field in data_type.fields:
            inner = f"{path}.{field.name}".strip(".")
            if names.count(field.name) > 1:
                raise ConfigError(option, inner, "the field appears twice; remove one")
            _check_decodable(option, field.dataType, inner)


def _check_json_type(option: str, data_type: DataType, path: str) -> None:
    """Raise ConfigError for types that JSON values cannot have. `path` is as in `_check_decodable`."""
    if isinstance(data_type, ArrayType):
        _check_json_type(option, data_type.elementType, f"{path}.element".strip("."))
    elif isinstance(data_type, MapType):
        _check_json_type(option, data_type.valueType, f"{path}.value".strip("."))
    elif isinstance(data_type, StructType):
        for field in data_type.fields:
            _check_json_type(option, field.dataType, f"{path}.{field.name}".strip("."))
    elif isinstance(data_type, (TimeType, AnsiIntervalType, NullType, VariantType)):
        column = f"{path} {data_type.simpleString()}".strip()
        raise ConfigError(option, column, "JSON has no such type; use STRING, and cast it")
