"""Reads as many bytes as possible from a socket with one call.

A thread that wakes up for a part of a response has to wait for the GIL and for a processor while the
application computes. So one read requests all missing bytes of a long response. For a very long response the
kernel wakes the thread only when `MIN_WAKEUP_BYTES` have arrived. For a million records of 1 KB, in responses
of 16 MiB, this reduces the wakeups from 6,200 to 3,000. (Responses of 2 MiB do not arrive faster with fewer
wakeups, so they are not treated as very long.)
"""

from __future__ import annotations

import socket
import struct
import sys

# A thread that reads a very long response wakes up when at least this number of bytes has arrived. (Reads
# were not faster with 64 KiB or with 1 MiB.)
MIN_WAKEUP_BYTES = 256 * 1024
# A response is very long if more than this number of bytes is still missing. The thread then wakes up only
# when MIN_WAKEUP_BYTES have arrived.
VERY_LONG = 4 * 1024 * 1024
# A response is long if more than this number of bytes is still missing. One read then requests all missing
# bytes.
LONG = 128 * 1024
# Maximum time (ms) for which a read of a long response waits. Meanwhile, other connections are not read.
_WAIT_MS = 5

# The flags of `recv_into`: return the available bytes without waiting, or wait until the buffer is full.
# `prepare` limits the wait. On other systems than Linux, all reads are non-blocking.
if sys.platform == "linux":
    NOW, ALL = socket.MSG_DONTWAIT, socket.MSG_WAITALL
else:
    NOW = ALL = 0


def prepare(sock: socket.socket) -> None:
    """Prepare a connected socket, so that the flags of each read determine whether that read blocks."""
    if ALL:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, _WAIT_MS * 1000))
        sock.setblocking(True)


def receive(sock: socket.socket, room: memoryview) -> tuple[int, bool]:
    """Receive into `room`. Return the byte count (0: end of stream), and whether more may be available.

    `room` is the buffer for the missing bytes of a response. If the response is long, the call waits for its
    bytes, but at most `_WAIT_MS`. Otherwise the call does not wait.
    """
    requested = len(room)
    if not ALL or requested <= LONG:
        size = sock.recv_into(room, 0, NOW)
    elif requested <= VERY_LONG:
        size = sock.recv_into(room, 0, ALL)
    else:
        # With SO_RCVLOWAT, the kernel wakes the thread only when MIN_WAKEUP_BYTES have arrived. So a thread
        # that waited for fewer bytes, the last ones of the response, would sleep until `_WAIT_MS` has passed.
        # Therefore this read does not request the last MIN_WAKEUP_BYTES of the response.
        requested -= MIN_WAKEUP_BYTES
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, MIN_WAKEUP_BYTES)
        try:
            size = sock.recv_into(room[:requested], 0, ALL)
        finally:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
    return size, size == requested
