"""Avro's schema resolution: the value that a reader gets if its schema differs from the writer's.

The expected values are the results of Java's GenericDatumReader (Avro 1.12.1, which Spark 4.3 contains).
"""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("fastavro")

import pyarrow as pa
from pyspark.sql.types import ArrayType, StructType, TimeType

from consumer.spark.options import parse as parse_options
from consumer.spark.schema import checked, ddl
from consumer.spark.values.avro import _AvroDecoder
from consumer.spark.values.avro_schema import AvroNode, checked_columns, parse
from consumer.spark.values.registered import Mismatch
from kproto.errors import ConfigError
from tests.consumer.spark.random_avro import kind as kind_of
from tests.consumer.spark.values_stage import SERVERS, decoded, schema

NULL = {"value.onError": "null"}


def enum(name: str, *symbols: str, **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols or "AB"), **more}


def fixed(name: str, size: int = 2, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def record(kind: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": "f", "type": kind, **more}]}


def read(writer: Any, reader: Any, value: str) -> Any:
    """Return the value, or the reason why it cannot be read."""
    node = parse("o", json.dumps(reader))
    try:
        decode = _AvroDecoder(parse("o", json.dumps(writer)), node, kind_of(node)).decode
    except Mismatch as error:
        return str(error)
    column, bad = decode(pa.array([bytes.fromhex(value)], pa.binary()))
    return bad[0] if bad else column[0].as_py()


@pytest.mark.parametrize(
    ("fields", "value"),
    [
        # The reader's fields as (name, aliases, default), and the values that Java's reader returns.
        ([("x", [], 7), ("b", ["x"], 8)], {"x": 7, "b": 3}),
        ([("b", ["x"], 8), ("x", [], 7)], {"b": 3, "x": 7}),
        ([("a", ["x"], 7), ("b", ["x"], 8)], {"a": 7, "b": 3}),
    ],
)
def test_a_writers_field_is_read_into_one_field(
    fields: list[tuple[str, list[str], int]], value: dict[str, int]
) -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    readers_fields = [
        {"name": name, "type": "int", "aliases": aliases, "default": default}
        for name, aliases, default in fields
    ]
    assert read(writer, {**writer, "fields": readers_fields}, "06") == value


def test_a_renamed_field_and_its_old_name_are_both_read_if_the_writer_has_both() -> None:
    fields = [{"name": "x", "type": "int"}, {"name": "b", "type": "int", "aliases": ["x"]}]
    schema = {"type": "record", "name": "R", "fields": fields}
    assert read(schema, schema, "060a") == {"x": 3, "b": 5}


def test_a_field_needs_a_default_if_an_alias_takes_the_writers_field() -> None:
    writer = {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]}
    renamed = {"name": "b", "type": "int", "aliases": ["x"]}
    reason = read(writer, {**writer, "fields": [{"name": "x", "type": "int"}, renamed]}, "06")
    assert reason == "x is not in the writer's schema, and has no default"


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (enum("a.E"), enum("a.E", "B", "A")),
        (enum("a.E"), enum("b.E")),
        (enum("a.E"), enum("a.X", aliases=["E"])),
        (enum("a.E"), enum("b.X", aliases=["a.E"])),
        (["null", enum("a.E")], ["null", enum("b.E")]),
        (enum("a.E"), ["null", enum("a.E")]),
    ],
    ids=json.dumps,
)
def test_an_enum_is_read_by_its_short_name_or_an_alias(writer: Any, reader: Any) -> None:
    value = "0202" if isinstance(writer, list) else "02"
    assert read(record(writer), record(reader), value) == {"f": "B"}


@pytest.mark.parametrize(
    ("writer", "reader"),
    [
        (enum("a.E"), enum("a.X")),
        (enum("a.E"), enum("b.X", aliases=["E"])),
        (["null", enum("E")], ["null", enum("X")]),
        (enum("a.E"), ["null", enum("b.E")]),
        (["null", enum("a.E")], [enum("b.E"), "null"]),
        (["null", enum("a.E")], ["null", enum("b.E", "A", "B", "C")]),
        ({"type": "array", "items": enum("E")}, {"type": "array", "items": enum("X")}),
        (fixed("a.F"), fixed("a.G")),
        ({"type": "map", "values": fixed("E")}, {"type": "map", "values": fixed("X")}),
    ],
    ids=json.dumps,
)
def test_an_enum_or_fixed_of_another_name_is_not_read(writer: Any, reader: Any) -> None:
    assert "needs the alias" in read(record(writer), record(reader), "02")


def test_a_fixed_of_another_namespace_is_read_and_one_of_another_size_is_not() -> None:
    assert read(record(fixed("a.F")), record(fixed("b.F")), "0102") == {"f": b"\1\2"}
    assert read(record(fixed("a.F")), record(fixed("a.G", aliases=["F"])), "0102") == {"f": b"\1\2"}
    assert "3 in the reader's schema" in read(record(fixed("a.F")), record(fixed("a.F", 3)), "010203")


def test_a_symbol_that_the_reader_lacks_is_its_default_or_a_malformed_value() -> None:
    only_a = {"symbols": ["A"]}
    lacking = enum("E") | only_a
    assert "f is B, which the enum of the reader's schema lacks" in read(
        record(enum("E")), record(lacking), "02"
    )
    assert read(record(enum("E")), record(lacking), "00") == {"f": "A"}
    assert read(record(enum("E")), record({**lacking, "default": "A"}), "02") == {"f": "A"}


def test_a_null_is_malformed_if_the_reader_has_no_null() -> None:
    assert read(record(["null", "int"]), record("int"), "020a") == {"f": 5}
    assert "f is null" in read(record(["null", "int"]), record("int"), "00")


@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        (["int", "string"], ["string", "int"], "000a", {"member0": None, "member1": 5}),
        (
            ["int", "string"],
            ["int", "string", "boolean"],
            "000a",
            {"member0": 5, "member1": None, "member2": None},
        ),
        (["int", "string", "boolean"], ["int", "string"], "000a", {"member0": 5, "member1": None}),
        ([enum("a.E"), enum("a.G")], [enum("a.G"), enum("a.E")], "0200", {"member0": "A", "member1": None}),
        (
            ["null", "int", "string"],
            ["int", "string", "null"],
            "0402" + "78",
            {"member0": None, "member1": "x"},
        ),
    ],
    ids=str,
)
def test_the_types_of_a_union_are_found_by_type_and_name(
    writer: Any, reader: Any, value: str, expected: Any
) -> None:
    assert read(record(writer), record(reader), value) == {"f": expected}


def test_records_of_a_union_are_found_by_their_names() -> None:
    created, deleted = record("int", "ev.Created"), record("int", "ev.Deleted")
    expected = {"member0": {"f": 5}, "member1": None}
    assert read([created, deleted], [deleted, created], "020a") == expected


def test_a_type_that_the_readers_union_lacks_is_a_malformed_value() -> None:
    message = read(record(["int", "string", "boolean"]), record(["int", "string"]), "0401")
    assert message == "f is boolean, which the reader's union lacks"


UTC = datetime.UTC


@pytest.mark.parametrize(
    ("kind", "default", "expected"),
    [
        (["null", "string"], None, None),
        (["string", "null"], "x", "x"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            5,
            datetime.datetime(1970, 1, 1, 0, 0, 0, 5000, UTC),
        ),
        ({"type": "long", "logicalType": "time-micros"}, 5, datetime.time(0, 0, 0, 5)),
        (enum("E"), "B", "B"),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2},
            "\u0001\u0000",
            Decimal("2.56"),
        ),
        (fixed("F"), "\u00ff\u0000", b"\xff\0"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "int"]}, {"k": None}, [("k", None)]),
        ("double", 1, 1.0),
        (["int", "string"], 1, {"member0": 1, "member1": None}),
        (["null", "int", "string"], "x", {"member0": None, "member1": "x"}),
        (record(["null", "long"], "I", default=None), {}, {"f": None}),
        ("long", -(2**63), -(2**63)),
    ],
    ids=str,
)
def test_a_missing_field_has_its_default_as_if_it_had_been_written(
    kind: Any, default: Any, expected: Any
) -> None:
    empty = {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]}
    assert read(empty, record(kind, default=default), "02") == {"f": expected}


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "x"),
        ("int", True),
        ("int", 2**40),
        ("long", 2**63),
        (fixed("F"), "x"),
        (enum("E"), "C"),
        ("string", 1),
    ],
    ids=str,
)
def test_a_default_of_another_type_is_rejected_by_its_field(kind: Any, default: Any) -> None:
    empty = {"type": "record", "name": "R", "fields": [{"name": "other", "type": "int"}]}
    assert "the default of f is not a" in read(empty, record(kind, default=default), "02")


# ---- times of day

TIME = {"type": "long", "logicalType": "time-micros"}
JSON = {"value.format": "json", "value.schema": "f STRING"}
TIMES = StructType().add("f", TimeType(6))


def avro_options(kind: Any) -> dict[str, str]:
    return {"value.format": "avro", "value.schema": json.dumps(record(kind)), **NULL}


def test_time_micros_is_a_time_as_in_from_avro() -> None:
    parsed = parse_options({**SERVERS, **avro_options(TIME)})
    assert "value STRUCT<`f`: TIME(6)>" in ddl(parsed)
    last = 86_399_999_999
    written = [_zigzag(0), _zigzag(last), _zigzag(last + 1), _zigzag(-1)]
    rows = decoded(written, TIMES, avro_options(TIME))
    times = [row["value"] and row["value"]["f"] for row in rows]
    assert times == [datetime.time(), datetime.time(23, 59, 59, 999_999), None, None]
    assert rows[2]["_error"] == "value: f is not a time of day"


def test_other_logical_times_stay_numbers_as_in_from_avro() -> None:
    kind = {"type": "int", "logicalType": "time-millis"}
    assert "value STRUCT<`f`: INT>" in ddl(parse_options({**SERVERS, **avro_options(kind)}))


def _zigzag(value: int) -> bytes:
    from consumer.spark.values.avro_defaults import encode

    return encode(AvroNode("long"), value)


@pytest.mark.parametrize(
    "columns",
    [
        "f TIME(6)",
        "f TIME",
        "f ARRAY<TIME(6)>",
        "f STRUCT<a: TIME(6)>",
        "a INT, f MAP<STRING, TIME(6)>",
        "f VARIANT",
    ],
)
def test_a_time_in_json_is_rejected_at_load(columns: str) -> None:
    options = {"value.format": "json", "value.schema": columns}
    with pytest.raises(
        ConfigError, match=r"value\.schema=.*JSON has no (TIME|VARIANT); use STRING, and cast it"
    ):
        ddl(parse_options({**SERVERS, **options}))


@pytest.mark.parametrize(
    "columns", ["time INT", "f STRUCT<time: INT>", "f STRUCT<time: STRING, interval: INT>"]
)
def test_a_field_of_json_may_have_the_name_of_a_type(columns: str) -> None:
    assert columns in ddl(parse_options({**SERVERS, "value.format": "json", "value.schema": columns}))


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (avro_options(TIME), TimeType(3), r"f time\(3\)'.*allowed: TIME\(6\)"),
        (JSON, TimeType(6), r"f time\(6\)'.*JSON has no such type"),
        (JSON, ArrayType(TimeType(6)), r"f.element time\(6\)'.*JSON has no such type"),
    ],
    ids=["avro", "json", "an array in json"],
)
def test_a_time_that_cannot_be_read_is_rejected_before_a_task_begins(
    options: dict[str, str], kind: Any, message: str
) -> None:
    columns = schema(StructType().add("f", kind), options)
    with pytest.raises(ConfigError, match=message):
        checked(columns, parse_options({**SERVERS, **options}))


# ---- types that cannot be a column


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: Any, scale: Any = 0, size: int = 0) -> dict[str, Any]:
    kind: dict[str, Any] = fixed("D", size) if size else {"type": "bytes"}
    return {**kind, "logicalType": "decimal", "precision": precision, "scale": scale}


def column(kind: Any) -> str:
    return ddl(parse_options({**SERVERS, **avro_options(kind)}))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (logical("long", "timestamp-nanos"), "PySpark has no timestamps of nanoseconds"),
        (logical("long", "local-timestamp-nanos"), "PySpark has no timestamps of nanoseconds"),
        (logical("long", "custom-decimal", precision=5, scale=2), "custom-decimal is not supported"),
        (decimal(39), "Spark's decimals have at most 38 digits"),
        (decimal(39, 2, size=20), "Spark's decimals have at most 38 digits"),
        ({"type": "int", "spark.sql.catalyst.type": "interval year"}, "catalyst.type is not supported"),
    ],
    ids=str,
)
def test_a_type_that_spark_reads_otherwise_is_rejected_by_its_field(kind: Any, reason: str) -> None:
    """Like kproto, Spark 4.2 rejects nanoseconds and decimals of 39 digits."""
    for whole, place in ((kind, "f"), (["null", kind], "f"), ({"type": "array", "items": kind}, r"f\[\]")):
        with pytest.raises(ConfigError, match=rf"{reason}, for the Avro type of field {place}; set value\."):
            column(whole)
    plain = {"long": "BIGINT", "int": "INT"}.get(kind["type"], "BINARY")
    with pytest.raises(ConfigError, match=rf"\(the type is then {plain}\), or without the field"):
        column(kind)


def test_a_writers_type_without_a_column_is_read_by_a_reader_without_the_logical_type() -> None:
    assert read(record(logical("long", "timestamp-nanos")), record("long"), "0a") == {"f": 5}


@pytest.mark.parametrize(
    "kind",
    [decimal(0), decimal(3, 5), decimal(3, "x"), decimal(5, 2, size=2), decimal(39, 2, size=2)],
    ids=str,
)
def test_an_invalid_decimal_is_binary_as_in_from_avro(kind: Any) -> None:
    assert "value STRUCT<`f`: BINARY>" in column(kind)


def test_the_largest_decimal_of_a_fixed_type_has_the_digits_of_its_bytes() -> None:
    for size, digits in ((1, 2), (2, 4), (16, 38)):
        assert f"value STRUCT<`f`: DECIMAL({digits}, 0)>" in column(decimal(digits, size=size))


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("null", "f"),
        ({"type": "array", "items": "null"}, r"f\[\]"),
        ({"type": "map", "values": "null"}, r"f\[\]"),
        (record("null", "Inner"), r"f\.f"),
    ],
    ids=str,
)
def test_null_cannot_be_a_column_and_the_error_names_its_field(kind: Any, place: str) -> None:
    with pytest.raises(ConfigError, match=rf"the Avro type of field {place} is null, .*; remove the field"):
        column(kind)


def fields(**kinds: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": k} for n, k in kinds.items()]}


@pytest.mark.parametrize(
    ("writer", "reader", "value", "result"),
    [
        (fields(a="int", f="null", b="int"), fields(a="int", b="int"), "0204", {"a": 1, "b": 2}),
        (fields(f="null", b="int"), fields(f=["null", "string"], b="int"), "04", {"f": None, "b": 2}),
        (fields(f="null", b="int"), fields(f=["string", "null"]), "04", {"f": None}),
        (
            fields(a={"type": "array", "items": record("null", "I")}, b="int"),
            fields(b="int"),
            "0004",
            {"b": 2},
        ),
        (
            fields(a={"type": "array", "items": fields(n="null", i="int") | {"name": "I"}}, b="int"),
            fields(b="int"),
            "0402040004",
            {"b": 2},
        ),
        (
            fields(f="null"),
            fields(f="string"),
            "",
            "f is null in the writer's schema, and string in the reader's schema, which does not allow null",
        ),
    ],
    ids=str,
)
def test_a_writers_field_of_the_type_null_has_no_bytes(
    writer: Any, reader: Any, value: str, result: Any
) -> None:
    assert read(writer, reader, value) == result


def test_a_schema_or_union_of_only_null_is_rejected() -> None:
    with pytest.raises(ConfigError, match="the Avro type is null, which cannot be a column"):
        checked_columns("value.schema", parse("value.schema", '"null"'))
    with pytest.raises(ConfigError, match="the union of field f needs a type other than null"):
        column(["null"])
