"""The requests that wait for something to happen in partitions, alone or those of a fetch session, or for
their time to be over.

Rule: who writes to a partition pays for those that wait for it, and not for the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..deadlines import Deadlines
from .call import DelayedRequest
from .fetch_sessions import FetchSession
from .topics import Partition


class _Place(NamedTuple):
    turn: int
    request: DelayedRequest
    until: frozenset[Partition | FetchSession]


class Purgatory:
    """Delayed requests, at most one per connection."""

    __slots__ = ("_deadlines", "_places", "_turn", "_who")

    def __init__(self) -> None:
        self._places: dict[int, _Place] = {}
        self._who: dict[Partition | FetchSession, dict[int, None]] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._turn = 0

    def __len__(self) -> int:
        return len(self._places)

    def add(self, request: DelayedRequest) -> None:
        """Let a request wait, until it is dropped."""
        self._turn += 1
        self._place(_Place(self._turn, request, frozenset(request.waits_for)))
        self._deadlines.set(request.call.conn, request.deadline)

    def update(self, request: DelayedRequest) -> None:
        """It waits on, perhaps for something else."""
        before, until = self._places[request.call.conn], frozenset(request.waits_for)
        if before.until != until:
            self._forget(before)
            self._place(before._replace(until=until))

    def remove(self, conn: int) -> None:
        """What this connection waits with, if anything, waits no longer."""
        place = self._places.pop(conn, None)
        if place is not None:
            self._forget(place)
            self._deadlines.drop(conn)

    def waiting_for(self, changed: Iterable[Partition | FetchSession]) -> list[DelayedRequest]:
        """Those that wait for one of these, in the order in which they came."""
        found = {conn: self._places[conn] for one in changed for conn in self._who.get(one, ())}
        return [place.request for place in sorted(found.values())]

    def expired(self, now: int) -> list[DelayedRequest]:
        """Those whose time is over; each is to be dropped."""
        return [self._places[conn].request for conn in list(self._deadlines.take(now))]

    def next_deadline(self) -> int | None:
        """When the first one's time is over."""
        return self._deadlines.earliest()

    def _place(self, place: _Place) -> None:
        conn = place.request.call.conn
        self._places[conn] = place
        for one in place.until:
            self._who.setdefault(one, {})[conn] = None

    def _forget(self, place: _Place) -> None:
        conn = place.request.call.conn
        for one in place.until:
            who = self._who[one]
            del who[conn]
            if not who:
                del self._who[one]
