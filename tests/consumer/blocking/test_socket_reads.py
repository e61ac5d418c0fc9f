"""A read of a long response waits for all missing bytes. Other reads return what has arrived."""

from __future__ import annotations

import socket
import struct
from typing import Any

import pytest

from consumer.blocking.socket_reads import (
    ALL,
    LONG,
    MIN_WAKEUP_BYTES,
    NOW,
    VERY_LONG,
    prepare,
    receive,
)

pytestmark = pytest.mark.skipif(not ALL, reason="only Linux has reads that wait for all bytes")


class Socket:
    """A socket that records its reads, which return `size` bytes or raise `error`."""

    def __init__(self, size: int = 0, error: Exception | None = None) -> None:
        self.size = size
        self.error = error
        self.calls: list[tuple[Any, ...]] = []

    def recv_into(self, room: memoryview, size: int, flags: int) -> int:
        self.calls.append((len(room), size, flags))
        if self.error is not None:
            raise self.error
        return min(self.size, len(room))

    def setsockopt(self, *option: object) -> None:
        self.calls.append(option)


def received(missing: int, sock: Any) -> tuple[int, bool]:
    return receive(sock, memoryview(bytearray(missing)))


@pytest.mark.parametrize(("missing", "flags"), [(4, NOW), (LONG, NOW), (LONG + 1, ALL), (VERY_LONG, ALL)])
def test_only_a_read_of_a_long_response_waits_for_all_bytes(missing: int, flags: int) -> None:
    sock = Socket(missing)
    assert received(missing, sock) == (missing, True)
    assert sock.calls == [(missing, 0, flags)]
    assert received(missing, Socket(missing - 1)) == (missing - 1, False)
    assert received(missing, Socket(0)) == (0, False)


@pytest.mark.parametrize("error", [None, BlockingIOError()])
def test_a_read_of_a_very_long_response_is_woken_for_many_bytes(error: Exception | None) -> None:
    most = VERY_LONG + 1 - MIN_WAKEUP_BYTES
    low = (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
    sock = Socket(most, error)
    if error is None:
        assert received(VERY_LONG + 1, sock) == (most, True)
    else:
        with pytest.raises(BlockingIOError):
            received(VERY_LONG + 1, sock)
    assert sock.calls == [(*low, MIN_WAKEUP_BYTES), (most, 0, ALL), (*low, 1)]
    assert received(VERY_LONG + 1, Socket(most - 1)) == (most - 1, False)


def test_a_read_of_a_long_response_waits_for_a_few_milliseconds() -> None:
    with socket.socket() as sock:
        sock.setblocking(False)
        prepare(sock)
        seconds, microseconds = struct.unpack(
            "ll", sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)
        )
        assert sock.getblocking()
    # The kernel rounds SO_RCVTIMEO up to a multiple of its clock tick, which is at most 10 ms.
    assert (seconds, 4_000 <= microseconds <= 10_000) == (0, True)
