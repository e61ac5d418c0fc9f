"""Which partition a record goes to, so that it is the one Java's producer would choose.

* A key decides by murmur2 over its bytes, as in Kafka's `Utils.murmur2` and `BuiltInPartitioner`: every
  client that does so sends equal keys to the same partition.
* Records without a key stay on one partition until a batch's worth of bytes went there, then go on to another
  one (KIP-794): fuller batches, even load. That is the accumulator's, which knows what went where.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Hashes of this many keys are remembered; hashing a key costs more than sending its record.
_REMEMBERED = 65_536


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in _unpack(words)(data):
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(256)
def _unpack(words: int) -> Callable[[bytes], tuple[int, ...]]:
    """Reads so many numbers of four bytes from the beginning."""
    return Struct(f"<{words}I").unpack_from


class Partitioner:
    """The numbers of keys: a key's partition is its number modulo the number of partitions."""

    def __init__(self) -> None:
        # Those that are remembered.
        self.hashes: dict[bytes, int] = {}

    def number(self, key: bytes) -> int:
        found = self.hashes.get(key)
        if found is None:
            if len(self.hashes) >= _REMEMBERED:
                self.hashes.clear()
            found = self.hashes[key] = murmur2(key) & 0x7FFFFFFF
        return found
