"""HTTP requests to registries, token and JWKS endpoints leak no secrets, and have time and size limits."""

from __future__ import annotations

import base64
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

pytest.importorskip("urllib3")

from kproto import http
from kproto.errors import MissingExtra
from kproto.http import HttpFailed, Response, is_http_address, request

LOGIN = "Basic " + base64.b64encode(b"alice:hunter2-hunter2").decode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


@contextmanager
def server(respond: Callable[[str], bytes]) -> Iterator[tuple[str, list[str]]]:
    """Run a server that sends raw bytes for each request. Yield its address and the requests."""
    requests: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        ended = threading.Event()

        def serve() -> None:
            while not ended.is_set():
                try:
                    connection, _ = listener.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(5)
                    requests.append(connection.recv(65536).decode("latin-1"))
                    with suppress(OSError):
                        connection.sendall(respond(requests[-1]))

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", requests
        finally:
            ended.set()
            thread.join()


def redirect(target: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {target}\r\nContent-Length: 0\r\n\r\n".encode()


def get(url: str, redirects: int = 0, max_bytes: int = 1000) -> Response:
    return request(
        "GET", url, feature="f", headers={"Authorization": LOGIN}, redirects=redirects, max_bytes=max_bytes
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_to_another_host_does_not_receive_the_login(status: int) -> None:
    with (
        server(lambda _: OK) as (second, requests),
        server(lambda _: redirect(second.replace("127.0.0.1", "localhost"), status)) as (first, _),
    ):
        response = get(first + "/schemas", redirects=1)
    assert (response.status, response.url.rpartition(":")[0]) == (200, "http://localhost")
    assert len(requests) == 1
    assert "uthorization" not in requests[0]


def test_a_redirect_to_another_port_does_not_receive_the_login() -> None:
    with server(lambda _: OK) as (second, requests), server(lambda _: redirect(second)) as (first, _):
        get(first, redirects=1)
    assert "uthorization" not in requests[0]


def test_a_redirect_within_a_server_keeps_the_login() -> None:
    def respond(sent: str) -> bytes:
        return redirect("/new?x=1") if sent.startswith("GET /old") else OK

    with server(respond) as (url, requests):
        assert get(url + "/old", redirects=1).url == url + "/new"
    assert [LOGIN in sent for sent in requests] == [True, True]


def test_the_login_is_not_sent_again_after_another_host() -> None:
    """After a redirect to another server, no further request contains the credentials."""
    places: dict[str, str] = {}
    with (
        server(lambda _: redirect(places["first"] + "/end")) as (second, _),
        server(lambda sent: OK if "/end" in sent else redirect(second)) as (first, requests),
    ):
        places["first"] = first
        get(first, redirects=5)
    assert [LOGIN in sent for sent in requests] == [True, False]


def test_a_redirect_is_the_answer_if_redirects_are_not_followed() -> None:
    with server(lambda _: OK) as (second, requests), server(lambda _: redirect(second)) as (first, _):
        assert get(first).status == 302
    assert requests == []


def test_a_circle_of_redirects_ends_with_the_last_answer() -> None:
    with server(lambda _: redirect("/again")) as (url, requests):
        assert get(url, redirects=3).status == 302
    assert len(requests) == 4


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://host/x", "gopher://host/", "http://[::1"])
def test_a_redirect_to_something_else_than_http_is_an_error(target: str) -> None:
    with server(lambda _: redirect(target)) as (url, _), pytest.raises(HttpFailed, match="not http or https"):
        get(url, redirects=1)


@pytest.mark.parametrize("head", [b"Content-Length: 2000\r\n", b""], ids=["with its length", "without"])
def test_an_answer_over_the_limit_is_an_error(head: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + b"x" * 2000
    with server(lambda _: answer) as (url, _), pytest.raises(HttpFailed, match="more than 1,000 bytes"):
        get(url)


def test_an_answer_that_never_ends_is_an_error_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def drip() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while not ended.wait(0.02):
                    try:
                        connection.sendall(b"x")
                    except OSError:
                        return

        thread = threading.Thread(target=drip)
        thread.start()
        try:
            with pytest.raises(HttpFailed, match="not complete"):
                get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        finally:
            ended.set()
            thread.join()


def test_a_server_without_an_answer_is_an_error_after_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(HttpFailed, match="no answer within"):
            get(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "RemoteDisconnected"),
        (b"SSH-2.0-hunter2\r\n", "BadStatusLine"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhunter2", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nhunter2", "IncompleteRead"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"hunter2" * 10_000 + b"\r\n\r\n", "LineTooLong"),
    ],
    ids=["nothing", "not HTTP", "cut off", "invalid chunk", "long header"],
)
def test_a_broken_answer_is_an_error_without_its_bytes(answer: bytes, reason: str) -> None:
    with server(lambda _: answer) as (url, _), pytest.raises(HttpFailed) as raised:
        get(url + "/x?secret=hunter2")
    assert str(raised.value) == f"{url}/x: {reason}"


@pytest.mark.parametrize("url", ["http://a", "https://a:65535/b?c", "http://[::1]:80", "HTTP://a"])
def test_an_address_of_http_is_accepted(url: str) -> None:
    assert is_http_address(url)


@pytest.mark.parametrize(
    "url",
    ["a:80", "ftp://a", "http://", "http://:80", "http://a:0", "http://a:65536", "http://[::1", "http://a b"],
)
def test_any_other_address_is_rejected(url: str) -> None:
    assert not is_http_address(url)


def test_an_error_shows_neither_user_nor_password_nor_query() -> None:
    with pytest.raises(HttpFailed) as raised:
        get("http://alice:hunter2@127.0.0.1:1/x?key=hunter2#hunter2")
    assert str(raised.value) == "http://127.0.0.1:1/x: Connection refused"


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"[" * 100_000, b'"x"', b"\xff"])
def test_a_body_that_is_not_a_json_object_is_an_error_without_its_bytes(body: bytes) -> None:
    with pytest.raises(ValueError, match="the response is not"):
        Response("http://x", 200, "OK", body).json_object()


def test_a_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with server(lambda _: OK) as (proxy, requests):
        monkeypatch.setenv("http_proxy", proxy.replace("//", "//alice:proxy-password@"))
        monkeypatch.setenv("no_proxy", "")
        assert get("http://registry.invalid/x").status == 200
    assert requests[0].startswith("GET http://registry.invalid/x ")
    assert "proxy-authorization: basic" in requests[0].lower()


def test_a_missing_urllib3_is_an_error_with_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "urllib3", None)
    with pytest.raises(MissingExtra, match=r"schema\.registry\.url needs urllib3: pip install 'kproto\[sec"):
        request("GET", "http://x", feature="schema.registry.url", headers={})
