"""The state of an assigned partition, in a consumer that runs in virtual time."""

from __future__ import annotations

from tests.consumer.stage import World, tp

T0, T1 = tp("t", 0), tp("t", 1)


def test_records_that_a_pause_discards_are_fetched_again() -> None:
    """Paused partitions keep at most fetch.max.bytes. The buffer of one partition is discarded here."""
    world = World({"t": 2})
    for partition in (0, 1):
        world.write("t", partition, *(f"{partition}-{number}" for number in range(10)))
    a = world.consumer(fetch_max_bytes=200)
    a.assign({T0: 0, T1: 0})
    a.pause_polling()
    world.run(1_000)
    states = a.engine.partitions
    assert all(state.fetches for state in states.values())
    a.pause(T0, T1)
    world.run(1_000)
    assert sorted(len(state.fetches) for state in states.values()) == [0, 1]
    a.resume(T0, T1)
    a.resume_polling()
    assert world.run(until=lambda: len(a.records) == 20)
