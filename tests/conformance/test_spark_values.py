"""The column `value` contains decoded values: JSON as from_json reads it, Avro with a schema registry."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from kproto.broker.server import running
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.conformance.spark_session import Kafka, spark  # noqa: F401
from tests.consumer.spark.values_stage import avro, registry, wired

pytestmark = pytest.mark.spark

DDL = (
    "id BIGINT, dest STRING, cost DOUBLE, legs ARRAY<STRUCT<n: INT>>, day DATE, raw BINARY, "
    "tags MAP<STRING, STRUCT<n: INT, raws: ARRAY<BINARY>>>, counts ARRAY<MAP<STRING, BIGINT>>"
)


@pytest.fixture
def kafka() -> Any:
    with running(topics={}) as server:
        kafka = Kafka(server.bootstrap, "t")
        with kafka.cluster:
            yield kafka


def write(kafka: Kafka, values: list[bytes | None]) -> None:
    kafka.fill(0)
    records = [Record(n, 0, b"%d" % n, value) for n, value in enumerate(values)]
    kafka.cluster.produce(TopicPartition("t", 0), encode_batch(records))


def test_json_values_equal_those_of_from_json(spark: Any, kafka: Kafka) -> None:  # noqa: F811
    from pyspark.sql import functions as f

    rng = random.Random(7)

    def one(n: int) -> dict[str, Any]:
        legs = [{"n": k} for k in range(rng.randint(0, 3))]
        raws = [base64.b64encode(rng.randbytes(k)).decode() for k in range(n % 5)]
        tags = {f"t{k}": rng.choice([None, {"n": k, "raws": raws}, {"raws": [None]}]) for k in range(n % 4)}
        value = {"id": n, "dest": rng.choice(["SFO", "ä\n€", None]), "cost": n / 3, "legs": legs}
        value |= {"tags": rng.choice([tags, None]), "counts": [{}, None, {"a": n, "ä": None}][: n % 4]}
        return {**value, "raw": raws[-1]} if raws else value

    values = [json.dumps({**one(n), "day": f"2013-01-{n % 28 + 1:02}"}).encode() for n in range(500)]
    write(kafka, [*values, None])
    options = {**kafka.options(), "value.format": "json", "value.schema": DDL}
    ours = spark.read.format("kproto").options(**options).load()
    theirs = spark.read.format("kproto").options(**kafka.options()).load()
    theirs = theirs.select("offset", f.from_json(f.col("value").cast("string"), DDL).alias("value"))
    assert ours.select("offset", "value").collect() == theirs.collect()
    assert ours.where("value.id = 7").count() == 1


def test_a_stream_of_a_registrys_avro_reports_bad_values(
    spark: Any,  # noqa: F811
    kafka: Kafka,
    tmp_path: Path,
) -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "F", "fields": [{"name": "id", "type": "long"}]}
    answer = {"schema": json.dumps(schema)}
    with registry({"/subjects/t-value/versions/latest": answer, "/schemas/ids/3": answer}) as (url, _):
        write(kafka, [*(wired(3, value) for value in avro(schema, {"id": 1}, {"id": 2})), b"nonsense"])
        formats = {"value.format": "avro", "schema.registry.url": url, "value.onError": "null"}
        options = {**kafka.options(), **formats, "key.format": "string", "startingOffsets": "earliest"}
        stream = spark.readStream.format("kproto").options(**options).load()
        rows = stream.select("key", "value.id", "_error").writeStream.format("parquet")
        rows = rows.option("path", str(tmp_path / "rows")).option("checkpointLocation", str(tmp_path / "c"))
        rows.trigger(availableNow=True).start().awaitTermination()
        rows_read = spark.read.parquet(str(tmp_path / "rows")).orderBy("key").collect()
    assert [(row.key, row.id) for row in rows_read] == [("0", 1), ("1", 2), ("2", None)]
    assert [row._error is None for row in rows_read] == [True, True, False]


def test_the_error_of_a_bad_value_names_its_place_and_the_remedy(spark: Any, kafka: Kafka) -> None:  # noqa: F811
    write(kafka, [b"{}", b"{"])
    options = {"value.format": "json", "value.schema": "id BIGINT"}
    frame = spark.read.format("kproto").options(**kafka.options(), **options).load()
    with pytest.raises(Exception, match=r"(?s)offset 1 of t-0.*value.onError=null"):
        frame.collect()
    with pytest.raises(Exception, match="BIGNIT"):
        spark.read.format("kproto").options(
            **kafka.options(), **{**options, "value.schema": "id BIGNIT"}
        ).load()
