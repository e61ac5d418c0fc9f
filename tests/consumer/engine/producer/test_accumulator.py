"""What a producer keeps of records until their batch is made, and what it makes of that."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from threading import RLock
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer.engine.producer.accumulator import RecordAccumulator
from consumer.engine.producer.batches import ProducerBatch
from consumer.options import producer_options
from kproto.records.list_encoder import unnumbered

Row = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
# Not one of them is the same object, as of a clock that is looked at again and again.
MOMENTS = [10**12 + ms for ms in (0, 0, 0, 1, 2, 500, 3)]

ROWS = st.tuples(
    st.sampled_from(MOMENTS),
    st.sampled_from([None] * 5 + [b"k"]),
    st.sampled_from([b"v", b"w", b"longer"] * 3 + [None]),
    st.sampled_from([()] * 5 + [(("h", b"x"),)]),
)


def accumulator(**config: Any) -> RecordAccumulator:
    made = RecordAccumulator(producer_options({**config}), Random(1), lambda: 0, RLock())
    made.route("t", 1, [0])
    return made


def put(records: RecordAccumulator, row: Row) -> ProducerBatch:
    timestamp, key, value, headers = row
    delivery = records.take("t", key, value, None, timestamp, headers)
    assert delivery is not None
    assert delivery._index == delivery._batch.count - 1
    return delivery._batch


def is_of(batch: ProducerBatch, rows: list[Row]) -> bool:
    """Is the batch that of these rows?"""
    batch.encode("none", None)
    timestamps, keys, values, headers = map(list, zip(*rows, strict=True))
    return (list(batch.timestamps), batch.data) == (
        timestamps,
        unnumbered(timestamps, keys, values, headers).numbered(-1, -1, -1),
    )


@given(st.lists(ROWS, min_size=1, max_size=300))
def test_a_batch_has_what_was_put_into_it_whatever_was_kept_of_it(rows: list[Row]) -> None:
    records = accumulator()
    (batch,) = {put(records, row) for row in rows}
    assert is_of(batch, rows)


@pytest.mark.parametrize("last", [(), (("h", b"x"),)])
def test_many_values_and_few_moments_are_kept_as_they_are(last: Any) -> None:
    """Also at the moment in which one comes that has more."""
    records = accumulator()
    rows: list[Row] = [(MOMENTS[0], None, b"%d" % number, ()) for number in range(1000)]
    rows += [(MOMENTS[-1], None, b"1000", last)]
    (batch,) = {put(records, row) for row in rows}
    assert len(batch.rows) == (4 * len(rows) if last else len(rows))
    assert is_of(batch, rows)


def test_moments_of_their_own_are_kept_with_the_records() -> None:
    records = accumulator()
    rows: list[Row] = [(10**12 + number, None, b"x", ()) for number in range(100)]
    (batch,) = {put(records, row) for row in rows}
    assert batch.shared_timestamp is None
    assert len(batch.timestamp_runs) < 20
    assert is_of(batch, rows)


class Trash:
    """Sends when it is collected: in the middle of whatever makes an object."""

    def __init__(self, send: Any) -> None:
        self.me, self.send = self, send

    def __del__(self) -> None:
        self.send()


@contextmanager
def collecting_often(objects: int) -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(objects)
    try:
        yield
    finally:
        gc.set_threshold(*before)


@pytest.mark.parametrize("seed", range(20))
def test_finalizers_may_send_in_the_middle_of_a_send(seed: int) -> None:
    dice = Random(seed)
    records = accumulator()
    sent: dict[tuple[ProducerBatch, int], Row] = {}

    def send(kinds: tuple[int, ...] = (0, 0, 0, 1)) -> None:
        key = (None, b"k")[dice.choice(kinds)]
        row = 10**12 + dice.randrange(3), key, b"%d" % dice.randrange(1000), ()
        delivery = records.take("t", row[1], row[2], None, row[0], row[3])
        assert delivery is not None
        sent[delivery._batch, delivery._index] = row

    with collecting_often(seed % 10 + 1):
        for _ in range(400):
            for _ in range(dice.randrange(4)):
                Trash(send)
            send()
    gc.collect()
    (batch,) = {batch for batch, _ in sent}
    assert len(sent) == batch.count > 600
    rows = [sent[batch, index] for index in range(batch.count)]
    batch.encode("none", None)
    found = [(record.key, record.value) for record in read(batch)]
    assert found == [(key, value) for _, key, value, _ in rows]


class Interrupted(list[tuple[int, int]]):
    """Moments, and somebody sends just before one of them is noted."""

    def __init__(self, before: list[tuple[int, int]], send: Any) -> None:
        super().__init__(before)
        self.send = send

    def append(self, moment: tuple[int, int]) -> None:
        send, self.send = self.send, None
        if send is not None:
            send()
        super().append(moment)


def test_who_interrupts_a_new_moment_may_begin_others() -> None:
    records = accumulator()
    first, second, third, fourth = (10**12 + ms for ms in range(4))
    batch = put(records, (first, None, b"1", ()))

    def send() -> None:
        for moment, value in ((third, b"2"), (fourth, b"3"), (fourth, b"4")):
            put(records, (moment, None, value, ()))

    batch.timestamp_runs = Interrupted(batch.timestamp_runs, send)
    put(records, (second, None, b"5", ()))
    batch.encode("none", None)
    assert [record.value for record in read(batch)] == [b"1", b"2", b"3", b"4", b"5"]
    assert {record.timestamp for record in read(batch)} <= {first, second, third, fourth}


def read(batch: ProducerBatch) -> list[Any]:
    from kproto.records import rows

    assert batch.data is not None
    return rows(batch.data)
