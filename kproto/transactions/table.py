"""The transaction coordinator: which producer owns a transactional id, and how its transactions end.

    coordinator = TransactionCoordinator(TransactionSettings(), topics)
    actions = step(coordinator, RequestReceived(token, request, version), now)

`step` applies one event and returns the actions to perform. It answers every request of REQUESTS with a
`SendResponse`. `next_deadline` returns the time at which the caller must pass a `Tick` to `step`.

States and transitions:

* Dead -> Empty: a producer takes the transactional id with InitProducerId, and receives a producer id with
  epoch 0.

* Empty, CompleteCommit, CompleteAbort -> Ongoing: the first partition is added. The transaction stays open
  until EndTxn, until its timeout, or until another producer takes the transactional id.

* Ongoing -> PrepareCommit, PrepareAbort: the coordinator decides to commit or abort, and requests
  the markers.

* PrepareCommit -> CompleteCommit, PrepareAbort -> CompleteAbort: the markers are in the logs of all
  partitions of the transaction. The next transaction may begin.

* Empty, CompleteCommit, CompleteAbort -> Empty: a producer takes the transactional id again, in a new epoch.

* Empty, CompleteCommit, CompleteAbort -> PrepareAbort: a producer aborts without an open transaction
  (KIP-890).

* Empty, CompleteCommit, CompleteAbort -> Dead: the id has not been used for `transactional.id.expiration.ms`.

Rules:

* X1: at any time one producer owns a transactional id: the one with the newest producer id and epoch that the
  coordinator has returned for it. Other producers are fenced: with PRODUCER_FENCED if the epoch is wrong, and
  with INVALID_PRODUCER_ID_MAPPING if the producer id is wrong. InitProducerId is answered with
  PRODUCER_FENCED in both cases.

* X2: a decision to commit or abort is never revoked, and every open transaction is decided within its
  timeout.

* X3: while markers are being written, a request with the transactional id is answered with
  CONCURRENT_TRANSACTIONS. A fenced producer gets the error of X1 instead, and an EndTxn that contradicts the
  decision gets INVALID_TXN_STATE.

* X4: a new producer epoch starts with each successful InitProducerId, with each transaction that the
  coordinator aborts and, from EndTxn version 5 on, with each EndTxn (KIP-890). A retry of a request that
  succeeded starts no epoch, but receives the first response again.

* Deadlines that are due at `now` fire before the event is applied.

The state machine follows TransactionCoordinator of Kafka 4.3, KIP-98, KIP-360 (a producer continues after an
error), KIP-588 (PRODUCER_FENCED), KIP-664 (DescribeTransactions) and KIP-890.

Transactional ids are kept in memory only, as long as the `TransactionCoordinator` exists. Two-phase commit
(KIP-939) is not implemented, because Kafka 4.3 does not advertise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final

from ..error_codes import ErrorCode as E
from ..machine import IMPOSSIBLE, Cell, RequestReceived, Table, Tick
from ..messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ..messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from ..messages.describe_transactions import DescribeTransactionsRequest
from ..messages.end_txn import EndTxnRequest
from ..messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ..messages.list_transactions import ListTransactionsRequest
from ..wire.message import Message
from . import completion, partitions, producer_ids
from .description import describe_transactions, list_transactions
from .partitions import PartitionsRequest, missing_partitions
from .responses import BATCH_VERSION, code_for_version, group_by_topic, send_error, with_one_code
from .state import (
    EDGES,
    MarkersWritten,
    S,
    TransactionAction,
    TransactionContext,
    TransactionCoordinator,
    TransactionEvent,
    TransactionState,
    offsets_partition,
)

NEW_EPOCH_VERSION: Final = 5  # EndTxn, KIP-890


class TransactionEventKind(Enum):
    """The kinds of events of a transactional id: the rows of the table, whose columns are its states."""

    INIT = "InitProducerId"
    ADD = "AddPartitionsToTxn or AddOffsetsToTxn"
    VERIFY = "AddPartitionsToTxn of a broker that verifies partitions"
    END_V4 = "EndTxn up to v4"
    END = "EndTxn from v5 on"
    MARKERS_WRITTEN = "the markers have been written"
    DEADLINE = "the transaction timeout, or the expiration of an unused transactional id, has passed"

    __hash__ = object.__hash__  # Enum's own `__hash__` is slow, because it is Python code.


EVENTS: Final = (RequestReceived, MarkersWritten, Tick)


def step(coordinator: TransactionCoordinator, event: TransactionEvent, now: int) -> list[TransactionAction]:
    """Apply `event` at the time `now` and return the actions to perform, in order.

    `now` is in ms and never decreases.

    Raises TypeError if the type of `event` is not in EVENTS, if the type of a request is not in REQUESTS, or
    if `now` is not an int.
    """
    if type(event) not in EVENTS:
        names = ", ".join(event_type.__name__ for event_type in EVENTS)
        raise TypeError(
            f"event={event!r}: not an event of a transaction coordinator; expected one of {names}"
        )
    if type(now) is not int:
        raise TypeError(f"now={now!r}: must be an int, in milliseconds")
    context = TransactionContext(coordinator, now)
    for transactional_id in list(coordinator.deadlines.take(now)):
        _dispatch(context, TransactionEventKind.DEADLINE, transactional_id, None)
    match event:
        case RequestReceived():
            handler = _REQUEST_HANDLERS.get(type(event.request))
            if handler is None:
                raise TypeError(f"a transaction coordinator does not serve {type(event.request).__name__}")
            handler(context, event)
        case MarkersWritten():
            _dispatch(context, TransactionEventKind.MARKERS_WRITTEN, event.transactional_id, event)
        case Tick():
            pass
    return context.actions


def next_deadline(coordinator: TransactionCoordinator) -> int | None:
    """Return the time in ms by which `step` must receive the next `Tick`, or None if no deadline is set.

    Call this function again after each `step`. The returned time may be earlier than the next deadline, but
    never later, so a `Tick` at this time may find no expired deadline.
    """
    return coordinator.deadlines.earliest()


def _dispatch(
    context: TransactionContext, kind: TransactionEventKind, transactional_id: str, event: object
) -> None:
    txn = context.coordinator.find(transactional_id)
    TABLE[kind, txn.state].act(context, txn, event)


# The handlers of requests. Each makes the checks that do not depend on the state, and then passes the request
# to the table.


def _on_init_producer_id(context: TransactionContext, call: RequestReceived[InitProducerIdRequest]) -> None:
    request = call.request
    try:
        producer_ids.read_identity(request)
    except ValueError:
        send_error(context, call, E.INVALID_REQUEST)
        return
    if request.transactional_id is None:
        producer_id = context.new_producer_id()
        context.reply(
            call,
            InitProducerIdResponse(
                throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=0
            ),
        )
    elif not request.transactional_id:
        send_error(context, call, E.INVALID_REQUEST)
    elif not 0 < request.transaction_timeout_ms <= context.coordinator.settings.transaction_max_timeout_ms:
        send_error(context, call, E.INVALID_TRANSACTION_TIMEOUT)
    else:
        _dispatch(context, TransactionEventKind.INIT, request.transactional_id, call)


def _on_add_partitions(context: TransactionContext, call: RequestReceived[AddPartitionsToTxnRequest]) -> None:
    request = call.request
    if call.version < BATCH_VERSION:
        topics = request.v3_and_below_topics
        added = PartitionsRequest(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, _partitions_of(topics)
        )
        _add(context, TransactionEventKind.ADD, request.v3_and_below_transactional_id, added)
        added.codes = {
            partition: code_for_version(request, call.version, code)
            for partition, code in added.codes.items()
        }
        results_by_topic = _topic_results(topics, added)
        context.reply(
            call,
            AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results_by_topic),
        )
        return
    results: list[AddPartitionsToTxnResult] = []
    for transaction in request.transactions:
        added = PartitionsRequest(
            transaction.producer_id, transaction.producer_epoch, _partitions_of(transaction.topics)
        )
        verifies = transaction.verify_only
        kind = TransactionEventKind.VERIFY if verifies else TransactionEventKind.ADD
        _add(context, kind, transaction.transactional_id, added)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=transaction.transactional_id,
                topic_results=group_by_topic(added.codes)
                if verifies
                else _topic_results(transaction.topics, added),
            )
        )
    context.reply(call, AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results))


def _partitions_of(topics: Sequence[AddPartitionsToTxnTopic]) -> list[tuple[str, int]]:
    return [(topic.name, index) for topic in topics for index in topic.partitions]


def _topic_results(
    topics: Sequence[AddPartitionsToTxnTopic], added: PartitionsRequest
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the results of the requested partitions, grouped by topic."""
    if E.UNKNOWN_TOPIC_OR_PARTITION in added.codes.values():
        return group_by_topic(added.codes)
    return with_one_code(topics, added.code)


def _on_add_offsets(context: TransactionContext, call: RequestReceived[AddOffsetsToTxnRequest]) -> None:
    request = call.request
    partition = offsets_partition(request.group_id, context.coordinator.settings)
    added = PartitionsRequest(request.producer_id, request.producer_epoch, [partition])
    _add(context, TransactionEventKind.ADD, request.transactional_id, added)
    code = code_for_version(request, call.version, added.code)
    context.reply(call, AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code))


def _add(
    context: TransactionContext, kind: TransactionEventKind, transactional_id: str, added: PartitionsRequest
) -> None:
    missing = missing_partitions(context.coordinator.topics, added.partitions)
    if missing:
        added.set_code(E.OPERATION_NOT_ATTEMPTED)
        added.codes.update(dict.fromkeys(missing, E.UNKNOWN_TOPIC_OR_PARTITION))
    elif not transactional_id:
        added.set_code(E.INVALID_REQUEST)
    else:
        _dispatch(context, kind, transactional_id, added)


def _on_end_txn(context: TransactionContext, call: RequestReceived[EndTxnRequest]) -> None:
    if not call.request.transactional_id:
        send_error(context, call, E.INVALID_REQUEST)
        return
    new_epoch = call.version >= NEW_EPOCH_VERSION
    kind = TransactionEventKind.END if new_epoch else TransactionEventKind.END_V4
    _dispatch(context, kind, call.request.transactional_id, call)


# Request class -> handler. The handlers of requests for one transactional id look up their cell in `TABLE`.
_REQUEST_HANDLERS: Final[
    Mapping[type[Message], Callable[[TransactionContext, RequestReceived[Any]], None]]
] = {
    InitProducerIdRequest: _on_init_producer_id,
    AddPartitionsToTxnRequest: _on_add_partitions,
    AddOffsetsToTxnRequest: _on_add_offsets,
    EndTxnRequest: _on_end_txn,
    DescribeTransactionsRequest: describe_transactions,
    ListTransactionsRequest: list_transactions,
}

# The requests that `step` serves.
REQUESTS: Final = frozenset(_REQUEST_HANDLERS)


# The table. Each row has the cells of Dead, Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and
# CompleteAbort.

_NOT_OWNER = (E.INVALID_PRODUCER_ID_MAPPING, E.PRODUCER_FENCED)
# The errors of `_NOT_OWNER`, and INVALID_PRODUCER_EPOCH, which replaces PRODUCER_FENCED for old clients.
_NOT_OWNER_V4 = (*_NOT_OWNER, E.INVALID_PRODUCER_EPOCH)
_FENCED = (E.PRODUCER_FENCED, E.INVALID_PRODUCER_EPOCH)
_END_STATES = (S.PREPARE_COMMIT, S.PREPARE_ABORT)

_TAKE_ID = Cell(producer_ids.take_id, to=(S.EMPTY,), errors=(E.NONE, *_FENCED), rules=("X1", "X4"))
_INIT_TOO_EARLY = Cell(
    producer_ids.wait_for_completion, errors=(E.CONCURRENT_TRANSACTIONS, *_FENCED), rules=("X1", "X3")
)
_ADD_TO_UNKNOWN = Cell(partitions.refuse_unknown_id, errors=(E.INVALID_PRODUCER_ID_MAPPING,), rules=("X1",))
_ADD = Cell(partitions.add_partitions, to=(S.ONGOING,), errors=(E.NONE, *_NOT_OWNER), rules=("X1", "X6"))
_ADD_TOO_EARLY = Cell(
    partitions.wait_for_completion, errors=(E.CONCURRENT_TRANSACTIONS, *_NOT_OWNER), rules=("X1", "X3")
)
_VERIFY = Cell(
    partitions.verify_partitions, errors=(E.NONE, E.TRANSACTION_ABORTABLE, *_NOT_OWNER), rules=("X1", "X6")
)
_END_UNKNOWN = Cell(completion.refuse_unknown_id, errors=(E.INVALID_PRODUCER_ID_MAPPING,), rules=("X1",))
_REPEAT_EARLY_V4 = Cell(
    completion.repeat_end_before_completion_v4,
    errors=(E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE, *_NOT_OWNER_V4),
    rules=("X1", "X2", "X3"),
)
_REPEAT_EARLY = Cell(
    completion.repeat_end_before_completion,
    errors=(E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE, *_NOT_OWNER),
    rules=("X1", "X2", "X3"),
)
_REPEAT_V4 = Cell(
    completion.repeat_end_v4, errors=(E.NONE, E.INVALID_TXN_STATE, *_NOT_OWNER_V4), rules=("X1", "X2")
)
_REPEAT = Cell(
    completion.repeat_end,
    to=(S.PREPARE_ABORT,),
    errors=(E.NONE, E.INVALID_TXN_STATE, *_NOT_OWNER),
    rules=("X1", "X2", "X4"),
)
_EXPIRE = Cell(completion.expire_id, to=(S.DEAD,))

TABLE: Final = Table(
    TransactionState,
    EDGES,
    {
        TransactionEventKind.INIT: (
            Cell(producer_ids.create_id, to=(S.EMPTY,), errors=(E.NONE,), rules=("X1",)),
            _TAKE_ID,
            Cell(
                producer_ids.abort_for_new_producer,
                to=(S.PREPARE_ABORT,),
                errors=(E.CONCURRENT_TRANSACTIONS, *_FENCED),
                rules=("X1", "X2", "X4"),
            ),
            _INIT_TOO_EARLY,
            _INIT_TOO_EARLY,
            _TAKE_ID,
            _TAKE_ID,
        ),
        TransactionEventKind.ADD: (
            _ADD_TO_UNKNOWN,
            _ADD,
            _ADD,
            _ADD_TOO_EARLY,
            _ADD_TOO_EARLY,
            _ADD,
            _ADD,
        ),
        TransactionEventKind.VERIFY: (
            _ADD_TO_UNKNOWN,
            _VERIFY,
            _VERIFY,
            _ADD_TOO_EARLY,
            _ADD_TOO_EARLY,
            _VERIFY,
            _VERIFY,
        ),
        TransactionEventKind.END_V4: (
            _END_UNKNOWN,
            Cell(
                completion.refuse_without_transaction,
                errors=(E.INVALID_TXN_STATE, *_NOT_OWNER_V4),
                rules=("X1",),
            ),
            Cell(completion.end_v4, to=_END_STATES, errors=(E.NONE, *_NOT_OWNER_V4), rules=("X1", "X2")),
            _REPEAT_EARLY_V4,
            _REPEAT_EARLY_V4,
            _REPEAT_V4,
            _REPEAT_V4,
        ),
        TransactionEventKind.END: (
            _END_UNKNOWN,
            Cell(
                completion.abort_without_transaction,
                to=(S.PREPARE_ABORT,),
                errors=(E.NONE, E.INVALID_TXN_STATE, *_NOT_OWNER),
                rules=("X1", "X4"),
            ),
            Cell(completion.end, to=_END_STATES, errors=(E.NONE, *_NOT_OWNER), rules=("X1", "X2", "X4")),
            _REPEAT_EARLY,
            _REPEAT_EARLY,
            _REPEAT,
            _REPEAT,
        ),
        TransactionEventKind.MARKERS_WRITTEN: (
            IMPOSSIBLE,
            IMPOSSIBLE,
            IMPOSSIBLE,
            Cell(completion.complete, to=(S.COMPLETE_COMMIT,), rules=("X2",)),
            Cell(completion.complete, to=(S.COMPLETE_ABORT,), rules=("X2",)),
            IMPOSSIBLE,
            IMPOSSIBLE,
        ),
        TransactionEventKind.DEADLINE: (
            IMPOSSIBLE,
            _EXPIRE,
            Cell(completion.abort_on_timeout, to=(S.PREPARE_ABORT,), rules=("X2", "X4")),
            IMPOSSIBLE,
            IMPOSSIBLE,
            _EXPIRE,
            _EXPIRE,
        ),
    },
)
