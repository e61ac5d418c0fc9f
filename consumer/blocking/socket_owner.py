"""Who looks at the sockets: the client's own thread, or over TLS the application's, while it waits for what
they bring.

Without TLS the own thread always does, and reads ahead while the application computes. Opening TLS is
computing, too: two threads take the interpreter from each other at each record of it, and on two CPUs they
sit where the broker would seal the next. So there the application's thread reads what it waits for (bulk 1.1
to 1.3 times as fast, `benchmarks.security`), and the own thread has the rest: whatever comes while the
application is away, or waits for something else.

    own thread      sit()                     look, happen, look ..., until somebody has `wanted` it: stand()
    application     take() -> look, happen -> leave()

Whoever took it back then looks for the next AWAY_S alone; who stays away longer finds the own thread in it.
Nothing here waits but `sit`, and nothing here is divided by Ctrl-C: the callers hold signals (`Held`).
"""

from __future__ import annotations

import threading
import time

AWAY_S = 0.02
"""So long, after it looked, the application's thread may be away before the own one looks again."""


class Seat:
    """At most one thread has it: only that one may look at the sockets, or write to them."""

    def __init__(self) -> None:
        self.wanted = False  # by a thread of the application, while the own one has it
        self.guest = 0  # the application's thread that has it
        self._taken = False
        self._called = False  # the own thread is the next
        self._sleeps = False  # the own thread waits for the guest, however long that takes
        self._away_until = 0.0
        self._lock = threading.RLock()  # a client that is dropped calls, wherever its thread is
        self._bell = threading.Lock()
        self._bell.acquire()

    # ---- the client's own thread

    def sit(self) -> None:
        """Waits until it is free, and the application has been away for a while, or `call`s."""
        while (left := self._sat()) != 0:
            self._bell.acquire(timeout=left)

    def _sat(self) -> float:
        with self._lock:
            if self._taken:
                self._sleeps = True
                return -1
            left = self._away_until - time.monotonic()
            if left > 0 and not self._called:
                return left
            self._taken, self._called = True, False
            return 0

    def stand(self) -> None:
        """Leaves it to who `wanted` it."""
        with self._lock:
            self._taken = self.wanted = False
            self._away_until = time.monotonic() + AWAY_S

    # ---- other threads

    def take(self, *, to_look: bool = True) -> bool:
        """False: somebody has it. Where that is the own thread (or will be), who wants to look is next; and
        he has to wake it."""
        with self._lock:
            if self._taken or self._called:
                self.wanted = self.wanted or (to_look and not self.guest)
                return False
            self._taken = True
            self.guest = threading.get_ident()
            return True

    def leave(self, *, looked: bool = True) -> None:
        with self._lock:
            self._taken, self.guest = False, 0
            if looked:
                self._away_until = time.monotonic() + AWAY_S
            if self._sleeps:
                self._ring()

    def call(self) -> None:
        """The own thread takes it as soon as it is free: nobody else looks for what comes next."""
        with self._lock:
            self._called = True
            self._ring()

    def _ring(self) -> None:
        self._sleeps = False
        if self._bell.locked():
            self._bell.release()
