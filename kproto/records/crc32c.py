"""CRC-32C (Castagnoli), the checksum of record batches since magic 2.

The work is done by the crc32c package, which uses the processor's own instruction: 5 GB/s on 1 KB and over
20 GB/s on 1 MB, against 7 MB/s for a table in Python. Older message sets carry `zlib.crc32` instead.
"""

from __future__ import annotations

from collections.abc import Callable

import crc32c as _package  # pyright: ignore[reportMissingTypeStubs]

crc32c: Callable[..., int] = _package.crc32c
"""`crc32c(data, running=0)` is the CRC-32C of `data`, as an unsigned 32-bit number; `running` is that of what
came before. A `memoryview` is read in place, so slice one rather than the bytes."""
