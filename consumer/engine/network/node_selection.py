"""Where a call for any broker goes, of all the addresses that a client knows.

Rules that hold here:

* The least busy one that answers; else one that is being tried; else the next one that this call hasn't
  tried, in turns.
* Bootstrap addresses come last: so a client whose brokers have all moved finds them again there, if it
  `recovers` (KIP-899).
* It doesn't stand behind a connection that takes long to be made: it goes elsewhere then, if there is an
  elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..metadata import ClusterView
from .connection import Call, Connection
from .nodes import Address, Peers

# How long a call for any broker waits for a connection to be made before it goes elsewhere: an address that
# is up answers a SYN at once, or a second later where the first one was lost.
HASTE_MS = 1_500


class Choice:
    """One client's addresses: `view` has those of the brokers, `lanes` the connections that there are."""

    def __init__(
        self,
        view: ClusterView,
        bootstrap: Sequence[Address],
        *,
        recovers: bool,
        peers: Peers,
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
    return connection.deadline - connection.patience + HASTE_MS
