"""CRC-32C (Castagnoli), the checksum of record batches since magic 2.

The crc32c package uses the processor's instruction: 5 GB/s on 1 KB and over 20 GB/s on 1 MB, compared with 7
MB/s for a table in Python. Message sets of magic 0 and 1 use `zlib.crc32` instead.

The package is imported at the first checksum. Its import takes a quarter of the import time of a consumer,
because the package looks up its own version.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def crc32c(data: Any, running: int = 0) -> int:
    """Return the CRC-32C of `data` as an unsigned 32-bit number.

    `running` is the CRC of the preceding bytes, if any. A `memoryview` is read without a copy, so slice a
    view instead of the bytes.
    """
    return _package()(data, running)


def preload() -> None:
    """Import the crc32c package, so that an event loop does not wait for the import at the first batch."""
    _package()


@cache
def _package() -> Callable[[Any, int], int]:
    from crc32c import crc32c  # pyright: ignore[reportMissingTypeStubs]

    function: Callable[[Any, int], int] = crc32c
    return function
