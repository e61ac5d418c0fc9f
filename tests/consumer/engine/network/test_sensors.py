"""The metrics of connections count the requests, responses and bytes of a known exchange."""

from __future__ import annotations

from consumer.engine.metadata.cluster import BrokerAddress
from consumer.engine.metrics import Metrics, SnapshotBuilder
from consumer.engine.network.transport import Broken, Data, Opened
from kproto.messages.fetch import FetchResponse
from kproto.messages.headers import encode_response
from kproto.wire.frame import frame
from tests.consumer.engine.network.stage import Stage, fetch


def metrics(stage: Stage) -> Metrics:
    snapshot = SnapshotBuilder("consumer", "c", stage.now)
    stage.network.add_metrics_to(snapshot)
    return snapshot.build()


def test_requests_and_responses_are_counted_with_their_bytes() -> None:
    stage = Stage()
    stage.ask()
    stage.connect(1)
    stage.ask()
    stage.answer()
    stage.answer()
    counted = metrics(stage)
    assert counted.value("request-total") == counted.value("response-total") == 3
    assert counted.value("outgoing-byte-total") == stage.bytes_written
    assert counted.value("incoming-byte-total") == stage.bytes_received
    assert counted.value("request-size-avg") == stage.bytes_written / 3
    assert counted.value("incoming-byte-rate") == stage.bytes_received / 30
    assert counted.value("request-total", node_id="node--1") == 3
    assert counted.value("connection-count") == counted.value("connection-creation-total") == 1
    assert counted.value("successful-authentication-total") == 1


def test_the_latency_of_a_broker_is_that_of_its_fetches() -> None:
    stage = Stage().knows(BrokerAddress(7, "a", 1))
    fetch(stage, node=7)
    stage.connect(1)
    key, correlation, version, _ = stage.requests.pop()
    stage.now = 400
    stage.happened(
        Data(
            key, frame(encode_response(FetchResponse(throttle_time_ms=0, responses=[]), version, correlation))
        )
    )
    assert metrics(stage).value("request-latency-max", node_id="node-7") == 400


def test_the_latency_of_other_requests_is_not_that_of_a_broker() -> None:
    stage = Stage().knows(BrokerAddress(7, "a", 1))
    stage.ask(node=7)
    stage.connect(1)
    stage.answer()
    assert metrics(stage).value("request-latency-avg", node_id="node-7") is None


def test_a_connection_that_fails_during_setup_was_not_created_but_is_closed() -> None:
    stage = Stage()
    stage.ask()
    stage.happened(Broken(1, "connection refused"))
    counted = metrics(stage)
    assert counted.value("connection-creation-total") == 0
    assert counted.value("connection-close-total") == 1
    assert counted.value("connection-count") == 0


def test_a_failed_login_is_counted() -> None:
    stage = Stage()
    stage.ask()
    stage.happened(Opened(1))
    stage.happened(Broken(1, "the certificate has expired", denied=True))
    assert metrics(stage).value("failed-authentication-total") == 1
    assert metrics(stage).value("failed-reauthentication-total") == 0


def test_a_broker_that_the_cluster_no_longer_lists_has_no_metrics() -> None:
    stage = Stage(("b", 2)).knows(BrokerAddress(1, "a", 1))
    stage.network.metadata_changed(0)
    stage.ask(node=1)
    stage.connect(1)
    stage.answer()
    assert metrics(stage).value("request-total", node_id="node-1") == 2
    stage.knows(BrokerAddress(2, "c", 3))
    stage.network.metadata_changed(0)
    stage.knows(BrokerAddress(1, "a", 1))
    assert "node-1" not in {metric.tags.get("node-id") for metric in metrics(stage)}
