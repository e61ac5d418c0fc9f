"""A client pushes its metrics to one broker, and to another broker after a failure."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.metrics import Metric, Metrics
from consumer.engine.network.transport import Broken, Data, Opened
from consumer.engine.telemetry.application import ApplicationMetric
from consumer.engine.telemetry.reporter import ClientTelemetry, register_metric, unregister_metric
from consumer.engine.telemetry.table import TelemetryState
from kproto.error_codes import ErrorCode
from kproto.errors import ConfigError
from kproto.messages.api_versions import ApiVersion, ApiVersionsResponse
from kproto.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from kproto.messages.headers import encode_response
from kproto.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from kproto.otlp import decode
from kproto.records.compression import decompress
from kproto.wire.frame import frame
from kproto.wire.message import Message
from tests.consumer.engine.network.stage import Stage

ID = UUID(int=7)
WALL_MS = 1_700_000_000_000


class TelemetryStage(Stage):
    """A client with telemetry. The test answers its requests."""

    def __init__(self, count: int = 1) -> None:
        super().__init__(("a", 1))
        self.knows(*(BrokerAddress(node, "abc"[node - 1], 1, None) for node in range(1, count + 1)))
        self.total = 3.0
        self.telemetry = ClientTelemetry(
            self.network,
            clock=lambda: self.now,
            wall=lambda: WALL_MS + self.now,
            random=Random(0),
            snapshot=self.snapshot,
            labels=lambda: {"group_id": "g"},
        )

    def snapshot(self, now: int) -> Metrics:
        return Metrics([Metric("request-total", "consumer-metrics", {}, self.total, "", "")])

    def connect(self, node: int, keys: tuple[int, ...] = (71, 72)) -> None:
        """Open a connection to a broker that advertises the APIs with these keys."""
        self.network.connect(node, self.now)
        self.take()
        key = self.opened[-1].key
        self.happened(Opened(key))
        _, correlation, version, _ = self.requests.pop()
        apis = [ApiVersion(api_key=api, min_version=0, max_version=0) for api in keys]
        answer = ApiVersionsResponse(error_code=0, api_keys=apis)
        self.happened(Data(key, frame(encode_response(answer, version, correlation))))
        self.pump()

    def pump(self, now: int | None = None) -> None:
        self.now = self.now if now is None else now
        self.telemetry.pump()
        self.end_calls()

    def end_calls(self) -> None:
        """Pass the completed calls to the reporter, which may then send its next request."""
        finished, self.network.finished = self.network.finished, []
        for call in finished:
            call.purpose(call)
        self.telemetry.pump()
        self.take()

    def respond(self, response: Message) -> None:
        """Respond to the oldest request."""
        key, correlation, version, _ = self.requests.pop(0)
        self.happened(Data(key, frame(encode_response(response, version, correlation))))
        self.end_calls()

    def subscribe(self, **fields: Any) -> None:
        """Respond to GetTelemetrySubscriptions with these fields, and advance the clock to the first push."""
        assert isinstance(self.requests[0][3], GetTelemetrySubscriptionsRequest)
        values: dict[str, Any] = {
            "throttle_time_ms": 0,
            "error_code": 0,
            "client_instance_id": ID,
            "subscription_id": 5,
            "accepted_compression_types": [4, 1],
            "push_interval_ms": 1000,
            "telemetry_max_bytes": 1000,
            "delta_temporality": True,
            "requested_metrics": ["*"],
        }
        self.respond(GetTelemetrySubscriptionsResponse(**(values | fields)))
        if (due := self.telemetry.due()) is not None:
            self.pump(due)

    def pushed(self) -> PushTelemetryRequest:
        [(_, _, _, request)] = self.requests
        assert isinstance(request, PushTelemetryRequest)
        return request

    def accept(self, error: int = 0) -> None:
        self.respond(PushTelemetryResponse(throttle_time_ms=0, error_code=error))


@pytest.fixture
def stage() -> TelemetryStage:
    stage = TelemetryStage()
    stage.connect(1)
    return stage


def points(request: PushTelemetryRequest) -> dict[str, float]:
    return {
        point.name: point.value for point in decode(decompress(request.compression_type, request.metrics))
    }


def test_registered_metrics_of_the_application_are_pushed(stage: TelemetryStage) -> None:
    orders = ApplicationMetric("orders-total", "shop-metrics", {"region": "eu"}, value=5)
    queue = ApplicationMetric("queue-size", "shop-metrics")
    for metric in (orders, queue):
        stage.telemetry.register(metric)
    stage.subscribe(telemetry_max_bytes=10_000)
    own = "org.apache.kafka.consumer.request.total"
    assert points(stage.pushed()) == {own: 3.0, "org.apache.kafka.shop.orders.total": 5.0}
    stage.accept()

    orders.value, queue.value = 7, 4  # A sum is pushed as a delta, a gauge as its value.
    stage.pump(stage.now + 1000)
    pushed = points(stage.pushed())
    assert pushed == {
        own: 0.0,
        "org.apache.kafka.shop.orders.total": 2.0,
        "org.apache.kafka.shop.queue.size": 4.0,
    }
    stage.accept()

    # By the naming rules of KIP-714, this metric has the same name as `queue`, and replaces it.
    stage.telemetry.register(ApplicationMetric("Queue.Size", "shop", value=9))
    stage.telemetry.unregister(ApplicationMetric("orders-total", "shop-metrics", {"region": "us"}))
    stage.telemetry.unregister(orders)
    stage.telemetry.unregister(orders)
    stage.pump(stage.now + 1000)
    assert points(stage.pushed()) == {own: 0.0, "org.apache.kafka.shop.queue.size": 9.0}


def test_a_metric_of_the_application_is_pushed_only_if_it_is_selected(stage: TelemetryStage) -> None:
    for name in ("orders", "refunds"):
        stage.telemetry.register(ApplicationMetric(name, "shop", value=1))
    stage.subscribe(requested_metrics=["org.apache.kafka.shop.ord"])
    assert points(stage.pushed()) == {"org.apache.kafka.shop.orders": 1.0}


def test_without_telemetry_a_metric_is_only_checked() -> None:
    for register in (register_metric, unregister_metric):
        register(None, ApplicationMetric("orders", "shop"))
        with pytest.raises(ConfigError, match="metric='orders' is not allowed; an ApplicationMetric"):
            register(None, "orders")  # type: ignore[arg-type]


def test_a_client_pushes_its_metrics(stage: TelemetryStage) -> None:
    stage.subscribe()
    assert 500 <= stage.now <= 1500
    request = stage.pushed()
    assert (request.client_instance_id, request.subscription_id, request.terminating) == (ID, 5, False)
    assert request.compression_type == 4
    [point] = decode(decompress(4, request.metrics))
    assert (point.name, point.value) == ("org.apache.kafka.consumer.request.total", 3.0)
    assert point.resource == {"group_id": "g"}
    assert point.time_ns == (WALL_MS + stage.now) * 1_000_000
    at = stage.now
    stage.accept()
    assert stage.telemetry.due() == at + 1000
    assert stage.telemetry.client_instance_id == ID


def test_nothing_is_sent_before_a_broker_is_connected() -> None:
    stage = TelemetryStage()
    stage.pump(10_000)
    assert (stage.opened, stage.requests, stage.telemetry.due()) == ([], [], None)


def test_a_broker_without_telemetry_is_not_asked() -> None:
    stage = TelemetryStage()
    stage.connect(1, (71,))
    assert stage.requests == []
    assert stage.telemetry.has_ended


def test_the_requests_go_to_the_same_broker() -> None:
    stage = TelemetryStage(2)
    stage.connect(2)
    stage.subscribe()
    stage.connect(1)
    for _ in range(3):
        [(key, _, _, _)] = stage.requests
        assert key == stage.opened[0].key
        stage.accept()
        due = stage.telemetry.due()
        assert due is not None
        stage.pump(due)


def test_a_throttled_broker_receives_no_push(stage: TelemetryStage) -> None:
    stage.subscribe(throttle_time_ms=5000)
    assert stage.now < 5000
    assert stage.telemetry.machine.state is TelemetryState.PUSH_NEEDED
    stage.tick(5000)
    stage.pump()
    assert stage.pushed()


def test_another_broker_receives_the_next_request_after_a_failure() -> None:
    stage = TelemetryStage(2)
    stage.connect(1)
    stage.connect(2)
    stage.requests.clear()
    stage.happened(Broken(stage.opened[0].key, "reset"))
    stage.end_calls()
    assert stage.telemetry.due() == 300_000
    stage.pump(300_000)
    [(key, _, _, request)] = stage.requests
    assert key == stage.opened[1].key
    assert isinstance(request, GetTelemetrySubscriptionsRequest)


def test_a_response_without_an_instance_id_ends_the_pushes(stage: TelemetryStage) -> None:
    stage.subscribe(client_instance_id=UUID(int=0))
    assert stage.telemetry.has_ended


def test_unknown_codecs_are_not_used(stage: TelemetryStage) -> None:
    stage.subscribe(accepted_compression_types=[9, -1, 127] * 10_000)
    assert stage.pushed().compression_type == 0
    subscription = stage.telemetry.machine.subscription
    assert subscription is not None
    assert subscription.accepted_codecs == ()


def test_a_rejected_codec_is_not_used_again(stage: TelemetryStage) -> None:
    stage.subscribe()
    stage.accept(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    stage.subscribe()
    assert stage.pushed().compression_type == 1
    [point] = decode(decompress(1, stage.pushed().metrics))
    assert point.value == 3.0


def test_a_changed_subscription_is_requested_immediately(stage: TelemetryStage) -> None:
    stage.subscribe()
    stage.accept(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    [(_, _, _, request)] = stage.requests
    assert request == GetTelemetrySubscriptionsRequest(client_instance_id=ID)


@pytest.mark.parametrize("size", [1, 10])
def test_too_many_bytes_are_not_sent(stage: TelemetryStage, size: int) -> None:
    stage.subscribe(telemetry_max_bytes=size)
    assert stage.requests == []
    assert stage.telemetry.machine.state is TelemetryState.SUBSCRIPTION_NEEDED
    assert stage.telemetry.due() == stage.now + 1000


@pytest.mark.parametrize("size", [0, -1])
def test_an_absurd_limit_is_no_limit(stage: TelemetryStage, size: int) -> None:
    stage.subscribe(telemetry_max_bytes=size)
    assert stage.pushed().metrics


def test_a_change_of_temporality_resets_the_sums(stage: TelemetryStage) -> None:
    values: list[float] = []
    for is_delta in (True, False, True):
        stage.subscribe(delta_temporality=is_delta, accepted_compression_types=[])
        [point] = decode(stage.pushed().metrics)
        values.append(point.value)
        stage.accept()
        stage.total += 1
        due = stage.telemetry.due()
        assert due is not None
        stage.pump(due)
        stage.accept(ErrorCode.UNKNOWN_SUBSCRIPTION_ID)
    assert values == [3.0, 4.0, 5.0]


def test_close_pushes_once_more_and_waits_for_the_response(stage: TelemetryStage) -> None:
    stage.subscribe()
    stage.accept()
    stage.total = 10.0
    stage.telemetry.begin_close()
    stage.take()
    assert stage.pushed().terminating
    assert not stage.telemetry.has_ended
    stage.accept()
    assert stage.telemetry.has_ended


def test_close_does_not_take_an_earlier_response_for_that_of_the_last_push(stage: TelemetryStage) -> None:
    stage.subscribe()
    stage.telemetry.begin_close()
    stage.take()
    stage.accept()
    assert not stage.telemetry.has_ended
    assert stage.pushed().terminating
    stage.accept()
    assert stage.telemetry.has_ended


def test_close_without_a_connection_does_not_wait(stage: TelemetryStage) -> None:
    stage.subscribe()
    stage.accept()
    stage.happened(Broken(stage.opened[0].key, "reset"))
    stage.telemetry.begin_close()
    assert stage.telemetry.has_ended


def test_metrics_that_cannot_be_encoded_end_the_pushes(stage: TelemetryStage) -> None:
    stage.telemetry._snapshot = lambda now: Metrics([Metric("x", "y", {}, "no number", "", "")])  # type: ignore[arg-type]
    stage.subscribe()
    assert stage.telemetry.has_ended
