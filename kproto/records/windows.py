"""Windows: views of an arena as integers that begin at any byte, and the decoding of varints in them.

* Windows are unaligned numpy views. Read them by indexing (`eights[positions]`), because `take` would copy
  the whole view.

* Varints of one and two bytes are looked up in a table of all windows of two bytes. Varints of three and four
  bytes need a second lookup. Longer varints are computed.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]
Bools = NDArray[np.bool_]

# The number of bytes that an arena needs after its last batch, because windows near the batch's end extend
# beyond it.
SLACK = 64

_EIGHT = np.array(8)


class Windows:
    """The bytes of an arena as overlapping windows.

    A window is a little-endian integer of 2 or 8 bytes. At each byte of the arena, one window of each size
    begins.
    """

    __slots__ = ("_next", "bytes", "eights", "pairs")

    def __init__(self, arena: NDArray[np.uint8]) -> None:
        self.bytes = arena
        self._next = arena[1:]
        self.eights: Int64s = np.ndarray((len(arena) - 7,), "<i8", arena, 0, (1,))
        self.pairs: NDArray[np.uint16] = np.ndarray((len(arena) - 1,), "<u2", arena, 0, (1,))

    def twos(self, place: Int64s) -> Int64s:
        """Return the window of two bytes at each position.

        Each window is combined from two single bytes, because reading unaligned windows takes twice as long.
        """
        window: Int64s = self._next[place].astype(np.int64)
        window <<= _EIGHT
        window |= self.bytes[place]
        return window


@cache
def tables() -> tuple[NDArray[np.int32], Int64s]:
    """Return two tables, both indexed by a window of two bytes, which is read as a little-endian number.

    An entry of the first table describes the varint at the start of the window: `value << 2 | width`, with
    the width in bytes.

    For a varint of more than two bytes, the entry of the first table is `(low 14 bits) << 2 | 3`. The 3
    stands for more than two bytes, not for a width.

    An entry of the second table is the total size of a record whose length is this varint. The entry is 0 if
    the varint is longer than two bytes or negative.
    """
    window = np.arange(65536)
    low, high = window & 255, window >> 8
    is_one_byte, is_two_bytes = low < 128, (low >= 128) & (high < 128)
    unsigned = np.where(is_one_byte, low, low & 127 | (high & 127) << 7)
    value = (unsigned >> 1) ^ -(unsigned & 1)
    width = np.where(is_one_byte, 1, np.where(is_two_bytes, 2, 3))
    varint = (np.where(width < 3, value, unsigned) << 2 | width).astype(np.int32)
    size = np.where((width < 3) & (value >= 0), value + width, 0)
    return varint, size


def varints(window: Int64s) -> tuple[Int64s, Int64s]:
    """Decode the zigzag varints at the start of windows of 8 bytes; return their values and widths.

    The width is 0 if the varint is longer than its window.
    """
    width = np.ones(len(window), np.int64)
    continues = window >> 7 & 1
    value = window & 127
    for byte in range(1, 8):
        if not continues.any():
            break
        width += continues
        value |= (window >> (8 * byte) & 127 & -continues) << (7 * byte)
        continues &= window >> (8 * byte + 7) & 1
    width[continues != 0] = 0
    return (value >> 1) ^ -(value & 1), width


def short_varints(window: Int64s) -> tuple[Int64s, NDArray[np.int32]]:
    """Decode varints of up to four bytes at the start of windows; return their values and widths.

    The width is 0 if the varint is longer than four bytes, or continues after the end of its window.

    Callers shift a window right past the varints that they have read. If the next varint continues after the
    window, the window's top bit is set, and the shift fills in ones. Ones look like a varint that continues.
    """
    table, _ = tables()
    entry = table[window & 0xFFFF]
    width = entry & 3
    entry >>= 2
    value: Int64s = entry.astype(np.int64)
    if int(width.max(initial=0)) > 2:
        # Varints of more than two bytes: look up their next two bytes.
        longer = np.flatnonzero(width > 2)
        entry = table[window[longer] >> 16 & 0xFFFF]
        high_bits = entry >> 2
        unsigned = value[longer] | (high_bits << 1 ^ high_bits >> 31).astype(np.int64) << 14
        value[longer] = (unsigned >> 1) ^ -(unsigned & 1)
        entry &= 3
        width[longer] = np.where(entry < 3, entry + 2, 0)
    return value, width
