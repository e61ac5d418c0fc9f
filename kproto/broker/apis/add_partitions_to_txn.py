"""AddPartitionsToTxn (key 24): sent by clients up to v3, by brokers from v4 on (KIP-890)."""

from __future__ import annotations

from ...error_codes import ErrorCode
from ...messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ...transactions.partitions import missing_partitions
from ...transactions.responses import BATCH_VERSION, error_response, group_by_topic
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation
from .api import Api
from .authorization import (
    CLUSTER_FAILED,
    TOPIC_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    cluster_requirement,
    topic_requirement,
    transactional_id_requirement,
)
from .transaction_coordinator import send_to_coordinator


def handle_add_partitions_to_txn(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator; return NOT_COORDINATOR if it is on another node."""
    request = call.request
    assert isinstance(request, AddPartitionsToTxnRequest)
    transactional_ids = [transaction.transactional_id for transaction in request.transactions]
    return send_to_coordinator(broker, call, [*transactional_ids, request.v3_and_below_transactional_id])


def _authorize(access: Access, request: AddPartitionsToTxnRequest) -> Authorized:
    """Return the call if all its parts are permitted, and otherwise the response with the errors.

    If the producer may not write to one of the topics, no partition is added. The partitions of this topic
    get TOPIC_AUTHORIZATION_FAILED. Of the other topics, missing partitions get UNKNOWN_TOPIC_OR_PARTITION,
    and existing ones OPERATION_NOT_ATTEMPTED.
    """
    if access.call.version >= BATCH_VERSION:
        if access.allows_cluster(Operation.CLUSTER_ACTION):
            return access.call
        return AddPartitionsToTxnResponse(throttle_time_ms=0, error_code=CLUSTER_FAILED)
    if not access.allows_transactional_id(Operation.WRITE, request.v3_and_below_transactional_id):
        return access.call.refuse(TRANSACTIONAL_ID_FAILED)
    partitions = [(topic.name, index) for topic in request.v3_and_below_topics for index in topic.partitions]
    denied = {name for name, _ in partitions if not access.allows_topic(Operation.WRITE, name)}
    if not denied:
        return access.call
    errors = dict.fromkeys(partitions, ErrorCode.OPERATION_NOT_ATTEMPTED)
    unknown = missing_partitions(access.broker.topics, partitions)
    errors.update(dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    errors.update({(name, index): TOPIC_FAILED for name, index in partitions if name in denied})
    return AddPartitionsToTxnResponse(
        throttle_time_ms=0, results_by_topic_v3_and_below=group_by_topic(errors)
    )


API = Api(
    request=AddPartitionsToTxnRequest,
    handle=handle_add_partitions_to_txn,
    authorization=Authorization(
        (
            cluster_requirement(Operation.CLUSTER_ACTION),
            transactional_id_requirement(Operation.WRITE),
            topic_requirement(Operation.WRITE),
        ),
        _authorize,
    ),
    refuse=error_response,
    divided=("results_by_transaction",),
)
