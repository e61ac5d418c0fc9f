"""`kproto consume` and `kproto produce` decode and encode values whose schemas are in a registry."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("google.protobuf")
pytest.importorskip("jsonschema")
pytest.importorskip("urllib3")

from consumer import Producer
from consumer.schema_registry.avro import AvroDeserializer, AvroSerializer
from consumer.schema_registry.json_schema import JsonSchemaDeserializer
from consumer.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from consumer.schema_registry.registry import Registry
from tests.cli.stage import PASSWORD, Shell
from tests.consumer.schema_registry.messages import shop
from tests.consumer.schema_registry.stage import RegistryServer, registry_server

AVRO = """{"type": "record", "name": "Flight", "fields": [
    {"name": "to", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "price", "default": null, "type": [
        "null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]}]}"""
FLIGHT = {"to": "BER", "at": "2026-11-28T09:30:00Z", "price": "99.50"}
SCHEMA = """{"title": "Flight", "type": "object", "required": ["to"]}"""


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    with registry_server() as server:
        yield server


@pytest.fixture
def send(
    shell: Shell, registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[str]]:
    """Return a function that runs `kproto produce` on lines, with a schema from a file."""

    def run(words: str, *lines: object, schema: str = "", code: int = 0) -> list[str]:
        text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        file = tmp_path / "schema"
        file.write_text(schema)
        more = ["--value-schema", str(file)] if schema else []
        return shell(f"produce {words} --registry {registry.url}", *more, code=code)

    return run


def read(shell: Shell, topic: str) -> bytes:
    """Return the value of a topic's first record."""
    [line, *_] = shell(f"consume {topic} --value-format hex")
    return bytes.fromhex(line)


def test_avro_is_sent_and_printed_as_json(
    shell: Shell, send: Callable[..., list[str]], registry: RegistryServer
) -> None:
    shell("topics create a1")
    send("a1 --value-format avro", FLIGHT, schema=AVRO)
    send("a1 --value-format avro", {**FLIGHT, "to": "JFK", "price": None})
    words = f"consume a1 --value-format avro --registry {registry.url}"
    assert shell(words) == [
        '{"to":"BER","at":"2026-11-28T09:30:00Z","price":"99.50"}',
        '{"to":"JFK","at":"2026-11-28T09:30:00Z","price":null}',
    ]
    assert [row["value"]["to"] for row in shell.json(words)] == ["BER", "JFK"]
    assert list(registry.subjects) == ["a1-value"]
    flight = AvroDeserializer(Registry.at(registry.url)).deserialize("a1", read(shell, "a1"), ())
    assert AvroSerializer(Registry.at(registry.url), AVRO).serialize("a1", flight, ()) == read(shell, "a1")


def test_protobuf_is_sent_and_printed_as_json(
    shell: Shell, send: Callable[..., list[str]], registry: RegistryServer
) -> None:
    price = shop()["Price"]
    descriptor = base64.b64encode(price.DESCRIPTOR.file.serialized_pb).decode()
    shell("topics create b1")
    send("b1 --value-format protobuf --value-message shop.Price", {"cents": 5}, schema=descriptor)
    send("b1 --value-format protobuf", "{}")
    words = f"consume b1 --value-format protobuf --registry {registry.url}"
    assert shell(words) == ['{"cents":"5"}', '{"cents":"0"}']
    assert ProtobufDeserializer(price).deserialize("b1", read(shell, "b1"), ()).cents == 5
    send("b1 --value-format protobuf --value-message Nothing", "{}", code=2)
    assert "--value-message='Nothing' is not allowed; allowed: shop.Price" in shell.errors
    send("b1 --value-format protobuf", {"pence": 5}, code=2)
    assert "a value in the format protobuf (" in shell.errors


def test_a_nested_protobuf_message_has_its_message_indexes(
    shell: Shell, send: Callable[..., list[str]], registry: RegistryServer
) -> None:
    item = shop()["Order.Item"]
    expected = ProtobufSerializer(Registry.at(registry.url), item).serialize("b2", item(name="x"), ())
    shell("topics create b2")
    send("b2 --value-format protobuf --value-message shop.Order.Item", {"name": "x"})
    assert read(shell, "b2") == expected


def test_json_fits_its_schema_in_both_directions(
    shell: Shell, send: Callable[..., list[str]], registry: RegistryServer
) -> None:
    shell("topics create j1")
    send("j1 --value-format json-schema", {"to": "BER"}, schema=SCHEMA)
    words = f"consume j1 --value-format json-schema --registry {registry.url}"
    assert shell(words) == ['{"to":"BER"}']
    decode = JsonSchemaDeserializer(Registry.at(registry.url)).deserialize
    assert decode("j1", read(shell, "j1"), ()) == {"to": "BER"}
    send("j1 --value-format json-schema", {"from": "BER"}, code=2)
    assert "the value does not conform to the schema" in shell.errors


def test_keys_nulls_and_ids_of_schemas(
    shell: Shell, send: Callable[..., list[str]], registry: RegistryServer
) -> None:
    shell("topics create k1 k2")
    number = registry.register("any", {"schema": '"long"'})
    send(
        f"k1 --key-format avro --key-schema {number} --key-separator : --null-marker NULL", "1:one", "2:NULL"
    )
    words = f"consume k1 --key-format avro --registry {registry.url}"
    assert shell(f"{words} --print key,value") == ["1\tone", "2\tnull"]
    lines = shell(f"{words} --json")
    assert [(row["key"], row["value"]) for row in map(json.loads, lines)] == [(1, "one"), (2, None)]
    send(f"k2 --key-format avro --key-schema {number} --json", *lines)
    assert shell(f"consume k2 --key-format avro --registry {registry.url} --print key,value") == [
        "1\tone",
        "2\tnull",
    ]


@pytest.mark.parametrize(
    ("form", "data", "reason"),
    [
        ("avro", b"text", "the bytes are not in the registry's wire format: the first byte is 116"),
        ("avro", b"\0\0\0\3\xe7x", "schema 999: "),
        ("avro", b"\0\0\0\0\1", ""),
        ("protobuf", b"\0\0\0\0\1\0", "the registry has a schema of the type AVRO, but PROTOBUF is needed"),
        ("json-schema", b"\0\0\0\0\1{}", "the registry has a schema of the type AVRO, but JSON is needed"),
    ],
)
def test_a_value_that_cannot_be_decoded_is_an_error_with_its_place(
    shell: Shell, registry: RegistryServer, form: str, data: bytes, reason: str
) -> None:
    topic = f"bad-{form}-{len(data)}"
    assert registry.register("any", {"schema": '"long"'}) == 1
    shell(f"topics create {topic}")
    with Producer(shell.bootstrap) as producer:
        producer.send(topic, data)
    shell(f"consume {topic} --value-format {form} --registry {registry.url}", code=1)
    assert shell.errors.startswith(
        f"kproto consume: {topic}-0 @ 0: the value is not in the format {form}: {reason}"
    )
    assert len(shell.errors.splitlines()) == 1


@pytest.mark.parametrize("place", ["file", "prefixed", "environment"])
def test_the_login_comes_from_the_command_config_or_the_environment(
    shell: Shell,
    registry: RegistryServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
) -> None:
    topic, login = f"login-{place}", f"alice:{PASSWORD}-{place}"
    number = registry.register("any", {"schema": f'{{"type": "fixed", "name": "{place}", "size": 1}}'})
    shell(f"topics create {topic}")
    with Producer(shell.bootstrap) as producer:
        producer.send(topic, b"\0" + number.to_bytes(4, "big") + b"\1")
    file = tmp_path / "client.properties"
    prefix = "schema.registry." if place == "prefixed" else ""
    file.write_text(
        f"schema.registry.url={registry.url}\n{prefix}basic.auth.credentials.source=USER_INFO\n"
        + (f"{prefix}basic.auth.user.info={login}\n" if place != "environment" else "")
    )
    monkeypatch.setenv("KPROTO_REGISTRY_LOGIN", login)
    assert shell(f"consume {topic} --value-format avro --command-config {file}") == ['"AQ=="']
    assert f"Basic {base64.b64encode(login.encode()).decode()}" in registry.logins


def test_a_login_is_not_repeated_in_errors(
    shell: Shell, registry: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell("topics create hidden")
    file = tmp_path / "client.properties"
    file.write_text(f"basic.auth.user.info={PASSWORD}\n")
    address = registry.url.replace("//", f"//alice:{PASSWORD}@")
    words = "produce hidden --value-format avro"
    for more in (f"--registry {address}", f"--registry {registry.url} --command-config {file}"):
        shell(f"{words} {more}", code=2)
        assert PASSWORD not in shell.errors
        assert "basic.auth.user.info" in shell.errors
    monkeypatch.setenv("KPROTO_REGISTRY_LOGIN", f"alice:{PASSWORD}")
    shell(f"{words} --registry {registry.url}", code=1)
    assert PASSWORD not in shell.errors
    assert "the latest schema of hidden-value" in shell.errors


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("produce t --value-format avro", "--registry=None is not allowed; needed for the format avro"),
        ("produce t --registry http://h", "allowed only with the formats avro, protobuf, json-schema"),
        ("produce t --value-schema 1", "allowed only with --value-format avro, protobuf, json-schema"),
        (
            "produce t --key-format avro --registry http://h --key-message M",
            "--key-message='M' is not allowed; allowed only with --key-format protobuf",
        ),
        (
            "produce t --value-format avro --registry http://h --value-schema nowhere",
            "--value-schema='nowhere' is not allowed; allowed: the file of a schema (No such file",
        ),
        ("consume t --value-format avro --registry ftp://h", "allowed: http://HOST:PORT"),
    ],
)
def test_invalid_arguments_exit_with_2_and_say_what_is_allowed(
    shell: Shell, words: str, message: str
) -> None:
    shell(words, code=2)
    assert message in shell.errors


@pytest.mark.parametrize(
    ("form", "schema"),
    [("avro", '{"type": "nothing"}'), ("json-schema", '{"type": 7}'), ("protobuf", "message")],
)
def test_an_invalid_schema_is_an_error(
    send: Callable[..., list[str]], shell: Shell, form: str, schema: str
) -> None:
    send(f"invalid --value-format {form}", "{}", schema=schema, code=2)
    assert f"allowed: a schema for {form}" in shell.errors or "--value-message" in shell.errors


def test_unsupported_properties_of_a_registry_are_rejected(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    for line, message in (
        (f"bearer.auth.token={PASSWORD}", "bearer.auth.token='[hidden]' is not allowed; not supported"),
        ("schema.registry.ssl.truststore.location=x", "ssl.truststore.location='x' is not allowed"),
        ("basic.auth.credentials.source=SASL_INHERIT", "allowed: USER_INFO"),
    ):
        file.write_text(f"schema.registry.url=http://h\n{line}\n")
        shell(f"consume t --value-format avro --command-config {file}", code=2)
        assert message in shell.errors
        assert PASSWORD not in shell.errors
