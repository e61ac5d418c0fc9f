"""If one address of a host name accepts connections but does not respond, the others are tried."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from consumer import Admin, AsyncAdmin
from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import Open, Opened, Shut
from consumer.resolver import AddressFailures
from kproto.broker.server import running
from kproto.errors import ConnectionFailed
from tests.consumer.behaviour.socket_servers import Script, serving, several


@contextmanager
def broker_on_second_address(script: Script) -> Generator[int]:
    """Yield a port: the function `script` serves it at 127.0.0.1, and an embedded broker at 127.0.0.2."""
    with serving(script) as address:
        port = int(address.rpartition(":")[2])
        with running({"flights": 1}, listen=[f"PLAINTEXT://127.0.0.2:{port}"]):
            yield port


def close_after_request(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.close()


async def read_topics(bootstrap: str) -> dict[str, int]:
    async with AsyncAdmin(bootstrap) as cluster:
        return await cluster.topics()


@pytest.mark.parametrize("script", [close_after_request, socket.socket.close], ids=["asked", "at once"])
def test_an_address_that_closes_without_a_response_is_followed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    with broker_on_second_address(script) as port:
        with Admin(f"broker.test:{port}") as cluster:
            assert cluster.topics() == {"flights": 1}
        assert asyncio.run(read_topics(f"broker.test:{port}")) == {"flights": 1}


def test_an_address_that_never_answers_is_tried_last_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    accepted: list[socket.socket] = []
    reached: list[str] = []
    with broker_on_second_address(accepted.append) as port:
        sockets = Sockets()
        for key in (1, 2):
            sockets.perform(Open(key, "broker.test", port))
            deadline = time.monotonic() + 10
            while not (events := sockets.wait(0.1)):
                assert time.monotonic() < deadline
            assert events == [Opened(key)]
            sock = sockets._connections[key].sock
            assert sock is not None
            reached.append(sock.getpeername()[0])
            sockets.perform(Shut(key))
        sockets.close()
    assert reached == ["127.0.0.1", "127.0.0.2"]


def test_an_asyncio_client_is_served_if_the_first_address_never_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumer.engine.network.client.FIRST_SETUP_TIMEOUT_MS", 100)
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    accepted: list[socket.socket] = []
    with broker_on_second_address(accepted.append) as port:
        assert asyncio.run(read_topics(f"broker.test:{port}")) == {"flights": 1}
    assert len(accepted) == 1


def test_the_error_gives_the_reason_of_the_address_that_accepted_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    with serving(close_after_request) as address:
        bootstrap = f"broker.test:{address.rpartition(':')[2]}"
        with Admin(bootstrap) as cluster, pytest.raises(ConnectionFailed, match="want TLS"):
            cluster.topics()
        with pytest.raises(ConnectionFailed, match="want TLS"):
            asyncio.run(read_topics(bootstrap))


def test_removed_addresses_of_a_name_are_forgotten() -> None:
    failures, host = AddressFailures(), ("broker.test", 9)
    old, new = [(socket.AF_INET, (f"127.0.0.{last}", 9)) for last in (1, 2)]
    failures.add(host, old)
    assert failures.sort(host, [new]) == [new]
    assert failures.sort(host, [old, new]) == [old, new]
