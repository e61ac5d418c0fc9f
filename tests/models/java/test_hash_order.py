"""The iteration order of Java's hash tables, as Java 17 prints it."""

from __future__ import annotations

import pytest

from kproto.group.subscription import TopicPartition
from kproto.models.java.hash_order import group_by_topic, hash_code, hash_order, set_order, topic_order

# Maps a count to the numbers N of the names topic-0 to topic-(count - 1), in the iteration order of a HashSet
# to which these names were added one by one.
PUT = {
    12: "6 7 8 9 0 1 2 10 3 11 4 5",
    13: "6 7 8 9 0 1 2 10 3 11 4 12 5",
    24: "6 7 8 9 0 1 2 20 10 21 3 11 22 4 12 23 5 13 14 15 16 17 18 19",
    25: "6 7 8 9 0 1 2 10 3 11 4 12 5 24 20 21 22 23 13 14 15 16 17 18 19",
}
# Maps a count to the iteration order of a copy of this HashSet. It differs from `PUT` only for 24 names.
COPIED = {**PUT, 24: "6 7 8 9 0 1 2 10 3 11 4 12 5 20 21 22 23 13 14 15 16 17 18 19"}


def names(numbers: str) -> list[str]:
    return [f"topic-{number}" for number in numbers.split()]


@pytest.mark.parametrize("count", PUT)
def test_names_are_in_the_order_of_a_hash_map(count: int) -> None:
    """The iteration order of a hash table depends on the number of its buckets.

    A HashMap doubles the number of buckets when it has more elements than three quarters of this number.

    A copied HashSet has enough buckets for one more element, so its order may differ from the original's.
    """
    topics = [f"topic-{number}" for number in range(count)]
    assert hash_order(topics) == names(PUT[count])
    assert list(group_by_topic(TopicPartition(topic, 0) for topic in topics)) == names(PUT[count])
    assert topic_order(topics) == names(COPIED[count])


def test_partitions_are_in_the_order_of_a_copied_hash_set() -> None:
    partitions = [TopicPartition("t", number) for number in range(12)]
    assert [tp.partition for tp in set_order(partitions)] == list(reversed(range(12)))


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("t", 116), ("polygenelubricants", 1 << 31), ("\U0001f600", 1772899)]
)
def test_the_hash_code_is_javas(text: str, code: int) -> None:
    assert hash_code(text) == code
