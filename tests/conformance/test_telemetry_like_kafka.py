"""kproto pushes telemetry to a real Kafka, and other clients push it to the embedded broker (KIP-714)."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from consumer import Admin, ApplicationMetric, Consumer, Producer
from consumer.engine.admin.configs import AlterConfigOp, ConfigResource
from kproto.broker.server import Server, running
from kproto.messages.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from kproto.messages.push_telemetry import PushTelemetryRequest
from kproto.otlp import MetricPoint, encode
from kproto.testing import brokers
from tests.broker.stage import Socket, connected
from tests.conformance import judges
from tests.conformance.document_programs import eventually
from tests.conformance.kafka_tools import tool
from tests.conformance.recording_proxy import RecordingProxy

pytestmark = pytest.mark.kafka

RECEIVER = Path(__file__).parent / "java" / "Receiver.java"
APIS = frozenset({"GetTelemetrySubscriptions", "PushTelemetry"})
INTERVAL_MS = 500
PATIENCE = 20.0


@dataclass
class Judge:
    """A real Kafka whose telemetry receiver writes the pushed metrics to a file.

    Clients connect through `proxy`.
    """

    proxy: RecordingProxy
    lines: Path

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.proxy.port}"

    def metrics(self, client: str) -> dict[tuple[str, str], tuple[list[str], str]]:
        """Return the metrics that a client has pushed.

        A key is (metric name, attribute keys). A value is ([metric kind, temporality, whether it is
        monotonic, type of its data points], client labels).
        """
        lines = self.lines.read_text().splitlines() if self.lines.exists() else []
        fields = [line.split("\t") for line in lines]
        return {
            (each[2], keys(each[8])): (each[3:7], keys(each[9]))
            for each in fields
            if each[:2] == ["metric", client]
        }

    def requests(self, client: str) -> list[tuple[Any, ...]]:
        """Return the client's telemetry requests, each with its fields and the error of its response."""
        results: list[tuple[Any, ...]] = []
        for recorded in self.proxy.requests(client):
            request, answer = recorded.request, recorded.answer
            if isinstance(request, GetTelemetrySubscriptionsRequest):
                results.append(("get", request.client_instance_id == UUID(int=0), answer.error_code))
            elif isinstance(request, PushTelemetryRequest):
                error = None if answer is None else answer.error_code
                results.append(("push", request.terminating, request.compression_type, error))
        return results


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, kafka_jars: str) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("telemetry")
    compiler = str(Path(judges.java()).with_name("javac")) if os.sep in judges.java() else "javac"
    command = [compiler, "-nowarn", "-d", str(folder), "-cp", kafka_jars, str(RECEIVER)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except FileNotFoundError:
        judges.missing("javac")
    port, lines = judges.free_port(), folder / "lines"
    properties = {
        "metric.reporters": "Receiver",
        "telemetry.lines": str(lines),
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
    }
    try:
        with (
            brokers.jars(properties, plugins=[folder]) as bootstrap,
            RecordingProxy(port, int(bootstrap.rpartition(":")[2]), APIS) as proxy,
        ):
            judge = Judge(proxy, lines)
            with Admin(judge.bootstrap, client_id="operator") as admin:
                admin.create_topics({"t": 1})
                request_metrics(admin)
            yield judge
    except brokers.BrokerMissing as error:
        judges.missing(str(error))


def request_metrics(admin: Admin) -> None:
    """Request all metrics of all clients."""
    changes = [AlterConfigOp("metrics", "*"), AlterConfigOp("interval.ms", str(INTERVAL_MS))]
    admin.incremental_alter_configs({ConfigResource("client_metrics", "all"): changes})


def produce(bootstrap: str, client: str) -> None:
    with Producer(bootstrap, client_id=client) as producer:
        producer.send("t", b"x").result(PATIENCE)
        producer.client_instance_id()
        time.sleep(3 * INTERVAL_MS / 1000)


def consume(bootstrap: str, client: str) -> None:
    options: dict[str, Any] = {"group_id": f"g-{client}", "auto_offset_reset": "earliest"}
    with Consumer(bootstrap, client_id=client, **options) as consumer:
        consumer.subscribe("t")
        until = time.monotonic() + 6 * INTERVAL_MS / 1000
        count = 0
        while time.monotonic() < until or not count:
            count += len(consumer.poll(0.1))


def javas_produce(jars: str, bootstrap: str, client: str, has_pushed: Callable[[], bool]) -> None:
    """Write records with Java's console producer until the client has pushed its metrics."""
    command = [judges.java(), "-cp", jars, "org.apache.kafka.tools.ConsoleProducer"]
    command += ["--bootstrap-server", bootstrap, "--topic", "t", "--command-property", f"client.id={client}"]
    until = time.monotonic() + PATIENCE
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdin is not None
        while time.monotonic() < until and not has_pushed():
            process.stdin.write("x\n")
            process.stdin.flush()
            time.sleep(INTERVAL_MS / 1000)


def javas_consume(jars: str, bootstrap: str, client: str, has_pushed: Callable[[], bool]) -> None:
    """Read records with Java's console consumer, which ends after six push intervals without a record."""
    where = ("--bootstrap-server", bootstrap, "--topic", "t", "--from-beginning", "--group", f"g-{client}")
    end = ("--timeout-ms", str(6 * INTERVAL_MS), "--command-property", f"client.id={client}")
    tool(jars, "consumer.ConsoleConsumer", *where, *end)


KINDS: dict[str, tuple[Callable[[str, str], None], Callable[[str, str, str, Callable[[], bool]], None]]] = {
    "producer": (produce, javas_produce),
    "consumer": (consume, javas_consume),
}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
def test_clients_push_as_javas_clients_do(judge: Judge, kafka_jars: str, kind: str) -> None:
    """A real Kafka parses kproto's pushes. Their metrics have the names and kinds of Java's metrics."""
    ours, javas = KINDS[kind]
    our_client = f"our-{kind}"
    produce(judge.bootstrap, "first")  # The consumers under test need a record to read.
    ours(judge.bootstrap, our_client)
    own = judge.metrics(our_client)
    assert len(own) > 70

    def java_has_pushed() -> bool:
        return own.keys() <= judge.metrics(java_client).keys()

    # Java's client omits its final push if another push is in flight. On a busy computer this happens several
    # times in a row, and Java's consumer may end before it has pushed all metrics. Java's client is therefore
    # run again until it has pushed everything.
    until = time.monotonic() + 150
    for attempt in range(20):
        java_client = f"java-{kind}-{attempt}"
        javas(kafka_jars, judge.bootstrap, java_client, java_has_pushed)
        if eventually(java_has_pushed, PATIENCE) and judge.requests(java_client)[-1][1]:
            break
        assert time.monotonic() < until, f"Java's {kind} omitted its final push {attempt + 1} times"
    java = judge.metrics(java_client)
    assert own == {metric: java[metric] for metric in own}
    for client in (our_client, java_client):
        requests = judge.requests(client)
        assert requests[0] == ("get", True, 0), client
        assert set(requests[1:-1]) == {("push", False, 4, 0)}, client
        assert requests[-1][:3] == ("push", True, 4), client


def test_a_real_kafka_parses_the_metrics_of_the_application(judge: Judge) -> None:
    """The application's sum and gauge have the same form as a sum and a gauge of the producer (KIP-1076)."""
    with Producer(judge.bootstrap, client_id="shop") as producer:
        producer.register_metric_for_subscription(
            ApplicationMetric("orders-total", "shop-metrics", {"shop-region": "eu"}, value=3)
        )
        producer.register_metric_for_subscription(ApplicationMetric("queue", "shop-metrics", value=2))
        producer.send("t", b"x").result(PATIENCE)
        producer.client_instance_id()
    own = judge.metrics("shop")
    total, gauge = (f"org.apache.kafka.producer.{name}" for name in ("record.send.total", "batch.size.avg"))
    assert own["org.apache.kafka.shop.orders.total", "shop_region"] == own[total, ""]
    assert own["org.apache.kafka.shop.queue", ""] == own[gauge, ""]


def keys(text: str) -> str:
    """Return the keys of a map that Java has printed."""
    return " ".join(item.split("=")[0].strip() for item in text.strip("{}").split(",") if item)


def push_request(instance_id: UUID, subscription_id: int, **fields: Any) -> PushTelemetryRequest:
    values: dict[str, Any] = {
        "client_instance_id": instance_id,
        "subscription_id": subscription_id,
        "terminating": False,
        "compression_type": 0,
        "metrics": encode([MetricPoint("m", 1.0)], {}),
    }
    return PushTelemetryRequest(**(values | fields))


REQUESTS: dict[str, list[dict[str, Any]]] = {
    "twice": [{}, {}],
    "last early": [{}, {"terminating": True}, {"terminating": True}, {}],
    "another subscription": [{"subscription_id": 7}, {"get": True}, {"get": True}],
    "unknown codec": [{"compression_type": 5}, {"get": True}, {}],
    "negative codec": [{"compression_type": -1}],
    "too large": [{"metrics": bytes(1_048_577)}, {"get": True}],
    "empty": [{"metrics": b""}],
    "reserved": [{"client_instance_id": UUID(int=0)}, {"client_instance_id": UUID(int=1)}],
    "subscription twice": [{"get": True}],
}


@pytest.mark.parametrize("case", REQUESTS)
def test_both_brokers_answer_alike(judge: Judge, case: str) -> None:
    with (
        running(telemetry=True) as server,
        Admin(server.bootstrap) as admin,
        connected(server.bootstrap) as ours,
        connected(judge.bootstrap) as kafkas,
    ):
        request_metrics(admin)
        assert answers(ours, REQUESTS[case]) == answers(kafkas, REQUESTS[case])


def answers(client: Socket, requests: list[dict[str, Any]]) -> list[Any]:
    """Send a subscription request and then `requests`. Return the responses without their ids."""
    first = client.ask(GetTelemetrySubscriptionsRequest(client_instance_id=UUID(int=0)), 0)
    results: list[Any] = [subscription(first)]
    for fields in requests:
        if "get" in fields:
            second = GetTelemetrySubscriptionsRequest(client_instance_id=first.client_instance_id)
            results.append(subscription(client.ask(second, 0)))
        else:
            request = push_request(first.client_instance_id, first.subscription_id)
            for name, value in fields.items():
                setattr(request, name, value)
            results.append(client.ask(request, 0).error_code)
    return results


def subscription(response: Any) -> tuple[Any, ...]:
    return (
        response.error_code,
        response.requested_metrics,
        response.push_interval_ms,
        response.accepted_compression_types,
        response.telemetry_max_bytes,
        response.delta_temporality,
    )


# ---- other clients on the embedded broker


def librdkafkas_produce(bootstrap: str) -> None:
    from confluent_kafka import Producer as Librdkafka

    producer = Librdkafka({"bootstrap.servers": bootstrap, "client.id": "other"})
    producer.produce("t", b"x")
    producer.flush(PATIENCE)
    until = time.monotonic() + 6 * INTERVAL_MS / 1000
    while time.monotonic() < until:
        producer.poll(0.1)


@pytest.mark.parametrize("client", ["java", "librdkafka"])
def test_the_embedded_broker_reads_the_pushes_of_other_clients(client: str, kafka_jars: str) -> None:
    if client == "librdkafka":
        judges.need_client("confluent")
    with running(topics={"t": 1}, telemetry=True) as server, Admin(server.bootstrap) as admin:
        request_metrics(admin)
        if client == "java":
            javas_produce(kafka_jars, server.bootstrap, "other", lambda: len(server.telemetry) > 1)
        else:
            librdkafkas_produce(server.bootstrap)
        points = pushed(server)
        assert {point.name.startswith("org.apache.kafka.producer.") for point in points} >= {True}
        assert {point.temporality is None for point in points} == {True, False}


def pushed(server: Server) -> list[MetricPoint]:
    """Return the metrics of the last push of the client under test."""
    pushes = [push for push in server.telemetry if push.client_id == "other"]
    assert pushes
    return pushes[-1].metrics
