"""Java's clients have the metrics that docs/java-metrics.json lists, and kproto's consumer has no others."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from consumer.engine.consumer_metrics import CONSUMER_METRICS
from kproto import running
from kproto.messages.index import KAFKA_RELEASE
from tests.conformance import judges

pytestmark = pytest.mark.java

HERE = Path(__file__).parent
RECORDED: dict[str, Any] = json.loads((HERE.parents[1] / "docs" / "java-metrics.json").read_text())


@pytest.mark.timeout(300)
def test_javas_clients_have_the_recorded_metrics() -> None:
    assert RECORDED["kafka"] == KAFKA_RELEASE
    program = [judges.java(), "-cp", judges.kafka_jars(KAFKA_RELEASE), str(HERE / "java" / "Metrics.java")]
    with running(topics={"t": 1}) as broker:
        done = subprocess.run([*program, broker.bootstrap], capture_output=True, text=True, check=True)
    for client in ("consumer", "producer"):
        lines = [line.split("\t") for line in done.stdout.splitlines() if line.startswith(f"{client}\t")]
        metrics = {(group, name, frozenset(tags) - {"client-id"}) for _, group, name, *tags in lines}
        assert metrics == {(group, name, frozenset(tags)) for group, name, *tags in RECORDED[client]}


def test_every_metric_of_the_consumer_is_one_of_java() -> None:
    recorded = {(group, name, frozenset(tags)) for group, name, *tags in RECORDED["consumer"]}
    own = {(f"consumer-{metric.group}", metric.name, frozenset(metric.tags)) for metric in CONSUMER_METRICS}
    assert own <= recorded
