"""A producer's batches keep their order and sequence numbers when they are split, retried or failed."""

from __future__ import annotations

import pytest

from consumer.engine.producer.batches import (
    LAST_SEQUENCE,
    NO_BATCH,
    PartitionQueue,
    ProducerBatch,
    current_location,
    split_batch,
)
from consumer.engine.producer.transaction_requests import ProducerIdAndEpoch
from kproto.group.subscription import TopicPartition
from kproto.records import rows


@pytest.fixture
def queue() -> PartitionQueue:
    queue = PartitionQueue(TopicPartition("t", 0), None)
    queue.identity = ProducerIdAndEpoch(7, 0)
    return queue


def batch_of(queue: PartitionQueue, *values: bytes, order: tuple[int, ...] = (1,)) -> ProducerBatch:
    """Return a batch of records with keys and headers, whose timestamps are 1000, 1001 and so on."""
    batch = ProducerBatch(queue, 301, created=10, deadline=99, order=order)
    batch.shared_timestamp = None
    for index, value in enumerate(values):
        batch.rows += (1000 + index, b"k%d" % index, value, (("h", value),))
    batch.count, batch.sealed, batch.free_bytes = len(values), True, -1
    return batch


def test_the_parts_of_a_split_batch_have_its_records_memory_and_deadline(queue: PartitionQueue) -> None:
    batch = batch_of(queue, b"a", b"b", b"c", order=(4,))
    batch.encode("none", None)
    batch.failures, batch.why = 2, "too large"
    parts, locations = split_batch(batch, [[0, 2], [1]])
    assert [part.order for part in parts] == [(4, 0), (4, 1)]
    assert [part.size for part in parts] == [201, 100]
    assert {(part.created, part.deadline, part.failures, part.why) for part in parts} == {
        (10, 99, 2, "too large")
    }
    assert all(part.sealed and part.free_bytes < 0 for part in parts)
    assert locations == [(parts[0], 0), (parts[1], 0), (parts[0], 1)]
    for part in parts:
        part.encode("none", None)
    assert [
        [(row.timestamp, row.key, row.value, tuple(row.headers)) for row in rows(part.data or b"")]
        for part in parts
    ] == [
        [(1000, b"k0", b"a", (("h", b"a"),)), (1002, b"k2", b"c", (("h", b"c"),))],
        [(1001, b"k1", b"b", (("h", b"b"),))],
    ]


def test_a_record_is_found_after_its_batch_was_split_twice(queue: PartitionQueue) -> None:
    batch = batch_of(queue, b"a", b"b", b"c", b"d")
    batch.encode("none", None)
    halves, batch.record_locations = split_batch(batch, [[0, 1], [2, 3]])
    halves[1].encode("none", None)
    quarters, halves[1].record_locations = split_batch(halves[1], [[0], [1]])
    assert [current_location(batch, index) for index in range(4)] == [
        (halves[0], 0),
        (halves[0], 1),
        (quarters[0], 0),
        (quarters[1], 0),
    ]


def test_a_batch_returns_to_its_place_in_the_queue(queue: PartitionQueue) -> None:
    orders: list[tuple[int, ...]] = [(3,), (1,), (2, 1), (4,), (2, 0)]
    for order in orders:
        queue.reinsert(batch_of(queue, b"x", order=order))
    assert [batch.order for batch in queue.waiting] == sorted(orders)


def test_sequence_numbers_count_records_and_continue_with_0_after_the_last_one(queue: PartitionQueue) -> None:
    """As in Java's DefaultRecordBatch.incrementSequence."""
    queue.next_sequence = LAST_SEQUENCE - 1
    sent = [batch_of(queue, *values) for values in ([b"a"], [b"b", b"c", b"d"], [b"e"])]
    for batch in sent:
        queue.assign_sequence(batch)
    assert [batch.sequence for batch in sent] == [LAST_SEQUENCE - 1, LAST_SEQUENCE, 2]
    assert [batch.number for batch in sent] == [0, 1, 2]
    assert {batch.identity for batch in sent} == {queue.identity}


@pytest.mark.parametrize("missing", [[(2,), (3,)], [(3,), (2,)]], ids=["earlier first", "later first"])
def test_the_batches_from_the_first_missing_one_on_lose_their_sequence_numbers(
    queue: PartitionQueue, missing: list[tuple[int, ...]]
) -> None:
    for number in range(1, 5):
        batch = batch_of(queue, b"x", order=(number,))
        queue.assign_sequence(batch)
        queue.reinsert(batch)
    queue.halted = True
    for order in missing:
        queue.mark_not_in_log(order)
    queue.out_of_order.append(queue.waiting[1])
    queue.resume()
    assert [batch.sequence for batch in queue.waiting] == [0, -1, -1, -1]
    assert (queue.needs_new_epoch, queue.halted, queue.out_of_order) == (True, False, [])
    # Since the first `resume`, no further batch was marked as missing from the log. The second `resume`
    # therefore changes no sequence number.
    queue.halted, queue.needs_new_epoch = True, False
    queue.resume()
    assert [batch.sequence for batch in queue.waiting] == [0, -1, -1, -1]
    assert (queue.needs_new_epoch, queue.halted) == (False, False)


def test_the_oldest_batch_is_in_flight_waiting_or_being_filled(queue: PartitionQueue) -> None:
    assert queue.oldest_creation() is None
    created = {"filling": 30, "waiting": 20, "in flight": 10}
    batches = {
        name: ProducerBatch(queue, 100, created=at, deadline=99, order=(-at,)) for name, at in created.items()
    }
    queue.filling = batches["filling"]
    assert queue.oldest_creation() == 30
    queue.waiting.append(batches["waiting"])
    assert queue.oldest_creation() == 20
    queue.in_flight.append(batches["in flight"])
    assert queue.oldest_creation() == 10
    queue.filling = NO_BATCH
    queue.waiting.clear()
    assert queue.oldest_creation() == 10


def test_the_open_batches_of_a_queue_are_in_order_and_not_done(queue: PartitionQueue) -> None:
    first, second, third, done = [batch_of(queue, b"x", order=(number,)) for number in range(4)]
    queue.in_flight += [second, first]
    queue.waiting += [third, done]
    done.done = True
    assert queue.open_batches() == [first, second, third]
