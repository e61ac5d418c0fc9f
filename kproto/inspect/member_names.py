"""Find readable names for the members of groups.

Exchanges identify members only by member ids and connections.
"""

from __future__ import annotations

from typing import Any

from .exchanges import Exchange

# Requests that only the member itself sends. Their connection is the member's connection. An admin client may
# send the other group requests, such as LeaveGroup and OffsetCommit, for a member.
_MEMBER_ONLY_APIS = {"JoinGroup", "SyncGroup", "Heartbeat"}


class MemberNames:
    """Names each member by its client id, with a number if another member has the same client id.

    A member that gets a new member id on the same connection keeps its name. An exchange without a member id
    gets the name of the member of its connection.

    An exchange on a connection without a member gets the client id as its name. The first member with this
    client id has the same name.
    """

    def __init__(self) -> None:
        # Maps (group, member id) to the member's name.
        self._names: dict[tuple[str, str], str] = {}
        self._names_by_connection: dict[int, str] = {}
        # Maps a group to the names of its members.
        self._used_names: dict[str, set[str]] = {}

    def of(self, exchange: Exchange) -> str:
        """Return the name of the member that sent the request, and record the name for its member id.

        If only members send requests of this API (`_MEMBER_ONLY_APIS`), the name is also recorded for the
        connection.
        """
        request: Any = exchange.request
        response: Any = exchange.response
        group = getattr(request, "group_id", None)
        member_id = getattr(request, "member_id", "") or getattr(response, "member_id", "")
        base = exchange.client or "client"
        if not group or not member_id:
            return self._names_by_connection.get(exchange.connection, base)
        name = self.member(group, member_id, base, self._names_by_connection.get(exchange.connection))
        if exchange.api in _MEMBER_ONLY_APIS:
            self._names_by_connection[exchange.connection] = name
        return name

    def known(self, group: str, member_id: str) -> str | None:
        """Return the name of a member id, or None if no exchange has contained it."""
        return self._names.get((group, member_id))

    def member(self, group: str, member_id: str, base: str = "client", known: str | None = None) -> str:
        """Return the name of a member id, and record the name of a new member id.

        A new member id gets the name `known`. If `known` is None, the name is `base`. A number follows `base`
        if another member of the group already has this name.
        """
        name = self._names.get((group, member_id))
        if name is None:
            names = self._used_names.setdefault(group, set())
            name, number = known or base, 2
            while known is None and name in names:
                name, number = f"{base} ({number})", number + 1
            names.add(name)
            self._names[group, member_id] = name
        return name
