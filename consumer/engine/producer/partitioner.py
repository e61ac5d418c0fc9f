"""Selects the partition of a record, as Java's producer does.

* A key is hashed by murmur2 over its bytes, as in Kafka's `Utils.murmur2` and `BuiltInPartitioner`. Clients
  with this hash send equal keys to the same partition while the topic's number of partitions is the same.

* Records without a key go to one partition (the sticky partition) until it has received 16 KiB, which is
  Java's default of `batch.size`. If `batch.size` is smaller, it is the limit instead.

* The accumulator selects the next sticky partition, because it knows the sizes of the batches. The choice is
  random, but prefers partitions with fewer waiting batches (KIP-794).

* With `partitioner.rack.aware`, the next sticky partition has its leader in the client's rack, if there is
  such a partition (KIP-1123). The engine determines these partitions, because it knows the leaders.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct

# The constants of `Utils.murmur2`.
_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Maximum number of keys whose hashes are cached. Hashing is the slowest part of a send.
_MAX_CACHED_HASHES = 65_536


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 as an unsigned number."""
    length = len(data)
    words = length >> 2
    h = _SEED ^ length
    for k in _word_reader(words)(data):
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[words << 2 :], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(256)
def _word_reader(words: int) -> Callable[[bytes], tuple[int, ...]]:
    """Return a function that reads `words` 32-bit numbers from the start of a key."""
    return Struct(f"<{words}I").unpack_from


class Partitioner:
    """Hashes keys. The partition of a key is its hash modulo the number of partitions."""

    def __init__(self) -> None:
        # The cached hashes. If there are `_MAX_CACHED_HASHES`, the next key clears the cache.
        self.hashes: dict[bytes, int] = {}

    def number(self, key: bytes) -> int:
        """Return the hash of a key: its murmur2 with the sign bit cleared."""
        number = self.hashes.get(key)
        if number is None:
            if len(self.hashes) >= _MAX_CACHED_HASHES:
                self.hashes.clear()
            number = self.hashes[key] = murmur2(key) & 0x7FFFFFFF
        return number
