"""``value.format=json``: decodes JSON objects with a schema in DDL, using Arrow's JSON reader.

The values of a batch are joined with line feeds and read in one call. If Arrow rejects a batch, msgspec
decodes each value with the same types, to find the invalid values.

No value can affect another value. Each must begin with ``{`` and end with ``}``, and a string cannot contain
a line feed. So an unclosed object cannot continue in the next value.

Each value contains at least one object. So if there are as many objects as values, each value is exactly one
object.

Arrow's reader cannot read an object as a map. For columns that contain a MAP, msgspec splits the values into
parts without maps, which Arrow can read. This is slower, because each item becomes a Python object.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Sequence, Sized
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from pyspark.sql import types as spark

from kproto.errors import ConfigError
from kproto.records.arrow_arrays import from_bytes, from_numpy, from_texts

from .arrow_types import Kind, arrow_type, pa
from .lanes import scatter
from .registered import RegisteredDecoder
from .strings import decode as texts
from .wire_format import data_and_offsets

if TYPE_CHECKING:
    from .types import Bad, Column, ColumnFormat, Decode

pc: Any = import_module("pyarrow.compute")
reader: Any = import_module("pyarrow.json")


def column_type(column_format: ColumnFormat) -> str:
    """Return the DDL type of the column, a STRUCT of the schema's columns."""
    if not (column_format.schema or "").strip():
        shape = "columns in DDL, such as id BIGINT, name STRING"
        raise ConfigError(
            column_format.option("schema"), column_format.schema, f"json needs a schema; set it to {shape}"
        )
    _check_ddl(column_format.option("schema"), column_format.schema or "")
    return f"STRUCT<{column_format.schema}>"


# Matches a column's name and the name of its type at the start of the column's DDL. Group 1 is the name of
# the type.
_COLUMN_START = re.compile(r"\s*(?:`(?:[^`]|``)*`|[^\s:`<>()]+)(?:\s*:\s*|\s+)([A-Za-z_]\w*)")
_DDL_TYPES = frozenset(
    {
        "array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal",
        "double", "float", "int", "integer", "interval", "long", "map", "numeric", "real", "short",
        "smallint", "string", "struct", "time", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint",
        "varchar", "variant", "void",
    }
)  # fmt: skip


# Spark's types that JSON values cannot have.
_NOT_IN_JSON = frozenset({"interval", "time", "variant", "void"})
# Matches a type inside another one: after `<` or `,`, or as a field's type after a colon.
_INNER_TYPE = re.compile(r"[<,:]\s*([A-Za-z_]\w*)\s*(?=[(>,]|$)")


def _check_ddl(option: str, ddl: str) -> None:
    """Raise ConfigError if Spark does not know the type of a column, or if JSON cannot represent its values.

    This function exists because Spark's own error would not name the option. It does not check whether inner
    types exist, because Spark does.
    """
    if "'" in ddl or '"' in ddl:
        # This check is omitted for a schema with a comment or a default, which may contain commas.
        return
    for column in _split_columns(ddl):
        match = _COLUMN_START.match(column)
        if match is None or match[1].lower() not in _DDL_TYPES:
            raise ConfigError(
                option, ddl, f"{column.strip()!r} is not a column's name and type, such as id BIGINT"
            )
        for type_name in (match[1], *_INNER_TYPE.findall(column)):
            if type_name.lower() in _NOT_IN_JSON:
                raise ConfigError(option, ddl, f"JSON has no {type_name.upper()}; use STRING, and cast it")


def _split_columns(ddl: str) -> list[str]:
    """Split DDL at the commas outside of brackets."""
    depth, columns = 0, [""]
    for character in ddl:
        depth += (character in "<(") - (character in ">)")
        if character == "," and not depth:
            columns.append("")
        else:
            columns[-1] += character
    return columns


def decoder(column_format: ColumnFormat, kind: spark.DataType) -> Decode:
    """Return a decoder. Raises ConfigError for a type that JSON cannot contain."""
    option = column_format.option("schema")
    if not isinstance(kind, spark.StructType) or not kind.fields:
        raise ConfigError(
            option, kind.simpleString(), "the format json needs a STRUCT of at least one column"
        )
    _check_types(option, kind)
    target = arrow_type(option, kind)
    decode = _ObjectDecoder(target, kind).decode
    # JSON values are decoded without the registry's schemas, so the schema id before each value is skipped.
    return decode if column_format.registry is None else RegisteredDecoder(target, lambda _: decode).decode


def _check_types(option: str, kind: spark.DataType, path: str = "") -> None:
    """Raise ConfigError for a type that JSON cannot contain."""
    if isinstance(kind, spark.StructType):
        for field in kind.fields:
            _check_types(option, field.dataType, f"{path}.{field.name}" if path else field.name)
    elif isinstance(kind, spark.ArrayType):
        _check_types(option, kind.elementType, f"{path}[]")
    elif isinstance(kind, spark.MapType):
        if not isinstance(kind.keyType, spark.StringType):
            raise ConfigError(
                option, f"{path} {kind.simpleString()}", "JSON has only STRING keys; use MAP<STRING, ...>"
            )
        _check_types(option, kind.valueType, f"{path}{{}}")
    elif type(kind) not in (*_PYTHON_TYPES, *_INTEGER_TYPES):
        raise ConfigError(option, f"{path} {kind.simpleString()}", "JSON has no such type; use STRING")


class _ObjectDecoder:
    """Decodes JSON objects into a column of structs."""

    def __init__(self, kind: Kind, spark_kind: spark.StructType) -> None:
        self.kind = kind
        self.msgspec_decoder = msgspec.json.Decoder(_msgspec_type(spark_kind))
        self.object_reader = _ObjectReader(kind)
        self.rejection = ""  # Why Arrow rejected the objects of the last failed `_read_all`.

    def decode(self, values: Column) -> tuple[Column, Bad]:
        """Decode values. A value that cannot be decoded becomes null, and its row is in the `Bad` result."""
        bad = dict(texts(values)[1])
        rows = np.setdiff1d(np.arange(len(values)), list(bad))
        objects = self._read_all(values.take(from_numpy(rows))) if bad else self._read_all(values)
        if objects is None:
            rows = self._accepted_rows(values, rows, bad)
            pieces = list(self._decode_pieces(values, rows, bad))
            objects = pa.concat_arrays(pieces) if pieces else pa.nulls(0, self.kind)
            rows = np.setdiff1d(rows, list(bad))
        if not bad:
            return objects, bad
        # Row i of the column is the object with the index `sources[i]`, or null if `sources[i]` is -1.
        sources = np.full(len(values), -1)
        sources[rows] = np.arange(len(rows))
        return objects.take(from_numpy(sources, sources < 0)), bad

    def _accepted_rows(self, values: Column, rows: Any, bad: dict[int, str]) -> Any:
        """Return the rows whose values msgspec accepts. Add the other rows to `bad` with the reasons."""
        accepted: list[int] = []
        for row, value in zip(rows.tolist(), values.take(from_numpy(rows)).to_pylist(), strict=True):
            try:
                self.msgspec_decoder.decode(value)
            except (msgspec.MsgspecError, ValueError, RecursionError) as error:
                bad[row] = str(error)
            else:
                accepted.append(row)
        return np.array(accepted, np.int64)

    def _decode_pieces(self, values: Column, rows: Any, bad: dict[int, str]) -> Any:
        """Decode the JSON values of these rows, and yield columns of the decoded objects.

        If Arrow rejects the rows, they are split in half repeatedly until the invalid rows are found. The
        invalid rows are added to `bad`, with the reasons.
        """
        if not len(rows):
            return
        objects = self._read_all(values.take(from_numpy(rows)))
        if objects is not None:
            yield objects
        elif len(rows) == 1:
            bad[int(rows[0])] = self.rejection
        else:
            half = len(rows) // 2
            yield from self._decode_pieces(values, rows[:half], bad)
            yield from self._decode_pieces(values, rows[half:], bad)

    def _read_all(self, values: Column) -> Column | None:
        """Return all objects as a column.

        If Arrow rejects the objects, store the reason in `rejection` and return None.
        """
        if not len(values):
            return pa.nulls(0, self.kind)
        joined = pc.binary_join_element_wise(_strip_whitespace(values), *from_bytes([b"", b"\n"]))
        _, offsets_buffer, data_buffer = joined.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[joined.offset : joined.offset + len(joined) + 1]
        lines = data_buffer.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        try:
            self._check_braces(lines, offsets - offsets[0])
            return self.object_reader.read(lines, len(values))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, msgspec.MsgspecError) as error:
            self.rejection = str(error).removeprefix("JSON parse error: ").removesuffix(" in row 0")
            return None

    @staticmethod
    def _check_braces(lines: Any, offsets: Any) -> None:
        """Raise ArrowInvalid unless each value begins with ``{`` and ends with ``}``.

        `offsets` contains the start of each line, and the end of the last line.
        """
        data = np.frombuffer(lines, np.uint8)
        is_too_short = bool((np.diff(offsets) < len(b"{}\n")).any())
        first, last = data[offsets[:-1]], data[offsets[1:] - len(b"}\n")]
        if is_too_short or (first != ord("{")).any() or (last != ord("}")).any():
            raise pa.ArrowInvalid("the value is not a JSON object")


_NULL = msgspec.Raw(b"null")
Raws: TypeAlias = Sequence[msgspec.Raw]
PartReader: TypeAlias = "Callable[[Raws], Column]"


class _ObjectReader:
    """Reads JSON objects, each followed by a line feed, as a column of structs."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        arrow_fields = [
            pa.field(field.name, _arrow_read_type(field.type))
            for field in kind
            if not _contains_type(field.type, _is_map)
        ]
        self.parse_options = reader.ParseOptions(
            explicit_schema=pa.schema(arrow_fields), unexpected_field_behavior="ignore"
        )
        # For each field that contains a map, a function that reads the JSON that `raw_decoder` returns.
        self.part_readers = {
            field.name: _part_reader(field.type) for field in kind if _contains_type(field.type, _is_map)
        }
        raw_fields = [(f"f{n}", msgspec.Raw, _NULL) for n in range(len(self.part_readers))]
        names = {f"f{n}": name for n, name in enumerate(self.part_readers)}
        self.raw_decoder = msgspec.json.Decoder(msgspec.defstruct("Object", raw_fields, rename=names))

    def read(self, lines: Any, count: int) -> Column:
        """Read exactly `count` objects. Raises ArrowInvalid, ArrowNotImplementedError or MsgspecError."""
        options = reader.ReadOptions(use_threads=False, block_size=len(lines) + 64)
        table = reader.read_json(pa.BufferReader(lines), options, self.parse_options)
        if table.num_rows != count:
            raise pa.ArrowInvalid("the value has more than one JSON object")
        columns: dict[str, Column] = {}
        for name, field in zip(table.column_names, table.combine_chunks().columns, strict=True):
            columns[name] = pa.concat_arrays(field.chunks) if field.num_chunks else field
        if self.part_readers:
            objects = self.raw_decoder.decode_lines(lines)
            for n, (name, read_parts) in enumerate(self.part_readers.items()):
                columns[name] = read_parts([getattr(object_, f"f{n}") for object_ in objects])
        arrays = [_convert(columns[field.name], field.type) for field in self.kind]
        return pa.StructArray.from_arrays(arrays, fields=list(self.kind))


def _part_reader(kind: Kind) -> PartReader:
    """Return a function that converts JSON values, which may be null, to a column of this type."""
    if not _contains_type(kind, _is_map):
        return _mapless_reader(kind)
    if pa.types.is_struct(kind):
        return _struct_reader(kind)
    return _list_reader(kind) if pa.types.is_list(kind) else _map_reader(kind)


def _mapless_reader(kind: Kind) -> PartReader:
    """Return a function that reads JSON values of a type without maps.

    The function wraps each value in an object, as the field ``v``, because Arrow reads only objects.
    """
    objects = _ObjectReader(pa.struct([pa.field("v", kind)]))

    def read_values(raws: Raws) -> Column:
        lines = pa.py_buffer(b"".join(part for raw in raws for part in (b'{"v":', bytes(raw), b"}\n")))
        return objects.read(lines, len(raws)).field(0) if raws else pa.nulls(0, kind)

    return read_values


def _struct_reader(kind: Kind) -> PartReader:
    objects = _ObjectReader(kind)

    def read_structs(raws: Raws) -> Column:
        rows = [n for n, raw in enumerate(raws) if raw != _NULL]
        lines = pa.py_buffer(b"".join(part for n in rows for part in (bytes(raws[n]), b"\n")))
        structs = objects.read(lines, len(rows)) if rows else pa.nulls(0, kind)
        return scatter(structs, np.array(rows, np.int64), len(raws))

    return read_structs


def _list_reader(kind: Kind) -> PartReader:
    list_decoder, read_items = msgspec.json.Decoder(list[msgspec.Raw] | None), _part_reader(kind.value_type)

    def read_lists(raws: Raws) -> Column:
        lists: list[list[msgspec.Raw] | None] = [list_decoder.decode(raw) for raw in raws]
        items = read_items([item for list_ in lists if list_ for item in list_])
        return pa.ListArray.from_arrays(_list_offsets(lists), items, type=kind, mask=_null_mask(lists))

    return read_lists


def _map_reader(kind: Kind) -> PartReader:
    map_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw] | None)
    read_values = _part_reader(kind.item_type)

    def read_maps(raws: Raws) -> Column:
        maps: list[dict[str, msgspec.Raw] | None] = [map_decoder.decode(raw) for raw in raws]
        keys = from_texts([key for map_ in maps if map_ for key in map_])
        values = read_values([value for map_ in maps if map_ for value in map_.values()])
        return pa.MapArray.from_arrays(_list_offsets(maps), keys, values, type=kind, mask=_null_mask(maps))

    return read_maps


def _list_offsets(lists: Sequence[Sized | None]) -> Column:
    """Return the offsets of a list array whose lists have these lengths."""
    return from_numpy(np.cumsum([0, *(len(list_ or ()) for list_ in lists)], dtype=np.int32))


def _null_mask(values: Sequence[object]) -> Column:
    """Return a mask of the values that are None."""
    return from_numpy(np.array([value is None for value in values], np.bool_))


def _strip_whitespace(values: Column) -> Column:
    """Remove white space around the objects."""
    text = values.view(pa.string())
    is_framed = pc.all(pc.starts_with(text, "{")).as_py() and pc.all(pc.ends_with(text, "}")).as_py()
    return values if is_framed else pc.ascii_trim(text, " \t\r\n").view(pa.binary())


def _is_map(kind: Kind) -> bool:
    return bool(pa.types.is_map(kind))


def _is_binary(kind: Kind) -> bool:
    return bool(pa.types.is_binary(kind))


def _contains_type(kind: Kind, matches: Callable[[Kind], bool]) -> bool:
    """Return whether `matches` is true for a type or for any type inside it."""
    return matches(kind) or any(_contains_type(kind.field(n).type, matches) for n in range(kind.num_fields))


def _arrow_read_type(kind: Kind) -> Kind:
    """Return the Arrow type that a column has before its conversion to the final type.

    Dates and binary values are read as strings, and then converted.
    """
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _arrow_read_type(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _arrow_read_type(kind.value_type)))
    return pa.string() if pa.types.is_date(kind) or _is_binary(kind) else kind


def _convert(column: Column, kind: Kind) -> Column:
    """Convert a column that was read with `_arrow_read_type` to its final type.

    Raises ArrowInvalid if a value does not have this type.
    """
    if column.type == kind:
        return column
    if not _contains_type(kind, _is_binary):
        return column.cast(kind)
    if pa.types.is_struct(kind):
        arrays = [_convert(column.field(n), field.type) for n, field in enumerate(kind)]
        return pa.StructArray.from_arrays(arrays, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        values = _convert(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, values, type=kind, mask=column.is_null())
    return _from_base64(column)


# The six bits that each character of base64 represents. 255 marks other characters, and "=" has the value 0.
_BASE64_VALUES = np.full(256, 255, np.uint8)
_BASE64_VALUES[list(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")] = [*range(64), 0]


def _from_base64(column: Column) -> Column:
    """Decode base64 text with padding. Raises ArrowInvalid if a value is not base64."""
    data, offsets = data_and_offsets(pc.coalesce(column, from_texts([""])[0]))
    sizes, is_padding = np.diff(offsets), data == ord("=")
    ends = offsets[1:][sizes > 0]
    has_valid_sizes = not (sizes % 4).any()
    # The number of padding characters at the end of each value: 0, 1 or 2.
    padding = np.zeros(len(sizes), np.int64)
    if has_valid_sizes:
        padding[sizes > 0] = is_padding[ends - 1] * (1 + is_padding[ends - 2].astype(np.int64))
    sextets = _BASE64_VALUES[data]
    if not has_valid_sizes or padding.sum() != is_padding.sum() or (sextets == 255).any():
        raise pa.ArrowInvalid("the value of a BINARY column is not base64")
    # Each group of four characters represents three bytes.
    groups = sextets.reshape(-1, 4).astype(np.uint32)
    words = groups[:, 0] << 18 | groups[:, 1] << 12 | groups[:, 2] << 6 | groups[:, 3]
    decoded_bytes = np.stack([words >> 16, words >> 8, words], axis=1).astype(np.uint8).reshape(-1)
    # Remove the bytes that stand for padding from the end of each value.
    decoded_offsets = np.cumsum([0, *(sizes // 4 * 3)])
    is_kept = np.ones(len(decoded_bytes), bool)
    for byte in (1, 2):
        is_kept[decoded_offsets[1:][padding >= byte] - byte] = False
    decoded_offsets[1:] -= np.cumsum(padding)
    buffers = [None, pa.py_buffer(decoded_offsets.astype(np.int32)), pa.py_buffer(decoded_bytes[is_kept])]
    decoded = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    return (
        pc.if_else(column.is_valid(), decoded, pa.nulls(1, pa.binary())[0]) if column.null_count else decoded
    )


# The Python type that msgspec decodes for each of Spark's types, except integers and nested types.
_PYTHON_TYPES: dict[type[spark.DataType], Any] = {
    spark.BooleanType: bool,
    spark.FloatType: float,
    spark.DoubleType: float,
    spark.StringType: str,
    spark.BinaryType: bytes,
    spark.DateType: datetime.date,
    spark.TimestampType: str,
    spark.TimestampNTZType: str,
    spark.DecimalType: Decimal,
}
_INTEGER_TYPES = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)


def _msgspec_type(kind: spark.DataType) -> Any:
    """Return the msgspec type of a column. It accepts every value that Arrow accepts, and few others."""
    if isinstance(kind, spark.StructType):
        names = {f"f{number}": field.name for number, field in enumerate(kind.fields)}
        fields = [
            (f"f{number}", _msgspec_type(field.dataType) | None, None)
            for number, field in enumerate(kind.fields)
        ]
        return msgspec.defstruct("Object", fields, rename=names)
    if isinstance(kind, spark.ArrayType):
        return list[_msgspec_type(kind.elementType) | None]  # type: ignore[misc]
    if isinstance(kind, spark.MapType):
        return dict[str, _msgspec_type(kind.valueType) | None]  # type: ignore[misc]
    if type(kind) in _INTEGER_TYPES:
        return int
    return _PYTHON_TYPES[type(kind)]
