"""Which partition a record goes to, so that it is the one Java's producer would choose.

* A key decides by murmur2 over its bytes, as in Kafka's `Utils.murmur2` and `BuiltInPartitioner`: every
  client that does so sends equal keys to the same partition.
* Records without a key stay on one partition until a batch's worth of bytes went there, then go on to another
  one (KIP-794): fuller batches, even load.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF

# Hashes of this many keys are remembered; hashing a key costs more than sending its record.
_REMEMBERED = 65_536


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2, as an unsigned number."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


class Partitioner:
    """The choice for one producer. `random` decides where records without a key go."""

    def __init__(self, random: Random, sticky_bytes: int) -> None:
        self._random = random
        self._sticky_bytes = sticky_bytes
        self._hashes: dict[bytes, int] = {}
        self._sticky: dict[str, tuple[int, int]] = {}

    def keyed(self, key: bytes, count: int) -> int:
        """The partition of a key among `count`."""
        found = self._hashes.get(key)
        if found is None:
            if len(self._hashes) >= _REMEMBERED:
                self._hashes.clear()
            found = self._hashes[key] = murmur2(key) & 0x7FFFFFFF
        return found % count

    def unkeyed(self, topic: str, size: int, partitions: Sequence[int]) -> int:
        """The partition of a record without a key, among those that have a leader now."""
        current, left = self._sticky.get(topic, (-1, 0))
        if left <= 0 or current not in partitions:
            others = [index for index in partitions if index != current] or list(partitions)
            current, left = self._random.choice(others), self._sticky_bytes
        self._sticky[topic] = (current, left - size)
        return current
