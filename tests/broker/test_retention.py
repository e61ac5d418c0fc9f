"""Retention: the oldest segments are deleted by their age and by the size of the log (UnifiedLog)."""

from __future__ import annotations

import pytest

from kproto.broker.dynamic_config import DYNAMIC
from kproto.broker.log import Log
from kproto.broker.machine import CleanLogs
from kproto.broker.topics import Topic
from kproto.error_codes import ErrorCode
from kproto.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tests.broker.stage import Client, Stage, batch_of, fetch_request, fetch_topic

HOUR = 3_600_000
# Two batches with this value exceed 1 MiB, the minimum of segment.bytes, so each gets its own segment.
LARGE = b"x" * 700_000


def set_configs(stage: Stage, **configs: object) -> Topic:
    topic = stage.topic("t")
    topic.configs.update({name.replace("_", "."): str(value) for name, value in configs.items()})
    return topic


def write(client: Client, *ages: int, value: bytes = b"x") -> None:
    """For each age (ms) in `ages`, write a batch whose timestamp is that much older than now."""
    for age in ages:
        assert client.produce(batch_of(value, timestamps=[client.stage.now - age])).error_code == 0


def bounds(stage: Stage) -> tuple[int, int]:
    """Step the broker, and return the start and end offset of the log."""
    stage.client()
    log = stage.log("t")
    return log.start_offset, log.end_offset


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_has_at_most_segment_bytes(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_bytes=1 << 20)
    write(client, 0, 0, 0, value=LARGE)
    write(client, 0, 0)
    assert bases(stage.log("t")) == [0, 1, 2]


def test_log_segment_bytes_applies_to_topics_without_segment_bytes() -> None:
    stage = Stage({"t": 1, "own": 1}, log_segment_bytes=1 << 20)
    stage.topic("own").configs["segment.bytes"] = str(1 << 30)
    client = stage.client()
    for topic in ("t", "own"):
        for _ in range(3):
            client.produce(batch_of(LARGE), topic)
    assert bases(stage.log("t")) == [0, 1, 2]
    assert bases(stage.log("own")) == [0]


def test_a_segment_spans_at_most_segment_ms(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=100)
    write(client, 500, 400, 399, 450, 298)
    assert bases(stage.log("t")) == [0, 2, 4]


def test_a_compacted_segment_spans_at_most_the_maximum_lag(stage: Stage, client: Client) -> None:
    topic = set_configs(stage, segment_ms=100, max_compaction_lag_ms=10)
    assert topic.limits(stage.broker.settings).ms == 100
    set_configs(stage, cleanup_policy="compact")
    assert topic.limits(stage.broker.settings).ms == 10


def test_segments_older_than_retention_ms_are_deleted(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=100, retention_ms=1_000)
    write(client, 1_500, 1_450, 1_050, 1_000, 0)  # Three segments with two, two and one batches.
    stage.step(CleanLogs())
    # The segment at offset 2 is kept: the age of its newest batch does not exceed the limit of 1,000 ms.
    assert bounds(stage) == (2, 5)
    stage.now += 1
    stage.step(CleanLogs())
    assert bounds(stage) == (4, 5)


@pytest.mark.parametrize(("of_topic", "of_broker"), [("", "delete"), (" ", "delete"), (None, "")])
def test_an_empty_cleanup_policy_deletes_nothing(of_topic: str | None, of_broker: str) -> None:
    """An empty list of cleanup policies is accepted and keeps all records, as in Kafka 4.3 (KIP-1161)."""
    stage = Stage({"t": 1}, log_cleanup_policy=of_broker)
    if of_topic is not None:
        set_configs(stage, cleanup_policy=of_topic)
    set_configs(stage, segment_ms=100, retention_ms=1_000, retention_bytes=0)
    client = stage.client()
    write(client, 9_000, 5_000, 0)
    stage.step(CleanLogs())
    assert bounds(stage) == (0, 3)
    partition = DeleteRecordsPartition(partition_index=0, offset=1)
    topics = [DeleteRecordsTopic(name="t", partitions=[partition])]
    response = client.ask(DeleteRecordsRequest(topics=topics, timeout_ms=1000))
    assert response.topics[0].partitions[0].error_code == 0
    assert bounds(stage) == (1, 3)


def test_a_topic_without_retention_ms_keeps_old_records(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=100)
    write(client, 9_000 * HOUR, 0)
    stage.step(CleanLogs())
    assert bounds(stage) == (0, 2)


@pytest.mark.parametrize(
    ("properties", "start"),
    [
        ({"log.retention.hours": 168}, 1),
        ({"log.retention.hours": 168, "log.retention.ms": -1}, 0),
        ({"log.retention.minutes": 60}, 1),
        ({"log.retention.hours": 168, "log.cleanup.policy": "compact"}, 0),
        ({"log.retention.bytes": 0}, 2),
        ({"log.retention.bytes": 1 << 20}, 0),
    ],
)
@pytest.mark.parametrize("later", [False, True])
def test_the_brokers_retention_applies_to_topics_without_their_own(
    properties: dict[str, int | str], start: int, later: bool
) -> None:
    """The broker's retention configs apply to topics that do not set these configs.

    If `later` is true and all the configs are dynamic, they are set while the broker runs. Otherwise they are
    set before the broker starts.
    """
    dynamic = later and properties.keys() <= {*DYNAMIC}
    stage = Stage({"t": 1, "own": 1}, **({} if dynamic else properties))
    stage.now = 20_000 * HOUR
    if dynamic:
        stage.broker.cluster.dynamic.set("", {name: str(value) for name, value in properties.items()})
    own = stage.topic("own").configs
    own.update({"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"})
    for name in ("t", "own"):
        for age in (9_000 * HOUR, 0):
            stage.log(name).append(batch_of(b"x"), 1, stage.now - age)
            stage.log(name).roll()
    stage.step(CleanLogs())
    assert (stage.log("t").start_offset, stage.log("own").start_offset) == (start, 0)


def test_a_newer_segment_protects_the_ones_after_it(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=100, retention_ms=1_000)
    write(client, 1_500, 0, 5_000, 5_000)
    stage.step(CleanLogs())
    assert bounds(stage) == (1, 4)


def test_if_all_segments_are_old_the_log_starts_at_its_end(stage: Stage, client: Client) -> None:
    set_configs(stage, retention_ms=1_000)
    write(client, 2_000, 1_001)
    stage.step(CleanLogs())
    assert bounds(stage) == (2, 2)
    write(client, 0)
    stage.step(CleanLogs())
    assert bounds(stage) == (2, 3)


@pytest.mark.parametrize(("most", "start"), [(-1, 0), (0, 3), (1, 2), (700_000, 2), (1_400_100, 1)])
def test_at_least_retention_bytes_are_kept(stage: Stage, client: Client, most: int, start: int) -> None:
    set_configs(stage, segment_bytes=1 << 20, retention_bytes=most)
    write(client, 0, 0, 0, value=LARGE)
    stage.step(CleanLogs())
    assert bounds(stage) == (start, 3)


def test_a_policy_without_delete_keeps_old_records(stage: Stage, client: Client) -> None:
    set_configs(stage, retention_ms=1, retention_bytes=0, cleanup_policy="compact")
    stage.log("t").append(batch_of(b"x"), 1, 1000)
    stage.step(CleanLogs())
    assert bounds(stage) == (0, 1)


def test_retention_is_checked_at_its_interval(client: Client, stage: Stage) -> None:
    """The broker first checks retention 30 s after its start, and then every five minutes."""
    set_configs(stage, retention_ms=1_000)
    write(client, 0)
    stage.now += 29_999
    assert bounds(stage) == (0, 1)
    stage.now += 1
    assert bounds(stage) == (1, 1)
    write(client, 5_000)
    stage.now += 299_999
    assert bounds(stage) == (1, 2)
    stage.now += 1
    assert bounds(stage) == (2, 2)


def test_a_late_check_uses_the_time_at_which_it_was_due(client: Client, stage: Stage) -> None:
    set_configs(stage, retention_ms=60_000)
    write(client, 0)
    # The check was due after 30 s, but runs only after 100 s. When the check was due, the record was 30 s
    # old, within the limit of 60 s (retention.ms), so the check keeps the record.
    stage.now += 100_000
    assert bounds(stage) == (0, 1)


def test_the_intervals_are_settings() -> None:
    stage = Stage({"t": 1}, log_initial_task_delay_ms=10, log_retention_check_interval_ms=20)
    client = stage.client()
    set_configs(stage, retention_ms=0)
    write(client, 0)
    stage.now += 10
    assert bounds(stage) == (1, 1)
    write(client, 0)
    stage.now += 20
    assert bounds(stage) == (2, 2)


def test_a_delayed_fetch_before_the_new_start_is_answered(client: Client, stage: Stage) -> None:
    set_configs(stage, retention_ms=1_000)
    write(client, 2_000)
    reader = stage.client()
    reader.send(fetch_request(fetch_topic(0), min_bytes=10_000, wait=60_000), 12)
    stage.step(CleanLogs())
    data = reader.answer().responses[0].partitions[0]
    assert (data.error_code, data.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_the_latest_timestamp_is_kept_until_its_segment_is_deleted(client: Client, stage: Stage) -> None:
    set_configs(stage, segment_ms=100, retention_ms=-1)
    write(client, 0, 0, 500, 200)  # The last batch does not have the latest timestamp.
    log = stage.log("t")
    log.roll()
    write(client, 400)
    log.delete_before(4)
    latest = log.latest_timestamp()
    assert latest is not None
    assert latest.offset == 0
    stage.step(CleanLogs())
    latest = log.latest_timestamp()
    assert latest is not None
    assert latest.offset == 4


def test_a_truncation_removes_later_segments(stage: Stage, client: Client) -> None:
    set_configs(stage, segment_ms=100)
    write(client, 500, 450, 300, 100)
    log = stage.log("t")
    size = log.segments[0].size // 2
    log.truncate(1)
    assert [(segment.base_offset, segment.size) for segment in log.segments] == [(0, size)]
    assert log.segments[0].largest_timestamp == stage.now - 500
