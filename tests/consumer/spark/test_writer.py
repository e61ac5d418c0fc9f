"""Rows are written as records, and in transactions if the option transactionalIdPrefix is set.

The writer is called as in Spark, against the embedded broker, without a JVM.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("pyspark")

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from consumer.engine.producer.partitioner import murmur2
from consumer.spark.options import parse
from consumer.spark.schema import HEADERS
from consumer.spark.transactions import task
from consumer.spark.writer import KprotoStreamWriter, KprotoWriter, RowWriter
from kproto.broker.server import running
from kproto.errors import BrokerError, ConfigError, NotDelivered, RequestTimedOut, UnknownTopic
from kproto.group.subscription import TopicPartition
from kproto.records import rows
from kproto.records.record import Record
from tests.consumer.spark.stage import Filled

PLAIN = StructType([StructField("value", StringType())])


def plain() -> StructType:
    """Return a new schema object, because `add` changes the schema on which it is called."""
    return StructType().add("value", "string")


def sink(filled: Filled, **more: str) -> dict[str, str]:
    """Return a sink's options. `_` in a name stands for a dot."""
    options = {name.replace("_", "."): value for name, value in more.items()}
    return {"kafka.bootstrap.servers": filled.bootstrap, **options}


def write(filled: Filled, schema: StructType, values: list[dict[str, Any]], **more: str) -> None:
    """Write the rows of one task. As in Spark, the writer is pickled for the executor."""
    writer = pickle.loads(pickle.dumps(KprotoWriter(schema, parse(sink(filled, **more)), False)))
    arrow = to_arrow_schema(schema, timezone="UTC")
    writer.write(iter([pa.RecordBatch.from_pylist(values, arrow)]))


def error_of(schema: StructType, **more: str) -> str:
    """Return the error that a sink with this schema and these options raises."""
    options = parse({"kafka.bootstrap.servers": "127.0.0.1:1", **more})
    with pytest.raises(ConfigError) as e:
        KprotoWriter(schema, options, False)
    return str(e.value)


def records(filled: Filled, topic: str, partition: int = 0) -> list[Record]:
    """Return the records of a partition."""
    answer = filled.cluster.fetch({TopicPartition(topic, partition): 0}, max_wait_ms=0)
    return rows(answer[TopicPartition(topic, partition)].records)


def test_all_columns_are_written(filled: Filled) -> None:
    filled.topic("t", 0, 0)
    schema = StructType().add("key", "binary").add("value", "binary").add("topic", "string")
    schema = schema.add("partition", "integer").add("headers", HEADERS).add("offset", "long")
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
    row = {"key": b"\x00k", "value": b"v", "topic": "t", "partition": 1, "headers": headers, "offset": 77}
    write(filled, schema, [row])
    [record] = records(filled, "t", 1)
    assert (record.key, record.value) == (b"\x00k", b"v")
    assert record.headers == (("h", b"1"), ("h", None))


def test_a_small_buffer_delays_rows_and_loses_none(filled: Filled) -> None:
    filled.topic("t", 0)
    rows = [{"value": f"{i}" * 5_000} for i in range(100, 160)]
    write(filled, plain(), rows, topic="t", kafka_buffer_memory="16384")
    place = TopicPartition("t", 0)
    assert filled.cluster.list_offsets({place: "latest"})[place].offset == 60


def test_requests_in_flight_are_limited_to_what_idempotence_allows(filled: Filled) -> None:
    def flight(**more: str) -> object:
        options = parse(sink(filled, topic="t", kafka_max_in_flight_requests_per_connection="9", **more))
        return RowWriter(plain(), options).config["max_in_flight_requests_per_connection"]

    assert flight() == 5
    assert flight(kafka_enable_idempotence="false") == 9
    assert flight(kafka_acks="1") == 9
    assert "at most 5 with kafka.enable.idempotence" in error_of(
        plain(),
        **{
            "topic": "t",
            "kafka.max.in.flight.requests.per.connection": "9",
            "kafka.enable.idempotence": "true",
        },
    )


def test_a_sink_that_selects_partitions_by_rack_needs_its_rack(filled: Filled) -> None:
    aware = {"kafka.partitioner.rack.aware": "true"}
    assert "kafka.partitioner.rack.aware=True" in error_of(PLAIN, topic="t", **aware)
    options = parse({**sink(filled, topic="t", kafka_client_rack="a"), **aware})
    config = KprotoWriter(PLAIN, options, False).rows.config
    assert (config["partitioner_rack_aware"], config["client_rack"]) == (True, "a")


def test_the_option_topic_makes_any_column_topic_irrelevant(filled: Filled) -> None:
    filled.topic("t", 0)
    write(filled, plain().add("topic", "integer"), [{"value": "v", "topic": 7}], topic="t")
    assert [record.value for record in records(filled, "t")] == [b"v"]


def test_strings_are_written_as_utf_8_and_null_is_a_tombstone(filled: Filled) -> None:
    filled.topic("t", 0)
    schema = StructType().add("key", "string").add("value", "string")
    write(
        filled,
        schema,
        [{"key": "ä", "value": "ü"}, {"key": None, "value": None}, {"key": "", "value": ""}],
        topic="t",
    )
    assert [(r.key, r.value) for r in records(filled, "t")] == [
        ("ä".encode(), "ü".encode()),
        (None, None),
        (b"", b""),
    ]


def test_a_column_with_the_exact_name_precedes_one_with_capitals(filled: Filled) -> None:
    filled.topic("t", 0)
    for names in (("Value", "value"), ("value", "Value")):
        schema = StructType([StructField(name, StringType()) for name in names])
        write(filled, schema, [{"value": "right", "Value": "wrong"}], topic="t")
    assert [record.value for record in records(filled, "t")] == [b"right", b"right"]
    neither = StructType([StructField(name, StringType()) for name in ("VALUE", "Value")])
    assert "schema='VALUE, Value'" in error_of(neither, topic="t")


def test_the_option_topic_precedes_the_column(filled: Filled) -> None:
    filled.topic("t", 0)
    write(filled, plain().add("topic", "string"), [{"value": "a", "topic": "elsewhere"}], topic="t")
    assert len(records(filled, "t")) == 1


def test_rows_of_several_topics_keep_their_order_in_each(filled: Filled) -> None:
    for name in ("a", "b", "c"):
        filled.topic(name, 0)
    values = [{"topic": "abc"[n % 3], "value": str(n), "key": None if n % 2 else "k"} for n in range(99)]
    write(filled, plain().add("topic", "string").add("key", "string"), values)
    for number, name in enumerate("abc"):
        assert [int(record.value or b"-1") for record in records(filled, name)] == list(range(number, 99, 3))


def test_the_error_for_a_too_large_row_names_the_topic_and_the_option(filled: Filled) -> None:
    filled.topic("t", 0)
    with pytest.raises(BrokerError, match=r"for 't'; kafka\.max\.request\.size is 1048576"):
        write(filled, PLAIN, [{"value": "x" * 2_000_000}], topic="t")


def test_without_a_partition_murmur2_of_the_key_decides(filled: Filled) -> None:
    filled.topic("t", 0, 0, 0)
    schema = StructType().add("key", "string").add("value", "string").add("partition", "integer")
    keys = [f"key{i}" for i in range(30)]
    write(filled, schema, [{"key": k, "value": "v", "partition": None} for k in keys], topic="t")
    for partition in range(3):
        expected = [k.encode() for k in keys if (murmur2(k.encode()) & 0x7FFFFFFF) % 3 == partition]
        assert [r.key for r in records(filled, "t", partition)] == expected


def test_write_returns_after_all_rows_were_acknowledged(filled: Filled) -> None:
    filled.topic("t", 0)
    write(filled, PLAIN, [{"value": str(i)} for i in range(30_000)], topic="t", kafka_compression_type="gzip")
    ends = filled.cluster.list_offsets({TopicPartition("t", 0): "latest"})
    assert ends[TopicPartition("t", 0)].offset == 30_000


def test_a_row_without_topic_fails_the_task(filled: Filled) -> None:
    filled.topic("t", 0)
    schema = StructType().add("value", "string").add("topic", "string")
    with pytest.raises(ConfigError, match="a row has no topic"):
        write(filled, schema, [{"value": "a", "topic": None}])


def test_a_delivery_timeout_fails_the_task_and_names_the_option() -> None:
    with running(topics={"t": 1}) as server:
        server.fail("Produce", "NOT_ENOUGH_REPLICAS", 1_000)
        soon = {"kafka_delivery_timeout_ms": "1500", "kafka_request_timeout_ms": "1000"}
        with pytest.raises(
            (NotDelivered, RequestTimedOut), match=r"(Produce|flush): .*t-0.*NOT_ENOUGH_REPLICAS"
        ) as e:
            write(Filled(server.bootstrap), PLAIN, [{"value": "a"}], topic="t", **soon)
    assert "kafka.delivery.timeout.ms" in e.value.__notes__[0]


def test_a_topic_that_does_not_exist_fails_the_task(filled: Filled) -> None:
    with pytest.raises(UnknownTopic) as e:
        write(filled, PLAIN, [{"value": "a"}], topic="nowhere", kafka_max_block_ms="20000")
    assert "kafka.allow.auto.create.topics" in e.value.__notes__[0]


def test_a_partition_that_does_not_exist_fails_the_task_and_names_the_column(filled: Filled) -> None:
    filled.topic("t", 0, 0)
    schema = plain().add("partition", "integer")
    with pytest.raises(UnknownTopic, match="t-9: the topic has the partitions 0 to 1") as e:
        write(filled, schema, [{"value": "a", "partition": 9}], topic="t", kafka_max_block_ms="20000")
    assert e.value.__notes__ == [
        "The column partition selects the partition. Where it is null, the key does."
    ]


def test_a_missing_topic_is_created_if_that_is_allowed(filled: Filled) -> None:
    write(filled, PLAIN, [{"value": "a"}], topic="t", kafka_allow_auto_create_topics="true")
    assert [record.value for record in records(filled, "t")] == [b"a"]


def test_a_compression_level_applies_to_its_own_codec() -> None:
    texts = {"topic": "t", "kafka.compression.type": "zstd", "kafka.compression.gzip.level": "1"}
    options = parse({"kafka.bootstrap.servers": "127.0.0.1:1", **texts, "kafka.compression.zstd.level": "7"})
    assert RowWriter(PLAIN, options).config.get("compression_level") == 7
    options = parse({"kafka.bootstrap.servers": "127.0.0.1:1", **texts})
    assert RowWriter(PLAIN, options).config.get("compression_level") is None


def test_rows_buffered_by_a_failed_task_are_not_sent_by_the_next(filled: Filled) -> None:
    filled.topic("t", 0)
    schema = StructType().add("value", "string").add("topic", "string")
    with pytest.raises(ConfigError):
        write(
            filled,
            schema,
            [{"value": "lost", "topic": "t"}, {"value": "b", "topic": None}],
            kafka_linger_ms="60000",
        )
    write(filled, schema, [{"value": "kept", "topic": "t"}], kafka_linger_ms="60000")
    assert [r.value for r in records(filled, "t")] == [b"kept"]


def test_a_failed_task_leaves_no_thread(filled: Filled) -> None:
    with pytest.raises(UnknownTopic):
        write(filled, PLAIN, [{"value": "a"}], topic="nowhere", kafka_client_id="doomed")
    assert not [thread for thread in threading.enumerate() if "doomed" in thread.name]


def test_a_stream_writes_in_every_output_mode(filled: Filled) -> None:
    filled.topic("t", 0)
    writer = KprotoStreamWriter(PLAIN, parse(sink(filled, topic="t")), True)
    writer.write(iter([pa.RecordBatch.from_pylist([{"value": "a"}], to_arrow_schema(PLAIN, timezone="UTC"))]))
    assert len(records(filled, "t")) == 1


# ---- exactly once


@pytest.fixture
def context() -> Iterator[Any]:
    """Create a task context as Spark's worker does."""
    before, TaskContext._taskContext = TaskContext._taskContext, None
    yield TaskContext._getOrCreate()
    TaskContext._taskContext = before


def stream_write(filled: Filled, rows: int = 1, **more: str) -> None:
    """Run a task that writes this number of rows. Each row is a separate batch."""
    writer = KprotoStreamWriter(PLAIN, parse(sink(filled, topic="t", **more)), False)
    batch = pa.RecordBatch.from_pylist([{"value": "a"}], to_arrow_schema(PLAIN, timezone="UTC"))
    writer.write(iter([batch] * rows))


def test_a_repeated_task_writes_its_rows_only_once(filled: Filled, context: Any) -> None:
    filled.topic("t", 0)
    context._partitionId = 3
    for batch in ("7", "7", "8", "7"):
        context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": batch}
        stream_write(filled, transactionalIdPrefix="etl")
    assert [record.value for record in records(filled, "t") if record.value] == [b"a", b"a"]


@pytest.mark.parametrize(("rows", "warnings"), [(3, 0), (2, 1), (5, 1)])
def test_a_repeated_task_with_other_rows_causes_a_warning(
    filled: Filled, context: Any, rows: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that is repeated with different rows causes a warning.

    The rows differ, for example, if the query was killed during a batch and is restarted with another value
    of minPartitions.
    """
    filled.topic("t", 0)
    context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    for count in (3, rows):
        stream_write(filled, count, transactionalIdPrefix="etl")
    assert len([record for record in records(filled, "t") if record.value]) == 3
    lines = [line for line in caplog.messages if f"with 3 rows, and has {rows} now" in line]
    assert len(lines) == warnings
    assert all(
        "minPartitions, maxRecordsPerPartition, spark.sql.shuffle.partitions" in line for line in lines
    )


def test_a_task_without_query_and_batch_ids_is_rejected(filled: Filled, context: Any) -> None:
    context._localProperties = {}
    with pytest.raises(ConfigError, match="does not give its tasks the ids of their query"):
        stream_write(filled, transactionalIdPrefix="etl")


def test_every_task_has_its_own_transactional_id(context: Any) -> None:
    context._partitionId = 3
    context._localProperties = {"sql.streaming.queryId": "q", "streaming.sql.batchId": "7"}
    assert task("etl", None) == ("etl-q-3", 7)
    assert task("etl", "job") == ("etl-job-3", 0)


def test_all_tasks_of_a_job_have_its_name_and_other_jobs_have_another() -> None:
    options = parse({"kafka.bootstrap.servers": "a:1", "topic": "t", "transactionalIdPrefix": "etl"})
    first, second = KprotoWriter(PLAIN, options, False), KprotoWriter(PLAIN, options, False)
    assert pickle.loads(pickle.dumps(first)).rows.job == first.rows.job != second.rows.job


def test_the_default_transaction_timeout_is_the_brokers_maximum() -> None:
    texts = {"kafka.bootstrap.servers": "a:1", "topic": "t", "transactionalIdPrefix": "etl"}
    assert RowWriter(PLAIN, parse(texts)).config.get("transaction_timeout_ms") == 900_000
    texts["kafka.transaction.timeout.ms"] = "5000"
    assert RowWriter(PLAIN, parse(texts)).config.get("transaction_timeout_ms") == 5000


@pytest.mark.parametrize(
    ("texts", "text"),
    [
        ({"transactionalIdPrefix": "etl"}, "set the option topic as well"),
        ({"transactionalIdPrefix": "etl", "topic": "t", "kafka.acks": "1"}, "acks"),
        ({"kafka.transaction.timeout.ms": "5000", "topic": "t"}, "it works only with transactionalIdPrefix"),
    ],
)
def test_options_that_prevent_transactions_are_rejected(texts: dict[str, str], text: str) -> None:
    assert text in error_of(plain().add("topic", "string"), **texts)


def test_reading_rejects_transactional_id_prefix() -> None:
    options = parse({"kafka.bootstrap.servers": "a:1", "subscribe": "t", "transactionalIdPrefix": "etl"})
    with pytest.raises(ConfigError, match="it is for writing"):
        options.for_batch()


# ---- rejected before anything is written


def test_overwriting_is_rejected() -> None:
    with pytest.raises(ConfigError, match=r"mode='overwrite'.*append"):
        KprotoWriter(PLAIN, parse({"kafka.bootstrap.servers": "a:1", "topic": "t"}), True)


def test_a_schema_without_value_is_rejected() -> None:
    assert "add a column named value" in error_of(StructType().add("key", "string"), topic="t")


def test_a_sink_without_topic_is_rejected() -> None:
    assert "set the option topic, or add a column" in error_of(PLAIN)


@pytest.mark.parametrize(
    ("name", "kind", "allowed"),
    [
        ("value", "integer", "its type must be string or binary"),
        ("key", "long", "its type must be string or binary"),
        ("topic", "binary", "its type must be string"),
        ("partition", "long", "its type must be int"),
        ("headers", "string", "its type must be array<struct<key:string,value:binary>>"),
    ],
)
def test_a_column_of_a_wrong_type_is_rejected(name: str, kind: str, allowed: str) -> None:
    schema = StructType().add(name, kind) if name == "value" else plain().add(name, kind)
    assert allowed in error_of(schema, **({} if name == "topic" else {"topic": "t"}))


def test_contradicting_options_are_rejected() -> None:
    assert "acks" in error_of(PLAIN, topic="t", **{"kafka.acks": "1", "kafka.enable.idempotence": "true"})


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"1"}])
def test_a_header_that_is_null_is_rejected_with_its_column(filled: Filled, header: Any) -> None:
    filled.topic("t", 0)
    with pytest.raises(ConfigError, match=r"column headers.*neither a header nor its key may be null"):
        write(filled, plain().add("headers", HEADERS), [{"value": "x", "headers": [header]}], topic="t")


def test_producer_errors_name_kafkas_options() -> None:
    message = error_of(PLAIN, topic="t", **{"kafka.acks": "1", "kafka.enable.idempotence": "true"})
    assert message.startswith("kafka.")
    assert "enable_idempotence" not in message
