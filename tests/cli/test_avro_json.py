"""JSON survives the conversion to the objects that fastavro encodes, and back."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest

pytest.importorskip("fastavro")

import fastavro

from kproto.cli.avro_json import JsonReader, to_json


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def record(**fields: Any) -> dict[str, Any]:
    """Return a record type. Each argument is a field's type, or a pair of a type and a default."""
    return {
        "type": "record",
        "name": "R",
        "namespace": "demo",
        "fields": [
            {"name": name, "type": kind[0], "default": kind[1]}
            if isinstance(kind, tuple)
            else {"name": name, "type": kind}
            for name, kind in fields.items()
        ],
    }


DECIMAL = logical("bytes", "decimal", precision=9, scale=2)
COLOR = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
PAIR = {"type": "fixed", "name": "Pair", "size": 2}
# A type, a JSON value, and the JSON that results from encoding and decoding the value. A result that equals
# the value is omitted.
ROUND_TRIPS: list[tuple[Any, ...]] = [
    ("null", None),
    ("boolean", True),
    ("int", -(2**31)),
    ("long", 2**63 - 1),
    ("double", 1e300),
    ("double", 1, 1.0),
    ("double", "NaN"),
    ("float", "-Infinity"),
    ("double", "Infinity"),
    ("string", "é"),
    ("bytes", "AP8="),
    (PAIR, "AAE="),
    (COLOR, "BLUE"),
    ({"type": "array", "items": ["null", DECIMAL]}, [None, "12.50"]),
    ({"type": "map", "values": "long"}, {"a": 1, "type": 2}),
    (DECIMAL, "-0.05"),
    (DECIMAL, 3, "3.00"),
    (DECIMAL, 12.5, "12.50"),
    (logical("int", "date"), "2026-11-28"),
    (logical("int", "date"), 0, "1970-01-01"),
    (logical("int", "time-millis"), "09:30:00.250000"),
    (logical("long", "time-micros"), "09:30:00"),
    (logical("long", "timestamp-millis"), "2026-11-28T09:30:00Z"),
    (logical("long", "timestamp-micros"), "2026-11-28T10:30:00.000001+01:00", "2026-11-28T09:30:00.000001Z"),
    (logical("long", "local-timestamp-micros"), "2026-11-28T09:30:00"),
    (logical("long", "timestamp-nanos"), 7),
    (logical("string", "uuid"), "6f1ed002-ab5c-4a3c-8ccf-5b4e8f3a1f6c"),
    (["null", "string", "bytes"], "AAE="),
    (["null", "string", "bytes"], {"bytes": "AAE="}, "AAE="),
    (["null", {"type": "map", "values": "string"}], {"string": "x"}),
    (["string", {"type": "map", "values": "string"}], {"string": "x"}, "x"),
    (["null", COLOR, PAIR], {"Color": "RED"}, "RED"),
    (["null", COLOR, PAIR], "AAE="),
    (record(to="string", seats=("int", 7), mark=("bytes", "ÿ")), {"to": "BER"}, None),
    (record(next=["null", "demo.R"], n="int"), {"next": {"next": None, "n": 2}, "n": 1}),
    (["null", record(n="int")], {"demo.R": {"n": 1}}, {"n": 1}),
]


def encoded_and_decoded(schema: Any, value: Any) -> Any:
    named: dict[str, Any] = {}
    parsed = fastavro.parse_schema(schema, named_schemas=named)
    file = io.BytesIO()
    fastavro.schemaless_writer(file, parsed, JsonReader(parsed, named).read(value))
    file.seek(0)
    return to_json(fastavro.schemaless_reader(file, parsed, None))


@pytest.mark.parametrize("case", ROUND_TRIPS, ids=repr)
def test_json_survives_a_round_trip(case: tuple[Any, ...]) -> None:
    schema, value, *rest = case
    expected = rest[0] if rest else value
    if expected is None and value is not None:
        expected = {**value, "seats": 7, "mark": "/w=="}
    shown = encoded_and_decoded(schema, value)
    assert shown == expected
    assert type(shown) is type(expected)
    json.dumps(shown, allow_nan=False)


@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ("int", 2**31, "$ is 2147483648, not of the type int"),
        ("int", True, "$ is True, not of the type int"),
        ("long", 1.0, "$ is 1.0, not of the type long"),
        ("double", "x", "$ is 'x', not of the type double"),
        ("string", 1, "$ is 1, not of the type string"),
        ("null", 0, "$ is 0, not of the type null"),
        ("boolean", 0, "$ is 0, not of the type boolean"),
        ("bytes", "A", "$ is 'A', not bytes in base64"),
        (PAIR, "AA==", "$ is 'AA==', not 2 bytes in base64"),
        (COLOR, "GREEN", "$ is 'GREEN', not one of RED, BLUE"),
        (COLOR, ["RED"], "$ is ['RED'], not one of RED, BLUE"),
        ({"type": "array", "items": "int"}, [1, "x"], "$[1] is 'x', not of the type int"),
        ({"type": "array", "items": "int"}, {}, "$ is {}, not of the type array"),
        ({"type": "map", "values": "int"}, {"a": "x"}, "$.a is 'x', not of the type int"),
        (DECIMAL, "NaN", "$ is 'NaN', not a decimal such as"),
        (DECIMAL, None, "$ is None, not a decimal such as"),
        (logical("int", "date"), "soon", "$ is 'soon', not a date such as 2026-11-28"),
        (logical("long", "timestamp-millis"), "2026-11-28T09:30:00", "such as 2026-11-28T09:30:00Z"),
        (logical("long", "local-timestamp-millis"), "2026-11-28T09:30:00Z", "such as 2026-11-28T09:30:00"),
        (record(to="string"), {"to": "BER", "form": "JFK"}, "$ has the unknown field form; fields of"),
        (record(to="string"), {}, "$ has no field to, and the schema has no default for it"),
        (record(to="string"), "BER", "$ is 'BER', not an object with the fields of demo.R"),
        (record(to=["null", "string"]), {"to": 1}, "$.to is 1, not of the type string"),
        (["int", "string"], [], "$ is [], not one of the types int, string"),
    ],
)
def test_json_that_does_not_fit_is_an_error_with_its_place(schema: Any, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r"^\$") as caught:
        encoded_and_decoded(schema, value)
    assert message in str(caught.value)


def test_nan_is_a_string_in_any_container() -> None:
    assert to_json({1: [math.nan, (-math.inf)]}) == {"1": ["NaN", "-Infinity"]}
