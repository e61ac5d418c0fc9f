from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kproto.records.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "crc"),
    [  # RFC 3720, B.4.
        (b"\0" * 32, 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_known_checksums(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.binary(), st.binary())
def test_a_running_checksum_continues(first: bytes, second: bytes) -> None:
    assert crc32c(memoryview(second), crc32c(first)) == crc32c(first + second)
