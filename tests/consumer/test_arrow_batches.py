"""Columns to a producer: each row arrives as if it had been sent alone."""

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
        found: list[Any] = []
        while len(found) < count:
            found += consumer.poll(5)
    return sorted(found, key=lambda record: (record.partition, record.offset))


@given(st.lists(st.binary(max_size=20)), st.integers(0, 3))
def test_hashes_of_a_column_are_those_of_its_keys(keys: list[bytes], skipped: int) -> None:
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


def test_rows_of_a_table_arrive_as_those_that_are_sent_one_by_one(broker: str) -> None:
    columns = table(3000)
    with Producer(broker, batch_size=5000) as producer:
        pieces = producer.send_columns("t", pa.table(columns))
        rows = list(zip(*(columns[name].to_pylist() for name in columns), strict=True))
        for key, value, timestamp, partition, headers in rows:
            pairs = [(one["key"], one["value"]) for one in headers or ()]
            encoded = None if value is None else value.encode()
            producer.send("r", encoded, key, partition=partition, timestamp=timestamp, headers=pairs)
    assert len(pieces) > 10
    assert sorted(int(row) for piece in pieces for row in piece.rows) == list(range(3000))
    assert all(piece.result().offset is not None for piece in pieces)
    ours, theirs = read(broker, "t", 3000), read(broker, "r", 3000)

    def shown(record: Any, *, placed: bool) -> tuple[Any, ...]:
        where = record.partition if placed else -1
        return where, record.timestamp, record.key, record.value, tuple(record.headers)

    def free(record: Any) -> bool:
        return record.key is None and (record.timestamp - 1_700_000_000_000) % 11 != 0

    assert [shown(our, placed=True) for our in ours if not free(our)] == [
        shown(their, placed=True) for their in theirs if not free(their)
    ]
    loose = [sorted(shown(one, placed=False)[1:2] for one in some if free(one)) for some in (ours, theirs)]
    assert loose[0] == loose[1]


def test_a_delivery_of_rows_says_where_the_first_one_is(broker: str) -> None:
    with Producer(broker) as producer:
        producer.send("t", b"before", partition=1)
        [piece] = producer.send_columns("t", {"value": [b"a", b"b"], "partition": [1, 1]})
        producer.send("t", b"behind", partition=1)
        assert (len(piece), piece.result(5).partition, piece.result(5).offset) == (2, 1, 1)
    assert [record.value for record in read(broker, "t", 4)] == [b"before", b"a", b"b", b"behind"]


def test_asyncio_sends_columns_too(broker: str) -> None:
    async def main() -> int:
        async with AsyncProducer(broker, buffer_memory=30_000, batch_size=2_000) as producer:
            pieces = await producer.send_columns("t", {"value": [b"x" * 100] * 2000})
            return sum([len(piece) for piece in pieces if (await piece).offset is not None])

    assert asyncio.run(main()) == 2000


WRONG: list[tuple[Any, str]] = [
    (5, "a pyarrow RecordBatch or Table"),
    ({"value": [b"x"], "valeu": [b"y"]}, "the columns key, value, headers, .*; drop valeu"),
    ({"key": [b"x"]}, "the columns key"),
    ({"value": [b"x"], "key": [b"x", b"y"]}, "columns of one length"),
    ({"value": [1]}, "column value='int64' is not allowed; a column of binary or string"),
    ({"value": [b"x"], "timestamp": [1.5]}, "column timestamp='double'"),
    ({"value": [b"x"], "timestamp": [-5]}, "column timestamp=-5"),
    ({"value": [b"x"], "partition": [-1]}, "column partition=-1"),
    ({"value": [b"x"], "partition": ["0"]}, "column partition='string'"),
    (
        {"value": [b"x"], "timestamp": pa.array([2**63], pa.uint64())},
        "column timestamp='uint64' .*int64 holds",
    ),
    ({"value": [b"x"], "timestamp": pa.array([2**62], pa.timestamp("s"))}, "column timestamp='timestamp"),
    (
        {"value": [b"x"], "partition": pa.array([2**63], pa.uint64())},
        "column partition='uint64' .*int64 holds",
    ),
    ({"value": [b"x"], "headers": [b"x"]}, "column headers='binary'"),
]


@pytest.mark.parametrize(("wrong", "told"), WRONG)
def test_columns_that_are_no_records_are_refused(broker: str, wrong: Any, told: str) -> None:
    with Producer(broker) as producer:
        with pytest.raises(ConfigError, match=told):
            producer.send_columns("t", wrong)
        assert producer.send_columns("t", {"value": pa.array([], pa.binary())}) == []


def test_a_partition_that_the_topic_has_not_is_told(broker: str) -> None:
    with Producer(broker) as producer, pytest.raises(UnknownTopic, match="t-9"):
        producer.send_columns("t", {"value": [b"x"], "partition": [9]})
