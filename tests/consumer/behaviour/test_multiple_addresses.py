"""A name with several addresses, of which some take connections and are no use: the others are tried."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from consumer import AsyncCluster, Cluster
from consumer.blocking.sockets import Sockets
from consumer.engine.network.transport import Open, Opened, Shut
from consumer.resolver import AddressFailures
from kproto.broker.server import running
from kproto.errors import ConnectionFailed
from tests.consumer.behaviour.socket_servers import Script, serving, several


@contextmanager
def beside_a_broker(script: Script) -> Generator[int]:
    """The port on which `script` is 127.0.0.1, and a broker is 127.0.0.2."""
    with serving(script) as place:
        port = int(place.rpartition(":")[2])
        with running({"flights": 1}, listen=[f"PLAINTEXT://127.0.0.2:{port}"]):
            yield port


def closes(sock: socket.socket) -> None:
    sock.recv(1000)
    sock.close()


async def topics(place: str) -> dict[str, int]:
    async with AsyncCluster(place) as cluster:
        return await cluster.topics()


@pytest.mark.parametrize("script", [closes, socket.socket.close], ids=["asked", "at once"])
def test_who_closes_before_any_answer_is_no_end_of_the_name(
    monkeypatch: pytest.MonkeyPatch, script: Script
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    with beside_a_broker(script) as port:
        with Cluster(f"broker.test:{port}") as cluster:
            assert cluster.topics() == {"flights": 1}
        assert asyncio.run(topics(f"broker.test:{port}")) == {"flights": 1}


def test_who_takes_a_connection_and_says_nothing_is_tried_last_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    held: list[socket.socket] = []
    reached: list[str] = []
    with beside_a_broker(held.append) as port:
        sockets = Sockets()
        for key in (1, 2):
            sockets.perform(Open(key, "broker.test", port))
            end = time.monotonic() + 10
            while not (told := sockets.wait(0.1)):
                assert time.monotonic() < end
            assert told == [Opened(key)]
            sock = sockets._sockets[key].sock
            assert sock is not None
            reached.append(sock.getpeername()[0])
            sockets.perform(Shut(key))
        sockets.close()
    assert reached == ["127.0.0.1", "127.0.0.2"]


def test_an_asyncio_client_is_served_where_the_first_address_says_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("consumer.engine.network.client.FIRST_SETUP_TIMEOUT_MS", 100)
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    held: list[socket.socket] = []
    with beside_a_broker(held.append) as port:
        assert asyncio.run(topics(f"broker.test:{port}")) == {"flights": 1}
    assert len(held) == 1


def test_why_one_closed_is_told_and_not_that_nobody_listens_on_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    several(monkeypatch, "127.0.0.1", "127.0.0.2")
    with serving(closes) as place:
        at = f"broker.test:{place.rpartition(':')[2]}"
        with Cluster(at) as cluster, pytest.raises(ConnectionFailed, match="want TLS"):
            cluster.topics()
        with pytest.raises(ConnectionFailed, match="want TLS"):
            asyncio.run(topics(at))


def test_addresses_that_a_name_has_no_more_are_forgotten() -> None:
    failures, host = AddressFailures(), ("broker.test", 9)
    old, new = [(socket.AF_INET, (f"127.0.0.{last}", 9)) for last in (1, 2)]
    failures.add(host, old)
    assert failures.sort(host, [new]) == [new]
    assert failures.sort(host, [old, new]) == [old, new]
