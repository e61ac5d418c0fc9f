"""Helpers for client tests: a simulated cluster, options for faults and old brokers, and a TLS stub."""

from __future__ import annotations

from typing import Final

from consumer.security.failures import TlsFailed
from kproto.testing.world import Client, Consumer, Producer, World, tp

__all__ = ["BEFORE_KIP_890", "QUICK_AGAIN", "Client", "Consumer", "PlainPipe", "Producer", "World", "tp"]

# The options of a producer that recovers from a fault within tenths of a second.
QUICK_AGAIN: Final[dict[str, int]] = {
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 80,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 80,
    "metadata_max_age_ms": 500,
    "socket_connection_setup_timeout_ms": 100,
}

# The highest version of EndTxn before KIP-890.
BEFORE_KIP_890: Final[dict[str, int]] = {"EndTxn": 4}


class PlainPipe:
    """TLS without cryptography: the handshake ends with `done`, and encrypted bytes are enclosed in <>."""

    def __init__(self) -> None:
        self.secured = False
        self.plain = b""
        self.out = b""

    def begin(self) -> bytes:
        return b"hello"

    def feed(self, data: memoryview) -> None:
        if bytes(data) == b"bad":
            self.out = b"alert"
            raise TlsFailed("the certificate has expired", final=True)
        self.secured = self.secured or bytes(data).startswith(b"done")
        if self.secured:
            self.plain += bytes(data).removeprefix(b"done")

    def outgoing(self) -> bytes:
        out, self.out = self.out, b""
        return out

    def read_into(self, room: memoryview) -> int:
        size = min(len(room), len(self.plain))
        room[:size], self.plain = self.plain[:size], self.plain[size:]
        return size

    def seal(self, data: bytes) -> bytes:
        if data == b"bad":
            raise TlsFailed("cannot be encrypted", final=False)
        return b"<" + data + b">"

    def close(self) -> bytes:
        return b"close_notify"

    def end(self) -> str:
        return "the connection ended in the handshake"
