"""Where tokens are had: by client credentials, whose secret goes to nobody else."""

from __future__ import annotations

import threading
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from consumer.security.failures import NoToken
from consumer.security.secret import Secret
from consumer.security.tokens import Endpoint

SECRET = "hunter2-hunter2"


@contextmanager
def answering(status: int, body: str = "", **headers: str) -> Generator[tuple[str, list[str]]]:
    """The address of who answers so to everybody, and what it was sent."""
    sent: list[str] = []

    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(str(self.headers))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/token", sent
        finally:
            server.shutdown()
            thread.join()


def asked(url: str) -> str:
    with pytest.raises(NoToken) as caught:
        Endpoint(url, "orders", Secret(SECRET), None)()
    return str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_who_is_sent_elsewhere_takes_its_secret_nowhere(status: int) -> None:
    with (
        answering(200, '{"access_token": "abc"}') as (there, sent),
        answering(status, Location=there) as (here, _),
    ):
        assert f"answers HTTP {status}" in asked(here)
    assert sent == []


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, SECRET, "answers HTTP 401: are client id, secret and scope right"),
        (500, SECRET, "answers HTTP 500"),
        (200, SECRET, "can't be asked for a token (JSONDecodeError)"),
        (200, f'["{SECRET}"]', "answers without an access_token"),
        (200, f'{{"error": "{SECRET}"}}', "answers without an access_token"),
    ],
)
def test_an_issuer_that_repeats_what_it_was_sent_is_not_quoted(status: int, body: str, words: str) -> None:
    with answering(status, body) as (url, sent):
        told = asked(url)
    assert words in told
    assert SECRET not in told
    assert len(sent) == 1
