"""A small proxy: SOCKS5 with a password, and HTTP CONNECT. It connects to 127.0.0.1 only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class TinyProxy:
    """Connects clients to ports of 127.0.0.1. `asked` contains the (host, port) of each request.

    `refuses` makes the proxy reject each request. A SOCKS5 client that offers a user name and a password must
    send "alice" for both.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.refuses = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.connections: list[socket.socket] = []

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self.connections.append(client)
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # `close` alone would not end the blocked `accept`.
        self._listener.close()
        for sock in self.connections:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _connect(self, client: socket.socket) -> None:
        with suppress(OSError, IndexError), client.makefile("rb") as reads:
            first = reads.read(1)
            if first == b"\5":
                self._socks(client, reads)
            else:
                self._http(client, reads, first)

    def _socks(self, client: socket.socket, reads: object) -> None:
        read = reads.read  # type: ignore[attr-defined]
        methods = read(read(1)[0])
        if b"\2" in methods:
            client.sendall(b"\5\2")
            read(1)
            user = read(read(1)[0]), read(read(1)[0])
            client.sendall(b"\1\0" if user == (b"alice", b"alice") else b"\1\1")
        else:
            client.sendall(b"\5\0")
        kind = read(4)[3]
        host = read(read(1)[0]).decode() if kind == 3 else socket.inet_ntoa(read(4))
        self._tunnel(
            client, host, int.from_bytes(read(2), "big"), b"\5\0\0\1" + bytes(6), b"\5\5\0\1" + bytes(6)
        )

    def _http(self, client: socket.socket, reads: object, first: bytes) -> None:
        lines = iter(reads.readline, b"\r\n")  # type: ignore[attr-defined]
        _, target, _ = (first + next(lines)).split()
        for _ in lines:
            pass
        host, _, port = target.decode().rpartition(":")
        yes, no = b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 403 Forbidden\r\n\r\n"
        self._tunnel(client, host, int(port), yes, no)

    def _tunnel(self, client: socket.socket, host: str, port: int, accepted: bytes, refused: bytes) -> None:
        self.asked.append((host, port))
        if self.refuses:
            client.sendall(refused)
            client.close()
            return
        broker = socket.create_connection(("127.0.0.1", port))
        self.connections.append(broker)
        client.sendall(accepted)
        threading.Thread(target=_copy, args=(broker, client), daemon=True).start()
        _copy(client, broker)


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for sock in (source, target):
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


@contextmanager
def tiny_proxy() -> Iterator[TinyProxy]:
    proxy = TinyProxy()
    threading.Thread(target=proxy.serve, daemon=True).start()
    try:
        yield proxy
    finally:
        proxy.close()
