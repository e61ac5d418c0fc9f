"""Whose exchange it is: a name for each member, where only ids and connections are seen."""

from __future__ import annotations

from typing import Any

from .exchanges import Exchange

_OWN = {"JoinGroup", "SyncGroup", "Heartbeat"}  # What only a member itself asks: the connection is its own.


class Names:
    """A member is its client id; of several with one client id, all but the first get a number.

    A member that gets a new member id on the connection of its old one keeps its name. An exchange that names
    no member is its connection's, or else the first one's with its client id.
    """

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], str] = {}
        self._connections: dict[int, str] = {}
        self._taken: dict[str, set[str]] = {}

    def of(self, exchange: Exchange) -> str:
        """The name of who asked this."""
        request: Any = exchange.request
        response: Any = exchange.response
        group = getattr(request, "group_id", None)
        member_id = getattr(request, "member_id", "") or getattr(response, "member_id", "")
        base = exchange.client or "client"
        if not group or not member_id:
            return self._connections.get(exchange.connection, base)
        name = self.member(group, member_id, base, self._connections.get(exchange.connection))
        if exchange.api in _OWN:
            self._connections[exchange.connection] = name
        return name

    def member(self, group: str, member_id: str, base: str = "client", known: str | None = None) -> str:
        """The name of a member id; `known` is what it is called if it is new."""
        name = self._members.get((group, member_id))
        if name is None:
            taken = self._taken.setdefault(group, set())
            name, number = known or base, 2
            while known is None and name in taken:
                name, number = f"{base} ({number})", number + 1
            taken.add(name)
            self._members[group, member_id] = name
        return name
