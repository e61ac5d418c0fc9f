"""The records that the demo's group read, and the checks of all results.

Records are identified by (partition, offset). A record that was read twice, because a member was killed,
counts once. A record that no member read is missing.

Every total is compared with the total that pandas computes from the data set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..group.subscription import TopicPartition
from ..inspect.timeline import (
    GroupEvent,
    cause,
    overlapping_ownerships,
    ownership_verdict,
    ownerships,
    standstills,
)
from . import flights
from .flights import Total
from .member import ReadBatch

if TYPE_CHECKING:
    import pandas as pd


class GroupReports:
    """The events and records that the members reported."""

    def __init__(self) -> None:
        self.events: list[GroupEvent] = []
        # (partition, offset) -> (index in `flights.ORIGINS`, delay in minutes, or None if it is unknown).
        self.rows: dict[tuple[int, int], tuple[int, int | None]] = {}
        # How many times a member read a record that had been read before.
        self.reread_count = 0

    def add(self, report: GroupEvent | Sequence[ReadBatch]) -> int:
        """Add a report of a member, and return how many of its records no member had read before."""
        if isinstance(report, GroupEvent):
            self.events.append(report)
            return 0
        known_count, read_count = len(self.rows), 0
        for read in report:
            read_count += len(read.offsets)
            for offset, origin, delay in zip(read.offsets, read.origins, read.delays, strict=True):
                self.rows[read.partition, offset] = origin, delay
        new_count = len(self.rows) - known_count
        self.reread_count += read_count - new_count
        return new_count

    def totals(self) -> dict[str, Total]:
        """Return, for each origin, the totals of the records that the group read."""
        sums = {origin: [0, 0, 0] for origin in flights.ORIGINS}
        for origin, delay in self.rows.values():
            total = sums[flights.ORIGINS[origin]]
            total[0] += 1
            if delay is not None:
                total[1] += 1
                total[2] += delay
        return {origin: Total(*total) for origin, total in sums.items() if total[0]}

    def owned(self) -> dict[str, set[TopicPartition]]:
        """Return the partitions that each member owns according to its reports.

        Members that were killed, or have left the group, are omitted.
        """
        departed = {event.member for event in self.events if event.kind in ("killed", "left")}
        owned: dict[str, set[TopicPartition]] = {}
        for event in self.events:
            member_partitions = owned.setdefault(event.member, set())
            if event.kind == "assigned":
                member_partitions.update(event.partitions)
            elif event.kind in ("revoked", "lost"):
                member_partitions.difference_update(event.partitions)
        return {name: partitions for name, partitions in owned.items() if name and name not in departed}


@dataclass(slots=True)
class DemoResult:
    """The result of a run: a line per check, the failed checks in `faults`, and the group's history."""

    checks: list[str] = field(default_factory=list[str])
    faults: list[str] = field(default_factory=list[str])
    history: list[str] = field(default_factory=list[str])

    def check(self, holds: bool, line: str, otherwise: str = "") -> None:
        """Record the result of a check. If the check failed, `otherwise` is added to its line."""
        line = line if holds or not otherwise else f"{line}; {otherwise}"
        self.checks.append(f"{'ok   ' if holds else 'WRONG'} {line}")
        if not holds:
            self.faults.append(line)


def check_results(
    frame: pd.DataFrame,
    produced: int,
    reports: GroupReports,
    ends: Mapping[TopicPartition, int],
    committed: Mapping[TopicPartition, int],
    hourly: Mapping[tuple[str, int], Total] | None,
) -> DemoResult:
    """Check the results against the data set.

    `produced` is the number of records that the broker acknowledged.

    `ends` maps each partition to its log end offset, and `committed` to the group's committed offset.

    `hourly` is the result of the Spark query, or None without Spark.
    """
    outcome = DemoResult()
    _check_totals(outcome, flights.totals(frame), reports.totals())
    log_count = sum(ends.values())
    line = f"produced {produced:,} of {len(frame):,} records; the log holds {log_count:,}"
    outcome.check(produced == len(frame) == log_count, line)
    _check_reading(outcome, reports, ends)
    lags = {str(p): end - committed.get(p, 0) for p, end in ends.items() if committed.get(p, 0) != end}
    outcome.check(not lags, "the committed offset of every partition is its end offset", f"they lag: {lags}")
    _check_owners(outcome, reports.events)
    if hourly is not None:
        _check_hourly(outcome, flights.hourly(frame), hourly)
    outcome.history += _list_standstills(reports.events)
    return outcome


def _check_totals(
    outcome: DemoResult, expected_totals: Mapping[str, Total], totals: Mapping[str, Total]
) -> None:
    """Check the totals, by origin, of the records that the group read."""
    for origin in sorted(expected_totals.keys() | totals.keys()):
        actual = totals.get(origin, Total(0, 0, 0))
        expected = expected_totals.get(origin, Total(0, 0, 0))
        mean = actual.delay / actual.flown if actual.flown else 0.0
        line = f"{actual.departures:,} departures, {actual.flown:,} flown, mean delay {mean:.2f} min"
        outcome.check(actual == expected, f"{origin}: {line}, like pandas", f"pandas computes {expected}")


def _check_hourly(
    outcome: DemoResult, expected: Mapping[tuple[str, int], Total], hourly: Mapping[tuple[str, int], Total]
) -> None:
    """Check the result of the Spark query."""
    differing_keys = {key for key in expected.keys() | hourly.keys() if expected.get(key) != hourly.get(key)}
    departures = sum(total.departures for total in hourly.values())
    line = f"Spark: {departures:,} departures in {len(hourly):,} rows (origin, hour), like pandas"
    examples = sorted(differing_keys)[:3]
    outcome.check(not differing_keys, line, f"but {len(differing_keys):,} rows differ, such as {examples}")


def _check_reading(outcome: DemoResult, reports: GroupReports, ends: Mapping[TopicPartition, int]) -> None:
    """Check that the group read every record of the log, and no others."""
    lost_counts = {
        str(partition): lost_count
        for partition, end in ends.items()
        if (lost_count := sum((partition.partition, offset) not in reports.rows for offset in range(end)))
    }
    line = f"the group read {len(reports.rows):,} records, each at least once"
    if reports.reread_count:
        line += f" ({reports.reread_count:,} of them again after the kill)"
    is_complete = not lost_counts and len(reports.rows) == sum(ends.values())
    outcome.check(is_complete, line, f"lost, by partition: {lost_counts}")


def _check_owners(outcome: DemoResult, events: Sequence[GroupEvent]) -> None:
    """Check that no partition had two owners at the same time."""
    overlaps = overlapping_ownerships(ownerships(events))
    outcome.check(not overlaps, ownership_verdict(events), str(overlaps))


def _list_standstills(events: list[GroupEvent]) -> list[str]:
    """Return a line for each generation: its cause, and how long each partition had no reader."""
    lines: list[str] = []
    for generation in sorted({e.generation for e in events if e.kind == "assigned" and e.generation >= 0}):
        details = [
            f"{standstill.partition} for {standstill.ms} ms"
            f"{' (a new partition)' if standstill.is_new_partition else ''}"
            for standstill in sorted(standstills(events), key=lambda standstill: standstill.partition)
            if standstill.generation == generation
        ]
        unread = f"no member read {', '.join(details)}" if details else "every partition was always read"
        lines.append(f"generation {generation} ({cause(events, generation)}): {unread}")
    return lines
