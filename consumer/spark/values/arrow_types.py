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


def arrow_type(option: str, kind: spark.DataType, place: str = "") -> Kind:
    """Return the Arrow type of a decoded column. Raises ConfigError for a type that no format produces."""
    if type(kind) in _SCALARS:
        return _SCALARS[type(kind)]
    if isinstance(kind, spark.TimeType) and kind.precision == TIME_PRECISION:
        return pa.time64("ns")
    if isinstance(kind, spark.DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, spark.StructType):
        for child in kind.fields:
            if not child.nullable:
                _reject_not_null(option, f"{place}{child.name}")
        return pa.struct(
            [
                pa.field(field.name, arrow_type(option, field.dataType, f"{place}{field.name}."))
                for field in kind.fields
            ]
        )
    if isinstance(kind, spark.ArrayType):
        if not kind.containsNull:
            _reject_not_null(option, f"{place}element")
        return pa.list_(pa.field("element", arrow_type(option, kind.elementType, f"{place}element.")))
    if isinstance(kind, spark.MapType):
        if not kind.valueContainsNull:
            _reject_not_null(option, f"{place}value")
        key = arrow_type(option, kind.keyType, f"{place}key.")
        return pa.map_(key, arrow_type(option, kind.valueType, f"{place}value."))
    names = ", ".join(scalar.__name__.removesuffix("Type").lower() for scalar in _SCALARS)
    shown = f"{place.rstrip('.')} {kind.simpleString()}".strip()
    raise ConfigError(option, shown, f"allowed: {names}, time(6), decimal, array, map, struct")


def _reject_not_null(option: str, place: str) -> None:
    """Raise ConfigError for a column that is NOT NULL."""
    raise ConfigError(option, f"{place} NOT NULL", "decoded values may be null; remove NOT NULL")
