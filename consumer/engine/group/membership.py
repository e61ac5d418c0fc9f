"""Group membership of the consumer: the member's actions and the rebalance callbacks.

This module keeps these rules of `docs/rules/member.md`:

* Callbacks run one at a time, in the order of their rebalances, and only while the application is in
  `poll()`, `close()` or `unsubscribe()`.

* Heartbeats continue during a callback. The member releases partitions only after the callback has returned
  (M79).

* max.poll.interval.ms does not expire while the application waits in poll. It may expire while a callback
  runs (M112).

* Revoked (M75): the application receives no more records, the callback runs, processed offsets are committed
  if auto commit is on, pending commits complete, and the partitions are released.

* The member releases revoked partitions only after the commit of their offsets has ended. Until then, no
  other member reads these partitions.

* If a commit of revoked partitions fails, the error is reported and the rebalance proceeds.

* Lost (M76): the partitions are dropped immediately, and nothing is committed. Then the callback runs.

* Assigned (M89): positions are looked up and fetching starts immediately.

* Records of assigned partitions are returned only after the callback, so that a seek in the callback takes
  effect first.

* During a rebalance, `close()` and `unsubscribe()` commit first, and then the partitions are lost (M97). At
  other times they commit after the revoked callback (M98, M99).

* With `policy="java"`, commits are sent as in Java: before each JoinGroup (`_send_join`), and before the
  revoked callbacks in `JAVA_COMMITS_BEFORE`.

Three functions commit. `_commit_before_leaving` commits before a `close()` or `unsubscribe()` during a
rebalance, and `_send_join` before JoinGroup. `_commit_then` commits after a revoked callback, or before it
with `policy="java"`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kproto.error_codes import ErrorCode, describe
from kproto.errors import KprotoError
from kproto.group import protocol
from kproto.group.members import create_member
from kproto.group.protocol import ClientMember, Identity, MemberConfig, Purpose, RevokePurpose
from kproto.group.subscription import TopicPartition

from ...consumer_options import ConsumerOptions
from ...errors import broker_error, with_advice
from ..consumer_sensors import GroupSensors
from ..core import ClientCore
from ..events import CallListener
from ..metadata.updater import MetadataUpdater
from ..network.call import Call, Outcome, Prepared
from ..network.client import GROUP, MAIN
from ..positions.offset_lookup import OffsetLookup
from ..positions.partition_states import PartitionState
from ..positions.seeks import Apply, PendingSeeks
from ..timeouts import FIRST_RESPONSE_TIMEOUT_MS
from .commits import Committer, offsets_of
from .coordinator import CoordinatorLookup
from .status import AssignmentSource, RebalanceCallback
from .subscription import TopicSubscription

# The error codes of a commit that arrives after the next generation has begun.
NEXT_GENERATION = (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS)
# The revocations before which Java commits. Java commits neither in unsubscribe nor before the revocations of
# a cooperative rebalance.
JAVA_COMMITS_BEFORE = (RevokePurpose.JOIN, RevokePurpose.CLOSE)
# Failure reports about an assignment that the member cannot use have this name instead of a request's name.
ASSIGNMENT = "Assignment"


class Membership:
    """The consumer's membership in its group: the member, its partitions and the rebalance callbacks.

    `on_left()` is called after the member has left the group.
    """

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        metadata: MetadataUpdater,
        coordinator: CoordinatorLookup,
        offset_lookup: OffsetLookup,
        committer: Committer,
        on_left: Callable[[], None],
    ) -> None:
        self._core = core
        self._status = core.group_status
        self._metadata = metadata
        self._coordinator = coordinator
        self._offset_lookup = offset_lookup
        self._committer = committer
        self._on_left = on_left
        self.subscription = TopicSubscription(core, metadata, self.apply_event)
        # The error of the last commit before a revocation or before leaving. `close()` and `unsubscribe()`
        # raise it.
        self.commit_error: KprotoError | None = None
        self._callbacks = self._status.callbacks
        self.sensors = GroupSensors()
        # The callback after which the event `Released` is applied to the member.
        self._releasing_callback: RebalanceCallback | None = None
        # The last error that ended the membership.
        self._membership_error: KprotoError | None = None
        # The member's next deadline (ms), computed again after each event.
        self._deadline: int | None = None
        self._deadline_is_known = False
        # The number of actions that the member has returned so far. If an event does not increase it, only
        # deadlines of the member have changed.
        self.action_count = 0
        # The names of the requests whose last attempt failed, and ASSIGNMENT if the last assignment could not
        # be used.
        self._failing_requests: set[str] = set()
        self._seeks = PendingSeeks(core.options.max_poll_interval_ms)
        # Whether the application has called unsubscribe() before its first subscribe().
        self._has_unsubscribed = False
        # Whether the commit that precedes leaving the group is pending.
        self._is_leaving_commit_pending = False

    @property
    def member(self) -> ClientMember | None:
        """The member; None before the first subscribe."""
        return self._status.member

    # ---- the application

    def subscribe(self, topics: frozenset[str], pattern: str | None) -> None:
        """Subscribe to topics: the first call joins the group, and later calls change the subscription."""
        if self.member is None:
            self._status.member = self._create_member()
            if self._coordinator.node is not None:
                self.apply_event(protocol.CoordinatorFound(self._coordinator.node))
            if self._has_unsubscribed:
                self.apply_event(protocol.Unsubscribed())
        self._status.source = AssignmentSource.GROUP
        self.subscription.replace(topics, pattern)
        self._committer.auto_commit.start()
        if self._status.in_poll:
            self._update_poll_state()
        self.subscription.update_member()

    def _create_member(self) -> ClientMember:
        options = self._core.options
        assert options.group_id is not None
        return create_member(
            options.group_protocol,
            MemberConfig(
                group_id=options.group_id,
                group_instance_id=options.group_instance_id,
                client_id=options.client_id,
                session_timeout_ms=options.session_timeout_ms,
                rebalance_timeout_ms=options.max_poll_interval_ms,
                heartbeat_interval_ms=options.heartbeat_interval_ms,
                retry_backoff_ms=options.retry_backoff_ms,
                retry_backoff_max_ms=options.retry_backoff_max_ms,
                assignors=options.partition_assignment_strategy,
                rack_id=options.client_rack or None,
                as_java=options.as_java,
                spread=self._core.backoff.spread,
            ),
        )

    def note_manual_unsubscribe(self) -> None:
        """Record a call of unsubscribe() by an application whose consumer was not a member of the group.

        The first JoinGroup after this call gives as its reason that the member has left the group, as in
        Java.
        """
        self._has_unsubscribed = True

    def unsubscribe(self) -> None:
        """Release all partitions and leave the group. When both have ended, `is_settled` becomes true."""

        def leave() -> None:
            self.apply_event(protocol.Unsubscribed())
            if self.subscription.is_active:  # The application subscribed again before the member left.
                self.subscription.update_member()

        self._seeks.clear()
        self.subscription.replace(frozenset(), None)
        timeout_ms = min(self._core.options.request_timeout_ms, FIRST_RESPONSE_TIMEOUT_MS)
        self._commit_before_leaving(leave, timeout_ms)

    @property
    def is_settled(self) -> bool:
        """Whether unsubscribe is complete: its callbacks, commits and releases of partitions have ended."""
        if (
            not self._callbacks.is_empty
            or self._releasing_callback is not None
            or self._is_leaving_commit_pending
        ):
            return False
        if self.member is None or self._status.final_error is not None:
            return True
        return not self.member.is_unsubscribing

    def close(self, leave: bool, timeout_ms: int) -> None:
        """Start releasing all partitions, and leaving the group if `leave` is true.

        `on_left` is called afterwards.
        """
        ends_at = self._core.now + timeout_ms
        self._commit_before_leaving(
            lambda: self.apply_event(protocol.CloseRequested(leave, max(1, ends_at - self._core.now))),
            min(timeout_ms // 2, FIRST_RESPONSE_TIMEOUT_MS),
        )

    def _commit_before_leaving(self, leave: Callable[[], None], timeout_ms: int) -> None:
        """Call `leave`. During a rebalance, first commit the processed offsets.

        Without auto commit, and with `policy="java"`, nothing is committed here.

        A member that leaves during a rebalance loses its partitions (M97), and nothing is committed after the
        `lost` callback (M76). So the offsets are committed before this callback. The coordinator accepts
        commits of the previous generation until the next generation begins.
        """
        member, options = self.member, self._core.options
        commits_automatically = options.enable_auto_commit and not options.as_java
        identity = None if member is None else member.joined_identity
        if not commits_automatically or identity is None or self._status.identity is not None:
            leave()
            return
        states = self._committer.states_to_commit(tuple(self._core.partitions))
        if not states:
            leave()
            return
        self._is_leaving_commit_pending = True
        ends_at = self._core.now + timeout_ms

        def on_committed(error: KprotoError | None) -> None:
            if getattr(error, "code", None) in NEXT_GENERATION and ends_at > self._core.now:
                # The next generation has begun. The commit is sent again when the member has its new member
                # id and generation.
                self._committer.commit(offsets_of(states), ends_at - self._core.now, finish)
            else:
                finish(error)

        def finish(error: KprotoError | None) -> None:
            self._is_leaving_commit_pending = False
            if error is not None and self._status.identity is None:
                # If `identity` is set, the member has joined the next generation. `leave` then revokes the
                # partitions and commits their offsets again, so the failure here is not reported.
                self.report_uncommitted(states, error)
            leave()

        self._committer.commit_with_identity(identity, offsets_of(states), timeout_ms, on_committed)

    def request_rejoin(self, reason: str) -> None:
        """Start a rebalance that the application has requested."""
        self.apply_event(protocol.RejoinRequested(reason))

    def on_poll_began(self) -> None:
        """Stop max.poll.interval.ms."""
        self._status.in_poll, self._status.polled_at = True, self._core.now
        self._update_poll_state()

    def on_poll_ended(self) -> None:
        """Start max.poll.interval.ms."""
        self._status.in_poll, self._status.polled_at = False, self._core.now
        self._update_poll_state()

    def _update_poll_state(self) -> None:
        """Inform the member whether the application is waiting in poll and no callback is running.

        If the poll will raise the error that ended the membership, the application does not count as waiting.
        It may never poll again, so max.poll.interval.ms must be able to expire.
        """
        error = self._membership_error
        is_unreported = error is not None and (type(error), str(error)) in self._core.errors
        has_ended = is_unreported or self._status.final_error is not None
        waits = self._status.in_poll and self._callbacks.running is None and not has_ended
        self.apply_event(protocol.PollEntered() if waits else protocol.PollLeft())

    @property
    def has_pending_assignment(self) -> bool:
        """Whether an assignment that may add partitions is pending.

        An assignment is pending if the member has not joined the group yet, or if the group is rebalancing.
        """
        return self.member is None or not self.member.is_stable

    def defer_seek(self, partition: TopicPartition, seek: Apply) -> None:
        """Keep a seek until its partition is assigned, then apply it."""
        self._seeks.put(partition, seek)

    # ---- callbacks

    def start_callback(self) -> CallListener | None:
        """Start the next callback and return it.

        Returns None if no callback is queued, or if another callback is running.
        """
        callback = self._callbacks.start_next(self._core.now)
        if callback is None:
            return None
        if self._status.in_poll:
            self._update_poll_state()
        if callback.kind != "assigned":
            # The deferred seeks of these partitions were meant for the assignment that ends, not for a later
            # one.
            self._seeks.forget(callback.partitions)
        return CallListener(callback.kind, callback.partitions, callback.reason)

    @property
    def has_unreported_loss(self) -> bool:
        """Whether partitions were lost, and the callback "lost" has not returned yet. Thread-safe."""
        return self._callbacks.has_loss

    def on_callback_returned(self) -> None:
        """Handle a callback's return.

        After "assigned", polls may return the partitions' records. After "revoked" or "lost", the partitions
        that waited for the callback are released.
        """
        callback = self._callbacks.finish()
        if callback is None:
            return
        duration = self._core.now - self._callbacks.started_at
        self.sensors.callbacks[callback.kind].record(duration, self._core.now)
        if self._status.in_poll:
            self._update_poll_state()
        if callback.kind == "assigned":
            for partition in callback.partitions:
                state = self._core.partitions.get(partition)
                if state is not None:
                    state.announce()
            self._core.wake_poll()
        elif callback.kind == "lost":
            self._committer.forget_losses()
        if callback.awaits_release and callback is self._releasing_callback:
            if callback.kind == "lost" or callback.skips_commit:
                self._release(callback)
            else:
                self._commit_then(callback, self._release)

    # ---- revoking and losing

    def _revoke(self, action: protocol.Revoke) -> None:
        """Stop returning records of these partitions, and queue their "revoked" callback.

        With `policy="java"`, offsets are committed before the callback if the purpose of the revocation is in
        `JAVA_COMMITS_BEFORE`.
        """
        for partition in action.partitions:
            if (state := self._core.partitions.get(partition)) is not None:
                state.revoke()
        callback = RebalanceCallback("revoked", action.partitions, action.reason, awaits_release=True)
        self._releasing_callback = callback
        if not self._core.options.as_java:
            self._add_callback(callback)
            return
        callback.skips_commit = True
        if action.purpose in JAVA_COMMITS_BEFORE:
            self._commit_then(callback, self._add_callback)
        else:
            self._add_callback(callback)

    def _commit_then(self, callback: RebalanceCallback, proceed: Callable[[RebalanceCallback], None]) -> None:
        """Commit the offsets of the callback's partitions if auto commit is on, then call `proceed`.

        Even without auto commit, `proceed` waits until all queued commits have ended or the timeout has
        passed.
        """
        callback.is_committing = True
        options = self._core.options
        timeout_ms = min(options.request_timeout_ms, options.max_poll_interval_ms)
        states: dict[TopicPartition, PartitionState] = {}
        if options.enable_auto_commit:
            states = self._committer.states_to_commit(callback.partitions)

        def on_committed(error: KprotoError | None) -> None:
            # If the partitions were lost during the commit, only the loss is reported, not the failed commit.
            if error is not None and callback is self._releasing_callback:
                self.report_uncommitted(states, error)
            proceed(callback)

        if states:
            self._committer.commit(offsets_of(states), timeout_ms, on_committed)
        else:
            self._committer.wait_for_pending(timeout_ms, lambda error: proceed(callback))

    @property
    def is_committing_revoked(self) -> bool:
        """Whether the commit of revoked partitions has been requested.

        The membership reports a failure of this commit, so `close()` does not report it again.
        """
        return self._releasing_callback is not None and self._releasing_callback.is_committing

    @property
    def committing_revoked(self) -> frozenset[TopicPartition]:
        """The revoked partitions whose final commit has been requested, but which are not released yet."""
        callback = self._releasing_callback
        return frozenset(callback.partitions if callback is not None and callback.is_committing else ())

    def report_uncommitted(self, partitions: Iterable[TopicPartition], error: KprotoError) -> None:
        """Report that the processed offsets of these partitions were not committed."""
        self.commit_error = error
        self._core.report("uncommitted", partitions, owned=self._core.partitions, reason=str(error))

    def _release(self, callback: RebalanceCallback) -> None:
        """Drop the partitions of a "revoked" callback, and notify the member that they are released."""
        if callback is not self._releasing_callback:
            return  # The partitions were lost during the commit, so they are already released.
        self._releasing_callback = None
        if callback.kind == "revoked":
            for partition in callback.partitions:
                self._core.partitions.drop(partition)
            if callback.partitions:
                self._core.report(
                    "revoked", callback.partitions, owned=self._core.partitions, reason=callback.reason
                )
        self.apply_event(protocol.Released())

    def _lose(self, action: protocol.Lose) -> None:
        """Drop these partitions without a commit, and queue their "lost" callback.

        The "lost" callback replaces a "revoked" callback that has not started.
        """
        core = self._core
        for partition in action.partitions:
            if (state := core.partitions.drop(partition)) is not None:
                self._committer.record_loss(state)
        core.report("lost", action.partitions, owned=core.partitions, reason=action.reason)
        if self._releasing_callback is not None:
            self._callbacks.discard(self._releasing_callback)
        self._releasing_callback = RebalanceCallback(
            "lost", action.partitions, action.reason, awaits_release=True
        )
        self._add_callback(self._releasing_callback)

    def _add_callback(self, callback: RebalanceCallback) -> None:
        """Queue the callback, unless its partitions have been lost and a "lost" callback has replaced it."""
        if not callback.awaits_release or callback is self._releasing_callback:
            self._callbacks.add(callback)
            self._core.wake_poll()

    # ---- the member

    def apply_event(self, event: protocol.MemberEvent) -> None:
        """Apply an event to the member and perform its actions."""
        if self.member is None:
            return
        self._deadline_is_known = False
        actions = self.member.step(event, self._core.now)
        for action in actions:
            self._perform(action)
        if actions:
            self.action_count += len(actions)
            self.subscription.track_topics()

    def tick(self) -> None:
        """Apply a Tick if the member's deadline has been reached."""
        deadline = self.due()
        if deadline is not None and deadline <= self._core.now:
            self.apply_event(protocol.Tick())

    def assignment_deadline(self) -> int | None:
        """Return the time (ms) at which the member loses its partitions if it is inactive until then.

        Returns None if the member has no such deadline, or if there is no member.
        """
        return None if self.member is None else self.member.assignment_deadline()

    def due(self) -> int | None:
        """Return the member's next deadline (ms); None if there is no deadline or no member.

        Only the first call after an event computes the deadline; further calls return the same value.
        """
        if not self._deadline_is_known:
            member = self._status.member
            if member is not None:
                self._deadline, self._deadline_is_known = member.next_deadline(), True
        return self._deadline

    def _perform(self, action: protocol.MemberAction) -> None:
        core = self._core
        match action:
            case protocol.Send(purpose=Purpose.JOIN):
                self.sensors.rebalance_began(core.now)
                self._send_join(action)
            case protocol.Send():
                self._send_request(action)
            case protocol.FindCoordinator():
                self._coordinator.look_up_again("the member looks up the coordinator again")
            case protocol.Revoke():
                self._revoke(action)
            case protocol.Lose():
                self._lose(action)
            case protocol.AdoptAssignment():
                self._assign(action)
            case protocol.WantMetadata():
                self.subscription.track_topics()
                self._metadata.need()
            case protocol.Rejoining(reason=reason, after_unusable_assignment=is_unusable):
                if is_unusable:
                    core.report_failure(ASSIGNMENT, reason, repeated=ASSIGNMENT in self._failing_requests)
                    self._failing_requests.add(ASSIGNMENT)
                core.report("rejoining", owned=core.partitions, reason=reason)
            case protocol.Fatal(error=error, final=final):
                error = with_advice(error)
                if final:
                    self._status.final_error = error
                self._membership_error = error
                core.queue_error(error)
            case protocol.Left():
                core.report("left")
                self._on_left()

    def _assign(self, action: protocol.AdoptAssignment) -> None:
        """Replace the assignment. Partitions that the member keeps also keep their state (M88)."""
        core = self._core
        assert self.member is not None
        if not self.member.is_rejoining_repeatedly:
            self._failing_requests.discard(ASSIGNMENT)
        self._offset_lookup.is_first_generation = action.first
        self._offset_lookup.initial_counts = action.initial_counts
        owned = set(action.owned)
        if dropped := self._seeks.drop_ended(owned, core.now, ends_rebalance=not self.member.cooperative):
            reason = "the group assigned them to another member"
            core.report("unsought", dropped, owned=action.owned, reason=reason)
        for partition in [partition for partition in core.partitions if partition not in owned]:
            core.partitions.drop(partition)
        for partition in action.owned:
            if partition not in core.partitions:
                topic_id = core.topic_ids.get(partition.topic)
                self._seeks.apply(core.partitions.add(partition, topic_id, new=partition in action.new))
        self._committer.auto_commit.restart()
        self.sensors.rebalance_ended(core.now)
        core.report("assigned", action.added, owned=action.owned)
        self._add_callback(RebalanceCallback("assigned", action.added, ""))

    # ---- requests of the member

    def _send_join(self, action: protocol.Send) -> None:
        """Send JoinGroup.

        With `policy="java"` and auto commit, the offsets of the partitions that the member keeps are
        committed before JoinGroup is sent (M75).
        """
        core, member = self._core, self.member
        assert member is not None
        states, identity = core.partitions.processed_states(), member.joined_identity
        options = core.options
        commits_automatically = options.as_java and options.enable_auto_commit
        if not (commits_automatically and states and identity is not None):
            self._send_request(action)
            return
        timeout_ms = min(options.request_timeout_ms, options.max_poll_interval_ms)

        def on_committed(error: KprotoError | None) -> None:
            if error is not None:
                self.report_uncommitted(states, error)
            if member.is_pending(action.request):
                self._send_request(action)

        self._committer.commit_with_identity(identity, offsets_of(states), timeout_ms, on_committed)

    def _send_request(self, action: protocol.Send) -> None:
        """Send a request to the coordinator. The request fails at once if no coordinator is known."""
        core, request, member = self._core, action.request, self.member
        assert member is not None
        node = self._coordinator.node
        if node is None:
            self.apply_event(protocol.SendFailed(request, "the coordinator is not known"))
            return
        if action.purpose is Purpose.JOIN:
            # The MAIN connection to the coordinator is opened in advance, because committed offsets are
            # fetched over it as soon as partitions are assigned.
            core.network.connect(node, core.now)
        if action.purpose is Purpose.HEARTBEAT:
            self.sensors.heartbeat_at = core.now
        core.send(
            Prepared(type(request), lambda version: member.in_version(request, version)),
            lambda call: self._on_call_finished(action, call),
            node=node,
            lane=MAIN if action.urgent else GROUP,
            timeout_ms=max(core.options.request_timeout_ms, action.timeout_ms or 0),
        )

    def _on_call_finished(self, action: protocol.Send, call: Call) -> None:
        """Pass the response, or the failure of the request, to the member."""
        self._report_retried_failure(action, call)
        self.sensors.record_call(action.purpose, call, self._core.now)
        if call.response is not None:
            self.apply_event(protocol.Received(action.request, call.response))
        elif call.outcome is Outcome.NO_RESPONSE or call.error is None:
            self.apply_event(protocol.SendFailed(action.request, str(call.error)))
        elif action.purpose is Purpose.HEARTBEAT:
            # A failed heartbeat does not end the membership, because the next heartbeat may succeed.
            self._core.queue_error(call.error)
            self.apply_event(protocol.SendFailed(action.request, str(call.error)))
        else:
            self.apply_event(protocol.SendRefused(action.request, call.error))

    def _report_retried_failure(self, action: protocol.Send, call: Call) -> None:
        """Report the failure of a request that the member retries, or record that the request succeeded."""
        assert self.member is not None
        why = ""
        if call.response is not None:
            code = self.member.retried_error(call.response)
            if code is None:
                return
            if code:
                advice = broker_error(code, call.name).detail
                why = f"{describe(code)}: {advice}" if advice else describe(code)
        elif action.purpose in (Purpose.JOIN, Purpose.SYNC) and call.outcome is Outcome.NO_RESPONSE:
            why = str(call.error)
        else:
            return
        if why:
            self._core.report_failure(call.name, why, repeated=call.name in self._failing_requests)
            self._failing_requests.add(call.name)
        else:
            self._failing_requests.discard(call.name)

    def on_commit_error(self, code: int, identity: Identity) -> None:
        """Notify the member of a commit's error code, and of the identity with which the commit was sent."""
        self.apply_event(protocol.CommitAnswered(code, identity.generation, identity.member_id))

    def on_coordinator_found(self, node: int) -> None:
        """Notify the member that the coordinator has been found.

        A member that has unsubscribed also needs the coordinator, to leave the group.
        """
        self.apply_event(protocol.CoordinatorFound(node))

    def on_coordinator_lost(self, why: str) -> None:
        """Notify the member that the coordinator is unknown."""
        self.apply_event(protocol.CoordinatorLost(why))
