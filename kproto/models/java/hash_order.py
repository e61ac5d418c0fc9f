"""The order in which Java's hash tables are walked: 2.6 keeps and writes topics and partitions in it.

It decides which partitions move: a leader leaves a member the first ones of those that it says it owns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ...group.subscription import TopicPartition

T = TypeVar("T")
_DEFAULT_CAPACITY = 16


def hash_code(text: str) -> int:
    """String.hashCode, over UTF-16 units, as an unsigned int."""
    found = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        found = (31 * found + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return found


def hash_order(names: Iterable[str]) -> list[str]:
    """As `new HashSet<>(names)` is walked: by bucket, and within one as they came (here: sorted)."""
    return _hash_table_order(sorted(set(names)), hash_code, _DEFAULT_CAPACITY)


def partition_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """As SubscriptionState keeps what it is assigned: from a set into a table of its size, by topic."""
    topics: dict[str, list[TopicPartition]] = {}
    for one in _hash_table_order(set_order(partitions), _partition_hash_code, 1):
        topics.setdefault(one.topic, []).append(one)
    return [one for several in topics.values() for one in several]


def set_order(partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """As `new HashSet<>(partitions)` is walked, which listeners get."""
    return _hash_table_order(list(dict.fromkeys(partitions)), _partition_hash_code, _DEFAULT_CAPACITY)


def group_by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """As CollectionUtils.groupPartitionsByTopic: topics as a hash map has them, partitions as they come."""
    found: dict[str, list[int]] = {}
    for tp in partitions:
        found.setdefault(tp.topic, []).append(tp.partition)
    return {topic: found[topic] for topic in hash_order(found)}


def _partition_hash_code(partition: TopicPartition) -> int:
    """TopicPartition.hashCode."""
    return (31 * (31 + partition.partition) + hash_code(partition.topic)) & 0xFFFFFFFF


def _hash_table_order(found: Sequence[T], code_of: Callable[[T], int], size: int) -> list[T]:
    while size * 3 // 4 < len(found):
        size *= 2

    def bucket(one: T) -> int:
        code = code_of(one)
        return (code ^ code >> 16) & (size - 1)

    return sorted(found, key=bucket)
