"""The options of a query select its partitions and offsets. An embedded broker holds the logs."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from consumer.engine.metadata.cluster import TopicView
from consumer.spark import offset_reader
from consumer.spark.offset_reader import OffsetReader, report_losses, retry_while_unreachable
from consumer.spark.offsets import DataLoss
from consumer.spark.options import parse
from kproto.broker.server import running
from kproto.errors import ConfigError, ConnectionFailed, RequestTimedOut, UnknownTopic
from kproto.group.subscription import TopicPartition
from tests.consumer.spark.stage import HOUR, Filled

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@contextmanager
def offset_reader_of(filled: Filled, **more: Any) -> Iterator[OffsetReader]:
    reader = OffsetReader(parse(filled.options(**more)))
    try:
        yield reader
    finally:
        reader.close()


@pytest.fixture
def t(filled: Filled) -> Filled:
    """Return a broker whose topic "t" contains offsets 2 to 4 in partition 0, and none in partition 1."""
    filled.topic("t", 5, 0)
    filled.delete_before(T0, 2)
    return filled


# ---- partitions


def test_a_subscription_reads_all_partitions_of_its_topics(t: Filled) -> None:
    t.topic("u", 0)
    with offset_reader_of(t, subscribe="u,t") as reader:
        partitions, ids = reader.partitions()
        assert partitions == [T0, T1, TopicPartition("u", 0)]
        assert ids.keys() == {"t", "u"}
        assert reader.partition_count == 3


def test_a_pattern_reads_the_matching_topics_except_internal_ones(
    t: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    t.topic("tu", 0)
    t.topic("v", 0)
    t.topic("internal-t", 0)
    with offset_reader_of(t, subscribePattern="t") as reader:
        read = reader._existing_topics

        def topics(wanted: list[str] | None, expected: Iterable[str]) -> dict[str, TopicView]:
            """Mark a topic as internal, because the embedded broker has no internal topics."""
            views = read(wanted, expected)
            views["internal-t"].internal = True
            return views

        monkeypatch.setattr(reader, "_existing_topics", topics)
        partitions, ids = reader.partitions()
    assert partitions == [T0, T1, TopicPartition("tu", 0)]
    assert ids.keys() == {"t", "tu"}


def test_assigned_partitions_that_are_missing_are_logged_unless_all_are(
    t: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    with offset_reader_of(t, assign=json.dumps({"t": [1, 7]})) as reader:
        assert reader.partitions()[0] == [T1]
        assert ["topic 't' has no partition 7" in message for message in caplog.messages] == [True]
        assert reader.partitions(strict=False)[0] == [T1]
        assert len(caplog.messages) == 1
    with (
        offset_reader_of(t, assign=json.dumps({"t": [7]})) as reader,
        pytest.raises(UnknownTopic, match="topic 't' has no partition 7"),
    ):
        reader.partitions()


def test_a_missing_topic_raises_at_the_start_of_a_query_only(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_reader, "PAUSE_S", 0.001)
    with offset_reader_of(filled, subscribe="missing") as reader:
        with pytest.raises(UnknownTopic, match="topic 'missing' does not exist"):
            reader.partitions()
        assert reader.partitions(strict=False) == ([], {})


# ---- offsets


def test_a_view_has_the_ends_and_the_leader_epochs_of_the_logs(t: Filled) -> None:
    with offset_reader_of(t) as reader:
        view = reader.view()
        assert view.ends == {T0: 5, T1: 0}
        assert view.epochs.keys() == {T0, T1}
        assert reader.starts([T0, T1]) == {T0: 2, T1: 0}
        assert reader.ends([T0]) == {T0: 5}
        assert reader.ends([]) == {}
        assert reader.epoch_ends(view.epochs) == {T0: 5, T1: 0}
        assert reader.epoch_ends({TopicPartition("gone", 0): 0}) == {}


def test_a_broker_before_kafka_2_3_is_not_asked_for_the_ends_of_epochs() -> None:
    """Such a broker would require ClusterAction, a permission for brokers. The ends then stay unknown."""
    with running({"t": 1}, highest={"OffsetForLeaderEpoch": 2}) as server:
        reader = OffsetReader(parse({"kafka.bootstrap.servers": server.bootstrap, "subscribe": "t"}))
        try:
            assert reader.epoch_ends({T0: 0}) == {}
        finally:
            reader.close()


@pytest.mark.parametrize(
    ("options", "positions", "edges", "explicit"),
    [
        ({"startingOffsets": "earliest"}, {T0: 2, T1: 0}, {T0, T1}, set()),
        ({"startingOffsets": '{"t": {"0": 9, "1": -2}}'}, {T0: 9, T1: 0}, {T1}, {T0}),
        ({"startingOffsets": '{"t": {"0": -2, "1": -1}}'}, {T0: 2, T1: 0}, {T0, T1}, set()),
        ({"startingOffsets": '{"t": {"0": -1, "1": 0}}'}, {T0: 5, T1: 0}, {T0}, {T1}),
        (
            {"startingOffsetsByTimestamp": json.dumps({"t": {"0": HOUR + 3, "1": HOUR}})},
            {T0: 3, T1: 0},
            set(),
            set(),
        ),
        ({"startingTimestamp": HOUR + 4}, {T0: 4, T1: 0}, set(), set()),
    ],
)
def test_a_start_is_an_edge_an_offset_or_the_first_record_at_a_timestamp(
    t: Filled,
    options: dict[str, str],
    positions: dict[TopicPartition, int],
    edges: set[TopicPartition],
    explicit: set[TopicPartition],
) -> None:
    with offset_reader_of(t, startingOffsetsByTimestampStrategy="latest", **options) as reader:
        bound = reader.options.starting
        assert bound is not None
        assert reader.resolve(bound, "starting", {T0: 5, T1: 0}) == (positions, edges, explicit)


def test_the_latest_start_is_the_given_end(t: Filled) -> None:
    with offset_reader_of(t, startingOffsets="latest") as reader:
        bound = reader.options.starting
        assert bound is not None
        assert reader.resolve(bound, "starting", {T0: 4, T1: 7}) == ({T0: 4, T1: 7}, {T0, T1}, set())


def test_a_starting_timestamp_after_all_records_is_an_error_by_default(t: Filled) -> None:
    with offset_reader_of(t, startingTimestamp=HOUR + 4) as reader:
        bound = reader.options.starting
        assert bound is not None
        with pytest.raises(ConfigError, match="t-1 has no record at or after it") as raised:
            reader.resolve(bound, "starting", {T0: 5, T1: 0})
        assert raised.value.option == "startingTimestamp"
        # t-1 has no record at or after the ending timestamp, so its end is the end of the log. Until the log
        # is read, this end may grow.
        resolved = reader.resolve(bound, "ending", {T0: 5, T1: 0})
        assert resolved == ({T0: 4, T1: 0}, {T1}, set())


@pytest.mark.parametrize(
    ("option", "value"),
    [("startingOffsets", '{"t": {"0": 3}}'), ("startingOffsetsByTimestamp", '{"t": {"0": 1}}')],
)
def test_a_bound_names_exactly_the_partitions_that_are_read(t: Filled, option: str, value: str) -> None:
    with offset_reader_of(t, **{option: value}) as reader:
        bound = reader.options.starting
        assert bound is not None
        with pytest.raises(ConfigError) as raised:
            reader.resolve(bound, "starting", {T0: 5, T1: 0})
        assert raised.value.option == option


def test_an_explicit_start_outside_of_the_log_is_a_loss_or_moves_to_the_edge(
    t: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    start = '{"t": {"0": 1, "1": 3}}'
    with offset_reader_of(t, startingOffsets=start) as reader:
        bound = reader.options.starting
        assert bound is not None
        with pytest.raises(DataLoss):
            reader.begin(bound, reader.view())
    with offset_reader_of(t, startingOffsets=start, failOnDataLoss="false") as reader:
        assert reader.begin(bound, reader.view()) == {T0: 2, T1: 0}
    assert len([message for message in caplog.messages if "failOnDataLoss=false: " in message]) == 1
    with offset_reader_of(t, startingOffsets='{"t": {"0": 4, "1": -1}}') as reader:
        inside = reader.options.starting
        assert inside is not None
        assert reader.begin(inside, reader.view()) == {T0: 4, T1: 0}


def test_losses_are_raised_or_logged_and_no_losses_are_neither(
    filled: Filled, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = parse(filled.options()), parse(filled.options(failOnDataLoss="false"))
    report_losses([], strict)
    report_losses([], lenient)
    assert caplog.messages == []
    with pytest.raises(DataLoss):
        report_losses(["a"], strict)
    report_losses(["a", "b"], lenient)
    assert caplog.messages == ["failOnDataLoss=false: a; b"]


# ---- requests


def test_a_timed_out_request_is_retried_as_often_as_the_options_allow(filled: Filled) -> None:
    asked: list[int] = []

    def request() -> int:
        asked.append(1)
        if len(asked) <= timeouts:
            raise RequestTimedOut("Metadata", 1)
        return 7

    options = {"fetchOffset_numRetries": 2, "fetchOffset_retryIntervalMs": 1}
    with offset_reader_of(filled, **options) as reader:
        timeouts = 2
        assert reader._retry(request) == 7
        asked.clear()
        timeouts = 3
        with pytest.raises(RequestTimedOut) as raised:
            reader._retry(request)
        assert len(asked) == 3
        assert raised.value.__notes__[0].startswith("It was retried 2 times; ")


def test_an_unreachable_cluster_is_retried_until_the_time_is_over(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, pauses = [0.0], list[float]()
    monkeypatch.setattr(offset_reader.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(offset_reader.time, "sleep", sleep)

    def refuse() -> None:
        raise ConnectionFailed("h:1", "refused")

    caplog.set_level(logging.WARNING)
    with pytest.raises(ConnectionFailed) as raised:
        retry_while_unreachable(refuse, 20, "kafka.some.timeout.ms")
    assert raised.value.__notes__ == ["It was tried for 20 s; see kafka.some.timeout.ms."]
    doubled = [min(offset_reader.LONGEST_PAUSE_S, offset_reader.PAUSE_S * 2**n) for n in range(len(pauses))]
    assert pauses == doubled
    assert sum(pauses) < 20 <= sum(pauses) + doubled[-1] * 2
    assert len(caplog.messages) == 1
    assert retry_while_unreachable(lambda: 5, 20, "x") == 5


@pytest.mark.parametrize(
    ("options", "has_answered", "limit"),
    [
        ({}, False, (30, "kafka.request.timeout.ms")),
        ({}, True, (60, "kafka.default.api.timeout.ms")),
        ({"kafka_request_timeout_ms": 5_000}, False, (5, "kafka.request.timeout.ms")),
        ({"kafka_default_api_timeout_ms": 9_000}, False, (9, "kafka.default.api.timeout.ms")),
        ({"kafka_default_api_timeout_ms": 40_000}, False, (30, "kafka.request.timeout.ms")),
        ({"kafka_default_api_timeout_ms": 40_000}, True, (40, "kafka.default.api.timeout.ms")),
    ],
)
def test_an_unreachable_cluster_is_retried_for_the_time_of_one_option(
    filled: Filled, options: dict[str, int], has_answered: bool, limit: tuple[float, str]
) -> None:
    with offset_reader_of(filled, **options) as reader:
        reader._has_responded = has_answered
        assert reader._unreachable_limit == limit


def test_a_closed_offset_reader_opens_new_connections(t: Filled) -> None:
    with offset_reader_of(t) as reader:
        assert reader.starts([T0]) == {T0: 2}
        first = reader.cluster
        assert reader.cluster is first
        reader.close()
        reader.close()
        assert reader.starts([T0]) == {T0: 2}
        assert reader.cluster is not first


def test_existing_topics_are_requested_once(t: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    with offset_reader_of(t, subscribe="t") as reader:
        views: list[object] = []
        metadata = reader.cluster.metadata

        def count(*arguments: Any, **options: Any) -> Any:
            views.append(arguments)
            return metadata(*arguments, **options)

        monkeypatch.setattr(reader.cluster, "metadata", count)
        assert reader.partitions()[0]
        assert len(views) == 1


@pytest.mark.parametrize(("value", "pushes"), [(None, True), ("true", True), ("false", False)])
def test_metrics_are_pushed_unless_the_option_disables_it(t: Filled, value: str | None, pushes: bool) -> None:
    more = {} if value is None else {"kafka.enable.metrics.push": value}
    with offset_reader.connect(parse(t.options(subscribe="t", **more))) as admin:
        engine = admin._operations._runner.engine
        assert (engine.telemetry is not None) is pushes
