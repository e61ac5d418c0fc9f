"""The metrics of a consumer have the expected values after known traffic, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.consumer_metrics import CONSUMER_METRICS
from consumer.engine.consumer_sensors import CallSensors
from consumer.engine.metrics import Measure, Metrics, SnapshotBuilder
from kproto.error_codes import ErrorCode
from kproto.messages.fetch import FetchRequest
from kproto.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.consumer.engine.stage import GROUP, caught_up_member, world_with_records
from tests.consumer.stage import Client, Consumer, World


def metrics(world: World, consumer: Consumer) -> Metrics:
    return consumer.engine.metrics(world.now)


def test_a_snapshot_contains_the_metrics_of_the_table() -> None:
    world = world_with_records()
    listed = {(metric.name, metric.group, metric.tags) for metric in CONSUMER_METRICS}
    assert len(listed) == len(CONSUMER_METRICS)
    snapshot = metrics(world, caught_up_member(world))
    assert {
        (metric.name, metric.group.removeprefix("consumer-"), tuple(metric.tags)[1:]) for metric in snapshot
    } == listed
    assert {metric.tags["client-id"] for metric in snapshot} == {"consumer-1"}


def test_a_consumer_without_a_group_has_no_metrics_of_the_coordinator() -> None:
    world = world_with_records()
    a = world.consumer()
    assert "consumer-coordinator-metrics" not in {metric.group for metric in metrics(world, a)}


def test_returned_records_are_counted_for_the_client_and_the_topic() -> None:
    world = World({"t": 1, "u": 1})
    world.write("t", 0, *"abcdefg")
    world.write("u", 0, *"xyz")
    a = world.consumer(**GROUP)
    a.subscribe("t", "u")
    assert world.run(until=lambda: len(a.records) == 10)
    world.run(5_000)
    snapshot = metrics(world, a)
    assert snapshot.value("records-consumed-total") == 10
    assert snapshot.value("records-consumed-total", topic="t") == 7
    assert snapshot.value("records-consumed-total", topic="u") == 3
    assert snapshot.value("records-per-request-avg", topic="t") == 7
    sizes = [snapshot.value("bytes-consumed-total", topic=topic) or 0 for topic in ("t", "u")]
    assert min(sizes) > 0
    assert snapshot.value("bytes-consumed-total") == sum(sizes)
    assert snapshot.value("fetch-size-max", topic="t") == sizes[0]


def test_a_rate_forgets_returned_records_although_no_snapshot_was_taken() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(65_000)
    snapshot = metrics(world, a)
    assert snapshot.value("records-consumed-total") == 10
    assert snapshot.value("records-consumed-rate") == snapshot.value("bytes-consumed-rate") == 0
    assert snapshot.value("records-lag-max") is None


def test_the_lag_and_the_lead_of_a_partition_are_measured_when_its_records_are_returned() -> None:
    world = world_with_records(records=10)
    a = world.consumer(**GROUP, max_poll_records=4)
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    snapshot = metrics(world, a)
    of_t0: dict[str, Any] = {"topic": "t", "partition": 0}
    # Three polls within one millisecond return 4, 4 and 2 records. The lag after each poll is 6, 2 and 0, and
    # the lead is 4, 8 and 10. The sensors record only the largest and the last lag, and the smallest and the
    # last lead, of each second.
    assert snapshot.value("records-lag", **of_t0) == 0
    assert snapshot.value("records-lag-max", **of_t0) == snapshot.value("records-lag-max") == 6
    assert snapshot.value("records-lag-avg", **of_t0) == (6 + 0) / 2
    assert snapshot.value("records-lead", **of_t0) == 10
    assert snapshot.value("records-lead-min", **of_t0) == snapshot.value("records-lead-min") == 4
    assert snapshot.value("records-lead-avg", **of_t0) == (4 + 10) / 2
    assert snapshot.value("preferred-read-replica", **of_t0) is None


@pytest.mark.parametrize("ends_by", ["unsubscribe", "close"])
def test_the_lag_of_the_client_includes_partitions_that_were_revoked_since(ends_by: str) -> None:
    """As in Java, a revocation removes the metrics of the partition, but its values remain in the client's
    metrics.
    """
    world = world_with_records(records=10)
    a = world.consumer(**GROUP, max_poll_records=4)
    a.works_ms = 500
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 4)
    if ends_by == "unsubscribe":
        a.unsubscribe()
    else:
        a.close()
    world.run(100)
    assert not a.owned
    snapshot = metrics(world, a)
    assert snapshot.value("records-lag-max") == 6
    assert snapshot.value("records-lead-min") == 4
    assert "records-lag" not in {metric.name for metric in snapshot}


def test_a_partition_that_was_revoked_has_no_metrics() -> None:
    world = world_with_records(partitions=2)
    a = caught_up_member(world)
    world.consumer(**GROUP).subscribe("t")
    assert world.run(30_000, until=lambda: len(a.engine.partitions) == 1)
    snapshot = metrics(world, a)
    assert snapshot.value("assigned-partitions") == 1
    assert len([metric for metric in snapshot if metric.name == "records-lag"]) == 1


def test_a_fetch_that_waits_at_the_broker_has_a_latency() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(20_000)
    snapshot = metrics(world, a)
    latency = snapshot.value("fetch-latency-max")
    assert latency is not None
    assert 500 <= latency < 600
    assert latency in [m.value for m in snapshot if m.name == "request-latency-max"]
    requests = snapshot.value("fetch-total")
    assert requests is not None
    assert 35 <= requests <= 50
    assert snapshot.value("fetch-throttle-time-max") == 0


def test_heartbeats_are_counted() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    before = metrics(world, a).value("heartbeat-total") or 0
    world.run(10_000)
    snapshot = metrics(world, a)
    # One heartbeat every 500 ms (`heartbeat_interval_ms`).
    assert 18 <= (snapshot.value("heartbeat-total") or 0) - before <= 21
    assert snapshot.value("last-heartbeat-seconds-ago") == 0
    assert snapshot.value("heartbeat-response-time-max") is not None


def test_a_rebalance_is_measured_from_the_first_join_to_the_assignment() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    world.run(2_500)
    snapshot = metrics(world, a)
    assert snapshot.value("rebalance-total") == snapshot.value("join-total") == 1
    assert snapshot.value("sync-total") == 1
    latency, join, sync = (
        snapshot.value(name) or 0 for name in ("rebalance-latency-total", "join-time-max", "sync-time-max")
    )
    # The broker rejects the first JoinGroup with MEMBER_ID_REQUIRED. The metric counts this rejection as a
    # failed rebalance.
    assert snapshot.value("failed-rebalance-total") == 1
    assert join + sync <= latency <= join + sync + 1_000
    assert snapshot.value("last-rebalance-seconds-ago") == 2


def test_a_sync_that_fails_is_a_failed_rebalance() -> None:
    world = world_with_records()

    def tamper(client: Client, request: Any, version: int) -> Any:
        if isinstance(request, SyncGroupRequest):
            world.tamper = None
            return SyncGroupResponse(
                throttle_time_ms=0, error_code=ErrorCode.REBALANCE_IN_PROGRESS, assignment=b""
            )
        return None

    world.tamper = tamper
    snapshot = metrics(world, caught_up_member(world))
    assert snapshot.value("failed-rebalance-total") == 2
    assert snapshot.value("rebalance-total") == 1
    assert snapshot.value("join-total") == 2


def test_the_duration_of_a_callback_is_measured() -> None:
    world = world_with_records()
    a = world.consumer(**GROUP)
    a.callback_ms = 700
    a.subscribe("t")
    assert world.run(until=lambda: len(a.records) == 10)
    snapshot = metrics(world, a)
    assert snapshot.value("partition-assigned-latency-max") == 700
    assert snapshot.value("partition-revoked-latency-max") is None


def test_commits_are_counted_with_their_latency() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    before = metrics(world, a).value("commit-total") or 0
    a.commit()
    world.run(1_000)
    snapshot = metrics(world, a)
    assert snapshot.value("commit-total") == before + 1
    assert snapshot.value("commit-latency-max") is not None
    assert (snapshot.value("commit-sync-time-ns-total") or 0) >= 1_000_000


def test_a_response_without_records_is_a_fetch_without_a_size() -> None:
    world = World({"t": 1})
    a = world.consumer(**GROUP)
    a.subscribe("t")
    world.run(5_000)
    snapshot = metrics(world, a)
    assert snapshot.value("fetch-total") != 0
    assert snapshot.value("fetch-size-avg") is None


def test_connections_and_requests_of_each_broker_are_counted() -> None:
    world = world_with_records()
    a = caught_up_member(world)
    sent: list[Any] = []

    def tamper(client: Client, request: Any, version: int) -> Any:
        sent.append(request)
        return None

    before = metrics(world, a).value("request-total") or 0
    world.tamper = tamper
    world.run(10_000)
    # A request in flight at the start or the end of the 10 s may be counted only by the metric, or only in
    # `sent`.
    assert abs((metrics(world, a).value("request-total") or 0) - before - len(sent)) <= 2
    assert sum(isinstance(request, FetchRequest) for request in sent) > 10
    assert metrics(world, a).value("connection-count") == 3


def calls(sensors: CallSensors, now: int) -> Metrics:
    snapshot = SnapshotBuilder("consumer", "c", now)
    sensors.add_to(snapshot, now)
    return snapshot.build()


def test_the_time_between_polls_is_that_between_their_starts() -> None:
    sensors = CallSensors()
    for began, ended in ((1_000, 1_100), (1_400, 1_400), (2_000, 2_200)):
        sensors.poll_began(began)
        sensors.poll_ended(ended)
    # As in Java, the first poll records 0 ms since the previous poll.
    assert calls(sensors, 5_000).value("time-between-poll-avg") == (0 + 400 + 600) / 3
    assert calls(sensors, 5_000).value("time-between-poll-max") == 600
    assert calls(sensors, 5_000).value("last-poll-seconds-ago") == 3
    # Java divides the time in a poll by the sum of this time and the time between the starts of the previous
    # poll and of this one: 100 of 100 ms, 0 of 400 ms, and 200 of 800 ms.
    assert calls(sensors, 5_000).value("poll-idle-ratio-avg") == 1.25 / 3


def test_polls_within_one_millisecond_are_counted_one_by_one() -> None:
    sensors = CallSensors()
    for now in (1_000, 1_000, 1_000, 1_001):
        sensors.poll_began(now)
        sensors.poll_ended(now)
    assert calls(sensors, 1_001).value("time-between-poll-avg") == 1 / 4
    assert calls(sensors, 1_001).value("poll-idle-ratio-avg") == 0


def test_polls_of_buffered_records_are_recorded_with_their_own_times() -> None:
    sensors = CallSensors()
    sensors.unrecorded_starts += [1_000, 1_400, 1_500]
    sensors.immediate_polls, sensors.polled_at = 1, 1_500
    sensors.poll_began(2_000)
    sensors.poll_ended(2_500)
    assert calls(sensors, 3_000).value("time-between-poll-avg") == (0 + 400 + 100 + 0 + 500) / 5
    assert calls(sensors, 3_000).value("time-between-poll-max") == 500
    # Java divides the time in a poll by the sum of this time and the time since the previous poll began: 0 of
    # 400 ms, 0 of 100 ms, and 500 of 1,000 ms.
    assert calls(sensors, 3_000).value("poll-idle-ratio-avg") == 0.5 / 3


def test_nothing_is_known_before_the_first_poll() -> None:
    sensors = CallSensors()
    assert calls(sensors, 1_000).value("last-poll-seconds-ago") is None
    assert calls(sensors, 1_000).value("time-between-poll-avg") is None


def test_every_metric_has_a_unit_and_rates_name_their_time() -> None:
    for metric in CONSUMER_METRICS:
        is_rate = metric.measure in (Measure.RATE, Measure.COUNT_RATE, Measure.COUNT_RATE_PER_HOUR)
        assert metric.unit.endswith(("/s", "/h")) == is_rate, metric.name
