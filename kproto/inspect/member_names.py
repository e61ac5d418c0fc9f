"""Name the members of groups in exchanges that show only member ids and connections."""

from __future__ import annotations

from typing import Any

from .exchanges import Exchange

# Only a member itself sends these requests, so the connection is its own.
_OWN = {"JoinGroup", "SyncGroup", "Heartbeat"}


class MemberNames:
    """Names each member by its client id. Further members with the same client id get a number.

    A member that gets a new member id on the same connection keeps its name. An exchange without a member id
    belongs to the member of its connection, or else to the first member with its client id.
    """

    def __init__(self) -> None:
        self._members: dict[tuple[str, str], str] = {}
        self._connections: dict[int, str] = {}
        self._taken: dict[str, set[str]] = {}

    def of(self, exchange: Exchange) -> str:
        """Return the name of the member that sent the request."""
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
        """Return the name of a member id. `known` is the name to give it if it is new."""
        name = self._members.get((group, member_id))
        if name is None:
            names = self._taken.setdefault(group, set())
            name, number = known or base, 2
            while known is None and name in names:
                name, number = f"{base} ({number})", number + 1
            names.add(name)
            self._members[group, member_id] = name
        return name
