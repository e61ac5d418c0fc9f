"""Decides which thread reads the sockets: the client's or the application's.

Without TLS the client's thread always reads, ahead of the application. With TLS, data must also be decrypted,
which takes CPU time. If the client's thread did this, it would compete with the application's thread for the
GIL at each TLS record. On two CPUs both threads would also take CPU time from the broker, which encrypts the
next record. So over TLS the application's thread reads the data for which it waits, which makes bulk reads
1.1 to 1.3 times as fast (`benchmarks.security`). While the application computes, or waits for something that
is not read from the sockets, the client's thread reads.

    client's thread    acquire()                 read, apply, read ..., until `requested`: hand_over()
    application        borrow() -> read, apply -> give_back()

For AWAY_S seconds after `give_back`, the sockets stay free for the application's threads, because one of them
will probably read again. After that time, or after `recall`, the client's thread takes them. Only `acquire`
blocks. Ctrl-C interrupts none of these methods, because the callers delay signals (`Held`).
"""

from __future__ import annotations

import threading
import time

# Seconds for which released sockets are kept for the application's threads, after one of these threads has
# read from them, or after the client's thread has handed them over.
AWAY_S = 0.02


class SocketOwner:
    """Records which thread owns the sockets. Only the owner may read them.

    Any thread may write to the sockets with `Sockets.write_at_once`.
    """

    def __init__(self) -> None:
        # Whether a thread of the application wants to read while the client's thread owns the sockets.
        self.requested = False
        # The id of the application's thread that owns the sockets; 0 if no such thread owns them.
        self.borrower = 0
        self._is_owned = False
        # Whether the client's thread must be the next owner.
        self._recalled = False
        # Whether the client's thread waits, without a timeout, until the owner releases the sockets.
        self._client_thread_waits = False
        # Until this time (s), the free sockets are kept for the application's threads.
        self._reserved_until = 0.0
        # The lock is reentrant, because the finalizer of a dropped client calls `recall`. Any thread may run
        # the finalizer at any time, even while it holds the lock.
        self._lock = threading.RLock()
        # The client's thread waits by acquiring this lock, and is woken by its release.
        self._wakeup = threading.Lock()
        self._wakeup.acquire()

    # ---- the client's own thread

    def acquire(self) -> None:
        """Wait until the client's thread may take the sockets, and take them.

        The client's thread may take the sockets if no thread owns them and one of two conditions holds:
        `recall` was called, or no thread has used the sockets for AWAY_S.
        """
        while (seconds := self._try_acquire()) != 0:
            self._wakeup.acquire(timeout=seconds)

    def _try_acquire(self) -> float:
        """Take the sockets and return 0; if they may not be taken yet, return how many seconds to wait.

        The result -1 means to wait until `_wake_client_thread` is called.
        """
        with self._lock:
            if self._is_owned:
                self._client_thread_waits = True
                return -1
            seconds = self._reserved_until - time.monotonic()
            if seconds > 0 and not self._recalled:
                return seconds
            self._is_owned, self._recalled = True, False
            return 0

    def hand_over(self) -> None:
        """Release the sockets for the thread that requested them."""
        with self._lock:
            self._is_owned = self.requested = False
            self._reserved_until = time.monotonic() + AWAY_S

    # ---- other threads

    def borrow(self, *, to_read: bool = True) -> bool:
        """Take the sockets if they are free and not recalled. Return whether they were taken.

        If the client's thread owns the sockets and the caller wants to read, the method sets `requested`. The
        caller must then wake the client's thread.
        """
        with self._lock:
            if self._recalled:
                return False
            if self._is_owned:
                self.requested = self.requested or (to_read and not self.borrower)
                return False
            self._is_owned = True
            self.borrower = threading.get_ident()
            return True

    def give_back(self, *, has_read: bool = True) -> None:
        """Release the sockets.

        If the caller has read from the sockets (`has_read`), the client's thread does not take them during
        the next `AWAY_S` seconds, unless `recall` is called.
        """
        with self._lock:
            self._is_owned, self.borrower = False, 0
            if has_read:
                self._reserved_until = time.monotonic() + AWAY_S
            if self._client_thread_waits:
                self._wake_client_thread()

    def recall(self) -> None:
        """Let the client's thread take the sockets as soon as they are free.

        The method also clears `requested`, with which an application's thread has requested the sockets. If
        `requested` stayed set, the client's thread would hand over the sockets before it reads them. If
        `recall` were then called repeatedly, neither thread would ever read.
        """
        with self._lock:
            self.requested = False
            client_thread_owns = self._is_owned and not self.borrower
            self._recalled = not client_thread_owns
            self._wake_client_thread()

    def _wake_client_thread(self) -> None:
        """End the wait of the client's thread in `acquire`, or its next wait. The lock must be held."""
        self._client_thread_waits = False
        if self._wakeup.locked():
            self._wakeup.release()
