"""The records that a batch reads. The reader is called as in Spark, with the embedded broker and no JVM."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from types import ModuleType

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, StructType

from consumer.engine.network.call import Call
from consumer.spark import partition_reader
from consumer.spark.arrow import ROWS
from consumer.spark.offsets import DataLoss
from consumer.spark.options import parse
from consumer.spark.ranges import Range
from consumer.spark.schema import HEADERS, checked
from consumer.spark.slices import Slice
from kproto.errors import ConfigError, RecordError, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.records import encode_batch
from kproto.records.record import Record
from tests.consumer.spark.reader_stage import T0, failure, offsets, read_offsets, reader, table
from tests.consumer.spark.stage import HOUR, Filled

# ---- columns


def test_every_column_equals_the_produced_record(filled: Filled) -> None:
    filled.topic("t", 0)
    records = [
        Record(0, HOUR, b"\x00key", "väl".encode(), (("h", b"1"), ("h", None), ("g", b""))),
        Record(1, HOUR + 1, None, b""),
        Record(2, HOUR + 5, b"", None),
    ]
    filled.cluster.produce(T0, encode_batch(records))
    rows = table(filled, includeHeaders="true").to_pylist()
    assert [row["key"] for row in rows] == [b"\x00key", None, b""]
    assert [row["value"] for row in rows] == ["väl".encode(), b"", None]
    assert [row["timestamp"].timestamp() * 1000 for row in rows] == [HOUR, HOUR + 1, HOUR + 5]
    assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("t", 0, 0)}
    assert [row["offset"] for row in rows] == [0, 1, 2]
    headers = [{"key": "h", "value": b"1"}, {"key": "h", "value": None}, {"key": "g", "value": b""}]
    assert [row["headers"] for row in rows] == [headers, None, None]


def test_the_arrow_types_are_exactly_those_that_spark_expects(filled: Filled) -> None:
    filled.topic("t", 1)
    planned = reader(filled, includeHeaders="true")
    [batch] = planned.read(planned.partitions()[0])
    assert to_arrow_schema(planned.schema, timezone="UTC").equals(batch.schema, check_metadata=True)


def test_headers_are_read_only_with_include_headers(filled: Filled) -> None:
    filled.topic("t", 1)
    assert "headers" not in table(filled).column_names


def test_headers_are_null_in_a_batch_without_any(filled: Filled) -> None:
    filled.topic("t", 1000)
    assert table(filled, includeHeaders="true")["headers"].null_count == 1000


def test_a_schema_of_the_user_selects_and_orders_the_columns(filled: Filled) -> None:
    filled.topic("t", 2)
    schema = StructType().add("offset", "long").add("VALUE", "binary")
    assert table(filled, schema).to_pydict() == {"offset": [0, 1], "VALUE": [b"0", b"1"]}


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("val", "binary", "the column does not exist; allowed: key, value, topic"),
        ("value", "string", "value string' is not allowed; its type is binary; cast it after load"),
        ("headers", "binary", "the column does not exist without includeHeaders"),
    ],
)
def test_an_unknown_column_or_another_type_is_rejected(
    filled: Filled, name: str, kind: str, why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        checked(StructType().add(name, kind), parse(filled.options()))


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (StructType(), "schema='' is not allowed; name at least one column; allowed: key, value"),
        (
            StructType().add("value", "binary").add("VALUE", "binary"),
            "'value, VALUE'.*they name the same column",
        ),
        (StructType().add("value", "binary", nullable=False), "'value NOT NULL'.*remove NOT NULL"),
        (StructType().add("headers", ArrayType(HEADERS.elementType, False)), "'NOT NULL in headers'"),
    ],
)
def test_an_unusable_schema_is_rejected(filled: Filled, schema: StructType, why: str) -> None:
    """A schema without columns, with duplicate columns or with a wrong NOT NULL is rejected.

    A schema without columns would lose all rows silently, because Arrow cannot represent rows without
    columns.
    """
    with pytest.raises(ConfigError, match=why):
        checked(schema, parse(filled.options(includeHeaders="true")))


def test_columns_present_in_every_record_may_be_not_null(filled: Filled) -> None:
    filled.topic("t", 2)
    schema = StructType().add("offset", "long", nullable=False).add("topic", "string", nullable=False)
    assert table(filled, schema).to_pydict() == {"offset": [0, 1], "topic": ["t", "t"]}


# ---- bounds


def test_without_bounds_all_records_are_read(filled: Filled) -> None:
    filled.topic("t", 5, 0, 3)
    assert offsets(filled) == [(0, 0, 4), (2, 0, 2)]


def test_bounds_for_each_partition(filled: Filled) -> None:
    filled.topic("t", 9, 9)
    start, end = '{"t": {"0": 2, "1": -2}}', '{"t": {"0": 5, "1": -1}}'
    assert offsets(filled, startingOffsets=start, endingOffsets=end) == [(0, 2, 4), (1, 0, 8)]


def test_a_batch_that_contains_the_end_is_cut_there(filled: Filled) -> None:
    filled.topic("t", 1000)
    filled.put("t", 0, 1000)
    end = '{"t": {"0": 1500}}'
    assert offsets(filled, startingOffsets='{"t": {"0": 500}}', endingOffsets=end) == [(0, 500, 1499)]


def test_timestamps_are_bounds(filled: Filled) -> None:
    filled.topic("t", 9)
    assert offsets(filled, startingTimestamp=HOUR + 3, endingTimestamp=HOUR + 7) == [(0, 3, 6)]


def test_an_ending_timestamp_after_all_records_is_the_end_of_the_log(filled: Filled) -> None:
    filled.topic("t", 9)
    assert offsets(filled, endingTimestamp=HOUR + 700) == [(0, 0, 8)]


def test_a_starting_timestamp_after_all_records_raises_or_is_the_end(filled: Filled) -> None:
    filled.topic("t", 9)
    assert "t-0 has no record at or after it" in str(failure(filled, startingTimestamp=HOUR + 9))
    assert offsets(filled, startingTimestamp=HOUR + 9, startingOffsetsByTimestampStrategy="latest") == []


def test_ending_offsets_must_name_the_partitions_read(filled: Filled) -> None:
    filled.topic("t", 1, 1)
    assert "exactly the partitions that are read: t-0, t-1" in str(
        failure(filled, endingOffsets='{"t": {"0": 1}}')
    )


def test_an_unknown_topic_raises(filled: Filled) -> None:
    assert "topic 'nowhere'" in str(failure(filled, subscribe="nowhere"))


def test_a_pattern_has_javas_syntax(filled: Filled) -> None:
    for name in ("flights1", "flights22", "flights", "xflights3"):
        filled.topic(name, 1)
    records = table(filled, subscribePattern=r"^\Qflights\E\p{Digit}++")
    assert sorted(set(records["topic"].to_pylist())) == ["flights1", "flights22"]


def test_a_pattern_without_match_reads_nothing(filled: Filled) -> None:
    assert offsets(filled, subscribePattern="nothing.*") == []


def test_a_start_after_the_end_of_the_log_is_data_loss_or_reads_nothing(filled: Filled) -> None:
    filled.topic("t", 5)
    bounds = {"startingOffsets": '{"t": {"0": 7}}', "endingOffsets": '{"t": {"0": 9}}'}
    assert isinstance(failure(filled, **bounds), DataLoss)
    assert offsets(filled, failOnDataLoss="false", **bounds) == []


@pytest.mark.parametrize("pieces", [1, 3])
def test_records_deleted_since_the_plan_are_skipped_with_a_warning(
    filled: Filled, pieces: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Records that were deleted after the batch was planned are skipped with a warning.

    One record batch contains both deleted and remaining records.
    """
    filled.topic("t", 30)
    planned = reader(filled, failOnDataLoss="false", minPartitions=pieces, startingOffsets='{"t": {"0": 0}}')
    slices = planned.partitions()
    filled.delete_before(T0, 20)
    read = [n for slice_ in slices for batch in planned.read(slice_) for n in batch["offset"].to_pylist()]
    assert read == list(range(20, 30))
    assert "failOnDataLoss=false: the log of t-0 begins at 20, after 0" in caplog.text


def test_records_deleted_since_the_plan_are_data_loss(filled: Filled) -> None:
    filled.topic("t", 30)
    planned = reader(filled, startingOffsets='{"t": {"0": 0}}')
    [slice_] = planned.partitions()
    filled.delete_before(T0, 20)
    with pytest.raises(DataLoss, match="the log of t-0 begins at 20, after 0"):
        list(planned.read(slice_))


@pytest.mark.parametrize("pieces", [1, 3])
def test_bounds_at_the_logs_edges_are_looked_up_at_every_action(filled: Filled, pieces: int) -> None:
    """Spark reuses the plan of a batch for a second action, or for the next micro-batch of a stream that is
    joined with the batch.

    As with Spark's own source, an action that reuses a plan reads each log from its current start to its
    current end.
    """
    filled.topic("t", 4, 0)
    planned = reader(filled, minPartitions=pieces)
    slices = planned.partitions()
    assert read_offsets(planned, slices) == [(0, n) for n in range(4)]
    filled.put("t", 0, 2)
    filled.put("t", 1, 1)
    filled.delete_before(T0, 1)
    assert read_offsets(planned, slices) == [*((0, n) for n in range(1, 6)), (1, 0)]


def test_an_explicit_end_is_kept_by_every_action(filled: Filled) -> None:
    filled.topic("t", 4, 0)
    planned = reader(filled, endingOffsets='{"t": {"0": 4, "1": -1}}')
    slices = planned.partitions()
    filled.put("t", 0, 2)
    filled.put("t", 1, 1)
    assert read_offsets(planned, slices) == [*((0, n) for n in range(4)), (1, 0)]


def test_an_ending_timestamp_after_all_records_is_looked_up_at_every_action(
    filled: Filled,
) -> None:
    filled.topic("t", 4)
    planned = reader(filled, endingTimestamp=HOUR + 700)
    slices = planned.partitions()
    filled.put("t", 0, 2)
    assert read_offsets(planned, slices) == [(0, n) for n in range(6)]


def test_a_log_shorter_than_planned_is_data_loss_or_read_to_its_end(filled: Filled) -> None:
    for fail in ("true", "false"):
        filled.topic(fail, 4)
        start = f'{{"{fail}": {{"0": 0}}}}'
        planned = reader(filled, subscribe=fail, failOnDataLoss=fail, startingOffsets=start)
        slices = planned.partitions()
        filled.cluster.delete_topics([fail])
        filled.topic(fail, 0)
        if fail == "false":
            assert read_offsets(planned, slices) == []
        else:
            with pytest.raises(
                DataLoss, match="the log of true-0 ends at 0, and reached to 4 when the batch was planned"
            ):
                read_offsets(planned, slices)


@pytest.mark.parametrize("count", [2, 9])
def test_a_later_action_reads_whole_logs_of_a_re_created_topic(filled: Filled, count: int) -> None:
    filled.topic("t", 4, 4)
    planned = reader(filled)
    slices = planned.partitions()
    assert len(read_offsets(planned, slices)) == 8
    filled.delete_before(T0, 3)
    filled.cluster.delete_topics(["t"])
    filled.topic("t", count, 1, 1)
    assert read_offsets(planned, slices) == [*((0, n) for n in range(count)), (1, 0)]


def test_a_timestamp_outside_of_sparks_range_raises_with_a_remedy(filled: Filled) -> None:
    filled.cluster.create_topics({"t": 1}, configs={"message.timestamp.after.max.ms": str(2**63 - 1)})
    filled.cluster.produce(T0, encode_batch([Record(0, HOUR, None, b"a"), Record(1, 1 << 62, None, b"b")]))
    with pytest.raises(
        RecordError, match=r"t-0 at offset 1 has the timestamp 4611686018427387904 ms.*\.schema"
    ):
        table(filled)
    assert table(filled, StructType().add("value", "binary"))["value"].to_pylist() == [b"a", b"b"]


# ---- slices of a partition


def test_slices_cover_each_offset_once(filled: Filled) -> None:
    filled.topic("t", 1000, 10)
    filled.put("t", 0, 1000)
    assert len(reader(filled, minPartitions=7).partitions()) == 7
    assert offsets(filled, minPartitions=7) == [(0, 0, 1999), (1, 0, 9)]


def test_no_slice_exceeds_max_records_per_partition(filled: Filled) -> None:
    filled.topic("t", 100)
    assert [
        s.range.size for s in reader(filled, maxRecordsPerPartition=30).partitions() if isinstance(s, Slice)
    ] == [25] * 4


@pytest.mark.parametrize(
    ("compression", "lengths"), [("gzip", [30_000, 30_000]), ("none", [ROWS, 60_000 - ROWS])]
)
def test_a_fetch_of_compressed_batches_is_decoded_in_pieces(
    filled: Filled, compression: str, lengths: list[int]
) -> None:
    filled.topic("t", 0)
    for _ in range(2):
        records = [Record(n, HOUR, None, None) for n in range(30_000)]
        filled.cluster.produce(T0, encode_batch(records, compression=compression))
    planned = reader(filled)
    [slice_] = planned.partitions()
    assert [batch.num_rows for batch in planned.read(slice_)] == lengths


def test_sparks_own_empty_slice_has_no_rows(filled: Filled) -> None:
    filled.topic("t", 1)
    assert list(reader(filled).read(InputPartition(None))) == []


def test_small_fetch_responses_are_joined_by_offset(filled: Filled) -> None:
    filled.topic("t", *[0])
    for _ in range(40):
        filled.put("t", 0, 50)
    assert offsets(filled, kafka_max_partition_fetch_bytes=1, kafka_fetch_max_bytes=1) == [(0, 0, 1999)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read(filled: Filled, codec: str) -> None:
    filled.topic("t", 0)
    records = [Record(i, HOUR, b"k", b"x" * 100) for i in range(500)]
    filled.cluster.produce(T0, encode_batch(records, compression=codec))
    assert table(filled)["value"].to_pylist() == [b"x" * 100] * 500


# ---- waiting


def test_an_offset_that_is_never_written_times_out(filled: Filled) -> None:
    filled.topic("t", 5)
    waiting = reader(filled, kafkaConsumer_pollTimeoutMs=400, kafka_fetch_max_wait_ms=100)
    began = time.monotonic()
    with pytest.raises(
        RequestTimedOut, match=r"t-0 at offset 5, in a slice up to 9.*kafkaConsumer.pollTimeoutMs"
    ):
        list(waiting.read(Slice(Range("t", 0, 0, 9))))
    assert time.monotonic() - began < 30


@pytest.mark.parametrize("fail", ["true", "false"])
def test_a_topic_deleted_since_the_plan_is_data_loss_or_reads_nothing(filled: Filled, fail: str) -> None:
    filled.topic("t", 5)
    planned = reader(filled, failOnDataLoss=fail)
    [slice_] = planned.partitions()
    filled.cluster.delete_topics(["t"])
    if fail == "false":
        assert list(planned.read(slice_)) == []
    else:
        with pytest.raises(DataLoss, match="t-0 was deleted"):
            list(planned.read(slice_))


def test_fetched_bytes_are_freed_without_the_garbage_collector(filled: Filled) -> None:
    filled.topic("t", 5)
    at = {TopicPartition("t", 0): 0}

    def calls() -> int:
        return sum(isinstance(object_, Call) for object_ in gc.get_objects())

    filled.cluster.fetch(at)
    gc.collect()
    gc.disable()
    try:
        before = calls()
        for _ in range(5):
            filled.cluster.fetch(at)
        # The objects of the first four calls were freed. The object of the last call may still be referenced.
        assert calls() <= before + 1
    finally:
        gc.enable()


# ---- in a Spark worker process


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process look like a Spark worker that has read nothing yet."""
    monkeypatch.setitem(sys.modules, "pyspark.worker", ModuleType("pyspark.worker"))
    monkeypatch.setattr(partition_reader, "_frozen_pids", set[int]())
    # A new Spark worker has called no `gc.freeze()`, but tests/conftest.py has called it in this process.
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.freeze()


@pytest.mark.usefixtures("worker")
def test_imported_objects_are_not_traversed_after_every_slice(filled: Filled) -> None:
    filled.topic("t", 5)
    imported = len(gc.get_objects())
    table(filled)
    assert len(gc.get_objects()) < imported / 10


@pytest.mark.usefixtures("worker")
def test_later_slices_freeze_no_more_objects(filled: Filled) -> None:
    filled.topic("t", 5)
    table(filled)
    frozen = gc.get_freeze_count()
    table(filled)
    assert gc.get_freeze_count() <= frozen


def test_only_spark_workers_freeze_objects(filled: Filled, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "pyspark.worker", raising=False)
    filled.topic("t", 5)
    before = gc.get_freeze_count()
    table(filled)
    assert gc.get_freeze_count() <= before  # Objects that were frozen earlier may have been freed.
