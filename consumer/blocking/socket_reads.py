"""How bytes come from a socket, as many at once as can be had.

Who is woken for a part of an answer waits for the interpreter's lock, while the application computes, and for
a processor. So the kernel is asked for all that is missing of a long answer, and to wake nobody for less than
`AT_ONCE` of a very long one: a million records of 1 KB, in answers of 16 MiB, then wake a reader 3,000 times,
and 6,200 times before. (Answers of 2 MiB won nothing by it.)
"""

from __future__ import annotations

import socket
import struct
import sys

AT_ONCE = 256 * 1024
"""Bytes that are worth waking somebody for. (A quarter of them won nothing, 1 MiB no more.)"""

VERY_LONG = 4 * 1024 * 1024
"""Bytes missing of an answer from which on nobody is woken for less."""

WHOLE = 128 * 1024
"""Bytes missing of an answer from which on all of them are asked for."""

_WAIT_MS = 5
"""So long, at most, such a read waits for them, and the other connections with it."""

if sys.platform == "linux":
    NOW, ALL = socket.MSG_DONTWAIT, socket.MSG_WAITALL
else:
    NOW = ALL = 0


def prepare(sock: socket.socket) -> None:
    """To be called when it is connected; from here on each call says whether it waits."""
    if ALL:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, _WAIT_MS * 1000))
        sock.setblocking(True)


def receive(sock: socket.socket, room: memoryview) -> tuple[int, bool]:
    """Put what has come into `room`: how many bytes, and whether there may be more. 0 means the end."""
    if not ALL or len(room) <= WHOLE:
        most, size = len(room), sock.recv_into(room, 0, NOW)
    elif len(room) <= VERY_LONG:
        most, size = len(room), sock.recv_into(room, 0, ALL)
    else:  # but for the rest, which nobody would be woken for
        most = len(room) - AT_ONCE
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, AT_ONCE)
        try:
            size = sock.recv_into(room[:most], 0, ALL)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return size, size == most
