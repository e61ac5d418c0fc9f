"""The metrics of a client's connections, in total and for each broker (Java's SelectorMetrics).

Rules:

* A request or response is counted as a whole, with the 4 bytes of its size field. Java counts its bytes as
  the socket transfers them.

* Unlike in Java, requests of a SASL login are counted. SASL frames for brokers before Kafka 1.0 are not
  counted, because they are not requests.

* All connections to one broker have the same tag `node-id`. In Java the connection to the coordinator has a
  separate tag.

* Bootstrap addresses that the metadata does not list have the tags `node--1`, `node--2`, and so on.

* The latency of a broker is measured only for Fetch and Produce, as in Java.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

from ..metadata.cluster import ClusterView
from ..metrics import Measure, MetricDefinition, Sensor, SnapshotBuilder
from .connection import Connection
from .nodes import Address

# API keys.
PRODUCE, FETCH = 0, 1

M = Measure
_client_metric = partial(MetricDefinition, group="metrics")
_node_metric = partial(MetricDefinition, group="node-metrics", tags=("node-id",))


def _request_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    """Return the metrics of the requests that were sent."""
    return (
        define("request-rate", measure=M.COUNT_RATE, unit="requests/s", description="Requests sent"),
        define("request-total", measure=M.COUNT, unit="requests", description="Requests sent"),
        define("request-size-avg", measure=M.AVERAGE, unit="bytes", description="Size of a request"),
        define("request-size-max", measure=M.MAXIMUM, unit="bytes", description="Size of a request"),
        define("outgoing-byte-rate", measure=M.RATE, unit="bytes/s", description="Bytes sent"),
        define("outgoing-byte-total", measure=M.TOTAL, unit="bytes", description="Bytes sent"),
    )


def _response_metrics(define: partial[MetricDefinition]) -> tuple[MetricDefinition, ...]:
    """Return the metrics of the responses that have arrived."""
    return (
        define("response-rate", measure=M.COUNT_RATE, unit="responses/s", description="Responses received"),
        define("response-total", measure=M.COUNT, unit="responses", description="Responses received"),
        define("incoming-byte-rate", measure=M.RATE, unit="bytes/s", description="Bytes received"),
        define("incoming-byte-total", measure=M.TOTAL, unit="bytes", description="Bytes received"),
    )


def _event_metrics(name: str, description: str, unit: str) -> tuple[MetricDefinition, ...]:
    """Return the rate and total metrics for one kind of connection event."""
    return (
        _client_metric(f"{name}-rate", measure=M.COUNT_RATE, unit=f"{unit}/s", description=description),
        _client_metric(f"{name}-total", measure=M.COUNT, unit=unit, description=description),
    )


REQUESTS, RESPONSES = _request_metrics(_client_metric), _response_metrics(_client_metric)
NODE_REQUESTS, NODE_RESPONSES = _request_metrics(_node_metric), _response_metrics(_node_metric)
NODE_LATENCY = tuple(
    _node_metric(
        name, measure=measure, unit="ms", description="Time from a request to its response: Fetch, Produce"
    )
    for name, measure in (("request-latency-avg", M.AVERAGE), ("request-latency-max", M.MAXIMUM))
)
CONNECTION_CREATION = _event_metrics("connection-creation", "Connections established", "connections")
CONNECTION_CLOSE = _event_metrics("connection-close", "Connections closed, also during setup", "connections")
CONNECTION_COUNT = _client_metric(
    "connection-count",
    measure=M.GAUGE,
    unit="connections",
    description="Connections, including those that are being set up",
)
AUTHENTICATION = _event_metrics(
    "successful-authentication", "Connections that became ready, with or without SASL", "connections"
)
FAILED_AUTHENTICATION = _event_metrics(
    "failed-authentication", "Connections whose TLS or SASL login failed", "connections"
)
REAUTHENTICATION = _event_metrics(
    "successful-reauthentication", "SASL sessions renewed on a connection (KIP-368)", "sessions"
)
FAILED_REAUTHENTICATION = _event_metrics(
    "failed-reauthentication", "SASL sessions whose renewal failed (KIP-368)", "sessions"
)
REAUTHENTICATION_LATENCY = (
    _client_metric(
        "reauthentication-latency-avg",
        measure=M.AVERAGE,
        unit="ms",
        description="Time to renew a SASL session",
    ),
    _client_metric(
        "reauthentication-latency-max",
        measure=M.MAXIMUM,
        unit="ms",
        description="Time to renew a SASL session",
    ),
)

NETWORK_METRICS = (
    *CONNECTION_CREATION,
    *CONNECTION_CLOSE,
    CONNECTION_COUNT,
    *REQUESTS,
    *RESPONSES,
    *AUTHENTICATION,
    *FAILED_AUTHENTICATION,
    *REAUTHENTICATION,
    *FAILED_REAUTHENTICATION,
    *REAUTHENTICATION_LATENCY,
    *NODE_REQUESTS,
    *NODE_RESPONSES,
    *NODE_LATENCY,
)


class NodeSensors:
    """The sensors of all connections to one address."""

    def __init__(self) -> None:
        self.requests = Sensor(NODE_REQUESTS)
        self.responses = Sensor(NODE_RESPONSES)
        self.latency = Sensor(NODE_LATENCY)


class NetworkSensors:
    """The sensors of the connections of one client."""

    def __init__(self) -> None:
        self.created = Sensor(CONNECTION_CREATION)
        self.closed = Sensor(CONNECTION_CLOSE)
        self.requests = Sensor(REQUESTS)
        self.responses = Sensor(RESPONSES)
        self.authenticated = Sensor(AUTHENTICATION)
        self.authentication_failed = Sensor(FAILED_AUTHENTICATION)
        self.reauthenticated = Sensor(REAUTHENTICATION)
        self.reauthentication_failed = Sensor(FAILED_REAUTHENTICATION)
        self.reauthentication_latency = Sensor(REAUTHENTICATION_LATENCY)
        self._nodes: dict[Address, NodeSensors] = {}

    def _node_sensors(self, connection: Connection) -> NodeSensors:
        address = (connection.host, connection.port)
        node = self._nodes.get(address)
        if node is None:
            node = self._nodes[address] = NodeSensors()
        return node

    def record_sent(self, connection: Connection, now: int) -> None:
        """Record the requests that the connection has encoded since the previous call of this method.

        The sizes of these requests are removed from `connection.request_sizes`.
        """
        sizes, connection.request_sizes = connection.request_sizes, []
        node = self._node_sensors(connection)
        for size in sizes:
            self.requests.record(size, now)
            node.requests.record(size, now)

    def record_received(self, connection: Connection, now: int) -> None:
        """Record the responses that arrived since the previous call, and the latencies of Fetch and Produce.

        The sizes of these responses are removed from `connection.response_sizes`. The caller clears
        `connection.finished`.
        """
        sizes, connection.response_sizes = connection.response_sizes, []
        node = self._node_sensors(connection)
        for size in sizes:
            self.responses.record(size, now)
            node.responses.record(size, now)
        for call in connection.finished:
            if call.response is not None and call.message.__api_key__ in (FETCH, PRODUCE):
                node.latency.record(now - call.created_at, now)

    def record_ready(self, now: int, *, renewal_began_at: int | None) -> None:
        """Record that a connection became ready, for the first time or after the renewal of its session."""
        if renewal_began_at is None:
            self.authenticated.record(1, now)
        else:
            self.reauthenticated.record(1, now)
            self.reauthentication_latency.record(now - renewal_began_at, now)

    def record_closed(self, now: int, *, denied: bool, is_renewal: bool) -> None:
        """Record the end of a connection. `denied` says whether its authentication failed."""
        self.closed.record(1, now)
        if denied:
            (self.reauthentication_failed if is_renewal else self.authentication_failed).record(1, now)

    def forget_other_nodes(self, addresses: Collection[Address]) -> None:
        """Forget the sensors of all nodes whose address is not in `addresses`."""
        for address in self._nodes.keys() - set(addresses):
            del self._nodes[address]

    def add_to(
        self,
        snapshot: SnapshotBuilder,
        view: ClusterView,
        bootstrap: Sequence[Address],
        connection_count: int,
    ) -> None:
        """Add the metrics of the client's connections and of each broker to a snapshot."""
        snapshot.add_sensors(self.created, self.closed)
        snapshot.add(CONNECTION_COUNT, connection_count)
        snapshot.add_sensors(
            self.requests,
            self.responses,
            self.authenticated,
            self.authentication_failed,
            self.reauthenticated,
            self.reauthentication_failed,
            self.reauthentication_latency,
        )
        node_ids = {address: f"node-{-number}" for number, address in enumerate(bootstrap, 1)}
        node_ids |= {(broker.host, broker.port): f"node-{node}" for node, broker in view.brokers.items()}
        for address, node in sorted(self._nodes.items()):
            if address in node_ids:
                tags = {"node-id": node_ids[address]}
                snapshot.add_sensors(node.requests, node.responses, node.latency, tags=tags)
