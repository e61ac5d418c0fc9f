"""Records go where Java's producer would send them."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from consumer.engine.partitioning import Partitioner, murmur2


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(data: bytes, expected: int) -> None:
    """The vectors of Kafka's UtilsTest.testMurmur2."""
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_equal_keys_stay_together_also_when_hashes_are_forgotten() -> None:
    partitioner = Partitioner(Random(1), 1000)
    first = partitioner.keyed(b"key", 7)
    for number in range(70_000):
        partitioner.keyed(b"%d" % number, 7)
    assert partitioner.keyed(b"key", 7) == first


def test_records_without_a_key_fill_a_batch_before_they_move_on() -> None:
    partitioner = Partitioner(Random(1), 1000)
    places = [partitioner.unkeyed("t", 100, [0, 1, 2]) for _ in range(1000)]
    runs = [1]
    for before, after in itertools.pairwise(places):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs) == {10}
    assert min(Counter(places).values()) > 250


def test_a_partition_without_a_leader_gets_no_record_without_a_key() -> None:
    partitioner = Partitioner(Random(1), 1000)
    assert {partitioner.unkeyed("t", 500, [1]) for _ in range(10)} == {1}
    partitioner.unkeyed("t", 1, [0, 1])
    assert partitioner.unkeyed("t", 1, [2]) == 2
