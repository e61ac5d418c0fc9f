"""Mutants (mistakes to patch into the engine), each with the invariant that it must break.

A mutant that breaks no invariant shows an untested rule. An invariant that no mutant breaks may still be
correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from consumer.engine import consumer as engines
from consumer.engine import events as ev
from consumer.engine.consumer import ConsumerEngine
from consumer.engine.core import ClientCore
from consumer.engine.fetch.collector import FetchCollector
from consumer.engine.fetch.fetcher import Fetcher
from consumer.engine.group.commit_queue import QueuedCommit
from consumer.engine.group.commits import Committer
from consumer.engine.group.membership import Membership
from consumer.engine.positions.offset_lookup import OffsetLookup
from consumer.engine.positions.partition_states import OffsetReset, PartitionState, SubscriptionState
from kproto.error_codes import ErrorCode
from kproto.errors import RequestTimedOut
from kproto.group.classic.member import join
from kproto.testing import invariants

Patch = pytest.MonkeyPatch
Change = Callable[[Patch], None]
MUTANTS: dict[str, tuple[Change, invariants.Invariant]] = {}


def mutant(invariant: invariants.Invariant) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        MUTANTS[change.__name__] = (change, invariant)
        return change

    return add


# ---- owners


@mutant(invariants.no_partition_has_two_owners)
def an_eager_member_joins_without_revoking(patch: Patch) -> None:
    original = join.prepare_join

    def prepare(member: Any, out: Any) -> None:
        member.is_prepared = member.is_prepared or not member.cooperative
        original(member, out)

    patch.setattr(join, "prepare_join", prepare)


@mutant(invariants.a_fenced_member_is_silent)
def errors_of_heartbeats_are_ignored(patch: Patch) -> None:
    original = Membership._on_call_finished

    def on_call_finished(self: Membership, action: Any, call: Any) -> None:
        if type(call.response).__name__ == "HeartbeatResponse":
            call.response.error_code = 0
        original(self, action, call)

    patch.setattr(Membership, "_on_call_finished", on_call_finished)


@mutant(invariants.nothing_of_a_revoked_partition_is_delivered)
def revoked_partitions_are_kept(patch: Patch) -> None:
    patch.setattr(SubscriptionState, "drop", lambda self, partition: None)
    patch.setattr(PartitionState, "revoke", lambda self: None)


@mutant(invariants.a_cooperative_rebalance_takes_two_rounds)  # type: ignore[arg-type]
def a_cooperative_member_joins_once_more_for_nothing(patch: Patch) -> None:
    original = Membership._assign

    def assign(self: Membership, action: Any) -> None:
        original(self, action)
        if len(self._core.partitions) and not getattr(self, "_more", 0) > 3:
            self._more = getattr(self, "_more", 0) + 1  # type: ignore[attr-defined]
            self.request_rejoin("for nothing")

    patch.setattr(Membership, "_assign", assign)


# ---- positions


@mutant(invariants.nothing_is_skipped_or_repeated_while_owned)
def the_last_record_of_a_poll_is_lost(patch: Patch) -> None:
    original = FetchCollector.rows
    patch.setattr(FetchCollector, "rows", lambda self, limit: original(self, limit)[: max(1, limit - 1)])


@mutant(invariants.nothing_is_skipped_or_repeated_while_owned)
def fetches_restart_after_a_broken_connection(patch: Patch) -> None:
    original = PartitionState.add_fetch

    def add_fetch(self: PartitionState, chunk: Any) -> None:
        original(self, chunk)
        if len(self.fetches) == 1 and self.has_returned:
            self.fetch_offset = max(0, self.fetch_offset - 1)
            self.fetches[-1].position = max(0, self.fetches[-1].position - 1)

    patch.setattr(PartitionState, "add_fetch", add_fetch)


@mutant(invariants.a_partition_starts_where_the_group_committed)
def what_the_group_committed_is_one_too_low(patch: Patch) -> None:
    original = PartitionState.set_position

    def start_at(self: PartitionState, offset: int, leader_epoch: int | None = None) -> None:
        fresh = self.processed is None and self.state.value == "initializing"
        original(self, offset - 1 if fresh and offset > 0 else offset, leader_epoch)

    patch.setattr(PartitionState, "set_position", start_at)


@mutant(invariants.the_last_seek_wins)
def records_buffered_before_a_seek_are_delivered(patch: Patch) -> None:
    original = PartitionState.set_position

    def start_at(self: PartitionState, offset: int, leader_epoch: int | None = None) -> None:
        buffered = list(self.fetches)
        original(self, offset, leader_epoch)
        self.fetches.extend(buffered)

    patch.setattr(PartitionState, "set_position", start_at)


@mutant(invariants.the_last_seek_wins)
def a_seek_to_an_existing_offset_uses_the_reset_policy(patch: Patch) -> None:
    original = ConsumerEngine.seek

    def seek(self: ConsumerEngine, event: ev.Seek) -> None:
        original(self, event)
        self.offset_lookup.reset_out_of_range(self.core.partitions.states[event.partition])

    patch.setitem(engines.TABLE, ev.Seek, seek)


@mutant(invariants.the_last_seek_wins)
def one_record_is_skipped_after_a_reset(patch: Patch) -> None:
    original = OffsetLookup._apply_listed_offset  # pyright: ignore[reportPrivateUsage]

    def listed(self: OffsetLookup, state: PartitionState, reset: Any, offset: int) -> None:
        original(self, state, reset, offset)
        if "out of range" in reset.reason:
            state.set_position(offset + 1)

    patch.setattr(OffsetLookup, "_apply_listed_offset", listed)


@mutant(invariants.nothing_paused_is_delivered)
def a_pause_only_stops_the_fetches(patch: Patch) -> None:
    original = ConsumerEngine.take

    def take(self: ConsumerEngine, event: ev.Take) -> None:
        paused = [state for state in self.core.partitions.states.values() if state.paused]
        for state in paused:
            state.pause(False)
        original(self, event)
        for state in paused:
            state.pause(True)

    patch.setitem(engines.TABLE, ev.Take, take)


# ---- commits


@mutant(invariants.what_is_committed_was_delivered)
def buffered_records_count_as_processed(patch: Patch) -> None:
    def mark(self: SubscriptionState, held: Any = None) -> None:
        for state in self.states.values():
            if state.has_position:
                state.processed = max(state.fetch_offset, state.position)
                self.update_uncommitted(state)
        self.returned.clear()

    patch.setattr(SubscriptionState, "mark_processed", mark)


@mutant(invariants.what_commit_reported_is_committed)
def a_commit_succeeds_before_it_is_sent(patch: Patch) -> None:
    def commit(self: Committer, offsets: Any, timeout_ms: int, on_committed: Any, once: bool = False) -> None:
        on_committed(None)

    patch.setattr(Committer, "commit", commit)


@mutant(invariants.what_commit_reported_is_committed)
def a_rejected_commit_succeeds(patch: Patch) -> None:
    original = QueuedCommit.complete
    patch.setattr(QueuedCommit, "complete", lambda self, error: original(self, None))


@mutant(invariants.a_clean_handover_loses_no_commit)
def partitions_are_revoked_without_a_commit(patch: Patch) -> None:
    patch.setattr(Membership, "_commit_then", lambda self, callback, proceed: proceed(callback))


@mutant(invariants.no_committed_offset_is_reset)
def an_error_of_offset_fetch_means_no_commit(patch: Patch) -> None:
    def look_up(self: OffsetLookup, states: Any) -> None:
        for state in list(states):
            self._reset_without_commit(state, others_committed=False)

    patch.setattr(OffsetLookup, "_retry_later", look_up)
    patch.setattr(OffsetLookup, "_back_off_longest", look_up)


# ---- calls that must end


@mutant(invariants.every_future_ends)
def a_commit_that_is_late_is_forgotten(patch: Patch) -> None:
    original = QueuedCommit.complete

    def complete(self: QueuedCommit, error: Any) -> None:
        if isinstance(error, RequestTimedOut):
            self.on_committed = lambda error: None
        original(self, error)

    patch.setattr(QueuedCommit, "complete", complete)


@mutant(invariants.close_ends_in_time)
def close_waits_for_the_group_however_long(patch: Patch) -> None:
    original = ConsumerEngine.close

    def close(self: ConsumerEngine, event: ev.Close) -> None:
        original(self, replace(event, timeout_ms=1 << 40))

    patch.setitem(engines.TABLE, ev.Close, close)


@mutant(invariants.every_error_has_an_exit)
def errors_are_not_raised(patch: Patch) -> None:
    patch.setattr(
        ClientCore, "queue_error", lambda self, error: self.errors.update({(type(error), str(error)): error})
    )
    take = ConsumerEngine.take

    def take_without_errors(self: ConsumerEngine, event: ev.Take) -> None:
        errors, self.core.errors = self.core.errors, type(self.core.errors)()
        take(self, event)
        self.core.errors.update(errors)

    patch.setitem(engines.TABLE, ev.Take, take_without_errors)


# ---- partitions that must be read on


@mutant(invariants.what_is_owned_is_read)
def polls_are_not_woken_for_records(patch: Patch) -> None:
    original = Fetcher._on_partition_data

    def on_partition_data(self: Fetcher, node: int, state: PartitionState, *arguments: Any) -> None:
        if not (state.has_returned and state.position > 2):
            original(self, node, state, *arguments)

    patch.setattr(Fetcher, "_on_partition_data", on_partition_data)


@mutant(invariants.what_is_owned_is_read)
def a_partition_is_not_read_after_its_leader_moved(patch: Patch) -> None:
    def on_leader_changed(self: Fetcher, node: int, state: PartitionState, entry: Any, wait: int) -> None:
        state.back_off_until(1 << 50)

    patch.setattr(Fetcher, "_on_leader_changed", on_leader_changed)


@mutant(invariants.every_record_was_delivered)
def new_partitions_start_at_their_end(patch: Patch) -> None:
    original = OffsetLookup._reset_without_commit

    def without(self: OffsetLookup, state: PartitionState, *, others_committed: bool) -> None:
        original(self, state, others_committed=others_committed)
        if self._is_new(state, others_committed):
            state.await_reset(OffsetReset(-1, "a mutant", commits_start=True))

    patch.setattr(OffsetLookup, "_reset_without_commit", without)


@mutant(invariants.the_group_converges)
def a_fenced_member_never_rejoins(patch: Patch) -> None:
    original = Membership._lose

    def lose(self: Membership, action: Any) -> None:
        original(self, action)
        self._releasing_callback = None

    patch.setattr(Membership, "_lose", lose)


@mutant(invariants.what_was_assigned_is_owned)
def only_partitions_in_metadata_are_assigned(patch: Patch) -> None:
    original = Membership._assign

    def assign(self: Membership, action: Any) -> None:
        counts = self._core.view.counts(frozenset(self._core.view.topics))
        owned = tuple(p for p in action.owned if p.partition < counts.get(p.topic, 0) - 1)
        added = tuple(p for p in action.added if p in owned)
        original(self, replace(action, owned=owned, added=added))

    patch.setattr(Membership, "_assign", assign)


# ---- commits


@mutant(invariants.a_commit_costs_no_partition)
def a_commit_that_meets_a_rebalance_loses(patch: Patch) -> None:
    """Treat a rebalance in progress as a lost generation, as librdkafka did before 2.6."""
    original = Membership.on_commit_error

    def on_commit_error(self: Membership, code: int, identity: Any) -> None:
        if code == ErrorCode.REBALANCE_IN_PROGRESS:
            code = ErrorCode.ILLEGAL_GENERATION
        original(self, code, identity)

    patch.setattr(Membership, "on_commit_error", on_commit_error)


@mutant(invariants.a_commit_blocks_no_fetch)  # type: ignore[arg-type]
def nothing_is_fetched_while_a_commit_is_open(patch: Patch) -> None:
    original = Fetcher.pump

    def pump(self: Fetcher) -> None:
        calls = [call for lane in self._core.network._connections.values() for _, call in lane.in_flight]
        if not any(call.name == "OffsetCommit" for call in calls):
            original(self)

    patch.setattr(Fetcher, "pump", pump)
