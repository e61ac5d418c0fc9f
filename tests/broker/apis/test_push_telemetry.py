"""The broker checks PushTelemetry as Kafka's ClientMetricsManager does, and keeps the payloads."""

from __future__ import annotations

from uuid import UUID

import pytest

from kproto.error_codes import ErrorCode
from kproto.errors import DecodeError
from kproto.messages.push_telemetry import PushTelemetryRequest
from kproto.otlp import MetricPoint, Temporality, encode
from kproto.records.compression import compress
from tests.broker.apis.stage import (
    CLIENT_INSTANCE,
    NO_INSTANCE,
    api_versions_request,
    request_metrics,
    subscribe,
)
from tests.broker.stage import Client, Stage

POINT = MetricPoint("m.total", 2.0, {"topic": "t"}, 2, 1, Temporality.DELTA, True)
PAYLOAD = encode([POINT], {"group_id": "g"})
# The size of a push: its payload, the client's id, and "unknown" twice, for the name and the version of the
# client's software.
SIZE = len(PAYLOAD + b"a client" + 2 * b"unknown")


@pytest.fixture
def stage() -> Stage:
    stage = Stage()
    request_metrics(stage, "one", {"metrics": "*", "interval.ms": "1000"})
    return stage


@pytest.fixture
def subscription_id(client: Client) -> int:
    return subscribe(client, CLIENT_INSTANCE).subscription_id


def push(client: Client, subscription_id: int, **fields: object) -> ErrorCode:
    values = {
        "client_instance_id": CLIENT_INSTANCE,
        "subscription_id": subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": PAYLOAD,
    }
    return ErrorCode(client.ask(PushTelemetryRequest(**(values | fields))).error_code)


def test_the_pushed_metrics_are_kept(stage: Stage, client: Client) -> None:
    client.ask(api_versions_request())
    answer = subscribe(client, CLIENT_INSTANCE)
    codec = answer.accepted_compression_types[0]
    fields = {"compression_type": codec, "metrics": compress(codec, PAYLOAD)}
    assert push(client, answer.subscription_id, **fields) == 0
    [pushed] = stage.broker.client_metrics.pushes
    assert pushed.metrics == [POINT._replace(resource={"group_id": "g"})]
    assert (pushed.client_instance_id, pushed.client_id) == (CLIENT_INSTANCE, "a client")
    assert (pushed.client_software_name, pushed.client_software_version) == ("a", "1")
    assert (pushed.is_terminating, pushed.compression) == (False, "zstd")


def test_the_first_push_after_a_subscription_may_be_early(client: Client, subscription_id: int) -> None:
    assert push(client, subscription_id) == 0


def test_a_push_before_the_interval_is_throttled(stage: Stage, client: Client, subscription_id: int) -> None:
    push(client, subscription_id)
    stage.wait(999)
    assert push(client, subscription_id) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    stage.wait(1)
    assert push(client, subscription_id) == 0
    assert len(stage.broker.client_metrics.pushes) == 2


def test_only_the_last_push_may_be_early(stage: Stage, client: Client, subscription_id: int) -> None:
    push(client, subscription_id)
    assert push(client, subscription_id, terminating=True) == 0
    assert push(client, subscription_id, terminating=True) == ErrorCode.INVALID_REQUEST
    assert [pushed.is_terminating for pushed in stage.broker.client_metrics.pushes] == [False, True]


@pytest.mark.parametrize("instance_id", [NO_INSTANCE, UUID(int=1)])
def test_a_reserved_instance_id_is_invalid(client: Client, subscription_id: int, instance_id: UUID) -> None:
    error = push(client, subscription_id, client_instance_id=instance_id)
    assert error == ErrorCode.INVALID_REQUEST


def test_an_instance_may_push_to_a_broker_that_does_not_know_it(client: Client, subscription_id: int) -> None:
    """A subscription id from another broker is accepted, because all brokers compute the same id."""
    client.leave()
    assert push(client.stage.client(), subscription_id) == 0


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"subscription_id": 7}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression_type": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression_type": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_subscription_may_be_requested_again_after_an_error(
    client: Client, subscription_id: int, fields: dict[str, int], error: ErrorCode
) -> None:
    assert push(client, **({"subscription_id": subscription_id} | fields)) == error
    assert subscribe(client, CLIENT_INSTANCE).error_code == 0


def test_a_payload_that_is_too_large_is_rejected_and_not_kept() -> None:
    stage = Stage(telemetry_max_bytes=1000)
    client = stage.client()
    subscription_id = subscribe(client, CLIENT_INSTANCE).subscription_id
    assert push(client, subscription_id, metrics=bytes(1001)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert subscribe(client, CLIENT_INSTANCE).error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert stage.broker.client_metrics.pushes == []


@pytest.mark.parametrize(
    "fields",
    [
        {"metrics": b"\x0a"},
        {"metrics": PAYLOAD, "compression_type": 4},
        {"metrics": compress(1, bytes(1 << 25)), "compression_type": 1},
    ],
    ids=["no MetricsData", "not compressed", "much to decompress"],
)
def test_a_payload_is_read_when_a_test_reads_it(
    stage: Stage, client: Client, subscription_id: int, fields: dict[str, object]
) -> None:
    assert push(client, subscription_id, **fields) == 0
    [pushed] = stage.broker.client_metrics.pushes
    with pytest.raises(DecodeError, match="MetricsData"):
        _ = pushed.metrics


def test_an_empty_payload_is_accepted_and_not_kept(
    stage: Stage, client: Client, subscription_id: int
) -> None:
    assert push(client, subscription_id, metrics=b"") == 0
    assert stage.broker.client_metrics.pushes == []


@pytest.mark.parametrize(
    ("limit", "value", "kept_values"),
    [
        ("MAX_PUSHES", 2, [2.0, 3.0]),
        ("MAX_KEPT_BYTES", 2 * SIZE, [2.0, 3.0]),
        ("MAX_KEPT_BYTES", 2 * SIZE - 1, [3.0]),
    ],
    ids=["number", "size of two", "size of one"],
)
def test_the_oldest_pushes_are_removed(
    stage: Stage,
    client: Client,
    subscription_id: int,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    value: int,
    kept_values: list[float],
) -> None:
    monkeypatch.setattr(f"kproto.broker.client_metrics.{limit}", value)
    for number in range(4):
        point = POINT._replace(value=float(number))
        push(client, subscription_id, metrics=encode([point], {"group_id": "g"}))
        stage.wait(1000)
    values = [pushed.metrics[0].value for pushed in stage.broker.client_metrics.pushes]
    assert values == kept_values
