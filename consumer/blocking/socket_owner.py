"""Which thread reads the sockets: the client's own thread, or over TLS the application's, while it waits
for data.

Without TLS the client's thread always reads, ahead of the application. Decrypting TLS takes CPU time as well.
Two threads would take the interpreter from each other at each TLS record, and on two CPUs they would run
where the broker could encrypt the next record. So over TLS the application's thread reads what it waits for
(bulk reads 1.1 to 1.3 times as fast, `benchmarks.security`). The client's thread reads while the application
is away, or waits for something else.

    client's thread    acquire()                 read, apply, read ..., until `requested`: hand_over()
    application        borrow() -> read, apply -> give_back()

A thread that gave the sockets back may borrow them again within AWAY_S. After that the client's thread reads.
Only `acquire` waits. Ctrl-C interrupts none of these methods, because the callers hold signals (`Held`).
"""

from __future__ import annotations

import threading
import time

AWAY_S = 0.02
"""Seconds for which the application may be away after it has read, before the client's thread reads again."""


class SocketOwner:
    """At most one thread owns the sockets: only that thread may read them, or write to them."""

    def __init__(self) -> None:
        # Set by a thread of the application that wants to read while the client's thread owns the sockets.
        self.requested = False
        self.borrower = 0  # the application's thread that owns the sockets
        self._taken = False
        self._recalled = False  # The client's thread is the next owner.
        self._asleep = False  # The client's thread waits for the borrower, without a limit.
        self._away_until = 0.0
        # Reentrant, because a client that is dropped recalls the sockets in the thread that drops it.
        self._lock = threading.RLock()
        self._bell = threading.Lock()
        self._bell.acquire()

    # ---- the client's own thread

    def acquire(self) -> None:
        """Wait until the sockets are free, and either recalled or not used by the application for AWAY_S."""
        while (seconds := self._try_acquire()) != 0:
            self._bell.acquire(timeout=seconds)

    def _try_acquire(self) -> float:
        """Return 0 on success, else the seconds to wait; -1 for until the bell rings."""
        with self._lock:
            if self._taken:
                self._asleep = True
                return -1
            seconds = self._away_until - time.monotonic()
            if seconds > 0 and not self._recalled:
                return seconds
            self._taken, self._recalled = True, False
            return 0

    def hand_over(self) -> None:
        """Release the sockets for the thread that requested them."""
        with self._lock:
            self._taken = self.requested = False
            self._away_until = time.monotonic() + AWAY_S

    # ---- other threads

    def borrow(self, *, to_read: bool = True) -> bool:
        """Take the sockets if they are free.

        False: another thread owns them, or the client's thread was recalled. If the client's thread owns
        them and the caller wants to read, then the caller is next, and has to wake the client's thread.
        """
        with self._lock:
            if self._recalled:
                return False
            if self._taken:
                self.requested = self.requested or (to_read and not self.borrower)
                return False
            self._taken = True
            self.borrower = threading.get_ident()
            return True

    def give_back(self, *, has_read: bool = True) -> None:
        """Release the sockets; a thread that has read may borrow them again within AWAY_S."""
        with self._lock:
            self._taken, self.borrower = False, 0
            if has_read:
                self._away_until = time.monotonic() + AWAY_S
            if self._asleep:
                self._ring()

    def recall(self) -> None:
        """Let the client's thread own the sockets as soon as they are free, and withdraw all requests.

        A request that outlived the recall would make the client's thread hand over before it has read; if the
        caller then recalls again, neither thread ever reads.
        """
        with self._lock:
            self.requested = False
            self._recalled = not self._taken or self.borrower != 0
            self._ring()

    def _ring(self) -> None:
        self._asleep = False
        if self._bell.locked():
            self._bell.release()
