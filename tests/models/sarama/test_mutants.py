"""The claims of this folder fail where the machine is spoilt: each mutant dies by the test that names it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kproto.models.sarama import fanout, joining, last_flush, offsets, partition, session, sticky
from kproto.models.sarama.routines import Routine, Ticker
from tests.models.sarama import test_cooperative, test_fanout, test_joining, test_offsets, test_session

Patch = pytest.MonkeyPatch


def ids_are_kept(patch: Patch) -> None:
    patch.setattr(joining, "_FORGET", frozenset())


def nothing_is_retried(patch: Patch) -> None:
    patch.setattr(joining, "_BACK_OFF", frozenset())


def no_retry_is_used_up(patch: Patch) -> None:
    def rediscovered(join: joining.Join, trouble: object) -> None:
        join.move(joining.S.finding)
        joining._join_sync(join)

    row = {**joining.Join.TABLE["found"], joining.S.rediscovering: rediscovered}
    patch.setattr(joining.Join, "TABLE", {**joining.Join.TABLE, "found": row})


def the_last_commit_is_left_out(patch: Patch) -> None:
    patch.setattr(last_flush.LastFlush, "start", lambda last: last_flush._give_up(last))
    patch.setitem(last_flush.LastFlush.EDGES, last_flush.L.stopping, {last_flush.L.done})


def marks_go_back(patch: Patch) -> None:
    def mark(one: offsets.Managed, offset: int, metadata: str = "") -> None:
        one.offset, one.metadata, one.dirty = offset, metadata, True

    patch.setattr(offsets.Managed, "mark", mark)


def an_answer_cleans_what_it_did_not_commit(patch: Patch) -> None:
    def committed(one: offsets.Managed, offset: int, metadata: str) -> None:
        one.dirty = False

    patch.setattr(offsets.Managed, "committed", committed)


def commits_do_not_wait_for_the_generation(patch: Patch) -> None:
    def lock_generation(self: offsets.Offsets, routine: Routine) -> None:
        self.client.resume(routine, "locked")

    patch.setattr(offsets.Offsets, "lock_generation", lock_generation)


def heartbeats_do_not_wait_for_the_join(patch: Patch) -> None:
    def lock(self: session.Session, routine: Routine) -> None:
        self.client.resume(routine, "has_lock")

    patch.setattr(session.Session, "lock", lock)


def heartbeats_end_with_the_rebalance(patch: Patch) -> None:
    wait = session._wait

    def stop(heartbeat: session.Heartbeat) -> None:
        wait(heartbeat) if heartbeat.session.cause is None else session._stop(heartbeat)

    patch.setattr(session, "_wait", stop)


def a_slow_partition_is_never_left_out(patch: Patch) -> None:
    patch.setattr(Ticker, "take", lambda ticker, now: False)
    row = dict.fromkeys(partition.E, lambda feeder, what: None)
    patch.setattr(partition.Feeder, "TABLE", {**partition.Feeder.TABLE, "elapsed": row})


def the_fetcher_does_not_wait_for_its_partitions(patch: Patch) -> None:
    fetched = fanout._fetched

    def at_once(fetcher: fanout.Fetcher, answer: object) -> None:
        fetched(fetcher, answer)  # type: ignore[arg-type]
        if fetcher.state is fanout.X.feeding:
            fanout._receive(fetcher, None)

    row = {**fanout.Fetcher.TABLE["answered"], fanout.X.fetching: at_once}
    patch.setattr(fanout.Fetcher, "TABLE", {**fanout.Fetcher.TABLE, "answered": row})


def a_partition_changes_hands_at_once(patch: Patch) -> None:
    patch.setattr(sticky, "_withhold", lambda has, members: None)


def revoked_claims_are_not_committed(patch: Patch) -> None:
    patch.setattr(offsets.Offsets, "request", lambda offsets, targets: None)


D = test_joining.test_s3_19_d_an_unknown_member_forgets_its_id_and_joins_at_once_without_a_retry
E_F = test_joining.test_s3_19_e_f_j_these_wait_two_seconds_look_the_coordinator_up_and_keep_the_id
WAITS = test_cooperative.test_no_heartbeat_and_no_commit_between_join_and_sync
BEATS = test_session.test_heartbeats_go_on_through_the_callback_and_the_last_commit
SLOW = test_fanout.test_s3_12_a_slow_partition_is_left_out_after_twice_the_processing_time
BARRIER = test_fanout.test_m187_below_that_time_the_slowest_partition_delays_all
REVOKED = test_cooperative.test_revoked_claims_are_committed_with_the_new_generation_before_the_second_join

MUTANTS: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (ids_are_kept, lambda: D(25, "Join")),
    (nothing_is_retried, lambda: E_F(27, "Sync")),
    (no_retry_is_used_up, lambda: test_joining.test_s3_19_f_there_are_four_retries([0, *[27] * 5], 5)),
    (the_last_commit_is_left_out, test_session.test_callback_then_commit_then_join),
    (marks_go_back, test_offsets.test_mark_goes_forward_only),
    (
        an_answer_cleans_what_it_did_not_commit,
        test_offsets.test_s3_18_what_was_marked_since_the_commit_stays_dirty,
    ),
    (commits_do_not_wait_for_the_generation, WAITS),
    (heartbeats_do_not_wait_for_the_join, WAITS),
    (heartbeats_end_with_the_rebalance, BEATS),
    (a_slow_partition_is_never_left_out, SLOW),
    (the_fetcher_does_not_wait_for_its_partitions, BARRIER),
    (
        a_partition_changes_hands_at_once,
        test_cooperative.test_a_partition_that_changes_hands_is_given_to_nobody_first,
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
