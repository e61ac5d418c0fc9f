"""Fetches in virtual time: the records left to read, and when buffered records are returned."""

from __future__ import annotations

from tests.consumer.engine.stage import GROUP, numbers
from tests.consumer.stage import World, tp

T0 = tp("t", 0)


def test_an_open_transaction_at_the_start_of_the_log_leaves_no_record_to_read() -> None:
    """With read_committed the last stable offset is the end, even if it is 0."""
    world = World({"t": 1})
    producer = world.producer(transactional_id="x", linger_ms=0)
    transactions = producer.engine.transactions
    assert transactions is not None
    begin = transactions.call("begin")
    producer.tick()
    assert world.run(until=lambda: begin.done)
    batch = producer.must_send("t", "x", partition=0)
    producer.tick()
    assert world.run(until=lambda: batch.done)
    reader = world.consumer(isolation_level="read_committed")
    reader.assign({T0: 0})
    world.run(2_000)
    state = reader.engine.partitions[T0]
    assert (state.high_watermark, state.last_stable_offset) == (1, 0)
    assert (state.lag, state.has_more) == (0, False)


def test_records_fetched_during_the_assigned_callback_are_returned_after_it() -> None:
    world = World({"t": 1})
    world.write("t", 0, *numbers(0, 10))
    first = world.consumer(**GROUP)
    first.subscribe("t")
    assert world.run(until=lambda: len(first.records) == 10)
    first.close()
    world.run(2_000)
    world.write("t", 0, *numbers(10, 20))
    member = world.consumer(**GROUP)
    member.callback_ms = 2_000
    member.subscribe("t")
    assert world.run(until=lambda: member.in_callback is not None)
    world.run(1_900)
    assert member.records == []
    assert member.engine.partitions[T0].fetches
    assert world.run(200, until=lambda: member.values() == numbers(0, 20))
