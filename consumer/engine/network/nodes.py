"""What is known of each address: when it may be tried again, and how long one waits for it.

* Why it failed the last time is known until a connection there is ready.
* After a failure it is left alone for a while that doubles from reconnect.backoff.ms to its maximum, each
  time a little more or less than that (the jitter of `backoff`), until a connection there is ready.
* Each silence in a row makes us twice as patient with what was not answered: so a slow broker is not asked in
  circles, however fast it answers something else. One that takes long to let us in (its login asks a
  directory) has twice as long for the next connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..metadata.cluster import ClusterView
from ..timing import SLOW_CONNECT_MS, Backoff
from .connection import Call, Connection

Address = tuple[str, int]

SETUP = -1  # what no request asks: a connection


class NodeStates:
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


class NodeSelector:
    """One client's addresses: `view` has those of the brokers, `lanes` the connections that there are."""

    def __init__(
        self,
        view: ClusterView,
        bootstrap: Sequence[Address],
        *,
        recovers: bool,
        peers: NodeStates,
        lanes: Mapping[tuple[str, int, int], Connection],
    ) -> None:
        self._view, self._bootstrap, self._recovers = view, bootstrap, recovers
        self._peers, self._lanes = peers, lanes
        self._turn = 0

    def _known(self) -> list[Address]:
        return [(broker.host, broker.port) for broker in self._view.brokers.values()]

    def all(self) -> list[Address]:
        known = self._known()
        return list(dict.fromkeys([*known, *(self._bootstrap if self._recovers or not known else ())]))

    def untried(self, call: Call) -> list[Address]:
        return [address for address in self.all() if address not in call.tried]

    def of(self, call: Call, now: int) -> Address:
        """The address that this call goes to."""
        known, places = self._known(), self.untried(call)
        if not places:
            places = list(self._bootstrap) if self._recovers else self.all()
        ready = [
            (len(connection.in_flight), address)
            for address in places
            if (connection := self._lanes.get((*address, call.lane))) is not None
            and connection.ready
            and connection.quiet_until <= now
        ]
        if ready:
            return min(ready)[1]
        for address in places:
            opening = self._lanes.get((*address, call.lane))
            if opening is not None and not opening.ready and _late_at(opening) > now:
                return address
        self._turn += 1
        at = self._turn % len(known) if known and places[: len(known)] == known else 0
        turned = places[at:] + places[:at]
        free = [address for address in turned if self._peers.free_at(address) <= now]
        fresh = [address for address in free if (*address, call.lane) not in self._lanes]
        return (fresh or free or turned)[0]

    # ---- connections that take long to be made

    def leaves_at(self, connection: Connection) -> int | None:
        """When calls for any broker stop waiting for this connection to be made; None for never."""
        if connection.ready:
            return None
        free = [at for call in connection.waiting if (at := self._free_elsewhere(call)) is not None]
        return max(_late_at(connection), min(free)) if free else None

    def leaves(self, connection: Connection, call: Call, now: int) -> bool:
        """Whether this one, which waits there, goes elsewhere now."""
        if connection.ready or _late_at(connection) > now:
            return False
        free_at = self._free_elsewhere(call)
        return free_at is not None and free_at <= now

    def _free_elsewhere(self, call: Call) -> int | None:
        """When a call for any broker may be asked at another address than where it waits; None for never."""
        if call.node is not None:
            return None
        times: list[int] = []
        for address in self.untried(call):
            lane = self._lanes.get((*address, call.lane))
            if lane is not None and lane.ready:
                times.append(0)
            elif lane is None:
                times.append(self._peers.free_at(address))
        return min(times, default=None)


def _late_at(connection: Connection) -> int:
    """When this connection, which is being made, takes long."""
    return connection.deadline - connection.patience + SLOW_CONNECT_MS
