"""Servers on real sockets that run a function for each connection, and host names with several addresses."""

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
    """Yield HOST:PORT of a server that runs `script` for each connection in a separate thread."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections: list[socket.socket] = []

    def one(sock: socket.socket) -> None:
        with suppress(OSError):
            script(sock)

    def accept() -> None:
        with suppress(OSError):
            while True:
                sock, _ = listener.accept()
                connections.append(sock)
                threading.Thread(target=one, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        for sock in (listener, *connections):
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()


def several(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> None:
    """Make the name `broker.test` resolve to these addresses."""
    original = socket.getaddrinfo

    def getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        if host != "broker.test":
            return original(host, port, *arguments, **options)
        if options.get("flags", 0) & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "a name")
        resolved = [original(address, port, type=socket.SOCK_STREAM)[0] for address in addresses]
        return resolved

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
