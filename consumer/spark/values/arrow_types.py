"""Maps each Spark type to the Arrow type in which Spark expects a column of this type."""

from __future__ import annotations

from importlib import import_module
from typing import Any, TypeAlias

from pyspark.sql import types as spark

from kproto.errors import ConfigError

from .names import TIME_PRECISION

pa: Any = import_module("pyarrow")
Kind: TypeAlias = Any

_SCALARS: dict[type[spark.DataType], Kind] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
    spark.DayTimeIntervalType: pa.duration("us"),
}


def arrow_type(option: str, data_type: spark.DataType, prefix: str = "") -> Kind:
    """Return the Arrow type of a decoded column. Raises ConfigError for a type that no format produces.

    `prefix` is the path of the enclosing field with a dot, such as ``address.``, for error messages.
    """
    if type(data_type) in _SCALARS:
        return _SCALARS[type(data_type)]
    if isinstance(data_type, spark.TimeType) and data_type.precision == TIME_PRECISION:
        return pa.time64("ns")
    if isinstance(data_type, spark.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.StructType):
        for child in data_type.fields:
            if not child.nullable:
                _reject_not_null(option, f"{prefix}{child.name}")
        return pa.struct(
            [
                pa.field(field.name, arrow_type(option, field.dataType, f"{prefix}{field.name}."))
                for field in data_type.fields
            ]
        )
    if isinstance(data_type, spark.ArrayType):
        if not data_type.containsNull:
            _reject_not_null(option, f"{prefix}element")
        return pa.list_(pa.field("element", arrow_type(option, data_type.elementType, f"{prefix}element.")))
    if isinstance(data_type, spark.MapType):
        if not data_type.valueContainsNull:
            _reject_not_null(option, f"{prefix}value")
        key = arrow_type(option, data_type.keyType, f"{prefix}key.")
        return pa.map_(key, arrow_type(option, data_type.valueType, f"{prefix}value."))
    names = ", ".join(scalar.__name__.removesuffix("Type").lower() for scalar in _SCALARS)
    typed_field = f"{prefix.rstrip('.')} {data_type.simpleString()}".strip()
    raise ConfigError(option, typed_field, f"allowed: {names}, time(6), decimal, array, map, struct")


def _reject_not_null(option: str, path: str) -> None:
    """Raise ConfigError for the field `path`, which is NOT NULL."""
    raise ConfigError(option, f"{path} NOT NULL", "decoded values may be null; remove NOT NULL")
