"""The table of the batches that are decoded together."""

from __future__ import annotations

import pytest

pytest.importorskip("numpy")

import numpy as np

from kproto.records import Record, encode_batch
from kproto.records.batch_table import FetchedPart, _headers, _list
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
    one_by_one = _list(part(), 0, check_crc, control, None)
    together = _headers([part()], [0], check_crc, control)
    assert one_by_one is not None
    assert together is not None
    assert np.array_equal(one_by_one, together)
    assert together.shape[1] == (5 if control else 3)


def test_numpy_reads_no_batch_with_a_wrong_checksum() -> None:
    data = bytearray(bytes(part().data))
    data[70] ^= 1
    assert _headers([FetchedPart(bytes(data))], [0], True, False) is None
    assert _headers([FetchedPart(bytes(data))], [0], False, False) is not None
