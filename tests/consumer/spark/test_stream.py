"""What a stream reads next, asked of the reader as Spark asks it, against our own broker; no JVM."""

from __future__ import annotations

import asyncio
import json
import pickle
import threading
import time
from collections.abc import Coroutine, Iterator
from random import Random
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
)

from consumer import Cluster
from consumer.spark.logs import PAUSE_S
from consumer.spark.offsets import DataLoss
from consumer.spark.options import parse
from consumer.spark.schema import full
from consumer.spark.slices import Slice
from consumer.spark.stream import TOPICS_MAX_AGE_MS, KprotoStreamReader, Planner
from kproto.broker.server import Server, running
from kproto.errors import ConfigError, ConnectionFailed, UnknownTopic
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from kproto.testing.properties import a_batch_ends_where_its_rows_end
from tests.consumer.spark.filled import HOUR, Filled

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Offset = dict[str, Any]


class Run:
    """One run of a query: plans batches as Spark does, with a clock that a test moves."""

    def __init__(self, filled: Filled, start: Offset | None = None, **more: str | int) -> None:
        options = parse(filled.options(**more))
        self.reader = KprotoStreamReader(full(options), options)
        self.now = 100.0
        self.reader._planner = Planner(options, lambda: self.now)
        self.at: Offset = self.reader.initialOffset() if start is None else start

    def poll(self, limit: ReadLimit | None = None, *, later: float = 2.0) -> Offset | None:
        """Ask for the next end after some seconds, long enough to see new topics; None if there is no
        batch.
        """
        self.now += later
        end = self.reader.latestOffset(self.at, limit or self.reader.getDefaultReadLimit())
        return None if json.dumps(end) == json.dumps(self.at) else json.loads(json.dumps(end))

    def batch(self, limit: ReadLimit | None = None, *, later: float = 2.0) -> dict[str, list[int]] | None:
        """Plan and read the next batch: the offsets read of each partition, or None if there is no batch."""
        end = self.poll(limit, later=later)
        if end is None:
            return None
        rows = self.rows(self.at, end)
        self.at = end
        return rows

    def rows(self, start: Offset, end: Offset) -> dict[str, list[int]]:
        """The offsets that a batch reads of each partition."""
        found: dict[str, list[int]] = {}
        for partition in self.reader.partitions(start, end):
            for batch in pickle.loads(pickle.dumps(self.reader)).read(partition):
                for row in batch.select(["topic", "partition", "offset"]).to_pylist():
                    found.setdefault(f"{row['topic']}-{row['partition']}", []).append(row["offset"])
        return found


# Where a query begins -------------------------------------------------------------------------------


def test_earliest_reads_what_there_is_in_the_first_batch(filled: Filled) -> None:
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": [0, 1, 2], "t-1": [0, 1]}
    assert run.batch() is None


def test_earliest_of_an_empty_topic_makes_no_batch(filled: Filled) -> None:
    filled.topic("t", 0)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() is None
    filled.put("t", 0, 2)
    assert run.batch() == {"t-0": [0, 1]}


def test_the_default_is_latest_and_is_pinned_by_an_empty_batch(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled)
    assert run.batch() == {}
    assert run.batch() is None
    filled.put("t", 0, 2)
    assert run.batch() == {"t-0": [3, 4]}


def test_latest_loses_nothing_when_the_first_batch_has_to_be_repeated(filled: Filled) -> None:
    filled.topic("t", 3)
    crashed = Run(filled)
    end = crashed.poll()
    assert end is not None
    filled.put("t", 0, 5)
    again = Run(filled)
    assert again.rows(again.reader.initialOffset(), end) == {}
    again.at = end
    assert again.batch() == {"t-0": [3, 4, 5, 6, 7]}


def test_a_first_batch_is_repeated_exactly_whatever_came_since(filled: Filled) -> None:
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


def test_an_explicit_offset_without_records_is_kept_when_others_move_on(filled: Filled) -> None:
    filled.topic("t", 5, 5)
    first = Run(filled, startingOffsets='{"t": {"0": 5, "1": 3}}')
    assert first.batch() == {"t-1": [3, 4]}
    filled.put("t", 0, 1)
    assert Run(filled, first.at).batch() == {"t-0": [5]}


def test_a_time_per_partition(filled: Filled) -> None:
    filled.topic("t", 5, 5)
    times = json.dumps({"t": {"0": HOUR + 3, "1": HOUR + 1}})
    assert Run(filled, startingOffsetsByTimestamp=times).batch() == {"t-0": [3, 4], "t-1": [1, 2, 3, 4]}


def test_a_time_without_records_is_an_error_that_says_how_to_allow_it(filled: Filled) -> None:
    filled.topic("t", 5)
    with pytest.raises(ConfigError, match=rf"startingTimestamp={HOUR + 5}.*Strategy=\"latest\""):
        Run(filled, startingTimestamp=HOUR + 5).poll()


def test_a_time_without_records_is_latest_with_that_strategy(filled: Filled) -> None:
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


def test_a_start_behind_the_end_of_the_log_is_data_loss(filled: Filled) -> None:
    filled.topic("t", 5)
    with pytest.raises(DataLoss, match="startingOffsets says 9 for t-0, whose log is from 0 to 5"):
        Run(filled, startingOffsets='{"t": {"0": 9}}').poll()


def test_a_topic_that_does_not_exist_is_an_error(filled: Filled) -> None:
    with pytest.raises(UnknownTopic, match="topic 'nowhere'"):
        Run(filled, subscribe="nowhere").poll()


def test_a_topic_that_appears_a_moment_later_is_waited_for(filled: Filled) -> None:
    creation = threading.Timer(PAUSE_S * 1.5, filled.topic, ["t", 1])
    creation.start()
    try:
        Run(filled, startingOffsets="earliest").poll()  # raises UnknownTopic if it doesn't wait
    finally:
        creation.join()


def test_partitions_of_which_none_exists_are_an_error(filled: Filled) -> None:
    filled.topic("t", 1)
    with pytest.raises(UnknownTopic, match="topic 't' has no partition 3"):
        Run(filled, assign='{"t": [3, 4]}').poll()


def test_an_assigned_partition_that_does_not_exist_is_read_when_it_does_and_told_till_then(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    filled.topic("t", 1)
    run = Run(filled, assign='{"t": [0, 1]}', startingOffsets="latest")
    assert run.batch() == {}
    assert caplog.messages == [
        "assign: topic 't' has no partition 1; the others are read, and it is when it is there"
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


# What grows -----------------------------------------------------------------------------------------


def test_partitions_added_later_are_read_from_their_beginning(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="latest")
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 2)
    assert run.batch() == {"t-1": [0, 1]}


def test_topics_added_later_are_read_from_their_beginning_also_when_none_was_there(filled: Filled) -> None:
    run = Run(filled, subscribePattern="t.*", startingOffsets="latest")
    assert run.batch() == {}
    filled.topic("t", 2)
    assert run.batch() == {"t-0": [0, 1]}


def test_topics_that_come_between_two_runs_are_new_also_when_none_was_there(filled: Filled) -> None:
    first = Run(filled, subscribePattern="t.*", startingOffsets="latest")
    first.batch()
    assert first.batch() is None
    filled.topic("t", 2)
    assert Run(filled, first.at, subscribePattern="t.*", startingOffsets="latest").batch() == {"t-0": [0, 1]}


def test_at_the_earliest_nothing_has_to_be_settled_when_no_topic_is_there(filled: Filled) -> None:
    run = Run(filled, subscribePattern="t.*", startingOffsets="earliest")
    assert run.batch() is None
    filled.topic("t", 2)
    assert run.batch() == {"t-0": [0, 1]}


@pytest.mark.parametrize("same_run", [True, False])
def test_a_query_whose_topics_are_all_gone_reads_those_that_come_from_their_beginning(
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
    """A query that finds a new partition of whose five records the first two were deleted."""
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss=fail)
    run.batch()
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 5)
    filled.delete_before(T1, 2)
    return run


def test_what_a_newcomer_lost_before_it_was_found_is_data_loss(filled: Filled) -> None:
    with pytest.raises(DataLoss, match=r"t-1 is new to this query, and its log begins at 2"):
        trimmed(filled, "true").poll()


def test_what_a_newcomer_lost_is_told_once_when_loss_is_allowed(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    run = trimmed(filled, "false")
    filled.delete_before(T1, 5)
    assert run.batch() is None
    assert run.batch() is None
    filled.put("t", 1, 1)
    assert run.batch() == {"t-1": [5]}
    assert [text for text in caplog.messages if "is new to this query" in text] == [
        "failOnDataLoss=false: partition t-1 is new to this query, and its log begins at 5: what was before "
        "is gone, and was not read"
    ]


def test_a_topic_made_anew_before_the_first_batch_is_read_from_its_beginning(filled: Filled) -> None:
    filled.topic("t", 3)
    filled.delete_before(T0, 3)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() is None
    filled.cluster.delete_topics(["t"])
    filled.topic("t", 2)
    assert run.batch() == {"t-0": [0, 1]}


def test_a_resumed_query_reads_what_was_added_between_its_runs(filled: Filled) -> None:
    filled.topic("t", 1)
    first = Run(filled, subscribePattern="t.*", startingOffsets="earliest")
    first.batch()
    filled.topic("t2", 2)
    filled.put("t", 0, 1)
    assert Run(filled, first.at, subscribePattern="t.*").batch() == {"t-0": [1], "t2-0": [0, 1]}


# How much at once ------------------------------------------------------------------------------------


def test_the_limit_is_shared_in_proportion(filled: Filled) -> None:
    filled.topic("t", 90, 10)
    run = Run(filled, startingOffsets="earliest", maxOffsetsPerTrigger=20)
    first = run.batch()
    assert first is not None
    assert {name: len(rows) for name, rows in first.items()} == {"t-0": 18, "t-1": 2}


def test_limited_batches_join_without_gap_and_end(filled: Filled) -> None:
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
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"maxOffsetsPerTrigger": 7}, ReadMaxRows(7)),
        ({"minOffsetsPerTrigger": 5}, ReadMinRows(5)),
        ({"maxOffsetsPerTrigger": 7, "minOffsetsPerTrigger": 5}, ReadMaxRows(7)),
    ],
)
def test_the_default_limit_is_what_the_options_say(
    filled: Filled, given: dict[str, int], limit: ReadLimit
) -> None:
    assert Run(filled, None, **given).reader.getDefaultReadLimit() == limit


def test_too_few_records_wait_until_there_are_enough(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", minOffsetsPerTrigger=5)
    assert run.batch() == {"t-0": [0]}
    filled.put("t", 0, 4)
    assert run.batch() is None
    filled.put("t", 0, 1)
    assert run.batch() == {"t-0": [1, 2, 3, 4, 5]}


def test_too_few_records_wait_no_longer_than_the_delay(filled: Filled) -> None:
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest", minOffsetsPerTrigger=5, maxTriggerDelay="60s")
    run.batch()
    filled.put("t", 0, 1)
    assert run.batch(later=59.0) is None
    assert run.batch(later=1.0) == {"t-0": [1]}


def test_ranges_are_cut_as_the_options_say(filled: Filled) -> None:
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


def test_what_was_written_and_made_before_spark_asks_is_seen(filled: Filled) -> None:
    """Who waits with ``processAllAvailable()`` relies on it."""
    filled.topic("t", 1)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    assert run.poll() is None
    filled.put("t", 0, 1)
    assert run.batch(later=0.0) == {"t-0": [1]}
    filled.cluster.create_partitions({"t": 2})
    filled.put("t", 1, 1)
    assert run.batch(later=0.0) == {"t-1": [0]}


def test_where_partitions_are_many_new_ones_are_looked_for_once_a_second(
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


def test_new_partitions_are_looked_for_as_seldom_as_is_asked_for(filled: Filled) -> None:
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


# Available now ------------------------------------------------------------------------------------


def test_what_comes_after_the_start_of_the_run_is_left_for_the_next(filled: Filled) -> None:
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


# Loss -----------------------------------------------------------------------------------------------


def remake(filled: Filled, *counts: int) -> None:
    filled.cluster.delete_topics(["t"])
    filled.topic("t", *counts)


def test_a_topic_made_anew_with_more_records_is_noticed(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    remake(filled, 9)
    with pytest.raises(DataLoss, match="topic t was deleted and made anew"):
        run.poll()


@pytest.mark.parametrize("records", [2, 9])
def test_a_topic_made_anew_is_read_from_its_start_when_loss_is_allowed(filled: Filled, records: int) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    remake(filled, records)
    assert run.batch() == {"t-0": list(range(records))}
    assert run.batch() is None


def test_a_topic_made_anew_a_moment_ago_is_not_mistaken_for_a_log_that_was_cut_off(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    remake(filled, 2)
    assert run.batch(later=0.1) == {"t-0": [0, 1]}


def test_a_topic_that_went_a_moment_ago_ends_no_query_that_allows_loss(filled: Filled) -> None:
    filled.topic("t", 5)
    filled.topic("u", 1)
    run = Run(filled, subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    filled.cluster.delete_topics(["t"])
    filled.put("u", 0, 1)
    assert run.batch(later=0.1) == {"u-0": [1]}


def test_a_topic_made_anew_between_plan_and_read_is_not_mistaken_for_the_old_one(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    end = run.poll()
    assert end is not None
    remake(filled, 9)
    with pytest.raises(DataLoss, match="topic t was deleted and made anew"):
        run.rows({}, end)


def test_a_topic_made_anew_between_plan_and_read_loses_only_the_old_rows(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    end = run.poll()
    assert end is not None
    remake(filled, 3)
    assert run.rows({}, end) == {}
    run.at = end
    assert run.batch() == {"t-0": [0, 1, 2]}


def test_a_topic_that_is_gone_is_data_loss(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    filled.cluster.delete_topics(["t"])
    with pytest.raises(DataLoss, match="partition t-0 is gone; it was read up to 5"):
        run.poll()


def test_the_others_are_read_on_when_a_topic_is_gone_and_loss_is_allowed(filled: Filled) -> None:
    filled.topic("t", 5)
    filled.topic("u", 1)
    run = Run(filled, subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    filled.cluster.delete_topics(["t"])
    filled.put("u", 0, 1)
    assert run.batch() == {"u-0": [1]}


# The group's offsets -------------------------------------------------------------------------------


def committed(filled: Filled, group: str) -> dict[TopicPartition, int]:
    found = filled.cluster.committed_offsets(group)
    return {partition: at.offset for partition, at in found.items() if at is not None}


def test_the_group_is_at_the_true_end_after_the_poll_that_finds_nothing(filled: Filled) -> None:
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.batch()
    assert committed(filled, "lag") == {}
    assert run.batch() is None
    assert committed(filled, "lag") == {T0: 3, T1: 2}


def test_commit_shows_the_offsets_too(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.reader.commit({"t": {"0": 2}})
    assert committed(filled, "lag") == {T0: 2}


def test_an_idle_query_does_not_commit_again_what_it_has_committed(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.batch()
    run.batch()
    filled.cluster.commit_offsets("lag", {T0: 1})
    run.batch()
    assert committed(filled, "lag") == {T0: 1}


def test_without_a_group_nothing_is_committed(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", kafka_group_id="lag")
    run.batch()
    run.batch()
    assert committed(filled, "lag") == {}


def test_a_refused_commit_does_not_end_the_query_and_is_tried_again_later(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.batch()
    live = run.reader.planner.logs.cluster
    run.reader.planner.logs._cluster = Cluster("127.0.0.1:1")  # nobody listens there
    run.reader.commit(run.at)
    run.reader.planner.logs._cluster = live
    run.reader.commit(run.at)
    assert committed(filled, "lag") == {}
    run.now += 1.0
    run.reader.commit(run.at)
    assert committed(filled, "lag") == {T0: 3}


# A log that was cut off ----------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    """A broker with ten records in t-0."""
    with running(topics={"t": 1}) as server:
        with Cluster(server.bootstrap) as cluster:
            _put(cluster, 10)
        yield server


def _put(cluster: Cluster, count: int) -> None:
    """Records that are a batch each: a log is cut between batches."""
    for i in range(count):
        cluster.produce(T0, encode_batch([Record(0, HOUR + i, None, b"%d" % i)]))


def _read(server: Server, more: int) -> tuple[Filled, Offset]:
    """All ten read; then the log cut off at 4, and `more` records written."""
    filled = Filled(server.bootstrap)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": list(range(10))}
    server.truncate("t", 0, 4)
    _put(filled.cluster, more)
    return filled, run.at


@pytest.mark.parametrize("more", [0, 3, 6, 14])
def test_a_log_that_was_cut_off_is_data_loss_however_long_it_is_again(server: Server, more: int) -> None:
    filled, at = _read(server, more)
    with filled.cluster, pytest.raises(DataLoss, match="t-0 was cut off at 4; it was read up to 10"):
        Run(filled, at).batch()


@pytest.mark.parametrize("more", [3, 6, 14])
def test_a_log_that_was_cut_off_is_read_from_there_when_loss_is_allowed(server: Server, more: int) -> None:
    filled, at = _read(server, more)
    with filled.cluster:
        run = Run(filled, at, failOnDataLoss="false")
        assert run.batch() == {"t-0": list(range(4, 4 + more))}
        assert run.batch() is None


def test_a_log_that_is_cut_off_under_a_running_query_is_noticed(server: Server) -> None:
    filled = Filled(server.bootstrap)
    with filled.cluster:
        run = Run(filled, startingOffsets="earliest")
        assert run.batch() == {"t-0": list(range(10))}
        server.truncate("t", 0, 4)
        _put(filled.cluster, 20)
        with pytest.raises(DataLoss, match="cut off at 4"):
            run.poll()


def test_a_checkpoint_without_epochs_says_that_it_does_not_know_where_the_log_was_cut(server: Server) -> None:
    filled, at = _read(server, 3)
    old = {name: value for name, value in at.items() if "epochs=" not in name}
    with filled.cluster, pytest.raises(DataLoss, match=r"ends at 7, and was read up to 10.* not known"):
        Run(filled, old).batch()


def test_a_new_leader_that_lost_nothing_is_asked_once_and_no_loss(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(server.bootstrap)
    with filled.cluster:
        run = Run(filled, startingOffsets="earliest")
        run.batch()
        server.elect_leader("t", 0)
        asked: list[dict[TopicPartition, int]] = []
        logs = run.reader.planner.logs
        ask = logs.epoch_ends

        def counted(epochs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
            asked.append(epochs)
            return ask(epochs)

        monkeypatch.setattr(logs, "epoch_ends", counted)
        assert [run.batch() for _ in range(3)] == [None, None, None]
        assert asked == [{T0: 0}]
        _put(filled.cluster, 2)
        assert run.batch() == {"t-0": [10, 11]}
        assert run.batch() is None
        assert len(asked) == 1


# A cluster that is away ---------------------------------------------------------------------------------


def test_records_deleted_between_two_runs_do_not_come_back(filled: Filled) -> None:
    """0..9 read, 10..29 written as one batch, deleted up to 20, and the query restarted."""
    filled.topic("t", 10)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": list(range(10))}
    filled.put("t", 0, 20)
    filled.delete_before(T0, 20)
    again = Run(filled, run.at, failOnDataLoss="false")
    assert again.batch() == {"t-0": list(range(20, 30))}


def test_a_broker_that_restarts_for_seconds_ends_no_query() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def do(work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, loop).result(10)

    server = Server()
    do(server.start())
    try:
        filled = Filled(server.bootstrap)
        filled.topic("t", 3)
        run = Run(filled, startingOffsets="earliest")
        assert run.batch() == {"t-0": [0, 1, 2]}
        filled.put("t", 0, 2)
        do(server.stop())
        asyncio.run_coroutine_threadsafe(_later(4, server.start()), loop)
        assert run.batch() == {"t-0": [3, 4]}
        filled.cluster.close()
        run.reader.stop()
        do(server.stop())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _later(seconds: float, work: Coroutine[Any, Any, None]) -> None:
    await asyncio.sleep(seconds)
    await work


def test_a_cluster_that_was_never_reached_is_told_after_the_request_timeout() -> None:
    options = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.request.timeout.ms": "1500",
            "fetchOffset.numRetries": "0",
        }
    )
    began = time.monotonic()
    with pytest.raises(ConnectionFailed, match=r"127\.0\.0\.1:1") as failure:
        KprotoStreamReader(full(options), options).latestOffset({}, ReadAllAvailable())
    assert failure.value.__notes__ == ["It was tried for 1.5 s; see kafka.request.timeout.ms."]
    assert 0.5 < time.monotonic() - began < 20


def test_who_gives_a_whole_call_less_time_than_a_request_is_told_after_that() -> None:
    options = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "subscribe": "t",
            "kafka.default.api.timeout.ms": "200",
        }
    )
    with pytest.raises(ConnectionFailed) as failure:
        KprotoStreamReader(full(options), options).latestOffset({}, ReadAllAvailable())
    assert failure.value.__notes__ == ["It was tried for 0.2 s; see kafka.default.api.timeout.ms."]


def test_every_batch_ends_where_its_rows_end(filled: Filled) -> None:
    """Whatever is written between them, to whichever partition, and however many are taken at most."""
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest")
    random = Random(1)
    for limit in (None, 1, 2, None, 3, 7, None):
        for partition in range(2):
            filled.put("t", partition, random.choice((0, 0, 1, 5)))
        start = run.at
        rows = run.batch(None if limit is None else ReadMaxRows(limit)) or {}
        found = [(TopicPartition("t", int(name[2:])), offset) for name in rows for offset in rows[name]]
        a_batch_ends_where_its_rows_end(_ends(start), _ends(run.at), found)


def _ends(offset: Offset) -> dict[TopicPartition, int]:
    return {TopicPartition("t", int(number)): end for number, end in offset.get("t", {}).items()}
