"""Sends a client's telemetry requests on the client's own connections (Java's ClientTelemetryReporter).

Rules:

* Requests go to one broker as long as its connection is ready, and then to another broker with a ready
  connection. If no connection is ready, the request waits for one. No connection is opened for telemetry.

* If a broker does not support GetTelemetrySubscriptions or PushTelemetry, pushing ends, as in Java.

* Errors of telemetry do not affect the application: they are logged, and end or delay the pushes.

* Close waits for the response to the last push for at most `CLOSE_MS`.

* A payload larger than the broker's `telemetry.max.bytes` is not sent. The next push includes its changes.

* A compression codec is not tried again after a broker has rejected it, or if its package is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final
from uuid import UUID

from kproto.error_codes import ErrorCode, describe
from kproto.errors import ConfigError, IllegalState, UnsupportedVersion
from kproto.machine import NEVER
from kproto.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kproto.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kproto.otlp import encode
from kproto.records.compression import CODECS, compress, has_codec
from kproto.wire.message import Message

from ...logs import log
from ..admin.cluster import read_metadata
from ..admin.plan import Plan, Rest
from ..metadata.cluster import ClusterView
from ..metrics import NS_PER_MS, Metrics
from ..network.call import Call
from ..network.client import NetworkClient
from .application import ApplicationMetric
from .collector import MetricsCollector, telemetry_key
from .table import (
    NO_INSTANCE,
    CloseBegan,
    Closed,
    Disabled,
    Failed,
    NodeReady,
    Push,
    Pushed,
    Rejected,
    RequestSubscription,
    Subscribed,
    Subscription,
    TelemetryEvent,
    TelemetryMachine,
    TelemetryState,
    step,
)

# The bounds of the random factor of the first push interval, as in Java.
_MIN_JITTER: Final = 0.5
_MAX_JITTER: Final = 1.5
# The longest time (ms) that close waits for the response to the last push.
CLOSE_MS: Final = 1_000
_APIS: Final[tuple[type[Message], ...]] = (GetTelemetrySubscriptionsRequest, PushTelemetryRequest)


class ClientTelemetry:
    """A client's telemetry. The engine calls `pump` in each step, and `due` to schedule the next step."""

    def __init__(
        self,
        network: NetworkClient,
        *,
        clock: Callable[[], int],
        wall: Callable[[], int],
        random: Random,
        snapshot: Callable[[int], Metrics],
        labels: Callable[[], Mapping[str, str]],
    ) -> None:
        """Create the telemetry of a client; `labels` are the attributes of the client, such as group_id.

        `clock` returns the time of the engine's clock, and `wall` the time since 1970, both in ms. `snapshot`
        returns the client's metrics.
        """
        self._network = network
        self._clock = clock
        self._wall = wall
        self._random = random
        self._snapshot = snapshot
        self._labels = labels
        self.machine: Final = TelemetryMachine()
        self._collector = MetricsCollector(wall() * NS_PER_MS)
        # (KIP-714 name, attributes) -> the registered metric of the application. Any thread may change the
        # dict.
        self._application_metrics: dict[object, ApplicationMetric] = {}
        self._node: int | None = None
        # The last request. Responses to earlier requests are ignored.
        self._call: Call | None = None
        self._unusable_codecs: set[int] = set()

    @property
    def client_instance_id(self) -> UUID | None:
        """The id that the broker has assigned to this client, or None before the first subscription."""
        subscription = self.machine.subscription
        return None if subscription is None else subscription.client_instance_id

    @property
    def has_subscription(self) -> bool:
        """Whether a broker requests metrics of this client."""
        subscription = self.machine.subscription
        return subscription is not None and bool(subscription.metrics) and not self.has_ended

    @property
    def has_ended(self) -> bool:
        """Whether the reporter sends no more requests."""
        return self.machine.state is TelemetryState.TERMINATED

    def register(self, metric: ApplicationMetric) -> None:
        """Push this metric with the client's metrics. It replaces a metric of equal name, group and tags."""
        self._application_metrics[_metric_key(metric)] = metric

    def unregister(self, metric: ApplicationMetric) -> None:
        """Stop pushing a metric of the application. A metric that is not registered is ignored."""
        self._application_metrics.pop(_metric_key(metric), None)

    def pump(self) -> None:
        """Send the request that is due, if a broker is ready for it."""
        now = self._clock()
        if self.machine.next_request_at > now:
            return
        node = self._network.ready_node(self._node, now)
        if node is None:
            return
        self._node = node
        try:
            for message in _APIS:
                self._network.version_at(node, message)
        except UnsupportedVersion:
            self._apply(Disabled())
        else:
            self._apply(NodeReady())

    def due(self) -> int | None:
        """Return the time (ms) of the next request; None while a connection or a response is awaited."""
        at = self.machine.next_request_at
        return None if at == NEVER or at <= self._clock() else at

    def begin_close(self) -> None:
        """Send the last push, if the client has a subscription and a broker is ready.

        Once `has_ended` is true, `close()` may continue.
        """
        self._apply(CloseBegan())
        self.pump()
        if self.machine.state is TelemetryState.TERMINATING_PUSH_NEEDED:
            self._apply(Closed())

    def _apply(self, event: TelemetryEvent) -> None:
        """Pass the event to the state machine, and send the request that it returns."""
        for action in step(self.machine, event, self._clock()):
            if isinstance(action, RequestSubscription):
                self._send(
                    GetTelemetrySubscriptionsRequest(client_instance_id=action.client_instance_id),
                    self._on_subscription_response,
                )
            else:
                self._push(action)

    def _send(self, request: Message, then: Callable[[Call], None]) -> None:
        """Send a request, and pass its response or failure to `then`.

        If `_send` is called again before the request has ended, the request's response is ignored.
        """

        def on_ended(call: Call) -> None:
            if call is self._call:
                then(call)

        self._call = self._network.send(request, self._clock(), node=self._node, purpose=on_ended)

    def _on_subscription_response(self, call: Call) -> None:
        response = call.response
        if not isinstance(response, GetTelemetrySubscriptionsResponse):
            self._on_failure(call)
        elif response.error_code:
            self._on_rejected(call, response.error_code)
        elif response.client_instance_id == NO_INSTANCE:
            log.warning("%s sent no client instance id; no metrics are pushed", call.address)
            self._apply(Disabled())
        else:
            previous = self.machine.subscription
            if previous is not None and previous.is_delta != response.delta_temporality:
                self._collector.reset()
            subscription = Subscription(
                response.client_instance_id,
                response.subscription_id,
                response.push_interval_ms,
                tuple(dict.fromkeys(filter(_is_known_codec, response.accepted_compression_types))),
                response.telemetry_max_bytes,
                response.delta_temporality,
                frozenset(response.requested_metrics),
            )
            self._apply(Subscribed(subscription, self._random.uniform(_MIN_JITTER, _MAX_JITTER)))

    def _push(self, push: Push) -> None:
        """Send PushTelemetry, unless encoding fails or the payload is too large for the broker."""
        subscription = push.subscription
        try:
            codec, payload = self._collect_payload(subscription)
        except Exception:  # An error in the encoding of metrics must not end the client.
            log.exception("the metrics could not be encoded; no metrics are pushed")
            self._apply(Disabled())
            return
        if 0 < subscription.max_bytes < len(payload):
            log.warning(
                "%d bytes of metrics are not pushed, because the broker allows %d (telemetry.max.bytes)",
                len(payload),
                subscription.max_bytes,
            )
            self._collector.restore()
            self._apply(Rejected(ErrorCode.TELEMETRY_TOO_LARGE))
            return
        request = PushTelemetryRequest(
            client_instance_id=subscription.client_instance_id,
            subscription_id=subscription.subscription_id,
            terminating=push.is_terminating,
            compression_type=codec,
            metrics=payload,
        )

        def on_push_response(call: Call) -> None:
            self._on_push_response(call, codec)

        self._send(request, on_push_response)

    def _collect_payload(self, subscription: Subscription) -> tuple[int, bytes]:
        """Collect the metrics of a push, and return the codec and the compressed payload."""
        application_metrics = [metric.snapshot() for metric in list(self._application_metrics.values())]
        points = self._collector.collect(
            [*self._snapshot(self._clock()), *application_metrics],
            subscription.selects,
            self._wall() * NS_PER_MS,
            is_delta=subscription.is_delta,
        )
        codec = next(filter(self._is_usable, subscription.accepted_codecs), 0)
        return codec, compress(codec, encode(points, self._labels()))

    def _is_usable(self, codec: int) -> bool:
        return codec not in self._unusable_codecs and has_codec(codec)

    def _on_push_response(self, call: Call, codec: int) -> None:
        response: Any = call.response
        if not isinstance(response, PushTelemetryResponse):
            self._on_failure(call)
        elif response.error_code:
            self._collector.restore()
            if response.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
                self._unusable_codecs.add(codec)
            self._on_rejected(call, response.error_code)
        else:
            self._apply(Pushed())

    def _on_rejected(self, call: Call, code: int) -> None:
        log.debug("%s: %s rejected the request: %s", call.name, call.address, describe(code))
        self._apply(Rejected(code))

    def _on_failure(self, call: Call) -> None:
        """Disable telemetry if the broker does not support the request. After other failures, retry later."""
        log.debug("%s failed: %s", call.name, call.error)
        self._apply(Disabled() if isinstance(call.error, UnsupportedVersion) else Failed())


def _is_known_codec(number: int) -> bool:
    return 0 <= number < len(CODECS)


def _metric_key(metric: ApplicationMetric) -> object:
    name, attributes = telemetry_key(metric.snapshot())
    return name, frozenset(attributes.items())


def register_metric(telemetry: ClientTelemetry | None, metric: ApplicationMetric) -> None:
    """Register a metric of the application. Without telemetry the metric is only validated, as in Java."""
    _check_metric(metric)
    if telemetry is not None:
        telemetry.register(metric)


def unregister_metric(telemetry: ClientTelemetry | None, metric: ApplicationMetric) -> None:
    """Remove a metric of the application from the pushes."""
    _check_metric(metric)
    if telemetry is not None:
        telemetry.unregister(metric)


def _check_metric(metric: Any) -> None:
    if not isinstance(metric, ApplicationMetric):
        raise ConfigError(
            "metric", metric, 'an ApplicationMetric, such as ApplicationMetric("orders", "shop")'
        )


def read_client_instance_id(
    telemetry: ClientTelemetry | None, view: ClusterView, clock: Callable[[], int]
) -> Plan[UUID]:
    """Return the client instance id, which a broker assigns with the first telemetry subscription.

    The plan connects to a broker if necessary. Raises the same errors as `instance_id_of`.
    """
    if instance_id_of(telemetry) is None:
        yield from read_metadata(view, [], clock)
    while (instance_id := instance_id_of(telemetry)) is None:
        yield Rest("no broker has assigned a client instance id")
    return instance_id


def instance_id_of(telemetry: ClientTelemetry | None) -> UUID | None:
    """Return the id of the client instance, or None if it is not known yet.

    Raises IllegalState if the client pushes no metrics. Raises UnsupportedVersion if the reporter has ended
    without an id, for example because a broker does not support client telemetry.
    """
    if telemetry is None:
        raise IllegalState("this client pushes no metrics; create it with enable_metrics_push=True")
    instance_id = telemetry.client_instance_id
    if instance_id is None and telemetry.has_ended:
        detail = "brokers support it from Kafka 3.7 on, if they have a receiver for metrics (KIP-714)"
        raise UnsupportedVersion("GetTelemetrySubscriptions", -1, detail)
    return instance_id
