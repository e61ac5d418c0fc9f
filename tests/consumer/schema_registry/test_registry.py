"""The client of a schema registry sends its login, limits responses, and reports errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("urllib3")

from consumer.schema_registry import registry as registries
from consumer.schema_registry.registry import NoSuchSchema, Registry, RegistryFailed

USER, LOGIN = "alice:hunter2-hunter2", "YWxpY2U6aHVudGVyMi1odW50ZXIy"


@contextmanager
def answering(status: int, body: str, **headers: str) -> Iterator[tuple[str, list[str | None]]]:
    """Run a server that answers each request alike. Yield its URL and the Authorization headers that it
    received.
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
