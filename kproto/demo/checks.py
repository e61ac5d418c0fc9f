"""The demo's books: what the group read, record by record, and the judgement of all that came out.

The books are kept by (partition, offset): a record that is read again after the kill counts once, a record
that nobody read is missing, and every total is held against what pandas computes from the data set itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..group.subscription import TopicPartition
from ..inspect.timeline import GroupEvent, cause, ownerships, shared, standstills
from . import flights
from .flights import Total
from .member import Read

if TYPE_CHECKING:
    import pandas as pd


class Books:
    """Everything that the members told."""

    def __init__(self) -> None:
        self.events: list[GroupEvent] = []
        self.rows: dict[tuple[int, int], tuple[int, int | None]] = {}
        """(partition, offset) -> (index in `flights.ORIGINS`, delay in minutes or None)."""
        self.again = 0
        """How many records were read once more."""

    def enter(self, told: GroupEvent | Sequence[Read]) -> int:
        """Enter what one message says; the answer is how many records are new."""
        if isinstance(told, GroupEvent):
            self.events.append(told)
            return 0
        before, count = len(self.rows), 0
        for read in told:
            count += len(read.offsets)
            for offset, origin, delay in zip(read.offsets, read.origins, read.delays, strict=True):
                self.rows[read.partition, offset] = origin, delay
        new = len(self.rows) - before
        self.again += count - new
        return new

    def totals(self) -> dict[str, Total]:
        """What the group read, added up per origin."""
        found = {origin: [0, 0, 0] for origin in flights.ORIGINS}
        for origin, delay in self.rows.values():
            total = found[flights.ORIGINS[origin]]
            total[0] += 1
            if delay is not None:
                total[1] += 1
                total[2] += delay
        return {origin: Total(*total) for origin, total in found.items() if total[0]}

    def owned(self) -> dict[str, set[TopicPartition]]:
        """Who owns what now, as far as it is told; members that are gone are left out."""
        gone = {event.member for event in self.events if event.kind in ("killed", "left")}
        held: dict[str, set[TopicPartition]] = {}
        for event in self.events:
            mine = held.setdefault(event.member, set())
            if event.kind == "assigned":
                mine.update(event.partitions)
            elif event.kind in ("revoked", "lost"):
                mine.difference_update(event.partitions)
        return {name: partitions for name, partitions in held.items() if name and name not in gone}


@dataclass(slots=True)
class Outcome:
    """What came out: a line for each check, the `faults` among them, and what the group lived through."""

    checks: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])
    history: list[str] = field(default_factory=list[str])

    def check(self, holds: bool, line: str, otherwise: str = "") -> None:
        """Note whether something holds; `otherwise` is added to the line when it doesn't."""
        line = line if holds or not otherwise else f"{line}; {otherwise}"
        self.checks.append(f"{'ok   ' if holds else 'WRONG'} {line}")
        if not holds:
            self.faults.append(line)


def judge(
    frame: pd.DataFrame,
    produced: int,
    books: Books,
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    hourly: Mapping[tuple[str, int], Total] | None,
) -> Outcome:
    """Hold what came out against the data set.

    `produced` is how many records the broker acknowledged, `ends` the log's end offsets, `committed` the
    group's offsets, `hourly` what Spark made of it (None: Spark was left out).
    """
    outcome = Outcome()
    truth, found = flights.totals(frame), books.totals()
    for origin in sorted(truth | found):
        mine, theirs = found.get(origin, Total(0, 0, 0)), truth.get(origin, Total(0, 0, 0))
        mean = mine.delay / mine.flown if mine.flown else 0.0
        told = f"{mine.departures:,} departures, {mine.flown:,} flown, mean delay {mean:.2f} min"
        outcome.check(mine == theirs, f"{origin}: {told}, as pandas says", f"but pandas says {theirs}")
    in_log = sum(ends.values())
    told = f"produced {produced:,} of {len(frame):,} records; the log holds {in_log:,}"
    outcome.check(produced == len(frame) == in_log, told)
    _check_reading(outcome, books, ends)
    behind = {str(p): end - committed.get(p, 0) for p, end in ends.items() if committed.get(p, 0) != end}
    outcome.check(not behind, "committed offsets stand at every partition's end", f"they lag: {behind}")
    _check_owners(outcome, books.events)
    if hourly is not None:
        expected = flights.hourly(frame)
        wrong = {key for key in expected.keys() | hourly.keys() if expected.get(key) != hourly.get(key)}
        rows = sum(total.departures for total in hourly.values())
        told = f"Spark: {rows:,} departures in {len(hourly):,} rows (origin, hour), as pandas says"
        outcome.check(not wrong, told, f"but {len(wrong):,} rows differ, such as {sorted(wrong)[:3]}")
    outcome.history += _stood_still(books.events)
    return outcome


def _check_reading(outcome: Outcome, books: Books, ends: Mapping[TopicPartition, int]) -> None:
    lost = {
        str(partition): missing
        for partition, end in ends.items()
        if (missing := sum((partition.partition, offset) not in books.rows for offset in range(end)))
    }
    told = f"the group read {len(books.rows):,} records, each at least once"
    if books.again:
        told += f" ({books.again:,} of them again after the kill)"
    outcome.check(not lost and len(books.rows) == sum(ends.values()), told, f"lost, by partition: {lost}")


def _check_owners(outcome: Outcome, events: Sequence[GroupEvent]) -> None:
    """A member whose session ran out (its machine was too busy) is no owner any more, and hears so late: its
    partitions are "lost" then, and may be somebody else's since."""
    late = {
        (event.member, partition, event.at)
        for event in events
        if event.kind == "lost"
        for partition in event.partitions
    }
    overlaps = shared(ownerships(events))
    wrong = [pair for pair in overlaps if (pair[0].member, pair[0].partition, pair[0].end) not in late]
    told = "no partition ever had two owners at the same time"
    if len(wrong) < len(overlaps):
        told += f" (a member that was thrown out heard so late, {len(overlaps) - len(wrong)} times)"
    outcome.check(not wrong, told, f"but {wrong}")


def _stood_still(events: list[GroupEvent]) -> list[str]:
    still = standstills(events)
    lines: list[str] = []
    for generation in sorted({e.generation for e in events if e.kind == "assigned" and e.generation >= 0}):
        mine = [one for one in still if one.generation == generation]
        told = [f"{one.partition.partition}: {one.ms} ms{' (new)' if one.found else ''}" for one in mine]
        why = cause(events, generation)
        lines.append(f"generation {generation}: stood still: {', '.join(told) or 'none'} [{why}]")
    return lines
