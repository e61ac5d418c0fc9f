"""`Columns` decode regular records with numpy. tests/records/claims.py compares columns with rows."""

from __future__ import annotations

from typing import Any

import pytest

from kproto.errors import ConfigError, IllegalState, RecordError
from kproto.records import Record, encode_batch, row_lists, rows
from kproto.records.legacy import encode_messages

pytest.importorskip("pyarrow")
pytest.importorskip("cramjam")

from kproto.records import column_decoder
from kproto.records import columns as module
from kproto.records.columns import Columns, FetchedPart, columns, columns_of

NOW = 1_700_000_000_000
HEADERS = (("h", b"1"), ("ü", None), ("h", b""))


def some(start: int, count: int, **header: Any) -> bytes:
    headers = header.pop("headers", ())
    keys = [b"key", None, None]
    records = [Record(start + at, NOW + at, keys[at % 3], b"v" * (at % 70), headers) for at in range(count)]
    return encode_batch(records, **header)


@pytest.fixture
def only_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Columns:
        raise AssertionError("read row by row")

    monkeypatch.setattr(module, "_read_rows", refuse)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("count", [150, 9000])
@pytest.mark.usefixtures("only_fast")
def test_regular_records_are_decoded_by_numpy(codec: str, count: int) -> None:
    data = some(0, count, compression=codec) + some(count, 200, compression=codec, headers=HEADERS)
    decoded = columns(data)
    assert decoded.rows() == rows(data)
    assert len(decoded) == count + 200


@pytest.mark.usefixtures("only_fast")
def test_many_small_batches_are_decoded_by_numpy() -> None:
    data = b"".join(some(start, 5) for start in range(0, 2000, 5))
    assert columns(data).offset.tolist() == list(range(2000))


@pytest.mark.usefixtures("only_fast")
def test_records_far_apart_in_time_are_decoded_by_numpy() -> None:
    records = [Record(at, NOW + at * 86_400_000, b"day", b"v") for at in range(400)]
    assert columns(encode_batch(records)).rows() == records


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize("size", [0, 8000, 8190, 1 << 20])
@pytest.mark.parametrize("bits", [13, 20, 27, 34])
def test_timestamps_and_values_of_all_widths_are_decoded_by_numpy(size: int, bits: int) -> None:
    edges = [side * (1 << bits) + by for side in (-1, 1) for by in (-1, 0, 1)]
    many = [Record(at, NOW + edges[at % 6], b"k", b"v" * (at % 90), ()) for at in range(1, 200)]
    rare = [Record(200 + at, NOW + edge, None, bytes(size), ()) for at, edge in enumerate(edges)]
    records = [Record(0, NOW, None, None, ()), *many, *rare]
    assert columns(encode_batch(records)).rows() == records


def test_records_with_lengths_of_three_bytes_are_decoded_by_numpy() -> None:
    records = [Record(at, NOW, b"k", bytes(20000 if at % 7 == 0 else 9)) for at in range(300)]
    assert columns(encode_batch(records)).rows() == records


@pytest.mark.usefixtures("only_fast")
def test_the_smallest_record_may_be_the_last() -> None:
    data = encode_batch([Record(at, NOW, None, None) for at in range(64)])
    assert len(columns(data * 4)) == 256


def test_old_and_new_magics_may_be_mixed() -> None:
    old = [Record(at, NOW, None, b"o") for at in range(100)]
    data = encode_messages(old, 1, compression="gzip") + encode_messages(old[:9], 0) + some(200, 100)
    decoded = columns(data)
    assert decoded.rows() == rows(data)
    assert decoded.timestamp_type.tolist() == [0] * 100 + [-1] * 9 + [0] * 100


def test_timestamp_types_are_kafkas_numbers() -> None:
    data = some(0, 100) + some(100, 100, timestamp_type="LogAppendTime", max_timestamp=NOW + 5)
    decoded = columns(data)
    assert decoded.timestamp_type.tolist() == [0] * 100 + [1] * 100
    assert set(decoded.timestamp[100:].tolist()) == {NOW + 5}


@pytest.mark.parametrize("few", [0, 10**9], ids=["fast", "slow"])
def test_counts_tell_the_part_of_each_row(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MIN_NUMPY_RECORDS", few)
    aborted = some(0, 20, producer_id=3, is_transactional=True)
    parts = [
        FetchedPart(some(0, 100) + some(100, 100, compression="zstd"), from_offset=150),
        FetchedPart(b""),
        FetchedPart(aborted + some(20, 60, headers=HEADERS), aborted=[(3, 0)]),
        FetchedPart(encode_messages([Record(4, NOW, None, b"m")], 1)),
    ]
    decoded = columns_of(parts)
    assert decoded.counts == [50, 0, 60, 1]
    for index, part in enumerate(parts):
        wanted = rows(part.data, aborted=part.aborted, from_offset=part.from_offset)
        assert decoded.part(index).rows() == wanted
        assert decoded.part(index).counts == [len(wanted)]


def test_empty_data_has_no_rows() -> None:
    decoded = columns(b"")
    assert (len(decoded), decoded.rows(), decoded.headers, decoded.key.to_pylist()) == (0, [], [], [])
    assert columns_of([]).counts == []


def test_headers_are_an_arrow_list_on_demand() -> None:
    decoded = columns(some(0, 200) + some(200, 2, headers=HEADERS))
    listed = decoded.headers_array()
    assert str(listed.type) == "list<item: struct<key: string, value: binary>>"
    assert listed[0].as_py() == []
    assert listed[200].as_py() == [{"key": key, "value": value} for key, value in HEADERS]


def test_has_headers_is_false_if_no_row_has_headers() -> None:
    assert not columns(some(0, 200)).has_headers
    assert not columns(some(0, 2)).has_headers
    assert columns(some(0, 200, headers=HEADERS)).has_headers


def test_slices_are_slices_of_every_column() -> None:
    decoded = columns(some(0, 300, headers=HEADERS))
    assert decoded.slice(10, 20).rows() == decoded.rows()[10:20]
    assert decoded.slice(290, 999).rows() == decoded.rows()[290:]
    assert decoded.slice(20, 10).rows() == []


def test_malformed_headers_raise_when_they_are_read() -> None:
    data = bytearray(some(0, 300, headers=(("header-key", b"x"),)))
    place = data.rindex(b"header-key")
    data[place - 1] = 0x7E  # 0x7E is a key length, 63, that exceeds the record.
    decoded = columns(bytes(data), check_crc=False)
    assert len(decoded) == 300
    with pytest.raises(RecordError, match=r"headers\.key at offset 2: .*in row 299, counted from"):
        _ = decoded.headers


def test_the_arrays_do_not_refer_to_the_data() -> None:
    data = bytearray(some(0, 300))
    decoded = columns(memoryview(data))
    before = decoded.rows()
    data[:] = bytes(len(data))
    columns(some(0, 5000, compression="gzip"))  # The arena is reused.
    assert decoded.rows() == before


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_rows_of_two_fetches_may_be_read_alternately(codec: str) -> None:
    fetches = [some(at, 9000, compression=codec) for at in (0, 50000)]
    lists: list[list[Record]] = [[], []]
    for pair in zip(*map(row_lists, fetches), strict=True):
        for own, some_rows in zip(lists, pair, strict=True):
            own += some_rows
    assert lists == [rows(data) for data in fetches]


def test_values_of_lent_columns_are_not_copied() -> None:
    data = some(0, 300)
    pa: Any = pytest.importorskip("pyarrow")
    value = columns(data, lent=True).value
    assert value.type == pa.binary_view()
    assert value.buffers()[2].address - pa.py_buffer(data).address == 0


@pytest.mark.parametrize("place", [100, 5000, 20000])
def test_a_malformed_batch_raises_the_error_of_rows(place: int) -> None:
    data = bytearray(b"".join(some(start, 300) for start in range(0, 1200, 300)))
    data[place] ^= 1
    with pytest.raises(RecordError) as by_rows:
        rows(bytes(data))
    with pytest.raises(RecordError) as by_columns:
        columns(bytes(data))
    assert by_rows.value.args == by_columns.value.args


def sized(*runs: tuple[int, int]) -> list[Record]:
    """Return records whose values form runs of equal length. Each run is a pair (count, length)."""
    sizes = [size for count, size in runs for _ in range(count)]
    return [Record(at, 7 * at, b"k", bytes(size)) for at, size in enumerate(sizes)]


@pytest.mark.parametrize(
    "records",
    [
        sized((3000, 100)),
        sized(*[(10, 100), (40, 101)] * 60),
        sized(*[(1, size) for size in range(1500)]),
        sized((900, 5), (1, 9000), (900, 5), (1, 70_000), (900, 0)),
        sized(*[(400, 60 + size) for size in range(8)]),
    ],
    ids=["all alike", "short runs", "all different", "a few very long", "long runs"],
)
def test_records_in_runs_of_one_size_are_read(records: list[Record]) -> None:
    for size in (200, 1000, len(records)):
        data = b"".join(encode_batch(records[at : at + size]) for at in range(0, len(records), size))
        assert columns(data).rows() == records


@pytest.mark.parametrize("size", [100, 1000], ids=["small", "large"])
def test_long_runs_are_detected_by_their_ends(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_decoder, "_find_starts_in_parallel", None)
    records = [Record(at, NOW + at // 100, b"key-%06d" % at, bytes(size)) for at in range(10_000)]
    for batch in (98, 800, 9_000):
        data = b"".join(
            encode_batch(records[at : at + batch], base_offset=at) for at in range(0, 10_000, batch)
        )
        assert columns(data).rows() == records


def views_of(*fields: bytes, gap: int = 3) -> list[memoryview]:
    """Return a view of each of these `records` fields in one buffer, as in a fetch response."""
    whole = memoryview(b"?" * gap + (b"!" * gap).join(fields) + b"?" * 16)
    views: list[memoryview] = []
    at = gap
    for field in fields:
        views.append(whole[at : at + len(field)])
        at += len(field) + gap
    return views


@pytest.mark.parametrize("lent", [True, False])
@pytest.mark.usefixtures("only_fast")
def test_parts_in_one_buffer_are_decoded_in_place(lent: bool) -> None:
    pa: Any = pytest.importorskip("pyarrow")
    fields = [some(0, 200), some(500, 100, headers=HEADERS), some(0, 50)]
    views = views_of(*fields)
    parts = [FetchedPart(views[0], from_offset=120), FetchedPart(views[1]), FetchedPart(views[2])]
    decoded = columns_of(parts, lent=lent)
    assert decoded.counts == [80, 100, 50]
    expected = [rows(field) for field in fields]
    assert [decoded.part(0).rows(), *(decoded.part(n).rows() for n in (1, 2))] == [
        expected[0][120:],
        expected[1],
        expected[2],
    ]
    if lent:
        whole = memoryview(views[0].obj)  # type: ignore[arg-type]
        assert decoded.value.buffers()[2].address == pa.py_buffer(whole).address


@pytest.mark.parametrize("lent", [True, False])
@pytest.mark.usefixtures("only_fast")
def test_parts_in_descending_order_or_of_different_buffers_are_decoded_too(lent: bool) -> None:
    fields = [some(0, 200), some(500, 100, headers=HEADERS)]
    first, second = views_of(*fields)
    for views in ([second, first], [memoryview(fields[1]), first], [fields[1], first]):
        decoded = columns_of([FetchedPart(view) for view in views], lent=lent)
        assert decoded.part(0).rows() == rows(fields[1])
        assert decoded.part(1).rows() == rows(fields[0])
        decoded.release()


@pytest.mark.parametrize("lent", [True, False])
@pytest.mark.parametrize("size", [10, 4000])
@pytest.mark.usefixtures("only_fast")
def test_rows_before_the_offset_are_dropped_from_every_column(lent: bool, size: int) -> None:
    records = [
        Record(at, NOW + at, b"k" if at % 3 else None, bytes(size) + b"%d" % at if at % 5 else None, HEADERS)
        for at in range(200)
    ]
    data = encode_batch(records, timestamp_type="LogAppendTime", max_timestamp=NOW)
    decoded = columns(data, from_offset=150, lent=lent)
    assert decoded.rows() == rows(data)[150:]
    assert decoded.counts == [50]


def test_the_size_of_columns_is_that_of_their_arrays_without_headers() -> None:
    decoded = columns(some(0, 300, headers=HEADERS))
    fixed = 300 * (8 + 8 + 1)
    assert decoded.nbytes == fixed + decoded.key.nbytes + decoded.value.nbytes
    assert decoded.nbytes > fixed


def test_a_list_of_rows_has_at_least_one_row() -> None:
    decoded = columns(some(0, 5))
    with pytest.raises(ConfigError, match="it must be at least 1"):
        list(decoded.row_lists(0))
    assert [len(records) for records in decoded.row_lists(2)] == [2, 2, 1]
    assert [record for records in decoded.row_lists(1) for record in records] == decoded.rows()


@pytest.mark.parametrize("few", [0, 10**9], ids=["fast", "slow"])
def test_only_compressed_records_count_against_the_limit_of_a_call(
    few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MIN_NUMPY_RECORDS", few)
    records = [Record(at, NOW, None, bytes(1000)) for at in range(200)]
    assert len(columns(encode_batch(records), most=1)) == 200
    with pytest.raises(IllegalState, match="records of more than 100000 bytes are too many for one call"):
        columns(encode_batch(records, compression="gzip"), most=100_000)
    assert len(columns(encode_batch(records, compression="gzip"), most=250_000)) == 200


@pytest.mark.usefixtures("only_fast")
def test_emptied_batches_have_no_rows_and_a_count_above_the_bytes_is_an_error() -> None:
    emptied = encode_batch([], base_offset=200, last_offset=210)
    assert columns(some(0, 200) + emptied + some(300, 5)).offset.tolist() == [*range(200), *range(300, 305)]


def test_released_columns_have_no_values() -> None:
    decoded = columns(some(0, 300, compression="gzip"), lent=True)
    decoded.release()
    assert decoded.value is None
    decoded.release()
