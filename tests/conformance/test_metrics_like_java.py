"""Metrics have the names of Java's client metrics, and are measured as Kafka's Java classes measure them.

docs/java-metrics.json lists the metrics of Java's clients.
"""

from __future__ import annotations

import json
import os
import subprocess
from math import isclose
from pathlib import Path
from random import Random
from typing import Any

import pytest

from consumer.engine.consumer_metrics import CONSUMER_METRICS
from consumer.engine.metrics import Measure, MetricDefinition, Sensor
from consumer.engine.producer.sensors import PRODUCER_METRICS
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


@pytest.mark.parametrize(
    ("client", "table"), [("consumer", CONSUMER_METRICS), ("producer", PRODUCER_METRICS)]
)
def test_every_metric_is_one_of_javas_client(client: str, table: tuple[MetricDefinition, ...]) -> None:
    recorded = {(group, name, frozenset(tags)) for group, name, *tags in RECORDED[client]}
    own = {(f"{client}-{metric.group}", metric.name, frozenset(metric.tags)) for metric in table}
    assert own <= recorded


MEASURES = (
    Measure.AVERAGE,
    Measure.MAXIMUM,
    Measure.MINIMUM,
    Measure.RATE,
    Measure.COUNT_RATE,
    Measure.COUNT_RATE_PER_HOUR,
)


def test_random_values_are_measured_as_by_java(tmp_path: Path) -> None:
    random = Random(int(os.environ.get("KPROTO_SEED", "7")))
    lines: list[str] = []
    ours: list[list[float | None]] = []
    for _ in range(300):
        sensor, now = Sensor(), random.randint(0, 100_000)
        # Each sensor records a value before its metrics are read. Otherwise Java would create a sample for
        # rates, but not for averages, and the later samples of rates and averages would begin at different
        # times. kproto uses the same samples for rates and averages.
        sensor.record(1, now)
        lines += ["new", f"record 1 {now}"]
        for _ in range(random.randint(1, 40)):
            now += random.choice(
                (0, 1, 500, 10_000, 29_999, 30_000, 30_001, 60_000, random.randint(0, 90_000))
            )
            if random.random() < 0.6:
                value = random.randint(-5, 1_000)
                sensor.record(value, now)
                lines.append(f"record {value} {now}")
            else:
                ours.append([sensor.measure(measure, now) for measure in MEASURES])
                lines.append(f"measure {now}")
    program = [judges.java(), "-cp", judges.kafka_jars(KAFKA_RELEASE), str(HERE / "java" / "Samples.java")]
    text = "".join(f"{line}\n" for line in lines)
    done = subprocess.run(program, input=text, capture_output=True, text=True, cwd=tmp_path, check=True)
    java = [
        [None if word == "NaN" else float(word) for word in line.split()] for line in done.stdout.splitlines()
    ]
    assert len(java) == len(ours) > 1_000
    wrong = [
        (theirs, mine)
        for theirs, mine in zip(java, ours, strict=True)
        if any(
            (a is None) != (b is None) or not isclose(a or 0, b or 0)
            for a, b in zip(theirs, mine, strict=True)
        )
    ]
    assert wrong == []
