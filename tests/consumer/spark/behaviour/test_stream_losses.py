"""A stream raises or logs data loss for deleted and re-created topics, and for truncated logs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

from consumer import Admin
from consumer.engine.metadata.cluster import TopicView
from consumer.spark.offsets import DataLoss
from kproto.broker.server import Server, running
from kproto.error_codes import ErrorCode
from kproto.errors import NotAuthorized
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.consumer.spark.stage import HOUR, Filled
from tests.consumer.spark.stream_stage import Offset, Run

T0 = TopicPartition("t", 0)


# ---- deleted and re-created topics


def re_create_topic(filled: Filled, *counts: int) -> None:
    """Delete the topic t, and create it again with these numbers of records in its partitions."""
    filled.cluster.delete_topics(["t"])
    filled.topic("t", *counts)


def run_after_deletion(filled: Filled) -> Run:
    """Start a query of the topics t and u with failOnDataLoss=false, delete t, and return the query.

    The query reads one batch before the deletion of t. After the deletion, a record is written to u.
    """
    filled.topic("t", 5)
    filled.topic("u", 1)
    run = Run(filled, subscribe="t,u", startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    filled.cluster.delete_topics(["t"])
    filled.put("u", 0, 1)
    return run


def test_a_re_created_topic_with_more_records_is_detected(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    re_create_topic(filled, 9)
    with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
        run.poll()


@pytest.mark.parametrize("begins", ["earliest", "latest"])
def test_re_creating_an_empty_topic_is_no_loss(filled: Filled, begins: str) -> None:
    filled.topic("t", 0, 0)
    run = Run(filled, startingOffsets=begins)
    assert run.batch() == {}
    re_create_topic(filled, 2, 0, 1)
    assert run.batch() == {"t-0": [0, 1], "t-2": [0]}


def test_re_creating_a_topic_with_records_in_one_partition_is_a_loss(filled: Filled) -> None:
    filled.topic("t", 0, 1)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    re_create_topic(filled, 2, 2)
    with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
        run.poll()


@pytest.mark.parametrize("records", [2, 9])
def test_a_re_created_topic_is_read_from_its_start_when_loss_is_allowed(filled: Filled, records: int) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    re_create_topic(filled, records)
    assert run.batch() == {"t-0": list(range(records))}
    assert run.batch() is None


def test_a_just_re_created_topic_is_not_mistaken_for_a_truncated_log(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    run.batch()
    re_create_topic(filled, 2)
    assert run.batch(later=0.1) == {"t-0": [0, 1]}


def test_a_topic_deleted_a_moment_ago_does_not_end_a_query_that_allows_loss(filled: Filled) -> None:
    assert run_after_deletion(filled).batch(later=0.1) == {"u-0": [1]}


def test_a_topic_re_created_between_plan_and_read_is_not_mistaken_for_the_old_one(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    end = run.poll()
    assert end is not None
    re_create_topic(filled, 9)
    with pytest.raises(DataLoss, match="topic t was deleted and re-created"):
        run.rows({}, end)


def test_a_topic_re_created_between_plan_and_read_loses_only_the_old_rows(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest", failOnDataLoss="false")
    end = run.poll()
    assert end is not None
    re_create_topic(filled, 3)
    assert run.rows({}, end) == {}
    run.at = end
    assert run.batch() == {"t-0": [0, 1, 2]}


def test_a_deleted_topic_is_data_loss(filled: Filled) -> None:
    filled.topic("t", 5)
    run = Run(filled, startingOffsets="earliest")
    run.batch()
    filled.cluster.delete_topics(["t"])
    with pytest.raises(DataLoss, match="partition t-0 was deleted; it was read up to 5"):
        run.poll()


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_that_became_unauthorized_does_not_count_as_deleted(
    filled: Filled, fail: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that the query is no longer authorized to describe does not count as deleted.

    If the topic counted as deleted, the query would read it from its start once the authorization is
    restored.

    A Metadata response for all topics omits both deleted topics and topics that the client may not describe.
    A request that names a topic of the second kind fails with TOPIC_AUTHORIZATION_FAILED.
    """
    filled.topic("t", 5)
    filled.topic("u", 1)
    run = Run(filled, subscribePattern="^[tu]$", startingOffsets="earliest", failOnDataLoss=fail)
    run.batch()
    cluster = run.reader.planner.logs.cluster
    ask = cluster.metadata

    def denied(topics: Any = None, timeout: float | None = None) -> Any:
        """Return a metadata response like that of a broker whose ACLs allow only the topic u."""
        view = ask(topics, timeout)
        if topics is None:
            view.topics.pop("t", None)
        elif "t" in topics:
            view.topics["t"] = TopicView("t", None, False, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return view

    monkeypatch.setattr(cluster, "metadata", denied)
    with pytest.raises(NotAuthorized, match="topic 't'"):
        run.poll()
    monkeypatch.undo()
    filled.put("t", 0, 1)
    assert run.batch() == {"t-0": [5]}


def test_other_topics_are_still_read_after_a_deletion_when_loss_is_allowed(filled: Filled) -> None:
    assert run_after_deletion(filled).batch() == {"u-0": [1]}


# ---- logs whose first records were deleted


def test_records_deleted_between_two_runs_are_skipped(filled: Filled) -> None:
    """With failOnDataLoss=false, records that are deleted between two runs are skipped.

    Before the query restarts, offsets 10 to 29 are written as one batch, and 0 to 19 are deleted.
    """
    filled.topic("t", 10)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": list(range(10))}
    filled.put("t", 0, 20)
    filled.delete_before(T0, 20)
    resumed = Run(filled, run.at, failOnDataLoss="false")
    assert resumed.batch() == {"t-0": list(range(20, 30))}


# ---- truncated logs


@pytest.fixture
def server() -> Iterator[Server]:
    """Start a broker with ten records in t-0."""
    with running(topics={"t": 1}) as server:
        with Admin(server.bootstrap) as cluster:
            _put(cluster, 10)
        yield server


def _put(cluster: Admin, count: int) -> None:
    """Write `count` records, each as a separate batch, because a log is truncated only between batches."""
    for i in range(count):
        cluster.produce(T0, encode_batch([Record(0, HOUR + i, None, b"%d" % i)]))


def _read(server: Server, more: int) -> tuple[Filled, Offset]:
    """Read all ten records, truncate the log at offset 4, and write `more` records.

    Return the query's stage, and the offset at which the read ended.
    """
    filled = Filled(server.bootstrap)
    run = Run(filled, startingOffsets="earliest")
    assert run.batch() == {"t-0": list(range(10))}
    server.truncate("t", 0, 4)
    _put(filled.cluster, more)
    return filled, run.at


@pytest.mark.parametrize("more", [0, 3, 6, 14])
def test_a_truncated_log_is_data_loss_however_much_it_has_grown_since(server: Server, more: int) -> None:
    filled, at = _read(server, more)
    with filled.cluster, pytest.raises(DataLoss, match="t-0 was truncated at 4; it was read up to 10"):
        Run(filled, at).batch()


@pytest.mark.parametrize("more", [3, 6, 14])
def test_a_truncated_log_is_read_from_the_truncation_when_loss_is_allowed(server: Server, more: int) -> None:
    filled, at = _read(server, more)
    with filled.cluster:
        run = Run(filled, at, failOnDataLoss="false")
        assert run.batch() == {"t-0": list(range(4, 4 + more))}
        assert run.batch() is None


def test_a_truncation_during_a_run_is_detected(server: Server) -> None:
    filled = Filled(server.bootstrap)
    with filled.cluster:
        run = Run(filled, startingOffsets="earliest")
        assert run.batch() == {"t-0": list(range(10))}
        server.truncate("t", 0, 4)
        _put(filled.cluster, 20)
        with pytest.raises(DataLoss, match="truncated at 4"):
            run.poll()


def test_without_epochs_the_offset_of_a_truncation_is_unknown(server: Server) -> None:
    filled, at = _read(server, 3)
    old = {name: value for name, value in at.items() if "epochs=" not in name}
    with filled.cluster, pytest.raises(DataLoss, match=r"ends at 7, and was read up to 10.*unknown offset"):
        Run(filled, old).batch()


def test_the_epoch_end_is_requested_once_from_a_leader_that_lost_nothing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled = Filled(server.bootstrap)
    with filled.cluster:
        run = Run(filled, startingOffsets="earliest")
        run.batch()
        server.elect_leader("t", 0)
        requests: list[dict[TopicPartition, int]] = []
        logs = run.reader.planner.logs
        epoch_ends = logs.epoch_ends

        def counted(epochs: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
            requests.append(epochs)
            return epoch_ends(epochs)

        monkeypatch.setattr(logs, "epoch_ends", counted)
        assert [run.batch() for _ in range(3)] == [None, None, None]
        assert requests == [{T0: 0}]
        _put(filled.cluster, 2)
        assert run.batch() == {"t-0": [10, 11]}
        assert run.batch() is None
        assert len(requests) == 1
