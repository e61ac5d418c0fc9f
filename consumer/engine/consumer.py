"""The consumer without I/O.

    actions = step(engine, Subscribe(frozenset({"flights"})), now)
    actions = step(engine, PollBegan(), now)
    actions = step(engine, Take(500), now)            # CallListener, Deliver, Raise, or nothing yet
    actions = step(engine, PollEnded(), now)
    actions = step(engine, Data(key, received), now)

`step` applies one event and returns the actions to perform, in order. `next_deadline` returns the time of the
next `Tick`.

The parts of the engine share a `ClientCore` and never read a clock. Each file lists its rules.

The parts are `network` (connections), `metadata`, `group` (membership, coordinator, commits), `positions`
(start offsets, validation, topic changes), `fetch` (fetcher, collector), `admin` (plans) and `shutdown`
(unsubscribe and close).

* An event that is not allowed or has invalid arguments raises an error and changes nothing.

* Deadlines are handled before the event is applied. If a timeout of the membership expired while the process
  was paused, the member therefore loses its partitions before the event is applied.

* Each part of the engine visits only partitions that have changed or whose deadline has passed, however many
  partitions are assigned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from random import Random
from typing import Any
from uuid import UUID

from kproto.deadlines import earliest
from kproto.errors import ConfigError, IllegalState, KprotoError
from kproto.group.subscription import TopicPartition
from kproto.patterns import compiled

from ..consumer_options import ConsumerOptions
from . import events as ev
from .admin.runner import PlanRunner
from .consumer_sensors import RECORD_INTERVAL_MS, CallSensors
from .core import ClientCore
from .delivery_watch import DeliveryWatch
from .events import Action, Deliver, Done, Event, Raise
from .fetch.collector import FetchCollector
from .fetch.fetcher import Fetcher
from .fetch.partition_ends import PartitionEnds
from .group.commits import Committer
from .group.coordinator import CoordinatorLookup
from .group.membership import Membership
from .group.status import AssignmentSource
from .metadata.updater import MetadataUpdater
from .metrics import NS_PER_MS, Metrics, SnapshotBuilder
from .network.client import NetworkClient
from .network.transport import (
    Answer,
    Broken,
    Data,
    GotToken,
    NetworkEvent,
    Opened,
    Reached,
)
from .positions.offset_lookup import OffsetLookup
from .positions.partition_states import OffsetReset, PartitionState
from .positions.topic_changes import TopicChanges
from .positions.validation import PositionValidator
from .requests import timestamp_of
from .shutdown import ConsumerShutdown
from .telemetry.reporter import ClientTelemetry

NO_GROUP = "this consumer has no group_id: give one, or use assign()"


class ConsumerEngine:
    """The engine of one consumer. Only `step` changes it."""

    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        options: ConsumerOptions,
        *,
        wall: Callable[[], int] | None = None,
        random: Random | None = None,
    ) -> None:
        random = random or Random()
        network = NetworkClient(
            bootstrap,
            client_id=options.client_id,
            request_timeout_ms=options.request_timeout_ms,
            reconnect_backoff_ms=options.reconnect_backoff_ms,
            reconnect_backoff_max_ms=options.reconnect_backoff_max_ms,
            connection_setup_timeout_ms=options.socket_connection_setup_timeout_ms,
            recovers=options.recovers,
            max_throttle_ms=options.metadata_max_age_ms,
            max_response=options.max_response_bytes,
            random=random,
            security=options.security,
            dialer=options.dialer,
        )
        self.options = options
        self.core: ClientCore[ConsumerOptions] = ClientCore(options, network, wall, random)
        self.group_status = self.core.group_status
        self.metadata = MetadataUpdater(self.core, self._metadata_changed)
        self.coordinator = CoordinatorLookup(
            self.core, self._on_coordinator_found, self._on_coordinator_lost, self.metadata.need
        )
        self.committer = Committer(self.core, self.coordinator, self._on_commit_error, self.metadata)
        self.offset_lookup = OffsetLookup(self.core, self.metadata, self.coordinator, self.committer)
        self.validator = PositionValidator(self.core, self.metadata, self.offset_lookup)
        self.partition_ends = PartitionEnds(self.core)
        self.fetcher = Fetcher(self.core, self.metadata, self.offset_lookup, self.partition_ends)
        self._topic_changes = TopicChanges(self.core, self.offset_lookup)
        self.collector = FetchCollector()
        self.group = Membership(
            self.core,
            self.metadata,
            self.coordinator,
            self.offset_lookup,
            self.committer,
            self._on_group_left,
        )
        self.runner = PlanRunner(network, self.core.clock, self.core.backoff.after)
        self.runner.on_metadata = self._on_plan_metadata
        self.shutdown = ConsumerShutdown(
            self.core, self.metadata, self.group, self.committer, self.fetcher, self.runner
        )
        # Whether a poll has raised an error, and no later poll has returned records.
        self._last_poll_raised = False
        # The earliest deadline (ms) of all parts, then that of all parts except the group. 0: the deadline is
        # unknown and must be computed. Infinity: no part has a deadline.
        self.no_deadline_before: float = 0
        self.no_other_deadline_before: float = 0
        self.polls = 0  # Number of polls that have begun.
        self.calls = CallSensors()
        self.core.partitions.stores_manually = not options.enable_auto_offset_store
        # Time (ms) at which the metrics of polls and returned records are recorded next.
        self.record_metrics_at = 0
        self.delivery_watch = DeliveryWatch(self.core, self.coordinator, self.fetcher)
        self.telemetry: ClientTelemetry | None = None
        if options.enable_metrics_push:
            self.telemetry = self.shutdown.telemetry = ClientTelemetry(
                network,
                clock=self.core.clock,
                wall=self.core.wall,
                random=random,
                snapshot=self.metrics,
                labels=self._telemetry_labels,
            )

    @property
    def closed(self) -> bool:
        """Whether close has completed. From then on most events raise IllegalState."""
        return self.shutdown.closed

    @property
    def partitions(self) -> dict[TopicPartition, PartitionState]:
        """The assigned partitions."""
        return self.core.partitions.states

    @property
    def topics(self) -> frozenset[str]:
        """The subscribed topics; with a pattern, the topics that match it."""
        return self.group.subscription.topics

    def assignment_deadline(self) -> int | None:
        """Return the time (ms) at which a timeout makes the member lose its partitions.

        max.poll.interval.ms starts again with each poll. If the policy has `lose_on_session_timeout`, the
        session timeout also applies; it starts again with each response of the coordinator. Return the
        earlier end of the two timeouts, or None if neither timeout applies.
        """
        return self.group.assignment_deadline() if self.group_status.in_group else None

    def may_have_lost_partitions(self, now: int) -> bool:
        """Return whether partitions are lost and the application has not been notified of the loss yet.

        Partitions count as lost once `assignment_deadline` has passed, because the next step drops them.
        """
        deadline = self.assignment_deadline()
        return self.group.has_unreported_loss or (deadline is not None and now >= deadline)

    def subscribe(self, event: ev.Subscribe) -> None:
        if self.group_status.is_manual:
            raise IllegalState("partitions were assigned by hand; call unsubscribe() before subscribe()")
        if self.options.group_id is None:
            raise IllegalState(NO_GROUP)
        if event.pattern is not None:
            try:
                compiled(event.pattern)
            except re.error as error:
                raise ConfigError("pattern", event.pattern, f"a regular expression ({error})") from None
        current = self.group.subscription
        changes_kind = current.is_active and (current.pattern is None) != (event.pattern is None)
        if self.options.as_java and changes_kind:
            current_kind = "topics are" if current.pattern is None else "a pattern is"
            raise IllegalState(
                f'{current_kind} subscribed, and policy="java" allows topics or a pattern, not both; '
                "call unsubscribe() first"
            )
        self.group.subscribe(event.topics, event.pattern)

    def assign(self, event: ev.Assign) -> None:
        if self.group_status.in_group:
            raise IllegalState("topics are subscribed; call unsubscribe() before assign()")
        for partition, offset in event.partitions.items():
            if offset is not None:
                _require_offset(partition, offset)
        self.group_status.source = AssignmentSource.MANUAL if event.partitions else AssignmentSource.NONE
        positions = self.core.partitions
        self.shutdown.release_manual_partitions(
            [partition for partition in positions if partition not in event.partitions]
        )
        for partition, offset in event.partitions.items():
            state = positions.get(partition) or positions.add(
                partition, self._trusted_topic_id(partition.topic), announced=True
            )
            if offset is not None:
                state.set_position(offset)
        self.committer.auto_commit.start()
        self.metadata.watch(frozenset(partition.topic for partition in event.partitions))

    def _trusted_topic_id(self, topic: str) -> UUID | None:
        """Return the topic's id, or None if this consumer does not read the topic.

        The cached id of a topic that the consumer does not read may be outdated, because the topic may have
        been re-created.
        """
        return self.core.topic_ids.get(topic) if topic in self.metadata.topics else None

    def metrics(self, now: int) -> Metrics:
        """Return a snapshot of all metrics, after recording the polls since the last recording.

        `now` is the time of the snapshot (ms).
        """
        self.record_metrics(now)
        snapshot = SnapshotBuilder("consumer", self.options.client_id, now)
        self.core.network.add_metrics_to(snapshot)
        self.calls.add_to(snapshot, now)
        if self.options.group_id is not None:
            self.group.sensors.add_to(snapshot, now, len(self.partitions))
            snapshot.add_sensors(self.committer.sensor)
        self.fetcher.sensors.add_to(snapshot, now, self.partitions)
        return snapshot.build()

    def _telemetry_labels(self) -> dict[str, str]:
        """Return the attributes of this client in its telemetry, under the names that KIP-714 defines."""
        options, (member_id, _) = self.options, self.group_status.member_and_generation
        labels = {
            "group_id": options.group_id,
            "group_instance_id": options.group_instance_id,
            "client_rack": options.client_rack,
            "group_member_id": member_id,
        }
        return {name: value for name, value in labels.items() if value}

    def unsubscribe(self, event: ev.Unsubscribe) -> None:
        self.shutdown.unsubscribe(event)

    def rejoin(self, event: ev.Rejoin) -> None:
        if not self.group_status.in_group:
            raise IllegalState("this consumer is not in a group; call subscribe() first")
        self.group.request_rejoin(event.reason)

    def poll_began(self, event: ev.PollBegan) -> None:
        self.group_status.require_source()
        if self.partition_ends.enabled:
            self.partition_ends.report()
        self.core.partitions.mark_processed()
        self.polls += 1
        self.calls.poll_began(self.core.now)
        self.group.on_poll_began()

    def poll_ended(self, event: ev.PollEnded) -> None:
        self.calls.poll_ended(self.core.now)
        self.group.on_poll_ended()

    def take(self, event: ev.Take) -> None:
        self.group_status.require_source()
        core = self.core
        if core.partitions.dirty:
            self.settle()
        if self._run_next_callback() or not self.group_status.callbacks.is_empty:
            return
        # After a poll that raised an error, this poll first tries to return records, so that a lasting error
        # does not block other partitions.
        group_failed = self.group_status.poll_error is not None
        records_first = self._last_poll_raised and not group_failed
        error = None if records_first else self._next_error(include_raised=group_failed)
        if error is None:
            rows = [] if event.columns else self.collector.rows(event.limit)
            columns = self.collector.columns() if event.columns else []
            if rows or columns:
                self._last_poll_raised = False
                core.actions.append(Deliver(rows, columns, core.partitions.losses))
                return
            # The position may have passed aborted or compacted records, which poll never returns. They count
            # as processed.
            if self.partition_ends.enabled:
                self.partition_ends.report()
            core.partitions.mark_processed()
            if core.partitions.dirty:
                self.settle()
            error = self._next_error(include_raised=True)
        if error is not None:
            self._last_poll_raised = True
            core.actions.append(Raise(error))

    def poll(self, event: ev.Poll, now: int) -> None:
        """Return buffered records in one step, if no deadline is due and no error or callback waits.

        Without a `Deliver` in the actions, the caller sends PollBegan, Take and PollEnded instead.
        Most polls need only one step.

        Usually a poll only frees space in buffers. Then only the fetcher is updated, because no deadline
        becomes earlier.
        """
        core, partitions, status = self.core, self.core.partitions, self.group_status
        member, callbacks = status.member, status.callbacks
        if (
            now >= self.no_deadline_before
            or event.limit < 1
            or core.errors
            or partitions.dirty
            or status.final_error is not None
            or status.in_poll
            or callbacks.running is not None
            or callbacks.waiting
            or not self.collector.ready
            or self.collector.unraised
            or self.partition_ends.enabled
            or (member is not None and not member.is_stable)
        ):
            return
        core.now = status.polled_at = now
        partitions.mark_processed()
        self.polls += 1
        records = self.collector.rows(event.limit)
        # The buffer contained only an invalid batch, or batches that poll never returns, such as transaction
        # markers.
        if not records:
            self.forget_deadlines()
            return
        if now == self.calls.polled_at:
            self.calls.immediate_polls += 1
        else:
            self.calls.polled_at = now
            self.calls.unrecorded_starts.append(now)
        if now >= self.record_metrics_at:
            self.record_metrics(now)
        core.actions.append(Deliver(records, [], partitions.losses))
        self._last_poll_raised = False
        if member is not None:
            member.on_poll(now)
        if partitions.dirty:
            self._refill_buffers()
        if core.network.actions or len(core.actions) > 1:
            self.forget_deadlines()

    def record_metrics(self, now: int) -> None:
        """Update the metrics with the polls since the last update, and with their records."""
        partitions = self.core.partitions
        self.record_metrics_at = now + RECORD_INTERVAL_MS
        self.calls.record_polls()
        unrecorded, partitions.unrecorded = partitions.unrecorded, {}
        self.fetcher.sensors.record_returned(unrecorded, now)

    def _refill_buffers(self) -> None:
        """Update the fetcher after records were taken from buffers.

        If all these buffers have become empty, usually only the fetcher runs. Otherwise `settle` runs all
        parts of the engine.
        """
        partitions = self.core.partitions
        touched, partitions.dirty = partitions.dirty, {}
        try:
            for partition, state in touched.items():
                if state.error is not None or not self.fetcher.on_records_returned(state):
                    partitions.dirty[partition] = state
        except BaseException:  # If Ctrl-C interrupts the loop, the next step visits the partitions again.
            partitions.dirty.update(touched)
            raise
        if partitions.dirty:
            self.forget_deadlines()
            self.settle()
        else:
            self.fetcher.pump()

    def _next_error(self, *, include_raised: bool) -> KprotoError | None:
        """Return the next error for poll to raise, or None if poll has no error to raise.

        With `include_raised`, the result may be an error that poll has already raised and that still blocks a
        partition or the group.
        """
        error = self.core.pop_error() or (self.group_status.poll_error if include_raised else None)
        return error or self.collector.next_error(include_raised=include_raised)

    def serve_listener(self, event: ev.ServeListener) -> None:
        self._run_next_callback()

    def _run_next_callback(self) -> bool:
        """Start the next rebalance callback. Return False if no callback can start."""
        call = self.group.start_callback()
        if call is not None:
            self.core.actions.append(call)
        return call is not None

    def listener_returned(self, event: ev.ListenerReturned) -> None:
        self.group.on_callback_returned()

    def processed(self, event: ev.Processed) -> None:
        self.core.partitions.mark_processed(event.held)
        # Restart max.poll.interval.ms, because the application makes progress.
        self.group.on_poll_ended()

    def give_back(self, event: ev.GiveBack) -> None:
        self.core.partitions.mark_processed(event.held)
        for partition, offset in event.offsets.items():
            state = self.core.partitions.get(partition)
            if state is not None and state.has_position:
                # A commit by the application may have marked records after `offset` as processed. Such
                # records are not returned again.
                offset = max(offset, state.processed or 0)
                if offset < state.position:
                    state.rewind(offset)

    def take_back(self, event: ev.TakeBack) -> None:
        interrupted, self.collector.reading = self.collector.reading, None
        for state in self.core.partitions.returned.copy().values():
            if state.has_position and state.processed is not None and state.processed < state.position:
                state.rewind(state.processed)
        # The collector may have taken records from the partition's buffer without moving the partition's
        # position. A rewind to the current position drops the buffer, so that the records are fetched again.
        if (
            interrupted is not None
            and not interrupted.released
            and interrupted.has_position
            and interrupted.fetches
        ):
            interrupted.rewind(interrupted.position)

    def deserialization_failed(self, event: ev.DeserializationFailed) -> None:
        for partition, error in event.errors.items():
            state = self.core.partitions.get(partition)
            # While the deserializer ran, another task of the application may have called seek() or committed
            # a later offset. The record is then no longer needed.
            if (
                state is not None
                and state.has_position
                and state.has_returned
                and (state.processed or 0) <= error.offset < state.position
            ):
                state.rewind(error.offset)
                state.fail(error)

    def seek(self, event: ev.Seek) -> None:
        _require_offset(event.partition, event.offset)
        if event.leader_epoch is not None:
            _require_offset(event.partition, event.leader_epoch, "leader_epoch")

        def apply(state: PartitionState) -> None:
            state.set_position(event.offset, event.leader_epoch)
            if event.leader_epoch is not None:
                state.await_validation()

        self._apply_seek([event.partition], apply)

    def seek_to(self, event: ev.SeekTo) -> None:
        where = event.where
        timestamp = 0 if where == "committed" else timestamp_of(where)

        def apply(state: PartitionState) -> None:
            if where == "committed":
                state.await_committed_offset()
            else:
                state.await_reset(OffsetReset(timestamp, ""))

        self._apply_seek(event.partitions or frozenset(self.core.partitions), apply)

    def _apply_seek(
        self, partitions: Iterable[TopicPartition], apply: Callable[[PartitionState], None]
    ) -> None:
        """Call `apply` for each of `partitions`: now if it is assigned, else once it is assigned.

        Raises IllegalState if a partition is not assigned and no assignment is pending.
        """
        if not (self.group_status.in_group and self.group.has_pending_assignment):
            self._require_assigned(partitions)
        for partition in partitions:
            state = self.core.partitions.get(partition)
            if state is not None:
                apply(state)
            else:
                self.group.defer_seek(partition, apply)

    def pause(self, event: ev.Pause) -> None:
        for state in self._require_assigned(event.partitions):
            state.pause(True)

    def resume(self, event: ev.Resume) -> None:
        for state in self._require_assigned(event.partitions):
            state.pause(False)
        self.core.wake_poll()

    def _require_assigned(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Return the states of these partitions. Raises IllegalState if one of them is not assigned."""
        states = self.core.partitions.states
        missing = [str(partition) for partition in partitions if partition not in states]
        if missing:
            raise IllegalState(f"{', '.join(sorted(missing))}: not assigned to this consumer")
        return [states[partition] for partition in partitions]

    def store_offsets(self, event: ev.StoreOffsets) -> None:
        if self.options.enable_auto_offset_store:
            raise IllegalState(
                "store_offsets() needs a consumer with the option enable_auto_offset_store=False"
            )
        if self.options.group_id is None:
            raise IllegalState(NO_GROUP)
        _require_offsets(event.offsets)
        # The final commit of these partitions, which are being revoked, is already in flight. It cannot
        # contain an offset that is stored now, so the call raises an error.
        committing = self.group.committing_revoked
        # Store the offsets of all valid partitions, even if the call then raises an error for the others.
        for partition, (offset, epoch, metadata) in event.offsets.items():
            if partition not in committing and (state := self.core.partitions.get(partition)) is not None:
                state.store(offset, epoch, metadata)
        self._require_assigned(event.offsets)
        if late := committing.intersection(event.offsets):
            names = ", ".join(sorted(map(str, late)))
            raise IllegalState(f"{names}: being revoked; the final commit of stored offsets was already sent")

    def commit(self, event: ev.Commit) -> None:
        if self.options.group_id is None:
            raise IllegalState(NO_GROUP)
        _require_offsets(event.offsets or {})
        began_at = self.core.now

        def on_committed(error: KprotoError | None) -> None:
            self.calls.commit_time.record((self.core.now - began_at) * NS_PER_MS, self.core.now)
            self.core.actions.append(Done(event.token, None, error))

        if event.offsets is None:
            self.committer.commit_all(
                event.timeout_ms, on_committed, event.held, is_single_attempt=event.once
            )
        else:
            self.committer.commit(event.offsets, event.timeout_ms, on_committed, is_single_attempt=event.once)

    def run(self, event: ev.Run) -> None:
        self.runner.start(event.token, event.plan, event.timeout_ms)

    def drop(self, event: ev.Drop) -> None:
        self.runner.drop(event.token)

    def close(self, event: ev.Close) -> None:
        self.shutdown.close(event)

    def _on_coordinator_found(self, node: int) -> None:
        self.group.on_coordinator_found(node)

    def _on_coordinator_lost(self, why: str) -> None:
        self.group.on_coordinator_lost(why)

    def _on_group_left(self) -> None:
        self.shutdown.on_left()

    def _on_commit_error(self, code: int, identity: Any) -> None:
        self.group.on_commit_error(code, identity)

    def _metadata_changed(self, requested: frozenset[str] | None) -> None:
        self._topic_changes.on_metadata(requested)
        self.core.partitions.mark_all_dirty()
        self.group.subscription.on_metadata(requested)

    def _on_plan_metadata(self, topics: frozenset[str]) -> None:
        """Handle an admin plan's Metadata response. Topics that this consumer does not read are ignored."""
        updater = self.metadata
        self._metadata_changed(topics if updater.everything else topics & updater.topics)

    def settle(self) -> None:
        """Run all parts of the engine until all finished calls and dirty partitions are handled."""
        core = self.core
        while not self.closed:
            # Responses are handled before deadlines, because after a pause of the process a response that
            # arrived in time may still be unread.
            if core.network.finished:
                self._handle_finished_calls()
            self.group.tick()
            if self.options.group_id is not None:
                self.committer.pump()
            if core.partitions.dirty:
                self._visit_dirty()
            self.offset_lookup.pump()
            self.validator.pump()
            if core.partitions.dirty:
                self._visit_dirty()
            self.fetcher.pump()
            self.coordinator.pump()
            self.metadata.pump()
            self.runner.pump()
            if self.telemetry is not None:
                self.telemetry.pump()
            if not core.network.finished and not core.partitions.dirty:
                break
        core.network.finished.clear()
        self.shutdown.complete_unsubscribe()
        self.shutdown.complete_close()

    def _handle_finished_calls(self) -> None:
        """Pass each finished call to the function in its `purpose`."""
        network = self.core.network
        finished, handled = network.finished, 0
        try:
            network.finished = []
            for call in finished:
                handled += 1
                if call.purpose is not None and not self.closed:
                    call.purpose(call)
        # If Ctrl-C interrupts the loop, the next step handles the finished calls that the loop did not reach.
        except BaseException:
            if network.finished is not finished:
                network.finished[:0] = finished[handled:]
            raise

    def _visit_dirty(self) -> None:
        """Let the fetcher, the collector and the lookups handle changed ("dirty") partitions."""
        positions = self.core.partitions
        while positions.dirty:
            touched = positions.dirty
            try:
                positions.dirty = {}
                for state in touched.values():
                    self.offset_lookup.visit(state)
                    self.validator.visit(state)
                    self.fetcher.visit(state)
                    self.collector.visit(state)
                    if self.partition_ends.enabled:
                        self.partition_ends.visit(state)
            # If Ctrl-C interrupts the loop, the next step visits all these partitions again.
            except BaseException:
                for state in touched.values():
                    state.mark_dirty()
                raise

    def handle_deadlines(self) -> None:
        """Handle the passed deadlines of all parts, such as partitions, the group and close."""
        if self.closed:
            return
        core = self.core
        core.partitions.mark_due_dirty(core.now)
        self.group.tick()
        self.delivery_watch.tick()
        if self.telemetry is not None:
            self.telemetry.pump()
        self.shutdown.end_if_late()

    def due(self) -> int | None:
        """Return the earliest deadline of all parts (ms), or None if no part has a deadline."""
        if not self.no_deadline_before:
            if not self.no_other_deadline_before:
                due = self._earliest_other_deadline()
                self.no_other_deadline_before = inf if due is None else due
            group_due = None if self.closed else self.group.due()
            self.no_deadline_before = min(
                self.no_other_deadline_before, inf if group_due is None else group_due
            )
        return None if self.no_deadline_before == inf else int(self.no_deadline_before)

    def forget_deadlines(self) -> None:
        """Make the next call of `due` recompute the deadlines of all parts."""
        self.no_deadline_before = self.no_other_deadline_before = 0

    def _earliest_other_deadline(self) -> int | None:
        """Return the earliest deadline (ms) of all parts except the group, or None if no part has one."""
        core = self.core
        deadline_when_closed = earliest(
            core.network.next_deadline(), self.shutdown.close_ends_at, self.runner.due()
        )
        if self.closed:
            return deadline_when_closed
        return earliest(
            deadline_when_closed,
            core.partitions.due(),
            self.metadata.due(),
            self.coordinator.due(),
            self.committer.due(),
            self.fetcher.due(),
            self.delivery_watch.due(),
            None if self.telemetry is None else self.telemetry.due(),
        )

    def take_actions(self) -> list[Action]:
        """Remove and return the actions of this step, including those of the network client."""
        core = self.core
        if core.network.actions:
            # One statement takes and clears the network's actions. With two statements, a Ctrl-C between them
            # could send the requests twice.
            core.actions, core.network.actions = [*core.actions, *core.network.actions], []
        if self.runner.ended:
            core.actions.extend(self.runner.take())
        actions, core.actions = core.actions, []
        return actions


def _require_offset(partition: TopicPartition, offset: object, name: str = "offset") -> None:
    """Raise ConfigError for the argument `name` if its value `offset` is not an integer of at least 0."""
    if not isinstance(offset, int) or isinstance(offset, bool) or offset < 0:
        allowed = f"{partition}: an integer of at least 0"
        if name == "offset":
            allowed += '; seek_to() takes "earliest", "latest", "committed" or a time'
        raise ConfigError(name, offset, allowed)


def _require_offsets(offsets: Mapping[TopicPartition, tuple[int, int | None, str]]) -> None:
    for partition, (offset, epoch, _) in offsets.items():
        _require_offset(partition, offset)
        if epoch is not None:
            _require_offset(partition, epoch, "leader_epoch")


def _on_network(engine: ConsumerEngine, event: NetworkEvent) -> None:
    engine.core.network.handle(event, engine.core.now)


def _on_tick(engine: ConsumerEngine, event: ev.Tick) -> None:
    engine.core.network.tick(engine.core.now)
    engine.metadata.tick()


TABLE: dict[type[Any], Callable[[ConsumerEngine, Any], None]] = {
    Reached: _on_network,
    Opened: _on_network,
    Data: _on_network,
    Answer: _on_network,
    Broken: _on_network,
    GotToken: _on_network,
    ev.Tick: _on_tick,
    ev.Subscribe: ConsumerEngine.subscribe,
    ev.Assign: ConsumerEngine.assign,
    ev.Unsubscribe: ConsumerEngine.unsubscribe,
    ev.PollBegan: ConsumerEngine.poll_began,
    ev.PollEnded: ConsumerEngine.poll_ended,
    ev.Take: ConsumerEngine.take,
    ev.ServeListener: ConsumerEngine.serve_listener,
    ev.ListenerReturned: ConsumerEngine.listener_returned,
    ev.Processed: ConsumerEngine.processed,
    ev.GiveBack: ConsumerEngine.give_back,
    ev.TakeBack: ConsumerEngine.take_back,
    ev.DeserializationFailed: ConsumerEngine.deserialization_failed,
    ev.Seek: ConsumerEngine.seek,
    ev.SeekTo: ConsumerEngine.seek_to,
    ev.Pause: ConsumerEngine.pause,
    ev.Resume: ConsumerEngine.resume,
    ev.Commit: ConsumerEngine.commit,
    ev.StoreOffsets: ConsumerEngine.store_offsets,
    ev.Run: ConsumerEngine.run,
    ev.Drop: ConsumerEngine.drop,
    ev.Rejoin: ConsumerEngine.rejoin,
    ev.Close: ConsumerEngine.close,
}


# The events that `step` accepts after close has completed.
ALLOWED_WHEN_CLOSED = (
    Reached,
    Opened,
    Data,
    Answer,
    Broken,
    GotToken,
    ev.Tick,
    ev.Close,
    ev.GiveBack,
    ev.TakeBack,
    ev.PollEnded,
    ev.ServeListener,
    ev.ListenerReturned,
)

# The events after which `step` omits `settle`, unless other parts of the engine have work.
QUIET = (Data, ev.PollBegan, ev.Take, ev.PollEnded)


def step(engine: ConsumerEngine, event: Event, now: int) -> list[Action]:
    """Apply `event` at `now` and return the actions to perform, in order.

    Raises IllegalState if the event is not allowed now, and ConfigError if its arguments are invalid. An
    error leaves the engine unchanged.
    """
    core = engine.core
    if engine.shutdown.closed and not isinstance(event, ALLOWED_WHEN_CLOSED):
        raise IllegalState("this consumer is closed; make a new one")
    if isinstance(event, ev.Poll):
        engine.poll(event, now)
        return engine.take_actions()
    core.now = now
    other_deadline, action_count = engine.no_other_deadline_before, engine.group.action_count
    if now >= engine.no_deadline_before:
        if now >= other_deadline:
            other_deadline = 0
        engine.handle_deadlines()
    engine.forget_deadlines()
    if now >= engine.record_metrics_at:
        engine.record_metrics(now)
    TABLE[type(event)](engine, event)
    # After an event in `QUIET`, `settle` is needed only if another part of the engine may have work. This is
    # so if the deadline of such a part has passed or is unknown, if a call has finished, if a partition has
    # changed, if the event has caused an action, or if no connection is ready.
    if (
        not isinstance(event, QUIET)
        or now >= other_deadline
        or core.network.finished
        or core.partitions.dirty
        or core.actions
        or engine.group.action_count != action_count
        or not core.network.connected()
    ):
        engine.settle()
        return engine.take_actions()
    actions = engine.take_actions()
    if not actions and not isinstance(event, Data):
        # The poll has changed only deadlines of the group, so the earliest deadline of the other parts is
        # still valid.
        engine.no_other_deadline_before = other_deadline
    return actions


# The time (ms) at which the next `Tick` is due; None if no deadline is pending.
next_deadline = ConsumerEngine.due
