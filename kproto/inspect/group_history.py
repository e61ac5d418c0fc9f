"""The life of groups, as their members' exchanges with the coordinator tell it.

Rules that hold here:

* Who a member is, `Names` says: a client id, and a number where several have the same.
* A partition is a member's from the SyncGroup that gave it until the JoinGroup whose subscription doesn't own
  it any more, the LeaveGroup, or an error that says that the member is none.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..group.subscription import Assignment, Subscription, TopicPartition
from .exchanges import Exchange
from .member_names import Names
from .timeline import GroupEvent, Kind

_GONE = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}


class Lives:
    """Takes every exchange; has the events of each group."""

    def __init__(self, names: Names | None = None) -> None:
        self._names = names or Names()
        self.events: dict[str, list[GroupEvent]] = {}
        self._owned: dict[tuple[str, str], set[TopicPartition]] = {}

    def take(self, exchange: Exchange) -> None:
        """What this exchange changed."""
        read = getattr(self, f"_{exchange.api.lower()}", None)
        if read is not None and exchange.request is not None:
            read(exchange, exchange.request, exchange.response)

    def lines(self, began: int) -> list[str]:
        """Each group's events, a line each; their times are seconds since `began` (ms)."""
        found: list[str] = []
        for group, events in sorted(self.events.items()):
            found += ["", f"group {group}"]
            for event in sorted(events, key=lambda event: event.at):
                which = " ".join(map(str, event.partitions))
                words = [f"{(event.at - began) / 1000:9.3f}", f"{event.member:<22}", f"{event.kind:<9}"]
                if event.generation >= 0:
                    words.append(f"generation {event.generation}")
                found.append(" ".join([*words, which, event.reason]).rstrip())
        return found

    def all(self) -> list[GroupEvent]:
        """The events of all groups, in the order of time."""
        return sorted(
            (event for group in self.events.values() for event in group), key=lambda event: event.at
        )

    # ---- what each API tells

    def _joingroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        group = request.group_id
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return
        name = self._names.of(exchange)
        known = (group, name) in self._owned
        held = self._owned.setdefault((group, name), set())
        kept = held & _owned(request)
        if held - kept:
            self._note(group, exchange.asked_at, "revoked", name, held - kept, reason="joins again")
            held &= kept
        who = f"as {exchange.principal}" if exchange.principal and not known else ""
        reason = ", ".join(filter(None, [who, request.reason]))
        self._note(group, exchange.asked_at, "rejoining", name, reason=reason)

    def _syncgroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        if response is None or response.error_code:
            return
        group, name = request.group_id, self._names.of(exchange)
        try:
            assigned = set(Assignment.decode(response.assignment).partitions)
        except DecodeError:
            return
        held = self._owned.setdefault((group, name), set())
        at = exchange.answered_at or exchange.asked_at
        if held - assigned:
            self._note(group, at, "revoked", name, held - assigned, request.generation_id)
        self._note(group, at, "assigned", name, assigned - held, request.generation_id)
        held.clear()
        held |= assigned

    def _heartbeat(self, exchange: Exchange, request: Any, response: Any) -> None:
        if response is not None and response.error_code in _GONE:
            name = self._names.of(exchange)
            held = self._owned.pop((request.group_id, name), set())
            if held:
                why = ErrorCode(response.error_code).name
                self._note(request.group_id, exchange.asked_at, "lost", name, held, reason=why)

    def _leavegroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        ids = [member.member_id for member in request.members] or [request.member_id]
        for member_id in ids:
            name = self._names.member(request.group_id, member_id, exchange.client or "client")
            self._owned.pop((request.group_id, name), None)
            self._note(request.group_id, exchange.asked_at, "left", name)

    # ---- inside

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
    """What a JoinGroup's subscriptions still own: nothing in the eager protocol."""
    for protocol in request.protocols:
        try:
            return set(Subscription.decode(protocol.metadata).owned)
        except DecodeError:
            continue
    return set()
