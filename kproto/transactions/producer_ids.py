"""InitProducerId: a producer takes a transactional id, goes on with it, or takes it away from another.

Rules that hold here:

* Each producer that takes an id gets the next epoch, so that the one before it is fenced. It need not say
  anything about itself.
* A producer that says its id and epoch goes on after an error (KIP-360): it must be the one that has the id
  now. If it did not hear of its newest epoch, it is told again; whoever is neither is fenced.
* When the epochs are used up, the producer gets another producer id and begins with epoch 0 again.
* Nobody gets an id while its transaction is being ended. An open one is aborted first, and whoever asked is
  told to ask again.

Follows TransactionCoordinator.handleInitProducerId of Kafka 4.3.
"""

from __future__ import annotations

from typing import NamedTuple

from ..error_codes import ErrorCode
from ..messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from .completion import end
from .responses import refuse
from .state import LAST_EPOCH, NO_EPOCH, NO_ID, Received, S, Transaction, Turn, move

Call = Received[InitProducerIdRequest]


class Claim(NamedTuple):
    """Who a producer says it is."""

    producer_id: int
    epoch: int


def claim(request: InitProducerIdRequest) -> Claim | None:
    """None: it says nothing of itself. ValueError: only half of it."""
    if (request.producer_id == NO_ID) != (request.producer_epoch == NO_EPOCH):
        raise ValueError
    return None if request.producer_id == NO_ID else Claim(request.producer_id, request.producer_epoch)


def found(turn: Turn, txn: Transaction, call: Call) -> None:
    """Found the id: its first producer begins with epoch 0, whatever it says of itself."""
    txn.producer_id, txn.epoch = turn.new_producer_id(), 0
    _name(turn, txn, call)


def name(turn: Turn, txn: Transaction, call: Call) -> None:
    """Give the producer the next epoch, or tell it again what it has; no transaction is open."""
    said = claim(call.request)
    if not _may_be(txn, said):
        refuse(turn, call, ErrorCode.PRODUCER_FENCED)
        return
    if said is not None and said.epoch != txn.epoch:
        if said.epoch != txn.last_epoch:
            refuse(turn, call, ErrorCode.PRODUCER_FENCED)
            return
        # A retry of a call that went well. Kafka fails where the epochs are used up, too.
    else:
        txn.last_epoch = NO_EPOCH if said is None else txn.epoch
        if txn.exhausted:
            txn.previous_id, txn.producer_id, txn.epoch = txn.producer_id, turn.new_producer_id(), 0
        else:
            txn.previous_id = txn.producer_id
            txn.epoch += 1
    _name(turn, txn, call)


def take_over(turn: Turn, txn: Transaction, call: Call) -> None:
    """Abort what is open, in a new epoch, and let the producer ask again."""
    if _may_be(txn, claim(call.request)):
        refuse(turn, call, ErrorCode.CONCURRENT_TRANSACTIONS)
        end(turn, txn, committed=False, bumps=True, reason="another producer takes the id")
    else:
        refuse(turn, call, ErrorCode.PRODUCER_FENCED)


def wait_for_the_end(turn: Turn, txn: Transaction, call: Call) -> None:
    """Let the producer ask again: the transaction before is being ended."""
    fine = _may_be(txn, claim(call.request))
    refuse(turn, call, ErrorCode.CONCURRENT_TRANSACTIONS if fine else ErrorCode.PRODUCER_FENCED)


def _may_be(txn: Transaction, said: Claim | None) -> bool:
    """Can it be the producer that has this id, or had it until its epochs were used up?"""
    return (
        said is None
        or said.producer_id == txn.producer_id
        or (said.producer_id == txn.previous_id and said.epoch >= LAST_EPOCH)
    )


def _name(turn: Turn, txn: Transaction, call: Call) -> None:
    txn.timeout_ms = call.request.transaction_timeout_ms
    txn.partitions.clear()
    txn.started_at = -1
    move(turn, txn, S.EMPTY)
    turn.reply(
        call,
        InitProducerIdResponse(
            throttle_time_ms=0, error_code=0, producer_id=txn.producer_id, producer_epoch=txn.epoch
        ),
    )
