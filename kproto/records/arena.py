"""Arenas: the memory into which record batches are decompressed.

Each call takes an arena from a pool and returns it afterwards, so threads may decode at the same time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import IllegalState, RecordError
from .batch import Data
from .batch_table import AT, CODEC, PART, STOP, Table
from .codecs import CodecError
from .compression import CODECS, decompress_into, size_hint
from .record import begins_records
from .windows import SLACK

# The largest arena, in bytes, that is put back into the pool.
_MAX_POOLED_SIZE = 64 << 20
# The largest number of arenas in the pool.
_MAX_POOLED_ARENAS = 2

_pool: list[NDArray[np.uint8]] = []


class Arena:
    """One block of memory that holds all decompressed batches of a call.

    A pool keeps arenas for later calls, because allocating memory takes longer than decoding.
    """

    __slots__ = ("_view", "bytes", "used")

    def __init__(self) -> None:
        try:
            self.bytes = _pool.pop()
        except IndexError:
            self.bytes = np.empty(1 << 20, np.uint8)
        self.used = 0
        self._view = _view(self.bytes)

    def _reserve(self, size: int) -> None:
        """Make room for `size` bytes after the used bytes; grow the arena if necessary."""
        required_size = self.used + size + SLACK
        if required_size <= len(self.bytes):
            return
        larger = np.empty(max(required_size, 2 * self.used), np.uint8)
        larger[: self.used] = self.bytes[: self.used]
        self.bytes = larger
        self._view = _view(larger)

    def release(self) -> None:
        """Put the memory back into the pool, unless it is too large or the pool is full."""
        if len(self.bytes) <= _MAX_POOLED_SIZE and len(_pool) < _MAX_POOLED_ARENAS:
            _pool.append(self.bytes)

    def fill(self, sources: list[Data], table: Table, max_decompressed: int | None, most: int) -> None:
        """Decompress the records of all batches; set AT and STOP in `table` to positions in the arena.

        `max_decompressed` limits the decompressed size (bytes) of each batch, and `most` limits the total
        size. Raises RecordError if a batch cannot be decompressed or is too large, and IllegalState if the
        total size is too large.
        """
        # The estimate is that records take four times their compressed size.
        estimated_sizes = (table[STOP] - table[AT]) << (table[CODEC] != 0) * 2
        self._reserve(int(estimated_sizes.sum()))
        views = [memoryview(source) for source in sources]
        batches: list[tuple[int, int, int, int]] = table[[PART, AT, STOP, CODEC]].T.tolist()
        starts: list[int] = []
        stops: list[int] = []
        for part, start, end, codec in batches:
            starts.append(self.used)
            try:
                self._append_records(codec, views[part][start:end], max_decompressed, most)
            except CodecError as error:
                detail = f"{CODECS[codec]}: {error}"
                raise RecordError("RecordBatch", 2, "records", start, detail) from None
            stops.append(self.used)
            if self.used > most:
                raise too_many_bytes(most)
        table[AT] = starts
        table[STOP] = stops

    def _append_records(self, codec: int, body: memoryview, max_decompressed: int | None, most: int) -> None:
        """Append the decompressed records of one batch. Grow the arena until the records fit."""
        start, size = self.used, len(body)
        if codec == 0 or size == 0:
            self._reserve(size)
            self._view[start : start + size] = body
            self.used += size
            return
        if len(self.bytes) - start < 8 * size:
            self._reserve(min(size_hint(codec, body), max(most - start, 0) + 1))
        while True:
            free = self._view[start:-SLACK]
            written = decompress_into(codec, body, free, max_decompressed, begins_records)
            if written is not None:
                self.used += written
                return
            if len(free) > most - start:
                raise too_many_bytes(most)
            self._reserve(min(max(4 * len(free), 64 << 10), most - start + 1))


def too_many_bytes(most: int) -> IllegalState:
    """Return the error for records that decompress to more than `most` bytes."""
    return IllegalState(
        f"records of more than {most} bytes are too many for one call: pass fewer record sets"
    )


# A separate function, because numpy's type hints do not declare that an array is a buffer.
def _view(array: Any) -> memoryview:
    return memoryview(array)
