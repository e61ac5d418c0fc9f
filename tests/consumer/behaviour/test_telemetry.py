"""Clients push their metrics to the embedded broker (KIP-714)."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

import pytest

from consumer import (
    Admin,
    ApplicationMetric,
    AsyncAdmin,
    AsyncConsumer,
    AsyncProducer,
    Consumer,
    Producer,
)
from consumer.engine.admin.configs import AlterConfigOp, ConfigResource
from kproto import running
from kproto.broker.client_metrics import PushedMetrics
from kproto.broker.server import Server
from kproto.errors import ConfigError, IllegalState, RequestTimedOut, UnsupportedVersion
from kproto.otlp import Temporality

ANY: dict[str, Any] = {"client_id": "c"}
READER: dict[str, Any] = {"client_id": "c", "group_id": "g", "auto_offset_reset": "earliest"}


@pytest.fixture
def server() -> Iterator[Server]:
    with running(topics={"t": 1}, telemetry=True) as server:
        yield server


def request_metrics(server: Server, metrics: str = "*", interval_ms: int = 300_000, **matched: str) -> None:
    """Create a client metrics resource."""
    resource = ConfigResource("client_metrics", "one")
    configs = {"metrics": metrics, "interval.ms": str(interval_ms)}
    if matched:
        configs["match"] = ",".join(f"{name}={value}" for name, value in matched.items())
    with Admin(server.bootstrap, client_id="operator", enable_metrics_push=False) as admin:
        admin.incremental_alter_configs(
            {resource: [AlterConfigOp(name, value) for name, value in configs.items()]}
        )
        assert admin.list_config_resources(["client_metrics"]) == [resource]


def values(push: PushedMetrics) -> dict[str, int | float]:
    """Return the values of the metrics that have no attributes, by metric name without its prefix."""
    prefix = "org.apache.kafka."
    return {point.name.removeprefix(prefix): point.value for point in push.metrics if not point.attributes}


def test_a_producer_pushes_when_it_is_closed(server: Server) -> None:
    request_metrics(server)
    with Producer(server.bootstrap, client_id="c") as producer:
        producer.send("t", b"x")
        instance_id = producer.client_instance_id()
    [push] = server.telemetry
    assert push.is_terminating
    assert (push.client_instance_id, push.client_id) == (instance_id, "c")
    assert push.client_software_name == "kproto"
    assert values(push)["producer.record.send.total"] == 1.0


def test_a_consumer_pushes_at_the_interval_and_when_it_is_closed(server: Server) -> None:
    request_metrics(server, "org.apache.kafka.consumer.fetch.manager.records.consumed", 100)
    with Producer(server.bootstrap) as producer:
        producer.send("t", b"x")
    with Consumer(server.bootstrap, **READER) as consumer:
        consumer.subscribe("t")
        while len([push for push in server.telemetry if push.client_id == "c"]) < 3:
            consumer.poll(0.05)
    pushes = [push for push in server.telemetry if push.client_id == "c"]
    assert [push.is_terminating for push in pushes] == [False] * (len(pushes) - 1) + [True]
    totals = [
        point
        for push in pushes
        for point in push.metrics
        if point.name.endswith("consumed.total") and not point.attributes
    ]
    # With delta temporality, the changes of all pushes add up to the total.
    assert sum(point.value for point in totals) == 1.0
    assert {point.temporality for point in totals} == {Temporality.DELTA}
    assert {point.resource["group_id"] for point in totals} == {"g"}
    assert "group_member_id" in totals[-1].resource


def register_metrics(client: Any) -> None:
    """Register two metrics of the application. Register a third metric, and unregister it again."""
    orders, queue, unregistered = (
        ApplicationMetric(name, "shop", value=2) for name in ("orders-total", "queue", "other")
    )
    for metric in (orders, queue, unregistered):
        client.register_metric_for_subscription(metric)
    client.unregister_metric_from_subscription(unregistered)
    orders.value = 5


async def async_consumer(bootstrap: str) -> UUID:
    async with AsyncConsumer(bootstrap, **READER) as consumer:
        register_metrics(consumer)
        return await consumer.client_instance_id()


async def async_producer(bootstrap: str) -> UUID:
    async with AsyncProducer(bootstrap, **ANY) as producer:
        register_metrics(producer)
        return await producer.client_instance_id()


async def async_admin(bootstrap: str) -> UUID:
    async with AsyncAdmin(bootstrap, **ANY) as admin:
        register_metrics(admin)
        return await admin.client_instance_id()


def blocking(client: Any, options: dict[str, Any]) -> Callable[[str], UUID]:
    def run(bootstrap: str) -> UUID:
        with client(bootstrap, **options) as instance:
            register_metrics(instance)
            instance_id: UUID = instance.client_instance_id()
            return instance_id

    return run


CLIENTS: dict[str, Callable[[str], UUID]] = {
    "Consumer": blocking(Consumer, READER),
    "Producer": blocking(Producer, ANY),
    "Admin": blocking(Admin, ANY),
    "AsyncConsumer": lambda bootstrap: asyncio.run(async_consumer(bootstrap)),
    "AsyncProducer": lambda bootstrap: asyncio.run(async_producer(bootstrap)),
    "AsyncAdmin": lambda bootstrap: asyncio.run(async_admin(bootstrap)),
}


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_has_an_instance_id_and_pushes_at_its_end(server: Server, client: str) -> None:
    request_metrics(server, client_id="c")
    instance_id = CLIENTS[client](server.bootstrap)
    [push] = server.telemetry
    assert (push.client_instance_id, push.is_terminating) == (instance_id, True)
    prefix = "admin.client" if "Admin" in client else client.removeprefix("Async").lower()
    assert values(push)[f"{prefix}.connection.count"] >= 1


@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_pushes_the_metrics_of_the_application(server: Server, client: str) -> None:
    request_metrics(server, "org.apache.kafka.shop", client_id="c")
    CLIENTS[client](server.bootstrap)
    [push] = server.telemetry
    assert values(push) == {"shop.orders.total": 5.0, "shop.queue": 2.0}
    temporalities = {point.name.rpartition(".")[2]: point.temporality for point in push.metrics}
    assert temporalities == {"total": Temporality.DELTA, "queue": None}


@pytest.mark.parametrize("client", CLIENTS)
def test_a_broker_without_a_receiver_assigns_no_instance_id(client: str) -> None:
    with running() as server, pytest.raises(UnsupportedVersion, match="KIP-714"):
        CLIENTS[client](server.bootstrap)


@pytest.mark.parametrize(("client", "options"), [(Consumer, READER), (Producer, ANY), (Admin, ANY)])
def test_a_client_may_push_nothing(server: Server, client: Any, options: dict[str, Any]) -> None:
    request_metrics(server)
    with (
        client(server.bootstrap, **options, enable_metrics_push=False) as instance,
        pytest.raises(IllegalState, match="enable_metrics_push=True"),
    ):
        instance.client_instance_id()
    assert server.telemetry == []


@pytest.mark.parametrize(("client", "options"), [(Consumer, READER), (Producer, ANY), (Admin, ANY)])
def test_a_silent_broker_delays_neither_close_nor_the_instance_id(
    client: Any, options: dict[str, Any]
) -> None:
    with running(telemetry=True) as server, client(server.bootstrap, **options) as instance:
        server.slow(math.inf)
        with pytest.raises(RequestTimedOut):
            instance.client_instance_id(0.2)
        with pytest.raises(ConfigError):
            instance.client_instance_id(-1)


@pytest.mark.parametrize("error", ["INVALID_REQUEST", "THROTTLING_QUOTA_EXCEEDED", "UNKNOWN_SERVER_ERROR"])
@pytest.mark.parametrize("api", ["GetTelemetrySubscriptions", "PushTelemetry"])
def test_a_failing_broker_concerns_no_call_of_the_application(server: Server, api: str, error: str) -> None:
    request_metrics(server, interval_ms=100)
    server.fail(api, error, 1000)
    with Producer(server.bootstrap) as producer, Consumer(server.bootstrap, **READER) as consumer:
        consumer.subscribe("t")
        for number in range(3):
            producer.send("t", b"%d" % number).result(10)
            while not consumer.poll(1):
                pass
    assert server.telemetry == []


@pytest.mark.parametrize(("client", "options"), [(Consumer, READER), (Producer, ANY), (Admin, ANY)])
def test_an_idle_client_pushes_at_the_interval(server: Server, client: Any, options: dict[str, Any]) -> None:
    request_metrics(server, interval_ms=100)
    with client(server.bootstrap, **options) as instance:
        instance.client_instance_id()
        while len(server.telemetry) < 2:
            time.sleep(0.02)
    assert not server.telemetry[0].is_terminating


ENGINES: list[tuple[Any, dict[str, Any], Callable[[Any], Any]]] = [
    (Consumer, READER, lambda consumer: consumer._operations.engine),
    (Producer, ANY, lambda producer: producer._runtime.engine),
    (Admin, ANY, lambda admin: admin._operations._runner.engine),
]


@pytest.mark.parametrize(("client", "options", "engine_of"), ENGINES)
def test_close_waits_for_the_response_to_the_last_push(
    server: Server, client: Any, options: dict[str, Any], engine_of: Callable[[Any], Any]
) -> None:
    request_metrics(server)
    instance = client(server.bootstrap, **options)
    instance.client_instance_id()
    server.slow(0.1)
    instance.close()
    assert engine_of(instance).telemetry.has_ended


@pytest.mark.parametrize(("client", "options", "engine_of"), ENGINES)
def test_two_threads_may_close_a_client(
    server: Server, client: Any, options: dict[str, Any], engine_of: Callable[[Any], Any]
) -> None:
    request_metrics(server)
    instance = client(server.bootstrap, **options)
    instance.client_instance_id()
    server.slow(0.1)
    with ThreadPoolExecutor(2) as threads:
        closes = [threads.submit(instance.close) for _ in range(2)]
    assert [close.result() for close in closes] == [None, None]
    assert engine_of(instance).telemetry.has_ended


@pytest.mark.thorough
@pytest.mark.parametrize(("client", "options"), [(Consumer, READER), (Producer, ANY), (Admin, ANY)])
def test_close_does_not_wait_for_a_silent_broker(
    server: Server, client: Any, options: dict[str, Any]
) -> None:
    """`close` waits at most one second for the response to the last push, whatever the request timeout."""
    request_metrics(server)
    instance = client(server.bootstrap, **options, request_timeout_ms=600_000)
    instance.client_instance_id()
    server.slow(math.inf)
    instance.close()
    server.slow(0)
    [push] = server.telemetry
    assert push.is_terminating


def test_many_clients_push_to_one_broker(server: Server) -> None:
    request_metrics(server, interval_ms=100, client_id="c.*")
    producers = [Producer(server.bootstrap, client_id=f"c{number}") for number in range(10)]
    instance_ids = {producer.client_instance_id() for producer in producers}
    for producer in producers:
        producer.close()
    assert len(instance_ids) == 10
    last = [push for push in server.telemetry if push.is_terminating]
    assert {push.client_instance_id for push in last} == instance_ids
