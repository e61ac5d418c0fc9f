"""The state of an assigned partition decides whether it is fetched, returned and committed."""

from __future__ import annotations

from typing import Any

import pytest

from consumer.engine.fetch.buffers import CompletedFetch
from consumer.engine.positions.partition_states import (
    OffsetReset,
    PartitionState,
    SubscriptionState,
)
from kproto.errors import LogTruncated
from kproto.records import Record, encode_batch
from tests.consumer.stage import World, tp

T0, T1 = tp("t", 0), tp("t", 1)


def test_records_that_a_pause_discards_are_fetched_again() -> None:
    """Paused partitions buffer at most fetch_max_bytes together, so one of the two buffers is discarded."""
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


# ---- the states of one partition, without a consumer


def fetching(offset: int = 5, **fields: Any) -> tuple[SubscriptionState, PartitionState]:
    """Return (subscription, partition). The partition's `assigned` callback has ended, and the partition
    fetches from `offset`.
    """
    home = SubscriptionState()
    state = home.add(T0, announced=True)
    state.set_position(offset, 3)
    for name, value in fields.items():
        setattr(state, name, value)
    home.dirty.clear()
    return home, state


def fetched(start: int, count: int, epoch: int = 3) -> CompletedFetch:
    records = [Record(start + number, 0, None, b"v") for number in range(count)]
    return CompletedFetch(encode_batch(records, partition_leader_epoch=epoch), start, None, True)


def take(state: PartitionState, limit: int) -> None:
    """Return records of the first buffered fetch to the application."""
    chunk = state.fetches[0]
    records = chunk.rows("t", 0, limit)
    state.on_records_taken(chunk, len(records))


def test_returned_records_are_committed_when_they_are_processed() -> None:
    home, state = fetching()
    state.on_committed(5)
    state.add_fetch(fetched(5, 3, epoch=4))
    assert (state.fetch_offset, state.position, state.lag) == (8, 5, None)
    take(state, 2)
    assert (state.position, state.leader_epoch, len(state.fetches)) == (7, 4, 1)
    assert home.states_to_commit() == {}
    home.mark_processed()
    assert home.states_to_commit() == {T0: state}
    assert state.offset_to_commit == (7, 4, "")
    take(state, 9)
    assert (state.position, len(state.fetches)) == (8, 0)
    home.mark_processed({T0: 7})
    assert (state.processed, home.returned) == (7, {T0: state})
    home.mark_processed()
    assert (state.processed, home.returned) == (8, {})


def test_a_commit_is_uncertain_until_its_response_and_only_the_last_one_counts() -> None:
    home, state = fetching()
    state.add_fetch(fetched(5, 3))
    take(state, 3)
    state.on_commit_sent(8, "first")
    assert state.processed == 8
    assert home.states_to_commit() == {T0: state}
    state.on_commit_sent(8, "second")
    state.on_committed(8, "first")
    assert not state.has_committed(8)
    state.on_committed(8, "second")
    assert state.has_committed(8)
    assert home.states_to_commit() == {}
    state.on_commit_sent(8, "again")
    assert state.has_committed(8)
    state.on_commit_sent(6, "lower")
    assert (state.processed, state.has_committed(8)) == (8, False)
    assert home.states_to_commit() == {T0: state}


def test_the_commit_of_returned_records_is_uncertain_although_the_start_was_committed() -> None:
    home, state = fetching()
    state.on_committed(5)
    state.add_fetch(fetched(5, 3))
    take(state, 3)
    assert home.states_to_commit() == {}
    state.on_commit_sent(8, "commit")
    assert home.states_to_commit() == {T0: state}


@pytest.mark.parametrize("offset", [5, 9])
def test_a_commit_outside_of_the_returned_records_processes_none(offset: int) -> None:
    _, state = fetching()
    state.add_fetch(fetched(5, 3))
    take(state, 3)
    state.on_commit_sent(offset, "commit")
    assert state.processed == 5


def test_stored_offsets_replace_those_of_processed_records() -> None:
    home, state = fetching()
    home.stores_manually = True
    assert (home.states_to_commit(), state.offset_to_commit) == ({}, (0, None, ""))
    state.on_committed(4)
    assert state.offset_to_commit == (4, None, "")
    state.store(6, 2, "note")
    assert (home.states_to_commit(), state.offset_to_commit) == ({T0: state}, (6, 2, "note"))
    state.on_commit_sent(6, "commit")
    state.on_committed(6, "commit")
    assert home.states_to_commit() == {}
    assert state.offset_to_commit == (6, 2, "note")


def test_the_start_offset_of_a_reset_is_not_committed_as_progress() -> None:
    home, state = fetching(start_offset=5)
    home.update_uncommitted(state)
    assert (state.is_at_start, home.states_to_commit()) == (True, {})
    state.on_committed(5)
    assert state.offset_to_commit == (5, 3, "")
    state.add_fetch(fetched(5, 1))
    take(state, 1)
    home.mark_processed()
    assert (state.is_at_start, home.states_to_commit()) == (False, {T0: state})


@pytest.mark.parametrize(
    ("fields", "fetchable", "deliverable"),
    [
        ({}, True, True),
        ({"paused": True}, False, False),
        ({"revoking": True}, False, False),
        ({"released": True}, False, False),
        ({"announced": False}, True, False),
        ({"start_uncommitted": True}, True, False),
        ({"start_commit_in_flight": True}, True, False),
        ({"extra_fetch_open": True}, False, True),
        ({"error": LogTruncated("t-0", 5, 3)}, False, False),
    ],
)
def test_a_partition_is_fetched_and_delivered_unless_something_prevents_it(
    fields: dict[str, Any], fetchable: bool, deliverable: bool
) -> None:
    _, state = fetching(**fields)
    assert (state.is_fetchable, state.is_deliverable) == (fetchable, deliverable)


def test_records_wait_while_the_initial_commit_is_in_flight() -> None:
    _, state = fetching()
    for in_flight in (True, False):
        state.set_start_commit_in_flight(in_flight)
        assert state.is_deliverable is not in_flight


def test_a_full_buffer_is_not_fetched_for() -> None:
    _, state = fetching()
    # The buffer holds two fetches: the one whose records are being returned, and the next one.
    for number in range(2):
        assert (state.is_fetchable, state.is_full) == (True, False)
        state.add_fetch(fetched(5 + number, 1))
    assert (state.is_fetchable, state.is_full) == (False, True)
    state.pause(True)
    assert not state.is_full


def test_a_fetch_without_records_is_not_repeated_at_the_same_offset() -> None:
    _, state = fetching(0)
    assert state.likely_has_records
    state.empty_at = 0
    assert not state.likely_has_records
    state.empty_at, state.high_watermark = 7, 1
    assert state.likely_has_records
    state.high_watermark = 0
    assert not state.likely_has_records
    state.set_position(0)
    assert state.empty_at == -1


def test_more_records_exist_up_to_the_smaller_of_high_watermark_and_last_stable_offset() -> None:
    for watermark, stable, more in (
        (None, None, False),
        (6, None, True),
        (5, None, False),
        (6, 5, False),
        (6, 6, True),
    ):
        _, state = fetching(high_watermark=watermark, last_stable_offset=stable)
        assert state.has_more is more


def test_lag_and_lead_count_from_the_position_and_are_never_negative() -> None:
    _, state = fetching(high_watermark=9, log_start_offset=2)
    assert (state.lag, state.lead) == (4, 3)
    state.last_stable_offset = 7
    assert state.lag == 2
    state.last_stable_offset, state.log_start_offset = 4, 8
    assert (state.lag, state.lead) == (0, 0)
    state.await_committed_offset()
    assert (state.lag, state.lead) == (None, None)


def test_a_validation_drops_the_buffer_and_keeps_what_was_processed_and_committed() -> None:
    home, state = fetching(committed=5)
    state.add_fetch(fetched(5, 3))
    take(state, 1)
    home.mark_processed()
    state.start_uncommitted, state.start_offset, epoch = True, 5, state.epoch
    home.dirty.clear()
    state.await_validation()
    assert (list(state.fetches), state.fetch_offset, state.position) == ([], 6, 6)
    assert (state.processed, state.committed, state.start_offset, state.start_uncommitted) == (6, 5, 5, True)
    assert (state.epoch > epoch, home.dirty, state.is_fetchable) == (True, {T0: state}, False)
    home.dirty.clear()
    state.on_validated(4)
    assert (state.validated, state.is_fetchable, home.dirty) == (4, True, {T0: state})


def test_a_new_position_forgets_everything_about_the_previous_one() -> None:
    home, state = fetching(failures=3, retry_at=9, extra_fetch_open=True, lookup_pending=True, validated=2)
    state.add_fetch(fetched(5, 3))
    take(state, 1)
    state.fail(LogTruncated("t-0", 5, 3))
    state.end_reported = True
    state.start_offset, state.start_uncommitted, state.empty_at = 5, True, 6
    epoch = state.epoch
    state.set_position(9)
    assert (state.position, state.fetch_offset, state.processed) == (9, 9, 9)
    assert (state.failures, state.retry_at, state.error, state.validated) == (0, 0, None, None)
    flags = (state.extra_fetch_open, state.lookup_pending, state.has_returned, state.end_reported)
    assert flags == (False,) * 4
    assert (state.start_offset, state.start_uncommitted, state.empty_at) == (None, False, -1)
    assert (list(state.fetches), state.leader_epoch, state.epoch > epoch) == ([], None, True)
    assert home.states_to_commit() == {T0: state}


def test_a_rewind_keeps_the_commit_and_lowers_what_was_processed() -> None:
    home, state = fetching(committed=5, validated=3)
    state.add_fetch(fetched(5, 3))
    take(state, 3)
    home.mark_processed()
    state.rewind(6)
    assert (state.position, state.processed, state.committed) == (6, 6, 5)
    assert (state.validated, state.has_returned, state.leader_epoch) == (3, True, 3)
    assert home.states_to_commit() == {T0: state}


def test_a_discarded_buffer_is_fetched_again_from_the_position() -> None:
    _, state = fetching(empty_at=8, extra_fetch_open=True)
    state.add_fetch(fetched(5, 3))
    take(state, 1)
    epoch = state.epoch
    state.discard_buffer()
    assert (list(state.fetches), state.fetch_offset, state.empty_at) == ([], 6, -1)
    assert (state.extra_fetch_open, state.epoch > epoch) == (False, True)


def test_two_fetches_with_records_end_a_row_of_resets() -> None:
    _, state = fetching(reset_count=2, failures=3)
    state.add_fetch(fetched(5, 1))
    assert (state.reset_count, state.failures) == (2, 0)
    state.add_fetch(fetched(6, 1))
    assert state.reset_count == 0
    _, state = fetching(reset_count=2, has_returned=True)
    state.add_fetch(fetched(5, 1))
    assert state.reset_count == 0


def test_a_re_created_topic_has_no_offsets_yet() -> None:
    _, state = fetching(committed=5, high_watermark=9, last_stable_offset=9, log_start_offset=0, replica=2)
    state.store(6, None, "")
    state.on_topic_recreated()
    offsets = (state.committed, state.high_watermark, state.last_stable_offset, state.log_start_offset)
    assert offsets == (None,) * 4
    assert (state.leader_epoch, state.replica, state.stored) == (None, None, None)


def test_a_back_off_makes_the_partition_dirty_at_its_end() -> None:
    home, state = fetching()
    state.back_off_until(100)
    second = home.add(T1)
    second.back_off_until(90)
    home.dirty.clear()
    assert home.due() == 90
    home.mark_due_dirty(99)
    assert home.dirty == {T1: second}
    home.mark_due_dirty(100)
    assert home.dirty == {T1: second, T0: state}
    assert home.due() is None


def test_a_dropped_partition_is_neither_committed_nor_returned() -> None:
    home, state = fetching()
    state.add_fetch(fetched(5, 3))
    take(state, 1)
    home.mark_processed()
    assert (T0 in home, len(home), list(home)) == (True, 1, [T0])
    assert home.drop(T0) is state
    assert (home.losses, home.states_to_commit(), home.returned, list(state.fetches)) == (1, {}, {}, [])
    assert home.drop(T0) is None
    assert home.losses == 1
    home.update_uncommitted(state)
    assert home.states_to_commit() == {}


def test_a_partition_that_was_assigned_again_is_not_made_dirty_by_its_old_state() -> None:
    home, old = fetching()
    home.drop(T0)
    new = home.add(T0)
    home.dirty.clear()
    old.mark_dirty()
    assert home.dirty == {}
    new.mark_dirty()
    assert home.dirty == {T0: new}


def test_commits_may_be_limited_to_partitions_and_to_committed_ones() -> None:
    home, state = fetching()
    second = home.add(T1)
    second.set_position(2)
    assert home.states_to_commit() == {T0: state, T1: second}
    assert home.states_to_commit([T1, tp("t", 9)]) == {T1: second}
    assert home.processed_states() == {T0: state, T1: second}
    assert home.committed_states() == {}
    second.on_committed(2)
    assert home.committed_states() == {T1: second}
    second.start_uncommitted = True
    assert home.committed_states() == {}
    second.await_committed_offset()
    assert home.processed_states() == {T0: state}


def test_every_change_that_another_part_of_the_engine_must_see_makes_the_partition_dirty() -> None:
    for change in (
        lambda state: state.pause(True),
        lambda state: state.revoke(),
        lambda state: state.announce(),
        lambda state: state.set_start_commit_in_flight(True),
        lambda state: state.on_start_committed(),
        lambda state: state.fail(LogTruncated("t-0", 5, 3)),
        lambda state: state.back_off_until(9),
        lambda state: state.add_fetch(fetched(5, 1)),
        lambda state: state.set_position(7),
        lambda state: state.await_committed_offset(),
        lambda state: state.await_reset(OffsetReset(-2, "why")),
    ):
        home, state = fetching()
        change(state)
        assert home.dirty == {T0: state}
    home, state = fetching()
    home.drop(T0)
    assert home.dirty == {T0: state}


def test_a_partition_that_is_being_revoked_is_neither_fetched_nor_delivered() -> None:
    _, state = fetching()
    state.revoke()
    assert (state.is_fetchable, state.is_deliverable) == (False, False)


def test_returned_records_and_completely_returned_fetches_are_counted_once() -> None:
    home, state = fetching()
    chunk = fetched(5, 3)
    state.add_fetch(chunk)
    take(state, 2)
    assert (home.unrecorded, state.take_counts()) == ({state: None}, (2, 0))
    take(state, 1)
    assert state.take_counts() == (1, len(chunk.data))
    assert state.take_counts() == (0, 0)


def test_lags_and_leads_after_records_were_returned_are_the_extreme_and_the_last_one() -> None:
    _, state = fetching(last_stable_offset=20, log_start_offset=2)
    assert (state.take_lags(), state.take_leads()) == (set(), set())
    for start in (5, 7, 9):
        state.add_fetch(fetched(start, 2))
        take(state, 2)
    assert (state.take_lags(), state.take_leads()) == ({13, 9}, {5, 9})
    assert (state.take_lags(), state.take_leads()) == (set(), set())
    state.last_stable_offset = state.high_watermark = 3
    state.log_start_offset = 99
    state.add_fetch(fetched(11, 1))
    take(state, 1)
    assert (state.take_lags(), state.take_leads()) == ({0}, {0})
