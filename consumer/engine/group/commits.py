"""Offset commits, which the consumer sends one at a time, in the order of the calls.

* Commits are sent one after the other, so that an older offset never overwrites a newer one (M130).

* A commit of a member carries the identity (member id and generation) that the member has when the commit is
  sent. Only `commit_with_identity` sends an earlier identity.

* During a rebalance a commit waits (M95). In the next generation, a commit of the application is sent if the
  member still owns all partitions of the commit, and otherwise fails with CommitFailed. An automatic or
  initial commit is sent without the revoked partitions.

* With `policy="java"` a commit that the application has requested fails immediately during a rebalance.

* Commits and JoinGroup use different connections, so a commit may arrive after the next generation has begun.

* ILLEGAL_GENERATION ends the membership only if the member still has the member id and generation that
  the commit names (M3).

* If a topic is re-created after the call of `commit` and before the request is sent, the offset is not sent
  (KIP-516).

* A coordinator before Kafka 4.2 identifies topics by name, so it would accept the offset for a re-created
  topic. Before each commit to such a coordinator, the consumer requests the topic ids. It does not send an
  offset whose topic id has changed.

* Every commit completes: it succeeds, fails or times out. Closing the consumer fails pending commits.

* A commit without explicit offsets covers all returned records. It fails if partitions with uncommitted
  records have been lost.

* Retriable errors are retried with an exponential backoff until the timeout of the commit (M129). If the
  coordinator does not respond, it is looked up again.

* The queue also contains the initial commits of partitions without a committed offset (`initial_commits`),
  and automatic commits (`auto_commit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from uuid import UUID

from kproto.deadlines import earliest
from kproto.error_codes import ErrorCode, describe
from kproto.errors import (
    Fenced,
    IllegalState,
    KprotoError,
    NoOffsetForPartition,
    RequestTimedOut,
    UnsupportedVersion,
)
from kproto.group.protocol import Identity
from kproto.group.subscription import TopicPartition
from kproto.messages.metadata import MetadataResponse
from kproto.messages.offset_commit import OffsetCommitResponse
from kproto.messages.offset_fetch import OffsetFetchResponse

from ...consumer_options import ConsumerOptions
from ...errors import broker_error
from ..consumer_metrics import COMMIT
from ..core import ClientCore
from ..error_actions import OFFSET_COMMIT, OFFSET_FETCH, ErrorAction, action_for
from ..metadata.cluster import NO_TOPIC_ID, broker_ids
from ..metadata.updater import MetadataUpdater
from ..metrics import Sensor
from ..network.call import Call, Outcome
from ..positions.partition_states import PartitionState
from ..requests import (
    LAST_VERSION_WITH_NAMES,
    CommittedOffset,
    metadata_request,
    offset_commit_codes,
    offset_commit_request,
    topic_ids_of,
)
from .auto_commit import AutoCommit
from .commit_queue import CommitQueue, QueuedCommit
from .coordinator import CoordinatorLookup
from .initial_commits import InitialCommits, Offsets, OnCommitted

# The error codes of a coordinator that cannot write offsets, for example because too few replicas are in
# sync.
CANNOT_WRITE_CODES = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
REBALANCING = "a rebalance is in progress"

# Interval (ms) at which unchanged offsets are committed again, so that the coordinator does not remove them
# after offsets.retention.minutes.
REFRESH_MS = 3_600_000


class Committer:
    """Sends the commits of a consumer one after the other, and completes or retries each of them.

    If a commit that was sent with an identity (member id and generation) gets an error that may end the
    membership, `on_error(code, identity)` is called. `code` is the first error code in the response.
    """

    def __init__(
        self,
        core: ClientCore[ConsumerOptions],
        coordinator: CoordinatorLookup,
        on_error: Callable[[int, Identity], None],
        metadata: MetadataUpdater,
    ) -> None:
        self._core = core
        self._status = core.group_status
        self._coordinator = coordinator
        self._on_error = on_error
        self._metadata = metadata
        self._queue = CommitQueue()
        self._in_flight: QueuedCommit | None = None
        # When unchanged offsets are due to be committed again (ms).
        self._refresh_at: int | None = None
        self._last_commit_failed = False
        self.sensor = Sensor(COMMIT)
        # The offsets of each successful commit are appended here. None if nothing in the client needs them.
        self.reported_commits: deque[dict[TopicPartition, CommittedOffset]] | None = None
        self.initial_commits = InitialCommits(core, self._commit_initial)
        self.auto_commit = AutoCommit(core, self.states_to_commit, self._commit_automatically)
        # The partitions of each commit that was sent, and whose success is not confirmed. The coordinator may
        # have stored the offsets of such a commit.
        self._unconfirmed: set[TopicPartition] = set()
        # Partition -> (position, committed offset), for partitions lost with uncommitted records. Cleared
        # when the application has been notified.
        self._lost: dict[TopicPartition, tuple[int, int | None]] = {}

    def due(self) -> int | None:
        """Return the next time (ms) at which a commit is due or times out; None if no time is set."""
        commit = self._queue.first
        has_backoff = commit is not None and self._in_flight is None and commit.retry_at > self._core.now
        return earliest(
            self._queue.due(),
            commit.retry_at if commit is not None and has_backoff else None,
            self.auto_commit.due(),
            self.initial_commits.due(),
        )

    @property
    def is_idle(self) -> bool:
        """Whether no commit is queued or in flight."""
        return self._in_flight is None and not self._queue

    # ---- calls

    def commit(
        self,
        offsets: Offsets,
        timeout_ms: int,
        on_committed: OnCommitted,
        is_single_attempt: bool = False,
    ) -> None:
        """Commit `offsets`. Call `on_committed` with None after success, or with the error of the commit."""
        if (error := self._status.group_error) is not None:
            on_committed(error)
        elif offsets:
            self._enqueue(offsets, timeout_ms, on_committed, is_single_attempt=is_single_attempt)
        else:
            on_committed(None)

    def commit_all(
        self,
        timeout_ms: int,
        on_committed: OnCommitted,
        held: Mapping[TopicPartition, int],
        is_single_attempt: bool = False,
    ) -> None:
        """Commit the position of each partition that is not in `held`.

        If returned records of a partition are still being processed, `held` maps the partition to its first
        unprocessed offset, which is committed instead of the position. All other returned records count as
        processed from now on.

        The commit fails if partitions with uncommitted records were lost, and the application has not been
        notified of the loss yet (M95).
        """
        if self._lost:
            on_committed(self._loss_error())
            return
        self._core.partitions.mark_processed(held)
        self.commit(offsets_of(self.states_to_commit()), timeout_ms, on_committed, is_single_attempt)

    def _loss_error(self) -> KprotoError:
        """Return an error that names the first lost partition. Call it only if a partition was lost."""
        lost = self._lost
        partition, (position, committed) = next(iter(lost.items()))
        more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
        committed_text = "no offset" if committed is None else f"offset {committed}"
        detail = (
            f"{partition}{more} was lost before its records were committed (returned up to offset "
            f"{position}, committed {committed_text}); its new owner reads these records again"
        )
        return broker_error(ErrorCode.UNKNOWN_MEMBER_ID, "OffsetCommit", detail)

    def states_to_commit(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionState]:
        """Return the states of the partitions whose processed or stored offset has no confirmed commit.

        If `partitions` is not None, the result contains only the states of these partitions. If it is None,
        one result per `REFRESH_MS` also contains every partition with a committed offset, even if nothing has
        changed.

        With `policy="java"`, the argument `partitions` and earlier commits have no effect: the result
        contains every partition with a position.
        """
        now, positions = self._core.now, self._core.partitions
        if self._core.options.as_java:
            return positions.processed_states()
        states = positions.states_to_commit(partitions)
        if partitions is None and (self._refresh_at is None or self._refresh_at <= now):
            if self._refresh_at is not None:
                states = {**positions.committed_states(), **states}
            self._refresh_at = now + REFRESH_MS
        return states

    def wait_for_pending(self, timeout_ms: int, on_completed: OnCommitted) -> None:
        """Call `on_completed` when all earlier commits are complete, or after `timeout_ms`."""
        if self.is_idle:
            on_completed(None)
        else:
            self._enqueue({}, timeout_ms, on_completed)

    def commit_with_identity(
        self, identity: Identity, offsets: Offsets, timeout_ms: int, on_committed: OnCommitted
    ) -> None:
        """Commit `offsets` with this member id and generation, ahead of all other commits in the queue."""
        self._enqueue(offsets, timeout_ms, on_committed, required_identity=identity, drops_revoked=True)

    def _commit_initial(self, offsets: Offsets, on_committed: OnCommitted, needs_check: bool) -> None:
        timeout_ms = self._core.options.request_timeout_ms
        commit = self._enqueue(offsets, timeout_ms, on_committed, drops_revoked=True, is_initial=True)
        commit.needs_check = needs_check

    def _commit_automatically(
        self, states: Mapping[TopicPartition, PartitionState], on_committed: OnCommitted
    ) -> None:
        timeout_ms = self._core.options.request_timeout_ms
        self._enqueue(offsets_of(states), timeout_ms, on_committed, drops_revoked=True)

    def prepare_close(self) -> None:
        """Stop automatic commits, and stop retrying initial commits, before a close."""
        self.auto_commit.stop()
        self.initial_commits.is_closing = True

    def record_loss(self, state: PartitionState) -> None:
        """Record the loss of a partition if it has uncommitted records, so that `commit_all` fails."""
        if self._core.partitions.stores_manually:
            has_uncommitted = state.needs_commit
        else:
            has_read = state.has_position and state.has_returned
            has_uncommitted = has_read and not state.has_committed(state.position)
        if has_uncommitted:
            self._lost[state.partition] = (state.position, state.committed)

    def forget_losses(self) -> None:
        """Forget the lost partitions, because the application has been notified of the loss."""
        self._lost.clear()

    def _enqueue(
        self,
        offsets: Offsets,
        timeout_ms: int,
        on_committed: OnCommitted,
        *,
        drops_revoked: bool = False,
        required_identity: Identity | None = None,
        is_initial: bool = False,
        is_single_attempt: bool = False,
    ) -> QueuedCommit:
        """Queue a commit, and record in the states of its partitions that it was requested.

        If `required_identity` is given, the states of the partitions remain unchanged.
        """
        requires_membership = self._status.in_group
        positions = self._core.partitions
        states = {
            partition: state
            for partition in offsets
            if requires_membership and (state := positions.get(partition)) is not None
        }
        commit = QueuedCommit(
            offsets=offsets,
            deadline=self._core.now + timeout_ms,
            timeout_ms=timeout_ms,
            on_committed=on_committed,
            requires_membership=requires_membership,
            states=states,
            drops_revoked=drops_revoked,
            required_identity=required_identity,
            is_initial=is_initial,
            is_single_attempt=is_single_attempt,
        )
        for partition in offsets:
            if (topic_id := self._current_topic_id(partition)) is not None:
                commit.topic_ids[partition.topic] = topic_id
        self._queue.add(commit)
        if required_identity is None:
            for partition, (offset, leader_epoch, metadata) in offsets.items():
                if (state := positions.get(partition)) is not None:
                    if positions.stores_manually and not is_initial:
                        state.store(offset, leader_epoch, metadata)
                    state.on_commit_sent(offset, commit)
        return commit

    def _current_topic_id(self, partition: TopicPartition) -> UUID | None:
        """Return the current id of the partition's topic; None if it is unknown or may be outdated.

        The id of a topic whose metadata is not kept up to date may belong to a deleted topic.
        """
        if (state := self._core.partitions.get(partition)) is not None:
            return state.topic_id
        return self._core.topic_ids.get(partition.topic) if self._metadata.watches(partition.topic) else None

    # ---- sending

    def pump(self) -> None:
        """Fail the commits that have timed out, and send the next commit unless one is in flight."""
        self._queue.expire(self._core.now, self._in_flight)
        if self._in_flight is not None:
            self._move_to_new_coordinator()
        self.auto_commit.pump()
        self.initial_commits.pump()
        while self._in_flight is None and (commit := self._queue.first) is not None:
            if not self._send_or_complete(commit):
                return

    def _move_to_new_coordinator(self) -> None:
        """If another broker has become the coordinator, send the commit in flight again.

        A commit for which only one attempt is allowed fails instead.
        """
        commit, node = self._in_flight, self._coordinator.node
        if commit is None or commit.call is None or node is None or node == commit.call.node:
            return
        self._in_flight, commit.call, commit.needs_check = None, None, True
        self._mark_in_flight(commit, in_flight=False)
        if commit.is_single_attempt:
            detail = f"node {node} is the coordinator now, and the previous one has not answered"
            self._complete(commit, broker_error(ErrorCode.NOT_COORDINATOR, "OffsetCommit", detail))
        else:
            self._queue.add_again(commit)

    def _send_or_complete(self, commit: QueuedCommit) -> bool:
        """Send the queue's first commit, or complete it if it has failed or has no offsets.

        Return False if the commit has to wait, otherwise True.
        """
        core, status = self._core, self._status
        if commit.deadline <= core.now:
            self._complete(commit, RequestTimedOut("OffsetCommit", commit.timeout_ms, commit.reason))
            return True
        may_not_wait = commit.is_initial and self.initial_commits.is_closing
        if may_not_wait and (commit.failures or self._coordinator.node is None):
            waited_ms = core.now - commit.deadline + commit.timeout_ms
            self._complete(commit, RequestTimedOut("OffsetCommit", waited_ms, commit.reason))
            return True
        if commit.retry_at > core.now:
            return False
        if not commit.offsets:
            self._complete(commit, None)
            return True
        if self._drop_or_reject(commit):
            return True
        identity = commit.required_identity or status.identity
        if status.in_group and identity is None:
            if self._fails_in_rebalance(commit):
                self._complete(commit, self._no_identity_error())
                return True
            commit.reason, commit.needs_check = REBALANCING, True
            return False
        node = self._coordinator.require()
        if node is None:
            lookup_error = self._coordinator.lookup_error
            commit.reason = "the group's coordinator is not known" + (lookup_error and f": {lookup_error}")
            commit.needs_check = True
            return False
        if self._must_check(commit):
            self._look_up_committed(commit, node)
        else:
            self._send(commit, node, identity)
        return True

    def _no_identity_error(self) -> KprotoError:
        """Return a commit's error for a consumer that is rebalancing, or is not in the group."""
        member = self._status.member
        is_rebalancing = member is not None and member.is_rebalancing
        code = ErrorCode.REBALANCE_IN_PROGRESS if is_rebalancing else ErrorCode.UNKNOWN_MEMBER_ID
        detail = REBALANCING if is_rebalancing else "the consumer is not a member of the group"
        return broker_error(code, "OffsetCommit", detail)

    def _must_check(self, commit: QueuedCommit) -> bool:
        """Return whether the committed offsets must be looked up before the commit is sent."""
        return commit.is_initial and (
            commit.needs_check
            or (self._status.may_use_transactions and not commit.is_checked)
            or not self._unconfirmed.isdisjoint(commit.offsets)
        )

    def _drop_or_reject(self, commit: QueuedCommit) -> bool:
        """Remove revoked partitions, and partitions of re-created topics, or fail the commit.

        Such a partition was revoked, or its topic was re-created, since the commit call. The partitions are
        removed if `commit.drops_revoked` is true. Otherwise the commit fails if it contains one of them.

        For an initial commit, also remove each partition that now has a committed offset, or for which the
        application has called seek().

        Return true if partitions were removed from the commit, or if the commit failed.
        """
        checks_owner = commit.requires_membership and not self._fails_in_rebalance(commit)
        revoked = [p for p in commit.offsets if checks_owner and self._is_revoked(commit, p)]
        recreated = [p for p in commit.offsets if self._is_recreated(commit, p.topic)]
        unneeded = [p for p in commit.offsets if commit.is_initial and not self._needs_initial_commit(p)]
        if (revoked or recreated or unneeded) and commit.drops_revoked:
            dropped = {*revoked, *recreated, *unneeded}
            commit.offsets = {p: offset for p, offset in commit.offsets.items() if p not in dropped}
            return True
        if recreated:
            detail = f"{recreated[0]}: the topic was re-created, and the offset belongs to the deleted one"
            error = broker_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "OffsetCommit", detail)
            self._complete(commit, error)
            return True
        if revoked or (commit.requires_membership and not self._status.in_group):
            detail = f"{next(iter(revoked or commit.offsets))} is not assigned to this consumer (any more)"
            is_member = self._status.identity is not None
            code = ErrorCode.ILLEGAL_GENERATION if is_member else ErrorCode.UNKNOWN_MEMBER_ID
            self._complete(commit, broker_error(code, "OffsetCommit", detail))
            return True
        return False

    def _is_revoked(self, commit: QueuedCommit, partition: TopicPartition) -> bool:
        """Return whether the partition has been revoked, and perhaps reassigned, since the commit call."""
        state = self._core.partitions.get(partition)
        return state is None or commit.states.get(partition, state) is not state

    def _needs_initial_commit(self, partition: TopicPartition) -> bool:
        """Return whether the partition has no known committed offset and was not the target of a seek()."""
        state = self._core.partitions.get(partition)
        return state is None or (state.start_uncommitted and state.committed is None)

    def _is_recreated(self, commit: QueuedCommit, topic: str) -> bool:
        """Return whether `topic` was deleted and re-created since `commit` was requested (KIP-516).

        With `policy="java"` the result is False: Java's consumer commits by name and does not notice the
        change.
        """
        core, known_id = self._core, commit.topic_ids.get(topic)
        if core.options.as_java or known_id is None:
            return False
        return topic in commit.recreated_topics or core.topic_ids.get(topic) != known_id

    def _send(self, commit: QueuedCommit, node: int, identity: Identity | None) -> None:
        """Send `commit`, the first of the queue, to the coordinator `node`."""
        core = self._core
        group_id = core.options.group_id
        assert group_id is not None
        commit.sent_identity = identity
        commit.sent_topic_ids = {**topic_ids_of(core.view, commit.offsets), **broker_ids(commit.topic_ids)}
        offsets = {p: offset for p, offset in commit.offsets.items() if p.topic not in commit.unknown_topics}
        may_use_names = commit.is_confirmed or core.options.as_java or not broker_ids(commit.topic_ids)
        commit.is_confirmed = False  # A retry needs a new confirmation of the topic ids.
        request = offset_commit_request(
            commit.sent_topic_ids,
            group_id,
            offsets,
            generation=-1 if identity is None else identity.generation,
            member_id="" if identity is None else identity.member_id,
            instance_id=None if identity is None else identity.group_instance_id,
            may_use_names=may_use_names,
        )
        has_all_ids = all(topic in commit.sent_topic_ids for topic, _ in commit.offsets)
        # The request has the full request timeout, even if the commit times out earlier, because a request
        # timeout closes the connection and fails the other requests on it.
        commit.call = core.send(
            request,
            lambda call: self._on_call_finished(commit, call, may_use_names),
            node=node,
            max_version=None if has_all_ids and not core.options.as_java else LAST_VERSION_WITH_NAMES,
        )
        self._in_flight = self._queue.pop()
        self._mark_in_flight(commit, in_flight=True)
        if not commit.is_initial:
            self._unconfirmed.update(commit.offsets)

    def _mark_in_flight(self, commit: QueuedCommit, *, in_flight: bool) -> None:
        """Record whether `commit` is in flight, if it is an initial commit.

        While an initial commit is in flight, polls return no records of the partitions that it commits.
        """
        for partition in commit.offsets if commit.is_initial else ():
            if (state := self._core.partitions.get(partition)) is not None:
                state.set_start_commit_in_flight(in_flight)
                self._core.wake_poll()

    def _look_up_committed(self, commit: QueuedCommit, node: int) -> None:
        """Look up the committed offsets before `commit` is sent (M206).

        `commit` must be an initial commit, and the first commit of the queue.

        The application may have committed in a transaction, or an earlier commit may have reached the
        coordinator although its response was lost.
        """
        commit.call = self.initial_commits.request_committed_offsets(
            commit.offsets, node, lambda call: self._on_check_response(commit, call)
        )
        self._in_flight = self._queue.pop()

    # ---- responses

    def _on_check_response(self, commit: QueuedCommit, call: Call) -> None:
        """Queue the initial commit again, now without the partitions that have a committed offset."""
        if commit.call is not call:
            return  # `commit` was queued again, because the coordinator has changed.
        self._in_flight = None
        if not isinstance(call.response, OffsetFetchResponse):
            self._on_no_response(commit, call)
            return
        code, reason = self.initial_commits.record_committed_offsets(commit.offsets, call, call.response)
        action = action_for(OFFSET_FETCH, code)
        if action is ErrorAction.RAISE:
            group = self._core.options.group_id
            self._complete(commit, broker_error(code, "OffsetFetch", f"group {group!r}"))
        elif reason:
            if action is ErrorAction.FIND_COORDINATOR:
                self._coordinator.report_lost(call.node, f"OffsetFetch was answered with {reason}")
            self._retry(commit, reason)
        else:
            self._unconfirmed.difference_update(commit.offsets)
            commit.needs_check, commit.is_checked = False, True
            if not commit.is_completed:
                self._queue.add_again(commit)

    def _confirm_topic_ids(self, commit: QueuedCommit, node: int) -> None:
        """Request the current ids of the commit's topics from the coordinator.

        After the Metadata response, the OffsetCommit is sent with topic names. Its offsets reach the wrong
        topic only if the topic is re-created between the Metadata request and the OffsetCommit.

        If the topic is re-created after the OffsetCommit, the coordinator removes the offsets when it learns
        that the old topic was deleted.
        """
        request = metadata_request(broker_ids(commit.topic_ids))
        commit.call = self._core.send(request, lambda call: self._on_topic_ids(commit, call), node=node)
        self._in_flight = commit

    def _on_topic_ids(self, commit: QueuedCommit, call: Call) -> None:
        """Record which topics are unknown or were re-created, then queue the commit again.

        A topic was re-created if the coordinator's topic id differs from the id of the offsets. If the
        coordinator knows none of the topics, the commit fails with UNKNOWN_TOPIC_OR_PARTITION.
        """
        if commit.call is not call:
            return
        self._in_flight = None
        response = call.response
        if not isinstance(response, MetadataResponse):
            self._on_no_response(commit, call)
            return
        current = {topic.name: topic for topic in response.topics}
        commit.unknown_topics = {
            name
            for name, topic in current.items()
            if name is not None and topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        }
        commit.recreated_topics = {
            name
            for name, known_id in commit.topic_ids.items()
            if name in current and current[name].topic_id not in (NO_TOPIC_ID, known_id)
        }
        if commit.unknown_topics or commit.recreated_topics:
            self._metadata.need()
        commit.is_confirmed = True
        if commit.unknown_topics.issuperset(partition.topic for partition in commit.offsets):
            self._on_response(commit, call, OffsetCommitResponse(topics=[]))
        elif not commit.is_completed:
            self._queue.add_again(commit)

    def _on_call_finished(self, commit: QueuedCommit, call: Call, may_use_names: bool) -> None:
        """Handle the response to an OffsetCommit request, or the failure of the request.

        If the coordinator accepts only topic names, and the topic ids are not confirmed yet, confirm them
        before the commit is sent again.
        """
        if commit.call is not call:
            return  # `commit` was queued again, because the coordinator has changed.
        self._in_flight = None
        self._mark_in_flight(commit, in_flight=False)
        if isinstance(call.response, OffsetCommitResponse):
            self.sensor.record(self._core.now - call.created_at, self._core.now)
            self._on_response(commit, call, call.response)
        elif isinstance(call.error, UnsupportedVersion) and not may_use_names and call.node is not None:
            self._confirm_topic_ids(commit, call.node)
        else:
            self._on_no_response(commit, call)

    def _on_no_response(self, commit: QueuedCommit, call: Call) -> None:
        """Retry or fail a commit whose request got no response."""
        if call.outcome is Outcome.NO_RESPONSE:
            self._report_failure(commit.offsets, str(call.error))
            self._coordinator.report_lost(call.node, str(call.error))
            self._retry(commit, str(call.error), call.error)
        else:
            self._complete(commit, call.error)

    def _on_response(self, commit: QueuedCommit, call: Call, response: OffsetCommitResponse) -> None:
        """Record the committed offsets. Complete, retry or fail the commit, as its errors require (M61)."""
        codes = offset_commit_codes(commit.sent_topic_ids, response, call.version, commit.offsets)
        unknown = (partition for partition in commit.offsets if partition.topic in commit.unknown_topics)
        codes |= dict.fromkeys(unknown, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        self._mark_committed(commit, codes)
        if self.reported_commits is not None:
            self._report_committed(commit, codes, self.reported_commits)
        errors = {partition: code for partition, code in codes.items() if code}
        first_code = next(iter(errors.values()), 0)
        sent_identity = commit.sent_identity
        is_stale = ErrorCode.ILLEGAL_GENERATION in errors.values() and self._status.identity != sent_identity
        may_end_membership = not is_stale and not self._cannot_write(first_code)
        if first_code and sent_identity is not None and may_end_membership:
            self._on_error(first_code, sent_identity)
        if is_stale and self._status.in_group and commit.required_identity is None:
            error = broker_error(ErrorCode.REBALANCE_IN_PROGRESS, "OffsetCommit", REBALANCING)
            self._retry(commit, REBALANCING, error)
        elif errors:
            self._on_partition_errors(commit, call, errors)
        elif missing := commit.offsets.keys() - codes.keys():
            self._report_failure(sorted(missing), "the response does not contain it")
            self._retry(commit, f"the coordinator's response does not contain {min(missing)}")
        else:
            self._last_commit_failed = False
            self._coordinator.confirm()
            self._complete(commit, None)

    def _mark_committed(self, commit: QueuedCommit, codes: Mapping[TopicPartition, int]) -> None:
        """Record the committed offsets of partitions that have not been revoked since the commit call."""
        for partition, (offset, _, _) in commit.offsets.items():
            state = self._core.partitions.get(partition)
            is_still_owned = state is not None and commit.states.get(partition, state) is state
            if self._is_recreated(commit, partition.topic):
                continue  # The offset belongs to the deleted topic.
            if codes.get(partition) == ErrorCode.NONE and state is not None and is_still_owned:
                state.on_committed(offset, commit)
                self._unconfirmed.discard(partition)
                if isinstance(state.error, NoOffsetForPartition):
                    state.await_committed_offset()

    def _report_committed(
        self,
        commit: QueuedCommit,
        codes: Mapping[TopicPartition, int],
        commits: deque[dict[TopicPartition, CommittedOffset]],
    ) -> None:
        """Append the committed offsets of this commit to `commits`, for the application's interceptors."""
        offsets = {
            partition: CommittedOffset(offset, metadata, epoch)
            for partition, (offset, epoch, metadata) in commit.offsets.items()
            if codes.get(partition) == ErrorCode.NONE
        }
        if offsets:
            commits.append(offsets)

    def _on_partition_errors(
        self, commit: QueuedCommit, call: Call, errors: Mapping[TopicPartition, int]
    ) -> None:
        """Retry or fail the commit, according to the first error of the response (M61)."""
        partition, code = next(iter(errors.items()))
        reason = f"{partition} was answered with {describe(code)}"
        action = action_for(OFFSET_COMMIT, code)
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._fails_in_rebalance(commit):
            action = ErrorAction.RETRY
        if code == ErrorCode.UNKNOWN_TOPIC_ID and self._core.view.topic_id(partition.topic) is None:
            # The metadata does not contain the topic, so the topic was deleted and a retry would fail.
            action = ErrorAction.RAISE
        group = self._core.options.group_id
        error = broker_error(code, "OffsetCommit", f"group {group!r}, {partition}")
        if action in (ErrorAction.FIND_COORDINATOR, ErrorAction.RETRY, ErrorAction.REFRESH_METADATA):
            self._report_failure([p for p in errors if errors[p] == code], describe(code))
        waits_for_generation = self._status.in_group and not (
            commit.required_identity or self._fails_in_rebalance(commit)
        )
        match action:
            case ErrorAction.FIND_COORDINATOR:
                if self._cannot_write(code):
                    self._coordinator.verify(call.node, reason)
                else:
                    self._coordinator.report_lost(call.node, reason)
                self._retry(commit, reason, error)
            case ErrorAction.REJOIN if waits_for_generation:
                self._retry(commit, REBALANCING)
            case ErrorAction.RETRY:
                self._retry(commit, reason, error)
            case ErrorAction.REFRESH_METADATA:
                # The retry uses the current topic ids, or names for topics without an id.
                self._metadata.need()
                for topic in {p.topic for p in errors if not self._metadata.watches(p.topic)}:
                    self._metadata.look_up(topic)
                self._retry(commit, reason, error)
            case _:
                is_background = commit.is_single_attempt or (
                    commit.drops_revoked and commit.required_identity is None
                )
                if isinstance(error, Fenced) and self._core.options.as_java and is_background:
                    # Each later poll and commit raises the error, as in Java's
                    # ConsumerCoordinator.asyncCommitFenced.
                    self._status.final_error = error
                self._complete(commit, error)

    def _report_failure(self, partitions: Iterable[TopicPartition], why: str) -> None:
        """Report a failed attempt, as a repeated failure if the previous attempt also failed."""
        for partition in partitions:
            self._core.report_failure("OffsetCommit", why, partition, repeated=self._last_commit_failed)
        self._last_commit_failed = True

    def _cannot_write(self, code: int) -> bool:
        """Return whether the code means that the broker is still the coordinator but cannot write offsets.

        With `policy="java"` the result is always False. Java's consumer interprets these error codes as a
        change of the coordinator. It looks up the coordinator again, and sends no heartbeats until then.
        """
        return code in CANNOT_WRITE_CODES and not self._core.options.as_java

    def _fails_in_rebalance(self, commit: QueuedCommit) -> bool:
        """Return whether the commit fails during a rebalance, instead of waiting for the rebalance (M95).

        Only commits of the application fail, and only with `policy="java"`. All other commits wait.
        """
        return self._core.options.as_java and not commit.drops_revoked

    def _retry(self, commit: QueuedCommit, reason: str, error: KprotoError | None = None) -> None:
        """Queue the commit again, with a backoff.

        A commit that is sent only once (`is_single_attempt`) is not queued if `error` is given: it fails with
        this error.
        """
        if commit.is_completed:
            return
        if commit.is_single_attempt and error is not None:
            self._complete(commit, error)
            return
        commit.reason = reason
        commit.retry_at = self._core.now + self._core.backoff.after(commit.failures)
        commit.failures += 1
        commit.needs_check = True
        self._queue.add_again(commit)

    # ---- completion

    def _complete(self, commit: QueuedCommit, error: KprotoError | None) -> None:
        commit.complete(error)

    def close(self) -> None:
        """Fail all commits that have not completed.

        The method is called when the consumer has been closed and sends no more requests.
        """
        in_flight = [self._in_flight] if self._in_flight is not None else []
        commits = [*in_flight, *self._queue.clear()]
        self.initial_commits.clear()
        self._unconfirmed.clear()
        self.auto_commit.stop()
        for commit in commits:
            detail = f" ({commit.reason})" if commit.reason else ""
            error = IllegalState(f"the consumer was closed before these offsets were committed{detail}")
            self._complete(commit, error)


def offsets_of(states: Mapping[TopicPartition, PartitionState]) -> Offsets:
    """Return the offset to commit for each partition, with its leader epoch and metadata.

    If the application stores offsets, the result is the stored offset, or the committed offset if none is
    stored. Otherwise the result is the offset of the first unprocessed record. However, if no record has been
    processed since a reset policy chose the start offset, the result is the committed offset.
    """
    return {partition: state.offset_to_commit for partition, state in states.items()}
