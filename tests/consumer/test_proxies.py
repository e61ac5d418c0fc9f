"""`ProxyDialer` connects through SOCKS5 and HTTP proxies; it needs the package python-socks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("python_socks")

from consumer import Admin, AsyncAdmin
from consumer.proxies import ProxyDialer
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, ConnectionFailed
from tests.consumer.behaviour.proxies import TinyProxy, tiny_proxy

SECONDS = 60.0


@pytest.fixture(scope="module")
def broker() -> Iterator[Server]:
    with running(topics={"t": 1}) as server:
        yield server


@pytest.fixture
def proxy() -> Iterator[TinyProxy]:
    with tiny_proxy() as proxy:
        yield proxy


@pytest.mark.parametrize("scheme", ["socks5://alice:alice@", "socks5://", "http://"])
def test_a_proxy_resolves_the_names_of_brokers(broker: Server, proxy: TinyProxy, scheme: str) -> None:
    dialer = ProxyDialer(f"{scheme}127.0.0.1:{proxy.port}")
    port = int(broker.bootstrap.rpartition(":")[2])
    with Admin(f"kafka.invalid:{port}", dialer=dialer) as admin:
        assert admin.topics() == {"t": 1}
    assert proxy.asked[0] == ("kafka.invalid", port)


def error_of(broker: Server, dialer: ProxyDialer) -> str:
    with Admin(broker.bootstrap, dialer=dialer) as admin, pytest.raises(ConnectionFailed) as blocking:
        admin.topics()

    async def main() -> str:
        async with AsyncAdmin(broker.bootstrap, dialer=dialer) as admin:
            with pytest.raises(ConnectionFailed) as raised:
                await admin.topics()
        return str(raised.value)

    assert asyncio.run(asyncio.wait_for(main(), SECONDS)) == str(blocking.value)
    return str(blocking.value)


@pytest.mark.parametrize("scheme", ["socks5", "http"])
def test_a_proxy_that_refuses_is_named_with_the_broker(broker: Server, proxy: TinyProxy, scheme: str) -> None:
    proxy.refuses = True
    error = error_of(broker, ProxyDialer(f"{scheme}://alice:alice@127.0.0.1:{proxy.port}"))
    assert broker.bootstrap in error
    assert f"the dialer {scheme}://127.0.0.1:{proxy.port} failed: ProxyError: " in error
    assert "alice" not in error


def test_a_wrong_password_is_not_shown(broker: Server, proxy: TinyProxy) -> None:
    dialer = ProxyDialer(f"socks5://alice:hunter2@127.0.0.1:{proxy.port}")
    assert "hunter2" not in repr(dialer)
    error = error_of(broker, dialer)
    assert f"socks5://127.0.0.1:{proxy.port} failed: ProxyError: " in error
    assert "hunter2" not in error


def test_a_proxy_that_is_down_is_named(broker: Server, proxy: TinyProxy) -> None:
    proxy.close()
    error = error_of(broker, ProxyDialer(f"socks5://127.0.0.1:{proxy.port}"))
    assert f"the dialer socks5://127.0.0.1:{proxy.port} failed: ProxyConnectionError" in error


def test_a_proxy_that_does_not_answer_ends_the_dialer(broker: Server) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as silent:
        dialer = ProxyDialer(f"socks5://127.0.0.1:{silent.getsockname()[1]}", timeout=0.05)
        assert "failed: ProxyTimeoutError" in error_of(broker, dialer)


@pytest.mark.parametrize(
    "url", ["proxy:1080", "ftp://a:1", "socks5://proxy", "http://u:secret@proxy:port", "", None, 5]
)
def test_an_invalid_address_is_an_error_without_its_password(url: Any) -> None:
    with pytest.raises(ConfigError, match="socks5://, socks4:// or http://") as raised:
        ProxyDialer(url)
    assert "secret" not in str(raised.value)
