"""How a transaction ends: by its producer, by its time, or because another producer takes the id.

Rules that hold here:

* The decision is made once, and answered at once; the markers follow it into every partition of the
  transaction.
* From EndTxn v5 on each end begins a new epoch (KIP-890): what comes late from the old transaction is fenced,
  and who did not hear the answer may ask again with the old epoch, and hears it again. What ends without its
  producer ends in a new epoch, too.
* Up to v4 the epoch stays, so a second EndTxn of the same kind is taken for a repeated one.
* Who has nothing open may abort from v5 on, to be sure; nobody commits nothing.
* When the epochs are used up, another producer id takes over with the markers.

Follows TransactionCoordinator.endTransaction, endTransactionWithTV1 and abortTimedOutTransactions of Kafka
4.3. Kafka looks every ten seconds whose time is over; here each is aborted when it is.
"""

from __future__ import annotations

from ..error_codes import ErrorCode
from ..messages.end_txn import EndTxnRequest, EndTxnResponse
from .partitions import owner_error
from .responses import refuse
from .state import LAST_EPOCH, NO_ID, MarkersWritten, Received, S, Transaction, Turn, WriteMarkers, move

Call = Received[EndTxnRequest]

_ASKED = "EndTxn"


def end(turn: Turn, txn: Transaction, *, committed: bool, bumps: bool, reason: str) -> None:
    """Decide, and have the markers written."""
    if bumps:
        if txn.exhausted:
            txn.next_id = turn.new_producer_id()
        txn.last_epoch = txn.epoch
        txn.epoch += 1
    move(turn, txn, S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    turn.actions.append(
        WriteMarkers(
            txn.transactional_id, txn.producer_id, txn.epoch, committed, tuple(txn.partitions), reason
        )
    )


def complete(turn: Turn, txn: Transaction, event: MarkersWritten) -> None:
    """The markers are in all logs: the transaction is over."""
    if txn.next_id != NO_ID:
        txn.previous_id, txn.producer_id, txn.epoch = txn.producer_id, txn.next_id, 0
        txn.next_id = NO_ID
    txn.partitions.clear()
    move(turn, txn, S.COMPLETE_COMMIT if txn.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT)


def time_out(turn: Turn, txn: Transaction, event: None) -> None:
    """Abort what has been open for longer than its producer said."""
    end(turn, txn, committed=False, bumps=True, reason=f"open for longer than {txn.timeout_ms} ms")


def forget(turn: Turn, txn: Transaction, event: None) -> None:
    """Nobody used the id for a long time."""
    move(turn, txn, S.DEAD)


# EndTxn up to v4.


def unknown(turn: Turn, txn: Transaction, call: Call) -> None:
    """Refuse: nobody has this transactional id."""
    refuse(turn, call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def end_old(turn: Turn, txn: Transaction, call: Call) -> None:
    """End the open transaction; the epoch stays."""
    if error := _owner(txn, call):
        refuse(turn, call, error)
        return
    turn.reply(
        call,
        EndTxnResponse(
            throttle_time_ms=0, error_code=0, producer_id=txn.producer_id, producer_epoch=txn.epoch
        ),
    )
    end(turn, txn, committed=call.request.committed, bumps=False, reason=_ASKED)


def nothing_to_end(turn: Turn, txn: Transaction, call: Call) -> None:
    """Refuse: there is no transaction."""
    refuse(turn, call, _owner(txn, call) or ErrorCode.INVALID_TXN_STATE)


def repeated_old(turn: Turn, txn: Transaction, call: Call) -> None:
    """Answer who asks again as before, and who wants the contrary that it is too late."""
    refuse(turn, call, _owner(txn, call) or _same_end(txn, call))


def being_ended_old(turn: Turn, txn: Transaction, call: Call) -> None:
    """Let who asks again wait for the markers."""
    refuse(turn, call, _owner(txn, call) or _same_end(txn, call) or ErrorCode.CONCURRENT_TRANSACTIONS)


# EndTxn from v5 on.


def end_new(turn: Turn, txn: Transaction, call: Call) -> None:
    """End the open transaction, and tell the producer its next epoch, or its next id."""
    if error := _owner(txn, call):
        refuse(turn, call, error)
    else:
        _end_in_new_epoch(turn, txn, call)


def abort_nothing(turn: Turn, txn: Transaction, call: Call) -> None:
    """Let a producer abort what it never began; it begins a new epoch."""
    if (error := _owner(txn, call)) or call.request.committed:
        refuse(turn, call, error or ErrorCode.INVALID_TXN_STATE)
    else:
        txn.started_at = turn.now
        _end_in_new_epoch(turn, txn, call)


def repeated_new(turn: Turn, txn: Transaction, call: Call) -> None:
    """Answer who did not hear the answer again; who has the newest epoch has nothing open."""
    request = call.request
    if not _asks_again(txn, request):
        abort_nothing(turn, txn, call)
    elif error := _same_end(txn, call):
        refuse(turn, call, error)
    else:
        turn.reply(call, _ended(txn.producer_id, txn.epoch))


def being_ended_new(turn: Turn, txn: Transaction, call: Call) -> None:
    """Let who did not hear the answer wait for the markers; nobody has the newest epoch yet."""
    if call.request.producer_id != txn.producer_id:
        refuse(turn, call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif call.request.producer_epoch + 1 != txn.epoch:
        refuse(turn, call, ErrorCode.PRODUCER_FENCED)
    else:
        refuse(turn, call, _same_end(txn, call) or ErrorCode.CONCURRENT_TRANSACTIONS)


# Shared.


def _owner(txn: Transaction, call: Call) -> ErrorCode:
    return owner_error(txn, call.request.producer_id, call.request.producer_epoch)


def _same_end(txn: Transaction, call: Call) -> ErrorCode:
    """NONE when the request wants the end that the transaction had, or is having."""
    committed = txn.state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    return ErrorCode.NONE if call.request.committed == committed else ErrorCode.INVALID_TXN_STATE


def _asks_again(txn: Transaction, request: EndTxnRequest) -> bool:
    """Does the producer have what it had before the last end?"""
    if request.producer_id == txn.producer_id:
        return request.producer_epoch + 1 == txn.epoch
    used_up = request.producer_id == txn.previous_id and request.producer_epoch == LAST_EPOCH
    return used_up and txn.epoch == 0


def _end_in_new_epoch(turn: Turn, txn: Transaction, call: Call) -> None:
    at = len(turn.actions)
    end(turn, txn, committed=call.request.committed, bumps=True, reason=_ASKED)
    told = (txn.producer_id, txn.epoch) if txn.next_id == NO_ID else (txn.next_id, 0)
    turn.reply(call, _ended(*told))
    turn.actions[at:] = reversed(turn.actions[at:])  # Kafka answers when it has decided


def _ended(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)
