"""The metrics of clients as instruments of OpenTelemetry.

    from consumer.opentelemetry import ClientInstruments

    instruments = ClientInstruments()
    instruments.add(consumer)
    instruments.add(producer)

Rules:

* The name of an instrument consists of the kind of client and the name of Java's metric, as in
  `kafka.consumer.records_lag_max`. OpenTelemetry's instrumentation of Java's clients uses the same names.

* Totals are observable counters; all other metrics are observable gauges. A metric without a value, such as
  an average before the first request, is not exported.

* If a metric exists for the client and also for each topic, partition or broker, the client's metric is not
  exported, so that sums over all attributes count nothing twice.

* Units follow UCUM, such as "By" for bytes and "{record}/s" for records per second.

* Each export reads one snapshot of each client. When the application has dropped its last reference to a
  client, the metrics of this client are no longer exported.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation, get_meter_provider

from kproto.version import __version__

from ..clock import now
from ..engine.consumer_metrics import CONSUMER_METRICS
from ..engine.metrics import Measure, Metric, MetricDefinition, Metrics
from ..engine.network.sensors import NETWORK_METRICS
from ..engine.producer.sensors import PRODUCER_METRICS

# The metrics of each kind of client. The key is the first part of the metrics' groups, such as "consumer" in
# "consumer-metrics".
TABLES: Final = {
    "consumer": CONSUMER_METRICS,
    "producer": PRODUCER_METRICS,
    "admin-client": NETWORK_METRICS,
}
# Kafka's units that exist in UCUM. All other units name what is counted, such as records. UCUM writes these
# names in braces.
UNITS: Final = {"bytes": "By", "ms": "ms", "s": "s", "ns": "ns", "ratio": "1"}
# Time (ms) for which the instruments read the same snapshot. It is longer than an export takes, so all values
# of an export come from one snapshot.
SNAPSHOT_AGE_MS = 500


class Measured(Protocol):
    """A client that has metrics."""

    def metrics(self) -> Metrics: ...


class ClientInstruments:
    """Observable instruments for the metrics of clients.

    `meter_provider` defaults to the global one. Create one `ClientInstruments` for all clients of a process,
    because OpenTelemetry warns if instruments are created twice.
    """

    def __init__(self, meter_provider: MeterProvider | None = None) -> None:
        provider = get_meter_provider() if meter_provider is None else meter_provider
        self._meter = provider.get_meter("kproto", __version__)
        self._snapshots: dict[str, _Snapshots] = {}

    def add(self, client: Measured) -> None:
        """Export the metrics of a consumer, producer or admin client, until `remove` is called."""
        kind = _client_kind(client)
        if kind not in self._snapshots:
            self._snapshots[kind] = snapshots = _Snapshots()
            self._create_instruments(kind, snapshots)
        self._snapshots[kind].add(client)

    def remove(self, client: Measured) -> None:
        """Stop exporting a client's metrics."""
        for snapshots in self._snapshots.values():
            snapshots.remove(client)

    def _create_instruments(self, kind: str, snapshots: _Snapshots) -> None:
        """Create the instruments for all metrics of this kind of client; `snapshots` has their values."""
        # Of the definitions with the same name, only the one with the most tags is exported.
        definitions: dict[str, MetricDefinition] = {}
        for definition in TABLES[kind]:
            name = instrument_name(kind, definition)
            if name not in definitions or len(definition.tags) > len(definitions[name].tags):
                definitions[name] = definition
        for name, definition in definitions.items():
            is_total = definition.measure in (Measure.TOTAL, Measure.COUNT)
            create: Callable[..., object] = (
                self._meter.create_observable_counter if is_total else self._meter.create_observable_gauge
            )
            create(
                name,
                callbacks=[partial(snapshots.observe, definition)],
                unit=ucum_unit(definition.unit),
                description=definition.description,
            )


class _Snapshots:
    """The clients of one kind, and the metrics of their last snapshots.

    After `add` or `remove`, the next `observe` reads new snapshots.
    """

    def __init__(self) -> None:
        self._clients: weakref.WeakSet[Measured] = weakref.WeakSet()
        self._read_at: int | None = None
        # (Name of a metric, number of its tags without `client-id`) -> all clients' metrics with this name
        # and number of tags. The number of tags distinguishes a client's metric from the metrics of its
        # topics, partitions or brokers.
        self._metrics: dict[tuple[str, int], list[Metric]] = {}

    def add(self, client: Measured) -> None:
        """Export the metrics of this client."""
        self._clients.add(client)
        self._read_at = None

    def remove(self, client: Measured) -> None:
        """Stop exporting the metrics of this client."""
        self._clients.discard(client)
        self._read_at = None

    def observe(self, definition: MetricDefinition, options: CallbackOptions) -> Iterable[Observation]:
        """Return every client's value of one metric, with the metric's tags as attributes.

        Reads new snapshots if the last ones are too old. OpenTelemetry calls this method in each export.
        """
        if self._read_at is None or now() - self._read_at > SNAPSHOT_AGE_MS:
            self._read_snapshots()
        return [
            Observation(metric.value, {name.replace("-", "_"): value for name, value in metric.tags.items()})
            for metric in self._metrics.get((definition.name, len(definition.tags)), ())
            if metric.value is not None
        ]

    def _read_snapshots(self) -> None:
        self._metrics = {}
        for client in list(self._clients):
            for metric in client.metrics():
                tags_without_client_id = len(metric.tags) - 1
                key = metric.name, tags_without_client_id
                self._metrics.setdefault(key, []).append(metric)
        self._read_at = now()


def _client_kind(client: Measured) -> str:
    """Return the client's kind, a key of `TABLES`. The client's first metric is in the group KIND-metrics."""
    return next(iter(client.metrics())).group.removesuffix("-metrics")


def instrument_name(kind: str, definition: MetricDefinition) -> str:
    """Return the instrument name of a metric, such as `kafka.consumer.records_lag_max`."""
    return f"kafka.{kind}.{definition.name}".replace("-", "_")


def ucum_unit(unit: str) -> str:
    """Return a unit in the notation of UCUM, such as "By/s" for "bytes/s"."""
    counted, slash, time = unit.partition("/")
    ucum_counted = UNITS.get(counted) or "{" + counted.removesuffix("s") + "}"
    return f"{ucum_counted}{slash}{time}"
