"""Requests to the transaction coordinator, and the verification of transactional writes.

Rules, as in Kafka's AddPartitionsToTxnManager and ReplicaManager.handleProduceAppend (KIP-890):

* X6. Records and offsets of a transaction are accepted only while the transaction is ongoing and contains
  their partition.

* The coordinator verifies X6 only for a transaction's first batch in a partition, and for its first offset
  commit in a group. Later requests are not verified, even if they carry another transactional id.

* A client that implements KIP-890 adds a partition to the transaction by writing to the partition. An
  older client sends AddPartitionsToTxn first.

* The coordinator's PRODUCER_FENCED is replaced by INVALID_PRODUCER_EPOCH. TRANSACTION_ABORTABLE is replaced
  by INVALID_TXN_STATE for clients that do not know it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ...error_codes import ErrorCode
from ...messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ...transactions import RequestReceived, SendResponse, TransactionPartition
from ..broker import Broker
from ..call import PARKED, Call, Result

_BROKER_VERSION: Final = 5  # The version of AddPartitionsToTxn that brokers send.


def send_to_coordinator(broker: Broker, call: Call, transactional_ids: Iterable[str | None] = ()) -> Result:
    """Pass a request to the transaction coordinator.

    The response is NOT_COORDINATOR if another node coordinates one of the request's transactional ids.
    """
    cluster = broker.cluster
    for transactional_id in transactional_ids:
        if transactional_id and cluster.transaction_coordinator_of(transactional_id) != broker.node.id:
            return call.refuse(ErrorCode.NOT_COORDINATOR)
    broker.step_transaction_coordinator(RequestReceived(call.conn, call.request, call.version), call.now)
    return PARKED


def verify_partitions(
    broker: Broker,
    call: Call,
    transactional_id: str,
    producer: tuple[int, int],
    partitions: Iterable[TransactionPartition],
    *,
    adds: bool,
    knows_abortable: bool,
) -> dict[TransactionPartition, ErrorCode]:
    """Verify with the coordinator that the producer's transaction contains the partitions (X6).

    Returns the error code of each partition: NONE if the producer may write to it.

    `producer` is the producer's id and epoch. If the transaction does not contain a partition, the partition
    is added if `adds` is true, and otherwise gets an error. `knows_abortable` says whether the client knows
    the error TRANSACTION_ABORTABLE.
    """
    if broker.cluster.transaction_coordinator_of(transactional_id) not in broker.cluster.nodes:
        return dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    indexes_by_topic: dict[str, list[int]] = {}
    for name, index in partitions:
        indexes_by_topic.setdefault(name, []).append(index)
    producer_id, producer_epoch = producer
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=not adds,
        topics=[
            AddPartitionsToTxnTopic(name=name, partitions=indexes)
            for name, indexes in indexes_by_topic.items()
        ],
    )
    request = AddPartitionsToTxnRequest(transactions=[transaction])
    actions = broker.step_transaction_coordinator(RequestReceived(None, request, _BROKER_VERSION), call.now)
    (response,) = (action.response for action in actions if isinstance(action, SendResponse))
    assert isinstance(response, AddPartitionsToTxnResponse)
    errors: dict[TransactionPartition, ErrorCode] = {}
    for topic in response.results_by_transaction[0].topic_results:
        for partition in topic.results_by_partition:
            error = ErrorCode(partition.partition_error_code)
            errors[topic.name, partition.partition_index] = _client_error(
                error, knows_abortable=knows_abortable
            )
    return errors


def _client_error(error: ErrorCode, *, knows_abortable: bool) -> ErrorCode:
    """Return the error code to send to the client instead of an error code of the coordinator."""
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return error
