"""A stream begins at the configured offsets, finds new partitions, and limits its batches.

The tests call the stream reader as Spark does, and read from the embedded broker.
"""

from __future__ import annotations

import json
import threading
from random import Random

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from consumer.spark.offset_reader import PAUSE_S
from consumer.spark.offsets import DataLoss
from consumer.spark.slices import Slice
from consumer.spark.stream import TOPICS_MAX_AGE_MS
from kproto.errors import ConfigError, UnknownTopic
from kproto.group.subscription import TopicPartition
from kproto.testing.properties import a_batch_ends_where_its_rows_end
from tests.consumer.spark.stage import HOUR, Filled
from tests.consumer.spark.stream_stage import Offset, Run

T1 = TopicPartition("t", 1)


# ---- where a query begins


def test_earliest_reads_all_existing_records_in_the_first_batch(filled: Filled) -> None:
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": [0, 1, 2], "t-1": [0, 1]}
    assert run.batch() is None


@pytest.mark.parametrize("begins", ["earliest", '{"t": {"0": 0}}'])
def test_the_start_of_a_query_is_kept_even_if_nothing_was_read(filled: Filled, begins: str) -> None:
    """A restarted query keeps its start offsets, even if it read no record before the restart.

    As in Spark's own Kafka source, another value of startingOffsets has no effect after the first batch, even
    if that batch was empty.
    """
    filled.topic("t", 0)
    first = Run(filled, startingOffsets=begins)
    assert first.batch() == {}
    assert first.batch() is None
    filled.put("t", 0, 2)
    assert Run(filled, first.at, startingOffsets="latest").batch() == {"t-0": [0, 1]}


def test_the_default_is_latest_and_an_empty_batch_fixes_it(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled)
    assert run.batch() == {}
    assert run.batch() is None
    filled.put("t", 0, 2)
    assert run.batch() == {"t-0": [3, 4]}


def test_an_empty_checkpoint_of_sparks_own_source_reads_new_topics_from_their_start(
    filled: Filled,
) -> None:
    filled.topic("t", 3)
    assert Run(filled, {}, startingOffsets="latest").batch() == {"t-0": [0, 1, 2]}


def test_latest_loses_no_records_when_the_first_batch_is_repeated(filled: Filled) -> None:
    filled.topic("t", 3)
    crashed = Run(filled)
    end = crashed.poll()
    assert end is not None
    filled.put("t", 0, 5)
    repeated = Run(filled)
    assert repeated.rows(repeated.reader.initialOffset(), end) == {}
    repeated.at = end
    assert repeated.batch() == {"t-0": [3, 4, 5, 6, 7]}


def test_a_repeated_first_batch_has_the_same_range(filled: Filled) -> None:
    filled.topic("t", 4)
    time = HOUR + 2
    end = Run(filled, startingTimestamp=time).poll()
    assert end is not None
    filled.put("t", 0, 5, at=time)
    assert Run(filled, startingTimestamp=time + 1).rows({}, end) == {"t-0": [2, 3]}


def test_offsets_for_each_partition(filled: Filled) -> None:
    filled.topic("t", 5, 5, 5)
    run = Run(filled, startingOffsets='{"t": {"0": 3, "1": -1, "2": -2}}')
    assert run.batch() == {"t-0": [3, 4], "t-2": [0, 1, 2, 3, 4]}
    filled.put("t", 1, 1)
    assert run.batch() == {"t-1": [5]}


def test_an_explicit_offset_without_records_is_kept_while_other_partitions_advance(filled: Filled) -> None:
    filled.topic("t", 5, 5)
    first = Run(filled, startingOffsets='{"t": {"0": 5, "1": 3}}')
    assert first.batch() == {"t-1": [3, 4]}
    filled.put("t", 0, 1)
    assert Run(filled, first.at).batch() == {"t-0": [5]}


def test_a_timestamp_per_partition(filled: Filled) -> None:
    filled.topic("t", 5, 5)
    times = json.dumps({"t": {"0": HOUR + 3, "1": HOUR + 1}})
    assert Run(filled, startingOffsetsByTimestamp=times).batch() == {"t-0": [3, 4], "t-1": [1, 2, 3, 4]}


def test_a_timestamp_after_all_records_raises_with_the_option_that_allows_it(filled: Filled) -> None:
    filled.topic("t", 5)
    with pytest.raises(ConfigError, match=rf"startingTimestamp={HOUR + 5}.*Strategy=latest"):
        Run(filled, startingTimestamp=HOUR + 5).poll()


def test_a_timestamp_after_all_records_is_latest_if_the_strategy_says_so(filled: Filled) -> None:
    filled.topic("t", 5)
    time = HOUR + 5
    run = Run(filled, startingTimestamp=time, startingOffsetsByTimestampStrategy="latest")
    assert run.batch() == {}
    filled.put("t", 0, 1)
    assert run.batch() == {"t-0": [5]}


def test_starting_offsets_must_name_the_partitions_read(filled: Filled) -> None:
    filled.topic("t", 5, 5)
    with pytest.raises(
        ConfigError, match=r"startingOffsets='t-0, t-7'.*exactly the partitions that are read: t-0, t-1"
    ):
        Run(filled, startingOffsets='{"t": {"0": 1, "7": 1}}').poll()


def test_a_topics_edge_applies_to_all_of_its_partitions(filled: Filled) -> None:
    for name in "tuv":
        filled.topic(name, 3, 2)
    starts = '{"t": "earliest", "u": {"0": 2, "1": -1}, "v": "LATEST"}'
    run = Run(filled, subscribe="t,u,v", startingOffsets=starts)
    assert run.batch() == {"t-0": [0, 1, 2], "t-1": [0, 1], "u-0": [2]}
    filled.put("v", 1, 1)
    filled.put("u", 1, 1)
    assert run.batch() == {"u-1": [2], "v-1": [2]}


def test_latest_for_a_topic_is_fixed_before_anything_is_read(filled: Filled) -> None:
    filled.topic("t", 3)
    end = Run(filled, startingOffsets='{"t": "latest"}').poll()
    assert end is not None
    filled.put("t", 0, 1)
    assert Run(filled, end).batch() == {"t-0": [3]}


def test_an_edge_for_a_topic_that_is_not_read_is_rejected(filled: Filled) -> None:
    filled.topic("t", 1)
    with pytest.raises(ConfigError, match=r"startingOffsets='u'.*the query reads only t-0"):
        Run(filled, startingOffsets='{"t": "earliest", "u": "earliest"}').poll()


def test_a_start_after_the_end_of_the_log_is_data_loss(filled: Filled) -> None:
    filled.topic("t", 5)
    with pytest.raises(DataLoss, match="startingOffsets says 9 for t-0, whose log is from 0 to 5"):
        Run(filled, startingOffsets='{"t": {"0": 9}}').poll()


def test_a_start_after_the_end_of_the_log_is_logged_when_loss_is_allowed(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets='{"t": {"0": 9}}', failOnDataLoss="false")
    assert run.batch() == {}
    assert caplog.messages == [
        "failOnDataLoss=false: startingOffsets says 9 for t-0, whose log is from 0 to 5"
    ]


def test_a_topic_that_does_not_exist_is_an_error(filled: Filled) -> None:
    with pytest.raises(UnknownTopic, match="topic 'nowhere'"):
        Run(filled, subscribe="nowhere").poll()


def test_a_query_waits_a_moment_for_a_new_topic(filled: Filled) -> None:
    creation = threading.Timer(PAUSE_S * 1.5, filled.topic, ["t", 1])
    creation.start()
    try:
        # The topic does not exist yet. A reader that did not wait would raise UnknownTopic.
        Run(filled, startingOffsets="earliest").poll()
    finally:
        creation.join()


def test_an_assign_without_existing_partitions_raises(filled: Filled) -> None:
    filled.topic("t", 1)
    with pytest.raises(UnknownTopic, match="topic 't' has no partition 3"):
        Run(filled, assign='{"t": [3, 4]}').poll()


def test_a_missing_assigned_partition_is_logged_and_read_once_it_exists(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic("t", 1)
    run = Run(filled, assign='{"t": [0, 1]}', startingOffsets="latest")
    assert run.batch() == {}
    assert caplog.messages == [
        "assign: topic 't' has no partition 1; the other partitions are read now, and "
        "this one as soon as it exists"
    ]
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 2)
    assert run.batch() == {"t-1": [0, 1]}


def test_only_assigned_partitions_are_read(filled: Filled) -> None:
    filled.topic("t", 1, 2, 3)
    assert Run(filled, assign='{"t": [2]}', startingOffsets="earliest").batch() == {"t-2": [0, 1, 2]}


@pytest.mark.parametrize(
    ("pattern", "read"),
    [
        ("flights.", {"flights2", "my-flights2"}),
        ("^flights.?$", {"flights", "flights2"}),
        ("2", {"flights2", "my-flights2"}),
    ],
)
def test_a_pattern_may_match_anywhere_in_a_name_as_in_sparks_own_source(
    filled: Filled, pattern: str, read: set[str]
) -> None:
    for name in ("flights", "flights2", "my-flights2"):
        filled.topic(name, 1)
    run = Run(filled, subscribePattern=pattern, startingOffsets="earliest")
    assert run.batch() == {f"{name}-0": [0] for name in read}


# ---- new topics and partitions


def test_partitions_added_later_are_read_from_their_start(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="latest")
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 2)
    assert run.batch() == {"t-1": [0, 1]}


def test_topics_added_later_are_read_from_their_start_even_if_none_existed(filled: Filled) -> None:
    run = Run(filled, subscribePattern="t.*", startingOffsets="latest")
    assert run.batch() == {}
    filled.topic("t", 2)
    assert run.batch() == {"t-0": [0, 1]}


def test_topics_added_between_two_runs_are_read_from_their_start(filled: Filled) -> None:
    first = Run(filled, subscribePattern="t.*", startingOffsets="latest")
    first.batch()
    assert first.batch() is None
    filled.topic("t", 2)
    assert Run(filled, first.at, subscribePattern="t.*", startingOffsets="latest").batch() == {"t-0": [0, 1]}


@pytest.mark.parametrize("same_run", [True, False])
def test_after_all_topics_were_deleted_new_ones_are_read_from_their_start(
    filled: Filled, same_run: bool
) -> None:
    more = {"subscribePattern": "t.*", "startingOffsets": "latest", "failOnDataLoss": "false"}
    filled.topic("t1", 2)
    run = Run(filled, **more)
    run.batch()
    filled.cluster.delete_topics(["t1"])
    assert run.batch() == {}
    assert run.batch() is None
    filled.topic("t2", 3)
    if not same_run:
        run = Run(filled, run.at, **more)
    assert run.batch() == {"t2-0": [0, 1, 2]}


def trimmed(filled: Filled, fail: str) -> Run:
    """Return a query that has not yet detected a new partition.

    The first two of the partition's five records are already deleted.
    """
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss=fail)
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 5)
    filled.delete_before(T1, 2)
    return run


def test_records_deleted_before_a_new_partition_was_found_are_data_loss(filled: Filled) -> None:
    with pytest.raises(DataLoss, match=r"t-1 is new to this query, and its log begins at 2"):
        trimmed(filled, "true").poll()


def test_lost_records_of_a_new_partition_are_logged_once_when_loss_is_allowed(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    run = trimmed(filled, "false")
    filled.delete_before(T1, 5)
    assert run.batch() is None
    assert run.batch() is None
    filled.put("t", 1, 1)
    assert run.batch() == {"t-1": [5]}
    assert [text for text in caplog.messages if "is new to this query" in text] == [
        "failOnDataLoss=false: partition t-1 is new to this query, and its log begins at 5: earlier "
        "records were deleted before they were read"
    ]


def test_a_resumed_query_reads_records_added_between_its_runs(filled: Filled) -> None:
    filled.topic("t", 1)
    first = Run(filled, subscribePattern="t.*", startingOffsets="earliest")
    first.batch()
    filled.topic("t2", 2)
    filled.put("t", 0, 1)
    assert Run(filled, first.at, subscribePattern="t.*").batch() == {"t-0": [1], "t2-0": [0, 1]}


# ---- limits


def test_the_limit_is_shared_in_proportion(filled: Filled) -> None:
    filled.topic("t", 90, 10)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    first = run.batch()
    assert first is not None
    assert {name: len(rows) for name, rows in first.items()} == {"t-0": 18, "t-1": 2}


def test_limited_batches_have_no_gap_and_reach_the_end(filled: Filled) -> None:
    filled.topic("t", 25, 10)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    read: dict[str, list[int]] = {"t-0": [], "t-1": []}
    while (rows := run.batch()) is not None:
        assert sum(map(len, rows.values())) == 7
        for name, offsets in rows.items():
            read[name] += offsets
    assert read == {"t-0": list(range(25)), "t-1": list(range(10))}


def test_read_all_available_ignores_the_limit(filled: Filled) -> None:
    filled.topic("t", 25)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=7)
    assert run.batch(ReadAllAvailable()) == {"t-0": list(range(25))}


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": 5}, ReadMinRows(5)),
        ({"maxOffsetsPerTrigger": 7, "minOffsetsPerTrigger": 5}, ReadMaxRows(7)),
    ],
)
def test_the_default_limit_follows_the_options(
    filled: Filled, options: dict[str, int], limit: ReadLimit
) -> None:
    assert Run(filled, None, **options).reader.getDefaultReadLimit() == limit


def test_a_batch_waits_until_min_offsets_are_available(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", minOffsetsPerTrigger=5)
    assert run.batch() == {"t-0": [0]}
    filled.put("t", 0, 4)
    assert run.batch() is None
    filled.put("t", 0, 1)
    assert run.batch() == {"t-0": [1, 2, 3, 4, 5]}


def test_records_left_by_a_limit_count_as_available(filled: Filled) -> None:
    filled.topic("t", 20, 20, 20)
    run = Run(filled, startingOffsets="earliest", minOffsetsPerTrigger=10, maxOffsetsPerTrigger=10)
    batches = [run.batch() for _ in range(2)]
    assert [[len(rows) for rows in (batch or {}).values()] for batch in batches] == [[3, 3, 3]] * 2


def test_a_batch_waits_no_longer_than_max_trigger_delay(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="60s")
    run.batch()
    filled.put("t", 0, 1)
    assert run.batch(later=59.0) is None
    assert run.batch(later=1.0) == {"t-0": [1]}


def test_ranges_are_split_as_the_options_say(filled: Filled) -> None:
    filled.topic("t", 100, 10)
    run = Run(filled, startingOffsets="earliest", minPartitions=6, maxRecordsPerPartition=40)
    end = run.poll()
    assert end is not None
    slices = run.reader.partitions({}, end)
    assert len(slices) == 6
    assert all(isinstance(s, Slice) and s.range.size <= 40 for s in slices)
    assert {k: sorted(v) for k, v in run.rows({}, end).items()} == {
        "t-0": list(range(100)),
        "t-1": list(range(10)),
    }


def test_records_and_partitions_added_before_a_call_are_included(filled: Filled) -> None:
    """The latest offset includes all records and partitions that were added before the call.

    Spark's ``processAllAvailable()`` requires this.
    """
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    assert run.poll() is None
    filled.put("t", 0, 1)
    assert run.batch(later=0.0) == {"t-0": [1]}
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 1)
    assert run.batch(later=0.0) == {"t-1": [0]}


def test_with_many_partitions_metadata_is_requested_once_a_second(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("consumer.spark.stream.MANY_PARTITIONS", 1)
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 0, 1)
    filled.put("t", 1, 1)
    assert run.batch(later=TOPICS_MAX_AGE_MS / 1000 - 0.001) == {"t-0": [1]}
    assert run.batch(later=0.001) == {"t-1": [0]}


def test_metadata_max_age_limits_the_search_for_new_partitions(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", kafka_metadata_max_age_ms=5_000)
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 1)
    assert run.batch(later=4.9) is None
    assert run.batch(later=0.1) == {"t-1": [0]}


def test_the_latest_ends_are_reported(filled: Filled) -> None:
    filled.topic("t", 9, 2)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=2)
    assert run.reader.reportLatestOffset() is None
    run.batch()
    assert run.reader.reportLatestOffset() == {"t": {"0": 9, "1": 2}}


# ---- trigger(availableNow=True)


def test_available_now_leaves_later_records_to_the_next_run(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=3, minOffsetsPerTrigger=3)
    run.reader.prepareForTriggerAvailableNow()
    filled.put("t", 0, 5)
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 5)
    assert run.batch() == {"t-0": [0, 1, 2]}
    assert run.batch() == {"t-0": [3, 4]}
    assert run.batch() is None
    following = Run(filled, run.at)
    following.reader.prepareForTriggerAvailableNow()
    assert following.batch() == {"t-0": [5, 6, 7, 8, 9], "t-1": [0, 1, 2, 3, 4]}


@pytest.mark.rule("I20")
def test_every_batch_ends_where_its_rows_end(filled: Filled) -> None:
    """For any limit, a batch advances the end offsets of only those partitions whose rows it contains (I20).

    Before each batch, the test writes random numbers of records to both partitions.
    """
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest")
    random = Random(1)
    for limit in (None, 1, 2, None, 3, 7, None):
        for partition in range(2):
            filled.put("t", partition, random.choice((0, 0, 1, 5)))
        start = run.at
        rows = run.batch(None if limit is None else ReadMaxRows(limit)) or {}
        rows_read = [(TopicPartition("t", int(name[2:])), offset) for name in rows for offset in rows[name]]
        a_batch_ends_where_its_rows_end(_ends(start), _ends(run.at), rows_read)


def _ends(offset: Offset) -> dict[TopicPartition, int]:
    return {TopicPartition("t", int(number)): end for number, end in offset.get("t", {}).items()}
