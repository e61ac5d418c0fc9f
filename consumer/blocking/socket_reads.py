"""Read from a socket as many bytes as possible with one call.

A thread that wakes up for a part of a response waits for the GIL and for a processor while the application
computes. So one read requests all missing bytes of a long response. For a very long response the kernel wakes
the thread only when `MIN_WAKEUP_BYTES` have arrived. A million records of 1 KB, in responses of 16 MiB, then
wake the reader 3,000 times instead of 6,200. (Responses of 2 MiB did not get faster.)
"""

from __future__ import annotations

import socket
import struct
import sys

# The number of bytes that are worth a wakeup. (A quarter was not faster, and neither was 1 MiB.)
MIN_WAKEUP_BYTES = 256 * 1024
# With more missing bytes than this, the thread wakes up only for MIN_WAKEUP_BYTES.
VERY_LONG = 4 * 1024 * 1024
# With more missing bytes than this, one read requests all of them.
LONG = 128 * 1024
# Milliseconds for which such a read waits at most. Other connections wait as well.
_WAIT_MS = 5

if sys.platform == "linux":
    NOW, ALL = socket.MSG_DONTWAIT, socket.MSG_WAITALL
else:
    NOW = ALL = 0


def prepare(sock: socket.socket) -> None:
    """Prepare a connected socket. From now on the flags of each read say whether it waits."""
    if ALL:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, _WAIT_MS * 1000))
        sock.setblocking(True)


def receive(sock: socket.socket, room: memoryview) -> tuple[int, bool]:
    """Receive into `room`; return the number of bytes, and whether there may be more. 0 means the end."""
    if not ALL or len(room) <= LONG:
        most, size = len(room), sock.recv_into(room, 0, NOW)
    elif len(room) <= VERY_LONG:
        most, size = len(room), sock.recv_into(room, 0, ALL)
    else:  # The last bytes are left to the next read: they are fewer than the thread wakes up for.
        most = len(room) - MIN_WAKEUP_BYTES
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MIN_WAKEUP_BYTES)
        try:
            size = sock.recv_into(room[:most], 0, ALL)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return size, size == most
