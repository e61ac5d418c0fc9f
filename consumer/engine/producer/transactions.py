"""A producer's transactions, without I/O (KIP-98, KIP-360, KIP-890): Kafka's TransactionManager is the model.

Rules that hold here:

* One request at a time, to the coordinator of the transactional id: for an id and an epoch, for partitions
  and groups that take part (only before KIP-890's second version: then writing is enough), and the end.
* Nothing is written outside of a transaction, nor to a partition that isn't part of it yet.
* A commit is asked for when every record is acknowledged, and every offset. One failure spoils the
  transaction: it can only be aborted then, and nothing of it goes out any more. Both have
  delivery.timeout.ms; only the end itself is asked for until it is known.
* After an abort, what was sent and not answered may still arrive: the next transaction has another epoch.
* Who is fenced, or refused for good, is lost: nothing brings this producer back.

Which requests the two versions of Kafka's protocol of transactions need:

    transaction.version   partitions                 groups                            end
    0, 1                  AddPartitionsToTxn         AddOffsetsToTxn, TxnOffsetCommit  EndTxn, the same epoch
    2                     Produce, from version 12   TxnOffsetCommit, from version 5   EndTxn, a new epoch
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import Final, TypeVar

from kproto.error_codes import ErrorCode, describe
from kproto.errors import IllegalState, KprotoError, RequestTimedOut
from kproto.group.subscription import TopicPartition
from kproto.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from kproto.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kproto.messages.end_txn import EndTxnRequest, EndTxnResponse
from kproto.messages.find_coordinator import FindCoordinatorResponse
from kproto.messages.init_producer_id import InitProducerIdResponse
from kproto.messages.txn_offset_commit import TxnOffsetCommitResponse
from kproto.wire.message import Message

from ...errors import again, broker_error
from ...options import ProducerOptions
from ...records import GroupMetadata
from ..core import ClientCore
from ..error_actions import (
    TRANSACTION,
    TXN_OFFSETS,
    TXN_PARTITIONS,
    ErrorAction,
    Row,
    action_for,
    ends_producer,
)
from ..metadata.cluster import BrokerAddress
from ..network.connection import Call, Outcome, Prepared
from ..requests import (
    LAST_END,
    LAST_OFFSETS,
    LAST_PARTITIONS,
    LAST_PRODUCE,
    Offsets,
    ProducerIdAndEpoch,
    coordinator_of,
    coordinator_request,
    name_request,
    offsets_answered,
    offsets_request,
    partitions_answered,
    partitions_request,
)
from ..timing import ADD_PARTITIONS_RETRY_BACKOFF_MS
from .batches import PartitionQueue, ProducerBatch
from .produce_responses import ProduceResponses
from .transaction_states import (
    CALLS,
    EDGES,
    PendingCall,
    TransactionalAppends,
    TransactionState,
)

TAKES_PART: Final = ("AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit")
TRANSACTIONAL_ID: Final = 1  # FindCoordinator's type of key
S = TransactionState
T = TypeVar("T")


class TransactionManager:
    """One producer's transactions; `call` is the application's, with the guard held, the rest the engine's.

    It numbers batches in the place of `Numbering`. `busy` says whether a Produce is unanswered, `queued` are
    the lanes that could be sent from.
    """

    missing = False

    def __init__(
        self,
        core: ClientCore[ProducerOptions],
        records: TransactionalAppends,
        fates: ProduceResponses,
        *,
        busy: Callable[[], bool],
        queued: Callable[[], list[PartitionQueue]],
    ) -> None:
        assert core.options.transactional_id is not None
        self.id = core.options.transactional_id
        self.state = S.new
        self.error: KprotoError | None = None
        # Why the coordinator has to be asked again; for whoever waits too long.
        self.why = ""
        self._core, self._records, self._fates = core, records, fates
        self._busy, self._queued = busy, queued
        self.wish: PendingCall | None = None
        self._identity = ProducerIdAndEpoch(-1, -1)
        self._second = False  # KIP-890's second version
        self._node: int | None = None
        self._groups: dict[str, int] = {}
        self._call: Call | None = None
        self._not_before = 0
        self._failures = 0
        # The transaction: whether the coordinator knows of it, and who takes part.
        self.started = False
        self._stale = False  # what was sent may still arrive: another epoch is needed
        self._partitions: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._added: set[str] = set()
        self._offsets: dict[GroupMetadata, dict[TopicPartition, tuple[int, int | None, str]]] = {}
        self._offsets_until: int | None = None  # so long they are tried
        records.gate = self._gate
        fates.given_up = self.given_up

    # ---- the application, with the guard held

    def _gate(self) -> None:
        """Raises unless a record may be taken now."""
        if self.state is not S.open:
            self._allowed("send")

    def call(self, what: str, who: object = None) -> PendingCall:
        """begin, commit or abort. Raises IllegalState where that can't be, or why it can't any more."""
        wish = self.wish
        if wish is not None and wish.what == what and not wish.told:
            if what == "begin" and wish.waiting - {who}:
                raise IllegalState(f"begin() of {self.id!r}: another begin() is under way; one at a time")
            wish.done = wish.done or (what == "begin" and self.state is S.open)
            if wish.done or CALLS[self.state].get(what) is self.state:
                return wish  # else Ctrl-C came before it was begun
        to = self._allowed(what)
        self.wish = wish = PendingCall(what)
        if to is S.committing:
            self._records.seal_all()
        self.move(to)
        wish.done = to is S.open
        return wish

    def leave(self) -> PendingCall | None:
        """The producer is closed: what is open is aborted. Returns what is to be waited for."""
        if self.state is S.open or self.state is S.spoiled:
            return self.call("abort")
        under_way = self.state is S.committing or self.state is S.aborting
        return self.wish if under_way else None

    def send_offsets(self, member: GroupMetadata, offsets: Offsets) -> None:
        """These are committed together with the records."""
        self._allowed("send_offsets")
        self._offsets.setdefault(member, {}).update(offsets)

    def excuse(self) -> str:
        """What is waited for."""
        open_records = self._records.open_records
        waits = f"{open_records} records are not acknowledged" if open_records else self.why
        return f"{self.id!r}: {self.state.value}" + (f"; {waits}" if waits else "")

    def _allowed(self, what: str) -> TransactionState:
        to = CALLS[self.state].get(what)
        if to is None:
            if self.error is not None:
                raise again(self.error)
            allowed = " or ".join(f"{name}()" for name in CALLS[self.state]) or "a new one"
            raise IllegalState(
                f"{what}() of {self.id!r}: {self.state.value}; now {allowed} is what can be done"
            )
        return to

    def move(self, to: TransactionState, error: KprotoError | None = None) -> None:
        assert to in EDGES[self.state] or to is self.state, (self.state, to)
        self.state, self.error = to, error

    # ---- for the engine: batches and their numbers

    def found(self) -> bool:
        """Whether batches may go out; asks the coordinator to let in new partitions first."""
        if self.state is not S.open and self.state is not S.committing:
            return False
        if not self._second:
            self._new = {lane.partition for lane in self._queued()} - self._partitions
            self.pump()
        return not self._new

    def number(self, lane: PartitionQueue, batch: ProducerBatch) -> bool:
        """Gives the batch its sequence number, in the epoch of this transaction."""
        if lane.identity != self._identity:
            lane.identity, lane.next_sequence, lane.known = self._identity, 0, False
        lane.renew = False
        lane.number(batch)
        self.started = True
        return True

    def most(self, most: int | None) -> int | None:
        """The highest version of Produce."""
        return most if self._second else min(LAST_PRODUCE, LAST_PRODUCE if most is None else most)

    def given_up(self, batch: ProducerBatch, error: KprotoError) -> None:
        """A record will not be delivered: so the transaction is none."""
        self._stale = self._stale or batch.sequence >= 0
        if self.state is S.open or self.state is S.committing:
            (self.lose if ends_producer(error) else self._spoil)(error)

    def _spoil(self, error: KprotoError) -> None:
        with self._records.guard:
            self.move(S.spoiled, error)
        self._finish(error)
        self._drop(error)

    def lose(self, error: KprotoError) -> None:
        """The end of this producer."""
        if self.state is S.lost:
            return
        with self._records.guard:
            self.move(S.lost, error)
        error.add_note(f"The producer of {self.id!r} can do nothing any more: make a new one.")
        self._finish(error)
        self._drop(error)

    def _drop(self, error: KprotoError) -> None:
        """Nothing of this transaction goes out any more."""
        with self._records.guard:
            batches = list(self._records.open)
        for batch in batches:
            self._stale = self._stale or batch.sequence >= 0
            batch.error = error
            if batch in batch.lane.waiting:
                batch.lane.waiting.remove(batch)
            self._fates.end(batch)
        with self._records.guard:
            self._records.tell()  # what the transaction's end says already
            self._offsets.clear()
        self._new.clear()

    def _finish(self, error: KprotoError | None = None) -> None:
        wish = self.wish
        if wish is not None and not wish.done:
            wish.error, wish.done = error, True
        self._core.wake_poll()

    # ---- for the engine: what is to be asked

    def pump(self) -> None:
        if self.state is S.aborting and (self._records.open or self._offsets):
            self._drop(IllegalState(f"the transaction of {self.id!r} was aborted"))
        self._expire()
        while self._call is None and self._not_before <= self._core.now:
            todo = self._todo()
            if todo is None:
                return
            todo()

    def _expire(self) -> None:
        """Offsets have as much time as records; a request that is open then says more."""
        now, timeout = self._core.now, self._core.options.delivery_timeout_ms
        if not self._offsets:
            self._offsets_until = None
        elif self._offsets_until is None:
            self._offsets_until = now + timeout
        elif self._offsets_until <= now and self._call is None:
            self._stale = self._stale or self.started
            self._spoil(RequestTimedOut("TxnOffsetCommit", timeout, self.why))

    def due(self) -> int | None:
        """When to ask next, if there is something to ask."""
        if self._call is not None or self._todo() is None:
            return None
        return max(self._core.now, self._not_before)

    def _todo(self) -> Callable[[], None] | None:
        """What comes next; None when that is nobody's turn here."""
        todo = None
        if self.state is S.naming:
            todo = self._name
        elif self.state is S.open or self.state is S.committing:
            if self._new:
                todo = self._add_partitions
            elif self._offsets:
                todo = self._add_offsets
            elif self.state is S.committing and not self._records.open and not self._busy():
                if not self.started:
                    return self._complete
                todo = self._end
        elif self.state is S.aborting and not self._busy():
            if not self.started and not self._stale:
                return self._complete
            todo = self._end if self.started else self._name
        return self._find if todo is not None and self._node is None else todo

    def _ask(
        self,
        request: Message | Prepared,
        then: Callable[[Call], None],
        *,
        node: int | None,
        most: int | None = None,
    ) -> None:
        def answered(call: Call) -> None:
            self._call = None
            if self.state is not S.lost:
                then(call)

        # Late answers count, too: a request that is given up early might still be carried out.
        self._call = self._core.send(request, answered, node=node, max_version=most)

    def _find(self) -> None:
        self._ask(coordinator_request(self.id, TRANSACTIONAL_ID), self._found, node=None)

    def _found(self, call: Call) -> None:
        found = self._coordinator(call, TRANSACTION)
        if found is not None:
            self._node = found

    def _coordinator(self, call: Call, row: Row) -> int | None:
        response = call.response
        if not isinstance(response, FindCoordinatorResponse):
            self._unanswered(call)
            return None
        found = coordinator_of(response, call.version)
        if not isinstance(found, BrokerAddress):
            self._took(found[0], row, "FindCoordinator", found[1])
            return None
        self._core.view.set_address(found.id, found.host, found.port)
        return found.id

    def _name(self) -> None:
        """A first id, which fences who had it before; or, of one's own, the next epoch."""
        own = self._identity if self.state is S.aborting else None
        request = name_request(self.id, self._core.options.transaction_timeout_ms, own)
        self._ask(request, self._named, node=self._node)

    def _named(self, call: Call) -> None:
        response = call.response
        if not isinstance(response, InitProducerIdResponse):
            self._unanswered(call)
        elif self._took(response.error_code, TRANSACTION, "InitProducerId"):
            given = {"an id"} if response.producer_id >= 0 else set[str]()
            if not self._mentions("InitProducerId", {"an id"}, given):
                return
            self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
            self._stale = False
            self._complete() if self.state is S.aborting else self._begin()

    def _begin(self) -> None:
        self._look_at_version()
        with self._records.guard:
            self.move(S.open)
        self._finish()

    def _look_at_version(self) -> None:
        if self._node is not None:
            level = self._core.network.feature_at(self._node, "transaction.version")
            self._second = self._second if level is None else level >= 2

    def _add_partitions(self) -> None:
        asked = set(self._new)

        def answered(call: Call) -> None:
            response = call.response
            if not isinstance(response, AddPartitionsToTxnResponse):
                self._unanswered(call)
                return
            answers = partitions_answered(response)
            last = ErrorCode.OPERATION_NOT_ATTEMPTED  # another one says why
            for partition, code in sorted(answers.items(), key=lambda answer: answer[1] == last):
                if not self._took(code, TXN_PARTITIONS, "AddPartitionsToTxn", str(partition)):
                    return
            if self._mentions("AddPartitionsToTxn", asked, answers):
                self._partitions |= asked
                self._new -= asked
                self._took_part()

        self._stale = True  # until it is known that the coordinator knows
        request = partitions_request(self.id, self._identity, asked)
        self._ask(request, answered, node=self._node, most=LAST_PARTITIONS)

    def _took_part(self) -> None:
        self.started, self._failures = True, 0
        if self.state is S.open or self.state is S.committing:
            self._stale = False

    def _add_offsets(self) -> None:
        with self._records.guard:  # the application may add some at any moment
            member, asked = next((member, dict(offsets)) for member, offsets in self._offsets.items())
        group = member.group_id
        if not self._second and group not in self._added:
            producer_id, epoch = self._identity
            request = AddOffsetsToTxnRequest(
                transactional_id=self.id, producer_id=producer_id, producer_epoch=epoch, group_id=group
            )
            self._stale = True
            self._ask(request, lambda call: self._group_added(group, call), node=self._node)
        elif group not in self._groups:
            self._ask(coordinator_request(group), lambda call: self._group_found(group, call), node=None)
        else:
            self.started = True
            self._ask(
                offsets_request(self.id, self._identity, member, asked),
                lambda call: self._offsets_taken(member, asked, call),
                node=self._groups[group],
                most=None if self._second else LAST_OFFSETS,
            )

    def _group_added(self, group: str, call: Call) -> None:
        if not isinstance(call.response, AddOffsetsToTxnResponse):
            self._unanswered(call)
        elif self._took(call.response.error_code, TRANSACTION, "AddOffsetsToTxn", f"group {group!r}"):
            self._added.add(group)
            self._took_part()

    def _group_found(self, group: str, call: Call) -> None:
        found = self._coordinator(call, TXN_OFFSETS)
        if found is not None:
            self._groups[group] = found

    def _offsets_taken(self, member: GroupMetadata, asked: Offsets, call: Call) -> None:
        if not isinstance(call.response, TxnOffsetCommitResponse):
            self._groups.pop(member.group_id, None)
            self._unanswered(call)
            return
        answers = offsets_answered(call.response)
        for partition, code in answers.items():
            if action_for(TXN_OFFSETS, code) is ErrorAction.FIND_COORDINATOR:
                self._groups.pop(member.group_id, None)
            place = f"group {member.group_id!r}, {partition}"
            if not self._took(code, TXN_OFFSETS, "TxnOffsetCommit", place):
                return
        if not self._mentions("TxnOffsetCommit", asked, answers):
            return
        self._offsets_until = None
        with self._records.guard:
            left = self._offsets.get(member, {})
            for partition, offset in asked.items():
                if left.get(partition) == offset:
                    del left[partition]
            if not left:
                self._offsets.pop(member, None)

    def _end(self) -> None:
        producer_id, epoch = self._identity
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=self.state is S.committing,
        )
        self._ask(request, self._ended, node=self._node, most=None if self._second else LAST_END)

    def _ended(self, call: Call) -> None:
        response = call.response
        if not isinstance(response, EndTxnResponse):
            self._unanswered(call)
        elif self._took(response.error_code, TRANSACTION, "EndTxn"):
            if response.producer_id >= 0:
                self._identity = ProducerIdAndEpoch(response.producer_id, response.producer_epoch)
                self._stale = False
            self.started, self._failures = False, 0
            if not self._stale:
                self._complete()

    def _complete(self) -> None:
        self.started = False
        self._partitions.clear()
        self._added.clear()
        self._look_at_version()
        with self._records.guard:
            self.move(S.ready)
        self._finish()

    # ---- what brokers answer

    def _unanswered(self, call: Call) -> None:
        assert call.error is not None
        if call.outcome is Outcome.NO_RESPONSE:
            self.why = str(call.error)
            self._node = None
            self._rest()
        else:
            self.lose(call.error)

    def _mentions(self, request: str, asked: Iterable[T], answered: Container[T]) -> bool:
        """Whether all that was asked is answered; else it is asked again."""
        missing = next((one for one in asked if one not in answered), None)
        if missing is not None:
            self.why = f"the broker's response to {request} does not contain {missing}"
            self._rest()
            return False
        self._failures = 0
        return True

    def _rest(self, first_ms: int | None = None) -> None:
        self._not_before = self._core.now + self._core.backoff.after(self._failures, first_ms)
        self._failures += 1

    def _took(self, code: int, row: Row, request: str, detail: str = "") -> bool:
        """Whether the answer is that it was done; else what follows is arranged."""
        do = action_for(row, code)
        if do is ErrorAction.USE:
            return True
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            code = ErrorCode.PRODUCER_FENCED  # as coordinators said it before 2.7
        self.why = f"the broker answers {request} with {describe(code)}"
        error = broker_error(code, request, f"transactional id {self.id!r}{', ' if detail else ''}{detail}")
        if do is ErrorAction.FIND_COORDINATOR:
            if row is not TXN_OFFSETS:
                self._node = None
            self._rest()
        elif do is ErrorAction.RETRY or do is ErrorAction.REFRESH_METADATA:
            self._rest(ADD_PARTITIONS_RETRY_BACKOFF_MS if code == ErrorCode.CONCURRENT_TRANSACTIONS else None)
        elif do is ErrorAction.ABORT and (self.state is S.open or self.state is S.committing):
            self._stale = True
            self._spoil(error)
        elif self.state is not S.spoiled and not (do is ErrorAction.ABORT and request in TAKES_PART):
            self.lose(error)  # else it is of what was given up meanwhile
        return False
