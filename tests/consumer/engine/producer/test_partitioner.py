"""The partitioner chooses the partitions that Java's producer chooses."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest

from consumer import TopicPartition
from consumer.engine.producer.accumulator import RecordAccumulator
from consumer.engine.producer.batches import NO_BATCH
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
def test_murmur2_returns_kafkas_hashes(data: bytes, expected: int) -> None:
    """The expected hashes are those of Kafka's UtilsTest.testMurmur2."""
    assert murmur2(data) == expected & 0xFFFFFFFF


def test_equal_keys_get_the_same_partition_after_the_hash_cache_was_cleared() -> None:
    partitioner = Partitioner()
    first = partitioner.number(b"key")
    for number in range(70_000):
        partitioner.number(b"%d" % number)
    assert len(partitioner.hashes) < 70_000
    assert partitioner.number(b"key") == first


def new_accumulator(**options: object) -> RecordAccumulator:
    return RecordAccumulator(producer_options(options), Random(1), lambda: 0)


def partitions_of(records: RecordAccumulator, count: int, size: int) -> list[int]:
    partitions: list[int] = []
    for _ in range(count):
        delivery = records.append("t", None, b"x" * size, None, 0, ())
        assert delivery is not None
        partitions.append(delivery._batch.partition.partition)
    return partitions


def drawn_partitions(records: RecordAccumulator, draws: int) -> Counter[int]:
    """Return how often each partition is selected as the sticky one."""
    route = records.routes["t"]
    drawn = Counter[int]()
    for _ in range(draws):
        records.change_sticky_partition(route)
        drawn[route.sticky.partition.partition] += 1
    return drawn


def test_records_without_a_key_fill_a_batch_before_the_partition_changes() -> None:
    records = new_accumulator(batch_size=1061)
    records.set_route("t", 3, [0, 1, 2])
    partitions = partitions_of(records, 1000, 70)
    runs = [1]
    for previous, current in itertools.pairwise(partitions):
        if previous == current:
            runs[-1] += 1
        else:
            runs.append(1)
    assert all(run % 10 == 0 for run in runs)  # The same partition may be drawn again, as in Java.
    assert min(Counter(partitions).values()) > 250


def test_large_batches_do_not_keep_records_without_a_key_on_one_partition() -> None:
    """The partitioner changes the partition after 16 KiB, even if batch.size is larger.

    Java's BuiltInPartitioner changes the partition after batch.size bytes, by default 16 KiB.
    """
    records = new_accumulator(batch_size=512 * 1024)
    records.set_route("t", 4, [0, 1, 2, 3])
    partitions = partitions_of(records, 4000, 93)
    runs = [len(list(run)) for _, run in itertools.groupby(partitions)]
    assert min(Counter(partitions).values()) > 500
    # The size of a record is estimated as 124 bytes, so a run of 16 KiB has about 133 records.
    assert 120 < min(runs[:-1]) < 140
    # Each partition has one batch that is not full yet.
    assert len(records.open_batches) == 4


def test_delivered_records_without_a_key_change_the_partition_after_16_kib_as_well() -> None:
    """Each record is delivered before the next one is sent, so that each batch has one record."""
    records = new_accumulator()
    records.set_route("t", 4, [0, 1, 2, 3])
    partitions: list[int] = []
    for _ in range(600):
        delivery = records.append("t", None, b"x" * 909, None, 0, ())
        assert delivery is not None
        partitions.append(delivery._batch.partition.partition)
        records.seal_all()
        records.end_batch(delivery._batch)
    runs = [len(list(run)) for _, run in itertools.groupby(partitions)]
    # A batch of one record is estimated as 1000 bytes, so 17 records exceed 16 KiB, and the partitioner draws
    # the next partition. As in Java, it may draw the same partition again.
    assert {run % 17 for run in runs[:-1]} == {0}
    assert set(partitions) == {0, 1, 2, 3}


def test_a_partition_with_waiting_batches_is_drawn_less_often() -> None:
    """The more batches of a partition wait, the less often the partition is drawn (KIP-794).

    If n is the largest number of waiting batches in a partition, an idle partition is drawn n + 1 times as
    often as a partition with n batches.
    """
    records = new_accumulator()
    records.set_route("t", 3, [0, 1, 2])
    records.queues[TopicPartition("t", 0)].waiting.extend([NO_BATCH] * 4)
    drawn = drawn_partitions(records, 11_000)
    assert 850 < drawn[0] < 1_150
    assert 4_700 < drawn[1] < 5_300


@pytest.mark.parametrize("seen_by_sender", [False, True])
def test_an_unsealed_batch_counts_once(seen_by_sender: bool) -> None:
    records = new_accumulator()
    records.set_route("t", 3, [0, 1, 2])
    delivery = records.append("t", None, b"x", 0, 0, ())
    assert delivery is not None
    if seen_by_sender:
        records.queues[TopicPartition("t", 0)].waiting.append(delivery._batch)
    drawn = drawn_partitions(records, 10_000)
    assert 1_850 < drawn[0] < 2_150
    assert 3_800 < drawn[1] < 4_200


def test_waiting_batches_are_counted_at_most_every_10_ms() -> None:
    """The partitioner counts the waiting batches when it draws a partition, at most every 10 ms.

    The partitioner draws a new sticky partition after every 16 KiB of records. If it counted the batches at
    each draw, sends to topics with many partitions would be slower.
    """
    now = 1_000
    records = RecordAccumulator(producer_options({}), Random(1), lambda: now)
    records.set_route("t", 2, [0, 1])
    route = records.routes["t"]

    def draws_of_partition_0() -> int:
        drawn = 0
        for _ in range(1_000):
            records.change_sticky_partition(route)
            drawn += route.sticky is route.queues[0]
        return drawn

    assert 450 < draws_of_partition_0() < 550
    records.queues[TopicPartition("t", 0)].waiting.extend([NO_BATCH] * 99)
    now = 1_009
    assert 450 < draws_of_partition_0() < 550
    now = 1_010
    assert draws_of_partition_0() < 50


def test_with_linger_the_partition_changes_after_a_batch_size_of_bytes() -> None:
    records = new_accumulator(batch_size=1000)
    records.set_route("t", 3, [0, 1, 2])
    partitions: list[int] = []
    for _ in range(300):
        partitions += partitions_of(records, 1, 70)
        records.seal_all()
    assert min(Counter(partitions).values()) > 50


def test_a_partition_without_a_leader_gets_no_record_without_a_key() -> None:
    records = new_accumulator(batch_size=1000)
    records.set_route("t", 3, [1])
    assert set(partitions_of(records, 50, 500)) == {1}
    records.set_route("t", 3, [0, 2])
    assert set(partitions_of(records, 50, 500)) == {0, 2}


def test_records_without_a_key_go_to_partitions_whose_leader_is_in_the_rack() -> None:
    """The leaders of partitions 1 and 4 are in the rack of the client (KIP-1123)."""
    records = new_accumulator(batch_size=1000)
    records.set_route("t", 6, [0, 1, 2, 4, 5], [1, 4])
    counts = Counter(partitions_of(records, 200, 500))
    assert set(counts) == {1, 4}
    assert min(counts.values()) > 60


def test_without_a_leader_in_the_rack_all_partitions_with_a_leader_are_selected() -> None:
    """If no partition has a leader, the partitioner may select any partition, as Java's BuiltInPartitioner
    does.
    """
    records = new_accumulator()
    records.set_route("t", 4, [0, 2, 3], [])
    assert set(drawn_partitions(records, 100)) == {0, 2, 3}
    records.set_route("t", 4, [], [])
    assert set(drawn_partitions(records, 100)) == {0, 1, 2, 3}


def test_within_the_rack_a_partition_with_waiting_batches_is_drawn_less_often() -> None:
    """Only partitions 0 and 1 have their leaders in the rack, so the 99 waiting batches of partition 3 do not
    influence the selection.
    """
    records = new_accumulator()
    records.set_route("t", 4, [0, 1, 2, 3], [0, 1])
    records.queues[TopicPartition("t", 0)].waiting.extend([NO_BATCH] * 4)
    records.queues[TopicPartition("t", 3)].waiting.extend([NO_BATCH] * 99)
    drawn = drawn_partitions(records, 6_000)
    assert set(drawn) == {0, 1}
    assert 850 < drawn[0] < 1_150


def test_a_sticky_partition_whose_leader_leaves_the_rack_is_kept_until_16_kib() -> None:
    records = new_accumulator()
    records.set_route("t", 2, [0, 1], [0])
    assert set(partitions_of(records, 10, 1000)) == {0}
    records.set_route("t", 2, [0, 1], [1])
    partitions = partitions_of(records, 30, 1000)
    assert partitions == sorted(partitions)
    assert 0 < partitions.count(0) < 10


def test_new_leaders_in_the_rack_count_at_the_next_selection() -> None:
    """The client learns of the new leaders from a Produce response (KIP-951)."""
    records = new_accumulator()
    records.set_route("t", 3, [0, 1, 2], [0])
    assert set(drawn_partitions(records, 20)) == {0}
    records.set_candidates("t", [2])
    assert set(drawn_partitions(records, 20)) == {2}
    records.set_candidates("t", [])
    assert set(drawn_partitions(records, 100)) == {0, 1, 2}
    records.set_candidates("unknown", [0])
    assert set(records.routes) == {"t"}


def test_a_key_selects_its_partition_in_any_rack() -> None:
    records = new_accumulator()
    records.set_route("t", 3, [0, 1, 2], [0])
    deliveries = [records.append("t", b"%d" % number, b"x", None, 0, ()) for number in range(50)]
    assert {delivery._batch.partition.partition for delivery in deliveries if delivery} == {0, 1, 2}


def test_metadata_requested_earlier_does_not_prove_that_a_partition_is_missing() -> None:
    """A partition counts as missing only after the second metadata response that lacks it.

    The first response may answer a request that was sent before the topic grew.
    """
    records = new_accumulator()
    for _ in range(2):
        records.set_route("t", 1, [0])
        assert records.append("t", None, b"x", 1, 0, ()) is None
    records.set_route("t", 2, [0, 1])
    assert records.append("t", None, b"x", 1, 0, ()) is not None
    for _ in range(2):
        assert records.append("t", None, b"x", 7, 0, ()) is None
        records.set_route("t", 2, [0, 1])
    with pytest.raises(UnknownTopic, match="t-7: the topic has the partitions 0 to 1"):
        records.append("t", None, b"x", 7, 0, ())
