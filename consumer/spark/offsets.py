"""The arithmetic of a query's offsets: what is read next, what is lost, how it is cut up. No I/O, no clock.

An offset is the *next* record to read. As JSON, which Spark writes to the checkpoint and shows in a query's
progress, it is Kafka's form, topic -> partition -> offset, like the JVM source's:

    {"@flights id=c0ff… began=2:0": {}, "@flights epochs=0:3,1:3,2:5": {},
     "flights": {"0": 17, "1": 9, "2": 4}}

The checkpoint keeps nothing else of a source, so what else must outlive a crash is in there, too: as keys
that no topic can be called, each a topic without partitions to whoever walks over them: the topic's id,
where newcomers began, and under which leader epoch each log was last looked at. (Before the first
release these were "@ids" and "@began" with values of their own, which are still read.)

Rules:

* Spark compares offsets as *text*. `Offsets.to_json` is the same for the same offsets: topics in order of
  name, partitions in order of number. Another key order would be a "new" offset, and an endless run of
  empty batches.
* An end says by itself where every partition that is new in it began (``began=``). So ``partitions(start,
  end)`` needs nothing else, and the replay of a batch after a crash reads the same range, the first one
  included, although Spark doesn't keep an initial offset and `latest` or a time would by then mean
  something else.
* A new query settles in its first end where every partition begins, also where nothing is to be read: Spark
  makes a batch of that end in any case, and what the options mean or say later is not asked again.
* A query that has begun stays begun: without any partition its offset is `{"@": {}}`, and Spark's own source
  writes `{}`; that of a query that is new is `{"@new": {}}`. A topic that comes later is read from its
  beginning, whatever `startingOffsets` says.
* A position never goes back, but to where a log was cut off, or to the start of a log made anew; both are
  data loss, and happen only when the user said failOnDataLoss=false.
* Where a log was cut off is known from its leader epochs: it may have grown beyond the position since. What
  was read when a leader of epoch 3 led is below where epoch 3 ends, or was cut off there. Without epochs
  (an older checkpoint or broker) a cut is seen only while the log is shorter than the position.
* Gaps are no loss: compaction and transaction markers leave offsets without a record. Only a log's start and
  end, and its topic's id, decide.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import cast

from kproto.errors import ConfigError, KprotoError
from kproto.group.subscription import TopicPartition

Positions = Mapping[TopicPartition, int]

_BEGUN, _NEW = "@", "@new"
_NOTE = re.compile(r"@([^ ]+)(?: id=([^ ]+))?(?: began=(\d+:\d+(?:,\d+:\d+)*))?")
_EPOCHS = re.compile(r"@([^ ]+) epochs=(\d+:\d+(?:,\d+:\d+)*)")


class DataLoss(KprotoError):
    """Records that this query should have read are not in the log any more. `losses` says which, one line
    each.
    """

    def __init__(self, losses: tuple[str, ...]) -> None:
        super().__init__(losses)
        self.losses = losses

    def __str__(self) -> str:
        return (
            "records may be lost: "
            + "; ".join(self.losses)
            + ". To read on with what there is, set failOnDataLoss=false"
        )


@dataclass(frozen=True, slots=True)
class Offsets:
    """Where a query is: the next offset of every partition, the ids of the topics, where newcomers began,
    and the leader epoch of each log when this was settled. `begun` tells a query without partitions from one
    that is new.
    """

    positions: Positions = field(default_factory=dict[TopicPartition, int])
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    began: Positions = field(default_factory=dict[TopicPartition, int])
    epochs: Positions = field(default_factory=dict[TopicPartition, int])
    begun: bool = False

    @property
    def new(self) -> bool:
        """Whether nothing was settled yet, not even that there is nothing."""
        return not (self.positions or self.begun)

    @classmethod
    def from_json(cls, given: object) -> Offsets:
        """The offsets behind a JSON object from a checkpoint. Raises ConfigError if it is none of ours."""
        if not isinstance(given, Mapping):
            raise _broken(given)
        read = cast("Mapping[str, object]", given)
        ids = dict(cast("Mapping[str, str]", read.get("@ids", {})))
        began = _flat(cast("Mapping[str, object]", read.get("@began", {})))
        epochs: dict[TopicPartition, int] = {}
        for key in read:
            if (note := _NOTE.fullmatch(key)) is not None:
                topic, id_, starts = note.groups()
                if id_:
                    ids[topic] = id_
                began.update(_numbered(topic, starts))
            elif (note := _EPOCHS.fullmatch(key)) is not None:
                epochs.update(_numbered(*note.groups()))
        topics = {name: partitions for name, partitions in read.items() if not name.startswith("@")}
        positions = _flat(topics)
        return cls(positions, ids, began, epochs, begun=not positions and _NEW not in read)

    def to_json(self) -> dict[str, object]:
        """The same offsets as a JSON object whose text is always the same."""
        began, epochs = _texts(self.began), _texts(self.epochs)
        found: dict[str, object] = {} if self.positions else {_NEW if self.new else _BEGUN: {}}
        for topic in sorted({*began, *self.ids}):
            id_ = f" id={self.ids[topic]}" if topic in self.ids else ""
            starts = f" began={began[topic]}" if topic in began else ""
            found[f"@{topic}{id_}{starts}"] = {}
        # By themselves: a release that doesn't know them passes over them.
        found.update({f"@{topic} epochs={epochs[topic]}": {} for topic in sorted(epochs)})
        found.update(_nested(self.positions))
        return found


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster says at one moment: the end of every log that is to be read, and the ids of their
    topics.

    The end is the high watermark, or the last stable offset for a reader of committed records only. `ids`
    has no entry for a topic of a broker that knows no ids (before Kafka 2.8), nor `epochs`, the leaders',
    one for a partition of a broker that tells none (before 2.1). `cuts` is where logs were cut off below the
    query's position, of those of which this is known.
    """

    ends: Positions
    ids: Mapping[str, str]
    epochs: Positions = field(default_factory=dict[TopicPartition, int])
    cuts: Positions = field(default_factory=dict[TopicPartition, int])


@dataclass(frozen=True, slots=True)
class Range:
    """Records of one partition from `start` up to, and without, `end`. Where these are its log's own and
    `open`, the log's count when it is read, as it may have moved.
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


@dataclass(frozen=True, slots=True)
class Changes:
    """What happened to the logs since `start`: who is new, and who lost records.

    `new` partitions were never read; `remade` ones belong to a topic that was deleted and made anew; `cut`
    logs were cut off before the position; `gone` partitions aren't there any more.
    """

    new: tuple[TopicPartition, ...] = ()
    remade: tuple[TopicPartition, ...] = ()
    cut: tuple[TopicPartition, ...] = ()
    gone: tuple[TopicPartition, ...] = ()
    losses: tuple[str, ...] = ()


def changes(start: Offsets, view: View, asked: Callable[[TopicPartition], bool] | None = None) -> Changes:
    """Compare where the query is with what the cluster has now; `losses` names every loss in words. `asked`
    tells what the options ask for: what they don't isn't gone.
    """
    new = tuple(sorted(set(view.ends) - set(start.positions)))
    remade: list[TopicPartition] = []
    cut: list[TopicPartition] = []
    gone: list[TopicPartition] = []
    losses: list[str] = []
    anew: set[str] = set()
    for partition, position in sorted(start.positions.items()):
        topic, number = partition
        before, now = start.ids.get(topic), view.ids.get(topic)
        if before is not None and now is not None and before != now:
            if position and topic not in anew:  # at 0 nothing of it was there to lose, as far as is known
                losses.append(f"topic {topic} was deleted and made anew (its id was {before}, and is {now})")
                anew.add(topic)
            (remade if partition in view.ends else gone).append(partition)
        elif partition not in view.ends:
            gone.append(partition)
            here = asked is None or asked(partition)
            why = "is gone" if here else "is not asked for any more, by this checkpoint's query"
            losses.append(f"partition {topic}-{number} {why}; it was read up to {position}")
        elif partition in view.cuts:
            cut.append(partition)
            at = view.cuts[partition]
            losses.append(f"the log of {topic}-{number} was cut off at {at}; it was read up to {position}")
        elif view.ends[partition] < position:
            cut.append(partition)
            ends = view.ends[partition]
            losses.append(
                f"the log of {topic}-{number} ends at {ends}, and was read up to {position}: "
                "it was cut off, and where is not known"
            )
    return Changes(new, tuple(remade), tuple(cut), tuple(gone), tuple(losses))


def moved(start: Offsets, view: View) -> dict[TopicPartition, int]:
    """The leader epochs under which logs were read that have another leader now; they may have been cut."""
    return {
        p: epoch
        for p, epoch in start.epochs.items()
        if view.epochs.get(p, epoch) > epoch
        and p in start.positions
        and start.ids.get(p.topic) == view.ids.get(p.topic, start.ids.get(p.topic))
    }


def advance(
    start: Offsets,
    view: View,
    starts: Positions,
    *,
    limit: int | None = None,
    ceiling: View | None = None,
) -> Offsets:
    """The end of the next batch; `start` itself, the very object, if there is nothing to do.

    `starts` gives a first position to every partition that needs one (see `changes`): those new, made anew
    or cut off. `limit` is the greatest number of offsets in the batch; it is shared in proportion to
    what waits in each partition. `ceiling` holds the ends that may not be passed.
    """
    ends = dict(view.ends)
    if ceiling is not None:
        same = {name for name, id_ in ceiling.ids.items() if view.ids.get(name) == id_}
        ends = {
            p: min(end, ceiling.ends[p])
            for p, end in ends.items()
            if p in ceiling.ends and (p.topic in same or p.topic not in ceiling.ids)
        }
    base: dict[TopicPartition, int] = {}
    for partition in view.ends:
        if partition in starts:
            base[partition] = starts[partition]
        elif partition in start.positions:
            base[partition] = start.positions[partition]
    backlog = {p: ends[p] - position for p, position in base.items() if ends.get(p, 0) > position}
    taken = backlog if limit is None else share(limit, backlog)

    restarted = any(p in starts for p in start.positions)
    gone = any(p not in base for p in start.positions)
    if not (taken or restarted or gone or start.new):
        return start
    positions = {p: position + taken.get(p, 0) for p, position in base.items()}
    began = {p: position for p, position in base.items() if p in starts}
    topics = {p.topic for p in positions}
    ids = {name: id_ for name, id_ in view.ids.items() if name in topics}
    epochs = {p: epoch for p, epoch in view.epochs.items() if p in positions}
    return Offsets(positions, ids, began, epochs, begun=not positions)


def trimmed(new: Positions) -> list[str]:
    """In words, what newcomers lost before anybody read it; `new` is where their logs begin."""
    return [
        f"partition {topic}-{number} is new to this query, and its log begins at {first}: what was before "
        "is gone, and was not read"
        for (topic, number), first in sorted(new.items())
        if first > 0
    ]


def share(limit: int, backlog: Positions) -> dict[TopicPartition, int]:
    """`limit` offsets shared in proportion to each partition's backlog, rounded down, but for at least one
    to each, so that none starves: number by number as Spark's own source does it.
    """
    total = sum(backlog.values())
    return {p: min(waiting, max(1, int(limit * (waiting / total)))) for p, waiting in backlog.items()}


def waits(waiting: int, least: int | None, since_last_ms: int | None, longest_ms: int) -> bool:
    """Whether a batch of `waiting` offsets should wait for more, as minOffsetsPerTrigger and
    maxTriggerDelay say.

    `since_last_ms` is the time since the last batch of this run; None, before the first, never waits.
    """
    return least is not None and since_last_ms is not None and waiting < least and since_last_ms < longest_ms


def waiting(start: Offsets, end: Offsets) -> int:
    """How many offsets lie between two offsets of a query."""
    return sum(r.size for r in ranges(start, end))


def ranges(start: Offsets, end: Offsets) -> list[Range]:
    """What a batch from `start` to `end` reads, in order; a function of its arguments and nothing else."""
    found: list[Range] = []
    for partition, stop in sorted(end.positions.items()):
        begin = end.began.get(partition, start.positions.get(partition))
        if begin is None:
            name = f"{partition.topic}-{partition.partition}"
            raise ConfigError(
                "checkpointLocation",
                name,
                "the checkpoint's start doesn't know this partition: it was edited, or its last batch was "
                'planned by format("kafka"), and has to be finished by it',
            )
        if begin < stop:
            found.append(
                Range(partition.topic, partition.partition, begin, stop, end.ids.get(partition.topic))
            )
    return found


def split(
    whole: Iterable[Range], *, least: int | None = None, most_records: int | None = None
) -> list[Range]:
    """Cut ranges, by offset, until there are at least `least` of them and none holds more than
    `most_records` offsets.

    The longest pieces are cut first, into equal parts. A single offset can't be cut, so short ranges may
    give fewer.
    """
    whole = [r for r in whole if r.size > 0 or r.open_end]
    parts = [1 if most_records is None else max(1, -(-r.size // most_records)) for r in whole]
    missing = (least or 0) - sum(parts)
    longest = [(-r.size / n, i) for i, (r, n) in enumerate(zip(whole, parts, strict=True)) if n < r.size]
    heapq.heapify(longest)
    while missing > 0 and longest:
        _, i = heapq.heappop(longest)
        parts[i] += 1
        missing -= 1
        if parts[i] < whole[i].size:
            heapq.heappush(longest, (-whole[i].size / parts[i], i))
    return [piece for r, n in zip(whole, parts, strict=True) for piece in _pieces(r, n)]


def exactly(
    option: str,
    named: Iterable[TopicPartition],
    assigned: Iterable[TopicPartition],
    topics: Iterable[str] = (),
) -> None:
    """Raise ConfigError unless an option's JSON names exactly the partitions, and no other `topics` than
    those, that are read; shows both sets.
    """
    has, needs = set(named), set(assigned)
    others = set(topics) - {p.topic for p in needs}
    if others:
        raise ConfigError(
            option, ", ".join(sorted(others)), f"no partition of it is read: {_names(needs)} are"
        )
    if has != needs:
        raise ConfigError(
            option, _names(has), f"it must name exactly the partitions that are read: {_names(needs)}"
        )


def inside(
    option: str, starts: Positions, log_starts: Positions, log_ends: Positions
) -> tuple[dict[TopicPartition, int], list[str]]:
    """Starts that lie in their logs. One that doesn't is moved to the log's edge, and is a loss, in words."""
    losses: list[str] = []
    for (topic, number), start in sorted(starts.items()):
        first, last = (at[TopicPartition(topic, number)] for at in (log_starts, log_ends))
        if not first <= start <= last:
            losses.append(f"{option} says {start} for {topic}-{number}, whose log is from {first} to {last}")
    return {p: min(max(start, log_starts[p]), log_ends[p]) for p, start in starts.items()}, losses


def bounded(
    starts: Positions,
    ends: Positions,
    log_starts: Positions,
    log_ends: Positions,
    ids: Mapping[str, str],
    *,
    open_starts: Collection[TopicPartition] = (),
    open_ends: Collection[TopicPartition] = (),
    given_starts: Collection[TopicPartition] = (),
    given_ends: Collection[TopicPartition] = (),
) -> tuple[list[Range], list[str]]:
    """What a batch query reads. A bound that was given as a number and isn't in the log is moved to the log's
    edge, and is a loss, in words. One that was found there may lie outside by now: logs grow and are deleted
    while they are asked.
    """
    found: list[Range] = []
    losses: list[str] = []
    for partition, start in sorted(starts.items()):
        name, end = f"{partition.topic}-{partition.partition}", ends[partition]
        first, last = log_starts[partition], log_ends[partition]
        if partition in given_starts:
            if start < first:
                losses.append(f"the log of {name} begins at {first}, after the start asked for, {start}")
            elif start > last:
                losses.append(f"startingOffsets says {start} for {name}, whose log is from {first} to {last}")
            start = min(start, last)
        if partition in given_ends:
            if end > last:
                losses.append(f"the log of {name} ends at {last}, before the end asked for, {end}")
            elif 0 < end < first and partition not in given_starts:
                losses.append(f"the log of {name} begins at {first}, after the end asked for, {end}")
        start = max(start, first)
        end = max(start, min(end, last))
        moves = partition in open_starts, partition in open_ends
        found.append(Range(*partition, start, end, ids.get(partition.topic), *moves))
    return [r for r in found if r.size > 0 or r.open_end], losses


def _pieces(whole: Range, parts: int) -> list[Range]:
    if parts == 1:
        return [whole]
    at = [whole.start + whole.size * i // parts for i in range(parts + 1)]
    first, last = whole.open_start, whole.open_end
    return [
        replace(whole, start=a, end=b, open_start=first and i == 0, open_end=last and i == parts - 1)
        for i, (a, b) in enumerate(pairwise(at))
    ]


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions)) or "(none)"


def _texts(numbers: Positions) -> dict[str, str]:
    """Topic -> ``0:17,1:9``, as the notes have it."""
    found: dict[str, list[str]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        found.setdefault(topic, []).append(f"{partition}:{number}")
    return {topic: ",".join(texts) for topic, texts in found.items()}


def _numbered(topic: str, text: str | None) -> dict[TopicPartition, int]:
    pairs = (pair.split(":") for pair in text.split(",")) if text else ()
    return {TopicPartition(topic, int(partition)): int(number) for partition, number in pairs}


def _nested(positions: Positions) -> dict[str, object]:
    found: dict[str, dict[str, int]] = {}
    for partition, position in sorted(positions.items()):
        found.setdefault(partition.topic, {})[str(partition.partition)] = position
    return cast("dict[str, object]", found)


def _flat(topics: Mapping[str, object]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, Mapping):
            raise _broken({topic: partitions})
        for number, position in cast("Mapping[str, object]", partitions).items():
            # No bool, and no number that has to be rounded; int64 is what a broker takes.
            whole = type(position) is int and 0 <= position < 1 << 63
            if not (whole and number.isascii() and number.isdigit()):
                raise _broken({topic: {number: position}})
            found[TopicPartition(topic, int(number))] = cast("int", position)
    return found


def _broken(given: object) -> ConfigError:
    why = (
        'its offsets are no JSON such as {"flights": {"0": 17}}: the last file in its folder "offsets" was '
        "edited, is broken, or is another source's. Put a copy of it back, or begin with a new "
        "checkpointLocation and startingOffsets"
    )
    return ConfigError("checkpointLocation", given, why)
