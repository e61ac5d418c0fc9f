"""The event "end" is reported once for each end of a partition that the application reaches."""

from __future__ import annotations

from typing import Any

from consumer.engine import events as ev
from tests.consumer.engine.stage import GROUP
from tests.consumer.stage import Consumer, World, tp

T0 = tp("t", 0)


def reader(world: World, **options: Any) -> Consumer:
    config: dict[str, Any] = {**GROUP, "enable_partition_eof": True, **options}
    a = world.consumer(**config)
    a.subscribe("t")
    return a


def ends(consumer: Consumer) -> list[tuple[int, int | None]]:
    return [(change.partitions[0].partition, change.offset) for change in consumer.changes_of("end")]


def test_each_end_is_reported_once_after_its_records() -> None:
    world = World({"t": 2})
    world.write("t", 0, "a", "b")
    a = reader(world)
    world.run(10_000)
    assert len(a.records) == 2
    assert sorted(ends(a)) == [(0, 2), (1, 0)], "also the end of an empty partition"
    world.write("t", 0, "c")
    world.run(10_000)
    assert ends(a)[2:] == [(0, 3)]


def test_the_end_follows_the_last_record() -> None:
    world = World({"t": 2})
    world.write("t", 0, "a", "b", "c")
    a = reader(world)
    a.limit = 1
    counts: list[int] = []

    def is_at_end() -> bool:
        if not counts and (0, 3) in ends(a):
            counts.append(len(a.records))
        return bool(counts)

    assert world.run(10_000, until=is_at_end)
    assert counts == [3]


def test_a_seek_makes_the_end_reported_again() -> None:
    world = World({"t": 2})
    world.write("t", 0, "a", "b")
    a = reader(world)
    world.run(10_000)
    for offset in (0, 2):
        a.do(ev.Seek(T0, offset))
        world.run(10_000)
    assert [end for end in ends(a) if end[0] == 0] == [(0, 2), (0, 2), (0, 2)]


def test_without_the_option_no_end_is_reported() -> None:
    world = World({"t": 2})
    world.write("t", 0, "a")
    a = reader(world, enable_partition_eof=False)
    world.run(10_000)
    assert len(a.records) == 1
    assert ends(a) == []


def test_an_open_transaction_ends_the_partition_with_read_committed() -> None:
    world = World({"t": 2})
    world.write("t", 0, "a")
    producer = world.producer(transactional_id="x")
    transactions = producer.engine.transactions
    assert transactions is not None
    begin = transactions.call("begin", "the test")
    producer.tick()
    assert world.run(until=lambda: begin.done)
    producer.must_send("t", "open", partition=0)
    assert world.run(10_000, until=lambda: producer.engine.open_records == 0)
    a = reader(world, isolation_level="read_committed")
    world.run(10_000)
    assert (0, 1) in ends(a)
    assert len(a.records) == 1
