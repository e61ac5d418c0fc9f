"""The acceptor reports a lasting error once per second, and loses no connection when it is closed."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import os
import socket

import pytest

from kproto.broker import acceptor
from kproto.broker.acceptor import Acceptor, close_acceptors, listening_socket, stream_protocols
from tests.broker.stage import PATIENCE

pytestmark = pytest.mark.usefixtures("fast_collections")

ADDRESS = "127.0.0.1"


async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"welcome")
    writer.close()


async def greeting(port: int) -> bytes:
    reader, writer = await asyncio.open_connection(ADDRESS, port)
    received = await reader.read()
    writer.close()
    return received


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EPERM])
def test_a_lasting_error_is_logged_once_per_attempt(
    number: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lasting error is logged once per attempt to accept, as one line without a traceback.

    `asyncio.Server` would log up to `backlog` tracebacks per attempt. So the broker does not use it.
    """
    attempts = [number] * 3
    monkeypatch.setattr(acceptor, "RETRY_S", 0.01)

    async def run() -> bytes:
        loop = asyncio.get_running_loop()
        accept = loop.sock_accept

        async def failing(sock: socket.socket) -> tuple[socket.socket, object]:
            if attempts:
                code = attempts.pop()
                raise OSError(code, os.strerror(code))
            return await accept(sock)

        monkeypatch.setattr(loop, "sock_accept", failing)
        accepts = Acceptor(listening_socket(ADDRESS, 0), stream_protocols(greet))
        try:
            return await asyncio.wait_for(greeting(accepts.port), PATIENCE)
        finally:
            await accepts.close()

    with caplog.at_level(logging.WARNING):
        assert asyncio.run(run()) == b"welcome"
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert all(f"cannot accept connections, retrying: {os.strerror(number)}" in line for line in lines)
    assert not any(record.exc_info for record in caplog.records)


def test_a_connection_that_its_client_has_aborted_does_not_delay_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        accept, aborted = loop.sock_accept, [True]

        async def failing(sock: socket.socket) -> tuple[socket.socket, object]:
            if aborted and aborted.pop():
                raise ConnectionAbortedError(errno.ECONNABORTED, "aborted")
            return await accept(sock)

        monkeypatch.setattr(loop, "sock_accept", failing)
        accepts = Acceptor(listening_socket(ADDRESS, 0), stream_protocols(greet))
        assert await greeting(accepts.port) == b"welcome"
        await accepts.close()

    asyncio.run(run())
    assert not caplog.records


@pytest.mark.parametrize("turns", range(6))
def test_every_accepted_connection_has_its_protocol_when_close_returns(
    turns: int, recwarn: pytest.WarningsRecorder
) -> None:
    """When `close` returns, every accepted connection has been passed to its protocol.

    An accepted socket without a protocol would never be closed, and Python would warn about it.
    """

    class Counting(asyncio.Protocol):
        made = 0

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            Counting.made += 1
            assert isinstance(transport, asyncio.Transport)
            transport.abort()

    async def run() -> None:
        accepts = [Acceptor(listening_socket(ADDRESS, 0), Counting) for _ in range(2)]
        clients = [socket.create_connection((ADDRESS, each.port)) for each in accepts for _ in range(100)]
        for _ in range(turns):
            await asyncio.sleep(0)
        await close_acceptors(accepts)
        made = Counting.made
        for _ in range(5):
            await asyncio.sleep(0)
        assert Counting.made == made
        for client in clients:
            client.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(run())
    gc.collect()
    assert not [str(warning.message) for warning in recwarn.list]


def test_a_closed_acceptor_frees_its_port() -> None:
    async def run() -> None:
        accepts = Acceptor(listening_socket(ADDRESS, 0), stream_protocols(greet))
        port = accepts.port
        await accepts.close()
        listening_socket(ADDRESS, port).close()

    asyncio.run(run())
