"""Errors about a malformed batch name the offsets of the batch."""

from __future__ import annotations

from consumer.engine.fetch.batch_headers import locate_error
from kproto.errors import RecordError
from kproto.records import Record, encode_batch
from kproto.testing.world import tp


def test_the_offset_behind_a_batch_with_one_record_is_known() -> None:
    data = encode_batch([Record(5, 0, None, b"v")])
    error = locate_error(RecordError("RecordBatch", 2, "crc", 17, "?"), tp("t", 0), 5, data)
    assert isinstance(error, RecordError)
    assert (error.first_offset, error.next_offset) == (5, 6)


def test_without_a_readable_header_the_offset_behind_the_batch_is_unknown() -> None:
    data = bytearray(encode_batch([Record(5, 0, None, b"v")]))
    data[16] = 7  # The magic number.
    error = locate_error(RecordError("RecordBatch", 7, "magic", 16, "?"), tp("t", 0), 5, bytes(data))
    assert isinstance(error, RecordError)
    assert (error.first_offset, error.next_offset) == (5, None)
    assert str(error).endswith("; seek to an offset above 5 to continue after the batch")
