"""The history of groups, derived from the exchanges of their members with the coordinator.

Rules:

* `MemberNames` names a member by its client id. A number follows if several members have the same client id.

* A member's ownership of a partition begins with the SyncGroup response that assigns the partition. The
  ownership ends with LeaveGroup, with a JoinGroup that does not list the partition as owned, or with a
  SyncGroup response that does not assign it.

* An ownership also ends when an error code shows that the member was removed, when the coordinator reports
  the removal, and when the connection on which the member sends group requests ends.

* The end of a connection does not end the ownership of a member that continues on another connection.

* Each generation has an event with its cause: see `rebalance_causes`. If `add_notice` is called, removals and
  causes are those that the coordinator reports. Otherwise both are derived from the exchanges.
"""

from __future__ import annotations

from typing import Any

from ..error_codes import ErrorCode
from ..errors import DecodeError
from ..group.classic.coordinator.state import GenerationStarted, MemberRemoved
from ..group.protocol import GroupNotice
from ..group.subscription import Assignment, Subscription, TopicPartition
from .exchanges import Exchange
from .member_names import MemberNames
from .rebalance_causes import RebalanceCauses, SeenMember, named
from .timeline import GroupEvent, Kind

_MEMBER_APIS = {"JoinGroup", "SyncGroup", "Heartbeat", "OffsetCommit"}
_REMOVAL_CODES = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.FENCED_INSTANCE_ID}


class GroupHistory:
    """Collects exchanges, and derives the events of each group."""

    def __init__(self, names: MemberNames | None = None) -> None:
        self._names = names or MemberNames()
        self.events: dict[str, list[GroupEvent]] = {}
        # Maps (group, member name) to the partitions that the member owns.
        self._owned: dict[tuple[str, str], set[TopicPartition]] = {}
        self._causes: dict[str, RebalanceCauses] = {}
        self._partition_counts: dict[str, int] = {}
        # Maps (group, member id) to the member's event `disconnected`. The event is deleted if the member
        # sends a request later.
        self._disconnections: dict[tuple[str, str], GroupEvent] = {}
        # Maps a group to the removals that the coordinator reported, as (time, member id, reason).
        self._reported_removals: dict[str, list[tuple[int, str, str]]] = {}
        self._has_notices = False
        self._new_generations: list[tuple[str, GroupEvent]] = []

    def add(self, exchange: Exchange) -> None:
        """Add an exchange, and record the events that it implies."""
        if exchange.api == "Metadata":
            self._on_metadata(exchange.response)
        request: Any = exchange.request
        if request is None or not isinstance(getattr(request, "group_id", None), str):
            return
        self._record_activity(exchange, request, exchange.response)
        # The handlers are the methods of the section "one method per API".
        handler = getattr(self, f"_on_{exchange.api.lower()}", None)
        if handler is not None:
            handler(exchange, request, exchange.response)

    def add_disconnection(self, connection: int, at: int) -> None:
        """Record that a client's connection ended at `at` (ms).

        Each member that used this connection gets an event `disconnected`, which ends the member's ownership
        of partitions. The event is deleted if the member later sends a request on another connection.
        """
        for group, causes in self._causes.items():
            for member in causes.members.values():
                if member.connection == connection and not member.is_gone and member.disconnected_at is None:
                    member.disconnected_at = at
                    reason = "its connection ended without LeaveGroup"
                    event = self._add_event(group, at, "disconnected", member.name, reason=reason)
                    self._disconnections[group, member.member_id] = event

    def add_notice(self, notice: GroupNotice, at: int) -> None:
        """Record a notice of the embedded broker's coordinator. `at` is in ms of the clock that the exchanges
        use.
        """
        self._has_notices = True
        if isinstance(notice, GenerationStarted):
            generation = self._get_or_add_causes(notice.group_id).generation(notice.generation, at)
            generation.reported = notice.reasons
        elif isinstance(notice, MemberRemoved):
            entry = (at, notice.member_id, notice.reason)
            self._reported_removals.setdefault(notice.group_id, []).append(entry)

    def take_generations(self) -> list[tuple[str, GroupEvent]]:
        """Return the generations whose cause was determined since the last call.

        Each item is a pair (group name, event). The event describes the generation.
        """
        generations, self._new_generations = self._new_generations, []
        return generations

    def finish(self) -> None:
        """Determine the causes of the generations for which no assignment was seen."""
        for group, causes in self._causes.items():
            for number in sorted(causes.generations):
                self._record_cause(group, number)
            self._add_reported_removals(group)

    def lines(self, began: int) -> list[str]:
        """Format each group's events, one event per line, with times in seconds since `began` (ms)."""
        self.finish()
        lines: list[str] = []
        for group, events in sorted(self.events.items()):
            lines += ["", f"group {group}"]
            for event in sorted(events, key=lambda event: event.at):
                seconds = f"{(event.at - began) / 1000:9.3f}"
                if event.kind == "generation":
                    lines.append(f"{seconds} {'':<22} generation {event.generation}: {event.reason}")
                    continue
                partitions = " ".join(map(str, event.partitions))
                columns = [seconds, f"{event.member:<22}", f"{event.kind:<9}"]
                if event.generation >= 0:
                    columns.append(f"generation {event.generation}")
                lines.append(" ".join([*columns, partitions, event.reason]).rstrip())
        return lines

    def all(self) -> list[GroupEvent]:
        """Return the events of all groups, in order of time."""
        self.finish()
        return sorted(
            (event for group in self.events.values() for event in group), key=lambda event: event.at
        )

    # ---- one method per API

    def _on_joingroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        group = request.group_id
        causes = self._get_or_add_causes(group)
        if response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            causes.add_issued_id(response.member_id)
            return
        name = self._names.of(exchange)
        is_known = (group, name) in self._owned
        owned = self._owned.setdefault((group, name), set())
        still_owned = owned & _owned_partitions(request)
        if owned - still_owned:
            self._add_event(
                group, exchange.asked_at, "revoked", name, owned - still_owned, reason="joins again"
            )
            owned &= still_owned
        principal = f"as {exchange.principal}" if exchange.principal and not is_known else ""
        reason = ", ".join(filter(None, [principal, request.reason]))
        self._add_event(group, exchange.asked_at, "rejoining", name, reason=reason)
        if response is not None and not response.error_code:
            # A new generation ends the earlier ones, so the causes of the earlier generations are final.
            if response.generation_id not in causes.generations:
                for earlier in sorted(causes.generations):
                    self._record_cause(group, earlier)
            if (member := causes.members.get(response.member_id)) is not None:
                self._remove_replaced(group, causes, member)
                member.session_timeout_ms = request.session_timeout_ms
                causes.add_join(member, exchange.asked_at, request, response)

    def _on_syncgroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        if response is None or response.error_code:
            self._on_error(exchange, request, response)
            return
        group, name = request.group_id, self._names.of(exchange)
        at = exchange.answered_at or exchange.asked_at
        self._get_or_add_causes(group).generation(request.generation_id, at).synced.add(request.member_id)
        self._record_cause(group, request.generation_id)
        try:
            assigned = set(Assignment.decode(response.assignment).partitions)
        except DecodeError:
            return
        owned = self._owned.setdefault((group, name), set())
        if owned - assigned:
            self._add_event(group, at, "revoked", name, owned - assigned, request.generation_id)
        self._add_event(group, at, "assigned", name, assigned - owned, request.generation_id)
        owned.clear()
        owned |= assigned

    def _on_heartbeat(self, exchange: Exchange, request: Any, response: Any) -> None:
        self._on_error(exchange, request, response)

    def _on_leavegroup(self, exchange: Exchange, request: Any, response: Any) -> None:
        group = request.group_id
        causes = self._get_or_add_causes(group)
        entries = [(member.member_id, member.group_instance_id, member.reason) for member in request.members]
        for member_id, instance_id, reason in entries or [(request.member_id, None, None)]:
            if not member_id and instance_id is not None:
                ids = [m.member_id for m in causes.members.values() if m.instance_id == instance_id]
                member_id = ids[-1] if ids else ""
            name = self._names.member(group, member_id, exchange.client or "client")
            if (member := causes.members.get(member_id)) is not None:
                member.is_gone = True
            self._owned.pop((group, name), None)
            self._add_event(group, exchange.asked_at, "left", name, reason=reason or "")
            causes.add_departure(exchange.asked_at, name, reason)

    # ---- internals

    def _on_metadata(self, response: Any) -> None:
        for topic in () if response is None else response.topics:
            if topic.name and not topic.error_code:
                self._partition_counts[topic.name] = len(topic.partitions)

    def _get_or_add_causes(self, group: str) -> RebalanceCauses:
        """Return the `RebalanceCauses` of the group, which are created for a new group."""
        causes = self._causes.get(group)
        if causes is None:
            causes = self._causes[group] = RebalanceCauses(
                lambda member_id: self._member_name(group, member_id), self._partition_counts
            )
        return causes

    def _member_name(self, group: str, member_id: str) -> str:
        return self._names.known(group, member_id) or member_id

    def _record_activity(self, exchange: Exchange, request: Any, response: Any) -> None:
        """Record that a member is alive, and whether the response to it is REBALANCE_IN_PROGRESS.

        A member is added to the group by its first exchange without an error. If a later request shows that
        a member whose connection had ended is alive, the member's event `disconnected` is deleted.
        """
        member_id = getattr(request, "member_id", "") or getattr(response, "member_id", "")
        if not member_id or exchange.api not in _MEMBER_APIS:
            return
        group, code = request.group_id, _error_code(response)
        causes = self._get_or_add_causes(group)
        member = causes.members.get(member_id)
        if member is None:
            if response is None or code:
                return
            member = causes.members[member_id] = SeenMember(member_id, self._names.of(exchange))
        if exchange.api != "OffsetCommit":
            member.connection = exchange.connection
            member.instance_id = request.group_instance_id
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            member.is_asked_to_rejoin = True
        if response is not None and code in (0, ErrorCode.REBALANCE_IN_PROGRESS):
            member.last_exchange_at = exchange.answered_at or exchange.asked_at
            member.is_gone = False
            if member.disconnected_at is not None and exchange.asked_at >= member.disconnected_at:
                member.disconnected_at = None
                self.events[group].remove(self._disconnections.pop((group, member_id)))

    def _remove_replaced(self, group: str, causes: RebalanceCauses, member: SeenMember) -> None:
        """Record that a static member was replaced by a process with the same instance id."""
        for previous in causes.members.values() if member.instance_id is not None else ():
            if previous is not member and previous.instance_id == member.instance_id and not previous.is_gone:
                previous.is_gone = True
                reason = f"{previous.name} was replaced by another process with its instance id"
                self._add_event(group, member.last_exchange_at, "removed", previous.name, reason=reason)

    def _on_error(self, exchange: Exchange, request: Any, response: Any) -> None:
        """Record that the member lost its partitions, if the error code means that it was removed."""
        if response is None or response.error_code not in _REMOVAL_CODES:
            return
        name = self._names.of(exchange)
        owned = self._owned.pop((request.group_id, name), set())
        if owned:
            reason = ErrorCode(response.error_code).name
            self._add_event(request.group_id, exchange.asked_at, "lost", name, owned, reason=reason)

    def _record_cause(self, group: str, number: int) -> None:
        """Record the cause of generation `number`, and the members that were removed before it.

        A second call for the same generation has no effect.
        """
        causes = self._get_or_add_causes(group)
        generation = causes.generations[number]
        if generation.is_explained:
            return
        names = {member_id: self._member_name(group, member_id) for member_id in causes.members}
        generation.reported = named(generation.reported, names)
        if self._has_notices:
            self._add_reported_removals(group)
        cause, removed = causes.explain(generation)
        if not self._has_notices:
            for member in removed:
                if member.silent_since is not None and not member.is_disconnected:
                    self._add_event(
                        group, member.silent_since, "silent", member.name, reason="its last request"
                    )
                self._add_event(group, member.at, "removed", member.name, reason=member.reason)
        event = self._add_event(group, generation.at, "generation", "", None, number, cause)
        self._new_generations.append((group, event))

    def _add_reported_removals(self, group: str) -> None:
        """Record the reported removals, except of members that had already left.

        Each reported removal is recorded once.
        """
        causes = self._get_or_add_causes(group)
        for at, member_id, reason in self._reported_removals.pop(group, []):
            member = causes.members.get(member_id)
            if member is not None and not member.is_gone:
                (text,) = named([reason], {member_id: member.name})
                member.is_gone = True
                if member.disconnected_at is not None:
                    text += ", its connection had ended"
                if member.disconnected_at is None and member.last_exchange_at < at:
                    self._add_event(
                        group, member.last_exchange_at, "silent", member.name, reason="its last request"
                    )
                self._add_event(group, at, "removed", member.name, reason=text)

    def _add_event(
        self,
        group: str,
        at: int,
        kind: Kind,
        member: str,
        partitions: set[TopicPartition] | None = None,
        generation: int = -1,
        reason: str = "",
    ) -> GroupEvent:
        """Add an event to the group's events, and return it. `member` is the member's name."""
        event = GroupEvent(at, kind, member, generation, tuple(sorted(partitions or ())), reason)
        self.events.setdefault(group, []).append(event)
        return event


def _error_code(response: Any) -> int:
    """Return the error code of a response; 0 if it has no error, or if there is no response.

    If only the partitions in the response have error codes, return the first of these codes that is not 0.
    """
    if response is None:
        return 0
    if hasattr(response, "error_code"):
        return int(response.error_code)
    codes = (int(partition.error_code) for topic in response.topics for partition in topic.partitions)
    return next((code for code in codes if code), 0)


def _owned_partitions(request: Any) -> set[TopicPartition]:
    """Return the owned partitions in a JoinGroup's subscription.

    With the eager protocol the result is empty, because a member revokes all partitions before it rejoins.
    """
    for protocol in request.protocols:
        try:
            return set(Subscription.decode(protocol.metadata).owned)
        except DecodeError:
            continue
    return set()
