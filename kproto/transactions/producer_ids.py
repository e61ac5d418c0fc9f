"""InitProducerId: a producer takes a transactional id, or keeps it after an error.

* X1, X4: each producer that takes a transactional id receives the next epoch, so the former producer is
  fenced.

* The request of a new producer needs no producer id and no epoch.

* A producer that continues after an error sends its producer id and epoch (KIP-360). It must be the current
  owner of the transactional id. Any other producer is fenced.

* The owner may also send its previous epoch, if the response with its newest epoch was lost. The coordinator
  then repeats that response.

* When the epochs of a producer id are exhausted, the producer receives a new producer id with epoch 0.

* X3: while the transaction is being completed, InitProducerId is answered with CONCURRENT_TRANSACTIONS, and
  the producer must retry.

* X2: if a transaction is open, InitProducerId aborts it, and is also answered with CONCURRENT_TRANSACTIONS.

The module follows TransactionCoordinator.handleInitProducerId of Kafka 4.3.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from ..error_codes import ErrorCode
from ..machine import RequestReceived
from ..messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .completion import prepare_end
from .responses import send_error
from .state import (
    LAST_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    S,
    TransactionContext,
    TransactionMetadata,
    move,
)

InitProducerIdCall: TypeAlias = RequestReceived[InitProducerIdRequest]


class ProducerIdentity(NamedTuple):
    """The producer id and epoch in an InitProducerId request."""

    producer_id: int
    epoch: int


def read_identity(request: InitProducerIdRequest) -> ProducerIdentity | None:
    """Return the producer id and epoch of the request, or None if it has neither.

    Raises ValueError if the request has a producer id without an epoch, or an epoch without a producer id.
    """
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
        raise ValueError
    if request.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerIdentity(request.producer_id, request.producer_epoch)


def create_id(context: TransactionContext, txn: TransactionMetadata, call: InitProducerIdCall) -> None:
    """Create the transactional id with a new producer id and epoch 0.

    A producer id and epoch in the request are ignored.
    """
    txn.producer_id, txn.epoch = context.new_producer_id(), 0
    _take_id(context, txn, call)


def take_id(context: TransactionContext, txn: TransactionMetadata, call: InitProducerIdCall) -> None:
    """Give the producer its next epoch, and respond. A retried request gets the first response again.

    The table calls this handler in states without an open transaction.
    """
    identity = read_identity(call.request)
    if not _may_own(txn, identity):
        send_error(context, call, ErrorCode.PRODUCER_FENCED)
        return
    if identity is not None and identity.epoch != txn.epoch:
        if identity.epoch != txn.last_epoch:
            send_error(context, call, ErrorCode.PRODUCER_FENCED)
            return
        # The request is the retry of a request that succeeded, so the coordinator repeats the response. Kafka
        # does the same unless the repeated epoch is the last epoch of the producer id. In that case, Kafka's
        # prepareIncrementProducerEpoch throws an IllegalStateException.
    else:
        txn.last_epoch = NO_EPOCH if identity is None else txn.epoch
        if txn.is_epoch_exhausted:
            txn.previous_producer_id = txn.producer_id
            txn.producer_id, txn.epoch = context.new_producer_id(), 0
        else:
            txn.previous_producer_id = txn.producer_id
            txn.epoch += 1
    _take_id(context, txn, call)


def abort_for_new_producer(
    context: TransactionContext, txn: TransactionMetadata, call: InitProducerIdCall
) -> None:
    """Abort the open transaction in a new epoch, and answer that the producer must retry.

    A producer that may not own the transactional id gets PRODUCER_FENCED, and the transaction stays open.
    """
    if _may_own(txn, read_identity(call.request)):
        send_error(context, call, ErrorCode.CONCURRENT_TRANSACTIONS)
        prepare_end(
            context,
            txn,
            committed=False,
            bumps_epoch=True,
            reason="another producer takes the transactional id",
        )
    else:
        send_error(context, call, ErrorCode.PRODUCER_FENCED)


def wait_for_completion(
    context: TransactionContext, txn: TransactionMetadata, call: InitProducerIdCall
) -> None:
    """Answer CONCURRENT_TRANSACTIONS, so that the producer retries when the markers have been written.

    A producer that may not own the transactional id gets PRODUCER_FENCED.
    """
    may_own = _may_own(txn, read_identity(call.request))
    send_error(context, call, ErrorCode.CONCURRENT_TRANSACTIONS if may_own else ErrorCode.PRODUCER_FENCED)


def _may_own(txn: TransactionMetadata, identity: ProducerIdentity | None) -> bool:
    """Return whether a producer with this identity may own the transactional id.

    The request must have the current producer id, the previous one with its last epoch, or none. A producer
    sends the previous one if the response with the current producer id was lost.
    """
    return (
        identity is None
        or identity.producer_id == txn.producer_id
        or (identity.producer_id == txn.previous_producer_id and identity.epoch >= LAST_EPOCH)
    )


def _take_id(context: TransactionContext, txn: TransactionMetadata, call: InitProducerIdCall) -> None:
    txn.timeout_ms = call.request.transaction_timeout_ms
    txn.started_at = -1
    move(context, txn, S.EMPTY)
    context.reply(
        call,
        InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=txn.producer_id, producer_epoch=txn.epoch
        ),
    )
