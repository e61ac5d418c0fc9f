"""A group's timeline: the owner of each partition over time, and how long partitions stood still.

Rules:

1. Every event has a time in ms, and all times are from the same clock. An event that a member observed,
  or that affected the member, names the member.

2. A member owns a partition from `assigned` until one of `revoked`, `lost`, `left`, `killed`, `disconnected`
  (its connection ended) or `removed` (by the coordinator).

  An ownership ends at the latest when the partition's next ownership in a later generation starts. If two
  ownerships of a partition overlap, the group has assigned the partition twice.

  `revoked` is recorded when the application has released the partition, *before* the coordinator knows.
  `lost` is recorded when the member learns that its membership is lost, usually after the coordinator has
  removed it.

3. A partition stands still from the event `releasing` or `silent`, at which its owner stops delivering
  records. The standstill ends when the partition's next ownership starts. If neither event was recorded, the
  partition stands still from the end of the ownership.

  A cooperative owner continues to deliver the records of the partitions that it keeps, so these partitions
  do not stand still.

4. A standstill belongs to the generation in which the partition's next ownership starts.

  If the ownerships before and after the standstill have the same generation but different members, one member
  replaced the other without a rebalance. A returning static member does this. See `replacements`.

5. The reason of a `generation` event is the cause of the generation, reported by the coordinator or inferred
  by a proxy. Without such an event, the function `cause` infers the cause from the members' events.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..group.subscription import TopicPartition

UNEXPLAINED = "not seen: nothing that was observed explains it"
# JoinGroup reasons that are consequences of a rebalance, not its cause. A member sends the first one when it
# rejoins with the member id that it received (KIP-394), and the second one after a heartbeat response with
# REBALANCE_IN_PROGRESS.
CONSEQUENCES = ("need to re-join with the given member-id", "group is already rebalancing")

Kind = Literal[
    "started",
    "rejoining",
    "assigned",
    "releasing",
    "revoked",
    "lost",
    "left",
    "killed",
    # The connection that carried the member's group requests ended without a LeaveGroup request.
    "disconnected",
    # The coordinator removed the member.
    "removed",
    # From this time until `resumed`, no request from the member arrives.
    "silent",
    # A test has injected a fault for which no other kind exists.
    "fault",
    # A fault ended.
    "resumed",
    "generation",
    "grown",
    "ended",
]
# The kinds of events that end all ownerships of a member.
_DEPARTURE_KINDS = ("left", "killed", "disconnected", "removed")


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One event of a group.

    `member` is the name of the member. It is empty for `generation`, for `ended` (the end of the
    observation), and for events of the cluster: `grown` and some faults.
    """

    at: int
    kind: Kind
    member: str = ""
    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """The period from `start` to `end` (ms) in which `member` owned `partition`.

    The partition was assigned in `generation`.
    """

    partition: TopicPartition
    member: str
    generation: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Standstill:
    """The period from `start` to `end` (ms) in which no member read `partition` (rule 3).

    `is_new_partition` means that the partition was new and had no earlier owner.
    """

    partition: TopicPartition
    generation: int
    start: int
    end: int
    is_new_partition: bool = False
    before: str = ""
    # If the previous and the next ownership have the same generation, `before` is the previous owner and
    # `after` the next owner. Otherwise both are empty.
    after: str = ""

    @property
    def ms(self) -> int:
        return self.end - self.start


def ownerships(events: Iterable[GroupEvent]) -> list[Ownership]:
    """Return all ownerships, ordered by start. An ownership without an end lasts until the last event."""
    return _find_ownerships(events, as_members_know=False)


def ownership_verdict(events: Sequence[GroupEvent]) -> str:
    """Return a sentence that says whether a partition had two owners at the same time."""
    overlaps = len(overlapping_ownerships(ownerships(events)))
    unnoticed = len(overlapping_ownerships(_find_ownerships(events, as_members_know=True))) - overlaps
    text = f"a partition had two owners {overlaps} times" if overlaps else "no partition ever had two owners"
    if unnoticed > 0:
        text += (
            f" ({unnoticed} times a removed member did not know yet that it was removed when another member "
            "got the partition)"
        )
    return text


def _find_ownerships(events: Iterable[GroupEvent], *, as_members_know: bool) -> list[Ownership]:
    """Return the periods in which members owned partitions, ordered by start.

    An ownership of a removed member ends with its removal. With `as_members_know` it ends when the member
    learns of the removal.
    """
    ordered = sorted(events, key=lambda event: event.at)
    open_ownerships: dict[tuple[str, TopicPartition], GroupEvent] = {}
    closed: list[Ownership] = []
    lost: set[Ownership] = set()

    def close(member: str, partitions: Iterable[TopicPartition], at: int, kind: Kind) -> None:
        for partition in partitions:
            assignment_event = open_ownerships.pop((member, partition), None)
            if assignment_event is not None:
                generation, start = assignment_event.generation, assignment_event.at
                closed.append(Ownership(partition, member, generation, start, at))
                if kind == "lost":
                    lost.add(closed[-1])

    for event in ordered:
        if event.kind == "assigned":
            for partition in event.partitions:
                open_ownerships.setdefault((event.member, partition), event)
        elif event.kind in ("revoked", "lost"):
            close(event.member, event.partitions, event.at, event.kind)
        elif event.kind in _DEPARTURE_KINDS and not (as_members_know and event.kind == "removed"):
            owned = [partition for member, partition in open_ownerships if member == event.member]
            close(event.member, owned, event.at, event.kind)
    for member, partition in list(open_ownerships):
        close(member, [partition], ordered[-1].at, "ended")
    if not as_members_know:
        by_partition = _group_by_partition(closed)
        closed = [
            _end_when_reassigned(ownership, by_partition[ownership.partition])
            if ownership in lost
            else ownership
            for ownership in closed
        ]
    return sorted(closed, key=lambda ownership: (ownership.start, ownership.partition, ownership.member))


def _end_when_reassigned(ownership: Ownership, of_partition: Sequence[Ownership]) -> Ownership:
    """End the ownership when the partition's next ownership in a later generation starts (rule 2).

    `of_partition` contains the ownerships of the partition, ordered by start.
    """
    first = bisect_left(of_partition, ownership.start, key=lambda later: later.start)
    for later in itertools.islice(of_partition, first, None):
        if later.start >= ownership.end:
            break
        if later.generation > ownership.generation >= 0:
            return replace(ownership, end=later.start)
    return ownership


def overlapping_ownerships(owned: Iterable[Ownership]) -> list[tuple[Ownership, Ownership]]:
    """Return the pairs of overlapping ownerships of a partition. A correct group has none."""
    pairs: list[tuple[Ownership, Ownership]] = []
    for ownerships_of_partition in _group_by_partition(owned).values():
        for index, first in enumerate(ownerships_of_partition):
            for second in itertools.islice(ownerships_of_partition, index + 1, None):
                if second.start >= first.end:
                    break
                if first.member != second.member:
                    pairs.append((first, second))
    return pairs


def standstills(events: Sequence[GroupEvent]) -> list[Standstill]:
    """Return every standstill (time without a reader) between two ownerships of a partition.

    The standstill of a new partition lasts from its creation to its first ownership.
    """
    stop_events: dict[str, list[GroupEvent]] = {}
    for event in sorted(events, key=lambda event: event.at):
        if event.kind in ("releasing", "silent", "resumed"):
            stop_events.setdefault(event.member, []).append(event)
    created_at = {
        partition: event.at for event in events if event.kind == "grown" for partition in event.partitions
    }
    result: list[Standstill] = []
    for partition, owned in _group_by_partition(ownerships(events)).items():
        if partition in created_at:
            first = owned[0]
            result.append(
                Standstill(
                    partition, first.generation, created_at[partition], first.start, is_new_partition=True
                )
            )
        for before, after in itertools.pairwise(owned):
            if after.start < before.end:  # The ownerships overlap.
                continue
            is_same_generation = before.generation == after.generation >= 0
            result.append(
                Standstill(
                    partition,
                    after.generation,
                    _stop_time(before, stop_events),
                    after.start,
                    before=before.member if is_same_generation else "",
                    after=after.member if is_same_generation else "",
                )
            )
    return sorted(result, key=lambda standstill: (standstill.end, standstill.partition))


def _stop_time(ownership: Ownership, stop_events: Mapping[str, Sequence[GroupEvent]]) -> int:
    """Return when, during this ownership, the owner last stopped delivering the partition's records.

    A `silent` event stops the delivery of all partitions, a `releasing` event stops the delivery of the
    event's partitions, and after a `resumed` event the owner delivers records again. `stop_events` maps each
    member to its events of these three kinds, ordered by time.
    """
    stopped_at = ownership.end
    for event in _between(stop_events.get(ownership.member, ()), ownership.start, ownership.end):
        if event.kind == "silent":
            stopped_at = min(stopped_at, event.at)
        elif ownership.partition in event.partitions:
            stopped_at = event.at
        elif event.kind == "resumed":
            stopped_at = ownership.end
    return stopped_at


def _between(ordered: Sequence[GroupEvent], first: int, last: int) -> Sequence[GroupEvent]:
    """Return the events from time `first` to time `last`, both included."""
    start = bisect_left(ordered, first, key=lambda event: event.at)
    return ordered[start : bisect_right(ordered, last, lo=start, key=lambda event: event.at)]


def _group_by_partition(owned: Iterable[Ownership]) -> dict[TopicPartition, list[Ownership]]:
    """Return the ownerships of each partition, ordered by start."""
    result: dict[TopicPartition, list[Ownership]] = {}
    for ownership in sorted(owned, key=lambda ownership: (ownership.start, ownership.end)):
        result.setdefault(ownership.partition, []).append(ownership)
    return result


def cause(events: Sequence[GroupEvent], generation: int) -> str:
    """Return the reason of a generation, from the "generation" event of this generation.

    If this event is missing, the reasons are determined from the events since the previous
    generation. Reasons that are consequences of a rebalance are returned only if no other reason is known.
    """
    return causes(events, [generation])[generation]


def causes(events: Sequence[GroupEvent], generations: Iterable[int]) -> dict[int, str]:
    """Return the reason of each generation: see `cause`."""
    ordered = sorted(events, key=lambda event: event.at)
    if not ordered:
        return dict.fromkeys(generations, UNEXPLAINED)
    reported: dict[int, str] = {}
    started_at: dict[int, int] = {}
    for event in ordered:
        if event.kind == "generation":
            reported.setdefault(event.generation, event.reason)
        elif event.kind == "assigned" and event.generation >= 0:
            started_at.setdefault(event.generation, event.at)
    known = sorted(started_at)
    # Entry n is the latest start among the first n known generations. Entry 0 is a time before all events.
    latest_starts = [
        ordered[0].at - 1,
        *itertools.accumulate((started_at[generation] for generation in known), max),
    ]
    result: dict[int, str] = {}
    for generation in generations:
        if generation in reported:
            result[generation] = reported[generation]
        else:
            previous_start = latest_starts[bisect_left(known, generation)]
            generation_start = started_at.get(generation, ordered[-1].at)
            result[generation] = _inferred_cause(_between(ordered, previous_start + 1, generation_start))
    return result


def _inferred_cause(events: Iterable[GroupEvent]) -> str:
    """Return the causes of a rebalance, inferred from the events between the starts of two generations."""
    reasons: list[str] = []
    consequences: list[str] = []
    for event in events:
        match event.kind:
            case "started":
                reasons.append(f"{event.member} joins")
            case "left":
                reasons.append(f"{event.member} leaves")
            case "killed":
                reasons.append(f"{event.member} is killed")
            case "disconnected":
                reasons.append(f"the connection of {event.member} ends")
            case "removed":
                reasons.append(event.reason)
            case "grown":
                reasons.append("the topic grows")
            case "rejoining":
                if event.reason:
                    target = consequences if event.reason.startswith(CONSEQUENCES) else reasons
                    target.append(f"{event.member}: {event.reason}")
            case _:
                pass
    return "; ".join(dict.fromkeys(reasons or consequences)) or UNEXPLAINED


def replacements(events: Sequence[GroupEvent]) -> dict[tuple[int, int, str], list[Standstill]]:
    """Return the times without a reader that ended when another member took over in the same generation.

    The keys of the result are (generation, time at which the standstills ended, text such as "a leaves; b
    takes its place").
    """
    departures = sorted(
        (event.at, event.member, event.kind) for event in events if event.kind in _DEPARTURE_KINDS
    )
    descriptions = {
        "left": "leaves; ",
        "killed": "is killed; ",
        "disconnected": "disconnects; ",
        "removed": "is removed; ",
    }
    result: dict[tuple[int, int, str], list[Standstill]] = {}
    for standstill in standstills(events):
        if standstill.after and standstill.after != standstill.before:
            kinds = [
                kind
                for at, member, kind in departures
                if member == standstill.before and at <= standstill.end
            ]
            departure = descriptions[kinds[-1]] if kinds else None
            reason = f"{standstill.before} {departure}{standstill.after} takes its place" if departure else ""
            reason = reason or f"{standstill.after} takes the place of {standstill.before}"
            result.setdefault((standstill.generation, standstill.end, reason), []).append(standstill)
    return result
