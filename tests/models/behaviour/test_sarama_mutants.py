"""Each mutant of sarama's model fails the test that is named with it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.models.sarama import (
    broker_consumer,
    consumer_group_join,
    consumer_group_session,
    offset_manager,
    offset_manager_close,
    partition_consumer,
    sticky_balance_strategy,
)
from kproto.models.sarama.routines import Routine, Ticker
from tests.models.sarama import (
    test_broker_consumer,
    test_consumer_group_join,
    test_consumer_group_session,
    test_offset_manager,
)
from tests.models.sarama import test_consumer_group_cooperative as cooperative

Patch = pytest.MonkeyPatch


def ids_are_kept(patch: Patch) -> None:
    patch.setattr(consumer_group_join, "_FORGET", frozenset())


def nothing_is_retried(patch: Patch) -> None:
    patch.setattr(consumer_group_join, "_BACK_OFF", frozenset())


def no_retry_is_used_up(patch: Patch) -> None:
    def rediscovered(join: consumer_group_join.Join, trouble: object) -> None:
        join.move(consumer_group_join.S.FINDING_COORDINATOR)
        consumer_group_join._join_sync(join)

    row = {
        **consumer_group_join.Join.TABLE["coordinator_found"],
        consumer_group_join.S.REDISCOVERING: rediscovered,
    }
    patch.setattr(
        consumer_group_join.Join, "TABLE", {**consumer_group_join.Join.TABLE, "coordinator_found": row}
    )


def the_last_commit_is_left_out(patch: Patch) -> None:
    patch.setattr(offset_manager_close.LastFlush, "start", lambda last: offset_manager_close._finish(last))
    patch.setitem(
        offset_manager_close.LastFlush.EDGES, offset_manager_close.L.STOPPING, {offset_manager_close.L.DONE}
    )


def marks_go_back(patch: Patch) -> None:
    def mark(one: offset_manager.PartitionOffset, offset: int, metadata: str = "") -> None:
        one.offset, one.metadata, one.dirty = offset, metadata, True

    patch.setattr(offset_manager.PartitionOffset, "mark", mark)


def an_answer_cleans_what_it_did_not_commit(patch: Patch) -> None:
    def committed(one: offset_manager.PartitionOffset, offset: int, metadata: str) -> None:
        one.dirty = False

    patch.setattr(offset_manager.PartitionOffset, "on_committed", committed)


def commits_do_not_wait_for_the_generation(patch: Patch) -> None:
    def lock_generation(self: offset_manager.OffsetManager, routine: Routine) -> None:
        self.client.resume(routine, "commits_locked")

    patch.setattr(offset_manager.OffsetManager, "lock_generation", lock_generation)


def heartbeats_do_not_wait_for_the_join(patch: Patch) -> None:
    def lock(self: consumer_group_session.GroupSession, routine: Routine) -> None:
        self.client.resume(routine, "generation_locked")

    patch.setattr(consumer_group_session.GroupSession, "lock", lock)


def heartbeats_end_with_the_rebalance(patch: Patch) -> None:
    wait = consumer_group_session._wait

    def stop(heartbeat: consumer_group_session.Heartbeat) -> None:
        wait(heartbeat) if heartbeat.session.cause is None else consumer_group_session._stop(heartbeat)

    patch.setattr(consumer_group_session, "_wait", stop)


def a_slow_partition_is_never_left_out(patch: Patch) -> None:
    patch.setattr(Ticker, "take_tick", lambda ticker, now: False)
    row = dict.fromkeys(partition_consumer.E, lambda feeder, what: None)
    patch.setattr(
        partition_consumer.Feeder, "TABLE", {**partition_consumer.Feeder.TABLE, "timer_elapsed": row}
    )


def the_fetcher_does_not_wait_for_its_partitions(patch: Patch) -> None:
    fetched = broker_consumer._on_response

    def at_once(fetcher: broker_consumer.BrokerFetcher, answer: object) -> None:
        fetched(fetcher, answer)  # type: ignore[arg-type]
        if fetcher.state is broker_consumer.X.FEEDING:
            broker_consumer._await_batch(fetcher, None)

    row = {**broker_consumer.BrokerFetcher.TABLE["response"], broker_consumer.X.FETCHING: at_once}
    patch.setattr(
        broker_consumer.BrokerFetcher, "TABLE", {**broker_consumer.BrokerFetcher.TABLE, "response": row}
    )


def a_partition_changes_hands_at_once(patch: Patch) -> None:
    patch.setattr(sticky_balance_strategy, "_withhold_revoked", lambda has, members: None)


def revoked_claims_are_not_committed(patch: Patch) -> None:
    patch.setattr(offset_manager.OffsetManager, "request", lambda offsets, targets: None)


D = test_consumer_group_join.test_s3_19_d_an_unknown_member_resets_its_id_and_rejoins_without_using_a_retry
E_F = test_consumer_group_join.test_s3_19_e_f_j_retriable_errors_wait_two_seconds_look_up_and_keep_the_id
WAITS = cooperative.test_no_heartbeat_and_no_commit_between_join_and_sync
BEATS = test_consumer_group_session.test_heartbeats_continue_during_the_callback_and_the_last_commit
SLOW = test_broker_consumer.test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time
BARRIER = test_broker_consumer.test_m187_below_the_processing_time_the_slowest_partition_delays_all
REVOKED = cooperative.test_revoked_claims_are_committed_with_the_new_generation_before_the_second_join

MUTANTS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (ids_are_kept, lambda: D(25, "Join")),
    (nothing_is_retried, lambda: E_F(27, "Sync")),
    (
        no_retry_is_used_up,
        lambda: test_consumer_group_join.test_s3_19_f_there_are_four_retries([0, *[27] * 5], 5),
    ),
    (the_last_commit_is_left_out, test_consumer_group_session.test_the_callback_runs_before_the_commit_and_the_commit_before_the_join),
    (marks_go_back, test_offset_manager.test_mark_only_advances_the_offset),
    (
        an_answer_cleans_what_it_did_not_commit,
        test_offset_manager.test_s3_18_an_offset_marked_since_the_commit_stays_dirty,
    ),
    (commits_do_not_wait_for_the_generation, WAITS),
    (heartbeats_do_not_wait_for_the_join, WAITS),
    (heartbeats_end_with_the_rebalance, BEATS),
    (a_slow_partition_is_never_left_out, SLOW),
    (the_fetcher_does_not_wait_for_its_partitions, BARRIER),
    (
        a_partition_changes_hands_at_once,
        cooperative.test_a_partition_that_changes_its_owner_is_assigned_to_no_member_first,
    ),
    (revoked_claims_are_not_committed, REVOKED),
]


@pytest.mark.thorough
@pytest.mark.parametrize(("mutant", "claim"), MUTANTS, ids=[mutant.__name__ for mutant, _ in MUTANTS])
def test_a_mutant_dies(mutant: Callable[[Patch], None], claim: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        with pytest.raises((AssertionError, KeyError, StopIteration, IndexError)):
            claim()
    claim()
