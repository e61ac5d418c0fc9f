"""DescribeLogDirs returns the size of each partition's log on a broker."""

from __future__ import annotations

from typing import Any

from kproto.broker.machine import TruncateLog
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kproto.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.stage import Stage, TwoBrokers, batch_of


def sizes(stage: Stage, topics: list[DescribableLogDirTopic] | None = None) -> dict[str, dict[int, int]]:
    (result,) = stage.client().ask(DescribeLogDirsRequest(topics=topics)).results
    assert (result.error_code, result.log_dir, result.total_bytes, result.usable_bytes) == (
        0,
        "memory",
        -1,
        -1,
    )
    return {
        topic.name: {partition.partition_index: partition.partition_size for partition in topic.partitions}
        for topic in result.topics
    }


def test_the_size_is_that_of_the_written_batches() -> None:
    stage = Stage({"t": 2, "u": 1})
    batch = batch_of(b"a")
    for _ in range(3):
        stage.client().produce(batch)
    assert sizes(stage) == {"t": {0: 3 * len(batch), 1: 0}, "u": {0: 0}}
    wanted = [DescribableLogDirTopic(topic=name, partitions=[1, 1, 9]) for name in ("t", "none")]
    assert sizes(stage, wanted) == {"t": {1: 0}}
    assert sizes(stage, []) == {}


def test_records_before_the_log_start_count_until_their_segment_is_deleted() -> None:
    stage = Stage({"t": 1})
    batch = batch_of(b"a")
    for _ in range(3):
        stage.client().produce(batch)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    stage.client().ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert sizes(stage) == {"t": {0: 3 * len(batch)}}


def test_truncated_records_do_not_count() -> None:
    stage = Stage({"t": 1})
    batch = batch_of(b"a")
    for _ in range(3):
        stage.client().produce(batch)
    stage.step(TruncateLog("t", 0, 2))
    assert sizes(stage) == {"t": {0: 2 * len(batch)}}


def test_a_broker_describes_only_its_own_replicas(led_by_second_broker: TwoBrokers) -> None:
    has = [led_by_second_broker.ask(node, DescribeLogDirsRequest(topics=None), 5) for node in (1, 2)]
    topics: list[Any] = [response.results[0].topics for response in has if response is not None]  # type: ignore[attr-defined]
    assert [{t.name: [p.partition_index for p in t.partitions] for t in entry} for entry in topics] == [
        {"t": [0], "r": [0]},
        {"t": [1], "r": [0]},
    ]
