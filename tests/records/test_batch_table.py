"""The table that numpy builds from all batch headers equals the one built batch by batch."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from kproto.records import Record, encode_batch
from kproto.records.batch_table import FetchedPart, _build_by_batch, _build_with_numpy
from tests.records.raw_batches import NOW


def part() -> FetchedPart:
    """Return five batches, of which two are control batches, and the start of a sixth."""
    records = [Record(offset, NOW + offset, None, b"v" * offset) for offset in range(1, 4)]
    marker = [Record(0, NOW, b"\0\0\0\1", b"\0" * 6)]
    data = [
        encode_batch(records),
        encode_batch(records, base_offset=1, last_offset=9),
        encode_batch(marker, producer_id=1, is_transactional=True, is_control=True),
        encode_batch(records, compression="gzip"),
        encode_batch(marker, producer_id=2, is_transactional=True, is_control=True),
    ]
    return FetchedPart(b"".join([*data, data[0][:70]]))


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("control", [True, False])
def test_headers_that_numpy_reads_make_the_same_table_as_batches_that_are_read_one_by_one(
    check_crc: bool, control: bool
) -> None:
    one_by_one = _build_by_batch(part(), 0, check_crc, control, None)
    together = _build_with_numpy([part()], [0], check_crc, control)
    assert one_by_one is not None
    assert together is not None
    assert np.array_equal(one_by_one, together)
    assert together.shape[1] == (5 if control else 3)


def test_numpy_reads_no_batch_with_a_wrong_checksum() -> None:
    data = bytearray(bytes(part().data))
    data[70] ^= 1
    assert _build_with_numpy([FetchedPart(bytes(data))], [0], True, False) is None
    assert _build_with_numpy([FetchedPart(bytes(data))], [0], False, False) is not None


def headers_of(*batches_of: bytes) -> bool:
    """Return whether the headers of these batches are regular enough to be read by NumPy."""
    return _build_with_numpy([FetchedPart(b"".join(batches_of))], [0], False, True) is not None


def changed(place: int, number: int, size: int) -> bytes:
    data = bytearray(encode_batch([Record(0, 0, None, b"v")]))
    data[place : place + size] = number.to_bytes(size, "big", signed=True)
    return bytes(data)


@pytest.mark.parametrize(
    ("place", "number", "size", "is_read"),
    [
        (16, 2, 1, True),
        (16, 1, 1, False),
        (16, 3, 1, False),
        (23, 0, 4, True),
        (23, -1, 4, False),
        (57, 0, 4, True),
        (57, -1, 4, False),
        (21, 4, 2, True),
        (21, 5, 2, False),
        (0, (1 << 63) - 1, 8, True),
        (8, 48, 4, False),
    ],
)
def test_numpy_reads_regular_headers_only(place: int, number: int, size: int, is_read: bool) -> None:
    assert headers_of(changed(place, number, size)) is is_read


def test_a_last_offset_above_int64_is_not_regular() -> None:
    data = bytearray(changed(0, (1 << 63) - 1, 8))
    data[23:27] = (1).to_bytes(4, "big")
    assert not headers_of(bytes(data))


def test_a_truncated_last_batch_is_ignored_unless_its_magic_is_unknown() -> None:
    whole = encode_batch([Record(0, 0, None, b"v")])
    assert headers_of(whole, whole[:-1])
    assert not headers_of(whole, changed(16, 3, 1)[:-1])
    assert headers_of(whole, whole[:11])
    assert not headers_of(whole, whole[:12])
    assert not headers_of(b"")
