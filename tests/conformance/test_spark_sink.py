"""format("kproto") is a sink for batches and streams in Spark, on the embedded broker and a real Kafka."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.spark_session import Kafka, kafka, spark

pytestmark = pytest.mark.spark
__all__ = ["kafka", "spark"]


def options(kafka: Kafka, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "topic": kafka.name, **more}


def read(spark: Any, kafka: Kafka) -> list[tuple[Any, ...]]:
    frame = spark.read.format("kproto").options(**kafka.options(includeHeaders="true")).load()
    rows = frame.selectExpr("partition", "cast(key as string)", "cast(value as string)", "headers").collect()
    return sorted(
        (p, k, v, [(h["key"], bytes(h["value"])) for h in headers or []]) for p, k, v, headers in rows
    )


def test_a_batch_is_written_and_read_back(spark: Any, kafka: Kafka) -> None:
    kafka.fill(0, 0)
    frame = spark.sql(
        "select 'k' || id as key, 'v' || id as value, cast(id % 2 as int) as partition,"
        " array(struct('h' as key, cast('1' as binary) as value)) as headers from range(100)"
    )
    frame.write.format("kproto").options(**options(kafka)).mode("append").save()
    expected = sorted((i % 2, f"k{i}", f"v{i}", [("h", b"1")]) for i in range(100))
    assert read(spark, kafka) == expected


def test_a_stream_is_written_and_read_back_once(spark: Any, kafka: Kafka, tmp_path: Path) -> None:
    kafka.fill(50)
    target = f"{kafka.name}-copy"
    kafka.topic(target, 0)
    for _ in range(2):
        stream = spark.readStream.format("kproto").options(**kafka.options(startingOffsets="earliest")).load()
        sink = stream.writeStream.format("kproto").options(**options(kafka, topic=target))
        query = sink.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        assert query.awaitTermination(120)
        kafka.put(kafka.name, 0, 10)
    copied = spark.read.format("kproto").options(**kafka.options(subscribe=target)).load()
    values = sorted(int(row["value"]) for row in copied.selectExpr("cast(value as string)").collect())
    assert values == sorted([*range(50), *range(10)])


@pytest.mark.parametrize(
    ("query", "extra", "text"),
    [
        ("select 'k' as key", {}, "a column named value"),
        ("select 1 as value", {}, "value int' is not allowed; its type must be string or binary"),
        ("select 'v' as value", {"topic": " "}, "set it to a text that is not blank"),
        ("select 'v' as value", {"commitGroupId": "lag"}, "it is for reading"),
    ],
)
def test_an_invalid_write_fails_before_any_record(
    spark: Any, kafka: Kafka, query: str, extra: dict[str, str], text: str
) -> None:
    from pyspark.errors import PySparkException

    kafka.fill(0)
    with pytest.raises(PySparkException) as e:
        spark.sql(query).write.format("kproto").options(**options(kafka, **extra)).mode("append").save()
    assert text in str(e.value)
    assert read(spark, kafka) == []
