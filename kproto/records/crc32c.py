"""CRC-32C (Castagnoli), the checksum of record batches since magic 2.

The work is done by the crc32c package, which uses the processor's own instruction: 5 GB/s on 1 KB and over
20 GB/s on 1 MB, against 7 MB/s for a table in Python. Older message sets carry `zlib.crc32` instead.

The package comes with the first checksum: it looks its own version up, which takes a quarter of the time of
all imports of a consumer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any


def crc32c(data: Any, running: int = 0) -> int:
    """The CRC-32C of `data`, as an unsigned 32-bit number; `running` is that of what came before. A
    `memoryview` is read in place, so slice one rather than the bytes."""
    return _package()(data, running)


def preload() -> None:
    """Has the package come now, for whoever may not wait for it at the first batch: an event loop."""
    _package()


@cache
def _package() -> Callable[[Any, int], int]:
    from crc32c import crc32c  # pyright: ignore[reportMissingTypeStubs]

    found: Callable[[Any, int], int] = crc32c
    return found
