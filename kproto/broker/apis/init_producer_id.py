"""InitProducerId (key 22)."""

from __future__ import annotations

from ...messages.init_producer_id import InitProducerIdRequest
from ...transactions.responses import error_response
from ..broker import Broker
from ..call import Call, Result
from ..security.acls import Operation, Resource
from .api import Api
from .authorization import (
    CLUSTER_FAILED,
    TRANSACTIONAL_ID_FAILED,
    Access,
    Authorization,
    Authorized,
    Requirement,
    cluster_requirement,
    transactional_id_requirement,
)
from .transaction_coordinator import send_to_coordinator


def handle_init_producer_id(broker: Broker, call: Call) -> Result:
    """Pass the request to the transaction coordinator; return NOT_COORDINATOR if it is on another node."""
    request = call.request
    assert isinstance(request, InitProducerIdRequest)
    return send_to_coordinator(broker, call, [request.transactional_id])


def _authorize(access: Access, request: InitProducerIdRequest) -> Authorized:
    """Require WRITE on the transactional id, if the request has one.

    A producer without a transactional id needs IDEMPOTENT_WRITE on the cluster, or WRITE on any topic
    (KIP-679).
    """
    if request.transactional_id is not None:
        if access.allows_transactional_id(Operation.WRITE, request.transactional_id):
            return access.call
        return access.call.refuse(TRANSACTIONAL_ID_FAILED)
    if access.allows_cluster(Operation.IDEMPOTENT_WRITE):
        return access.call
    if access.broker.is_authorized_for_any(access.call, Operation.WRITE, Resource.TOPIC):
        return access.call
    return access.call.refuse(CLUSTER_FAILED)


API = Api(
    request=InitProducerIdRequest,
    handle=handle_init_producer_id,
    authorization=Authorization(
        (
            transactional_id_requirement(Operation.WRITE),
            cluster_requirement(Operation.IDEMPOTENT_WRITE),
            Requirement(Operation.WRITE, Resource.TOPIC, CLUSTER_FAILED),
        ),
        _authorize,
    ),
    refuse=error_response,
    # v6 (KIP-939) is not stable in Kafka 4.3, which does not advertise it.
    max_version=5,
)
