"""Columns that a producer sends: each row is delivered as if it had been sent by a separate `send`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer import AsyncProducer, Consumer, Producer, TopicPartition
from consumer.engine.producer.partitioner import murmur2
from kproto.broker.server import running
from kproto.errors import ConfigError, UnknownTopic

pytest.importorskip("pyarrow")

import pyarrow as pa

from consumer import arrow_batches

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def broker() -> Iterator[str]:
    with running(topics={"t": 3, "r": 3}) as server:
        yield server.bootstrap


def read(broker: str, topic: str, count: int) -> list[Any]:
    with Consumer(broker, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(3)])
        received: list[Any] = []
        while len(received) < count:
            received += consumer.poll(5)
    return sorted(received, key=lambda record: (record.partition, record.offset))


@given(st.lists(st.binary(max_size=20)), st.integers(0, 3))
def test_the_hashes_of_a_column_are_those_of_its_keys(keys: list[bytes], skipped: int) -> None:
    column = pa.array([b"x"] * skipped + keys, pa.binary()).slice(skipped)
    assert arrow_batches.murmur2(column).tolist() == [murmur2(key) & 0x7FFFFFFF for key in keys]


def table(count: int) -> dict[str, Any]:
    return {
        "key": pa.array([None if row % 5 == 0 else b"k%d" % (row % 50) for row in range(count)], pa.binary()),
        "value": pa.array([None if row % 7 == 0 else f"v{row}" for row in range(count)]),
        "timestamp": pa.array([1_700_000_000_000 + row for row in range(count)]),
        "partition": pa.array([row % 3 if row % 11 == 0 else None for row in range(count)], pa.int32()),
        "headers": pa.array(
            [[("a", b"b"), ("n", None)] if row % 13 == 0 else None for row in range(count)], HEADERS
        ),
    }


def test_rows_of_a_table_are_delivered_like_single_records(broker: str) -> None:
    columns = table(3000)
    with Producer(broker, batch_size=5000) as producer:
        deliveries = producer.send_columns("t", pa.table(columns))
        rows = list(zip(*(columns[name].to_pylist() for name in columns), strict=True))
        for key, value, timestamp, partition, headers in rows:
            pairs = [(header["key"], header["value"]) for header in headers or ()]
            encoded = None if value is None else value.encode()
            producer.send("r", encoded, key, partition=partition, timestamp=timestamp, headers=pairs)
    assert len(deliveries) > 10
    assert sorted(int(row) for delivery in deliveries for row in delivery.rows) == list(range(3000))
    assert all(delivery.result().offset is not None for delivery in deliveries)
    from_columns, from_rows = read(broker, "t", 3000), read(broker, "r", 3000)

    def fields(record: Any, *, placed: bool) -> tuple[Any, ...]:
        partition = record.partition if placed else -1
        return partition, record.timestamp, record.key, record.value, tuple(record.headers)

    def is_unassigned(record: Any) -> bool:
        return record.key is None and (record.timestamp - 1_700_000_000_000) % 11 != 0

    assert [fields(our, placed=True) for our in from_columns if not is_unassigned(our)] == [
        fields(their, placed=True) for their in from_rows if not is_unassigned(their)
    ]
    without_partition = [
        sorted(fields(header, placed=False)[1:2] for header in records if is_unassigned(header))
        for records in (from_columns, from_rows)
    ]
    assert without_partition[0] == without_partition[1]


def test_the_delivery_of_several_rows_has_the_offset_of_the_first(broker: str) -> None:
    with Producer(broker) as producer:
        producer.send("t", b"before", partition=1)
        [delivery] = producer.send_columns("t", {"value": [b"a", b"b"], "partition": [1, 1]})
        producer.send("t", b"behind", partition=1)
        assert (len(delivery), delivery.result(5).partition, delivery.result(5).offset) == (2, 1, 1)
    assert [record.value for record in read(broker, "t", 4)] == [b"before", b"a", b"b", b"behind"]


def test_asyncio_producers_send_columns_as_well(broker: str) -> None:
    async def main() -> int:
        async with AsyncProducer(broker, buffer_memory=30_000, batch_size=2_000) as producer:
            deliveries = await producer.send_columns("t", {"value": [b"x" * 100] * 2000})
            return sum([len(delivery) for delivery in deliveries if (await delivery).offset is not None])

    assert asyncio.run(main()) == 2000


def test_columns_of_polars_are_sent(broker: str) -> None:
    """The columns may be views, or lists with 64-bit offsets. Polars exports such columns."""
    headers = pa.large_list(pa.struct([("key", pa.string_view()), ("value", pa.binary_view())]))
    columns = {
        "key": pa.array(["ä" * 20, None], pa.string_view()),
        "value": pa.array([b"a", b"b" * 20], pa.binary_view()),
        "headers": pa.array([[{"key": "h", "value": b"1"}], None], headers),
        "partition": [0, 0],
    }
    with Producer(broker) as producer:
        producer.send_columns("t", pa.table(columns))
    received = [(record.key, record.value, list(record.headers)) for record in read(broker, "t", 2)]
    assert received == [("ä".encode() * 20, b"a", [("h", b"1")]), (None, b"b" * 20, [])]


def test_categories_of_polars_are_sent(broker: str) -> None:
    """A column may be a dictionary of views. Polars exports a column of categories in this way."""
    categories = pa.array(["AA", "ä" * 20], pa.string_view())
    keys = pa.DictionaryArray.from_arrays(pa.array([1, None, 0], pa.uint32()), categories)
    with Producer(broker) as producer:
        producer.send_columns(
            "t", pa.table({"key": keys, "value": [b"a", b"b", b"c"], "partition": [0, 0, 0]})
        )
    assert [record.key for record in read(broker, "t", 3)] == ["ä".encode() * 20, None, b"AA"]


def test_views_are_sent_with_a_pyarrow_that_cannot_cast_them() -> None:
    class Column:  # As pyarrow 16 behaves.
        type = pa.string_view()

        def cast(self, column_type: Any) -> Any:
            raise pa.ArrowNotImplementedError(f"Unsupported cast from string_view to {column_type}")

        def to_pylist(self) -> list[str | None]:
            return ["ä", None]

    assert arrow_batches._binary_column("key", Column()).to_pylist() == ["ä".encode(), None]


def test_the_fields_of_headers_may_be_in_any_order(broker: str) -> None:
    headers = [[{"value": b"1", "key": "h"}]]
    with Producer(broker) as producer:
        producer.send_columns("t", {"value": [b"a"], "headers": headers})
    assert [list(record.headers) for record in read(broker, "t", 1)] == [[("h", b"1")]]


INVALID: list[tuple[Any, str]] = [
    (5, "a pyarrow RecordBatch or Table"),
    ({"value": [b"x"], "valeu": [b"y"]}, "the columns key, value, headers, .*; drop valeu"),
    ({"key": [b"x"]}, "the columns key"),
    ({"value": [b"x"], "key": [b"x", b"y"]}, "columns of the same length"),
    ({"value": [1]}, "column value='int64' is not allowed; a column of type binary or string"),
    ({"value": [b"x"], "timestamp": [1.5]}, "column timestamp='double'"),
    ({"value": [b"x"], "timestamp": [-5]}, "column timestamp=-5"),
    ({"value": [b"x"] * 2, "partition": [0, -1]}, "column partition=-1"),
    ({"value": [b"x"] * 3, "partition": [0, None, 2**31]}, "column partition=2147483648"),
    ({"value": [b"x"], "partition": ["0"]}, "column partition='string'"),
    (
        {"value": [b"x"], "timestamp": pa.array([2**63], pa.uint64())},
        "column timestamp='uint64' .*fit into int64",
    ),
    ({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s"))}, "column timestamp='timestamp"),
    (
        {"value": [b"x"], "partition": pa.array([2**63], pa.uint64())},
        "column partition='uint64' .*fit into int64",
    ),
    ({"value": [b"x"], "headers": [b"x"]}, "column headers='binary'"),
]


@pytest.mark.parametrize(("columns", "message"), INVALID)
def test_invalid_columns_are_rejected(broker: str, columns: Any, message: str) -> None:
    with Producer(broker) as producer:
        with pytest.raises(ConfigError, match=message):
            producer.send_columns("t", columns)
        assert producer.send_columns("t", {"value": pa.array([], pa.binary())}) == []


def test_an_unknown_partition_raises(broker: str) -> None:
    with Producer(broker) as producer, pytest.raises(UnknownTopic, match="t-9"):
        producer.send_columns("t", {"value": [b"x"], "partition": [9]})
