"""A partition's log finds batches by offset and timestamp, can be truncated, and tracks epochs."""

from __future__ import annotations

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from kproto.broker.log import EpochEnd, Log, TimestampOffset
from kproto.records import assign_offsets, batches, rows
from tests.broker.stage import batch_of
from tests.records.raw_batches import NOW, SMALLEST, raw, smallest_records


def log_of(*sizes: int, timestamps: list[list[int]] | None = None) -> Log:
    """Return a log with a batch for each of `sizes` (numbers of records). Record values are the offsets."""
    log = Log()
    for index, size in enumerate(sizes):
        times = timestamps[index] if timestamps else None
        values = [b"%d" % (log.end_offset + i) for i in range(size)]
        batch = assign_offsets(batch_of(*values, timestamps=times), log.end_offset, log.leader_epoch)
        log.append(batch, size, max(times) if times else 1000 + size - 1)
    return log


def log_in_epochs(*sizes: int) -> Log:
    """Return a log with a leader epoch for each of `sizes`. A size is a number of records, and may be 0."""
    log = Log()
    for epoch, size in enumerate(sizes):
        if epoch:
            log.start_leader_epoch()
        if size:
            batch = assign_offsets(batch_of(*[b"x"] * size), log.end_offset, log.leader_epoch)
            log.append(batch, size, 1000)
    return log


def offsets(chunks: list[bytes]) -> list[int]:
    return [record.offset for record in rows(b"".join(chunks))]


def readable(log: Log) -> list[int]:
    read = offsets(log.read(log.start_offset, 1 << 20, at_least_one=True))
    return [offset for offset in read if offset >= log.start_offset]


def test_batches_are_stored_one_after_the_other() -> None:
    log = log_of(2, 3, 1)
    assert log.end_offset == 6
    assert offsets(log.read(0, 1 << 20, at_least_one=False)) == [0, 1, 2, 3, 4, 5]


def test_a_read_starts_with_the_batch_that_contains_the_offset() -> None:
    assert offsets(log_of(2, 3, 1).read(3, 1 << 20, at_least_one=False)) == [2, 3, 4, 5]


def test_a_read_at_the_end_is_empty() -> None:
    assert log_of(2).read(2, 1 << 20, at_least_one=True) == []


def test_a_read_of_an_empty_log_is_empty() -> None:
    assert Log().read(0, 1 << 20, at_least_one=True) == []


def test_only_whole_batches_within_the_limit_are_read() -> None:
    log = log_of(2, 2, 2)
    two = sum(len(chunk) for chunk in log.read(0, 1 << 20, at_least_one=False)[:2])
    assert offsets(log.read(0, two, at_least_one=False)) == [0, 1, 2, 3]
    assert offsets(log.read(0, two - 1, at_least_one=False)) == [0, 1]


def test_a_first_batch_above_the_limit_is_read_with_at_least_one() -> None:
    log = log_of(2, 2)
    assert offsets(log.read(0, 1, at_least_one=True)) == [0, 1]
    assert log.read(0, 1, at_least_one=False) == []


@given(st.lists(st.integers(1, 5), max_size=12), st.data())
def test_every_read_contains_its_offset_and_no_gap(sizes: list[int], data: st.DataObject) -> None:
    log = log_of(*sizes)
    start = data.draw(st.integers(0, log.end_offset))
    log.delete_before(start)
    at = data.draw(st.integers(start, log.end_offset))
    got = offsets(log.read(at, data.draw(st.integers(0, 1000)), at_least_one=True))
    assert got == list(range(got[0], got[0] + len(got))) if got else at == log.end_offset
    assert not got or got[0] <= at <= got[-1]


@given(
    st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), max_size=8),
    st.integers(0, 31),
    st.integers(0, 40),
)
def test_a_search_by_timestamp_equals_a_linear_scan(
    times: list[list[int]], wanted: int, deleted: int
) -> None:
    log = log_of(*map(len, times), timestamps=times)
    log.delete_before(min(deleted, log.end_offset))
    flat = [time for batch in times for time in batch]
    expected = [
        TimestampOffset(offset, time, 0)
        for offset, time in enumerate(flat)
        if time >= wanted and offset >= log.start_offset
    ]
    assert log.first_at(wanted) == (expected[0] if expected else None)


def test_a_search_by_timestamp_decodes_only_the_records_before_the_result() -> None:
    log = Log()
    log.append(raw(smallest_records(1) + SMALLEST * 1_999_999, 2_000_000, "gzip"), 2_000_000, NOW)
    tracemalloc.start()
    try:
        assert log.first_at(NOW) == TimestampOffset(0, NOW, -1)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_the_latest_timestamp_is_found_at_its_first_record() -> None:
    log = log_of(2, 3, timestamps=[[5, 9], [7, 9, 8]])
    assert log.latest_timestamp() == TimestampOffset(1, 9, 0)


def test_an_empty_log_has_no_latest_timestamp() -> None:
    assert Log().latest_timestamp() is None


def test_delete_before_removes_the_batches_before_the_new_start() -> None:
    log = log_of(2, 2, 2)
    whole = log.size
    log.delete_before(3)
    assert log.start_offset == 3
    assert offsets(log.read(3, 1 << 20, at_least_one=False)) == [2, 3, 4, 5]
    assert log.size < whole


def test_a_log_without_records_continues_at_its_end() -> None:
    log = log_of(2, 2)
    log.delete_before(4)
    assert (log.start_offset, log.end_offset, log.size) == (4, 4, 0)
    log.append(assign_offsets(batch_of(b"x"), 4, 0), 1, 0)
    assert offsets(log.read(4, 1 << 20, at_least_one=True)) == [4]


def test_the_start_offset_never_decreases() -> None:
    log = log_of(2, 2)
    log.delete_before(3)
    log.delete_before(1)
    assert log.start_offset == 3


def test_an_election_starts_an_epoch_at_the_end() -> None:
    log = log_of(2)
    log.start_leader_epoch()
    log.append(assign_offsets(batch_of(b"x"), 2, log.leader_epoch), 1, 0)
    assert [b.partition_leader_epoch for b in batches(b"".join(log.read(0, 1 << 20, at_least_one=True)))] == [
        0,
        1,
    ]
    assert [log.epoch_at(offset) for offset in range(3)] == [0, 0, 1]


def test_an_epoch_ends_where_the_next_one_started() -> None:
    log = log_in_epochs(2, 1)
    assert [log.epoch_end(epoch) for epoch in (0, 1)] == [EpochEnd(0, 2), EpochEnd(1, 3)]


def test_an_epoch_without_records_ends_with_the_one_before() -> None:
    """The entry of an epoch is removed if a newer epoch starts at the same offset (LeaderEpochFileCache)."""
    log = log_in_epochs(2, 0, 1)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [EpochEnd(0, 2), EpochEnd(0, 2), EpochEnd(2, 3)]


def test_an_epoch_before_all_known_ones_ends_where_the_first_started() -> None:
    assert log_in_epochs(0, 2).epoch_end(0) == EpochEnd(0, 0)


def test_epochs_of_deleted_records_are_removed() -> None:
    log = log_in_epochs(2, 2, 2)
    log.delete_before(3)
    assert [log.epoch_end(epoch) for epoch in (0, 1, 2)] == [EpochEnd(0, 3), EpochEnd(1, 4), EpochEnd(2, 6)]
    assert log.epoch_at(3) == 1


def test_an_unknown_epoch_has_no_end() -> None:
    assert log_of(2).epoch_end(1) == log_of(2).epoch_end(-1) == EpochEnd(-1, -1)


def test_a_truncated_log_starts_a_new_epoch_at_its_end() -> None:
    log = log_of(2, 3, 1)
    log.truncate(5)
    assert (log.end_offset, log.leader_epoch, log.epoch_end(0)) == (5, 1, EpochEnd(0, 5))
    assert offsets(log.read(0, 1 << 20, at_least_one=True)) == [0, 1, 2, 3, 4]


def test_a_batch_is_truncated_whole() -> None:
    log = log_of(2, 3, 1)
    log.truncate(3)
    assert (log.end_offset, offsets(log.read(0, 1 << 20, at_least_one=True))) == (2, [0, 1])


def test_truncated_epochs_are_removed() -> None:
    log = log_in_epochs(2, 2, 2)
    log.truncate(2)
    assert [log.epoch_end(e) for e in range(4)] == [EpochEnd(0, 2)] * 3 + [EpochEnd(3, 2)]


def test_a_truncated_log_can_be_appended_to() -> None:
    log = log_of(2, 3)
    log.truncate(2)
    log.append(assign_offsets(batch_of(b"new", timestamps=[7]), 2, log.leader_epoch), 1, 7)
    assert [record.value for record in rows(b"".join(log.read(2, 1 << 20, at_least_one=True)))] == [b"new"]
    assert log.first_at(0) == TimestampOffset(0, 1000, 0)


@given(st.lists(st.integers(1, 4), max_size=6), st.integers(0, 30), st.integers(0, 30))
def test_a_truncation_keeps_earlier_records(sizes: list[int], start: int, cut: int) -> None:
    log = log_of(*sizes)
    log.delete_before(min(start, log.end_offset))
    before = [
        o for o in offsets(log.read(log.start_offset, 1 << 20, at_least_one=True)) if o >= log.start_offset
    ]
    cut = max(log.start_offset, min(cut, log.end_offset))
    log.truncate(cut)
    assert log.start_offset <= log.end_offset <= cut
    remaining = [
        o for o in offsets(log.read(log.start_offset, 1 << 20, at_least_one=True)) if o >= log.start_offset
    ]
    assert remaining == [offset for offset in before if offset < log.end_offset]
