"""Sensors return the values of Java's SampledStat and Rate. The expected values were computed by hand."""

from __future__ import annotations

import pytest

from consumer.engine.metrics import (
    Measure,
    MetricDefinition,
    Metrics,
    Sensor,
    SnapshotBuilder,
)
from kproto.errors import ConfigError


def sensor(*values: tuple[float, int]) -> Sensor:
    """Return a sensor that has recorded these pairs (value, time in ms)."""
    result = Sensor()
    for value, now in values:
        result.record(value, now)
    return result


def test_the_first_rate_divides_by_a_whole_window_more_than_has_passed() -> None:
    values = sensor((100, 0), (100, 1_000))
    assert values.measure(Measure.RATE, 10_000) == 200 / 40
    assert values.measure(Measure.COUNT_RATE, 10_000) == 2 / 40


def test_a_rate_at_the_moment_of_the_first_value_divides_by_one_window() -> None:
    assert sensor((90, 5_000)).measure(Measure.RATE, 5_000) == 3


def test_a_rate_divides_by_the_time_since_the_oldest_sample_began() -> None:
    values = sensor((100, 0), (100, 1_000), (60, 30_000))
    assert values.measure(Measure.RATE, 30_000) == 260 / 30
    assert values.measure(Measure.RATE, 45_000) == 260 / 45


def test_a_sample_is_emptied_60_s_after_its_last_value() -> None:
    values = sensor((100, 0), (100, 1_000), (60, 30_000))
    assert values.measure(Measure.MAXIMUM, 60_999) == 100
    assert values.measure(Measure.MAXIMUM, 61_000) == 60
    assert values.measure(Measure.RATE, 61_000) == 60 / 31


def test_a_third_sample_that_overlaps_the_last_60_s_is_measured() -> None:
    values = sensor((1, 0), (2, 29_000), (4, 30_000), (8, 60_000))
    assert values.measure(Measure.RATE, 60_000) == 15 / 60
    assert values.measure(Measure.AVERAGE, 60_000) == 15 / 4


def test_the_fourth_sample_replaces_the_first() -> None:
    values = sensor((1, 0), (2, 30_000), (2, 59_000), (4, 60_000), (8, 90_000))
    assert values.measure(Measure.AVERAGE, 90_000) == 16 / 4
    assert values.measure(Measure.MINIMUM, 90_000) == 2
    assert values.measure(Measure.RATE, 90_000) == 16 / 60


def test_a_value_after_30_s_begins_a_new_sample() -> None:
    values = sensor((1, 0), (2, 29_999))
    assert values.measure(Measure.AVERAGE, 89_998) == 1.5
    values = sensor((1, 0), (2, 30_000))
    assert values.measure(Measure.AVERAGE, 60_000) == 2


def test_an_hourly_rate_counts_values() -> None:
    # At 60 s the first sample has expired, and only the second value counts. The period of a rate is at least
    # 30 s, so one value is a rate of 120 per hour.
    assert sensor((7, 0), (7, 60_000)).measure(Measure.COUNT_RATE_PER_HOUR, 60_000) == 120


def test_a_share_of_the_time_divides_ns_by_the_time_that_has_passed() -> None:
    values = sensor((6_000_000_000, 0), (3_000_000_000, 30_000))
    assert values.measure(Measure.TIME_RATIO, 30_000) == 9 / 30


def test_totals_contain_values_of_all_times() -> None:
    values = sensor((3, 0), (4, 10_000_000))
    assert values.measure(Measure.TOTAL, 20_000_000) == 7
    assert values.measure(Measure.COUNT, 20_000_000) == 2


@pytest.mark.parametrize("measure", [Measure.AVERAGE, Measure.MAXIMUM, Measure.MINIMUM])
def test_nothing_is_measured_without_a_value(measure: Measure) -> None:
    assert Sensor().measure(measure, 0) is None
    assert sensor((1, 0)).measure(measure, 60_000) is None


def test_rates_without_a_value_are_zero() -> None:
    assert Sensor().measure(Measure.RATE, 0) == 0
    assert sensor((1, 0)).measure(Measure.COUNT_RATE, 60_000) == 0


def test_a_value_may_be_recorded_several_times_at_once() -> None:
    values = Sensor()
    values.record(2, 0, times=3)
    values.record(10, 0)
    assert values.measure(Measure.AVERAGE, 0) == 4
    assert values.measure(Measure.COUNT, 0) == 4
    assert values.measure(Measure.TOTAL, 0) == 16


def snapshot() -> Metrics:
    lag = MetricDefinition("lag", "fetch-metrics", Measure.GAUGE, "records", "Lag")
    builder = SnapshotBuilder("consumer", "c", 0)
    builder.add(lag, 5)
    builder.add(lag, 3, {"topic": "t", "partition": "0"})
    builder.add_sensors(
        Sensor((MetricDefinition("time", "node-metrics", Measure.MAXIMUM, "ms", "Time"),)),
        tags={"node-id": "node-1"},
    )
    return builder.build()


def test_a_value_is_found_by_name_and_tags() -> None:
    metrics = snapshot()
    assert metrics.value("lag") == 5
    assert metrics.value("lag", topic="t", partition=0) == 3
    assert metrics.value("time", node_id="node-1") is None


def test_an_unknown_name_or_tag_is_named_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="'latency'"):
        snapshot().value("latency")
    with pytest.raises(ConfigError, match=r"topic=x.*no tags; topic=t, partition=0"):
        snapshot().value("lag", topic="x")


def test_a_metric_has_the_group_of_its_client_and_the_client_id() -> None:
    metric = list(snapshot())[1]
    assert metric.group == "consumer-fetch-metrics"
    assert metric.tags == {"client-id": "c", "topic": "t", "partition": "0"}
