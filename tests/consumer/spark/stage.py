"""A broker with topics and records, the options to read them, and the reference page of the options."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from consumer import Admin
from kproto.group.subscription import TopicPartition
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.records import encode_batch
from kproto.records.record import Record

# The timestamp of the first record, in ms. It must be recent, because a real broker soon deletes records
# older than a week.
HOUR = time.time_ns() // 10**9 // 3600 * 3600_000


class Filled:
    """A broker with topics, and the options to read them."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.cluster = Admin(bootstrap)

    def topic(self, name: str, *counts: int) -> None:
        """Create a topic whose partition i has `counts[i]` records."""
        self.cluster.create_topics({name: len(counts)})
        for partition, count in enumerate(counts):
            self.put(name, partition, count)

    def put(self, name: str, partition: int, count: int, *, at: int = HOUR) -> None:
        """Write `count` records whose timestamps are one ms apart. The first timestamp is `at`."""
        if count:
            records = [Record(i, at + i, None, b"%d" % i) for i in range(count)]
            self.cluster.produce(TopicPartition(name, partition), encode_batch(records))

    def delete_before(self, partition: TopicPartition, offset: int) -> None:
        """Delete the records of a partition before `offset`, as retention does."""
        entry = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
        topics = [DeleteRecordsTopic(name=partition.topic, partitions=[entry])]
        node = ("leader", partition.topic, partition.partition)
        self.cluster.request(DeleteRecordsRequest(topics=topics, timeout_ms=1000), node)

    def options(self, **more: str | int) -> dict[str, str]:
        """Return options that read the topic "t", with the options `more`. `_` in a name stands for a dot."""
        options: dict[str, str] = {name.replace("_", "."): str(value) for name, value in more.items()}
        if not {"subscribe", "subscribePattern", "assign"} & options.keys():
            options["subscribe"] = "t"
        return {"kafka.bootstrap.servers": self.bootstrap, **options}


def runs(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return a (first, last) pair for each range of consecutive numbers. Tests compare many offsets in this
    form.
    """
    result: list[tuple[int, int]] = []
    for number in numbers:
        if result and result[-1][1] == number - 1:
            result[-1] = (result[-1][0], number)
        else:
            result.append((number, number))
    return result


OPTIONS_PAGE = Path(__file__).parents[3] / "docs" / "reference" / "spark-options.md"


class OptionRow(NamedTuple):
    """A row of the reference page of the options."""

    option: str
    example: str
    verdict: str


def option_rows() -> list[OptionRow]:
    """Return the rows of the reference page of the options, one for each option."""
    rows: list[OptionRow] = []
    for line in OPTIONS_PAGE.read_text().splitlines():
        if line.startswith("| `"):
            names, example, verdict, _ = (cell.strip() for cell in line.strip("|").split("|"))
            rows += [OptionRow(name, example.strip("`"), verdict) for name in re.findall(r"`([^`]+)`", names)]
    return rows
