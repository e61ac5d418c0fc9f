"""What of Kafka a query reads: which partitions, from where, to where.

The forms are those of Spark's own source: names, a pattern or partitions; an edge of the logs, offsets or
times, for all partitions or for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, cast

from kproto.errors import ConfigError
from kproto.group.subscription import TopicPartition

from .java_regex import matcher
from .option_values import json_object, moment_ms, text

Edge: TypeAlias = Literal["earliest", "latest"]


@dataclass(frozen=True, slots=True)
class Everywhere:
    """Every partition from (or to) the same edge of its log."""

    edge: Edge


@dataclass(frozen=True, slots=True)
class Each:
    """Every partition from (or to) its own offset, or edge of its log, and those of some topics all from the
    same edge. Must name exactly the partitions read.
    """

    offsets: Mapping[TopicPartition, int | Edge]
    topics: Mapping[str, Edge] = field(default_factory=dict[str, Edge])

    def of(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | Edge]:
        """The same partition by partition, those of `topics` as they are in `partitions`."""
        return {**{p: self.topics[p.topic] for p in partitions if p.topic in self.topics}, **self.offsets}


@dataclass(frozen=True, slots=True)
class Since:
    """Every partition from (or to) the first record that is not older than this time, in ms since 1970."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class SinceEach:
    """As `Since`, with a time for each partition. Must name exactly the partitions read."""

    timestamps_ms: Mapping[TopicPartition, int]


Bound: TypeAlias = Everywhere | Each | Since | SinceEach


@dataclass(frozen=True, slots=True)
class Topics:
    """``subscribe``: whole topics by name."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """``subscribePattern``: all topics in whose name it is found, in Java's syntax, also those made later.
    Never internal ones.
    """

    regex: str


@dataclass(frozen=True, slots=True)
class Assigned:
    """``assign``: exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Choice: TypeAlias = Topics | Pattern | Assigned


# Which partitions --------------------------------------------------------------------------------------


def choice_of(given: Mapping[str, str]) -> Choice | None:
    """Which partitions, from the options by their documented names; None where nothing says so."""
    chosen = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(chosen) > 1:
        raise ConfigError(chosen[1], given[chosen[1]], f"only one of {' and '.join(chosen)} may be given")
    if not chosen:
        return None
    name, value = chosen[0], given[chosen[0]]
    if name == "subscribe":
        names = tuple(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if not names:
            raise ConfigError(name, value, "give at least one topic, several with commas between")
        return Topics(names)
    if name == "subscribePattern":
        pattern = text(name, value)
        matcher(pattern)
        return Pattern(pattern)
    return Assigned(_assigned(name, value))


def _assigned(name: str, value: str) -> tuple[TopicPartition, ...]:
    shape = '{"flights": [0, 1]}'
    found: set[TopicPartition] = set()
    for topic, partitions in json_object(name, value, shape).items():
        if not isinstance(partitions, list):
            raise ConfigError(name, value, f"allowed: JSON such as {shape}")
        for partition in cast("list[object]", partitions):
            if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
                raise ConfigError(name, value, f"allowed: JSON such as {shape}")
            found.add(TopicPartition(topic, partition))
    if not found:
        raise ConfigError(name, value, f"give at least one partition, such as {shape}")
    return tuple(sorted(found))


def asks(choice: Choice) -> Callable[[TopicPartition], bool]:
    """Whether a partition is one of those chosen."""
    if isinstance(choice, Assigned):
        return set(choice.partitions).__contains__
    if isinstance(choice, Topics):
        names = set(choice.names)
        return lambda partition: partition.topic in names
    matches = matcher(choice.regex)
    return lambda partition: matches(partition.topic)


# From where to where --------------------------------------------------------------------------------------


def bound_of(given: Mapping[str, str], end: Literal["starting", "ending"]) -> Bound | None:
    """One time for all beats a time for each, and that beats offsets, as in Spark's own source. All are
    checked.
    """
    found: list[Bound] = []
    if (name := f"{end}Timestamp") in given:
        found.append(Since(moment_ms(name, given[name])))
    if (name := f"{end}OffsetsByTimestamp") in given:
        times = _each_partition(name, given[name], '{"flights": {"0": 1700000000000}}')
        for time in times.values():
            moment_ms(name, str(time))
        found.append(SinceEach(times))
    if (name := f"{end}Offsets") in given:
        found.append(_offsets(name, given[name]))
    return found[0] if found else None


def _offsets(name: str, value: str) -> Bound:
    edge = value.strip().lower()
    if edge in ("earliest", "latest"):
        return Everywhere("earliest" if edge == "earliest" else "latest")
    shape = '{"flights": {"0": 23, "1": -2}, "delays": "earliest"} (-2 is earliest, -1 latest)'
    if not edge.startswith("{"):
        raise ConfigError(name, value, f"allowed: earliest, latest, or JSON such as {shape}")
    offsets: dict[TopicPartition, int | Edge] = {}
    topics: dict[str, Edge] = {}
    for partition, number in _each_partition(name, value, shape, topics).items():
        if number < -2:
            raise ConfigError(name, value, f"allowed: {shape}; {number} is not an offset")
        offsets[partition] = "earliest" if number == -2 else "latest" if number == -1 else number
    return Each(offsets, topics)


def refuse_backwards(starting: Bound | None, ending: Bound | None) -> None:
    """Raise ConfigError where a batch ends before it starts, whatever records there are."""
    if isinstance(starting, Since) and isinstance(ending, Since):
        if starting.timestamp_ms > ending.timestamp_ms:
            why = f"it must not be after endingTimestamp, {ending.timestamp_ms}"
            raise ConfigError("startingTimestamp", starting.timestamp_ms, why)
        return
    if isinstance(starting, SinceEach) and isinstance(ending, SinceEach):
        option, starts, ends = "startingOffsetsByTimestamp", starting.timestamps_ms, ending.timestamps_ms
    elif isinstance(starting, Each) and isinstance(ending, Each):
        option, starts, ends = "startingOffsets", _numbers(starting), _numbers(ending)
    else:
        return
    for partition, start in sorted(starts.items()):
        if start > (end := ends.get(partition, start)):
            given = f"{partition.topic}-{partition.partition}: {start}"
            raise ConfigError(option, given, f"it must not be after the end, {end}")


def _numbers(bound: Each) -> dict[TopicPartition, int]:
    return {p: where for p, where in bound.offsets.items() if isinstance(where, int)}


def refuse_edge(name: str, bound: Bound | None, edge: Edge, number: int) -> None:
    """Raise ConfigError where a batch's `bound` puts some partition at the wrong end of its log."""
    if isinstance(bound, Each):
        way = f"a batch can't {'start' if name.startswith('start') else 'end'} at {edge}"
        for topic, word in bound.topics.items():
            if word == edge:
                raise ConfigError(name, f"{topic}: {edge}", way)
        for partition, where in bound.offsets.items():
            if where == edge:
                given = f"{partition.topic}-{partition.partition}: {number}"
                raise ConfigError(name, given, f"{way} ({number})")


# JSON with partitions --------------------------------------------------------------------------------


def _each_partition(
    name: str, value: str, shape: str, words: dict[str, Edge] | None = None
) -> dict[TopicPartition, int]:
    """``{"flights": {"0": 5}}`` as a map of partitions; ``{"flights": "earliest"}`` goes into `words`, if
    there is one. Offsets copied from a query's progress carry topics' ids and where newcomers began under
    keys that begin with ``@``: these are skipped.
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in json_object(name, value, shape).items():
        if topic.startswith("@"):
            continue
        if words is not None and isinstance(partitions, str):
            edge = partitions.strip().lower()
            if edge not in ("earliest", "latest"):
                raise ConfigError(name, value, f"allowed: JSON such as {shape}; {partitions!r} is no word")
            words[topic] = "earliest" if edge == "earliest" else "latest"
            continue
        if not isinstance(partitions, dict):
            raise ConfigError(name, value, f"allowed: JSON such as {shape}")
        for partition, number in cast("dict[str, object]", partitions).items():
            digits = partition.isascii() and partition.isdigit()
            if not digits or isinstance(number, bool) or not isinstance(number, int):
                raise ConfigError(name, value, f"allowed: JSON such as {shape}")
            place = TopicPartition(topic, int(partition))
            if place in found:
                twice = f"partition {place.partition} of {topic} is there twice"
                raise ConfigError(name, value, f"allowed: JSON such as {shape}; {twice}")
            found[place] = number
    return found
