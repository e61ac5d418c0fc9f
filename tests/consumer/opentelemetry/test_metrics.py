"""OpenTelemetry's SDK exports the metrics of clients through instruments."""

from __future__ import annotations

import gc
import logging
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from consumer import Consumer, Producer, TopicPartition
from consumer.engine.metrics import Metric, Metrics
from consumer.opentelemetry import ClientInstruments
from consumer.opentelemetry.metrics import TABLES, instrument_name, ucum_unit
from kproto import running

pytestmark = pytest.mark.usefixtures("fast_collections")


def exported(reader: InMemoryMetricReader) -> dict[str, Any]:
    """Return the exported metrics by name."""
    data = reader.get_metrics_data()
    if data is None:
        return {}
    return {
        metric.name: metric
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }


def instruments() -> tuple[ClientInstruments, InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    return ClientInstruments(MeterProvider([reader])), reader


class Client:
    """Replaces a consumer. Has one metric of the group consumer-metrics, and then `metrics`."""

    def __init__(self, *metrics: Metric) -> None:
        self.snapshots = 0
        first = Metric("connection-count", "consumer-metrics", {"client-id": "c"}, 1, "connections", "")
        self._metrics = [first, *metrics]

    def metrics(self) -> Metrics:
        self.snapshots += 1
        return Metrics(self._metrics)


def lag(value: float | None, partition: int, client_id: str = "c") -> Metric:
    tags = {"client-id": client_id, "topic": "t", "partition": str(partition)}
    return Metric("records-lag", "consumer-fetch-manager-metrics", tags, value, "records", "")


def values(metric: Any) -> dict[tuple[tuple[str, str], ...], float]:
    return {tuple(sorted(point.attributes.items())): point.value for point in metric.data.data_points}


def test_clients_of_both_kinds_are_exported() -> None:
    exporter, reader = instruments()
    with running(topics={"t": 2}) as server, Producer(server.bootstrap, client_id="p") as producer:
        exporter.add(producer)
        producer.send("t", b"x", partition=0).result()
        with Consumer(server.bootstrap, client_id="c", auto_offset_reset="earliest") as consumer:
            exporter.add(consumer)
            consumer.assign([TopicPartition("t", 0)])
            assert consumer.poll(5)
            metrics = exported(reader)
    assert values(metrics["kafka.producer.record_send_total"]) == {(("client_id", "p"), ("topic", "t")): 1}
    tags = (("client_id", "c"), ("partition", "0"), ("topic", "t"))
    assert values(metrics["kafka.consumer.records_lag"]) == {tags: 0}
    assert metrics["kafka.consumer.bytes_consumed_rate"].unit == "By/s"
    assert metrics["kafka.producer.record_send_total"].data.is_monotonic


def test_a_metric_of_each_partition_is_not_exported_for_the_client() -> None:
    exporter, reader = instruments()
    group = "consumer-fetch-manager-metrics"
    tags = {"client-id": "c", "topic": "t", "partition": "0"}
    client = Client(
        Metric("records-lag-max", group, {"client-id": "c"}, 9, "records", ""),
        Metric("records-lag-max", group, tags, 5, "records", ""),
    )
    exporter.add(client)
    assert list(values(exported(reader)["kafka.consumer.records_lag_max"]).values()) == [5]


def test_a_metric_without_a_value_is_not_exported() -> None:
    exporter, reader = instruments()
    client = Client(lag(None, 0), lag(7, 1))
    exporter.add(client)
    assert list(values(exported(reader)["kafka.consumer.records_lag"]).values()) == [7]


def test_all_instruments_of_an_export_read_one_snapshot() -> None:
    exporter, reader = instruments()
    client = Client(lag(7, 1))
    exporter.add(client)
    before = client.snapshots
    exported(reader)
    assert client.snapshots == before + 1


def test_clients_that_were_removed_or_dropped_are_not_exported() -> None:
    exporter, reader = instruments()
    kept, dropped, removed = [Client(lag(number, 0, f"c-{number}")) for number in range(3)]
    exporter.add(kept)
    exporter.add(dropped)
    exporter.add(removed)
    exporter.remove(removed)
    del dropped
    gc.collect()
    assert list(values(exported(reader)["kafka.consumer.records_lag"]).values()) == [0]


def test_several_clients_of_one_kind_share_their_instruments(caplog: pytest.LogCaptureFixture) -> None:
    exporter, reader = instruments()
    clients = [Client(lag(number, 0, f"c-{number}")) for number in range(2)]
    with caplog.at_level(logging.WARNING):
        for client in clients:
            exporter.add(client)
        assert sorted(values(exported(reader)["kafka.consumer.records_lag"]).values()) == [0, 1]
    assert caplog.messages == []


@pytest.mark.parametrize("kind", TABLES)
def test_metrics_of_one_name_differ_in_the_number_of_tags(kind: str) -> None:
    keys = [(instrument_name(kind, metric), len(metric.tags)) for metric in TABLES[kind]]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize(
    ("unit", "ucum"),
    [
        ("bytes", "By"),
        ("bytes/s", "By/s"),
        ("ms", "ms"),
        ("s", "s"),
        ("ratio", "1"),
        ("records", "{record}"),
        ("records/s", "{record}/s"),
        ("rebalances/h", "{rebalance}/h"),
        ("node id", "{node id}"),
    ],
)
def test_units_are_those_of_ucum(unit: str, ucum: str) -> None:
    assert ucum_unit(unit) == ucum
