"""The client of a schema registry sends its credentials, limits responses, and reports errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("urllib3")

from consumer.schema_registry import registry as registries
from consumer.schema_registry.registry import (
    InvalidReferences,
    NoSuchReference,
    NoSuchSchema,
    Reference,
    Registry,
    RegistryFailed,
)
from tests.consumer.schema_registry.stage import registry_server

USER, LOGIN = "alice:hunter2-hunter2", "YWxpY2U6aHVudGVyMi1odW50ZXIy"


@contextmanager
def answering(status: int, body: str, **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """Run a server that gives every request the same response. Yield its URL and the Authorization headers
    that it received.
    """
    logins: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            logins.append(self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", logins
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "PAUSE_S", 0.0)


def error_of(url: str, number: int) -> RegistryFailed:
    with pytest.raises(RegistryFailed) as raised:
        Registry((url,), USER).schema(number)
    assert "hunter2" not in str(raised.value)
    assert LOGIN not in str(raised.value)
    return raised.value


def test_another_host_does_not_receive_the_password() -> None:
    with (
        answering(200, '{"schema": "\\"string\\""}') as (second, logins),
        answering(302, "", Location=second.replace("127.0.0.1", "localhost")) as (url, _),
    ):
        assert Registry((url,), USER).schema(8801).text == '"string"'
    assert logins == [None]


def test_an_error_of_another_host_names_it_and_says_why_there_is_no_login() -> None:
    with answering(401, "{}") as (second, _), answering(302, "", Location=second) as (url, _):
        message = str(error_of(url, 8802))
    assert f"redirected to {second}" in message
    assert "the login is sent only to addresses in url" in message


@pytest.mark.parametrize(
    "text", ["hunter2-hunter2", USER, f"Basic {LOGIN}"], ids=["password", "user", "header"]
)
def test_a_login_that_a_registry_repeats_is_not_shown(text: str) -> None:
    with answering(403, f'{{"message": "not allowed: {text}"}}') as (url, _):
        assert "403 Forbidden: not allowed: " in str(error_of(url, 8803))


def test_a_registrys_message_cannot_write_to_the_terminal_or_forge_lines() -> None:
    with answering(403, '{"message": "a\\u001b[2J\\nb\\u202e"}') as (url, _):
        assert str(error_of(url, 8804)).isprintable()


def test_a_schema_over_the_limit_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registries, "MAX_SCHEMA_BYTES", 1000)
    with answering(200, f'{{"schema": "{"x" * 2000}"}}') as (url, _):
        assert "more than 1,000 bytes" in str(error_of(url, 8805))


@pytest.mark.parametrize(("status", "requests"), [(404, 1), (401, 1), (500, 4), (429, 4), (200, 4)])
def test_only_answers_that_may_be_temporary_are_repeated(status: int, requests: int) -> None:
    with answering(status, '{"message": "no"}') as (url, logins):
        error = error_of(url, 8806)
    assert len(logins) == requests
    assert isinstance(error, NoSuchSchema) == (status == 404)


# ---- references


def reference(name: str, subject: str | None = None, version: int = 1) -> dict[str, Any]:
    return {"name": name, "subject": subject or name, "version": version}


@contextmanager
def subjects(**references: Any) -> Iterator[Registry]:
    """Run a registry whose subjects have one version each, with these references.

    The text of a schema is the name of its subject.
    """
    with registry_server() as server:
        for number, (subject, of_subject) in enumerate(references.items(), start=1):
            server.schemas.append({"schema": subject, "references": of_subject})
            server.subjects[subject] = [number]
        yield Registry((server.url,))


def texts(registry: Registry, subject: str) -> list[tuple[str, str]]:
    return [(name, schema.text) for name, schema in registry.latest(subject).references()]


NO_CIRCLE: dict[str, Any] = {f"s{number}": [reference(f"s{number + 1}")] for number in range(200)}


@pytest.mark.parametrize(
    ("references", "text"),
    [
        (
            {"top": [reference("a")], "a": [reference("b")], "b": [reference("a")]},
            "the latest schema of top -> a version 1 -> b version 1 -> a version 1: "
            "the schemas refer to each other in a cycle",
        ),
        (
            {"top": [reference("s0")], **NO_CIRCLE},
            "the latest schema of top -> ... -> s100 version 1: "
            "the last schema is more than 100 references away from the first one",
        ),
        (
            {"top": [reference("a")], "a": {"b": 1}},
            "the latest schema of top -> a version 1: the references must be a list, not {'b': 1}",
        ),
        (
            {"top": [{"name": "a", "subject": None, "version": 1}]},
            "the latest schema of top: a reference must have a name, subject and version, "
            "not {'name': 'a', 'subject': None, 'version': 1}",
        ),
        (
            {"top": ["a"]},
            "the latest schema of top: a reference must have a name, subject and version, not 'a'",
        ),
    ],
    ids=["circle", "depth", "not a list", "no subject", "text"],
)
def test_references_that_cannot_be_resolved_must_be_corrected(references: dict[str, Any], text: str) -> None:
    with subjects(**references) as registry, pytest.raises(InvalidReferences) as raised:
        registry.latest("top")
    assert str(raised.value) == f"{text}; correct the references in the registry"


def test_the_error_for_a_missing_reference_names_the_schemas_that_refer_to_it() -> None:
    with subjects(top=[reference("a")], a=[reference("b", version=7)]) as registry:
        with pytest.raises(NoSuchReference) as raised:
            registry.schema(1)
        assert str(raised.value) == (
            f"schema 1 -> a version 1 -> b version 7: {registry.urls[0]} answers 404 Not Found: "
            "Schema not found.; register the last schema, or correct the reference to it"
        )
        with pytest.raises(NoSuchReference, match=r"^the schema -> c version 2: "):
            registry.parse('"string"', [Reference("c", "c", 2)])


def test_of_two_references_with_one_name_the_first_counts() -> None:
    """Java's AbstractSchemaProvider also skips a reference with the same name as an earlier one."""
    with subjects(top=[reference("n", "a"), reference("n", "b")], a=[], b=[]) as registry:
        assert texts(registry, "top") == [("n", "a")]


def test_of_two_levels_with_one_name_the_level_that_is_read_first_counts() -> None:
    """Java's AbstractSchemaProvider reads the references of a reference before the next reference."""
    with subjects(
        first_direct=[reference("n", "b"), reference("x", "deep")],
        first_deep=[reference("x", "deep"), reference("n", "b")],
        deep=[reference("n", "a")],
        a=[],
        b=[],
    ) as registry:
        assert texts(registry, "first_direct") == [("n", "b"), ("x", "deep")]
        assert texts(registry, "first_deep") == [("n", "a"), ("x", "deep")]
