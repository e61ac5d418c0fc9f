"""OAuth tokens come from the application's provider, or from an issuer by the client credentials grant."""

from __future__ import annotations

import asyncio
import base64
import gc
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, cast

import pytest

from consumer.aio.streams import Streams
from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import GetToken, GotToken, Open, Shut
from consumer.security import tokens
from consumer.security.failures import NoToken
from consumer.security.secret import Secret
from consumer.security.tokens import Endpoint, Token, TokenSource
from tests.bundles import check_each

pytestmark = pytest.mark.usefixtures("fast_collections")

SECRET = "hunter2-hunter2"


@contextmanager
def http_server(status: int, body: str = "", **headers: str) -> Generator[tuple[str, list[str]]]:
    """Serve this response to every request; yield the URL and the headers of the requests."""
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


def token_error(url: str) -> str:
    with pytest.raises(NoToken) as caught:
        Endpoint(url, "orders", Secret(SECRET), None)()
    return str(caught.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_does_not_receive_the_client_secret(status: int) -> None:
    with (
        http_server(200, '{"access_token": "abc"}') as (target, sent),
        http_server(status, Location=target) as (source, _),
    ):
        assert f"responded with HTTP {status}" in token_error(source)
    assert sent == []


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (401, SECRET, "responded with HTTP 401: are client id, secret and scope right"),
        (500, SECRET, "responded with HTTP 500"),
        (200, SECRET, "responded without an access_token: the response is not JSON"),
        (200, f'["{SECRET}"]', "responded without an access_token"),
        (200, f'{{"error": "{SECRET}"}}', "responded without an access_token"),
    ],
)
def test_a_secret_in_an_issuers_response_is_not_shown(status: int, body: str, words: str) -> None:
    with http_server(status, body) as (url, sent):
        message = token_error(url)
    assert words in message
    assert SECRET not in message
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("encodes", "sent"), [(False, "a+b%:ü/x y"), (True, "a%2Bb%25:%C3%BC%2Fx+y")], ids=["java", "rfc6749"]
)
def test_client_id_and_secret_are_encoded_only_with_the_option(encodes: bool, sent: str) -> None:
    """The client id and secret are URL-encoded only with sasl.oauthbearer.header.urlencode.

    As in Java, the option is false by default (KIP-1025).
    """
    with http_server(200, '{"access_token": "token"}') as (url, requests):
        Endpoint(url, "a+b%", Secret("ü/x y"), None, encodes_header=encodes)()
    authorization = re.search(r"Authorization: Basic (\S+)", requests[0])
    assert authorization is not None
    assert base64.b64decode(authorization[1]).decode() == sent


def test_an_endpoint_that_does_not_speak_http_is_named_by_its_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            sock, _ = listener.accept()
            sock.sendall(b"SSH-2.0-OpenSSH_9.9\r\n")
            sock.recv(10_000)
            sock.close()

        thread = threading.Thread(target=speak, daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/token"
        assert f"{url} can't be reached to request a token (BadStatusLine)" in token_error(url)
        thread.join()


LATE = base64.urlsafe_b64encode(b'{"exp": 1%s}' % (b"0" * 400)).decode().rstrip("=")
NEVER = base64.urlsafe_b64encode(b'{"exp": NaN}').decode().rstrip("=")


def leaves() -> str:
    raise SystemExit(SECRET)


def fails() -> str:
    raise ValueError(SECRET)


def ends_the_test() -> str:
    pytest.fail(SECRET)  # `pytest.fail` raises a BaseException, which `except Exception` does not catch.


def is_cancelled() -> str:
    raise asyncio.CancelledError(SECRET)


async def cancels_itself() -> str:
    raise asyncio.CancelledError(SECRET)


# An element is (token provider that fails or returns an invalid token, part of the error's text).
JUNK: list[tuple[Callable[[], Any], str]] = [
    (leaves, r"failed \(SystemExit\)"),
    (fails, r"failed \(ValueError\)"),
    (ends_the_test, r"failed \(Failed\)"),
    (is_cancelled, r"failed \(CancelledError\)"),
    (lambda: None, "returned NoneType instead of a string or"),
    (lambda: SECRET.encode(), "returned bytes instead of a string or"),
    (lambda: "", "a string that can't be a bearer token"),
    (lambda: f"{SECRET}\r\n", "can't be a bearer token: it begins or ends with a space or a line end"),
    (lambda: Token(cast("Any", 5)), "a string that can't be a bearer token"),
    (
        lambda: Token(SECRET, cast("Any", "soon")),
        "expires_at must be a number of seconds since 1970, not a str",
    ),
    (
        lambda: Token(SECRET, cast("Any", True)),
        "expires_at must be a number of seconds since 1970, not a bool",
    ),
    (lambda: Token(SECRET, 1_795_732_125_749), "expires_at must be .*, but 1795732125749 is in milliseconds"),
    (lambda: Token(SECRET, 0), "expired .* ago by this machine's clock"),
    (lambda: Token(SECRET, float("nan")), "whose expires_at is NaN"),
    (lambda: f"e30.{NEVER}.x", "whose expires_at is NaN"),
    (lambda: Token(SECRET, None, cast("Any", {5: "x"})), "the extension 5 of the token"),
    (lambda: Token(SECRET, None, cast("Any", {"a": None, "b": "\0"})), "the extension 'b' of the token"),
]


@pytest.mark.parametrize("by", ["threads", "asyncio", "a coroutine"])
def test_a_failing_token_provider_raises_no_token_with_a_reason(by: str) -> None:
    def check(case: tuple[Callable[[], Any], str]) -> None:
        provider, words = case

        async def awaited() -> Any:
            return provider()

        source = TokenSource(awaited if by == "a coroutine" else provider)
        with pytest.raises(NoToken, match=words) as caught:
            source.blocking() if by == "threads" else asyncio.run(source.awaited())
        assert SECRET not in str(caught.value)

    check_each(JUNK, check)


def test_a_provider_coroutine_that_cancels_itself_has_failed() -> None:
    with pytest.raises(NoToken, match=r"failed \(CancelledError\)"):
        asyncio.run(TokenSource(cancels_itself).awaited())


def test_a_cancelled_token_request_is_cancelled() -> None:
    async def forever() -> str:
        await asyncio.Event().wait()
        return "x"

    async def cancelled() -> None:
        task = asyncio.ensure_future(TokenSource(forever).awaited())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())


def test_a_function_that_returns_a_coroutine_is_awaited() -> None:
    async def give() -> str:
        return "abc"

    assert asyncio.run(TokenSource(lambda: give()).awaited()).value.reveal() == "abc"


def test_a_token_response_with_a_lifetime_of_nan_is_rejected() -> None:
    """A token response with a lifetime of NaN is rejected. Regression: the token was used forever."""
    with http_server(200, '{"access_token": "x", "expires_in": NaN}') as (url, _):
        source = TokenSource(Endpoint(url, "orders", Secret(SECRET), None))
        with pytest.raises(NoToken, match="whose expires_at is NaN"):
            source.blocking()


def test_a_token_may_expire_after_the_largest_date() -> None:
    assert TokenSource(lambda: f"e30.{LATE}.x").blocking().expires_at is None
    # 253,402,300,799 s since 1970 is the end of the year 9999, the latest time of a Python datetime.
    for end in (10**400, float("inf"), 253_402_300_799):
        assert TokenSource(lambda end=end: Token("x", end)).blocking().value.reveal() == "x"


@pytest.mark.parametrize("set_by", [-86_400, 0, 86_400])
def test_a_token_is_used_for_its_lifetime_although_the_wall_clock_is_set(
    monkeypatch: pytest.MonkeyPatch, set_by: int
) -> None:
    """A correction of the wall clock after the request does not change the lifetime of the token."""
    today, passed = 1_800_000_000.0, [0]
    monkeypatch.setattr(tokens, "now", lambda: passed[0])
    monkeypatch.setattr("consumer.security.tokens.time.time", lambda: today)
    source = TokenSource(lambda: Token("x", today + 3600))
    first = source.blocking()
    assert source.blocking() is first
    today += 3600 + set_by
    passed[0] = 3_600_000
    assert source.blocking() is not first


@pytest.mark.parametrize("by", ["threads", "asyncio", "a coroutine"])
@pytest.mark.parametrize("final", [False, True])
def test_the_last_token_is_used_until_it_expires_if_there_is_no_new_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, by: str, final: bool
) -> None:
    """If the provider returns no new token, the client uses the last token until it expires.

    So the client survives minutes in which the issuer of tokens is unavailable.
    """
    today, passed, available = [1_800_000_000.0], [0.0], [Token(SECRET, 1_800_000_000.0 + 3600)]
    monkeypatch.setattr(tokens, "now", lambda: passed[0])
    monkeypatch.setattr("consumer.security.tokens.time.time", lambda: today[0])

    def give() -> Token:
        if not available:
            raise NoToken("https://idp responded with HTTP 503", final=final)
        return available.pop()

    async def awaited() -> Token:
        return give()

    source = TokenSource(awaited if by == "a coroutine" else give)

    def ask() -> Token:
        return source.blocking() if by == "threads" else asyncio.run(source.awaited())

    first = ask()
    today[0] += 3599
    passed[0] += 3_599_000
    assert ask() is first
    assert [record.getMessage() for record in caplog.records] == [
        "https://idp responded with HTTP 503: the last token is used, which is valid for 1 s more"
    ]
    # By the monotonic clock, the token has now expired. By the wall clock, it is still valid.
    passed[0] += 2000
    with pytest.raises(NoToken, match="HTTP 503"):
        ask()
    available.append(Token("y", today[0] + 3600))
    assert ask().value.reveal() == "y"


def test_a_token_without_a_known_expiry_is_not_used_again() -> None:
    available = ["abc"]
    source = TokenSource(lambda: available.pop())
    assert source.blocking().value.reveal() == "abc"
    with pytest.raises(NoToken, match="IndexError"):
        source.blocking()


def wait_for(events: Callable[[], list[Any]], count: int) -> list[Any]:
    received: list[Any] = []
    while len(received) < count:
        received += events()
    return received


def test_one_thread_calls_the_provider_however_many_connections_wait() -> None:
    calls: list[int] = []
    release = threading.Event()

    def slow() -> str:
        calls.append(1)
        release.wait(60)
        return "abc"

    source, sockets = TokenSource(slow), Sockets()
    try:
        for key in (1, 2, 3):
            sockets.perform(Open(key, "127.0.0.1", 1))
            sockets.perform(GetToken(key, source))
        before = threading.active_count()
        sockets.perform(Shut(1))
        sockets.perform(GetToken(3, source))
        assert threading.active_count() <= before
        release.set()
        received = wait_for(lambda: [e for e in sockets.wait(60) if isinstance(e, GotToken)], 2)
    finally:
        sockets.close()
    assert sum(calls) == 1
    assert {event.key for event in received} <= {1, 2, 3}


def test_one_thread_of_a_loop_calls_the_provider() -> None:
    calls: list[int] = []
    release = threading.Event()
    events: list[Any] = []

    def slow() -> str:
        calls.append(1)
        release.wait(60)
        return "abc"

    async def several() -> None:
        streams, source = Streams(events.append), TokenSource(slow)
        for key in range(40):
            streams.perform(GetToken(key, source))
        await asyncio.sleep(0)
        streams.perform(Shut(0))
        # Pending token requests must not occupy the event loop's thread pool, because name lookups use this
        # pool.
        await asyncio.wait_for(asyncio.to_thread(lambda: None), 60)
        release.set()
        while len(events) < 39:
            await asyncio.sleep(0.01)
        streams.close()

    asyncio.run(several())
    assert sum(calls) == 1
    assert [event.key for event in events if isinstance(event, GotToken)] == [*range(1, 40)]


def test_a_loop_ends_although_a_provider_does_not_return() -> None:
    release, began = threading.Event(), threading.Event()

    def hangs() -> str:
        began.set()
        release.wait(20)
        return "abc"

    async def given_up() -> None:
        streams = Streams(lambda event: None)
        streams.perform(GetToken(1, TokenSource(hangs)))
        while not began.is_set():
            await asyncio.sleep(0.001)
        streams.close()

    at = time.monotonic()
    asyncio.run(given_up())
    release.set()
    assert time.monotonic() - at < 10


_AFTER_MAIN = """
import asyncio, threading
from consumer.security.tokens import TokenSource

def work():
    threading.main_thread().join()
    print(asyncio.run(TokenSource(lambda: "abc").awaited()).value.reveal())

threading.Thread(target=work).start()
"""


def test_a_loop_gets_tokens_after_the_main_thread_has_ended() -> None:
    order = [sys.executable, "-c", _AFTER_MAIN]
    done = subprocess.run(order, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "abc\n", done.stderr


def test_a_provider_in_a_thread_has_the_context_of_the_caller() -> None:
    realm: ContextVar[str] = ContextVar("realm")

    async def ask() -> str:
        realm.set("orders")
        return (await TokenSource(lambda: realm.get()).awaited()).value.reveal()

    assert asyncio.run(ask()) == "orders"


def test_a_thread_that_cannot_start_raises_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(NoToken, match="can't start new thread"):
        asyncio.run(TokenSource(lambda: "abc").awaited())


def test_a_failed_token_for_a_closed_connection_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def gone() -> None:
        streams, source = Streams(lambda event: None), TokenSource(fails)
        streams.perform(GetToken(1, source))
        await asyncio.sleep(0)
        streams.perform(Shut(1))
        await asyncio.sleep(0.1)
        streams.close()

    asyncio.run(gone())
    gc.collect()
    assert caplog.records == []
