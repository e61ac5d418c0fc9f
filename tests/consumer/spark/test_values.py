"""Keys and values are decoded into rows by their formats. Malformed ones become null or raise an error, as
the option `onError` says.
"""

from __future__ import annotations

import base64
import datetime
import json
import pickle
import random
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from consumer.schema_registry import registry as registries
from consumer.schema_registry.registry import RegistryFailed
from consumer.spark.options import parse
from consumer.spark.schema import checked, ddl
from consumer.spark.source import KprotoDataSource
from consumer.spark.values import BadValue
from kproto.errors import ConfigError
from tests.consumer.spark.values_stage import SERVERS, avro, decoded, registry, schema, wired

NULL = {"value.onError": "null"}
FLIGHT = StructType().add("id", LongType()).add("dest", StringType())
JSON = {"value.format": "json", "value.schema": "id BIGINT, dest STRING"}


def values(rows: list[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in rows]


def ddl_of(options: dict[str, str]) -> str:
    parsed = parse({**SERVERS, **options})
    parsed.for_reading()
    return ddl(parsed)


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"value.format": "xml"}, "value.format"),
        ({"value.format": "json", "value.onError": "skip"}, "allowed: fail, null"),
        ({"value.schema": "a INT"}, "works only with value.format; set both"),
        ({"value.format": "json"}, "columns in DDL"),
        ({"value.format": "avro"}, "schema.registry.url"),
        (
            {"value.format": "avro", "value.schema": '{"type": "recrod", "name": "a"}'},
            "Avro type is not defined",
        ),
        ({"value.format": "avro", "value.schema": "/there/is/none.avsc"}, "/there/is/none.avsc"),
        ({"value.format": "avro", "schema.registry.url": "localhost:8081"}, "http://HOST:PORT"),
        ({"schema.registry.basic.auth.user.info": "me:secret"}, "schema.registry.url"),
        ({"value.fromat": "json"}, "did you mean value.format"),
    ],
    ids=str,
)
def test_a_wrong_format_option_raises_with_what_is_allowed(options: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        ddl_of(options)
    assert message in str(raised.value)
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (StructType().add("a", VarcharType(3)), r"value\.schema='a varchar\(3\)'.*use STRING"),
        (
            StructType().add("a", ArrayType(StructType().add("b", CharType(2)))),
            r"'a\.element\.b char\(2\)'",
        ),
        (StructType().add("a", MapType(StringType(), VarcharType(3))), r"'a\.value varchar\(3\)'"),
        (StructType().add("a", LongType()).add("a", StringType()), r"value\.schema='a'.*appears twice"),
    ],
    ids=str,
)
def test_a_type_that_arrow_lacks_is_rejected_before_a_task_begins(kind: StructType, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        checked(schema(kind, JSON), parse({**SERVERS, **JSON}))


def test_a_sink_rejects_formats() -> None:
    with pytest.raises(ConfigError):
        parse({**SERVERS, **JSON, "topic": "t"}).for_sink()


def test_the_registrys_password_is_not_shown() -> None:
    user = {"schema.registry.url": "http://r:1", "schema.registry.basic.auth.user.info": "me:secret"}
    assert "secret" not in repr(parse({**SERVERS, **user, "value.format": "avro"}))


def test_the_columns_have_the_types_of_their_formats() -> None:
    options = {**JSON, "key.format": "string", **NULL}
    assert ddl_of(options).startswith("key STRING, value STRUCT<id BIGINT, dest STRING>, topic string")
    assert ddl_of(options).endswith("_error string")


# ---- the rows of each format, and values that cannot be decoded


def test_json_becomes_a_struct() -> None:
    written = [b'{"id": 1, "dest": "SFO"}', b'{"dest": null, "more": [1]}', b' {"id":3}\n', None]
    rows = decoded(written, FLIGHT, JSON)
    assert values(rows) == [
        {"id": 1, "dest": "SFO"},
        {"id": None, "dest": None},
        {"id": 3, "dest": None},
        None,
    ]


BROKEN = [
    b"",
    b"null",
    b"[1]",
    b'{"id": 1',
    b'{"id": 1}{"id": 2}',
    b'{"id": 1}\n{"id": 2}',
    b'{"id": "one"}',
    b'{"id": 99999999999999999999}',
    b'{"id": 1, "dest": {"a": 1}}',
    b'{"id": 1, "dest": "\xff"}',
    b'{"dest": "}',
    b'{"id":1}}',
    b'","id": 2}',
    b"{" * 2000,
]


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_bad_json_becomes_null_without_changing_other_values(broken: bytes) -> None:
    good = [b'{"id": %d, "dest": "{"}' % n for n in range(5)]
    rows = decoded([*good[:2], broken, *good[2:]], FLIGHT, {**JSON, **NULL})
    assert values(rows) == [None if at == 2 else {"id": at - (at > 2), "dest": "{"} for at in range(6)]
    assert [row["_error"] is None for row in rows] == [at != 2 for at in range(6)]


def test_each_bad_value_among_many_is_reported() -> None:
    mixed = [BROKEN[n % len(BROKEN)] if n % 3 == 0 else b'{"id": %d}' % n for n in range(3000)]
    rows = decoded(mixed, FLIGHT, {**JSON, **NULL})
    expected = [None if n % 3 == 0 else {"id": n, "dest": None} for n in range(3000)]
    assert values(rows) == expected
    assert [n for n, row in enumerate(rows) if row["_error"]] == list(range(0, 3000, 3))


def test_a_bad_value_ends_the_task_with_its_offset_and_the_option() -> None:
    with pytest.raises(BadValue, match=r"offset 1 of t-0.*value.onError=null"):
        decoded([b"{}", b"{", b"{}"], FLIGHT, JSON)


def test_json_becomes_timestamps_decimals_and_arrays() -> None:
    kind = StructType().add("at", TimestampType()).add("day", DateType()).add("cost", DecimalType(8, 2))
    kind = kind.add("legs", ArrayType(StructType().add("n", IntegerType())))
    options = {"value.format": "json", "value.schema": "at TIMESTAMP"}
    text = b'{"at":"2013-01-01T10:00:00.5Z","day":"2013-01-02","cost":12.5,"legs":[{"n":1},null]}'
    [row] = values(decoded([text], kind, options))
    assert row["at"].isoformat() == "2013-01-01T10:00:00.500000+00:00"
    assert (row["day"], row["cost"]) == (datetime.date(2013, 1, 2), Decimal("12.50"))
    assert row["legs"] == [{"n": 1}, None]


MAPS = StructType().add("m", MapType(StringType(), LongType())).add("id", LongType())


def test_json_objects_become_maps() -> None:
    written = [b'{"m": {"a": 1, "b": null}, "id": 1}', b'{"id": 2}', b'{"m": {}}', b'{"m": null}', None]
    rows = [row and {**row, "m": row["m"] and dict(row["m"])} for row in values(decoded(written, MAPS, JSON))]
    first = {"m": {"a": 1, "b": None}, "id": 1}
    nothing = {"m": None, "id": None}
    assert rows == [first, {"m": None, "id": 2}, {"m": [], "id": None}, nothing, None]


def test_maps_may_contain_any_type_and_be_part_of_any_type() -> None:
    leg = StructType().add("at", TimestampType()).add("raw", BinaryType()).add("day", DateType())
    inner = StructType().add("deep", MapType(StringType(), ArrayType(leg))).add("n", IntegerType())
    kind = StructType().add("list", ArrayType(MapType(StringType(), DoubleType()))).add("one", inner)
    written = [
        b'{"list": [{"x": 1.5}, null, {}], "one": {"n": 3, "deep": {"k": [{"at": "2013-01-01T10:00:00Z",'
        b' "raw": "aGk=", "day": "2013-01-02"}, null]}}}',
        b'{"list": [], "one": null}',
        b'{"one": {"deep": null, "n": 4}}',
    ]
    first, second, third = values(decoded(written, kind, JSON))
    assert first["list"] == [[("x", 1.5)], None, []]
    [(key, [entry, none])] = first["one"]["deep"]
    assert (key, none, first["one"]["n"]) == ("k", None, 3)
    assert (entry["raw"], entry["day"]) == (b"hi", datetime.date(2013, 1, 2))
    assert entry["at"].isoformat() == "2013-01-01T10:00:00+00:00"
    assert second == {"list": [], "one": None}
    assert third == {"list": None, "one": {"deep": None, "n": 4}}


@pytest.mark.parametrize(
    "broken", [b'{"m": {"a": "b"}}', b'{"m": [1]}', b'{"m": {"a": 99999999999999999999}}', b'{"m": {1: 2}}']
)
def test_a_bad_map_becomes_null_without_changing_other_values(broken: bytes) -> None:
    good = [b'{"m": {"k": %d}}' % n for n in range(3)]
    rows = decoded([good[0], broken, *good[1:]], MAPS, {**JSON, **NULL})
    assert [row["value"] and row["value"]["m"] for row in rows] == [
        [("k", 0)], None, [("k", 1)], [("k", 2)],
    ]  # fmt: skip
    assert [row["_error"] is None for row in rows] == [True, False, True, True]


def test_base64_in_json_becomes_bytes() -> None:
    kind = StructType().add("raw", BinaryType()).add("all", ArrayType(BinaryType()))
    rng = random.Random(3)
    pieces = [rng.randbytes(size) for size in [*range(50), 0, 1000]]
    texts = [base64.b64encode(piece).decode() for piece in pieces]
    written = [
        json.dumps({"raw": text, "all": [text, None, *texts[: n % 4]]}).encode()
        for n, text in enumerate(texts)
    ]
    rows = values(decoded([*written, b"{}"], kind, JSON))
    assert rows == [
        *({"raw": text, "all": [text, None, *pieces[: n % 4]]} for n, text in enumerate(pieces)),
        {"raw": None, "all": None},
    ]


@pytest.mark.parametrize("text", ["aGk", "aG=k", "a===", "====", "aGk!", "aGk=aGk=", "\u00e4Gk="])
def test_only_values_with_invalid_base64_are_bad(text: str) -> None:
    kind = StructType().add("raw", BinaryType())
    good = b'{"raw": "aGk="}'
    rows = decoded([good, json.dumps({"raw": text}).encode(), good], kind, {**JSON, **NULL})
    assert values(rows) == [{"raw": b"hi"}, None, {"raw": b"hi"}]
    assert rows[1]["_error"]


@pytest.mark.parametrize("kind", [MapType(LongType(), StringType()), DayTimeIntervalType()], ids=str)
def test_types_that_json_cannot_contain_are_rejected_by_name(kind: Any) -> None:
    with pytest.raises(ConfigError, match=r"value\.schema"):
        decoded([], StructType().add("m", kind), JSON)


def test_text_that_is_not_utf8_is_bad() -> None:
    rows = decoded([b"a", b"\xff", None, "ä".encode()], StringType(), {"value.format": "string", **NULL})
    assert values(rows) == ["a", None, None, "ä"]
    assert rows[1]["_error"] == "value: the bytes are not UTF-8: invalid start byte at byte 0"


def test_keys_are_decoded_like_values() -> None:
    rows = decoded([b"JFK", b"\xff"], StringType(), {"key.format": "string", "key.onError": "null"}, "key")
    assert [row["key"] for row in rows] == ["JFK", None]


# ---- Avro: values written by fastavro

OLD = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "to", "type": ["null", "string"]},
        {"name": "note", "type": "string"},
    ],
}
NEW = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "dest", "aliases": ["to"], "type": ["null", "string"], "default": None},
        {"name": "id", "type": "long"},
        {"name": "seats", "type": "int", "default": 7},
    ],
}


def test_random_avro_is_read_as_fastavro_wrote_it() -> None:
    pytest.importorskip("fastavro")
    from tests.consumer.spark import random_avro

    for seed in range(40):
        random_avro.check(random.Random(seed))


def test_avro_decimals_are_read_in_as_many_bytes_as_java_accepts() -> None:
    # Redundant sign bytes at the start of a decimal are accepted. A decimal without bytes, or with more than
    # 38 digits, is rejected. Spark's from_avro does the same.
    numbers = [
        (-12345).to_bytes(17, signed=True),
        (12345).to_bytes(40),
        (10**37).to_bytes(17),
        (10**38 - 1).to_bytes(16),
        (1 - 10**38).to_bytes(16, signed=True),
        (1 << 130).to_bytes(17),
        (10**38).to_bytes(16),
        (-(10**38)).to_bytes(16, signed=True),
        b"",
    ]
    cost = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}
    schema = json.dumps({"type": "record", "name": "F", "fields": [{"name": "cost", "type": cost}]})
    written = [bytes([2 * len(number)]) + number for number in numbers]
    kind = StructType().add("cost", DecimalType(38, 2))
    rows = decoded(written, kind, {"value.format": "avro", "value.schema": schema, **NULL})
    assert [row and str(row["cost"]) for row in values(rows)] == [
        "-123.45",
        "123.45",
        f"{10**35}.00",
        f"{10**36 - 1}.99",
        f"-{10**36 - 1}.99",
        None,
        None,
        None,
        None,
    ]
    reasons = [row["_error"] for row in rows[5:]]
    assert reasons == ["value: cost has more than 38 digits"] * 3 + ["value: cost is a decimal without bytes"]


def test_only_the_selected_avro_fields_are_read() -> None:
    schema = json.dumps({**OLD, "fields": [{"name": "a", "type": "int"}, *OLD["fields"]]})
    kind = StructType().add("id", IntegerType())
    written = bytes.fromhex("0e" + "10" + "02" + "02" + "78" + "02" + "79")  # a=7, id=8, to="x", note="y"
    assert values(decoded([written], kind, {"value.format": "avro", "value.schema": schema})) == [{"id": 8}]


@pytest.mark.parametrize("broken", ["0e10020278", "0e100402780279", "0e10020278027900", "", "ff" * 20])
def test_malformed_avro_becomes_null_without_changing_other_values(broken: str) -> None:
    schema = json.dumps({**OLD, "fields": [{"name": "a", "type": "int"}, *OLD["fields"]]})
    options = {"value.format": "avro", "value.schema": schema, **NULL}
    good = bytes.fromhex("0e100202780279")
    rows = decoded([good, bytes.fromhex(broken), good], StructType().add("id", IntegerType()), options)
    assert values(rows) == [{"id": 8}, None, {"id": 8}]
    assert rows[1]["_error"].startswith("value: ")


def test_each_writer_schema_is_requested_once_from_the_registry() -> None:
    pytest.importorskip("fastavro")
    old, new = {"schema": json.dumps(OLD)}, {"schema": json.dumps(NEW)}
    answers = {"/subjects/t-value/versions/latest": new, "/schemas/ids/1": old, "/schemas/ids/2": new}
    kind = StructType().add("dest", StringType()).add("id", LongType()).add("seats", IntegerType())
    with registry(answers) as (url, requests):
        options = {"value.format": "avro", "schema.registry.url": url, **NULL}
        user = {"schema.registry.basic.auth.user.info": "me:secret"}
        assert "value STRUCT<`dest`: STRING, `id`: BIGINT, `seats`: INT>" in ddl_of({**options, **user})
        [first] = avro(OLD, {"id": 1, "to": "SFO", "note": "n"})
        [second] = avro(NEW, {"id": 2**40, "dest": None, "seats": 2})
        written = [
            wired(1, first),
            wired(2, second),
            first,
            wired(1, first),
            wired(9, first),
            b"\0\0",
            wired(2, first),
        ]
        rows = decoded(written, kind, {**options, **user})
    sfo = {"dest": "SFO", "id": 1, "seats": 7}
    assert values(rows)[:4] == [sfo, {"dest": None, "id": 2**40, "seats": 2}, None, sfo]
    assert values(rows)[4:] == [None, None, None]
    assert "404" in rows[4]["_error"]
    assert "Schema not found." in rows[4]["_error"]
    assert "value.subject" in rows[4]["_error"]
    assert "wire format" in rows[2]["_error"]
    assert sorted(path.split()[0] for path in requests if "ids" in path) == [
        f"/schemas/ids/{n}" for n in (1, 2, 9)
    ]
    assert all(path.endswith("Basic bWU6c2VjcmV0") for path in requests)


@pytest.mark.parametrize("reads", ["reader", "streamReader"])
def test_a_query_keeps_the_registrys_schema_of_its_load(reads: str) -> None:
    """A query keeps the schema that the registry returned when the query was loaded.

    A newer version of the schema may lack a field that the query reads. Such a version must not make the
    running query fail.
    """
    pytest.importorskip("fastavro")
    latest, new = "/subjects/t-value/versions/latest", {"schema": json.dumps(NEW)}
    answers = {latest: new, "/schemas/ids/2": new}
    kind = StructType().add("dest", StringType()).add("id", LongType()).add("seats", IntegerType())
    with registry(answers) as (url, requests):
        options = {"value.format": "avro", "schema.registry.url": url}
        source = KprotoDataSource({**SERVERS, **options})
        assert "`seats`: INT" in str(source.schema())
        sent = pickle.loads(pickle.dumps(source))
        fields = [field for field in NEW["fields"] if field["name"] != "seats"]
        answers[latest] = {"schema": json.dumps({**NEW, "fields": fields})}
        planned = pickle.loads(pickle.dumps(getattr(sent, reads)(schema(kind, options))))
        written = [wired(2, encoded) for encoded in avro(NEW, {"id": 5, "dest": "SFO", "seats": 2})]
        # Decode twice, as two tasks of the query do. Neither may request the latest schema again.
        for _ in range(2):
            rows = decoded(written, kind, options, formats=planned.options.formats)
    assert values(rows) == [{"dest": "SFO", "id": 5, "seats": 2}]
    assert requests.count(latest) == 1


def test_an_unreachable_registry_ends_a_stream_with_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)
    options = {"value.format": "avro", "schema.registry.url": "http://127.0.0.1:1"}
    reader = KprotoDataSource({**SERVERS, **options}).streamReader(schema(FLIGHT, options))
    with pytest.raises(RegistryFailed, match=r"latest schema of t-value: http://127\.0\.0\.1:1"):
        reader.initialOffset()


def test_a_missing_field_without_default_is_named_in_the_error() -> None:
    pytest.importorskip("fastavro")
    fields = [{"name": "gate", "type": "string"}]
    answers = {
        "/subjects/t-value/versions/latest": {"schema": json.dumps({**NEW, "fields": fields})},
        "/schemas/ids/11": {"schema": json.dumps(OLD)},
    }
    [encoded] = avro(OLD, {"id": 1, "to": None, "note": ""})
    with registry(answers) as (url, _):
        options = {"value.format": "avro", "schema.registry.url": url, **NULL}
        [row] = decoded([wired(11, encoded)], StructType().add("gate", StringType()), options)
    assert row["value"] is None
    assert "gate is not in the writer's schema, and has no default" in row["_error"]


# ---- protobuf: compared with protobuf's own library


def test_random_protobuf_is_read_as_protobufs_own_library_reads_it() -> None:
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf

    for seed in range(40):
        random_protobuf.check(random.Random(seed))


def test_a_packed_field_of_many_numbers_and_a_double_are_read() -> None:
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf as proto

    options = {
        "value.format": "protobuf",
        "value.schema": proto.base64(proto.files()),
        "value.message": "p.Top",
    }
    top = proto.message()(f10=list(range(-500, 500)), f1=0.5)
    kind = StructType().add("f10", ArrayType(IntegerType())).add("f1", DoubleType())
    assert values(decoded([top.SerializeToString()], kind, options)) == [
        {"f10": list(range(-500, 500)), "f1": 0.5}
    ]


def test_missing_parts_of_a_map_entry_have_their_default() -> None:
    """If a map's values are messages, an entry without a value has an empty message instead of null, as in
    protobuf's own library.
    """
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf as proto

    field = {field.name: field.number << 3 | 2 for field in proto.top().fields}
    written = b"".join(
        bytes([field[name] & 0x7F | 0x80, field[name] >> 7, len(entry)]) + entry
        for name, entry in (("mq", b"\x08\x07"), ("mq", b""), ("mp", b"\x10\x05"), ("mp", b"\x0a\x01k"))
    )
    own = proto.message()()
    own.ParseFromString(written)
    [row], bad = proto.decode([written])
    assert not bad
    assert row == proto.expected(own)
    assert row["mq"] == {7: {"a": 0, "b": ""}, 0: {"a": 0, "b": ""}}
    assert row["mp"] == {"": 5, "k": 0}


def test_unknown_fields_of_a_map_entry_are_handled_as_in_from_protobuf() -> None:
    """A map entry with unknown fields is kept, as in protobuf's Java library.

    protobuf's library for Python (upb) drops a map entry with unknown fields.

    The behaviour of the Java library was observed with its class DynamicMessage.
    """
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf as proto

    [row], bad = proto.decode([bytes.fromhex("b202060a026b301200" + "b202050a016b1805")])
    assert not bad
    assert row["mp"] == {"k0": 0, "k": 0}


def test_a_number_of_ten_bytes_keeps_its_lowest_64_bits() -> None:
    """A varint of ten bytes keeps its lowest 64 bits, as in protobuf's own libraries for Python and Java."""
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf as proto

    number = proto.top().fields_by_name["opt"].number << 3
    tag = bytes([number & 0x7F | 0x80, number >> 7])
    written = [tag + b"\xff" * 9 + b"\x7f", tag + b"\xff" * 9 + b"\xff\x01"]
    own = proto.message()()
    own.ParseFromString(written[0])
    rows, bad = proto.decode(written)
    assert rows[0]["opt"] == own.opt == -1
    assert bad == {1: "opt has more than 64 bits"}


def test_one_value_with_many_items_is_read_completely() -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("google.protobuf")
    from tests.consumer.spark import random_protobuf as proto

    words = [f"word {number}" for number in range(10_000)]
    schema = {
        "type": "record",
        "name": "Words",
        "fields": [{"name": "f18", "type": {"type": "array", "items": "string"}}],
    }
    kind = StructType().add("f18", ArrayType(StringType()))
    avros = {"value.format": "avro", "value.schema": json.dumps(schema)}
    assert values(decoded(avro(schema, {"f18": words}), kind, avros)) == [{"f18": words}]
    descriptors = proto.base64(proto.files())
    protos = {"value.format": "protobuf", "value.schema": descriptors, "value.message": "p.Top"}
    message = proto.message()(f18=words).SerializeToString()
    assert values(decoded([message], kind, protos)) == [{"f18": words}]
    [bad] = decoded([message[:-1]], kind, {**protos, **NULL})
    assert bad["value"] is None


def test_json_needs_a_schema_id_if_a_registry_is_set() -> None:
    options = {**JSON, "schema.registry.url": "http://localhost:1", **NULL}
    written = [wired(4, b'{"id": 1}'), b'{"id": 2}', None, wired(5, b'{"id": 3}'), wired(5, b"{")]
    rows = decoded(written, FLIGHT, options)
    first, third = ({"id": number, "dest": None} for number in (1, 3))
    assert values(rows) == [first, None, None, third, None]
    assert "wire format" in rows[1]["_error"]
