"""Batches with known bytes, and batches with arbitrary bytes as records."""

from __future__ import annotations

import pytest

from kproto.errors import RecordError
from kproto.records import Record, batches
from kproto.records.builder import add_header, lay_out
from kproto.records.record import zigzag

NOW = 1_700_000_000_000
SAMPLE = bytes.fromhex(
    "000000000000002800000045ffffffff02ab50b5fc0000000000010000018bcfe568000000018bcfe568010000000000"
    "0000090001000000030000000216000000026b0276020268010e00020201027700"
)
TWO = [Record(40, NOW, b"k", b"v", (("h", None),)), Record(41, NOW + 1, None, b"w")]


def raw(records: bytes, count: int) -> bytes:
    """Build a batch with these bytes as its records."""
    return add_header(
        lay_out([records], None, 0),
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


def refused(data: bytes, **options: bool) -> RecordError:
    with pytest.raises(RecordError) as caught:
        [batch.records() for batch in batches(data, **options)]
    assert caught.value.message == "RecordBatch"
    return caught.value
