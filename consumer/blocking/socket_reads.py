"""Reads from a socket: as many bytes at once as possible.

A thread that wakes up for a part of a response waits for the GIL while the application computes, and for a
processor. So the kernel is asked for all missing bytes of a long response, and for a very long one it wakes
the thread only when `MIN_WAKEUP_BYTES` have arrived. A million records of 1 KB, in responses of 16 MiB,
then wake the reader 3,000 times instead of 6,200. (Responses of 2 MiB did not get faster.)
"""

from __future__ import annotations

import socket
import struct
import sys

# Bytes that are worth a wakeup. (A quarter was not faster, and neither was 1 MiB.)
MIN_WAKEUP_BYTES = 256 * 1024
# Missing bytes of a response above which the thread wakes up for no fewer.
VERY_LONG = 4 * 1024 * 1024
# Missing bytes of a response above which one read requests all of them.
LONG = 128 * 1024
# Milliseconds for which such a read waits at most, and the other connections with it.
_WAIT_MS = 5

if sys.platform == "linux":
    NOW, ALL = socket.MSG_DONTWAIT, socket.MSG_WAITALL
else:
    NOW = ALL = 0


def prepare(sock: socket.socket) -> None:
    """Prepare a connected socket: from here on each read says whether it waits."""
    if ALL:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, _WAIT_MS * 1000))
        sock.setblocking(True)


def receive(sock: socket.socket, room: memoryview) -> tuple[int, bool]:
    """Receive into `room`; return the number of bytes, and whether there may be more. 0 means the end."""
    if not ALL or len(room) <= LONG:
        most, size = len(room), sock.recv_into(room, 0, NOW)
    elif len(room) <= VERY_LONG:
        most, size = len(room), sock.recv_into(room, 0, ALL)
    else:  # except the last part, which is too short for a wakeup
        most = len(room) - MIN_WAKEUP_BYTES
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MIN_WAKEUP_BYTES)
        try:
            size = sock.recv_into(room[:most], 0, ALL)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return size, size == most
