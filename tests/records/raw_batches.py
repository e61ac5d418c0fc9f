"""Batches with known bytes, and batches with arbitrary bytes as records."""

from __future__ import annotations

import pytest

from kproto.errors import RecordError
from kproto.records import Record, batches
from kproto.records.builder import add_header, lay_out
from kproto.records.compression import codec_number, compress
from kproto.records.record import zigzag

NOW = 1_700_000_000_000
SAMPLE = bytes.fromhex(
    "000000000000002800000045ffffffff02ab50b5fc0000000000010000018bcfe568000000018bcfe568010000000000"
    "0000090001000000030000000216000000026b0276020268010e00020201027700"
)
TWO = [Record(40, NOW, b"k", b"v", (("h", None),)), Record(41, NOW + 1, None, b"w")]


# A record of seven bytes. It has neither a key nor a value, and its offset delta is 0.
SMALLEST = b"\x0c\0\0\0\x01\x01\0"


def raw(records: bytes, count: int, codec: str = "none", timestamp: int = NOW) -> bytes:
    """Build a batch with these bytes as its records; `codec` compresses them."""
    number = codec_number(codec)
    return add_header(
        lay_out([compress(number, records)], None, 0)[0],
        base_offset=0,
        last_delta=max(count - 1, 0),
        leader_epoch=-1,
        attributes=number,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        count=count,
    )


def record(*parts: bytes) -> bytes:
    body = b"".join(parts)
    return zigzag(len(body)) + body


def smallest_records(count: int) -> bytes:
    """Encode records without keys and values, with consecutive offsets."""
    return b"".join(record(b"\0\0", zigzag(number), b"\x01\x01\0") for number in range(count))


def refused(data: bytes, **options: bool) -> RecordError:
    with pytest.raises(RecordError) as caught:
        [batch.records() for batch in batches(data, **options)]
    assert caught.value.message == "RecordBatch"
    return caught.value
