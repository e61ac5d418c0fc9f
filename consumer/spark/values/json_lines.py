"""``value.format=json``: objects, by a schema in DDL, decoded by Arrow's reader of JSON lines.

The values of a batch are joined with line feeds and read at once. No value can take part in another: each
begins with ``{`` and ends with ``}``, so what is open behind one can't be followed by the next, and a string
can't hold a line feed. So each gives at least one object, and as many objects as values means one of each. A
batch that fails is looked through value by value, by msgspec with the same types.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from pyspark.sql import types as spark

from kproto.errors import ConfigError

from .kinds import arrow, pa
from .lanes import behind_ids
from .strings import decode as texts

if TYPE_CHECKING:
    from . import Asked, Bad, Column, Decode

pc: Any = import_module("pyarrow.compute")
reader: Any = import_module("pyarrow.json")


def column(asked: Asked) -> str:
    if not (asked.schema or "").strip():
        shape = "columns in DDL, such as id BIGINT, name STRING"
        raise ConfigError(asked.option("schema"), asked.schema, f"json needs it: {shape}")
    return f"STRUCT<{asked.schema}>"


def decoder(asked: Asked, kind: spark.DataType) -> Decode:
    option = asked.option("schema")
    if not isinstance(kind, spark.StructType) or not kind.fields:
        raise ConfigError(option, kind.simpleString(), "json makes a STRUCT of at least one column")
    _check(option, kind)
    decode = _Objects(arrow(option, kind), kind).decode
    return decode if asked.registry is None else behind_ids(decode)


def _check(option: str, kind: spark.DataType, place: str = "") -> None:
    if isinstance(kind, spark.StructType):
        for one in kind.fields:
            _check(option, one.dataType, f"{place}.{one.name}" if place else one.name)
    elif isinstance(kind, spark.ArrayType):
        _check(option, kind.elementType, f"{place}[]")
    elif isinstance(kind, spark.MapType):
        raise ConfigError(option, f"{place} {kind.simpleString()}", "json takes no MAP: name the columns")
    elif isinstance(kind, spark.BinaryType):
        raise ConfigError(option, f"{place} binary", "JSON has no bytes: take STRING, and unbase64()")


class _Objects:
    def __init__(self, kind: Any, spark_kind: spark.StructType) -> None:
        self.kind = kind
        self.checks = msgspec.json.Decoder(_typed(spark_kind))
        # Dates are read as text and cast.
        self.parse = reader.ParseOptions(
            explicit_schema=pa.schema(_without_dates(kind)), unexpected_field_behavior="ignore"
        )

    def decode(self, values: Column) -> tuple[Column, Bad]:
        bad = dict(texts(values)[1])
        rows = np.setdiff1d(np.arange(len(values)), list(bad))
        good = self._whole(values.take(pa.array(rows))) if bad else self._whole(values)
        if good is None:
            rows = self._good(values, rows, bad)
            pieces = list(self._pieces(values, rows, bad))
            good = pa.concat_arrays(pieces) if pieces else pa.nulls(0, self.kind)
            rows = np.setdiff1d(rows, list(bad))
        if not bad:
            return good, bad
        places = np.full(len(values), -1)
        places[rows] = np.arange(len(rows))
        return good.take(pa.array(places, mask=places < 0)), bad

    def _good(self, values: Column, rows: Any, bad: dict[int, str]) -> Any:
        """Those of the rows that msgspec takes."""
        good: list[int] = []
        for row, value in zip(rows.tolist(), values.take(pa.array(rows)).to_pylist(), strict=True):
            try:
                self.checks.decode(value)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                bad[row] = str(error)
            else:
                good.append(row)
        return np.array(good, np.int64)

    def _pieces(self, values: Column, rows: Any, bad: dict[int, str]) -> Any:
        """The objects of the rows, halved where Arrow is stricter than msgspec."""
        if not len(rows):
            return
        found = self._whole(values.take(pa.array(rows)))
        if found is not None:
            yield found
        elif len(rows) == 1:
            bad[int(rows[0])] = self.why
        else:
            half = len(rows) // 2
            yield from self._pieces(values, rows[:half], bad)
            yield from self._pieces(values, rows[half:], bad)

    def _whole(self, values: Column) -> Column | None:
        """All of them, or None with `why`."""
        if not len(values):
            return pa.nulls(0, self.kind)
        joined = pc.binary_join_element_wise(_framed(values), b"", b"\n")
        size = joined.buffers()[1]
        offsets = np.frombuffer(size, np.int32)[joined.offset : joined.offset + len(joined) + 1]
        content = joined.buffers()[2].slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        try:
            self._begin_and_end(content, offsets - offsets[0])
            table = reader.read_json(
                pa.BufferReader(content),
                reader.ReadOptions(use_threads=False, block_size=len(content) + 64),
                self.parse,
            )
            if table.num_rows != len(values):
                raise pa.ArrowInvalid("it isn't one object")
            columns = table.combine_chunks().columns
            arrays = [pa.concat_arrays(one.chunks) if one.num_chunks else one for one in columns]
            names = [one.name for one in self.kind]
            return pa.StructArray.from_arrays(arrays, names).cast(self.kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            self.why = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
            return None

    @staticmethod
    def _begin_and_end(content: Any, offsets: Any) -> None:
        data = np.frombuffer(content, np.uint8)
        empty = bool((np.diff(offsets) < 3).any())
        if empty or (data[offsets[:-1]] != ord("{")).any() or (data[offsets[1:] - 2] != ord("}")).any():
            raise pa.ArrowInvalid("it isn't an object")


def _framed(values: Column) -> Column:
    """Without the white space that JSON allows around an object, if any has some."""
    text = values.view(pa.string())
    begins = pc.all(pc.starts_with(text, "{")).as_py() and pc.all(pc.ends_with(text, "}")).as_py()
    return values if begins else pc.ascii_trim(text, " \t\r\n").view(pa.binary())


def _without_dates(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(one.name, _without_dates(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _without_dates(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) else kind


_PYTHON: dict[type[spark.DataType], Any] = {
    spark.BooleanType: bool,
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.StringType: str,
    spark.DateType: datetime.date,
    spark.TimestampType: str,
    spark.TimestampNTZType: str,
    spark.DecimalType: Decimal,
}
_BITS = {spark.ByteType: 7, spark.ShortType: 15, spark.IntegerType: 31, spark.LongType: 63}


def _typed(kind: spark.DataType) -> Any:
    """What msgspec takes for it, which is all that Arrow takes, and little more."""
    if isinstance(kind, spark.StructType):
        names = {f"f{number}": one.name for number, one in enumerate(kind.fields)}
        fields = [(f"f{number}", _typed(one.dataType) | None, None) for number, one in enumerate(kind.fields)]
        return msgspec.defstruct("Object", fields, rename=names)
    if isinstance(kind, spark.ArrayType):
        return list[_typed(kind.elementType) | None]  # type: ignore[misc]
    if type(kind) in _BITS:
        return int
    return _PYTHON[type(kind)]
