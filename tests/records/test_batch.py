"""Record batches by hand: the places of errors, and what the claims don't say."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from kproto.errors import ConfigError, EncodeError, RecordError
from kproto.records import (
    AbortedTransactions,
    BatchBuilder,
    Record,
    assign_offsets,
    batches,
    encode_batch,
    row_lists,
    rows,
)
from kproto.records.building import finish
from kproto.records.record import TABLED, encode_headers, small_varints, zigzag

NOW = 1_700_000_000_000
SAMPLE = bytes.fromhex(
    "000000000000002800000045ffffffff02ab50b5fc0000000000010000018bcfe568000000018bcfe568010000000000"
    "0000090001000000030000000216000000026b0276020268010e00020201027700"
)
TWO = [Record(40, NOW, b"k", b"v", (("h", None),)), Record(41, NOW + 1, None, b"w")]


def raw(records: bytes, count: int) -> bytes:
    """A batch with these bytes as its records."""
    return finish(
        [records],
        None,
        base_offset=0,
        last_delta=max(count - 1, 0),
        leader_epoch=-1,
        attributes=0,
        base_timestamp=NOW,
        max_timestamp=NOW,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )


def record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return zigzag(len(body)) + body


def refused(data: bytes, **asked: bool) -> RecordError:
    with pytest.raises(RecordError) as caught:
        [one.records() for one in batches(data, **asked)]
    assert caught.value.message == "RecordBatch"
    return caught.value


def test_the_table_of_varints_is_that_of_the_function() -> None:
    varints, widths = small_varints()
    assert varints == [zigzag(number) for number in range(TABLED)]
    assert widths == [len(varint) for varint in varints]


def test_known_bytes_are_read() -> None:
    (batch,) = batches(SAMPLE)
    assert batch.records() == TWO
    assert (batch.base_offset, batch.last_offset, batch.producer_id, batch.base_sequence) == (40, 41, 9, 3)
    assert (batch.compression, batch.timestamp_type, batch.count) == ("none", "CreateTime", 2)


def test_known_bytes_are_written() -> None:
    assert encode_batch(TWO, producer_id=9, producer_epoch=1, base_sequence=3) == SAMPLE


def test_bytearray_and_memoryview_are_read_like_bytes() -> None:
    assert rows(bytearray(SAMPLE)) == rows(memoryview(SAMPLE)) == TWO


def test_batches_before_a_broken_one_are_given_first() -> None:
    found = batches(SAMPLE + SAMPLE[:-1] + b"!")
    assert next(found).last_offset == 41
    with pytest.raises(RecordError):
        next(found)


def test_crc_ok_tells_without_raising() -> None:
    (good,) = batches(SAMPLE, check_crc=False)
    (bad,) = batches(SAMPLE[:-1] + b"!", check_crc=False)
    assert (good.crc_ok, bad.crc_ok) == (True, False)


@pytest.mark.parametrize(
    ("place", "value", "field", "offset"),
    [
        (8, b"\xff\xff\xff\xff", "size", 8),
        (8, b"\0\0\0\x0d", "size", 8),
        (8, b"\0\0\0\x30", "size", 8),
        (16, b"\x03", "magic", 16),
        (16, b"\x82", "magic", 16),
        (17, b"\0\0\0\0", "crc", 17),
        (61, b"!", "crc", 17),
    ],
)
def test_broken_headers_say_where(place: int, value: bytes, field: str, offset: int) -> None:
    data = SAMPLE + SAMPLE[:place] + value + SAMPLE[place + len(value) :]
    error = refused(data)
    assert (error.field, error.offset) == (field, offset + len(SAMPLE))


@pytest.mark.parametrize(
    ("place", "value", "field"),
    [
        (22, b"\x07", "attributes"),
        (23, b"\xff\xff\xff\xff", "lastOffsetDelta"),
        (57, b"\xff\xff\xff\xff", "count"),
        (57, b"\0\0\0\1", "count"),
        (57, b"\x7f\xff\xff\xff", "count"),
        (57, b"\0\0\0\3", "count"),
    ],
)
def test_wrong_values_behind_the_crc_say_where(place: int, value: bytes, field: str) -> None:
    data = SAMPLE[:place] + value + SAMPLE[place + len(value) :]
    error = refused(data, check_crc=False)
    assert (error.field, error.version) == (field, 2)


@pytest.mark.parametrize(
    ("records", "field"),
    [
        (record(b"\0\0\0", b"\3", b"\1", b"\0"), "records.key"),
        (record(b"\0\0\0", b"\1", b"\3", b"\0"), "records.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\1"), "records.headers"),
        (record(b"\0\0\0", b"\1", b"\1", b"\x7e"), "records.headers"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\1\1"), "records.headers.key"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\x40\1"), "records.headers.key"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\2h\3"), "records.headers.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\2\2h\x40"), "records.headers.value"),
        (record(b"\0\0\0", b"\1", b"\1", b"\0!"), "records.length"),
        (b"\x0f" + record(b"\0\0\0", b"\1", b"\1", b"\0")[1:], "records.length"),
        (record(b"\0", b"\xff" * 10 + b"\1", b"\0", b"\1", b"\1", b"\0"), "records.timestampDelta"),
        (record(b"\0\0", b"\xff" * 5 + b"\1", b"\1", b"\1", b"\0"), "records.offsetDelta"),
    ],
)
def test_wrong_records_say_which_field(records: bytes, field: str) -> None:
    assert refused(raw(records, 1)).field == field


def test_errors_in_compressed_records_say_so() -> None:
    data = bytearray(encode_batch(TWO, compression="gzip"))
    data[57:61] = b"\0\0\0\1"
    assert "in the decompressed records" in str(refused(bytes(data), check_crc=False))


def test_padded_varints_are_read_as_java_reads_them() -> None:
    data = raw(record(b"\0\x82\0\x80\x80\0", b"\x82\0k", b"\1", b"\x80\0"), 1)
    assert rows(data) == [Record(0, NOW + 1, b"k", None)]


def test_header_keys_that_are_not_utf8_are_read_with_a_replacement() -> None:
    data = raw(record(b"\0\0\0", b"\1", b"\1", b"\2\4\xffh\1"), 1)
    assert rows(data)[0].headers == (("\ufffdh", None),)


def test_an_emptied_batch_keeps_its_offsets() -> None:
    (batch,) = batches(encode_batch([], base_offset=7, last_offset=9, compression="gzip"))
    assert (batch.base_offset, batch.last_offset, batch.count, batch.records()) == (7, 9, 0, [])


def test_a_delete_horizon_is_the_base_of_timestamps() -> None:
    data = encode_batch(TWO, delete_horizon_ms=NOW + 5000)
    (batch,) = batches(data)
    assert batch.delete_horizon_ms == batch.base_timestamp == NOW + 5000
    assert batch.records() == TWO


def test_rows_start_at_the_offset_that_was_asked_for() -> None:
    assert rows(SAMPLE, from_offset=41) == TWO[1:]
    assert rows(SAMPLE, from_offset=42) == []


def test_lists_of_rows_have_at_most_the_size() -> None:
    data = b"".join(encode_batch([Record(base + at, NOW, None, b"") for at in range(7)]) for base in (0, 7))
    assert [len(some) for some in row_lists(data, 3)] == [3, 3, 1, 3, 3, 1]
    assert [one for some in row_lists(data, 3) for one in some] == rows(data)


def test_large_fields_are_the_same_rows_by_the_fast_way() -> None:
    data = b"".join(
        encode_batch([Record(base + at, NOW, b"k%d" % at, b"v" * 90) for at in range(150)])
        for base in range(0, 1500, 150)
    )
    slow = [one for batch in batches(data) for one in batch.records()]
    assert len(data) > 64 << 10
    assert rows(data) == slow
    assert [one for some in row_lists(data) for one in some] == slow


def test_lists_before_a_broken_batch_are_given_first() -> None:
    good = encode_batch([Record(at, NOW, None, b"v" * 500) for at in range(200)])
    found = row_lists(good + good[:-1] + b"!")
    assert len(next(found)) == 200
    with pytest.raises(RecordError):
        next(found)


def test_the_aborted_that_are_left_can_be_handed_on() -> None:
    def batch(offset: int, key: bytes, **told: Any) -> bytes:
        one = Record(offset, NOW, key, b"")
        return encode_batch([one], producer_id=1, is_transactional=True, **told)

    log = [batch(0, b"a"), batch(1, b"\0\0\0\0", is_control=True), batch(2, b"b"), batch(3, b"c")]
    skipped = AbortedTransactions([(1, 0), (1, 3)])
    assert skipped.skips(next(batches(log[0])))
    assert not skipped.skips(next(batches(log[1])))
    assert skipped.pairs == [(1, 3)]
    assert [one.key for one in rows(b"".join(log[2:]), aborted=skipped.pairs)] == [b"b"]


def test_produced_batches_get_the_offsets_of_the_log() -> None:
    produced = encode_batch([Record(0, NOW, None, b"a"), Record(1, NOW, None, b"b")])
    stored = assign_offsets(produced + produced, 100, 7)
    assert [one.offset for one in rows(stored)] == [100, 101, 102, 103]
    assert {one.partition_leader_epoch for one in batches(stored)} == {7}


def test_a_magic_that_does_not_exist_is_told_even_in_a_cut_batch() -> None:
    damaged = SAMPLE[:16] + b"\x03" + SAMPLE[17:-1]
    with pytest.raises(RecordError, match="magic 3") as caught:
        list(batches(SAMPLE + damaged))
    assert caught.value.offset == len(SAMPLE) + 16
    assert len(list(batches(SAMPLE + damaged[:16]))) == 1


def test_the_broker_may_set_the_time() -> None:
    stored = assign_offsets(encode_batch(TWO, base_offset=40), 0, 0, log_append_time=NOW + 9)
    assert [one.timestamp for one in rows(stored)] == [NOW + 9, NOW + 9]
    assert next(batches(stored)).timestamp_type == "LogAppendTime"


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
def test_what_a_log_must_not_store_is_refused(data: bytes) -> None:
    with pytest.raises(RecordError):
        assign_offsets(data, 0, 0)


def test_a_builder_is_full_at_its_bytes_but_takes_a_first_record() -> None:
    builder = BatchBuilder(max_bytes=200)
    assert builder.append(NOW, None, b"v" * 500)
    assert not builder.append(NOW, None, b"")
    builder.clear()
    taken = 0
    while builder.append(NOW + taken, b"key", b"value", [("h", b"x")]):
        taken += 1
    assert len(builder) == taken
    assert builder.size == len(builder.build()) <= 200


def test_a_builder_builds_what_encode_batch_does() -> None:
    found = [
        Record(at, NOW + (at - 5) * 9000, None if at % 2 else b"k" * 70, b"v" * at * 99) for at in range(200)
    ]
    builder = BatchBuilder(max_bytes=1 << 30)
    for one in found:
        builder.append(one.timestamp, one.key, one.value, one.headers)
    assert builder.build(producer_id=5, producer_epoch=0, base_sequence=1) == encode_batch(
        found, producer_id=5, producer_epoch=0, base_sequence=1
    )


def test_an_offset_too_far_from_the_first_is_refused() -> None:
    with pytest.raises(EncodeError, match="too far"):
        encode_batch([Record(0, NOW, None, None), Record(1 << 31, NOW, None, None)])


def test_a_last_offset_below_the_first_is_refused() -> None:
    with pytest.raises(EncodeError, match="below"):
        encode_batch([], base_offset=5, last_offset=4)


def test_a_header_value_that_does_not_fit_is_refused() -> None:
    with pytest.raises(EncodeError):
        encode_batch([Record(0, NOW, None, None)], producer_epoch=1 << 15)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ConfigError):
        encode_batch([], compression="lzo")
    with pytest.raises(EncodeError):
        encode_batch([], timestamp_type="NoTimestampType")


def test_headers_are_encoded_in_order_with_repetitions() -> None:
    assert encode_headers([("a", b"1"), ("a", None)]) == b"\4\2a\2" + b"1" + b"\2a\1"


def test_rows_work_without_any_extra() -> None:
    script = """
import sys
from typing import Any
for name in ("numpy", "pyarrow", "cramjam", "zstandard"):
    sys.modules[name] = None
from kproto.errors import MissingExtra
from kproto.records import Record, encode_batch, row_lists, rows
many = [Record(at, 0, None, b"v" * 900) for at in range(200)]
assert rows(encode_batch(many)) == many == [one for some in row_lists(encode_batch(many)) for one in some]
assert rows(encode_batch(many, compression="gzip")) == many
for call in (lambda: encode_batch(many, compression="zstd"), lambda: __import__("kproto.records.columns")):
    try:
        call()
    except MissingExtra as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install 'kproto[compression]'" in done.stdout
    assert "pip install 'kproto[columns]'" in done.stdout
