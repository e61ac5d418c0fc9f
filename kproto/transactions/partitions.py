"""The partitions of a transaction: AddPartitionsToTxn and AddOffsetsToTxn.

* X1: only the current owner of the transactional id, in its newest epoch, may add partitions. The first
  partition starts the transaction and its timeout.

* X6: a client without KIP-890 adds a partition to the transaction before it writes to the partition. The
  broker verifies this.

* X6: a client that implements KIP-890 does not add partitions or groups itself. The broker adds them when it
  receives Produce or TxnOffsetCommit.

* All partitions of a request are added, or none. If one partition does not exist, each existing partition
  gets the error OPERATION_NOT_ATTEMPTED.

* X3: while a transaction is being completed, no partition is added to the next transaction.

The module follows TransactionCoordinator.handleAddPartitionsToTransaction and
handleVerifyPartitionsInTransaction, and KafkaApis.handleAddPartitionsToTxnRequest, of Kafka 4.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..error_codes import ErrorCode
from .state import (
    OFFSETS_TOPIC,
    PartitionCounts,
    S,
    TransactionContext,
    TransactionMetadata,
    TransactionPartition,
    move,
)


@dataclass(slots=True)
class PartitionsRequest:
    """A request to add or verify partitions, with the resulting error code of each partition."""

    producer_id: int
    epoch: int
    partitions: list[TransactionPartition]
    codes: dict[TransactionPartition, ErrorCode] = field(
        default_factory=dict[TransactionPartition, ErrorCode]
    )

    def set_code(self, code: ErrorCode) -> None:
        """Set the same error code for every partition."""
        self.codes = dict.fromkeys(self.partitions, code)

    @property
    def code(self) -> ErrorCode:
        """The error code of the first partition, for requests with one result for all partitions."""
        return next(iter(self.codes.values()), ErrorCode.NONE)


def missing_partitions(
    topics: PartitionCounts | None, partitions: Iterable[TransactionPartition]
) -> set[TransactionPartition]:
    """Return the partitions that do not exist."""
    if topics is None:
        return set()
    missing: set[TransactionPartition] = set()
    for name, index in partitions:
        count = topics.partitions(name)
        if name != OFFSETS_TOPIC and not 0 <= index < (count or 0):
            missing.add((name, index))
    return missing


def owner_error(txn: TransactionMetadata, producer_id: int, epoch: int) -> ErrorCode:
    """Return NONE for the current owner of the transactional id, else the error for this producer (X1)."""
    if producer_id != txn.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return ErrorCode.NONE if epoch == txn.epoch else ErrorCode.PRODUCER_FENCED


def refuse_unknown_id(
    context: TransactionContext, txn: TransactionMetadata, request: PartitionsRequest
) -> None:
    """Answer INVALID_PRODUCER_ID_MAPPING: the transactional id does not exist."""
    request.set_code(ErrorCode.INVALID_PRODUCER_ID_MAPPING)


def add_partitions(context: TransactionContext, txn: TransactionMetadata, request: PartitionsRequest) -> None:
    """Start a transaction with the partitions, or add them to the open transaction."""
    error = owner_error(txn, request.producer_id, request.epoch)
    request.set_code(error)
    if error is ErrorCode.NONE:
        txn.partitions.update(dict.fromkeys(request.partitions))
        move(context, txn, S.ONGOING)


def verify_partitions(
    context: TransactionContext, txn: TransactionMetadata, request: PartitionsRequest
) -> None:
    """Answer TRANSACTION_ABORTABLE for each partition that is not part of the open transaction."""
    request.set_code(owner_error(txn, request.producer_id, request.epoch))
    if request.code is ErrorCode.NONE:
        for partition in request.partitions:
            if partition not in txn.partitions:
                request.codes[partition] = ErrorCode.TRANSACTION_ABORTABLE


def wait_for_completion(
    context: TransactionContext, txn: TransactionMetadata, request: PartitionsRequest
) -> None:
    """Answer CONCURRENT_TRANSACTIONS: the producer must retry after the markers have been written."""
    error = owner_error(txn, request.producer_id, request.epoch)
    request.set_code(error or ErrorCode.CONCURRENT_TRANSACTIONS)
