"""`kproto offsets`: print offsets of partitions by time, and delete the records below an offset."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ..errors import ConfigError, KprotoError
from .arguments import Subparsers, parse_digits, topic_partitions
from .connection import (
    add_execute,
    add_verb,
    add_verbs,
    admin_client,
    done_items,
    exit_code,
    say_not_executed,
    succeeded,
)
from .tables import cell, print_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    from consumer import Admin, OffsetAt, TopicPartition


def add(commands: Subparsers) -> None:
    verbs = add_verbs(
        commands,
        "offsets",
        help_text="print offsets by time, and delete records",
        description="Print the offsets of partitions, as kafka-get-offsets does, and delete records.",
    )
    listing = add_verb(
        verbs,
        "list",
        _list,
        "print TOPIC:PARTITION:OFFSET for each partition",
        epilog="Example: kproto offsets list flights --time 2026-11-28T09:30:00 --bootstrap localhost:9092",
    )
    listing.add_argument("topics", nargs="*", metavar="TOPIC[:P,P]", help="default: all topics")
    listing.add_argument(
        "--time",
        default="latest",
        metavar="TIME",
        help="earliest, latest (the default), max_timestamp, earliest_local, latest_tiered, a time in ms "
        "since 1970, or a time such as 2026-11-28T09:30:00",
    )
    listing.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        default="read_uncommitted",
        help="with read_committed, latest is the end of the committed records",
    )
    delete = add_verb(verbs, "delete-records", _delete_records, "delete all records below an offset")
    delete.add_argument(
        "partitions",
        nargs="+",
        metavar="TOPIC:P=OFFSET",
        help="such as flights:0=1000; latest is all records",
    )
    add_execute(delete, "delete the records")


def _list(options: argparse.Namespace) -> int:
    from .times import offset_time

    offset_spec = offset_time("--time", options.time)
    offsets: dict[TopicPartition, OffsetAt] = {}
    failures: list[KprotoError] = []
    with admin_client(options) as admin:

        def collect_offsets(words: Sequence[str]) -> None:
            partitions = [
                partition for word in words for partition in topic_partitions("TOPIC", word, admin.partitions)
            ]
            specs = dict.fromkeys(partitions, offset_spec)
            offsets.update(
                succeeded(lambda: admin.list_offsets(specs, isolation=options.isolation), failures)
            )

        # Without arguments, one call lists all topics. Otherwise, each argument has its own call, so that it
        # can fail without the others.
        word_groups = [[word] for word in options.topics] or [sorted(admin.topics())]
        for _ in done_items(word_groups, collect_offsets, failures):
            pass
    for (topic, number), listed in offsets.items():
        if options.json:
            print_json(
                [
                    {
                        "topic": topic,
                        "partition": number,
                        "offset": listed.offset,
                        "timestamp": listed.timestamp,
                        "leaderEpoch": listed.leader_epoch,
                    }
                ]
            )
        else:
            print(f"{cell(topic)}:{number}:{'' if listed.offset is None else listed.offset}")
    return exit_code("offsets list", failures)


def _delete_records(options: argparse.Namespace) -> int:
    failures: list[KprotoError] = []
    bounds: dict[TopicPartition, int | str] = {}
    for word in options.partitions:
        partition, bound = _parse_record_bound(word)
        if partition in bounds:
            raise ConfigError("TOPIC:P=OFFSET", word, "allowed: each partition once")
        bounds[partition] = bound
    with admin_client(options) as admin:
        if not options.execute:
            _print_plan(admin, bounds, failures)
            say_not_executed("nothing was deleted")
            return exit_code("offsets delete-records", failures)
        deleted = succeeded(lambda: admin.delete_records(bounds), failures)
    for partition, low_watermark in deleted.items():
        if options.json:
            print_json(
                [{"topic": partition.topic, "partition": partition.partition, "lowWatermark": low_watermark}]
            )
        else:
            print(f"partition: {cell(partition)}\tlow_watermark: {low_watermark}")
    return exit_code("offsets delete-records", failures)


def _print_plan(admin: Admin, bounds: dict[TopicPartition, int | str], failures: list[KprotoError]) -> None:
    """Print which records would be deleted; add the errors of missing partitions to `failures`."""

    def print_partition(partition: TopicPartition) -> None:
        [start] = admin.list_offsets({partition: "earliest"}).values()
        [end] = admin.list_offsets({partition: "latest"}).values()
        bound = end.offset if bounds[partition] == "latest" else bounds[partition]
        print(
            f"delete the records of {cell(partition)} below offset {bound}; "
            f"the first offset is {start.offset}"
        )

    for _ in done_items(bounds, print_partition, failures):
        pass


def _parse_record_bound(word: str) -> tuple[TopicPartition, int | str]:
    """Parse TOPIC:P=OFFSET. The offset is a number, or "latest" for the end of the partition."""
    from consumer import TopicPartition

    name, _, offset = word.rpartition("=")
    topic, _, number = name.rpartition(":")
    if not topic or parse_digits(number) < 0 or (offset != "latest" and parse_digits(offset) < 0):
        raise ConfigError(
            "TOPIC:P=OFFSET",
            word,
            "allowed: a partition and an offset, as in flights:0=1000 or flights:0=latest",
        )
    return TopicPartition(topic, int(number)), offset if offset == "latest" else int(offset)
