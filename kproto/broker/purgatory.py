"""The delayed requests of a broker.

A delayed request waits for a change of a partition or fetch session, or for its deadline.

As in Kafka's DelayedOperationPurgatory, a change in a partition or session checks only the requests that wait
for this partition or session.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ..deadlines import Deadlines
from .call import DelayedRequest
from .fetch_sessions import FetchSession
from .topics import Partition


class _Entry(NamedTuple):
    # The sequence number of the request. Entries are sorted by it, so the oldest request comes first.
    number: int
    request: DelayedRequest
    # The partitions and sessions under which `_watchers` has the request. They are stored here because the
    # caller may change `request.waits_for`.
    watched: frozenset[Partition | FetchSession]


class Purgatory:
    """The delayed requests of a broker, at most one per connection."""

    __slots__ = ("_deadlines", "_entries", "_last_number", "_watchers")

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        # Partition or session -> the connections whose requests wait for its next change.
        self._watchers: dict[Partition | FetchSession, dict[int, None]] = {}
        self._deadlines: Deadlines[int] = Deadlines()
        self._last_number = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, request: DelayedRequest) -> None:
        """Add a request, which stays until `remove` is called."""
        self._last_number += 1
        self._add_entry(_Entry(self._last_number, request, frozenset(request.waits_for)))
        self._deadlines.set(request.call.conn, request.deadline)

    def update(self, request: DelayedRequest) -> None:
        """Replace the watched partitions and sessions of a request with its current `waits_for`."""
        entry, watched = self._entries[request.call.conn], frozenset(request.waits_for)
        if entry.watched != watched:
            self._remove_watches(entry)
            self._add_entry(entry._replace(watched=watched))

    def remove(self, conn: int) -> None:
        """Remove the delayed request of a connection, if it has one."""
        entry = self._entries.pop(conn, None)
        if entry is not None:
            self._remove_watches(entry)
            self._deadlines.drop(conn)

    def waiting_for(self, changed: Iterable[Partition | FetchSession]) -> list[DelayedRequest]:
        """Return the requests that wait for one of these partitions or sessions, the oldest first."""
        entries = {conn: self._entries[conn] for key in changed for conn in self._watchers.get(key, ())}
        return [entry.request for entry in sorted(entries.values())]

    def expired(self, now: int) -> list[DelayedRequest]:
        """Return the requests whose deadline has passed, each only once. The caller removes them."""
        return [self._entries[conn].request for conn in list(self._deadlines.take(now))]

    def next_deadline(self) -> int | None:
        """Return the earliest deadline (ms) of a delayed request; None if no request is delayed."""
        return self._deadlines.earliest()

    def _add_entry(self, entry: _Entry) -> None:
        conn = entry.request.call.conn
        self._entries[conn] = entry
        for key in entry.watched:
            self._watchers.setdefault(key, {})[conn] = None

    def _remove_watches(self, entry: _Entry) -> None:
        for key in entry.watched:
            connections = self._watchers[key]
            del connections[entry.request.call.conn]
            if not connections:
                del self._watchers[key]
