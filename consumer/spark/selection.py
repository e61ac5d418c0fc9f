"""Parses the options that select a query's partitions, and the query's first and last offsets.

The options and their syntax are the same as in Spark's own source. A query selects partitions by a list of
topics, by a pattern of topic names, or individually.

A bound is the position where a query starts or ends: the start or end of the log, an offset or a timestamp.
It applies to all partitions or to individual ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from .java_regex import matcher
from .option_values import json_object, parse_timestamp_ms, text

Edge: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class LogEdge:
    """A bound that is the start or the end of each log."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class SpecificOffsets:
    """A bound for each partition: an offset, or the start or end of its log.

    `topics` contains the bounds of whole topics.

    `offsets` and `topics` must together cover exactly the partitions that are read.
    """

    offsets: Mapping[TopicPartition, int | Edge]
    topics: Mapping[str, Edge] = field(default_factory=dict[str, Edge])

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | Edge]:
        """Return the bound of each partition. The bound of a topic applies to all of its partitions."""
        return {**{p: self.topics[p.topic] for p in partitions if p.topic in self.topics}, **self.offsets}


@dataclass(frozen=True, slots=True)
class GlobalTimestamp:
    """A bound at each partition's first record whose timestamp is at least `timestamp_ms` (ms since 1970)."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SpecificTimestamps:
    """A bound like `GlobalTimestamp`, but with a timestamp for each partition.

    `timestamps_ms` must contain exactly the partitions that are read.
    """

    timestamps_ms: Mapping[TopicPartition, int]


Bound: TypeAlias = LogEdge | SpecificOffsets | GlobalTimestamp | SpecificTimestamps


@dataclass(frozen=True, slots=True)
class Topics:
    """The selection by ``subscribe``: all partitions of the named topics."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """The selection by ``subscribePattern``: all topics whose names contain a match of `regex`.

    Topics that are created later are included. The regular expression has Java's syntax. Internal topics
    never match.
    """

    regex: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """``assign``: exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Choice: TypeAlias = Topics | Pattern | Assigned


# ---- partitions


def read_choice(options: Mapping[str, str]) -> Choice | None:
    """Return the selection in the options, or None if they contain none."""
    set_options = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(set_options) > 1:
        raise ConfigError(
            set_options[1], options[set_options[1]], f"set only one of {' and '.join(set_options)}"
        )
    if not set_options:
        return None
    name, value = set_options[0], options[set_options[0]]
    if name == "subscribe":
        names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not names:
            raise ConfigError(name, value, "name at least one topic; separate topics with commas")
        return Topics(names)
    if name == "subscribePattern":
        pattern = text(name, value)
        matcher(pattern)
        return Pattern(pattern)
    return Assigned(_parse_assign(name, value))


def _parse_assign(name: str, value: str) -> tuple[TopicPartition, ...]:
    """Parse the option ``assign``: the partitions of each topic."""
    example = '{"flights": [0, 1]}'
    result: set[TopicPartition] = set()
    for topic, partitions in json_object(name, value, example).items():
        if not isinstance(partitions, list):
            raise ConfigError(name, value, f"allowed: JSON such as {example}")
        for partition in cast("list[object]", partitions):
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise ConfigError(name, value, f"allowed: JSON such as {example}")
            result.add(TopicPartition(topic, partition))
    if not result:
        raise ConfigError(name, value, f"name at least one partition, such as {example}")
    return tuple(sorted(result))


def partition_filter(choice: Choice) -> Callable[[TopicPartition], bool]:
    """Return a function that returns whether the options select a partition."""
    if isinstance(choice, Assigned):
        return set(choice.partitions).__contains__
    if isinstance(choice, Topics):
        names = set(choice.names)
        return lambda partition: partition.topic in names
    matches = matcher(choice.regex)
    return lambda partition: matches(partition.topic)


# ---- bounds


def read_bound(options: Mapping[str, str], end: Literal["starting", "ending"]) -> Bound | None:
    """Return the bound that the options set, or None if no option sets it.

    All options of the bound are checked, even if another option overrides them.

    A global timestamp takes precedence over timestamps of partitions, and timestamps take precedence over
    offsets, as in Spark's own source.
    """
    bounds: list[Bound] = []
    if (name := f"{end}Timestamp") in options:
        bounds.append(GlobalTimestamp(parse_timestamp_ms(name, options[name])))
    if (name := f"{end}OffsetsByTimestamp") in options:
        times = _parse_numbers_by_partition(name, options[name], '{"flights": {"0": 1700000000000}}')
        for time in times.values():
            parse_timestamp_ms(name, str(time))
        bounds.append(SpecificTimestamps(times))
    if (name := f"{end}Offsets") in options:
        bounds.append(_parse_offsets(name, options[name]))
    return bounds[0] if bounds else None


def _parse_offsets(name: str, value: str) -> Bound:
    """Parse ``startingOffsets`` or ``endingOffsets``: "earliest", "latest", or JSON."""
    lower_value = value.strip().lower()
    if lower_value in ("earliest", "latest"):
        return LogEdge("earliest" if lower_value == "earliest" else "latest")
    example = '{"flights": {"0": 23, "1": -2}, "delays": "earliest"} (-2 is earliest, -1 latest)'
    if not lower_value.startswith("{"):
        raise ConfigError(name, value, f"allowed: earliest, latest, or JSON such as {example}")
    offsets: dict[TopicPartition, int | Edge] = {}
    topics: dict[str, Edge] = {}
    for partition, number in _parse_numbers_by_partition(name, value, example, topics).items():
        if number < -2:
            raise ConfigError(name, value, f"{number} is not an offset; allowed: JSON such as {example}")
        offsets[partition] = "earliest" if number == -2 else "latest" if number == -1 else number
    return SpecificOffsets(offsets, topics)


def check_bound_order(starting: Bound | None, ending: Bound | None) -> None:
    """Raise ConfigError if the options alone show that a batch ends before it starts."""
    if isinstance(starting, GlobalTimestamp) and isinstance(ending, GlobalTimestamp):
        if starting.timestamp_ms > ending.timestamp_ms:
            reason = f"it must not be after endingTimestamp, {ending.timestamp_ms}"
            raise ConfigError("startingTimestamp", starting.timestamp_ms, reason)
        return
    if isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        option, starts, ends = "startingOffsetsByTimestamp", starting.timestamps_ms, ending.timestamps_ms
    elif isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        option, starts, ends = "startingOffsets", _numeric_offsets(starting), _numeric_offsets(ending)
    else:
        return
    for partition, start in sorted(starts.items()):
        if start > (end := ends.get(partition, start)):
            position = f"{partition.topic}-{partition.partition}: {start}"
            raise ConfigError(option, position, f"it must not be after the end, {end}")


def _numeric_offsets(bound: SpecificOffsets) -> dict[TopicPartition, int]:
    """Map each partition to its offset. Omit partitions with "earliest" or "latest"."""
    return {p: offset for p, offset in bound.offsets.items() if isinstance(offset, int)}


def check_bound_edge(name: str, bound: Bound | None, edge: Edge, number: int) -> None:
    """Raise ConfigError if a batch would start at the end of a log, or end at the start of a log.

    `name` is the option that contains `bound`. A starting bound must not contain "latest", and an ending
    bound must not contain "earliest": this word is `edge`. As the offset of a partition in JSON, the word is
    written as `number` (-1 for "latest", -2 for "earliest").
    """
    if isinstance(bound, SpecificOffsets):
        reason = f"a batch cannot {'start' if name.startswith('start') else 'end'} at {edge}"
        for topic, topic_edge in bound.topics.items():
            if topic_edge == edge:
                raise ConfigError(name, f"{topic}: {edge}", reason)
        for partition, offset in bound.offsets.items():
            if offset == edge:
                position = f"{partition.topic}-{partition.partition}: {number}"
                raise ConfigError(name, position, f"{reason} ({number})")


# ---- JSON with partitions


def _parse_numbers_by_partition(
    name: str, value: str, example: str, edges: dict[str, Edge] | None = None
) -> dict[TopicPartition, int]:
    """Parse JSON such as ``{"flights": {"0": 5}}``. Errors show `example` as a valid value.

    A topic with one edge for all its partitions, such as ``{"flights": "earliest"}``, is added to `edges`.

    If `edges` is None, "earliest" and "latest" are not allowed. Keys that begin with ``@`` are skipped, so
    that offsets can be copied from a query's progress.
    """
    result: dict[TopicPartition, int] = {}
    for topic, partitions in json_object(name, value, example).items():
        if topic.startswith("@"):
            continue
        if edges is not None and isinstance(partitions, str):
            edge = partitions.strip().lower()
            if edge not in ("earliest", "latest"):
                raise ConfigError(
                    name,
                    value,
                    f"{partitions!r} is neither earliest nor latest; allowed: JSON such as {example}",
                )
            edges[topic] = "earliest" if edge == "earliest" else "latest"
            continue
        if not isinstance(partitions, dict):
            raise ConfigError(name, value, f"allowed: JSON such as {example}")
        for partition, number in cast("dict[str, object]", partitions).items():
            is_partition_number = partition.isascii() and partition.isdigit()
            if not is_partition_number or isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(name, value, f"allowed: JSON such as {example}")
            topic_partition = TopicPartition(topic, int(partition))
            if topic_partition in result:
                reason = f"partition {topic_partition.partition} of {topic} appears twice"
                raise ConfigError(name, value, f"{reason}; allowed: JSON such as {example}")
            result[topic_partition] = number
    return result
