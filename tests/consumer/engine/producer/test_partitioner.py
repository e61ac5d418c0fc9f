"""Records go where Java's producer would send them."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from consumer.engine.producer.accumulator import RecordAccumulator
from consumer.engine.producer.partitioner import Partitioner, murmur2
from consumer.options import producer_options
from kproto.errors import UnknownTopic


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
    partitioner = Partitioner()
    first = partitioner.number(b"key")
    for number in range(70_000):
        partitioner.number(b"%d" % number)
    assert len(partitioner.hashes) < 70_000
    assert partitioner.number(b"key") == first


def taker(**options: object) -> RecordAccumulator:
    return RecordAccumulator(producer_options(options), Random(1), lambda: 0)


def places(records: RecordAccumulator, count: int, size: int) -> list[int]:
    found: list[int] = []
    for _ in range(count):
        delivery = records.take("t", None, b"x" * size, None, 0, ())
        assert delivery is not None
        found.append(delivery._batch.partition.partition)
    return found


def test_records_without_a_key_fill_a_batch_before_they_move_on() -> None:
    records = taker(batch_size=1061)
    records.route("t", 3, [0, 1, 2])
    found = places(records, 1000, 70)
    runs = [1]
    for before, after in itertools.pairwise(found):
        if before == after:
            runs[-1] += 1
        else:
            runs.append(1)
    assert set(runs) == {10}
    assert min(Counter(found).values()) > 250


def test_records_that_linger_move_on_after_a_batchs_worth_of_bytes() -> None:
    records = taker(batch_size=1000)
    records.route("t", 3, [0, 1, 2])
    found: list[int] = []
    for _ in range(300):
        found += places(records, 1, 70)
        records.seal_all()
    assert min(Counter(found).values()) > 50


def test_a_partition_without_a_leader_gets_no_record_without_a_key() -> None:
    records = taker(batch_size=1000)
    records.route("t", 3, [1])
    assert set(places(records, 50, 500)) == {1}
    records.route("t", 3, [0, 2])
    assert set(places(records, 50, 500)) == {0, 2}


def test_an_answer_that_was_on_its_way_does_not_say_that_a_partition_is_missing() -> None:
    """The topic may have grown behind it: only the next answer tells."""
    records = taker()
    for _ in range(2):
        records.route("t", 1, [0])
        assert records.take("t", None, b"x", 1, 0, ()) is None
    records.route("t", 2, [0, 1])
    assert records.take("t", None, b"x", 1, 0, ()) is not None
    for _ in range(2):
        assert records.take("t", None, b"x", 7, 0, ()) is None
        records.route("t", 2, [0, 1])
    with pytest.raises(UnknownTopic, match="t-7: the topic has the partitions 0 to 1"):
        records.take("t", None, b"x", 7, 0, ())
