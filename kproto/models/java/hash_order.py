"""The iteration order of Java's hash tables.

kafka-clients 2.6 stores and encodes topics and partitions in the order of its hash tables. The order decides
which partitions move: a member with too many partitions keeps the first ones that it reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...group.subscription import TopicPartition

T = TypeVar("T")
_DEFAULT_CAPACITY = 16


def hash_code(text: str) -> int:
    """Return Java's String.hashCode, computed over UTF-16 code units, as an unsigned int."""
    code = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        code = (31 * code + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return code


def hash_order(names: Iterable[str]) -> list[str]:
    """Return `names` in the iteration order of a HashMap into which they were put one after the other.

    Within one bucket, Java iterates in the order of insertion. This function inserts the names in sorted
    order.
    """
    return _hash_table_order(sorted(set(names)), hash_code, _DEFAULT_CAPACITY)


def topic_order(topics: Iterable[str]) -> list[str]:
    """Return topics in the order of the `new HashSet<>(topics)` that KafkaConsumer.subscribe creates."""
    names = sorted(set(topics))
    return _hash_table_order(names, hash_code, _copy_capacity(len(names)))


def partition_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions in the order of SubscriptionState.

    SubscriptionState copies the assignment, a HashSet, into a HashMap whose initial capacity is the number of
    partitions. Then SubscriptionState groups the partitions by topic.
    """
    by_topic: dict[str, list[TopicPartition]] = {}
    for partition in _hash_table_order(set_order(partitions), _partition_hash_code, 1):
        by_topic.setdefault(partition.topic, []).append(partition)
    return [partition for topic_partitions in by_topic.values() for partition in topic_partitions]


def set_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return partitions in the order of `new HashSet<>(partitions)`, as rebalance listeners get them."""
    distinct = list(dict.fromkeys(partitions))
    return _hash_table_order(distinct, _partition_hash_code, _copy_capacity(len(distinct)))


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic as CollectionUtils.groupPartitionsByTopic does.

    Topics are in the order of a hash map, and each topic's partitions keep their order in `partitions`.
    """
    by_topic: dict[str, list[int]] = {}
    for tp in partitions:
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return {topic: by_topic[topic] for topic in hash_order(by_topic)}


def _partition_hash_code(partition: TopicPartition) -> int:
    """Return TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + hash_code(partition.topic)) & 0xFFFFFFFF


def _copy_capacity(count: int) -> int:
    """Return the number of buckets of `new HashSet<>(collection)`.

    For a copy of `count` elements, Java reserves count / 0.75 + 1 buckets, at least 16, rounded up to a power
    of two. So a copied set of 12 elements has 32 buckets. A set that grew to 12 elements has 16.
    """
    return 1 << (max(_DEFAULT_CAPACITY, count * 4 // 3 + 1) - 1).bit_length()


def _hash_table_order(items: Sequence[T], code_of: Callable[[T], int], bucket_count: int) -> list[T]:
    """Return the iteration order of a HashMap that begins with `bucket_count` buckets (a power of two).

    When the number of items exceeds 3/4 of the number of buckets, the map doubles the number of buckets.
    `code_of` returns an item's hash code.
    """
    while bucket_count * 3 // 4 < len(items):
        bucket_count *= 2

    def bucket(item: T) -> int:
        code = code_of(item)
        return (code ^ code >> 16) & (bucket_count - 1)

    return sorted(items, key=bucket)
