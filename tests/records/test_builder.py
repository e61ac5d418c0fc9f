"""`BatchBuilder` builds the same batches as `encode_batch`; `assign_offsets` rejects batches with faults."""

from __future__ import annotations

import pickle
import tracemalloc
from typing import Any

import pytest

from kproto.errors import BatchFull, ConfigError, EncodeError, RecordError
from kproto.records import BatchBuilder, Record, assign_offsets, batches, encode_batch, rows
from kproto.records.builder import renumber
from tests.records.raw_batches import NOW, SAMPLE, TWO


def test_known_bytes_are_written() -> None:
    assert encode_batch(TWO, producer_id=9, producer_epoch=1, base_sequence=3) == SAMPLE


def test_produced_batches_get_the_offsets_of_the_log() -> None:
    produced = encode_batch([Record(0, NOW, None, b"a"), Record(1, NOW, None, b"b")])
    stored = assign_offsets(produced + produced, 100, 7)
    assert [batch.offset for batch in rows(stored)] == [100, 101, 102, 103]
    assert {batch.partition_leader_epoch for batch in batches(stored)} == {7}


def test_the_broker_may_set_the_time() -> None:
    stored = assign_offsets(encode_batch(TWO, base_offset=40), 0, 0, log_append_time=NOW + 9)
    assert [row.timestamp for row in rows(stored)] == [NOW + 9, NOW + 9]
    assert next(batches(stored)).timestamp_type == "LogAppendTime"


@pytest.mark.parametrize("moment", [None, NOW])
def test_a_large_batch_is_copied_once_for_the_log(moment: int | None) -> None:
    data = encode_batch([Record(0, NOW, None, bytes(1 << 20))])
    # The first call imports the checksum package, whose memory must not be counted.
    assign_offsets(data, 0, 0)
    tracemalloc.start()
    try:
        assign_offsets(data, 0, 0, log_append_time=moment)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.1 * len(data)


@pytest.mark.parametrize(
    "data",
    [
        SAMPLE[:-1],
        SAMPLE + b"x",
        SAMPLE[:-1] + b"!",
        encode_batch([Record(0, NOW, None, b""), Record(2, NOW, None, b"")]),
        encode_batch([], base_offset=0, last_offset=0),
    ],
    ids=["cut", "rest", "crc", "gap", "empty"],
)
def test_batches_that_a_log_must_not_store_are_rejected(data: bytes) -> None:
    with pytest.raises(RecordError):
        assign_offsets(data, 0, 0)


@pytest.mark.parametrize(
    ("base_offset", "leader_epoch", "moment", "field"),
    [
        (1 << 63, 0, None, "baseOffset"),
        ((1 << 63) - 1, 0, None, "baseOffset"),
        (0, 1 << 31, None, "partitionLeaderEpoch"),
        (0, 0, 1 << 63, "maxTimestamp"),
    ],
)
def test_numbers_that_a_log_cannot_store_are_rejected(
    base_offset: int, leader_epoch: int, moment: int | None, field: str
) -> None:
    with pytest.raises(EncodeError, match=field):
        assign_offsets(SAMPLE, base_offset, leader_epoch, log_append_time=moment)


def test_a_builder_without_a_limit_accepts_every_record() -> None:
    builder = BatchBuilder()
    for number in range(5000):
        builder.append(NOW, b"%d" % number, b"departed")
    assert [row.key for row in rows(builder.build())] == [b"%d" % number for number in range(5000)]


def test_a_builder_is_full_at_max_bytes_but_accepts_a_first_record() -> None:
    builder = BatchBuilder(max_bytes=200)
    builder.append(NOW, None, b"v" * 500)
    with pytest.raises(BatchFull):
        builder.append(NOW, None, b"")
    builder.clear()
    for number in range(9):
        builder.append(NOW + number, b"key", b"value")
    with pytest.raises(BatchFull, match="max_bytes is 200; build it and clear") as full:
        builder.append(NOW, b"key", b"value", [("h", b"x")])
    assert full.value.count == len(builder) == 9
    assert builder.size == len(builder.build()) <= 200 < full.value.size


def test_a_batch_may_have_exactly_max_bytes() -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"v")
    record_size = builder.size - 61
    while builder.size + record_size <= 1000:
        builder.append(NOW, None, b"v")
    exact = BatchBuilder(max_bytes=builder.size)
    for _ in range(len(builder)):
        exact.append(NOW, None, b"v")
    with pytest.raises(BatchFull):
        exact.append(NOW, None, b"v")


def test_batch_full_survives_pickling() -> None:
    full = pickle.loads(pickle.dumps(BatchFull(300, 200, 7)))
    assert (full.size, full.max_bytes, full.count) == (300, 200, 7)


def test_a_builder_builds_what_encode_batch_does() -> None:
    records = [
        Record(at, NOW + (at - 5) * 9000, None if at % 2 else b"k" * 70, b"v" * at * 99) for at in range(200)
    ]
    builder = BatchBuilder(max_bytes=1 << 30)
    for record in records:
        builder.append(record.timestamp, record.key, record.value, record.headers)
    assert builder.build(producer_id=5, producer_epoch=0, base_sequence=1) == encode_batch(
        records, producer_id=5, producer_epoch=0, base_sequence=1
    )


def test_an_offset_too_far_from_the_first_is_rejected() -> None:
    with pytest.raises(EncodeError, match="too far"):
        encode_batch([Record(0, NOW, None, None), Record(1 << 31, NOW, None, None)])


@pytest.mark.parametrize("offset", [9, 5])
def test_offsets_that_are_not_ascending_are_rejected(offset: int) -> None:
    with pytest.raises(EncodeError, match=f"{offset} comes after 9; offsets must be ascending"):
        encode_batch([Record(9, NOW, None, None), Record(offset, NOW, None, None)])


def test_a_last_offset_below_the_first_is_rejected() -> None:
    with pytest.raises(EncodeError, match="below"):
        encode_batch([], base_offset=5, last_offset=4)


def test_a_header_field_that_does_not_fit_is_rejected_by_name() -> None:
    with pytest.raises(EncodeError, match="producerEpoch: 32768 is not a value of int16"):
        encode_batch([Record(0, NOW, None, None)], producer_epoch=1 << 15)
    with pytest.raises(EncodeError, match="maxTimestamp: 9223372036854775808 is not a value of int64"):
        encode_batch([Record(0, NOW, None, None), Record(1, 1 << 63, None, None)])


UNFIT: list[tuple[tuple[Any, ...], str]] = [
    ((NOW, "k", b"v"), r"records\[1\].key: 'k' is not bytes"),
    ((NOW, b"k", "v"), r"records\[1\].value: 'v' is not bytes"),
    ((NOW, b"k", "v" * 70_000), r"records\[1\].value: 'vvv.* is not bytes"),
    ((NOW - 1, None, "v"), r"records\[1\].value: 'v' is not bytes"),
    ((NOW, None, 5), r"records\[1\].value: 5 is not bytes"),
    ((None, b"k", b"v"), r"records\[1\].timestamp: None is not a value of int64"),
    ((1.5, b"k", b"v"), r"records\[1\].timestamp: 1.5 is not a value of int64"),
    ((NOW, b"k", b"v", {"h": b""}), r"records\[1\].headers: .* is not a list of pairs"),
    ((NOW, b"k", b"v", ["h1"]), r"records\[1\].headers\[0\]: 'h1' is not a pair"),
    ((NOW, b"k", b"v", [("h", b""), ("h", "x")]), r"records\[1\].headers\[1\].value: 'x' is not bytes"),
    ((NOW, b"k", b"v", [(b"h", b"")]), r"records\[1\].headers\[0\].key: b'h' is not a str"),
    ((NOW, b"k", b"v", [("\ud800", b"")]), r"records\[1\].headers\[0\].key: .* UTF-8"),
]


@pytest.mark.parametrize(("unfit", "message"), UNFIT, ids=[message[13:45] for _, message in UNFIT])
def test_invalid_values_are_rejected_with_their_place_and_not_appended(
    unfit: tuple[Any, ...], message: str
) -> None:
    builder = BatchBuilder()
    builder.append(NOW, None, b"a", [("h", b"")])
    with pytest.raises(EncodeError, match=message):
        builder.append(*unfit)
    builder.append(NOW, None, b"b")
    assert [row.value for row in rows(builder.build())] == [b"a", b"b"]
    with pytest.raises(EncodeError, match=message):
        encode_batch([Record(0, NOW, None, b"a"), Record(1, *unfit)])


def test_unknown_options_are_rejected() -> None:
    with pytest.raises(ConfigError):
        encode_batch([], compression="lzo")
    with pytest.raises(EncodeError):
        encode_batch([], timestamp_type="NoTimestampType")


@pytest.mark.parametrize(
    ("numbers", "field"),
    [((1 << 63, 0, 0), "producerId"), ((0, 1 << 15, 0), "producerEpoch"), ((0, 0, 1 << 31), "baseSequence")],
)
def test_renumber_rejects_numbers_that_do_not_fit_by_name(numbers: tuple[int, int, int], field: str) -> None:
    data = encode_batch([Record(0, 0, None, b"v")])
    with pytest.raises(EncodeError, match=field):
        renumber(data, *numbers)
    (batch,) = batches(renumber(data, *(number - 1 for number in numbers)))
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == tuple(n - 1 for n in numbers)


@pytest.mark.parametrize("transactional", [True, False])
def test_renumber_makes_a_batch_transactional_and_keeps_a_transactional_one(transactional: bool) -> None:
    for was in (True, False):
        data = encode_batch([Record(0, 0, None, b"v")], producer_id=1, is_transactional=was)
        (batch,) = batches(renumber(data, 7, 8, 9, is_transactional=transactional))
        assert batch.is_transactional is (was or transactional)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 8, 9)
        assert batch.crc_ok
