"""Servers on real sockets that run a script for each connection, and names with several addresses."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

Script = Callable[[socket.socket], object]


@contextmanager
def serving(script: Script) -> Generator[str]:
    """HOST:PORT where each connection is given to `script` in a thread of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    made: list[socket.socket] = []

    def one(sock: socket.socket) -> None:
        with suppress(OSError):
            script(sock)

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                made.append(sock)
                threading.Thread(target=one, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for sock in (listener, *made):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def several(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Let the name `broker.test` have these addresses."""
    real = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if host != "broker.test":
            return real(host, port, *rest, **named)
        if named.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        found = [real(address, port, type=socket.SOCK_STREAM)[0] for address in addresses]
        return found

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
