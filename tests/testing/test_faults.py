"""The proxy with network faults checks its arguments, and closes all connections when it is stopped."""

from __future__ import annotations

import contextlib
import gc
import math
import socket
from collections.abc import Callable
from typing import Any

import pytest

from kproto import running
from kproto.errors import ConfigError, IllegalState
from kproto.messages.api_versions import ApiVersionsRequest
from kproto.testing import proxy
from kproto.testing.faults import Proxy
from tests.broker.stage import Socket, connected

pytestmark = pytest.mark.usefixtures("fast_collections")

WRONG: list[Any] = ["localhost", "localhost:x", "localhost:99999", "localhost:\u00b2", ":9", "", "a:1,b:2", 5]


@pytest.mark.parametrize("target", WRONG)
def test_an_invalid_address_is_rejected_when_a_proxy_is_created(target: Any) -> None:
    with pytest.raises(ConfigError, match="target="):
        Proxy(target)
    with pytest.raises(ConfigError, match="bootstrap="):
        proxy.WatchProxy(target, tell=print)


def test_the_address_of_a_proxy_with_an_ipv6_host_is_in_brackets() -> None:
    assert Proxy("127.0.0.1:9092", "::1", 19092).bootstrap == "[::1]:19092"


CALLS: list[Callable[[Proxy, Any], None]] = [
    lambda proxy, seconds: proxy.stall(seconds),
    lambda proxy, seconds: proxy.delay(seconds),
    lambda proxy, seconds: proxy.trouble(7, seconds),
]


@pytest.mark.parametrize("seconds", ["1", None, -1, math.nan, math.inf])
@pytest.mark.parametrize("call", CALLS)
def test_an_invalid_time_is_rejected_and_traffic_continues(
    call: Callable[[Proxy, Any], None], seconds: Any
) -> None:
    with running() as server, Proxy(server.bootstrap) as between:
        with pytest.raises(ConfigError, match="seconds="):
            call(between, seconds)
        with socket.create_connection((between.host, between.port), timeout=10) as client:
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions
            assert client.recv(4)


def test_a_proxy_that_is_not_running_raises_illegal_state() -> None:
    between = Proxy("127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(IllegalState):
            between.cut()
        with pytest.raises(IllegalState):
            between.trouble(7, 0)
        with between:
            between.cut()
    with pytest.raises(IllegalState):
        _ = proxy.WatchProxy("127.0.0.1:1", tell=print).bootstrap


def test_a_stalled_connection_is_closed_when_the_proxy_ends() -> None:
    with running() as server, Proxy(server.bootstrap) as between:
        between.stall(60)
        client = socket.create_connection((between.host, between.port), timeout=20)
        while not between.connections:
            pass
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""


@pytest.mark.parametrize("turns", range(7))
def test_the_end_closes_a_connection_accepted_in_the_same_turn(
    turns: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy that is stopped also closes a connection that it has just accepted.

    The proxy is stopped `turns` iterations of the event loop after the client has connected. If the proxy did
    not close the connection, asyncio would log "Task was destroyed but it is pending" some iterations later.
    """
    clients: list[Socket] = []
    with running() as server, Proxy(server.bootstrap) as between:
        loop, thread = between._loop, between._thread
        assert loop is not None
        assert thread is not None

        def end(remaining_turns: int) -> None:
            if remaining_turns:
                loop.call_soon(end, remaining_turns - 1)
            else:
                loop.stop()

        def connect() -> None:
            clients.append(Socket(between.bootstrap))
            end(turns)

        loop.call_soon_threadsafe(connect)
        thread.join()
    with clients[0].socket:
        assert clients[0].closed_by_broker()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


def test_a_proxy_whose_start_failed_is_not_running() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        between = Proxy("127.0.0.1:1", port=listener.getsockname()[1])
        with pytest.raises(OSError, match="in use"), between:
            pass
    with pytest.raises(IllegalState):
        between.cut()


def test_a_connection_made_during_a_stall_is_cut_too() -> None:
    with running() as server, Proxy(server.bootstrap) as between:
        between.stall(60)
        with connected(between.bootstrap) as client:
            while not between.connections:
                pass
            between.cut()
            assert client.closed_by_broker()


def test_a_connection_made_during_a_stall_is_half_closed_too() -> None:
    request = ApiVersionsRequest()
    with running() as server, Proxy(server.bootstrap) as between:
        between.stall(0.2)
        with connected(between.bootstrap) as silent:
            silent.send(request, 0)
            while not between.connections:
                pass
            between.half_close()
            with connected(between.bootstrap) as client:
                assert client.ask(request, 0).error_code == 0
            silent.socket.setblocking(False)
            with pytest.raises(BlockingIOError):
                silent.receive(1)
