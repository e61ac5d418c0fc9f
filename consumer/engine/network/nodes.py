"""What is known of each address: when it may be tried again, and how long one waits for it.

* Why it failed the last time is known until a connection there is ready.
* After a failure it is left alone for a while that doubles from reconnect.backoff.ms to its maximum, each
  time a little more or less than that (the jitter of `backoff`), until a connection there is ready.
* Each silence in a row makes us twice as patient with what was not answered: so a slow broker is not asked in
  circles, however fast it answers something else. One that takes long to let us in (its login asks a
  directory) has twice as long for the next connection.
"""

from __future__ import annotations

from ..backoff import Backoff

Address = tuple[str, int]

SETUP = -1  # what no request asks: a connection


class Peers:
    """Every address that was tried."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        # How often in a row a connection failed there, when it may be tried again, and why it did.
        self._failures: dict[Address, tuple[int, int, str]] = {}
        # How often in a row it was silent to which request (its API key), or when a connection was made.
        self._silences: dict[tuple[Address, int], int] = {}
        # How long the last connection there took to be made.
        self._took: dict[Address, int] = {}

    def free_at(self, address: Address) -> int:
        """When it may be tried again."""
        return self._failures.get(address, (0, 0, ""))[1]

    def why(self, address: Address) -> str:
        """Why the last connection there failed; empty where none did."""
        return self._failures.get(address, (0, 0, ""))[2]

    def failed(self, address: Address, now: int, why: str) -> None:
        failures, _, _ = self._failures.get(address, (0, 0, ""))
        self._failures[address] = (failures + 1, now + self._backoff.after(failures), why)

    def ready(self, address: Address, took: int | None) -> None:
        """A connection is ready, `took` ms after it began; None for one that was before."""
        self._failures.pop(address, None)
        self._silences.pop((address, SETUP), None)
        if took is not None:
            self._took[address] = took

    def patience(self, address: Address, what: int, first: int, most: int) -> int:
        """How long to wait, where `first` is for a peer that was never silent to that."""
        return min(most, first << min(self._silences.get((address, what), 0), 8))

    def setup_patience(self, address: Address, first: int, most: int) -> int:
        """How long a connection may take to be made."""
        return min(most, max(self.patience(address, SETUP, first, most), 2 * self._took.get(address, 0)))

    def silent(self, address: Address, what: int) -> bool:
        """It was silent once more; True when it was before, too."""
        before = self._silences.get((address, what), 0)
        self._silences[address, what] = before + 1
        return before > 0

    def spoke(self, address: Address, what: int) -> None:
        self._silences.pop((address, what), None)
