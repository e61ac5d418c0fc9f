"""Reads a topic's bytes and throws them away: what a socket, and `ssl` on it, cost by themselves.

Which requests bring all of it is found out before; then each of them is on its way while the answer to the
one before is read, so that the broker is never waited for longer than it takes itself. "socket" is an
`SSLSocket` (or none), "memory" is `ssl` over memory as our clients have it, with 256 KiB received at once.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

from kproto.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kproto.messages.headers import decode_response, encode_request
from kproto.wire.frame import frame

VERSION = 12  # the last one that names topics
ROOM = 256 * 1024
Taken = tuple[float, float]


def question(topic: str, positions: dict[int, int]) -> bytes:
    """As our consumer asks, without a session."""
    wants = [
        FetchPartition(partition=index, fetch_offset=at, partition_max_bytes=1 << 20)
        for index, at in positions.items()
    ]
    request = FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, topics=[FetchTopic(topic=topic, partitions=wants)]
    )
    return frame(encode_request(request, VERSION, 1, "bare"))


def _next(records: Any, at: int) -> int:
    """The offset behind the whole batches of an answer."""
    data, place = memoryview(records or b""), 0
    while len(data) - place >= 61:
        end = place + 12 + int.from_bytes(data[place + 8 : place + 12], "big")
        if end > len(data):
            break
        first, delta = data[place : place + 8], data[place + 23 : place + 27]
        at, place = int.from_bytes(first, "big") + int.from_bytes(delta, "big") + 1, end
    return at


def asked(place: str, topic: str, partitions: int, count: int) -> list[tuple[bytes, int]]:
    """Requests that bring `count` records, with the sizes of their answers."""
    host, _, port = place.rpartition(":")
    positions, found = dict.fromkeys(range(partitions), 0), list[tuple[bytes, int]]()
    with socket.create_connection((host, int(port))) as sock, sock.makefile("rb") as answers:
        while sum(positions.values()) < count:
            sent = question(topic, positions)
            sock.sendall(sent)
            body = answers.read(int.from_bytes(answers.read(4), "big"))
            _, answer = decode_response(body, FetchResponse, VERSION)
            assert isinstance(answer, FetchResponse)
            for partition in answer.responses[0].partitions:
                positions[partition.partition_index] = _next(
                    partition.records, positions[partition.partition_index]
                )
            found.append((sent, 4 + len(body)))
    return found


def bare_reads(over: str, place: str, protocol: str, ca: str, topic: str, count: int) -> Taken:
    """What it takes behind the first answer: seconds by the clock, and of CPU."""
    host, _, port = place.rpartition(":")
    plain = topic.partition("@")[2]
    wanted = asked(plain, topic.partition("@")[0], 3, count)
    with socket.create_connection((host, int(port))) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if protocol == "PLAINTEXT":
            return _through(wanted, sock.sendall, sock.recv_into)
        context = ssl.create_default_context(cafile=ca)
        if over == "socket":
            with context.wrap_socket(sock, server_hostname=host) as secured:
                return _through(wanted, secured.sendall, secured.recv_into)
        return _through(wanted, *_over_memory(sock, context, host))


def _over_memory(
    sock: socket.socket, context: ssl.SSLContext, host: str
) -> tuple[Callable[[bytes], object], Callable[[memoryview], int]]:
    coming, going = ssl.MemoryBIO(), ssl.MemoryBIO()
    pipe, room = context.wrap_bio(coming, going, server_hostname=host), memoryview(bytearray(ROOM))
    read: Any = pipe.read

    def send(data: bytes) -> None:
        pipe.write(data)
        sock.sendall(going.read())

    def receive(into: memoryview) -> int:
        at = 0
        while True:
            try:
                while at < len(into):
                    at += read(len(into) - at, into[at:])
                return at
            except ssl.SSLWantReadError:
                if at:
                    return at
            coming.write(room[: sock.recv_into(room)])

    while True:
        try:
            pipe.do_handshake()
            break
        except ssl.SSLWantReadError:
            sock.sendall(going.read())
            coming.write(room[: sock.recv_into(room)])
    sock.sendall(going.read())
    return send, receive


def _through(
    wanted: list[tuple[bytes, int]], send: Callable[[bytes], object], receive: Callable[[memoryview], int]
) -> Taken:
    room, start = memoryview(bytearray(ROOM)), (0.0, 0.0)
    send(wanted[0][0])
    for number, (_, size) in enumerate(wanted):
        if number + 1 < len(wanted):
            send(wanted[number + 1][0])
        left = size
        while left:
            left -= receive(room[: min(left, ROOM)])
        if not number:
            start = time.perf_counter(), time.process_time()
    return time.perf_counter() - start[0], time.process_time() - start[1]
