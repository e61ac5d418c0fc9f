"""Compute the end offset of a query's next batch, and find lost records, without I/O or a clock.

A query's offset contains the offset of the *next* record to read in each partition. Spark writes it as JSON
to the checkpoint, and shows it in the query's progress. The JSON maps topics to partitions and offsets, as in
Spark's own source:

    {"@flights id=c0ff… began=2:0": {}, "@flights epochs=0:3,1:3,2:5": {},
     "flights": {"0": 17, "1": 9, "2": 4}}

A source can store only offsets in the checkpoint. So all other data that must survive a crash is stored in
additional keys, which cannot be topic names. Their values are empty objects, so other readers of the
checkpoint, such as Spark's own source, see these keys as topics without partitions.

Each topic has up to two additional keys. One contains the topic's id and the first offset of each new
partition (``began=``). The other contains the leader epochs of the topic's logs. The keys "@ids" and "@began"
of the oldest checkpoints are still read.

Rules:

* Spark compares the JSON *text* of offsets, so `Offsets.to_json` is deterministic: topics are sorted by name,
  and partitions by number. If the order varied, Spark would treat an equal offset as new, and run empty
  batches forever.

* The end offset of a batch also contains the first offset of each partition that is new in the batch. So
  ``partitions(start, end)`` needs only the two offsets.

* After a crash, a batch is repeated with the same range. This includes the first batch, although Spark does
  not store an initial offset.

* The first end offset of a new query contains the first offset of every partition, even if there is nothing
  to read. Spark runs a batch up to this offset and stores it, so options such as
  `startingOffsets` are not evaluated again.

* A query that began when no partition existed is not a new query: a topic that is created afterwards is read
  from its start, whatever `startingOffsets` says. The offset of such a query is `{"@": {}}`, or `{}` if
  Spark's own source wrote it. The offset of a new query is `{"@new": {}}`.

* A position moves back only to the offset at which a log was truncated, or to the start of a re-created log.
  Both are data loss, and raise an error unless failOnDataLoss=false.

* Truncation is detected by leader epochs, and not only by the end of the log, which may have grown beyond the
  position again. For example, the query has read records of epoch 3 up to offset 20. If epoch 3 now ends at
  offset 10, the log was truncated at offset 10.

* Leader epochs are missing with brokers before Kafka 2.1, and in checkpoints of Spark's own source or of old
  releases of kproto. Truncation is then detected only while the log is shorter than the position.

* Gaps in the offsets are not data loss: compaction and transaction markers leave offsets without a record.
  Data loss is detected from the start and end of a log, the topic id and the leader epochs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import cast

from kproto.errors import ConfigError, KprotoError
from kproto.group.subscription import TopicPartition

Positions = Mapping[TopicPartition, int]

# A streaming offset that contains no partitions has one of these keys in its JSON: the first if the query has
# begun, and the second if the query is new.
_BEGUN_KEY, _NEW_KEY = "@", "@new"
_TOPIC_KEY = re.compile(r"@([^ ]+)(?: id=([^ ]+))?(?: began=(\d+:\d+(?:,\d+:\d+)*))?")
_EPOCHS_KEY = re.compile(r"@([^ ]+) epochs=(\d+:\d+(?:,\d+:\d+)*)")


class DataLoss(KprotoError):
    """The error that is raised if records were deleted or truncated before the query read them.

    `losses` describes each loss in one line.
    """

    def __init__(self, losses: tuple[str, ...]) -> None:
        super().__init__(losses)
        self.losses = losses

    def __str__(self) -> str:
        return (
            "records may be lost: "
            + "; ".join(self.losses)
            + ". To continue with the remaining records, set failOnDataLoss=false"
        )


@dataclass(frozen=True, slots=True)
class Offsets:
    """The progress of a query: its position in each partition, and what its next batch needs.

    `ids`: topic ids. `began`: first offsets of new partitions. `epochs`: leader epochs at the time when the
    offsets were determined.

    `begun` is true for a query that has begun without partitions. It is false for a new query.
    """

    positions: Positions = field(default_factory=dict[TopicPartition, int])
    ids: Mapping[str, str] = field(default_factory=dict[str, str])
    began: Positions = field(default_factory=dict[TopicPartition, int])
    epochs: Positions = field(default_factory=dict[TopicPartition, int])
    begun: bool = False

    @property
    def new(self) -> bool:
        """Whether the query is new. A query that has begun without partitions is not new."""
        return not (self.positions or self.begun)

    @classmethod
    def from_json(cls, json: object) -> Offsets:
        """Read an offset from a checkpoint. Raises ConfigError if it is not an offset of this source."""
        if not isinstance(json, Mapping):
            raise _invalid_offsets(json)
        json_object = cast("Mapping[str, object]", json)
        ids = dict(cast("Mapping[str, str]", json_object.get("@ids", {})))
        began = _parse_positions(cast("Mapping[str, object]", json_object.get("@began", {})))
        epochs: dict[TopicPartition, int] = {}
        for key in json_object:
            if (match := _TOPIC_KEY.fullmatch(key)) is not None:
                topic, topic_id, starts = match.groups()
                if topic_id:
                    ids[topic] = topic_id
                began.update(_parse_pairs(topic, starts))
            elif (match := _EPOCHS_KEY.fullmatch(key)) is not None:
                epochs.update(_parse_pairs(*match.groups()))
        topics = {name: partitions for name, partitions in json_object.items() if not name.startswith("@")}
        positions = _parse_positions(topics)
        return cls(positions, ids, began, epochs, begun=not positions and _NEW_KEY not in json_object)

    def to_json(self) -> dict[str, object]:
        """Return a JSON object. Its text is the same whenever the offsets are the same."""
        began, epochs = _pair_texts(self.began), _pair_texts(self.epochs)
        json: dict[str, object] = {} if self.positions else {_NEW_KEY if self.new else _BEGUN_KEY: {}}
        for topic in sorted({*began, *self.ids}):
            topic_id = f" id={self.ids[topic]}" if topic in self.ids else ""
            starts = f" began={began[topic]}" if topic in began else ""
            json[f"@{topic}{topic_id}{starts}"] = {}
        # The epochs have separate keys, which releases without support for epochs ignore.
        json.update({f"@{topic} epochs={epochs[topic]}": {} for topic in sorted(epochs)})
        json.update(_nest_positions(self.positions))
        return json


@dataclass(frozen=True, slots=True)
class View:
    """A snapshot of the end of each log that a query reads, and of the ids of the topics.

    An end is the high watermark or, under read_committed, the last stable offset.

    `ids` lacks the topics of brokers before Kafka 2.8, which have no topic ids. `epochs` lacks the partitions
    of brokers before 2.1, which return no leader epochs. `truncations` contains the known offsets at which
    logs were truncated below the query's position.
    """

    ends: Positions
    ids: Mapping[str, str]
    epochs: Positions = field(default_factory=dict[TopicPartition, int])
    truncations: Positions = field(default_factory=dict[TopicPartition, int])


@dataclass(frozen=True, slots=True)
class Changes:
    """How the logs have changed since the offset `start` of a query.

    `new`: partitions that were never read. `recreated`: partitions of topics that were deleted and
    re-created. `truncated`: partitions whose log was truncated below the position. `removed`: partitions that
    no longer exist.
    """

    new: tuple[TopicPartition, ...] = ()
    recreated: tuple[TopicPartition, ...] = ()
    truncated: tuple[TopicPartition, ...] = ()
    removed: tuple[TopicPartition, ...] = ()
    losses: tuple[str, ...] = ()


def find_changes(
    start: Offsets, view: View, is_selected: Callable[[TopicPartition], bool] | None = None
) -> Changes:
    """Compare the progress of a query with the current logs. `losses` describes every loss.

    `is_selected` returns whether the options select a partition. A missing partition that the options do not
    select is reported as no longer selected, and any other as deleted.
    """
    new = tuple(sorted(set(view.ends) - set(start.positions)))
    recreated: list[TopicPartition] = []
    truncated: list[TopicPartition] = []
    removed: list[TopicPartition] = []
    losses: list[str] = []
    reported_topics: set[str] = set()
    for partition, position in sorted(start.positions.items()):
        topic, partition_number = partition
        known_id, current_id = start.ids.get(topic), view.ids.get(topic)
        if known_id is not None and current_id is not None and known_id != current_id:
            # At position 0, the query has read no record of the deleted log. It is unknown whether the log
            # had records, so no loss is reported.
            if position and topic not in reported_topics:
                losses.append(
                    f"topic {topic} was deleted and re-created (its id was {known_id}, and is {current_id})"
                )
                reported_topics.add(topic)
            (recreated if partition in view.ends else removed).append(partition)
        elif partition not in view.ends:
            removed.append(partition)
            if is_selected is None or is_selected(partition):
                reason = "was deleted"
            else:
                reason = "is no longer selected by the query of this checkpoint"
            losses.append(f"partition {topic}-{partition_number} {reason}; it was read up to {position}")
        elif partition in view.truncations:
            truncated.append(partition)
            truncated_at = view.truncations[partition]
            losses.append(
                f"the log of {topic}-{partition_number} was truncated at {truncated_at}; "
                f"it was read up to {position}"
            )
        elif view.ends[partition] < position:
            truncated.append(partition)
            log_end = view.ends[partition]
            losses.append(
                f"the log of {topic}-{partition_number} ends at {log_end}, and was read up to {position}: "
                "it was truncated at an unknown offset"
            )
    return Changes(new, tuple(recreated), tuple(truncated), tuple(removed), tuple(losses))


def moved(start: Offsets, view: View) -> dict[TopicPartition, int]:
    """Return the epoch in `start` of each partition whose leader epoch is higher in `view`.

    Partitions of re-created topics are omitted.
    """
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
    """Return the end of the next batch, or the object `start` itself if there is no batch.

    `starts` contains the first position of each new, re-created or truncated partition (see `find_changes`).
    `limit` is the number of offsets that `share` divides among the partitions, in proportion to their
    backlogs. `ceiling` contains ends that must not be exceeded.
    """
    ends = dict(view.ends)
    if ceiling is not None:
        unchanged_topics = {name for name, topic_id in ceiling.ids.items() if view.ids.get(name) == topic_id}
        ends = {
            p: min(end, ceiling.ends[p])
            for p, end in ends.items()
            if p in ceiling.ends and (p.topic in unchanged_topics or p.topic not in ceiling.ids)
        }
    batch_starts: dict[TopicPartition, int] = {}
    for partition in view.ends:
        if partition in starts:
            batch_starts[partition] = starts[partition]
        elif partition in start.positions:
            batch_starts[partition] = start.positions[partition]
    backlog = {p: ends[p] - position for p, position in batch_starts.items() if ends.get(p, 0) > position}
    shares = backlog if limit is None else share(limit, backlog)

    has_restarted_logs = any(p in starts for p in start.positions)
    has_removed_partitions = any(p not in batch_starts for p in start.positions)
    if not (shares or has_restarted_logs or has_removed_partitions or start.new):
        return start
    positions = {p: position + shares.get(p, 0) for p, position in batch_starts.items()}
    began = {p: position for p, position in batch_starts.items() if p in starts}
    topics = {p.topic for p in positions}
    ids = {name: topic_id for name, topic_id in view.ids.items() if name in topics}
    epochs = {p: epoch for p, epoch in view.epochs.items() if p in positions}
    return Offsets(positions, ids, began, epochs, begun=not positions)


def describe_trimmed(new: Positions) -> list[str]:
    """Return one line for each new partition whose first records the query misses.

    The first records of such a partition were deleted before the query could read them.

    `new` maps each new partition to the start of its log.
    """
    return [
        f"partition {topic}-{partition_number} is new to this query, and its log begins at {first}: "
        "earlier records were deleted before they were read"
        for (topic, partition_number), first in sorted(new.items())
        if first > 0
    ]


def share(limit: int, backlog: Positions) -> dict[TopicPartition, int]:
    """Divide `limit` offsets among the partitions, in proportion to each partition's backlog.

    Each share is rounded down, but is at least one, so every partition makes progress. The sum of the shares
    can therefore exceed `limit`. Spark's own source computes the same shares.
    """
    total = sum(backlog.values())
    return {p: min(count, max(1, int(limit * (count / total)))) for p, count in backlog.items()}


def should_wait(waiting: int, least: int | None, since_last_ms: int | None, longest_ms: int) -> bool:
    """Return whether minOffsetsPerTrigger and maxTriggerDelay delay a batch of `waiting` offsets.

    `least` is the value of minOffsetsPerTrigger, and `longest_ms` that of maxTriggerDelay. `since_last_ms` is
    the time since the last batch of this run. It is None before the first batch, which is never delayed.
    """
    return least is not None and since_last_ms is not None and waiting < least and since_last_ms < longest_ms


def _pair_texts(numbers: Positions) -> dict[str, str]:
    """Map each topic to its ``partition:number`` pairs in one string, such as ``0:17,1:9``.

    The numbers are offsets or leader epochs. Each string becomes a part of a key such as
    ``@flights epochs=0:17,1:9``.
    """
    pairs: dict[str, list[str]] = {}
    for (topic, partition), number in sorted(numbers.items()):
        pairs.setdefault(topic, []).append(f"{partition}:{number}")
    return {topic: ",".join(texts) for topic, texts in pairs.items()}


def _parse_pairs(topic: str, text: str | None) -> dict[TopicPartition, int]:
    """Parse the ``partition:number`` pairs of a topic, as `_pair_texts` writes them."""
    pairs = (pair.split(":") for pair in text.split(",")) if text else ()
    return {TopicPartition(topic, int(partition)): int(number) for partition, number in pairs}


def _nest_positions(positions: Positions) -> dict[str, object]:
    """Return the positions as JSON that maps topics to partitions and offsets, in sorted order."""
    nested: dict[str, dict[str, int]] = {}
    for partition, position in sorted(positions.items()):
        nested.setdefault(partition.topic, {})[str(partition.partition)] = position
    return cast("dict[str, object]", nested)


def _parse_positions(topics: Mapping[str, object]) -> dict[TopicPartition, int]:
    """Parse JSON that maps topics to partitions and offsets. Raises ConfigError for any other content."""
    positions: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        if not isinstance(partitions, Mapping):
            raise _invalid_offsets({topic: partitions})
        for number, position in cast("Mapping[str, object]", partitions).items():
            # An offset must be a non-negative int64, as in Kafka. A bool or a float is rejected.
            is_offset = type(position) is int and 0 <= position < 1 << 63
            if not (is_offset and number.isascii() and number.isdigit()):
                raise _invalid_offsets({topic: {number: position}})
            positions[TopicPartition(topic, int(number))] = cast("int", position)
    return positions


def _invalid_offsets(value: object) -> ConfigError:
    """Return the error for checkpoint offsets that cannot be parsed."""
    reason = (
        'its offsets are not JSON such as {"flights": {"0": 17}}: the last file in its folder "offsets" was '
        "edited, is broken, or belongs to another source. Restore a copy of it, or start with a new "
        "checkpointLocation and startingOffsets"
    )
    return ConfigError("checkpointLocation", value, reason)
