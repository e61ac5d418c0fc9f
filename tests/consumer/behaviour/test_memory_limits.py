"""The memory for fetched records is bounded.

The bound depends neither on the number of partitions nor on the time between two polls.
"""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from consumer.engine.fetch.buffers import CompletedFetch
from consumer.engine.fetch.collector import MAX_OPEN_FETCHES, FetchCollector
from consumer.engine.positions.partition_states import SubscriptionState
from kproto.errors import RecordError
from kproto.records import Record, encode_batch
from tests.consumer.stage import Consumer, World, tp
from tests.records.raw_batches import SMALLEST, raw, smallest_records

PARTITIONS, SIZE, EACH, BATCH = 40, 1_000, 30, 3
ANSWER, PIECE = 100_000, 10_000
OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "max_poll_interval_ms": 3_600_000,
    "fetch_max_bytes": ANSWER,
    "max_partition_fetch_bytes": PIECE,
}


def filled(**options: Any) -> tuple[World, Consumer]:
    """Return a cluster, and a consumer that has fetched from many partitions.

    The only poll of the consumer returned one record.
    """
    world = World({"t": PARTITIONS})
    for partition in range(PARTITIONS):
        for _ in range(EACH // BATCH):
            world.write("t", partition, *(BATCH * ["x" * SIZE]))
    a = world.consumer(**OPTIONS | options)
    a.limit = 1
    a.works_ms = 3_600_000
    a.subscribe("t")
    world.run(20_000)
    assert len(a.records) == 1
    return world, a


def buffered(a: Consumer, *, paused: bool | None = None) -> int:
    """Return the number of fetched bytes that poll has not returned.

    If `paused` is True, only paused partitions are counted. If it is False, only the other partitions are
    counted. If it is None, all are counted.
    """
    states = a.engine.core.partitions.states.values()
    return sum(len(c.data) for s in states if paused in (None, s.paused) for c in s.fetches)


def decoded(a: Consumer) -> int:
    states = a.engine.core.partitions.states.values()
    return sum(c._columns is not None or c._batches is not None for s in states for c in s.fetches)  # pyright: ignore[reportPrivateUsage]


def read_on(world: World, a: Consumer) -> None:
    """Poll all remaining records as fast as they arrive."""
    a.works_ms, a.limit = 0, 500
    a.poll()
    a.resume_polling()
    world.run(60_000)


def test_a_slow_application_has_at_most_two_responses_of_a_broker_buffered() -> None:
    world, a = filled()
    assert ANSWER < buffered(a) <= 2 * ANSWER + PIECE
    read_on(world, a)
    assert len(a.records) == PARTITIONS * EACH


def test_one_response_is_fetched_ahead_however_small_the_limit_is() -> None:
    world, a = filled(fetch_max_bytes=PIECE)
    assert PIECE < buffered(a) <= 3 * PIECE
    read_on(world, a)
    assert len(a.records) == PARTITIONS * EACH


def test_paused_partitions_do_not_block_the_others() -> None:
    world, a = filled()
    first = a.records[0].partition
    a.pause(*(tp("t", number) for number in range(PARTITIONS) if number != first))
    read_on(world, a)
    assert [record.offset for record in a.records if record.partition == first] == list(range(EACH))


def test_one_response_of_paused_partitions_is_kept_and_the_others_are_fetched_again() -> None:
    world, a = filled()
    # Between two pauses the consumer has a second to fetch from the partitions that are not paused.
    for number in range(PARTITIONS):
        a.pause(tp("t", number))
        world.run(1_000)
    assert 0 < buffered(a, paused=True) <= ANSWER
    a.resume(*world.partitions())
    read_on(world, a)
    offsets: dict[int, list[int]] = {}
    for record in a.records:
        offsets.setdefault(record.partition, []).append(record.offset)
    assert offsets == {number: list(range(EACH)) for number in range(PARTITIONS)}


def test_few_fetches_are_decoded_at_a_time_and_each_is_used_up() -> None:
    world, a = filled(fetch_max_bytes=10 * ANSWER)
    a.works_ms = 0
    for _ in range(2 * PARTITIONS):
        a.poll()
        assert decoded(a) <= MAX_OPEN_FETCHES
    order = [record.partition for record in a.records[1:]]
    # The first MAX_OPEN_FETCHES records are from different partitions, and the next MAX_OPEN_FETCHES records
    # are from the same partitions.
    assert len({*order[:MAX_OPEN_FETCHES]}) == len({*order[: 2 * MAX_OPEN_FETCHES]}) == MAX_OPEN_FETCHES
    read_on(world, a)
    assert len(a.records) == PARTITIONS * EACH


def test_a_fetch_of_a_paused_partition_is_discarded_and_decoded_again() -> None:
    world, a = filled(fetch_max_bytes=10 * ANSWER)
    a.works_ms = 0
    for _ in range(PARTITIONS):
        a.poll()
        a.pause(tp("t", a.records[-1].partition))
        assert decoded(a) <= MAX_OPEN_FETCHES
    assert len({record.partition for record in a.records}) == PARTITIONS
    a.resume(*world.partitions())
    read_on(world, a)
    assert (
        len(a.records)
        == len({(record.partition, record.offset) for record in a.records})
        == PARTITIONS * EACH
    )


@pytest.mark.parametrize("count", [2, 2_000])
@pytest.mark.parametrize("returned", [1, 3, 1_100])
def test_a_fetch_whose_decoded_records_were_discarded_continues_at_its_position(
    count: int, returned: int
) -> None:
    batches = [
        encode_batch([Record(100 * at + n, 0, b"", b"v%d" % n) for n in range(count)], compression="gzip")
        for at in (0, 100)
    ]
    chunk, whole = (CompletedFetch(b"".join(batches), 0, None, True) for _ in range(2))
    expected = whole.rows("t", 0, 10**6)
    first = chunk.rows("t", 0, returned)
    chunk.discard_decoded()
    assert first + chunk.rows("t", 0, 10**6) == expected
    assert chunk.exhausted


def test_columns_decoded_at_once_are_bounded_whatever_the_compression_ratio_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    room = 200_000
    monkeypatch.setattr("consumer.engine.fetch.collector.MAX_DECODED_BYTES", room)
    data = encode_batch([Record(n, 0, None, bytes(SIZE)) for n in range(EACH)], compression="gzip")
    deliveries, positions = FetchCollector(), SubscriptionState()
    for partition in range(PARTITIONS):
        state = positions.add(tp("t", partition), announced=True)
        state.set_position(0)
        state.fetches.append(CompletedFetch(data, 0, None, True))
        deliveries.visit(state)
    took: list[list[int]] = []
    while sum(map(sum, took)) < PARTITIONS * EACH:
        took.append([len(batch.columns) for batch in deliveries.columns()])
        for state in positions.states.values():
            deliveries.visit(state)
    most = room // (EACH * SIZE) + 1
    assert took == [[EACH] * most] * (PARTITIONS // most) + [[EACH] * (PARTITIONS % most)]


def in_parts(monkeypatch: pytest.MonkeyPatch, *sizes: int, codec: str = "gzip") -> CompletedFetch:
    """Return a fetch with one batch of each size. Batches are decoded in parts of at most 10 records."""
    monkeypatch.setattr("consumer.engine.fetch.buffers.MAX_DECODED_RECORDS", 30)
    monkeypatch.setattr("consumer.engine.fetch.buffers.PART_RECORDS", 10)
    data, base = b"", 0
    for size in sizes:
        records = [Record(base + n, 1000, b"", b"", (("h", b""),) * (n == 7)) for n in range(size)]
        data += encode_batch(records, compression=codec)
        base += size
    fetch = CompletedFetch(data, 0, None, True)
    assert fetch.decodes_in_parts
    return fetch


@pytest.mark.parametrize("limit", [1, 3, 10, 20, 25, 1000])
def test_records_that_are_decoded_in_parts_are_returned_once_and_in_order(
    monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    fetch, offsets = in_parts(monkeypatch, 45, 20, 33), list[int]()
    while not fetch.exhausted:
        records = fetch.rows("t", 0, limit)
        offsets += [record.offset for record in records]
        assert len(records) <= limit
        assert fetch.position == len(offsets)
        if len(offsets) in (20, 24, 50):
            fetch.discard_decoded()
    assert offsets == list(range(98))


@pytest.mark.parametrize("returned", [0, 4, 10, 45, 50])
def test_columns_that_are_decoded_in_parts_continue_after_rows(
    monkeypatch: pytest.MonkeyPatch, returned: int
) -> None:
    fetch = in_parts(monkeypatch, 45, 20, 33)
    offsets = [record.offset for record in fetch.rows("t", 0, returned)]
    headers = list[object]()
    while not fetch.exhausted:
        columns = fetch.columns()
        if columns is not None:
            assert len(columns) <= 10
            offsets += columns.offset.tolist()
            headers += columns.headers
            assert fetch.position == len(offsets)
    assert offsets == list(range(98))
    assert [n for n, header in enumerate(headers, returned) if header] == [
        n for n in (7, 52, 72) if n >= returned
    ]


@pytest.mark.parametrize("as_columns", [False, True])
def test_the_parts_before_an_invalid_record_are_returned_and_then_its_error_each_time(
    monkeypatch: pytest.MonkeyPatch, as_columns: bool
) -> None:
    monkeypatch.setattr("consumer.engine.fetch.buffers.MAX_DECODED_RECORDS", 30)
    monkeypatch.setattr("consumer.engine.fetch.buffers.PART_RECORDS", 10)
    fetch = CompletedFetch(raw(smallest_records(64)[:-1], 64, "gzip"), 0, None, True)
    offsets = list[int]()
    for _ in range(7):
        if as_columns:
            columns = fetch.columns()
            assert columns is not None
            offsets += columns.offset.tolist()
        else:
            offsets += [record.offset for record in fetch.rows("t", 0, 10)]
    assert offsets == list(range(63))
    assert fetch.position == 63
    for _ in range(2):
        with pytest.raises(RecordError):
            fetch.columns() if as_columns else fetch.rows("t", 0, 10)


def test_columns_of_a_fetch_that_is_decoded_in_parts_end_after_one_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deliveries, positions = FetchCollector(), SubscriptionState()
    state = positions.add(tp("t", 0), announced=True)
    state.set_position(0)
    state.fetches.append(in_parts(monkeypatch, 45))
    took = list[list[int]]()
    while state.fetches:
        deliveries.visit(state)
        took.append([len(batch.columns) for batch in deliveries.columns()])
    assert took == [[10], [10], [10], [10], [5]]


@pytest.mark.parametrize("as_columns", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_fetch_that_claims_millions_of_records_is_read_in_little_memory(as_columns: bool) -> None:
    data = raw(SMALLEST * 1_000_000, 1_000_000, "gzip")
    assert len(data) < 50_000
    tracemalloc.start()
    try:
        fetch = CompletedFetch(data, 0, None, True)
        for _ in range(2):
            columns = fetch.columns() if as_columns else None
            assert len(columns if columns is not None else fetch.rows("t", 0, 500)) >= 500
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()
