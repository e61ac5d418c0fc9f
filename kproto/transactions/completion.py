"""The end of a transaction: by EndTxn, by its timeout, or by a later InitProducerId.

* X2: a transaction is committed or aborted only once. The coordinator answers EndTxn immediately, before the
  markers are written to every partition of the transaction.

* X4: from EndTxn v5 on, each EndTxn starts a new epoch (KIP-890), which fences late requests of the old
  transaction. A new epoch also starts if the coordinator aborts a transaction.

* X3, X4: a producer that did not receive the response to EndTxn v5 retries with the old epoch. The retry
  is answered with CONCURRENT_TRANSACTIONS until the markers are written, and then with the first response.

* Up to EndTxn v4 the epoch does not change, so the coordinator cannot distinguish a retry from a new request.
  It treats a second EndTxn with the same decision as a retry.

* From EndTxn v5 on, a producer without an open transaction may abort, but not commit.

* If the epochs of a producer id are exhausted, the transactional id gets a new producer id when the markers
  have been written.

The module follows TransactionCoordinator.endTransaction, endTransactionWithTV1 and abortTimedOutTransactions
of Kafka 4.3. Kafka checks the timeouts every 10 seconds. kproto aborts each transaction at its own deadline.
"""

from __future__ import annotations

from typing import TypeAlias

from ..error_codes import ErrorCode
from ..machine import RequestReceived
from ..messages.end_txn import EndTxnRequest, EndTxnResponse
from .partitions import owner_error
from .responses import send_error
from .state import (
    LAST_EPOCH,
    NO_PRODUCER_ID,
    MarkersWritten,
    S,
    TransactionContext,
    TransactionMetadata,
    WriteMarkers,
    move,
)

EndTxnCall: TypeAlias = RequestReceived[EndTxnRequest]

_BY_END_TXN = "EndTxn"


def prepare_end(
    context: TransactionContext,
    txn: TransactionMetadata,
    *,
    committed: bool,
    bumps_epoch: bool,
    reason: str,
) -> None:
    """Move a transaction to PrepareCommit or PrepareAbort, and request its markers (X2, X4)."""
    if bumps_epoch:
        if txn.is_epoch_exhausted:
            txn.next_producer_id = context.new_producer_id()
        txn.last_epoch = txn.epoch
        txn.epoch += 1
    move(context, txn, S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
    partitions = tuple(txn.partitions)
    context.actions.append(
        WriteMarkers(txn.transactional_id, txn.producer_id, txn.epoch, committed, partitions, reason)
    )


def complete(context: TransactionContext, txn: TransactionMetadata, event: MarkersWritten) -> None:
    """Complete a transaction after its markers have been written to all logs."""
    if txn.next_producer_id != NO_PRODUCER_ID:
        txn.previous_producer_id, txn.producer_id, txn.epoch = txn.producer_id, txn.next_producer_id, 0
        txn.next_producer_id = NO_PRODUCER_ID
    txn.partitions.clear()
    move(context, txn, S.COMPLETE_COMMIT if txn.state is S.PREPARE_COMMIT else S.COMPLETE_ABORT)


def abort_on_timeout(context: TransactionContext, txn: TransactionMetadata, event: None) -> None:
    """Abort a transaction that has been open for longer than its timeout."""
    reason = f"open for longer than {txn.timeout_ms} ms"
    prepare_end(context, txn, committed=False, bumps_epoch=True, reason=reason)


def expire_id(context: TransactionContext, txn: TransactionMetadata, event: None) -> None:
    """Delete a transactional id that has not been used for `transactional.id.expiration.ms`."""
    move(context, txn, S.DEAD)


def refuse_unknown_id(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    """Answer INVALID_PRODUCER_ID_MAPPING: the transactional id does not exist."""
    send_error(context, call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)


# The handlers of EndTxn up to v4. The end of a transaction leaves the producer epoch unchanged.


def end_v4(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    """End the open transaction in the current epoch."""
    if error := _owner_error(txn, call):
        send_error(context, call, error)
        return
    context.reply(call, _end_response(txn.producer_id, txn.epoch))
    prepare_end(context, txn, committed=call.request.committed, bumps_epoch=False, reason=_BY_END_TXN)


def refuse_without_transaction(
    context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall
) -> None:
    """Answer INVALID_TXN_STATE: no transaction is open."""
    send_error(context, call, _owner_error(txn, call) or ErrorCode.INVALID_TXN_STATE)


def repeat_end_v4(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    """Answer NONE to a retry, and INVALID_TXN_STATE to a request with the opposite decision."""
    send_error(context, call, _owner_error(txn, call) or _decision_error(txn, call))


def repeat_end_before_completion_v4(
    context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall
) -> None:
    """Answer CONCURRENT_TRANSACTIONS to a retry, because the markers have not been written yet."""
    error = _owner_error(txn, call) or _decision_error(txn, call) or ErrorCode.CONCURRENT_TRANSACTIONS
    send_error(context, call, error)


# The handlers of EndTxn from v5 on. Each end of a transaction starts a new producer epoch.


def end(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    """End the open transaction, and answer with the producer's next epoch.

    If the producer's epochs are exhausted, the response has a new producer id with epoch 0.
    """
    if error := _owner_error(txn, call):
        send_error(context, call, error)
    else:
        _end_in_new_epoch(context, txn, call)


def abort_without_transaction(
    context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall
) -> None:
    """Start a new epoch for a producer that aborts without an open transaction."""
    if (error := _owner_error(txn, call)) or call.request.committed:
        send_error(context, call, error or ErrorCode.INVALID_TXN_STATE)
    else:
        txn.started_at = context.now
        _end_in_new_epoch(context, txn, call)


def repeat_end(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    """Answer a retry with the first response; handle other requests as `abort_without_transaction` does."""
    if not _is_retry(txn, call.request):
        abort_without_transaction(context, txn, call)
    elif error := _decision_error(txn, call):
        send_error(context, call, error)
    else:
        context.reply(call, _end_response(txn.producer_id, txn.epoch))


def repeat_end_before_completion(
    context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall
) -> None:
    """Answer CONCURRENT_TRANSACTIONS to a retry, and PRODUCER_FENCED to a request in another epoch.

    While the markers are being written, the only valid request is a retry of the same EndTxn.
    """
    if call.request.producer_id != txn.producer_id:
        send_error(context, call, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    elif call.request.producer_epoch + 1 != txn.epoch:
        send_error(context, call, ErrorCode.PRODUCER_FENCED)
    else:
        send_error(context, call, _decision_error(txn, call) or ErrorCode.CONCURRENT_TRANSACTIONS)


# Shared.


def _owner_error(txn: TransactionMetadata, call: EndTxnCall) -> ErrorCode:
    return owner_error(txn, call.request.producer_id, call.request.producer_epoch)


def _decision_error(txn: TransactionMetadata, call: EndTxnCall) -> ErrorCode:
    """Return INVALID_TXN_STATE if the request contradicts the transaction's outcome, else NONE.

    A request may neither commit an aborted transaction nor abort a committed one.
    """
    committed = txn.state in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    return ErrorCode.NONE if call.request.committed == committed else ErrorCode.INVALID_TXN_STATE


def _is_retry(txn: TransactionMetadata, request: EndTxnRequest) -> bool:
    """Return whether the request has the producer id and epoch that preceded the last EndTxn."""
    if request.producer_id == txn.producer_id:
        return request.producer_epoch + 1 == txn.epoch
    was_exhausted = request.producer_id == txn.previous_producer_id and request.producer_epoch == LAST_EPOCH
    return was_exhausted and txn.epoch == 0


def _end_in_new_epoch(context: TransactionContext, txn: TransactionMetadata, call: EndTxnCall) -> None:
    first = len(context.actions)
    prepare_end(context, txn, committed=call.request.committed, bumps_epoch=True, reason=_BY_END_TXN)
    if txn.next_producer_id == NO_PRODUCER_ID:
        response = _end_response(txn.producer_id, txn.epoch)
    else:
        response = _end_response(txn.next_producer_id, 0)
    context.reply(call, response)
    # As in Kafka, the response precedes the markers.
    context.actions[first:] = reversed(context.actions[first:])


def _end_response(producer_id: int, epoch: int) -> EndTxnResponse:
    return EndTxnResponse(throttle_time_ms=0, error_code=0, producer_id=producer_id, producer_epoch=epoch)
