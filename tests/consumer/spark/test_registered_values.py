"""A value's header names its schema in a registry and, in Protobuf, its message.

The decoder reads an Avro value with its registered schema, and a Protobuf value as the message that its
header names.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("google.protobuf")
pytest.importorskip("fastavro")

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql.types import IntegerType, LongType, StringType, StructType

from consumer.schema_registry.protobuf_schema import message_names
from consumer.schema_registry.registry import Registry, RegistryFailed, Schema
from consumer.spark.options import parse
from consumer.spark.schema import ddl
from tests.consumer.spark.random_protobuf import base64
from tests.consumer.spark.values_stage import SERVERS, avro, decoded, registry, wired

NULL = {"value.onError": "null"}
TEXT = descriptor_pb2.FieldDescriptorProto.TYPE_STRING


def shop() -> Any:
    """Return the descriptor of a file with the messages First, Outer, Outer.In0, Outer.In1 and Last.

    Each message has one string field.
    """
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    outer = descriptor_pb2.DescriptorProto(name="Outer")
    entry = outer.nested_type.add(name="MEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=TEXT, label=1)
    entry.field.add(name="value", number=2, type=TEXT, label=1)
    for message in (
        file.message_type.add(name="First"),
        outer,
        outer.nested_type.add(name="In0"),
        outer.nested_type.add(name="In1"),
    ):
        message.field.add(name="text", number=1, type=TEXT, label=1)
    outer.field.add(name="m", number=2, type=11, type_name=".shop.Outer.MEntry", label=3)
    file.message_type.append(outer)
    file.message_type.add(name="Last").field.add(name="text", number=1, type=TEXT, label=1)
    return file


TEXT_FORM = """
syntax = "proto3"; // message Comment {
package shop;
/* message Other { */
option java_package = "message X {";
message First { string text = 1; enum E { ZERO = 0; } }
message Outer {
  map<string, string> m = 2;
  message In0 { string text = 1; oneof o { string a = 2; } }
  message In1 { option (x) = { message: { y: 1 } }; string text = 1; }
  string text = 1;
}
service S { rpc Call (First) returns (Last) { option (http) = { get: "/x" }; } }
message Last { string text = 1; }
"""
NAMES = {
    (0,): "shop.First",
    (1,): "shop.Outer",
    (1, 0): "shop.Outer.In0",
    (1, 1): "shop.Outer.In1",
    (2,): "shop.Last",
}
TEXT_OF = bytes.fromhex("0a0178")  # text="x"
ROW = {"text": "x"}
KIND = StructType().add("text", StringType())


def indexes(*numbers: int) -> bytes:
    """Encode message indexes as Confluent's clients do."""
    assert all(number < 64 for number in numbers)
    return bytes([len(numbers) * 2, *(number * 2 for number in numbers)])


@contextmanager
def shop_registry(text: str | None = None) -> Iterator[dict[str, str]]:
    """Run a schema registry, and yield the options of a query.

    The registry has the schema ids 3 and 4, and a GUID for the schema with id 3.
    """
    schema = {"schema": base64(shop()), "schemaType": "PROTOBUF"}
    written = schema if text is None else {**schema, "schema": text}
    text_schema = {"schema": json.dumps("string")}
    answers = {
        "/subjects/t-value/versions/latest?format=serialized": schema,
        "/schemas/ids/3?format=serialized": written,
        "/schemas/ids/4?format=serialized": text_schema,
        f"/schemas/guids/{GUID}?format=serialized": written,
    }
    with registry(answers) as (url, _):
        yield {"value.format": "protobuf", "schema.registry.url": url, **NULL}


GUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def values(rows: Sequence[dict[str, Any]]) -> list[Any]:
    return [row["value"] for row in rows]


def ddl_of(options: dict[str, str]) -> str:
    parsed = parse({**SERVERS, **options})
    parsed.for_reading()
    return ddl(parsed)


# ---- Protobuf's message indexes


def test_message_indexes_count_messages_but_no_entries_of_maps() -> None:
    assert message_names(Schema(base64(shop()), "PROTOBUF", {})) == NAMES


def test_message_indexes_of_a_text_are_those_of_its_descriptor() -> None:
    assert message_names(Schema(TEXT_FORM, "PROTOBUF", {})) == NAMES


def test_the_default_message_is_the_first_of_the_schema() -> None:
    with shop_registry() as options:
        assert "value STRUCT<`text`: STRING>, topic" in ddl_of(options)
        written = [
            wired(3, prefix + TEXT_OF)
            for prefix in (b"\0", indexes(0), indexes(1), indexes(1, 0), indexes(1, 1), indexes(2))
        ]
        rows = decoded(written, KIND, options)
    assert values(rows) == [ROW, ROW, None, None, None, None]
    expected = "value: it is the message shop.Outer, and not shop.First; value.message selects the message"
    assert rows[2]["_error"] == expected


@pytest.mark.parametrize("path", NAMES, ids=str)
@pytest.mark.parametrize("text", [None, TEXT_FORM], ids=["descriptor", "text"])
def test_only_values_of_the_selected_message_are_decoded(path: tuple[int, ...], text: str | None) -> None:
    with shop_registry(text) as options:
        written = [wired(3, indexes(*name) + TEXT_OF) for name in NAMES]
        rows = decoded(written, KIND, {**options, "value.message": NAMES[path]})
    assert values(rows) == [ROW if name == path else None for name in NAMES]


@pytest.mark.parametrize(
    ("prefix", "reason"),
    [
        (indexes(9), r"its message indexes \[9\] do not exist in its schema"),
        (indexes(0, 0), r"its message indexes \[0, 0\] do not exist in its schema"),
        (b"\x02\x01", r"its message indexes \[-1\] do not exist in its schema"),
        (b"\x05", "the message indexes are invalid"),
        (b"\x7e", "the message indexes are invalid"),
        (b"\xff" * 10, "more than 64 bits"),
        (b"", "the message's index"),
    ],
    ids=repr,
)
def test_invalid_message_indexes_are_bad_values_with_the_reason(prefix: bytes, reason: str) -> None:
    with shop_registry() as options:
        rows = decoded(
            [
                wired(3, prefix + (TEXT_OF if prefix else b"")),
                wired(3, b"\0" + TEXT_OF),
                wired(3, indexes(2) + TEXT_OF),
            ],
            KIND,
            options,
        )
    assert values(rows) == [None, ROW, None]
    assert re.search(reason, rows[0]["_error"])


def test_a_value_of_another_kind_of_schema_is_bad() -> None:
    with shop_registry() as options:
        rows = decoded([wired(4, b"\0" + TEXT_OF), wired(3, b"\0" + TEXT_OF)], KIND, options)
    assert values(rows) == [None, ROW]
    assert (
        "schema 4 of its writer does not fit: the registry has a schema of the type AVRO" in rows[0]["_error"]
    )


def test_a_descriptor_set_of_the_user_is_checked_against_the_schema_id_too() -> None:
    """A user's descriptor set is checked against the schema that the value's schema id names.

    Message indexes alone do not identify a message: they may mean different messages in two schemas of a
    topic.
    """
    stranger = descriptor_pb2.FileDescriptorProto(name="other.proto", package="other", syntax="proto3")
    stranger.message_type.add(name="First").field.add(name="text", number=1, type=TEXT, label=1)
    answers = {
        f"/schemas/ids/{number}?format=serialized": {"schema": base64(file), "schemaType": "PROTOBUF"}
        for number, file in ((3, shop()), (5, stranger))
    }
    schema = base64(descriptor_pb2.FileDescriptorSet(file=[shop()]))
    with registry(answers) as (url, _):
        options = {"value.format": "protobuf", "schema.registry.url": url, **NULL}
        options |= {"value.schema": schema, "value.message": "shop.First"}
        rows = decoded([wired(number, b"\0" + TEXT_OF) for number in (3, 5)], KIND, options)
    assert values(rows) == [ROW, None]
    assert "it is the message other.First, and not shop.First" in rows[1]["_error"]


def test_values_of_python_messages_are_read_by_their_indexes() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(shop())
    written = [
        message_factory.GetMessageClass(pool.FindMessageTypeByName(name))(text=name).SerializeToString()
        for name in NAMES.values()
    ]
    with shop_registry() as options:
        for path, name in NAMES.items():
            rows = decoded(
                [wired(3, indexes(*path) + value) for path, value in zip(NAMES, written, strict=True)],
                KIND,
                {**options, "value.message": name},
            )
            assert [value for value in values(rows) if value] == [{"text": name}]
            assert values(rows)[list(NAMES).index(path)] == {"text": name}


# ---- schema ids in a header

FLIGHT = {"type": "record", "name": "Flight", "fields": [{"name": "id", "type": "int"}]}
FLIGHT_KIND = StructType().add("id", IntegerType())
HEADER = "__value_schema_id"
BY_GUID = b"\x01" + GUID.bytes
BY_ID = b"\0\0\0\0\x07"


@contextmanager
def flights(name: str = "value") -> Iterator[dict[str, str]]:
    schema = {"schema": json.dumps(FLIGHT)}
    answers = {
        f"/subjects/t-{name}/versions/latest": schema,
        f"/schemas/guids/{GUID}": schema,
        "/schemas/ids/7": schema,
    }
    with registry(answers) as (url, _):
        yield {f"{name}.format": "avro", "schema.registry.url": url, f"{name}.onError": "null"}


def test_a_schema_id_in_a_header_is_used_before_that_in_the_value() -> None:
    [five] = avro(FLIGHT, {"id": 5})
    cases: list[tuple[bytes | None, list[tuple[str, bytes | None]]]] = [
        (five, [(HEADER, BY_GUID)]),
        (five, [(HEADER, BY_ID)]),
        (wired(7, five), []),
        (BY_GUID + five, []),
        (five, [("a", b"b"), (HEADER, b""), (HEADER, BY_GUID), ("__key_schema_id", b"x")]),
        (None, [(HEADER, BY_GUID)]),
        (None, [(HEADER, b"")]),
        (five, [(HEADER, BY_GUID + b"more")]),
    ]
    with flights() as options:
        rows = decoded([value for value, _ in cases], FLIGHT_KIND, options, headers=[h for _, h in cases])
    row = {"id": 5}
    assert values(rows) == [row, row, row, row, row, None, None, row]
    assert [row["_error"] for row in rows] == [None] * len(cases)


@pytest.mark.parametrize("header", [b"", None, b"\x02" + GUID.bytes, BY_GUID[:-1], b"\0\0\0\x07"], ids=repr)
def test_an_invalid_schema_id_in_a_header_is_a_bad_value_that_names_the_header(header: bytes | None) -> None:
    [five] = avro(FLIGHT, {"id": 5})
    with flights() as options:
        rows = decoded(
            [wired(7, five), wired(7, five)], FLIGHT_KIND, options, headers=[[(HEADER, header)], []]
        )
    assert values(rows) == [None, {"id": 5}]
    assert "the header __value_schema_id has no schema id" in rows[0]["_error"]


def test_an_unknown_guid_is_a_bad_value_that_names_the_guid() -> None:
    unknown = uuid.UUID(int=1)
    with flights() as options:
        [row] = decoded([b"x"], FLIGHT_KIND, options, headers=[[(HEADER, b"\x01" + unknown.bytes)]])
    assert row["value"] is None
    assert f"schema {unknown}" in row["_error"]


def test_a_key_has_its_own_header() -> None:
    [five] = avro(FLIGHT, {"id": 5})
    with flights("key") as options:
        headers: list[tuple[str, bytes | None]] = [(HEADER, b"x"), ("__key_schema_id", BY_GUID)]
        [row] = decoded([five], FLIGHT_KIND, options, "key", headers=[headers])
    assert row["key"] == {"id": 5}


def test_json_and_protobuf_have_their_schema_id_in_the_header_too() -> None:
    with shop_registry() as options:
        by_guid = [[(HEADER, BY_GUID + prefix)] for prefix in (b"\0", indexes(1), b"")]
        rows = decoded([TEXT_OF] * 3, KIND, options, headers=by_guid)
        assert values(rows) == [ROW, None, None]
        assert "and message indexes" in rows[2]["_error"]
        options |= {"value.format": "json", "value.schema": "id BIGINT"}
        kind = StructType().add("id", LongType())
        rows = decoded([b'{"id": 5}'], kind, options, headers=[[(HEADER, BY_GUID)]])
    assert values(rows) == [{"id": 5}]


# ---- references


@pytest.mark.parametrize("references", [5, {"name": "a"}, "a"])
def test_references_that_are_not_a_list_are_an_error_of_the_registry(references: Any) -> None:
    answers = {"/schemas/ids/992": {"schema": "{}", "references": references}}
    with registry(answers) as (url, _), pytest.raises(RegistryFailed, match="references"):
        Registry((url,)).schema(992)


def test_a_circle_of_references_ends_in_one_error_that_shows_the_circle() -> None:
    def answer(reference: str) -> dict[str, Any]:
        return {"schema": "{}", "references": [{"name": reference, "subject": reference, "version": 1}]}

    answers = {
        "/schemas/ids/990": answer("a"),
        **{f"/subjects/{name}/versions/1": answer(reference) for name, reference in (("a", "b"), ("b", "a"))},
    }
    with registry(answers) as (url, requests), pytest.raises(RegistryFailed) as raised:
        Registry((url,)).schema(990)
    assert "a version 1 -> b version 1 -> a version 1: the schemas refer to each other in a cycle" in str(
        raised.value
    )
    assert len(requests) == 3


def test_a_reference_that_is_used_by_many_schemas_is_requested_once() -> None:
    def answer(*names: str) -> dict[str, Any]:
        references = [{"name": name, "subject": name, "version": 1} for name in names]
        return {"schema": json.dumps("string"), "references": references}

    levels = 30
    answers = {"/schemas/ids/991": answer("l0", "r0")}
    for level in range(levels):
        below = (f"l{level + 1}", f"r{level + 1}") if level + 1 < levels else ()
        answers |= {f"/subjects/{side}{level}/versions/1": answer(*below) for side in "lr"}
    with registry(answers) as (url, requests):
        schema = Registry((url,)).schema(991)
    assert len(requests) == 2 * levels + 1
    assert len(list(schema.references())) == 2 * levels


def test_a_chain_of_references_without_end_ends_in_one_error() -> None:
    class Endless(dict[str, Any]):
        def get(self, path: str, default: Any = None) -> Any:
            number = int(path.split("/")[3 if path.startswith("/schemas") else 2])
            reference = {"name": "n", "subject": str(number + 1), "version": 1}
            return {"schema": "{}", "references": [reference]}

    with (
        registry(Endless()) as (url, _),
        pytest.raises(RegistryFailed, match="more than 100 references away"),
    ):
        Registry((url,)).schema(0)


@pytest.mark.parametrize(
    "answer", [{"references": []}, {"schema": 5}, {"schema": "{}", "references": [{"name": "x"}]}], ids=str
)
def test_an_answer_that_is_not_a_schema_ends_in_one_error(
    answer: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.schema_registry.registry.PAUSE_S", 0.0)
    with registry({"/schemas/ids/992": answer}) as (url, _), pytest.raises(RegistryFailed):
        Registry((url,)).schema(992)
