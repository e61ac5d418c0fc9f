"""The offsets that `kproto groups reset` commits, by the rules of kafka-consumer-groups --reset-offsets."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError
from .arguments import parse_digits
from .times import datetime_ms, duration_ms

if TYPE_CHECKING:
    from consumer import Admin, TopicPartition


def new_offsets(
    admin: Admin,
    partitions: Sequence[TopicPartition],
    committed: Mapping[TopicPartition, int],
    options: argparse.Namespace,
) -> tuple[dict[TopicPartition, int], list[KprotoError]]:
    """Return the new offsets, and notes about partitions that are skipped or whose target is out of range."""
    if options.to_earliest:
        return _list_offsets(admin, partitions, "earliest"), []
    if options.to_latest:
        return _list_offsets(admin, partitions, "latest"), []
    if options.to_datetime is not None or options.by_duration is not None:
        return _list_offsets(admin, partitions, _timestamp(options)), []
    if options.to_current:  # As in Kafka, --to-current keeps a committed offset that is outside of the log.
        missing = [partition for partition in partitions if partition not in committed]
        current = {**committed, **_list_offsets(admin, missing, "latest")}
        return {partition: current[partition] for partition in partitions}, []
    if options.to_offset is not None:
        return clamp_to_log(admin, dict.fromkeys(partitions, int(options.to_offset)))
    shifted = {
        partition: committed[partition] + options.shift_by
        for partition in partitions
        if partition in committed
    }
    skipped = [
        KprotoError(f"{partition} has no committed offset for --shift-by: it is skipped")
        for partition in partitions
        if partition not in committed
    ]
    clamped, notes = clamp_to_log(admin, shifted)
    return clamped, skipped + notes


def clamp_to_log(
    admin: Admin, targets: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, int], list[KprotoError]]:
    """Move offsets that are outside the log to the log start offset or the log end offset.

    Return the offsets, and a note about each offset that was changed.
    """
    starts = _list_offsets(admin, list(targets), "earliest")
    ends = _list_offsets(admin, list(targets), "latest")
    clamped = {
        partition: min(max(target, starts[partition]), ends[partition])
        for partition, target in targets.items()
    }
    notes = [
        KprotoError(
            f"{partition}: offset {target} is outside of the log, {starts[partition]} to {ends[partition]}; "
            f"the new offset is {clamped[partition]}"
        )
        for partition, target in targets.items()
        if clamped[partition] != target
    ]
    return clamped, notes


def _list_offsets(
    admin: Admin, partitions: Sequence[TopicPartition], spec: str | int
) -> dict[TopicPartition, int]:
    """Return each partition's offset at `spec`: a name such as "latest", or a time in ms since 1970.

    If all records of a partition are older than this time, the partition's end offset is returned.
    """
    listed = admin.list_offsets(dict.fromkeys(partitions, spec)) if partitions else {}
    older = [partition for partition, result in listed.items() if result.offset is None]
    ends = admin.list_offsets(dict.fromkeys(older, "latest")) if older else {}
    return {partition: (ends.get(partition, result).offset or 0) for partition, result in listed.items()}


def _timestamp(options: argparse.Namespace) -> int:
    """Return the time of `--to-datetime` or `--by-duration`, in ms since 1970."""
    if options.by_duration is not None:
        return max(0, time.time_ns() // 1_000_000 - duration_ms("--by-duration", options.by_duration))
    return datetime_ms("--to-datetime", options.to_datetime)


def read_offsets_file(path: Path) -> dict[TopicPartition, int]:
    """Read lines TOPIC,PARTITION,OFFSET, as `--export` prints them. Empty lines are skipped."""
    from consumer import TopicPartition

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            "--from-file", str(path), f"cannot be read: {error}; allowed: a readable text file"
        ) from None
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        topic, _, numbers = line.strip().partition(",")
        partition, _, offset = numbers.partition(",")
        if not topic or min(parse_digits(partition), parse_digits(offset)) < 0:
            allowed = f"allowed: lines TOPIC,PARTITION,OFFSET; line {number} is {line!r}"
            raise ConfigError("--from-file", str(path), allowed)
        offsets[TopicPartition(topic, int(partition))] = int(offset)
    return offsets
