"""The history of groups, derived from the exchanges of their members with the coordinator.

Rules:

* `MemberNames` names the members: by client id, with a number if several members have the same client id.
* A member owns a partition from the SyncGroup response that assigns it until a JoinGroup whose subscription
  no longer contains it, a LeaveGroup, or an error code that removes the member.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..group.subscription import Assignment, Subscription, TopicPartition
from .exchanges import Exchange
from .member_names import MemberNames
from .timeline import GroupEvent, Kind

_GONE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}


class GroupHistory:
    """Collects exchanges, and derives the events of each group."""

    def __init__(self, names: MemberNames | None = None) -> None:
        self._names = names or MemberNames()
        self.events: dict[str, list[GroupEvent]] = {}
        self._owned: dict[tuple[str, str], set[TopicPartition]] = {}

    def add(self, exchange: Exchange) -> None:
        """Add an exchange, and record the events that it implies."""
        handler = getattr(self, f"_{exchange.api.lower()}", None)
        if handler is not None and exchange.request is not None:
            handler(exchange, exchange.request, exchange.response)

    def lines(self, began: int) -> list[str]:
        """Format each group's events, one event per line, with times in seconds since `began` (ms)."""
        lines: list[str] = []
        for group, events in sorted(self.events.items()):
            lines += ["", f"group {group}"]
            for event in sorted(events, key=lambda event: event.at):
                partitions = " ".join(map(str, event.partitions))
                columns = [f"{(event.at - began) / 1000:9.3f}", f"{event.member:<22}", f"{event.kind:<9}"]
                if event.generation >= 0:
                    columns.append(f"generation {event.generation}")
                lines.append(" ".join([*columns, partitions, event.reason]).rstrip())
        return lines

    def all(self) -> list[GroupEvent]:
        """Return the events of all groups, in order of time."""
        return sorted(
            (event for group in self.events.values() for event in group), key=lambda event: event.at
        )

    # ---- one method per API

    def _joingroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        group = request.group_id
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        name = self._names.of(exchange)
        is_known = (group, name) in self._owned
        owned = self._owned.setdefault((group, name), set())
        still_owned = owned & _owned(request)
        if owned - still_owned:
            self._note(group, exchange.asked_at, "revoked", name, owned - still_owned, reason="joins again")
            owned &= still_owned
        principal = f"as {exchange.principal}" if exchange.principal and not is_known else ""
        reason = ", ".join(filter(None, [principal, request.reason]))
        self._note(group, exchange.asked_at, "rejoining", name, reason=reason)

    def _syncgroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        if response is None or response.error_code:
            return
        group, name = request.group_id, self._names.of(exchange)
        try:
            assigned = set(Assignment.decode(response.assignment).partitions)
        except DecodeError:
            return
        owned = self._owned.setdefault((group, name), set())
        at = exchange.answered_at or exchange.asked_at
        if owned - assigned:
            self._note(group, at, "revoked", name, owned - assigned, request.generation_id)
        self._note(group, at, "assigned", name, assigned - owned, request.generation_id)
        owned.clear()
        owned |= assigned

    def _heartbeat(self, exchange: Exchange, request: Any, response: Any) -> None:
        if response is not None and response.error_code in _GONE:
            name = self._names.of(exchange)
            owned = self._owned.pop((request.group_id, name), set())
            if owned:
                reason = ErrorCode(response.error_code).name
                self._note(request.group_id, exchange.asked_at, "lost", name, owned, reason=reason)

    def _leavegroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        ids = [member.member_id for member in request.members] or [request.member_id]
        for member_id in ids:
            name = self._names.member(request.group_id, member_id, exchange.client or "client")
            self._owned.pop((request.group_id, name), None)
            self._note(request.group_id, exchange.asked_at, "left", name)

    # ---- internals

    def _note(
        self,
        group: str,
        at: int,
        kind: Kind,
        member: str,
        partitions: set[TopicPartition] | None = None,
        generation: int = -1,
        reason: str = "",
    ) -> None:
        event = GroupEvent(at, kind, member, generation, tuple(sorted(partitions or ())), reason)
        self.events.setdefault(group, []).append(event)


def _owned(request: Any) -> set[TopicPartition]:
    """Return the owned partitions in a JoinGroup's subscription. With the eager protocol there are none."""
    for protocol in request.protocols:
        try:
            return set(Subscription.decode(protocol.metadata).owned)
        except DecodeError:
            continue
    return set()
