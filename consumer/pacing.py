"""When a socket is worth a look: in the middle of a long answer not for every packet.

The system wakes whoever waits for a socket as soon as enough has come (SO_RCVLOWAT), and always at its end.
A look costs as much as opening 32 KiB of TLS does, and packets come one by one.
"""

from __future__ import annotations

import contextlib
import socket

from .engine.transport import COMING_S

AT_ONCE = 256 * 1024
"""Bytes that are waited for at most, however long the answer is."""

LATE_S = COMING_S / 2
"""Seconds after which less is enough, too: somebody must say that a slow answer goes on coming."""

TLS_RECORD = 17 * 1024
"""What one TLS record takes at most: so much of an answer may have come, and can't be read yet."""


class Pace:
    """How many bytes must have come before one socket is looked at."""

    __slots__ = ("_least",)

    def __init__(self) -> None:
        self._least = 1

    def expect(self, sock: socket.socket, missing: int) -> bool:
        """So many bytes of an answer are missing, 0 if that isn't known. Whether less than all that is waited
        for should be looked at after `LATE_S`: call `expect(sock, 0)` then."""
        least = max(1, min(missing, AT_ONCE))
        if least != self._least:
            with contextlib.suppress(OSError):  # dead already, or a system that has no such option
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, least)
            self._least = least
        return least > 1
