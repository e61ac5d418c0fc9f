"""A Kafka client that is no more than a blocking socket: one request, one answer."""

from __future__ import annotations

import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from kproto.messages.headers import decode_response, encode_request
from kproto.messages.index import response_class
from kproto.wire.frame import frame
from kproto.wire.message import Message

PATIENCE = 20.0


class Socket:
    """A client with a plain blocking socket."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout=PATIENCE)

    def send(self, request: Message, version: int, client_id: str | None = "me") -> None:
        self.socket.sendall(frame(encode_request(request, version, 1, client_id)))

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("the broker closed the connection")
            data += more
        return data

    def answer(self, kind: type[Message], version: int) -> Any:
        (size,) = struct.unpack(">i", self.receive(4))
        return decode_response(self.receive(size), kind, version)[1]

    def ask(self, request: Message, version: int) -> Any:
        self.send(request, version)
        assert request.__api_key__ is not None
        return self.answer(response_class(request.__api_key__), version)

    def closed_by_broker(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True


@contextmanager
def connected(bootstrap: str) -> Generator[Socket]:
    client = Socket(bootstrap)
    with client.socket:
        yield client
