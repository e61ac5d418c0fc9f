"""The proxy that breaks connections: what it takes, and that it lets go of everything when it ends."""

from __future__ import annotations

import contextlib
import math
import socket
from collections.abc import Callable
from typing import Any

import pytest

from kproto import running
from kproto.errors import ConfigError, IllegalState
from kproto.testing import proxy
from kproto.testing.faults import Proxy

WRONG: list[Any] = ["localhost", "localhost:x", "localhost:99999", "localhost:\u00b2", ":9", "", "a:1,b:2", 5]


@pytest.mark.parametrize("target", WRONG)
def test_what_is_no_address_is_told_when_a_proxy_is_made(target: Any) -> None:
    with pytest.raises(ConfigError, match="target="):
        Proxy(target)
    with pytest.raises(ConfigError, match="bootstrap="):
        proxy.Proxy(target, tell=print)


CALLS: list[Callable[[Proxy, Any], None]] = [
    lambda one, seconds: one.stall(seconds),
    lambda one, seconds: one.delay(seconds),
    lambda one, seconds: one.trouble(7, seconds),
]


@pytest.mark.parametrize("seconds", ["1", None, -1, math.nan, math.inf])
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_time_is_told_and_nothing_stands_still(
    call: Callable[[Proxy, Any], None], seconds: Any
) -> None:
    with running() as server, Proxy(server.bootstrap) as between:
        with pytest.raises(ConfigError, match="seconds="):
            call(between, seconds)
        with socket.create_connection((between.host, between.port), timeout=10) as client:
            client.sendall(bytes.fromhex("0000000a 0012 0000 00000001 ffff"))  # ApiVersions
            assert client.recv(4)


def test_a_proxy_that_ended_or_did_not_begin_says_so() -> None:
    between = Proxy("127.0.0.1:1")
    for _ in range(2):
        with pytest.raises(IllegalState):
            between.cut()
        with pytest.raises(IllegalState):
            between.trouble(7, 0)
        with between:
            between.cut()
    with pytest.raises(IllegalState):
        _ = proxy.Proxy("127.0.0.1:1", tell=print).bootstrap


def test_who_waits_at_the_door_is_let_go_at_the_end() -> None:
    with running() as server, Proxy(server.bootstrap) as between:
        between.stall(60)
        client = socket.create_connection((between.host, between.port), timeout=20)
        while not between.connections:
            pass
    with client, contextlib.suppress(ConnectionResetError):
        assert client.recv(1) == b""
