"""The cause of each generation of a group, inferred from the exchanges of the members with the coordinator.

A proxy sees requests and responses, but not the coordinator's state. The cause is inferred by these rules:

1. The leader's JoinGroup response lists the members of the generation. A member that is not in the previous
  generation's list has joined. A member that is only in the previous list was removed, unless it sent
  LeaveGroup, or a member with the same instance id replaced it.

2. If at least the session timeout passed between the last exchange of a removed member and the start of the
  generation, the member's session has expired. Otherwise the member sent no SyncGroup in the previous
  generation, or did not rejoin in time.

3. A JoinGroup is a cause, unless the member sent it after receiving REBALANCE_IN_PROGRESS. A changed
  subscription is always a cause.

4. If the coordinator reports its own reasons, as the embedded broker does, they replace the inferred causes.

5. If no exchange explains a generation, its cause is `UNEXPLAINED`. For example, a member that is not
  connected through the proxy may have caused it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import DecodeError
from ..group.subscription import Subscription
from .timeline import CONSEQUENCES, UNEXPLAINED


@dataclass(slots=True)
class SeenMember:
    """What the proxy knows about a member. Times are in ms."""

    member_id: str
    name: str
    session_timeout_ms: int = 0
    connection: int = -1
    last_exchange_at: int = 0
    instance_id: str | None = None
    # The time at which the member's connection ended without LeaveGroup. None while the member is connected.
    disconnected_at: int | None = None
    # Whether the member has received REBALANCE_IN_PROGRESS and has not rejoined yet.
    is_asked_to_rejoin: bool = False
    # Whether the member has left, or the coordinator has removed it.
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class RemovedMember:
    """A member that the coordinator removed at time `at`.

    `silent_since` is the time of the member's last request or response if its session expired, otherwise
    None.
    """

    name: str
    at: int
    reason: str
    silent_since: int | None = None
    is_disconnected: bool = False


@dataclass(slots=True)
class SeenGeneration:
    """A generation, and the evidence for its cause: texts with their times in ms."""

    number: int
    at: int
    evidence: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    # Maps each member id to its subscribed topics, as listed in the leader's JoinGroup response. None if the
    # proxy did not see that response.
    topics: dict[str, frozenset[str]] | None = None
    instances: dict[str, str] = field(default_factory=dict[str, str])
    # The member ids whose SyncGroup succeeded.
    synced: set[str] = field(default_factory=set[str])
    # The reasons that the coordinator itself reported. They replace the causes inferred from `evidence`.
    reported: tuple[str, ...] = ()
    is_explained: bool = False


class RebalanceCauses:
    """The generations of one group.

    `name` returns the name of a member id. `partition_counts` maps each topic to its partition count in the
    last Metadata response.
    """

    def __init__(self, name: Callable[[str], str], partition_counts: Mapping[str, int]) -> None:
        self._name = name
        self._partition_counts = partition_counts
        self.members: dict[str, SeenMember] = {}
        self.generations: dict[int, SeenGeneration] = {}
        # LeaveGroup requests since the last generation, with their times.
        self._departures: list[tuple[int, str]] = []
        # The member ids that were issued to members that have not joined yet.
        self._issued_ids: set[str] = set()
        # The partition counts at the last call of `explain`. A later change is a cause of a rebalance.
        self._counts_before: dict[str, int] = {}

    def add_issued_id(self, member_id: str) -> None:
        """Record a member id that was issued with MEMBER_ID_REQUIRED."""
        self._issued_ids.add(member_id)

    def add_join(self, member: SeenMember, asked_at: int, request: Any, response: Any) -> None:
        """Record a successful JoinGroup as a cause, unless the coordinator asked the member to rejoin."""
        generation = self.generation(response.generation_id, member.last_exchange_at)
        is_new = not request.member_id or member.member_id in self._issued_ids
        self._issued_ids.discard(member.member_id)
        if response.members:
            generation.topics = {m.member_id: _subscribed_topics(m.metadata) for m in response.members}
            generation.instances = {
                m.member_id: m.group_instance_id for m in response.members if m.group_instance_id is not None
            }
        reason = request.reason or ""
        if reason.startswith(CONSEQUENCES):
            reason = ""
        has_known_instance = any(
            member.instance_id in earlier.instances.values()
            for earlier in self.generations.values()
            if earlier.number < generation.number
        )
        if is_new and has_known_instance:
            text = f"static member {member.name} restarted"
        elif is_new:
            text = f"{member.name} joined"
        elif not member.is_asked_to_rejoin:
            text = f"{member.name} rejoined"
        else:
            text = ""
        if text:
            generation.evidence.append((asked_at, f"{text}: {reason}" if reason else text))
        member.is_asked_to_rejoin = False

    def add_departure(self, at: int, name: str, reason: str | None) -> None:
        """Record a LeaveGroup."""
        self._departures.append((at, f"{name} left: {reason}" if reason else f"{name} left"))

    def generation(self, number: int, at: int) -> SeenGeneration:
        """Return the generation with this number, and record that it began no later than `at`."""
        generation = self.generations.setdefault(number, SeenGeneration(number, at))
        generation.at = min(generation.at, at)
        return generation

    def explain(self, generation: SeenGeneration) -> tuple[str, list[RemovedMember]]:
        """Return the cause of the generation, and the members that the coordinator removed before it.

        The removed members are marked as gone. Call this once per generation, in ascending order: a call
        uses the departures and the changes of partition counts since the previous call.
        """
        generation.is_explained = True
        earlier = [number for number in self.generations if number < generation.number]
        previous = self.generations[max(earlier)] if earlier else None
        evidence = list(generation.evidence)
        removed: list[RemovedMember] = []
        departures = [departure for departure in self._departures if departure[0] <= generation.at]
        self._departures = [departure for departure in self._departures if departure[0] > generation.at]
        if previous is not None and previous.number == generation.number - 1:
            evidence += departures
            if previous.topics is not None and generation.topics is not None:
                removed = self._remove_missing_members(previous, generation)
                evidence += [(member.at, member.reason) for member in removed]
                evidence += self._membership_changes(previous, generation)
        subscribed = frozenset[str]().union(*(generation.topics or {}).values())
        for topic in sorted(subscribed & self._counts_before.keys() & self._partition_counts.keys()):
            count_before, count = self._counts_before[topic], self._partition_counts[topic]
            if count_before != count:
                evidence.append(
                    (generation.at, f"topic {topic} has {count} partitions, it had {count_before}")
                )
        self._counts_before = dict(self._partition_counts)
        texts = [text for _, text in sorted(evidence, key=lambda item: item[0])]
        return "; ".join(dict.fromkeys(generation.reported or texts)) or UNEXPLAINED, removed

    def _remove_missing_members(
        self, previous: SeenGeneration, generation: SeenGeneration
    ) -> list[RemovedMember]:
        """Mark the members that are missing from the new generation as gone, and return them (rules 1 and 2).

        Members that left are not returned. Nor are static members that were replaced under their instance id.
        """
        assert previous.topics is not None
        assert generation.topics is not None
        removed: list[RemovedMember] = []
        kept_instances = set(generation.instances.values())
        for member_id in previous.topics.keys() - generation.topics.keys():
            member = self.members.get(member_id)
            if member is None or member.is_gone or previous.instances.get(member_id) in kept_instances:
                continue
            member.is_gone = True
            expired_at = member.last_exchange_at + member.session_timeout_ms
            if expired_at <= generation.at:
                reason = f"{member.name} sent nothing for {member.session_timeout_ms} ms"
                is_disconnected = member.disconnected_at is not None
                if is_disconnected:
                    reason += ", its connection had ended"
                silent_since = member.last_exchange_at
                removed.append(RemovedMember(member.name, expired_at, reason, silent_since, is_disconnected))
            elif member_id not in previous.synced:
                reason = f"{member.name} sent no SyncGroup in generation {previous.number}"
                removed.append(RemovedMember(member.name, generation.at, reason))
            else:
                reason = f"{member.name} did not rejoin in time"
                removed.append(RemovedMember(member.name, generation.at, reason))
        return removed

    def _membership_changes(
        self, previous: SeenGeneration, generation: SeenGeneration
    ) -> list[tuple[int, str]]:
        """Return (time, cause) of each changed subscription and each join that bypassed the proxy."""
        assert previous.topics is not None
        assert generation.topics is not None
        changes: list[tuple[int, str]] = []
        known_instances = set(previous.instances.values())
        for member_id, topics in generation.topics.items():
            previous_topics = previous.topics.get(member_id)
            if previous_topics is not None and previous_topics != topics:
                words = ", ".join(sorted(topics)) or "nothing"
                changes.append((generation.at, f"{self._name(member_id)} subscribed to {words}"))
            elif previous_topics is None and member_id not in self.members:
                is_restart = generation.instances.get(member_id) in known_instances
                verb = "restarted" if is_restart else "joined"
                changes.append((generation.at, f"{self._name(member_id)} {verb}"))
        return changes


def named(reasons: Sequence[str], names: Mapping[str, str]) -> tuple[str, ...]:
    """Replace the member ids in the coordinator's reasons with names.

    A coordinator's reason may end with a reason that a client sent. The client's reason is removed if it is a
    consequence of the rebalance instead of a cause (`CONSEQUENCES`).
    """
    result: list[str] = []
    for reason in reasons:
        for consequence in CONSEQUENCES:
            reason = reason.partition(f": {consequence}")[0]
        for member_id, name in names.items():
            reason = reason.replace(member_id, name)
        result.append(reason)
    return tuple(result)


def _subscribed_topics(metadata: bytes) -> frozenset[str]:
    """Return the topics of an encoded subscription; the result is empty if it cannot be decoded."""
    try:
        return frozenset(Subscription.decode(metadata).topics)
    except DecodeError:
        return frozenset()
