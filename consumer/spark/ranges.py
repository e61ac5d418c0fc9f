"""Computes, without I/O, the ranges of records that the tasks of a batch read.

* The ranges of a streaming batch depend only on its start and end offsets, so a repeated batch has the same
  ranges.

* A start or end outside of the log is moved to the log's start or end. The move counts as a loss if an
  option requested the offset.

`offsets` computes the offsets of a stream.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from .offsets import Offsets, Positions


@dataclass(frozen=True, slots=True)
class Range:
    """The records of one partition from `start` to `end`, exclusive.

    With `open_start`, the range was planned from the log's start. If the start has advanced since then, the
    deleted records do not count as lost. With `open_end`, the range was planned to the log's end. Later Spark
    actions on this plan read to the log's end at their own time.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None
    open_start: bool = False
    open_end: bool = False

    @property
    def size(self) -> int:
        return self.end - self.start


def waiting(start: Offsets, end: Offsets) -> int:
    """Return the number of record offsets from `start` to `end`, summed over all partitions."""
    return sum(r.size for r in ranges(start, end))


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """Return the ranges of the batch in order. The result depends only on `start` and `end`."""
    result: list[Range] = []
    for partition, stop in sorted(end.positions.items()):
        begin = end.began.get(partition, start.positions.get(partition))
        if begin is None:
            name = f"{partition.topic}-{partition.partition}"
            reason = (
                "the start in the checkpoint lacks this partition: the checkpoint was edited, or its last "
                'batch was planned by format("kafka"), which must finish that batch'
            )
            raise ConfigError("checkpointLocation", name, reason)
        if begin < stop:
            result.append(
                Range(partition.topic, partition.partition, begin, stop, end.ids.get(partition.topic))
            )
    return result


def split(
    ranges: Iterable[Range], *, least: int | None = None, most_records: int | None = None
) -> list[Range]:
    """Split ranges into at least `least` pieces of at most `most_records` offsets each.

    The longest pieces are split first, into equal parts. A single offset cannot be split, so the result may
    have fewer than `least` pieces.
    """
    ranges = [r for r in ranges if r.size > 0 or r.open_end]
    # The number of pieces of each range: its size divided by `most_records`, rounded up.
    counts = [1 if most_records is None else max(1, -(-r.size // most_records)) for r in ranges]
    missing = (least or 0) - sum(counts)
    # A heap of the ranges that can be split further: (negative size of a piece, index of the range).
    longest = [(-r.size / n, i) for i, (r, n) in enumerate(zip(ranges, counts, strict=True)) if n < r.size]
    heapq.heapify(longest)
    while missing > 0 and longest:
        _, i = heapq.heappop(longest)
        counts[i] += 1
        missing -= 1
        if counts[i] < ranges[i].size:
            heapq.heappush(longest, (-ranges[i].size / counts[i], i))
    return [piece for r, n in zip(ranges, counts, strict=True) for piece in _split_evenly(r, n)]


def check_partitions(
    option: str,
    named: Iterable[TopicPartition],
    assigned: Iterable[TopicPartition],
    topics: Iterable[str] = (),
) -> None:
    """Raise ConfigError unless an option's JSON names exactly the assigned partitions.

    Raise it also if a topic in `topics` has no assigned partition. The error then shows these topics;
    otherwise it shows the JSON's partitions. In both cases it shows the assigned partitions.
    """
    named_set, assigned_set = set(named), set(assigned)
    unread_topics = set(topics) - {p.topic for p in assigned_set}
    assigned_names = _partition_names(assigned_set)
    if unread_topics:
        reason = f"the query reads only {assigned_names}"
        raise ConfigError(option, ", ".join(sorted(unread_topics)), reason)
    if named_set != assigned_set:
        reason = f"it must name exactly the partitions that are read: {assigned_names}"
        raise ConfigError(option, _partition_names(named_set), reason)


def clamp_starts(
    option: str, starts: Positions, log_starts: Positions, log_ends: Positions
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Move each start that lies outside of its log to the log's start or end.

    Return the starts, and one description for each start that was moved. Each move counts as a loss.
    """
    losses: list[str] = []
    for (topic, partition_number), start in sorted(starts.items()):
        partition = TopicPartition(topic, partition_number)
        log_start, log_end = log_starts[partition], log_ends[partition]
        if not log_start <= start <= log_end:
            losses.append(
                f"{option} says {start} for {topic}-{partition_number}, "
                f"whose log is from {log_start} to {log_end}"
            )
    return {p: min(max(start, log_starts[p]), log_ends[p]) for p, start in starts.items()}, losses


def batch_ranges(
    starts: Positions,
    ends: Positions,
    log_starts: Positions,
    log_ends: Positions,
    ids: Mapping[str, str],
    *,
    open_starts: Collection[TopicPartition] = (),
    open_ends: Collection[TopicPartition] = (),
    explicit_starts: Collection[TopicPartition] = (),
    explicit_ends: Collection[TopicPartition] = (),
) -> tuple[list[Range], list[str]]:
    """Return the ranges that a batch query reads, and a description of each loss.

    An explicit start or end outside of the log is moved to the log's start or end, which counts as a loss.

    A start or end that the brokers returned may also be outside of the log, which may have changed since the
    response. Such an offset is moved in the same way, but does not count as a loss.
    """
    result: list[Range] = []
    losses: list[str] = []
    for partition, start in sorted(starts.items()):
        name, end = f"{partition.topic}-{partition.partition}", ends[partition]
        log_start, log_end = log_starts[partition], log_ends[partition]
        if partition in explicit_starts:
            if start < log_start:
                losses.append(f"the log of {name} begins at {log_start}, after the requested start, {start}")
            elif start > log_end:
                losses.append(
                    f"startingOffsets says {start} for {name}, whose log is from {log_start} to {log_end}"
                )
            start = min(start, log_end)
        if partition in explicit_ends:
            if end > log_end:
                losses.append(f"the log of {name} ends at {log_end}, before the requested end, {end}")
            elif 0 < end < log_start and partition not in explicit_starts:
                losses.append(f"the log of {name} begins at {log_start}, after the requested end, {end}")
        start = max(start, log_start)
        end = max(start, min(end, log_end))
        open_edges = partition in open_starts, partition in open_ends
        result.append(Range(*partition, start, end, ids.get(partition.topic), *open_edges))
    return [r for r in result if r.size > 0 or r.open_end], losses


def _split_evenly(whole: Range, count: int) -> list[Range]:
    """Split a range into equal parts. Only the first may have an open start, only the last an open end."""
    if count == 1:
        return [whole]
    boundaries = [whole.start + whole.size * i // count for i in range(count + 1)]
    inner = replace(whole, open_start=False, open_end=False)
    parts = [replace(inner, start=a, end=b) for a, b in pairwise(boundaries)]
    parts[0] = replace(parts[0], open_start=whole.open_start)
    parts[-1] = replace(parts[-1], open_end=whole.open_end)
    return parts


def _partition_names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "(none)"
