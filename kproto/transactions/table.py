"""The transaction coordinator: who has a transactional id, what its transaction holds, and how it ends.

    coordinator = Coordinator(Settings(), topics)
    actions = step(coordinator, Received(token, request, version), now)

`step` takes what happened and says what to do; `next_deadline` says when it wants a `Tick`. Requests of
REQUESTS are understood, and each gets its `Reply` at once.

The life of a transactional id:

* Dead -> Empty: a producer takes it by InitProducerId, and gets a producer id with epoch 0.
* -> Ongoing: the first partition is added. It stays there until EndTxn, until its time is over, or until
  another producer takes the id.
* -> PrepareCommit, PrepareAbort: that is decided, whatever happens. The markers are on their way.
* -> CompleteCommit, CompleteAbort: they are in all logs. The next transaction may begin.
* -> Empty: a producer takes the id again, each in a new epoch.
* -> Dead: nobody used it for `transactional.id.expiration.ms`.

Rules that hold here:

* X1. At any time one producer has the id: the one with its producer id in its newest epoch. All others are
  fenced, with PRODUCER_FENCED or INVALID_PRODUCER_ID_MAPPING.
* X2. What was decided is never taken back, and every open transaction is decided within its time.
* X3. While markers are on their way nothing else happens to the id: CONCURRENT_TRANSACTIONS.
* X4. A new epoch begins with each producer, with what is aborted without its producer, and, for clients that
  know it, with each end (KIP-890).
* Whatever is due at `now` happens before the event is looked at.

Follows Kafka 4.3's TransactionCoordinator, KIP-98, KIP-360 (a producer goes on after an error), KIP-588
(PRODUCER_FENCED), KIP-664 (describing) and KIP-890. It does not load, unload or write logs: the memory is the
store. Two-phase commit (KIP-939) is not there, as Kafka 4.3 does not advertise it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from ..error_codes import ErrorCode
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
from .partitions import Adding
from .responses import BATCHED_SINCE, by_topic, refuse, repeated, told
from .state import (
    Action,
    Coordinator,
    Event,
    MarkersWritten,
    Received,
    S,
    Tick,
    Transaction,
    TransactionState,
    Turn,
    offsets_partition,
)

NEW_EPOCH_SINCE: Final = 5  # EndTxn, KIP-890


class Kind(Enum):
    """What can happen to a transactional id: the rows of TABLE."""

    INIT = "InitProducerId"
    ADD = "partitions, or a group's offsets, are to take part"
    VERIFY = "a broker asks whether partitions take part"
    END_OLD = "EndTxn, up to v4"
    END_NEW = "EndTxn, from v5 on"
    MARKED = "the markers are written"
    DEADLINE = "the transaction has been open, or the id unused, for too long"

    __hash__ = object.__hash__  # an Enum's own is written in Python


def step(coordinator: Coordinator, event: Event, now: int) -> list[Action]:
    """Let `event` happen at `now` (ms, never going back) and return what is to be done, in order.

    Raises TypeError for what is no event, a request that is not in REQUESTS, and no whole number of ms.
    """
    if type(event) not in (Received, MarkersWritten, Tick):
        raise TypeError(f"event={event!r}: a coordinator hears Received, MarkersWritten, Tick")
    if type(now) is not int:
        raise TypeError(f"now={now!r}: whole milliseconds")
    turn = Turn(coordinator, now)
    for transactional_id in list(coordinator.deadlines.take(now)):
        _to_table(turn, Kind.DEADLINE, transactional_id, None)
    match event:
        case Received():
            hear = _HEARS.get(type(event.request))
            if hear is None:
                raise TypeError(f"{type(event.request).__name__} is no request to a transaction coordinator")
            hear(turn, event)
        case MarkersWritten():
            _to_table(turn, Kind.MARKED, event.transactional_id, event)
        case Tick():
            pass
    return turn.actions


def next_deadline(coordinator: Coordinator) -> int | None:
    """When the next `Tick` is due at the latest, in ms of the same clock; None: not before something happens.

    It may be too early, never too late: a Tick at which nothing is due moves it.
    """
    return coordinator.deadlines.earliest()


def _to_table(turn: Turn, kind: Kind, transactional_id: str, what: object) -> None:
    txn = turn.coordinator.find(transactional_id)
    TABLE[kind, txn.state].act(turn, txn, what)


# Requests: read what concerns no state, find the transactional id, and go to the table.


def _init(turn: Turn, call: Received[InitProducerIdRequest]) -> None:
    request = call.request
    try:
        producer_ids.claim(request)
    except ValueError:
        refuse(turn, call, ErrorCode.INVALID_REQUEST)
        return
    if request.transactional_id is None:
        number = turn.new_producer_id()
        turn.reply(
            call,
            InitProducerIdResponse(throttle_time_ms=0, error_code=0, producer_id=number, producer_epoch=0),
        )
    elif not request.transactional_id:
        refuse(turn, call, ErrorCode.INVALID_REQUEST)
    elif not 0 < request.transaction_timeout_ms <= turn.coordinator.settings.transaction_max_timeout_ms:
        refuse(turn, call, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
    else:
        _to_table(turn, Kind.INIT, request.transactional_id, call)


def _add_partitions(turn: Turn, call: Received[AddPartitionsToTxnRequest]) -> None:
    request = call.request
    if call.version < BATCHED_SINCE:
        asked = [(t.name, index) for t in request.v3_and_below_topics for index in t.partitions]
        ask = Adding(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch, asked)
        _add(turn, Kind.ADD, request.v3_and_below_transactional_id, ask)
        ask.codes = {one: told(request, call.version, code) for one, code in ask.codes.items()}
        results_by_topic = _told(request.v3_and_below_topics, ask)
        turn.reply(
            call,
            AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_topic_v3_and_below=results_by_topic),
        )
        return
    results: list[AddPartitionsToTxnResult] = []
    for one in request.transactions:
        asked = [(topic.name, index) for topic in one.topics for index in topic.partitions]
        ask = Adding(one.producer_id, one.producer_epoch, asked)
        _add(turn, Kind.VERIFY if one.verify_only else Kind.ADD, one.transactional_id, ask)
        results.append(
            AddPartitionsToTxnResult(
                transactional_id=one.transactional_id,
                topic_results=by_topic(ask.codes) if one.verify_only else _told(one.topics, ask),
            )
        )
    turn.reply(call, AddPartitionsToTxnResponse(throttle_time_ms=0, results_by_transaction=results))


def _told(topics: Sequence[AddPartitionsToTxnTopic], ask: Adding) -> list[AddPartitionsToTxnTopicResult]:
    """One code for all is told in the order of the request, what is there twice twice."""
    if ErrorCode.UNKNOWN_TOPIC_OR_PARTITION in ask.codes.values():
        return by_topic(ask.codes)
    return repeated(topics, ask.code)


def _add_offsets(turn: Turn, call: Received[AddOffsetsToTxnRequest]) -> None:
    request = call.request
    offsets = offsets_partition(request.group_id, turn.coordinator.settings)
    ask = Adding(request.producer_id, request.producer_epoch, [offsets])
    _add(turn, Kind.ADD, request.transactional_id, ask)
    code = told(request, call.version, ask.code)
    turn.reply(call, AddOffsetsToTxnResponse(throttle_time_ms=0, error_code=code))


def _add(turn: Turn, kind: Kind, transactional_id: str, ask: Adding) -> None:
    missing = partitions.missing(turn.coordinator.topics, ask.partitions)
    if missing:
        ask.say(ErrorCode.OPERATION_NOT_ATTEMPTED)
        ask.codes.update(dict.fromkeys(missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    elif not transactional_id:
        ask.say(ErrorCode.INVALID_REQUEST)
    else:
        _to_table(turn, kind, transactional_id, ask)


def _end(turn: Turn, call: Received[EndTxnRequest]) -> None:
    if not call.request.transactional_id:
        refuse(turn, call, ErrorCode.INVALID_REQUEST)
    else:
        kind = Kind.END_NEW if call.version >= NEW_EPOCH_SINCE else Kind.END_OLD
        _to_table(turn, kind, call.request.transactional_id, call)


def _impossible(turn: Turn, txn: Transaction, what: object) -> None:
    """Can't happen: this state has nothing that could come back or come due."""
    raise AssertionError(f"{txn.state.value} {txn.transactional_id!r}: {what!r}")


# The table: what happens in which state. It is the dispatch, and it is what is drawn.


class Cell(NamedTuple):
    """What is done, to which states that may lead (none: it stays), and with which answers."""

    act: Callable[[Turn, Transaction, Any], None]
    to: tuple[TransactionState, ...] = ()
    says: tuple[ErrorCode, ...] = ()


E = ErrorCode
_STRANGE = (E.INVALID_PRODUCER_ID_MAPPING, E.PRODUCER_FENCED)

_NEVER = Cell(_impossible)
_NAME = Cell(producer_ids.name, (S.EMPTY,), (E.NONE, E.PRODUCER_FENCED))
_NAMING = Cell(producer_ids.wait_for_the_end, (), (E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED))
_ADD = Cell(partitions.add, (S.ONGOING,), (E.NONE, *_STRANGE))
_ADDING = Cell(partitions.wait_for_the_end, (), (E.CONCURRENT_TRANSACTIONS, *_STRANGE))
_UNADDED = Cell(partitions.unknown, (), (E.INVALID_PRODUCER_ID_MAPPING,))
_VERIFY = Cell(partitions.verify, (), (E.NONE, E.TRANSACTION_ABORTABLE, *_STRANGE))
_UNKNOWN = Cell(completion.unknown, (), (E.INVALID_PRODUCER_ID_MAPPING,))
_ENDS = (S.PREPARE_COMMIT, S.PREPARE_ABORT)
_TOO_LATE = (E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE, *_STRANGE)
_REPEATED = Cell(completion.repeated_old, (), (E.NONE, E.INVALID_TXN_STATE, *_STRANGE))
_AGAIN = Cell(completion.repeated_new, (S.PREPARE_ABORT,), (E.NONE, E.INVALID_TXN_STATE, *_STRANGE))
_BEING_ENDED = Cell(completion.being_ended_old, (), _TOO_LATE)
_BEING_ENDED_NEW = Cell(completion.being_ended_new, (), _TOO_LATE)
_FORGET = Cell(completion.forget, (S.DEAD,))

_ROWS: Final[dict[Kind, tuple[Cell, ...]]] = {
    # In the order of TransactionState: Dead, Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit,
    # CompleteAbort.
    Kind.INIT: (
        Cell(producer_ids.found, (S.EMPTY,), (E.NONE,)),
        _NAME,
        Cell(producer_ids.take_over, (S.PREPARE_ABORT,), (E.CONCURRENT_TRANSACTIONS, E.PRODUCER_FENCED)),
        _NAMING,
        _NAMING,
        _NAME,
        _NAME,
    ),
    Kind.ADD: (_UNADDED, _ADD, _ADD, _ADDING, _ADDING, _ADD, _ADD),
    Kind.VERIFY: (_UNADDED, _VERIFY, _VERIFY, _ADDING, _ADDING, _VERIFY, _VERIFY),
    Kind.END_OLD: (
        _UNKNOWN,
        Cell(completion.nothing_to_end, (), (E.INVALID_TXN_STATE, *_STRANGE)),
        Cell(completion.end_old, _ENDS, (E.NONE, *_STRANGE)),
        _BEING_ENDED,
        _BEING_ENDED,
        _REPEATED,
        _REPEATED,
    ),
    Kind.END_NEW: (
        _UNKNOWN,
        Cell(completion.abort_nothing, (S.PREPARE_ABORT,), (E.NONE, E.INVALID_TXN_STATE, *_STRANGE)),
        Cell(completion.end_new, _ENDS, (E.NONE, *_STRANGE)),
        _BEING_ENDED_NEW,
        _BEING_ENDED_NEW,
        _AGAIN,
        _AGAIN,
    ),
    Kind.MARKED: (
        _NEVER,
        _NEVER,
        _NEVER,
        Cell(completion.complete, (S.COMPLETE_COMMIT,)),
        Cell(completion.complete, (S.COMPLETE_ABORT,)),
        _NEVER,
        _NEVER,
    ),
    Kind.DEADLINE: (
        _NEVER,
        _FORGET,
        Cell(completion.time_out, (S.PREPARE_ABORT,)),
        _NEVER,
        _NEVER,
        _FORGET,
        _FORGET,
    ),
}

TABLE: Final[Mapping[tuple[Kind, TransactionState], Cell]] = {
    (kind, state): cell
    for kind, row in _ROWS.items()
    for state, cell in zip(TransactionState, row, strict=True)
}

# Which request is read by which function; those that concern one id go on to the table.
_HEARS: Final[Mapping[type[Message], Callable[[Turn, Received[Any]], None]]] = {
    InitProducerIdRequest: _init,
    AddPartitionsToTxnRequest: _add_partitions,
    AddOffsetsToTxnRequest: _add_offsets,
    EndTxnRequest: _end,
    DescribeTransactionsRequest: describe_transactions,
    ListTransactionsRequest: list_transactions,
}

REQUESTS: Final = frozenset(_HEARS)
"""The requests that `step` understands."""
