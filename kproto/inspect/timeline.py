"""A group's life as its members lived it: who owned which partition when, and how long each stood still.

Rules
1. An event is what one member saw, or what was done to it, at a time in ms. All clocks are one machine's.
2. A member owns a partition from `assigned` until `revoked`, `lost`, `left` or `killed`. `revoked` comes when
   the application has let go, *before* the coordinator is told: two ownerships of one partition that
   overlap are therefore two members that really could work on it at the same time.
3. A partition stands still from `releasing`, when its owner stops delivering and begins to let go (or from
   the end of the ownership, where nobody told that), to the start of the next ownership. A partition that
   its member kept through a rebalance has not stood still: that is what cooperative is for.
4. A partition's standstill belongs to the generation that ended it. Where that began before it, a member
   took another one's place without a rebalance, as a static member does that comes back: see `places`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..group.subscription import TopicPartition

Kind = Literal[
    "started", "rejoining", "assigned", "releasing", "revoked", "lost", "left", "killed", "grown", "ended"
]


@dataclass(frozen=True, slots=True)
class GroupEvent:
    """One thing that happened. `member` names a lane; it is empty for `grown`, which the cluster did, and
    for `ended`: nobody looked any longer."""

    at: int
    kind: Kind
    member: str = ""
    generation: int = -1
    partitions: tuple[TopicPartition, ...] = ()
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Ownership:
    """`member` could deliver `partition` from `start` to `end` (ms); it got it in `generation`."""

    partition: TopicPartition
    member: str
    generation: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Standstill:
    """Nobody owned `partition` from `start` to `end` (ms). `found`: it was new, nobody had owned it yet."""

    partition: TopicPartition
    generation: int
    start: int
    end: int
    found: bool = False
    before: str = ""
    after: str = ""  # Who had it before, and who afterwards, where both had it in one generation.

    @property
    def ms(self) -> int:
        return self.end - self.start


def ownerships(events: Iterable[GroupEvent]) -> list[Ownership]:
    """Every ownership, in order of its start. One that never ended lasts until the last event."""
    ordered = sorted(events, key=lambda event: event.at)
    held: dict[tuple[str, TopicPartition], GroupEvent] = {}
    done: list[Ownership] = []

    def close(member: str, partitions: Iterable[TopicPartition], at: int) -> None:
        for partition in partitions:
            began = held.pop((member, partition), None)
            if began is not None:
                done.append(Ownership(partition, member, began.generation, began.at, at))

    for event in ordered:
        if event.kind == "assigned":
            for partition in event.partitions:
                held.setdefault((event.member, partition), event)
        elif event.kind in ("revoked", "lost"):
            close(event.member, event.partitions, event.at)
        elif event.kind in ("left", "killed"):
            close(event.member, [p for m, p in held if m == event.member], event.at)
    for member, partition in list(held):
        close(member, [partition], ordered[-1].at)
    return sorted(done, key=lambda one: (one.start, one.partition, one.member))


def shared(owned: Iterable[Ownership]) -> list[tuple[Ownership, Ownership]]:
    """Every pair of ownerships of one partition by two members that overlap: empty in a correct group."""
    pairs: list[tuple[Ownership, Ownership]] = []
    for _, several in _by_partition(owned).items():
        for index, one in enumerate(several):
            pairs += [
                (one, other)
                for other in several[index + 1 :]
                if one.member != other.member and other.start < one.end
            ]
    return pairs


def standstills(events: Sequence[GroupEvent]) -> list[Standstill]:
    """Every standstill between two ownerships; for new partitions, from their growth to their first owner."""
    releases = [event for event in events if event.kind == "releasing"]
    grown = {p: event.at for event in events if event.kind == "grown" for p in event.partitions}
    still: list[Standstill] = []
    for partition, several in _by_partition(ownerships(events)).items():
        if partition in grown:
            first = several[0]
            still.append(Standstill(partition, first.generation, grown[partition], first.start, found=True))
        still += [
            Standstill(
                partition,
                after.generation,
                _stopped(before, releases),
                after.start,
                before=before.member if before.generation == after.generation >= 0 else "",
                after=after.member if before.generation == after.generation >= 0 else "",
            )
            for before, after in itertools.pairwise(several)
            if after.start >= before.end
        ]
    return sorted(still, key=lambda one: (one.end, one.partition))


def _stopped(one: Ownership, releases: Iterable[GroupEvent]) -> int:
    """When the owner stopped delivering."""
    times = [
        event.at
        for event in releases
        if event.member == one.member
        and one.partition in event.partitions
        and one.start <= event.at <= one.end
    ]
    return max(times, default=one.end)


def _by_partition(owned: Iterable[Ownership]) -> dict[TopicPartition, list[Ownership]]:
    found: dict[TopicPartition, list[Ownership]] = {}
    for one in sorted(owned, key=lambda one: (one.start, one.end)):
        found.setdefault(one.partition, []).append(one)
    return found


# Reasons that follow from a rebalance instead of starting one: the second JoinGroup of KIP-394, and the
# rejoin of a member that a heartbeat told of the rebalance.
_CONSEQUENCES = ("need to re-join with the given member-id", "group is already rebalancing")


def cause(events: Sequence[GroupEvent], generation: int) -> str:
    """Why `generation` came to be: what happened from the first moment of the one before it to its own.

    What merely follows from a rebalance is told only where nothing else is known to have started it.
    """
    ordered = sorted(events, key=lambda event: event.at)
    began: dict[int, int] = {}
    for event in ordered:
        if event.kind == "assigned" and event.generation >= 0:
            began.setdefault(event.generation, event.at)
    until = began.get(generation, ordered[-1].at)
    since = max((at for other, at in began.items() if other < generation), default=ordered[0].at - 1)
    told: list[str] = []
    followed: list[str] = []
    for event in ordered:
        if since < event.at <= until:
            match event.kind:
                case "started":
                    told.append(f"{event.member} joins")
                case "left":
                    told.append(f"{event.member} leaves")
                case "killed":
                    told.append(f"{event.member} is killed")
                case "grown":
                    told.append("the topic grows")
                case "rejoining":
                    if event.reason:
                        where = followed if event.reason.startswith(_CONSEQUENCES) else told
                        where.append(f"{event.member}: {event.reason}")
                case "assigned" | "releasing" | "revoked" | "lost" | "ended":
                    pass
    return "; ".join(dict.fromkeys(told or followed))


def places(events: Sequence[GroupEvent]) -> dict[tuple[int, int, str], list[Standstill]]:
    """The standstills that no new generation ended, by generation, their end, and who took whose place."""
    gone = {event.member: event.kind for event in events if event.kind in ("left", "killed")}
    told = {"left": "leaves; ", "killed": "is killed; "}
    found: dict[tuple[int, int, str], list[Standstill]] = {}
    for standstill in standstills(events):
        if standstill.after and standstill.after != standstill.before:
            end = told.get(gone.get(standstill.before, ""))
            why = f"{standstill.before} {end}{standstill.after} takes its place" if end else ""
            why = why or f"{standstill.after} takes the place of {standstill.before}"
            found.setdefault((standstill.generation, standstill.end, why), []).append(standstill)
    return found
