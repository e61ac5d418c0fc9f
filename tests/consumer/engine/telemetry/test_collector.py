"""Pushed metrics have the names of KIP-714, and each sum covers the time since the previous push."""

from __future__ import annotations

import pytest

from consumer.engine.consumer_metrics import CONSUMER_METRICS
from consumer.engine.metrics import Measure, Metric, Metrics
from consumer.engine.network.sensors import NETWORK_METRICS
from consumer.engine.producer.sensors import PRODUCER_METRICS
from consumer.engine.telemetry.collector import MetricsCollector, is_sum, telemetry_name
from kproto.otlp import MetricPoint, Temporality

START, FIRST, SECOND = 1_000, 2_000, 3_000


def metric(name: str, value: float | None, **tags: str) -> Metric:
    dashed = {tag.replace("_", "-"): text for tag, text in tags.items()}
    return Metric(name, "consumer-node-metrics", {"client-id": "c", **dashed}, value, "", "")


def collect(
    collector: MetricsCollector, now: int, *metrics: Metric, is_delta: bool = True
) -> list[MetricPoint]:
    return collector.collect(Metrics(metrics), lambda name: True, now, is_delta=is_delta)


@pytest.mark.parametrize(
    ("group", "name", "expected"),
    [
        (
            "consumer-fetch-manager-metrics",
            "bytes-consumed-total",
            "consumer.fetch.manager.bytes.consumed.total",
        ),
        ("producer-metrics", "record-queue-time-avg", "producer.record.queue.time.avg"),
        ("consumer-node-metrics", "request-total", "consumer.node.request.total"),
        ("admin-client-metrics", "connection-count", "admin.client.connection.count"),
    ],
)
def test_names_are_those_of_kip_714(group: str, name: str, expected: str) -> None:
    assert telemetry_name(group, name) == f"org.apache.kafka.{expected}"


def test_exactly_the_totals_are_sums() -> None:
    definitions = (*CONSUMER_METRICS, *PRODUCER_METRICS, *NETWORK_METRICS)
    assert len(definitions) > 100
    for definition in definitions:
        sample = Metric(definition.name, "", {}, 0, "", "")
        assert is_sum(sample) == (definition.measure in (Measure.TOTAL, Measure.COUNT)), definition.name


def test_a_gauge_has_its_tags_without_the_client_id() -> None:
    [point] = collect(MetricsCollector(START), FIRST, metric("request-rate", 2, node_id="node-1"))
    assert point == MetricPoint(
        "org.apache.kafka.consumer.node.request.rate", 2.0, {"node_id": "node-1"}, FIRST
    )
    assert isinstance(point.value, float)


def test_a_metric_without_a_value_is_omitted() -> None:
    assert collect(MetricsCollector(START), FIRST, metric("request-size-avg", None)) == []


def test_only_selected_metrics_are_collected() -> None:
    metrics = Metrics([metric("request-rate", 1), metric("request-total", 1)])
    points = MetricsCollector(START).collect(
        metrics, lambda name: name.endswith("rate"), FIRST, is_delta=True
    )
    assert [point.name for point in points] == ["org.apache.kafka.consumer.node.request.rate"]


def values(points: list[MetricPoint]) -> list[tuple[float, int, Temporality | None]]:
    return [(point.value, point.start_ns, point.temporality) for point in points]


def test_delta_sums_count_from_the_previous_push() -> None:
    collector = MetricsCollector(START)
    first = collect(collector, FIRST, metric("request-total", 5, node_id="1"))
    assert values(first) == [(5.0, START, Temporality.DELTA)]
    assert first[0].is_monotonic
    second = collect(
        collector, SECOND, metric("request-total", 7, node_id="1"), metric("request-total", 1, node_id="2")
    )
    assert values(second) == [(2.0, FIRST, Temporality.DELTA), (1.0, START, Temporality.DELTA)]


def test_cumulative_sums_count_from_the_start() -> None:
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5), is_delta=False)
    points = collect(collector, SECOND, metric("request-total", 7), is_delta=False)
    assert values(points) == [(7.0, START, Temporality.CUMULATIVE)]


def test_the_changes_of_a_rejected_push_are_pushed_again() -> None:
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5))
    collector.restore()
    points = collect(collector, SECOND, metric("request-total", 7))
    assert values(points) == [(7.0, START, Temporality.DELTA)]


def test_a_sum_that_starts_again_is_not_negative() -> None:
    """A sum restarts at 0 when its sensor is re-created, for example because a broker has returned."""
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5))
    points = collect(collector, SECOND, metric("request-total", 2))
    assert values(points) == [(2.0, FIRST, Temporality.DELTA)]


def test_a_sum_whose_sensor_was_removed_starts_again() -> None:
    """The collector drops the last value of a removed sensor, so that deleted topics and brokers take no
    memory.
    """
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5))
    collect(collector, SECOND)
    points = collect(collector, SECOND + 1, metric("request-total", 7))
    assert values(points) == [(7.0, START, Temporality.DELTA)]


def test_a_sum_that_is_not_selected_keeps_its_last_push() -> None:
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5))
    collector.collect(Metrics([metric("request-total", 6)]), lambda name: False, SECOND, is_delta=True)
    points = collect(collector, SECOND + 1, metric("request-total", 7))
    assert values(points) == [(2.0, FIRST, Temporality.DELTA)]


def test_after_a_reset_sums_count_from_the_start() -> None:
    collector = MetricsCollector(START)
    collect(collector, FIRST, metric("request-total", 5))
    collector.reset()
    assert values(collect(collector, SECOND, metric("request-total", 7))) == [(7.0, START, Temporality.DELTA)]
