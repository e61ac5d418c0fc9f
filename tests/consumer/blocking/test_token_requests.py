"""Threads request tokens for the connections of a blocking client, and report the results as events."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from consumer.blocking.token_requests import TokenRequests
from consumer.engine.network.transport import Broken, GotToken
from consumer.security.failures import NoToken


class Source:
    """A token source. Each call waits for `release`, and then returns or raises `answer`."""

    def __init__(self, answer: object, *, shared: bool = True) -> None:
        self.answer = answer
        self.shared = shared
        self.calls = 0
        self.release = threading.Semaphore(0)

    def blocking(self) -> Any:
        self.calls += 1
        assert self.release.acquire(timeout=30)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Client:
    """Sends token requests in threads. Each call of `finish` lets one of these threads end."""

    def __init__(self) -> None:
        self.arrived = threading.Semaphore(0)
        self.requests = TokenRequests(self.arrived.release)

    def request(self, key: int, source: Any, *open_keys: int) -> list[Any]:
        return list(self.requests.request(key, source, open_keys))

    def finish(self, source: Source) -> list[Any]:
        """Let one call of `source` end, and return the events that report the result of this call."""
        source.release.release()
        assert self.arrived.acquire(timeout=30)
        return list(self.requests.take())


def test_connections_that_wait_at_the_same_time_share_a_token() -> None:
    client, source = Client(), Source("token")
    assert client.request(1, source, 1) == []
    assert client.request(2, source, 1, 2) == []
    assert client.requests.take() == []
    assert client.finish(source) == [GotToken(1, "token"), GotToken(2, "token")]  # type: ignore[arg-type]
    assert source.calls == 1
    assert client.requests.take() == []
    # The first token request has ended, so another connection causes a new request.
    assert client.request(3, source, 3) == []
    assert client.finish(source) == [GotToken(3, "token")]  # type: ignore[arg-type]
    assert source.calls == 2


def test_connections_that_were_closed_get_no_token() -> None:
    client, source = Client(), Source("token")
    client.request(1, source, 1)
    client.request(2, source, 2)
    assert client.finish(source) == [GotToken(2, "token")]  # type: ignore[arg-type]


def test_a_login_belongs_to_one_connection() -> None:
    client, first, second = Client(), Source("one", shared=False), Source("two", shared=False)
    shared = Source("token")
    client.request(3, shared, 3)
    client.request(1, first, 1, 3)
    client.request(2, second, 1, 2, 3)
    assert client.finish(second) == [GotToken(2, "two")]  # type: ignore[arg-type]
    assert client.finish(first) == [GotToken(1, "one")]  # type: ignore[arg-type]
    # The logins of connections 1 and 2 did not affect the token request of connection 3: it still runs, and
    # was sent once.
    assert client.request(4, shared, 3, 4) == []
    assert client.finish(shared) == [GotToken(3, "token"), GotToken(4, "token")]  # type: ignore[arg-type]
    assert shared.calls == 1


@pytest.mark.parametrize("final", [False, True])
def test_a_failed_request_breaks_all_connections_that_wait(final: bool) -> None:
    client, source = Client(), Source(NoToken("the issuer rejects the client", final=final))
    client.request(1, source, 1)
    client.request(2, source, 1, 2)
    broken = [Broken(key, "the issuer rejects the client", final) for key in (1, 2)]
    assert client.finish(source) == broken
    client.request(3, source, 3)
    assert client.finish(source) == [Broken(3, "the issuer rejects the client", final)]


@pytest.mark.parametrize("shared", [False, True])
def test_a_thread_that_cannot_start_breaks_the_connection_which_may_try_again(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    client, source = Client(), Source("token", shared=shared)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        assert client.request(1, source, 1) == [Broken(1, "no token: can't start new thread", False)]
    assert client.request(2, source, 2) == []
    assert client.finish(source) == [GotToken(2, "token")]  # type: ignore[arg-type]
