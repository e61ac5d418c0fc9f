"""The transactions of a producer, without I/O (KIP-98, KIP-360, KIP-890, Java's TransactionManager).

Rules:

* Requests to the transaction coordinator are sent one at a time. They obtain the producer id and epoch, and
  end the transaction. Before transaction version 2 (KIP-890) they also add partitions and groups to the
  transaction.

* Records are written only within a transaction, and only to partitions that were added to it.

* EndTxn requests a commit only after every record and every offset has been acknowledged. EndTxn is retried
  until its outcome is known.

* After a failure, the transaction can only be aborted, and its remaining records are not sent. Records and
  offsets that are not acknowledged within delivery.timeout.ms fail.

* After an abort, unanswered requests may still reach a broker, so the next transaction gets a new epoch.

* A coordinator before Kafka 2.5 cannot bump epochs (KIP-360). With such a coordinator, an abort waits for the
  responses to all batches that were sent, as in Java. The next transaction continues their sequence numbers.

* After fencing or any other fatal error, the producer has failed. The application has to create a new one.

The requests that the transaction versions use:

    transaction.version   partitions                 groups                            end
    0, 1                  AddPartitionsToTxn         AddOffsetsToTxn, TxnOffsetCommit  EndTxn, the same epoch
    2                     Produce, from version 12   TxnOffsetCommit, from version 5   EndTxn, a new epoch
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar
from uuid import UUID

from kproto.error_codes import ErrorCode, describe
from kproto.errors import IllegalState, KprotoError, RequestTimedOut, UnsupportedVersion
from kproto.group.subscription import TopicPartition
from kproto.machine import move
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.init_producer_id import InitProducerIdResponse
from kproto.messages.txn_offset_commit import TxnOffsetCommitResponse
from kproto.wire.message import Message

from ...errors import broker_error, without_traceback
from ...producer_options import ProducerOptions
from ...records import GroupMetadata
from ..core import ClientCore
from ..error_actions import (
    TRANSACTION,
    TXN_OFFSETS,
    TXN_PARTITIONS,
    ErrorAction,
    Row,
    action_for,
    is_fatal_for_producer,
)
from ..metadata.cluster import BrokerAddress
from ..network.call import Call, Outcome, Prepared
from ..requests import coordinator_of, coordinator_request, topic_ids_of
from ..timeouts import ADD_PARTITIONS_RETRY_BACKOFF_MS
from .batches import PartitionQueue, ProducerBatch
from .produce_responses import ProduceResponses
from .transaction_requests import (
    EPOCH_BUMP_VERSION,
    LAST_ADD_PARTITIONS_VERSION,
    LAST_END_TXN_VERSION,
    LAST_OFFSETS_VERSION,
    LAST_OFFSETS_VERSION_WITH_NAMES,
    LAST_PRODUCE_VERSION,
    Offsets,
    ProducerIdAndEpoch,
    add_partitions_request,
    added_partition_codes,
    init_producer_id_request,
    txn_offset_commit_codes,
    txn_offset_commit_request,
)
from .transaction_states import (
    CALLS,
    EDGES,
    PendingCall,
    ProducerTransactionState,
    TransactionalAccumulator,
)

ADDING_REQUESTS: Final = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit")
TRANSACTIONAL_ID_KEY_TYPE: Final = 1  # FindCoordinator's `key_type` for a transactional id.
S = ProducerTransactionState
T = TypeVar("T")


class TransactionManager:
    """The transactions of one producer, which uses this class instead of `SequenceNumbers`.

    The application's threads call `call` and `send_offsets` with the producer's lock (the guard) held. The
    engine calls all other methods.

    `busy` returns whether a Produce request is in flight. `ready_queues` returns the queues whose next batch
    can be sent. `need_metadata` requests a refresh of the metadata.
    """

    lacks_producer_id = False

    def __init__(
        self,
        core: ClientCore[ProducerOptions],
        records: TransactionalAccumulator,
        responses: ProduceResponses,
        *,
        busy: Callable[[], bool],
        ready_queues: Callable[[], list[PartitionQueue]],
        need_metadata: Callable[[], None],
    ) -> None:
        assert core.options.transactional_id is not None
        self.id = core.options.transactional_id
        self.state = S.UNINITIALIZED
        self.error: KprotoError | None = None
        # The reason why the current request is retried. If the call times out, its error contains the reason.
        self.why = ""
        self._core, self._records, self._responses = core, records, responses
        self._is_sending = busy
        self._ready_queues = ready_queues
        self._need_metadata = need_metadata
        self.current_call: PendingCall | None = None
        self._identity = ProducerIdAndEpoch(-1, -1)
        self._uses_version_2 = False  # Whether the cluster uses transaction version 2 (KIP-890).
        # The node ids of the transaction coordinator, and of the coordinator of each group.
        self._coordinator_node: int | None = None
        self._group_coordinators: dict[str, int] = {}
        self._request_in_flight: Call | None = None
        self._next_request_at = 0  # The next request is not sent before this time (ms).
        self._failures = 0  # Number of consecutive failures of requests.
        # Whether the coordinator may have started the transaction. If so, the producer has to send EndTxn.
        self.started = False
        # Whether the next transaction needs a new epoch, because requests of the current transaction may
        # still reach a broker.
        self._needs_new_epoch = False
        # Whether the coordinator can bump the epoch of the producer id (KIP-360).
        self._bumps_epochs = True
        # The partitions that the coordinator has added to the transaction, and the partitions that it has to
        # add before their batches are sent. With transaction version 2, both sets are empty.
        self._added_partitions: set[TopicPartition] = set()
        self._new_partitions: set[TopicPartition] = set()
        # The groups that the coordinator has added to the transaction.
        self._added_groups: set[str] = set()
        # The offsets that are not committed yet.
        self._offsets: dict[GroupMetadata, dict[TopicPartition, tuple[int, int | None, str]]] = {}
        self._offsets_expire_at: int | None = None  # Time (ms) at which the offsets' commit times out.
        # Topic -> topic id, for the topics whose offsets this transaction commits. If a topic is re-created
        # during the transaction, its offsets are not committed for the new topic (KIP-1319).
        self._topic_ids: dict[str, UUID] = {}
        records.gate = self._require_open_transaction
        responses.on_batch_failed = self.on_batch_failed

    def _require_open_transaction(self) -> None:
        """Raise an error if no transaction is open: records are sent only in transactions."""
        if self.state is not S.IN_TRANSACTION:
            self._require_allowed("send")

    def call(self, name: str, caller: object = None) -> PendingCall:
        """Start the operation `name` (begin, commit or abort), and return the call to wait for.

        Raises IllegalState if the state does not allow the operation. Raises the transaction's error if the
        transaction has failed. If the same operation is in progress, its pending call is returned.

        `caller` identifies the calling thread or task. begin() raises IllegalState while another caller waits
        for begin().
        """
        current_call = self.current_call
        if current_call is not None and current_call.name == name and not current_call.reported:
            if name == "begin" and current_call.waiting - {caller}:
                raise IllegalState(
                    f"begin() of {self.id!r}: another thread or task has called begin() and waits for it"
                )
            current_call.done = current_call.done or (name == "begin" and self.state is S.IN_TRANSACTION)
            if current_call.done or CALLS[self.state].get(name) is self.state:
                # The earlier call has begun the operation. (If Ctrl-C interrupted that call too early, the
                # code below begins the operation.)
                return current_call
        next_state = self._require_allowed(name)
        self.current_call = current_call = PendingCall(name)
        if next_state is S.COMMITTING_TRANSACTION:
            self._records.seal_all()
        self.move(next_state)
        current_call.done = next_state is S.IN_TRANSACTION
        return current_call

    def close(self) -> PendingCall | None:
        """Abort an open transaction, because the producer is being closed.

        Return the call to wait for: this abort, or the commit or abort that is already in progress. Return
        None if there is nothing to wait for.
        """
        if self.state is S.IN_TRANSACTION or self.state is S.ABORTABLE_ERROR:
            return self.call("abort")
        in_progress = self.state is S.COMMITTING_TRANSACTION or self.state is S.ABORTING_TRANSACTION
        return self.current_call if in_progress else None

    def send_offsets(self, member: GroupMetadata, offsets: Offsets) -> None:
        """Add a group's offsets to the transaction. They are committed when the transaction is committed."""
        self._require_allowed("send_offsets")
        if offsets:  # As in Java, an empty call has no effect.
            self._offsets.setdefault(member, {}).update(offsets)

    def open_reason(self) -> str:
        """Describe the state, and what the current call waits for."""
        open_records = self._records.open_records
        waits = f"{open_records} records are not acknowledged" if open_records else self.why
        return f"{self.id!r}: {self.state.value}" + (f"; {waits}" if waits else "")

    def _require_allowed(self, name: str) -> ProducerTransactionState:
        """Return the state to which operation `name` leads. Raises an error if `name` is not allowed now."""
        next_state = CALLS[self.state].get(name)
        if next_state is None:
            if self.error is not None:
                raise without_traceback(self.error)
            allowed = " or ".join(f"{name}()" for name in CALLS[self.state]) or "a new producer"
            raise IllegalState(f"{name}() of {self.id!r}: {self.state.value}; allowed now: {allowed}")
        return next_state

    def move(self, to: ProducerTransactionState, error: KprotoError | None = None) -> None:
        """Change the state along an edge of `EDGES`, and set the error that later calls raise."""
        if to is not self.state:
            move(self, to, EDGES)
        self.error = error

    def ensure_ready(self) -> bool:
        """Request the addition of new partitions to the transaction. Return whether batches may be sent."""
        if self.state is S.ABORTABLE_ERROR or self.state is S.ABORTING_TRANSACTION:
            # Batches that were never sent have failed already. Sent batches may be retried only if the
            # coordinator cannot bump epochs: only then does the abort wait for their responses.
            return not self._bumps_epochs
        if self.state is not S.IN_TRANSACTION and self.state is not S.COMMITTING_TRANSACTION:
            return False
        if not self._uses_version_2:
            ready_partitions = {queue.partition for queue in self._ready_queues()}
            self._new_partitions = ready_partitions - self._added_partitions
            self.pump()
        return not self._new_partitions

    def assign_sequence(self, queue: PartitionQueue, batch: ProducerBatch) -> bool:
        """Assign a sequence number to the batch, in the epoch of this transaction.

        Return True: unlike `SequenceNumbers`, a transaction always has a producer id.
        """
        if queue.identity != self._identity:
            queue.identity, queue.next_sequence, queue.epoch_accepted = self._identity, 0, False
            queue.end_of_log = 0
        queue.needs_new_epoch = False
        queue.assign_sequence(batch)
        self.started = True
        return True

    def max_produce_version(self, max_version: int | None) -> int | None:
        """Return the highest version of Produce to use; None for no limit.

        `max_version` is the highest version that the request's topics allow. Without transaction version 2
        (KIP-890), the result is at most LAST_PRODUCE_VERSION.
        """
        if self._uses_version_2:
            return max_version
        return LAST_PRODUCE_VERSION if max_version is None else min(LAST_PRODUCE_VERSION, max_version)

    def on_batch_failed(self, batch: ProducerBatch, error: KprotoError) -> None:
        """Handle the failure of a batch: require an abort, or end the producer after a fatal error."""
        is_uncertain = self._bumps_epochs or isinstance(error, RequestTimedOut)
        self._needs_new_epoch = self._needs_new_epoch or (batch.sequence >= 0 and is_uncertain)
        if self.state is S.IN_TRANSACTION or self.state is S.COMMITTING_TRANSACTION:
            if is_fatal_for_producer(error):
                self.fail(error)
            else:
                self._require_abort(error)

    def _require_abort(self, error: KprotoError) -> None:
        """Move to ABORTABLE_ERROR, fail the current call and undelivered records, and drop the offsets."""
        with self._records.guard:
            self.move(S.ABORTABLE_ERROR, error)
        self._end_call(error)
        self._discard_records_and_offsets(error)

    def fail(self, error: KprotoError) -> None:
        """Move to FATAL_ERROR, and report the error: the application has to create a new producer."""
        if self.state is not S.FATAL_ERROR:
            self._core.report("failed", reason=str(error))
            self.end(error)

    def end(self, error: KprotoError) -> None:
        """Move to FATAL_ERROR, because the producer has been closed or has failed.

        The current call and the undelivered records fail with `error`. Unlike `fail`, this method does not
        report the error to event callbacks and to the log.
        """
        if self.state is S.FATAL_ERROR:
            return
        with self._records.guard:
            self.move(S.FATAL_ERROR, error)
        error.add_note(f"The producer of {self.id!r} has failed: create a new one.")
        self._end_call(error)
        self._discard_records_and_offsets(error)

    def _discard_records_and_offsets(self, error: KprotoError) -> None:
        """Fail the undelivered records of this transaction, and drop its offsets.

        If the coordinator cannot bump epochs, an abort waits for the responses to the sent batches. So the
        records of these batches do not fail here.
        """
        keeps_sent = not self._bumps_epochs and self.state is not S.FATAL_ERROR
        with self._records.guard:
            discarded = [
                batch for batch in list(self._records.open_batches) if not keeps_sent or batch.sequence < 0
            ]
        for batch in discarded:
            self._needs_new_epoch = self._needs_new_epoch or batch.sequence >= 0
            batch.error = error
            if batch in batch.queue.waiting:
                batch.queue.waiting.remove(batch)
            self._responses.end_batch(batch)
        with self._records.guard:
            # The failures of the discarded records are not reported, because the transaction's error is
            # raised instead.
            self._records.take_failures()
            self._offsets.clear()
        self._new_partitions.clear()

    def _end_call(self, error: KprotoError | None = None) -> None:
        """End the current call, if it has not ended yet, and wake the callers that wait for it."""
        current_call = self.current_call
        if current_call is not None and not current_call.done:
            current_call.error, current_call.done = error, True
        self._core.wake_poll()

    def pump(self) -> None:
        """Discard aborted records and expired offsets. Then send the next request, if none is in flight."""
        if self.state is S.ABORTING_TRANSACTION and (self._records.open_batches or self._offsets):
            self._discard_records_and_offsets(IllegalState(f"the transaction of {self.id!r} was aborted"))
        self._expire_offsets()
        while self._request_in_flight is None and self._next_request_at <= self._core.now:
            next_step = self._next_step()
            if next_step is None:
                return
            next_step()

    def _expire_offsets(self) -> None:
        """Require an abort if the commit of the offsets has timed out and no request is in flight."""
        now, timeout = self._core.now, self._core.options.delivery_timeout_ms
        if not self._offsets:
            self._offsets_expire_at = None
        elif self._offsets_expire_at is None:
            self._offsets_expire_at = now + timeout
        elif self._offsets_expire_at <= now and self._request_in_flight is None:
            self._needs_new_epoch = self._needs_new_epoch or self.started
            self._require_abort(RequestTimedOut("TxnOffsetCommit", timeout, self.why))

    def due(self) -> int | None:
        """Return when (ms) `_next_step` is due; None if a request is in flight, or no step is possible."""
        if self._request_in_flight is not None or self._next_step() is None:
            return None
        return max(self._core.now, self._next_request_at)

    def _next_step(self) -> Callable[[], None] | None:
        """Return the function of the next step; None if no step is possible now.

        The step sends a request, or looks up the coordinator if the coordinator is unknown. If the
        transaction can end without a further request, the step completes the transaction.
        """
        next_request = None
        if self.state is S.INITIALIZING:
            next_request = self._request_producer_id
        elif self.state is S.IN_TRANSACTION or self.state is S.COMMITTING_TRANSACTION:
            if self._new_partitions:
                next_request = self._send_add_partitions
            elif self._offsets:
                next_request = self._send_offsets_request
            elif (
                self.state is S.COMMITTING_TRANSACTION
                and not self._records.open_batches
                and not self._is_sending()
            ):
                if not self.started:
                    return self._complete_transaction
                next_request = self._send_end_txn
        elif self.state is S.ABORTING_TRANSACTION and not self._awaits_batches():
            if not self.started and not self._needs_new_epoch:
                return self._complete_transaction
            next_request = self._send_end_txn if self.started else self._request_producer_id
        if next_request is not None and self._coordinator_node is None:
            return self._find_coordinator
        return next_request

    def _awaits_batches(self) -> bool:
        """Return whether an abort has to wait for responses to batches that were sent."""
        return self._is_sending() or (not self._bumps_epochs and bool(self._records.open_batches))

    def _send(
        self,
        request: Message | Prepared,
        on_response: Callable[[Call], None],
        *,
        node: int | None,
        max_version: int | None = None,
    ) -> None:
        """Send a request to a coordinator, or to any broker if `node` is None."""

        def on_finished(call: Call) -> None:
            self._request_in_flight = None
            if self.state is not S.FATAL_ERROR:
                on_response(call)

        # The coordinator may have executed the request, so the response is handled even if the state has
        # changed since the request.
        self._request_in_flight = self._core.send(request, on_finished, node=node, max_version=max_version)

    def _find_coordinator(self) -> None:
        """Look up the coordinator."""
        self._send(coordinator_request(self.id, TRANSACTIONAL_ID_KEY_TYPE), self._on_coordinator, node=None)

    def _on_coordinator(self, call: Call) -> None:
        node = self._read_coordinator(call, TRANSACTION)
        if node is not None:
            self._coordinator_node = node

    def _read_coordinator(self, call: Call, row: Row) -> int | None:
        """Return the coordinator's node id from the response to a lookup.

        If the lookup failed, handle the failure and return None. `row` decides how an error code is handled.
        """
        response = call.response
        if not isinstance(response, FindCoordinatorResponse):
            self._on_no_response(call)
            return None
        address = coordinator_of(response, call.version)
        if not isinstance(address, BrokerAddress):
            self._check_error_code(address[0], row, "FindCoordinator", address[1])
            return None
        self._core.view.set_address(address.id, address.host, address.port)
        return address.id

    def _request_producer_id(self) -> None:
        """Request a producer id or, in ABORTING_TRANSACTION, the current id's next epoch.

        A request for a producer id also fences the previous producer of this transactional id.
        """
        current = self._identity if self.state is S.ABORTING_TRANSACTION else None
        request = init_producer_id_request(self.id, self._core.options.transaction_timeout_ms, current)
        self._send(request, self._on_producer_id, node=self._coordinator_node)

    def _on_producer_id(self, call: Call) -> None:
        """Handle the InitProducerId response."""
        response = call.response
        if not isinstance(response, InitProducerIdResponse):
            self._on_no_response(call)
        elif self._check_error_code(response.error_code, TRANSACTION, "InitProducerId"):
            received = {"an id"} if response.producer_id >= 0 else set[str]()
            if not self._check_completeness("InitProducerId", {"an id"}, received):
                return
            self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self._needs_new_epoch = False
            self._bumps_epochs = call.version >= EPOCH_BUMP_VERSION
            if self.state is S.ABORTING_TRANSACTION:
                self._complete_transaction()
            else:
                self._begin_transaction()

    def _begin_transaction(self) -> None:
        """Move to IN_TRANSACTION: the transaction has begun."""
        self._update_transaction_version()
        with self._records.guard:
            self.move(S.IN_TRANSACTION)
        self._end_call()

    def _update_transaction_version(self) -> None:
        """Read from the coordinator's features whether the cluster uses transaction version 2."""
        if self._coordinator_node is not None:
            level = self._core.network.feature_at(self._coordinator_node, "transaction.version")
            self._uses_version_2 = self._uses_version_2 if level is None else level >= 2

    def _send_add_partitions(self) -> None:
        """Send AddPartitionsToTxn for the new partitions."""
        requested = set(self._new_partitions)

        def on_response(call: Call) -> None:
            response = call.response
            if not isinstance(response, AddPartitionsToTxnResponse):
                self._needs_new_epoch = True
                self._on_no_response(call)
                return
            codes = added_partition_codes(response)
            # OPERATION_NOT_ATTEMPTED is checked last: it only means that another partition failed, and that
            # partition's code shows the reason.
            not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition, code in sorted(codes.items(), key=lambda entry: entry[1] == not_attempted):
                if not self._check_error_code(code, TXN_PARTITIONS, "AddPartitionsToTxn", str(partition)):
                    return
            if self._check_completeness("AddPartitionsToTxn", requested, codes):
                self._added_partitions |= requested
                self._new_partitions -= requested
                self._on_added_to_transaction()

        # The next transaction needs a new epoch until the coordinator has responded to this request (see
        # `_on_added_to_transaction`), because the request may still reach the coordinator after an abort.
        self._needs_new_epoch = self._bumps_epochs
        request = add_partitions_request(self.id, self._identity, requested)
        self._send(request, on_response, node=self._coordinator_node, max_version=LAST_ADD_PARTITIONS_VERSION)

    def _on_added_to_transaction(self) -> None:
        """Record that the coordinator has added partitions or a group to the transaction."""
        self.started, self._failures = True, 0
        if self.state is S.IN_TRANSACTION or self.state is S.COMMITTING_TRANSACTION:
            self._needs_new_epoch = False

    def _send_offsets_request(self) -> None:
        """Send the next request for offsets: add the group, find its coordinator, or commit offsets."""
        with self._records.guard:  # Without the guard, other threads could add offsets during the iteration.
            member, offsets_to_commit = next(
                (member, dict(offsets)) for member, offsets in self._offsets.items()
            )
        group = member.group_id
        if not self._uses_version_2 and group not in self._added_groups:
            producer_id, epoch = self._identity
            request = AddOffsetsToTxnRequest(
                transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, group_id=group
            )
            # The next transaction needs a new epoch until the coordinator has confirmed the group (see
            # `_on_added_to_transaction`), because AddOffsetsToTxn may still reach the coordinator after an
            # abort.
            self._needs_new_epoch = self._bumps_epochs
            self._send(request, lambda call: self._on_group_added(group, call), node=self._coordinator_node)
        elif group not in self._group_coordinators:
            lookup = coordinator_request(group)
            self._send(lookup, lambda call: self._on_group_coordinator(group, call), node=None)
        else:
            self.started = True
            for name, topic_id in topic_ids_of(self._core.view, offsets_to_commit).items():
                self._topic_ids.setdefault(name, topic_id)
            topic_ids = self._topic_ids
            has_all_ids = all(partition.topic in topic_ids for partition in offsets_to_commit)
            max_version = None if has_all_ids else LAST_OFFSETS_VERSION_WITH_NAMES
            self._send(
                txn_offset_commit_request(self.id, self._identity, member, offsets_to_commit, topic_ids),
                lambda call: self._on_offsets_committed(member, offsets_to_commit, call),
                node=self._group_coordinators[group],
                max_version=max_version if self._uses_version_2 else LAST_OFFSETS_VERSION,
            )

    def _on_group_added(self, group: str, call: Call) -> None:
        """Handle the AddOffsetsToTxn response."""
        if not isinstance(call.response, AddOffsetsToTxnResponse):
            self._needs_new_epoch = True
            self._on_no_response(call)
        elif self._check_error_code(
            call.response.error_code, TRANSACTION, "AddOffsetsToTxn", f"group {group!r}"
        ):
            self._added_groups.add(group)
            self._on_added_to_transaction()

    def _on_group_coordinator(self, group: str, call: Call) -> None:
        """Handle the response to the lookup of a group's coordinator."""
        node = self._read_coordinator(call, TXN_OFFSETS)
        if node is not None:
            self._group_coordinators[group] = node

    def _on_offsets_committed(self, member: GroupMetadata, requested: Offsets, call: Call) -> None:
        """Handle the TxnOffsetCommit response. If it has no error, drop the requested offsets.

        If the application has set a new offset of a partition since the request, the new offset is kept for
        the next request.
        """
        if not isinstance(call.response, TxnOffsetCommitResponse):
            self._group_coordinators.pop(member.group_id, None)
            if not isinstance(call.error, UnsupportedVersion):
                self._on_no_response(call)
            elif self.state is S.IN_TRANSACTION or self.state is S.COMMITTING_TRANSACTION:
                self._require_abort(call.error)
            return
        codes = txn_offset_commit_codes(self._topic_ids, call.response, call.version)
        for partition, code in codes.items():
            if action_for(TXN_OFFSETS, code) is ErrorAction.FIND_COORDINATOR:
                self._group_coordinators.pop(member.group_id, None)
            if code == ErrorCode.UNKNOWN_TOPIC_ID:
                self._need_metadata()
            detail = f"group {member.group_id!r}, {partition}"
            if not self._check_error_code(code, TXN_OFFSETS, "TxnOffsetCommit", detail):
                return
        if not self._check_completeness("TxnOffsetCommit", requested, codes):
            return
        self._offsets_expire_at = None
        with self._records.guard:
            pending = self._offsets.get(member, {})
            for partition, offset in requested.items():
                if pending.get(partition) == offset:
                    del pending[partition]
            if not pending:
                self._offsets.pop(member, None)

    def _send_end_txn(self) -> None:
        """Send EndTxn, which commits or aborts the transaction."""
        producer_id, epoch = self._identity
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.state is S.COMMITTING_TRANSACTION,
        )
        self._send(
            request,
            self._on_end_txn,
            node=self._coordinator_node,
            max_version=None if self._uses_version_2 else LAST_END_TXN_VERSION,
        )

    def _on_end_txn(self, call: Call) -> None:
        """Handle the EndTxn response.

        If the next transaction needs a new epoch that the response lacks, InitProducerId follows. Otherwise
        the transaction is complete.
        """
        response = call.response
        if not isinstance(response, EndTxnResponse):
            self._on_no_response(call)
        elif self._check_error_code(response.error_code, TRANSACTION, "EndTxn"):
            if response.producer_id >= 0:
                self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self._needs_new_epoch = False
            self.started, self._failures = False, 0
            if not self._needs_new_epoch:
                self._complete_transaction()

    def _complete_transaction(self) -> None:
        """Move to READY: the transaction has ended."""
        if self.state is S.ABORTING_TRANSACTION and not self._bumps_epochs:
            self._restore_sequences()
        self.started = False
        self._added_partitions.clear()
        self._added_groups.clear()
        self._topic_ids.clear()
        self._update_transaction_version()
        with self._records.guard:
            self.move(S.READY)
        self._end_call()

    def _restore_sequences(self) -> None:
        """Continue the sequence numbers after the last accepted batch of each partition.

        At this point every batch has been answered, so the rejected batches are certainly not in the log.
        Their failures are not reported.
        """
        for queue in self._records.queues.values():
            if queue.identity == self._identity:
                queue.next_sequence = queue.end_of_log
        with self._records.guard:
            self._records.take_failures()

    def _on_no_response(self, call: Call) -> None:
        """Retry a request that timed out or whose connection broke. Other failures are fatal."""
        assert call.error is not None
        if call.outcome is Outcome.NO_RESPONSE:
            self.why = str(call.error)
            self._core.report_failure(call.name, self.why, repeated=self._failures > 0)
            self._coordinator_node = None
            self._back_off()
        else:
            self.fail(call.error)

    def _check_completeness(self, request: str, requested: Iterable[T], received: Container[T]) -> bool:
        """Return whether the response contains everything that was requested. If not, back off."""
        missing = next((item for item in requested if item not in received), None)
        if missing is not None:
            self.why = f"the broker's response to {request} does not contain {missing}"
            self._back_off()
            return False
        self._failures = 0
        return True

    def _back_off(self, first_ms: int | None = None) -> None:
        """Retry after a backoff."""
        self._next_request_at = self._core.now + self._core.backoff.after(self._failures, first_ms)
        self._failures += 1

    def _check_error_code(self, code: int, row: Row, request: str, detail: str = "") -> bool:
        """Return whether the request succeeded. If not, perform the action in `row` for the error code."""
        action = action_for(row, code)
        if action is ErrorAction.USE:
            return True
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # Coordinators before Kafka 2.7 send INVALID_PRODUCER_EPOCH to a fenced producer.
            code = ErrorCode.PRODUCER_FENCED
        self.why = f"the broker answers {request} with {describe(code)}"
        error = broker_error(code, request, f"transactional id {self.id!r}{', ' if detail else ''}{detail}")
        if action in (ErrorAction.FIND_COORDINATOR, ErrorAction.RETRY, ErrorAction.REFRESH_METADATA):
            self._core.report_failure(request, describe(code), repeated=self._failures > 0)
        if action is ErrorAction.FIND_COORDINATOR:
            if row is not TXN_OFFSETS:
                self._coordinator_node = None
            self._back_off()
        elif action is ErrorAction.RETRY or action is ErrorAction.REFRESH_METADATA:
            is_concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS
            self._back_off(ADD_PARTITIONS_RETRY_BACKOFF_MS if is_concurrent else None)
        elif action is ErrorAction.ABORT and self.state in (S.IN_TRANSACTION, S.COMMITTING_TRANSACTION):
            self._needs_new_epoch = self._needs_new_epoch or self._bumps_epochs
            self._require_abort(error)
        elif self.state is not S.ABORTABLE_ERROR and not (
            action is ErrorAction.ABORT and request in ADDING_REQUESTS
        ):
            # If neither branch applies, the request is obsolete, because the transaction is being aborted
            # anyway.
            self.fail(error)
        return False
