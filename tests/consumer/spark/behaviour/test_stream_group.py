"""A stream commits its offsets to the group `commitGroupId`, where lag tools read them."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from consumer import Admin
from kproto.group.subscription import TopicPartition
from tests.consumer.spark.stage import Filled
from tests.consumer.spark.stream_stage import Run

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def committed(filled: Filled, group: str) -> dict[TopicPartition, int]:
    """Return the committed offsets of a group."""
    offsets = filled.cluster.committed_offsets(group)
    return {partition: at.offset for partition, at in offsets.items() if at is not None}


def test_the_last_batch_is_committed_by_the_next_idle_poll(filled: Filled) -> None:
    filled.topic("t", 3, 2)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.batch()
    assert committed(filled, "lag") == {}
    assert run.batch() is None
    assert committed(filled, "lag") == {T0: 3, T1: 2}


def test_commit_commits_the_offsets_to_the_group(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.reader.commit({"t": {"0": 2}})
    assert committed(filled, "lag") == {T0: 2}


def test_an_idle_query_does_not_repeat_its_commit(filled: Filled) -> None:
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


def test_a_failed_commit_does_not_end_the_query_and_is_retried_later(filled: Filled) -> None:
    filled.topic("t", 3)
    run = Run(filled, startingOffsets="earliest", commitGroupId="lag")
    run.batch()
    live = run.reader.planner.logs.cluster
    # No broker listens at this address, so the commit fails.
    run.reader.planner.logs._cluster = Admin("127.0.0.1:1")
    run.reader.commit(run.at)
    run.reader.planner.logs._cluster = live
    run.reader.commit(run.at)
    assert committed(filled, "lag") == {}
    run.now += 1.0
    run.reader.commit(run.at)
    assert committed(filled, "lag") == {T0: 3}
