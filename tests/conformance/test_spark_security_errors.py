"""Security errors in Spark name their cause at each entry point.

An error names the cause once, in one sentence. The error calls options by the names that Spark's users set:
kafka.*.

`KPROTO_SEED` selects one case for each entry point. With `KPROTO_ALL_PLAYS=1` all cases run (tox -e soak).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer import Admin
from consumer.security import SecurityConfig
from tests.conformance.client_scenarios import SEED
from tests.conformance.spark_session import spark, started

secured = pytest.importorskip("tests.conformance.secured_kafka")
from tests.conformance.security_errors import CASES, Case  # noqa: E402

pytestmark = pytest.mark.spark
__all__ = ["spark"]
IN_KAFKAS_WORDS = {
    "are sasl_username and sasl_password right": "the username and the password in kafka.sasl.jaas.config",
    "sasl_mechanism": "kafka.sasl.mechanism",
    "security_protocol": "kafka.security.protocol",
    "ssl_cafile": "kafka.ssl.truststore.location",
    "ssl_certfile": "kafka.ssl.keystore.location",
}
OURS = re.compile(rf"\b({'|'.join(name for name in SecurityConfig.__annotations__ if '_' in name)})\b")
FRAME = 'File "'  # The beginning of a frame in a traceback.
SOON = {"kafka.request.timeout.ms": "4000"}
WRITES_SOON = {"kafka.max.block.ms": "4000"}


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.kafka)])
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    run_broker = secured.embedded_kafka if request.param == "embedded" else secured.real_kafka
    with run_broker(tmp_path_factory.mktemp("secured")) as broker:
        with Admin(broker.places["PLAINTEXT"], timeout=60) as cluster:
            cluster.create_topics({"flights": 1}, exist_ok=True)
        yield broker


# ---- the entry points of Spark's users: each runs a query that raises, with these security options


def batch(spark: Any, how: dict[str, str], folder: Path) -> None:
    spark.read.format("kproto").options(**{"subscribe": "flights", **SOON, **how}).load().collect()


def stream(spark: Any, how: dict[str, str], folder: Path) -> None:
    source = spark.readStream.format("kproto").options(**{"subscribe": "flights", **SOON, **how}).load()
    sink = source.writeStream.format("noop").option("checkpointLocation", str(folder))
    started(sink).awaitTermination(120)


def sink_of_a_batch(spark: Any, how: dict[str, str], folder: Path) -> None:
    rows = spark.sql("select 'x' as value").coalesce(1)
    rows.write.format("kproto").options(**how, **WRITES_SOON, topic="flights").mode("append").save()


def sink_of_a_stream(spark: Any, how: dict[str, str], folder: Path) -> None:
    rows = spark.readStream.format("rate").option("numPartitions", 1).load().selectExpr("'x' as value")
    sink = rows.writeStream.format("kproto").options(**how, **WRITES_SOON, topic="flights")
    started(sink.option("checkpointLocation", str(folder))).awaitTermination(120)


def sink_that_writes_once(spark: Any, how: dict[str, str], folder: Path) -> None:
    rows = spark.sql("select 'x' as value").coalesce(1)
    how = {**how, **WRITES_SOON, "topic": "flights", "transactionalIdPrefix": "told"}
    rows.write.format("kproto").options(**how).mode("append").save()


ENTRY_POINTS: dict[str, Callable[[Any, dict[str, str], Path], None]] = {
    "a batch": batch,
    "a stream": stream,
    "the sink of a batch": sink_of_a_batch,
    "the sink of a stream": sink_of_a_stream,
    "the sink that writes once": sink_that_writes_once,
}


def cases_of(entry_point: str) -> list[Case]:
    if os.environ.get("KPROTO_ALL_PLAYS"):
        return CASES
    return [
        CASES[(SEED + number) % len(CASES)] for number, name in enumerate(ENTRY_POINTS) if name == entry_point
    ]


@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
def test_a_query_reports_the_cause_once(
    spark: Any, kafka: Any, entry_point: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from pyspark.errors import PySparkException

    for case in cases_of(entry_point):
        where = f"{case.name}, KPROTO_SEED={SEED}"
        how = {f"kafka.{name}": value for name, value in case.java(kafka).items()}
        how["kafka.bootstrap.servers"] = kafka.places[case.listener]
        words = case.words
        for ours, theirs in IN_KAFKAS_WORDS.items():
            words = words.replace(ours, theirs)
        capfd.readouterr()
        began = time.monotonic()
        with pytest.raises(PySparkException) as caught:
            ENTRY_POINTS[entry_point](spark, how, tmp_path / str(CASES.index(case)))
        took, message = time.monotonic() - began, str(caught.value)
        assert len(re.findall(words, message)) == 1, f"{where}: {message}"
        assert not OURS.search(message.partition("kproto.errors.")[2]), f"{where}: {message}"
        assert FRAME not in message, f"{where}: {message}"
        # The message fills at most two screens, and most of its text is Spark's.
        assert len(message.splitlines()) < 40, where
        printed = "".join(capfd.readouterr())
        assert len(re.findall(case.words, printed)) <= 1, f"{where}: {printed}"
        assert took < 60, where


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "no broker at the address": (
        {"kafka.bootstrap.servers": "127.0.0.1:1"},
        "It was tried for 4 s; see kafka.request.timeout",
    ),
    "a missing topic": ({"subscribe": "never-made"}, "topic 'never-made' does not exist"),
    "an offset outside of the log": (
        {"startingOffsets": '{"flights": {"0": 1000000}}'},
        "1000000 for flights-0|startingOffsets=",
    ),
    "an unknown option": ({"startingOfsets": "latest"}, "startingOffsets"),
}


@pytest.mark.parametrize("entry_point", ["a batch", "a stream"])
@pytest.mark.parametrize("wrong", WRONG)
def test_an_invalid_query_is_reported_in_a_sentence_without_our_frames(
    spark: Any, kafka: Any, entry_point: str, wrong: str, tmp_path: Path
) -> None:
    from pyspark.errors import PySparkException

    changes, words = WRONG[wrong]
    how = {"kafka.bootstrap.servers": kafka.places["PLAINTEXT"], "subscribe": "flights", **SOON, **changes}
    with pytest.raises(PySparkException, match=words) as caught:
        ENTRY_POINTS[entry_point](spark, how, tmp_path)
    assert FRAME not in str(caught.value)


def test_an_error_of_the_application_keeps_its_traceback(spark: Any) -> None:
    """An error in a mapped function keeps its traceback, even in a worker that ran kproto's source before."""
    from pyspark.errors import PySparkException

    def broken(number: int) -> int:
        return number // 0

    with pytest.raises(PySparkException, match="in broken"):
        spark.sparkContext.parallelize([1], 1).map(broken).collect()
